//! How much longer one thing takes than another, and how certain that is.

use serde::Serialize;

use super::stats::Latency;

/// How many times samples are drawn again.
const RESAMPLES: usize = 1000;

/// The least number of samples of each side that are drawn again.
const FEWEST: usize = 20;

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
    /// The samples of both sides: they are drawn again in blocks of consecutive runs, because runs close to each other take
    /// about as long (moving block bootstrap, percentiles).
    Bootstrap,
    /// The confidence intervals of the two medians: distances from the medians, in logarithms, add as squares.
    Intervals,
}

impl Ratio {
    /// The median of `b` over that of `a`, by samples in nanoseconds in the order in which they were taken. `None` where
    /// there are fewer than 20 of one, or the median of `a` is 0. The same samples give the same interval.
    #[must_use]
    pub fn of_samples(a: &[u64], b: &[u64]) -> Option<Self> {
        if a.len().min(b.len()) < FEWEST {
            return None;
        }
        let mut random = fastrand::Rng::with_seed(0);
        let mut medians = |samples: &[u64]| -> Vec<f64> {
            let mut drawn = Vec::with_capacity(samples.len());
            (0..RESAMPLES).map(|_| draw(samples, &mut drawn, &mut random)).collect()
        };
        let (of_a, of_b) = (medians(a), medians(b));
        let mut ratios: Vec<f64> = of_a.iter().zip(&of_b).map(|(a, b)| b / a).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |share: f64| ratios.get((share * (RESAMPLES - 1) as f64).round() as usize).copied();
        let ci95 =
            at(0.025).zip(at(0.975)).map(|(low, high)| [low, high]).filter(|of| of.iter().all(|v| v.is_finite()));
        let value = median(&mut b.to_vec()) / median(&mut a.to_vec());
        (value.is_finite() && value > 0.0).then_some(Self { value, ci95, method: Method::Bootstrap })
    }

    /// The same by what is known of the samples. `None` where a median is not positive.
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

/// The median of as many samples as there are, drawn in blocks of consecutive ones; the last may go on at the beginning.
fn draw(samples: &[u64], drawn: &mut Vec<u64>, random: &mut fastrand::Rng) -> f64 {
    let n = samples.len();
    let block = (n as f64).sqrt().ceil() as usize;
    drawn.clear();
    while drawn.len() < n {
        let start = random.usize(..n);
        let take = block.min(n - drawn.len());
        drawn.extend(samples.iter().cycle().skip(start).take(take));
    }
    median(drawn)
}

/// The median of samples, of which there is at least one; their order changes.
fn median(samples: &mut [u64]) -> f64 {
    let middle = samples.len() / 2;
    let even = samples.len() % 2 == 0;
    let (below, &mut upper, _) = samples.select_nth_unstable(middle);
    let lower = if even { below.iter().max().copied() } else { None };
    lower.map_or(upper as f64, |lower| (lower as f64 + upper as f64) / 2.0)
}

#[cfg(test)]
mod tests {
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
        assert_eq!(Ratio::of_samples(&[1; 19], &[1; 100]), None);
        assert_eq!(Ratio::of_samples(&[0; 20], &[1; 20]), None);
    }

    #[test]
    fn samples_are_drawn_again() {
        let samples = |ms: u64| (0..=200).map(|k| ms * 900_000 + ms * k * 1000).collect::<Vec<u64>>();
        let ratio = Ratio::of_samples(&samples(100), &samples(110)).unwrap();
        assert_eq!((ratio.value, ratio.method), (1.1, Method::Bootstrap));
        let [low, high] = ratio.ci95.unwrap();
        assert!(low < 1.1 && 1.1 < high && high - low < 0.3, "{ratio:?}");
        assert_eq!(Ratio::of_samples(&samples(100), &samples(110)), Some(ratio));
        let constant = Ratio::of_samples(&[5; 20], &[10; 20]).unwrap();
        assert_eq!((constant.value, constant.ci95), (2.0, Some([2.0, 2.0])));
        assert_eq!(median(&mut [4, 1, 3, 2]), 2.5);
    }
}
