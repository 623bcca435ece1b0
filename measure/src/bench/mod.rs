//! Measuring the latency of artifacts next to each other, only where their outputs are right.

mod accuracy;
mod clock;
mod columns;
mod contest;
mod contestant;
mod device;
mod diff;
mod document;
mod energy;
mod entrant;
mod environment;
mod figures;
mod generation;
mod gpu;
mod groups;
mod here;
mod interval;
mod job;
mod lengths;
mod loading;
mod operators;
mod peaks;
mod prepare;
mod ratio;
mod recommend;
mod reference_cache;
#[cfg(test)]
mod replay_tests;
mod report;
mod rounds;
mod saved;
mod shards;
#[cfg(test)]
mod simulation;
mod source;
mod stats;
mod sweep;
mod table;
mod trials;
mod watching;
mod work;

use std::num::NonZeroUsize;
use std::time::Duration;

pub(crate) use clock::wait_until_idle;
pub use planish_artifact::backend::Variant;
use planish_data::Shard;
pub(crate) use table::significant;

pub use accuracy::UNEVALUATED;
pub use contest::Contest;
pub use contestant::{Contestant, Load};
pub use device::{DeviceLatency, Metric, device_table};
pub use diff::{CellDiff, CellId, DIFF_SCHEMA, Diff, Verdict};
pub use document::{
    Accuracy, Cell, CellOptions, CellShape, Document, Memory, ModelId, SCHEMA, Status, Throughput, Tool, Warmup,
    Workload,
};
pub use entrant::{Entrant, Form};
pub use environment::{Cpu, Environment};
pub(crate) use environment::{bytes_from_storage, memory};
pub use figures::{Batches, Bound, Energy, Generation, Meter, Padding, Peaks, Roofline, Work};
pub use gpu::GpuRuns;
pub use groups::UNCOMPARED;
pub use interval::median_interval;
pub use prepare::{PrepareObserver, Prepared, Request, SAMPLES, divided, generates};
pub use ratio::Ratio;
pub use recommend::{Choice, Recommendation, Refused};
pub use report::{csv, html};
pub use shards::{GridContestant, GridShard, MeasuredShard};
pub use source::{ReferenceModel, ReferencePart};
pub use stats::Latency;
pub use sweep::{BenchError, BenchObserver, Measured, sweep};
pub use table::{Shown, remarks, table};

/// What is measured and for how long.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Numbers of rows.
    pub batch: Vec<usize>,
    /// Numbers of tokens in a row.
    pub sequence: Vec<usize>,
    /// The shapes of these that are measured, as rows and tokens; all where there is none.
    pub shapes: Vec<(usize, usize)>,
    /// The shapes of the grid that are measured: every Nth one; all where absent.
    pub shard: Option<Shard>,
    /// Whether a cell ends as soon as it is certainly slower than that of the first contestant.
    pub races: bool,
    /// A cell ends when half of the interval of its median is below this share of the median.
    pub interval: f64,
    /// A cell ends when its timed runs take this time together, whatever its interval.
    pub time: Duration,
    /// The least number of timed runs of a cell.
    pub iterations: usize,
    /// The least time of untimed runs before; they go on until the times settle.
    pub warmup: Duration,
    /// The threads the sessions were loaded with; 0 is the runtime's choice.
    pub threads: usize,
    /// Whether the sessions' idle threads poll for work.
    pub spin: bool,
    /// Whether runs of engines copy inputs to the GPU and outputs to the host.
    pub transfers: bool,
    /// What the inputs and the order of the rounds follow from.
    pub seed: u64,
    /// Whether to measure what the machine can do at most.
    pub peaks: bool,
    /// Whether each contestant has a process of its own.
    pub isolate: bool,
    /// Whether to record the time of each operator, and the provider that ran each node.
    pub operators: bool,
    /// What the runs of cells are.
    pub workload: Workload,
    /// Whether generation is measured without the cache of keys and values too.
    pub uncached: bool,
    /// How many tokens a run of generation adds to each prompt.
    pub new_tokens: NonZeroUsize,
}

impl Default for BenchOptions {
    /// One row of 128 tokens, until the interval is ±1% or for 5 s, for at least 10 runs after at least 200 ms.
    fn default() -> Self {
        Self {
            batch: vec![1],
            sequence: vec![128],
            shapes: Vec::new(),
            shard: None,
            races: false,
            interval: 0.01,
            time: Duration::from_secs(5),
            iterations: 10,
            warmup: Duration::from_millis(200),
            threads: 0,
            spin: true,
            transfers: false,
            seed: 0,
            peaks: false,
            isolate: false,
            operators: false,
            workload: Workload::Encode,
            uncached: false,
            new_tokens: NonZeroUsize::MIN.saturating_add(31),
        }
    }
}
