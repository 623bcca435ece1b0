//! The workload of generation: prompts of seeded tokens are continued greedily by so many tokens, with the cache of keys and
//! values and without.

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::Result;
use planish_runtimes::Runtime;

use super::document::{Cell, CellOptions, CellShape, ModelId, Throughput, Workload};
use super::figures::Generation;
use super::stats::Latency;
use super::sweep::BenchObserver;
use super::trials::{Trial, measure};
use super::{BenchOptions, Entrant};
use crate::generate::{Generated, Length, Loading, Processors, Search, SearchOptions, load, search};

/// What a run of generation gives.
struct Run {
    first: Duration,
    total: Duration,
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
            for (&batch, &seq) in options.batch.iter().flat_map(|b| options.sequence.iter().map(move |s| (b, s))) {
                trials.push(trial(entrant, *runtime, (batch, seq), (new_tokens, caching), options)?);
            }
        }
    }
    measure(&mut trials, options, observer, |cell, latency, runs| finish(cell, latency, runs, new_tokens));
    Ok(trials.into_iter().map(|trial| trial.cell).collect())
}

fn trial<'a>(
    entrant: &'a Entrant,
    runtime: &'a dyn Runtime,
    (batch, seq): (usize, usize),
    (new_tokens, caching): (NonZeroUsize, bool),
    options: &BenchOptions,
) -> Result<Trial<'a, Run>> {
    let artifact = &entrant.artifact;
    let part = if caching { "generate" } else { "generate without cache" };
    let shape =
        CellShape { batch, seq: Some(seq), part: Some(part.to_owned()), tokens: Some(new_tokens.get()), past: 0 };
    let bytes = artifact.manifest.parts.iter().map(|part| artifact.bytes(part)).sum();
    let model = ModelId { id: entrant.label.clone(), file_bytes: Some(bytes) };
    let cell = Cell {
        options: CellOptions { threads: options.threads, spin: options.spin },
        ..Cell::new(model, runtime.name(), &entrant.precision, Workload::Generate, shape)
    };
    let loading = Loading { threads: options.threads, caching, decoder_start_token: None };
    let mut model = load(artifact, runtime, loading)?;
    let mut random = fastrand::Rng::with_seed(options.seed);
    let vocabulary = model.vocabulary();
    let prompts: Vec<Vec<i64>> = (0..batch).map(|_| (0..seq).map(|_| random.i64(0..vocabulary)).collect()).collect();
    let how = SearchOptions {
        length: Length::New(new_tokens),
        end_tokens: Vec::new(),
        search: Search::Greedy,
        processors: Processors::default(),
    };
    let run = move || {
        let Generated { first_token, total, .. } = search(model.as_mut(), &prompts, &how, &mut |_, _| Ok(()))?;
        Ok(Run { first: first_token, total })
    };
    Ok(Trial::new(cell, run))
}

/// The figures of the runs of a cell.
fn finish(cell: &mut Cell, latency: &Latency, runs: &[Run], new_tokens: NonZeroUsize) {
    let median = |of: &dyn Fn(&Run) -> Duration| {
        let mut times: Vec<Duration> = runs.iter().map(of).collect();
        times.sort();
        times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
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
