//! Models that are compiled, and not in their places yet.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use planish_artifact::Artifact;
use planish_artifact::coverage::Coverage;
use planish_artifact::draft::Draft;
use planish_artifact::files::relative_path;
use planish_artifact::variants::VariantManifest;
use planish_models::Loaded;
use planish_passes::raise::Explanation;

use super::describe;
use crate::card;
use crate::engine::Profiles;
use crate::packages;
use crate::quantize::Quantizations;
use crate::source::SourceModel;

/// A compiled model that is not in its place yet.
pub struct Compiled {
    /// The folder in the making.
    pub draft: Draft,
    /// The artifact in that folder; its manifest is not written yet.
    pub artifact: Artifact,
    /// The model before any pass: the reference of verification.
    pub source: Loaded,
    /// The profiles of its engines, if its target has engines.
    pub profiles: Option<Profiles>,
    /// How its parts are quantized; empty where they are not.
    pub quantizations: Quantizations,
    /// What raising found, by part, those of each variant in turn; empty without `explain_fusion`.
    pub explanations: Vec<(&'static str, Explanation)>,
}

impl Compiled {
    /// How much of the weights of all parts are codes; absent where nothing was to be quantized.
    #[must_use]
    pub fn coverage(&self) -> Option<Coverage> {
        let parts: Vec<&Coverage> =
            self.artifact.manifest.parts.iter().filter_map(|part| part.coverage.as_ref()).collect();
        (!parts.is_empty()).then(|| Coverage::of_all(parts))
    }

    /// Gives it another place beside the one that it was to take.
    ///
    /// # Errors
    /// When the artifact cannot be there.
    pub fn rename(&mut self, model: &SourceModel, folder: &Path) -> Result<()> {
        self.draft.rename(folder)?;
        let target = self.draft.resolved_target();
        self.artifact.manifest.source.path = relative_path(target, &model.path());
        self.artifact.manifest.source.adapters = describe::adapters(target, model);
        Ok(())
    }

    /// Adds another variant of the same model: its files, what its manifest says of them, and what raising found in it.
    ///
    /// # Errors
    /// When it is of no variant, or a file cannot be moved.
    pub fn take_in(&mut self, other: Self) -> Result<()> {
        let Artifact { folder, manifest, .. } = other.artifact;
        let name = manifest.variant.context("what is added is of no variant")?;
        for file in &manifest.files {
            let (from, to) = (folder.join(&file.name), self.artifact.folder.join(&file.name));
            fs::rename(&from, &to).with_context(|| format!("cannot move {} to {}", from.display(), to.display()))?;
        }
        self.artifact.manifest.variants.push(VariantManifest::of(name, manifest));
        self.explanations.extend(other.explanations);
        Ok(())
    }

    /// Writes the model card and the manifest, puts the artifact in its place, and returns it as it is there.
    ///
    /// # Errors
    /// When that is impossible.
    pub fn publish(mut self) -> Result<Artifact> {
        packages::list_files(&self.artifact)?;
        card::write(&mut self.artifact)?;
        self.artifact.manifest.write(self.draft.folder())?;
        Ok(Artifact { folder: self.draft.publish()?, ..self.artifact })
    }
}
