//! InternLM3 (Cai et al. 2024, arXiv:2403.17297), as `transformers/models/internlm3` has it: Llama under other names of keys.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "internlm3",
    class_prefix: "InternLM3",
    older_keys: &[("bias", "mlp_bias"), ("qkv_bias", "attention_bias")],
    irrelevant_keys: &[],
    gguf: None,
    build,
    pad_token_id: Some(2),
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 128_512,
            max_position_embeddings: Some(32768),
            intermediate_size: Some(10240),
            num_hidden_layers: 48,
            num_key_value_heads: Some(2),
            head_dim: Some(128),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    // Published code has the biases of the projection of what attention gives from the key of feed-forwards.
    s.input_bias = b.config.boolean("attention_bias", false)?;
    let bias = b.config.boolean("mlp_bias", false)?;
    (s.output_bias, s.feed_forward_bias) = (bias, bias);
    blocks::decoder(b, &s, task)
}
