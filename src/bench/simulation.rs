//! Whether printed intervals hold what they promise, on latencies that are made up: the machine drifts, and some runs are late.

use super::document::Cell;
use super::document::examples::cell;
use super::ratio::{Method, Ratio};
use super::stats::Latency;

/// How many pairs of runs are made up.
const TRIALS: u64 = 100;

/// The same where a trial takes longer.
const FEWER: u64 = 40;

/// The speed of a machine: it wanders, and comes back slowly.
struct Machine {
    random: fastrand::Rng,
    drift: f64,
}

impl Machine {
    fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), drift: 0.0 }
    }

    /// A number of mean 0 and standard deviation 1, about normal.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0
    }

    /// The time of a run in nanoseconds that takes 5 ms at best: each is a little later, one in 30 by a Pareto law.
    fn run(&mut self, times: f64) -> u64 {
        self.drift = 0.98 * self.drift + 0.002 * self.normal();
        let noise = (0.02 * self.normal()).exp() - 1.0;
        let late = if self.random.f64() < 1.0 / 30.0 { 0.05 * self.random.f64().max(1e-3).powf(-0.7) } else { 0.0 };
        (5e6 * times * (1.0 + self.drift + noise + late)) as u64
    }

    /// Two contestants, visited in rounds of random order, so many runs in a visit; the second takes so many times as long.
    fn rounds(&mut self, count: usize, runs: usize, times: f64) -> [Cell; 2] {
        let mut samples = [Vec::new(), Vec::new()];
        for _ in 0..count {
            let first = self.random.usize(..2);
            for contestant in [first, 1 - first] {
                let of = if contestant == 0 { 1.0 } else { times };
                samples[contestant].extend((0..runs).map(|_| self.run(of)));
            }
        }
        samples.map(|samples_ns| {
            let visits = vec![runs; count];
            // Its interval is not needed by all tests, and takes time.
            Cell { latency_ms: Latency::of(&samples_ns), samples_ns, visits, ..cell("a", 8, Some(1)) }
        })
    }
}

/// Visits of a cell, and runs of a visit.
const SIZES: [(usize, usize); 2] = [(12, 5), (15, 30)];

/// Whether the medians of two runs are apart by less than their printed intervals: these meet.
fn agree(cells: &[Cell; 2]) -> bool {
    let [[a_low, a_high], [b_low, b_high]] =
        cells.each_ref().map(|cell| Latency::of_visits(&cell.samples_ns, &cell.visits).unwrap().ci95.unwrap());
    a_low <= b_high && b_low <= a_high
}

/// Of how many trials something is true.
fn count(trials: u64, trial: impl Fn(u64) -> bool) -> usize {
    (0..trials).filter(|seed| trial(*seed)).count()
}

#[test]
fn two_runs_of_one_contestant_differ_by_less_than_their_intervals() {
    for (visits, runs) in SIZES {
        let agreeing = count(TRIALS, |seed| agree(&Machine::new(seed).rounds(visits, runs, 1.0)));
        assert!(agreeing >= 95, "{visits} visits of {runs}: {agreeing} of {TRIALS}");
    }
}

#[test]
fn contestants_that_differ_are_told_apart() {
    let agreeing = count(TRIALS, |seed| agree(&Machine::new(seed).rounds(20, 10, 1.05)));
    assert!(agreeing <= 5, "{agreeing} of {TRIALS}");
}

#[test]
fn a_comparison_of_samples_seldom_sees_what_is_not_there() {
    let compared = |a: &Cell, b: &Cell| {
        let ratio = Ratio::of_cells(a, b).unwrap();
        assert_eq!(ratio.method, Method::Bootstrap);
        ratio
    };
    let different = |[a, b]: &[Cell; 2]| compared(a, b).significant() == Some(true);
    for (visits, runs) in SIZES {
        let same = count(FEWER, |seed| different(&Machine::new(seed).rounds(visits, runs, 1.0)));
        let slower = count(FEWER, |seed| different(&Machine::new(seed).rounds(visits, runs, 1.05)));
        assert!(same <= 4 && slower >= 38, "{visits} visits of {runs}: {same} and {slower} of {FEWER}");
    }
}

/// In documents of two benches the machine drifts on its own in each. That is in the intervals where a cell is measured for
/// longer than the machine stays fast or slow, and `bench diff` has a threshold as well.
#[test]
fn two_benches_of_one_contestant_seldom_differ() {
    let (visits, runs) = (40, 10);
    let apart = count(FEWER, |seed| {
        let [[a, _], [b, _]] = [seed, seed + FEWER].map(|seed| Machine::new(seed).rounds(visits, runs, 1.0));
        let ratio = Ratio::of_cells(&a, &b).unwrap();
        ratio.significant() == Some(true) && (ratio.value - 1.0).abs() > 0.02
    });
    assert!(apart <= 2, "{visits} visits of {runs}: {apart} of {FEWER}");
}
