//! Qwen3 (Yang et al. 2025, arXiv:2505.09388), as `transformers/models/qwen3` has it: Llama with
//! heads of queries and keys that are normalized, and windows as Qwen2 has them.

use crate::architectures::llama::{self, UNUSED_TENSORS};
use crate::architectures::qwen2;
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::windows;
use crate::layers::{decoder, rope};
use crate::registry::{Architecture, Interface};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "qwen3",
    class_prefix: "Qwen3",
    base: "model",
    renamed: &[],
    tasks: &[Task::TextGeneration],
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        windows::KEYS,
        qwen2::WINDOW_KEYS,
        &["attention_bias", "hidden_act"],
    ],
    only: &[],
    irrelevant_keys: &[],
    unused_tensors: UNUSED_TENSORS,
    build,
};

fn build(b: &mut Builder<'_>, _: Task) -> Result<Interface, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 151936,
            max_position_embeddings: 32768,
            intermediate_size: 22016,
            num_key_value_heads: Some(32),
            head_dim: Some(128),
            ..Defaults::LLAMA
        },
    )?;
    let bias = b.config.boolean("attention_bias", false)?;
    (s.input_bias, s.output_bias) = (bias, bias);
    s.head_norms = true;
    s.windows = qwen2::windows(b.config, s.layers)?;
    llama::decoder(b, &s)
}
