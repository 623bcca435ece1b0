//! Arithmetic, comparison, choice and conversion.

use planish_ir::ops::{Binary, BinaryKind, Cast, Select, Unary, UnaryKind};
use planish_ir::{DType, Dim, Op, ValueId};

use super::super::known::{Known, equal, is_size, less};
use super::super::scope::Scope;
use super::super::tensors::dtype;
use super::{Node, kind};

/// The opsets that Swish and SwiGLU came with.
const SWISH: i64 = 24;
const SWIGLU: i64 = 28;

pub(super) fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    if let Some(kind) = kind(&node.proto.op_type) {
        if let Some(known) = scope.known(node.input(0)?).and_then(|x| of_known(kind, &x)) {
            scope.set_known(node.output()?, known);
            return Ok(true);
        }
        let x = scope.value(node.input(0)?)?;
        return emit(scope, node, Unary { kind, x });
    }
    match kind(&node.proto.op_type) {
        Some(kind @ (BinaryKind::Min | BinaryKind::Max)) => return several(scope, node, kind),
        Some(kind) => return pair(scope, node, kind),
        None => {}
    }
    match node.proto.op_type.as_str() {
        "Identity" => same(scope, node),
        "Dropout" => dropout(scope, node),
        "Reciprocal" => {
            let x = scope.value(node.input(0)?)?;
            let a = scope.number(node.output()?, scope.graph.ty(x).dtype, 1.0);
            emit(scope, node, Binary { kind: BinaryKind::Div, a, b: x })
        }
        "Swish" if node.version >= SWISH => {
            let x = scope.value(node.input(0)?)?;
            let value = swish(scope, node, x)?;
            scope.set(node.output()?, value);
            Ok(true)
        }
        "SwiGLU" if node.version >= SWIGLU => {
            let gate = scope.value(node.input(0)?)?;
            let a = swish(scope, node, gate)?;
            let b = scope.value(node.input(1)?)?;
            emit(scope, node, Binary { kind: BinaryKind::Mul, a, b })
        }
        "PRelu" => wide_slope(scope, node),
        "Mod" => modulo(scope, node),
        "Sum" => several(scope, node, BinaryKind::Add),
        "Clip" => clip(scope, node),
        "Where" => select(scope, node),
        "Cast" => {
            let to = dtype(i32::try_from(node.int_or("to", 0)?).unwrap_or(0))?;
            cast(scope, node, to)
        }
        "CastLike" => {
            let to = scope.ty(node.input(1)?)?.dtype;
            cast(scope, node, to)
        }
        _ => Ok(false),
    }
}

/// `Identity`, of whatever there is.
pub(super) fn same(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    if node.proto.op_type != "Identity" {
        return Ok(false);
    }
    scope.alias(node.output()?, node.input(0)?);
    Ok(true)
}

fn emit(scope: &mut Scope, node: &Node<'_>, op: impl Into<Op>) -> Result<bool, String> {
    let name = node.output()?;
    let value = scope.emit(op, name)?;
    scope.set(name, value);
    Ok(true)
}

/// `x * sigmoid(alpha * x)`.
fn swish(scope: &mut Scope, node: &Node<'_>, x: ValueId) -> Result<ValueId, String> {
    let (name, alpha) = (node.output()?, node.float_or("alpha", 1.0)?);
    if alpha == 1.0 {
        return scope.emit(Unary { kind: UnaryKind::Silu, x }, name);
    }
    let b = scope.number(name, scope.graph.ty(x).dtype, alpha);
    let scaled = scope.emit(Binary { kind: BinaryKind::Mul, a: x, b }, name)?;
    let b = scope.emit(Unary { kind: UnaryKind::Sigmoid, x: scaled }, name)?;
    scope.emit(Binary { kind: BinaryKind::Mul, a: x, b }, name)
}

/// `x < 0 ? slope * x : x` where the slope has more dimensions or sizes than x. ONNX wants one that broadcasts to x, and
/// ONNX Runtime computes the others too, with a result of another shape than it infers.
fn wide_slope(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let name = node.output()?;
    let [x, slope] = [scope.value(node.input(0)?)?, scope.value(node.input(1)?)?];
    let [of_x, of_slope] = [x, slope].map(|value| &scope.graph.ty(value).shape);
    let wider =
        |(x, slope): (&Dim, &Dim)| x.as_constant() == Some(1) && slope.as_constant().is_some_and(|size| size != 1);
    if of_slope.rank() <= of_x.rank() && !of_x.iter().rev().zip(of_slope.iter().rev()).any(wider) {
        return Ok(false);
    }
    let zero = scope.number(name, scope.graph.ty(x).dtype, 0.0);
    let condition = scope.emit(Binary { kind: BinaryKind::Less, a: x, b: zero }, name)?;
    let scaled = scope.emit(Binary { kind: BinaryKind::Mul, a: slope, b: x }, name)?;
    emit(scope, node, Select { condition, a: scaled, b: x })
}

