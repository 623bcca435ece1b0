//! Tensors cut into a piece a round, and put together from what rounds give.

use planish_ir::ops::{Concat, Expand, Reshape, Slice};
use planish_ir::{DType, Dim, Shape, TensorType, ValueId};

use super::super::super::known::Known;
use super::super::super::scope::Scope;
use super::super::axis;

/// A tensor that is cut along an axis into pieces without it.
pub(super) struct Pieces {
    /// The name of the tensor.
    pub(super) of: String,
    /// Its type.
    pub(super) ty: TensorType,
    /// The axis.
    pub(super) axis: usize,
    /// Whether the last piece comes first.
    pub(super) backward: bool,
}

impl Pieces {
    fn shape(&self) -> Shape {
        Shape::new(self.ty.shape.iter().enumerate().filter(|(i, _)| *i != self.axis).map(|(_, dim)| dim.clone()))
    }

    /// Makes a name stand for a piece.
    ///
    /// # Errors
    /// When there is no such piece.
    pub(super) fn take(&self, scope: &mut Scope, name: &str, index: i64) -> Result<(), String> {
        let x = scope.value(&self.of)?;
        let (start, end) = (Dim::constant(index), Dim::constant(index + 1));
        let x = scope.emit(Slice { x, axis: self.axis, start, end }, name)?;
        let value = scope.emit(Reshape { x, shape: self.shape() }, name)?;
        scope.set(name, value);
        Ok(())
    }

    /// Makes a name stand for something of a piece's type.
    ///
    /// # Errors
    /// When there is no tensor of that type.
    pub(super) fn blank(&self, scope: &mut Scope, name: &str) -> Result<(), String> {
        blank(scope, name, self.ty.dtype, self.shape())
    }
}

fn blank(scope: &mut Scope, name: &str, dtype: DType, shape: Shape) -> Result<(), String> {
    let x = scope.number(name, dtype, 0.0);
    let value = scope.emit(Expand { x, shape }, name)?;
    scope.set(name, value);
    Ok(())
}

/// Makes a name stand for no tensors of a type along a new axis.
///
/// # Errors
/// When there is no such axis.
pub(super) fn blank_stack(scope: &mut Scope, name: &str, like: &str, at: i64) -> Result<(), String> {
    let ty = scope.ty(like)?;
    let at = axis(at, ty.shape.rank() + 1)?;
    blank(scope, name, ty.dtype, with_axis(&ty.shape, at, 0))
}

/// Makes a name stand for tensors along a new axis.
///
/// # Errors
/// When they are of different types or there is no such axis.
pub(super) fn stack<'a>(
    scope: &mut Scope,
    name: &str,
    rows: impl Iterator<Item = &'a String> + Clone,
    at: i64,
) -> Result<(), String> {
    if at == 0
        && let Some(known) = rows.clone().map(|row| scope.known(row)).collect::<Option<Vec<Known>>>()
        && let Some(known) = stack_known(known)
    {
        scope.set_known(name, known);
        return Ok(());
    }
    let one = |row: &String| {
        let x = scope.value(row)?;
        let shape = &scope.graph.ty(x).shape;
        let shape = with_axis(shape, axis(at, shape.rank() + 1)?, 1);
        scope.emit(Reshape { x, shape }, name)
    };
    let parts = rows.map(one).collect::<Result<Vec<ValueId>, String>>()?;
    let value = match parts.as_slice() {
        [one] => *one,
        [first, ..] => {
            let axis = axis(at, scope.graph.ty(*first).shape.rank())?;
            scope.emit(Concat { parts, axis }, name)?
        }
        [] => return Err("there is nothing to put together".to_owned()),
    };
    scope.set(name, value);
    Ok(())
}

/// Integers of one shape along a new first axis.
fn stack_known(rows: Vec<Known>) -> Option<Known> {
    let (dtype, shape) = rows.first().map(|row| (row.dtype, row.shape.clone()))?;
    let same = rows.iter().all(|row| row.dtype == dtype && row.shape == shape);
    let shape = std::iter::once(rows.len()).chain(shape).collect();
    same.then(|| Known::new(dtype, shape, rows.into_iter().flat_map(|row| row.elements).collect()))?
}

fn with_axis(shape: &Shape, axis: usize, size: i64) -> Shape {
    let mut dims = shape.to_vec();
    dims.insert(axis, Dim::constant(size));
    Shape::new(dims)
}
