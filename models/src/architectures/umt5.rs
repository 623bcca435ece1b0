//! UMT5 (Chung et al. 2023, arXiv:2304.09151), as `transformers/models/umt5` has it: mT5 with biases of attention in every layer.

use crate::architecture::{Architecture, Properties};
use crate::architectures::t5::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { model_type: "umt5", class_prefix: "UMT5", build, ..t5::ARCHITECTURE };

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config, Defaults { own_biases: true, ..Defaults::MULTILINGUAL })?;
    t5::outputs(b, &s, task)
}
