//! Qwen2 (Yang et al. 2024, arXiv:2407.10671), as `transformers/models/qwen2` has it: Llama with
//! biases of queries, keys and values, and windows in the upper layers where they are switched on.

use crate::builder::Builder;
use crate::llama::{self, Defaults, Settings, UNUSED_TENSORS, Windows};
use crate::registry::{Architecture, Interface};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "qwen2",
    class_prefix: "Qwen2",
    base: "model",
    tasks: &[Task::TextGeneration],
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
            hidden_size: 4096,
            intermediate_size: 22016,
            rms_norm_eps: 1e-6,
        },
    )?;
    s.input_bias = true;
    let window = b.config.optional_size("sliding_window", Some(4096))?;
    let from = b.config.optional_size("max_window_layers", Some(28))?.unwrap_or(0);
    let window = if b.config.boolean("use_sliding_window", false)? { window } else { None };
    s.windows = Windows::read(b.config, s.layers, window, from)?;
    llama::decoder(b, &s)
}
