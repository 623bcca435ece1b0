//! Some rows of a weight: ranges of its first axis.

use std::ops::Range;

use super::{StoredRange, Weight, WeightExpr, bytes_of};

impl Weight {
    /// The slices of the first axis in a range. Of stored bytes they are stored bytes too, so that nothing but them is read.
    /// `None` where the range is not one of the axis, and for text.
    #[must_use]
    pub fn rows(&self, range: Range<usize>) -> Option<Self> {
        let size = *self.shape().first()?;
        if range.start > range.end || range.end > size {
            return None;
        }
        let mut shape = self.shape().to_vec();
        shape[0] = range.len();
        match self.expr() {
            WeightExpr::Stored(stored) if !self.dtype().is_packed() => {
                let mut before = shape.clone();
                before[0] = range.start;
                let offset = stored.offset.checked_add(bytes_of(self.dtype(), &before)?)?;
                Self::stored(self.dtype(), shape, StoredRange { offset, ..stored.clone() })
            }
            WeightExpr::Cast(of) => of.rows(range)?.cast(self.dtype()),
            _ => self.gather(0, &range.collect::<Vec<_>>()),
        }
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
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

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
