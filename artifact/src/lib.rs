//! The output folder of a finished compilation: what is in it.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests read what they wrote"))]

pub mod backend;
mod card;
pub mod chain;
pub mod coverage;
pub mod draft;
pub mod engine;
pub mod evaluation;
pub mod files;
pub mod layout;
pub mod manifest;
pub mod package;
pub mod precision;
pub mod ranks;
pub mod recipe;
mod roles;
mod run;
mod running;
pub mod split;
mod stages;
mod text;
pub mod tuning;
pub mod units;
pub mod value;
pub mod variants;
pub mod verification;

pub use roles::interface_of;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use planish_ir::DType;
use planish_models::Loaded;
use planish_runtimes::openvino::InferencePrecision;
use planish_runtimes::ort::saturates;
use planish_runtimes::{Format, Model, Runtime, Session, SessionOptions};

use crate::backend::{BACKENDS, Backend, MakeRuntime, RuntimeSettings};
use crate::layout::base_name;
use crate::manifest::{File, Manifest, PartManifest};
use crate::precision::PrecisionName;
use crate::stages::StagedSession;
use crate::verification::{Tolerances, has_blocks};

pub use run::{RunOptions, named, note_elsewhere, runtime};
pub use running::Running;
pub use stages::StageManifest;

/// The name of the manifest in an artifact.
pub const MANIFEST: &str = "planish.json";

/// The name of the model card in an artifact.
pub use planish_models::CARD;

/// An artifact in its folder.
#[derive(Clone)]
pub struct Artifact {
    /// The folder.
    pub folder: PathBuf,
    /// The contents of its `planish.json`.
    pub manifest: Manifest,
    /// The backend of its target.
    pub backend: &'static Backend,
    /// What its `planish.json` was when it was read; none of an artifact in the making.
    pub stamp: Option<Stamp>,
}

/// What tells a file from one that took its place: device, inode, time of change in nanoseconds, and bytes.
type Stamp = (u64, u64, i64, u64);

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    let changed = metadata.mtime().wrapping_mul(1_000_000_000).wrapping_add(metadata.mtime_nsec());
    Some((metadata.dev(), metadata.ino(), changed, metadata.len()))
}

