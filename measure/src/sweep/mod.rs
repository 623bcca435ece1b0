//! Sweeps: a plan of models, forms, data and shapes becomes a list of jobs, each of which runs anywhere, and whose results
//! are merged into one table.
//!
//! A job needs nothing that another job made. Its result is one file that is written whole, so the files that are there say
//! which jobs are done. `docs/sweep.schema.json` is the schema of a plan.

mod figures;
mod inputs;
mod jobs;
mod merge;
mod plan;
mod result;
mod run;
mod schedulers;
mod table;

pub use inputs::InputChanged;
pub use jobs::{Input, Job, JobKind, Jobs};
pub use merge::{Merged, State, array, states};
pub use plan::{Plan, PlanError};
pub use result::{JobResult, Ran, Status};
pub use run::{Counts, Runner, SweepObserver};
pub use schedulers::{Handed, Scheduler};

/// What is not done may be when it is tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TryAgain(pub String);

impl TryAgain {
    /// The exit code: `EX_TEMPFAIL` of sysexits.h.
    pub const CODE: u8 = 75;
}
