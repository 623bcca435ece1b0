//! Products, reductions, norms and softmax.

use planish_ir::ops::{
    Binary, BinaryKind, CumSum, Flag, Gelu, GeluForm, LayerNorm, Linear, MatMul, Real, Reduce, ReduceKind, Reshape,
    RmsNorm, Softmax, Transpose, Unary, UnaryKind,
};
use planish_ir::{Dim, Op, Shape, ValueId};

use super::super::scope::Scope;
use super::{Node, axes, axes_since, axis, kind};

pub(super) fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    if let Some(kind) = kind(&node.proto.op_type) {
        return reduce(scope, node, kind);
    }
    match node.proto.op_type.as_str() {
        "MatMul" => matmul(scope, node),
        "Gemm" => gemm(scope, node),
        "Softmax" => softmax(scope, node),
        "LayerNormalization" => layer_norm(scope, node),
        // The second is ONNX Runtime's own, in the default domain.
        "RMSNormalization" | "SimplifiedLayerNormalization" if !node.wants(1) => rms_norm(scope, node),
        "Gelu" => {
            let form = match node.text_or("approximate", "none")?.as_str() {
                "none" => GeluForm::Erf,
                "tanh" => GeluForm::Tanh,
                other => return Err(format!("its approximation `{other}` is unknown")),
            };
            let x = scope.value(node.input(0)?)?;
            emit(scope, node, Gelu { x, form })
        }
        "ReduceSumSquare" | "ReduceL2" => reduce(scope, node, ReduceKind::Sum),
        "CumSum" => {
            let plain = node.int_or("exclusive", 0)? == 0 && node.int_or("reverse", 0)? == 0;
            let at = scope.known(node.input(1)?).and_then(|k| k.scalar()?.as_constant());
            let (true, Some(at)) = (plain, at) else { return Ok(false) };
            let x = scope.value(node.input(0)?)?;
            let axis = axis(at, scope.graph.ty(x).shape.rank())?;
            emit(scope, node, CumSum { x, axis })
        }
        _ => Ok(false),
    }
}

fn emit(scope: &mut Scope, node: &Node<'_>, op: impl Into<Op>) -> Result<bool, String> {
    let name = node.output()?;
    let value = scope.emit(op, name)?;
    scope.set(name, value);
    Ok(true)
}

/// Vectors are matrices of one row or column whose dimension goes afterwards.
fn matmul(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let name = node.output()?;
    let (mut a, mut b) = (scope.value(node.input(0)?)?, scope.value(node.input(1)?)?);
    let (left, right) = (scope.graph.ty(a).shape.clone(), scope.graph.ty(b).shape.clone());
    let one = Dim::constant(1);
    if left.rank() == 1 {
        a = scope.emit(Reshape { x: a, shape: Shape::new([one.clone(), left[0].clone()]) }, name)?;
    }
    if right.rank() == 1 {
        b = scope.emit(Reshape { x: b, shape: Shape::new([right[0].clone(), one]) }, name)?;
    }
    let mut value = scope.emit(MatMul { a, b }, name)?;
    if left.rank() == 1 || right.rank() == 1 {
        let mut dims = scope.graph.ty(value).shape.to_vec();
        if right.rank() == 1 {
            dims.pop();
        }
        if left.rank() == 1 {
            dims.remove(dims.len() - if right.rank() == 1 { 1 } else { 2 });
        }
        value = scope.emit(Reshape { x: value, shape: Shape::new(dims) }, name)?;
    }
    scope.set(name, value);
    Ok(true)
}

