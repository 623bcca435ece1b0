//! A sample of the rows of an input.

use half::f16;

/// How many rows a sample has at most. With 96 rows, the table of a model with 16,512 columns in all has 4.6 MB.
pub const ROWS: usize = 96;

/// Which row of the data a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowId {
    /// The index of the sample in the data.
    pub sample: u64,
    /// The index of the row among those that the sample has in this input, padding included.
    pub token: u64,
}

impl RowId {
    /// The order in which rows are chosen: by hash. It does not depend on the input, so that samples of inputs with
    /// the same tokens have the same tokens.
    fn key(self) -> (u64, Self) {
        (mixed(mixed(self.sample) ^ self.token), self)
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A row in float16 with a power of two as scale: each element within 2^-11 of its magnitude, or within 2^-40 of the
/// largest magnitude of the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledRow {
    /// Which row it is.
    pub id: RowId,
    /// The elements are `halves` times 2 to this power.
    pub exponent: i16,
    /// The bits of float16 numbers.
    pub halves: Vec<u16>,
}

impl SampledRow {
    fn new(id: RowId, row: &[f32]) -> Self {
        let largest = row.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        // Then the largest element lies between 2^14 and 2^15.
        let exponent = if largest == 0.0 { 0 } else { exponent(largest) - 14 };
        let scale = f64::from(-exponent).exp2();
        let halves = row.iter().map(|x| f16::from_f64(f64::from(*x) * scale).to_bits()).collect();
        Self { id, exponent, halves }
    }

    /// The elements.
    pub fn values(&self) -> impl ExactSizeIterator<Item = f32> {
        let scale = f64::from(self.exponent).exp2();
        self.halves.iter().map(move |half| (f64::from(f16::from_bits(*half).to_f32()) * scale) as f32)
    }
}

/// The power of two at or below a positive number.
fn exponent(x: f32) -> i16 {
    // Every float32 is a normal float64.
    ((f64::from(x).to_bits() >> 52) as i16) - 1023
}

/// The rows whose identities have the least hashes: a sample that does not depend on how the data is divided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledRows {
    /// By their hashes.
    rows: Vec<SampledRow>,
}

impl SampledRows {
    /// A sample of given rows, of which each has another identity.
    #[must_use]
    pub fn new(mut rows: Vec<SampledRow>) -> Self {
        rows.sort_by_key(|row| row.id.key());
        rows.truncate(ROWS);
        Self { rows }
    }

    /// The rows, in the order of the sample. The order has nothing to do with the data, so a part of them is a
    /// sample too.
    #[must_use]
    pub fn rows(&self) -> &[SampledRow] {
        &self.rows
    }

    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The elements, [rows, columns], row-major.
    #[must_use]
    pub fn matrix(&self) -> Vec<f32> {
        self.rows.iter().flat_map(SampledRow::values).collect()
    }

    /// Takes a row if it belongs to the sample.
    pub(super) fn offer(&mut self, id: RowId, row: &[f32]) {
        let at = self.rows.partition_point(|known| known.id.key() < id.key());
        if at < ROWS {
            self.rows.insert(at, SampledRow::new(id, row));
            self.rows.truncate(ROWS);
        }
    }

    /// Adds the sample of other rows.
    pub(super) fn merge(&mut self, other: &Self) {
        self.rows.extend(other.rows.iter().cloned());
        *self = Self::new(std::mem::take(&mut self.rows));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(sample: u64, token: u64) -> RowId {
        RowId { sample, token }
    }

    #[test]
    fn rows_keep_their_elements_within_half_precision() {
        let rows: [&[f32]; 6] = [
            &[1.0, -2.5, 1e-3, 0.0],
            &[1e6, -3.0, 65504.0, 1.0],
            &[1e-30, -3e-31, 0.0, 2e-33],
            &[0.0, -0.0],
            &[1e-42, 3e-44, -1e-43],
            &[1.8e19, -1.0],
        ];
        for row in rows {
            let largest = row.iter().fold(0f32, |a, x| a.max(x.abs()));
            let kept = SampledRow::new(id(0, 0), row);
            for (x, kept) in row.iter().zip(kept.values()) {
                let (x, kept) = (f64::from(*x), f64::from(kept));
                let allowed = (x.abs() * 2f64.powi(-11)).max(f64::from(largest) * 2f64.powi(-39)).max(1e-45);
                assert!((x - kept).abs() <= allowed, "{x} became {kept} in {row:?}");
            }
        }
    }

    #[test]
    fn the_sample_does_not_depend_on_order_or_division() {
        let rows: Vec<(RowId, Vec<f32>)> =
            (0..40).flat_map(|s| (0..7).map(move |t| (id(s, t), vec![s as f32, t as f32]))).collect();
        let sample = |rows: &mut dyn Iterator<Item = &(RowId, Vec<f32>)>| {
            let mut sample = SampledRows::default();
            rows.for_each(|(id, row)| sample.offer(*id, row));
            sample
        };
        let whole = sample(&mut rows.iter());
        assert_eq!((whole.len(), whole.matrix().len()), (ROWS, 2 * ROWS));
        assert_eq!(sample(&mut rows.iter().rev()), whole);
        let (even, odd) = (sample(&mut rows.iter().step_by(2)), sample(&mut rows.iter().skip(1).step_by(2)));
        let merged = |mut a: SampledRows, b: &SampledRows| {
            a.merge(b);
            a
        };
        assert_eq!(merged(even.clone(), &odd), whole);
        assert_eq!(merged(odd, &even), whole);
        let mut least: Vec<RowId> = rows.iter().map(|(id, _)| *id).collect();
        least.sort_by_key(|id| id.key());
        assert_eq!(whole.rows().iter().map(|row| row.id).collect::<Vec<_>>(), least[..ROWS]);
        let of_one = rows.iter().filter(|(id, _)| id.sample == 3);
        assert_eq!(sample(&mut of_one.into_iter()).len(), 7, "a small input is there whole");
    }
}
