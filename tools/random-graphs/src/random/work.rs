//! The process in which cases run.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fastrand::Rng;
use planish::backend::{BACKENDS, Backend};
use planish::compile::{CompileOptions, compile};
use planish::request::Silent;
use planish::source::SourceModel;
use planish_eval::Tensor;
use planish_ir::DType;
use planish_onnx::proto::ModelProto;
use planish_random_graphs::Log;
use planish_runtimes::Session;
use prost::Message;

use crate::Arguments;
use crate::attention::operands_fit;
use crate::compare::{Difference, HALF_TOLERANCE, TOLERANCE, differences};
use crate::families::grow;
use crate::grow::Grown;
use crate::runner::{Runner, Tensors, has_empty, run as run_session, with_results};
use crate::shrink::shrink;

/// How far inputs are changed, relative to themselves, to see what no rounding decides.
const CHANGE: f64 = 3e-6;

/// How often.
const CHANGES: u64 = 4;

/// How many other sizes of open dimensions are tried.
const OTHER_SIZES: u64 = 4;

/// What is found of an artifact, the worst last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Finding {
    /// It gives what the source gives.
    Same,
    /// Outputs differ that inputs decide which differ by less than rounding.
    Unstable,
    /// ONNX Runtime's optimizer makes something else of the source, too.
    Runtime(String),
    /// A value of the source has no elements, and it refuses that or gives something else: target ort documents that it takes no sequence of
    /// 0, and where a tensor has no elements ONNX Runtime's reductions, reshapes and concatenations are not those of ONNX.
    Empty,
    /// planish compiles nothing.
    Refused(String),
    /// Something that must not be: a kind, and what.
    Fault(&'static str, String),
}

impl Finding {
    /// How it is counted.
    fn kind(&self) -> &'static str {
        match self {
            Finding::Same => "same",
            Finding::Unstable => "unstable",
            Finding::Runtime(_) => "runtime",
            Finding::Empty => "empty",
            Finding::Refused(_) => "refused",
            Finding::Fault(kind, _) => kind,
        }
    }

    fn text(&self) -> &str {
        match self {
            Finding::Runtime(text) | Finding::Refused(text) | Finding::Fault(_, text) => text,
            _ => "",
        }
    }
}

pub(crate) fn run(arguments: &Arguments, log: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let runner = Runner::new(folder.path());
    let newest = runner.newest_opset();
    let mut log = Log::open(log)?;
    for case in arguments.cases.numbers() {
        log.begin(case, "the source")?;
        let grown = grow(case, newest, arguments.patterns, &runner);
        let source = grown.as_ref().map(|grown| Source::new(grown, &runner, folder.path().join("model.onnx")));
        let (Some(grown), Some(Ok(mut source))) = (grown, source) else {
            log.end(case, "nothing", "")?;
            continue;
        };
        for node in source.operators() {
            log.count(case, &format!("operator {node}"))?;
        }
        log.count(case, &format!("opset {}", source.opset()))?;
        log.step(case, "the source, at other sizes and optimized")?;
        source.prepare(&runner, case);
        let kept = Kept::write(arguments, case, &source)?;
        let mut worst = Finding::Same;
        for target in &arguments.targets {
            let mut step = |what: &str| log.step(case, &format!("target {target}: {what}"));
            step("compile")?;
            let checked = Check { runner: &runner, folder: folder.path(), target: backend(target)?, seed: case };
            let artifact = match log.caught(|| checked.compiled(&source.path)) {
                Ok(Ok(path)) => path,
                Ok(Err(message)) => {
                    let finding = Finding::Refused(message);
                    log.count(case, &format!("target {target}: refused"))?;
                    worst = worst.max(finding);
                    continue;
                }
                Err(message) => {
                    worst = worst.max(Finding::Fault("panic", format!("target {target}: {message}")));
                    continue;
                }
            };
            let mut found = Finding::Same;
            for optimize in [false, true] {
                log.step(case, &format!("target {target}, optimization {optimize}"))?;
                found = found.max(checked.artifact(&mut source, &artifact, optimize));
            }
            log.count(case, &format!("target {target}: {}", found.kind()))?;
            if let Finding::Fault(kind, text) = found {
                let small = shrink(&grown, &mut |small| checked.again(small, kind));
                kept.write_small(&small)?;
                let nodes = small.model.graph.as_ref().map_or(0, |graph| graph.node.len());
                found = Finding::Fault(kind, format!("target {target}: {text} (shrunk to {nodes} nodes)"));
            }
            worst = worst.max(found);
        }
        if worst < Finding::Refused(String::new()) {
            kept.remove()?;
        }
        log.end(case, worst.kind(), worst.text())?;
    }
    Ok(())
}

