//! Operators that look for the largest or the smallest elements.

use super::attribute::Flag;
use super::infer::{self, OVERFLOW, Types, ensure};
use super::payload::{TypeRule, payload};
use crate::{DType, Dim, TensorType, ValueId};

payload! {
    /// The `k` largest elements along an axis, in descending order, and where they are; with `smallest` the smallest, in
    /// ascending order. Of equal elements the first comes first. NaN counts as more than any number.
    TopK = "top_k" {
        operands {
            /// Numbers, at least one dimension.
            x: ValueId,
        }
        attributes {
            /// Along which axis.
            axis: usize,
            /// How many; `0 <= k <= size` holds at run time.
            k: Dim,
            /// Whether the smallest elements are taken.
            smallest: Flag,
        }
    }
}

impl TypeRule for TopK {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        numbers(x)?;
        infer::axis(self.axis, x)?;
        let rest = x.shape[self.axis].checked_sub(&self.k).ok_or(OVERFLOW)?;
        let negative = |dim: &Dim| dim.as_constant().is_some_and(|n| n < 0);
        ensure(!negative(&self.k) && !negative(&rest), || {
            format!("axis {} of {x} does not have {} elements", self.axis, self.k)
        })?;
        let shape = x.shape.with_dim(self.axis, self.k.clone());
        Ok(vec![TensorType::new(x.dtype, shape.clone()), TensorType::new(DType::I64, shape)])
    }
}

payload! {
    /// Where the largest element along an axis is, `i64`. Of equal elements the first counts, with `last` the last.
    ArgMax = "argmax" {
        operands {
            /// Numbers, at least one dimension; the axis has at least one element at run time.
            x: ValueId,
        }
        attributes {
            /// Along which axis.
            axis: usize,
            /// Whether the axis stays, with the size 1.
            keep: bool,
            /// Whether the last of equal elements counts.
            last: Flag,
        }
    }
}

impl TypeRule for ArgMax {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        numbers(x)?;
        infer::axis(self.axis, x)?;
        ensure(x.shape[self.axis].as_constant() != Some(0), || format!("axis {} of {x} has no element", self.axis))?;
        let kept = x.shape.iter().enumerate().filter_map(|(axis, dim)| match (axis == self.axis, self.keep) {
            (true, true) => Some(Dim::constant(1)),
            (true, false) => None,
            (false, _) => Some(dim.clone()),
        });
        infer::one(DType::I64, crate::Shape::new(kept))
    }
}

fn numbers(x: &TensorType) -> Result<(), String> {
    ensure(x.dtype.is_computed() && x.dtype != DType::Bool, || format!("`x` is {x}, expected numbers"))
}
