//! Numbers that are not finite: no codes stand for them, and no codes have them as a scale.

use std::fmt;
use std::io;

use super::codes::singles;
use super::read::{Sink, WeightError};
use super::{Packing, Weight, WeightExpr};
use crate::DType;

/// A number that is NaN or infinite.
#[derive(Clone, Debug, PartialEq)]
pub struct NotFinite {
    /// What it is.
    pub part: NumberOf,
    /// The number.
    pub number: f32,
    /// Its index in that part.
    pub at: Vec<usize>,
}

/// What a number is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberOf {
    /// The numbers of a weight.
    Elements,
    /// The scales of codes.
    Scales,
    /// The blocks of a GGUF tensor, which have a scale each and perhaps a minimum: by the index of the block.
    Blocks,
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, number, at } = self;
        let part = match part {
            NumberOf::Elements => "element",
            NumberOf::Scales => "scale",
            NumberOf::Blocks => "scale of block",
        };
        write!(f, "its {part} {at:?} is {}", Number(*number))
    }
}

/// A number as sentences have it.
struct Number(f32);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            x if x.is_nan() => f.write_str("NaN"),
            x if x.is_infinite() => f.write_str(if x > 0.0 { "infinite" } else { "minus infinite" }),
            x => write!(f, "{x:e}"),
        }
    }
}

/// The place of the first number that is not finite.
fn first(numbers: &[f32]) -> Option<usize> {
    const EXPONENT: u32 = 0x7f80_0000;
    // Without an early end, which vectors do not have.
    let any = numbers.iter().fold(false, |any, x| any | (x.to_bits() & EXPONENT == EXPONENT));
    if any { numbers.iter().position(|x| !x.is_finite()) } else { None }
}

/// Looks through the numbers of a tensor, piece by piece.
pub(super) struct Watch<'a> {
    part: NumberOf,
    shape: &'a [usize],
    /// How many numbers there were.
    seen: usize,
    found: Option<NotFinite>,
}

impl<'a> Watch<'a> {
    /// For a tensor of a shape.
    pub(super) fn new(part: NumberOf, shape: &'a [usize]) -> Self {
        Self { part, shape, seen: 0, found: None }
    }

    /// Looks through the next numbers.
    ///
    /// # Errors
    /// When one is not finite: a sink ends with the error, and [`end`](Self::end) says what it was.
    pub(super) fn see(&mut self, numbers: &[f32]) -> io::Result<()> {
        if let Some(at) = first(numbers) {
            self.found =
                Some(NotFinite { part: self.part, number: numbers[at], at: index(self.seen + at, self.shape) });
            return Err(io::Error::other("a number is not finite"));
        }
        self.seen += numbers.len();
        Ok(())
    }

    /// How a stream ended that this looked through.
    ///
    /// # Errors
    /// The number that is not finite; else that of the stream.
    pub(super) fn end<T>(self, streamed: Result<T, WeightError>) -> Result<T, WeightError> {
        match self.found {
            Some(found) => Err(WeightError::NotFinite(found)),
            None => streamed,
        }
    }
}

/// The index of an element by its place.
fn index(mut place: usize, shape: &[usize]) -> Vec<usize> {
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|size| {
            let at = place % size.max(&1);
            place /= size.max(&1);
            at
        })
        .collect();
    index.reverse();
    index
}

impl Weight {
    /// Checks that all numbers of a weight of floats are finite.
    ///
    /// # Errors
    /// [`WeightError::NotFinite`] for the first that is not, and when bytes cannot be read.
    pub fn check_finite(&self) -> Result<(), WeightError> {
        self.check_all(NumberOf::Elements)
    }

    /// The numbers of a weight of floats as f32, all of which are finite.
    ///
    /// # Errors
    /// [`WeightError::NotFinite`] for the first that is not, and when bytes cannot be read.
    pub fn read_finite(&self) -> Result<Vec<f32>, WeightError> {
        let numbers = singles(self.dtype(), &self.read()?, self.elements());
        let mut watch = Watch::new(NumberOf::Elements, self.shape());
        let seen = watch.see(&numbers).map_err(WeightError::Sink);
        watch.end(seen).map(|()| numbers)
    }

