//! Elements of one number appended at the end of dimensions, while the others are streamed.

use std::io;

use super::read::{Sink, WeightError};
use super::{CHUNK_BYTES, Weight, convert};
use crate::DType;

/// The number as an element of a type holds it; a finite one stays finite.
pub(super) fn nearest(dtype: DType, value: f64) -> f64 {
    let bounded = match dtype.finite_min() {
        Some(least) if value.is_finite() => value.clamp(least, -least),
        _ => value,
    };
    let held = convert::decode(dtype, &convert::encode(dtype, &[bounded]), 1);
    held.first().copied().filter(|held| !held.is_nan()).unwrap_or(f64::NAN)
}

/// Streams `of` padded to `shape`, a shape of the same rank and no smaller, in pieces of at most
/// [`CHUNK_BYTES`].
pub(super) fn stream(of: &Weight, shape: &[usize], value: f64, sink: Sink<'_>) -> Result<(), WeightError> {
    let element = convert::encode(of.dtype(), &[value]);
    let mut out = Pieces { sink, buffer: Vec::new(), element };
    if of.elements() == 0 {
        out.fill(shape.iter().product())?;
    } else {
        let mut walk = Walk::new(of, shape);
        of.stream(&mut |bytes| walk.take(bytes, &mut out))?;
    }
    Ok(out.flush()?)
}

/// Where in a weight that is padded its elements go on.
struct Walk<'a> {
    /// The dimensions without padding, up to the last one that grows: at the end of each, elements
    /// are appended.
    sizes: &'a [usize],
    /// How many elements are appended at the end of each.
    appended: Vec<usize>,
    /// How much of each but the last was taken.
    index: Vec<usize>,
    /// The bytes that are together: all of the last dimension that grows.
    run: usize,
    /// How many of them are to come.
    left: usize,
}

impl<'a> Walk<'a> {
    fn new(of: &'a Weight, shape: &[usize]) -> Self {
        let rank = of.shape().iter().zip(shape).rposition(|(old, new)| old != new).map_or(0, |last| last + 1);
        let sizes = &of.shape()[..rank];
        let below = |axis: usize| shape[axis + 1..].iter().product::<usize>();
        let appended = (0..rank).map(|axis| (shape[axis] - sizes[axis]) * below(axis)).collect();
        let run = of.shape()[rank.saturating_sub(1)..].iter().product::<usize>() * of.dtype().size();
        Self { sizes, appended, index: vec![0; rank], run, left: run }
    }

    fn take(&mut self, mut bytes: &[u8], out: &mut Pieces<'_>) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.left));
            out.write(now)?;
            (bytes, self.left) = (later, self.left - now.len());
            if self.left == 0 {
                self.left = self.run;
                self.append(out)?;
            }
        }
        Ok(())
    }

    /// Appends what follows a run: the end of its dimension, and of those around it that end too.
    fn append(&mut self, out: &mut Pieces<'_>) -> io::Result<()> {
        for axis in (0..self.sizes.len()).rev() {
            if axis + 1 < self.sizes.len() {
                self.index[axis] += 1;
                if self.index[axis] < self.sizes[axis] {
                    return Ok(());
                }
                self.index[axis] = 0;
            }
            out.fill(self.appended[axis])?;
        }
        Ok(())
    }
}

/// Collects bytes, and hands them on in pieces.
struct Pieces<'a> {
    sink: Sink<'a>,
    buffer: Vec<u8>,
    /// What is appended.
    element: Vec<u8>,
}

impl Pieces<'_> {
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.room()?));
            self.buffer.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    fn fill(&mut self, elements: usize) -> io::Result<()> {
        let mut left = elements;
        while left > 0 {
            // Pieces are of whole elements, whatever their type: there is room for one.
            let now = left.min(self.room()? / self.element.len()).max(1);
            (0..now).for_each(|_| self.buffer.extend_from_slice(&self.element));
            left -= now;
        }
        Ok(())
    }

    /// How many bytes fit into the piece; hands on one that is full.
    fn room(&mut self) -> io::Result<usize> {
        if self.buffer.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(CHUNK_BYTES - self.buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = if self.buffer.is_empty() { Ok(()) } else { (self.sink)(&self.buffer) };
        self.buffer.clear();
        result
    }
}
