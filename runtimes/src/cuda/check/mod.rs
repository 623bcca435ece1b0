//! The check of kernels on a device: graphs of one operator, or of a few, against the reference interpreter.

mod attention;
mod best;
mod elements;
mod layers;
mod norms;
mod packed;
mod quantized;

use std::fmt;
use std::sync::Arc;

use planish_eval::{Tensor, evaluate};
use planish_ir::{Bindings, DType, Dim, Graph, InputRole, text};

use super::device::Device;
use super::program::{Style, Target};
use super::session::GraphSession;
use super::{Cuda, RuntimeError};
use crate::{Runtime, Session, Unavailable};

/// A graph with random inputs.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// What is checked.
    pub(super) name: String,
    statements: String,
    sizes: Vec<(&'static str, i64)>,
    seed: u64,
    /// The elements of the input `m` or `attention_mask` by their indices, in place of random ones.
    mask: Option<fn(usize, usize) -> bool>,
    /// Whether fused kernels compute it without the padding of `attention_mask`.
    is_packed: bool,
}

impl Case {
    fn new(name: impl fmt::Display, statements: impl Into<String>, sizes: &[(&'static str, i64)], seed: u64) -> Self {
        let (statements, sizes) = (statements.into(), sizes.to_vec());
        Self { name: name.to_string(), statements, sizes, seed, mask: None, is_packed: false }
    }
}

/// What is run on a device and compared with the host.
pub(super) enum Check {
    /// A graph, with the interpreter.
    Graph(Case),
    /// The best scores of rows, with those of sorting.
    Best(best::Rows),
}

impl Check {
    /// What is checked.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Graph(case) => case.name.clone(),
            Self::Best(rows) => rows.to_string(),
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// The first difference, or what failed.
    pub(super) fn run(&self, device: &Arc<dyn Device>, style: Style) -> Result<(), String> {
        match self {
            Self::Graph(case) => case.check(device, style),
            Self::Best(rows) => rows.check(device),
        }
    }
}

/// All checks, a group after the other.
pub(super) fn groups() -> Vec<(&'static str, Vec<Check>)> {
    let graphs = |cases: Vec<Case>| cases.into_iter().map(Check::Graph).collect();
    vec![
        ("elements", graphs(elements::cases())),
        ("norms", graphs(norms::cases())),
        ("layers", graphs(layers::cases())),
        ("quantized", graphs(quantized::cases())),
        ("attention", graphs(attention::cases())),
        ("packed", graphs(packed::cases())),
        ("best", best::cases().into_iter().map(Check::Best).collect()),
    ]
}

/// What a check of kernels found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelCheck {
    /// The cases that passed.
    pub passed: usize,
    /// The cases that failed, and why.
    pub failed: Vec<String>,
}

/// Runs the kernels of a runtime on small graphs and rows, and compares what they give with the reference interpreter. All memory is
/// filled with bytes that are no numbers first. `before` is told of each group of cases, with their number.
///
/// # Errors
/// When the runtime is unavailable.
pub fn check_kernels(runtime: Cuda, before: &mut dyn FnMut(&str, usize)) -> Result<KernelCheck, Unavailable> {
    let device = runtime.device()?;
    let mut found = KernelCheck::default();
    for (group, checks) in groups() {
        before(group, checks.len());
        for check in checks {
            match check.run(&device, runtime.style()) {
                Ok(()) => found.passed += 1,
                Err(reason) => found.failed.push(format!("{}: {reason}", check.name())),
            }
        }
    }
    Ok(found)
}

/// The graphs of all checks, with what their symbols stand for.
///
/// # Errors
/// When the statements of a case are no graph.
pub(super) fn graphs() -> Result<Vec<(Graph, Bindings)>, String> {
    let cases = groups().into_iter().flat_map(|(_, checks)| checks).filter_map(|check| match check {
        Check::Graph(case) => Some(case),
        Check::Best(_) => None,
    });
    cases.map(|case| Ok((graph(&case.statements)?, bindings_of(&case.sizes)))).collect()
}

/// What the symbols of a graph stand for.
fn bindings_of(sizes: &[(&str, i64)]) -> Bindings {
    let symbol = |name: &str| Dim::symbol(name).as_symbol().cloned();
    sizes.iter().filter_map(|(name, size)| Some((symbol(name)?, *size))).collect()
}

/// A graph of statements.
pub(super) fn graph(statements: &str) -> Result<Graph, String> {
    let graph = text::parse(&format!("graph \"check\" {{\n{statements}\n}}"), &text::no_files);
    let mut graph = graph.map_err(|e| e.to_string())?;
    planish_onnx::interface::state(&mut graph);
    Ok(graph)
}

/// A session of a graph, whose memory is filled before runs.
pub(super) fn session(graph: &Graph, device: &Arc<dyn Device>, style: Style) -> Result<GraphSession, RuntimeError> {
    let runtime = match style {
        Style::Fused => Cuda::Fused,
        Style::Unfused => Cuda::Baseline,
    };
    let model = graph.name.clone();
    let target = Target::of(style, device.as_ref());
    let target =
        target.map_err(|reason| RuntimeError::Failed { runtime: runtime.name(), action: "load", model, reason })?;
    let mut session =
        GraphSession::load(runtime.name(), graph.name.clone(), graph.clone(), device.clone(), target, true)?;
    session.fill = true;
    Ok(session)
}

/// Random elements for the inputs of a graph, with sizes for its symbols: floats between -2 and 2, integers from 0 to 6,
/// booleans of which most are true.
pub(super) fn inputs(graph: &Graph, sizes: &[(&str, i64)], seed: u64) -> Result<Vec<(String, Tensor)>, String> {
    let bindings = bindings_of(sizes);
    let one = |(at, input): (usize, &planish_ir::ValueId)| {
        let (ty, name) = (graph.ty(*input), graph.value(*input).name.clone());
        let shape = ty.shape.evaluate(&bindings).ok_or_else(|| format!("`{name}` has no sizes"))?;
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(at as u64 + 1);
        let mut next = || {
            // Xorshift (Marsaglia 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let number = |_| match ty.dtype {
            DType::Bool => f64::from(u8::from(next() < 0.7)),
            dtype if dtype.is_integer() => (next() * 7.0).floor(),
            _ => next() * 4.0 - 2.0,
        };
        let numbers: Vec<f64> = (0..shape.iter().product::<usize>()).map(number).collect();
        let tensor = Tensor::from_f64(ty.dtype, shape, &numbers).ok_or_else(|| format!("`{name}` has no elements"))?;
        Ok((name, tensor))
    };
    graph.inputs().iter().enumerate().map(one).collect()
}

/// How far results may be from those of the interpreter, relative to the largest element or to 1. The interpreter rounds
/// each result once; the kernels of one operator round several times where the operator is made of parts.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 4e-3,
        DType::Bf16 => 3e-2,
        _ => 3e-5,
    }
}

