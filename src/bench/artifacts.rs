//! Which artifacts are measured, and against which models.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use planish_eval::Limits;
use planish_models::{Loaded, Part};
use planish_runtimes::{Model, ReferenceRuntime, Runtime, SessionOptions, Unavailable};

use super::reference_cache::ReferenceCache;
use super::{
    BenchObserver, BenchOptions, Cell, Contestant, Document, Environment, ReferenceModel, ReferencePart, sweep,
};
use crate::artifact::{Artifact, MANIFEST};
use crate::backend::{MakeRuntime, RuntimeSettings, lacks};
use crate::inputs::is_of_sequence;
use crate::source;
use crate::verify::{input_specs, note_elsewhere, reference_limits};

/// Artifacts, and where they are measured.
pub struct Contest {
    /// The artifacts.
    pub artifacts: Vec<Artifact>,
    /// The models that they were compiled from; none where each is to be found by what its `planish.json` says.
    pub references: Vec<PathBuf>,
    /// Where to run; where none is named, each artifact runs where it is compiled for.
    pub runtimes: Vec<MakeRuntime>,
    /// How runtimes are found.
    pub settings: RuntimeSettings,
}

/// The sequence length that is measured unless told otherwise.
const SEQUENCE: usize = 128;

impl Contest {
    /// Measures the artifacts that can run here; the others are named in a warning. Artifacts of one model take turns.
    ///
    /// # Errors
    /// When nothing can run, an artifact or a model is missing or changed, or no inputs can be made.
    pub fn bench(mut self, options: &BenchOptions, observer: &mut dyn BenchObserver) -> Result<Document> {
        let versions = self.leave_out(observer)?;
        let mut options = options.clone();
        if options.sequence.is_empty() {
            let longest = self.artifacts.iter().filter_map(|artifact| artifact.manifest.max_sequence_length).min();
            options.sequence.push(longest.unwrap_or(SEQUENCE).min(SEQUENCE));
        }
        for artifact in &self.artifacts {
            for runtime in self.runtimes_of(artifact) {
                let parts = &artifact.manifest.parts;
                parts.iter().try_for_each(|part| artifact.file_for(part, runtime.as_ref()).map(drop))?;
            }
        }
        // All of them before the first is measured, which takes minutes.
        let groups = groups(&self.artifacts).into_iter().map(|group| {
            let first = group.first().ok_or_else(|| anyhow!("nothing to measure"))?;
            let loaded = source::find(&self.references, first)?.load(first)?;
            Ok((group, loaded))
        });
        let groups = groups.collect::<Result<Vec<_>>>()?;
        let mut cells = Vec::new();
        for (group, loaded) in &groups {
            cells.extend(self.measure(group, loaded, &options, observer)?);
        }
        Ok(Document::new(std::env::args().skip(1).collect(), Environment::read(versions), cells))
    }

    /// What of the lengths that are asked for an artifact does not take, if there is such a length.
    ///
    /// # Errors
    /// The artifact, the length, and the most that it takes.
    pub fn check_lengths(&self, options: &BenchOptions, observer: &mut dyn BenchObserver) -> Result<(), String> {
        for artifact in &self.artifacts {
            let folder = artifact.folder.display();
            let longest = artifact.manifest.max_sequence_length.unwrap_or(usize::MAX);
            if !options.sequence.is_empty() && !takes_sequences(artifact) {
                observer.warning(&format!("--seq has no effect on {folder}: the model takes no sequences"));
            }
            if let Some(length) = options.sequence.iter().find(|length| **length > longest) {
                return Err(format!("--seq {length}: {folder} takes at most {longest} tokens"));
            }
        }
        Ok(())
    }

    /// The runtimes that an artifact is measured on.
    fn runtimes_of(&self, artifact: &Artifact) -> Vec<Box<dyn Runtime>> {
        match self.runtimes.as_slice() {
            [] => vec![artifact.runtime(&self.settings)],
            named => {
                let settings = artifact.settings(&self.settings);
                named.iter().map(|make| make(&settings)).collect()
            }
        }
    }

    /// Leaves out the artifacts that cannot run here; returns the products that run the others, with their versions.
    fn leave_out(&mut self, observer: &mut dyn BenchObserver) -> Result<BTreeMap<String, String>> {
        let check = |artifact: &Artifact| {
            let mut versions = Vec::new();
            for runtime in self.runtimes_of(artifact) {
                if let Some(problem) = lacks(runtime.as_ref(), artifact.computes()) {
                    return Err(problem);
                }
                let found = runtime.check()?;
                versions.push((found.product.to_owned(), found.version));
            }
            Ok::<_, Unavailable>(versions)
        };
        let (mut kept, mut versions, mut left_out) = (Vec::new(), BTreeMap::new(), Vec::new());
        for artifact in &self.artifacts {
            match check(artifact) {
                Ok(found) => {
                    versions.extend(found);
                    kept.push(artifact.clone());
                }
                Err(problem) => left_out.push((artifact, problem)),
            }
        }
        if let (true, Some((_, problem))) = (kept.is_empty(), left_out.first()) {
            return Err(problem.clone().into());
        }
        for (artifact, problem) in &left_out {
            observer.warning(&format!("{} is left out: {problem}", artifact.folder.display()));
        }
        self.artifacts = kept;
        Ok(versions)
    }

