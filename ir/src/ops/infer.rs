//! Helpers that typing rules share. Their errors say what an operator expected and what is there.

use crate::{DType, Dim, Shape, TensorType, Type, ValueId};

/// Looks up the types of operands.
pub struct Types<'a> {
    lookup: &'a dyn Fn(ValueId) -> &'a Type,
}

impl<'a> Types<'a> {
    /// Types from a lookup function.
    #[must_use]
    pub fn new(lookup: &'a dyn Fn(ValueId) -> &'a Type) -> Self {
        Self { lookup }
    }

    /// The type of a value that is a tensor; see [`Type::tensor`].
    #[must_use]
    pub fn of(&self, value: ValueId) -> &'a TensorType {
        (self.lookup)(value).tensor()
    }

    /// Checks that an operand is a tensor of a known number of dimensions.
    pub(crate) fn tensor(&self, value: ValueId) -> Result<(), String> {
        match (self.lookup)(value) {
            Type::Tensor(_) => Ok(()),
            other => Err(format!("an operand is {other}, which only operators that pass through take")),
        }
    }
}

/// The error for a size that does not fit 64 bits.
pub(super) const OVERFLOW: &str = "a dimension of the result does not fit 64 bits";

/// The shape that two shapes broadcast to: aligned at the last dimension, equal or 1. Next to a known
/// size other than 1, a symbolic one gives that size: at run time it is that, or 1.
///
/// # Errors
/// When two dimensions differ and none is 1.
pub fn broadcast(a: &Shape, b: &Shape) -> Result<Shape, String> {
    for (whole, part) in [(a, b), (b, a)] {
        if let Some(leading) = whole.rank().checked_sub(part.rank())
            && part.iter().zip(&whole[leading..]).all(|(x, y)| x == y || x.as_constant() == Some(1))
        {
            return Ok(whole.clone());
        }
    }
    let rank = a.rank().max(b.rank());
    let one = Dim::constant(1);
    let dim = |s: &'_ Shape, i: usize| (i + s.rank()).checked_sub(rank).map(|k| s[k].clone());
    (0..rank)
        .map(|i| match (dim(a, i), dim(b, i)) {
            (Some(x), Some(y)) if x == y || y == one => Ok(x),
            (Some(x), Some(y)) if x == one => Ok(y),
            (Some(x), Some(y)) if x.as_constant().is_some() != y.as_constant().is_some() => {
                Ok(if x.as_constant().is_some() { x } else { y })
            }
            (Some(x), None) | (None, Some(x)) => Ok(x),
            _ => Err(format!("{a} and {b} do not broadcast")),
        })
        .collect::<Result<Vec<_>, _>>()
        .map(Shape::new)
}

/// Checks that a condition holds.
pub(super) fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

/// Checks an operand's rank.
pub(super) fn rank(what: &str, ty: &TensorType, rank: usize) -> Result<(), String> {
    ensure(ty.shape.rank() == rank, || format!("`{what}` is {ty}, expected {rank} dimensions"))
}

/// Checks that an axis exists.
pub(super) fn axis(axis: usize, ty: &TensorType) -> Result<(), String> {
    ensure(axis < ty.shape.rank(), || format!("axis {axis} is out of range for {ty}"))
}

/// Checks an operand's type.
pub(super) fn same(what: &str, ty: &TensorType, dtype: DType, shape: &[Dim]) -> Result<(), String> {
    ensure(ty.dtype == dtype && *ty.shape == *shape, || {
        format!("`{what}` is {ty}, expected {dtype}{}", Shape::new(shape.to_vec()))
    })
}

/// Checks that an operand holds floating-point numbers.
pub(super) fn float(what: &str, ty: &TensorType) -> Result<(), String> {
    ensure(ty.dtype.is_float(), || format!("`{what}` is {ty}, expected floating-point numbers"))
}

/// The last dimension.
pub(super) fn last(what: &str, ty: &TensorType) -> Result<Dim, String> {
    ty.shape.last().cloned().ok_or_else(|| format!("`{what}` is a scalar, expected at least one dimension"))
}

/// The one result type.
pub(super) fn one(dtype: DType, shape: Shape) -> Result<Vec<TensorType>, String> {
    Ok(vec![TensorType::new(dtype, shape)])
}
