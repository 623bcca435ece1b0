//! From a source to an artifact: reading it, calibration, quantization, lowering, engines, and the files that packages load.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests read what they wrote"))]

pub mod calibrate;
mod card;
pub mod compile;
pub mod engine;
pub mod packages;
pub mod quantize;
pub mod recipe;
pub mod request;
pub mod source;
