//! The stages that `--pipeline` cuts parts into.

use anyhow::{Result, bail};
use planish_artifact::StageManifest;
use planish_artifact::backend::Emitted;
use planish_data::inputs::{Sizes, graph_bindings};
use planish_ir::cost::{costs, stored_bytes};
use planish_ir::{Bindings, Graph, Origin, SymbolRole, ValueId};
use planish_models::Part;
use planish_passes::cut::{Balance, CutError, cut, sent};

use super::describe::interface;
use super::{LoweredPart, Observer};
use crate::source::modules::{Modules, NodeNames, OUTSIDE};

/// The tokens of the row that stages are balanced for, where the part has no cache.
const TOKENS: usize = 128;

/// The side of its images, where their size is open.
const SIDE: usize = 224;

/// Cuts each part into `count` stages, by their places; none for a part that stays whole because nothing in it can be cut, such as
/// the embedding of tokens, where other parts are cut.
///
/// # Errors
/// When a part has fewer places to be cut at, or no part has one.
pub(super) fn stages(parts: &[LoweredPart], count: usize, observer: &dyn Observer) -> Result<Vec<Vec<Graph>>> {
    let cut_part = |part: &LoweredPart| cut(&part.graph, count, balance(&part.graph), &bindings(&part.graph));
    let mut stages = Vec::with_capacity(parts.len());
    for part in parts {
        match cut_part(part) {
            Ok(cut) => stages.push(cut),
            Err(CutError::Few { most: 1, .. }) if parts.len() > 1 => {
                observer.note(&format!("--pipeline {count}: {} stays whole: no place in it can be cut", part.name));
                stages.push(Vec::new());
            }
            Err(CutError::Few { most: 1, .. }) => {
                bail!("--pipeline {count}: at no place of {} one value alone goes on; leave --pipeline out", part.name)
            }
            Err(CutError::Few { most, .. }) => bail!(
                "--pipeline {count}: {} can be cut into {most} stages at most; give --pipeline 2 to {most}",
                part.name
            ),
            Err(error @ CutError::Stage { .. }) => bail!("--pipeline {count}: {}: {error}", part.name),
        }
    }
    if stages.iter().all(Vec::is_empty) {
        bail!("--pipeline {count}: no part of the model can be cut; leave --pipeline out");
    }
    Ok(stages)
}

/// What the manifest says of the stages of a part.
pub(super) fn described(part: &Part, stages: &[Graph], emitted: &[Emitted]) -> Vec<StageManifest> {
    let one = |(at, (graph, emitted)): (usize, (&Graph, &Emitted))| {
        let described = interface(part, graph);
        let costs = costs(graph, &bindings(graph));
        let goes_on = stages.get(at + 1).map(|next| sent(graph, next, &bindings(graph)));
        StageManifest {
            name: name(part.name, at),
            files: emitted.files.iter().map(|(name, _)| name.clone()).collect(),
            inputs: described.inputs,
            outputs: described.outputs,
            layers: layers(graph),
            weight_bytes: graph.weights().map(|(_, _, weight)| stored_bytes(weight)).fold(0, u64::saturating_add),
            flops: costs.uncounted.is_empty().then(|| costs.total().flops),
            sent_bytes: goes_on.flatten(),
        }
    };
    stages.iter().zip(emitted).enumerate().map(one).collect()
}

/// The name of a stage.
pub(super) fn name(part: &str, stage: usize) -> String {
    format!("{part}_stage{stage}")
}

/// What the costs of stages of a part are: steps of a decoder are bound by the bytes of weights, and everything else by operations.
#[must_use]
pub fn balance(graph: &Graph) -> Balance {
    if graph.interface.has_cache() { Balance::WeightBytes } else { Balance::Flops }
}

/// The sizes of the run that stages are balanced for.
fn bindings(graph: &Graph) -> Bindings {
    let sequence = if graph.interface.symbols.values().any(|role| *role == SymbolRole::Past) { 1 } else { TOKENS };
    graph_bindings(graph, Sizes { batch: 1, sequence, side: Some(SIDE) }, 0)
}

/// The layers of the nodes that read tensors of the checkpoint of a stage, in their order.
#[must_use]
pub fn layers(graph: &Graph) -> Vec<String> {
    let modules = Modules::of(graph, &NodeNames::default());
    let mut layers: Vec<String> = Vec::new();
    for (id, node) in graph.nodes() {
        let is_tensor = |value: &ValueId| matches!(graph.value(*value).origin, Origin::Tensor { .. });
        let has_weight = node.op.operands().iter().any(|value| graph.weight(*value).is_some() && is_tensor(value));
        let layer = modules.layer(id);
        if has_weight && layer != OUTSIDE && !layer.is_empty() && !layers.iter().any(|other| other == layer) {
            layers.push(layer.to_owned());
        }
    }
    layers
}
