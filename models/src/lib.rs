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

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests read what they wrote"))]

mod accept;
mod architecture;
mod architectures;
mod card;
mod checkpoint;
mod error;
mod layers;
mod load;
pub mod names;
mod places;
mod sentence;
mod task;

pub use architecture::Architecture;
pub use architectures::ARCHITECTURES;
pub use card::{CARD, ModelCard};
pub use checkpoint::companions::{TRANSFORMER_SETTINGS, companions, is_companion};
pub use checkpoint::elsewhere::{RemoteFile, RemoteFiles};
pub use checkpoint::safetensors::{MAX_HEADER_BYTES, StoredTensor, WeightFile};
pub use checkpoint::wanted::{candidates, wanted, wanted_with};
pub use checkpoint::{Checkpoint, SourceFile};
pub use error::ModelError;
pub use layers::pictures::{Interpolation, PICTURES_OPSET, PictureSize, PictureSteps};
pub use layers::sounds::{BandForm, BandSteps, SoundSteps};
pub use load::{
    IdRange, ImageSize, LatentCache, LengthDependence, LoadOptions, Loaded, NotAnImageSize, Part, Preprocessing,
    Towers, load,
};
pub use places::{ImagePlaces, PlacesForm};
pub use sentence::{
    ModuleEntry, Pooling, UnknownPooling, module_entries, pooling_config, pooling_modes, written_modules,
};
pub use task::{Task, UnknownTask};
