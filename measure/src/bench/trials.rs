//! Workloads whose run is more than one call of a session: a text that is generated, all batches of a data set.
//!
//! They take [turns](super::rounds) as cells of single calls do, until the interval of the median is narrow or the time is up.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::BenchOptions;
use super::clock::wait_until_idle;
use super::document::{Cell, Status};
use super::energy::Rapl;
use super::figures::{Energy, Meter};
use super::rounds::{LEAST_VISITS, Progress, Visited, take_turns};
use super::stats::Latency;
use super::sweep::{BenchObserver, Measured, no_peak};

/// The least time of the timed runs of a visit.
const VISIT: Duration = Duration::from_millis(100);
/// The most runs that a cell is asked for: they are long.
const MOST_ITERATIONS: usize = 5;
/// A cell ends after this time, with its untimed run, even where runs are missing, unless it is asked to take longer.
const MAX_TIME: Duration = Duration::from_secs(60);

/// Measures the most memory that a process has which loads the model and runs it, once and several times.
type Peaks<'a> = Box<dyn FnOnce() -> Result<[Option<u64>; 2]> + 'a>;

/// A cell of such a workload while it is measured.
pub(super) struct Trial<'a, T> {
    /// What is known of the cell before.
    pub(super) cell: Cell,
    /// One run, and how long it took; what it gives is kept of each.
    pub(super) run: Box<dyn FnMut() -> Result<(Duration, T)> + 'a>,
    samples: Vec<u64>,
    visits: Vec<usize>,
    /// Whether the interval of the median was as narrow as asked for.
    narrow: bool,
    /// The time of the timed runs, with all that is done for them.
    spent: Duration,
    /// The energy of the timed runs, with all that is done for them, where it is counted.
    joules: f64,
    /// Absent where neither memory nor energy is measured.
    peaks: Option<Peaks<'a>>,
    /// What the timed runs gave.
    pub(super) given: Vec<T>,
}

impl<'a, T> Trial<'a, T> {
    /// A cell whose time `run` gives.
    pub(super) fn new(cell: Cell, run: impl FnMut() -> Result<(Duration, T)> + 'a) -> Self {
        Self {
            cell,
            run: Box::new(run),
            samples: Vec::new(),
            visits: Vec::new(),
            narrow: false,
            spent: Duration::ZERO,
            joules: 0.0,
            peaks: None,
            given: Vec::new(),
        }
    }

    /// The same with the energy of a run, and with the most memory of a process, which `peaks` measures where there is such a
    /// process.
    pub(super) fn metered(self, peaks: impl FnOnce() -> Result<[Option<u64>; 2]> + 'a) -> Self {
        Self { peaks: Some(Box::new(peaks)), ..self }
    }

    fn latency(&self) -> Option<Latency> {
        Latency::of_visits(&self.samples, &self.visits)
    }

    /// The least number of its runs.
    fn least(options: &BenchOptions) -> usize {
        options.iterations.clamp(1, MOST_ITERATIONS)
    }

    /// Some timed runs after one that is not timed in the first visit.
    fn visit(&mut self, options: &BenchOptions, rapl: Option<&Rapl>) -> Result<()> {
        if self.visits.is_empty() {
            let (took, _) = (self.run)()?;
            self.cell.warmup.n = 1;
            self.cell.warmup.ms = took.as_secs_f64() * 1e3;
        }
        wait_until_idle();
        let energy = rapl.filter(|_| self.peaks.is_some()).map(|rapl| (rapl, rapl.read()));
        let (before, visit) = (self.samples.len(), Instant::now());
        while self.samples.len() == before || visit.elapsed() < VISIT {
            let start = Instant::now();
            let (took, given) = (self.run)()?;
            self.given.push(given);
            self.samples.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            self.spent += start.elapsed();
        }
        if let Some((rapl, energy)) = energy {
            self.joules += rapl.joules(&energy, &rapl.read());
        }
        self.visits.push(self.samples.len() - before);
        if self.visits.len() >= LEAST_VISITS && !self.narrow {
            let half = self.latency().and_then(|latency| latency.half_interval());
            self.narrow = half.is_some_and(|half| half <= options.interval);
        }
        Ok(())
    }
}

