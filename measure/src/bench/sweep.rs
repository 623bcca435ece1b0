//! Runs the cells: first to compare their outputs with the reference, then to measure their latency.
//!
//! Contestants and runs are visited in [rounds](super::rounds), in which those at one shape stay together.

use std::fmt;
use std::time::Instant;

use planish_artifact::verification::OutputReport;
use planish_check::verify::compare;
use planish_data::inputs::{InputError, may_not_fit};
use planish_runtimes::{RuntimeError, Session};

use super::contestant::{Place, fitted};
use super::document::{Accuracy, Cell, CellShape};
use super::energy::{Meters, Rapl};
use super::job::{Job, Races};
use super::rounds::take_turns;
use super::source::Run;
use super::table::significant;
use super::{BenchOptions, Contestant, ReferenceModel, gpu, work};

/// What to do where a run fails on inputs that may not fit.
const MADE_UP: &str = "; the inputs are made from a seed, and need not fit this model: --inputs FILE gives the tensors of a run (.safetensors or \
     .npz)";

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// There is nothing to do.
    #[error("nothing to measure: {0}")]
    Nothing(&'static str),
    /// No inputs for the model.
    #[error(transparent)]
    Input(#[from] InputError),
}

/// What a caller sees while cells are measured.
pub trait BenchObserver {
    /// What share of the work is done, from 0 to 1.
    fn progress(&mut self, share: f64);
    /// A cell is done, one more of those that will be.
    fn measured(&mut self, cell: Measured<'_>);
    /// Something begins that may take minutes.
    fn step(&mut self, _: &str) {}
    /// Measuring begins.
    fn begin(&mut self) {}
    /// Whether the benchmark is to end with what is finished.
    fn is_ended(&self) -> bool {
        false
    }
    /// Something is left out, or has no effect.
    fn warning(&mut self, text: &str);
    /// Information that is not a problem.
    fn note(&mut self, text: &str);
}

/// A cell that is done. Its text form is a line.
#[derive(Clone, Debug)]
pub struct Measured<'a> {
    /// How many are done with this one, and how many there are.
    pub number: (usize, usize),
    /// The artifact.
    pub label: &'a str,
    /// The runtime.
    pub runtime: &'a str,
    /// What was run.
    pub shape: &'a CellShape,
    /// The median of the times in milliseconds, or why there is none.
    pub median: Result<f64, &'a str>,
}

impl fmt::Display for Measured<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, total) = self.number;
        write!(f, "{number} of {total}: {} ({}, {}) ", self.label, self.runtime, self.shape)?;
        match self.median {
            Ok(median) => write!(f, "{} ms", significant(median)),
            Err(failure) => write!(f, "has no latency: {failure}"),
        }
    }
}

