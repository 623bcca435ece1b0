//! What takes part in a benchmark: an artifact, an ONNX file of any origin, or a form of a model that is compiled for it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_artifact::Artifact;
use planish_artifact::backend::{Backend, LOCAL, MakeRuntime, PORTABLE, Variant};
use planish_artifact::files::digest;
use planish_artifact::manifest::{File, Manifest, PartManifest, SourceManifest};
use planish_artifact::package::RuntimePackage;
use planish_artifact::recipe::{Precision, Recipe};
use planish_artifact::split::Split;
use planish_artifact::tuning::RunSettings;
use planish_artifact::verification::{Basis, Tolerances, is_quantized, of_codes};
use planish_compiler::calibrate::{CalibrateOptions, Calibration};
use planish_compiler::compile::{
    CompileOptions, Compiled, Observer, compile, computed_precision, interface, parameters,
};
use planish_compiler::recipe::{CalibrationData, resolve};
use planish_compiler::request::{followed, least_opset};
use planish_compiler::source::{self, Compared, SourceModel, takes_the_same};
use planish_data::DataOptions;
use planish_ir::Graph;
use planish_models::{LoadOptions, Loaded, SourceFile};
use planish_onnx::{ImportOptions, Placement};
use planish_passes::QuantizedForm;

use crate::inspect::weight_bytes;
use crate::tune::tuned_here;

/// The precision of ONNX files with quantized operators.
pub(super) const QUANTIZED: &str = "quantized";

/// An artifact that takes part, with what is to be known of it beside its manifest.
pub struct Entrant {
    /// How it is called in tables.
    pub label: String,
    /// The artifact. That of an ONNX file has no `planish.json`.
    pub artifact: Artifact,
    /// Its precision, as tables name it.
    pub precision: String,
    /// Where it runs; by [`Contest::runtimes`](super::Contest) where there is none.
    pub runtimes: Vec<MakeRuntime>,
    /// The command that makes it for good, where it was compiled for the benchmark.
    pub command: Option<String>,
    /// How the runtime uses the machine, where that is not left to the benchmark.
    pub(super) run: RunSettings,
    /// The model that it is compared with, where that is known.
    reference: Option<PathBuf>,
    /// How far its outputs may be from the model's, where the manifest does not say.
    tolerances: Option<Tolerances>,
    /// The files of a compiled form, which go with this.
    _compiled: Option<Compiled>,
}

impl Entrant {
    /// An artifact.
    #[must_use]
    pub fn of(artifact: Artifact) -> Self {
        let (label, precision) = (artifact.label(), artifact.manifest.precision_name());
        Self {
            label,
            artifact,
            precision,
            runtimes: Vec::new(),
            command: None,
            run: RunSettings::default(),
            reference: None,
            tolerances: None,
            _compiled: None,
        }
    }

    /// Has it run as tuning found on this machine, except for what `said` has: the settings that it took from there.
    pub fn run_as_tuned(&mut self, said: RunSettings) -> RunSettings {
        let (tuned, own) = (tuned_here(&self.artifact), self.run);
        let threads = tuned.threads.filter(|_| said.threads.or(own.threads).is_none());
        let spin = tuned.spin.filter(|_| said.spin.is_none() && own.spin.is_none());
        self.run = RunSettings { threads: own.threads.or(threads), spin: own.spin.or(spin) };
        RunSettings { threads, spin }
    }

    /// A form of a model that lies somewhere else, which runs as `run` says.
    pub(crate) fn of_form(label: String, artifact: Artifact, model: PathBuf, run: RunSettings) -> Self {
        Self { label, run, reference: Some(model), ..Self::of(artifact) }
    }

