//! Mistral (Jiang et al. 2023, arXiv:2310.06825), as `transformers/models/mistral` has it: Llama
//! with attention to a window of keys.

use crate::builder::Builder;
use crate::llama::{self, Defaults, Settings, UNUSED_TENSORS, Windows};
use crate::registry::{Architecture, Interface};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "mistral",
    class_prefix: "Mistral",
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
            vocab_size: 32000,
            max_position_embeddings: 131072,
            hidden_size: 4096,
            intermediate_size: 14336,
            rms_norm_eps: 1e-6,
        },
    )?;
    let window = b.config.optional_size("sliding_window", Some(4096))?;
    s.windows = Windows::read(b.config, s.layers, window, 0)?;
    llama::decoder(b, &s)
}
