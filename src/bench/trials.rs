//! Workloads whose run is more than one call of a session: a text that is generated, all batches of a data set.
//!
//! They take turns as cells do: visits of all in rounds, each round in another seeded order, until the interval of the median
//! is narrow or the time is up.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::BenchOptions;
use super::clock::wait_until_idle;
use super::document::{Cell, Status};
use super::stats::Latency;
use super::sweep::{BenchObserver, Measured};

/// The least time of the timed runs of a visit.
const VISIT: Duration = Duration::from_millis(100);
/// The least number of visits before a narrow interval ends a cell.
const LEAST_VISITS: usize = 5;

/// A cell of such a workload while it is measured.
pub(super) struct Trial<'a, T> {
    /// What is known of the cell before.
    pub(super) cell: Cell,
    /// One run, and how long it took; what it gives is kept of each.
    pub(super) run: Box<dyn FnMut() -> Result<(Duration, T)> + 'a>,
    samples: Vec<u64>,
    visits: Vec<usize>,
    /// The time of the timed runs, with all that is done for them.
    spent: Duration,
    /// What the timed runs gave.
    pub(super) given: Vec<T>,
}

impl<'a, T> Trial<'a, T> {
    /// A cell whose time is that of a call of `run`.
    pub(super) fn new(cell: Cell, mut run: impl FnMut() -> Result<T> + 'a) -> Self {
        Self::timed(cell, move || {
            let start = Instant::now();
            let given = run()?;
            Ok((start.elapsed(), given))
        })
    }

    /// A cell whose time `run` gives.
    pub(super) fn timed(cell: Cell, run: impl FnMut() -> Result<(Duration, T)> + 'a) -> Self {
        Self {
            cell,
            run: Box::new(run),
            samples: Vec::new(),
            visits: Vec::new(),
            spent: Duration::ZERO,
            given: Vec::new(),
        }
    }

    fn latency(&self) -> Option<Latency> {
        Latency::of_visits(&self.samples, &self.visits)
    }

    fn done(&self, options: &BenchOptions) -> bool {
        if self.cell.failure.is_some() {
            return true;
        }
        let narrow = || {
            let half = self.latency().and_then(|latency| latency.half_interval());
            self.visits.len() >= LEAST_VISITS && half.is_some_and(|half| half <= options.interval)
        };
        let least = options.iterations.clamp(1, LEAST_VISITS);
        self.samples.len() >= least && (self.spent >= options.time || narrow())
    }

    /// How much of the cell is done, from 0 to 1.
    fn share(&self, options: &BenchOptions) -> f64 {
        if self.done(options) {
            return 1.0;
        }
        let time = self.spent.as_secs_f64() / options.time.as_secs_f64().max(f64::MIN_POSITIVE);
        let runs = self.samples.len() as f64 / options.iterations.clamp(1, LEAST_VISITS) as f64;
        time.min(runs).min(1.0)
    }

    /// Some timed runs behind one that is not timed in the first visit.
    fn visit(&mut self) -> Result<()> {
        if self.visits.is_empty() {
            let (took, _) = (self.run)()?;
            self.cell.warmup.n = 1;
            self.cell.warmup.ms = took.as_secs_f64() * 1e3;
        }
        wait_until_idle();
        let (before, visit) = (self.samples.len(), Instant::now());
        while self.samples.len() == before || visit.elapsed() < VISIT {
            let start = Instant::now();
            let (took, given) = (self.run)()?;
            self.given.push(given);
            self.samples.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            self.spent += start.elapsed();
        }
        self.visits.push(self.samples.len() - before);
        Ok(())
    }
}

/// Measures trials. `finish` completes the cells that were measured from what their runs gave.
pub(super) fn measure<T>(
    trials: &mut [Trial<'_, T>],
    options: &BenchOptions,
    observer: &mut dyn BenchObserver,
    finish: impl Fn(&mut Cell, &Latency, &[T]),
) {
    let mut random = fastrand::Rng::with_seed(options.seed);
    let (mut told, total) = (0, trials.len());
    loop {
        let mut open: Vec<usize> = (0..trials.len()).filter(|&at| !trials[at].done(options)).collect();
        observer.progress(trials.iter().map(|trial| trial.share(options)).sum::<f64>() / total.max(1) as f64);
        if open.is_empty() || observer.is_ended() {
            break;
        }
        random.shuffle(&mut open);
        for at in open {
            if observer.is_ended() {
                break;
            }
            let trial = &mut trials[at];
            if let Err(error) = trial.visit() {
                trial.cell.status = Status::Failed;
                trial.cell.failure = Some(format!("{error:#}"));
            }
            if trial.done(options) {
                told += 1;
                let median = match &trial.cell.failure {
                    Some(failure) => Err(failure.clone()),
                    None => trial.latency().map(|latency| latency.p50).ok_or_else(String::new),
                };
                let Cell { model, backend, shape, .. } = &trial.cell;
                let median = median.as_ref().map(|ms| *ms).map_err(String::as_str);
                let (label, runtime) = (model.id.as_str(), backend.as_str());
                observer.measured(Measured { number: (told, total), label, runtime, shape, median });
            }
        }
    }
    for trial in trials {
        let done = trial.done(options);
        let latency = trial.latency().filter(|_| done && trial.cell.failure.is_none());
        if let Some(latency) = latency {
            finish(&mut trial.cell, &latency, &trial.given);
            trial.cell.latency_ms = Some(latency);
            trial.cell.samples_ns = std::mem::take(&mut trial.samples);
            trial.cell.visits = std::mem::take(&mut trial.visits);
            trial.cell.status = Status::Measured;
        } else if trial.cell.failure.is_none() {
            trial.cell.failure = Some("the benchmark was ended before".to_owned());
        }
    }
}
