//! Lowering of layers with a state of a fixed size.

mod convolution;
mod recurrence;

use planish_ir::ops::Setting;
use planish_ir::{BuildError, DType, Graph, Op, Shape, Step, ValueId};

use crate::build::Builder;
use crate::{Example, ONNX, Options, Outcome, Pass, PassError, StateForm};

/// Lowers layers with a state of a fixed size.
pub const LOWER_STATES: Pass = Pass {
    name: "lower-states",
    summary: "Lowers convolutions and attention with a state of a fixed size. For target ort they become ONNX Runtime's \
              CausalConvWithState and LinearAttention in float32. Elsewhere a convolution becomes a product and a sum for \
              each tap, over the tokens with the state before them. Linear attention stays, in float32: its form in ONNX is a Scan over \
              chunks of tokens, or over the tokens where each element of a key has a decay. For target cuda, linear attention with one \
              decay for each head and without `beta` becomes products of all queries with all keys, as attention is, and \
              products with the state.",
    numerics: "The decay between two tokens is the exponential of the sum of the decays between them, in float32 at least.",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[b, s, 4]
            input %p: f32[b, 1, 4]
            weight @w = uniform(1) : f32[4, 1, 2]
            %y, %n = causal_conv(%x, @w, state: %p) {silu = true} : f32[b, s, 4], f32[b, 1, 4]
            output y = %y
            output n = %n",
        after: "
            input %x: f32[b, s, 4]
            input %p: f32[b, 1, 4]
            weight @w = uniform(1) : f32[4, 1, 2]
            %y/concat = concat([%p, %x]) {axis = 1} : f32[b, s + 1, 4]
            %y/reshape = reshape(@w) {shape = [4, 2]} : f32[4, 2]
            %y/transpose = transpose(%y/reshape) {perm = [1, 0]} : f32[2, 4]
            %y/split, %y/split_1 = split(%y/transpose) {axis = 0, sizes = [1, 1]} : f32[1, 4], f32[1, 4]
            %y/slice = slice(%y/concat) {axis = 1, start = 0, end = s} : f32[b, s, 4]
            %y/mul = mul(%y/slice, %y/split) : f32[b, s, 4]
            %y/slice_1 = slice(%y/concat) {axis = 1, start = 1, end = s + 1} : f32[b, s, 4]
            %y/mul_1 = mul(%y/slice_1, %y/split_1) : f32[b, s, 4]
            %y/add = add(%y/mul, %y/mul_1) : f32[b, s, 4]
            %y/silu = silu(%y/add) : f32[b, s, 4]
            %y/slice_2 = slice(%y/concat) {axis = 1, start = s, end = s + 1} : f32[b, 1, 4]
            output y = %y/silu
            output n = %y/slice_2",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let operators = options.fusion && options.target.states == StateForm::Operators;
    let lowered = graph.rewrite(|graph, node| {
        let (op, like) = (graph.node(node).op.clone(), graph.node(node).outputs[0]);
        let dtype = graph.ty(like).dtype;
        let in_float32 = dtype == DType::F32;
        let l = &mut Builder::at(graph, like);
        let results = match &op {
            Op::CausalConv(op) if operators && in_float32 => convolution::operator(l, op)?,
            Op::CausalConv(op) => convolution::sums(l, op)?,
            Op::LinearAttention(op) if operators && in_float32 => recurrence::operator(l, op)?,
            Op::LinearAttention(op) if options.target.states == StateForm::Products => {
                match recurrence::products(l, op)? {
                    Some(results) => results,
                    None => return Ok::<_, PassError>(Step::Keep),
                }
            }
            Op::LinearAttention(op) if op.state.is_some() && (in_float32 || dtype == DType::F64) => {
                return Ok(Step::Keep);
            }
            Op::LinearAttention(op) => recurrence::with_state(l, op)?,
            _ => return Ok(Step::Keep),
        };
        Ok(Step::Replace(results))
    })?;
    graph.compact();
    Ok(lowered.into())
}

/// Zeros of a shape, of the element type of a value.
fn zeros(l: &mut Builder<'_, '_>, of: ValueId, shape: &Shape) -> Result<ValueId, BuildError> {
    let zero = l.scalar(of, 0.0);
    l.emit(planish_ir::ops::Expand { x: zero, shape: shape.clone() })
}

/// A text as the attribute of an operator.
fn text(text: &str) -> Setting {
    Setting::Bytes(text.as_bytes().into())
}

/// A count as the attribute of an operator.
fn count(count: usize) -> Setting {
    Setting::Int(i64::try_from(count).unwrap_or(i64::MAX))
}
