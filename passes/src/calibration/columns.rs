//! The statistics of one column of an input.

use super::Range;

/// The resolution of sums: elements are rounded to multiples of it before they are added, so that sums are exact.
pub const RESOLUTION: f64 = 1.0 / (1u64 << RESOLUTION_BITS) as f64;

const RESOLUTION_BITS: u32 = 24;

/// The largest magnitude of an element that statistics take, 2^64. Sums of 2^39 such elements fit their integers.
pub const LARGEST: f32 = 18_446_744_073_709_551_616.0;

/// Extremes and sum of a column over the tokens that count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnStatistics {
    /// The least element; `inf` where there is none.
    pub min: f32,
    /// The largest element; `-inf` where there is none.
    pub max: f32,
    /// The sum of the elements, each rounded to the nearest multiple of [`RESOLUTION`], in multiples of it.
    pub sum: i128,
}

impl ColumnStatistics {
    /// Those of no elements.
    pub const EMPTY: Self = Self { min: f32::INFINITY, max: f32::NEG_INFINITY, sum: 0 };

    /// The mean over so many tokens, within half of [`RESOLUTION`]; 0 over none.
    #[must_use]
    pub fn mean(&self, tokens: u64) -> f64 {
        match tokens {
            0 => 0.0,
            _ => self.sum as f64 * RESOLUTION / tokens as f64,
        }
    }

    /// The largest absolute value; 0 where there is none.
    #[must_use]
    pub fn magnitude(&self) -> f32 {
        if self.min > self.max { 0.0 } else { self.min.abs().max(self.max.abs()) }
    }

    /// The extremes.
    #[must_use]
    pub fn range(&self) -> Range {
        Range { min: self.min.into(), max: self.max.into() }
    }

    /// The statistics of the elements of both.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        // The extremes have one zero, so that the bits do not depend on which one came first.
        Self { min: self.min.min(other.min) + 0.0, max: self.max.max(other.max) + 0.0, sum: self.sum + other.sum }
    }
}

/// Folds rows of elements into the columns that they have. The elements are finite, and at most [`LARGEST`].
pub(super) fn add(columns: &mut [ColumnStatistics], rows: &mut dyn Iterator<Item = &[f32]>) {
    let width = columns.len();
    let (mut min, mut max) = (vec![f32::INFINITY; width], vec![f32::NEG_INFINITY; width]);
    let mut sums = vec![0i64; width];
    let mut count = 0;
    for row in rows {
        for ((min, max), x) in min.iter_mut().zip(&mut max).zip(row) {
            *min = if *x < *min { *x } else { *min };
            *max = if *x > *max { *x } else { *max };
        }
        if row.iter().any(|x| x.abs() >= SMALL) {
            columns.iter_mut().zip(row).for_each(|(column, x)| column.sum += scaled(*x));
            continue;
        }
        // Adding and subtracting this number rounds to the resolution; the integers differ as the numbers do.
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += (f64::from(*x) + ROUNDING).to_bits().wrapping_sub(ROUNDING.to_bits()).cast_signed();
        }
        count += 1;
        if count == ROWS_OF_A_SUM {
            fold(columns, &mut sums);
            count = 0;
        }
    }
    fold(columns, &mut sums);
    for (column, (min, max)) in columns.iter_mut().zip(min.into_iter().zip(max)) {
        *column = column.merge(ColumnStatistics { min, max, sum: 0 });
    }
}

/// Below this, elements are rounded by adding [`ROUNDING`].
const SMALL: f32 = (1u64 << (51 - RESOLUTION_BITS)) as f32;

/// The last place of float64 numbers near this one is [`RESOLUTION`].
const ROUNDING: f64 = (3u64 << (51 - RESOLUTION_BITS)) as f64;

/// How many small elements fit a sum of 64 bits.
const ROWS_OF_A_SUM: usize = 1 << 11;

fn fold(columns: &mut [ColumnStatistics], sums: &mut [i64]) {
    for (column, sum) in columns.iter_mut().zip(sums) {
        column.sum += i128::from(std::mem::take(sum));
    }
}

/// An element in multiples of [`RESOLUTION`], rounded to the nearest, ties to even.
fn scaled(x: f32) -> i128 {
    (f64::from(x) * (1u64 << RESOLUTION_BITS) as f64).round_ties_even() as i128
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statistics of a column, an element after the other.
    fn one_by_one(elements: &[f32]) -> ColumnStatistics {
        elements.iter().fold(ColumnStatistics::EMPTY, |all, x| {
            let sum = all.sum + (f64::from(*x) * 16_777_216.0).round_ties_even() as i128;
            ColumnStatistics { min: all.min.min(*x), max: all.max.max(*x), sum }
        })
    }

    #[test]
    fn sums_are_those_of_rounded_elements() {
        let half = (RESOLUTION / 2.0) as f32;
        let elements = [
            0.0,
            -0.0,
            1.5,
            -2.25,
            half,
            -half,
            3.0 * half,
            -3.0 * half,
            1e-12,
            -1e-12,
            1.0e8,
            -1.3e8,
            1.4e8,
            -3e15,
            LARGEST,
            -LARGEST,
            0.1,
            -0.1,
            134_217_727.0,
            134_217_728.0,
        ];
        let mut column = [ColumnStatistics::EMPTY];
        add(&mut column, &mut elements.chunks(1));
        assert_eq!(column[0], one_by_one(&elements));
        let many: Vec<f32> = (0..5000).map(|i| 1.3e8 - i as f32 * 0.01).collect();
        let mut column = [ColumnStatistics::EMPTY];
        add(&mut column, &mut many.chunks(1));
        assert_eq!(column[0], one_by_one(&many));
        let mean = many.iter().map(|x| f64::from(*x)).sum::<f64>() / 5000.0;
        assert!((column[0].mean(5000) - mean).abs() < 1e-6);
    }

    #[test]
    fn no_elements_have_no_extremes() {
        assert_eq!((ColumnStatistics::EMPTY.mean(0), ColumnStatistics::EMPTY.magnitude()), (0.0, 0.0));
        assert!(ColumnStatistics::EMPTY.range().is_empty());
        let one = ColumnStatistics { min: -3.0, max: 2.0, sum: 5 };
        assert_eq!(one.merge(ColumnStatistics::EMPTY), one);
        assert_eq!(one.magnitude(), 3.0);
    }

    #[test]
    fn zeros_have_one_sign() {
        let zero = |x: f32| {
            let mut column = [ColumnStatistics::EMPTY];
            add(&mut column, &mut [x].chunks(1));
            column[0]
        };
        let both = zero(-0.0).merge(zero(0.0));
        assert_eq!((both.min.to_bits(), both.max.to_bits()), (0, 0));
    }
}
