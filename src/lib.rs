//! planish compiles transformer checkpoints and ONNX graphs into verified ONNX artifacts, without Python.
//!
//! # Where to begin
//!
//! | to | take |
//! |---|---|
//! | compile a model | [`request::Request`], with a [`recipe`](artifact::recipe::Recipe) for the target and the precision |
//! | open an artifact | [`artifact::Artifact::open`]; its manifest is [`artifact::manifest::Manifest`] |
//! | compare an artifact with its source | [`verify::verify_artifact`] |
//! | run an artifact on tensors | [`artifact::Running`], which stays loaded, or [`artifact::Artifact::run`] |
//! | predict from texts, pictures or recordings | [`predict::predict`] |
//! | generate text | [`mod@generate`] |
//! | evaluate on data with labels | [`mod@evaluate`] |
//! | measure speed and memory | [`mod@bench`], [`mod@profile`] |
//!
//! ```no_run
//! use planish::artifact::recipe::{Precision, Recipe};
//! use planish::request::{Request, Silent};
//!
//! # fn main() -> anyhow::Result<()> {
//! let request = Request { output: Some("minilm-int8".into()), ..Request::new("minilm") };
//! let artifact = request.with(Recipe::of(Precision::Int8))?.compile(&Silent)?;
//! println!("{} has {} parameters", artifact.folder.display(), artifact.manifest.parameters);
//! # Ok(())
//! # }
//! ```
//!
//! `examples/` in the repository has whole programs. The crate `planish-c` is the same for C.
//!
//! # Errors, runtimes and features
//!
//! Errors are [`anyhow::Error`]s that say what failed, where, and what to do; [`cli::exit_code`] sorts them as the command does. Reading and compiling
//! need no other library. Running and verifying load ONNX Runtime when they first need it: `PLANISH_ORT_LIB` names it.
//! The feature `parquet` reads data sets in Parquet files, and `tensorrt-rtx` or `tensorrt` builds and runs engines.
//!
//! # The crates behind it
//!
//! The library is the facade of the crates that do the work: `planish_models` reads checkpoints,
//! `planish_ir` holds the graph, `planish_passes` rewrites it, `planish_onnx` writes it and
//! `planish_runtimes` runs it. docs/architecture.md shows how they fit.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests read what they wrote"))]

pub mod cli;

pub use planish_artifact as artifact;
pub use planish_artifact::backend;
pub use planish_check::{evaluate, predict, verify, within};
pub use planish_compiler::{calibrate, compile, engine, packages, quantize, recipe, request, source};
pub use planish_data as data;
pub use planish_data::inputs;
pub use planish_generate as generate;
pub use planish_measure::{bench, inspect, profile, sweep};
