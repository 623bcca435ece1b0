//! Evaluation of weight expressions to bytes.

use std::io;

use super::{NotFinite, StoredRange, Weight, WeightExpr, codes, convert, fit, low_rank, packed, pad, unpack};
use crate::DType;

/// The most bytes handed to a sink at once, unless a transform has to hold a whole tensor. A piece
/// of this size stays in a core's cache between reading and writing (docs/measurements.md).
pub const CHUNK_BYTES: usize = 256 << 10;

/// A weight could not be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// The bytes could not be read.
    #[error("cannot read {bytes} bytes at offset {offset} of {file}: {cause}")]
    Read {
        /// The file's name.
        file: String,
        /// Where reading began.
        offset: u64,
        /// How much was asked for.
        bytes: usize,
        /// What the system said.
        cause: io::Error,
    },
    /// The elements are of a type that what reads them does not have.
    #[error("planish cannot compute with elements of type {dtype}")]
    Elements {
        /// The type.
        dtype: DType,
    },
    /// The weight is larger than memory.
    #[error("{bytes} bytes do not fit in memory")]
    Memory {
        /// Its size.
        bytes: u64,
    },
    /// A number is NaN or infinite, and codes are made of the weight or stand for it.
    #[error("{0}")]
    NotFinite(NotFinite),
    /// The receiver of the bytes failed.
    #[error(transparent)]
    Sink(#[from] io::Error),
}

pub(super) type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

impl StoredRange {
    /// Fills `buffer` from the byte `at` of the range on.
    ///
    /// # Errors
    /// When the bytes cannot be read.
    pub fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<(), WeightError> {
        let offset = self.offset.saturating_add(at);
        self.source.read_at(offset, buffer).map_err(|cause| WeightError::Read {
            file: self.source.name().to_owned(),
            offset,
            bytes: buffer.len(),
            cause,
        })
    }
}

