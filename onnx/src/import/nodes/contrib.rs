//! Operators of ONNX Runtime (its docs/ContribOperators.md) that are arithmetic, norms or activations: as what they mean,
//! any target takes them, and the interpreter computes them.

use planish_ir::ops::{
    Binary, BinaryKind, Embedding, Gelu, GeluForm, LayerNorm, Real, RmsNorm, Slice, Unary, UnaryKind,
};
use planish_ir::{Dim, Op, ValueId};

use super::super::scope::Scope;
use super::Node;

pub(super) fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    match node.proto.op_type.as_str() {
        "Gelu" => activation(scope, node, None, |x| Gelu { x, form: GeluForm::Erf }.into()),
        "BiasGelu" => activation(scope, node, Some(1), |x| Gelu { x, form: GeluForm::Erf }.into()),
        "FastGelu" => activation(scope, node, Some(1), |x| Gelu { x, form: GeluForm::Tanh }.into()),
        // `x * sigmoid(alpha * x)`.
        "QuickGelu" if node.float_or("alpha", 1.702)? == 1.0 => {
            activation(scope, node, None, |x| Unary { kind: UnaryKind::Silu, x }.into())
        }
        "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization" => skip(scope, node),
        "EmbedLayerNormalization" => embed(scope, node),
        _ => super::states::rule(scope, node),
    }
}

fn add(scope: &mut Scope, a: ValueId, b: ValueId, name: &str) -> Result<ValueId, String> {
    scope.emit(Binary { kind: BinaryKind::Add, a, b }, name)
}

/// An operand, where it is given.
fn optional(scope: &mut Scope, node: &Node<'_>, index: usize) -> Result<Option<ValueId>, String> {
    if node.has(index) { scope.value(node.input(index)?).map(Some) } else { Ok(None) }
}

/// A function of an operand, to which another may be added before.
fn activation(
    scope: &mut Scope,
    node: &Node<'_>,
    bias: Option<usize>,
    function: fn(ValueId) -> Op,
) -> Result<bool, String> {
    let name = node.output()?;
    let mut x = scope.value(node.input(0)?)?;
    if let Some(bias) = bias
        && let Some(bias) = optional(scope, node, bias)?
    {
        x = add(scope, x, bias, name)?;
    }
    let value = scope.emit(function(x), name)?;
    scope.set(name, value);
    Ok(true)
}

/// A norm of a sum of two tensors and perhaps a vector; the last result is the sum.
fn skip(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    if node.wants(1) || node.wants(2) || !node.wants(0) {
        return Ok(false);
    }
    let (name, simplified) = (node.output()?, node.proto.op_type == "SkipSimplifiedLayerNormalization");
    let (x, other) = (scope.value(node.input(0)?)?, scope.value(node.input(1)?)?);
    let weight = scope.value(node.input(2)?)?;
    let (shift, bias) = if simplified { (None, 3) } else { (optional(scope, node, 3)?, 4) };
    let mut sum = add(scope, x, other, name)?;
    if let Some(bias) = optional(scope, node, bias)? {
        sum = add(scope, sum, bias, name)?;
    }
    let eps = Real(node.float_or("epsilon", 1e-12)?);
    let value = match simplified {
        true => scope.emit(RmsNorm { x: sum, weight, eps }, name)?,
        false => scope.emit(LayerNorm { x: sum, weight, bias: shift, eps }, name)?,
    };
    scope.set(name, value);
    if node.wants(3) {
        scope.set(&node.proto.output[3], sum);
    }
    Ok(true)
}

/// Rows of tables of words, positions and segments, added and normalized. Without positions they are the first ones, in
/// order. The second result, which is of the mask, is not computed here.
fn embed(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    if node.wants(1) || !node.wants(0) || node.has(1) != node.has(4) {
        return Ok(false);
    }
    let name = node.output()?;
    let row = |scope: &mut Scope, table: usize, ids: usize| {
        let (weight, ids) = (scope.value(node.input(table)?)?, scope.value(node.input(ids)?)?);
        scope.emit(Embedding { weight, ids }, name)
    };
    let words = row(scope, 2, 0)?;
    let positions = match (node.has(8), scope.ty(node.input(0)?)?.shape.last()) {
        (true, _) => row(scope, 3, 8)?,
        (false, Some(length)) => {
            let x = scope.value(node.input(3)?)?;
            scope.emit(Slice { x, axis: 0, start: Dim::constant(0), end: length.clone() }, name)?
        }
        (false, None) => return Err("its ids are a scalar".to_owned()),
    };
    let mut sum = add(scope, words, positions, name)?;
    if node.has(4) {
        let segments = row(scope, 4, 1)?;
        sum = add(scope, sum, segments, name)?;
    }
    let (weight, bias) = (scope.value(node.input(5)?)?, scope.value(node.input(6)?)?);
    let eps = Real(node.float_or("epsilon", 1e-12)?);
    let value = scope.emit(LayerNorm { x: sum, weight, bias: Some(bias), eps }, name)?;
    scope.set(name, value);
    if node.wants(2) {
        scope.set(&node.proto.output[2], sum);
    }
    Ok(true)
}
