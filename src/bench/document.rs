//! The document that a benchmark writes. It has only measured figures.

use std::fmt;

use serde::Serialize;

use super::contestant::Load;
use super::device::DeviceLatency;
use super::environment::{Environment, memory};
use super::stats::Latency;

/// The version of the document's form.
pub const SCHEMA: u32 = 1;

/// One run of `planish bench`.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What measured.
    pub tool: Tool,
    /// The machine.
    pub env: Environment,
    /// The most memory this process had resident, in bytes: all contestants, the reference and
    /// the inputs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_rss: Option<u64>,
    /// One for each artifact, runtime and shape; of a model of several runs one for each of them.
    pub cells: Vec<Cell>,
}

impl Document {
    /// The same without samples.
    #[must_use]
    pub fn without_samples(mut self) -> Self {
        self.cells.iter_mut().for_each(|cell| cell.samples_ns.clear());
        self
    }

    /// The document of these cells, as of now.
    #[must_use]
    pub fn new(args: Vec<String>, env: Environment, cells: Vec<Cell>) -> Self {
        let tool = Tool { version: env!("CARGO_PKG_VERSION").to_owned(), args };
        Self { schema: SCHEMA, tool, env, peak_rss: memory("VmHWM"), cells }
    }
}

/// The program and how it was called.
#[derive(Clone, Debug, Serialize)]
pub struct Tool {
    /// The version of planish.
    pub version: String,
    /// Its arguments.
    pub args: Vec<String>,
}

/// One artifact on one runtime at one shape.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The artifact.
    pub model: ModelId,
    /// The runtime.
    pub backend: String,
    /// The precision it computes in.
    pub precision: String,
    /// What is run.
    pub shape: CellShape,
    /// How the session was loaded.
    pub options: CellOptions,
    /// The untimed runs.
    pub warmup: Warmup,
    /// The time of each timed run, in the order in which they ran; absent from a document on
    /// standard output.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples_ns: Vec<u64>,
    /// The statistics of the samples; absent where there is no speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<Latency>,
    /// The times of the device, by trtexec's definitions; absent where the runtime has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceLatency>,
    /// What the median latency comes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Throughput>,
    /// What it keeps in memory.
    pub memory: Memory,
    /// How long it took to load.
    pub load: Load,
    /// How far it is from the reference; absent where the two could not be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Accuracy>,
    /// Why this cell has no latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// What makes the figures less certain.
    pub warnings: Vec<String>,
}

/// Which artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelId {
    /// How it is called.
    pub id: String,
}

/// What a cell runs.
///
/// Of a decoder with a cache there are two for a sequence length: `prompt`, all tokens with an empty
/// cache, and `step`, one token with a cache of that length. Of an encoder-decoder each part is run:
/// `encoder_model` on all tokens, `decoder_model` on the first token of the decoder, and
/// `decoder_with_past_model` on one token with a cache of that length, both for an encoder that had
/// all tokens. What continues from a cache is left out where the model takes no longer sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CellShape {
    /// Rows.
    pub batch: usize,
    /// The sequence length; no token is padding. Null for a model that takes no sequences.
    pub seq: Option<usize>,
    /// Which run of several, as above.
    #[serde(skip_serializing_if = "Option::is_none")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CellOptions {
    /// Threads; 0 is the runtime's choice.
    pub threads: usize,
    /// Whether idle threads poll for work.
    pub spin: bool,
}

/// Untimed runs before the first timed one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Warmup {
    /// Their number.
    pub n: usize,
    /// Their time, in milliseconds.
    pub ms: f64,
}

/// Work done in a second, from the median latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Throughput {
    /// Rows a second.
    pub inf_s: f64,
    /// Tokens a second, without those that are cached. Null for a model that takes no sequences.
    pub tok_s: Option<f64>,
}

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// By how much loading the artifact raised what the process has resident: its weights as the
    /// runtime keeps them and the pages of its files that were touched. Memory that the process
    /// had freed and that was used again does not show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_rss: Option<u64>,
    /// The weights in the artifact's files.
    pub weights: u64,
}

/// How far a cell's outputs are from the reference's on the same inputs: the worst output.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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