/// A function of known integers, where each result is known.
fn of_known(kind: UnaryKind, x: &Known) -> Option<Known> {
    Known::map(x.dtype, [x], |[x]| match kind {
        UnaryKind::Neg => Dim::constant(0).checked_sub(x),
        UnaryKind::Abs if is_size(x) => Some(x.clone()),
        UnaryKind::Abs => x.as_constant()?.checked_abs().map(Dim::constant),
        UnaryKind::Not => Some(Dim::constant(i64::from(x.as_constant()? == 0))),
        _ => None,
    })
}

/// The remainder of known integers, which has the sign of the divisor, or with `fmod` that of the dividend.
fn modulo(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let (Some(a), Some(b)) = (scope.known(node.input(0)?), scope.known(node.input(1)?)) else { return Ok(false) };
    let truncated = node.int_or("fmod", 0)? == 1;
    let known = Known::map(a.dtype, [&a, &b], |[a, b]| match (a.as_constant(), b.as_constant()) {
        (Some(a), Some(b)) => {
            let remainder = a.checked_rem(b)?;
            let opposite = remainder != 0 && (remainder < 0) != (b < 0);
            Some(Dim::constant(if opposite && !truncated { remainder + b } else { remainder }))
        }
        _ => a.exact_div(b).map(|_| Dim::constant(0)),
    });
    let Some(known) = known else { return Ok(false) };
    scope.set_known(node.output()?, known);
    Ok(true)
}

/// `op(a, b)`: of known integers at once.
fn pair(scope: &mut Scope, node: &Node<'_>, kind: BinaryKind) -> Result<bool, String> {
    let (a, b) = (node.input(0)?, node.input(1)?);
    if let (Some(x), Some(y)) = (scope.known(a), scope.known(b))
        && let Some(known) = combine(kind, &x, &y)
    {
        scope.set_known(node.output()?, known);
        return Ok(true);
    }
    let (a, mut b) = (scope.value(a)?, scope.value(b)?);
    let dtype = scope.graph.ty(a).dtype;
    // The exponent may be of another type than the base, which the result has; one that cannot be of it
    // is a matter of the target.
    if kind == BinaryKind::Pow && dtype.is_integer() && scope.graph.ty(b).dtype.is_float() {
        return Ok(false);
    }
    if kind == BinaryKind::Pow && scope.graph.ty(b).dtype != dtype {
        b = scope.emit(Cast { x: b, to: dtype }, node.input(1)?)?;
    }
    emit(scope, node, Binary { kind, a, b })
}

/// An operation on known integers, where each result is known.
fn combine(kind: BinaryKind, a: &Known, b: &Known) -> Option<Known> {
    let truth = |holds: Option<bool>| holds.map(|h| Dim::constant(h.into()));
    let numbers =
        |a: &Dim, b: &Dim, f: fn(i64, i64) -> Option<i64>| f(a.as_constant()?, b.as_constant()?).map(Dim::constant);
    let dtype = if kind.is_predicate() { DType::Bool } else { a.dtype };
    Known::map(dtype, [a, b], |[a, b]| match kind {
        BinaryKind::Add => a.checked_add(b),
        BinaryKind::Sub => a.checked_sub(b),
        BinaryKind::Mul => a.checked_mul(b),
        BinaryKind::Div => match (a.as_constant(), b.as_constant()) {
            (Some(a), Some(b)) => a.checked_div(b).map(Dim::constant),
            _ => a.exact_div(b),
        },
        BinaryKind::Min => less(a, b).map(|first| if first { a.clone() } else { b.clone() }),
        BinaryKind::Max => less(a, b).map(|first| if first { b.clone() } else { a.clone() }),
        BinaryKind::Pow => None,
        BinaryKind::Equal => truth(equal(a, b)),
        BinaryKind::Less => truth(less(a, b)),
        BinaryKind::GreaterOrEqual => truth(less(a, b).map(|l| !l)),
        BinaryKind::Greater => truth(less(b, a)),
        BinaryKind::LessOrEqual => truth(less(b, a).map(|l| !l)),
        BinaryKind::And => numbers(a, b, |a, b| Some(a & b)),
        BinaryKind::Or => numbers(a, b, |a, b| Some(a | b)),
    })
}

