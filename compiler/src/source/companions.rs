//! The configuration and tokenizer files of a checkpoint that is one file.

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use planish_artifact::draft::Draft;
use planish_models::Checkpoint;

/// Files that a GGUF file stands for, in a temporary folder that is made when they are asked for.
#[derive(Default)]
pub struct WrittenCompanions(OnceLock<Draft>);

impl WrittenCompanions {
    /// The folder with the companions of a checkpoint: its own, or that of the files that are written for it.
    pub(super) fn folder(&self, checkpoint: &Checkpoint, own: PathBuf) -> Result<PathBuf> {
        if let Some(draft) = self.0.get() {
            return Ok(draft.folder().to_owned());
        }
        let files = checkpoint.written_companions();
        if files.is_empty() {
            return Ok(own);
        }
        let draft = Draft::temporary("planish-companions")?;
        for (name, text) in files {
            let path = draft.folder().join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(self.0.get_or_init(|| draft).folder().to_owned())
    }
}
