//! Entrants that are measured in turns: those that are compared with one model.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Error, Result, anyhow};
use planish_artifact::Artifact;
use planish_artifact::backend::{MakeRuntime, RuntimeSettings, lacks};
use planish_artifact::manifest::PartManifest;
use planish_compiler::source::{Compared, SourceModel};
use planish_data::inputs::is_of_sequence;
use planish_models::{Loaded, Task};
use planish_runtimes::{Runtime, Unavailable};

use super::{BenchObserver, BenchOptions, Cell, CellOptions, CellShape, Entrant, ModelId, Status};

/// A runtime that an entrant is measured on.
pub(super) type Place = (Box<dyn Runtime>, MakeRuntime);

/// An entrant with the runtimes that it is measured on.
pub(super) struct Member<'a> {
    pub(super) entrant: &'a Entrant,
    pub(super) places: Vec<Place>,
    /// Whether it was compiled from the model of the group, and not only has the same inputs.
    pub(super) is_of_source: bool,
}

/// Entrants that are compared with one model.
pub(super) struct Group<'a> {
    pub(super) members: Vec<Member<'a>>,
    /// Where the model is, and the task for which it is loaded.
    path: PathBuf,
    task: Option<Task>,
    pub(super) model: SourceModel,
    pub(super) loaded: Loaded,
}

/// Why a cell was not measured begins with this, where no model is there to compare with.
pub const UNCOMPARED: &str = "there is no model to compare it with";

/// What entrants are measured, and those that are not, with the reason.
pub(super) struct Groups<'a> {
    pub(super) groups: Vec<Group<'a>>,
    /// Cells of entrants that are not measured.
    pub(super) left_out: Vec<Cell>,
    /// The products that run what is measured, with their versions.
    pub(super) versions: BTreeMap<String, String>,
}

impl<'a> Groups<'a> {
    /// Sorts entrants by the models that they are compared with, among those that are `named` or where each is found.
    ///
    /// # Errors
    /// [`Unavailable`] when nothing can run; when no entrant can be read, or has a model to be compared with.
    pub(super) fn of(
        entrants: &'a [Entrant],
        (runtimes, named, settings): (&[MakeRuntime], &[PathBuf], &RuntimeSettings),
        options: &BenchOptions,
        observer: &mut dyn BenchObserver,
    ) -> Result<Self> {
        let mut found = Self { groups: Vec::new(), left_out: Vec::new(), versions: BTreeMap::new() };
        let (mut unavailable, mut unreadable): (Option<Unavailable>, Option<Error>) = (None, None);
        // Entrants of the same files need one look for their model.
        let mut alike: Vec<Vec<Member<'a>>> = Vec::new();
        for entrant in entrants {
            let mut places = Vec::new();
            for (runtime, make) in runtimes_of(entrant, runtimes, settings) {
                match check(entrant, runtime.as_ref()) {
                    Ok((product, version)) => {
                        let artifact = &entrant.artifact;
                        let mut parts = artifact.manifest.parts.iter().flat_map(PartManifest::pieces);
                        if let Err(error) =
                            parts.try_for_each(|part| artifact.file_for(&part, runtime.as_ref()).map(drop))
                        {
                            observer.warning(&format!("{} is not measured: {error:#}", entrant.label));
                            let why = (Status::Unavailable, format!("{error:#}"));
                            found.left_out.extend(unmeasured(entrant, runtime.name(), &why, options));
                            unreadable.get_or_insert(error);
                            continue;
                        }
                        found.versions.insert(product, version);
                        places.push((runtime, make));
                    }
                    Err(problem) => {
                        observer.warning(&format!("{} is not measured: {problem}", entrant.label));
                        let why = (Status::Unavailable, problem.to_string());
                        found.left_out.extend(unmeasured(entrant, runtime.name(), &why, options));
                        unavailable.get_or_insert(problem);
                    }
                }
            }
            if places.is_empty() {
                continue;
            }
            let member = Member { entrant, places, is_of_source: true };
            let same = |members: &&mut Vec<Member<'a>>| {
                members.iter().all(|other| same_model(&other.entrant.artifact, &entrant.artifact))
            };
            match alike.iter_mut().find(same) {
                Some(members) => members.push(member),
                None => alike.push(vec![member]),
            }
        }
        if let (true, Some(problem)) = (alike.is_empty(), unreadable.or(unavailable.map(Error::from))) {
            return Err(problem);
        }
        let mut uncompared: Option<Error> = None;
        for members in alike {
            let first = members.first().ok_or_else(|| anyhow!("nothing to measure"))?;
            match first.entrant.compared(named) {
                Ok(compared) => found.add(members, compared, observer),
                Err(error) => {
                    let why = (Status::Unavailable, format!("{UNCOMPARED}: {error:#}"));
                    for Member { entrant, places, .. } in &members {
                        observer.warning(&format!("{} is not measured: {}", entrant.label, why.1));
                        let cells = |(runtime, _): &Place| unmeasured(entrant, runtime.name(), &why, options);
                        found.left_out.extend(places.iter().flat_map(cells));
                    }
                    uncompared.get_or_insert(error);
                }
            }
        }
        match uncompared.filter(|_| found.groups.is_empty()) {
            Some(error) => Err(error),
            None => Ok(found),
        }
    }

    /// Adds entrants of the same files to those that are compared with the same model.
    fn add(&mut self, mut members: Vec<Member<'a>>, compared: Compared, observer: &mut dyn BenchObserver) {
        let Compared { path, model, loaded, is_source } = compared;
        for member in &mut members {
            member.is_of_source = is_source;
            if !is_source {
                observer.note(&format!(
                    "{} was not compiled from {}, and is compared with it because --reference names it",
                    member.entrant.label,
                    path.display()
                ));
            }
        }
        let path = path.canonicalize().unwrap_or(path);
        let task = loaded.task;
        let same = |group: &&mut Group<'a>| {
            let import = |of: &SourceModel| serde_json::to_value(of.import_options()).ok();
            group.path == path && group.task == task && import(&group.model) == import(&model)
        };
        match self.groups.iter_mut().find(same) {
            Some(group) => group.members.extend(members),
            None => self.groups.push(Group { members, path, task, model, loaded }),
        }
    }
}