fn backend(name: &str) -> Result<&'static Backend> {
    planish::backend::find(name, BACKENDS).with_context(|| format!("there is no target `{name}`"))
}

/// A model as it was grown, on ONNX Runtime without optimization.
struct Source {
    model: ModelProto,
    /// The results of its nodes and their types.
    results: Vec<(String, DType)>,
    path: PathBuf,
    session: Box<dyn Session>,
    /// How far its outputs may be off.
    tolerance: f64,
    /// Whether ONNX Runtime loads it with optimization.
    optimizes: bool,
    /// At the sizes that it was grown with, and at others that it takes.
    runs: Vec<Run>,
}

/// A run of a source.
#[derive(Clone)]
struct Run {
    feeds: Tensors,
    expected: Tensors,
    /// What ONNX Runtime's optimizer makes of it, where it runs.
    optimized: Option<Tensors>,
    /// Whether an input or a result has no elements.
    empty: bool,
}

impl Run {
    fn shapes(&self) -> String {
        self.feeds.iter().map(|(_, tensor)| tensor.ty().to_string()).collect::<Vec<_>>().join(", ")
    }
}

impl Source {
    fn new(grown: &Grown, runner: &Runner, path: PathBuf) -> Result<Self, String> {
        fs::write(&path, grown.model.encode_to_vec()).map_err(|error| error.to_string())?;
        let mut session = runner.load(&path, false)?;
        let expected = run_session(session.as_mut(), &grown.feeds)?;
        let tolerance = match grown.values.iter().any(|(_, tensor)| tensor.dtype() == DType::F16) {
            true => HALF_TOLERANCE,
            false => TOLERANCE,
        };
        let empty = has_empty(&grown.feeds) || has_empty(&grown.values);
        let runs = vec![Run { feeds: grown.feeds.clone(), expected, optimized: None, empty }];
        let results = grown.values.iter().map(|(name, tensor)| (name.clone(), tensor.dtype())).collect();
        Ok(Self { model: grown.model.clone(), results, path, session, tolerance, optimizes: false, runs })
    }

    /// Adds runs at other sizes, and runs all with optimization.
    fn prepare(&mut self, runner: &Runner, seed: u64) {
        let mut inner = runner.load_model(&with_results(&self.model, &self.results), false).ok();
        for at in 0..OTHER_SIZES {
            let Some(feeds) = self.other_sizes(seed.wrapping_mul(31).wrapping_add(at)) else { break };
            // What the source itself does not take says nothing.
            if operands_fit(&self.model, &feeds)
                && let Ok(expected) = run_session(self.session.as_mut(), &feeds)
            {
                let found = inner.as_mut().and_then(|inner| run_session(inner.as_mut(), &feeds).ok());
                let empty = has_empty(&feeds) || has_empty(&found.unwrap_or_default());
                self.runs.push(Run { feeds, expected, optimized: None, empty });
            }
        }
        let Ok(mut session) = runner.load(&self.path, true) else { return };
        self.optimizes = true;
        for run in &mut self.runs {
            run.optimized = run_session(session.as_mut(), &run.feeds).ok();
        }
    }

