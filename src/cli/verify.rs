//! `planish verify`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Result;
use planish_artifact::Artifact;
use planish_artifact::evaluation::Requirements;
use planish_artifact::variants::VariantName;
use planish_artifact::verification::Report;
use planish_check::evaluate::{self, EvaluateOptions, evaluate_artifact};
use planish_check::verify::{Verified, VerifyOptions, needs_data, verify_artifact};
use planish_check::{VerificationFailed, usual_limits};
use planish_data::{DataOptions, OptionNames, SAMPLES};
use serde::Serialize;

use super::evaluate::Console;
use super::heartbeat::Heartbeat;
use super::{RunOn, note, print, print_json};

/// Compare the outputs of an artifact with the outputs of its source; exit with 3 if they differ
///
/// The source runs on the reference interpreter. If an ONNX graph has quantized operators, or operators that the
/// interpreter does not implement, then the source runs on ONNX Runtime without graph optimization. The report
/// names the reference.
///
/// The inputs are made from a seed. They have several shapes, from one token to the longest sequence, with padding
/// and without. Some cases continue from a cache. If the source cannot run a case, or if a case takes too much
/// memory (256 MiB and 8 times the weights, 1 GiB at most), planish runs a shorter case, and the report names both.
///
/// The comparison does not cover weights that the inputs do not select, such as the embeddings of other tokens. For
/// linked weights, planish.json records only the size, because the artifact and the checkpoint share the weight
/// files: a program that changes a file in place changes both.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The artifact's folder
    artifact: PathBuf,
    /// The checkpoint or .onnx file that the artifact was compiled from [default: planish looks at the recorded
    /// path, in the artifact, in the folder of the artifact, beside it under the recorded name, and in the current
    /// folder, for an unchanged source]
    #[arg(long, value_name = "MODEL")]
    reference: Option<PathBuf>,
    /// The longest sequence to compare, in tokens. Long sequences of a large model take the reference minutes
    /// [default: as many tokens as the model takes, but at most 512 for a model with a cache or without a limit,
    /// and at most 64 for an encoder-decoder]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_length: Option<u32>,
    /// Compare on this data too, as `evaluate` does, and exit with 3 if a figure misses its limit. If inputs from a seed do not
    /// fit the model, such as the nodes and edges of a graph, the comparison is on this data alone
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// The limits of --data, as `evaluate --require` takes them [default: cos=0.99; cos=0.9 for weights of 4 bits]
    #[arg(long, value_name = "LIMITS", requires = "data")]
    require: Option<Requirements>,
    /// The largest number of samples of --data to run
    #[arg(long, default_value_t = SAMPLES, value_name = "N", requires = "data")]
    samples: NonZeroUsize,
    /// The seed of the inputs
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// The number of threads of the runtime [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Compare what `bench` times: runs on bound inputs, which replay a recorded CUDA graph on cuda, cuda-baseline,
    /// cuda-emulator and trt. The memory that a run writes is filled with bytes that are no numbers before it
    #[arg(long)]
    replay: bool,
    /// Print the report as JSON, that of each variant on a line of its own; with --data the figures of that on the last line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run_on: RunOn,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let artifact = Artifact::open(&arguments.artifact)?;
    let options = VerifyOptions {
        seed: arguments.seed,
        max_length: arguments.max_length.map(usize::try_from).transpose()?,
        threads: arguments.threads.unwrap_or(0).into(),
        replay: arguments.replay,
        settings: arguments.run_on.settings(),
    };
    if arguments.data.is_some() {
        evaluate::check(&artifact)?;
    }
    let heartbeat = Heartbeat::of_pipe();
    heartbeat.step("verifying");
    let verified = verify_artifact(&artifact, arguments.reference.as_slice(), &options, &mut note);
    let named = match verified {
        Ok(Verified { source, report }) => {
            print_report(&report, &source, arguments.json)?;
            for (variant, artifact) in artifact.variants() {
                let Verified { source, report } =
                    verify_artifact(&artifact, arguments.reference.as_slice(), &options, &mut note)?;
                if arguments.json {
                    print_json(&OfVariant { variant, report: &report })?;
                    VerificationFailed::check(&report)?;
                } else {
                    print(&format!("variant {variant}:\n"))?;
                    print_report(&report, &source, false)?;
                }
            }
            vec![source]
        }
        Err(error) if arguments.data.is_some() && needs_data(&error) => {
            note(&format!("the comparison is on --data alone: {error:#}"));
            arguments.reference.into_iter().collect()
        }
        Err(error) => return Err(error),
    };
    drop(heartbeat);
    let Some(data) = &arguments.data else { return Ok(()) };
    let evaluation = EvaluateOptions {
        data: DataOptions { samples: arguments.samples, names: OptionNames::NONE, ..DataOptions::default() },
        require: arguments.require.unwrap_or_else(|| usual_limits(artifact.manifest.has_weights_of(4))),
        threads: options.threads,
        settings: options.settings,
        ..EvaluateOptions::default()
    };
    let evaluated = evaluate_artifact(&artifact, &named, data, &evaluation, &Console::new(false))?;
    if arguments.json {
        print_json(&evaluated.evaluation)?;
    } else {
        print(&format!("{}\n", evaluated.evaluation))?;
    }
    Ok(VerificationFailed::of(evaluation.require.misses(&evaluated.evaluation)?)?)
}

/// The report on a variant as JSON.
#[derive(Serialize)]
struct OfVariant<'a> {
    variant: VariantName,
    #[serde(flatten)]
    report: &'a Report,
}

fn print_report(report: &Report, source: &Path, json: bool) -> Result<()> {
    if json {
        print_json(report)?;
    } else {
        print(&format!("{report}\n"))?;
    }
    VerificationFailed::check(report)?;
    if !json {
        print(&format!("verified against {}: {}\n", source.display(), report.summary()))?;
    }
    Ok(())
}
