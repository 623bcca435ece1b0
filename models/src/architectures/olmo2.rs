//! OLMo 2 (OLMo Team 2025, arXiv:2501.00656), as `transformers/models/olmo2` has it: Llama with norms after attention and
//! feed-forward, and of queries and keys as a whole.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Around, Defaults, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "olmo2",
    class_prefix: "Olmo2",
    tasks: decoder::OF_TEXTS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["attention_bias", "hidden_act", "rms_norm_eps"]],
    irrelevant_keys: &[],
    gguf: None,
    build,
    pad_token_id: Some(1),
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults { vocab_size: 50304, eps: ("rms_norm_eps", 1e-5), ..Defaults::LLAMA };
    let s = read(b, &defaults)?;
    blocks::decoder(b, &s, task)
}

/// Reads what OLMo 2 and OLMo 3 have in common.
pub(crate) fn read(b: &Builder<'_>, defaults: &Defaults) -> Result<Settings, ModelError> {
    let mut s = Settings::read(b, defaults)?;
    s.read_attention_bias(b, false)?;
    s.attention_norms = Around::after("post_attention_layernorm");
    s.feed_forward_norms = Around::after("post_feedforward_layernorm");
    s.head_norms = HeadNorms::Whole;
    Ok(s)
}
