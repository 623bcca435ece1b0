//! Which entrants are measured, where, and against which models.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use planish_eval::{Limits, Tensor};
use planish_models::{Loaded, Part};
use planish_runtimes::{Model, Port, ReferenceRuntime, Runtime, SessionOptions, Unavailable, check_inputs};

use super::apart::Apart;
use super::generation::generate;
use super::lengths::lengths;
use super::loading::loading;
use super::operators;
use super::peaks::add_rooflines;
use super::reference_cache::ReferenceCache;
use super::watching::{Checking, Once, Watching};
use super::worker::Start;
use super::{
    BenchObserver, BenchOptions, Cell, CellOptions, CellShape, Contestant, Document, Entrant, Environment, ModelId,
    ReferenceModel, ReferencePart, Status, Workload, sweep,
};
use crate::artifact::Artifact;
use crate::artifact::manifest::Input;
use crate::backend::{MakeRuntime, RuntimeSettings, lacks};
use crate::chain::Chain;
use crate::data::DataOptions;
use crate::evaluate::{EvaluateOptions, Evaluation, Reference, evaluate_compiled};
use crate::inputs::is_of_sequence;
use crate::source::SourceModel;
use crate::verify::{input_specs, note_elsewhere, reference_limits};

/// What is measured, and where.
pub struct Contest {
    /// What takes part.
    pub entrants: Vec<Entrant>,
    /// The models that artifacts were compiled from; none where each is to be found by what its `planish.json` says.
    pub references: Vec<PathBuf>,
    /// Where to run; where none is named, each artifact runs where it is compiled for.
    pub runtimes: Vec<MakeRuntime>,
    /// How runtimes are found.
    pub settings: RuntimeSettings,
    /// The inputs to measure on, instead of seeded ones at each shape; for models of one part.
    pub inputs: Option<Vec<(String, Tensor)>>,
    /// The data on which entrants are compared with their models in float32, and how it is read.
    pub data: Option<(PathBuf, DataOptions)>,
}

/// The sequence length that is measured unless told otherwise.
const SEQUENCE: usize = 128;

/// The tokens of a row on which outputs are compared before another workload.
const CHECKED_TOKENS: usize = 16;

/// A runtime that an entrant is measured on, or why it is not.
pub(super) type Place = (Box<dyn Runtime>, MakeRuntime);

impl Contest {
    /// Measures what can run here; the others have cells that say why they do not. Entrants of one model take turns.
    ///
    /// # Errors
    /// [`Unavailable`] when nothing can run; when a file or a model is missing or changed, or no inputs can be made.
    pub fn bench(self, options: &BenchOptions, observer: &mut dyn BenchObserver) -> Result<Document> {
        let observer = &mut Once { observer, said: BTreeSet::new() };
        let mut options = options.clone();
        if options.sequence.is_empty() {
            let longest = self.entrants.iter().filter_map(|one| one.artifact.manifest.max_sequence_length).min();
            let new = if options.workload == Workload::Generate { options.new_tokens.get() } else { 0 };
            let room = longest.map_or(SEQUENCE, |longest| longest.saturating_sub(new).max(1));
            options.sequence.push(room.min(SEQUENCE));
        }
        let mut versions = BTreeMap::new();
        let (mut cells, mut left_out) = (Vec::new(), Vec::new());
        let mut groups: Vec<Vec<(&Entrant, Vec<Place>)>> = Vec::new();
        for entrant in &self.entrants {
            let mut places = Vec::new();
            for (runtime, make) in self.runtimes_of(entrant) {
                match check(entrant, runtime.as_ref()) {
                    Ok((product, version)) => {
                        versions.insert(product, version);
                        places.push((runtime, make));
                    }
                    Err(problem) => left_out.push((entrant, runtime.name(), problem)),
                }
            }
            for (runtime, _) in &places {
                let artifact = &entrant.artifact;
                let parts = &artifact.manifest.parts;
                parts.iter().try_for_each(|part| artifact.file_for(part, runtime.as_ref()).map(drop))?;
            }
            if places.is_empty() {
                continue;
            }
            match groups
                .iter_mut()
                .find(|group| group.iter().all(|(other, _)| same_model(&other.artifact, &entrant.artifact)))
            {
                Some(group) => group.push((entrant, places)),
                None => groups.push(vec![(entrant, places)]),
            }
        }
        if let (true, Some((_, _, problem))) = (groups.is_empty(), left_out.first()) {
            return Err(problem.clone().into());
        }
        // All models before the first entrant is measured, which takes minutes.
        let groups = groups.into_iter().map(|group| {
            let (first, _) = group.first().ok_or_else(|| anyhow!("nothing to measure"))?;
            let source = first.source(&self.references)?;
            Ok((group, source))
        });
        let groups = groups.collect::<Result<Vec<_>>>()?;
        observer.begin();
        for (number, (group, source)) in groups.iter().enumerate() {
            if observer.is_ended() {
                let why = (Status::Unfinished, "the benchmark was ended before".to_owned());
                for (entrant, places) in group {
                    cells.extend(
                        places.iter().flat_map(|(runtime, _)| unmeasured(entrant, runtime.name(), &why, &options)),
                    );
                }
                continue;
            }
            let measured = match options.workload {
                Workload::Encode => self.measure(group, source, &options, observer)?,
                Workload::Generate | Workload::Lengths | Workload::Load => {
                    self.measure_right(group, source, &options, observer)?
                }
            };
            cells.extend(measured.into_iter().map(|cell| Cell { rounds: Some(number), ..cell }));
        }
        for (entrant, runtime, problem) in left_out {
            observer.warning(&format!("{} is not measured: {problem}", entrant.label));
            let why = (Status::Unavailable, problem.to_string());
            cells.extend(unmeasured(entrant, runtime, &why, &options));
        }
        let mut document = Document::new(std::env::args().skip(1).collect(), Environment::read(versions), cells);
        if options.peaks && !observer.is_ended() && document.cells.iter().any(|cell| cell.work.is_some()) {
            add_rooflines(&mut document, &options, &self.settings, observer);
        }
        Ok(document)
    }

