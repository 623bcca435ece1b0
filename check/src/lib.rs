//! Whether an artifact is right: its outputs beside those of its source, its figures on data, and what to keep in floats so that
//! they are within limits.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests read what they wrote"))]

pub mod evaluate;
pub mod verify;
pub mod within;
