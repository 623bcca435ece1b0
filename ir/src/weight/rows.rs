//! Some rows of a weight: ranges of its first axis.

use std::ops::Range;

use super::unpack::Packing;
use super::{Channels, StoredRange, Weight, WeightExpr};

impl Weight {
    /// The slices of the first axis in a range. Transforms apply to the parts of their operands that the slices
    /// come from, so that nothing else is read, where they keep the slices apart; else they are slices of the whole.
    /// `None` where the range is not one of the axis, and for text.
    #[must_use]
    pub fn rows(&self, range: Range<usize>) -> Option<Self> {
        let size = *self.shape().first()?;
        if range.start > range.end || range.end > size || !self.is_movable() {
            return None;
        }
        if range.len() == size {
            return Some(self.clone());
        }
        self.parts_of_rows(range.start, range.len()).or_else(|| self.gather(0, &range.collect::<Vec<_>>()))
    }

    /// Weights after each other along the first axis. Where all are converted from one type, the whole is, and not each.
    /// `None` as of [`Weight::concat`].
    #[must_use]
    pub fn stack(parts: &[Weight]) -> Option<Self> {
        let source = |part: &Weight| match part.expr() {
            WeightExpr::Cast(of) => Some(of.clone()),
            _ => None,
        };
        let to = parts.first()?.dtype();
        let sources: Option<Vec<Weight>> = parts.iter().filter(|part| part.dtype() == to).map(source).collect();
        let whole = sources.filter(|sources| sources.len() == parts.len());
        let whole = whole.and_then(|sources| Self::concat(&sources, 0)?.cast(to));
        whole.or_else(|| Self::concat(parts, 0))
    }

    /// The slices as a transform of slices. `None` where that is no transform of the same kind.
    fn parts_of_rows(&self, first: usize, count: usize) -> Option<Self> {
        let mut shape = self.shape().to_vec();
        shape[0] = count;
        let row: usize = shape[1..].iter().product();
        let bits = row.checked_mul(self.dtype().bits())?;
        let bytes = |rows: usize| rows.checked_mul(bits).filter(|bits| bits.is_multiple_of(8)).map(|bits| bits / 8);
        let along = |of: &Self| of.rows(first..first + count);
        let all = |parts: &[Self]| parts.iter().map(along).collect::<Option<Vec<_>>>();
        match self.expr() {
            WeightExpr::Stored(range) => {
                let offset = range.offset.checked_add(u64::try_from(bytes(first)?).ok()?)?;
                // Elements that share the last byte with others are no part of the slices.
                bytes(count)?;
                Self::stored(self.dtype(), shape, StoredRange { source: range.source.clone(), offset })
            }
            WeightExpr::Inline(all) => {
                let (start, length) = (bytes(first)?, bytes(count)?);
                Self::inline(self.dtype(), shape, all.get(start..start.checked_add(length)?)?)
            }
            WeightExpr::Uniform(_) => None,
            WeightExpr::Transpose(of, perm) => (perm[0] == 0).then(|| along(of))??.transpose(perm),
            WeightExpr::Cast(of) => along(of)?.cast(self.dtype()),
            WeightExpr::Reshape(of) => {
                let own: usize = of.shape().get(1..)?.iter().product();
                let start = first.checked_mul(row)?;
                let whole = own > 0 && start.is_multiple_of(own) && (count * row).is_multiple_of(own);
                whole.then(|| of.rows(start / own..(start + count * row) / own))??.reshape(&shape)
            }
            WeightExpr::Concat(parts, 0) => {
                let mut before = 0;
                let mut taken = Vec::new();
                for part in parts {
                    let rows = part.shape()[0];
                    let (from, to) = (first.max(before), (first + count).min(before + rows));
                    if from < to {
                        taken.push(part.rows(from - before..to - before)?);
                    }
                    before += rows;
                }
                if let [one] = &taken[..] { Some(one.clone()) } else { Self::concat(&taken, 0) }
            }
            WeightExpr::Concat(parts, axis) => Self::concat(&all(parts)?, *axis),
            WeightExpr::Pad(of, value) => (of.shape()[0] == self.shape()[0]).then(|| along(of))??.pad(&shape, value.0),
            WeightExpr::Gather(of, 0, indices) => {
                let indices = &indices[first..first + count];
                let run = indices.first().filter(|start| indices.iter().copied().eq(**start..**start + count));
                run.and_then(|start| of.rows(*start..*start + count)).or_else(|| of.gather(0, indices))
            }
            WeightExpr::Gather(of, axis, indices) => along(of)?.gather(*axis, indices),
            WeightExpr::Quantize(parts, channels) => {
                let parts = self.with_channels(parts, *channels, first, count)?;
                parts[0].quantize(self.dtype(), *channels, &parts[1], parts.get(2))
            }
            WeightExpr::Dequantize(parts, channels) => {
                let parts = self.with_channels(parts, *channels, first, count)?;
                parts[0].dequantize(*channels, &parts[1], parts.get(2))
            }
            WeightExpr::Fitted(parts, fit, part) => {
                let importance = match parts.get(1) {
                    Some(all) => Some(importance_of(all, parts[0].shape()[0], first, count)?),
                    None => None,
                };
                along(&parts[0])?.fitted(*fit, importance.as_ref(), *part)
            }
            WeightExpr::FlipSign(of) => along(of)?.flip_sign(),
            WeightExpr::Bytes(_) => None,
            WeightExpr::Scale(parts, axis) => {
                let factors = if *axis == 0 { along(&parts[1])? } else { parts[1].clone() };
                along(&parts[0])?.scale(*axis, &factors)
            }
            WeightExpr::InverseNorms(of, axis) => (*axis == 0).then(|| along(of))??.inverse_norms(0),
            WeightExpr::PlusProduct(parts) => along(&parts[0])?.plus_product(&along(&parts[1])?, &parts[2]),
            WeightExpr::Unpack(parts, packing) => self.unpacked_rows(parts, *packing, [first, count], &shape),
        }
    }