    fn opset(&self) -> i64 {
        self.model.opset_import.first().map_or(0, |opset| opset.version)
    }

    fn operators(&self) -> BTreeSet<String> {
        let nodes = self.model.graph.iter().flat_map(|graph| &graph.node);
        nodes.map(|node| node.op_type.clone()).filter(|op| op != "Constant").collect()
    }

    /// The outputs that differ where inputs differ by less than rounding.
    fn unstable(&mut self, run: &Run) -> HashSet<String> {
        let mut found = HashSet::new();
        for seed in 0..CHANGES {
            let mut rng = Rng::with_seed(seed);
            let changed: Tensors =
                run.feeds.iter().map(|(name, tensor)| (name.clone(), nearly(tensor, &mut rng))).collect();
            if let Ok(outputs) = run_session(self.session.as_mut(), &changed) {
                found.extend(differences(&run.expected, &outputs, self.tolerance).into_iter().map(|(name, _)| name));
            }
        }
        found
    }

    /// Inputs of other sizes where dimensions are open; the same seed gives the same.
    fn other_sizes(&self, seed: u64) -> Option<Tensors> {
        let ports = self.session.inputs();
        let is_open = |port: &planish_runtimes::Port| port.ty.shape.as_constant().is_none();
        if !ports.iter().any(is_open) {
            return None;
        }
        let mut rng = Rng::with_seed(seed);
        let mut fed = Tensors::new();
        for (name, tensor) in &self.runs.first()?.feeds {
            let Some(port) = ports.iter().find(|port| port.name == *name) else { continue };
            let mut size = |at: usize, old: usize| match port.ty.shape.get(at).and_then(planish_ir::Dim::as_constant) {
                Some(_) => old,
                None => *rng.choice(&[0, 1, 1, 2, 3, 5, 7]).unwrap_or(&1),
            };
            let shape: Vec<usize> = tensor.shape().iter().enumerate().map(|(at, old)| size(at, *old)).collect();
            let count = shape.iter().product();
            let numbers: Vec<f64> = tensor.to_f64().into_iter().cycle().take(count).collect();
            fed.push((name.clone(), Tensor::from_f64(tensor.dtype(), shape, &numbers)?));
        }
        Some(fed)
    }
}

/// A tensor with each number changed by less than rounding.
fn nearly(tensor: &Tensor, rng: &mut Rng) -> Tensor {
    if !tensor.dtype().is_float() {
        return tensor.clone();
    }
    let numbers: Vec<f64> = tensor.to_f64().into_iter().map(|v| v * (1.0 + CHANGE * (2.0 * rng.f64() - 1.0))).collect();
    Tensor::from_f64(tensor.dtype(), tensor.shape().to_vec(), &numbers).unwrap_or_else(|| tensor.clone())
}

/// How artifacts are made and compared.
struct Check<'a> {
    runner: &'a Runner,
    folder: &'a Path,
    target: &'static Backend,
    seed: u64,
}

impl Check<'_> {
    fn compiled(&self, path: &Path) -> Result<PathBuf, String> {
        let folder = self.folder.join("artifact");
        let made = SourceModel::open(path).and_then(|model| {
            let mut options = CompileOptions::new(self.target, model.default_opset());
            options.verify_passes = true;
            options.force = true;
            compile(&model, &folder, &options, &Silent)?.publish()
        });
        made.map(|_| folder.join("model.onnx")).map_err(|error| format!("{error:#}"))
    }

    /// Compares an artifact with its source, at the sizes that it was grown with and at others.
    fn artifact(&self, source: &mut Source, path: &Path, optimize: bool) -> Finding {
        let how = if optimize { "optimized" } else { "not optimized" };
        let mut session = match self.runner.load(path, optimize) {
            Ok(session) => session,
            Err(message) if optimize && !source.optimizes => return Finding::Runtime(message),
            Err(message) => return Finding::Fault("load", format!("{how}: {message}")),
        };
        let runs = source.runs.clone();
        let found = runs.iter().map(|run| of_run(source, session.as_mut(), run, optimize));
        found.max().unwrap_or(Finding::Same)
    }

    /// Whether a smaller graph has a fault of this kind.
    fn again(&self, small: &Grown, kind: &str) -> bool {
        let Ok(mut source) = Source::new(small, self.runner, self.folder.join("small.onnx")) else { return false };
        source.prepare(self.runner, self.seed);
        let Ok(artifact) = self.compiled(&source.path) else { return false };
        [false, true].into_iter().any(|optimize| {
            matches!(self.artifact(&mut source, &artifact, optimize), Finding::Fault(found, _) if found == kind)
        })
    }
}

