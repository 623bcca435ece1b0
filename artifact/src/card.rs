//! The model card in the folder of an artifact.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use planish_models::CARD;

use crate::files;
use crate::manifest::Manifest;

impl Manifest {
    /// Writes the card into a folder, and records what it is.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_card(&mut self, folder: &Path, text: &str) -> Result<()> {
        let path = folder.join(CARD);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        self.card = Some(files::digest(&path)?);
        Ok(())
    }

    /// Whether a folder has another card than the one that planish wrote. A card that is gone is no other one.
    #[must_use]
    pub fn has_changed_card(&self, folder: &Path) -> bool {
        let path = folder.join(CARD);
        // What cannot be read is not planish's.
        self.card.as_ref().is_some_and(|own| path.exists() && files::digest(&path).ok().as_ref() != Some(own))
    }
}
