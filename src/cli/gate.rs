//! What an artifact has to pass before it is written.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use planish_artifact::backend::{RuntimeSettings, saturates};
use planish_artifact::evaluation::{Evaluation, Requirements};
use planish_artifact::split::Split;
use planish_check::evaluate::{EvaluateOptions, Reference, evaluate_compiled};
use planish_check::verify::{VerifyOptions, needs_data, verify_compiled};
use planish_check::within::{Trials, Within, keep_within};
use planish_compiler::calibrate::is_table;
use planish_compiler::compile::{CompileOptions, Compiled, Observer, compile};
use planish_compiler::quantize::{Quantizations, QuantizeProgress};
use planish_compiler::source::SourceModel;
use planish_data::DataOptions;
use planish_ir::{DType, Graph};
use planish_passes::quantize::{PlannedInput, WeightScales};

use super::evaluate::watched;
use super::heartbeat::Heartbeat;
use super::written::Written;
use super::{Usage, VerificationFailed, note, print, print_json};

/// What an artifact has to pass.
#[derive(clap::Args)]
#[command(next_help_heading = "Verification")]
pub(super) struct GateArguments {
    /// Run the artifact and compare it with its source, as `planish verify` does. A quantized artifact has to reach --max-loss, else
    /// cos=0.99 (with --int4 cos=0.9), on the data of --evaluate, else on every fifth sample of --calibrate. A miss exits with 3
    #[arg(long)]
    pub(super) verify: bool,
    /// Evaluate the artifact on this data, as `planish evaluate` does; take other data than for --calibrate
    #[arg(long, value_name = "FILE")]
    evaluate: Option<PathBuf>,
    /// Give more precision to what harms most until the artifact meets these limits of `planish evaluate --require`, such as cos=0.999,
    /// on the data of --verify; exit with 3 if it cannot
    #[arg(long, value_name = "LIMITS")]
    max_loss: Option<Requirements>,
}

/// What a quantized artifact has to reach unless told otherwise. Less than planish's defaults reach, and more than
/// harmful quantization does.
const LIMITS: &str = "cos=0.99";

/// The same for weights of 4 bits.
const LIMITS_OF_4_BITS: &str = "cos=0.9";

/// What a quantized artifact has to reach unless told otherwise; `has_4_bits` says that weights have 4 bits.
pub(super) fn usual_limits(has_4_bits: bool) -> Result<Requirements, Usage> {
    if has_4_bits { LIMITS_OF_4_BITS } else { LIMITS }.parse().map_err(Usage)
}

/// The data that an artifact is evaluated on, and what it has to reach.
pub(super) struct Gate {
    data: PathBuf,
    options: EvaluateOptions,
    /// Whether the artifact has to reach limits: these, where what harms most gets more precision, or the usual ones.
    asks: bool,
    max_loss: Option<Requirements>,
}

impl GateArguments {
    /// The data of `--evaluate`.
    pub(super) fn data(&self) -> Option<&PathBuf> {
        self.evaluate.as_ref()
    }

    /// The evaluation that the options request, of an artifact that is calibrated on `calibrate`. `quantizes` says that it is
    /// quantized.
    pub(super) fn gate(
        &self,
        quantizes: bool,
        calibrate: Option<&Path>,
        field: Option<&str>,
        options: EvaluateOptions,
    ) -> Result<Option<Gate>> {
        if let (Some(field), None, None) = (field, calibrate, &self.evaluate) {
            return Err(Usage(format!("--field {field} is for data: add --calibrate or --evaluate")).into());
        }
        if self.max_loss.is_some() && !quantizes {
            let why =
                "--max-loss gives more precision to what is quantized; add --int8, --fp8, --int4 or --int8-weights";
            return Err(Usage(why.to_owned()).into());
        }
        let asks = self.max_loss.is_some() || self.verify && quantizes;
        let (data, split) = match (&self.evaluate, calibrate) {
            (Some(data), _) => (data.as_path(), Split::All),
            (None, Some(data)) if asks && !is_table(data) => (data, Split::HeldOut),
            (None, _) if self.max_loss.is_some() => {
                let message =
                    "--max-loss needs data that was held out: add --evaluate FILE, or name data with --calibrate";
                return Err(Usage(message.to_owned()).into());
            }
            (None, _) => {
                if asks {
                    note(
                        "--verify finds wrong graphs, and not what quantization costs, because no data is held out; add \
                         --evaluate FILE",
                    );
                }
                return Ok(None);
            }
        };
        let field = field.filter(|_| planish_data::has_fields(data)).map(str::to_owned);
        let options = EvaluateOptions {
            data: DataOptions { field, split, ..options.data },
            require: self.max_loss.clone().unwrap_or_default(),
            ..options
        };
        // Before work that bad data would make useless.
        planish_data::check(data, &options.data)?;
        Ok(Some(Gate { data: data.to_owned(), options, asks, max_loss: self.max_loss.clone() }))
    }

