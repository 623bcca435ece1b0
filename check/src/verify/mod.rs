//! Comparing the outputs of two runs of a model.

mod artifact;
mod cases;
mod compare;
mod memory;
mod merged;
mod parts;
mod reference;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use planish_artifact::verification::{
    CaseReport, LogitsForm, OutputReport, ReferenceKind, Report, Skipped, Tolerances,
};
use planish_data::inputs::{InputError, InputSpec};
use planish_eval::Tensor;
use planish_ir::{Graph, PartInterface};
use planish_runtimes::{RuntimeError, Session};

pub use artifact::input_specs;
pub use artifact::{Verified, VerifyOptions, verify_artifact, verify_compiled};
pub use cases::{Case, Plan, plans};
pub use cases::{continued, first_tokens};
pub use compare::{compare, per_token};
pub use memory::reference_limits;
pub use merged::Branch;
pub use parts::verify_parts;
pub use reference::{NothingRan, Reference};

use reference::Run;

/// A model, or a part of one, on the reference and on the runtime under test.
pub struct Pair {
    /// The part's name.
    pub name: String,
    /// What its tensors are.
    pub interface: PartInterface,
    /// The inputs and their values.
    pub specs: Vec<InputSpec>,
    /// The reference.
    pub reference: Reference,
    /// The compiled model.
    pub candidate: Box<dyn Session>,
    /// The same part in a graph of both decoders, where there is one.
    pub merged: Option<Branch>,
    /// How the candidate's logits differ in shape from the reference's.
    pub logits: LogitsForm,
}

/// Runs both on several cases and compares their outputs; `graph` is the model before any pass, and `longest` the
/// most tokens in a row.
///
/// A case that the reference cannot run, whose shapes the candidate does not take, or that would take more memory than a case may, is skipped, and one of fewer
/// tokens or of other sides of images is run instead where that can be; the report names both. What only the candidate fails at misses.
///
/// # Errors
/// When inputs cannot be made, and when no case can be run.
pub fn verify(
    pair: &mut Pair,
    graph: &Graph,
    longest: Option<usize>,
    seed: u64,
    tolerances: Tolerances,
) -> Result<Report> {
    check_inputs(graph)?;
    let plans = plans(&pair.specs, longest);
    loop {
        match against_one(pair, graph, &plans, seed, tolerances)? {
            Some(report) if report.cases.is_empty() => {
                return Err(pair.reference.nothing_ran(&report.skipped, is_open(graph)));
            }
            Some(report) => return Ok(report),
            // Another reference has taken over, which all cases are compared with.
            None => {}
        }
    }
}

/// Values are made for tensors of a known number of dimensions.
fn check_inputs(graph: &Graph) -> Result<(), InputError> {
    let other = graph.inputs().iter().map(|input| graph.value(*input)).find(|value| value.ty.as_tensor().is_none());
    other.map_or(Ok(()), |value| Err(InputError::Type { input: value.name.clone(), ty: value.ty.clone() }))
}

/// Whether a graph leaves sizes of its inputs open.
fn is_open(graph: &Graph) -> bool {
    graph.inputs().iter().any(|input| graph.ty(*input).shape.iter().any(|dim| dim.as_constant().is_none()))
}

/// The report on all cases; `None` where another reference takes over.
fn against_one(
    pair: &mut Pair,
    graph: &Graph,
    plans: &[Plan],
    seed: u64,
    tolerances: Tolerances,
) -> Result<Option<Report>> {
    let mut report = Report { reference: pair.reference.kind(), tolerances, cases: Vec::new(), skipped: Vec::new() };
    let mut tried = HashSet::new();
    // Cases that failed after a long time.
    let mut slow: Vec<(Plan, String)> = Vec::new();
    for plan in plans {
        let (mut next, mut refused, mut instead) = (Some(*plan), None, None);
        while let Some(plan) = next.filter(|plan| tried.insert(*plan)) {
            if let Some((smaller, reason)) = slow.iter().find(|(smaller, _)| smaller.is_within(&plan)) {
                refused.get_or_insert_with(|| format!("{} was not run: {reason}", smaller.label()));
                next = plan.instead();
                continue;
            }
            let start = Instant::now();
            match pair.run(plan, graph, seed)? {
                Outcome::Compared(expected, actual, inputs) => {
                    report.cases.push(pair.report(plan, &expected, actual, &inputs, tolerances));
                    instead = Some(plan.label());
                    break;
                }
                Outcome::Refused(reason) => {
                    if start.elapsed() > SLOW {
                        slow.push((plan, reason.clone()));
                    }
                    refused.get_or_insert(reason);
                    next = plan.instead();
                }
                Outcome::Replaced => return Ok(None),
            }
        }
        if let Some(reason) = refused {
            report.skipped.push(Skipped { label: plan.label(), reason, instead });
        }
    }
    Ok(Some(report))
}

