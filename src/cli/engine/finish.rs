//! The end of a compilation whose target has engines.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, anyhow};
use planish_artifact::backend::RuntimeSettings;
use planish_artifact::manifest::Manifest;
use planish_compiler::compile::Compiled;
use planish_compiler::engine::{Profiles, build_engines, leaves_graph};
use planish_runtimes::Unavailable;

use super::{EngineArguments, EngineConsole};
use crate::cli::written::Shown;
use crate::cli::{short, warn, written};

/// What is given beside the options of the builder.
pub(in crate::cli) struct FinishContext<'a> {
    pub(in crate::cli) settings: &'a RuntimeSettings,
    /// Whether anything at the place of the artifact is replaced.
    pub(in crate::cli) force: bool,
    pub(in crate::cli) json: bool,
    /// When the command began.
    pub(in crate::cli) start: Instant,
}

/// Looks for the builder before work that would be in vain: says what the artifact will lack, and refuses to replace engines
/// by nothing.
pub(in crate::cli) fn check_builder(
    arguments: &EngineArguments,
    settings: &RuntimeSettings,
    folder: &Path,
    force: bool,
) -> Result<()> {
    let Err(missing) = planish_compiler::engine::check_builder(&arguments.options(settings)) else { return Ok(()) };
    if has_engines(folder) && !force {
        let rest = format!(
            "{} has engines, and the artifact in its place would have none; --force replaces it, -o writes to another folder",
            folder.display()
        );
        return Err(with(missing.into(), &rest));
    }
    warn(&format!("{}; the artifact will have its ONNX files and profiles.json, and no engine", missing.reason));
    Ok(())
}

/// Builds the engines of a compiled model and puts the artifact in its place: without them where they cannot be built, unless
/// it would replace one that has engines.
pub(in crate::cli) fn finish(
    mut compiled: Compiled,
    profiles: &Profiles,
    arguments: &EngineArguments,
    context: &FinishContext<'_>,
) -> Result<()> {
    let FinishContext { settings, force, json, start } = context;
    let (target, shown) = (compiled.draft.target().to_owned(), if *json { Shown::Json } else { Shown::Summary });
    let written = start.elapsed();
    let options = arguments.options(settings);
    let error = match build_engines(&mut compiled.artifact, profiles, &options, &EngineConsole::new()) {
        Ok(reports) => return written::finish(compiled, &reports, shown, start.elapsed()),
        Err(error) => error,
    };
    if !leaves_graph(&error) || has_engines(&target) && !force {
        return Err(error);
    }
    written::finish(compiled, &[], shown, written)?;
    let folder = short(&target);
    let rest = format!(
        "{} has its ONNX files and profiles.json, and no engine; `{}` builds it",
        folder.display(),
        arguments.command(&folder)
    );
    Err(with(error, &rest))
}

/// Whether an artifact with engines is in a folder.
fn has_engines(folder: &Path) -> bool {
    Manifest::read(folder).is_ok_and(|manifest| manifest.has_engines())
}

/// An error with what follows from it.
fn with(error: anyhow::Error, rest: &str) -> anyhow::Error {
    match error.downcast::<Unavailable>() {
        Ok(missing) => Unavailable { remedy: format!("{}\n  {rest}", missing.remedy), ..missing }.into(),
        Err(error) => anyhow!("{error:#}\n  {rest}"),
    }
}