impl Artifact {
    /// Opens an artifact.
    ///
    /// # Errors
    /// When the folder is not an artifact, or one of a version or for a target that is not known.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::open_among(folder, BACKENDS)
    }

    /// Opens an artifact for one of these backends.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_among(folder: &Path, backends: &[&'static Backend]) -> Result<Self> {
        let stamp = stamp(&folder.join(MANIFEST));
        let manifest = Manifest::read(folder)?;
        let Some(backend) = backend::find(&manifest.target, backends) else {
            let names: Vec<&str> = backends.iter().map(|backend| backend.target.name).collect();
            bail!(
                "{} is compiled for the target `{}`, which this version does not have; it has {}",
                folder.display(),
                manifest.target,
                names.join(", ")
            );
        };
        Ok(Self { folder: folder.to_owned(), manifest, backend, stamp })
    }

    /// The part of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn part(&self, name: &str) -> Result<&PartManifest> {
        self.manifest.parts.iter().find(|part| part.name == name).ok_or_else(|| {
            if let Some(rank) = self.ranks(name).first() {
                return Self::refuse_rank(rank).err().unwrap_or_else(|| anyhow!("{name} is cut for ranks"));
            }
            let names: Vec<&str> = self.manifest.parts.iter().map(|part| part.name.as_str()).collect();
            let folder = self.folder.display();
            anyhow!("{folder} has no {name}, only {}; compile the model again", names.join(", "))
        })
    }

    /// The file of a part that a runtime loads.
    ///
    /// # Errors
    /// When a file of the part, or weights that it points into, are missing or not as long as they were, and when only an
    /// engine is left of the part, or several stages are in its place.
    pub fn file(&self, part: &PartManifest) -> Result<PathBuf> {
        if let [first, ..] = part.stages.as_slice() {
            bail!(
                "{} has {} in {} stages, {} and so on: this takes a model of one file; compile it without --pipeline",
                self.folder.display(),
                part.name,
                part.stages.len(),
                first.name
            );
        }
        if part.is_engine_only() {
            bail!(
                "{} has the engine of {} and no ONNX file of it; compile the model again with --recipe engine.keep-onnx=true",
                self.folder.display(),
                part.name
            );
        }
        for linked in &self.manifest.linked {
            if let Some(source) =
                self.manifest.source.files.iter().find(|source| source.name.replace('/', "-") == base_name(linked))
            {
                whole(&self.folder, &File { name: linked.clone(), ..source.clone() })?;
            }
        }
        let mut paths = Vec::new();
        for name in &part.files {
            if let Some(file) = self.manifest.files.iter().find(|file| file.name == *name) {
                paths.push(whole(&self.folder, file)?);
            }
        }
        let manifest = || self.folder.join(MANIFEST);
        let missing = || anyhow!("{} names no file of {}; compile the model again", manifest().display(), part.name);
        paths.into_iter().next().ok_or_else(missing)
    }

    /// The file of a part that this runtime loads, with its format: the engine for one of engines.
    ///
    /// # Errors
    /// As [`Self::file`], and when the part has no file that the runtime takes.
    pub fn file_for(&self, part: &PartManifest, runtime: &dyn Runtime) -> Result<(Format, PathBuf)> {
        if !runtime.formats().contains(&Format::ENGINE) {
            return Ok((self.backend.emitter.format(), self.file(part)?));
        }
        let engine = self.engine(part)?.with_context(|| {
            let (folder, name) = (self.folder.display(), runtime.name());
            format!(
                "{folder} has no engine of {}, which `{name}` runs; build it: planish build-engine {folder}",
                part.name
            )
        })?;
        if part.engine.as_ref().is_some_and(|engine| engine.stripped) {
            let (folder, name) = (self.folder.display(), &part.name);
            bail!(
                "{folder} has the engine of {name} without its weights (--strip-weights); `planish refit-engine {folder}` \
                 puts them in, on a machine with the GPU"
            );
        }
        Ok((Format::ENGINE, engine))
    }

    /// The runtime that it runs on: the one that the user chose, that of its engines where it has them, or the one that it
    /// was compiled for.
    #[must_use]
    pub fn runtime(&self, settings: &RuntimeSettings) -> Box<dyn Runtime> {
        self.maker(settings)(&self.settings(settings))
    }

    /// What makes [`Self::runtime`].
    pub fn maker(&self, settings: &RuntimeSettings) -> MakeRuntime {
        let engines = self.backend.engines.filter(|_| self.manifest.has_engines());
        let [own, ..] = self.backend.runtimes else { unreachable!("a backend has a runtime") };
        settings.runtime.or(engines).unwrap_or(*own)
    }

    /// The settings with what its graphs ask of runtimes.
    pub fn settings(&self, settings: &RuntimeSettings) -> RuntimeSettings {
        let is_quantized_to = |codes: DType| self.manifest.is_quantized_to(codes);
        // ONNX Runtime 1.31 makes operators on float8 that have no such form, and drops a Relu in front of a QuantizeLinear.
        let float8 = is_quantized_to(DType::F8E4M3FN);
        // An engine adds products of codes exactly.
        let of_integers = [DType::I8, DType::U8].into_iter().any(is_quantized_to);
        let unfused_codes = float8 || (of_integers && self.backend.engines.is_some() && saturates());
        let stored = match self.manifest.precision {
            PrecisionName::Bf16 => InferencePrecision::Bf16,
            PrecisionName::F32 | PrecisionName::F16 => InferencePrecision::F32,
        };
        let openvino_precision = settings.openvino_precision.or(Some(stored));
        RuntimeSettings { unfused_codes, openvino_precision, ..settings.clone() }
    }

    /// Loads a part; its stages, where it has some, as one session that runs them in turn.
    ///
    /// # Errors
    /// When a file of the part is missing or not as long as it was, and when the runtime does not load it.
    pub fn load(
        &self,
        part: &PartManifest,
        runtime: &dyn Runtime,
        options: SessionOptions,
    ) -> Result<Box<dyn Session>> {
        Self::refuse_rank(part)?;
        if !part.stages.is_empty() {
            let stages = part.stages.iter().map(|stage| self.load(&part.of_stage(stage), runtime, options));
            return Ok(Box::new(StagedSession::new(part, stages.collect::<Result<_>>()?)));
        }
        let (format, file) = self.file_for(part, runtime)?;
        let interface = part.interface();
        let mut session = runtime.load(Model::file(format, &file).with(&interface), options)?;
        self.check_unchanged()?;
        session.name_dimensions(&part.ports());
        Ok(session)
    }

    /// Loads the graph of both decoders, in an artifact that has one.
    ///
    /// # Errors
    /// When the file is missing or not as long as it was, or the runtime does not load it.
    pub fn load_merged(&self, runtime: &dyn Runtime, options: SessionOptions) -> Result<Option<Box<dyn Session>>> {
        let Some(name) = &self.manifest.merged else { return Ok(None) };
        let recorded = self.manifest.files.iter().find(|file| file.name == *name);
        let file = whole(&self.folder, recorded.with_context(|| format!("{MANIFEST} has no size of {name}"))?)?;
        let session = runtime.load(Model::file(Format::ONNX, &file), options)?;
        self.check_unchanged()?;
        Ok(Some(session))
    }

    /// Checks that no other artifact took the place of this one since its manifest was read: what was loaded might be of the
    /// other.
    fn check_unchanged(&self) -> Result<()> {
        let path = self.folder.join(MANIFEST);
        if self.stamp.is_none() || self.stamp == stamp(&path) {
            return Ok(());
        }
        let now = Manifest::read(&self.folder)?;
        if serde_json::to_vec(&now)? != serde_json::to_vec(&self.manifest)? {
            bail!(
                "{} was replaced by another artifact while it was read; run the command again",
                self.folder.display()
            );
        }
        Ok(())
    }

    /// The floating-point type that it computes in.
    #[must_use]
    pub fn computes(&self) -> DType {
        if self.backend.target.computes_in_float32 { DType::F32 } else { self.manifest.precision.dtype() }
    }

    /// How far its results may be from those of its model.
    #[must_use]
    pub fn tolerances(&self, model: &Loaded) -> Tolerances {
        match self.manifest.has_weights_of(4) {
            true => Tolerances::NIBBLES,
            false if self.manifest.is_quantized() || self.manifest.integer_inputs => Tolerances::CODES,
            false => {
                let own = (self.backend.tolerances)(model, self.manifest.precision);
                // Where ONNX Runtime fuses DequantizeLinear of blocks with a product, it rounds the other operand to integers of
                // 8 bits, as for quantized layers.
                match !self.backend.target.has_block_operators() && has_blocks(model) {
                    true => Tolerances::CODES,
                    false => own,
                }
            }
        }
    }

    /// Whether it computes in half precision, and does not only store weights in it.
    #[must_use]
    pub fn computes_in_half(&self) -> bool {
        self.computes() != DType::F32
    }

    /// The name of its folder.
    #[must_use]
    pub fn label(&self) -> String {
        let resolved = self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone());
        resolved.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The bytes of the files that contain a part.
    #[must_use]
    pub fn bytes(&self, part: &PartManifest) -> u64 {
        let layout = self.manifest.layout(&part.name);
        let names = part.all_files().chain(self.manifest.linked.iter().filter(|name| layout.holds(name)));
        names.filter_map(|name| fs::metadata(self.folder.join(name)).ok()).map(|metadata| metadata.len()).sum()
    }
}

