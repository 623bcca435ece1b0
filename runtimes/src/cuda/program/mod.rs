//! A graph for fixed sizes as a list of steps: launches of kernels, matrix products and copies, on buffers of one arena.
//!
//! A value is a [`View`] of memory. Reshapes, transposes, slices and splits are views of other values and cost nothing; an
//! operator that needs its operand without gaps has it copied.

mod attention;
mod build;
mod cache;
mod elementwise;
pub(crate) mod family;
mod fused;
mod gemv;
mod limits;
mod linear;
mod movement;
mod norms;
mod packed;
mod quantized;
mod tiles;
mod view;

use planish_ir::{AttentionKernels, Bindings, Graph, NodeId, ValueId};

use super::device::{Device, Grid, Product};
use super::memory::{self, Interval, MemoryPlan};
use super::packing::{PackedSizes, Packing};
use super::source::Source;

pub(crate) use attention::takes_packed;
pub(crate) use build::MOST_BYTES;
pub(crate) use view::View;

/// How operators become kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Few kernels: epilogues, norms in one pass, attention that never stores its scores.
    Fused,
    /// One kernel for each operator, and attention with its scores in memory.
    Unfused,
}

/// What programs are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) style: Style,
    /// What the device has for attention.
    pub(crate) attention: AttentionKernels,
    /// The most rows of a linear layer that a kernel of planish multiplies.
    pub(crate) few_rows: usize,
    /// The most rows of a layer of codes that a kernel of planish multiplies.
    pub(crate) code_rows: usize,
    /// The multiprocessors of the device.
    pub(crate) multiprocessors: usize,
    /// The most bytes of shared memory that a block may have.
    pub(crate) shared_memory: usize,
    /// The bytes of shared memory of a multiprocessor.
    pub(crate) multiprocessor_shared_memory: usize,
}

/// Bytes of shared memory of a multiprocessor that each of its blocks takes beside its own.
const RESERVED: usize = 1 << 10;

impl Target {
    /// For a device, with the limits that the environment sets.
    ///
    /// # Errors
    /// When the environment sets what is no limit.
    pub(crate) fn of(style: Style, device: &dyn Device) -> Result<Self, String> {
        let shared_memory = [device.shared_memory(), device.multiprocessor_shared_memory()];
        let own = Self::new(style, device.multiprocessors(), shared_memory);
        limits::of_environment(own)
    }

    /// For a device of the data center: as many multiprocessors as an H100, and the shared memory of an A100.
    pub(crate) fn usual(style: Style) -> Self {
        Self::new(style, 132, [163 << 10, 164 << 10])
    }

    /// For an architecture, e.g. `sm_90`, with as many multiprocessors as an A100, a B200 or an H100 has. Shared memory is that of the table of
    /// technical specifications in NVIDIA's CUDA C++ Programming Guide; a block takes all but what is reserved.
    pub(crate) fn of_architecture(style: Style, architecture: &str) -> Self {
        let number = architecture.trim_start_matches("sm_").trim_end_matches(['a', 'f']);
        let multiprocessor = match number {
            "86" | "89" | "120" | "121" => 100 << 10,
            "80" | "87" => 164 << 10,
            _ => 228 << 10,
        };
        let multiprocessors = match number {
            "80" => 108,
            "100" => 148,
            _ => 132,
        };
        Self::new(style, multiprocessors, [multiprocessor - RESERVED, multiprocessor])
    }

    /// Whether a multiprocessor holds two blocks of so much shared memory, of which one computes while the other waits.
    pub(crate) fn holds_two(&self, shared: usize) -> bool {
        2 * (shared + RESERVED) <= self.multiprocessor_shared_memory
    }

    fn new(style: Style, multiprocessors: usize, shared: [usize; 2]) -> Self {
        let [shared_memory, multiprocessor_shared_memory] = shared;
        let attention = AttentionKernels {
            largest_head: 256,
            split_rows: 16,
            blocks: 2 * multiprocessors,
            scores: 256 << 20,
            float_scores: 64 << 20,
        };
        Self {
            style,
            attention,
            few_rows: gemv::ROWS,
            code_rows: usize::MAX,
            multiprocessors,
            shared_memory,
            multiprocessor_shared_memory,
        }
    }
}

/// Memory that a step works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Base {
    /// A buffer of the arena.
    Buffer(usize),
    /// A weight.
    Weight(ValueId),
    /// An input of the graph, by its place.
    Input(usize),
    /// An output of the graph, by its place.
    Output(usize),
    /// The constants of the program.
    Constants,
    /// The numbers of a packed batch.
    Packing,
    /// The words of launches that take their arguments from memory.
    Words,
}

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) base: Base,
    /// Bytes after the begin of the memory.
    pub(crate) offset: usize,
}

/// The value of a kernel's parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    /// An address.
    At(Place),
    /// No address.
    Null,
    /// A number or a structure as it lies in memory.
    Value(Vec<u64>),
}

impl Argument {
    pub(crate) fn int(value: usize) -> Result<Self, String> {
        i32::try_from(value).map(|v| Self::Value(vec![u64::from(v.cast_unsigned())])).map_err(|_| too_large(value))
    }

    pub(crate) fn long(value: usize) -> Self {
        Self::Value(vec![value as u64])
    }

    pub(crate) fn float(value: f64) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "kernels take float32")]
        Self::Value(vec![u64::from((value as f32).to_bits())])
    }

    pub(crate) fn optional(place: Option<Place>) -> Self {
        place.map_or(Self::Null, Self::At)
    }
}