/// Measures contestants that are artifacts of one model at every batch size and sequence length.
///
/// The outputs of each cell are compared with those of `source`; a cell that is not within its
/// contestant's tolerances, or that fails, is not timed and says why.
///
/// # Errors
/// When there is nothing to measure, or no inputs can be made.
pub fn sweep(
    contestants: &mut [Contestant],
    source: &mut ReferenceModel,
    options: &BenchOptions,
    observer: &mut dyn BenchObserver,
) -> Result<Vec<Cell>, BenchError> {
    if contestants.is_empty() {
        return Err(BenchError::Nothing("no artifact"));
    }
    if options.iterations == 0 && options.time.is_zero() {
        return Err(BenchError::Nothing("neither a time nor a number of runs"));
    }
    let (mut jobs, mut inputs) = (Vec::new(), Vec::new());
    observer.step("running the reference interpreter");
    for run in source.all_runs(options)? {
        let of_part = contestants.iter_mut().enumerate().filter(|(_, contestant)| contestant.part == run.part);
        for (index, contestant) in of_part {
            observer.step(&format!(
                "comparing {} ({}, {}) with the reference",
                contestant.label, contestant.runtime, run.shape
            ));
            let (accuracy, failure) = if observer.is_ended() { Default::default() } else { gate(contestant, &run) };
            let may_not_fit = || source.parts.get(run.part).is_some_and(|part| may_not_fit(&part.specs));
            // Without figures it did not run.
            let advice = if accuracy.is_none() && source.given.is_none() && may_not_fit() { MADE_UP } else { "" };
            let failure = failure.map(|failure| failure + advice);
            let model = source.parts.get(run.part).and_then(|part| part.graph.as_ref());
            let outputs = run.expected.as_deref().unwrap_or_default();
            let work = model.zip(contestant.graph.as_ref());
            let work = work.and_then(|(model, graph)| work::work(model, graph, &run.inputs, outputs));
            let mut job = Job::new(index, inputs.len(), accuracy, failure);
            job.work = work;
            jobs.push(job);
        }
        inputs.push((run.shape, run.inputs));
    }
    if jobs.is_empty() {
        return Err(BenchError::Nothing("no shape with rows and tokens"));
    }

    observer.step("measuring");
    let meters = Meters { rapl: Rapl::open(), gpu: gpu::monitor(contestants.iter().map(|of| of.runtime)) };
    let (mut done, total) = (0, jobs.len());
    let names: Vec<(String, &'static str)> = contestants.iter().map(|of| (of.label.clone(), of.runtime)).collect();
    let runs: Vec<usize> = jobs.iter().map(|job| job.run).collect();
    let mut races = Races::default();
    let visit = |job: &mut Job| {
        let session = contestants[job.contestant].session.session_mut();
        if let Err(error) = job.visit(session, &inputs[job.run].1, options, &meters) {
            job.failure = Some(error.to_string());
        }
        if options.races {
            races.visited(job);
        }
    };
    let tell = |job: &Job, observer: &mut dyn BenchObserver| {
        done += 1;
        let ((label, runtime), shape) = (&names[job.contestant], &inputs[job.run].0);
        observer.measured(Measured { number: (done, total), label, runtime, shape, median: job.median() });
    };
    take_turns(&mut jobs, &runs, options, observer, visit, tell);
    for job in jobs.iter_mut().filter(|job| job.is_measured(options)) {
        if observer.is_ended() {
            break;
        }
        if let Place::Apart(apart) = &contestants[job.contestant].session {
            let fitted = fitted(apart.as_ref(), &inputs[job.run].1);
            match apart.peaks(|fresh| fresh.run_once(&fitted)) {
                Ok(peaks) => job.peaks = peaks,
                Err(error) => observer.warning(&no_peak(&error)),
            }
        }
    }
    let cell = |job: Job| {
        let shape = inputs[job.run].0.clone();
        job.cell(contestants, shape, options)
    };
    Ok(jobs.into_iter().map(cell).collect())
}

/// Why a cell has no peak of memory.
pub(super) fn no_peak(error: &anyhow::Error) -> String {
    format!("the peak of memory is not known: {error:#}")
}

/// Runs a contestant once, as it is timed, and compares it with the reference: the differences, and why it is not timed if it
/// is not. A recorded CUDA graph is replayed, on memory without numbers.
fn gate(contestant: &mut Contestant, run: &Run) -> (Option<Accuracy>, Option<String>) {
    let inputs = &run.inputs;
    let first = |session: &mut dyn Session| {
        let fitted = fitted(session, inputs);
        session.bind(&fitted)?;
        let start = Instant::now();
        session.run_bound()?;
        Ok::<_, RuntimeError>(start.elapsed().as_secs_f64() * 1e3)
    };
    if contestant.load.first_ms.is_none() {
        contestant.load.first_ms = first(contestant.session.session_mut()).ok();
    }
    let fitted = fitted(contestant.session.session(), inputs);
    let actual = match contestant.session.session_mut().run_as_bound(&fitted) {
        Ok(actual) => actual,
        Err(error) => return (None, Some(error.to_string())),
    };
    let expected = match &run.expected {
        Ok(expected) => expected,
        Err(error) => return (None, Some(format!("there is nothing to compare with: {error}"))),
    };
    let gives = |name: &String| actual.iter().any(|(own, _)| own == name);
    let mut expected = expected.clone();
    if contestant.is_foreign {
        let names = expected.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>().join(", ");
        expected.retain(|(name, _)| gives(name));
        if expected.is_empty() {
            return (None, Some(format!("it gives none of the outputs of the model: {names}")));
        }
    }
    let reports =
        compare(&expected, &actual, inputs, &run.per_token, (&run.of, &contestant.logits), contestant.tolerances);
    let miss = reports.iter().find_map(|report| Some(format!("{}: {}", report.output, report.miss.as_ref()?)));
    (worst(&reports), miss)
}

/// The worst figures of all outputs, where all were compared.
fn worst(reports: &[OutputReport]) -> Option<Accuracy> {
    let figures = reports.iter().map(|report| report.figures).collect::<Option<Vec<_>>>()?;
    let all = figures.iter().map(|f| Accuracy { max_abs: f.max_abs, max_rel: f.max_rel, cos: f.cosine, top1: f.top1 });
    all.reduce(|a, b| Accuracy {
        max_abs: a.max_abs.max(b.max_abs),
        max_rel: a.max_rel.max(b.max_rel),
        cos: a.cos.min(b.cos),
        top1: a.top1.min(b.top1),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::time::Duration;

    use planish_artifact::verification::Tolerances;
    use planish_data::inputs::Values;
    use planish_runtimes::ort::{OnnxRuntime, OrtOptions};
    use planish_runtimes::{Model, Runtime, SessionOptions};

    use super::*;
    use crate::bench::{Document, Environment, ReferencePart};
    use planish_data::inputs::session_specs;

    fn file(name: &str) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/onnx")).join(name)
    }

    fn contestant(label: &str, name: &str) -> Contestant {
        let ort = OrtOptions { spin: options().spin, ..OrtOptions::default() };
        let (runtime, path) = (OnnxRuntime::new(None).options(ort), file(name));
        let options = SessionOptions { threads: options().threads };
        let load = || Ok(runtime.load(Model::onnx(&path), options)?);
        Contestant::load(label, "f32", &runtime, load, 128, Tolerances::F32).unwrap()
    }

    fn options() -> BenchOptions {
        BenchOptions {
            batch: vec![1, 2],
            sequence: vec![3, 5],
            interval: 0.0,
            time: Duration::from_millis(20),
            iterations: 30,
            warmup: Duration::from_millis(5),
            threads: 1,
            spin: false,
            transfers: false,
            seed: 4,
            ..BenchOptions::default()
        }
    }

    fn swept(contestants: &mut [Contestant], ids: std::ops::Range<i64>) -> Vec<Cell> {
        let Place::Here(session) = contestant("reference", "embed.onnx").session else {
            panic!("it is in this process")
        };
        let ids = BTreeMap::from([("input_ids".to_owned(), Values::Ids { range: ids, pad: None })]);
        let specs = session_specs(session.as_ref(), &ids).unwrap();
        let mut source = ReferenceModel::new(vec![ReferencePart::new("model".to_owned(), session, specs)], None);
        let mut seen = Seen::default();
        let cells = sweep(contestants, &mut source, &options(), &mut seen).unwrap();
        assert!(seen.shares.is_sorted() && seen.shares.last() == Some(&1.0), "{:?}", seen.shares);
        let total = cells.len();
        for (number, line) in seen.lines.iter().enumerate() {
            assert!(line.starts_with(&format!("{} of {total}: ", number + 1)), "{line}");
        }
        for cell in &cells {
            let name = format!("{} ({}, {})", cell.model.id, cell.backend, cell.shape);
            let end = match &cell.failure {
                Some(failure) => format!("{name} has no latency: {failure}"),
                None => format!("{name} {} ms", significant(cell.latency_ms.as_ref().unwrap().p50)),
            };
            assert_eq!(seen.lines.iter().filter(|line| line.ends_with(&end)).count(), 1, "{end}: {:?}", seen.lines);
        }
        cells
    }

    #[derive(Default)]
    struct Seen {
        shares: Vec<f64>,
        lines: Vec<String>,
    }

    impl BenchObserver for Seen {
        fn progress(&mut self, share: f64) {
            self.shares.push(share);
        }

        fn measured(&mut self, cell: Measured<'_>) {
            self.lines.push(cell.to_string());
        }

        fn warning(&mut self, text: &str) {
            panic!("{text}");
        }

        fn note(&mut self, text: &str) {
            panic!("{text}");
        }
    }

    #[test]
    fn right_cells_have_a_speed_and_wrong_ones_a_reason() {
        let mut contestants = [contestant("right", "embed.onnx"), contestant("wrong", "embed_off.onnx")];
        let cells = swept(&mut contestants, 0..8);
        let shapes: Vec<(usize, Option<usize>)> =
            cells.iter().step_by(2).map(|cell| (cell.shape.batch, cell.shape.seq)).collect();
        assert_eq!(shapes, [(1, Some(3)), (1, Some(5)), (2, Some(3)), (2, Some(5))]);
        for pair in cells.chunks(2) {
            let [right, wrong] = pair else { panic!("two contestants") };
            let latency = right.latency_ms.as_ref().unwrap();
            assert!(latency.n >= 30 && latency.n == right.samples_ns.len());
            assert!(right.samples_ns.iter().sum::<u64>() >= 20_000_000);
            assert!(right.warmup.n >= 3 && right.warmup.ms >= 5.0);
            let throughput = right.throughput.unwrap();
            let tokens = right.shape.seq.unwrap() as f64;
            assert!((throughput.tok_s.unwrap() - throughput.inf_s * tokens).abs() < 1e-6);
            assert_eq!(right.accuracy.unwrap().max_abs, 0.0);
            assert!(right.failure.is_none() && right.load.first_ms.is_some());

            assert!(wrong.failure.as_ref().unwrap().starts_with("y: max relative error"), "{:?}", wrong.failure);
            assert!(wrong.latency_ms.is_none() && wrong.throughput.is_none() && wrong.samples_ns.is_empty());
            assert!(wrong.accuracy.unwrap().max_rel > 0.1);
        }
        let version = OnnxRuntime::new(None).check().unwrap().version;
        let runtimes = [("onnxruntime".to_owned(), version.clone())];
        let document = Document::new(vec!["bench".to_owned()], Environment::read(runtimes), cells);
        let json = serde_json::to_value(&document).unwrap();
        assert_eq!((&json["schema"], &json["env"]["runtimes"]["onnxruntime"]), (&2.into(), &version.into()));
        assert_eq!(json["cells"][1]["model"]["id"], "wrong");
        assert!(json["cells"][1].get("latency_ms").is_none() && json["cells"][0]["latency_ms"]["p50"].is_f64());
    }

    #[test]
    fn a_shape_on_which_the_reference_fails_has_no_speed() {
        // Id 99 is outside of the table.
        let cells = swept(&mut [contestant("right", "embed.onnx")], 99..100);
        assert!(cells.iter().all(|cell| cell.failure.as_ref().is_some_and(|f| f.starts_with("ort could not run"))));
        assert!(cells.iter().all(|cell| cell.load.first_ms.is_none() && cell.accuracy.is_none()));
    }

    #[test]
    fn inputs_that_a_graph_does_not_have_are_left_out() {
        let ids = || planish_eval::Tensor::new(vec![1, 2], vec![3i64, 4]).unwrap();
        let keep = planish_eval::Tensor::new(vec![1, 2], vec![true, false]).unwrap();
        let inputs = [("position_ids", ids()), ("input_ids", ids()), ("keep", keep)];
        let inputs = inputs.map(|(name, tensor)| (name.to_owned(), tensor));
        let mut contestant = contestant("right", "embed.onnx");
        let fitted = fitted(contestant.session.session(), &inputs);
        assert_eq!(fitted.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["input_ids", "keep"]);
        contestant.session.session_mut().run(&fitted).unwrap();
    }

    #[test]
    fn there_must_be_something_to_measure() {
        let mut contestants = [contestant("right", "embed.onnx")];
        let error = |contestants: &mut [Contestant], options: &BenchOptions| {
            let mut source = ReferenceModel::new(Vec::new(), None);
            sweep(contestants, &mut source, options, &mut Seen::default()).unwrap_err().to_string()
        };
        assert_eq!(error(&mut [], &options()), "nothing to measure: no artifact");
        let empty = BenchOptions { batch: vec![0], ..options() };
        assert_eq!(error(&mut contestants, &empty), "nothing to measure: no shape with rows and tokens");
        let never = BenchOptions { time: Duration::ZERO, iterations: 0, ..options() };
        assert_eq!(error(&mut contestants, &never), "nothing to measure: neither a time nor a number of runs");
    }
}
