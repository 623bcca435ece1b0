//! Observers: outputs with the range of each value of a graph, with the inputs of linear layers, or with the experts that tokens take.

mod experts;
mod inputs;
mod names;

use planish_ir::ops::{Reduce, ReduceKind, UnaryKind};
use planish_ir::{BuildError, DType, Dim, Graph, Op, Step, ValueId};

use crate::build::Builder;
use crate::legalize::scores;
use crate::{Example, ONNX, Observation, Options, Outcome, Pass, PassError};

pub use experts::{Mixture, mixtures, observe_choices, observed_choices};
pub use inputs::{
    OBSERVE_INPUTS, linear_inputs, map_inputs, observe_inputs, observe_tensors, observed_tensor, tensor_output,
};
pub use names::{Observed, observed, scores_name, scores_of};

/// Whether an output is one of an observer, and not the model's.
#[must_use]
pub fn is_observer(output: &str) -> bool {
    observed(output).is_some() || observed_tensor(output).is_some() || observed_choices(output).is_some()
}

/// Adds outputs with the range of each float.
pub const OBSERVE: Pass = Pass {
    name: "observe",
    summary: "Adds outputs for calibration; compiling does not run this pass. For each floating-point input, and each \
              floating-point result of a node, three outputs hold the smallest element, the largest element, and \
              whether an element is NaN, which the minimum and the maximum of a runtime may hide. For each attention \
              they hold the same of its scaled scores, before softcap, bias and mask, under the name RESULT/scores. \
              The outputs are scalars, and their names contain the name of the value. Each is computed directly after \
              its value, so that no tensor lives longer. For target ort they are computed at the end, the last value \
              first, because ONNX Runtime runs nodes in this order interleaved. A graph that has such outputs stays as \
              it is.",
    numerics: "none: the pass adds outputs and changes no value",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            %y = relu(%x) : f32[n, 2]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            %x/reduce_min = reduce_min(%x) {axes = [0, 1], keep = false} : f32[]
            %x/reduce_max = reduce_max(%x) {axes = [0, 1], keep = false} : f32[]
            %x/is_nan = is_nan(%x) : bool[n, 2]
            %x/cast = cast(%x/is_nan) {to = f32} : f32[n, 2]
            %x/reduce_max_1 = reduce_max(%x/cast) {axes = [0, 1], keep = false} : f32[]
            %y = relu(%x) : f32[n, 2]
            %y/reduce_min = reduce_min(%y) {axes = [0, 1], keep = false} : f32[]
            %y/reduce_max = reduce_max(%y) {axes = [0, 1], keep = false} : f32[]
            %y/is_nan = is_nan(%y) : bool[n, 2]
            %y/cast = cast(%y/is_nan) {to = f32} : f32[n, 2]
            %y/reduce_max_1 = reduce_max(%y/cast) {axes = [0, 1], keep = false} : f32[]
            output y = %y
            output observed/min/x = %x/reduce_min
            output observed/max/x = %x/reduce_max
            output observed/nan/x = %x/reduce_max_1
            output observed/min/y = %y/reduce_min
            output observed/max/y = %y/reduce_max
            output observed/nan/y = %y/reduce_max_1",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    if graph.outputs().iter().any(|output| observed(&output.name).is_some()) {
        return Ok(Outcome::default());
    }
    // ONNX Runtime goes back from the last node that nothing reads, and runs first what it meets last.
    let reversed = options.target.observation == Observation::AtEnd;
    let inputs = graph.inputs().iter().copied();
    // What exists, and is not observed yet.
    let mut pending: Vec<(String, ValueId)> =
        inputs.filter(|v| is_float(graph, *v)).map(|v| (graph.value(v).name.clone(), v)).collect();
    let mut outputs = Vec::new();
    graph.rewrite(|graph, node| {
        for (name, value) in pending.drain(..if reversed { 0 } else { pending.len() }) {
            observe(&mut Builder::at(graph, value), name, value, &mut outputs)?;
        }
        let results = graph.node(node).outputs.clone();
        if let Op::Attention(attention) = graph.node(node).op.clone() {
            let l = &mut Builder::at(graph, results[0]);
            let name = scores_name(&l.graph.value(l.like).name);
            pending.push((name, scores(l, &attention)?));
        }
        pending.extend(results.into_iter().filter(|v| is_float(graph, *v)).map(|v| (graph.value(v).name.clone(), v)));
        Ok::<_, PassError>(Step::Keep)
    })?;
    if reversed {
        pending.reverse();
    }
    let mut end = graph.append();
    for (name, value) in pending {
        observe(&mut Builder::at(&mut end, value), name, value, &mut outputs)?;
    }
    if reversed {
        outputs.reverse();
    }
    let count = outputs.len();
    for (name, statistics) in outputs {
        for (kind, value) in Observed::ALL.into_iter().zip(statistics) {
            graph.add_output(&kind.output(&name), value);
        }
    }
    graph.compact();
    Ok(count.into())
}

fn is_float(graph: &Graph, value: ValueId) -> bool {
    graph.type_of(value).as_tensor().is_some_and(|ty| ty.dtype.is_float())
}

/// A value's name with what is observed of it, in the order of [`Observed::ALL`].
type Statistics = (String, [ValueId; 3]);

fn observe(
    l: &mut Builder<'_, '_>,
    name: String,
    value: ValueId,
    outputs: &mut Vec<Statistics>,
) -> Result<(), BuildError> {
    let x = match l.graph.ty(value).shape.rank() {
        0 => l.reshape(value, [Dim::constant(1)])?,
        _ => value,
    };
    let axes: Vec<usize> = (0..l.graph.ty(x).shape.rank()).collect();
    let reduce = |l: &mut Builder<'_, '_>, kind, x| l.emit(Reduce { kind, x, axes: axes.clone(), keep: false });
    let (min, max) = (reduce(l, ReduceKind::Min, x)?, reduce(l, ReduceKind::Max, x)?);
    let is_nan = l.unary(UnaryKind::IsNan, x)?;
    let as_number = l.cast(is_nan, DType::F32)?;
    let nan = reduce(l, ReduceKind::Max, as_number)?;
    outputs.push((name, [min, max, nan]));
    Ok(())
}