impl Manifest {
    /// Whether inputs of linear layers, or the weights beside them, are quantized to codes of this type.
    #[must_use]
    pub fn is_quantized_to(&self, codes: DType) -> bool {
        self.parts.iter().filter_map(|part| part.quantization.as_ref()).any(|plan| {
            let inputs = plan.inputs.iter().chain(&plan.maps).filter_map(|input| input.activation.codes());
            inputs.chain(plan.weights.iter().filter_map(|planned| planned.form.codes())).any(|own| own == codes)
        })
    }

    /// Whether layers or weights were quantized when it was compiled.
    #[must_use]
    pub fn is_quantized(&self) -> bool {
        self.parts.iter().any(|part| part.quantization.is_some() || part.weights.is_some())
    }

    /// Whether weights alone were quantized to codes of so many bits.
    #[must_use]
    pub fn has_weights_of(&self, bits: usize) -> bool {
        let weights = self.parts.iter().filter_map(|part| part.weights.as_ref()).flat_map(|plan| &plan.weights);
        weights.filter_map(|planned| planned.form.codes()).any(|codes| codes.bits() == bits)
    }

    /// The precision as tables name it: that of quantized layers, where there are any.
    #[must_use]
    pub fn precision_name(&self) -> String {
        match self.is_quantized_to(DType::F8E4M3FN) {
            true => "fp8".to_owned(),
            false if [DType::U8, DType::I8].iter().any(|codes| self.is_quantized_to(*codes)) => "int8".to_owned(),
            false if self.has_weights_of(4) => "int4".to_owned(),
            false if self.has_weights_of(8) => "int8-weights".to_owned(),
            false => self.precision.to_string(),
        }
    }

    /// The names of all files of the artifact.
    pub fn file_names(&self) -> impl Iterator<Item = &str> {
        let variants = self.variants.iter().flat_map(|variant| &variant.files);
        let model = self.files.iter().chain(variants).map(|file| file.name.as_str());
        let taken_over = self.linked.iter().chain(&self.companions).map(String::as_str);
        model.chain(taken_over).chain([MANIFEST])
    }

    /// The names of the files and folders that are directly in the artifact's folder.
    pub(crate) fn entries(&self) -> BTreeSet<&str> {
        self.file_names().map(|name| name.split_once('/').map_or(name, |(folder, _)| folder)).collect()
    }
}

/// A file of an artifact, if it is as long as it was.
fn whole(folder: &Path, file: &File) -> Result<PathBuf> {
    let path = folder.join(&file.name);
    match fs::metadata(&path) {
        Ok(metadata) if metadata.len() == file.bytes => Ok(path),
        Ok(metadata) => bail!(
            "{} has {} bytes, {MANIFEST} says {}: it was changed or cut off; compile it again",
            path.display(),
            metadata.len(),
            file.bytes
        ),
        Err(error) => Err(error).with_context(|| format!("cannot open {}; compile the model again", path.display())),
    }
}
