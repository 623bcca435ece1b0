//! The document that a benchmark writes. It has only measured figures, and what is computed from them.
//!
//! `docs/bench.schema.json` is its JSON schema.

use std::collections::BTreeMap;
use std::fmt;

use planish_artifact::evaluation::Evaluation;
use serde::{Deserialize, Serialize};

use super::contestant::Load;
use super::device::DeviceLatency;
use super::environment::{Environment, memory};
use super::figures::{Energy, Generation, Padding, Peaks, Roofline, Work};
use super::gpu::GpuRuns;
use super::recommend::Recommendation;
use super::shards::{GridShard, MeasuredShard};
use super::stats::Latency;

/// The version of the document's form.
pub const SCHEMA: u32 = 2;

/// One run of `planish bench`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What measured.
    pub tool: Tool,
    /// The machine.
    pub env: Environment,
    /// The most memory this process had resident, in bytes: all contestants, the reference and
    /// the inputs together.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak_rss: Option<u64>,
    /// What this machine can do at most, as measured; absent where that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peaks: Option<Peaks>,
    /// Which contestants to choose, one for each model with several; absent where there is none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub recommendations: Vec<Recommendation>,
    /// Which shard of a grid it is; absent where it has all cells.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shard: Option<GridShard>,
    /// What measured each shard, of a document that was merged.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub measured: Vec<MeasuredShard>,
    /// One for each artifact, runtime and shape; of a model of several runs one for each of them.
    pub cells: Vec<Cell>,
}

impl Document {
    /// The same without samples.
    #[must_use]
    pub fn without_samples(mut self) -> Self {
        for cell in &mut self.cells {
            cell.samples_ns.clear();
            cell.visits.clear();
        }
        self
    }

    /// The document of these cells, as of now.
    #[must_use]
    pub fn new(args: Vec<String>, env: Environment, cells: Vec<Cell>) -> Self {
        let tool = Tool { version: env!("CARGO_PKG_VERSION").to_owned(), args };
        Self {
            schema: SCHEMA,
            tool,
            env,
            peak_rss: memory("VmHWM"),
            peaks: None,
            recommendations: Vec::new(),
            shard: None,
            measured: Vec::new(),
            cells,
        }
    }
}

/// The program and how it was called.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tool {
    /// The version of planish.
    pub version: String,
    /// Its arguments.
    pub args: Vec<String>,
}

/// One artifact on one runtime at one shape.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// The artifact.
    pub model: ModelId,
    /// The runtime.
    pub backend: String,
    /// The precision it computes in.
    pub precision: String,
    /// What a run is.
    pub workload: Workload,
    /// What is run.
    pub shape: CellShape,
    /// How the session was loaded.
    pub options: CellOptions,
    /// The untimed runs.
    pub warmup: Warmup,
    /// The time of each timed run, in the order in which they ran; absent from a document on
    /// standard output.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub samples_ns: Vec<u64>,
    /// How many of these were taken in each visit, one after another; other cells ran between visits. Absent without samples.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub visits: Vec<usize>,
    /// Cells of one number were visited in the same rounds; absent where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rounds: Option<usize>,
    /// The statistics of the samples; absent where there is no speed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_ms: Option<Latency>,
    /// The times of the device, by trtexec's definitions; absent where the runtime has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<DeviceLatency>,
    /// The median time of the host for some runs in which it starts each kernel by itself, in milliseconds, without transfers;
    /// of cells whose timed runs replay a recorded CUDA graph.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub without_graph_ms: Option<f64>,
    /// What the median latency comes to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throughput: Option<Throughput>,
    /// What it keeps in memory.
    pub memory: Memory,
    /// How long it took to load.
    pub load: Load,
    /// What a run computes and reads, counted on the model before any pass; absent where that cannot be counted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub work: Option<Work>,
    /// How much of what the machine can do the median latency comes to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub roofline: Option<Roofline>,
    /// What a run of generation comes to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generation: Option<Generation>,
    /// The padding of a batch of texts of different lengths.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub padding: Option<Padding>,
    /// The GPU while it was measured; absent where none was, or it tells nothing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gpu: Option<GpuRuns>,
    /// The energy of a run, where the machine counts it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub energy: Option<Energy>,
    /// How many nodes of the graph each execution provider ran, by its name; absent where that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub providers: Option<BTreeMap<String, usize>>,
    /// The time of a run by operator in milliseconds, largest first; absent where that was not asked for.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub operators: Vec<(String, f64)>,
    /// How far it is from the reference; absent where the two could not be compared.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub accuracy: Option<Accuracy>,
    /// How close the artifact is to the model in float32 on a data set; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evaluation: Option<Evaluation>,
    /// Whether it was measured.
    pub status: Status,
    /// Why this cell has no latency.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<String>,
    /// What makes the figures less certain.
    pub warnings: Vec<String>,
}

