//! The 95% interval of a median of times that were taken in visits, and of a ratio of two such medians.
//!
//! The interval should contain the median of another run of the benchmark. It has two parts. The first is by chance: visits are resampled and
//! not single times, because times of one visit are alike. The second is the drift of the machine: its speed changes between two
//! runs of the benchmark as it changes within one, so the medians of the quarters of the visits tell how much.

use fastrand::Rng;

/// Resamples of the visits.
const RESAMPLES: usize = 500;

/// The most times of a visit that stand for it.
const KEPT: usize = 25;

/// The least number of visits of which there is an interval: one for each part of the run.
const LEAST_VISITS: usize = PARTS;

/// The parts of a run whose medians tell the drift.
pub(super) const PARTS: usize = 4;

/// How many standard deviations of the medians of parts are added on each side. docs/measurements.md has how often two runs
/// agreed with this number, and with smaller ones.
const DRIFT: f64 = 2.5;

/// The 95% interval of the median of all times. Of fewer than four visits it is that of order statistics, which assume that no
/// run depends on another; of more, it is at least as wide. `None` where there are fewer than four visits and fewer than eight times.
#[must_use]
pub fn median_interval(visits: &[Vec<f64>]) -> Option<[f64; 2]> {
    let mut all: Vec<f64> = visits.concat();
    all.sort_by(f64::total_cmp);
    let ordered = order_statistics(all.len()).map(|(low, high)| [all[low], all[high]]);
    let kept: Vec<Vec<f64>> = visits.iter().map(|visit| thinned(visit)).collect();
    let mut pooled = Vec::new();
    let median = |of: &[usize]| median_of(&kept, of, &mut pooled);
    match (ordered, interval(visits.len(), quantile(&all, 0.5)?, median)) {
        (Some(one), Some(other)) => Some([one[0].min(other[0]), one[1].max(other[1])]),
        (one, other) => one.or(other),
    }
}

/// The 95% interval of the ratio of two medians, `b` over `a`, whose value is known, of visits that were taken in the same
/// rounds: what changes in the speed of the machine changes both. `None` of fewer than four rounds.
pub(super) fn ratio_interval(a: &[Vec<f64>], b: &[Vec<f64>], value: f64) -> Option<[f64; 2]> {
    let [a, b] = [a, b].map(|visits| visits.iter().map(|visit| thinned(visit)).collect::<Vec<_>>());
    let mut pooled = Vec::new();
    let ratio = |of: &[usize]| Some(median_of(&b, of, &mut pooled)? / median_of(&a, of, &mut pooled)?);
    interval(a.len().min(b.len()), value, ratio)
}

