//! `planish refit-engine`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use planish_artifact::Artifact;
use planish_compiler::engine::refit_engines;

use super::{LibraryArguments, print, short};

/// Put the weights of an artifact's ONNX files into its engines
///
/// The engines were built with --strip-weights or --refit, and --keep-onnx kept the ONNX files. The command needs the GPU
/// that the engines were built for. What fails leaves the artifact as it is.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The artifact's folder
    artifact: PathBuf,
    #[command(flatten)]
    runtime: LibraryArguments,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let artifact = Artifact::open(&arguments.artifact)?;
    let folder = refit_engines(&artifact, arguments.runtime.settings().trt_library)
        .with_context(|| format!("cannot put weights into the engines of {}", arguments.artifact.display()))?;
    let text = format!("{}: its engines have the weights of its ONNX files\n", short(&folder).display());
    print(&text).context("the engines are in their place")
}
