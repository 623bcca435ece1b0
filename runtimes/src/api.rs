//! What every runtime offers.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use planish_eval::Tensor;
use planish_ir::{DType, Dim, Graph, PartInterface, TensorType};

use crate::profile::Profiler;
use crate::value::RuntimeValue;

/// Something that can load and run models.
pub trait Runtime {
    /// The name on the command line, e.g. `ort`.
    fn name(&self) -> &'static str;

    /// Whether it can be used here: what was found, or the reason why not.
    ///
    /// # Errors
    /// When something it needs is missing, too old or broken.
    fn check(&self) -> Result<Description, Unavailable>;

    /// The kinds of files that it loads.
    fn formats(&self) -> &'static [Format];

    /// How it computes a model in a floating-point type.
    fn arithmetic(&self, dtype: DType) -> Arithmetic;

    /// Makes a model ready to run.
    ///
    /// # Errors
    /// When the runtime is unavailable, does not take this kind of model, or refuses it.
    fn load(&self, model: Model<'_>, options: SessionOptions) -> Result<Box<dyn Session>, RuntimeError>;

    /// Whether it computes on a GPU.
    fn is_on_gpu(&self) -> bool;

    /// Whether sums of products of codes saturate where it computes them on this processor.
    fn saturates(&self) -> bool;

    /// What loads models so that the time of each node is known.
    ///
    /// # Errors
    /// Where the runtime does not tell it: a sentence about what else does.
    fn profiler(&self) -> Result<&dyn Profiler, &'static str>;
}

/// How a runtime computes operators of a floating-point type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Each operator rounds its result to the type.
    Rounded,
    /// Some operators compute in a wider type and pass that on.
    Wider,
    /// It has no kernels for the type.
    Missing,
}

/// A loaded model.
pub trait Session {
    /// The inputs, in the model's order.
    fn inputs(&self) -> &[Port];

    /// The outputs, in the model's order.
    fn outputs(&self) -> &[Port];

    /// Gives the open dimensions of inputs and outputs the names that these ports of the same model have for them. A
    /// session whose file has the names keeps them.
    fn name_dimensions(&mut self, _ports: &[Port]) {}

    /// The operators that run on another device than the runtime's, with how many of each: for ONNX
    /// Runtime's CUDA provider those that it leaves to the processor.
    fn elsewhere(&self) -> &[String] {
        &[]
    }

    /// Runs the model once and returns its outputs, in order.
    ///
    /// Texts are given and returned as bytes of UTF-8: `u8` with one dimension more, that of the longest text, in
    /// which shorter ones are filled up with zeros.
    ///
    /// # Errors
    /// When an input is missing, unknown or of the wrong type or shape, or the run fails.
    fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError>;

    /// Runs the model once and leaves its outputs, in order, where the runtime put them. Inputs that
    /// a run of the same runtime gave, of this or another model, are taken from there.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    fn run_values(&mut self, inputs: &[(&str, &RuntimeValue)]) -> Result<Vec<(String, RuntimeValue)>, RuntimeError>;

    /// Holds inputs in the runtime's own form for [`run_bound`](Self::run_bound), in place of
    /// those that were bound before.
    ///
    /// # Errors
    /// As [`run`](Self::run) for the inputs.
    fn bind(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError>;

    /// Runs the model once on the bound inputs and drops the outputs where they are: neither
    /// side is copied or converted, so this is what a benchmark times.
    ///
    /// # Errors
    /// When nothing is bound or the run fails.
    fn run_bound(&mut self) -> Result<(), RuntimeError>;

    /// Runs the model once as [`run_bound`](Self::run_bound) does and returns the times of the device; `None` where the
    /// runtime has no clock of a device. With `transfers` such a runtime copies the inputs to the device in front of the run,
    /// and the outputs to the host after it.
    ///
    /// # Errors
    /// As [`run_bound`](Self::run_bound).
    fn time_bound(&mut self, _transfers: bool) -> Result<Option<DeviceTimes>, RuntimeError> {
        self.run_bound().map(|()| None)
    }

    /// Runs the model once on the bound inputs as if nothing were recorded: the host starts each kernel by itself. Returns
    /// the time of the host; `None`, without a run, where [`run_bound`](Self::run_bound) replays no CUDA graph.
    ///
    /// # Errors
    /// As [`run_bound`](Self::run_bound).
    fn time_without_graph(&mut self) -> Result<Option<Duration>, RuntimeError> {
        Ok(None)
    }

    /// [`bind`](Self::bind) and [`run_bound`](Self::run_bound), and what the outputs are then, in order. Before the run, the
    /// memory that it writes to is filled with bytes that are no numbers: what a recorded CUDA graph does not write shows. A
    /// runtime whose bound runs are those of [`run`](Self::run) runs that.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    fn run_as_bound(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        self.run(inputs)
    }