impl Cell {
    /// A cell of which nothing is known yet but what it is to be.
    #[must_use]
    pub fn new(model: ModelId, backend: &str, precision: &str, workload: Workload, shape: CellShape) -> Self {
        Self {
            model,
            backend: backend.to_owned(),
            precision: precision.to_owned(),
            workload,
            shape,
            options: CellOptions { threads: 0, spin: false },
            warmup: Warmup::default(),
            samples_ns: Vec::new(),
            visits: Vec::new(),
            rounds: None,
            latency_ms: None,
            device: None,
            without_graph_ms: None,
            throughput: None,
            memory: Memory::default(),
            load: Load::default(),
            work: None,
            roofline: None,
            generation: None,
            padding: None,
            gpu: None,
            energy: None,
            providers: None,
            operators: Vec::new(),
            accuracy: None,
            evaluation: None,
            status: Status::Unfinished,
            failure: None,
            warnings: Vec::new(),
        }
    }

    /// What stands in place of its speed where it has none.
    pub(crate) fn status_text(&self) -> &'static str {
        match self.status {
            Status::Measured => "no speed",
            Status::Failed => "failed",
            Status::Unavailable => "not available",
            Status::Unfinished => "not finished",
        }
    }
}

/// Which artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelId {
    /// How it is called.
    pub id: String,
    /// The bytes of its files that a runtime reads; absent where they are not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file_bytes: Option<u64>,
}

/// What a run of a cell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// A model on rows of one length.
    Encode,
    /// A model on texts of different lengths, in padded batches.
    Lengths,
    /// Tokens generated one after another.
    Generate,
    /// A process that starts and loads a model, and its first run.
    Load,
}

/// Whether a cell was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It was.
    Measured,
    /// Its outputs are wrong, or it does not run.
    Failed,
    /// Its runtime is not available here.
    Unavailable,
    /// The benchmark was ended before.
    Unfinished,
}

/// What a cell runs.
///
/// Of a decoder with a cache there are two for a sequence length: `prompt`, all tokens with an empty
/// cache, and `step`, one token with a cache of that length. Of an encoder-decoder each part is run:
/// `encoder_model` on all tokens, `decoder_model` on the first token of the decoder, and
/// `decoder_with_past_model` on one token with a cache of that length, both for an encoder that had
/// all tokens. What continues from a cache is left out where the model takes no longer sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellShape {
    /// Rows.
    pub batch: usize,
    /// The sequence length; no token is padding. Null for a model that takes no sequences.
    pub seq: Option<usize>,
    /// Which run of several, as above.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub part: Option<String>,
    /// Tokens in a row that a run takes. Null for a model that takes no sequences.
    pub tokens: Option<usize>,
    /// Tokens in a row that are cached.
    pub past: usize,
}

impl fmt::Display for CellShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = self.part.iter().map(|part| format!("{part}, ")).collect::<String>();
        match self.seq {
            Some(seq) => write!(f, "{part}{} x {seq}", self.batch),
            None => write!(f, "{part}batch of {}", self.batch),
        }
    }
}

