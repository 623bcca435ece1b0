//! Whether an artifact is right: its outputs beside those of its source, its figures on data, what to keep in floats so that
//! they are within limits, and what it has to pass before it is written. Also what it predicts.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests read what they wrote"))]

pub mod evaluate;
mod failed;
pub mod gate;
mod pooling;
mod positions;
pub mod predict;
pub mod verify;
pub mod within;

pub use failed::{VerificationFailed, usual_limits};
