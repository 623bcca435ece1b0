//! The elements of weights, read and compared piece by piece.

use planish_ir::weight::{CHUNK_BYTES, StoredRange, WeightExpr};
use planish_ir::{Value, Weight};
use rayon::prelude::*;

use crate::PassError;

/// How many elements are compared before all are.
pub(super) const SAMPLES: usize = 8;

/// The most bytes of a weight that is read although all its samples are the same element.
const MOST_CONSTANT_BYTES: u64 = 4 << 20;

/// The most elements of the tiles in which a matrix is compared with another's transpose.
const TILE: usize = 1 << 17;

/// The most columns of these tiles.
const COLUMNS: usize = 1024;

/// A weight whose elements can be read where they are.
pub(super) struct Elements<'a> {
    pub(super) weight: &'a Weight,
    /// What errors name.
    value: &'a Value,
    bytes: Bytes<'a>,
}

enum Bytes<'a> {
    Stored(&'a StoredRange),
    Inline(&'a [u8]),
}

impl<'a> Elements<'a> {
    /// The elements of a weight that is bytes of a file or in memory, and in which value it was found.
    pub(super) fn of(weight: &'a Weight, value: &'a Value) -> Option<Self> {
        let bytes = match weight.expr() {
            WeightExpr::Stored(range) => Bytes::Stored(range),
            WeightExpr::Inline(bytes) => Bytes::Inline(bytes),
            _ => return None,
        };
        Some(Self { weight, value, bytes })
    }

    fn size(&self) -> usize {
        self.weight.dtype().size()
    }

    /// Fills `buffer` from an element on.
    fn read(&self, element: usize, buffer: &mut [u8]) -> Result<(), PassError> {
        let at = element * self.size();
        match self.bytes {
            Bytes::Stored(range) => range.read_at(at as u64, buffer).map_err(|source| PassError::Weight {
                name: self.value.name.clone(),
                origin: self.value.origin.clone(),
                source,
            })?,
            Bytes::Inline(bytes) => buffer.copy_from_slice(&bytes[at..at + buffer.len()]),
        }
        Ok(())
    }

    /// One of a few elements, zeros after it; the same one of a matrix and of its transpose.
    pub(super) fn sample(&self, sample: usize) -> Result<[u8; 8], PassError> {
        let place = |length: usize| (2 * sample + 1) * length / (2 * SAMPLES);
        let element = match self.weight.shape() {
            &[rows, columns] => place(rows) * columns + place(columns),
            _ => place(self.weight.elements()),
        };
        let mut bytes = [0; 8];
        self.read(element, &mut bytes[..self.size()])?;
        Ok(bytes)
    }

    /// Whether equal samples are a reason to read this weight. Those of a constant are equal to those of any other
    /// with the same number; what is stored twice, say a table of tokens, has different elements.
    pub(super) fn is_worth_reading(&self) -> Result<bool, PassError> {
        if self.weight.bytes() <= MOST_CONSTANT_BYTES {
            return Ok(true);
        }
        let first = self.sample(0)?;
        (1..SAMPLES).try_fold(false, |differs, sample| Ok(differs || self.sample(sample)? != first))
    }

    /// The other weight or its transpose, where that is what this one holds.
    pub(super) fn in_terms_of(&self, other: &Self) -> Result<Option<Weight>, PassError> {
        if self.weight.shape() == other.weight.shape() && self.is_same(other)? {
            return Ok(Some(other.weight.clone()));
        }
        let transposes = match (self.weight.shape(), other.weight.shape()) {
            (&[rows, columns], &[a, b]) if [rows, columns] != [b, a] => false,
            // Rows of a tall matrix are read several at once.
            (&[rows, columns], _) if rows < columns => other.is_transpose(self, [columns, rows])?,
            (&[rows, columns], _) => self.is_transpose(other, [rows, columns])?,
            _ => false,
        };
        Ok(if transposes { other.weight.transpose(&[1, 0]) } else { None })
    }

    fn is_same(&self, other: &Self) -> Result<bool, PassError> {
        let (count, piece) = (self.weight.elements(), CHUNK_BYTES / self.size());
        let [mut a, mut b] = [(); 2].map(|()| vec![0; piece.min(count) * self.size()]);
        for first in (0..count).step_by(piece) {
            let bytes = piece.min(count - first) * self.size();
            self.read(first, &mut a[..bytes])?;
            other.read(first, &mut b[..bytes])?;
            if a[..bytes] != b[..bytes] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_transpose(&self, other: &Self, [rows, columns]: [usize; 2]) -> Result<bool, PassError> {
        let width = columns.clamp(1, COLUMNS);
        let height = TILE / width;
        let tiles = (0..rows).step_by(height).flat_map(|row| (0..columns).step_by(width).map(move |c| [row, c]));
        let tiles: Vec<[usize; 2]> = tiles.collect();
        let compared = tiles.into_par_iter().map_init(Default::default, |(a, b), [row, column]| {
            let size = [height.min(rows - row), width.min(columns - column)];
            self.tile(columns, [row, column], size, a)?;
            other.tile(rows, [column, row], [size[1], size[0]], b)?;
            Ok(match self.size() {
                1 => transposes::<1>(a, b, size),
                2 => transposes::<2>(a, b, size),
                4 => transposes::<4>(a, b, size),
                _ => transposes::<8>(a, b, size),
            })
        });
        compared.find_any(|same| !matches!(same, Ok(true))).unwrap_or(Ok(true))
    }

    /// A tile of a matrix of this width, row by row.
    fn tile(
        &self,
        width: usize,
        [row, column]: [usize; 2],
        [height, length]: [usize; 2],
        tile: &mut Vec<u8>,
    ) -> Result<(), PassError> {
        tile.resize(height * length * self.size(), 0);
        if length == width {
            return self.read(row * width, tile);
        }
        let pieces = tile.chunks_exact_mut(length * self.size());
        pieces.enumerate().try_for_each(|(i, piece)| self.read((row + i) * width + column, piece))
    }
}

/// Whether a matrix of elements of `N` bytes is the transpose of another.
fn transposes<const N: usize>(a: &[u8], b: &[u8], [rows, columns]: [usize; 2]) -> bool {
    let (a, b) = (a.as_chunks::<N>().0, b.as_chunks::<N>().0);
    (0..rows).all(|i| (0..columns).all(|j| a[i * columns + j] == b[j * rows + i]))
}
