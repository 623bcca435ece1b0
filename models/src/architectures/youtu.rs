//! Youtu-LLM (Tencent 2025, arXiv:2512.24618), as `transformers/models/youtu` has it: DeepSeek-V3 without experts.

use crate::architecture::{Architecture, Properties};
use crate::architectures::deepseek_v3;
use crate::layers::blocks::{self, Defaults};
use crate::layers::builder::Builder;
use crate::layers::{decoder, latent, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "youtu",
    class_prefix: "Youtu",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, latent::KEYS, &["hidden_act", "rms_norm_eps", "rope_interleave"]],
    older_keys: &[],
    only: &[],
    irrelevant_keys: &["embedding_initializer_range", "mlp_bias", "qk_head_dim"],
    unused_tensors: &[".rotary_emb.inv_freq", "score.", "qa_outputs."],
    build,
    ..deepseek_v3::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults {
        vocab_size: 128_256,
        max_position_embeddings: Some(131_072),
        hidden_size: 2048,
        intermediate_size: Some(6144),
        num_attention_heads: 16,
        num_key_value_heads: Some(16),
        ..Defaults::LLAMA
    };
    let sizes = latent::Defaults { queries: Some(1536), rank: 512, still: 128, turning: 64, values: Some(128) };
    let mut s = deepseek_v3::attention(b, defaults, &sizes)?;
    s.tied = true;
    blocks::decoder(b, &s, task)
}
