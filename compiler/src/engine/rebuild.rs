//! Building the engines of a finished artifact.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use planish_artifact::draft::Draft;
use planish_artifact::files::create_folders_within;
use planish_artifact::{Artifact, CARD, MANIFEST};

use super::{EngineObserver, EngineOptions, EngineReport, PROFILES, Profiles, SymbolRanges, build_engines};
use crate::{card, packages};

/// An artifact whose engines were built and that is not in its place yet.
pub struct Rebuilt {
    draft: Draft,
    /// The artifact in the folder of the draft; its manifest is not written yet.
    pub artifact: Artifact,
    /// What came of each build.
    pub reports: Vec<EngineReport>,
}

impl Rebuilt {
    /// Writes the model card and the manifest, puts the artifact in the place of the old one, and returns it as it is there.
    ///
    /// # Errors
    /// When that is impossible.
    pub fn publish(mut self) -> Result<Artifact> {
        card::write(&mut self.artifact)?;
        self.artifact.manifest.write(self.draft.folder())?;
        Ok(Artifact { folder: self.draft.publish()?, ..self.artifact })
    }
}

/// The profiles of a finished artifact: those that it has, or those for ranges of symbols.
///
/// # Errors
/// When its target has no engines, it has no profiles, or ranges do not fit it.
pub fn profiles_of(artifact: &Artifact, asked: &[SymbolRanges]) -> Result<Profiles> {
    if artifact.backend.engines.is_none() {
        bail!(
            "{} is compiled for the target {}, which has no engines; compile the model with --target trt",
            artifact.folder.display(),
            artifact.backend.target
        );
    }
    match asked {
        [] => {
            let profiles = Profiles::read(&artifact.folder)?;
            profiles.check(&artifact.manifest.parts, artifact.manifest.max_sequence_length).map_err(|reason| {
                let path = artifact.folder.join(PROFILES);
                anyhow!("{} does not fit the model: {reason}; give the sizes with --shapes", path.display())
            })?;
            Ok(profiles)
        }
        _ => Ok(Profiles::of(&artifact.manifest.parts, artifact.manifest.max_sequence_length, asked)?),
    }
}

/// Whether an artifact has ONNX files beside its engines: a build of other engines keeps them then.
#[must_use]
pub fn keeps_onnx(artifact: &Artifact) -> bool {
    artifact.manifest.parts.iter().any(|part| part.engine.is_some() && !part.is_engine_only())
}

/// Builds the engines of a finished artifact from its ONNX files, in a copy of its folder that shares the files.
///
/// # Errors
/// When the artifact has no ONNX files, when engines cannot be built, or when a file cannot be written.
pub fn rebuild(
    artifact: &Artifact,
    profiles: &Profiles,
    options: &EngineOptions,
    observer: &dyn EngineObserver,
) -> Result<Rebuilt> {
    // Before work that would be in vain.
    artifact.manifest.parts.iter().try_for_each(|part| artifact.file(part).map(drop))?;
    let options = EngineOptions { keep_onnx: options.keep_onnx || keeps_onnx(artifact), ..options.clone() };
    let draft = Draft::create(&artifact.folder, false)?;
    share(artifact, draft.folder(), &built(artifact))?;
    profiles.write(draft.folder())?;
    let mut artifact = Artifact { folder: draft.folder().to_owned(), stamp: None, ..artifact.clone() };
    let warning = packages::configure_profiles(&artifact, profiles)?;
    warning.iter().for_each(|warning| observer.warning(warning));
    let reports = build_engines(&mut artifact, profiles, &options, observer)?;
    Ok(Rebuilt { draft, artifact, reports })
}

/// The files that a build writes anew.
fn built(artifact: &Artifact) -> Vec<String> {
    let layouts = artifact.manifest.parts.iter().map(|part| artifact.manifest.layout(&part.name));
    let mut anew: Vec<String> = layouts.flat_map(|layout| [layout.engine(), layout.layers()]).collect();
    anew.extend([PROFILES, MANIFEST].map(str::to_owned));
    anew.extend(card::is_as_written(artifact).then(|| CARD.to_owned()));
    anew
}

/// Makes links to the files of an artifact, but for those that are written anew.
pub(super) fn share(artifact: &Artifact, folder: &Path, anew: &[String]) -> Result<()> {
    for name in artifact.manifest.file_names().filter(|name| !anew.iter().any(|other| other == name)) {
        let (from, to) = (artifact.folder.join(name), folder.join(name));
        create_folders_within(folder, Path::new(name).parent().unwrap_or(Path::new("")))?;
        // A filesystem without links gets copies.
        fs::hard_link(&from, &to)
            .or_else(|_| fs::copy(&from, &to).map(drop))
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    }
    Ok(())
}
