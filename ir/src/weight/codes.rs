//! Weights as codes with scales, as quantization stores them, and elements scaled or picked along an axis.

use std::io;

use super::channels::Runs;
use super::finite::{self, NumberOf, Watch};
use super::fit::{self, Fitted};
use super::read::{Sink, WeightError};
use super::search::ROUND;
use super::{CHUNK_BYTES, Channels, Weight, WeightExpr, convert, small, vectors};
use crate::DType;

/// The codes that a quantized type has for integers: least and largest. `None` for a type of floating-point codes.
#[must_use]
pub fn code_range(dtype: DType) -> Option<(i64, i64)> {
    Some(match dtype {
        DType::I8 => (-128, 127),
        DType::U8 => (0, 255),
        DType::I16 => (-32768, 32767),
        DType::U16 => (0, 65535),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::I4 => (-8, 7),
        DType::U4 => (0, 15),
        DType::I2 => (-2, 1),
        DType::U2 => (0, 3),
        _ => return None,
    })
}

/// Whether a type is one of floating-point codes.
fn is_float_code(dtype: DType) -> bool {
    matches!(dtype, DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ | DType::F4E2M1)
}

/// Whether a type is one of codes.
#[must_use]
pub fn is_code(dtype: DType) -> bool {
    code_range(dtype).is_some() || is_float_code(dtype)
}

impl Weight {
    /// Codes of a type: each element in f32, divided by the scale of its channel, rounded to nearest even, plus the zero
    /// point, saturated. `scales` are floats, of the shape that [`Channels::of`] gives, or one for all, `[]`; `zero_points`
    /// are codes. `None` where types or shapes do not fit.
    #[must_use]
    pub fn quantize(
        &self,
        to: DType,
        channels: impl Into<Channels>,
        scales: &Self,
        zero_points: Option<&Self>,
    ) -> Option<Self> {
        let channels = channels.into();
        let fits = self.dtype().is_float() && is_code(to) && self.has_channels(channels, scales, zero_points, to);
        bytes_fit(to, self.shape()).filter(|()| fits)?;
        let parts = [self, scales].into_iter().chain(zero_points).cloned().collect();
        Some(Self::build(to, self.shape().to_vec(), WeightExpr::Quantize(parts, channels)))
    }

    /// The numbers that codes stand for, in the type of the scales: `(code - zero point) * scale`, computed in f32 and
    /// rounded once more. `None` where types or shapes do not fit.
    #[must_use]
    pub fn dequantize(&self, channels: impl Into<Channels>, scales: &Self, zero_points: Option<&Self>) -> Option<Self> {
        let channels = channels.into();
        let fits = is_code(self.dtype()) && self.has_channels(channels, scales, zero_points, self.dtype());
        bytes_fit(scales.dtype(), self.shape()).filter(|()| fits)?;
        let parts = [self, scales].into_iter().chain(zero_points).cloned().collect();
        Some(Self::build(scales.dtype(), self.shape().to_vec(), WeightExpr::Dequantize(parts, channels)))
    }

    /// Each element times the factor of its index along `axis`, computed in f64 and rounded once. `factors` are floats,
    /// [dimension `axis`]. `None` where types or shapes do not fit.
    #[must_use]
    pub fn scale(&self, axis: usize, factors: &Self) -> Option<Self> {
        let fits =
            self.dtype().is_float() && factors.dtype().is_float() && factors.shape() == [*self.shape().get(axis)?];
        fits.then(|| {
            let parts = vec![self.clone(), factors.clone()];
            Self::build(self.dtype(), self.shape().to_vec(), WeightExpr::Scale(parts, axis))
        })
    }

    /// One over the Euclidean norm of each slice of `axis`, f32 [dimension `axis`]. `None` for types that are none of floats.
    #[must_use]
    pub fn inverse_norms(&self, axis: usize) -> Option<Self> {
        let size = *self.shape().get(axis)?;
        let norms = || Self::build(DType::F32, vec![size], WeightExpr::InverseNorms(self.clone(), axis));
        self.dtype().is_float().then(norms)
    }

