//! Which entrants are measured, where, and against which models.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use planish_artifact::backend::{MakeRuntime, RuntimeSettings, Spin};
use planish_artifact::chain::Chain;
use planish_artifact::evaluation::Requirements;
use planish_artifact::manifest::Input;
use planish_artifact::note_elsewhere;
use planish_check::verify::{input_specs, reference_limits};
use planish_data::DataOptions;
use planish_data::sentence::SentenceSettings;
use planish_eval::{Limits, Tensor};
use planish_models::Part;
use planish_runtimes::{Model, Port, ReferenceRuntime, Runtime, SessionOptions, check_inputs};

use super::generation::generate;
use super::groups::{Group, Groups, Member, Place, takes_sequences, unmeasured};
use super::lengths::lengths;
use super::loading::loading;
use super::operators;
use super::peaks::add_rooflines;
use super::recommend::recommend;
use super::reference_cache::ReferenceCache;
use super::shards::GridShard;
use super::watching::{Checking, Once};
use super::{
    BenchObserver, BenchOptions, Cell, CellOptions, Contestant, Document, Entrant, Environment, ReferenceModel,
    ReferencePart, Status, Workload, gpu, sweep,
};
use crate::apart::{Apart, Start};

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
    /// The limits of accuracy on data that the contestant to choose has to reach; the usual ones where absent.
    pub limits: Option<Requirements>,
    /// The data on which entrants are compared with their models in float32, and how it is read.
    pub data: Option<(PathBuf, DataOptions)>,
}

/// The sequence length that is measured unless told otherwise.
const SEQUENCE: usize = 128;

/// The tokens of a row on which outputs are compared before another workload.
const CHECKED_TOKENS: usize = 16;

impl Contest {
    /// Measures what can run here; the others have cells that say why they do not. Entrants of one model take turns.
    ///
    /// # Errors
    /// `Unavailable` when nothing can run; when a file or a model is missing or changed, or no inputs can be made.
    pub fn bench(self, options: &BenchOptions, observer: &mut dyn BenchObserver) -> Result<Document> {
        let observer = &mut Once { observer, said: BTreeSet::new() };
        let mut options = options.clone();
        if options.sequence.is_empty() {
            let mut longest: Option<usize> = None;
            for one in &self.entrants {
                let trained = SentenceSettings::read(&one.artifact.folder)?.max_length;
                longest = longest.into_iter().chain(one.artifact.manifest.max_sequence_length).chain(trained).min();
            }
            let new = if options.workload == Workload::Generate { options.new_tokens.get() } else { 0 };
            let room = longest.map_or(SEQUENCE, |longest| longest.saturating_sub(new).max(1));
            options.sequence.push(room.min(SEQUENCE));
        }
        let args = std::env::args().skip(1).collect();
        let grid = options.shard.map(|shard| GridShard::new(&self, &options, shard)).transpose()?;
        if let (Some(grid), Some(shard)) = (&grid, options.shard) {
            options.shapes = grid.own(shard);
            if options.shapes.is_empty() {
                return Ok(Document {
                    shard: Some(grid.clone()),
                    ..Document::new(args, Environment::read([]), Vec::new())
                });
            }
        }
        // All models before the first entrant is measured, which takes minutes.
        let named = (self.runtimes.as_slice(), self.references.as_slice(), &self.settings);
        let Groups { groups, left_out, versions } = Groups::of(&self.entrants, named, &options, observer)?;
        let mut cells = Vec::new();
        observer.begin();
        for (number, group) in groups.iter().enumerate() {
            let rows = |why: &(Status, String)| -> Vec<Cell> {
                let of = |member: &Member<'_>| -> Vec<Cell> {
                    let cells = |(runtime, _): &Place| unmeasured(member.entrant, runtime.name(), why, &options);
                    member.places.iter().flat_map(cells).collect()
                };
                group.members.iter().flat_map(of).collect()
            };
            if observer.is_ended() {
                cells.extend(rows(&(Status::Unfinished, "the benchmark was ended before".to_owned())));
                continue;
            }
            let measured = match options.workload {
                Workload::Encode => self.measure(group, &options, observer),
                Workload::Generate | Workload::Lengths | Workload::Load => {
                    self.measure_right(group, &options, observer)
                }
            };
            let measured = match measured {
                // What one model has in the way costs its rows, and not those of others.
                Err(error) if groups.len() > 1 => rows(&(Status::Failed, format!("{error:#}"))),
                measured => measured?,
            };
            cells.extend(measured.into_iter().map(|cell| Cell { rounds: Some(number), ..cell }));
        }
        cells.extend(left_out);
        gpu::compare_clocks(&mut cells);
        let gpu = gpu::monitor(cells.iter().filter(|cell| cell.device.is_some()).map(|cell| cell.backend.as_str()));
        let environment = Environment { gpu: gpu.and_then(|of| of.description()), ..Environment::read(versions) };
        let mut document = Document { shard: grid, ..Document::new(args, environment, cells) };
        if options.peaks && !observer.is_ended() && document.cells.iter().any(|cell| cell.work.is_some()) {
            add_rooflines(&mut document, &options, &self.settings, observer);
        }
        let command = |id: &str| self.entrants.iter().find(|of| of.label == id)?.command.clone();
        document.recommendations = recommend(&document.cells, self.limits.as_ref(), command);
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
                let with = if new > 0 { format!(" with --set new-tokens={new}") } else { String::new() };
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

