//! Operators that move elements.

use planish_ir::ops::{Concat, Expand, Gather, Reshape, Slice, Split, Transpose};
use planish_ir::{Dim, Shape};

use super::Growing;

impl Growing {
    pub(super) fn reshape(&mut self, a: u8, b: u8) -> Option<()> {
        let x = self.pick(a, |_, ty| ty.shape.rank() > 0)?;
        let dims = self.ty(x).shape.to_vec();
        let (last, leading) = dims.split_last()?;
        let shape = match (b % 5, last.as_constant()) {
            (0, _) => vec![Shape::new(dims.clone()).elements()?],
            (1, _) if dims.len() > 1 => [&[dims[0].checked_mul(&dims[1])?], &dims[2..]].concat(),
            (2, Some(n)) if n % 2 == 0 && dims.len() < 4 => [leading, &[(n / 2).into(), 2.into()]].concat(),
            (3, _) if dims.len() < 4 => [&[1.into()], &dims[..]].concat(),
            _ => dims,
        };
        self.emit(Reshape { x, shape: Shape::new(shape) }).map(drop)
    }

    pub(super) fn transpose(&mut self, a: u8, b: u8) -> Option<()> {
        let x = self.pick(a, |_, ty| ty.shape.rank() > 0)?;
        let mut perm: Vec<usize> = (0..self.ty(x).shape.rank()).collect();
        let by = usize::from(b) % perm.len();
        if b < 128 {
            perm.rotate_left(by)
        } else {
            perm.swap(0, by)
        }
        self.emit(Transpose { x, perm }).map(drop)
    }

    pub(super) fn slice(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        let x = self.pick(a, |_, ty| ty.shape.rank() > 0)?;
        let shape = self.ty(x).shape;
        let axis = usize::from(b) % shape.rank();
        let Some(size) = shape[axis].as_constant() else {
            let end = shape[axis].clone();
            let start = if c.is_multiple_of(2) { 0.into() } else { end.checked_sub(&1.into())? };
            return self.emit(Slice { x, axis, start, end }).map(drop);
        };
        let cut = i64::from(c) % size;
        if c >= 128 && cut > 0 {
            let sizes = [cut, size - cut].map(|n| usize::try_from(n).unwrap()).to_vec();
            self.emit_all(Split { x, axis, sizes });
            return Some(());
        }
        self.emit(Slice { x, axis, start: cut.into(), end: size.into() }).map(drop)
    }

    pub(super) fn concat(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        let small =
            |d: &Dim| d.as_constant().is_none_or(|n| n <= 8) && d.summands().all(|(k, s)| k <= 2 && s.len() <= 2);
        let x = self.pick(a, |_, ty| ty.shape.rank() > 0 && ty.shape.iter().all(small))?;
        let ty = self.ty(x);
        let axis = usize::from(b) % ty.shape.rank();
        let other = self.pick(c, |_, other| *other == ty)?;
        let parts = if b >= 192 { vec![x] } else { vec![x, other] };
        self.emit(Concat { parts, axis }).map(drop)
    }

    pub(super) fn expand(&mut self, a: u8, b: u8) -> Option<()> {
        let x = self.pick(a, |_, ty| ty.shape.rank() < 4)?;
        let mut dims = self.ty(x).shape.to_vec();
        if b.is_multiple_of(2) {
            dims.insert(0, 2.into());
        }
        if let Some(dim) = dims.iter_mut().find(|d| **d == Dim::constant(1)) {
            *dim = Dim::symbol("sequence_length");
        }
        self.emit(Expand { x, shape: Shape::new(dims) }).map(drop)
    }

    pub(super) fn gather(&mut self, a: u8, b: u8, c: u8) -> Option<()> {
        let indexed = |d: &Dim| d.as_constant().is_some_and(|n| n >= 2);
        let x = self.pick(a, |_, ty| ty.shape.rank() < 4 && ty.shape.iter().any(indexed))?;
        let shape = self.ty(x).shape;
        let axes: Vec<usize> = (0..shape.rank()).filter(|axis| indexed(&shape[*axis])).collect();
        let indices = self.indices(b, 5 - shape.rank())?;
        self.emit(Gather { x, indices, axis: axes[usize::from(c) % axes.len()] }).map(drop)
    }
}
