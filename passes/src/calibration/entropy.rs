//! The range of least Kullback-Leibler divergence.
//!
//! The search is that of Migacz, "8-bit Inference with TensorRT" (2017), with the smoothing that ONNX Runtime uses.

use super::Histogram;
use super::histogram::SIDE;

/// How many bins a quantized histogram has.
const QUANTIZED: usize = 128;

/// What an empty bin gains before two histograms are compared.
const SMOOTHING: f64 = 1e-4;

/// The limit of the window around 0 of which the quantized histogram diverges least; of several the smallest.
///
/// A window has 64 bins or more on either side. Its reference P holds what lies beyond in its first and last bin. Its
/// quantized form Q has the counts of 128 groups of neighbouring bins, spread evenly over the bins of the group that P
/// has elements in.
pub(super) fn limit(histogram: &Histogram) -> f64 {
    // Beyond the last bin with an element, windows differ in empty bins only.
    let sides = |k: usize| histogram.counts()[SIDE + k] + histogram.counts()[SIDE - 1 - k];
    let used = (0..SIDE).rev().find(|k| sides(*k) > 0).map_or(0, |k| k + 1).max(QUANTIZED / 2);
    let mut best = (f64::INFINITY, used);
    for side in QUANTIZED / 2..=used {
        let loss = divergence(histogram.counts(), side).unwrap_or(f64::INFINITY);
        if loss < best.0 {
            best = (loss, side);
        }
    }
    best.1 as f64 * histogram.width()
}

/// The divergence of a window with so many bins on either side; `None` where the smoothed histograms have no
/// divergence.
fn divergence(counts: &[u64], side: usize) -> Option<f64> {
    let window = &counts[counts.len() / 2 - side..counts.len() / 2 + side];
    let number = |count: &u64| *count as f64;
    let mut p: Vec<f64> = window.iter().map(number).collect();
    p[0] += counts[..counts.len() / 2 - side].iter().map(number).sum::<f64>();
    p[2 * side - 1] += counts[counts.len() / 2 + side..].iter().map(number).sum::<f64>();
    let mut q = quantized(window, &p, QUANTIZED);
    smooth(&mut p)?;
    smooth(&mut q)?;
    let (all_p, all_q): (f64, f64) = (p.iter().sum(), q.iter().sum());
    Some(p.iter().zip(&q).map(|(p, q)| p / all_p * (p / all_p / (q / all_q)).ln()).sum())
}

/// The counts of groups of neighbouring bins, spread evenly over the bins of each group that `p` has elements in. The
/// last group has the bins that are left over.
fn quantized(window: &[u64], p: &[f64], groups: usize) -> Vec<f64> {
    let mut q = vec![0.0; window.len()];
    let length = window.len() / groups;
    for group in 0..groups {
        let end = if group + 1 == groups { window.len() } else { (group + 1) * length };
        let bins = group * length..end;
        let filled = p[bins.clone()].iter().filter(|count| **count > 0.0).count();
        let sum: u64 = window[bins.clone()].iter().sum();
        for bin in bins.filter(|bin| p[*bin] > 0.0) {
            q[bin] = sum as f64 / filled as f64;
        }
    }
    q
}

/// Moves a little of what is in each filled bin to the empty ones. `None` where a bin has less than that, or all are
/// empty.
fn smooth(counts: &mut [f64]) -> Option<()> {
    let empty = counts.iter().filter(|count| **count == 0.0).count();
    if empty == counts.len() {
        return None;
    }
    let loss = SMOOTHING * empty as f64 / (counts.len() - empty) as f64;
    for count in &mut *counts {
        *count = if *count == 0.0 { SMOOTHING } else { *count - loss };
    }
    counts.iter().all(|count| *count > 0.0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Migacz's slides: eight bins quantized to two.
    #[test]
    fn the_published_example() {
        let window = [1, 0, 2, 3, 5, 3, 1, 7];
        let p = window.map(|count| count as f64);
        assert_eq!(quantized(&window, &p, 2), [2.0, 0.0, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0]);
    }

    #[test]
    fn empty_bins_take_from_filled_ones() {
        let mut counts = [4.0, 0.0, 2.0, 0.0];
        smooth(&mut counts).unwrap();
        assert_eq!(counts, [4.0 - 1e-4, 1e-4, 2.0 - 1e-4, 1e-4]);
        assert_eq!(smooth(&mut [0.0; 4]), None, "nothing is filled");
        assert_eq!(smooth(&mut [1e-5, 0.0]), None, "there is not that much");
    }
}
