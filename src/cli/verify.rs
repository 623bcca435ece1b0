//! `planish verify`.

use std::path::PathBuf;

use anyhow::Result;

use super::{RunOn, RuntimeArguments, VerificationFailed, note, print, print_json};
use crate::artifact::Artifact;
use crate::verify::{Verified, VerifyOptions, verify_artifact};

/// Run an artifact and compare it with its source; exit 3 on a miss
///
/// The source runs on the reference interpreter. An ONNX graph that this cannot run, or that has quantized
/// operators, runs on ONNX Runtime without graph optimization instead; the report says which it was.
///
/// The inputs are made from a seed: several shapes from one token to the longest sequence (512
/// tokens at most where there is a cache), with padding and without; some continue from a cache. What the source itself
/// cannot run, or what takes too much memory (256 MiB and 8 times the weights, 1 GiB at most), is made shorter, and the report says so. Weights that the inputs do not
/// reach, such as embeddings of other tokens, are not seen. Of linked weights, which the checkpoint shares, only the size is recorded: what was
/// changed in place has changed in both.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The artifact's folder
    artifact: PathBuf,
    /// The checkpoint or .onnx file it was compiled from [default: where it was then, in the artifact or in its folder,
    /// beside it under its recorded name, or in the current folder, whichever is unchanged]
    #[arg(long, value_name = "MODEL")]
    reference: Option<PathBuf>,
    /// The most tokens to compare in a row; what a model of a billion parameters gives for many
    /// takes the reference minutes [default: as many as the model takes, 512 with a cache]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_length: Option<u32>,
    /// The seed of the inputs
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Threads of the runtime [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run_on: RunOn,
    #[command(flatten)]
    runtime: RuntimeArguments,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let artifact = Artifact::open(&arguments.artifact)?;
    let options = VerifyOptions {
        seed: arguments.seed,
        max_length: arguments.max_length.map(usize::try_from).transpose()?,
        threads: arguments.threads.unwrap_or(0).into(),
        settings: arguments.run_on.settings(&arguments.runtime),
    };
    let Verified { source, report } = verify_artifact(&artifact, arguments.reference.as_slice(), &options, &mut note)?;
    if arguments.json {
        print_json(&report)?;
    } else {
        print(&format!("{report}\n"))?;
    }
    VerificationFailed::check(&report)?;
    if !arguments.json {
        print(&format!("verified against {}: {}\n", source.display(), report.summary()))?;
    }
    Ok(())
}