/// Compares a run of an artifact with that of its source.
fn of_run(source: &mut Source, session: &mut dyn Session, run: &Run, optimize: bool) -> Finding {
    let how = if optimize { "optimized" } else { "not optimized" };
    let found = match run_session(session, &run.feeds) {
        Ok(found) => differences(&run.expected, &found, source.tolerance),
        Err(_) if run.empty => return Finding::Empty,
        Err(message) if optimize && run.optimized.is_none() => return Finding::Runtime(message),
        Err(message) => return Finding::Fault("run", format!("{how}, inputs {}: {message}", run.shapes())),
    };
    if found.is_empty() {
        return Finding::Same;
    }
    if run.empty {
        return Finding::Empty;
    }
    let unstable = source.unstable(run);
    let found: Vec<Difference> = found.into_iter().filter(|(name, _)| !unstable.contains(name)).collect();
    let Some((name, difference)) = found.first() else { return Finding::Unstable };
    if optimize {
        let own = run.optimized.as_ref().map(|own| differences(&run.expected, own, source.tolerance));
        if own.is_none_or(|own| found.iter().all(|(name, _)| own.iter().any(|(other, _)| other == name))) {
            return Finding::Runtime(format!("`{name}` {difference}"));
        }
    }
    let kind = if difference.contains("shape") { "shape" } else { "wrong" };
    Finding::Fault(kind, format!("{how}, inputs {}: `{name}` {difference}", run.shapes()))
}

/// The files of a case, in the folder that was asked for.
struct Kept {
    place: Option<PathBuf>,
}

impl Kept {
    fn write(arguments: &Arguments, case: u64, source: &Source) -> Result<Self> {
        let Some(folder) = &arguments.keep else { return Ok(Self { place: None }) };
        fs::create_dir_all(folder)?;
        let place = folder.join(format!("{case}.onnx"));
        fs::copy(&source.path, &place)?;
        write_tensors(&place, &source.runs[0].feeds)?;
        Ok(Self { place: Some(place) })
    }

    fn write_small(&self, small: &Grown) -> Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        let place = place.with_extension("small.onnx");
        fs::write(&place, small.model.encode_to_vec())?;
        write_tensors(&place, &small.feeds)
    }

    fn remove(&self) -> Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        fs::remove_file(place)?;
        Ok(fs::remove_file(place.with_extension("safetensors"))?)
    }
}

/// Writes inputs beside their model, as `planish run --inputs` takes them.
fn write_tensors(model: &Path, tensors: &Tensors) -> Result<()> {
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|(_, tensor)| tensor.to_bytes()).collect();
    let views = tensors.iter().zip(&bytes).filter_map(|((name, tensor), bytes)| {
        let dtype = match tensor.dtype() {
            DType::F32 => safetensors::Dtype::F32,
            DType::I64 => safetensors::Dtype::I64,
            DType::I32 => safetensors::Dtype::I32,
            DType::Bool => safetensors::Dtype::BOOL,
            _ => return None,
        };
        Some((name.clone(), safetensors::tensor::TensorView::new(dtype, tensor.shape().to_vec(), bytes).ok()?))
    });
    let views: Vec<_> = views.collect();
    Ok(fs::write(model.with_extension("safetensors"), safetensors::serialize(views, None)?)?)
}
