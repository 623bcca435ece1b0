//! Lowering of mixtures of experts.

mod all;
mod gathered;
mod grouped;
mod symbols;

use planish_ir::ops::{Activation, Binary, BinaryKind, Experts, Gelu, GeluForm, Unary, UnaryKind};
use planish_ir::{BuildError, Dim, Graph, Op, Step, ValueId};

use crate::build::Builder;
use crate::{Example, ExpertsForm, ORT, Options, Outcome, Pass, PassError};

/// Lowers mixtures of experts.
pub const LOWER_EXPERTS: Pass = Pass {
    name: "lower-experts",
    summary: "Lowers mixtures of experts. In the form `grouped`, tokens are put in the order of their experts, and each \
              expert is linear layers of the tokens that take it, with weights of its own. An expert that no token takes multiplies \
              no rows, and its weights are not read. The number of tokens of an expert is known at run time only. In the form \
              `gathered`, the weights of the experts that are chosen are copied, and each of these experts computes every token; weights of codes \
              have the form `all`. In the form `all`, every expert computes every token, and one that a token does not take adds 0 to the sum: there \
              experts / k times as much is computed as is needed, and every weight is read. Weights stay as they are stored, because \
              tokens are the columns. Codes of weights become numbers through DequantizeLinear.",
    numerics: "The sum over the experts of a token takes place in float32 at least.",
    example: Example {
        target: &ORT,
        fusion: false,
        before: "
            input %x: f32[n, 2]
            input %i: i64[n, 1]
            input %s: f32[n, 1]
            weight @g = uniform(1) : f32[2, 3, 2]
            weight @d = uniform(2) : f32[2, 2, 3]
            %y = experts(%x, %i, %s, @g, @d) {activation = relu} : f32[n, 2]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            input %i: i64[n, 1]
            input %s: f32[n, 1]
            weight @y/const = dense([1]) : i64[]
            weight @y/const_1 = dense([0, 1]) : i64[2]
            weight @g = reshape(gather(uniform(1) : f32[2, 3, 2], 0, [0]) : f32[1, 3, 2]) : f32[3, 2]
            weight @g_1 = reshape(gather(uniform(1) : f32[2, 3, 2], 0, [1]) : f32[1, 3, 2]) : f32[3, 2]
            weight @d = reshape(gather(uniform(2) : f32[2, 2, 3], 0, [0]) : f32[1, 2, 3]) : f32[2, 3]
            weight @d_1 = reshape(gather(uniform(2) : f32[2, 2, 3], 0, [1]) : f32[1, 2, 3]) : f32[2, 3]
            %y/reshape = reshape(%i) {shape = [n]} : i64[n]
            %y/top_k, %y/top_k_1 = top_k(%y/reshape) {axis = 0, k = n, smallest = true} : i64[n], i64[n]
            %y/top_k_2, %y/top_k_3 = top_k(%y/top_k_1) {axis = 0, k = n, smallest = true} : i64[n], i64[n]
            %y/div = div(%y/top_k_1, @y/const) : i64[n]
            %y/gather = gather(%x, %y/div) {axis = 0} : f32[n, 2]
            %y/reshape_1 = reshape(%y/reshape) {shape = [n, 1]} : i64[n, 1]
            %y/equal = equal(%y/reshape_1, @y/const_1) : bool[n, 2]
            %y/cast = cast(%y/equal) {to = i64} : i64[n, 2]
            %y/reduce_sum = reduce_sum(%y/cast) {axes = [0], keep = false} : i64[2]
            %y/foreign, %y/foreign_1 = foreign([%y/gather, %y/reduce_sum], []) {domain = \"ai.onnx\", op = \"Split\", version = 13, settings = [axis = int(0)], captures = [], results = [f32[routed_0, 2], f32[routed_1, 2]]} : f32[routed_0, 2], f32[routed_1, 2]
            %y/linear = linear(%y/foreign, @g) : f32[routed_0, 3]
            %y/linear_1 = linear(%y/foreign_1, @g_1) : f32[routed_1, 3]
            %y/foreign_2 = foreign([%y/linear, %y/linear_1], []) {domain = \"ai.onnx\", op = \"Concat\", version = 13, settings = [axis = int(0)], captures = [], results = [f32[n, 3]]} : f32[n, 3]
            %y/relu = relu(%y/foreign_2) : f32[n, 3]
            %y/foreign_3, %y/foreign_4 = foreign([%y/relu, %y/reduce_sum], []) {domain = \"ai.onnx\", op = \"Split\", version = 13, settings = [axis = int(0)], captures = [], results = [f32[routed_0, 3], f32[routed_1, 3]]} : f32[routed_0, 3], f32[routed_1, 3]
            %y/linear_2 = linear(%y/foreign_3, @d) : f32[routed_0, 2]
            %y/linear_3 = linear(%y/foreign_4, @d_1) : f32[routed_1, 2]
            %y/foreign_5 = foreign([%y/linear_2, %y/linear_3], []) {domain = \"ai.onnx\", op = \"Concat\", version = 13, settings = [axis = int(0)], captures = [], results = [f32[n, 2]]} : f32[n, 2]
            %y/gather_1 = gather(%y/foreign_5, %y/top_k_3) {axis = 0} : f32[n, 2]
            %y/reshape_2 = reshape(%y/gather_1) {shape = [n, 1, 2]} : f32[n, 1, 2]
            %y/reshape_3 = reshape(%s) {shape = [n, 1, 1]} : f32[n, 1, 1]
            %y/mul = mul(%y/reshape_2, %y/reshape_3) : f32[n, 1, 2]
            %y/reduce_sum_1 = reduce_sum(%y/mul) {axes = [1], keep = false} : f32[n, 2]
            output y = %y/reduce_sum_1",
    },
    applies: |options| !options.keeps_operators(),
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let mut symbols = symbols::Symbols::new(graph);
    let lowered = graph.rewrite(|graph, node| {
        let Op::Experts(experts) = graph.node(node).op.clone() else { return Ok::<_, PassError>(Step::Keep) };
        let like = graph.node(node).outputs[0];
        let l = &mut Builder::at(graph, like);
        let result = match options.experts {
            ExpertsForm::Grouped => grouped::grouped(l, &experts, &mut symbols)?,
            ExpertsForm::Gathered if gathered::fits(l.graph, &experts) => {
                gathered::gathered(l, &experts, &mut symbols)?
            }
            ExpertsForm::Gathered | ExpertsForm::All => all::products(l, &experts, None)?,
        };
        Ok(Step::Replace(vec![result]))
    })?;
    graph.compact();
    Ok(lowered.into())
}

/// How many tokens there are: the elements of all dimensions but the last.
fn tokens(l: &Builder<'_, '_>, x: ValueId) -> Dim {
    let shape = &l.graph.ty(x).shape;
    // The typing rule has counted with the sizes.
    shape[..shape.rank() - 1].iter().fold(Dim::constant(1), |all, dim| all.checked_mul(dim).unwrap_or_default())
}

/// A value as a matrix with a row for each token.
fn rows(l: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, BuildError> {
    let (count, last) = (tokens(l, x), l.graph.ty(x).shape.last().cloned().unwrap_or_default());
    if l.graph.ty(x).shape.rank() == 2 { Ok(x) } else { l.reshape(x, [count, last]) }
}

/// A matrix with a row for each token, in the shape of the result.
fn unrows(l: &mut Builder<'_, '_>, y: ValueId) -> Result<ValueId, BuildError> {
    let shape = l.graph.ty(l.like).shape.clone();
    if l.graph.ty(y).shape == shape { Ok(y) } else { l.reshape(y, shape.iter().cloned()) }
}

/// What the last layer takes: the activation of the gates, times what they are multiplied with.
fn gated(l: &mut Builder<'_, '_>, p: &Experts, gate: ValueId, up: Option<ValueId>) -> Result<ValueId, BuildError> {
    let gate = match p.limit {
        Some(limit) => l.with_scalar(BinaryKind::Min, gate, limit.0)?,
        None => gate,
    };
    let gate = activated(l, p, gate)?;
    let Some(mut up) = up else { return Ok(gate) };
    if let Some(limit) = p.limit {
        up = l.with_scalar(BinaryKind::Min, up, limit.0)?;
        up = l.with_scalar(BinaryKind::Max, up, -limit.0)?;
    }
    if let Some(shift) = p.shift {
        up = l.with_scalar(BinaryKind::Add, up, shift.0)?;
    }
    l.emit(Binary { kind: BinaryKind::Mul, a: gate, b: up })
}

fn activated(l: &mut Builder<'_, '_>, p: &Experts, x: ValueId) -> Result<ValueId, BuildError> {
    match (p.activation, p.alpha) {
        (Activation::None, _) => Ok(x),
        (Activation::Silu, Some(alpha)) => {
            let scaled = l.with_scalar(BinaryKind::Mul, x, alpha.0)?;
            let gate = l.unary(UnaryKind::Sigmoid, scaled)?;
            l.binary(BinaryKind::Mul, x, gate)
        }
        (Activation::Silu, None) => l.emit(Unary { kind: UnaryKind::Silu, x }),
        (Activation::Relu, _) => l.unary(UnaryKind::Relu, x),
        (Activation::GeluErf, _) => l.emit(Gelu { x, form: GeluForm::Erf }),
        (Activation::GeluTanh, _) => l.emit(Gelu { x, form: GeluForm::Tanh }),
    }
}
