//! Models in processes of their own, for benchmarks and for the memory that a model takes.

mod calls;
mod session;
mod worker;

pub(crate) use calls::{Calls, Inputs, continued, run_all};
pub(crate) use session::Apart;
pub(crate) use worker::Start;
pub use worker::{WORKER, serve};
