//! How fast an artifact is, and why: benchmarks, profiles, and the work and the memory of a graph.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests read what they wrote"))]

pub mod apart;
pub mod bench;
pub mod inspect;
mod page;
pub mod profile;
pub mod sweep;
pub mod tune;