impl Case {
    /// Runs the case on a device.
    ///
    /// # Errors
    /// The first element that is too far from that of the interpreter, or what failed.
    pub(super) fn check(&self, device: &Arc<dyn Device>, style: Style) -> Result<(), String> {
        let graph = graph(&self.statements)?;
        let mut inputs = inputs(&graph, &self.sizes, self.seed)?;
        let masks = inputs.iter_mut().find(|(name, _)| name == "m" || is_mask(&graph, name));
        if let (Some(mask), Some((_, tensor))) = (self.mask, masks) {
            let (rows, columns) = (tensor.shape()[0], tensor.shape()[1]);
            let element = |at: usize| f64::from(u8::from(mask(at / columns, at % columns)));
            let elements: Vec<f64> = (0..rows * columns).map(element).collect();
            *tensor =
                Tensor::from_f64(tensor.dtype(), vec![rows, columns], &elements).ok_or("the mask has no elements")?;
        }
        let mut session = session(&graph, device, style).map_err(|e| e.to_string())?;
        if self.is_packed && style == Style::Fused {
            let mask = inputs.iter().find(|(name, _)| is_mask(&graph, name)).filter(|(_, mask)| session.packs(mask));
            mask.ok_or("the batch is not computed without its padding")?;
        }
        compare(&graph, &mut session, &inputs)
    }
}

