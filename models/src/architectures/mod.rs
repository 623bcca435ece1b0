//! One file for each architecture: the names of its weights, the keys of its configuration, and its graph.

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
