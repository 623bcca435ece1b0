//! Operators that move elements without looking at them.

use planish_ir::Dim;
use planish_ir::ops::{Concat, Expand, Reshape, Slice, Split, Transpose};

use super::{Call, Kernel};
use crate::element::{Element, with_type};
use crate::strided::{broadcast, row_major, walk};
use crate::{Data, Tensor};

impl Kernel for Reshape {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        Ok(vec![call.operand(self.x).data().clone()])
    }
}

impl Kernel for Transpose {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let x = call.operand(self.x);
        let strides = row_major(x.shape());
        let permuted: Vec<usize> = self.perm.iter().map(|&p| strides[p]).collect();
        read(x, call.shape(), &permuted)
    }
}

impl Kernel for Expand {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let x = call.operand(self.x);
        read(x, call.shape(), &broadcast(x.shape(), call.shape()))
    }
}

/// The elements of `x` read as a tensor of this shape with these strides.
fn read(x: &Tensor, shape: &[usize], strides: &[usize]) -> Result<Vec<Data>, String> {
    with_type!(x.dtype(), any T => {
        let elements = T::of(x)?;
        let mut out = Vec::with_capacity(shape.iter().product());
        walk(shape, [strides], |run| {
            match (run.step, run.start) {
                ([1], [start]) => out.extend_from_slice(&elements[start..start + run.len]),
                _ => out.extend(run.positions().map(|[at]| elements[at])),
            }
            Ok::<_, String>(())
        })?;
        Ok(vec![T::data(out)])
    })
}

impl Kernel for Slice {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let index = |d: &Dim| d.as_constant().and_then(|v| usize::try_from(v).ok());
        let (Some(start), Some(end)) = (index(&self.start), index(&self.end)) else {
            return Err(format!("{}..{} is not a range", self.start, self.end));
        };
        Ok(vec![range(call.operand(self.x), self.axis, start, end)?])
    }
}

impl Kernel for Split {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let mut end = 0;
        let part = |size: &usize| {
            let start = end;
            end += size;
            range(call.operand(self.x), self.axis, start, end)
        };
        self.sizes.iter().map(part).collect()
    }
}

/// The elements whose index along an axis is in a range.
fn range(x: &Tensor, axis: usize, start: usize, end: usize) -> Result<Data, String> {
    let inner: usize = x.shape()[axis + 1..].iter().product();
    let row = x.shape()[axis] * inner;
    with_type!(x.dtype(), any T => {
        if row == 0 {
            return Ok(T::data(Vec::new()));
        }
        Ok(T::data(T::of(x)?.chunks(row).flat_map(|r| &r[start * inner..end * inner]).copied().collect()))
    })
}

impl Kernel for Concat {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let parts: Vec<&Tensor> = self.parts.iter().map(|&v| call.operand(v)).collect();
        let first = parts.first().ok_or("`parts` is empty")?;
        let rows: usize = first.shape()[..self.axis].iter().product();
        with_type!(first.dtype(), any T => {
            let parts = parts.iter().map(|part| T::of(part)).collect::<Result<Vec<_>, _>>()?;
            let mut out = Vec::with_capacity(call.shape().iter().product());
            for row in 0..rows {
                for part in &parts {
                    let length = part.len() / rows;
                    out.extend_from_slice(&part[row * length..(row + 1) * length]);
                }
            }
            Ok(vec![T::data(out)])
        })
    }
}
