//! What `planish compile` is told that an artifact has to pass, and what it says of one that does not.

use std::path::PathBuf;

use anyhow::{Context, Result};
use planish_artifact::evaluation::Requirements;
use planish_check::evaluate::EvaluationObserver;
use planish_check::gate::{Asked, GateObserver, Refused, Remedy};
use planish_compiler::compile::{Compiled, Observer};
use planish_compiler::quantize::QuantizeProgress;
use planish_ir::Graph;

use super::evaluate::Console;
use super::heartbeat::Heartbeat;
use super::written::Written;
use super::{note, print, print_json};

/// What an artifact has to pass.
#[derive(clap::Args)]
#[command(next_help_heading = "Verification")]
pub(super) struct GateArguments {
    /// Run the artifact and compare it with its source, as `planish verify` does. A quantized artifact has to reach --max-loss, else
    /// cos=0.99 (with --int4 cos=0.9), on the data of --evaluate, else on every fifth sample of --calibrate. A miss exits with 3
    #[arg(long)]
    verify: bool,
    /// Evaluate the artifact on this data, as `planish evaluate` does; take other data than for --calibrate
    #[arg(long, value_name = "FILE")]
    evaluate: Option<PathBuf>,
    /// Give more precision to what harms most until the artifact meets these limits of `planish evaluate --require`, such as cos=0.999,
    /// on the data of --verify; exit with 3 if it cannot
    #[arg(long, value_name = "LIMITS")]
    max_loss: Option<Requirements>,
}

impl GateArguments {
    /// What the arguments ask for.
    pub(super) fn asked(&self) -> Asked {
        Asked { verify: self.verify, evaluate: self.evaluate.clone(), max_loss: self.max_loss.clone() }
    }
}

/// Says why an artifact is not written, for programs as the manifest that it would have, for people as the figures of an
/// evaluation, and ends with what it misses.
pub(super) fn refuse(refused: Option<Refused>, compiled: &Compiled, json: bool) -> Result<()> {
    let Some(Refused { failed, remedies }) = refused else { return Ok(()) };
    let manifest = &compiled.artifact.manifest;
    // A comparison with the source says in its misses all that there is to say.
    match manifest.evaluation.as_ref().filter(|_| manifest.verification.is_none()) {
        _ if json => print_json(&Written::new(None, manifest, &compiled.explanations))?,
        Some(evaluation) => print(&format!("{evaluation}\n"))?,
        None => {}
    }
    let remedies: String = remedies.iter().map(|remedy| format!("; {}", option(*remedy))).collect();
    Err(failed).context(format!("nothing was written{remedies}"))
}

/// The option that is a remedy.
fn option(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::KeepFloat32 => {
            "--calibrate DATA and --keep PATTERN=fp32 keep operators in float32 whose values exceed the range of half precision"
        }
        Remedy::MaxLoss => "--max-loss gives more precision to what harms most until the limits are met",
        Remedy::ReducedScales => {
            "sums of products saturate on this processor, which --recipe weight-scales=reduced avoids"
        }
    }
}

/// Shows a person how an artifact is judged.
pub(super) struct Judging;

impl GateObserver for Judging {
    fn note(&self, text: &str) {
        note(text);
    }

    fn evaluation(&self, again: bool) -> Box<dyn EvaluationObserver> {
        Box::new(Console::new(again))
    }

    fn compilation(&self) -> Box<dyn Observer> {
        Box::new(Again(Heartbeat::of_pipe()))
    }
}

/// Says nothing but what goes on after each long silence: the model was compiled before.
struct Again(Heartbeat);

impl Observer for Again {
    fn warning(&self, _: &str) {}
    fn note(&self, _: &str) {}
    fn graph(&self, _: &str, _: &Graph) {}

    fn quantizing(&self, progress: &QuantizeProgress) {
        self.0.done("quantizing again", &progress.to_string());
    }

    fn begin_writing(&self, _: u64) {
        self.0.step("writing again");
    }

    fn written(&self, _: u64) {}
    fn end_writing(&self) {}
}