/// The runtimes that an entrant is measured on.
fn runtimes_of(entrant: &Entrant, named: &[MakeRuntime], settings: &RuntimeSettings) -> Vec<Place> {
    let artifact = &entrant.artifact;
    let settings = &entrant.run.applied(settings);
    let own = artifact.settings(settings);
    let named = if entrant.runtimes.is_empty() { named } else { &entrant.runtimes };
    match named {
        [] => vec![(artifact.runtime(settings), artifact.maker(settings))],
        named => named.iter().map(|make| (make(&own), *make)).collect(),
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
pub(super) fn unmeasured(
    entrant: &Entrant,
    runtime: &str,
    (status, why): &(Status, String),
    options: &BenchOptions,
) -> Vec<Cell> {
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
    shapes.filter(|shape| options.shapes.is_empty() || options.shapes.contains(shape)).map(cell).collect()
}

/// Loads each entrant on its runtime; one that fails has cells with the reason.
///
/// # Errors
/// The first one, when none is loaded.
pub(super) fn each_loaded<'a, T>(
    places: &[(&'a Entrant, &dyn Runtime)],
    options: &BenchOptions,
    load: impl Fn(&'a Entrant, &dyn Runtime) -> Result<T>,
) -> Result<(Vec<T>, Vec<Cell>)> {
    let (mut all, mut failed, mut first) = (Vec::new(), Vec::new(), None);
    for (entrant, runtime) in places {
        match load(entrant, *runtime) {
            Ok(loaded) => all.push(loaded),
            Err(error) => {
                failed.extend(unmeasured(entrant, runtime.name(), &(Status::Failed, format!("{error:#}")), options));
                first.get_or_insert(error);
            }
        }
    }
    match first.filter(|_| all.is_empty()) {
        Some(error) => Err(error),
        None => Ok((all, failed)),
    }
}

/// Artifacts of the same source files and task compute the same.
fn same_model(one: &Artifact, other: &Artifact) -> bool {
    let (one, other) = (&one.manifest, &other.manifest);
    let (files, others) = (&one.source.files, &other.source.files);
    let same = files.len() == others.len() && files.iter().zip(others).all(|(file, other)| file.may_be(other));
    same && one.source.name == other.source.name && one.task == other.task
}

/// Whether a model takes sequences, by the symbols of its inputs.
pub(super) fn takes_sequences(artifact: &Artifact) -> bool {
    let mut roles = artifact.manifest.parts.iter().flat_map(|part| part.symbols.values());
    roles.any(|role| is_of_sequence(*role))
}