    /// Whether `--max-loss` gives limits.
    pub(super) fn has_limits(&self) -> bool {
        self.max_loss.is_some()
    }

    /// The option that makes a gate.
    pub(super) fn evaluates(&self) -> &'static str {
        match (&self.evaluate, &self.max_loss) {
            (Some(_), _) => "--evaluate",
            (None, Some(_)) => "--max-loss",
            (None, None) => "--verify with data of --calibrate",
        }
    }

    /// Compares what was compiled with its source, if that is asked for. `is_evaluated` says that it was compared on data, which
    /// is enough where no other inputs can be made.
    pub(super) fn verify(
        &self,
        compiled: &mut Compiled,
        model: &SourceModel,
        (threads, settings): (usize, &RuntimeSettings),
        is_evaluated: bool,
        json: bool,
    ) -> Result<()> {
        if !self.verify {
            return Ok(());
        }
        let options = VerifyOptions { threads, settings: settings.clone(), ..VerifyOptions::default() };
        let heartbeat = Heartbeat::of_pipe();
        heartbeat.step("verifying");
        let report = verify_compiled(&compiled.artifact, model, &compiled.source, &options, &mut note);
        drop(heartbeat);
        let report = match report {
            Err(error) if is_evaluated && needs_data(&error) => {
                note(&format!("the artifact was compared on data alone: {error:#}"));
                return Ok(());
            }
            report => report?,
        };
        let remedy = match compiled.artifact.computes_in_half() {
            true => {
                "; --calibrate DATA and --keep PATTERN=fp32 keep operators in float32 whose values exceed the range of half precision"
            }
            false => "",
        };
        let checked = VerificationFailed::check(&report);
        compiled.artifact.manifest.verification = Some(report);
        refuse(checked, compiled, json).with_context(|| format!("nothing was written{remedy}"))
    }
}

/// Prints the manifest of what is not written, for programs.
fn refuse(checked: Result<(), VerificationFailed>, compiled: &Compiled, json: bool) -> Result<()> {
    if checked.is_err() && json {
        print_json(&Written::new(None, &compiled.artifact.manifest, &compiled.explanations))?;
    }
    Ok(checked?)
}

impl Gate {
    /// Whether it evaluates on a part of the data of `--calibrate`.
    pub(super) fn holds_out(&self) -> bool {
        self.options.data.split == Split::HeldOut
    }

    /// Leaves to calibration what is not held out. `--field` is for data alone: a table takes none.
    pub(super) fn divide(&self, calibrate: Option<&Path>, data: &mut DataOptions) {
        if self.holds_out() {
            data.split = Split::Rest;
        }
        if calibrate.is_some_and(is_table) && self.options.data.field.is_some() {
            data.field = None;
        }
    }

