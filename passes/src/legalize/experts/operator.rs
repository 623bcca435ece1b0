//! Mixtures of experts as ONNX Runtime's operator MoE (its docs/ContribOperators.md), whose kernel for processors takes
//! float32, and where there is a gate rows of gate and up in turn.

use planish_ir::ops::{Activation, BinaryKind, Expand, Experts, Foreign, Real, Reduce, ReduceKind, Setting, UnaryKind};
use planish_ir::{BuildError, DType, Dim, Graph, Op, Shape, TensorType, ValueId, Weight};

use super::{rows, tokens, unrows};
use crate::build::Builder;
use crate::legalize::quantized::{MICROSOFT, foreign, reshaped};

/// The logarithm that stands for a score of 0.
const NOTHING: f64 = -1e9;
/// The least score that a logarithm is taken of.
const LEAST: f64 = 1e-30;

/// Whether the operator computes experts.
pub(super) fn fits(graph: &Graph, p: &Experts) -> bool {
    let shape = |value: ValueId| graph.ty(value).shape.as_constant();
    let (Some(gate), Some(down)) = (shape(p.gate), shape(p.down)) else { return false };
    // The operator takes the sizes of `gate` from the input and from `down`.
    let is_square = gate[2] == down[1];
    let plain = |value: ValueId| {
        let is_plain = |weight: &Weight| weight.as_dequantized().is_none() && reshaped(weight).is_none();
        graph.weight(value).is_some_and(is_plain)
    };
    let stored = [Some(p.gate), Some(p.down), p.up].into_iter().flatten().all(plain);
    let activation = match p.up {
        Some(_) => p.activation == Activation::Silu && p.gate_bias.is_some() == p.up_bias.is_some(),
        None => p.alpha.is_none() && p.limit.is_none() && name(p.activation).is_some(),
    };
    let known = graph.ty(p.indices).shape.last().is_some_and(|k| k.as_constant().is_some());
    graph.ty(p.x).dtype == DType::F32 && is_square && stored && activation && known && is_positive(graph, p.scores, 16)
}

/// Whether a value is never negative by the operators that it comes from, of which so many are looked at.
fn is_positive(graph: &Graph, value: ValueId, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    if let Some(number) = graph.number(value) {
        return number >= 0.0;
    }
    let of = |value: ValueId| is_positive(graph, value, depth);
    match graph.producer(value).map(|node| &node.op) {
        Some(Op::Softmax(_) | Op::MaskedSoftmax(_)) => true,
        Some(Op::Unary(p)) => match p.kind {
            UnaryKind::Sigmoid | UnaryKind::Exp | UnaryKind::Relu | UnaryKind::Abs => true,
            UnaryKind::Sqrt => of(p.x),
            _ => false,
        },
        Some(Op::Binary(p)) => match p.kind {
            BinaryKind::Mul | BinaryKind::Div | BinaryKind::Add | BinaryKind::Min => of(p.a) && of(p.b),
            BinaryKind::Max => of(p.a) || of(p.b),
            _ => false,
        },
        Some(Op::TopK(p)) => of(p.x),
        Some(Op::Reduce(p)) => of(p.x),
        Some(Op::Cast(p)) => of(p.x),
        Some(Op::Reshape(p)) => of(p.x),
        Some(Op::Transpose(p)) => of(p.x),
        Some(Op::Slice(p)) => of(p.x),
        Some(Op::Gather(p)) => of(p.x),
        _ => false,
    }
}

/// The operator's name of an activation without a gate.
fn name(activation: Activation) -> Option<&'static str> {
    match activation {
        Activation::None => Some("identity"),
        Activation::Relu => Some("relu"),
        Activation::Silu => Some("silu"),
        Activation::GeluErf | Activation::GeluTanh => None,
    }
}

pub(super) fn lower(l: &mut Builder<'_, '_>, p: &Experts) -> Result<ValueId, BuildError> {
    let x = rows(l, p.x)?;
    let (indices, scores) = (rows(l, p.indices)?, rows(l, p.scores)?);
    let positive = l.with_scalar(BinaryKind::Max, scores, LEAST)?;
    let logarithms = l.unary(UnaryKind::Log, positive)?;
    let experts = l.graph.ty(p.gate).shape[0].clone();
    let shape = Shape::new([tokens(l, p.x), experts]);
    let nothing = l.scalar(scores, NOTHING);
    let nothing = l.emit(Expand { x: nothing, shape: shape.clone() })?;
    let scattered = vec![Some(nothing), Some(indices), Some(logarithms)];
    let ty = TensorType::new(DType::F32, shape);
    let along = vec![("axis".to_owned(), Setting::Int(1))];
    let router = foreign(l, (Foreign::STANDARD, "ScatterElements", 16), scattered, along, vec![ty])?[0];
    let first = in_turn(l, p.gate, p.up)?;
    let first_bias = p.gate_bias.map(|bias| in_turn(l, bias, p.up_bias)).transpose()?;
    let mut inputs = vec![Some(x), Some(router), Some(first), first_bias, Some(p.down), p.down_bias];
    while inputs.last().is_some_and(Option::is_none) {
        inputs.pop();
    }
    let out = l.graph.ty(p.down).shape[1].clone();
    let ty = TensorType::new(DType::F32, Shape::new([tokens(l, p.x), out]));
    let settings = settings(l.graph, p);
    let mean = foreign(l, (MICROSOFT, "MoE", 1), inputs, settings, vec![ty])?[0];
    let all = l.emit(Reduce { kind: ReduceKind::Sum, x: scores, axes: vec![1], keep: true })?;
    let sum = l.binary(BinaryKind::Mul, mean, all)?;
    unrows(l, sum)
}

fn settings(graph: &Graph, p: &Experts) -> Vec<(String, Setting)> {
    let float = |value: f64| Setting::Float(Real(f64::from(value as f32)));
    let k = graph.ty(p.indices).shape.last().and_then(Dim::as_constant).unwrap_or(1);
    let mut settings = vec![("k".to_owned(), Setting::Int(k))];
    let activation = match p.up {
        Some(_) => "swiglu",
        None => name(p.activation).unwrap_or_default(),
    };
    settings.push(("activation_type".to_owned(), Setting::Bytes(activation.as_bytes().into())));
    if p.up.is_some() {
        settings.push(("swiglu_fusion".to_owned(), Setting::Int(1)));
        settings.push(("activation_alpha".to_owned(), float(p.alpha.map_or(1.0, |alpha| alpha.0))));
        settings.push(("activation_beta".to_owned(), float(p.shift.map_or(0.0, |shift| shift.0))));
        settings.extend(p.limit.map(|limit| ("swiglu_limit".to_owned(), float(limit.0))));
    }
    settings
}

/// A weight, or rows of two weights in turn: along the second dimension.
fn in_turn(l: &mut Builder<'_, '_>, gate: ValueId, up: Option<ValueId>) -> Result<ValueId, BuildError> {
    let weight = |value: ValueId| l.graph.weight(value);
    let both = up.and_then(|up| interleaved(weight(gate)?, weight(up)?));
    match both {
        Some(both) => Ok(l.graph.weight_part(both, l.like)),
        None => Ok(gate),
    }
}

fn interleaved(gate: &Weight, up: &Weight) -> Option<Weight> {
    let shape = gate.shape().to_vec();
    let mut apart = shape.clone();
    apart.insert(2, 1);
    let parts = [gate.reshape(&apart)?, up.reshape(&apart)?];
    let mut whole = shape;
    whole[1] *= 2;
    Weight::concat(&parts, 2)?.reshape(&whole)
}
