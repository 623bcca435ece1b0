//! What an artifact has to pass before it is written: a comparison with its source, and an evaluation on data.

mod search;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use planish_artifact::backend::saturates;
use planish_artifact::evaluation::{Evaluation, Requirements};
use planish_artifact::recipe::Recipe;
use planish_artifact::split::Split;
use planish_compiler::calibrate::is_table;
use planish_compiler::compile::{CompileOptions, Compiled, Observer};
use planish_compiler::source::SourceModel;
use planish_data::{DataOptions, OptionNames};
use planish_ir::DType;
use planish_passes::quantize::{PlannedInput, WeightScales};

use crate::evaluate::{EvaluateOptions, EvaluationObserver, Reference, evaluate_compiled};
use crate::verify::{VerifyOptions, needs_data, verify_compiled};
use crate::within::{Within, keep_within};
use crate::{VerificationFailed, usual_limits};
use search::Search;

/// What an artifact has to pass, as a user asks for it.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Whether it is compared with its source.
    pub verify: bool,
    /// The data that it is evaluated on.
    pub evaluate: Option<PathBuf>,
    /// The limits within which what harms most gets more precision.
    pub max_loss: Option<Requirements>,
}

/// What is asked for does not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// A field of data, without data.
    #[error("--field {0} is for data: add --calibrate or --evaluate")]
    Field(String),
    /// Limits of what quantization costs, where nothing is quantized.
    #[error("--max-loss gives more precision to what is quantized; add --int8, --fp8, --int4 or --int8-weights")]
    NotQuantized,
    /// An evaluation of an artifact that leaves out logits.
    #[error(
        "logits=last of the recipe leaves out logits that an evaluation compares, and {0} evaluates the artifact; leave one of \
         them out"
    )]
    LastLogits(&'static str),
    /// Limits without data that was held out.
    #[error("--max-loss needs data that was held out: add --evaluate FILE, or name data with --calibrate")]
    NoData,
}

/// What a caller sees while an artifact is judged.
pub trait GateObserver {
    /// Information that is not a problem.
    fn note(&self, text: &str);
    /// Sees an evaluation. `again` says that its messages were there before.
    fn evaluation(&self, again: bool) -> Box<dyn EvaluationObserver>;
    /// Sees a compilation of what was compiled before, with more precision.
    fn compilation(&self) -> Box<dyn Observer>;
}

/// Why an artifact is not written.
#[derive(Debug)]
pub struct Refused {
    /// What it misses.
    pub failed: VerificationFailed,
    /// What may help.
    pub remedies: Vec<Remedy>,
}

/// What may help an artifact that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// To keep operators in float32 whose values exceed the range of half precision.
    KeepFloat32,
    /// To give more precision to what harms most, until limits are met.
    MaxLoss,
    /// Scales of weights with which sums of products do not saturate.
    ReducedScales,
}

/// The data that an artifact is evaluated on, and what it has to reach.
#[derive(Debug)]
pub struct Gate {
    data: PathBuf,
    options: EvaluateOptions,
    /// Whether the artifact has to reach limits: these, where what harms most gets more precision, or the usual ones.
    asks: bool,
    max_loss: Option<Requirements>,
}

