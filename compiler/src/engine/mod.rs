//! TensorRT engines of an artifact: the profiles that they have, how they are built, and what is recorded of them.
//!
//! An artifact of a target with engines has ONNX files, `profiles.json`, and for each part that was built an engine
//! (`PART.engine`) and a record of the build (`PART.layers.json`), or other names by its layout. [`build_engines`] fills an artifact in the making;
//! [`rebuild`] builds the engines of a finished artifact anew.

#[cfg(any(feature = "tensorrt-rtx", feature = "tensorrt"))]
mod build;
#[cfg(not(any(feature = "tensorrt-rtx", feature = "tensorrt")))]
#[path = "absent.rs"]
mod build;
mod gpus;
mod options;
mod profiles;
mod rebuild;
mod record;
#[cfg(any(feature = "tensorrt-rtx", feature = "tensorrt"))]
mod refit;
mod replaced;
mod symbols;
#[cfg(test)]
mod tests;
mod trtexec;

#[cfg(not(any(feature = "tensorrt-rtx", feature = "tensorrt")))]
pub use build::refit_engines;
pub use build::{build_engines, check_builder, default_gpus, leaves_graph};
pub use gpus::{DefaultGpus, products, refused};
pub(crate) use options::products_of;
pub use options::{EngineObserver, EngineOptions, OptionError};
pub use profiles::{InputSizes, PROFILES, PartProfile, PartProfiles, ProfileError, Profiles, SizeRange, SymbolRanges};
pub use rebuild::{Rebuilt, keeps_onnx, profiles_of, rebuild};
pub use record::{BuildRecord, EngineReport};
#[cfg(any(feature = "tensorrt-rtx", feature = "tensorrt"))]
pub use refit::refit_engines;
pub use replaced::{check_replaced, is_of_use_without, with};
pub(crate) use symbols::usual_batch;
pub use trtexec::{Trtexec, shell_word, trtexec};
