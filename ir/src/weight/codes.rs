//! Weights as codes with scales, as quantization stores them, and elements scaled or picked along an axis.

use std::io;

use super::read::{Sink, WeightError};
use super::{CHUNK_BYTES, Weight, WeightExpr, convert, small};
use crate::DType;

/// A weight that is codes with scales: element `x` is `(code - zero point) * scale` of its channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dequantized {
    /// The codes, of the shape of the weight.
    pub codes: Weight,
    /// One scale for each channel, `[channels]`, or one for all, `[]`.
    pub scales: Weight,
    /// Zero points of the shape of the scales, in the type of the codes; 0 where absent.
    pub zero_points: Option<Weight>,
    /// The dimension of the channels.
    pub axis: usize,
}

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
    /// point, saturated. `scales` are floats, one for each index of `axis` or one for all; `zero_points` are codes.
    /// `None` where types or shapes do not fit.
    #[must_use]
    pub fn quantize(&self, to: DType, axis: usize, scales: &Self, zero_points: Option<&Self>) -> Option<Self> {
        let fits = self.dtype().is_float() && is_code(to) && self.has_channels(axis, scales, zero_points, to);
        bytes_fit(to, self.shape()).filter(|()| fits)?;
        let parts = [self, scales].into_iter().chain(zero_points).cloned().collect();
        Some(Self::build(to, self.shape().to_vec(), WeightExpr::Quantize(parts, axis)))
    }

    /// The numbers that codes stand for, in the type of the scales: `(code - zero point) * scale`, computed in f32 and
    /// rounded once more. `None` where types or shapes do not fit.
    #[must_use]
    pub fn dequantize(&self, axis: usize, scales: &Self, zero_points: Option<&Self>) -> Option<Self> {
        let fits = is_code(self.dtype()) && self.has_channels(axis, scales, zero_points, self.dtype());
        bytes_fit(scales.dtype(), self.shape()).filter(|()| fits)?;
        let parts = [self, scales].into_iter().chain(zero_points).cloned().collect();
        Some(Self::build(scales.dtype(), self.shape().to_vec(), WeightExpr::Dequantize(parts, axis)))
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

    /// The slices of `axis` with these indices, in this order. `None` where one is out of range, and for elements that do
    /// not begin at bytes of their own.
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
    fn has_channels(&self, axis: usize, scales: &Self, zero_points: Option<&Self>, codes: DType) -> bool {
        let channels = self.shape().get(axis);
        let whole = scales.shape().is_empty();
        let fits = whole || channels.is_some_and(|channels| scales.shape() == [*channels]);
        let zeros = zero_points
            .is_none_or(|zeros| zeros.dtype() == codes && zeros.shape() == scales.shape() && !is_float_code(codes));
        fits && zeros && scales.dtype().is_float()
    }

    /// The codes and scales that the weight is made of, where it is: transforms that only move elements, and conversion
    /// to another floating-point type, are applied to the codes and the scales.
    #[must_use]
    pub fn as_dequantized(&self) -> Option<Dequantized> {
        match self.expr() {
            WeightExpr::Dequantize(parts, axis) => Some(Dequantized {
                codes: parts[0].clone(),
                scales: parts[1].clone(),
                zero_points: parts.get(2).cloned(),
                axis: *axis,
            }),
            WeightExpr::Cast(of) if self.dtype().is_float() => {
                let of = of.as_dequantized()?;
                Some(Dequantized { scales: of.scales.cast(self.dtype())?, ..of })
            }
            WeightExpr::Transpose(of, perm) => {
                let of = of.as_dequantized()?;
                let codes = of.codes.transpose(perm)?;
                Some(match of.scales.shape() {
                    [] => Dequantized { codes, ..of },
                    _ => Dequantized { codes, axis: perm.iter().position(|p| *p == of.axis)?, ..of },
                })
            }
            WeightExpr::Gather(of, axis, indices) => {
                let of = of.as_dequantized()?;
                let codes = of.codes.gather(*axis, indices)?;
                Some(match *axis == of.axis && !of.scales.shape().is_empty() {
                    true => Dequantized { codes, ..of.channels(&mut |w| w.gather(0, indices))? },
                    false => Dequantized { codes, ..of },
                })
            }
            // A code of 0 is the number 0.
            WeightExpr::Pad(of, value) if value.0 == 0.0 => {
                let of = of.as_dequantized().filter(|of| of.zero_points.is_none())?;
                let codes = of.codes.pad(self.shape(), 0.0)?;
                Some(match of.scales.shape() {
                    [] => Dequantized { codes, ..of },
                    _ => Dequantized { codes, scales: of.scales.pad(&[self.shape()[of.axis]], 1.0)?, ..of },
                })
            }
            WeightExpr::Concat(parts, axis) => {
                let parts: Vec<Dequantized> = parts.iter().map(Self::as_dequantized).collect::<Option<_>>()?;
                let first = parts.first()?;
                let codes = Self::concat(&parts.iter().map(|p| p.codes.clone()).collect::<Vec<_>>(), *axis)?;
                let alike = |p: &Dequantized| {
                    (&p.scales, &p.zero_points, p.axis) == (&first.scales, &first.zero_points, first.axis)
                };
                if parts.iter().all(alike) && (*axis != first.axis || first.scales.shape().is_empty()) {
                    return Some(Dequantized { codes, ..first.clone() });
                }
                let joined =
                    |p: &Dequantized| p.axis == *axis && p.zero_points.is_some() == first.zero_points.is_some();
                let join = |of: &dyn Fn(&Dequantized) -> Option<Weight>| {
                    Self::concat(&parts.iter().map(of).collect::<Option<Vec<_>>>()?, 0)
                };
                let fits = parts.iter().all(joined);
                let zero_points = match &first.zero_points {
                    Some(_) => Some(join(&|p| p.zero_points.clone())?),
                    None => None,
                };
                fits.then_some(())?;
                Some(Dequantized { codes, scales: join(&|p| Some(p.scales.clone()))?, zero_points, axis: *axis })
            }
            _ => None,
        }
    }
}

