//! Hugging Face checkpoints as graphs: a folder with `config.json` and safetensors weights goes
//! in, verified [`planish_ir::Graph`]s in the canonical form come out. Names of tasks, inputs
//! and outputs are those of Optimum.
//!
//! ```no_run
//! use planish_models::{Checkpoint, LoadOptions, load};
//!
//! let checkpoint = Checkpoint::open("bert-base-uncased".as_ref())?;
//! let model = load(&checkpoint, LoadOptions::default())?;
//! println!("{}", model.architecture);
//! for part in &model.parts {
//!     println!("{}:\n{}", part.name, part.graph);
//! }
//! # Ok::<(), planish_models::ModelError>(())
//! ```

mod bart;
mod bert;
mod blocks;
mod builder;
mod checkpoint;
mod config;
mod config_keys;
mod decoder;
mod distilbert;
mod encoder;
mod error;
mod files;
mod gemma;
mod gemma2;
mod gpt2;
mod gpt_neox;
mod heads;
mod llama;
mod load;
mod marian;
mod mistral;
mod opt;
mod phi3;
mod qwen2;
mod qwen3;
mod refusals;
mod registry;
mod relative;
mod roberta;
mod rope;
mod safetensors;
mod seq2seq;
mod sinusoidal;
mod t5;
mod task;
mod tensors;
mod vit;
mod windows;

pub use checkpoint::{COMPANIONS, Checkpoint, SourceFile};
pub use error::ModelError;
pub use load::{IdRange, LoadOptions, Loaded, Part, load};
pub use registry::{ARCHITECTURES, Architecture};
pub use safetensors::{MAX_HEADER_BYTES, StoredTensor, WeightFile};
pub use task::Task;