impl Asked {
    /// The evaluation that is asked for, of an artifact of a recipe that is calibrated on `calibrate`. `field` says which member of
    /// the data is the text.
    ///
    /// # Errors
    /// A [`GateError`], or why the data cannot be read.
    pub fn gate(
        &self,
        recipe: &Recipe,
        calibrate: Option<&Path>,
        field: Option<&str>,
        options: EvaluateOptions,
        observer: &dyn GateObserver,
    ) -> Result<Option<Gate>> {
        if let (Some(field), None, None) = (field, calibrate, &self.evaluate) {
            return Err(GateError::Field(field.to_owned()).into());
        }
        let quantizes = recipe.quantized().is_some();
        if self.max_loss.is_some() && !quantizes {
            return Err(GateError::NotQuantized.into());
        }
        let asks = self.max_loss.is_some() || self.verify && quantizes;
        let (data, split) = match (&self.evaluate, calibrate) {
            (Some(data), _) => (data.as_path(), Split::All),
            (None, Some(data)) if asks && !is_table(data) => (data, Split::HeldOut),
            (None, _) if self.max_loss.is_some() => return Err(GateError::NoData.into()),
            (None, _) => {
                if asks {
                    observer.note(
                        "--verify finds wrong graphs, and not what quantization costs, because no data is held out; add \
                         --evaluate FILE",
                    );
                }
                return Ok(None);
            }
        };
        let field = field.filter(|_| planish_data::has_fields(data)).map(str::to_owned);
        let options = EvaluateOptions {
            data: DataOptions { field, split, names: OptionNames::FIELD, ..options.data },
            require: self.max_loss.clone().unwrap_or_default(),
            ..options
        };
        if recipe.last_logits() {
            return Err(GateError::LastLogits(self.evaluates()).into());
        }
        // Before work that bad data would make useless.
        planish_data::check(data, &options.data)?;
        Ok(Some(Gate { data: data.to_owned(), options, asks, max_loss: self.max_loss.clone() }))
    }

    /// The option that makes a gate.
    fn evaluates(&self) -> &'static str {
        match (&self.evaluate, &self.max_loss) {
            (Some(_), _) => "--evaluate",
            (None, Some(_)) => "--max-loss",
            (None, None) => "--verify with data of --calibrate",
        }
    }

    /// Compares what was compiled with its source, if that is asked for; the report goes into its manifest. `is_evaluated` says
    /// that it was compared on data, which is enough where no other inputs can be made.
    ///
    /// # Errors
    /// When a runtime is missing, or a run fails.
    pub fn verify(
        &self,
        compiled: &mut Compiled,
        model: &SourceModel,
        options: &VerifyOptions,
        is_evaluated: bool,
        note: &mut dyn FnMut(&str),
    ) -> Result<Option<Refused>> {
        if !self.verify {
            return Ok(None);
        }
        let report = match verify_compiled(&compiled.artifact, model, &compiled.source, options, note) {
            Err(error) if is_evaluated && needs_data(&error) => {
                note(&format!("the artifact was compared on data alone: {error:#}"));
                return Ok(None);
            }
            report => report?,
        };
        let failed = VerificationFailed::check(&report).err();
        compiled.artifact.manifest.verification = Some(report);
        let remedies = if compiled.artifact.computes_in_half() { vec![Remedy::KeepFloat32] } else { Vec::new() };
        Ok(failed.map(|failed| Refused { failed, remedies }))
    }
}

impl Gate {
    /// Whether it evaluates on a part of the data of calibration.
    #[must_use]
    pub fn holds_out(&self) -> bool {
        self.options.data.split == Split::HeldOut
    }

    /// Leaves to calibration what is not held out. A field is for data alone: a table takes none.
    pub fn divide(&self, calibrate: Option<&Path>, data: &mut DataOptions) {
        if self.holds_out() {
            data.split = Split::Rest;
        }
        if calibrate.is_some_and(is_table) && self.options.data.field.is_some() {
            data.field = None;
        }
    }