impl Dequantized {
    /// With another vector of scales and of zero points.
    fn channels(&self, f: &mut dyn FnMut(&Weight) -> Option<Weight>) -> Option<Self> {
        let zero_points = match &self.zero_points {
            Some(zeros) => Some(f(zeros)?),
            None => None,
        };
        Some(Self { scales: f(&self.scales)?, zero_points, ..self.clone() })
    }
}

fn bytes_fit(dtype: DType, shape: &[usize]) -> Option<()> {
    Weight::size_of(dtype, shape).map(drop)
}

/// Which channel each element belongs to, from the first element on.
struct Channels {
    /// How many elements in a row have the same channel.
    run: usize,
    count: usize,
    /// The next element.
    at: usize,
}

impl Channels {
    fn new(of: &Weight, axis: usize, count: usize) -> Self {
        let run = if count == 1 { usize::MAX } else { of.shape()[axis + 1..].iter().product() };
        Self { run, count, at: 0 }
    }

    /// Calls `f` on the pieces of the next elements that are of one channel, with the channel.
    fn pieces<T>(&mut self, mut elements: &[T], mut f: impl FnMut(usize, &[T])) {
        while !elements.is_empty() {
            let left = self.run - self.at % self.run;
            let (now, later) = elements.split_at(elements.len().min(left));
            f(self.at / self.run % self.count, now);
            (self.at, elements) = (self.at + now.len(), later);
        }
    }
}

fn single(weight: &Weight) -> Result<Vec<f32>, WeightError> {
    Ok(singles(weight.dtype(), &weight.read()?, weight.elements()))
}

