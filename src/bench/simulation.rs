//! Whether printed intervals hold what they promise, on latencies that are made up: the machine drifts, and some runs are late.

use super::ratio::Ratio;
use super::stats::Latency;

/// How many pairs of runs are made up.
const TRIALS: u64 = 100;

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

    /// Two contestants in rounds of random order; the second takes so many times as long.
    fn rounds(&mut self, count: usize, times: f64) -> [Vec<u64>; 2] {
        let mut samples = [Vec::new(), Vec::new()];
        for _ in 0..count {
            let first = self.random.usize(..2);
            for contestant in [first, 1 - first] {
                let time = self.run(if contestant == 0 { 1.0 } else { times });
                samples[contestant].push(time);
            }
        }
        samples
    }
}

/// Whether the medians of two runs are apart by less than their printed intervals: these meet.
fn agree([a, b]: &[Vec<u64>; 2]) -> bool {
    let ends = |samples: &[u64]| Latency::of(samples).unwrap().ci95.expect("there are samples enough");
    let ([a_low, a_high], [b_low, b_high]) = (ends(a), ends(b));
    a_low <= b_high && b_low <= a_high
}

/// Of how many trials something is true.
fn count(trial: impl Fn(u64) -> bool) -> usize {
    count_of(TRIALS, trial)
}

fn count_of(trials: u64, trial: impl Fn(u64) -> bool) -> usize {
    (0..trials).filter(|seed| trial(*seed)).count()
}

#[test]
fn two_runs_of_one_contestant_differ_by_less_than_their_intervals() {
    for rounds in [50, 200, 600] {
        let agreeing = count(|seed| agree(&Machine::new(seed).rounds(rounds, 1.0)));
        assert!(agreeing >= 95, "{rounds} rounds: {agreeing} of {TRIALS}");
    }
}

#[test]
fn contestants_that_differ_are_told_apart() {
    let agreeing = count(|seed| agree(&Machine::new(seed).rounds(200, 1.03)));
    assert!(agreeing <= 5, "{agreeing} of {TRIALS}");
}

#[test]
fn a_comparison_of_samples_seldom_sees_what_is_not_there() {
    let significant = |ratio: Ratio| ratio.significant() == Some(true);
    let different = |[a, b]: &[Vec<u64>; 2]| significant(Ratio::of_samples(a, b).unwrap());
    let same = count_of(40, |seed| different(&Machine::new(seed).rounds(100, 1.0)));
    let slower = count_of(40, |seed| different(&Machine::new(seed).rounds(100, 1.03)));
    assert!(same <= 4 && slower >= 38, "{same} and {slower} of 40");
    // In documents of two benches the machine drifts on its own in each: bench diff has a threshold for that as well.
    let apart = |seed: u64| {
        let [[a, _], [b, _]] = [seed, seed + TRIALS].map(|seed| Machine::new(seed).rounds(200, 1.0));
        let ratio = Ratio::of_samples(&a, &b).unwrap();
        significant(ratio) && (ratio.value - 1.0).abs() > 0.02
    };
    let apart = count_of(40, apart);
    assert!(apart <= 2, "{apart} of 40");
}
