//! The workload of generation: prompts of seeded tokens are continued greedily by so many tokens, with the cache of keys and
//! values and without.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;
use planish_runtimes::Runtime;

use super::contestant::Load;
use super::document::{Cell, CellOptions, CellShape, ModelId, Throughput, Workload};
use super::figures::Generation;
use super::stats::Latency;
use super::sweep::BenchObserver;
use super::trials::{Trial, measure};
use super::{BenchOptions, Entrant};
use crate::generate::{Generated, LanguageModel, Length, Loading, Processors, Search, SearchOptions, load, search};

/// What a run of generation gives.
struct Run {
    first: Duration,
    total: Duration,
    load: Load,
}

/// Measures the generation of `new_tokens` tokens by entrants on their runtimes, which take as many behind the prompts.
///
/// # Errors
/// When a model cannot be loaded.
pub(super) fn generate(
    places: &[(&Entrant, &dyn Runtime)],
    new_tokens: NonZeroUsize,
    options: &BenchOptions,
    observer: &mut dyn BenchObserver,
) -> Result<Vec<Cell>> {
    let mut trials = Vec::new();
    for caching in [true, false] {
        for (entrant, runtime) in places {
            let start = Instant::now();
            let loading = Loading { threads: options.threads, caching, prompt_chunk: None, decoder_start_token: None };
            let model = load(&entrant.artifact, *runtime, loading)?;
            let loaded = Loaded { model, load: Load { ms: start.elapsed().as_secs_f64() * 1e3, ..Load::default() } };
            let loaded = Rc::new(RefCell::new(loaded));
            let weights = entrant.weight_bytes();
            for (&batch, &seq) in options.batch.iter().flat_map(|b| options.sequence.iter().map(move |s| (b, s))) {
                let mut cell = cell(entrant, runtime.name(), (batch, seq), (new_tokens, caching), options);
                cell.memory.weights = weights;
                trials.push(trial(cell, Rc::clone(&loaded), new_tokens, options.seed));
            }
        }
    }
    measure(&mut trials, options, observer, |cell, latency, runs| finish(cell, latency, runs, new_tokens));
    Ok(trials.into_iter().map(|trial| trial.cell).collect())
}

/// A model that all shapes of a contestant run on.
struct Loaded {
    model: Box<dyn LanguageModel>,
    load: Load,
}

/// A cell of which nothing is known but what it is to be.
fn cell(
    entrant: &Entrant,
    runtime: &str,
    (batch, seq): (usize, usize),
    (new_tokens, caching): (NonZeroUsize, bool),
    options: &BenchOptions,
) -> Cell {
    let artifact = &entrant.artifact;
    let part = if caching { "generate" } else { "generate without cache" };
    let shape =
        CellShape { batch, seq: Some(seq), part: Some(part.to_owned()), tokens: Some(new_tokens.get()), past: 0 };
    let bytes = artifact.manifest.parts.iter().map(|part| artifact.bytes(part)).sum();
    let model = ModelId { id: entrant.label.clone(), file_bytes: Some(bytes) };
    Cell {
        options: CellOptions { threads: options.threads, spin: options.spin },
        ..Cell::new(model, runtime, &entrant.precision, Workload::Generate, shape)
    }
}

fn trial<'a>(cell: Cell, loaded: Rc<RefCell<Loaded>>, new_tokens: NonZeroUsize, seed: u64) -> Trial<'a, Run> {
    let CellShape { batch, seq, .. } = cell.shape;
    let mut random = fastrand::Rng::with_seed(seed);
    let vocabulary = loaded.borrow().model.vocabulary();
    let prompt = |_| (0..seq.unwrap_or(1)).map(|_| random.i64(0..vocabulary)).collect();
    let prompts: Vec<Vec<i64>> = (0..batch).map(prompt).collect();
    let how = SearchOptions {
        length: Length::New(new_tokens),
        end_tokens: Vec::new(),
        search: Search::Greedy,
        processors: Processors::default(),
    };
    Trial::new(cell, move || {
        let Loaded { model, load } = &mut *loaded.borrow_mut();
        let Generated { first_token, total, .. } = search(model.as_mut(), &prompts, &how, &mut |_, _| Ok(()))?;
        load.first_ms.get_or_insert(total.as_secs_f64() * 1e3);
        Ok(Run { first: first_token, total, load: *load })
    })
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
        ttft_ms: median(&|run| run.first),
        tpot_ms: median(&|run| run.total.saturating_sub(run.first)) / (count - 1).max(1) as f64,
        tok_s: (batch * count) as f64 / seconds,
    });
}
