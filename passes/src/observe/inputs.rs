//! Observers of the inputs of linear layers: outputs with the tensors themselves.

use std::collections::HashSet;

use planish_ir::ops::{Cast, Experts, Linear, Transpose};
use planish_ir::{DType, Graph, Op, ValueId};

use super::is_float;
use crate::quantize::feature_maps;
use crate::{Example, ONNX, Options, Outcome, Pass, PassError};

/// Adds outputs with the inputs of linear layers.
pub const OBSERVE_INPUTS: Pass = Pass {
    name: "observe-inputs",
    summary: "Adds outputs for the calibration of INT8; compiling does not run this pass. Each value that a linear layer \
              or a mixture of experts takes as `x`, and that is computed from the inputs of the graph, becomes an output \
              `observed/tensor/NAME`, in float32. So does what convolutions take and give, [batch, channels, ..], as rows of channels, \
              [batch, .., channels]. A value that several layers take is one output. A graph that has \
              such outputs stays as it is.",
    numerics: "none: the pass adds outputs and changes no value",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            weight @w = dense([1.0, 2.0, 3.0, 4.0]) : f32[2, 2]
            %r = relu(%x) : f32[n, 2]
            %q = linear(%r, @w) : f32[n, 2]
            %k = linear(%r, @w) : f32[n, 2]
            %y = add(%q, %k) : f32[n, 2]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            weight @w = dense([1.0, 2.0, 3.0, 4.0]) : f32[2, 2]
            %r = relu(%x) : f32[n, 2]
            %q = linear(%r, @w) : f32[n, 2]
            %k = linear(%r, @w) : f32[n, 2]
            %y = add(%q, %k) : f32[n, 2]
            output y = %y
            output observed/tensor/r = %r",
    },
    applies: |_| true,
    run: |graph, _: &Options| observe_inputs(graph, &|_| true),
};

/// What the names of the outputs begin with.
const PREFIX: &str = "observed/tensor/";

/// The output that holds a value.
#[must_use]
pub fn tensor_output(value: &str) -> String {
    format!("{PREFIX}{value}")
}

/// The value that an output of [`OBSERVE_INPUTS`] holds; `None` for other outputs.
#[must_use]
pub fn observed_tensor(output: &str) -> Option<&str> {
    output.strip_prefix(PREFIX)
}

/// The values that linear layers and mixtures of experts take as `x`, in the order of their first readers: floats that are no
/// weights.
#[must_use]
pub fn linear_inputs(graph: &Graph) -> Vec<ValueId> {
    let mut seen = HashSet::new();
    let x = graph.nodes().filter_map(|(_, node)| match &node.op {
        Op::Linear(Linear { x, .. }) | Op::Experts(Experts { x, .. }) => Some(*x),
        _ => None,
    });
    x.filter(|x| is_float(graph, *x) && graph.weight(*x).is_none() && seen.insert(*x)).collect()
}

/// The feature maps that convolutions take and give, but for those that linear layers take too: [batch, channels, spatial ..]. They are
/// observed as rows of channels, [batch, spatial .., channels].
#[must_use]
pub fn map_inputs(graph: &Graph) -> Vec<ValueId> {
    let known: HashSet<ValueId> = linear_inputs(graph).into_iter().collect();
    feature_maps(graph).into_iter().filter(|map| !known.contains(map)).collect()
}

/// [`OBSERVE_INPUTS`] for the values of some names.
///
/// # Errors
/// When a cast cannot be built.
pub fn observe_inputs(graph: &mut Graph, wanted: &dyn Fn(&str) -> bool) -> Result<Outcome, PassError> {
    let maps = map_inputs(graph);
    observe_tensors(graph, maps, wanted)
}

/// The same with feature maps that were found before other observers took values of the graph.
///
/// # Errors
/// When a cast cannot be built.
pub fn observe_tensors(
    graph: &mut Graph,
    mut maps: Vec<ValueId>,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Outcome, PassError> {
    if graph.outputs().iter().any(|output| observed_tensor(&output.name).is_some()) {
        return Ok(Outcome::default());
    }
    let mut values = linear_inputs(graph);
    values.retain(|value| wanted(&graph.value(*value).name));
    maps.retain(|value| wanted(&graph.value(*value).name));
    let count = values.len() + maps.len();
    let channels_last = |rank: usize| -> Vec<usize> { [0].into_iter().chain(2..rank).chain([1]).collect() };
    let values = values.into_iter().map(|value| (value, None));
    let maps = maps.into_iter().map(|map| (map, Some(channels_last(graph.ty(map).shape.rank())))).collect::<Vec<_>>();
    for (value, perm) in values.chain(maps) {
        let (name, origin) = (graph.value(value).name.clone(), graph.value(value).origin.clone());
        let mut output = value;
        if graph.ty(value).dtype != DType::F32 {
            output = graph.emit(Cast { x: value, to: DType::F32 }, &name, origin.clone())?[0];
        }
        if let Some(perm) = perm {
            output = graph.emit(Transpose { x: output, perm }, &name, origin)?[0];
        }
        graph.add_output(&tensor_output(&name), output);
    }
    Ok(count.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_back() {
        assert_eq!(observed_tensor(&tensor_output("layer.0/x")), Some("layer.0/x"));
        assert_eq!(observed_tensor("observed/min/x"), None);
    }
}