    /// Measures another workload than that of one call, by the entrants of one model whose outputs are right.
    fn measure_right(
        &self,
        group: &Group<'_>,
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
        let checked = self.sweep(group, &once, &mut Checking(observer))?;
        let (mut cells, mut right) = (Vec::new(), Vec::new());
        for Member { entrant, places, .. } in &group.members {
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
        if right.is_empty() {
            return Ok(cells);
        }
        cells.extend(match options.workload {
            Workload::Lengths => {
                let (data, how) = self.data.as_ref().context("--workload lengths needs texts: add --data FILE")?;
                lengths(&right, (&group.model.folder(), &group.loaded), (data, how), &self.settings, options, observer)?
            }
            Workload::Load => loading(&right, &self.settings, options, observer)?,
            _ => generate(&right, &group.loaded, &self.settings, options, observer)?,
        });
        if options.workload != Workload::Load {
            self.evaluate(group, options, &mut cells, observer);
        }
        Ok(cells)
    }

    /// Measures entrants of one model, and compares them with it on data.
    fn measure(
        &self,
        group: &Group<'_>,
        options: &BenchOptions,
        observer: &mut dyn BenchObserver,
    ) -> Result<Vec<Cell>> {
        let mut cells = self.sweep(group, options, observer)?;
        self.evaluate(group, options, &mut cells, observer);
        Ok(cells)
    }

    /// Measures entrants of one model.
    fn sweep(&self, group: &Group<'_>, options: &BenchOptions, observer: &mut dyn BenchObserver) -> Result<Vec<Cell>> {
        let (session, model) = (SessionOptions { threads: options.threads }, &group.loaded);
        let mut reference = self.on_reference(group, session)?;
        let (mut contestants, mut failed) = (Vec::new(), Vec::new());
        for Member { entrant, places, is_of_source } in &group.members {
            let artifact = &entrant.artifact;
            for (index, part) in reference.parts.iter().enumerate() {
                let part = artifact.part(&part.name)?;
                let tolerances = entrant.tolerances(model, *is_of_source);
                let graph = entrant.graph(part);
                let threads = entrant.run.threads.map_or(options.threads, usize::from);
                let session = SessionOptions { threads };
                for (runtime, _) in places {
                    let (runtime, bytes) = (runtime.as_ref(), artifact.bytes(part));
                    let (label, precision) = (&entrant.label, &entrant.precision);
                    let settings = artifact.settings(&entrant.run.applied(&self.settings));
                    let loaded = match options.isolate {
                        true => {
                            let start = match part.stages.is_empty() {
                                true => {
                                    let (format, file) = artifact.file_for(part, runtime)?;
                                    Start::new(runtime, format, &file, threads, &settings).of_part(part)
                                }
                                false => Start::stages(artifact, part, runtime, threads, &settings),
                            };
                            let apart = Apart::start(start, runtime.name());
                            apart.map(|apart| Contestant::apart(label, precision, apart, bytes, tolerances))
                        }
                        false => {
                            let load = || artifact.load(part, runtime, session);
                            Contestant::load(label, precision, runtime, load, bytes, tolerances)
                        }
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
                    loaded.is_foreign = entrant.is_foreign() || !is_of_source;
                    loaded.session.session_mut().name_dimensions(&part.ports());
                    note_elsewhere(loaded.session.session(), &mut |text| observer.note(text));
                    if let Some(source) = reference.parts.get(index).filter(|_| loaded.is_foreign) {
                        note_missing(&loaded, source, observer);
                    }
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
            operators::record_group(&group.members, &mut reference, options, &mut cells, observer)?;
        }
        drop(reference);
        for cell in &mut cells {
            let run = self.entrants.iter().find(|of| of.label == cell.model.id).map(|of| of.run).unwrap_or_default();
            let CellOptions { threads, spin } = cell.options;
            let spin = run.spin.map_or(spin, |spin| spin != Spin::Microseconds(0));
            cell.options = CellOptions { threads: run.threads.map_or(threads, usize::from), spin };
        }
        cells.extend(failed);
        Ok(cells)
    }

    /// The parts of the model of a group on the reference, with the inputs that the first entrant takes.
    fn on_reference(&self, group: &Group<'_>, options: SessionOptions) -> Result<ReferenceModel> {
        let (loaded, first) = (&group.loaded, group.members.first());
        let artifact = &first.ok_or_else(|| anyhow!("nothing to measure"))?.entrant.artifact;
        let task = loaded.task.map(|task| task.to_string()).unwrap_or_default();
        // An artifact that was compiled from the model has the digests of its files.
        let of_source = group.members.iter().find(|member| member.is_of_source);
        let cache = of_source.and_then(|of| ReferenceCache::of(&of.entrant.artifact.manifest.source, &task));
        let part = |part: &Part| -> Result<ReferencePart> {
            // Cells may be as large as the user says.
            let limits = Limits { memory: None, ..reference_limits(&part.graph) };
            let session = ReferenceRuntime { limits }.load(Model::Graph(&part.graph), options)?;
            let specs = match &self.inputs {
                Some(_) => Vec::new(),
                None => input_specs(session.inputs(), artifact.part(part.name)?, artifact.manifest.pad_token_id)
                    .context("--inputs FILE measures on the tensors of a file (.safetensors or .npz)")?,
            };
            let graph = Some(part.graph.clone());
            Ok(ReferencePart {
                graph,
                interface: artifact.part(part.name)?.interface(),
                cache: cache.clone(),
                ..ReferencePart::new(part.name.to_owned(), session, specs)
            })
        };
        let parts: Vec<ReferencePart> = loaded.parts.iter().map(part).collect::<Result<_>>()?;
        Ok(ReferenceModel { given: self.inputs.clone(), ..ReferenceModel::new(parts, loaded.max_positions) })
    }
}

/// Says which inputs of the model a graph of another exporter does not have.
fn note_missing(contestant: &Contestant, source: &ReferencePart, observer: &mut dyn BenchObserver) {
    let ports = contestant.session.session().inputs();
    let missing = source.specs.iter().filter(|spec| !ports.iter().any(|port| port.name == spec.port.name));
    let missing: Vec<String> = missing.map(|spec| format!("`{}`", spec.port.name)).collect();
    if !missing.is_empty() {
        observer.note(&format!("{} runs without {}, which it has no input for", contestant.label, missing.join(", ")));
    }
}
