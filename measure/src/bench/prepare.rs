//! From what a user names to what takes part in a benchmark.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use planish_artifact::Artifact;
use planish_artifact::backend::{BACKENDS, Backend, LOCAL, MakeRuntime, PORTABLE, RuntimeSettings, USUAL};
use planish_artifact::draft::Draft;
use planish_artifact::recipe::{Precision, Recipe, read};
use planish_artifact::split::Split;
use planish_compiler::calibrate::{
    CalibrateOn, CalibrateOptions, Calibration, CalibrationObserver, Measure, calibrate, is_table,
};
use planish_compiler::compile::{Compiled, Observer, compile};
use planish_compiler::request::RequestError;
use planish_compiler::source::SourceModel;
use planish_data::{DataOptions, OptionNames};
use planish_models::{LoadOptions, Task};

use super::here::{artifacts_here, is_artifact};
use super::{BenchObserver, Entrant, Form, Measured, Variant};
use crate::tune::{Former, Model, TuneOptions, Tuned, tune};

/// What a user wants to be measured.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Artifacts, ONNX files and checkpoints; where none is named, the artifacts in the current folder and below it.
    pub named: Vec<PathBuf>,
    /// A model of which the usual forms are compiled and measured.
    pub compare: Option<PathBuf>,
    /// The forms in which checkpoints are compiled.
    pub variants: Vec<Variant>,
    /// What checkpoints are compiled with beside these, as `--recipe` takes it: files and `KEY=VALUE`.
    pub recipe: Vec<String>,
    /// The runtimes that checkpoints are compiled for.
    pub runtimes: Vec<MakeRuntime>,
    /// The models that ONNX files are compared with.
    pub references: Vec<PathBuf>,
    /// The data that scales of INT8 follow from.
    pub calibrate: Option<(PathBuf, DataOptions)>,
    /// How runtimes are found.
    pub settings: RuntimeSettings,
    /// The search for the fastest form in float32, which is compared too; absent where none is asked for.
    pub tune: Option<TuneOptions>,
}

/// What takes part, and the folders of the files that were compiled for it.
pub struct Prepared {
    /// What takes part, in the order in which it was named.
    pub entrants: Vec<Entrant>,
    /// What was named, and cannot be measured, with the reason.
    pub left_out: Vec<String>,
    _folders: Vec<Draft>,
}

/// What a caller sees while models are compiled.
pub trait PrepareObserver: Observer + CalibrationObserver {
    /// A form is compiled.
    fn compiling(&self, label: &str);
    /// A search does something that may take minutes.
    fn searching(&self, _: &str) {}
    /// Something is not compiled or measured, and why.
    fn left_out(&self, text: &str);
}

impl Request {
    /// Opens what was named, and compiles what has to be compiled.
    ///
    /// # Errors
    /// When something is not there, or nothing can be read and compiled.
    pub fn prepare(&self, observer: &dyn PrepareObserver) -> Result<Prepared> {
        let mut prepared = Prepared { entrants: Vec::new(), left_out: Vec::new(), _folders: Vec::new() };
        self.check_recipe()?;
        if let Some(path) = &self.compare {
            let model = SourceModel::open(path)?;
            let mut compiling = Compiling::new(self, &model, observer)?;
            for form in self.usual_forms() {
                match compiling.form(&form) {
                    Ok(entrant) => prepared.entrants.push(entrant),
                    Err(error) => observer.left_out(&format!("{} is left out: {error:#}", form.label(&model))),
                }
            }
            if let Some(options) = &self.tune {
                match compiling.tuned(options) {
                    Ok(entrant) => prepared.entrants.push(entrant),
                    Err(error) => observer.left_out(&format!("the tuned form is left out: {error:#}")),
                }
            }
            prepared._folders.push(compiling.folder);
        }
        if self.named.is_empty() && self.compare.is_none() {
            prepared.entrants = artifacts_here()?.into_iter().map(Entrant::of).collect();
        }
        for path in &self.named {
            if !path.exists() {
                bail!(
                    "there is no {}; name an artifact, an .onnx file or a checkpoint, or make an artifact with `planish compile`",
                    path.display()
                );
            }
        }
        let are_several = self.named.len() + usize::from(self.compare.is_some()) > 1;
        for path in &self.named {
            match self.add(path, &mut prepared, observer) {
                // One of several that cannot be measured costs its own rows only.
                Err(error) if are_several => {
                    let why = format!("{} is left out: {error:#}", path.display());
                    observer.left_out(&why);
                    prepared.left_out.push(why);
                }
                added => added?,
            }
        }
        if let (true, Some(why)) = (prepared.entrants.is_empty(), prepared.left_out.first()) {
            bail!("{why}");
        }
        tell_apart(&mut prepared.entrants)?;
        Ok(prepared)
    }

