//! planish compiles transformer checkpoints into verified ONNX graphs, without Python.
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
pub use planish_measure::{bench, inspect, profile};
