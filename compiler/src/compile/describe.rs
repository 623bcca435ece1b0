//! The description of a compiled model in the manifest.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use planish_artifact::backend::Emitted;
use planish_artifact::files::relative_path;
use planish_artifact::manifest::{
    AdapterManifest, AppliedPass, CalibratedOn, Input, Output, PaddedVocabulary, PartManifest,
};
use planish_artifact::precision::PrecisionName;
use planish_artifact::value::ValueInfo;
use planish_ir::{DType, Graph, Op, Origin, OutputRole, ValueId};
use planish_models::{Loaded, ModelCard, Part, Task};
use planish_passes::{BlockInputs, Half, pad, product_inputs};

use super::{CompileOptions, LoweredPart, Observer};
use crate::calibrate::Calibration;
use crate::source::SourceModel;

/// The precision: the one that was asked for, or the one that an ONNX graph has.
pub(super) fn precision(options: &CompileOptions, parts: &[LoweredPart]) -> PrecisionName {
    if let Some(precision) = &options.passes.precision {
        return precision.half.into();
    }
    computed_precision(parts.iter().map(|part| &part.graph))
}

/// The half type that some operator of the graphs gives, casts left out; float32 where there is none.
pub fn computed_precision<'a>(graphs: impl Iterator<Item = &'a Graph> + Clone) -> PrecisionName {
    let computes = |dtype: DType| {
        let mut nodes = graphs.clone().flat_map(|graph| graph.nodes().map(move |(_, node)| (graph, node)));
        nodes.any(|(graph, node)| graph.ty(node.outputs[0]).dtype == dtype && !matches!(node.op, Op::Cast(_)))
    };
    let halves = [Half::Bf16, Half::F16].into_iter().find(|half| computes(half.dtype()));
    halves.map_or(PrecisionName::F32, PrecisionName::from)
}

/// What each `MatMulNBits` of graphs multiplies its weight with.
pub(super) fn products<'a>(graphs: impl Iterator<Item = &'a Graph>) -> impl Iterator<Item = BlockInputs> {
    graphs.flat_map(Graph::nodes).filter_map(|(_, node)| match &node.op {
        Op::Foreign(op) => product_inputs(op),
        _ => None,
    })
}

/// What most `MatMulNBits` of graphs multiply their weights with; floats where there is none.
pub(super) fn block_inputs<'a>(graphs: impl Iterator<Item = &'a Graph>) -> BlockInputs {
    let (integers, floats): (Vec<_>, Vec<_>) = products(graphs).partition(|inputs| *inputs == BlockInputs::Integers);
    if integers.len() > floats.len() { BlockInputs::Integers } else { BlockInputs::Floats }
}

/// The data that the activations were measured on.
pub(super) fn calibration(calibration: &Calibration) -> CalibratedOn {
    let Calibration { data, samples, reading, .. } = calibration;
    CalibratedOn { data: data.clone(), samples: *samples, split: reading.split }
}

/// The adapters of a model, from the folder of an artifact on.
pub(super) fn adapters(folder: &Path, model: &SourceModel) -> Vec<AdapterManifest> {
    let one = |(path, weight): (&Path, f64)| AdapterManifest { path: relative_path(folder, path), weight };
    model.adapters().map(one).collect()
}

/// What the model card beside a model says. The task of the card holds for the model as it is, and not for another head.
pub(super) fn card(model: &SourceModel, task: Option<Task>, observer: &dyn Observer) -> Option<ModelCard> {
    let card = model.card().unwrap_or_else(|error| {
        observer.note(&format!("{error}; the artifact says nothing of its license"));
        None
    })?;
    let pipeline_tag = card.pipeline_tag.filter(|_| task.is_none());
    Some(ModelCard { pipeline_tag, ..card })
}

