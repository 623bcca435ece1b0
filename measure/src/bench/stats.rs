//! Statistics of latencies.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::interval::{median_interval, quantile};

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
    /// The 95% interval of the median, as [`median_interval`] has it. Absent where there are too few samples.
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
    /// The statistics of samples in nanoseconds of one visit; `None` for no samples.
    #[must_use]
    pub fn of(samples_ns: &[u64]) -> Option<Self> {
        Self::of_visits(samples_ns, &[samples_ns.len()])
    }

    /// The statistics of samples in nanoseconds, of which the first so many are of one visit, the next of another one, and so
    /// on; `None` for no samples.
    #[must_use]
    pub fn of_visits(samples_ns: &[u64], visits: &[usize]) -> Option<Self> {
        let visits = split(samples_ns, visits);
        let mut sorted: Vec<f64> = samples_ns.iter().map(|&ns| ns as f64 / 1e6).collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let min = *sorted.first()?;
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let variance = sorted.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n as f64 - 1.0);
        let tail = |p: f64| quantile(&sorted, p).filter(|_| n as f64 * (1.0 - p) >= 10.0 - 1e-9);
        Some(Self {
            n,
            min,
            mean,
            sd: (n > 1).then(|| variance.sqrt()),
            p50: quantile(&sorted, 0.5)?,
            ci95: median_interval(&visits),
            p90: tail(0.9),
            p95: tail(0.95),
            p99: tail(0.99),
        })
    }
}

/// Samples in nanoseconds by visit, in milliseconds: the first so many are of one visit, the next of another one, and so on.
pub(super) fn split(samples_ns: &[u64], visits: &[usize]) -> Vec<Vec<f64>> {
    let mut rest = samples_ns;
    let mut split = |runs: &usize| {
        let (visit, others) = rest.split_at((*runs).min(rest.len()));
        rest = others;
        visit.iter().map(|&ns| ns as f64 / 1e6).collect()
    };
    visits.iter().map(&mut split).collect()
}

impl Latency {
    /// Half of the interval of the median, as a share of the median.
    #[must_use]
    pub fn half_interval(&self) -> Option<f64> {
        self.ci95.map(|[low, high]| (high - low) / 2.0 / self.p50)
    }
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
    fn warming_up_ends_when_three_blocks_agree() {
        let mut settling = Settling::default();
        let settled = [500, 300, 200, 199, 204, 201, 200].map(|us| settling.push(Duration::from_micros(us)));
        assert_eq!(settled, [false, false, false, false, false, false, true]);
    }
}
