//! Ranges of an axis of a weight: of what it is made of, as far as transforms allow.

use std::ops::Range;

use super::{Channels, Weight, WeightExpr};

impl Weight {
    /// The elements with these indices of an axis. A range of a file that has them one after the other stays a range of the
    /// file, and transforms are applied to ranges of what they transform; else it is a [`gather`](Self::gather). `None` where
    /// the axis does not have them, and for text.
    #[must_use]
    pub fn slice(&self, axis: usize, range: Range<usize>) -> Option<Self> {
        let size = *self.shape().get(axis)?;
        if range.start > range.end || range.end > size || !self.is_movable() {
            return None;
        }
        if range == (0..size) {
            return Some(self.clone());
        }
        self.of_what_it_is_made(axis, &range).or_else(|| match axis {
            0 => self.rows(range),
            _ => self.gather(axis, &range.collect::<Vec<_>>()),
        })
    }

    /// The same transform of ranges, where it has one.
    fn of_what_it_is_made(&self, axis: usize, range: &Range<usize>) -> Option<Self> {
        let along = |of: &Self| of.slice(axis, range.clone());
        match self.expr() {
            WeightExpr::Stored(_) => self.range_of_file(axis, range),
            WeightExpr::Transpose(of, perm) => of.slice(perm[axis], range.clone())?.transpose(perm),
            WeightExpr::Cast(of) => along(of)?.cast(self.dtype()),
            WeightExpr::FlipSign(of) => along(of)?.flip_sign(),
            WeightExpr::Reshape(of) => self.range_of_reshaped(of, axis, range),
            WeightExpr::Concat(parts, joined) if *joined == axis => concatenated(parts, axis, range),
            WeightExpr::Concat(parts, joined) => {
                Self::concat(&parts.iter().map(along).collect::<Option<Vec<_>>>()?, *joined)
            }
            WeightExpr::Pad(of, value) => {
                let end = range.end.min(of.shape()[axis]);
                let mut shape = self.shape().to_vec();
                shape[axis] = range.len();
                (range.start < end).then(|| of.slice(axis, range.start..end)?.pad(&shape, value.0))?
            }
            WeightExpr::Gather(of, own, indices) if *own == axis => of.gather(axis, indices.get(range.clone())?),
            WeightExpr::Gather(of, own, indices) => along(of)?.gather(*own, indices),
            WeightExpr::Scale(parts, own) => {
                let factors = if *own == axis { parts[1].slice(0, range.clone())? } else { parts[1].clone() };
                along(&parts[0])?.scale(*own, &factors)
            }
            WeightExpr::PlusProduct(parts) => {
                let factor = |at: usize| if at == axis + 1 { along(&parts[at]) } else { Some(parts[at].clone()) };
                along(&parts[0])?.plus_product(&factor(1)?, &factor(2)?)
            }
            WeightExpr::Dequantize(parts, channels) => {
                let own = within_block(*channels, axis, range);
                let scales = |of: &Self| of.range_of_scales(*channels, self.shape()[axis], axis, range);
                let zeros = match parts.get(2) {
                    Some(zeros) => Some(scales(zeros)?),
                    None => None,
                };
                along(&parts[0])?.dequantize(own, &scales(&parts[1])?, zeros.as_ref())
            }
            _ => None,
        }
    }

    /// A range of the file, where the indices are neighbours in it.
    fn range_of_file(&self, axis: usize, range: &Range<usize>) -> Option<Self> {
        let (leading, rest) = self.shape().split_at(axis);
        let mut shape = self.shape().to_vec();
        shape[axis] = range.len();
        let rows = leading.iter().all(|size| *size == 1).then(|| self.reshape(rest)?.rows(range.clone()))?;
        rows?.reshape(&shape)
    }

    /// The range of the axis of `of` that has the same elements, under the shape of the range.
    fn range_of_reshaped(&self, of: &Self, axis: usize, range: &Range<usize>) -> Option<Self> {
        let outer: usize = self.shape()[..axis].iter().product();
        let inner: usize = self.shape()[axis + 1..].iter().product();
        let mut before = 1;
        let own = of.shape().iter().position(|size| {
            let found = before == outer && *size != 1;
            before *= size;
            found
        })?;
        let step: usize = of.shape()[own + 1..].iter().product();
        let [start, end] = [range.start, range.end].map(|at| (at * inner).checked_div(step));
        let same = of.shape()[own] * step == self.shape()[axis] * inner;
        let whole = (range.start * inner).is_multiple_of(step) && (range.end * inner).is_multiple_of(step);
        let mut shape = self.shape().to_vec();
        shape[axis] = range.len();
        (same && whole).then(|| of.slice(own, start?..end?)?.reshape(&shape))?
    }

    /// The scales, or zero points, of a range of codes. `None` where a block would be cut and
    /// more than one is in the range.
    fn range_of_scales(&self, channels: Channels, size: usize, axis: usize, range: &Range<usize>) -> Option<Self> {
        match channels {
            _ if self.shape().is_empty() => Some(self.clone()),
            Channels::Axis(own) if own == axis => self.slice(0, range.clone()),
            Channels::Axis(_) => Some(self.clone()),
            Channels::Blocks { axis: own, size: block } if own == axis => {
                let (first, end) = (range.start / block, range.end.div_ceil(block));
                let whole = range.start.is_multiple_of(block) && (range.end.is_multiple_of(block) || range.end == size);
                (whole || end - first == 1).then(|| self.slice(axis, first..end))?
            }
            Channels::Blocks { .. } => self.slice(axis, range.clone()),
        }
    }
}

/// The channels of a range of codes: a range within a block is a block.
fn within_block(channels: Channels, axis: usize, range: &Range<usize>) -> Channels {
    match channels {
        Channels::Blocks { axis: own, size } if own == axis && range.end <= (range.start / size + 1) * size => {
            Channels::Blocks { axis, size: range.len().max(1) }
        }
        _ => channels,
    }
}

/// A range of the axis along which weights are joined: of those that have elements of it.
fn concatenated(parts: &[Weight], axis: usize, range: &Range<usize>) -> Option<Weight> {
    let (mut kept, mut begin) = (Vec::new(), 0);
    for part in parts {
        let size = part.shape()[axis];
        let (start, end) = (range.start.max(begin), range.end.min(begin + size));
        if start < end {
            kept.push(part.slice(axis, start - begin..end - begin)?);
        }
        begin += size;
    }
    match kept.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Weight::concat(several, axis),
    }
}
