//! Comparing an artifact with the model that it was compiled from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use planish_artifact::backend::RuntimeSettings;
use planish_artifact::manifest::{Input, PartManifest};
use planish_artifact::verification::{CaseReport, ReferenceKind, Report, Skipped, Tolerances, is_quantized};
use planish_artifact::{Artifact, note_elsewhere, runtime};
use planish_compiler::request::RequestError;
use planish_compiler::source::{self, SourceModel};
use planish_data::inputs::{InputSpec, TokenSamples, Values, specs};
use planish_data::tokenizer::ctc::{fewest_samples, frame_samples};
use planish_eval::Tensor;
use planish_ir::InputRole;
use planish_models::{Loaded, Part};
use planish_runtimes::{
    Arithmetic, Model, Port, ReferenceRuntime as Interpreter, Runtime, RuntimeError, RuntimeValue, Session,
    SessionOptions,
};

use super::merged::{self, Merged};
use super::{Branch, Pair, Reference, reference_limits, verify, verify_parts};

/// How an artifact is verified.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// The seed of the inputs.
    pub seed: u64,
    /// The most tokens in a row, if not as many as the model takes.
    pub max_length: Option<usize>,
    /// Threads of the runtimes; 0 leaves the number to them.
    pub threads: usize,
    /// Whether runs are those of bound inputs, which replay recorded CUDA graphs, on memory without numbers.
    pub replay: bool,
    /// How runtimes are found.
    pub settings: RuntimeSettings,
}

/// The result of a verification.
pub struct Verified {
    /// The model that the artifact was compared with.
    pub source: PathBuf,
    /// The figures.
    pub report: Report,
}

/// Runs an artifact and compares it with its source: the model among those that are `named`, or the one that is found by what
/// `planish.json` says. `note` is told what a user has to know of the runtime.
///
/// # Errors
/// When the artifact, its source or a runtime is missing or changed, and when nothing can be compared.
pub fn verify_artifact(
    artifact: &Artifact,
    named: &[PathBuf],
    options: &VerifyOptions,
    note: &mut dyn FnMut(&str),
) -> Result<Verified> {
    let runtime = runtime(artifact, &options.settings, note);
    if artifact.manifest.tensor_parallel.is_none() {
        runtime.check()?;
    }
    let found = source::find(named, artifact)?;
    let loaded = found.load(artifact)?;
    let report = report(artifact, &found.model, &loaded, runtime.as_ref(), options, note)?;
    Ok(Verified { source: found.path, report })
}

/// The same for an artifact in the making, with the model that it is made of.
///
/// # Errors
/// As [`verify_artifact`].
pub fn verify_compiled(
    artifact: &Artifact,
    model: &SourceModel,
    loaded: &Loaded,
    options: &VerifyOptions,
    note: &mut dyn FnMut(&str),
) -> Result<Report> {
    let runtime = runtime(artifact, &options.settings, note);
    report(artifact, model, loaded, runtime.as_ref(), options, note)
}

fn report(
    artifact: &Artifact,
    model: &SourceModel,
    source: &Loaded,
    runtime: &dyn Runtime,
    options: &VerifyOptions,
    note: &mut dyn FnMut(&str),
) -> Result<Report> {
    // All ranks run on the reference interpreter, which is where they exchange tensors without devices.
    let has_ranks = artifact.manifest.tensor_parallel.is_some();
    let interpreter = Interpreter::default();
    if has_ranks && options.settings.runtime.is_some() && runtime.name() != interpreter.name() {
        bail!(RequestError(format!(
            "--runtime {}: ranks exchange tensors on {} alone without GPUs; leave the option out",
            runtime.name(),
            interpreter.name()
        )));
    }
    let runtime: &dyn Runtime = if has_ranks { &interpreter } else { runtime };
    let mut verification = Verification { artifact, model, source, options, note };
    let mut report = verification.on(runtime)?;
    if !artifact.computes_in_half() || runtime.arithmetic(artifact.computes()) != Arithmetic::Wider {
        return Ok(report);
    }
    if report.reference == ReferenceKind::Interpreter {
        let rounded = verification.on(&Interpreter::default())?.cases.into_iter();
        let label = |case: &CaseReport| format!("{}, each result rounded", case.label);
        report.cases.extend(rounded.map(|case| CaseReport { label: label(&case), ..case }));
    } else {
        let reason = "the model is not held against the reference interpreter, which alone rounds each result";
        let label = "the artifact with each result rounded".to_owned();
        report.skipped.push(Skipped { label, reason: reason.to_owned(), instead: None });
    }
    Ok(report)
}

/// An artifact and what it was compiled from.
struct Verification<'a> {
    artifact: &'a Artifact,
    model: &'a SourceModel,
    /// The model before any pass.
    source: &'a Loaded,
    options: &'a VerifyOptions,
    note: &'a mut dyn FnMut(&str),
}

