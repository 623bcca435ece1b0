//! Building the engines of an artifact.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use planish_artifact::engine::{EngineManifest, LayerCounts};
use planish_artifact::manifest::Manifest;
use planish_artifact::{Artifact, files};
use planish_runtimes::NoBuilder;
use planish_runtimes::tensorrt::{
    self, BuildError, BuildOptions, Built, CacheFile, CacheKind, ENTERPRISE, Library, PRODUCT, Plan, Profile, Progress,
    Severity, present,
};

use super::record::peak_memory;
use super::{BuildRecord, DefaultGpus, EngineObserver, EngineOptions, EngineReport, PartProfile, Profiles, gpus};

/// What the parser warns of for each input of 64-bit integers, which the manifest and the engine declare as such.
const BINDING: &str = "has Int64 binding";

/// The GPUs that engines of an artifact are built for where the user names none.
#[must_use]
pub fn default_gpus(manifest: &Manifest) -> DefaultGpus {
    let present = present().ok().and_then(|devices| devices.into_iter().next());
    DefaultGpus::of(&gpus::products(manifest), present.as_ref())
}

/// Whether engines can be built here with these options, whatever the model is: to be asked before work that would be in vain.
///
/// # Errors
/// When the library or a GPU that it needs is not there.
pub fn check_builder(options: &EngineOptions) -> Result<(), NoBuilder> {
    let library = Library::open(options.library.clone());
    library.and_then(|library| tensorrt::check(library, &options.build)).map_err(NoBuilder)
}

/// Whether an artifact is of use without the engines that failed to be built: this machine does not build them, or not with
/// these options. A full disk is no such failure.
#[must_use]
pub fn leaves_graph(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| match cause.downcast_ref::<BuildError>() {
        Some(error) => !matches!(error, BuildError::Write(_) | BuildError::Cancelled),
        None => cause.is::<NoBuilder>(),
    })
}

/// Builds the engine of each part of an artifact in the making from its ONNX file, and records it in the manifest. The ONNX
/// files go, unless the options keep them.
///
/// # Errors
/// When the library is unavailable, TensorRT refuses a part, or a file cannot be written. The artifact has the engines then
/// that it had before.
pub fn build_engines(
    artifact: &mut Artifact,
    profiles: &Profiles,
    options: &EngineOptions,
    observer: &dyn EngineObserver,
) -> Result<Vec<EngineReport>> {
    let before = artifact.manifest.clone();
    let built = build_parts(artifact, profiles, options, observer);
    if built.is_err() {
        let manifest = std::mem::replace(&mut artifact.manifest, before);
        for part in &manifest.parts {
            let layout = manifest.layout(&part.name);
            for name in [layout.engine(), layout.layers()] {
                // There may be none.
                let _ = fs::remove_file(artifact.folder.join(name));
            }
        }
        return built;
    }
    if !options.keeps_onnx() {
        artifact.remove_onnx()?;
    }
    built
}

