//! Compares an artifact with the checkpoint that it was compiled from: `cargo run --release --example verify -- ARTIFACT`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use planish::artifact::Artifact;
use planish::verify::{VerifyOptions, verify_artifact};

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).context("give the folder of an artifact")?;
    let artifact = Artifact::open(Path::new(&folder))?;
    let verified = verify_artifact(&artifact, &[], &VerifyOptions::default(), &mut |note| eprintln!("{note}"))?;
    println!("{} cases next to {}", verified.report.cases.len(), verified.source.display());
    ensure!(verified.report.passed(), "{folder} differs from its source");
    Ok(())
}