    /// The data that artifacts are evaluated on.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The member of the data that is the text, where one is said.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        self.options.data.field.as_deref()
    }

    /// The limits within which what harms most gets more precision, where they are asked for.
    #[must_use]
    pub fn max_loss(&self) -> Option<&Requirements> {
        self.max_loss.as_ref()
    }

    /// Evaluates a form of the model. Forms that have `reference` in common are of the same model.
    ///
    /// # Errors
    /// When it cannot be evaluated.
    pub fn evaluate(
        &self,
        compiled: &Compiled,
        model: &SourceModel,
        reference: &mut Reference,
        observer: Box<dyn EvaluationObserver>,
    ) -> Result<Evaluation> {
        self.evaluated(compiled, model, reference, &self.options, observer)
    }

    /// Evaluates what was compiled, and compiles it with more precision where that is asked for and needed. The evaluation goes
    /// into the manifest.
    ///
    /// # Errors
    /// When it cannot be evaluated or compiled again.
    pub fn pass(
        &self,
        mut compiled: Compiled,
        model: &SourceModel,
        options: CompileOptions,
        observer: &dyn GateObserver,
    ) -> Result<(Compiled, Option<Refused>)> {
        let keeps = self.max_loss.is_some();
        let mut reference = if keeps { Reference::of_several() } else { Reference::default() };
        let watching = observer.evaluation(false);
        let mut evaluation = self.evaluated(&compiled, model, &mut reference, &self.options, watching)?;
        let limits = match &self.max_loss {
            Some(limits) => limits.clone(),
            None if self.asks => usual_limits(compiled.artifact.manifest.has_weights_of(4)),
            None => Requirements::default(),
        };
        let mut misses = limits.misses(&evaluation)?;
        if keeps && !misses.is_empty() {
            let Compiled { draft, quantizations, .. } = compiled;
            let folder = draft.target().to_owned();
            // Its folder goes before those of others are made.
            drop(draft);
            let mut search = Search { gate: self, model, folder, options, reference, observer };
            let within = keep_within(&mut search, evaluation, &quantizations, &limits)?;
            misses = within.unreached.iter().map(ToString::to_string).collect();
            (compiled, evaluation) = described(within);
        }
        let is_reduced_better = is_reduced_better(&compiled, &evaluation);
        compiled.artifact.manifest.evaluation = Some(evaluation);
        if misses.is_empty() {
            return Ok((compiled, None));
        }
        let remedies = [(!keeps, Remedy::MaxLoss), (is_reduced_better, Remedy::ReducedScales)];
        let remedies = remedies.into_iter().filter_map(|(helps, remedy)| helps.then_some(remedy)).collect();
        Ok((compiled, Some(Refused { failed: VerificationFailed(misses), remedies })))
    }

    fn evaluated(
        &self,
        compiled: &Compiled,
        model: &SourceModel,
        reference: &mut Reference,
        options: &EvaluateOptions,
        observer: Box<dyn EvaluationObserver>,
    ) -> Result<Evaluation> {
        let (artifact, source) = (&compiled.artifact, &compiled.source);
        let evaluation = evaluate_compiled(artifact, (model, source), reference, &self.data, options, &*observer);
        evaluation.context("cannot evaluate what was compiled")
    }
}

/// Whether sums of products saturated in an evaluation, which reduced scales of weights avoid. The graph of an engine runs
/// without fused products of codes.
fn is_reduced_better(compiled: &Compiled, evaluation: &Evaluation) -> bool {
    let has_codes = |input: &PlannedInput| matches!(input.activation.codes(), Some(DType::I8 | DType::U8));
    let mut full = compiled.quantizations.layers.values().filter(|of| of.weight_scales != WeightScales::Reduced);
    saturates(&evaluation.runtime)
        && compiled.artifact.backend.engines.is_none()
        && full.any(|of| of.plan.inputs.iter().chain(&of.plan.maps).any(has_codes))
}

/// The artifact, whose manifest says what is kept in float and why.
fn described(within: Within<Compiled>) -> (Compiled, Evaluation) {
    let Within { mut made, evaluation, quantizations, .. } = within;
    for part in &mut made.artifact.manifest.parts {
        part.quantization = quantizations.layers.get(&part.name).map(|quantization| quantization.plan.clone());
        part.weights = quantizations.weights.get(&part.name).map(|quantization| quantization.plan.clone());
    }
    (Compiled { quantizations, ..made }, evaluation)
}

#[cfg(test)]
mod tests;