    /// The slices of a weight, or of what it is quantized to, with those of its scales and zero points.
    fn with_channels(&self, parts: &[Self], channels: Channels, first: usize, count: usize) -> Option<Vec<Self>> {
        let shared = |of: &Self| match channels {
            _ if of.shape().is_empty() => Some(of.clone()),
            Channels::Axis(0) => of.rows(first..first + count),
            Channels::Axis(_) => Some(of.clone()),
            // The blocks would mix.
            Channels::Blocks { axis: 0, .. } => None,
            Channels::Blocks { .. } => of.rows(first..first + count),
        };
        let others = parts[1..].iter().map(shared);
        std::iter::once(parts[0].rows(first..first + count)).chain(others).collect()
    }

    /// The slices of what is unpacked, where they begin and end with units of the packing.
    fn unpacked_rows(
        &self,
        parts: &[Self],
        packing: Packing,
        [first, count]: [usize; 2],
        shape: &[usize],
    ) -> Option<Self> {
        let all = self.elements();
        let [start, length] = [first, count].map(|rows| rows * shape[1..].iter().product::<usize>());
        // Of a part that has as many units as the whole has runs of elements.
        let of = |part: &Self, unit: usize| {
            let units = part.elements().checked_div(unit)?;
            let each = all.checked_div(units).filter(|each| each * units == all && *each > 0)?;
            let whole = start.is_multiple_of(each) && length.is_multiple_of(each);
            let flat = whole.then(|| part.reshape(&[part.elements()]))??;
            flat.rows(start / each * unit..(start + length) / each * unit)
        };
        let (packed, others) = parts.split_first()?;
        let parts = match packing {
            Packing::Codes(_) | Packing::Scales(_) | Packing::Numbers(_) => vec![of(packed, packing.unit())?],
            Packing::Codebook { block, .. } => {
                let [table, scales] = others else { return None };
                // A block that begins or ends elsewhere has a scale that others share.
                let whole = start.is_multiple_of(block) && length.is_multiple_of(block);
                let scales = whole.then(|| scales.reshape(&[scales.elements()]))??;
                vec![of(packed, 1)?, table.clone(), scales.rows(start / block..(start + length) / block)?]
            }
            Packing::Words | Packing::NextWords | Packing::Awq => return None,
        };
        Self::unpack(&parts, packing, self.dtype(), shape)
    }
}