    /// Refuses a recipe that says what other options of a benchmark say, or that is of no use because nothing is compiled.
    fn check_recipe(&self) -> Result<()> {
        let recipe = read(&self.recipe)?;
        for (given, member, option) in [
            (recipe.target.is_some(), "target", "--runtime"),
            (!recipe.precision.is_empty(), "precision", "--precision"),
            (!recipe.engine.is_empty(), "engine", "artifacts of `planish compile --target trt`"),
        ] {
            if given {
                let why = format!("--recipe {member}: a benchmark takes {option} for it; leave it out");
                return Err(RequestError(why).into());
            }
        }
        let is_compiled = |path: &PathBuf| !is_artifact(path) && !SourceModel::is_file_of_graph(path);
        if !self.recipe.is_empty() && self.compare.is_none() && !self.named.iter().any(is_compiled) {
            let why = "--recipe is for checkpoints, and none is named; artifacts are measured as they are";
            return Err(RequestError(why.to_owned()).into());
        }
        Ok(())
    }

    /// Adds what a user named.
    fn add(&self, path: &Path, prepared: &mut Prepared, observer: &dyn PrepareObserver) -> Result<()> {
        if is_artifact(path) {
            prepared.entrants.push(Entrant::of(Artifact::open(path)?));
        } else if SourceModel::is_file_of_graph(path) {
            prepared.entrants.push(self.onnx_file(path, observer)?);
        } else {
            let model = SourceModel::open(path).with_context(|| neither(path))?;
            let mut compiling = Compiling::new(self, &model, observer)?;
            for form in self.forms()? {
                prepared.entrants.push(compiling.form(&form)?);
            }
            prepared._folders.push(compiling.folder);
        }
        Ok(())
    }

    /// An ONNX file as it is.
    fn onnx_file(&self, path: &Path, observer: &dyn PrepareObserver) -> Result<Entrant> {
        let references: Vec<&Path> = self.references.iter().chain(&self.compare).map(PathBuf::as_path).collect();
        let entrant = Entrant::of_onnx(path, &references, !self.references.is_empty())
            .with_context(|| format!("cannot measure {}", path.display()))?;
        match entrant.reference() {
            Some(reference) if reference != path => {
                if self.references.is_empty() {
                    let (path, reference) = (path.display(), reference.display());
                    observer.note(&format!("{path} is compared with {reference}, which takes the same inputs"));
                }
            }
            _ => observer.note(&format!(
                "{} is compared with itself on the reference interpreter; --reference names the model that it was made from",
                path.display()
            )),
        }
        observer.note(&format!("{}: planish takes the meaning of inputs from their names", path.display()));
        Ok(entrant)
    }

    /// The forms in which a checkpoint is measured.
    fn forms(&self) -> Result<Vec<Form>> {
        let backends: Vec<(&'static Backend, Option<MakeRuntime>)> = match self.runtimes.as_slice() {
            [] => vec![(LOCAL, None)],
            named => named.iter().map(|make| Ok((self.backend_of(*make)?, Some(*make)))).collect::<Result<_>>()?,
        };
        let variants = if self.variants.is_empty() { &[Variant::Of(Precision::F32)][..] } else { &self.variants };
        let of_backend = |&(backend, runtime): &(&'static Backend, Option<MakeRuntime>)| {
            let form = move |&variant: &Variant| match variant {
                Variant::Unfused if runtime.is_none() => Form { backend: PORTABLE, variant, runtime },
                _ => Form { backend, variant, runtime },
            };
            variants.iter().map(form).collect::<Vec<_>>()
        };
        Ok(backends.iter().flat_map(of_backend).collect())
    }