/// An operation of one operand or more, from the left.
fn several(scope: &mut Scope, node: &Node<'_>, kind: BinaryKind) -> Result<bool, String> {
    let name = node.output()?;
    if let [a, b] = node.proto.input.as_slice()
        && let (Some(a), Some(b)) = (scope.known(a), scope.known(b))
        && let Some(known) = combine(kind, &a, &b)
    {
        scope.set_known(name, known);
        return Ok(true);
    }
    let values = node.proto.input.iter().map(|n| scope.value(n)).collect::<Result<Vec<ValueId>, _>>()?;
    let (first, rest) = values.split_first().ok_or("it has no operands")?;
    let value = rest.iter().try_fold(*first, |a, &b| scope.emit(Binary { kind, a, b }, name))?;
    scope.set(name, value);
    Ok(true)
}

/// Nothing is dropped when a model runs, unless it is told to train.
fn dropout(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let trains = match node.version {
        ..12 => false,
        _ if !node.has(2) => false,
        _ => scope.known(node.input(2)?).and_then(|k| k.constants()).is_none_or(|k| k != [0]),
    };
    if trains || node.wants(1) {
        return Ok(false);
    }
    scope.alias(node.output()?, node.input(0)?);
    Ok(true)
}

/// `min(max(x, low), high)`.
fn clip(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let name = node.output()?;
    let mut x = scope.value(node.input(0)?)?;
    let dtype = scope.graph.ty(x).dtype;
    for (index, attribute, kind) in [(1, "min", BinaryKind::Max), (2, "max", BinaryKind::Min)] {
        let bound = match node.version {
            ..11 => {
                let given = node.proto.attribute.iter().any(|a| a.name == attribute);
                let bound = node.float_or(attribute, 0.0)?;
                given.then(|| scope.number(name, dtype, bound))
            }
            _ => node.has(index).then(|| scope.value(node.input(index)?)).transpose()?,
        };
        if let Some(b) = bound {
            x = scope.emit(Binary { kind, a: x, b }, name)?;
        }
    }
    scope.set(name, x);
    Ok(true)
}

fn select(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let [condition, a, b] = [node.input(0)?, node.input(1)?, node.input(2)?];
    if let (Some(c), Some(x), Some(y)) = (scope.known(condition), scope.known(a), scope.known(b)) {
        let chosen = Known::map(x.dtype, [&c, &x, &y], |[c, x, y]| {
            Some(if c.as_constant()? != 0 { x.clone() } else { y.clone() })
        });
        if let Some(known) = chosen {
            scope.set_known(node.output()?, known);
            return Ok(true);
        }
    }
    let op = Select { condition: scope.value(condition)?, a: scope.value(a)?, b: scope.value(b)? };
    emit(scope, node, op)
}

fn cast(scope: &mut Scope, node: &Node<'_>, to: DType) -> Result<bool, String> {
    let x = node.input(0)?;
    // How it rounds and saturates are attributes.
    if !to.is_computed() {
        return Ok(false);
    }
    // Dimensions fit 64 bits; a narrower type is for constants.
    let fits = |k: &Known| k.elements.iter().all(|d| d.as_constant().is_none_or(|v| i32::try_from(v).is_ok()));
    let known = scope.known(x).filter(|k| to == DType::I64 || to == k.dtype || to == DType::I32 && fits(k));
    if let Some(known) = known {
        scope.set_known(node.output()?, Known { dtype: to, ..known });
        return Ok(true);
    }
    let truth = |x: &Known| Known::map(to, [x], |[x]| Some(Dim::constant(i64::from(x.as_constant()? != 0))));
    if let Some(known) = scope.known(x).filter(|_| to == DType::Bool).and_then(|x| truth(&x)) {
        scope.set_known(node.output()?, known);
        return Ok(true);
    }
    let x = scope.value(x)?;
    if scope.graph.ty(x).dtype == to {
        scope.set(node.output()?, x);
        return Ok(true);
    }
    emit(scope, node, Cast { x, to })
}
