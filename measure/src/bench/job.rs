//! One cell of a sweep while it is measured.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use planish_eval::Tensor;
use planish_runtimes::nvml::GpuState;
use planish_runtimes::ort::Provider;
use planish_runtimes::{DeviceTimes, RuntimeError, Session};

use super::clock::wait_until_idle;
use super::contestant::fitted;
use super::device::DeviceLatency;
use super::document::{Accuracy, Cell, CellOptions, CellShape, Memory, ModelId, Status, Throughput, Warmup, Workload};
use super::energy::Meters;
use super::figures::{Energy, Meter, Work};
use super::gpu::GpuRuns;
use super::interval::{PARTS, ratio_interval};
use super::rounds::{LEAST_VISITS, Progress, Visited};
use super::stats::{Latency, Settling, split};
use super::{BenchOptions, Contestant};
use crate::inspect::weight_bytes;

/// The least time of the timed runs in one visit: short, so that rounds are many.
const VISIT: Duration = Duration::from_millis(100);
/// The same of a race, which compares the cells of one round with each other.
const RACE_VISIT: Duration = Duration::from_millis(20);
/// The least number of timed runs in one visit after one that is not timed.
const VISIT_RUNS: usize = 3;
/// The same of a race.
const RACE_RUNS: usize = 2;
/// The time of a block of runs while warming up.
const BLOCK: Duration = Duration::from_millis(50);
/// Warming up ends after this many times its least time even where times do not settle.
const MAX_WARMUP: u32 = 10;
/// A cell ends after this time even where runs are missing, unless it is asked to take longer.
const MAX_TIME: Duration = Duration::from_secs(60);
/// A narrow interval ends a cell only after this time of timed runs.
const LEAST_TIME: Duration = Duration::from_millis(500);
/// Runs of at least this time need no untimed one before them: what the session before left in caches is read again in a small
/// part of it. So a visit is one run.
const LONG_RUN: Duration = Duration::from_millis(200);
/// The same of a race, whose cells all read them again.
const RACE_LONG_RUN: Duration = Duration::from_millis(40);
/// The most runs without a recorded graph.
const WITHOUT_GRAPH: usize = 21;
/// A cell ends after this many runs.
const MAX_SAMPLES: usize = 20_000;

/// One contestant on one run.
pub(crate) struct Job {
    /// Its place among the contestants.
    pub(crate) contestant: usize,
    /// The place of what it runs.
    pub(crate) run: usize,
    warmup: Warmup,
    /// Whether times had settled when warming up ended.
    settled: bool,
    samples: Vec<u64>,
    /// How many of them each visit took.
    visits: Vec<usize>,
    /// Whether the interval of the median was as narrow as asked for.
    narrow: bool,
    /// The times of the device for each timed run, where the runtime has them.
    device: Vec<DeviceTimes>,
    /// The times of some runs without a recorded graph, where the timed runs replay one.
    without_graph: Vec<Duration>,
    /// The time of the timed runs.
    spent: Duration,
    /// The energy of the processor during the timed runs, where it is counted.
    joules: f64,
    /// The same of the GPU.
    gpu_joules: f64,
    /// The GPU after each visit, where it runs there and one can be read.
    gpu: Vec<GpuState>,
    accuracy: Option<Accuracy>,
    /// What a run computes and reads.
    pub(crate) work: Option<Work>,
    /// The most memory that a process of the cell alone had resident, after one run and after several.
    pub(crate) peaks: [Option<u64>; 2],
    /// Why it has no latency.
    pub(crate) failure: Option<String>,
    /// Whether it is certainly slower than what it is compared with.
    pub(crate) is_slower: bool,
}

/// The runs of the first contestant, by the places of what was run.
#[derive(Default)]
pub(crate) struct Races(BTreeMap<usize, (Vec<u64>, Vec<usize>)>);

impl Races {
    /// Ends a cell that is certainly slower than that of the first contestant in the same rounds.
    pub(crate) fn visited(&mut self, job: &mut Job) {
        if job.contestant == 0 {
            self.0.insert(job.run, (job.samples.clone(), job.visits.clone()));
            return;
        }
        let Some((samples, visits)) = self.0.get(&job.run) else { return };
        if job.visits.len().min(visits.len()) < LEAST_VISITS {
            return;
        }
        let (base, own) = (split(samples, visits), split(&job.samples, &job.visits));
        let medians = Latency::of_visits(samples, visits).zip(job.latency());
        let ratio =
            medians.and_then(|(base_latency, latency)| ratio_interval(&base, &own, latency.p50 / base_latency.p50));
        job.is_slower = ratio.is_some_and(|[low, _]| low > 1.0);
    }
}

