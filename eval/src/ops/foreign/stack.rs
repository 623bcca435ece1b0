//! Tensors cut into pieces along an axis, and put together along a new one.

use planish_ir::DType;

use super::{around, tensor};
use crate::element::{Element, with_type};
use crate::limits::Memory;
use crate::{Data, Tensor};

/// The elements whose index along an axis is given, without that axis.
pub(super) fn piece(x: &Tensor, axis: usize, index: usize) -> Result<Tensor, String> {
    let (outer, size, inner) = around(x.shape(), axis);
    let shape = x.shape().iter().enumerate().filter(|(a, _)| *a != axis).map(|(_, &d)| d).collect();
    with_type!(x.dtype(), any T => {
        let elements = T::of(x)?;
        let rows = (0..outer).flat_map(|o| &elements[(o * size + index) * inner..][..inner]);
        tensor(shape, T::data(rows.copied().collect()))
    })
}

/// Tensors of one type and shape, one after another.
pub(super) struct Stack {
    /// The shape of each.
    shape: Vec<usize>,
    count: usize,
    data: Data,
}

impl Stack {
    /// # Errors
    /// When no tensor has the element type.
    pub(super) fn empty(dtype: DType, shape: Vec<usize>) -> Result<Self, String> {
        let data = Data::zeros(dtype, 0).ok_or_else(|| format!("rounds give {dtype}, which is not computed"))?;
        Ok(Self { shape, count: 0, data })
    }

    pub(super) fn rank(&self) -> usize {
        self.shape.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.data.len() as u64).saturating_mul(self.data.dtype().size() as u64)
    }

    /// Appends a tensor; `memory` knows of this stack.
    ///
    /// # Errors
    /// When it is of another type or shape than those before, or memory does not hold it.
    pub(super) fn push(&mut self, row: &Tensor, memory: Memory) -> Result<(), String> {
        if row.dtype() != self.data.dtype() || row.shape() != self.shape {
            let (dtype, shape, count) = (self.data.dtype(), &self.shape, self.count);
            return Err(format!("round {count} gives {}, rounds before it {dtype}{shape:?}", row.ty()));
        }
        self.extend(row.data(), memory)?;
        self.count += 1;
        Ok(())
    }

    fn extend(&mut self, data: &Data, memory: Memory) -> Result<(), String> {
        let bytes = (data.len() as u64).checked_mul(data.dtype().size() as u64);
        memory.check(bytes, || format!("the result of round {}", self.count))?;
        match self.data.extend(data) {
            true => Ok(()),
            false => Err(format!("the results of {} rounds do not fit in memory", self.count)),
        }
    }

    /// As many tensors along a new first axis; those that are missing are zero.
    ///
    /// # Errors
    /// When memory does not hold them.
    pub(super) fn padded(mut self, count: usize, memory: Memory) -> Result<Tensor, String> {
        let missing = self.shape.iter().try_fold(count - self.count, |n, &d| n.checked_mul(d));
        let missing = missing.ok_or("what rounds give does not fit in memory")?;
        let bytes = (missing as u64).checked_mul(self.data.dtype().size() as u64);
        memory.check(bytes, || "what rounds give".to_owned())?;
        let zeros = Data::zeros(self.data.dtype(), missing).ok_or("what rounds give is not computed")?;
        self.extend(&zeros, memory)?;
        self.count = count;
        self.along(0, false)
    }

    /// The tensors along a new axis, the last one first where they go backward.
    ///
    /// # Errors
    /// When the sizes overflow.
    pub(super) fn along(self, axis: usize, backward: bool) -> Result<Tensor, String> {
        let mut shape = self.shape.clone();
        shape.insert(axis, self.count);
        if axis == 0 && !backward {
            return tensor(shape, self.data);
        }
        let (outer, count, inner) = around(&shape, axis);
        let rows = tensor(vec![self.data.len()], self.data)?;
        with_type!(rows.dtype(), any T => {
            let elements = T::of(&rows)?;
            let mut out = Vec::with_capacity(elements.len());
            for o in 0..outer {
                for k in 0..count {
                    let from = if backward { count - 1 - k } else { k };
                    out.extend_from_slice(&elements[(from * outer + o) * inner..][..inner]);
                }
            }
            tensor(shape, T::data(out))
        })
    }
}
