//! The end of a compilation whose target has engines.

use std::time::Instant;

use anyhow::Result;
use planish_artifact::backend::RuntimeSettings;
use planish_compiler::compile::Compiled;
use planish_compiler::engine::{Profiles, build_engines, is_of_use_without, with};

use super::{EngineArguments, EngineConsole};
use crate::cli::written::Shown;
use crate::cli::{short, written};

/// What is given beside the options of the builder.
pub(in crate::cli) struct FinishContext<'a> {
    pub(in crate::cli) settings: &'a RuntimeSettings,
    /// Whether anything at the place of the artifact is replaced.
    pub(in crate::cli) force: bool,
    pub(in crate::cli) json: bool,
    /// When the command began.
    pub(in crate::cli) start: Instant,
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
    let (target, shown) = (compiled.draft.target().to_owned(), if *json { Shown::Json(None) } else { Shown::Summary });
    let written = start.elapsed();
    let options = arguments.options(settings);
    let error = match build_engines(&mut compiled.artifact, profiles, &options, &EngineConsole::new()) {
        Ok(reports) => return written::finish(compiled, &reports, shown, start.elapsed()),
        Err(error) => error,
    };
    if !is_of_use_without(&error, &target, *force) {
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
