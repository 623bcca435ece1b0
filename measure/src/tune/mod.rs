//! Finding the fastest form of a model on the machine that it runs on.

mod cache;
mod choices;
mod judge;
mod search;
mod trials;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use planish_artifact::Artifact;
use planish_artifact::backend::{Backend, RuntimeSettings, Spin};
use planish_artifact::draft::Draft;
use planish_artifact::recipe::Recipe;
use planish_artifact::tuning::{Processor, RunSettings, Tuning};
use planish_check::gate::Gate;
use planish_compiler::compile::Compiled;
use planish_compiler::request::RequestError;
use planish_compiler::source::SourceModel;
use planish_data::inputs::{Sizes, graph_bindings};
use planish_ir::Op;
use planish_ir::cost::costs;
use planish_models::Loaded;
use planish_passes::Target;

use crate::bench::{BenchObserver, Environment};
use cache::TuningCache;
use choices::TARGET;
pub use choices::{CHOICES, Candidate, Choice, Shares, Subject};
pub use search::{Dimension, Found, Outcome, Trials, Tried, search};
use trials::ContestTrials;

/// Compiles forms of a model.
pub trait Former {
    /// Compiles the form of a recipe into a folder.
    ///
    /// # Errors
    /// When that is impossible.
    fn compile(&self, recipe: &Recipe, folder: &Path) -> Result<Compiled>;
}

/// What a search is asked for.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// The shapes: rows, and tokens of a row, the usual number where absent. Without one it is one row.
    pub shapes: Vec<(usize, Option<usize>)>,
    /// How long it may take.
    pub time: Duration,
    /// How runtimes are found.
    pub settings: RuntimeSettings,
    /// Other targets whose default forms are measured too, where their runtimes are here.
    pub others: Vec<&'static Backend>,
    /// What is no choice of the search, because the user or the command says it.
    pub run: RunSettings,
}

/// What is tuned.
pub struct Model<'a> {
    /// Where it is.
    pub source: &'a SourceModel,
    /// What it is compiled for.
    pub backend: &'static Backend,
    /// What was asked for.
    pub recipe: &'a Recipe,
    /// Whether operators are fused.
    pub fusion: bool,
    /// The data that says what forms cost that round other numbers; without it they are not tried.
    pub gate: Option<&'a Gate>,
    /// Whether all forms have the precision that the default one needed for limits, so that none rounds other numbers.
    pub is_within_limits: bool,
}

/// What a search came to.
pub struct Tuned {
    /// The record.
    pub tuning: Tuning,
    /// The recipe of the form that won.
    pub recipe: Recipe,
    /// What was tried; absent where the choice is of an earlier search.
    pub found: Option<Found>,
}

/// Searches for the fastest form of a model, or takes what an earlier search of as much time found.
///
/// # Errors
/// [`Unavailable`](planish_runtimes::Unavailable) when the runtime of the target is not there; when the default form cannot be
/// compiled or measured.
pub fn tune(
    model: &Model<'_>,
    former: &dyn Former,
    options: &TuneOptions,
    observer: &mut dyn BenchObserver,
) -> Result<Tuned> {
    let place = model.backend.runtime(&options.settings).check()?;
    let folder = Draft::temporary("planish-tune")?;
    observer.step("compiling the default form");
    let start = Instant::now();
    let default = former.compile(model.recipe, &folder.folder().join("0"))?;
    let took = start.elapsed();
    let processor = processor();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let manifest = &default.artifact.manifest;
    let shapes = shapes(&options.shapes, &default.artifact);
    check(&shapes, &default.artifact)?;
    let key = [
        serde_json::to_string(&(&processor, cores, place.product, &place.version, &shapes))?,
        serde_json::to_string(&(&manifest.source.files, &manifest.source.import, &manifest.source.adapters))?,
        serde_json::to_string(&(
            model.recipe,
            manifest.task.map(|task| task.to_string()),
            manifest.opset,
            model.backend.target.name,
            model.fusion,
        ))?,
        serde_json::to_string(&options.run)?,
        // What data, plans and stages make of it.
        serde_json::to_string(&(&manifest.calibration, &manifest.parts))?,
        model.gate.map(judge::identity).transpose()?.unwrap_or_default(),
    ];
    let cache = TuningCache::of_user(&key.join("\n"));
    if let Some(tuning) = cache.as_ref().and_then(|cache| cache.known(options.time)) {
        let recipe = candidate(&tuning).recipe(model.recipe)?;
        return Ok(Tuned { tuning, recipe, found: None });
    }
    let is_here = |other: &&&'static Backend| other.runtime(&options.settings).check().is_ok();
    let others: Vec<&'static Target> = options.others.iter().filter(is_here).map(|other| other.target).collect();
    let subject = Subject {
        recipe: model.recipe,
        manifest,
        target: model.backend.target,
        cores,
        runtime: place.product,
        others: &others,
        run: options.run,
        shares: shares(&default.source, &shapes),
        fusion: model.fusion,
    };
    let (mut dimensions, mut left_out) = (Vec::new(), Vec::new());
    for Choice { name, rounds, values } in CHOICES {
        let values = values(&subject).and_then(|values| match model.gate {
            _ if model.is_within_limits && *rounds => Err(WITHIN_LIMITS.to_owned()),
            _ if model.is_within_limits && *name == TARGET => Err(OTHER_LIMITS.to_owned()),
            None if *rounds => Err(NO_DATA.to_owned()),
            _ => Ok(values),
        });
        match values {
            // Forms of a race are all loaded at once.
            Ok(values) => dimensions.extend(values.chunks(MOST_RACED).map(|values| Dimension {
                name,
                values: values.to_vec(),
                rounds: *rounds,
                is_told: *name == TARGET,
            })),
            Err(why) => {
                let why = format!("left out: {why}");
                left_out.push(Tried { choice: name, value: None, ratio: None, kept: false, why });
            }
        }
    }
    let usual = usual(options.run, cores);
    let mut trials =
        ContestTrials::new(model, former, (folder.folder(), &shapes), (options, usual), observer, (default, took));
    let mut found = search(&dimensions, &mut trials, options.time).context("cannot tune the model")?;
    found.tried.extend(left_out);
    let tuning = Tuning {
        processor,
        runtime: place.product.to_owned(),
        version: place.version,
        cores,
        shapes: shapes.iter().map(|(rows, tokens)| format!("{rows}x{tokens}")).collect(),
        seconds: options.time.as_secs(),
        choices: found.best.0.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        run: found.best.run(),
        ratio: found.ratio.value,
        ratio_ci95: found.ratio.ci95,
        cosines: trials.cosines(&found.best),
        candidates: found.measured(),
        against: Candidate::default().to_string(),
    };
    if let Some(cache) = cache.filter(|_| found.measured() > 0) {
        cache.keep(&tuning);
    }
    let recipe = found.best.recipe(model.recipe)?;
    Ok(Tuned { tuning, recipe, found: Some(found) })
}

