//! Engines that would be replaced by an artifact without any.

use std::path::Path;

use anyhow::{Result, anyhow};
use planish_artifact::manifest::Manifest;
use planish_runtimes::{NoBuilder, Unavailable};

use super::{EngineOptions, check_builder, leaves_graph};

/// Looks for the builder before work that would be in vain, and refuses to replace engines by nothing. Where there is none, it
/// gives the warning of what the artifact will lack.
///
/// # Errors
/// What the builder lacks, where the artifact in the folder has engines and may not be replaced by `force`.
pub fn check_replaced(options: &EngineOptions, folder: &Path, force: bool) -> Result<Option<String>> {
    let Err(missing) = check_builder(options) else { return Ok(None) };
    if has_engines(folder) && !force {
        let rest = format!(
            "{} has engines, and the artifact in its place would have none; --force replaces it, -o writes to another folder",
            folder.display()
        );
        return Err(with(missing.into(), &rest));
    }
    Ok(Some(format!("{}; the artifact will have its ONNX files and profiles.json, and no engine", missing.0.reason)))
}

/// Whether an artifact whose engines failed to be built takes its place without them.
#[must_use]
pub fn is_of_use_without(error: &anyhow::Error, folder: &Path, force: bool) -> bool {
    leaves_graph(error) && (!has_engines(folder) || force)
}

/// Whether an artifact with engines is in a folder.
fn has_engines(folder: &Path) -> bool {
    Manifest::read(folder).is_ok_and(|manifest| manifest.has_engines())
}

/// An error with what follows from it.
#[must_use]
pub fn with(error: anyhow::Error, rest: &str) -> anyhow::Error {
    match error.downcast::<NoBuilder>() {
        Ok(NoBuilder(missing)) => {
            NoBuilder(Unavailable { remedy: format!("{}\n  {rest}", missing.remedy), ..missing }).into()
        }
        Err(error) => anyhow!("{error:#}\n  {rest}"),
    }
}