    /// [`time_bound`](Self::time_bound) with the time of the host for it.
    ///
    /// # Errors
    /// As [`run_bound`](Self::run_bound).
    fn timed(&mut self, transfers: bool) -> Result<(Duration, Option<DeviceTimes>), RuntimeError> {
        let start = Instant::now();
        let device = self.time_bound(transfers)?;
        Ok((start.elapsed(), device))
    }
}

/// The times of one run on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTimes {
    /// The time of the host to start the run.
    pub enqueue: Duration,
    /// The time of the device between the first and the last kernel.
    pub compute: Duration,
    /// The time of the device to take the inputs, where they were copied.
    pub to_device: Option<Duration>,
    /// The time of the device to give the outputs, where they were copied.
    pub to_host: Option<Duration>,
    /// Whether the run was one launch of a recorded CUDA graph.
    pub graph: bool,
}

/// The kind of a file that contains a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Its name in messages, e.g. `ONNX`.
    pub name: &'static str,
}

impl Format {
    /// An ONNX file; external data lies beside it.
    pub const ONNX: Self = Self { name: "ONNX" };
    /// A graph in its text form ([`graph_file`](crate::graph_file)); weights lie beside it.
    pub const GRAPH: Self = Self { name: "graph of planish" };
    /// An engine of TensorRT.
    pub const ENGINE: Self = Self { name: "TensorRT engine" };
}

/// What is loaded.
#[derive(Clone, Copy)]
pub enum Model<'a> {
    /// A file, with the files beside it that it points to.
    File {
        /// Its kind.
        format: Format,
        /// Where it is.
        path: &'a Path,
        /// What its inputs and outputs are; inferred from their names where nothing says it.
        interface: Option<&'a PartInterface>,
    },
    /// A graph in memory.
    Graph(&'a Graph),
}

impl<'a> Model<'a> {
    /// A file of which nothing says what its inputs and outputs are.
    #[must_use]
    pub fn file(format: Format, path: &'a Path) -> Self {
        Self::File { format, path, interface: None }
    }

    /// Such an ONNX file.
    #[must_use]
    pub fn onnx(path: &'a Path) -> Self {
        Self::file(Format::ONNX, path)
    }

    /// The same file with what its inputs and outputs are. A graph in memory says that itself.
    #[must_use]
    pub fn with(self, interface: &'a PartInterface) -> Self {
        match self {
            Self::File { format, path, .. } => Self::File { format, path, interface: Some(interface) },
            Self::Graph(graph) => Self::Graph(graph),
        }
    }

    /// The error of a runtime that does not take this kind of model.
    pub(crate) fn not_taken(&self, runtime: &'static str, takes: &str) -> RuntimeError {
        let kind = match self {
            Self::File { format, .. } => format!("a file of format {}", format.name),
            Self::Graph(_) => "a graph in memory".to_owned(),
        };
        let reason = format!("it is {kind}, and the runtime takes {takes}");
        RuntimeError::Failed { runtime, action: "load", model: self.to_string(), reason }
    }
}

impl fmt::Display for Model<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Model::File { path, .. } => write!(f, "{}", path.display()),
            Model::Graph(graph) => write!(f, "the graph `{}`", graph.name),
        }
    }
}

/// How a model is loaded on any runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// Threads that work on one operator; 0 leaves the number to the runtime.
    pub threads: usize,
}

/// An input or output of a loaded model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name, e.g. `input_ids`.
    pub name: String,
    /// Its type. A dimension without a name in the model has the name of the port and its axis.
    pub ty: TensorType,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.ty)
    }
}

/// What a runtime found when it was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// What it is in documents, e.g. `onnxruntime`: several runtimes may be of one product.
    pub product: &'static str,
    /// Its version, e.g. `1.31.1`.
    pub version: String,
    /// Where it was found, and by which rule.
    pub location: String,
}

/// Why a runtime cannot be used here, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the runtime `{runtime}` is unavailable: {reason}{}\n  {remedy}", self.places())]
pub struct Unavailable {
    /// The name of the runtime.
    pub runtime: &'static str,
    /// What is missing or wrong.
    pub reason: String,
    /// Every place that was looked at, with what was found there.
    pub looked: Vec<String>,
    /// What to do.
    pub remedy: String,
}