    /// What of the lengths that are asked for an entrant does not take, if there is such a length.
    ///
    /// # Errors
    /// The entrant, the length, and the most that it takes.
    pub fn check_lengths(&self, options: &BenchOptions, observer: &mut dyn BenchObserver) -> Result<(), String> {
        for Entrant { label, artifact, .. } in &self.entrants {
            let longest = artifact.manifest.max_sequence_length.unwrap_or(usize::MAX);
            if !options.sequence.is_empty() && !takes_sequences(artifact) {
                observer.warning(&format!("--seq has no effect on {label}: the model takes no sequences"));
            }
            let new = if options.workload == Workload::Generate { options.new_tokens.get() } else { 0 };
            let shortest = options.sequence.is_empty().then_some(1);
            let mut asked = options.sequence.iter().copied().chain(shortest);
            if let Some(length) = asked.find(|length| length.saturating_add(new) > longest) {
                let with = if new > 0 { format!(" with --new-tokens {new}") } else { String::new() };
                return Err(format!("--seq {length}{with}: {label} takes at most {longest} tokens"));
            }
        }
        Ok(())
    }

    /// What is wrong with the inputs that are given, if there are any.
    ///
    /// # Errors
    /// The entrant, the input, and what the model takes.
    pub fn check_inputs(&self) -> Result<(), String> {
        let Some(given) = &self.inputs else { return Ok(()) };
        for Entrant { label, artifact, .. } in &self.entrants {
            let [part] = artifact.manifest.parts.as_slice() else {
                let parts = artifact.manifest.parts.len();
                return Err(format!("--inputs is for models of one part; {label} has {parts}"));
            };
            let port =
                |input: &Input| Some(Port { name: input.value.name.clone(), ty: input.value.ty.as_tensor()?.clone() });
            let ports: Vec<Port> = part.inputs.iter().filter_map(port).collect();
            // A file may have more than one of several models takes.
            let own = given.iter().filter(|(name, _)| ports.iter().any(|port| port.name == *name));
            let own: Vec<(String, Tensor)> = own.cloned().collect();
            let named: Vec<(&str, Tensor)> = own.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
            check_inputs(&ports, &named).map_err(|reason| format!("--inputs: {label}: {reason}"))?;
            Chain::of(&artifact.manifest.parts)
                .check(&own, artifact.manifest.max_sequence_length)
                .map_err(|error| format!("--inputs: {label}: {error:#}"))?;
        }
        Ok(())
    }

    /// The runtimes that an entrant is measured on.
    fn runtimes_of(&self, entrant: &Entrant) -> Vec<Place> {
        let artifact = &entrant.artifact;
        let settings = artifact.settings(&self.settings);
        let named = if entrant.runtimes.is_empty() { &self.runtimes } else { &entrant.runtimes };
        match named.as_slice() {
            [] => vec![(artifact.runtime(&self.settings), artifact.maker(&self.settings))],
            named => named.iter().map(|make| (make(&settings), *make)).collect(),
        }
    }