    /// The backend that checkpoints are compiled with for a runtime.
    fn backend_of(&self, make: MakeRuntime) -> Result<&'static Backend> {
        let name = make(&self.settings).name();
        let own = |backend: &&&'static Backend| backend.runtimes.iter().any(|own| own(&self.settings).name() == name);
        // Graphs for a device that the runtime loads as they are.
        let mut all = BACKENDS.iter().filter(|backend| backend.device.is_some() && backend.engines.is_none());
        all.find(own).copied().ok_or_else(|| {
            anyhow!("a checkpoint is not compiled for runtime `{name}` here: run planish compile first, and name the artifact")
        })
    }

    /// The forms of a comparison: those that run here, the slowest usual one first.
    fn usual_forms(&self) -> Vec<Form> {
        let mut forms = Vec::new();
        for &(backend, at, variants) in USUAL {
            let Some(make) = backend.runtimes.get(at).copied() else { continue };
            if make(&self.settings).check().is_ok() {
                forms.extend(variants.iter().map(|&variant| Form { backend, variant, runtime: Some(make) }));
            }
        }
        forms
    }
}

/// Gives entrants of one name the paths of their folders, by which figures are told apart.
///
/// # Errors
/// When one is named twice.
fn tell_apart(entrants: &mut [Entrant]) -> Result<()> {
    let labels: Vec<String> = entrants.iter().map(|entrant| entrant.label.clone()).collect();
    let count = |label: &String| labels.iter().filter(|other| *other == label).count();
    for (entrant, label) in entrants.iter_mut().zip(&labels) {
        if count(label) > 1 {
            entrant.label = entrant.artifact.folder.display().to_string();
        }
    }
    for (at, entrant) in entrants.iter().enumerate() {
        if entrants[..at].iter().any(|other| other.label == entrant.label) {
            bail!("{} is named twice; name it once", entrant.label);
        }
    }
    Ok(())
}

/// A model that is compiled in several forms.
struct Compiling<'a> {
    request: &'a Request,
    model: &'a SourceModel,
    observer: &'a dyn PrepareObserver,
    folder: Draft,
    calibration: Option<Calibration>,
}

impl<'a> Compiling<'a> {
    fn new(request: &'a Request, model: &'a SourceModel, observer: &'a dyn PrepareObserver) -> Result<Self> {
        Ok(Self { request, model, observer, folder: Draft::temporary("planish-bench")?, calibration: None })
    }

    fn form(&mut self, form: &Form) -> Result<Entrant> {
        if form.variant == Variant::Of(Precision::Int8) && self.calibration.is_none() {
            self.calibration = self.calibrated()?;
        }
        self.observer.compiling(&form.label(self.model));
        let folder = self.folder.folder();
        let recipe = read(&self.request.recipe)?;
        let calibration = self.calibration.as_ref();
        let mut entrant = Entrant::compiled(self.model, form, (&recipe, folder), calibration, self.observer)?;
        let calibrate = self.request.calibrate.as_ref();
        let calibrate = calibrate.map(|(path, data)| (path.as_path(), data));
        entrant.command = Some(form.command(self.model, calibrate, &self.request.recipe));
        Ok(entrant)
    }