/// Elements of a type as f32.
fn singles(dtype: DType, bytes: &[u8], elements: usize) -> Vec<f32> {
    let bytes = if dtype == DType::F32 { bytes } else { &convert::convert(dtype, DType::F32, bytes, elements) };
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Streams the codes of `parts[0]` with the scales `parts[1]` and, perhaps, the zero points `parts[2]`.
pub(super) fn quantize(parts: &[Weight], axis: usize, to: DType, sink: Sink<'_>) -> Result<(), WeightError> {
    let (of, scales) = (&parts[0], single(&parts[1])?);
    let zeros = parts.get(2).map(Weight::read_numbers).transpose()?.unwrap_or_else(|| vec![0.0; scales.len()]);
    let mut channels = Channels::new(of, axis, scales.len());
    let mut packed = Vec::new();
    of.stream(&mut |bytes| {
        let elements = singles(of.dtype(), bytes, bytes.len() / of.dtype().size());
        let mut out = Vec::with_capacity(elements.len() * to.size().max(1));
        channels.pieces(&elements, |channel, piece| encode(piece, scales[channel], zeros[channel], to, &mut out));
        match to.is_packed() {
            true => {
                packed.extend_from_slice(&out);
                Ok(())
            }
            false => out.chunks(CHUNK_BYTES).try_for_each(&mut *sink),
        }
    })?;
    // Elements that share bytes are put together when all are there.
    if to.is_packed() { Ok(sink(&small::pack(to.bits(), &packed))?) } else { Ok(()) }
}

/// Appends the codes of elements; those of a packed type take a byte each.
fn encode(elements: &[f32], scale: f32, zero: f64, to: DType, out: &mut Vec<u8>) {
    let Some((least, largest)) = code_range(to) else {
        let encoder = small::Encoder::new(to);
        out.extend(elements.iter().map(|x| encoder.code(f64::from(x / scale))));
        return;
    };
    let (low, high, zero) = ((least as f64 - zero) as f32, (largest as f64 - zero) as f32, zero as f32);
    // What is not a number becomes the zero point.
    let code = |x: &f32| {
        let t = (x / scale).round_ties_even().clamp(low, high);
        if t.is_nan() { zero } else { t + zero }
    };
    match to {
        DType::I16 | DType::U16 => {
            elements.iter().for_each(|x| out.extend_from_slice(&(code(x) as i32 as u16).to_le_bytes()))
        }
        DType::I32 => elements.iter().for_each(|x| out.extend_from_slice(&(code(x) as i32).to_le_bytes())),
        _ => out.extend(elements.iter().map(|x| code(x) as i32 as u8)),
    }
}

/// Streams the numbers that the codes `parts[0]` stand for.
pub(super) fn dequantize(parts: &[Weight], axis: usize, to: DType, sink: Sink<'_>) -> Result<(), WeightError> {
    let (of, scales) = (&parts[0], single(&parts[1])?);
    let zeros = parts.get(2).map(Weight::read_numbers).transpose()?.unwrap_or_else(|| vec![0.0; scales.len()]);
    let mut channels = Channels::new(of, axis, scales.len());
    let mut numbers = |codes: &[f64], sink: Sink<'_>| -> io::Result<()> {
        let mut out: Vec<u8> = Vec::with_capacity(codes.len() * 4);
        channels.pieces(codes, |channel, piece| {
            let (scale, zero) = (scales[channel], zeros[channel]);
            piece.iter().for_each(|code| out.extend_from_slice(&((code - zero) as f32 * scale).to_le_bytes()));
        });
        let out = if to == DType::F32 { out } else { convert::convert(DType::F32, to, &out, codes.len()) };
        out.chunks(CHUNK_BYTES).try_for_each(&mut *sink)
    };
    if of.dtype().is_packed() {
        return Ok(numbers(&of.read_numbers()?, sink)?);
    }
    of.stream(&mut |bytes| numbers(&convert::decode(of.dtype(), bytes, bytes.len() / of.dtype().size()), sink))
}

/// Streams `parts[0]` with each element times the factor of its index along `axis`.
pub(super) fn scale(parts: &[Weight], axis: usize, sink: Sink<'_>) -> Result<(), WeightError> {
    let (of, factors) = (&parts[0], parts[1].read_numbers()?);
    let mut channels = Channels::new(of, axis, factors.len());
    of.stream(&mut |bytes| {
        let numbers = convert::decode(of.dtype(), bytes, bytes.len() / of.dtype().size());
        let mut out = Vec::with_capacity(numbers.len());
        channels.pieces(&numbers, |channel, piece| out.extend(piece.iter().map(|x| x * factors[channel])));
        convert::encode(of.dtype(), &out).chunks(CHUNK_BYTES).try_for_each(&mut *sink)
    })
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