impl Weight {
    /// Hands the weight's bytes to `sink`, first to last, in pieces of at most [`CHUNK_BYTES`]
    /// where no transform needs the whole.
    ///
    /// # Errors
    /// When bytes cannot be read, or the sink fails.
    pub fn stream(&self, sink: Sink<'_>) -> Result<(), WeightError> {
        match self.expr() {
            WeightExpr::Stored(range) => {
                let mut buffer = vec![0; usize::try_from(self.bytes()).unwrap_or(usize::MAX).min(CHUNK_BYTES)];
                let (mut offset, end) = (0, self.bytes());
                while offset < end {
                    let n = buffer.len().min(usize::try_from(end - offset).unwrap_or(usize::MAX));
                    let piece = &mut buffer[..n];
                    range.read_at(offset, piece)?;
                    sink(piece)?;
                    offset += n as u64;
                }
                Ok(())
            }
            WeightExpr::Inline(bytes) => Ok(sink(bytes)?),
            WeightExpr::Uniform(seed) => uniform(self.dtype(), self.elements(), *seed, sink),
            WeightExpr::Cast(of) if of.dtype().is_packed() || self.dtype().is_packed() => {
                let bytes = convert::convert(of.dtype(), self.dtype(), &of.read()?, self.elements());
                Ok(bytes.chunks(CHUNK_BYTES).try_for_each(&mut *sink)?)
            }
            WeightExpr::Cast(of) => of.stream(&mut |bytes| {
                let elements = bytes.len() / of.dtype().size();
                convert::convert(of.dtype(), self.dtype(), bytes, elements).chunks(CHUNK_BYTES).try_for_each(&mut *sink)
            }),
            WeightExpr::Reshape(of) | WeightExpr::Bytes(of) => of.stream(sink),
            WeightExpr::Concat(parts, 0) if parts.iter().rev().skip(1).all(Self::fills_bytes) => {
                parts.iter().try_for_each(|part| part.stream(sink))
            }
            expr if self.dtype().is_packed() && expr.moves_elements() => {
                Ok(packed::pack(self)?.chunks(CHUNK_BYTES).try_for_each(&mut *sink)?)
            }
            WeightExpr::Transpose(of, perm) => {
                let bytes = of.read()?;
                Ok(sink(&transpose(&bytes, of.shape(), perm, self.dtype().size()))?)
            }
            WeightExpr::Pad(of, value) => pad::stream(of, self.shape(), value.0, sink),
            WeightExpr::Quantize(parts, channels) => codes::quantize(parts, *channels, self.dtype(), sink),
            WeightExpr::Dequantize(parts, channels) => codes::dequantize(parts, *channels, self.dtype(), sink),
            WeightExpr::Fitted(parts, fit, part) => fit::stream(parts, *fit, *part, sink),
            WeightExpr::FlipSign(of) => codes::flip_sign(of, sink),
            WeightExpr::Scale(parts, axis) => codes::scale(parts, *axis, sink),
            WeightExpr::InverseNorms(of, axis) => codes::inverse_norms(of, *axis, sink),
            WeightExpr::PlusProduct(parts) => low_rank::stream(parts, sink),
            WeightExpr::Gather(of, axis, indices) => codes::gather(of, *axis, indices, sink),
            WeightExpr::Unpack(parts, packing) => unpack::stream(parts, *packing, self.dtype(), sink),
            WeightExpr::Concat(parts, axis) => {
                let read: Vec<(Vec<u8>, usize)> = parts
                    .iter()
                    .map(|part| {
                        let row: usize = part.shape()[*axis..].iter().product();
                        Ok((part.read()?, row * part.dtype().size()))
                    })
                    .collect::<Result<_, WeightError>>()?;
                let rows: usize = self.shape()[..*axis].iter().product();
                for row in 0..rows {
                    for (bytes, length) in &read {
                        sink(&bytes[row * length..(row + 1) * length])?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Whether its last byte has as many elements as the others.
    fn fills_bytes(&self) -> bool {
        (self.elements() % 8 * self.dtype().bits()).is_multiple_of(8)
    }

    /// The weight's bytes, all at once.
    ///
    /// # Errors
    /// When bytes cannot be read, or do not fit in memory.
    pub fn read(&self) -> Result<Vec<u8>, WeightError> {
        let mut out = Vec::new();
        let room = usize::try_from(self.bytes()).is_ok_and(|bytes| out.try_reserve_exact(bytes).is_ok());
        if !room {
            return Err(WeightError::Memory { bytes: self.bytes() });
        }
        self.stream(&mut |bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(out)
    }

    /// The number, where the weight has one element, and that can be read.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        if self.elements() != 1 {
            return None;
        }
        self.read_numbers().ok()?.first().copied()
    }

    /// The weight's numbers as `f64`.
    ///
    /// # Errors
    /// When bytes cannot be read, or do not fit in memory.
    pub fn read_numbers(&self) -> Result<Vec<f64>, WeightError> {
        Ok(convert::decode(self.dtype(), &self.read()?, self.elements()))
    }
}

/// Moves elements of `size` bytes so that dimension `i` of the result is dimension `perm[i]`.
pub(super) fn transpose(bytes: &[u8], shape: &[usize], perm: &[usize], size: usize) -> Vec<u8> {
    let mut strides = vec![size; shape.len()];
    for i in (0..shape.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1] * shape[i + 1];
    }
    let dims: Vec<usize> = perm.iter().map(|&p| shape[p]).collect();
    let steps: Vec<usize> = perm.iter().map(|&p| strides[p]).collect();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = vec![0; dims.len()];
    let mut at = 0;
    while out.len() < bytes.len() {
        out.extend_from_slice(&bytes[at..at + size]);
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            at += steps[axis];
            if index[axis] < dims[axis] {
                break;
            }
            at -= steps[axis] * dims[axis];
            index[axis] = 0;
        }
    }
    out
}

/// Splitmix64 as uniform numbers in [-1, 1).
fn uniform(dtype: DType, elements: usize, seed: u64, sink: Sink<'_>) -> Result<(), WeightError> {
    let mut state = seed;
    let mut left = elements;
    while left > 0 {
        let n = left.min(CHUNK_BYTES / dtype.size());
        let numbers: Vec<f64> = (0..n)
            .map(|_| {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = state;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^= z >> 31;
                (z >> 11) as f64 / (1u64 << 52) as f64 - 1.0
            })
            .collect();
        sink(&convert::encode(dtype, &numbers))?;
        left -= n;
    }
    Ok(())
}
