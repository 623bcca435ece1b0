//! Whether printed intervals hold what they promise, on latencies that are made up: the machine drifts, and some runs are late.

use super::document::Cell;
use super::document::examples::cell;
use super::ratio::Ratio;
use super::stats::Latency;

/// How many pairs of runs are made up.
const TRIALS: u64 = 100;

/// For how many runs the speed of the machine stays about the same: it changes slowly and fast at once, as that of a machine
/// that others use too.
const SPANS: [f64; 4] = [10.0, 100.0, 1000.0, 10_000.0];

/// A machine whose speed wanders, and comes back.
struct Machine {
    random: fastrand::Rng,
    /// The standard deviation of the drift of each span.
    drift: f64,
    levels: [f64; SPANS.len()],
}

impl Machine {
    fn new(seed: u64, drift: f64) -> Self {
        let mut machine = Self { random: fastrand::Rng::with_seed(seed), drift, levels: [0.0; SPANS.len()] };
        machine.levels = SPANS.map(|_| drift * machine.normal());
        machine
    }

    /// A number of mean 0 and standard deviation 1, about normal.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0
    }

    /// The time of a run in nanoseconds that takes 5 ms at best: each is a little later, one in 30 by a Pareto law.
    fn run(&mut self, times: f64) -> u64 {
        for (at, span) in SPANS.iter().enumerate() {
            let kept = 1.0 - 1.0 / span;
            self.levels[at] = kept * self.levels[at] + (1.0 - kept * kept).sqrt() * self.drift * self.normal();
        }
        let noise = (0.02 * self.normal()).exp() - 1.0;
        let late = if self.random.f64() < 1.0 / 30.0 { 0.05 * self.random.f64().max(1e-3).powf(-0.7) } else { 0.0 };
        (5e6 * times * (1.0 + self.levels.iter().sum::<f64>() + noise + late)) as u64
    }

    /// A benchmark of contestants that take so many times as long as the first, visited in rounds of random order.
    fn bench(&mut self, (visits, runs): (usize, usize), times: &[f64]) -> Vec<Cell> {
        let mut samples = vec![Vec::new(); times.len()];
        for _ in 0..visits {
            let mut order: Vec<usize> = (0..times.len()).collect();
            self.random.shuffle(&mut order);
            for contestant in order {
                samples[contestant].extend((0..runs).map(|_| self.run(times[contestant])));
            }
        }
        let measured = |samples_ns: Vec<u64>| {
            let visits = vec![runs; visits];
            Cell { latency_ms: Latency::of_visits(&samples_ns, &visits), samples_ns, visits, ..cell("a", 8, Some(1)) }
        };
        samples.into_iter().map(measured).collect()
    }
}

/// Visits of a cell, and runs of a visit.
const SIZES: [(usize, usize); 2] = [(8, 12), (24, 6)];

/// A cell of long runs.
const FEW: (usize, usize) = (5, 1);

/// Of a machine that is used by others, as measured, and of a quiet one.
const DRIFTS: [f64; 2] = [0.01, 0.001];

/// Of how many trials something is true.
fn count(trial: impl Fn(u64) -> bool) -> usize {
    (0..TRIALS).filter(|seed| trial(*seed)).count()
}

#[test]
fn two_runs_of_one_contestant_differ_by_less_than_their_intervals() {
    for (size, drift) in SIZES.iter().chain([&FEW]).flat_map(|size| DRIFTS.map(|drift| (*size, drift))) {
        let agree = |seed| {
            let mut machine = Machine::new(seed, drift);
            let [(a, half_a), (b, half_b)] = [(); 2].map(|()| {
                let latency = machine.bench(size, &[1.0]).remove(0).latency_ms.unwrap();
                let [low, high] = latency.ci95.unwrap();
                (latency.p50, (high - low) / 2.0)
            });
            (a - b).abs() < half_a + half_b
        };
        let agreeing = count(agree);
        assert!(agreeing >= 95, "{size:?}, drift {drift}: {agreeing} of {TRIALS}");
    }
}

#[test]
fn the_interval_is_narrow_on_a_quiet_machine() {
    let half = |seed| Machine::new(seed, 0.001).bench((40, 25), &[1.0]).remove(0).latency_ms.unwrap().half_interval();
    let narrow = count(|seed| half(seed).unwrap() < 0.01);
    assert!(narrow >= 95, "{narrow} of {TRIALS}");
}

/// How much longer the second contestant of a benchmark takes, and whether that is certain.
fn significant(seed: u64, size: (usize, usize), drift: f64, times: f64) -> bool {
    let cells = Machine::new(seed, drift).bench(size, &[1.0, times]);
    Ratio::of_rounds(&cells[0], &cells[1]).unwrap().significant().unwrap()
}

#[test]
fn contestants_of_one_run_are_told_apart_although_the_machine_drifts() {
    for (size, drift) in SIZES.iter().flat_map(|size| DRIFTS.map(|drift| (*size, drift))) {
        let same = count(|seed| significant(seed, size, drift, 1.0));
        let slower = count(|seed| significant(seed, size, drift, 1.06));
        assert!(same <= 5 && slower >= 90, "{size:?}, drift {drift}: {same} and {slower} of {TRIALS}");
    }
}

#[test]
fn two_benches_of_one_contestant_seldom_differ() {
    for (size, drift) in SIZES.iter().flat_map(|size| DRIFTS.map(|drift| (*size, drift))) {
        let differ = |seed| {
            let mut machine = Machine::new(seed, drift);
            let [a, b] = [(); 2].map(|()| machine.bench(size, &[1.0]).remove(0).latency_ms.unwrap());
            let ratio = Ratio::of_runs(&a, &b).unwrap();
            // The usual threshold of `bench diff`.
            ratio.significant() == Some(true) && (ratio.value - 1.0).abs() > 0.02
        };
        let apart = count(differ);
        assert!(apart <= 5, "{size:?}, drift {drift}: {apart} of {TRIALS}");
    }
}