    /// The codes of the signed type as those of the unsigned type of the same bits, and back: half of the range is added or
    /// subtracted. `None` for types other than integers of 2, 4 and 8 bits.
    #[must_use]
    pub fn flip_sign(&self) -> Option<Self> {
        let to = match self.dtype() {
            DType::I2 => DType::U2,
            DType::U2 => DType::I2,
            DType::I4 => DType::U4,
            DType::U4 => DType::I4,
            DType::I8 => DType::U8,
            DType::U8 => DType::I8,
            _ => return None,
        };
        if let WeightExpr::FlipSign(of) = self.expr() {
            return Some(of.clone());
        }
        Some(Self::build(to, self.shape().to_vec(), WeightExpr::FlipSign(self.clone())))
    }

    /// The bytes of the elements, u8, of this shape. `None` where their number is another one, and for text.
    #[must_use]
    pub fn as_bytes(&self, shape: &[usize]) -> Option<Self> {
        let bytes = usize::try_from(self.bytes()).ok().filter(|_| self.dtype() != DType::String)?;
        let fits = super::elements_of(shape)? == bytes;
        fits.then(|| Self::build(DType::U8, shape.to_vec(), WeightExpr::Bytes(self.clone())))
    }

    /// The slices of `axis` with these indices, in this order. `None` where one is out of range, and for text.
    #[must_use]
    pub fn gather(&self, axis: usize, indices: &[usize]) -> Option<Self> {
        let size = *self.shape().get(axis)?;
        let mut shape = self.shape().to_vec();
        shape[axis] = indices.len();
        bytes_fit(self.dtype(), &shape).filter(|()| self.is_movable() && indices.iter().all(|i| *i < size))?;
        if indices.iter().copied().eq(0..size) {
            return Some(self.clone());
        }
        Some(Self::build(self.dtype(), shape, WeightExpr::Gather(self.clone(), axis, indices.into())))
    }

    /// Whether there is a scale for each channel, or one for all, and a zero point for each scale.
    fn has_channels(&self, channels: Channels, scales: &Self, zero_points: Option<&Self>, codes: DType) -> bool {
        let whole = scales.shape().is_empty() && matches!(channels, Channels::Axis(_));
        let fits = whole || channels.of(self.shape()).is_some_and(|shape| scales.shape() == shape);
        let zeros = zero_points
            .is_none_or(|zeros| zeros.dtype() == codes && zeros.shape() == scales.shape() && !is_float_code(codes));
        fits && zeros && scales.dtype().is_float()
    }
}

fn bytes_fit(dtype: DType, shape: &[usize]) -> Option<()> {
    Weight::size_of(dtype, shape).map(drop)
}

fn single(weight: &Weight) -> Result<Vec<f32>, WeightError> {
    Ok(singles(weight.dtype(), &weight.read()?, weight.elements()))
}

