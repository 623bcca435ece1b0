//! Operators on indices.

use planish_ir::DType;
use planish_ir::ops::{Embedding, Gather, Iota, Sizes};

use super::{Call, Kernel};
use crate::element::{Element, with_type};
use crate::{Data, Tensor};

impl Kernel for Gather {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        gather(call.operand(self.x), call.operand(self.indices), "indices", self.axis, true)
    }
}

impl Kernel for Embedding {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        gather(call.operand(self.weight), call.operand(self.ids), "ids", 0, false)
    }
}

/// Rows of a table.
pub(super) fn embedding(table: &Tensor, ids: &Tensor) -> Result<Data, String> {
    gather(table, ids, "ids", 0, false)?.pop().ok_or_else(|| "gave nothing".to_owned())
}

/// Slices of `x` along an axis; `name` is the operand that `indices` are, which count from the end where they are
/// negative and may be.
fn gather(x: &Tensor, indices: &Tensor, name: &str, axis: usize, from_end: bool) -> Result<Vec<Data>, String> {
    let size = x.shape()[axis];
    let position = |at: usize, index: i64| {
        let from_front = match i64::try_from(size) {
            Ok(size) if from_end && index < 0 => index.saturating_add(size),
            _ => index,
        };
        usize::try_from(from_front).ok().filter(|&i| i < size).ok_or_else(|| {
            format!("element {at} of `{name}` is {index}, out of range for axis {axis} of {}, of size {size}", x.ty())
        })
    };
    let positions: Vec<usize> = match indices.data() {
        Data::I32(v) => v.iter().enumerate().map(|(at, &i)| position(at, i.into())).collect::<Result<_, _>>()?,
        Data::I64(v) => v.iter().enumerate().map(|(at, &i)| position(at, i)).collect::<Result<_, _>>()?,
        _ => return Err(format!("`{name}` is {}, expected i32 or i64", indices.ty())),
    };
    let inner: usize = x.shape()[axis + 1..].iter().product();
    let row = size * inner;
    with_type!(x.dtype(), any T => {
        if row == 0 {
            return Ok(vec![T::data(Vec::new())]);
        }
        let elements = T::of(x)?;
        let mut out = Vec::with_capacity(elements.len() / size * positions.len());
        for row in elements.chunks(row) {
            positions.iter().for_each(|i| out.extend_from_slice(&row[i * inner..(i + 1) * inner]));
        }
        Ok(vec![T::data(out)])
    })
}

impl Kernel for Iota {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let length = call.shape().iter().product::<usize>();
        let too_many = || format!("{length} numbers from 0 on do not fit {}", self.dtype);
        Ok(vec![match self.dtype {
            DType::I32 => {
                Data::from((0..length).map(i32::try_from).collect::<Result<Vec<_>, _>>().map_err(|_| too_many())?)
            }
            DType::I64 => {
                Data::from((0..length).map(i64::try_from).collect::<Result<Vec<_>, _>>().map_err(|_| too_many())?)
            }
            other => return Err(format!("is not defined for {other}")),
        }])
    }
}

impl Kernel for Sizes {
    fn run(&self, _: &Call<'_>) -> Result<Vec<Data>, String> {
        let sizes = self.of.as_constant().ok_or("its dimensions are not known")?;
        Ok(vec![sizes.into()])
    }
}