impl Visited for Job {
    fn progress(&self, options: &BenchOptions) -> Progress {
        if self.ended(options) {
            return Progress::Ended;
        }
        if self.narrow && self.samples.len() >= options.iterations {
            return Progress::Done;
        }
        let time = self.spent.as_secs_f64() / options.time.as_secs_f64().max(f64::MIN_POSITIVE);
        let runs = self.samples.len() as f64 / options.iterations.max(1) as f64;
        Progress::Open(time.min(runs).min(1.0))
    }
}

impl Job {
    /// A cell that was compared with the reference.
    pub(crate) fn new(contestant: usize, run: usize, accuracy: Option<Accuracy>, failure: Option<String>) -> Self {
        Self {
            contestant,
            run,
            warmup: Warmup::default(),
            settled: false,
            samples: Vec::new(),
            visits: Vec::new(),
            narrow: false,
            device: Vec::new(),
            without_graph: Vec::new(),
            spent: Duration::ZERO,
            joules: 0.0,
            gpu_joules: 0.0,
            gpu: Vec::new(),
            accuracy,
            work: None,
            peaks: [None; 2],
            failure,
            is_slower: false,
        }
    }

    /// Whether it needs no more visits.
    fn done(&self, options: &BenchOptions) -> bool {
        !matches!(self.progress(options), Progress::Open(_))
    }

    /// Whether it takes no more visits: it failed, or had its time.
    fn ended(&self, options: &BenchOptions) -> bool {
        // A race is about an interval.
        let has_interval = !options.races || self.visits.len() >= PARTS;
        let had_time = self.spent >= options.time && self.samples.len() >= options.iterations && has_interval;
        let capped = self.samples.len() >= MAX_SAMPLES || self.spent >= MAX_TIME.max(options.time);
        self.failure.is_some() || had_time || capped || self.is_slower
    }

    /// Whether the outputs are right, and it has a latency for which enough was run.
    pub(crate) fn is_measured(&self, options: &BenchOptions) -> bool {
        self.failure.is_none() && self.done(options)
    }

    /// The statistics of the timed runs.
    fn latency(&self) -> Option<Latency> {
        Latency::of_visits(&self.samples, &self.visits)
    }

    /// The median of the timed runs in milliseconds, or why there is none.
    pub(crate) fn median(&self) -> Result<f64, &str> {
        match &self.failure {
            Some(failure) => Err(failure),
            None => self.latency().map(|latency| latency.p50).ok_or("it was not run"),
        }
    }

    /// Some timed runs. The visit waits first until the threads of the session before have gone
    /// to sleep, and starts with an untimed run, in the first visit with as many as it takes for
    /// times to settle.
    pub(crate) fn visit(
        &mut self,
        session: &mut dyn Session,
        inputs: &[(String, Tensor)],
        options: &BenchOptions,
        meters: &Meters,
    ) -> Result<(), RuntimeError> {
        let fitted = fitted(session, inputs);
        session.bind(&fitted)?;
        wait_until_idle();
        let is_first = self.warmup.n == 0;
        if is_first {
            self.warm_up(session, options)?;
        }
        let (time, runs, long) = match options.races {
            true => (RACE_VISIT, RACE_RUNS, RACE_LONG_RUN),
            false => (VISIT, VISIT_RUNS, LONG_RUN),
        };
        let is_long = self.warmup.ms / self.warmup.n as f64 >= long.as_secs_f64() * 1e3;
        if !is_first && !is_long {
            session.run_bound()?;
        }
        let (time, least) = if is_long { (Duration::ZERO, 1) } else { (time, runs) };
        let before = (self.spent, self.samples.len());
        let energy = meters.rapl.as_ref().map(|rapl| (rapl, rapl.read()));
        let of_gpu = meters.gpu.as_ref().map(|gpu| (gpu, gpu.joules()));
        while (self.spent < before.0 + time || self.samples.len() < before.1 + least) && !self.ended(options) {
            let (took, times) = session.timed(options.transfers)?;
            self.device.extend(times);
            self.samples.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            self.spent += took;
        }
        if let Some((rapl, energy)) = energy {
            self.joules += rapl.joules(&energy, &rapl.read());
        }
        if let Some((gpu, before)) = of_gpu.filter(|_| !self.device.is_empty()) {
            self.gpu_joules += gpu.joules().zip(before).map_or(0.0, |(after, before)| (after - before).max(0.0));
            self.gpu.push(gpu.state());
        }
        self.visits.push(self.samples.len() - before.1);
        if is_first {
            self.run_without_graph(session)?;
        }
        let enough = self.spent >= LEAST_TIME && self.visits.len() >= LEAST_VISITS;
        if options.interval > 0.0 && enough && !self.narrow {
            let half = self.latency().and_then(|latency| latency.half_interval());
            self.narrow = half.is_some_and(|half| half <= options.interval);
        }
        Ok(())
    }

