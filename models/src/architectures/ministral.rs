//! Ministral (Mistral AI 2024), as `transformers/models/ministral` has it: Mistral with windows in the layers that the
//! configuration lists.

use crate::architecture::{Architecture, Properties};
use crate::architectures::mistral;
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::windows::Windows;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { model_type: "ministral", class_prefix: "Ministral", build, ..mistral::ARCHITECTURE };

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            max_position_embeddings: Some(131_072),
            intermediate_size: Some(14336),
            num_key_value_heads: Some(8),
            ..Defaults::LLAMA
        },
    )?;
    let window = b.config.optional_size("sliding_window", Some(4096))?;
    s.windows = Windows::read(b.config, s.layers, window, |_| true)?;
    blocks::decoder(b, &s, task)
}
