//! A description of a model: its interface, its weights, its operators, and drawings of its graphs.

mod arena;
mod batch;
mod confirm;
mod cost;
mod devices;
mod dot;
mod engine;
mod kernels;
mod memory;
mod page;
mod picture;
mod sizes;
mod svg;
mod training;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use planish_artifact::manifest::{Manifest, PartManifest};
use planish_artifact::tuning::Tuning;
use planish_artifact::value::ValueInfo;
use planish_artifact::{Artifact, MANIFEST};
use planish_compiler::compile::value_info;
use planish_compiler::source::SourceModel;
use planish_compiler::source::modules::NodeNames;
use planish_ir::Graph;
use planish_models::{LoadOptions, Loaded};
use planish_onnx::{DEFAULT_OPSET, ImportOptions, node_results};
use planish_passes::raise::{Explanation, explain};
use planish_passes::{ONNX, Options, Pipeline};
use planish_runtimes::Format;
use serde::Serialize;

pub use batch::{LargestBatch, Need, RunNeed};
pub use confirm::{Confirmation, confirm};
pub(crate) use cost::weight_bytes;
pub use cost::{Activations, ModelCost, PartCost, Share, Uncounted, Work};
pub use devices::{Device, DevicePlan, Devices, LeastTime, PlannedStage, RESERVE, Rates, Split};
pub use dot::dot;
pub use engine::{EngineInspection, engines};
pub use kernels::{Gpu, KernelRow, KernelWork, Kernels, LAUNCH_US, PartKernels, REACHED};
pub use memory::{Memory, PartMemory, PlanError};
pub use page::{PageOptions, html};
pub use picture::Picture;
pub use sizes::{Asked, IMAGE_SIDE};
pub(crate) use svg::escaped;
pub use svg::svg;
pub use training::{Training, TrainingActivations, TrainingOptions, TrainingState};

/// How many of the largest weights are named.
const LARGEST: usize = 5;

/// The graphs of a model and where they are from.
pub struct Opened {
    /// The architecture's `model_type`, or `onnx`.
    pub architecture: String,
    /// The task, where it is known.
    pub task: Option<String>,
    /// The opset that the graphs are written in; a checkpoint has none.
    pub opset: Option<u32>,
    /// The graphs by the names of their parts.
    pub graphs: Vec<(String, Graph)>,
    /// Whether they are of an artifact that the runtime `cuda` executes.
    pub is_native: bool,
    /// The most tokens in a row that it takes; absent where there is no limit.
    pub longest: Option<usize>,
    /// The manifest, of an artifact.
    pub(crate) manifest: Option<Box<Manifest>>,
    /// The names of the nodes in the files of the parts, where they are of ONNX files.
    names: BTreeMap<String, NodeNames>,
}

impl Opened {
    /// Opens an artifact, an ONNX file or a checkpoint.
    ///
    /// # Errors
    /// When it cannot be read, or has not what the options name.
    pub fn open(path: &Path, options: &ImportOptions) -> Result<Self> {
        if path.join(MANIFEST).is_file() {
            return Self::artifact(path, options);
        }
        Self::of_source(&SourceModel::open_with(path, options)?)
    }

