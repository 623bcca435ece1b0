//! Command R (Cohere 2024), as `transformers/models/cohere` has it: attention and feed-forward side by side after one layer
//! normalization without bias, rotation of neighbours, and scaled logits.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, HeadNorms, HeadWeights, Settings};
use crate::layers::builder::Builder;
use crate::layers::norm::Norm;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "cohere",
    class_prefix: "Cohere",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        &["attention_bias", "hidden_act", "layer_norm_eps", "logit_scale", "use_qk_norm"],
    ],
    irrelevant_keys: &[],
    gguf: None,
    build,
    pad_token_id: Some(0),
    ..llama::ARCHITECTURE
};

/// The defaults of a configuration, in Command R7B too.
pub(crate) const DEFAULTS: Defaults = Defaults {
    vocab_size: 256_000,
    max_position_embeddings: Some(8192),
    hidden_size: 8192,
    intermediate_size: Some(22528),
    num_hidden_layers: 40,
    num_attention_heads: 64,
    eps: ("layer_norm_eps", 1e-5),
    ..Defaults::LLAMA
};

/// Reads what Command R and Command R7B have in common.
pub(crate) fn read(b: &Builder<'_>, defaults: &Defaults) -> Result<Settings, ModelError> {
    const LOGIT_SCALE: &str = "logit_scale";
    let mut s = Settings::read(b, defaults)?;
    s.read_attention_bias(b, false)?;
    s.norm = Norm::Layer { bias: false };
    s.parallel = true;
    s.feed_forward_norms.before = None;
    s.interleaved = true;
    s.logit_factor = b.config.optional_positive(LOGIT_SCALE, Some(0.0625))?.map(|scale| (scale, LOGIT_SCALE));
    s.tied = true;
    Ok(s)
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = read(b, &DEFAULTS)?;
    s.rope = rope::Defaults { theta: 500_000.0, ..rope::Defaults::default() };
    if b.config.boolean("use_qk_norm", false)? {
        s.head_norms = HeadNorms::Apart(HeadWeights::Together);
    }
    blocks::decoder(b, &s, task)
}
