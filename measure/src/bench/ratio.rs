//! How much longer one thing takes than another, and how certain that is.

use serde::Serialize;

use super::document::Cell;
use super::interval::ratio_interval;
use super::stats::{Latency, split};

/// A ratio of two medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The second median over the first.
    pub value: f64,
    /// Its 95% interval; absent where there are too few samples for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
}

impl Ratio {
    /// The median of `b` over that of `a`, of two runs of the benchmark: distances of the ends of their intervals from the
    /// medians, in logarithms, add as squares. `None` where a median is not positive.
    #[must_use]
    pub fn of_runs(a: &Latency, b: &Latency) -> Option<Self> {
        let value = b.p50 / a.p50;
        if !(a.p50 > 0.0 && value > 0.0 && value.is_finite()) {
            return None;
        }
        // Distances of the ends from the median in logarithms: down, up.
        let distances = |of: &Latency| of.ci95.map(|[low, high]| [(of.p50 / low).ln(), (high / of.p50).ln()]);
        let ends = distances(a).zip(distances(b)).map(|([a_down, a_up], [b_down, b_up])| {
            [value * (-b_down.hypot(a_up)).exp(), value * b_up.hypot(a_down).exp()]
        });
        Some(Self { value, ci95: ends.filter(|of| of.iter().all(|v| v.is_finite())) })
    }

    /// The median of `b` over that of `a`, of cells that were visited in the same rounds of one benchmark, where they have the
    /// time of each run; else as [`of_runs`](Self::of_runs). `None` where one of them has no speed. The same cells give the
    /// same interval.
    #[must_use]
    pub fn of_rounds(a: &Cell, b: &Cell) -> Option<Self> {
        let ratio = Self::of_runs(a.latency_ms.as_ref()?, b.latency_ms.as_ref()?)?;
        let visits = |cell: &Cell| {
            let runs = cell.visits.iter().try_fold(0usize, |sum, runs| sum.checked_add(*runs));
            (runs == Some(cell.samples_ns.len())).then(|| split(&cell.samples_ns, &cell.visits))
        };
        // The medians are of all visits, so most of these have to be of rounds of both.
        let alike = |(a, b): &(Vec<Vec<f64>>, Vec<Vec<f64>>)| 4 * a.len().min(b.len()) >= 3 * a.len().max(b.len());
        let together = a.rounds.is_some() && a.rounds == b.rounds;
        let both = visits(a).zip(visits(b)).filter(|both| together && alike(both));
        let rounds = both.and_then(|(a, b)| ratio_interval(&a, &b, ratio.value));
        Some(Self { ci95: rounds.or(ratio.ci95), ..ratio })
    }

    /// The geometric mean of ratios. Distances of the ends of their intervals, in logarithms, add as squares. `None` for none.
    #[must_use]
    pub fn geometric_mean(ratios: &[Self]) -> Option<Self> {
        let n = ratios.len() as f64;
        let value = (ratios.iter().map(|of| of.value.ln()).sum::<f64>() / n).exp();
        // The distances of the ends in logarithms: down, up.
        let distance = |end: usize| {
            let squares = ratios.iter().map(|of| Some((of.ci95?[end] / of.value).ln().powi(2)));
            squares.sum::<Option<f64>>().map(|sum| sum.sqrt() / n)
        };
        let ends = distance(0).zip(distance(1)).map(|(down, up)| [value * (-down).exp(), value * up.exp()]);
        (!ratios.is_empty()).then_some(Self { value, ci95: ends.filter(|of| of.iter().all(|v| v.is_finite())) })
    }

