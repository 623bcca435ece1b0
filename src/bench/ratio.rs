//! How much longer one thing takes than another, and how certain that is.

use serde::Serialize;

use super::document::Cell;
use super::interval::{percentiles, resampled_medians};
use super::stats::{Latency, split};

/// A ratio of two medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The second median over the first.
    pub value: f64,
    /// Its 95% confidence interval; absent where there are too few samples for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// What the interval is made of.
    pub method: Method,
}

/// What the interval of a ratio is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The samples of both sides: visits are resampled, because runs of one visit take about as long.
    Bootstrap,
    /// The confidence intervals of the two medians: distances from the medians, in logarithms, add as squares.
    Intervals,
}

impl Ratio {
    /// The median of `b` over that of `a`: with their samples where both have them in visits enough, else as [`Ratio::of`].
    /// `None` where one of them has no speed. The same cells give the same interval.
    #[must_use]
    pub fn of_cells(a: &Cell, b: &Cell) -> Option<Self> {
        let ratio = Self::of(a.latency_ms.as_ref()?, b.latency_ms.as_ref()?)?;
        let ci95 = resampled(a, b, ratio.value);
        Some(ci95.map_or(ratio, |ci95| Self { ci95: Some(ci95), method: Method::Bootstrap, ..ratio }))
    }

    /// The median of `b` over that of `a` by their intervals. `None` where a median is not positive.
    #[must_use]
    pub fn of(a: &Latency, b: &Latency) -> Option<Self> {
        let value = b.p50 / a.p50;
        if !(a.p50 > 0.0 && value > 0.0 && value.is_finite()) {
            return None;
        }
        // Distances of the ends from the median in logarithms: down, up.
        let distances = |of: &Latency| of.ci95.map(|[low, high]| [(of.p50 / low).ln(), (high / of.p50).ln()]);
        let ends = distances(a).zip(distances(b)).map(|([a_down, a_up], [b_down, b_up])| {
            [value * (-b_down.hypot(a_up)).exp(), value * b_up.hypot(a_down).exp()]
        });
        let ci95 = ends.filter(|of| of.iter().all(|v| v.is_finite()));
        Some(Self { value, ci95, method: Method::Intervals })
    }

    /// The ratio the other way round.
    #[must_use]
    pub fn inverse(self) -> Self {
        Self { value: 1.0 / self.value, ci95: self.ci95.map(|[low, high]| [1.0 / high, 1.0 / low]), ..self }
    }

    /// Whether the interval leaves out 1: the two differ. `None` without an interval.
    #[must_use]
    pub fn significant(&self) -> Option<bool> {
        self.ci95.map(|[low, high]| low > 1.0 || high < 1.0)
    }
}

/// The interval of a ratio around its value from resampled visits of both cells.
fn resampled(a: &Cell, b: &Cell, value: f64) -> Option<[f64; 2]> {
    // Other seeds, so that the visits of one do not depend on those of the other.
    let medians = |cell: &Cell, seed| {
        let whole =
            cell.visits.iter().try_fold(0usize, |sum, runs| sum.checked_add(*runs)) == Some(cell.samples_ns.len());
        whole.then(|| resampled_medians(&split(&cell.samples_ns, &cell.visits), seed))?
    };
    let (of_a, of_b) = (medians(a, 1)?, medians(b, 2)?);
    let logarithms = of_a.iter().zip(&of_b).map(|(a, b)| (b / a).ln()).collect();
    let ends = percentiles(logarithms, value.ln(), a.visits.len().min(b.visits.len()))?.map(f64::exp);
    ends.iter().all(|end| end.is_finite()).then_some(ends)
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
        let ratio = Ratio::of(&a, &b).unwrap();
        let half = 1.03f64.ln().hypot(1.04f64.ln()).exp();
        assert_eq!((ratio.value, ratio.method), (2.5, Method::Intervals));
        let [low, high] = ratio.ci95.unwrap();
        assert!((low - 2.5 / half).abs() < 1e-12 && (high - 2.5 * half).abs() < 1e-12, "{ratio:?}");
        let inverse = ratio.inverse();
        assert!((inverse.value - 0.4).abs() < 1e-12 && (inverse.ci95.unwrap()[0] - half.recip() / 2.5).abs() < 1e-12);
    }

    #[test]
    fn without_an_interval_nothing_is_known_of_the_difference() {
        let ratio = Ratio::of(&latency(1.0, None), &latency(9.0, Some([8.0, 10.0]))).unwrap();
        assert_eq!((ratio.value, ratio.ci95, ratio.significant()), (9.0, None, None));
        assert_eq!(Ratio::of(&latency(0.0, None), &latency(1.0, None)), None);
        assert_eq!(Ratio::of(&latency(1.0, None), &latency(f64::NAN, None)), None);
        assert_eq!(Ratio::of(&latency(1.0, Some([0.0, 2.0])), &latency(1.0, Some([0.0, 2.0]))).unwrap().ci95, None);
    }

    #[test]
    fn visits_are_resampled() {
        let (a, b) = (cell("a", 8, Some(100)), cell("a", 8, Some(110)));
        let ratio = Ratio::of_cells(&a, &b).unwrap();
        assert_eq!((ratio.value, ratio.method), (1.1, Method::Bootstrap));
        let [low, high] = ratio.ci95.unwrap();
        assert!(low < 1.1 && 1.1 < high && high - low < 0.3, "{ratio:?}");
        assert_eq!(Ratio::of_cells(&a, &b), Some(ratio));
        // Without visits, with too few, or with some of other samples only the intervals are left.
        for visits in [vec![], vec![200], vec![50; 5], vec![usize::MAX, 201], vec![0; 8]] {
            let other = Cell { visits, ..b.clone() };
            assert_eq!(Ratio::of_cells(&a, &other).unwrap().method, Method::Intervals, "{:?}", other.visits);
        }
        assert_eq!(Ratio::of_cells(&a, &cell("b", 8, None)), None);
    }
}