/// The median of the times of these visits; `None` of none.
fn median_of(visits: &[Vec<f64>], of: &[usize], pooled: &mut Vec<f64>) -> Option<f64> {
    pooled.clear();
    for &at in of {
        pooled.extend_from_slice(visits.get(at)?);
    }
    let middle = pooled.len() / 2;
    (middle < pooled.len()).then(|| *pooled.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// The interval around a figure of so many visits, which `figure` gives of some of them: the distances by chance and by drift,
/// in logarithms, add as squares. `None` of too few visits, and where a figure is not positive.
fn interval(visits: usize, around: f64, mut figure: impl FnMut(&[usize]) -> Option<f64>) -> Option<[f64; 2]> {
    if visits < LEAST_VISITS {
        return None;
    }
    let around = around.ln();
    let mut figure = |of: &[usize]| figure(of).map(f64::ln);
    let mut random = Rng::with_seed(visits as u64);
    let mut drawn = vec![0; visits];
    let mut resamples = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        drawn.fill_with(|| random.usize(..visits));
        resamples.push(figure(&drawn)?);
    }
    resamples.sort_by(f64::total_cmp);
    let widening = student(visits - 1) / student(usize::MAX);
    let all: Vec<usize> = (0..visits).collect();
    let parts = (0..PARTS).map(|part| figure(&all[part * visits / PARTS..(part + 1) * visits / PARTS]));
    let drift = DRIFT * deviation(&parts.collect::<Option<Vec<f64>>>()?);
    let [down, up] = [0.025, 0.975].map(|p| quantile(&resamples, p).map(|end| (end - around) * widening));
    // The resamples of a skewed figure may lie on one side of it.
    let ends = [around - down?.min(0.0).hypot(drift), around + up?.max(0.0).hypot(drift)].map(f64::exp);
    ends.iter().all(|end| end.is_finite()).then_some(ends)
}

/// The standard deviation of a sample.
fn deviation(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt()
}

/// A visit's times, or as many of their quantiles as stand for them.
fn thinned(visit: &[f64]) -> Vec<f64> {
    let mut sorted = visit.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.len() <= KEPT {
        return sorted;
    }
    (0..KEPT).filter_map(|at| quantile(&sorted, (at as f64 + 0.5) / KEPT as f64)).collect()
}

/// The 97.5th percentile of Student's distribution with so many degrees of freedom, within 1% from 3 on: the normal one's
/// with the first terms of the expansion by Cornish and Fisher.
fn student(degrees: usize) -> f64 {
    let (z, n) = (1.959_964_f64, degrees as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / n + second / n.powi(2) + third / n.powi(3)
}

/// The places, from zero, of the two order statistics between which the median of `n` lies with a probability of 95%: the
/// number of times below it is binomial, here by its normal approximation, rounded outwards. `None` where the interval would
/// leave the sample.
fn order_statistics(n: usize) -> Option<(usize, usize)> {
    let (middle, half) = (n as f64 / 2.0, 1.96 * (n as f64).sqrt() / 2.0);
    let (low, high) = ((middle - half).floor(), (middle + half).ceil());
    (low >= 1.0 && high <= n as f64 - 1.0).then(|| (low as usize - 1, high as usize))
}

/// The value below which the share `p` of the sorted values lies, with linear interpolation between neighbours; `None` of
/// no values.
pub(crate) fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let at = p * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(below + (above - below) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_order_statistics_covers_95_percent() {
        // Tables of the sign test give the 40th and the 61st of 100.
        assert_eq!(order_statistics(100), Some((39, 60)));
        assert_eq!(order_statistics(4), None);
        // The exact probability that the median of n samples lies between these two.
        for n in 6..60usize {
            let Some((low, high)) = order_statistics(n) else { continue };
            let choose = |k: usize| (0..k).fold(1.0, |c, i| c * (n - i) as f64 / (i + 1) as f64);
            let covered: f64 = (low + 1..=high).map(|k| choose(k) / 2f64.powi(i32::try_from(n).unwrap())).sum();
            assert!(covered >= 0.95, "{n}: {covered}");
        }
    }

    #[test]
    fn students_distribution() {
        for (degrees, table) in [(3, 3.182), (4, 2.776), (9, 2.262), (29, 2.045), (100_000, 1.960)] {
            assert!((student(degrees) / table - 1.0).abs() < 0.01, "{degrees}: {}", student(degrees));
        }
    }

    /// Visits whose own level is off by up to `drift`, with times off by up to `noise` and a long tail.
    fn visits(random: &mut Rng, count: usize, runs: usize, drift: f64, noise: f64) -> Vec<Vec<f64>> {
        let one = |random: &mut Rng| {
            let level = 10.0 * (1.0 + drift * (random.f64() + random.f64() - 1.0));
            let time = |random: &mut Rng| {
                let tail = if random.f64() < 0.05 { 1.0 + random.f64() } else { 1.0 };
                level * tail * (1.0 + noise * (random.f64() + random.f64() - 1.0))
            };
            (0..runs).map(|_| time(random)).collect()
        };
        (0..count).map(|_| one(random)).collect()
    }

    #[test]
    fn the_interval_of_visits_covers_the_median_of_a_machine_that_drifts() {
        let mut random = Rng::with_seed(7);
        // Of very many times the median is that of the noise with its tail, found once.
        for (count, runs, drift, noise) in
            [(6, 20, 0.05, 0.02), (30, 3, 0.05, 0.05), (12, 200, 0.02, 0.1), (9, 1, 0.0, 0.1)]
        {
            let all: Vec<f64> = {
                let mut all = visits(&mut random, 20_000, 1, drift, noise).concat();
                all.sort_by(f64::total_cmp);
                all
            };
            let truth = quantile(&all, 0.5).unwrap();
            let covered = (0..200).filter(|_| {
                let [low, high] = median_interval(&visits(&mut random, count, runs, drift, noise)).unwrap();
                low <= truth && truth <= high
            });
            let covered = covered.count();
            assert!(covered >= 185, "{count} visits of {runs}: {covered} of 200");
        }
    }

    #[test]
    fn few_times_have_no_interval() {
        assert_eq!(median_interval(&[]), None);
        assert_eq!(median_interval(&[vec![1.0, 2.0, 3.0, 4.0, 5.0]]), None);
        assert_eq!(median_interval(&[vec![1.0], vec![2.0], vec![3.0]]), None);
        let [low, high] = median_interval(&[vec![1.0], vec![2.0], vec![3.0], vec![2.0]]).unwrap();
        assert!(low < 1.0 && high > 3.0, "{low} {high}");
        let ten = vec![(1..=10).map(f64::from).collect()];
        assert_eq!(median_interval(&ten), Some([1.0, 10.0]));
    }
}