    /// Whether the interval leaves out 1: the two differ. `None` without an interval.
    #[must_use]
    pub fn significant(&self) -> Option<bool> {
        self.ci95.map(|[low, high]| low > 1.0 || high < 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::examples::cell;
    use super::*;

    fn latency(p50: f64, ci95: Option<[f64; 2]>) -> Latency {
        Latency { n: 100, min: p50, mean: p50, sd: None, p50, ci95, p90: None, p95: None, p99: None }
    }

    #[test]
    fn intervals_of_medians_add_as_squares() {
        let (a, b) = (latency(2.0, Some([2.0 / 1.03, 2.0 * 1.03])), latency(5.0, Some([5.0 / 1.04, 5.0 * 1.04])));
        let ratio = Ratio::of_runs(&a, &b).unwrap();
        let half = 1.03f64.ln().hypot(1.04f64.ln()).exp();
        let [low, high] = ratio.ci95.unwrap();
        assert!(
            ratio.value == 2.5 && (low - 2.5 / half).abs() < 1e-12 && (high - 2.5 * half).abs() < 1e-12,
            "{ratio:?}"
        );
    }

    #[test]
    fn the_mean_of_several_ratios_is_more_certain() {
        let one = Ratio { value: 2.0, ci95: Some([2.0 / 1.1, 2.0 * 1.1]) };
        let other = Ratio { value: 8.0, ci95: Some([8.0 / 1.1, 8.0 * 1.1]) };
        let mean = Ratio::geometric_mean(&[one, other]).unwrap();
        let half = (1.1f64.ln() * 2f64.sqrt() / 2.0).exp();
        let [low, high] = mean.ci95.unwrap();
        assert!(
            (mean.value - 4.0).abs() < 1e-12 && (low - 4.0 / half).abs() < 1e-12 && (high - 4.0 * half).abs() < 1e-12
        );
        assert_eq!(Ratio::geometric_mean(&[one, Ratio { ci95: None, ..other }]).unwrap().ci95, None);
        assert_eq!(Ratio::geometric_mean(&[]), None);
    }

    #[test]
    fn without_an_interval_nothing_is_known_of_the_difference() {
        let ratio = Ratio::of_runs(&latency(1.0, None), &latency(9.0, Some([8.0, 10.0]))).unwrap();
        assert_eq!((ratio.value, ratio.ci95, ratio.significant()), (9.0, None, None));
        assert_eq!(Ratio::of_runs(&latency(0.0, None), &latency(1.0, None)), None);
        assert_eq!(Ratio::of_runs(&latency(1.0, None), &latency(f64::NAN, None)), None);
        let zero = latency(1.0, Some([0.0, 2.0]));
        assert_eq!(Ratio::of_runs(&zero, &zero).unwrap().ci95, None);
    }

    #[test]
    fn what_changes_in_rounds_changes_both() {
        let slowed = |of: Cell| {
            let slow = |(at, ns): (usize, u64)| if at / 25 >= 4 { 3 * ns } else { ns };
            let samples_ns: Vec<u64> = of.samples_ns.into_iter().enumerate().map(slow).collect();
            Cell { latency_ms: Latency::of_visits(&samples_ns, &of.visits), samples_ns, ..of }
        };
        let (a, b) = (slowed(cell("a", 8, Some(100))), slowed(cell("b", 8, Some(110))));
        let ratio = Ratio::of_rounds(&a, &b).unwrap();
        let [low, high] = ratio.ci95.unwrap();
        assert!(1.09 < low && low < 1.1 && 1.1 < high && high < 1.11, "{ratio:?}");
        assert_eq!(Ratio::of_rounds(&a, &b), Some(ratio));
        let apart = Ratio::of_runs(a.latency_ms.as_ref().unwrap(), b.latency_ms.as_ref().unwrap()).unwrap();
        assert_eq!(apart.significant(), Some(false), "{apart:?}");
        // Cells of other rounds, or of many more, are compared by their intervals.
        for other in [Cell { rounds: Some(7), ..b.clone() }, Cell { rounds: None, ..b.clone() }] {
            assert_eq!(Ratio::of_rounds(&a, &other), Some(apart));
        }
        let longer = Cell { samples_ns: b.samples_ns.repeat(2), visits: b.visits.repeat(2), ..b.clone() };
        assert_eq!(Ratio::of_rounds(&a, &longer), Some(apart));
        // Without visits, with too few, or with some of other samples only the intervals are left.
        for visits in [vec![], vec![200], vec![50; 5], vec![usize::MAX, 201], vec![0; 8]] {
            let other = Cell { visits, ..b.clone() };
            assert_eq!(Ratio::of_rounds(&a, &other), Some(apart), "{:?}", other.visits);
        }
        assert_eq!(Ratio::of_rounds(&cell("a", 8, Some(100)), &cell("b", 8, None)), None);
    }
}
