//! In place of the builder of engines in a program without TensorRT.

use std::path::PathBuf;

use anyhow::Result;
use planish_runtimes::tensorrt::{Capability, built_without};

use super::{EngineObserver, EngineOptions, EngineReport, Profiles};
use crate::artifact::Artifact;
use crate::artifact::manifest::Manifest;

/// The GPUs that engines are built for where the user names none.
#[must_use]
pub fn default_capabilities(_: &Manifest) -> Vec<Capability> {
    Capability::DEFAULT.to_vec()
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
    Err(built_without().of_builder().into())
}

/// Puts no weights into engines.
///
/// # Errors
/// Always: this program has no TensorRT.
pub fn refit_engines(_: &Artifact, _: Option<PathBuf>) -> Result<PathBuf> {
    Err(built_without().of_builder().into())
}
