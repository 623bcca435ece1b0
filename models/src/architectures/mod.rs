//! One file for each architecture: the names of its weights, the keys of its configuration, and its graph. To add one: a
//! file with its `ARCHITECTURE`, its module here, and a line in [`ARCHITECTURES`].

pub(crate) mod bart;
pub(crate) mod bert;
pub(crate) mod distilbert;
pub(crate) mod gemma;
pub(crate) mod gemma2;
pub(crate) mod gpt2;
pub(crate) mod gpt_neox;
pub(crate) mod llama;
pub(crate) mod marian;
pub(crate) mod mistral;
pub(crate) mod opt;
pub(crate) mod phi3;
pub(crate) mod qwen2;
pub(crate) mod qwen3;
pub(crate) mod roberta;
pub(crate) mod t5;
pub(crate) mod vit;

use crate::Architecture;

/// Every architecture that can be loaded.
pub const ARCHITECTURES: &[Architecture] = &[
    // In the order of their names, which is that of messages.
    bart::ARCHITECTURE,
    bert::ARCHITECTURE,
    roberta::CAMEMBERT,
    distilbert::ARCHITECTURE,
    gemma::ARCHITECTURE,
    gemma2::ARCHITECTURE,
    gpt2::ARCHITECTURE,
    gpt_neox::ARCHITECTURE,
    llama::ARCHITECTURE,
    marian::ARCHITECTURE,
    mistral::ARCHITECTURE,
    opt::ARCHITECTURE,
    phi3::ARCHITECTURE,
    qwen2::ARCHITECTURE,
    qwen3::ARCHITECTURE,
    roberta::ARCHITECTURE,
    t5::ARCHITECTURE,
    vit::ARCHITECTURE,
    roberta::XLM_ROBERTA,
];

impl Architecture {
    /// The architecture of a `model_type`.
    #[must_use]
    pub fn find(model_type: &str) -> Option<&'static Architecture> {
        ARCHITECTURES.iter().find(|a| a.model_type == model_type)
    }

    /// The architecture of a class of the transformers library such as `BertForMaskedLM`.
    pub(crate) fn of_class(class: &str) -> Option<&'static Architecture> {
        const AFTER_PREFIX: &[&str] = &["For", "Model", "LMHeadModel"];
        let rest = |a: &Architecture| class.strip_prefix(a.class_prefix);
        ARCHITECTURES.iter().find(|a| rest(a).is_some_and(|r| AFTER_PREFIX.iter().any(|p| r.starts_with(p))))
    }
}