    /// Measures artifacts of one model.
    fn measure(
        &self,
        artifacts: &[&Artifact],
        loaded: &Loaded,
        options: &BenchOptions,
        observer: &mut dyn BenchObserver,
    ) -> Result<Vec<Cell>> {
        let session = SessionOptions { threads: options.threads };
        let first = artifacts.first().ok_or_else(|| anyhow!("nothing to measure"))?;
        let mut reference = on_reference(loaded, first, session)?;
        let mut contestants = Vec::new();
        for artifact in artifacts {
            for (index, part) in reference.parts.iter().enumerate() {
                let part = artifact.part(&part.name)?;
                let (label, precision) = (artifact.label(), artifact.manifest.precision_name());
                let tolerances = artifact.tolerances(loaded);
                for runtime in self.runtimes_of(artifact) {
                    let (runtime, bytes) = (runtime.as_ref(), artifact.bytes(part));
                    let (format, file) = artifact.file_for(part, runtime)?;
                    let model = Model::File(format, &file);
                    let mut loaded = Contestant::load(&label, &precision, runtime, model, session, bytes, tolerances)?;
                    loaded.session.name_dimensions(&part.ports());
                    note_elsewhere(loaded.session.as_ref(), &mut |text| observer.note(text));
                    contestants.push(loaded.of_part(index, part.padded_logits().cloned()));
                }
            }
        }
        Ok(sweep(&mut contestants, &mut reference, options, observer)?)
    }
}

/// The artifacts that were named, or the one in the current folder, or those below it by the names
/// of their models.
///
/// # Errors
/// When one cannot be opened, and when there is none.
pub fn find_artifacts(named: &[PathBuf]) -> Result<Vec<Artifact>> {
    let mut folders = named.to_vec();
    if folders.is_empty() {
        below(Path::new("."), DEPTH, &mut folders);
    }
    if folders.is_empty() {
        bail!("there is no artifact in the current folder or below it; make one with `planish compile`, or name one");
    }
    let mut artifacts = folders.iter().map(|folder| Artifact::open(folder)).collect::<Result<Vec<_>>>()?;
    if named.is_empty() {
        let task = |artifact: &Artifact| artifact.manifest.task.map(|task| task.to_string());
        artifacts.sort_by_key(|a| (a.manifest.source.name.clone(), task(a), a.folder.clone()));
    }
    Ok(artifacts)
}

/// How deep artifacts are looked for.
const DEPTH: usize = 3;

fn below(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if folder.join(MANIFEST).is_file() {
        found.push(folder.to_owned());
        return;
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|e| depth > 0 && e.file_type().is_ok_and(|t| t.is_dir())) {
        if !entry.file_name().to_string_lossy().starts_with('.') {
            below(&entry.path(), depth - 1, found);
        }
    }
}

/// The artifacts of each model, in the order in which each was named first.
fn groups(artifacts: &[Artifact]) -> Vec<Vec<&Artifact>> {
    let mut groups: Vec<Vec<&Artifact>> = Vec::new();
    for artifact in artifacts {
        match groups.iter_mut().find(|group| group.iter().all(|other| same_model(other, artifact))) {
            Some(group) => group.push(artifact),
            None => groups.push(vec![artifact]),
        }
    }
    groups
}

/// Artifacts of the same source files and task compute the same.
fn same_model(one: &Artifact, other: &Artifact) -> bool {
    let (one, other) = (&one.manifest, &other.manifest);
    let (files, others) = (&one.source.files, &other.source.files);
    let same = files.len() == others.len() && files.iter().zip(others).all(|(file, other)| file.may_be(other));
    same && one.source.name == other.source.name && one.task == other.task
}

/// Whether a model takes sequences, by the symbols of its inputs.
fn takes_sequences(artifact: &Artifact) -> bool {
    let inputs = artifact.manifest.parts.iter().flat_map(|part| &part.inputs);
    let mut symbols = inputs.flat_map(|input| input.value.dims()).flat_map(|dim| dim.symbols());
    symbols.any(|symbol| is_of_sequence(symbol))
}

/// The parts of a model on the reference, with the inputs that the artifact of it takes.
fn on_reference(loaded: &Loaded, artifact: &Artifact, options: SessionOptions) -> Result<ReferenceModel> {
    let task = loaded.task.map(|task| task.to_string()).unwrap_or_default();
    let cache = ReferenceCache::of(&artifact.manifest.source, &task);
    let part = |part: &Part| -> Result<ReferencePart> {
        // Cells may be as large as the user says.
        let limits = Limits { memory: None, ..reference_limits(&part.graph) };
        let session = ReferenceRuntime { limits }.load(Model::Graph(&part.graph), options)?;
        let specs = input_specs(session.inputs(), artifact.part(part.name)?, artifact.manifest.pad_token_id)?;
        Ok(ReferencePart { cache: cache.clone(), ..ReferencePart::new(part.name.to_owned(), session, specs) })
    };
    let parts = loaded.parts.iter().map(part).collect::<Result<_>>()?;
    Ok(ReferenceModel::new(parts, loaded.max_positions))
}
