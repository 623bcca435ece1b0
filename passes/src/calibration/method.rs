//! How the range that is quantized follows from what was measured.

use std::fmt;
use std::str::FromStr;

use super::histogram::SIDE;
use super::{BINS, Histogram, Range, entropy};

/// The numbers that a range is quantized to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// How many steps lie between the ends of the range: 255 for uint8, 254 for int8 from -127 to 127.
    pub steps: u32,
    /// Whether 0 is in the middle.
    pub symmetric: bool,
}

impl Grid {
    /// uint8 with a zero point.
    pub const U8: Self = Self { steps: 255, symmetric: false };
    /// int8 from -127 to 127 with zero point 0.
    pub const S8: Self = Self { steps: 254, symmetric: true };
}

/// How the range that is quantized is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RangeMethod {
    /// From the least to the largest element.
    MinMax,
    /// So that this percentage of the elements lies within, as many beyond either end. For a symmetric grid, the
    /// percentage of magnitudes.
    Percentile(f64),
    /// The range around 0 whose quantized histogram has the least Kullback-Leibler divergence from the whole one, cut
    /// to the extremes.
    Entropy,
    /// The extremes times the factor, of 1/256, 2/256 ... 1, with the least mean square error of quantization.
    Mse,
}

impl RangeMethod {
    /// The percentage of `percentile` without a number.
    pub const PERCENTILE: f64 = 99.999;

    pub(super) fn range(self, histogram: &Histogram, extremes: Range, grid: Grid) -> Range {
        if extremes.is_empty() {
            return Range { min: 0.0, max: 0.0 };
        }
        let whole = with_zero(extremes, grid);
        let clipped = match self {
            Self::MinMax => whole,
            Self::Percentile(percentage) => percentile(histogram, percentage, grid),
            Self::Entropy => {
                let limit = entropy::limit(histogram);
                Range { min: -limit, max: limit }
            }
            Self::Mse => super::clip::least_error(histogram, whole, grid),
        };
        Range { min: clipped.min.max(whole.min), max: clipped.max.min(whole.max) }
    }
}

/// A range that a grid can have: with 0 in it, or in its middle.
fn with_zero(range: Range, grid: Grid) -> Range {
    match grid.symmetric {
        true => Range { min: -range.magnitude(), max: range.magnitude() },
        false => Range { min: range.min.min(0.0), max: range.max.max(0.0) },
    }
}

/// The least range that ends at edges of bins, and leaves out no more than the rest of a percentage.
fn percentile(histogram: &Histogram, percentage: f64, grid: Grid) -> Range {
    let (counts, total) = (histogram.counts(), histogram.total() as f64);
    let beyond = total * (1.0 - percentage / 100.0).max(0.0);
    // How many bins at the end of an order of them hold no more than may be left out.
    let cut = |from_end: &mut dyn Iterator<Item = u64>, allowed: f64| {
        let mut sum = 0u64;
        let fits = |count: u64| {
            sum += count;
            sum as f64 <= allowed
        };
        from_end.map(fits).take_while(|fits| *fits).count()
    };
    if grid.symmetric {
        let pairs = counts.iter().zip(counts.iter().rev()).take(SIDE).map(|(a, b)| a + b);
        let limit = (SIDE - cut(&mut { pairs }, beyond)) as f64 * histogram.width();
        return Range { min: -limit, max: limit };
    }
    let left = cut(&mut counts.iter().copied(), beyond / 2.0);
    let right = cut(&mut counts.iter().rev().copied(), beyond / 2.0);
    Range { min: histogram.edge(left).min(0.0), max: histogram.edge(BINS - right).max(0.0) }
}

/// A text that names no method.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a method: there are minmax, percentile (or percentile:99.99, more than 50 and at most 100), entropy and mse"
)]
pub struct UnknownMethod(String);

impl FromStr for RangeMethod {
    type Err = UnknownMethod;

    fn from_str(text: &str) -> Result<Self, UnknownMethod> {
        let unknown = || UnknownMethod(text.to_owned());
        match text.split_once(':') {
            None if text == "minmax" => Ok(Self::MinMax),
            None if text == "percentile" => Ok(Self::Percentile(Self::PERCENTILE)),
            None if text == "entropy" => Ok(Self::Entropy),
            None if text == "mse" => Ok(Self::Mse),
            Some(("percentile", number)) => {
                let percentage: f64 = number.parse().map_err(|_| unknown())?;
                if percentage > 50.0 && percentage <= 100.0 { Ok(Self::Percentile(percentage)) } else { Err(unknown()) }
            }
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for RangeMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MinMax => f.write_str("minmax"),
            Self::Percentile(percentage) => write!(f, "percentile:{percentage}"),
            Self::Entropy => f.write_str("entropy"),
            Self::Mse => f.write_str("mse"),
        }
    }
}