/// Elements of a type as f32.
pub(super) fn singles(dtype: DType, bytes: &[u8], elements: usize) -> Vec<f32> {
    let bytes = if dtype == DType::F32 { bytes } else { &convert::convert(dtype, DType::F32, bytes, elements) };
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// The fit whose scales, and zero points, these are, where it is one to the weight itself.
fn own_fit(parts: &[Weight], channels: Channels) -> Option<(&[Weight], fit::BlockFit)> {
    let WeightExpr::Fitted(of, fit, Fitted::Scales) = parts[1].expr() else { return None };
    let zeros = match parts.get(2).map(Weight::expr) {
        Some(WeightExpr::Fitted(zeros_of, zeros, Fitted::ZeroPoints)) => (zeros_of, zeros) == (of, fit),
        Some(_) => false,
        None => !fit.has_zero_points(),
    };
    (of[0] == parts[0] && fit.channels() == channels && zeros).then_some((of.as_slice(), *fit))
}

/// Streams the codes of `parts[0]` with the scales `parts[1]` and, perhaps, the zero points `parts[2]`.
pub(super) fn quantize(parts: &[Weight], channels: Channels, to: DType, sink: Sink<'_>) -> Result<(), WeightError> {
    if let Some((of, fit)) = own_fit(parts, channels).filter(|(_, fit)| fit.codes == to) {
        return fit::stream_codes(of, fit, sink);
    }
    let (of, scales) = (&parts[0], single(&parts[1])?);
    let zeros = parts.get(2).map(Weight::read_numbers).transpose()?.unwrap_or_else(|| vec![0.0; scales.len()]);
    let mut watch = Watch::new(NumberOf::Scales, parts[1].shape());
    let checked = watch.see(&scales).map_err(WeightError::Sink);
    watch.end(checked)?;
    let mut runs = Runs::new(of.shape(), channels, scales.len());
    let mut codes = CodeWriter::new(to);
    let each: &mut dyn FnMut(&[f32], Sink<'_>) -> io::Result<()> = &mut |elements, sink| {
        runs.pieces(elements, |at, piece| codes.encode(piece, scales[at], zeros[at]));
        codes.hand_on(sink)
    };
    finite::stream_finite(of, each, sink)?;
    Ok(codes.finish(sink)?)
}

/// Collects codes, and hands them on in pieces.
pub(super) struct CodeWriter {
    to: DType,
    /// For floating-point codes.
    encoder: Option<small::Encoder>,
    /// Codes of a packed type take a byte each.
    codes: Vec<u8>,
}

impl CodeWriter {
    pub(super) fn new(to: DType) -> Self {
        let encoder = code_range(to).is_none().then(|| small::Encoder::new(to));
        Self { to, encoder, codes: Vec::new() }
    }

    /// Where codes are appended, those of a packed type in a byte each.
    pub(super) fn unpacked(&mut self) -> &mut Vec<u8> {
        &mut self.codes
    }

    /// Appends the codes of elements.
    pub(super) fn encode(&mut self, elements: &[f32], scale: f32, zero: f64) {
        let out = &mut self.codes;
        if let Some(encoder) = &self.encoder {
            out.extend(elements.iter().map(|x| encoder.code(f64::from(x / scale))));
            return;
        }
        let (least, largest) = code_range(self.to).unwrap_or((0, 0));
        let (low, high, zero) = ((least as f64 - zero) as f32, (largest as f64 - zero) as f32, zero as f32);
        // What is not a number becomes the zero point.
        let wide = |x: &f32| {
            let t = (x / scale).round_ties_even().clamp(low, high);
            if t.is_nan() { zero } else { t + zero }
        };
        match self.to {
            DType::I16 | DType::U16 => {
                elements.iter().for_each(|x| out.extend_from_slice(&(wide(x) as i32 as u16).to_le_bytes()));
            }
            DType::I32 => elements.iter().for_each(|x| out.extend_from_slice(&(wide(x) as i32).to_le_bytes())),
            // The same for the integers that `ROUND` rounds, in vectors.
            _ => {
                let start = out.len();
                out.resize(start + elements.len(), 0);
                let zero = (zero as i32) as u8;
                vectors::widest(
                    #[inline(always)]
                    || {
                        for (code, x) in out[start..].iter_mut().zip(elements) {
                            let t = x / scale;
                            let t = if t.is_nan() { 0.0 } else { t };
                            let t = if t > low { t } else { low };
                            let t = if t < high { t } else { high };
                            // The last bits of the sum are those of the integer.
                            *code = ((t + ROUND).to_bits() as u8).wrapping_add(zero);
                        }
                    },
                );
            }
        }
    }

    /// Hands on the codes, once they are a piece.
    pub(super) fn hand_on(&mut self, sink: Sink<'_>) -> io::Result<()> {
        if self.codes.len() < CHUNK_BYTES {
            return Ok(());
        }
        // Elements that share a byte are handed on together.
        let whole = self.codes.len() - self.codes.len() % self.to.group();
        self.write(whole, sink)?;
        self.codes.drain(..whole);
        Ok(())
    }

    /// Hands on what is left.
    pub(super) fn finish(self, sink: Sink<'_>) -> io::Result<()> {
        self.write(self.codes.len(), sink)
    }

    fn write(&self, codes: usize, sink: Sink<'_>) -> io::Result<()> {
        let codes = &self.codes[..codes];
        match self.to.is_packed() {
            true => small::pack(self.to.bits(), codes).chunks(CHUNK_BYTES).try_for_each(sink),
            false => codes.chunks(CHUNK_BYTES).try_for_each(sink),
        }
    }
}

/// Streams the numbers that the codes `parts[0]` stand for.
pub(super) fn dequantize(parts: &[Weight], channels: Channels, to: DType, sink: Sink<'_>) -> Result<(), WeightError> {
    let (of, scales) = (&parts[0], single(&parts[1])?);
    let zeros = parts.get(2).map(Weight::read_numbers).transpose()?.unwrap_or_else(|| vec![0.0; scales.len()]);
    let mut runs = Runs::new(of.shape(), channels, scales.len());
    let mut left = of.elements();
    of.stream(&mut |bytes| {
        // The last byte of a packed type may be filled up.
        let elements = left.min(bytes.len() * 8 / of.dtype().bits());
        left -= elements;
        let codes = convert::decode(of.dtype(), bytes, elements);
        let mut out: Vec<u8> = Vec::with_capacity(elements * 4);
        runs.pieces(&codes, |at, piece| {
            let (scale, zero) = (scales[at], zeros[at]);
            piece.iter().for_each(|code| out.extend_from_slice(&((code - zero) as f32 * scale).to_le_bytes()));
        });
        let out = if to == DType::F32 { out } else { convert::convert(DType::F32, to, &out, elements) };
        out.chunks(CHUNK_BYTES).try_for_each(&mut *sink)
    })
}

/// Streams codes with the highest bit of each changed.
pub(super) fn flip_sign(of: &Weight, sink: Sink<'_>) -> Result<(), WeightError> {
    let mask = match of.dtype().bits() {
        2 => 0b1010_1010,
        4 => 0x88,
        _ => 0x80,
    };
    // The bits that fill up the last byte stay 0.
    let filled = of.elements() * of.dtype().bits() % 8;
    let mut left = of.bytes();
    of.stream(&mut |bytes| {
        let mut flipped: Vec<u8> = bytes.iter().map(|byte| byte ^ mask).collect();
        left -= bytes.len() as u64;
        if let (0, 1.., Some(last)) = (left, filled, flipped.last_mut()) {
            *last &= u8::MAX >> (8 - filled);
        }
        sink(&flipped)
    })
}

/// Streams `parts[0]` with each element times the factor of its index along `axis`.
pub(super) fn scale(parts: &[Weight], axis: usize, sink: Sink<'_>) -> Result<(), WeightError> {
    let (of, factors) = (&parts[0], parts[1].read_numbers()?);
    let mut runs = Runs::new(of.shape(), Channels::Axis(axis), factors.len());
    of.stream(&mut |bytes| {
        let numbers = convert::decode(of.dtype(), bytes, bytes.len() / of.dtype().size());
        let mut out = Vec::with_capacity(numbers.len());
        runs.pieces(&numbers, |channel, piece| out.extend(piece.iter().map(|x| x * factors[channel])));
        convert::encode(of.dtype(), &out).chunks(CHUNK_BYTES).try_for_each(&mut *sink)
    })
}

/// Streams one over the norms of the slices of an axis, which are summed in f64.
pub(super) fn inverse_norms(of: &Weight, axis: usize, sink: Sink<'_>) -> Result<(), WeightError> {
    let mut squares = vec![0f64; of.shape()[axis]];
    let mut runs = Runs::new(of.shape(), Channels::Axis(axis), squares.len());
    of.stream(&mut |bytes| {
        let numbers = convert::decode(of.dtype(), bytes, bytes.len() / of.dtype().size());
        runs.pieces(&numbers, |channel, piece| squares[channel] += piece.iter().map(|x| x * x).sum::<f64>());
        Ok(())
    })?;
    let inverse: Vec<f64> = squares.iter().map(|square| 1.0 / square.sqrt()).collect();
    Ok(sink(&convert::encode(DType::F32, &inverse))?)
}

/// Streams the slices of an axis of `of` with these indices.
pub(super) fn gather(of: &Weight, axis: usize, indices: &[usize], sink: Sink<'_>) -> Result<(), WeightError> {
    let bytes = of.read()?;
    let run = of.shape()[axis + 1..].iter().product::<usize>() * of.dtype().size();
    let rows: usize = of.shape()[..axis].iter().product();
    let row = run * of.shape()[axis];
    let mut out = Vec::with_capacity(CHUNK_BYTES.min(rows * run * indices.len()));
    for start in (0..rows).map(|i| i * row) {
        for &index in indices {
            out.extend_from_slice(&bytes[start + index * run..][..run]);
            if out.len() >= CHUNK_BYTES {
                sink(&out)?;
                out.clear();
            }
        }
    }
    if out.is_empty() { Ok(()) } else { Ok(sink(&out)?) }
}