fn build_parts(
    artifact: &mut Artifact,
    profiles: &Profiles,
    options: &EngineOptions,
    observer: &dyn EngineObserver,
) -> Result<Vec<EngineReport>> {
    let library = Library::open(options.library.clone()).map_err(NoBuilder)?;
    let device = present().ok().and_then(|devices| devices.into_iter().next());
    let mut wanted_capabilities = options.build.capabilities.clone();
    if wanted_capabilities.is_empty() {
        let DefaultGpus { capabilities, warning } = default_gpus(&artifact.manifest);
        warning.iter().for_each(|warning| observer.warning(warning));
        wanted_capabilities = capabilities;
    }
    let timing = device
        .as_ref()
        .filter(|_| ENTERPRISE)
        .and_then(|device| CacheFile::find(CacheKind::Timing, PRODUCT, library.version, &device.name));
    let parts = artifact.manifest.parts.clone();
    let mut reports = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let onnx = artifact.file(part)?;
        observer.begin_part(&part.name);
        let build = BuildOptions {
            capabilities: wanted_capabilities.clone(),
            timing_cache: timing.as_ref().and_then(|file| file.read(&|warning| observer.warning(warning))),
            ..options.build.clone()
        };
        let wanted: Vec<Profile> = profiles.part(&part.name).iter().map(PartProfile::for_builder).collect();
        let layout = artifact.manifest.layout(&part.name);
        let file = artifact.folder.join(layout.engine());
        let mut output = NewFile::create(&file)?;
        let built = tensorrt::build(library, &onnx, &wanted, &build, &Seen(observer), &mut output);
        observer.end_part();
        let built = built.map_err(|refused| error(refused, &part.name, &file))?;
        output.keep();
        let warnings = built.warnings.iter().filter(|message| message.severity == Severity::Warning);
        for warning in warnings.filter(|warning| !warning.text.contains(BINDING)) {
            observer.warning(&format!("{PRODUCT}: {}", warning.text.trim()));
        }
        if let (Some(file), Some(cache)) = (&timing, &built.timing_cache)
            && let Err(error) = file.write(cache)
        {
            observer.warning(&format!("what the builder measured is not kept: {error}"));
        }
        let record = write_record(&artifact.folder.join(layout.layers()), &built)?;
        let file = layout.engine();
        let capabilities = match ENTERPRISE {
            true => device.iter().map(|device| format!("sm{}", device.capability)).collect(),
            false => Plan::read(&artifact.folder.join(&file))
                .with_context(|| format!("{PRODUCT} wrote {file}, whose header is not that of an engine"))?
                .capabilities
                .iter()
                .map(ToString::to_string)
                .collect(),
        };
        let engine = EngineManifest {
            file,
            bytes: built.bytes,
            record: layout.layers(),
            product: PRODUCT.to_owned(),
            version: library.version.to_string(),
            capabilities,
            profiles: wanted.len(),
            layers: LayerCounts {
                count: built.layers.0.len(),
                regions: built.layers.regions(),
                attentions: built.layers.attentions().count(),
            },
            stripped: build.strip,
            refittable: build.is_refittable(),
        };
        artifact.manifest.add_engine(index, engine);
        let BuildRecord { seconds, peak_memory, .. } = record;
        reports.push(EngineReport { part: part.name.clone(), seconds, peak_memory });
    }
    Ok(reports)
}

/// A file of an artifact in the making, which is removed unless it is kept.
struct NewFile {
    path: PathBuf,
    file: Option<File>,
}

impl NewFile {
    fn create(path: &Path) -> Result<Self> {
        let file = files::create_within(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file: Some(file) })
    }

    fn keep(mut self) {
        self.file = None;
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().map_or(Ok(0), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            // The folder that it is in goes too, where nothing of the artifact is left.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes what the build took, and the layers of the engine.
fn write_record(path: &Path, built: &Built) -> Result<BuildRecord> {
    let seconds = (built.parsing + built.building).as_secs_f64();
    let record = BuildRecord { seconds, peak_memory: peak_memory(), layers: built.layers.clone() };
    let text = serde_json::to_string(&record)? + "\n";
    files::write_within(path, text.as_bytes())?;
    Ok(record)
}

/// An error of the builder, as the command line tells errors apart. The ONNX file is in the folder of a draft, which users
/// do not know and which does not stay, so the error names the part.
fn error(error: BuildError, part: &str, file: &Path) -> anyhow::Error {
    let named = || PathBuf::from(format!("part `{part}`"));
    match error {
        BuildError::Unavailable(unavailable) => NoBuilder(unavailable).into(),
        BuildError::Refused { errors, .. } => BuildError::Refused { file: named(), errors }.into(),
        BuildError::Failed { reason, .. } => BuildError::Failed { file: named(), reason }.into(),
        BuildError::Profile { .. } => anyhow::Error::from(error).context(format!("part `{part}`")),
        BuildError::Write(error) => anyhow::Error::from(error).context(format!("cannot write {}", file.display())),
        BuildError::Option { .. } | BuildError::Cancelled => error.into(),
    }
}

/// Passes the phases of a build on.
struct Seen<'a>(&'a dyn EngineObserver);

impl Progress for Seen<'_> {
    fn begin(&self, phase: &str, parent: Option<&str>, steps: u32) {
        self.0.begin_phase(phase, parent, steps);
    }

    fn step(&self, phase: &str, step: u32) -> bool {
        self.0.step(phase, step);
        true
    }

    fn end(&self, phase: &str) {
        self.0.end_phase(phase);
    }
}