/// The most values of a choice in one race.
const MOST_RACED: usize = 3;

/// Why a choice is left out that rounds other numbers.
const NO_DATA: &str = "it rounds other numbers, and no data is held out to say what that costs: add --evaluate FILE, or --verify beside --calibrate";

/// Why it is left out where the default form needed more precision.
const WITHIN_LIMITS: &str = "--max-loss chose what has more precision";

/// Why another target is left out there.
const OTHER_LIMITS: &str = "its form would need a search of its own for --max-loss";

/// The time for which idle threads poll where all cores are free. A step of a decoder has gaps of some ten microseconds between
/// its products; polling longer gains nothing, and keeps a core busy while a person types.
pub const POLLING: Spin = Spin::Microseconds(100);

/// How the default form runs: as commands run an artifact that a person waits for.
fn usual(said: RunSettings, cores: usize) -> RunSettings {
    RunSettings { threads: said.threads.or(u16::try_from(cores).ok()), spin: said.spin.or(Some(POLLING)) }
}

/// How an artifact runs that was tuned on this processor with as many cores; nothing is said of others.
#[must_use]
pub fn tuned_here(artifact: &Artifact) -> RunSettings {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let tuning = artifact.manifest.tuning.as_ref();
    let here = tuning.filter(|tuning| tuning.cores == cores && tuning.elsewhere(&processor(), None).is_none());
    here.map(|tuning| tuning.run).unwrap_or_default()
}

/// The processor of this machine.
#[must_use]
pub fn processor() -> Processor {
    let cpu = Environment::read([]).cpu;
    Processor { model: cpu.model, flags: cpu.flags }
}

/// The values that a record has.
fn candidate(tuning: &Tuning) -> Candidate {
    let value = |choice: &Choice| Some((choice.name, tuning.choices.get(choice.name)?.clone()));
    Candidate(CHOICES.iter().filter_map(value).collect())
}

/// The usual number of tokens.
const TOKENS: usize = 128;

/// The shapes that are measured: those that were asked for, else one row.
fn shapes(asked: &[(usize, Option<usize>)], artifact: &Artifact) -> Vec<(usize, usize)> {
    let asked = if asked.is_empty() { &[(1, None)] } else { asked };
    let usual = artifact.manifest.max_sequence_length.map_or(TOKENS, |longest| longest.min(TOKENS));
    asked.iter().map(|(rows, tokens)| (*rows, tokens.unwrap_or(usual))).collect()
}

/// Refuses shapes with more tokens than the model takes.
fn check(shapes: &[(usize, usize)], artifact: &Artifact) -> Result<(), RequestError> {
    let longest = artifact.manifest.max_sequence_length.unwrap_or(usize::MAX);
    match shapes.iter().find(|(_, tokens)| *tokens > longest) {
        Some((rows, tokens)) => {
            Err(RequestError(format!("--tune={rows}x{tokens}: the model takes at most {longest} tokens")))
        }
        None => Ok(()),
    }
}

/// The shares of the operations at these shapes; `None` where operations cannot be counted.
fn shares(source: &Loaded, shapes: &[(usize, usize)]) -> Option<Shares> {
    let mut shares = Shares::default();
    for &(batch, sequence) in shapes {
        let (mut attention, mut operators, mut all) = (0u64, BTreeMap::<&str, u64>::new(), 0u64);
        for part in &source.parts {
            let bindings = graph_bindings(&part.graph, Sizes { batch, sequence, side: None }, 0);
            let costs = costs(&part.graph, &bindings);
            if !costs.uncounted.is_empty() {
                return None;
            }
            for (node, cost) in costs.nodes {
                let node = part.graph.node(node);
                let is_attention = matches!(&node.op, Op::Attention(of) if of.past_key.is_none());
                attention += if is_attention { cost.flops } else { 0 };
                *operators.entry(&part.graph.value(node.outputs[0]).name).or_default() += cost.flops;
                all += cost.flops;
            }
        }
        let share = |flops: u64| flops as f64 / all.max(1) as f64;
        shares.attention = shares.attention.max(share(attention));
        for (name, flops) in operators {
            let own = shares.operators.entry(name.to_owned()).or_default();
            *own = own.max(share(flops));
        }
    }
    Some(shares)
}