    /// An ONNX file as it is. It is compared with the first of the `references` that takes the same inputs. Where none does it is
    /// compared with the first that `is_named` says a user chose, or with itself on the reference interpreter.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn of_onnx(path: &Path, references: &[&Path], is_named: bool) -> Result<Self> {
        let model = SourceModel::open(path)?;
        let loaded = model.load(LoadOptions::default())?;
        let parts: Vec<PartManifest> = loaded.parts.iter().map(|part| interface(part, &part.graph)).collect();
        let fits = |reference: &&&Path| {
            let model = SourceModel::open(reference).and_then(|of| of.load(LoadOptions::default()));
            model.is_ok_and(|model| takes_the_same(&model, &parts))
        };
        let fitting = references.iter().find(fits).or(references.first().filter(|_| is_named)).copied();
        let compared = fitting.unwrap_or(path);
        let source = SourceModel::open(compared)?;
        let task = source.load(LoadOptions::default())?.task;
        let digested = |file: &SourceFile| {
            Ok(File { name: file.name.clone(), bytes: file.bytes, blake3: Some(digest(&file.path)?) })
        };
        let own = model.files(None)?;
        let folder = model.folder();
        let files: Vec<File> = own
            .iter()
            .map(|file| {
                let relative = file.path.strip_prefix(&folder).unwrap_or(&file.path);
                File { name: relative.to_string_lossy().into_owned(), bytes: file.bytes, blake3: None }
            })
            .collect();
        let names = || files.iter().map(|file| file.name.clone());
        let parts = parts.into_iter().map(|part| PartManifest { files: names().collect(), ..part });
        let precision = computed_precision(loaded.parts.iter().map(|part| &part.graph));
        let is_quantized = is_quantized(&loaded);
        // What another tool made is measured unless it is wrong: its accuracy on data says what it costs. The kernels of a runtime
        // fuse quantized operators, and sums saturate on some processors, so it may differ much even from itself on the reference
        // interpreter: MiniLM by ONNX Runtime's dynamic tool has a cosine of 0.980 with itself, and of 0.944 with the model, on random
        // tokens.
        let tolerances = if is_quantized { Tolerances::NIBBLES } else { Tolerances::of(&loaded, precision) };
        let manifest = Manifest {
            schema: Manifest::schema(),
            producer: String::new(),
            source: SourceManifest {
                name: source.name(),
                path: None,
                hub: None,
                files: source.files(task)?.iter().map(digested).collect::<Result<_>>()?,
                import: source.import_options(),
                adapters: Vec::new(),
                artifact: None,
                card: None,
            },
            architecture: loaded.architecture.to_owned(),
            task,
            pooling: None,
            target: PORTABLE.target.name.to_owned(),
            opset: model.opset().unwrap_or_default(),
            precision,
            calibration: None,
            fusion: false,
            recipe: None,
            tuning: None,
            attention_fp32: false,
            experts: None,
            cache_in_place: false,
            integer_inputs: false,
            runtime_package: RuntimePackage::default(),
            card: None,
            variant: None,
            files: files.clone(),
            linked: Vec::new(),
            companions: Vec::new(),
            parameters: parameters(&loaded),
            parts: parts.collect(),
            merged: None,
            tensor_parallel: None,
            pad_token_id: None,
            max_sequence_length: loaded.max_positions,
            recompute_at: None,
            places: None,
            length_dependence: None,
            verification: None,
            evaluation: None,
            variants: Vec::new(),
        };
        Ok(Self {
            label: path.display().to_string(),
            precision: if is_quantized { QUANTIZED.to_owned() } else { precision.to_string() },
            artifact: Artifact { folder, manifest, backend: PORTABLE, stamp: None },
            runtimes: Vec::new(),
            command: None,
            run: RunSettings::default(),
            reference: Some(compared.to_owned()),
            tolerances: Some(tolerances),
            _compiled: None,
        })
    }

    /// A form of a model that follows a recipe otherwise, compiled into temporary files below `folder`.
    ///
    /// # Errors
    /// When it cannot be compiled.
    pub fn compiled(
        model: &SourceModel,
        form: &Form,
        (recipe, folder): (&Recipe, &Path),
        calibration: Option<&Calibration>,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let label = form.label(model);
        let options = form.options(model, recipe, calibration)?;
        let place = folder.join(label.replace('/', "-"));
        let compiled = compile(model, &place, &options, observer).with_context(|| format!("cannot compile {label}"))?;
        let artifact = compiled.artifact.clone();
        Ok(Self {
            precision: artifact.manifest.precision_name(),
            runtimes: form.runtime.into_iter().collect(),
            command: None,
            run: RunSettings::default(),
            reference: Some(model.path()),
            label,
            artifact,
            tolerances: None,
            _compiled: Some(compiled),
        })
    }

    /// The model that it is compared with, among those that are `named`, or where it is to be found.
    ///
    /// # Errors
    /// When it is not found, or cannot be loaded.
    pub(super) fn compared(&self, named: &[PathBuf]) -> Result<Compared> {
        match &self.reference {
            Some(path) => {
                let model = source::open_again(path, &self.artifact.folder, &self.artifact.manifest.source)?;
                let loaded = model.load(self.artifact.manifest.load_options())?;
                Ok(Compared { path: path.clone(), model, loaded, is_source: true })
            }
            None => source::compared(named, &self.artifact),
        }
    }

    /// The graph of a part; `None` where no file has it, or it cannot be read.
    pub(super) fn graph(&self, part: &PartManifest) -> Option<Graph> {
        let file = self.artifact.file(part).ok()?;
        self.artifact.backend.emitter.read(&file, &ImportOptions::default()).ok()
    }

    /// The bytes of the weights of all parts as graphs store them; `None` where a graph cannot be read.
    pub(super) fn weight_bytes(&self) -> Option<u64> {
        let parts = self.artifact.manifest.parts.iter();
        parts.map(|part| self.graph(part).as_ref().map(weight_bytes)).sum()
    }

    /// The model that it is compared with, where that is known before it is looked for.
    pub(super) fn reference(&self) -> Option<&Path> {
        self.reference.as_deref()
    }

    /// Whether another exporter may have made it.
    pub(crate) fn is_foreign(&self) -> bool {
        self.tolerances.is_some()
    }

    /// How far its outputs may be from those of a model, which it was compiled from or, without `is_source`, is only compared
    /// with: then the rounding of what it was compiled from counts too.
    pub(crate) fn tolerances(&self, loaded: &Loaded, is_source: bool) -> Tolerances {
        if let Some(known) = self.tolerances {
            return known;
        }
        let own = self.artifact.tolerances(loaded);
        if is_source || matches!(own.basis, Basis::Codes | Basis::Nibbles) {
            return own;
        }
        let graphs = self.artifact.manifest.parts.iter().filter_map(|part| self.graph(part));
        graphs
            .filter_map(|graph| of_codes(&graph))
            .reduce(|one, other| if one.cosine < other.cosine { one } else { other })
            .unwrap_or(own)
    }
}