pub(crate) fn too_large(size: usize) -> String {
    format!("a size of {size} does not fit the kernels' 32 bits")
}

/// What a device is given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Launch(Launch),
    Multiply(Product<Place>),
    Copy { to: Place, from: Place, bytes: usize },
}

impl Program {
    /// What computes a step: a kernel of planish, a product of cublasLt, or a copy of the driver.
    pub(crate) fn kernel_of(&self, step: &Step) -> &'static str {
        match step {
            Step::Launch(launch) => self.kernels.get(launch.kernel).map_or("", |source| source.kernel),
            Step::Multiply(_) => "cublasLt",
            Step::Copy { .. } => "copy",
        }
    }
}

impl Step {
    /// The launch, if it is one.
    fn launch(&self) -> Option<&Launch> {
        match self {
            Self::Launch(launch) => Some(launch),
            Self::Multiply(_) | Self::Copy { .. } => None,
        }
    }

    /// What it is, in messages.
    fn described(&self) -> String {
        match self {
            Self::Launch(_) => "a launch".to_owned(),
            Self::Multiply(Product { m, n, k, batch, .. }) => format!("the product {batch} x [{m}, {k}] x [{k}, {n}]"),
            Self::Copy { bytes, .. } => format!("the copy of {bytes} bytes"),
        }
    }
}

/// The launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launch {
    /// The place of the kernel in [`Program::kernels`].
    pub(crate) kernel: usize,
    pub(crate) grid: Grid,
    pub(crate) arguments: Vec<Argument>,
}

/// A result of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) dtype: planish_ir::DType,
    pub(crate) shape: Vec<usize>,
    /// For keys or values of a cache: where they are.
    pub(crate) cache: Option<Continued>,
}

/// The memory of an output with the keys or values of a cache, [batch, heads, keys, size].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Continued {
    /// The input whose memory it is, by its place; memory of its own where absent.
    pub(crate) input: Option<usize>,
    /// The keys that the memory has room for.
    pub(crate) capacity: usize,
}

/// A graph for fixed sizes.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) kernels: Vec<Source>,
    pub(crate) steps: Vec<Step>,
    /// The node that each step computes; `None` for copies to outputs.
    pub(crate) origins: Vec<Option<NodeId>>,
    /// What each buffer is for: the value that a node computes.
    pub(crate) names: Vec<String>,
    /// The sizes of the buffers, in bytes, and when they are needed.
    pub(crate) intervals: Vec<Interval>,
    pub(crate) memory: MemoryPlan,
    pub(crate) outputs: Vec<Output>,
    pub(crate) constants: Vec<u8>,
    /// What the picker said of each attention.
    pub(crate) attentions: Vec<String>,
}

/// How caches lie in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Caches {
    /// For each input, by its place, the room of its memory, where it has more than its keys.
    pub(crate) room: Vec<Option<Room>>,
    /// The keys that the memory of a cache that is copied has room for beyond its own.
    pub(crate) reserve: usize,
    /// Whether attention to the keys of a cache takes the form for all that its memory has room for, and no product whose
    /// sizes are those of the keys.
    pub(crate) by_capacity: bool,
}

/// The room of the memory of keys or values, [batch, heads, keys, size].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Room {
    /// The keys that there is room for.
    pub(crate) capacity: usize,
    /// Whether the room after the keys is free, so that new keys may go there.
    pub(crate) free: bool,
}

impl Program {
    /// The steps for a graph whose symbols stand for `bindings`.
    ///
    /// # Errors
    /// When there is no kernel for an operator, or a size is too large.
    pub(crate) fn new(graph: &Graph, bindings: &Bindings, target: Target, caches: &Caches) -> Result<Self, String> {
        build::build(graph, bindings, target, caches, None)
    }

    /// The same for a packed batch: outputs for each token have zeros for padding.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn packed(
        graph: &Graph,
        bindings: &Bindings,
        target: Target,
        packing: &Packing,
        sizes: PackedSizes,
    ) -> Result<Self, String> {
        build::build(graph, bindings, target, &Caches::default(), Some((packing, sizes)))
    }
}

/// When the steps need each buffer.
fn intervals(steps: &[Step], sizes: &[usize]) -> Vec<Interval> {
    let mut intervals: Vec<Interval> =
        sizes.iter().map(|&bytes| Interval { bytes, first: usize::MAX, last: 0 }).collect();
    for (at, step) in steps.iter().enumerate() {
        visit(step, &mut |place| {
            if let Base::Buffer(buffer) = place.base {
                let interval = &mut intervals[buffer];
                interval.first = interval.first.min(at);
                interval.last = at;
            }
        });
    }
    for interval in &mut intervals {
        // No step needs it.
        if interval.first == usize::MAX {
            *interval = Interval { bytes: 0, first: 0, last: 0 };
        }
    }
    intervals
}

/// Calls `f` on each place that a step works on.
pub(crate) fn visit(step: &Step, f: &mut dyn FnMut(Place)) {
    match step {
        Step::Launch(launch) => launch.arguments.iter().for_each(|argument| {
            if let Argument::At(place) = argument {
                f(*place);
            }
        }),
        Step::Multiply(product) => {
            [product.a.at, product.b.at, product.d.at].into_iter().chain(product.c).chain(product.bias).for_each(f);
        }
        Step::Copy { to, from, .. } => [*to, *from].into_iter().for_each(f),
    }
}

/// Plans the arena of steps.
fn planned(steps: &[Step], sizes: &[usize]) -> (Vec<Interval>, MemoryPlan) {
    let intervals = intervals(steps, sizes);
    let memory = memory::plan(&intervals);
    (intervals, memory)
}
