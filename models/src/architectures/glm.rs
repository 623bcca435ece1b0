//! GLM-4 9B of 2024 (GLM Team 2024, arXiv:2406.12793), as `transformers/models/glm` has it: GLM-4 without norms after attention
//! and feed-forward.

use crate::architecture::{Architecture, Properties};
use crate::architectures::glm4;
use crate::layers::blocks;
use crate::layers::builder::Builder;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { model_type: "glm", class_prefix: "Glm", gguf: None, build, ..glm4::ARCHITECTURE };

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = glm4::read(b)?;
    (s.attention_norms.after, s.feed_forward_norms.after) = (None, None);
    blocks::decoder(b, &s, task)
}