    /// Measures another workload than that of one call, by the entrants of one model whose outputs are right.
    fn measure_right(
        &self,
        group: &[(&Entrant, Vec<Place>)],
        source: &(SourceModel, Loaded),
        options: &BenchOptions,
        observer: &mut dyn BenchObserver,
    ) -> Result<Vec<Cell>> {
        let shortest = options.sequence.iter().copied().min().unwrap_or(SEQUENCE);
        let once = BenchOptions {
            batch: vec![2],
            sequence: vec![shortest.min(CHECKED_TOKENS)],
            interval: 0.0,
            time: Duration::ZERO,
            iterations: 1,
            warmup: Duration::ZERO,
            peaks: false,
            isolate: false,
            operators: false,
            ..options.clone()
        };
        let checked = self.sweep(group, source, &once, &mut Checking(observer))?;
        let (mut cells, mut right) = (Vec::new(), Vec::new());
        for (entrant, places) in group {
            for (runtime, _) in places {
                let own = |cell: &&Cell| cell.model.id == entrant.label && cell.backend == runtime.name();
                match checked.iter().filter(own).find_map(|cell| cell.failure.clone()) {
                    Some(failure) => {
                        cells.extend(unmeasured(entrant, runtime.name(), &(Status::Failed, failure), options));
                    }
                    None => right.push((*entrant, runtime.as_ref())),
                }
            }
        }
        cells.extend(match options.workload {
            Workload::Lengths => {
                let (data, how) = self.data.as_ref().context("--workload lengths needs texts: add --data FILE")?;
                lengths(&right, (&source.0.folder(), &source.1), (data, how), &self.settings, options, observer)?
            }
            Workload::Load => loading(&right, &self.settings, options, observer)?,
            _ => generate(&right, &source.1, &self.settings, options, observer)?,
        });
        Ok(cells)
    }

    /// Measures entrants of one model, and compares them with it on data.
    fn measure(
        &self,
        group: &[(&Entrant, Vec<Place>)],
        source: &(SourceModel, Loaded),
        options: &BenchOptions,
        observer: &mut dyn BenchObserver,
    ) -> Result<Vec<Cell>> {
        let mut cells = self.sweep(group, source, options, observer)?;
        self.evaluate(group, (&source.0, &source.1), options, &mut cells, observer);
        Ok(cells)
    }

    /// Measures entrants of one model.
    fn sweep(
        &self,
        group: &[(&Entrant, Vec<Place>)],
        (_, loaded): &(SourceModel, Loaded),
        options: &BenchOptions,
        observer: &mut dyn BenchObserver,
    ) -> Result<Vec<Cell>> {
        let session = SessionOptions { threads: options.threads };
        let (first, _) = group.first().ok_or_else(|| anyhow!("nothing to measure"))?;
        let mut reference = self.on_reference(loaded, &first.artifact, session)?;
        let (mut contestants, mut failed) = (Vec::new(), Vec::new());
        for (entrant, places) in group {
            let artifact = &entrant.artifact;
            for (index, part) in reference.parts.iter().enumerate() {
                let part = artifact.part(&part.name)?;
                let tolerances = entrant.tolerances(loaded);
                let graph = entrant.graph(part);
                for (runtime, _) in places {
                    let (runtime, bytes) = (runtime.as_ref(), artifact.bytes(part));
                    let (format, file) = artifact.file_for(part, runtime)?;
                    let model = Model::File(format, &file);
                    let (label, precision) = (&entrant.label, &entrant.precision);
                    let settings = artifact.settings(&self.settings);
                    let loaded = match options.isolate {
                        true => {
                            let start = Start::new(runtime, format, &file, options.threads, &settings);
                            let apart = Apart::start(start, runtime.name());
                            apart.map(|apart| Contestant::apart(label, precision, apart, bytes, tolerances))
                        }
                        false => Contestant::load(label, precision, runtime, model, session, bytes, tolerances)
                            .map_err(Error::from),
                    };
                    let mut loaded = match loaded {
                        Ok(loaded) => loaded,
                        Err(error) => {
                            let why = (Status::Failed, format!("{error:#}"));
                            failed.extend(unmeasured(entrant, runtime.name(), &why, options));
                            continue;
                        }
                    };
                    loaded.graph = graph.clone();
                    loaded.is_foreign = entrant.is_foreign();
                    loaded.session.session_mut().name_dimensions(&part.ports());
                    note_elsewhere(loaded.session.session(), &mut |text| observer.note(text));
                    contestants.push(loaded.of_part(index, part.logits_form()));
                }
            }
        }
        if contestants.is_empty() {
            return Ok(failed);
        }
        let mut cells = sweep(&mut contestants, &mut reference, options, observer)?;
        drop(contestants);
        if options.operators && !observer.is_ended() {
            operators::record_group(group, &mut reference, options, &mut cells, observer)?;
        }
        drop(reference);
        cells.extend(failed);
        Ok(cells)
    }