/// How long a case takes to fail where larger ones, which take as long, are not run any more: those of endless loops.
const SLOW: Duration = Duration::from_secs(10);

/// Whether an error says that planish has no inputs on which a model can be compared: then data may be.
#[must_use]
pub fn needs_data(error: &anyhow::Error) -> bool {
    error.downcast_ref::<NothingRan>().is_some() || error.downcast_ref::<InputError>().is_some()
}

/// Names and tensors.
type Named = Vec<(String, Tensor)>;

/// The result of a case.
enum Outcome {
    /// The outputs of the reference, the outputs of the candidate, and the inputs of both in the last run.
    Compared(Named, Result<Named, RuntimeError>, Named),
    /// The reason why the reference does not run it, or the candidate does not take its shapes.
    Refused(String),
    /// Another reference takes over.
    Replaced,
}

impl Pair {
    fn run(&mut self, plan: Plan, graph: &Graph, seed: u64) -> Result<Outcome> {
        let case = match self.case(plan, graph, seed) {
            Ok(Ok(case)) => case,
            Ok(Err(reason)) => return Ok(Outcome::Refused(reason)),
            Err(error @ InputError::TooLarge { .. }) => return Ok(Outcome::Refused(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        Ok(match self.reference.run(&case) {
            Run::Ran([inputs, expected]) => match case.run(self.candidate.as_mut()).map(|[_, actual]| actual) {
                Err(RuntimeError::Shapes { reason, .. }) => Outcome::Refused(reason),
                actual => Outcome::Compared(expected, actual, inputs),
            },
            Run::Failed(reason) => Outcome::Refused(reason),
            Run::Replaced => Outcome::Replaced,
        })
    }

    /// The case, or why it takes more memory than it may.
    fn case(&self, plan: Plan, graph: &Graph, seed: u64) -> Result<Result<Case, String>, InputError> {
        let shapes = plan.shapes(&self.specs)?;
        let shapes = self.specs.iter().zip(&shapes).map(|(spec, shape)| (spec.port.name.as_str(), shape.as_slice()));
        match memory::check(graph, shapes) {
            Ok(()) => plan.case(&self.specs, seed).map(Ok),
            Err(reason) => Ok(Err(reason)),
        }
    }

    fn report(
        &mut self,
        plan: Plan,
        expected: &Named,
        actual: Result<Named, RuntimeError>,
        inputs: &Named,
        tolerances: Tolerances,
    ) -> CaseReport {
        // What was written names dimensions as the graph does where that knows them. Other exporters' files may not.
        let mut positions = per_token(self.candidate.as_ref(), &self.interface);
        if self.reference.kind() == ReferenceKind::Interpreter {
            positions.extend(per_token(self.reference.session(), &self.interface));
        }
        let outputs = held(expected, actual, inputs, &positions, (&self.interface, &self.logits), tolerances);
        CaseReport { label: plan.label(), outputs }
    }
}

/// Compares what a candidate gave, if it did.
fn held(
    expected: &Named,
    actual: Result<Named, RuntimeError>,
    inputs: &Named,
    per_token: &[(String, usize)],
    of: (&PartInterface, &LogitsForm),
    tolerances: Tolerances,
) -> Vec<OutputReport> {
    match actual {
        Ok(actual) => compare(expected, &actual, inputs, per_token, of, tolerances),
        Err(error) => {
            let miss = |(output, _): &(String, Tensor)| OutputReport {
                output: output.clone(),
                is_cache: of.0.output(output).cache().is_some(),
                figures: None,
                miss: Some(error.to_string()),
            };
            expected.iter().map(miss).collect()
        }
    }
}

#[cfg(test)]
mod tests;
