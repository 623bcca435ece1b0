//! What the tests of several crates share: random graphs and their evaluation, comparison of tensors and
//! of graphs, small ONNX models, folders of a test's own, differences between texts, a mocked CUDA, a hub of
//! models, and the record of tests that were skipped.
//!
//! A function panics where what it needs is not there: the test that calls it fails then.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "only tests call this crate")]

mod diff;
pub mod evaluation;
pub mod fake;
mod folders;
pub mod hub;
pub mod mock_cuda;
pub mod onnx;
pub mod operators;
pub mod random_graph;
mod same;
mod skips;

pub use diff::unified_diff;
pub use folders::{contents, names, scratch};
pub use same::{Numbering, same_up_to_names};
pub use skips::{SKIPPED_TESTS, skipped};
