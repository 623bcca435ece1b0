//! The range of least mean square error of quantization.

use super::{BINS, Grid, Histogram, Range};

/// How many parts of the whole range are tried.
const CANDIDATES: u32 = 256;

/// The part of a range with the least error on a histogram whose elements are spread evenly in each bin; of several
/// the largest.
pub(super) fn least_error(histogram: &Histogram, whole: Range, grid: Grid) -> Range {
    let part = |k: u32| {
        let factor = f64::from(k) / f64::from(CANDIDATES);
        Range { min: whole.min * factor, max: whole.max * factor }
    };
    let mut best = (f64::INFINITY, whole);
    for range in (1..=CANDIDATES).rev().map(part) {
        let error = error(histogram, range, grid);
        if error < best.0 {
            best = (error, range);
        }
    }
    best.1
}

/// The sum of the square errors of all elements when a range is quantized.
fn error(histogram: &Histogram, range: Range, grid: Grid) -> f64 {
    let scale = (range.max - range.min) / f64::from(grid.steps);
    if scale <= 0.0 {
        return f64::INFINITY;
    }
    // In steps, the numbers that the grid has are integers.
    let first = (range.min / scale).round_ties_even();
    let last = first + f64::from(grid.steps);
    let filled = (0..BINS).filter(|bin| histogram.counts()[*bin] > 0);
    let in_steps = filled.map(|bin| {
        let (from, to) = (histogram.edge(bin) / scale, histogram.edge(bin + 1) / scale);
        let all = integral(to, first, last) - integral(from, first, last);
        histogram.counts()[bin] as f64 * all / (to - from)
    });
    in_steps.sum::<f64>() * scale * scale
}

/// The integral from 0 to `x` of the square distance to the nearest integer from `first` to `last`, which are around 0.
fn integral(x: f64, first: f64, last: f64) -> f64 {
    let nearest = x.round().clamp(first, last);
    // Each integer that is passed adds 1/12.
    nearest / 12.0 + (x - nearest).powi(3) / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_integral_is_that_of_the_square_distance() {
        for x in [0.3, 0.5, 2.75, -1.2, 5.5, 9.0, -4.0] {
            let (n, mut sum) = (200_000, 0.0);
            for i in 0..n {
                let t: f64 = x * (f64::from(i) + 0.5) / f64::from(n);
                sum += (t - t.round().clamp(-3.0, 5.0)).powi(2);
            }
            let expected = sum * x / f64::from(n);
            assert!((integral(x, -3.0, 5.0) - expected).abs() < 1e-8, "{x}");
        }
    }
}
