//! The rarer settings of `planish generate`: those of generation_config.json by their names, and how the model is run.

use std::num::NonZeroUsize;

use planish_generate::{LOOKUP, MOST_BEAMS, PromptLookup};
use serde_json::{Map, Value, json};

use super::generate_numbers::{MOST_TOKENS, finite, penalty, positive, probability, subtracted};
use super::keys::{Key, KeyArguments, Keyed, switch};
use super::numbers::whole;

/// `--set` of `planish generate`.
pub(super) type GenerateArguments = KeyArguments<GenerateSettings>;

/// What `--set` sets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GenerateSettings {
    /// Settings in place of those of generation_config.json.
    pub(super) members: Map<String, Value>,
    /// Whether generation_config.json is read for more than the tokens that begin and end a text.
    pub(super) generation_config: bool,
    pub(super) ignore_eos: bool,
    /// How many tokens a step reads ahead at most, and how many last tokens it looks for.
    lookup: Option<NonZeroUsize>,
    ngram: Option<NonZeroUsize>,
    pub(super) use_cache: bool,
    pub(super) prefill_chunk_size: Option<NonZeroUsize>,
    pub(super) batch: Option<NonZeroUsize>,
}

impl Default for GenerateSettings {
    fn default() -> Self {
        Self {
            members: Map::new(),
            generation_config: true,
            ignore_eos: false,
            lookup: None,
            ngram: None,
            use_cache: true,
            prefill_chunk_size: None,
            batch: None,
        }
    }
}

/// The last tokens that are looked for, where nothing says how many.
const NGRAM: NonZeroUsize = NonZeroUsize::MIN.saturating_add(2);

/// The most prompts of a batch.
const MOST_BATCH: usize = 4096;

/// The most tokens that a step may read ahead or look for: more than any text repeats with profit.
const MOST_CANDIDATES: usize = 1024;