impl Unavailable {
    /// The lines of the places that were looked at.
    pub(crate) fn places(&self) -> String {
        self.looked.iter().map(|place| format!("\n  looked at {place}")).collect()
    }
}

/// Why engines cannot be built here: what the library that builds them lacks, and what to do about it. One that runs engines may
/// be there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the builder of engines is unavailable: {}{}\n  {}", .0.reason, .0.places(), .0.remedy)]
pub struct NoBuilder(pub Unavailable);

/// Why a model was not loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The runtime cannot be used here.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// It does not compute what the model has; another runtime may.
    #[error("{runtime} could not run {model}: {reason}")]
    Unsupported {
        /// The name of the runtime.
        runtime: &'static str,
        /// The file or graph.
        model: String,
        /// What it does not compute.
        reason: String,
    },
    /// It does not take inputs of these shapes; it takes others.
    #[error("{runtime} could not run {model}: {reason}")]
    Shapes {
        /// The name of the runtime.
        runtime: &'static str,
        /// The file or graph.
        model: String,
        /// Which sizes it takes.
        reason: String,
    },
    /// It failed at something.
    #[error("{runtime} could not {action} {model}: {reason}")]
    Failed {
        /// The name of the runtime.
        runtime: &'static str,
        /// What it was doing: `load`, `run` or the like.
        action: &'static str,
        /// The file or graph.
        model: String,
        /// What went wrong.
        reason: String,
    },
}

/// Gives the dimensions of ports the names that ports of the same model have for them.
pub(crate) fn rename_dimensions<'a>(own: impl Iterator<Item = &'a mut Port>, ports: &[Port]) {
    for own in own {
        let same = |port: &&Port| port.name == own.name && port.ty.shape.rank() == own.ty.shape.rank();
        if let Some(port) = ports.iter().find(same) {
            own.ty.shape = port.ty.shape.clone();
        }
    }
}

/// What has an element type and sizes.
pub(crate) trait Typed {
    fn ty(&self) -> (DType, &[usize]);
}

impl Typed for Tensor {
    fn ty(&self) -> (DType, &[usize]) {
        (self.dtype(), self.shape())
    }
}

impl Typed for &RuntimeValue {
    fn ty(&self) -> (DType, &[usize]) {
        (self.dtype(), self.shape())
    }
}

/// Checks that inputs are those of ports: by their names, element types and fixed sizes.
///
/// # Errors
/// What is missing, unknown or of another type or shape, with the inputs that there are.
pub fn check_inputs(ports: &[Port], inputs: &[(&str, Tensor)]) -> Result<(), String> {
    in_order(ports, inputs).map(drop)
}

/// The most inputs that an error names.
const MOST_PORTS: usize = 8;

/// The inputs in the order of the ports, or what is wrong with them.
pub(crate) fn in_order<'a, T: Typed>(ports: &[Port], inputs: &'a [(&str, T)]) -> Result<Vec<&'a T>, String> {
    let names = || {
        let first: Vec<String> = ports.iter().take(MOST_PORTS).map(ToString::to_string).collect();
        let others = ports.len() - first.len();
        let more = if others > 0 { format!(" and {others} more") } else { String::new() };
        first.join(", ") + &more
    };
    if let Some((name, _)) = inputs.iter().find(|(name, _)| !ports.iter().any(|port| port.name == *name)) {
        return Err(format!("there is no input `{name}`; the inputs are {}", names()));
    }
    let find = |port: &Port| {
        let (_, tensor) = inputs
            .iter()
            .find(|(name, _)| *name == port.name)
            .ok_or_else(|| format!("the input `{}` is missing; the inputs are {}", port.name, names()))?;
        let (dtype, mut shape) = tensor.ty();
        let mut wanted = port.ty.dtype;
        if let (DType::String, DType::U8, Some((_, texts))) = (wanted, dtype, shape.split_last()) {
            (wanted, shape) = (DType::U8, texts);
        }
        let fits =
            |(dim, size): (&Dim, &usize)| dim.as_constant().is_none_or(|fixed| usize::try_from(fixed) == Ok(*size));
        let fits = port.ty.shape.rank() == shape.len() && port.ty.shape.iter().zip(shape).all(fits);
        if !fits || wanted != dtype {
            return Err(format!("the input `{port}` was given {dtype}{shape:?}"));
        }
        Ok(tensor)
    };
    ports.iter().map(find).collect()
}