    /// The graphs of a source.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub fn of_source(source: &SourceModel) -> Result<Self> {
        Self::of(source.load(LoadOptions::default())?, source)
    }

    /// The graphs of a model that was loaded from a source.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub(crate) fn of(loaded: Loaded, source: &SourceModel) -> Result<Self> {
        let names = source.node_names()?;
        Ok(Self {
            names: loaded.parts.iter().map(|part| (part.name.to_owned(), names.clone())).collect(),
            architecture: loaded.architecture.to_owned(),
            task: loaded.task.map(|task| task.to_string()),
            opset: source.opset(),
            longest: loaded.max_positions,
            graphs: loaded.parts.into_iter().map(|part| (part.name.to_owned(), part.graph)).collect(),
            is_native: false,
            manifest: None,
        })
    }

    /// The names of the nodes in the file of a part.
    pub(crate) fn names(&self, part: &str) -> NodeNames {
        self.names.get(part).cloned().unwrap_or_default()
    }

    fn artifact(folder: &Path, options: &ImportOptions) -> Result<Self> {
        let artifact = Artifact::open(folder)?;
        let (mut graphs, mut names) = (Vec::new(), BTreeMap::new());
        for part in artifact.manifest.parts.iter().flat_map(PartManifest::pieces) {
            let file = artifact.file(&part)?;
            graphs.push((part.name.clone(), artifact.backend.emitter.read(&file, options)?));
            if artifact.backend.emitter.format() == Format::ONNX {
                names.insert(part.name.clone(), NodeNames { results: node_results(&file)?, are_modules: true });
            }
        }
        let Manifest { architecture, task, opset, max_sequence_length: longest, .. } = artifact.manifest.clone();
        let is_native = artifact.backend.emitter.format() == Format::GRAPH;
        Ok(Self {
            architecture,
            task: task.map(|task| task.to_string()),
            opset: Some(opset),
            graphs,
            is_native,
            manifest: Some(Box::new(artifact.manifest)),
            longest,
            names,
        })
    }

    /// Raises operators of the graphs to those in which the meaning is plain.
    ///
    /// # Errors
    /// When a pass fails.
    pub fn raise(&mut self) -> Result<()> {
        let pipeline = Pipeline::new(Options::new(&ONNX, self.opset.unwrap_or(DEFAULT_OPSET)));
        for (_, graph) in &mut self.graphs {
            pipeline.raise(graph, &mut Vec::new(), &mut |_, _| {})?;
        }
        Ok(())
    }

    /// Raises operators of the graphs, and says for each part what was found and where a rule almost matched.
    ///
    /// # Errors
    /// When a pass fails.
    pub fn explain(&mut self) -> Result<Vec<(String, Explanation)>> {
        let options = Options { explain: true, ..Options::new(&ONNX, self.opset.unwrap_or(DEFAULT_OPSET)) };
        let pipeline = Pipeline::new(options);
        let one = |(name, graph): &mut (String, Graph)| {
            let mut stages = Vec::new();
            pipeline.raise(graph, &mut stages, &mut |_, _| {})?;
            Ok((name.clone(), explain(graph, &stages)))
        };
        self.graphs.iter_mut().map(one).collect()
    }

    /// What there is to say about each part.
    #[must_use]
    pub fn inspect(&self) -> Inspection {
        Inspection {
            architecture: self.architecture.clone(),
            task: self.task.clone(),
            opset: self.opset,
            tuning: self.manifest.as_ref().and_then(|manifest| manifest.tuning.clone()),
            parts: self.graphs.iter().map(|(name, graph)| part(name, graph)).collect(),
        }
    }
}

/// What a model is.
#[derive(Debug, Serialize)]
pub struct Inspection {
    /// The architecture's `model_type`, or `onnx`.
    pub architecture: String,
    /// The task, where it is known.
    pub task: Option<String>,
    /// The opset that the graphs are written in; a checkpoint has none.
    pub opset: Option<u32>,
    /// What a search for its fastest form found; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuning>,
    /// Its graphs.
    pub parts: Vec<PartInspection>,
}

/// What a graph of a model is.
#[derive(Debug, Serialize)]
pub struct PartInspection {
    /// The name of the part.
    pub name: String,
    /// The inputs, in order.
    pub inputs: Vec<ValueInfo>,
    /// The outputs, in order.
    pub outputs: Vec<ValueInfo>,
    /// The constants by their element type.
    pub weights: BTreeMap<String, Amount>,
    /// How many of each operator there are, those of ONNX that are left as they came by their own names.
    pub operators: BTreeMap<String, usize>,
    /// The largest constants.
    pub largest: Vec<LargeWeight>,
}

/// How much there is of constants.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Amount {
    /// How many tensors.
    pub tensors: usize,
    /// Their elements.
    pub elements: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A constant.
#[derive(Debug, Serialize)]
pub struct LargeWeight {
    /// Its name and type.
    #[serde(flatten)]
    pub value: ValueInfo,
    /// Its bytes.
    pub bytes: u64,
}

fn part(name: &str, graph: &Graph) -> PartInspection {
    let mut weights: BTreeMap<String, Amount> = BTreeMap::new();
    for (_, _, weight) in graph.weights() {
        let amount = weights.entry(weight.dtype().to_string()).or_default();
        amount.tensors += 1;
        amount.elements += weight.elements() as u64;
        amount.bytes += weight.bytes();
    }
    let mut operators = BTreeMap::new();
    for (_, node) in graph.nodes() {
        *operators.entry(node.op.kind().to_owned()).or_insert(0) += 1;
    }
    let mut largest: Vec<LargeWeight> = graph
        .weights()
        .map(|(id, value, weight)| LargeWeight { value: value_info(graph, &value.name, id), bytes: weight.bytes() })
        .collect();
    largest.sort_by_key(|weight| Reverse(weight.bytes));
    largest.truncate(LARGEST);
    PartInspection {
        name: name.to_owned(),
        inputs: graph.inputs().iter().map(|v| value_info(graph, &graph.value(*v).name, *v)).collect(),
        outputs: graph.outputs().iter().map(|o| value_info(graph, &o.name, o.value)).collect(),
        weights,
        operators,
        largest,
    }
}