/// `alpha * a' * b' + beta * c`: a linear layer where `b` is a weight and `c` its bias.
fn gemm(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let name = node.output()?;
    let (alpha, beta) = (node.float_or("alpha", 1.0)?, node.float_or("beta", 1.0)?);
    let (over_a, over_b) = (node.int_or("transA", 0)? != 0, node.int_or("transB", 0)? != 0);
    let mut a = scope.value(node.input(0)?)?;
    let mut b = scope.value(node.input(1)?)?;
    let c = node.has(2).then(|| scope.value(node.input(2)?)).transpose()?;
    let dtype = scope.graph.ty(a).dtype;
    if over_a {
        a = scope.emit(Transpose { x: a, perm: vec![1, 0] }, name)?;
    }
    let is_bias = |scope: &Scope, c: ValueId| scope.graph.ty(c).shape.rank() == 1 && scope.graph.weight(c).is_some();
    if alpha == 1.0 && scope.graph.weight(b).is_some() && c.is_none_or(|c| beta == 1.0 && is_bias(scope, c)) {
        let linear = Linear { x: a, weight: b, bias: c, transposed: Flag(!over_b) };
        if let Ok(value) = scope.emit(linear, name) {
            scope.set(name, value);
            return Ok(true);
        }
    }
    if over_b {
        b = scope.emit(Transpose { x: b, perm: vec![1, 0] }, name)?;
    }
    let scaled = |scope: &mut Scope, x: ValueId, factor: f64| {
        if factor == 1.0 {
            return Ok(x);
        }
        let factor = scope.number(name, dtype, factor);
        scope.emit(Binary { kind: BinaryKind::Mul, a: x, b: factor }, name)
    };
    let product = scope.emit(MatMul { a, b }, name)?;
    let mut value = scaled(scope, product, alpha)?;
    if let Some(c) = c {
        let c = scaled(scope, c, beta)?;
        value = scope.emit(Binary { kind: BinaryKind::Add, a: value, b: c }, name)?;
    }
    scope.set(name, value);
    Ok(true)
}

/// Along an axis, or before opset 13 over it and all after it.
fn softmax(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let name = node.output()?;
    let x = scope.value(node.input(0)?)?;
    let shape = scope.graph.ty(x).shape.clone();
    let default = if node.version < 13 { 1 } else { -1 };
    let axis = axis(node.int_or("axis", default)?, shape.rank())?;
    let last = shape.rank() - 1;
    let value = if axis == last {
        scope.emit(Softmax { x }, name)?
    } else if node.version < 13 {
        let product = |dims: &[Dim]| Shape::new(dims.to_vec()).elements().ok_or("its size does not fit 64 bits");
        let matrix = Shape::new([product(&shape[..axis])?, product(&shape[axis..])?]);
        let x = scope.emit(Reshape { x, shape: matrix }, name)?;
        let x = scope.emit(Softmax { x }, name)?;
        scope.emit(Reshape { x, shape }, name)?
    } else {
        let mut perm: Vec<usize> = (0..shape.rank()).collect();
        perm.swap(axis, last);
        let x = scope.emit(Transpose { x, perm: perm.clone() }, name)?;
        let x = scope.emit(Softmax { x }, name)?;
        scope.emit(Transpose { x, perm }, name)?
    };
    scope.set(name, value);
    Ok(true)
}

fn layer_norm(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let x = scope.value(node.input(0)?)?;
    let rank = scope.graph.ty(x).shape.rank();
    if axis(node.int_or("axis", -1)?, rank)? != rank - 1 || node.wants(1) || node.wants(2) {
        return Ok(false);
    }
    let weight = scope.value(node.input(1)?)?;
    let bias = node.has(2).then(|| scope.value(node.input(2)?)).transpose()?;
    emit(scope, node, LayerNorm { x, weight, bias, eps: Real(node.float_or("epsilon", 1e-5)?) })
}

fn rms_norm(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let x = scope.value(node.input(0)?)?;
    let rank = scope.graph.ty(x).shape.rank();
    if axis(node.int_or("axis", -1)?, rank)? != rank - 1 {
        return Ok(false);
    }
    let weight = scope.value(node.input(1)?)?;
    emit(scope, node, RmsNorm { x, weight, eps: Real(node.float_or("epsilon", 1e-5)?) })
}

/// A reduction, also of squares.
fn reduce(scope: &mut Scope, node: &Node<'_>, kind: ReduceKind) -> Result<bool, String> {
    let name = node.output()?;
    let op = node.proto.op_type.as_str();
    let given = node.parameter(scope, "axes", 1, axes_since(op))?.filter(|a| !a.is_empty());
    let mut x = scope.value(node.input(0)?)?;
    let rank = scope.graph.ty(x).shape.rank();
    let keep = node.int_or("keepdims", 1)? == 1;
    if op != "ReduceSum" && kind == ReduceKind::Sum {
        x = scope.emit(Binary { kind: BinaryKind::Mul, a: x, b: x }, name)?;
    }
    let axes = match given {
        Some(given) => axes(&given, rank)?,
        None if node.int_or("noop_with_empty_axes", 0)? == 1 => Vec::new(),
        None => (0..rank).collect(),
    };
    let mut value = if axes.is_empty() { x } else { scope.emit(Reduce { kind, x, axes, keep }, name)? };
    if op == "ReduceL2" {
        value = scope.emit(Unary { kind: UnaryKind::Sqrt, x: value }, name)?;
    }
    scope.set(name, value);
    Ok(true)
}