impl Verification<'_> {
    /// The report on the artifact on a runtime.
    fn on(&mut self, runtime: &dyn Runtime) -> Result<Report> {
        let VerifyOptions { seed, max_length, .. } = *self.options;
        let longest = self.source.max_positions.into_iter().chain(max_length).min();
        let tolerances: Tolerances = self.artifact.tolerances(self.source);
        let parts = &self.source.parts;
        let merged = merged::load(self.artifact, runtime, SessionOptions { threads: self.options.threads })?;
        let merged = merged.as_ref();
        let mut pairs = parts.iter().map(|part| self.pair(part, merged, runtime)).collect::<Result<Vec<_>>>()?;
        match (pairs.as_mut_slice(), parts.as_slice()) {
            ([pair], [part]) => verify(pair, &part.graph, longest, seed, tolerances),
            (pairs, _) => verify_parts(pairs, longest, seed, tolerances),
        }
    }

    fn pair(&mut self, part: &Part, merged: Option<&Merged>, runtime: &dyn Runtime) -> Result<Pair> {
        let described = self.artifact.first_rank(part.name)?;
        let options = SessionOptions { threads: self.options.threads };
        let candidate = match described.rank {
            Some(_) => self.artifact.load_ranks(part.name, options)?,
            None => self.artifact.load(described, runtime, options)?,
        };
        let candidate = if self.options.replay { Box::new(AsBound(candidate)) } else { candidate };
        note_elsewhere(candidate.as_ref(), self.note);
        let mut specs = input_specs(candidate.inputs(), described, self.artifact.manifest.pad_token_id)?;
        // A file that cannot be read is no reason to verify nothing.
        let samples = token_samples(&self.artifact.folder).unwrap_or_default();
        specs.iter_mut().for_each(|spec| spec.samples = samples);
        Ok(Pair {
            name: part.name.to_owned(),
            interface: described.interface(),
            specs,
            reference: self.reference(part, options)?,
            candidate,
            merged: merged.and_then(|both| Branch::of(both, described)),
            logits: described.logits_form(),
        })
    }

    /// The reference. Quantized operators round where other kernels of them need not, so those of ONNX
    /// Runtime are compared with its own.
    fn reference(&self, part: &Part, options: SessionOptions) -> Result<Reference> {
        let graph = &part.graph;
        let interpreter = || Interpreter { limits: reference_limits(graph) }.load(Model::Graph(graph), options);
        let VerifyOptions { settings, threads, .. } = self.options;
        let file = self.model.onnx_file(part.name, settings.ort_library.clone(), *threads);
        let Some(file) = &file else { return Ok(Reference::interpreter(interpreter()?)) };
        if is_quantized(self.source) {
            match Reference::onnx_file(interpreter()?, graph, file) {
                Err(error) if !is_unavailable(&error) => {}
                reference => return reference,
            }
        }
        Ok(Reference::interpreter_or(interpreter()?, graph, file.clone()))
    }
}

/// A session whose runs are those of bound inputs.
struct AsBound(Box<dyn Session>);

impl Session for AsBound {
    fn inputs(&self) -> &[Port] {
        self.0.inputs()
    }

    fn outputs(&self) -> &[Port] {
        self.0.outputs()
    }

    fn name_dimensions(&mut self, ports: &[Port]) {
        self.0.name_dimensions(ports);
    }

    fn elsewhere(&self) -> &[String] {
        self.0.elsewhere()
    }

    fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        self.0.run_as_bound(inputs)
    }

    fn run_values(&mut self, inputs: &[(&str, &RuntimeValue)]) -> Result<Vec<(String, RuntimeValue)>, RuntimeError> {
        self.0.run_values(inputs)
    }

    fn bind(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError> {
        self.0.bind(inputs)
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        self.0.run_bound()
    }
}

/// The values of the inputs of a part of a model; `pad` is the id that pads short sequences.
pub fn input_specs(ports: &[Port], part: &PartManifest, pad: Option<i64>) -> Result<Vec<InputSpec>> {
    let values = |input: &Input| {
        let values = match (input.role, input.end) {
            (InputRole::Mask | InputRole::EncoderMask, _) => Values::Mask,
            (InputRole::Positions, _) => Values::Positions,
            (InputRole::PointLabels, _) => Values::PointLabels,
            (InputRole::TokenTypes, Some(count)) => Values::Segments { count },
            (_, Some(end)) => Values::Ids { range: 0..end, pad },
            (_, None) => Values::Noise,
        };
        (input.value.name.clone(), values)
    };
    let known: BTreeMap<String, Values> = part.inputs.iter().map(values).collect();
    Ok(specs(ports, &known, part.interface())?)
}

/// How many samples a model makes a frame of, by the files of its artifact.
fn token_samples(folder: &Path) -> Result<Option<TokenSamples>> {
    let (step, first) = (frame_samples(folder)?, fewest_samples(folder)?);
    Ok(step.zip(first).map(|(step, first)| TokenSamples { step: step as usize, first }))
}

/// Whether something failed for want of a runtime.
fn is_unavailable(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref::<RuntimeError>(), Some(RuntimeError::Unavailable(_))))
}