impl Keyed for GenerateSettings {
    const OPTION: &'static str = "set";
    const HELP: &'static str = "Rarer settings. The keys from num_beams to renormalize_logits override those of \
                               generation_config.json, and the others are of this command alone; defaults are in brackets. The keys are";
    const SHORTHANDS: &'static [(&'static str, &'static str)] = &[("beams", "num_beams"), ("ignore-eos", "ignore_eos")];
    const ELSEWHERE: &'static [(&'static str, &'static str)] = &[
        ("max_new_tokens", "--max-new-tokens"),
        ("temperature", "--temperature"),
        ("top_k", "--top-k"),
        ("top_p", "--top-p"),
        ("seed", "--seed"),
        ("stop_strings", "--stop"),
    ];
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "num_beams",
            value: "N",
            help: "search with N beams",
            set: |it, key, text| it.put(key, whole(text, 1, MOST_BEAMS)?),
        },
        Key {
            name: "num_return_sequences",
            value: "N",
            help: "give N continuations of each prompt: sampled ones, or the best beams",
            set: |it, key, text| it.put(key, whole(text, 1, MOST_BEAMS)?),
        },
        Key {
            name: "length_penalty",
            value: "X",
            help: "beam search divides the log probability of a text by its length to the power X",
            set: |it, key, text| it.put(key, finite(text)?),
        },
        Key {
            name: "early_stopping",
            value: "true|false|never",
            help: "say when a beam search ends, as in the transformers library",
            set: GenerateSettings::json,
        },
        Key {
            name: "do_sample",
            value: "",
            help: "sample tokens, those of beams too, with the settings of generation_config.json",
            set: |it, key, text| it.put(key, switch(text)?),
        },
        Key {
            name: "min_p",
            value: "P",
            help: "sample only from tokens with at least P times the probability of the likeliest one",
            set: |it, key, text| it.put(key, probability(text)?),
        },
        Key {
            name: "repetition_penalty",
            value: "X",
            help: "divide the positive scores of tokens that the text has by X, and multiply negative ones",
            set: |it, key, text| it.put(key, penalty(text)?),
        },
        Key {
            name: "encoder_repetition_penalty",
            value: "X",
            help: "multiply the positive scores of tokens that the prompt has by X, and divide negative ones",
            set: |it, key, text| it.put(key, penalty(text)?),
        },
        Key {
            name: "frequency_penalty",
            value: "X",
            help: "subtract X from the score of a token for each time that it was generated, X from -2 to 2",
            set: |it, key, text| it.put(key, subtracted(text)?),
        },
        Key {
            name: "presence_penalty",
            value: "X",
            help: "subtract X from the scores of tokens that were generated, X from -2 to 2",
            set: |it, key, text| it.put(key, subtracted(text)?),
        },
        Key {
            name: "no_repeat_ngram_size",
            value: "N",
            help: "no sequence of N tokens occurs twice in the text",
            set: |it, key, text| it.put(key, whole(text, 0, MOST_TOKENS)?),
        },
        Key {
            name: "encoder_no_repeat_ngram_size",
            value: "N",
            help: "no sequence of N tokens of the prompt occurs in the text",
            set: |it, key, text| it.put(key, whole(text, 0, MOST_TOKENS)?),
        },
        Key {
            name: "min_new_tokens",
            value: "N",
            help: "choose no end token before N new tokens",
            set: |it, key, text| it.put(key, whole(text, 0, MOST_TOKENS)?),
        },
        Key {
            name: "min_length",
            value: "N",
            help: "choose no end token before the text has N tokens, with those of the prompt; overrides min_new_tokens too",
            set: |it, key, text| it.put(key, whole(text, 0, MOST_TOKENS)?),
        },
        Key {
            name: "max_length",
            value: "N",
            help: "end a text that has N tokens, with those of the prompt; overrides max_new_tokens too",
            set: |it, key, text| it.put(key, whole(text, 0, MOST_TOKENS)?),
        },
        Key {
            name: "bad_words_ids",
            value: "[[ID,..],..]",
            help: "choose no token that completes one of these sequences",
            set: GenerateSettings::json,
        },
        Key {
            name: "suppress_tokens",
            value: "ID,..",
            help: "choose none of these tokens",
            set: GenerateSettings::json,
        },
        Key {
            name: "begin_suppress_tokens",
            value: "ID,..",
            help: "begin no text with one of these tokens",
            set: GenerateSettings::json,
        },
        Key {
            name: "forced_bos_token_id",
            value: "ID",
            help: "begin each text with this token",
            set: GenerateSettings::json,
        },
        Key {
            name: "forced_eos_token_id",
            value: "ID,..",
            help: "end a text that gets the largest number of tokens with one of these tokens",
            set: GenerateSettings::json,
        },
        Key {
            name: "renormalize_logits",
            value: "",
            help: "scale the probabilities to the sum 1 after all changes",
            set: |it, key, text| it.put(key, switch(text)?),
        },
        Key {
            name: "ignore_eos",
            value: "",
            help: "choose no end token, so that each text gets the largest number of tokens",
            set: |it, _, text| switch(text).map(|value| it.ignore_eos = value),
        },
        Key {
            name: "generation_config",
            value: "false",
            help: "take only the tokens that begin and end a text from generation_config.json",
            set: |it, _, text| switch(text).map(|value| it.generation_config = value),
        },
        Key {
            name: LOOKUP,
            value: "N",
            help: "read up to N tokens ahead in greedy search: those that follow the last tokens where the text had them before",
            set: |it, _, text| positive(text, MOST_CANDIDATES).map(|value| it.lookup = Some(value)),
        },
        Key {
            name: "max_matching_ngram_size",
            value: "N",
            help: "the lookup searches for the last N tokens, then for fewer [3]",
            set: |it, _, text| positive(text, MOST_CANDIDATES).map(|value| it.ngram = Some(value)),
        },
        Key {
            name: "prefill_chunk_size",
            value: "N",
            help: "read prompts in runs of N tokens, where a decoder has a cache [512; all where chunks are slower or may change the text]",
            set: |it, _, text| positive(text, MOST_TOKENS).map(|value| it.prefill_chunk_size = Some(value)),
        },
        Key {
            name: "batch",
            value: "N",
            help: "continue N prompts of --prompts at once, or fewer that have more than 16384 tokens with padding; continuations and beams count as prompts [8]",
            set: |it, _, text| positive(text, MOST_BATCH).map(|value| it.batch = Some(value)),
        },
        Key {
            name: "use_cache",
            value: "false",
            help: "compute all tokens again in each step",
            set: |it, _, text| switch(text).map(|value| it.use_cache = value),
        },
    ];
}

impl GenerateSettings {
    fn put(&mut self, key: &str, value: impl Into<Value>) -> Result<(), String> {
        self.members.insert(key.to_owned(), value.into());
        Ok(())
    }

    /// A value in JSON, a list without its brackets, or a word.
    fn json(&mut self, key: &str, text: &str) -> Result<(), String> {
        let list = || serde_json::from_str(&format!("[{text}]")).ok();
        let value: Option<Value> = serde_json::from_str(text).ok().or_else(list);
        self.put(key, value.unwrap_or_else(|| json!(text)))
    }

    /// Whether a setting of generation_config.json is overridden.
    pub(super) fn has(&self, key: &str) -> bool {
        self.members.contains_key(key)
    }

    /// Whether tokens are to be sampled.
    pub(super) fn samples(&self) -> bool {
        self.members.get("do_sample") == Some(&Value::Bool(true))
    }

    /// How greedy search reads ahead, if it does.
    pub(super) fn lookup(&self) -> Option<PromptLookup> {
        self.lookup.map(|candidates| PromptLookup { candidates, ngram: self.ngram.unwrap_or(NGRAM) })
    }