    /// Checks that the scales of all codes that the weight is made of are finite. It looks at no code. The scales of a GGUF tensor
    /// lie between its codes, so all of its bytes are read: 512 MiB that are in memory take 0.1 to 0.4 s.
    ///
    /// # Errors
    /// [`WeightError::NotFinite`] for the first that is not, and when bytes cannot be read.
    pub fn check_scales(&self) -> Result<(), WeightError> {
        let children = self.expr().children();
        children.iter().try_for_each(Self::check_scales)?;
        match self.expr() {
            // Those of a fit are checked when the fit is computed.
            WeightExpr::Dequantize(parts, _) if !matches!(parts[1].expr(), WeightExpr::Fitted(..)) => {
                parts[1].check_all(NumberOf::Scales)
            }
            WeightExpr::Unpack(parts, Packing::Codebook { .. }) => {
                parts[1..].iter().try_for_each(|part| part.check_all(NumberOf::Scales))
            }
            WeightExpr::Unpack(parts, Packing::Numbers(block)) => {
                let shape = [parts[0].elements() / block.bytes()];
                let (mut watch, mut held) = (Watch::new(NumberOf::Blocks, &shape), Vec::new());
                let streamed = parts[0].stream(&mut |bytes| {
                    // Where a block began in the bytes before, those that it goes on with here.
                    let missing = if held.is_empty() { 0 } else { block.bytes() - held.len() };
                    let (begun, rest) = bytes.split_at(missing.min(bytes.len()));
                    held.extend_from_slice(begun);
                    // One number for each block: one that is not finite, where it has one.
                    if held.len() == block.bytes() {
                        watch.see(&[block.extreme(&held)])?;
                        held.clear();
                    }
                    let blocks = rest.chunks_exact(block.bytes());
                    held.extend_from_slice(blocks.remainder());
                    watch.see(&blocks.map(|b| block.extreme(b)).collect::<Vec<f32>>())
                });
                watch.end(streamed)
            }
            _ => Ok(()),
        }
    }

    fn check_all(&self, part: NumberOf) -> Result<(), WeightError> {
        if !self.dtype().is_float() {
            return Ok(());
        }
        let mut watch = Watch::new(part, self.shape());
        let streamed = self.stream(&mut |bytes| {
            let elements = bytes.len() * 8 / self.dtype().bits();
            match self.dtype() {
                // A number of 64 bits may leave those of 32.
                DType::F64 => watch.see(&doubles(bytes)),
                dtype => watch.see(&singles(dtype, bytes, elements)),
            }
        });
        watch.end(streamed)
    }
}

/// Numbers of 64 bits as those of 32 that are finite where they are.
fn doubles(bytes: &[u8]) -> Vec<f32> {
    let numbers = bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes));
    numbers.map(|x| if x.is_finite() { 0.0 } else { x as f32 }).collect()
}