/// A form of a model that a benchmark compiles.
#[derive(Clone, Debug)]
pub struct Form {
    /// What it is compiled for.
    pub backend: &'static Backend,
    /// Its operators and their precision.
    pub variant: Variant,
    /// Where it runs, if not on the runtime of the backend.
    pub runtime: Option<MakeRuntime>,
}

/// A word of a command line of a shell.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%=,~".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

impl Form {
    /// How it is called in tables.
    #[must_use]
    pub fn label(&self, model: &SourceModel) -> String {
        format!("{}-{}-{}", model.name(), self.backend.target.name, self.variant.name())
    }

    /// The command that compiles it into an artifact. `calibrate` is data, with how it is read, or a table; `recipe` has the values
    /// of `--recipe`.
    pub(super) fn command(
        &self,
        model: &SourceModel,
        calibrate: Option<(&Path, &DataOptions)>,
        recipe: &[String],
    ) -> String {
        let mut words = vec!["planish".to_owned(), "compile".to_owned(), quoted(&model.path().display().to_string())];
        if self.backend != LOCAL {
            words.extend(["--target".to_owned(), self.backend.target.name.to_owned()]);
        }
        match self.variant {
            Variant::Unfused => words.push("--no-fusion".to_owned()),
            Variant::Of(Precision::F32) => {}
            Variant::DynamicInt8 => words.push(Precision::Int8.option().to_owned()),
            Variant::Of(precision) => words.push(precision.option().to_owned()),
        }
        words.extend(recipe.iter().flat_map(|word| ["--recipe".to_owned(), quoted(word)]));
        if let (Variant::Of(Precision::Int8), Some((path, data))) = (self.variant, calibrate) {
            words.extend(["--calibrate".to_owned(), quoted(&path.display().to_string())]);
            words.extend(data.field.iter().flat_map(|field| ["--field".to_owned(), quoted(field)]));
            // It holds out the samples that the benchmark held out, and calibrates on the others.
            words.extend((data.split == Split::Rest).then(|| "--verify".to_owned()));
        }
        words.join(" ")
    }

    /// How it is compiled.
    pub(super) fn options(
        &self,
        model: &SourceModel,
        asked: &Recipe,
        calibration: Option<&Calibration>,
    ) -> Result<CompileOptions> {
        let target = self.backend.target;
        let recipe = Recipe { precision: self.variant.recipe().precision, ..asked.clone() };
        let opset = model.default_opset_from(least_opset(self.backend, &recipe, model));
        let mut options = CompileOptions::new(self.backend, opset);
        let is_static = self.variant == Variant::Of(Precision::Int8);
        if self.variant == Variant::DynamicInt8 && target.quantized != QuantizedForm::IntegerProducts {
            bail!("int8-dynamic is for target ort; target {target} needs fixed scales");
        }
        if is_static {
            let needed = || {
                format!(
                    "int8 for target {target} needs data: name it with --set calibrate=FILE or --data, and for text generation \
                     with --set calibrate=FILE"
                )
            };
            options.calibration = Some(calibration.with_context(needed)?.clone());
        }
        let run = CalibrateOptions::default();
        let data = options.calibration.as_ref().map(|of| CalibrationData { path: of.data.name.as_ref(), run: &run });
        let resolved = resolve(&recipe, target, data)?;
        options.placement = Placement::Copy;
        options.passes.fusion = self.variant != Variant::Unfused;
        Ok(followed(options, &recipe, resolved))
    }
}
