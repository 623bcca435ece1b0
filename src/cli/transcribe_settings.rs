//! The rarer settings of `planish transcribe`: those of generation_config.json by their names.

use serde_json::{Map, Value};

use super::generate_numbers::{MOST_TOKENS, finite, penalty};
use super::keys::{Key, Keyed, switch};
use super::numbers::whole;

/// `--set` of `planish transcribe`: settings in the place of those of generation_config.json.
#[derive(Clone, Debug, Default)]
pub(super) struct TranscribeSettings {
    pub(super) members: Map<String, Value>,
}

impl TranscribeSettings {
    fn put(&mut self, key: &str, value: impl Into<Value>) -> Result<(), String> {
        self.members.insert(key.to_owned(), value.into());
        Ok(())
    }

    fn threshold(&mut self, key: &str, text: &str) -> Result<(), String> {
        let value = if text == "none" { Value::Null } else { finite(text)?.into() };
        self.put(key, value)
    }
}

impl Keyed for TranscribeSettings {
    const OPTION: &'static str = "set";
    const HELP: &'static str = "Rarer settings. All but chunk_length_s override those of generation_config.json; CTC models take that one alone. The keys are";
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "chunk_length_s",
            value: "X",
            help: "of a CTC model or Moonshine: windows have X seconds, of which a sixth at each edge overlaps with the next window [30]",
            set: |it, key, text| it.put(key, finite(text)?),
        },
        Key {
            name: "compression_ratio_threshold",
            value: "X|none",
            help: "a window is decoded again if its ids are X times as long as what zlib makes of them [1.35]",
            set: TranscribeSettings::threshold,
        },
        Key {
            name: "logprob_threshold",
            value: "X|none",
            help: "a window is decoded again if the mean log probability of its tokens is below X [-1]",
            set: TranscribeSettings::threshold,
        },
        Key {
            name: "no_speech_threshold",
            value: "P|none",
            help: "a window below logprob_threshold is left out if nobody speaks with a probability above P [0.6]",
            set: TranscribeSettings::threshold,
        },
        Key {
            name: "condition_on_prev_tokens",
            value: "",
            help: "read each window after what was said before it",
            set: |it, key, text| it.put(key, switch(text)?),
        },
        Key {
            name: "cut_at_silence",
            value: "",
            help: "cut recordings at quiet places into pieces of at most a window, of which --batch N run side by side",
            set: |it, key, text| it.put(key, switch(text)?),
        },
        Key {
            name: "max_new_tokens",
            value: "N",
            help: "give a window N tokens at most",
            set: |it, key, text| it.put(key, whole(text, 1, MOST_TOKENS)?),
        },
        Key {
            name: "num_beams",
            value: "1",
            help: "take no beams, whatever generation_config.json says",
            set: |it, key, text| it.put(key, whole(text, 1, 1)?),
        },
        Key {
            name: "repetition_penalty",
            value: "X",
            help: "divide the positive scores of tokens that the text has by X, and multiply negative ones",
            set: |it, key, text| it.put(key, f64::from(penalty(text)?)),
        },
        Key {
            name: "no_repeat_ngram_size",
            value: "N",
            help: "no sequence of N tokens occurs twice in a window",
            set: |it, key, text| it.put(key, whole(text, 0, MOST_TOKENS)?),
        },
    ];
}