    /// The form in float32 that a search finds, with how it runs.
    fn tuned(&self, options: &TuneOptions) -> Result<Entrant> {
        let (recipe, folder) = (read(&self.request.recipe)?, self.folder.folder().join("tuned"));
        let model = Model {
            source: self.model,
            backend: LOCAL,
            recipe: &recipe,
            fusion: true,
            gate: None,
            is_within_limits: false,
        };
        let Tuned { tuning, recipe: won, .. } = tune(&model, self, options, &mut Searching(self.observer))?;
        std::fs::create_dir_all(&folder)?;
        let mut entrant = Entrant::compiled(self.model, &FLOAT, (&won, &folder), None, self.observer)?;
        self.observer.note(&format!("{}: tuned: {tuning}", entrant.label));
        entrant.label += "-tuned";
        entrant.run = tuning.run;
        let command = FLOAT.command(self.model, None, &self.request.recipe);
        entrant.command = Some(format!("{command} --tune={} --tune-time={}s", tuning.shapes.join(","), tuning.seconds));
        Ok(entrant)
    }

    fn calibrated(&self) -> Result<Option<Calibration>> {
        let Some((path, data)) = &self.request.calibrate else { return Ok(None) };
        if is_table(path) {
            return Calibration::of(self.model, path, LoadOptions::default()).map(Some);
        }
        let on = CalibrateOn::Backend(LOCAL, self.request.settings.clone());
        let options =
            CalibrateOptions { data: data.clone(), measure: Measure::Inputs, on, ..CalibrateOptions::default() };
        calibrate(self.model, path, &options, self.observer).map(Some)
    }
}

/// The form that is tuned.
const FLOAT: Form = Form { backend: LOCAL, variant: Variant::Of(Precision::F32), runtime: None };

impl Former for Compiling<'_> {
    fn compile(&self, recipe: &Recipe, folder: &Path) -> Result<Compiled> {
        compile(self.model, folder, &FLOAT.options(self.model, recipe, None)?, self.observer)
    }
}

/// A search before a benchmark.
struct Searching<'a>(&'a dyn PrepareObserver);

impl BenchObserver for Searching<'_> {
    fn progress(&mut self, _: f64) {}
    fn measured(&mut self, _: Measured<'_>) {}

    fn step(&mut self, text: &str) {
        self.0.searching(text);
    }

    fn warning(&mut self, text: &str) {
        self.0.left_out(text);
    }

    fn note(&mut self, text: &str) {
        self.0.note(text);
    }
}

/// How many samples entrants are compared on unless told otherwise.
pub const SAMPLES: usize = 200;

/// What is compared on and what calibrates. With one data set for both, which `calibrates` asks for where no other one is named,
/// every fifth sample is held out for comparison.
#[must_use]
pub fn divided(
    data: Option<PathBuf>,
    calibrate: Option<PathBuf>,
    calibrates: bool,
    samples: usize,
    field: Option<String>,
) -> [Option<(PathBuf, DataOptions)>; 2] {
    let names = OptionNames { field: Some("--set field=NAME"), ..OptionNames::NONE };
    let options =
        |split: Split, samples| DataOptions { field: field.clone(), split, samples, names, ..DataOptions::default() };
    let one = Split::All.samples(samples);
    match (data, calibrate) {
        (Some(data), None) if calibrates => {
            let held_out = options(Split::HeldOut, Split::HeldOut.samples(samples));
            let rest = options(Split::Rest, DataOptions::default().samples);
            [Some((data.clone(), held_out)), Some((data, rest))]
        }
        (data, calibrate) => {
            let all = options(Split::All, DataOptions::default().samples);
            [data.map(|data| (data, options(Split::All, one))), calibrate.map(|path| (path, all))]
        }
    }
}

/// Whether a model generates text, on the data of which nothing is calibrated unless that is named: its perplexity is then of the
/// whole text, as that of `evaluate`.
///
/// # Errors
/// When it cannot be read.
pub fn generates(path: &Path) -> Result<bool> {
    let loaded = SourceModel::open(path)?.load(LoadOptions::default())?;
    Ok(matches!(loaded.task, Some(Task::TextGeneration)))
}

fn neither(path: &Path) -> String {
    format!("{} is neither an artifact, nor an .onnx file, nor a checkpoint", path.display())
}
