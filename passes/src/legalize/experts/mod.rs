//! Lowering of mixtures of experts.

mod all;
mod gathered;
mod grouped;
mod symbols;

use planish_ir::ops::{Activation, Binary, BinaryKind, Experts, Gelu, GeluForm, Unary, UnaryKind};
use planish_ir::{BuildError, Dim, Graph, Op, Step, ValueId};

use crate::build::Builder;
use crate::{Example, ExpertsForm, Options, Outcome, Pass, PassError, TRT};

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
        target: &TRT,
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
            weight @g = uniform(1) : f32[2, 3, 2]
            weight @d = uniform(2) : f32[2, 2, 3]
            weight @y/const = dense([0, 1]) : i64[2]
            weight @y/const_1 = dense([0.0]) : f32[]
            weight @y/const_2 = dense([0.0]) : f32[]
            %y/transpose = transpose(%x) {perm = [1, 0]} : f32[2, n]
            %y/matmul = matmul(@g, %y/transpose) : f32[2, 3, n]
            %y/relu = relu(%y/matmul) : f32[2, 3, n]
            %y/matmul_1 = matmul(@d, %y/relu) : f32[2, 2, n]
            %y/reshape = reshape(%i) {shape = [n, 1, 1]} : i64[n, 1, 1]
            %y/reshape_1 = reshape(%s) {shape = [n, 1, 1]} : f32[n, 1, 1]
            %y/equal = equal(%y/reshape, @y/const) : bool[n, 1, 2]
            %y/select = select(%y/equal, %y/reshape_1, @y/const_1) : f32[n, 1, 2]
            %y/reduce_sum = reduce_sum(%y/select) {axes = [1], keep = false} : f32[n, 2]
            %y/transpose_1 = transpose(%y/reduce_sum) {perm = [1, 0]} : f32[2, n]
            %y/reshape_2 = reshape(%y/transpose_1) {shape = [2, 1, n]} : f32[2, 1, n]
            %y/mul = mul(%y/matmul_1, %y/reshape_2) : f32[2, 2, n]
            %y/equal_1 = equal(%y/reshape_2, @y/const_2) : bool[2, 1, n]
            %y/select_1 = select(%y/equal_1, @y/const_2, %y/mul) : f32[2, 2, n]
            %y/reduce_sum_1 = reduce_sum(%y/select_1) {axes = [0], keep = false} : f32[2, n]
            %y/transpose_2 = transpose(%y/reduce_sum_1) {perm = [1, 0]} : f32[n, 2]
            output y = %y/transpose_2",
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