/// Streams what `f` makes of the elements of a weight, all of which are finite.
pub(super) fn stream_finite(
    of: &Weight,
    f: &mut dyn FnMut(&[f32], Sink<'_>) -> io::Result<()>,
    sink: Sink<'_>,
) -> Result<(), WeightError> {
    let mut watch = Watch::new(NumberOf::Elements, of.shape());
    let streamed = of.stream(&mut |bytes| {
        let elements = singles(of.dtype(), bytes, bytes.len() / of.dtype().size());
        watch.see(&elements)?;
        f(&elements, &mut *sink)
    });
    watch.end(streamed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weight::{BlockFit, Channels, GgmlBlock, Search};

    fn floats(shape: &[usize], numbers: &[f64]) -> Weight {
        Weight::numbers(DType::F32, shape.to_vec(), numbers).unwrap()
    }

    fn message(result: Result<impl Sized, WeightError>) -> String {
        result.err().unwrap().to_string()
    }

    #[test]
    fn no_codes_stand_for_what_is_not_finite() {
        for (bad, named) in [(f64::NAN, "NaN"), (f64::INFINITY, "infinite"), (f64::NEG_INFINITY, "minus infinite")] {
            let weight = floats(&[2, 3], &[1.0, 2.0, 3.0, 4.0, bad, 6.0]);
            let expected = format!("its element [1, 1] is {named}");
            assert_eq!(message(weight.check_finite()), expected);
            let scaled = weight.quantize(DType::I8, 0, &floats(&[2], &[1.0, 1.0]), None).unwrap();
            assert_eq!(message(scaled.read()), expected);
            for codes in [DType::I4, DType::U8] {
                let fit = BlockFit { codes, size: 2, search: Search::LeastSquares, negative: false };
                let fitted = weight.fit(fit, None).unwrap();
                assert_eq!(message(fitted.codes.read()), expected);
                assert_eq!(message(fitted.scales.read()), expected);
                // What is made of it is no code either.
                assert_eq!(message(fitted.codes.transpose(&[1, 0]).unwrap().read()), expected);
            }
        }
    }

    #[test]
    fn finite_numbers_of_any_magnitude_have_finite_scales() {
        for magnitude in [1e18, 1e37, 1e38, 3.4e38] {
            let numbers: Vec<f64> = (0..64).map(|i| magnitude * f64::from(i) / 64.0).collect();
            let weight = floats(&[2, 32], &numbers);
            for search in [Search::Range, Search::LeastSquares, Search::HalfQuadratic] {
                for codes in [DType::I4, DType::U4, DType::I8, DType::U8] {
                    let fitted = weight.fit(BlockFit { codes, size: 32, search, negative: true }, None).unwrap();
                    let back = fitted.codes.dequantize(fitted.channels, &fitted.scales, fitted.zero_points.as_ref());
                    let back = back.unwrap().read_numbers().unwrap();
                    let error = back.iter().zip(&numbers).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    assert!(error <= magnitude / 8.0, "{magnitude} {search} {codes}: {error}");
                }
            }
        }
        // A range that leaves float32 has no scale.
        let weight = floats(&[1, 2], &[3.4e38, -3.4e38]);
        let fit = BlockFit { codes: DType::U4, size: 2, search: Search::Range, negative: false };
        assert_eq!(message(weight.fit(fit, None).unwrap().codes.read()), "its scale [0, 0] is infinite");
    }

    #[test]
    fn scales_of_codes_are_checked_without_the_codes() {
        let codes = Weight::numbers(DType::I8, vec![2, 2], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        let weight = codes.dequantize(Channels::Blocks { axis: 1, size: 2 }, &floats(&[2, 1], &[1.0, f64::NAN]), None);
        let weight = weight.unwrap().transpose(&[1, 0]).unwrap();
        assert_eq!(message(weight.check_scales()), "its scale [1, 0] is NaN");
        assert_eq!(floats(&[2], &[f64::NAN, 1.0]).check_scales().err().map(|e| e.to_string()), None);
        // The second of three blocks has a minimum that is infinite.
        let mut bytes = vec![0u8; 3 * GgmlBlock::Q4_1.bytes()];
        bytes[20 + 3] = 0x7c;
        let packed = Weight::inline(DType::U8, vec![60], bytes).unwrap();
        let numbers = Weight::unpack(&[packed], Packing::Numbers(GgmlBlock::Q4_1), DType::F32, &[3, 32]).unwrap();
        assert_eq!(message(numbers.check_scales()), "its scale of block [1] is infinite");
    }

    /// Blocks of 20 bytes lie across the ends of the pieces that are read.
    #[test]
    fn the_scales_of_all_blocks_are_checked() {
        let checked = |bad: Option<usize>| {
            let mut bytes = [0u8; 100];
            if let Some(bad) = bad {
                bytes[bad * 20 + 1] = 0x7c;
            }
            let piece = |at: [usize; 2]| Weight::inline(DType::U8, vec![at[1] - at[0]], bytes[at[0]..at[1]].to_vec());
            let pieces = [[0, 13], [13, 50], [50, 55], [55, 60], [60, 61], [61, 100]].map(|at| piece(at).unwrap());
            let packed = Weight::concat(&pieces, 0).unwrap();
            let numbers = Weight::unpack(&[packed], Packing::Numbers(GgmlBlock::Q4_1), DType::F32, &[5, 32]).unwrap();
            numbers.check_scales().err().map(|error| error.to_string())
        };
        assert_eq!(checked(None), None);
        for bad in 0..5 {
            assert_eq!(checked(Some(bad)), Some(format!("its scale of block [{bad}] is infinite")));
        }
    }
}
