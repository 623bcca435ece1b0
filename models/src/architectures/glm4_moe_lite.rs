//! GLM-4.7-Flash (Z.ai 2026), as `transformers/models/glm4_moe_lite` has it: DeepSeek-V3 with other numbers.

use crate::architecture::{Architecture, Properties};
use crate::architectures::deepseek_v3;
use crate::layers::blocks::{self, Defaults};
use crate::layers::builder::Builder;
use crate::layers::{decoder, experts, latent, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "glm4_moe_lite",
    class_prefix: "Glm4MoeLite",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        latent::KEYS,
        experts::SUM_KEYS,
        experts::DEEPSEEK_KEYS,
        &["hidden_act", "rms_norm_eps", "rope_interleave", experts::KINDS],
    ],
    only: &deepseek_v3::ONLY,
    // A layer that predicts further tokens.
    unused_tensors: &["layers.47.", "score.", "qa_outputs."],
    build,
    ..deepseek_v3::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults {
        vocab_size: 154_880,
        max_position_embeddings: Some(202_752),
        hidden_size: 2048,
        intermediate_size: Some(10240),
        num_hidden_layers: 47,
        num_attention_heads: 20,
        num_key_value_heads: Some(20),
        eps: ("rms_norm_eps", 1e-5),
        ..Defaults::LLAMA
    };
    let sizes = latent::Defaults { queries: Some(768), rank: 512, still: 192, turning: 64, values: Some(256) };
    let mut s = deepseek_v3::attention(b, defaults, &sizes)?;
    let numbers = deepseek_v3::Numbers {
        experts: Some(64),
        taken: Some(4),
        inner: 1536,
        shared: Some(1),
        groups: [1, 1],
        dense: 1,
        factor: 1.8,
        normalizes: true,
    };
    let mut mixture = deepseek_v3::mixture(b, &s, &numbers)?;
    mixture.dense = experts::dense_listed(b.config, &s, (Some("first_k_dense_replace"), 1))?;
    s.experts = Some(mixture);
    blocks::decoder(b, &s, task)
}
