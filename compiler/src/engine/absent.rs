//! In place of the builder of engines in a program without TensorRT.

use std::path::PathBuf;

use anyhow::Result;
use planish_artifact::Artifact;
use planish_artifact::manifest::Manifest;
use planish_runtimes::NoBuilder;
use planish_runtimes::tensorrt::built_without;

use super::{DefaultGpus, EngineObserver, EngineOptions, EngineReport, Profiles, gpus};

/// The GPUs that engines of an artifact are built for where the user names none.
#[must_use]
pub fn default_gpus(manifest: &Manifest) -> DefaultGpus {
    DefaultGpus::of(&gpus::products(manifest), None)
}

/// Whether engines can be built here.
///
/// # Errors
/// Always: this program has no TensorRT.
pub fn check_builder(_: &EngineOptions) -> Result<(), NoBuilder> {
    Err(NoBuilder(built_without()))
}

/// Whether an artifact is of use without the engines that failed to be built.
#[must_use]
pub fn leaves_graph(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<NoBuilder>())
}

/// Builds no engine.
///
/// # Errors
/// Always: this program has no TensorRT.
pub fn build_engines(
    _: &mut Artifact,
    _: &Profiles,
    _: &EngineOptions,
    _: &dyn EngineObserver,
) -> Result<Vec<EngineReport>> {
    Err(NoBuilder(built_without()).into())
}

/// Puts no weights into engines.
///
/// # Errors
/// Always: this program has no TensorRT.
pub fn refit_engines(_: &Artifact, _: Option<PathBuf>) -> Result<PathBuf> {
    Err(NoBuilder(built_without()).into())
}
