//! The workload of generation: prompts of seeded tokens are continued greedily by so many tokens, with the cache of keys and
//! values and, where that is asked for, without.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use planish_artifact::backend::RuntimeSettings;
use planish_generate::{LanguageModel, Loading, load, prompt_vocabulary, reads_prompts};
use planish_ir::Graph;
use planish_models::Loaded;
use planish_runtimes::Runtime;

use super::contestant::Load;
use super::document::{Cell, CellOptions, CellShape, ModelId, Throughput, Workload};
use super::figures::{Generation, Work};
use super::groups::each_loaded;
use super::stats::Latency;
use super::sweep::BenchObserver;
use super::trials::{Trial, measure};
use super::work::work_of_rows;
use super::{BenchOptions, Entrant};
use crate::apart::{Apart, Calls, Start, continued};

/// What a run of generation gives.
struct Run {
    calls: Calls,
    load: Load,
}

/// Measures the generation of new tokens by entrants on their runtimes, which take as many after the prompts.
///
/// # Errors
/// When a model cannot be loaded.
pub(super) fn generate(
    places: &[(&Entrant, &dyn Runtime)],
    source: &Loaded,
    settings: &RuntimeSettings,
    options: &BenchOptions,
    observer: &mut dyn BenchObserver,
) -> Result<Vec<Cell>> {
    let (mut trials, mut failed) = (Vec::new(), Vec::new());
    let passes: &[bool] = if options.uncached { &[true, false] } else { &[true] };
    for &caching in passes {
        let load = |entrant, runtime: &dyn Runtime| {
            Ok((entrant, runtime.name(), Contestant::load(entrant, runtime, caching, settings, options)?))
        };
        let (loaded, left_out) = each_loaded(places, options, load)?;
        failed.extend(left_out);
        for (entrant, runtime, contestant) in loaded {
            let contestant = Rc::new(RefCell::new(contestant));
            let graphs = Graphs::of(source, entrant);
            let weights = entrant.weight_bytes();
            for (&batch, &seq) in options.batch.iter().flat_map(|b| options.sequence.iter().map(move |s| (b, s))) {
                let mut cell = cell(entrant, runtime, (batch, seq), caching, options);
                cell.memory.weights = weights;
                cell.memory.load_rss = contestant.borrow().resident();
                cell.work = graphs.as_ref().and_then(|graphs| graphs.work((batch, seq), caching, options.new_tokens));
                trials.push(trial(cell, Rc::clone(&contestant), options));
            }
        }
    }
    let new_tokens = options.new_tokens;
    measure(&mut trials, options, observer, |cell, latency, runs| finish(cell, latency, runs, new_tokens));
    Ok(trials.into_iter().map(|trial| trial.cell).chain(failed).collect())
}

/// A model that all shapes of a contestant run on.
struct Contestant {
    place: Place,
    /// Ids of prompts are from 0 to below this.
    vocabulary: i64,
    load: Load,
}

/// Where a model is.
enum Place {
    /// In this process.
    Here(Box<dyn LanguageModel>),
    /// In a process of its own.
    Apart(Box<Apart>),
}

impl Contestant {
    fn load(
        entrant: &Entrant,
        runtime: &dyn Runtime,
        caching: bool,
        settings: &RuntimeSettings,
        options: &BenchOptions,
    ) -> Result<Self> {
        let (artifact, loading) = (&entrant.artifact, Loading::new(options.threads, caching));
        if !reads_prompts(artifact) {
            bail!(
                "the workload generate gives prompts of tokens, and the encoder of {} reads something else; take --workload encode",
                artifact.folder.display()
            );
        }
        let vocabulary = prompt_vocabulary(artifact)?;
        if options.isolate {
            let start = Start::language_model(artifact, runtime, loading, &artifact.settings(settings));
            let apart = Apart::start(start, runtime.name())?;
            return Ok(Self { load: apart.load, place: Place::Apart(Box::new(apart)), vocabulary });
        }
        let start = Instant::now();
        let place = Place::Here(load(artifact, runtime, loading)?);
        Ok(Self { place, vocabulary, load: Load { ms: start.elapsed().as_secs_f64() * 1e3, ..Load::default() } })
    }

    fn resident(&self) -> Option<u64> {
        match &self.place {
            Place::Here(_) => None,
            Place::Apart(apart) => apart.resident,
        }
    }

