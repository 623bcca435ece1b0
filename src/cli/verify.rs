//! `planish verify`.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Error, Result};
use planish_artifact::Artifact;
use planish_artifact::evaluation::Requirements;
use planish_artifact::variants::VariantName;
use planish_check::evaluate::{self, EvaluateOptions, Evaluated, evaluate_artifact};
use planish_check::verify::{Verified, VerifyOptions, needs_data, verify_artifact};
use planish_check::{VerificationFailed, usual_limits};
use planish_data::{DataOptions, OptionNames, SAMPLES};
use serde::Serialize;

use super::evaluate::Console;
use super::heartbeat::Heartbeat;
use super::{RunOn, exit_code, note, print, print_json, terminal, tune};

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
    /// Print the report as JSON, that of each variant on a line of its own; with --data the figures of each on the lines after them
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
    let further: Vec<Form> = artifact.variants().map(|(variant, artifact)| (Some(variant), artifact)).collect();
    let forms: Vec<Form> = std::iter::once((None, artifact)).chain(further).collect();
    tune::warn_elsewhere(&forms[0].1, &options.settings);
    if arguments.data.is_some() {
        forms.iter().try_for_each(|(_, form)| evaluate::check(form).map_err(|error| of_form(form, error)))?;
    }
    let named = verify(&forms, &arguments, &options)?;
    let Some(data) = &arguments.data else { return Ok(()) };
    let mut failures = Vec::new();
    for (variant, artifact) in &forms {
        let require = arguments.require.clone();
        let evaluation = EvaluateOptions {
            data: DataOptions { samples: arguments.samples, names: OptionNames::NONE, ..DataOptions::default() },
            require: require.unwrap_or_else(|| usual_limits(artifact.manifest.has_weights_of(4))),
            threads: options.threads,
            settings: options.settings.clone(),
            ..EvaluateOptions::default()
        };
        match evaluate_artifact(artifact, &named, data, &evaluation, &Console::new(false)) {
            Ok(Evaluated { evaluation: figures, .. }) => {
                show(*variant, &figures, arguments.json)?;
                let judged = VerificationFailed::of(evaluation.require.misses(&figures)?);
                failures.extend(judged.err().map(|failed| of_form(artifact, failed)));
            }
            Err(error) => failures.push(of_form(artifact, error)),
        }
    }
    worst(failures)
}

/// An artifact, or one of its further variants with its name.
type Form = (Option<VariantName>, Artifact);

/// Verifies all forms; returns the models that data is compared with.
///
/// # Errors
/// The worst failure of a form, after all of them were verified.
fn verify(forms: &[Form], arguments: &Arguments, options: &VerifyOptions) -> Result<Vec<PathBuf>> {
    let heartbeat = Heartbeat::of_pipe();
    heartbeat.step("verifying");
    let mut named: Vec<PathBuf> = arguments.reference.clone().into_iter().collect();
    let mut failures = Vec::new();
    for (variant, artifact) in forms {
        match verify_artifact(artifact, arguments.reference.as_slice(), options, &mut note) {
            Ok(Verified { source, report }) => {
                show(*variant, &report, arguments.json)?;
                if !arguments.json && report.passed() {
                    print(&format!("verified against {}: {}\n", source.display(), report.summary()))?;
                }
                let judged = VerificationFailed::check(&report);
                failures.extend(judged.err().map(|failed| of_form(artifact, failed)));
                named = vec![source];
            }
            Err(error) if arguments.data.is_some() && needs_data(&error) => {
                note(&format!("the comparison is on --data alone: {error:#}"));
            }
            Err(error) => failures.push(of_form(artifact, error)),
        }
    }
    drop(heartbeat);
    worst(failures).map(|()| named)
}

/// An error with the name of the variant that it is of, if it is of one.
fn of_form(form: &Artifact, error: impl Into<Error>) -> Error {
    let error: Error = error.into();
    match form.manifest.variant {
        Some(variant) => error.context(format!("variant {variant}")),
        None => error,
    }
}

/// The failure with the exit code that says most, that of a difference from the source; the others are printed.
fn worst(mut failures: Vec<Error>) -> Result<()> {
    if failures.is_empty() {
        return Ok(());
    }
    let differs = failures.iter().position(|failure| exit_code(failure) == 3);
    let worst = failures.remove(differs.unwrap_or(0));
    failures.iter().for_each(|failure| terminal::error(&format!("{failure:#}")));
    Err(worst)
}

/// What was found of a variant as JSON.
#[derive(Serialize)]
struct OfVariant<'a, T> {
    variant: VariantName,
    #[serde(flatten)]
    found: &'a T,
}

/// Prints what was found of a form.
fn show<T: Serialize + Display>(variant: Option<VariantName>, found: &T, json: bool) -> Result<()> {
    match variant {
        None if json => print_json(found),
        Some(variant) if json => print_json(&OfVariant { variant, found }),
        None => print(&format!("{found}\n")),
        Some(variant) => print(&format!("variant {variant}:\n{found}\n")),
    }
}
