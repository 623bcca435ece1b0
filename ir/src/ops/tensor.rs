//! Operators that move or make elements without computing on them.

use super::infer::{self, OVERFLOW, Types, broadcast, ensure};
use super::payload::{TypeRule, payload};
use crate::{DType, Dim, Shape, TensorType, ValueId};

payload! {
    /// The same elements, row-major, under another shape.
    Reshape = "reshape" {
        operands {
            /// Any type.
            x: ValueId,
        }
        attributes {
            /// The shape of the result; as many elements as `x`, whatever the symbols stand for.
            shape: Shape,
        }
    }
}

impl TypeRule for Reshape {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        let (from, to) = (x.shape.elements().ok_or(OVERFLOW)?, self.shape.elements().ok_or(OVERFLOW)?);
        ensure(from == to, || format!("{x} has {from} elements, {} has {to}", self.shape))?;
        infer::one(x.dtype, self.shape.clone())
    }
}

payload! {
    /// Dimensions permuted: dimension `i` of the result is dimension `perm[i]` of `x`.
    Transpose = "transpose" {
        operands {
            /// Any type.
            x: ValueId,
        }
        attributes {
            /// A permutation of the axes.
            perm: Vec<usize>,
        }
    }
}

impl TypeRule for Transpose {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        let mut sorted = self.perm.clone();
        sorted.sort_unstable();
        ensure(sorted.iter().copied().eq(0..x.shape.rank()), || {
            format!("perm {:?} is not a permutation of the dimensions of {x}", self.perm)
        })?;
        infer::one(x.dtype, Shape::new(self.perm.iter().map(|&p| x.shape[p].clone())))
    }
}

payload! {
    /// The elements from `start` up to, not including, `end` along an axis.
    /// `0 <= start <= end <= size` holds at run time; it is checked here where sizes are known.
    Slice = "slice" {
        operands {
            /// Any type.
            x: ValueId,
        }
        attributes {
            /// Along which axis.
            axis: usize,
            /// The first index taken.
            start: Dim,
            /// The first index not taken any more.
            end: Dim,
        }
    }
}

impl TypeRule for Slice {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        infer::axis(self.axis, x)?;
        let size = self.end.checked_sub(&self.start).ok_or(OVERFLOW)?;
        let known = |d: &Dim, ok: fn(i64) -> bool| d.as_constant().is_none_or(ok);
        let rest = x.shape[self.axis].checked_sub(&self.end).ok_or(OVERFLOW)?;
        let fits = known(&self.start, |v| v >= 0) && known(&size, |v| v >= 0) && known(&rest, |v| v >= 0);
        ensure(fits, || format!("{}..{} is out of range for axis {} of {x}", self.start, self.end, self.axis))?;
        infer::one(x.dtype, x.shape.with_dim(self.axis, size))
    }
}

payload! {
    /// One axis cut into parts: as many results as sizes.
    Split = "split" {
        operands {
            /// Any type.
            x: ValueId,
        }
        attributes {
            /// Along which axis.
            axis: usize,
            /// The size of each part; they add up to the axis.
            sizes: Vec<usize>,
        }
    }
}

impl TypeRule for Split {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        infer::axis(self.axis, x)?;
        let dims: Option<Vec<Dim>> = self.sizes.iter().map(|&s| i64::try_from(s).ok().map(Dim::constant)).collect();
        let dims = dims.ok_or(OVERFLOW)?;
        let sum = dims.iter().try_fold(Dim::constant(0), |sum, d| sum.checked_add(d)).ok_or(OVERFLOW)?;
        ensure(sum == x.shape[self.axis] && !dims.is_empty(), || {
            format!("sizes {:?} do not add up to axis {} of {x}", self.sizes, self.axis)
        })?;
        Ok(dims.into_iter().map(|d| TensorType::new(x.dtype, x.shape.with_dim(self.axis, d))).collect())
    }
}

payload! {
    /// Tensors put after each other along an axis.
    Concat = "concat" {
        operands {
            /// At least one; equal but for the size along the axis.
            parts: Vec<ValueId>,
        }
        attributes {
            /// Along which axis.
            axis: usize,
        }
    }
}

impl TypeRule for Concat {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let first = types.of(*self.parts.first().ok_or("`parts` is empty")?);
        infer::axis(self.axis, first)?;
        let mut sum = Dim::constant(0);
        for &part in &self.parts {
            let ty = types.of(part);
            let same = ty.dtype == first.dtype
                && ty.shape.rank() == first.shape.rank()
                && ty.shape.iter().zip(first.shape.iter()).enumerate().all(|(i, (a, b))| i == self.axis || a == b);
            ensure(same, || format!("{first} and {ty} cannot be concatenated along axis {}", self.axis))?;
            sum = sum.checked_add(&ty.shape[self.axis]).ok_or(OVERFLOW)?;
        }
        infer::one(first.dtype, first.shape.with_dim(self.axis, sum))
    }
}

payload! {
    /// Broadcast to a shape.
    Expand = "expand" {
        operands {
            /// Any type.
            x: ValueId,
        }
        attributes {
            /// The shape of the result, to which `x` broadcasts.
            shape: Shape,
        }
    }
}

impl TypeRule for Expand {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        ensure(broadcast(&x.shape, &self.shape)? == self.shape, || format!("{x} does not expand to {}", self.shape))?;
        infer::one(x.dtype, self.shape.clone())
    }
}

payload! {
    /// Slices of `x` along an axis, picked by indices: the axis is replaced by the dimensions of
    /// `indices`. Indices are in range at run time, `-size <= index < size`; negative ones count from the end.
    Gather = "gather" {
        operands {
            /// Any type.
            x: ValueId,
            /// Integers, any shape.
            indices: ValueId,
        }
        attributes {
            /// Along which axis.
            axis: usize,
        }
    }
}

impl TypeRule for Gather {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let (x, indices) = (types.of(self.x), types.of(self.indices));
        infer::axis(self.axis, x)?;
        let fits = matches!(indices.dtype, DType::I32 | DType::I64);
        ensure(fits, || format!("`indices` is {indices}, expected i32 or i64"))?;
        let dims = x.shape[..self.axis].iter().chain(indices.shape.iter()).chain(&x.shape[self.axis + 1..]);
        infer::one(x.dtype, Shape::new(dims.cloned()))
    }
}

payload! {
    /// 0, 1, 2 ... as a vector.
    Iota = "iota" {
        operands {}
        attributes {
            /// Integers.
            dtype: DType,
            /// How many.
            length: Dim,
        }
    }
}

impl TypeRule for Iota {
    fn infer(&self, _: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let fits = matches!(self.dtype, DType::I32 | DType::I64);
        ensure(fits, || format!("`dtype` is {}, expected i32 or i64", self.dtype))?;
        infer::one(self.dtype, Shape::new([self.length.clone()]))
    }
}

payload! {
    /// Dimensions as a vector of 64 bit integers.
    Sizes = "sizes" {
        operands {}
        attributes {
            /// The elements.
            of: Shape,
        }
    }
}

impl TypeRule for Sizes {
    fn infer(&self, _: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let length = i64::try_from(self.of.rank()).map_err(|_| OVERFLOW)?;
        infer::one(DType::I64, Shape::of(&[length]))
    }
}