/// The features of the hidden states of a token, where a model gives them and their number is known.
pub(super) fn features(source: &Loaded) -> Option<usize> {
    source.parts.iter().find_map(|part| {
        let roles = &part.graph.interface.outputs;
        let is_hidden = |output: &&planish_ir::Output| roles.get(&output.name) == Some(&OutputRole::HiddenStates);
        let output = part.graph.outputs().iter().find(is_hidden)?;
        usize::try_from(part.graph.ty(output.value).shape.last()?.as_constant()?).ok()
    })
}

/// The elements of the stored tensors that the parts use, each tensor counted once.
pub fn parameters(source: &Loaded) -> u64 {
    let mut seen = HashSet::new();
    let weights = source.parts.iter().flat_map(|part| part.graph.weights());
    let stored = weights.filter(|(_, value, _)| match &value.origin {
        Origin::Tensor { file, name } => seen.insert((file.clone(), name.clone())),
        _ => false,
    });
    stored.map(|(_, _, weight)| weight.elements() as u64).sum()
}

/// What the manifest says of a part.
///
/// `stages` are the graphs that it is cut into, and `emitted` has the files of each of them, or those of the whole.
pub(super) fn part(part: &Part, lowered: &LoweredPart, stages: &[Graph], emitted: &[Emitted]) -> PartManifest {
    let whole = emitted.first().filter(|_| stages.is_empty());
    PartManifest {
        files: whole.into_iter().flat_map(|emitted| &emitted.files).map(|(name, _)| name.clone()).collect(),
        stages: super::stages::described(part, stages, emitted),
        raised: lowered.raised.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        precision: lowered.precision.as_ref().map(|report| report.part.clone()),
        quantization: lowered.quantization.as_ref().map(|quantization| quantization.plan.clone()),
        coverage: lowered.coverage.clone(),
        weights: lowered.weight_quantization.as_ref().map(|quantization| quantization.plan.clone()),
        passes: lowered.stages.iter().map(|s| AppliedPass { name: s.pass.to_owned(), changed: s.changed }).collect(),
        vocabulary: lowered.vocabulary.clone(),
        last_logits: lowered.has_last_logits(),
        ..rank_interface(part, lowered)
    }
}

/// What a part takes and gives, or a rank of it.
pub(super) fn rank_interface(part: &Part, lowered: &LoweredPart) -> PartManifest {
    let rank = lowered.rank.as_ref().map(|rank| rank.described.clone());
    PartManifest { name: lowered.name.clone(), rank, ..interface(part, &lowered.graph) }
}

/// What a part takes and gives by a graph of it.
pub fn interface(part: &Part, graph: &Graph) -> PartManifest {
    let input = |&value| {
        let name = &graph.value(value).name;
        let end = part.id_ranges.iter().find(|r| r.input == *name).map(|r| r.end);
        Input { value: value_info(graph, name, value), end, role: graph.interface.input(name) }
    };
    let output = |output: &planish_ir::Output| Output {
        value: value_info(graph, &output.name, output.value),
        role: graph.interface.output(&output.name),
    };
    PartManifest {
        name: part.name.to_owned(),
        rank: None,
        files: Vec::new(),
        stages: Vec::new(),
        inputs: graph.inputs().iter().map(input).collect(),
        outputs: graph.outputs().iter().map(output).collect(),
        role: graph.interface.role,
        symbols: graph.interface.symbols.clone(),
        raised: BTreeMap::new(),
        precision: None,
        quantization: None,
        coverage: None,
        weights: None,
        passes: Vec::new(),
        engine: None,
        vocabulary: None,
        last_logits: false,
    }
}

/// What the manifest says of a vocabulary.
pub(super) fn vocabulary(padding: pad::VocabularyPadding) -> PaddedVocabulary {
    let pad::VocabularyPadding { size, padded, logits } = padding;
    PaddedVocabulary { size, padded, logits }
}

/// Name and type of a value.
pub fn value_info(graph: &Graph, name: &str, value: ValueId) -> ValueInfo {
    ValueInfo { name: name.to_owned(), ty: graph.type_of(value).clone() }
}