    /// Some runs in which the host starts each kernel by itself, for cells that replay a CUDA graph.
    fn run_without_graph(&mut self, session: &mut dyn Session) -> Result<(), RuntimeError> {
        let start = Instant::now();
        while self.without_graph.len() < WITHOUT_GRAPH && (self.without_graph.is_empty() || start.elapsed() < VISIT) {
            match session.time_without_graph()? {
                Some(time) => self.without_graph.push(time),
                None => break,
            }
        }
        Ok(())
    }

    fn warm_up(&mut self, session: &mut dyn Session, options: &BenchOptions) -> Result<(), RuntimeError> {
        let (start, mut settling) = (Instant::now(), Settling::default());
        loop {
            let (block, mut runs) = (Instant::now(), 0u32);
            while runs == 0 || block.elapsed() < BLOCK {
                session.run_bound()?;
                runs += 1;
            }
            self.warmup.n += runs as usize;
            self.settled = settling.push(block.elapsed() / runs);
            let spent = start.elapsed();
            // A drift changes all cells of a round, and a race asks for their ratios.
            let most = if options.races { options.warmup } else { options.warmup * MAX_WARMUP };
            if spent >= options.warmup && (self.settled || spent >= most) {
                self.warmup.ms = spent.as_secs_f64() * 1e3;
                return Ok(());
            }
        }
    }

    /// What the document says of it.
    pub(crate) fn cell(mut self, contestants: &[Contestant], shape: CellShape, options: &BenchOptions) -> Cell {
        let contestant = &contestants[self.contestant];
        let done = self.done(options);
        let latency = self.latency().filter(|_| self.is_measured(options));
        let throughput = latency.as_ref().map(|latency| {
            let inf_s = shape.batch as f64 / (latency.p50 / 1e3);
            Throughput { inf_s, tok_s: shape.tokens.map(|tokens| inf_s * tokens as f64) }
        });
        let mut warnings = latency.as_ref().map(|latency| self.warnings(latency, options)).unwrap_or_default();
        let device = DeviceLatency::of(&self.device, self.spent).filter(|_| latency.is_some());
        let records = contestant.runtime != Provider::Cuda.runtime();
        warnings.extend(device.iter().flat_map(|device| device.warnings(records)));
        self.without_graph.sort_unstable();
        let without_graph = self.without_graph.get(self.without_graph.len() / 2).filter(|_| latency.is_some());
        let without_graph_ms = without_graph.map(|time| time.as_secs_f64() * 1e3);
        let model = ModelId { id: contestant.label.clone(), file_bytes: Some(contestant.file_bytes) };
        let runs = self.samples.len().max(1) as f64;
        let gpu = GpuRuns::of(&self.gpu).filter(|_| latency.is_some());
        warnings.extend(gpu.iter().flat_map(GpuRuns::warnings));
        // What runs on a GPU has the energy of the GPU.
        let (joules, meter) = match self.gpu_joules > 0.0 {
            true => (self.gpu_joules, Meter::Nvml),
            false => (self.joules, Meter::Rapl),
        };
        let energy = latency.as_ref().filter(|_| joules > 0.0);
        let energy = energy.map(|_| Energy { joules: joules / runs, meter });
        Cell {
            gpu,
            energy,
            options: CellOptions { threads: options.threads, spin: options.spin },
            warmup: self.warmup,
            samples_ns: if latency.is_some() { self.samples } else { Vec::new() },
            visits: if latency.is_some() { self.visits } else { Vec::new() },
            latency_ms: latency,
            device,
            without_graph_ms,
            throughput,
            memory: Memory {
                load_rss: contestant.resident,
                peak_rss: self.peaks[0],
                repeated_rss: self.peaks[1],
                weights: contestant.graph.as_ref().map(weight_bytes),
            },
            load: contestant.load,
            work: self.work,
            accuracy: self.accuracy,
            status: match (&self.failure, done) {
                (Some(_), _) => Status::Failed,
                (None, true) => Status::Measured,
                (None, false) => Status::Unfinished,
            },
            failure: self.failure.or_else(|| (!done).then(|| "the benchmark was ended before".to_owned())),
            warnings,
            ..Cell::new(model, contestant.runtime, &contestant.precision, Workload::Encode, shape)
        }
    }

    fn warnings(&self, latency: &Latency, options: &BenchOptions) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.settled {
            warnings.push("the times did not settle within 2% during the warm-up".to_owned());
        }
        if latency.n < options.iterations {
            warnings.push(format!("the cell took too long: {} runs instead of {}", latency.n, options.iterations));
        }
        match latency.half_interval() {
            Some(width) if width > 0.05 => {
                warnings.push(format!("the 95% interval of the median is ±{:.0}%", width * 100.0))
            }
            None => warnings.push("there are too few runs for an interval of the median".to_owned()),
            Some(_) => {}
        }
        warnings
    }
}
