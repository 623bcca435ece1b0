//! In place of the builder of engines in a program without TensorRT.

use anyhow::Result;
use planish_runtimes::Unavailable;
use planish_runtimes::tensorrt::{Capability, RUNTIME};

use super::{EngineObserver, EngineOptions, EngineReport, Profiles};
use crate::artifact::Artifact;

/// The GPUs that engines are built for where the user names none.
#[must_use]
pub fn default_capabilities() -> Vec<Capability> {
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
    let unavailable = Unavailable {
        runtime: RUNTIME,
        reason: "this planish was built without TensorRT".to_owned(),
        looked: Vec::new(),
        remedy: "build one with it: cargo build --release --features tensorrt-rtx".to_owned(),
    };
    Err(unavailable.into())
}
