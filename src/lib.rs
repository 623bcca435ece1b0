//! planish compiles transformer checkpoints into verified ONNX graphs, without Python.
//!
//! The library is the facade of the crates that do the work: `planish_models` reads checkpoints,
//! `planish_ir` holds the graph, `planish_passes` rewrites it, `planish_onnx` writes it and
//! `planish_runtimes` runs it. docs/architecture.md shows how they fit.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests read what they wrote"))]

pub mod artifact;
pub mod backend;
pub mod bench;
pub mod calibrate;
mod chain;
pub mod cli;
pub mod compile;
pub mod data;
pub mod draft;
pub mod engine;
pub mod evaluate;
mod files;
pub mod generate;
pub mod inputs;
pub mod inspect;
mod modules;
pub mod profile;
pub mod quantize;
pub mod recipe;
pub mod source;
mod units;
pub mod verify;
