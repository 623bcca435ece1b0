//! Equal parts of what a linear layer gives.

use planish_ir::ops::{Cast, Gather, Split};
use planish_ir::{Graph, Op, Rewriter, Step, ValueId, Weight};

use super::dim;
use crate::build::Builder;
use crate::{Example, Options, Outcome, Pass, PassError, TRT};

/// Selects equal parts of a linear layer's result along a dimension of their own.
pub const SELECT_PARTS: Pass = Pass {
    name: "select-parts",
    summary: "Selects the equal parts of what a linear layer gives along a dimension of their own. Such parts are the \
              queries, keys and values of one product. The pass runs for target trt. TensorRT splits the weight of a \
              product whose result is split, in further kernels, and then computes a quantized product in float32. \
              Parts of different sizes stay a split.",
    numerics: "none: elements are moved.",
    example: Example {
        target: &TRT,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            weight @w = uniform(1) : f32[4, 2]
            %y = linear(%x, @w) : f32[n, 4]
            %a, %b = split(%y) {axis = 1, sizes = [2, 2]} : f32[n, 2], f32[n, 2]
            output a = %a
            output b = %b",
        after: "
            input %x: f32[n, 2]
            weight @w = uniform(1) : f32[4, 2]
            weight @a/const = dense([0]) : i64[1]
            weight @a/const_1 = dense([1]) : i64[1]
            %y = linear(%x, @w) : f32[n, 4]
            %a/reshape = reshape(%y) {shape = [n, 2, 2]} : f32[n, 2, 2]
            %a/gather = gather(%a/reshape, @a/const) {axis = 1} : f32[n, 1, 2]
            %a/reshape_1 = reshape(%a/gather) {shape = [n, 2]} : f32[n, 2]
            %a/gather_1 = gather(%a/reshape, @a/const_1) {axis = 1} : f32[n, 1, 2]
            %a/reshape_2 = reshape(%a/gather_1) {shape = [n, 2]} : f32[n, 2]
            output a = %a/reshape_1
            output b = %a/reshape_2",
    },
    applies: |options| options.fusion && options.target.selects_parts,
    run,
};

fn run(graph: &mut Graph, _: &Options) -> Result<Outcome, PassError> {
    let changed = graph.rewrite(|graph, node| {
        let (Op::Split(split), outputs) = (&graph.node(node).op, &graph.node(node).outputs) else {
            return Ok::<_, PassError>(Step::Keep);
        };
        let Split { x, axis, sizes } = split.clone();
        let (like, shape) = (outputs[0], graph.ty(x).shape.to_vec());
        let equal = sizes.iter().all(|size| *size == sizes[0]);
        if axis + 1 != shape.len() || !equal || sizes.len() < 2 || !of_layer(graph, x) {
            return Ok(Step::Keep);
        }
        let mut l = Builder::at(graph, like);
        let whole = l.reshape(x, shape[..axis].iter().cloned().chain([dim(sizes.len()), dim(sizes[0])]))?;
        let mut parts = Vec::with_capacity(sizes.len());
        for (index, size) in (0..).zip(&sizes) {
            // TensorRT makes a slice of a part that is selected by a scalar.
            let indices = l.graph.weight_part(Weight::integers(&[index]), like);
            let part = l.emit(Gather { x: whole, indices, axis })?;
            parts.push(l.reshape(part, shape[..axis].iter().cloned().chain([dim(*size)]))?);
        }
        Ok(Step::Replace(parts))
    })?;
    graph.compact();
    Ok(changed.into())
}

/// Whether a value is what a linear layer gives, perhaps in another type.
fn of_layer(graph: &Rewriter<'_>, value: ValueId) -> bool {
    match graph.producer(value).map(|node| &node.op) {
        Some(Op::Linear(_)) => true,
        Some(Op::Cast(Cast { x, .. })) => matches!(graph.producer(*x).map(|node| &node.op), Some(Op::Linear(_))),
        _ => false,
    }
}
