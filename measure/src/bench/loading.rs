//! The workload of loading: each trial is a fresh process, which loads a model and may run it once.
//!
//! A cold start is one whose files are not in the system's cache of files: planish has the system drop them before. The
//! binary of planish and the library of the runtime stay in the cache.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use planish_artifact::backend::RuntimeSettings;
use planish_artifact::named;
use planish_check::verify::input_specs;
use planish_data::inputs::{Sizes, inputs_after};
use planish_eval::Tensor;
use planish_runtimes::{Port, Runtime, Session};
use rustix::fs::{Advice, fadvise};

use super::contestant::Load;
use super::document::{Cell, CellOptions, CellShape, ModelId, Workload};
use super::sweep::BenchObserver;
use super::trials::{Trial, measure};
use super::{BenchOptions, Entrant};
use crate::apart::{Apart, Start};
use crate::inspect::IMAGE_SIDE;

/// The tensors of a run, by the names of inputs.
type Inputs = Vec<(String, Tensor)>;

/// What a trial is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// From the start of a process until the model is loaded, whose files are not cached.
    Cold,
    /// The same where they are.
    Warm,
    /// The first run after that.
    First,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold start",
            Self::Warm => "warm start",
            Self::First => "first inference",
        }
    }
}

/// What of an entrant is loaded.
struct Subject<'a> {
    entrant: &'a Entrant,
    runtime: &'static str,
    /// What a process loads, one after another.
    starts: Vec<Start>,
    /// All files that are read.
    files: Vec<PathBuf>,
}

/// Measures how entrants of one model are loaded.
///
/// # Errors
/// When a file is missing, or no inputs can be made.
pub(super) fn loading(
    places: &[(&Entrant, &dyn Runtime)],
    settings: &RuntimeSettings,
    options: &BenchOptions,
    observer: &mut dyn BenchObserver,
) -> Result<Vec<Cell>> {
    let subjects = places
        .iter()
        .map(|(entrant, runtime)| Subject::new(entrant, *runtime, settings, options))
        .collect::<Result<Vec<_>>>()?;
    let mut trials = Vec::new();
    for subject in &subjects {
        let rows = options.batch.first().copied().unwrap_or(1);
        for kind in [Kind::Cold, Kind::Warm] {
            let shape = CellShape { batch: rows, seq: None, part: Some(kind.name().to_owned()), tokens: None, past: 0 };
            trials.push(Trial::new(subject.cell(shape, options), move || {
                subject.start(kind).map(|(_, took, load)| (took, load))
            }));
        }
    }
    for subject in &subjects {
        // A model of several parts has no run of its own in one of them.
        let [part] = subject.entrant.artifact.manifest.parts.as_slice() else { continue };
        let ports: Vec<Port> = {
            let (process, ..) = subject.start(Kind::Warm)?;
            process.inputs().to_vec()
        };
        let specs = input_specs(&ports, part, subject.entrant.artifact.manifest.pad_token_id)?;
        for (&batch, &sequence) in options.batch.iter().flat_map(|b| options.sequence.iter().map(move |s| (b, s))) {
            let inputs = inputs_after(&specs, Sizes { batch, sequence, side: Some(IMAGE_SIDE) }, 0, options.seed)?;
            let part = Some(Kind::First.name().to_owned());
            let shape = CellShape { batch, seq: Some(sequence), part, tokens: Some(sequence), past: 0 };
            trials.push(Trial::new(subject.cell(shape, options), move || subject.first_run(&inputs)));
        }
    }
    measure(&mut trials, options, observer, |cell, _, loads| finish(cell, loads));
    Ok(trials.into_iter().map(|trial| trial.cell).collect())
}

impl<'a> Subject<'a> {
    fn new(
        entrant: &'a Entrant,
        runtime: &dyn Runtime,
        settings: &RuntimeSettings,
        options: &BenchOptions,
    ) -> Result<Self> {
        let artifact = &entrant.artifact;
        let settings = artifact.settings(settings);
        let (mut starts, mut files) = (Vec::new(), Vec::new());
        for part in &artifact.manifest.parts {
            let (format, file) = artifact.file_for(part, runtime)?;
            starts.push(Start::new(runtime, format, &file, options.threads, &settings));
            files.push(file);
            files.extend(part.files.iter().map(|name| artifact.folder.join(name)));
        }
        files.sort();
        files.dedup();
        Ok(Self { entrant, runtime: runtime.name(), starts, files })
    }

    fn cell(&self, shape: CellShape, options: &BenchOptions) -> Cell {
        let artifact = &self.entrant.artifact;
        let bytes = artifact.manifest.parts.iter().map(|part| artifact.bytes(part)).sum();
        let model = ModelId { id: self.entrant.label.clone(), file_bytes: Some(bytes) };
        let mut cell = Cell::new(model, self.runtime, &self.entrant.precision, Workload::Load, shape);
        cell.options = CellOptions { threads: options.threads, spin: options.spin };
        cell.memory.weights = self.entrant.weight_bytes();
        cell
    }

    /// Starts a process that loads the model: it, the time from its start until it has loaded, and what it took.
    fn start(&self, kind: Kind) -> Result<(Apart, Duration, Load)> {
        for file in &self.files {
            if kind == Kind::Cold {
                drop_from_cache(file).with_context(|| format!("cannot drop {} from the cache", file.display()))?;
            }
        }
        let mut starts = self.starts.iter();
        let first = starts.next().context("the model has no parts")?;
        let began = Instant::now();
        let mut process = Apart::start(first.clone(), self.runtime)?;
        let (mut took, mut ms) = (process.ready, process.load.ms);
        for start in starts {
            process.load_another(start.clone())?;
            (took, ms) = (began.elapsed(), ms + process.load.ms);
        }
        let read_bytes = process.usage()?.read;
        Ok((process, took, Load { ms, first_ms: None, read_bytes }))
    }

    /// Starts a process, and runs the model once in it: the time of this run.
    fn first_run(&self, inputs: &Inputs) -> Result<(Duration, Load)> {
        let (mut process, _, load) = self.start(Kind::Warm)?;
        process.bind(&named(&process, inputs))?;
        let (took, _) = process.timed(false)?;
        Ok((took, Load { first_ms: Some(took.as_secs_f64() * 1e3), ..load }))
    }
}

/// Has the system drop the contents of a file from its cache, as far as no process has them mapped.
fn drop_from_cache(path: &Path) -> Result<()> {
    let (file, _) = planish_files::open(path)?;
    // What is not written yet stays.
    file.sync_data()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// The medians of what the trials of a cell took.
fn finish(cell: &mut Cell, loads: &[Load]) {
    let mut all = loads.to_vec();
    all.sort_by(|a, b| a.ms.total_cmp(&b.ms));
    let Some(middle) = all.get(all.len() / 2) else { return };
    let mut read: Vec<u64> = loads.iter().filter_map(|load| load.read_bytes).collect();
    read.sort_unstable();
    let mut first: Vec<f64> = loads.iter().filter_map(|load| load.first_ms).collect();
    first.sort_by(f64::total_cmp);
    cell.load = Load {
        ms: middle.ms,
        first_ms: first.get(first.len() / 2).copied(),
        read_bytes: read.get(read.len() / 2).copied(),
    };
    let is_cold = cell.shape.part.as_deref() == Some(Kind::Cold.name());
    if is_cold && cell.load.read_bytes.is_none_or(|bytes| bytes < cell.model.file_bytes.unwrap_or(0) / 2) {
        let why = "the system kept files in its cache, or does not tell what it reads: this may be no cold start";
        cell.warnings.push(why.to_owned());
    }
}
