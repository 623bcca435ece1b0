//! Mistral (Jiang et al. 2023, arXiv:2310.06825), as `transformers/models/mistral` has it: Llama
//! with attention to a window of keys.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "mistral",
    class_prefix: "Mistral",
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, windows::KEYS, &["hidden_act", "rms_norm_eps"]],
    irrelevant_keys: &[],
    // Its files say that they are Llama.
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults { max_position_embeddings: Some(131072), intermediate_size: Some(14336), ..Defaults::LLAMA },
    )?;
    let window = b.config.optional_size("sliding_window", Some(4096))?;
    s.windows = Windows::read(b.config, s.layers, window, |_| true)?;
    blocks::decoder(b, &s, task)
}