impl<T> Visited for Trial<'_, T> {
    fn progress(&self, options: &BenchOptions) -> Progress {
        let least = Self::least(options);
        let had_time = self.spent >= options.time && self.samples.len() >= least;
        let with_warmup = self.spent + Duration::from_secs_f64(self.cell.warmup.ms / 1e3);
        let capped = !self.samples.is_empty() && with_warmup >= MAX_TIME.max(options.time);
        if self.cell.failure.is_some() || had_time || capped {
            return Progress::Ended;
        }
        if self.narrow && self.samples.len() >= least {
            return Progress::Done;
        }
        let time = self.spent.as_secs_f64() / options.time.as_secs_f64().max(f64::MIN_POSITIVE);
        let runs = self.samples.len() as f64 / least as f64;
        Progress::Open(time.min(runs).min(1.0))
    }
}

/// Measures trials. `finish` completes the cells that were measured from what their runs gave.
pub(super) fn measure<T>(
    trials: &mut [Trial<'_, T>],
    options: &BenchOptions,
    observer: &mut dyn BenchObserver,
    finish: impl Fn(&mut Cell, &Latency, &[T]),
) {
    observer.step("measuring");
    let rapl = Rapl::open();
    let (mut told, total) = (0, trials.len());
    let first = |trial: &Trial<'_, T>| trials.iter().position(|other| other.cell.shape == trial.cell.shape);
    let groups: Vec<usize> = trials.iter().filter_map(first).collect();
    let visit = |trial: &mut Trial<'_, T>| {
        if let Err(error) = trial.visit(options, rapl.as_ref()) {
            trial.cell.status = Status::Failed;
            trial.cell.failure = Some(format!("{error:#}"));
        }
    };
    let tell = |trial: &Trial<'_, T>, observer: &mut dyn BenchObserver| {
        told += 1;
        let median = match &trial.cell.failure {
            Some(failure) => Err(failure.as_str()),
            None => trial.latency().map(|latency| latency.p50).ok_or(""),
        };
        let Cell { model, backend, shape, .. } = &trial.cell;
        let (label, runtime) = (model.id.as_str(), backend.as_str());
        observer.measured(Measured { number: (told, total), label, runtime, shape, median });
    };
    take_turns(trials, &groups, options, observer, visit, tell);
    for trial in trials {
        let done = !matches!(trial.progress(options), Progress::Open(_));
        let latency = trial.latency().filter(|_| done && trial.cell.failure.is_none());
        if let Some(latency) = latency {
            finish(&mut trial.cell, &latency, &trial.given);
            let least = Trial::<T>::least(options);
            if latency.n < least {
                let (n, seconds) = (latency.n, MAX_TIME.max(options.time).as_secs());
                let why = format!(
                    "the cell took its {seconds} s: {n} runs instead of {least}; --set time=SECONDS gives it more"
                );
                trial.cell.warnings.push(why);
            }
            let joules = trial.joules / trial.samples.len().max(1) as f64;
            trial.cell.energy = (joules > 0.0).then_some(Energy { joules, meter: Meter::Rapl });
            match trial.peaks.take().filter(|_| !observer.is_ended()).map(|peaks| peaks()) {
                None => {}
                Some(Ok(peaks)) => [trial.cell.memory.peak_rss, trial.cell.memory.repeated_rss] = peaks,
                Some(Err(error)) => observer.warning(&no_peak(&error)),
            }
            trial.cell.latency_ms = Some(latency);
            trial.cell.samples_ns = std::mem::take(&mut trial.samples);
            trial.cell.visits = std::mem::take(&mut trial.visits);
            trial.cell.status = Status::Measured;
        } else if trial.cell.failure.is_none() {
            trial.cell.failure = Some("the benchmark was ended before".to_owned());
        }
    }
}