    /// Evaluates what was compiled, and compiles it with more precision where that is asked for and needed.
    pub(super) fn pass(
        &self,
        mut compiled: Compiled,
        model: &SourceModel,
        options: CompileOptions,
        json: bool,
    ) -> Result<Compiled> {
        let keeps = self.max_loss.is_some();
        let mut reference = if keeps { Reference::of_several() } else { Reference::default() };
        let mut evaluation = self.evaluated(&compiled, model, &mut reference, &self.options, false)?;
        let limits = match &self.max_loss {
            Some(limits) => limits.clone(),
            None if self.asks => usual_limits(compiled.artifact.manifest.has_weights_of(4))?,
            None => Requirements::default(),
        };
        let mut misses = limits.misses(&evaluation)?;
        if keeps && !misses.is_empty() {
            let Compiled { draft, quantizations, .. } = compiled;
            let folder = draft.target().to_owned();
            // Its folder goes before those of others are made.
            drop(draft);
            let mut search = Search { gate: self, model, folder, options, reference };
            let within = keep_within(&mut search, evaluation, &quantizations, &limits)?;
            misses = within.unreached.iter().map(ToString::to_string).collect();
            (compiled, evaluation) = described(within);
        }
        let is_reduced_better = is_reduced_better(&compiled, &evaluation);
        compiled.artifact.manifest.evaluation = Some(evaluation);
        if misses.is_empty() {
            return Ok(compiled);
        }
        if let Some(evaluation) = compiled.artifact.manifest.evaluation.as_ref().filter(|_| !json) {
            print(&format!("{evaluation}\n"))?;
        }
        let more = "; --max-loss gives more precision to what harms most until the limits are met";
        let reduced = "; sums of products saturate on this processor, which --recipe weight-scales=reduced avoids";
        let remedy = [(true, "nothing was written"), (!keeps, more), (is_reduced_better, reduced)];
        let remedy: String = remedy.into_iter().filter_map(|(holds, text)| holds.then_some(text)).collect();
        refuse(Err(VerificationFailed(misses)), &compiled, json).context(remedy)?;
        Ok(compiled)
    }

    fn evaluated(
        &self,
        compiled: &Compiled,
        model: &SourceModel,
        reference: &mut Reference,
        options: &EvaluateOptions,
        is_quiet: bool,
    ) -> Result<Evaluation> {
        let (artifact, source) = (&compiled.artifact, &compiled.source);
        let evaluation = watched(is_quiet, |console| {
            evaluate_compiled(artifact, (model, source), reference, &self.data, options, console)
        });
        evaluation.context("cannot evaluate what was compiled")
    }
}

/// Whether sums of products saturated in an evaluation, which `--recipe weight-scales=reduced` avoids. The graph of an engine runs without
/// fused products of codes.
fn is_reduced_better(compiled: &Compiled, evaluation: &Evaluation) -> bool {
    let has_codes = |input: &PlannedInput| matches!(input.activation.codes(), Some(DType::I8 | DType::U8));
    let mut full = compiled.quantizations.layers.values().filter(|of| of.weight_scales != WeightScales::Reduced);
    saturates(&evaluation.runtime)
        && compiled.artifact.backend.engines.is_none()
        && full.any(|of| of.plan.inputs.iter().any(has_codes))
}

/// The artifact, whose manifest says what is kept in float and why.
fn described(within: Within<Compiled>) -> (Compiled, Evaluation) {
    let Within { mut made, evaluation, quantizations, .. } = within;
    for part in &mut made.artifact.manifest.parts {
        part.quantization = quantizations.layers.get(&part.name).map(|quantization| quantization.plan.clone());
        part.weights = quantizations.weights.get(&part.name).map(|quantization| quantization.plan.clone());
    }
    (made, evaluation)
}

/// How many samples give a rough figure.
const FEW: usize = 16;

/// The most tokens of them.
const FEW_TOKENS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(FEW * 512 - 1);

/// Compiles a model again, with other quantizations.
struct Search<'a> {
    gate: &'a Gate,
    model: &'a SourceModel,
    folder: PathBuf,
    options: CompileOptions,
    reference: Reference,
}

impl Trials for Search<'_> {
    type Made = Compiled;

    fn make(&mut self, quantizations: Quantizations) -> Result<Compiled> {
        if let Some(quantize) = &mut self.options.quantize {
            quantize.known = quantizations.layers;
        }
        if let Some(quantize) = &mut self.options.quantize_weights {
            quantize.known = quantizations.weights;
        }
        compile(self.model, &self.folder, &self.options, &Again(Heartbeat::of_pipe()))
    }

    fn evaluate(&mut self, made: &Compiled, is_rough: bool) -> Result<Evaluation> {
        let mut options = self.gate.options.clone();
        if is_rough {
            options.data.samples = options.data.split.samples(FEW);
            options.data.tokens = Some(FEW_TOKENS);
        }
        self.gate.evaluated(made, self.model, &mut self.reference, &options, true)
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