/// Whether an input says which positions have a token.
fn is_mask(graph: &Graph, input: &str) -> bool {
    graph.interface.input(input) == InputRole::Mask
}

/// Where a batch has padding.
struct Padding {
    /// The elements of the mask.
    tokens: Vec<f64>,
    /// Whether outputs have zeros there.
    zeros: bool,
}

impl Padding {
    /// Whether an output has something for each position of the mask.
    fn is_of(&self, graph: &Graph, output: &str) -> bool {
        let mask = graph.inputs().iter().find(|input| is_mask(graph, &graph.value(**input).name));
        let output = graph.outputs().iter().find(|other| other.name == output);
        let dims = mask.zip(output).map(|(mask, output)| [*mask, output.value].map(|value| &graph.ty(value).shape[..]));
        dims.is_some_and(|[mask, output]| output.starts_with(mask))
    }

    /// Whether element `at` of `count` of such an output is of padding.
    fn has(&self, at: usize, count: usize) -> bool {
        self.tokens[at / (count / self.tokens.len())] == 0.0
    }
}

/// Runs a session and the interpreter, and compares all outputs: those of a run, and those of a replay of the recorded run. Those for each token are compared where the mask
/// has one; elsewhere they are 0 if the session computes the batch without its padding.
///
/// # Errors
/// As [`Case::check`].
pub(super) fn compare(graph: &Graph, session: &mut GraphSession, inputs: &[(String, Tensor)]) -> Result<(), String> {
    let named: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let expected = evaluate(graph, &named).map_err(|e| e.to_string())?;
    let mask = inputs.iter().find(|(name, _)| is_mask(graph, name)).map(|(_, mask)| mask);
    let padding = mask.map(|mask| Padding { tokens: mask.to_f64(), zeros: session.packs(mask) });
    let given = session.run(&named).map_err(|e| e.to_string())?;
    same(graph, &given, &expected, padding.as_ref())?;
    let given = session.run_as_bound(&named).map_err(|e| e.to_string())?;
    same(graph, &given, &expected, padding.as_ref()).map_err(|reason| format!("replayed: {reason}"))
}

/// Compares outputs with those of the interpreter.
fn same(
    graph: &Graph,
    given: &[(String, Tensor)],
    expected: &[(String, Tensor)],
    padding: Option<&Padding>,
) -> Result<(), String> {
    for ((name, given), (_, expected)) in given.iter().zip(expected) {
        if (given.dtype(), given.shape()) != (expected.dtype(), expected.shape()) {
            return Err(format!("`{name}` is {}, and should be {}", given.ty(), expected.ty()));
        }
        let (given, wanted) = (given.to_f64(), expected.to_f64());
        let largest = wanted.iter().filter(|x| x.is_finite()).fold(1.0, |most: f64, x| most.max(x.abs()));
        let limit = if expected.dtype().is_float() { largest * tolerance(expected.dtype()) } else { 0.0 };
        let is_near = |given: f64, wanted: f64| {
            (given.is_nan() && wanted.is_nan()) || given == wanted || (given - wanted).abs() <= limit
        };
        let padding = padding.filter(|padding| padding.is_of(graph, name));
        for at in 0..wanted.len() {
            let wanted = match padding.filter(|padding| padding.has(at, wanted.len())) {
                Some(padding) if padding.zeros => 0.0,
                Some(_) => continue,
                None => wanted[at],
            };
            if !is_near(given[at], wanted) {
                return Err(format!("element {at} of `{name}` is {}, and should be {wanted}", given[at]));
            }
        }
    }
    Ok(())
}
