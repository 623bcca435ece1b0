//! Loading checkpoints: the goldens, the forms in which hubs carry the same model, and input that
//! is wrong in every way that is known.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is a test"
)]

mod adapters;
mod authors;
mod checkpoints;
mod configs;
mod decoders;
mod dense_decoders;
mod encoder_heads;
mod experts;
mod float_codes;
mod fuzz;
mod gemma;
mod gguf;
mod gguf_converted;
mod gguf_parts;
mod gguf_writer;
mod goldens;
mod gpt_neox;
mod heads;
mod kinds_of_layers;
mod labels;
mod marian;
mod multimodal;
mod opt;
mod quantized;
mod refusals;
mod relatives;
mod rope;
mod sentence;
mod sentence_tables;
mod seq2seq;
mod shared_tensors;
mod sizes;
mod support;
mod towers;
mod transformers5;
mod values;
mod variants;
mod vision;
mod weight_files;