/// How a session was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellOptions {
    /// Threads; 0 is the runtime's choice.
    pub threads: usize,
    /// Whether idle threads poll for work.
    pub spin: bool,
}

/// Untimed runs before the first timed one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Warmup {
    /// Their number.
    pub n: usize,
    /// Their time, in milliseconds.
    pub ms: f64,
}

/// Work done in a second, from the median latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Rows a second.
    pub inf_s: f64,
    /// Real tokens a second, without those that are cached or padding. Null for a model that takes no sequences.
    pub tok_s: Option<f64>,
}

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// By how much loading the artifact raised what the process has resident: its weights as the
    /// runtime keeps them and the pages of its files that were touched. Memory that the process
    /// had freed and that was used again does not show.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub load_rss: Option<u64>,
    /// The most memory that a process had resident that loaded the artifact, ran the cell once and read its outputs; absent
    /// without `--set isolate`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak_rss: Option<u64>,
    /// The same after three more runs; absent without `--set isolate`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub repeated_rss: Option<u64>,
    /// The weights of the graph as they are stored; absent where the graph cannot be read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub weights: Option<u64>,
}

/// How far a cell's outputs are from the reference's on the same inputs: the worst output.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// The largest absolute error.
    pub max_abs: f64,
    /// The same relative to the reference's largest magnitude (at least 1).
    pub max_rel: f64,
    /// The least cosine.
    pub cos: f64,
    /// The least share of rows with the same largest element.
    pub top1: f64,
}

#[cfg(test)]
pub(super) mod examples {
    use super::*;
    use crate::bench::environment::Cpu;

    /// A document of cells, of a machine that is made up.
    pub(crate) fn document(cells: Vec<Cell>) -> Document {
        let cpu = Cpu { model: "A CPU".to_owned(), flags: vec!["avx2".to_owned()], cores: 2, governor: None };
        let runtimes = BTreeMap::from([("onnxruntime".to_owned(), "1.31.1".to_owned())]);
        let env = Environment { cpu, os: "Linux 6.1".to_owned(), runtimes, gpu: None, time: 1_700_000_000 };
        let tool = Tool { version: "0.1.0".to_owned(), args: vec!["bench".to_owned(), "a".to_owned()] };
        Document { tool, peak_rss: Some(1 << 30), ..Document::new(Vec::new(), env, cells) }
    }

    /// A cell of 2 rows. The times are spread evenly from 10% below to 10% above `ms`; without it the cell failed.
    pub(crate) fn cell(id: &str, seq: usize, ms: Option<u64>) -> Cell {
        // In an order that does not rise.
        let samples = |ms: u64| (0..=200).map(|k| ms * 900_000 + ms * (k * 73 % 201) * 1000).collect();
        let samples_ns: Vec<u64> = ms.map_or(Vec::new(), samples);
        let visits = samples_ns.chunks(25).map(<[u64]>::len).collect();
        let latency_ms = Latency::of(&samples_ns);
        let model = ModelId { id: id.to_owned(), file_bytes: None };
        let shape = CellShape { batch: 2, seq: Some(seq), part: None, tokens: Some(seq), past: 0 };
        Cell {
            throughput: latency_ms
                .as_ref()
                .map(|l| Throughput { inf_s: 2e3 / l.p50, tok_s: Some(2e3 / l.p50 * seq as f64) }),
            latency_ms,
            samples_ns,
            visits,
            rounds: Some(0),
            memory: Memory { load_rss: ms.map(|ms| ms * 1_000_000), weights: Some(1), ..Memory::default() },
            load: Load { ms: 12.4, ..Load::default() },
            accuracy: Some(Accuracy { max_abs: 0.0, max_rel: 0.0, cos: 1.0, top1: 1.0 }),
            status: if ms.is_some() { Status::Measured } else { Status::Failed },
            failure: ms.is_none().then(|| "y: not finite".to_owned()),
            ..Cell::new(model, "ort", "f32", Workload::Encode, shape)
        }
    }
}
