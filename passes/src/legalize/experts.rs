//! Lowering of mixtures of experts.

use planish_ir::ops::{
    Activation, Binary, BinaryKind, Experts, Gelu, GeluForm, MatMul, Reduce, ReduceKind, Select, Unary, UnaryKind,
};
use planish_ir::{BuildError, DType, Dim, Graph, Op, Step, ValueId, Weight};

use crate::build::Builder;
use crate::{Example, ORT, Options, Outcome, Pass, PassError};

/// Lowers mixtures of experts.
pub const LOWER_EXPERTS: Pass = Pass {
    name: "lower-experts",
    summary: "Lowers mixtures of experts to products of all experts with all tokens, and a sum. An expert that a \
              token does not take adds 0 to the sum. Every runtime has these operators; they compute experts / k times as much \
              as is needed. Weights stay as they are stored, because tokens are the columns. Codes of weights become numbers \
              through DequantizeLinear.",
    numerics: "The sum over the experts takes place in float32 at least, in the order of the experts.",
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

fn run(graph: &mut Graph, _: &Options) -> Result<Outcome, PassError> {
    let lowered = graph.rewrite(|graph, node| {
        let Op::Experts(experts) = graph.node(node).op.clone() else { return Ok::<_, PassError>(Step::Keep) };
        let like = graph.node(node).outputs[0];
        Ok(Step::Replace(vec![products(&mut Builder::at(graph, like), &experts)?]))
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

/// Products of all experts with all tokens. Weights stay as they are stored: tokens are the columns.
fn products(l: &mut Builder<'_, '_>, p: &Experts) -> Result<ValueId, BuildError> {
    let x = rows(l, p.x)?;
    let x = l.transpose(x, &[1, 0])?;
    let mut inner = layer(l, p.gate, x, p.gate_bias)?;
    if let Some(limit) = p.limit {
        inner = l.with_scalar(BinaryKind::Min, inner, limit.0)?;
    }
    inner = activated(l, p, inner)?;
    if let Some(up) = p.up {
        let mut up = layer(l, up, x, p.up_bias)?;
        if let Some(limit) = p.limit {
            up = l.with_scalar(BinaryKind::Min, up, limit.0)?;
            up = l.with_scalar(BinaryKind::Max, up, -limit.0)?;
        }
        if let Some(shift) = p.shift {
            up = l.with_scalar(BinaryKind::Add, up, shift.0)?;
        }
        inner = l.emit(Binary { kind: BinaryKind::Mul, a: inner, b: up })?;
    }
    let results = layer(l, p.down, inner, p.down_bias)?;
    let results = l.widened(results)?;
    let scores = scores(l, p)?;
    let weighted = l.binary(BinaryKind::Mul, results, scores)?;
    // The result of an expert that no score takes may be infinite, and 0 times that is no number.
    let zero = l.scalar(scores, 0.0);
    let is_not_taken = l.binary(BinaryKind::Equal, scores, zero)?;
    let weighted = l.emit(Select { condition: is_not_taken, a: zero, b: weighted })?;
    let sum = l.emit(Reduce { kind: ReduceKind::Sum, x: weighted, axes: vec![0], keep: false })?;
    let sum = l.cast(sum, l.graph.ty(p.x).dtype)?;
    let sum = l.transpose(sum, &[1, 0])?;
    unrows(l, sum)
}

/// [experts, features, tokens] of weights [experts, features, in] and `x` [.., in, tokens].
fn layer(l: &mut Builder<'_, '_>, weight: ValueId, x: ValueId, bias: Option<ValueId>) -> Result<ValueId, BuildError> {
    let y = l.emit(MatMul { a: weight, b: x })?;
    let Some(bias) = bias else { return Ok(y) };
    let dims: Vec<Dim> = l.graph.ty(bias).shape.iter().cloned().chain([Dim::constant(1)]).collect();
    let bias = l.reshape(bias, dims)?;
    l.binary(BinaryKind::Add, y, bias)
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

/// [experts, 1, tokens]: the score of an expert for a token, 0 where the token does not take it.
fn scores(l: &mut Builder<'_, '_>, p: &Experts) -> Result<ValueId, BuildError> {
    let (indices, scores) = (rows(l, p.indices)?, rows(l, p.scores)?);
    let scores = l.widened(scores)?;
    let experts = l.graph.ty(p.gate).shape[0].clone();
    let column = |l: &mut Builder<'_, '_>, x: ValueId| {
        let dims: Vec<Dim> = l.graph.ty(x).shape.iter().cloned().chain([Dim::constant(1)]).collect();
        l.reshape(x, dims)
    };
    let (indices, scores) = (column(l, indices)?, column(l, scores)?);
    // As 64 bit integers, which every target compares.
    let indices = l.cast(indices, DType::I64)?;
    let numbers: Vec<i64> = (0..experts.as_constant().unwrap_or(0)).collect();
    let all = l.graph.weight_part(Weight::integers(&numbers), l.like);
    let is_taken = l.binary(BinaryKind::Equal, indices, all)?;
    let zero = l.scalar(scores, 0.0);
    let taken = l.emit(Select { condition: is_taken, a: scores, b: zero })?;
    let by_token = l.emit(Reduce { kind: ReduceKind::Sum, x: taken, axes: vec![1], keep: false })?;
    let by_expert = l.transpose(by_token, &[1, 0])?;
    let count = tokens(l, p.indices);
    l.reshape(by_expert, [experts, Dim::constant(1), count])
}