    /// The parts of a model on the reference, with the inputs that the artifact of it takes.
    fn on_reference(&self, loaded: &Loaded, artifact: &Artifact, options: SessionOptions) -> Result<ReferenceModel> {
        let task = loaded.task.map(|task| task.to_string()).unwrap_or_default();
        let cache = ReferenceCache::of(&artifact.manifest.source, &task);
        let part = |part: &Part| -> Result<ReferencePart> {
            // Cells may be as large as the user says.
            let limits = Limits { memory: None, ..reference_limits(&part.graph) };
            let session = ReferenceRuntime { limits }.load(Model::Graph(&part.graph), options)?;
            let specs = match &self.inputs {
                Some(_) => Vec::new(),
                None => input_specs(session.inputs(), artifact.part(part.name)?, artifact.manifest.pad_token_id)
                    .context("--inputs FILE measures on the tensors of a safetensors file")?,
            };
            let graph = Some(part.graph.clone());
            Ok(ReferencePart {
                graph,
                cache: cache.clone(),
                ..ReferencePart::new(part.name.to_owned(), session, specs)
            })
        };
        let parts: Vec<ReferencePart> = loaded.parts.iter().map(part).collect::<Result<_>>()?;
        Ok(ReferenceModel { given: self.inputs.clone(), ..ReferenceModel::new(parts, loaded.max_positions) })
    }

    /// Compares entrants of one model with it on data. What goes wrong is said of their cells.
    fn evaluate(
        &self,
        group: &[(&Entrant, Vec<Place>)],
        source: (&SourceModel, &Loaded),
        options: &BenchOptions,
        cells: &mut [Cell],
        observer: &mut dyn BenchObserver,
    ) {
        let Some((data, how)) = &self.data else { return };
        let mut reference = Reference::of_several();
        let watching = Watching(RefCell::new(observer));
        for (entrant, places) in group {
            for (runtime, make) in places {
                if watching.0.borrow().is_ended() {
                    return;
                }
                let settings = RuntimeSettings { runtime: Some(*make), ..self.settings.clone() };
                let how =
                    EvaluateOptions { data: how.clone(), threads: options.threads, settings, ..Default::default() };
                let artifact = &entrant.artifact;
                let evaluation = evaluate_compiled(artifact, source, &mut reference, data, &how, &watching);
                let own = |cell: &&mut Cell| cell.model.id == entrant.label && cell.backend == runtime.name();
                for cell in cells.iter_mut().filter(own) {
                    note_evaluation(cell, &evaluation);
                }
            }
        }
    }
}

/// What the warning begins with of a cell that was measured and could not be evaluated.
pub const UNEVALUATED: &str = "it could not be evaluated on the data";

fn note_evaluation(cell: &mut Cell, evaluation: &Result<Evaluation>) {
    match evaluation {
        Ok(evaluation) => cell.evaluation = Some(evaluation.clone()),
        Err(error) => cell.warnings.push(format!("{UNEVALUATED}: {error:#}")),
    }
}

/// Whether an entrant can run on a runtime: the product that runs it, and its version.
fn check(entrant: &Entrant, runtime: &dyn Runtime) -> Result<(String, String), Unavailable> {
    if let Some(problem) = lacks(runtime, entrant.artifact.computes()) {
        return Err(problem);
    }
    let found = runtime.check()?;
    Ok((found.product.to_owned(), found.version))
}

/// The cells of an entrant that is not measured.
fn unmeasured(entrant: &Entrant, runtime: &str, (status, why): &(Status, String), options: &BenchOptions) -> Vec<Cell> {
    let model = || ModelId { id: entrant.label.clone(), file_bytes: None };
    let shape = |batch: usize, seq: usize| match takes_sequences(&entrant.artifact) {
        true => CellShape { batch, seq: Some(seq), part: None, tokens: Some(seq), past: 0 },
        false => CellShape { batch, seq: None, part: None, tokens: None, past: 0 },
    };
    let cell = |(batch, seq)| Cell {
        options: CellOptions { threads: options.threads, spin: options.spin },
        status: *status,
        failure: Some(why.clone()),
        ..Cell::new(model(), runtime, &entrant.precision, options.workload, shape(batch, seq))
    };
    let shapes = options.batch.iter().flat_map(|batch| options.sequence.iter().map(move |seq| (*batch, *seq)));
    shapes.map(cell).collect()
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
