//! Statistics of latencies.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a set of latencies says. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The number of samples.
    pub n: usize,
    /// The least.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the sample; absent for one sample.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sd: Option<f64>,
    /// The median.
    pub p50: f64,
    /// The 95% confidence interval of the median, from order statistics: no distribution is
    /// assumed. Absent where there are too few samples for one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ci95: Option<[f64; 2]>,
    /// The 90th percentile; this and the next ones only with ten samples beyond them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p90: Option<f64>,
    /// The 95th percentile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p95: Option<f64>,
    /// The 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99: Option<f64>,
}

impl Latency {
    /// The statistics of samples in nanoseconds; `None` for no samples.
    #[must_use]
    pub fn of(samples_ns: &[u64]) -> Option<Self> {
        let mut sorted: Vec<f64> = samples_ns.iter().map(|&ns| ns as f64 / 1e6).collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let min = *sorted.first()?;
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let variance = sorted.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n as f64 - 1.0);
        let tail = |p: f64| (n as f64 * (1.0 - p) >= 10.0 - 1e-9).then(|| quantile(&sorted, p));
        Some(Self {
            n,
            min,
            mean,
            sd: (n > 1).then(|| variance.sqrt()),
            p50: quantile(&sorted, 0.5),
            ci95: median_interval(n).map(|(low, high)| [sorted[low], sorted[high]]),
            p90: tail(0.9),
            p95: tail(0.95),
            p99: tail(0.99),
        })
    }
}

/// The value below which the share `p` of the sorted samples lies, with linear interpolation
/// between neighbours.
fn quantile(sorted: &[f64], p: f64) -> f64 {
    let at = p * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

/// The places, from zero, of the two order statistics between which the median lies with a
/// probability of 95%: the number of samples below it is binomial, here by its normal
/// approximation, rounded outwards. `None` where the interval would leave the sample.
fn median_interval(n: usize) -> Option<(usize, usize)> {
    let (middle, half) = (n as f64 / 2.0, 1.96 * (n as f64).sqrt() / 2.0);
    let (low, high) = ((middle - half).floor(), (middle + half).ceil());
    (low >= 1.0 && high <= n as f64 - 1.0).then(|| (low as usize - 1, high as usize))
}

/// Decides when warming up has settled: when three blocks of runs in a row take the same time
/// within 2%.
#[derive(Default)]
pub(crate) struct Settling {
    blocks: Vec<Duration>,
}

impl Settling {
    /// Adds the mean time of a run in one more block and says whether the last three agree.
    pub(crate) fn push(&mut self, block: Duration) -> bool {
        self.blocks.push(block);
        let Some(last) = self.blocks.last_chunk::<3>() else { return false };
        let (low, high) = last.iter().fold((Duration::MAX, Duration::ZERO), |(l, h), &d| (l.min(d), h.max(d)));
        high.as_secs_f64() <= low.as_secs_f64() * 1.02
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 ms, 2 ms, ... in an order that is not sorted.
    fn counted(n: u64) -> Latency {
        let samples: Vec<u64> = (1..=n).rev().map(|ms| ms * 1_000_000).collect();
        Latency::of(&samples).unwrap()
    }

    #[test]
    fn known_answers() {
        let latency = Latency::of(&[2, 4, 4, 4, 5, 5, 7, 9].map(|ms| ms * 1_000_000)).unwrap();
        assert_eq!((latency.n, latency.min, latency.mean, latency.p50), (8, 2.0, 5.0, 4.5));
        assert!((latency.sd.unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(counted(101).p50, 51.0);
        assert_eq!(counted(101).p90, Some(91.0));
        assert_eq!(Latency::of(&[]), None);
        let one = Latency::of(&[1_500_000]).unwrap();
        assert_eq!((one.p50, one.sd, one.ci95), (1.5, None, None));
    }

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        let present = |n: u64| {
            let latency = counted(n);
            [latency.p90, latency.p95, latency.p99].map(|p| p.is_some())
        };
        assert_eq!(present(99), [false, false, false]);
        assert_eq!(present(100), [true, false, false]);
        assert_eq!(present(199), [true, false, false]);
        assert_eq!(present(200), [true, true, false]);
        assert_eq!(present(999), [true, true, false]);
        assert_eq!(present(1000), [true, true, true]);
        let json = serde_json::to_value(counted(50)).unwrap();
        assert!(json.get("p90").is_none() && json.get("p50").is_some());
    }

    #[test]
    fn the_interval_of_the_median_covers_95_percent() {
        // Tables of the sign test give the 40th and the 61st of 100.
        assert_eq!(median_interval(100), Some((39, 60)));
        assert_eq!(counted(100).ci95, Some([40.0, 61.0]));
        assert_eq!(median_interval(4), None);
        // The exact probability that the median of n samples lies between these two.
        for n in 6..60usize {
            let Some((low, high)) = median_interval(n) else { continue };
            let choose = |k: usize| (0..k).fold(1.0, |c, i| c * (n - i) as f64 / (i + 1) as f64);
            let covered: f64 = (low + 1..=high).map(|k| choose(k) / 2f64.powi(i32::try_from(n).unwrap())).sum();
            assert!(covered >= 0.95, "{n}: {covered}");
        }
    }

    #[test]
    fn warming_up_ends_when_three_blocks_agree() {
        let mut settling = Settling::default();
        let settled = [500, 300, 200, 199, 204, 201, 200].map(|us| settling.push(Duration::from_micros(us)));
        assert_eq!(settled, [false, false, false, false, false, false, true]);
    }
}