    fn run(&mut self, prompts: &[Vec<i64>], new_tokens: NonZeroUsize) -> Result<Run> {
        let calls = match &mut self.place {
            Place::Here(model) => continued(model.as_mut(), prompts, new_tokens)?,
            Place::Apart(apart) => apart.generate(prompts, new_tokens)?,
        };
        self.load.first_ms.get_or_insert(calls.total.as_secs_f64() * 1e3);
        Ok(Run { calls, load: self.load })
    }
}

/// The graph of a decoder before any pass, and that of an artifact.
struct Graphs<'a> {
    model: &'a Graph,
    artifact: Graph,
}

impl<'a> Graphs<'a> {
    /// `None` for models of several parts.
    fn of(source: &'a Loaded, entrant: &Entrant) -> Option<Self> {
        let ([part], [own]) = (source.parts.as_slice(), entrant.artifact.manifest.parts.as_slice()) else {
            return None;
        };
        Some(Self { model: &part.graph, artifact: entrant.graph(own)? })
    }

    /// The work of generating: of the prompt, and of each token that is read after it.
    fn work(&self, (rows, prompt): (usize, usize), caching: bool, new_tokens: NonZeroUsize) -> Option<Work> {
        let call = |tokens: usize, past: usize| work_of_rows(self.model, &self.artifact, rows, tokens, past);
        // The last new token is not read.
        let step = |read: usize| if caching { call(1, prompt + read) } else { call(prompt + read + 1, 0) };
        [call(prompt, 0)].into_iter().chain((0..new_tokens.get() - 1).map(step)).sum()
    }
}

/// A cell of which nothing is known but what it is to be.
fn cell(entrant: &Entrant, runtime: &str, (batch, seq): (usize, usize), caching: bool, options: &BenchOptions) -> Cell {
    let artifact = &entrant.artifact;
    let part = if caching { "generate" } else { "generate without cache" };
    let tokens = Some(options.new_tokens.get());
    let shape = CellShape { batch, seq: Some(seq), part: Some(part.to_owned()), tokens, past: 0 };
    let bytes = artifact.manifest.parts.iter().map(|part| artifact.bytes(part)).sum();
    let model = ModelId { id: entrant.label.clone(), file_bytes: Some(bytes) };
    Cell {
        options: CellOptions { threads: options.threads, spin: options.spin },
        ..Cell::new(model, runtime, &entrant.precision, Workload::Generate, shape)
    }
}

fn trial<'a>(cell: Cell, contestant: Rc<RefCell<Contestant>>, options: &BenchOptions) -> Trial<'a, Run> {
    let CellShape { batch, seq, .. } = cell.shape;
    let new_tokens = options.new_tokens;
    let mut random = fastrand::Rng::with_seed(options.seed);
    let vocabulary = contestant.borrow().vocabulary;
    let prompt = |_| (0..seq.unwrap_or(1)).map(|_| random.i64(0..vocabulary)).collect();
    let prompts: Rc<Vec<Vec<i64>>> = Rc::new((0..batch).map(prompt).collect());
    let (of_peaks, same) = (Rc::clone(&contestant), Rc::clone(&prompts));
    let peaks = move || match &of_peaks.borrow().place {
        Place::Apart(apart) => apart.peaks(|fresh| fresh.generate(&same, new_tokens).map(drop)),
        Place::Here(_) => Ok([None; 2]),
    };
    let run = move || contestant.borrow_mut().run(&prompts, new_tokens).map(|run| (run.calls.total, run));
    Trial::new(cell, run).metered(peaks)
}

/// The figures of the runs of a cell.
fn finish(cell: &mut Cell, latency: &Latency, runs: &[Run], new_tokens: NonZeroUsize) {
    let median = |of: &dyn Fn(&Run) -> Duration| {
        let mut times: Vec<Duration> = runs.iter().map(of).collect();
        times.sort();
        times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    if let Some(run) = runs.first() {
        cell.load = run.load;
    }
    let (batch, count) = (cell.shape.batch, new_tokens.get());
    let seconds = latency.p50 / 1e3;
    cell.throughput = Some(Throughput { inf_s: batch as f64 / seconds, tok_s: Some((batch * count) as f64 / seconds) });
    cell.generation = Some(Generation {
        new_tokens: count,
        cache: cell.shape.part.as_deref() == Some("generate"),
        ttft_ms: median(&|run| run.calls.first),
        tpot_ms: median(&|run| run.calls.total.saturating_sub(run.calls.first)) / (count - 1).max(1) as f64,
        tok_s: (batch * count) as f64 / seconds,
    });
}