/// The importance of the columns of some of so many rows. `None` where the rows are parts of several groups.
fn importance_of(all: &Weight, rows: usize, first: usize, count: usize) -> Option<Weight> {
    let [groups, columns] = *all.shape() else { return Some(all.clone()) };
    let of_group = rows.checked_div(groups)?;
    let (group, start) = (first.checked_div(of_group)?, first.checked_rem(of_group)?);
    if start + count <= of_group {
        return all.rows(group..group + 1)?.reshape(&[columns]);
    }
    (start == 0 && count.is_multiple_of(of_group)).then(|| all.rows(group..group + count / of_group))?
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use super::super::StoredRange;
    use super::*;
    use crate::{DType, WeightSource};

    /// Bytes that count up, and the ranges that were read of them.
    #[derive(Debug, Default)]
    struct Counting(Mutex<Vec<Range<u64>>>);

    impl WeightSource for Counting {
        fn name(&self) -> &'static str {
            "counting"
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            let length = buffer.len() as u64;
            self.0.lock().map_err(|_| io::Error::other("poisoned"))?.push(offset..offset + length);
            buffer.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = u8::try_from(at % 251).unwrap_or(0));
            Ok(())
        }

        fn file_path(&self) -> Option<&Path> {
            None
        }
    }

    #[test]
    fn rows_of_stored_bytes_are_read_alone() {
        let source = Arc::new(Counting::default());
        let range = StoredRange { source: source.clone(), offset: 8 };
        let whole = Weight::stored(DType::Bf16, vec![4, 3], range).unwrap();
        let rows = whole.rows(1..3).unwrap();
        assert_eq!((rows.shape(), rows.as_stored().map(|stored| stored.offset)), (&[2, 3][..], Some(14)));
        assert_eq!(rows.read().unwrap(), whole.read().unwrap()[6..18]);
        assert_eq!(source.0.lock().unwrap()[0], 14..26);
        let cast = whole.cast(DType::F32).unwrap();
        assert_eq!(cast.rows(1..3).unwrap().read().unwrap(), cast.read().unwrap()[12..36]);
    }

    #[test]
    fn rows_of_other_weights_are_gathered() {
        let whole = Weight::numbers(DType::F32, vec![3, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let turned = whole.transpose(&[1, 0]).unwrap();
        assert_eq!(turned.rows(1..2).unwrap().read_numbers().unwrap(), [1.0, 3.0, 5.0]);
        assert_eq!(whole.rows(2..2).unwrap().shape(), [0, 2]);
        #[allow(clippy::reversed_empty_ranges, reason = "that is what is refused")]
        let backwards = whole.rows(2..1);
        assert_eq!((whole.rows(2..4), backwards), (None, None));
        assert_eq!(Weight::scalar(DType::F32, 1.0).rows(0..1), None);
    }

    #[test]
    fn a_stack_is_converted_as_a_whole() {
        let of = |dtype, numbers: [f64; 2]| Weight::numbers(dtype, vec![1, 2], &numbers).unwrap();
        let wide = |weight: Weight| weight.cast(DType::F32).unwrap();
        let (a, b) = (of(DType::F16, [1.0, 2.0]), of(DType::F16, [3.0, 4.0]));
        let stack = Weight::stack(&[wide(a.clone()), wide(b)]).unwrap();
        assert_eq!(stack.cast(DType::F16).unwrap().expr().children().len(), 2);
        assert_eq!(stack.read_numbers().unwrap(), [1.0, 2.0, 3.0, 4.0]);
        // One is not converted, or from another type.
        let mixed = Weight::stack(&[wide(a.clone()), of(DType::F32, [5.0, 6.0])]).unwrap();
        assert_eq!(mixed.read_numbers().unwrap(), [1.0, 2.0, 5.0, 6.0]);
        let other = Weight::stack(&[wide(a), wide(of(DType::Bf16, [7.0, 8.0]))]).unwrap();
        assert_eq!(other.read_numbers().unwrap(), [1.0, 2.0, 7.0, 8.0]);
        assert_eq!(Weight::stack(&[]), None);
    }
}
