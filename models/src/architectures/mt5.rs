//! mT5 (Xue et al. 2020, arXiv:2010.11934), as `transformers/models/mt5` has it: T5 with a vocabulary of many languages, whose
//! decoder's result is not scaled.

use crate::architecture::{Architecture, Properties};
use crate::architectures::t5::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::seq2seq;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "mt5",
    class_prefix: "MT5",
    keys: &[t5::KEYS, seq2seq::TOKEN_KEYS],
    build,
    ..t5::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config, Defaults { scales: false, ..Defaults::MULTILINGUAL })?;
    t5::outputs(b, &s, task)
}
