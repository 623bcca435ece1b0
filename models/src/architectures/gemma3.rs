//! Gemma 3 (Gemma Team 2025, arXiv:2503.19786), the text model as `transformers/models/gemma3` has it: Gemma 2 with heads
//! of queries and keys that are normalized, and a rotary embedding of their own for layers with windows.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{gemma2, llama};
use crate::layers::blocks::{self, Defaults, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::rope::Layers;
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "gemma3_text",
    class_prefix: "Gemma3",
    tasks: decoder::OF_TEXTS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        windows::KEYS,
        windows::PATTERN_KEYS,
        gemma2::KEYS,
        &[BIDIRECTIONAL, LOCAL_THETA],
    ],
    irrelevant_keys: gemma2::IRRELEVANT_KEYS,
    gguf: None,
    build,
    pad_token_id: Some(0),
    ..llama::ARCHITECTURE
};

const BIDIRECTIONAL: &str = "use_bidirectional_attention";
pub(super) const LOCAL_THETA: &str = "rope_local_base_freq";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults { vocab_size: 262_208, max_position_embeddings: Some(131_072), ..gemma2::DEFAULTS };
    let mut s = gemma2::read(b, &defaults, [None; 2])?;
    // The reference gives no cap to attention, whatever `attn_logit_softcapping` says.
    s.softcap = None;
    s.head_norms = HeadNorms::Each;
    let every = windows::pattern(b.config, 6)?;
    let window = b.config.size("sliding_window", 4096)?.value;
    let both_sides = b.config.boolean(BIDIRECTIONAL, false)?;
    // A token sees as many on either side as half of this, and itself.
    let window = if both_sides { window / 2 + 1 } else { window };
    s.windows = Windows::read(b.config, s.layers, Some(window), |layer| !(layer + 1).is_multiple_of(every))?;
    ropes(&mut s);
    s.both_sides = both_sides.then_some(BIDIRECTIONAL);
    blocks::decoder(b, &s, task)
}

/// Sets the rotary embeddings of layers without windows and with.
pub(super) fn ropes(s: &mut Settings) {
    s.rope = rope::Defaults { layers: Layers::Full, theta: 1e6, ..rope::Defaults::default() };
    let layers = Layers::Sliding { scaled: false };
    s.local_rope = Some(rope::Defaults { layers, theta_key: LOCAL_THETA, ..rope::Defaults::default() });
}
