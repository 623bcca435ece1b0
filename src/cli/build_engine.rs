//! `planish build-engine`.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use planish_artifact::Artifact;
use planish_compiler::engine::{SymbolRanges, keeps_onnx, products, profiles_of, rebuild};

use super::engine::{EngineArguments, EngineConsole, files};
use super::written::Written;
use super::{LibraryArguments, Usage, print, print_json, short};

/// Build the engines of an artifact for target trt that has its ONNX files
///
/// The engines take the place of those that the artifact has, if any; the ONNX files go, unless --keep-onnx
/// keeps them or the artifact has them beside engines.
/// What fails leaves the artifact as it is.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The artifact's folder
    artifact: PathBuf,
    /// The sizes of a profile, MIN:OPT:MAX or one number for each symbol in the shapes of inputs; several times for several
    /// profiles [default: those of profiles.json]
    #[arg(long, value_name = "SYMBOL=1:8:32,..")]
    shapes: Vec<SymbolRanges>,
    /// Print JSON: {"artifact": its folder, "manifest": what its planish.json holds, "engines": for each part the seconds
    /// and the memory that the build took}
    #[arg(long)]
    json: bool,
    /// In place of the summary, print the command of NVIDIA's tool (tensorrt_rtx, or trtexec) that builds the same engine of
    /// each ONNX file. It writes PART.trtexec.engine beside planish's engine
    #[arg(long, conflicts_with = "json")]
    print_trtexec: bool,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    runtime: LibraryArguments,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let start = Instant::now();
    let artifact = Artifact::open(&arguments.artifact)?;
    if let Some(reason) = artifact.manifest.runtime_package.refuses(artifact.backend) {
        return Err(Usage(reason).into());
    }
    let options = arguments.engine.options(&arguments.runtime.settings());
    options.check(&products(&artifact.manifest))?;
    let profiles = profiles_of(&artifact, &arguments.shapes)?;
    // Before the commands are printed, which name the ONNX files.
    artifact.manifest.parts.iter().try_for_each(|part| artifact.file(part).map(drop))?;
    let kept = keeps_onnx(&artifact);
    if arguments.print_trtexec {
        arguments.engine.print_trtexec(&arguments.artifact, &artifact.manifest, &profiles, kept)?;
    }
    let rebuilt = rebuild(&artifact, &profiles, &options, &EngineConsole::new())?;
    let reports = rebuilt.reports.clone();
    let Artifact { folder, manifest, .. } = rebuilt.publish()?;
    if arguments.json {
        return print_json(&Written::new(Some(&folder), &manifest, &[]).with_engines(&reports));
    }
    if arguments.print_trtexec {
        return Ok(());
    }
    let seconds = start.elapsed().as_secs_f64();
    let head = format!("{}: {}, target {}\n", short(&folder).display(), manifest.architecture, manifest.target);
    let text = head + &files(&manifest, &reports) + &format!("  written in {seconds:.2} s\n");
    print(&text).context("the engines are in their place")
}