    /// What of it has no effect or contradicts itself.
    pub(super) fn refused(&self) -> Option<&'static str> {
        if self.ngram.is_some() && self.lookup.is_none() {
            Some("--set max_matching_ngram_size has no effect without prompt_lookup_num_tokens")
        } else if self.prefill_chunk_size.is_some() && !self.use_cache {
            Some("--set prefill_chunk_size is for a cache, and use_cache=false leaves it out")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use planish_generate::GenerationConfig;

    use super::*;

    fn read(text: &str) -> Result<GenerateSettings, String> {
        GenerateSettings::read([text])
    }

    /// Each key of generation_config.json changes a setting of it.
    #[test]
    fn members_are_settings_of_the_file() {
        for (text, value) in [
            ("num_beams=4", json!(4)),
            ("length_penalty=-.5", json!(-0.5)),
            ("early_stopping=never", json!("never")),
            ("early_stopping=true", json!(true)),
            ("do_sample", json!(true)),
            ("min_p=0.25", json!(0.25)),
            ("repetition_penalty=1.5", json!(1.5)),
            ("num_return_sequences=2", json!(2)),
            ("encoder_repetition_penalty=1.5", json!(1.5)),
            ("frequency_penalty=-.5", json!(-0.5)),
            ("presence_penalty=2", json!(2.0)),
            ("encoder_no_repeat_ngram_size=3", json!(3)),
            ("no_repeat_ngram_size=3", json!(3)),
            ("min_new_tokens=2", json!(2)),
            ("min_length=2", json!(2)),
            ("max_length=20", json!(20)),
            ("bad_words_ids=[[1,2],[3]]", json!([[1, 2], [3]])),
            ("suppress_tokens=1,2", json!([1, 2])),
            ("begin_suppress_tokens=[4]", json!([4])),
            ("forced_bos_token_id=5", json!(5)),
            ("forced_eos_token_id=6", json!(6)),
            ("renormalize_logits=true", json!(true)),
        ] {
            let members = read(text).unwrap().members;
            let key = text.split('=').next().unwrap_or_default();
            assert_eq!(members, Map::from_iter([(key.to_owned(), value)]), "{text}");
            let [usual, set] = [Map::new(), members].map(|all| GenerationConfig::default().overridden(all).unwrap());
            assert!(set.unknown.is_empty(), "{text}");
            assert_ne!(format!("{usual:?}"), format!("{set:?}"), "{text}");
        }
    }

    #[test]
    fn several_pairs_may_have_lists() {
        let settings =
            read("suppress_tokens=1,2,num_beams=3,ignore_eos,use_cache=false,generation_config=false").unwrap();
        assert_eq!(
            settings.members,
            Map::from_iter([("suppress_tokens".to_owned(), json!([1, 2])), ("num_beams".to_owned(), json!(3))])
        );
        assert!(settings.ignore_eos && !settings.use_cache && !settings.generation_config);
        let ahead = read("prompt-lookup-num-tokens=8,prefill_chunk_size=16").unwrap();
        let (candidates, ngram) = (NonZeroUsize::new(8).unwrap(), NonZeroUsize::new(3).unwrap());
        assert_eq!(ahead.lookup(), Some(PromptLookup { candidates, ngram }));
        assert_eq!((ahead.prefill_chunk_size, ahead.refused()), (NonZeroUsize::new(16), None));
        let both = read("prompt_lookup_num_tokens=8,max_matching_ngram_size=1").unwrap();
        assert_eq!(both.lookup(), Some(PromptLookup { candidates, ngram: NonZeroUsize::MIN }));
    }

    #[test]
    fn wrong_settings_are_refused() {
        for (text, part) in [
            ("num_beams=1025", "--set num_beams=1025: expected a whole number from 1 to 1024"),
            ("repetition_penalty=1e39", "not a number above 0 that float32 has"),
            ("min_p=1.5", "not a number from 0 to 1"),
            ("frequency_penalty=2.1", "--set frequency_penalty=2.1: not a number from -2 to 2"),
            ("num_return_sequences=0", "expected a whole number from 1 to 1024"),
            ("prompt_lookup_num_tokens=0", "expected a whole number from 1 to 1024"),
            ("ignore_eos=1", "expected true or false"),
            ("num_beams=2,num_beams=3", "has `num_beams` twice"),
            ("num_beam=2", "has no key `num_beam`; its keys are num_beams=N, num_return_sequences=N"),
            ("top-k=3", "`top-k` is an option: --top-k"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert!(read("max_matching_ngram_size=2").unwrap().refused().is_some());
        assert!(read("use_cache=false,prefill_chunk_size=2").unwrap().refused().is_some());
    }
}
