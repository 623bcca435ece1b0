//! The check that the target has a kernel for every operator.

pub(crate) mod native;
pub(crate) mod openvino;
pub(crate) mod tables;
pub(crate) mod tensorrt;

use planish_ir::ops::{Foreign, Row};
use planish_ir::{DType, Graph, Node, Op, ValueId};

use super::quantized::{MICROSOFT, unfit};
use super::{attention, mask};
use crate::{AttentionForm, Example, ONNX, Options, Outcome, Pass, PassError, QuantizedForm, Target};

/// Checks that the target has a kernel for every operator and its element type.
pub const CHECK_KERNELS: Pass = Pass {
    name: "check-kernels",
    summary: "Checks that the target has a kernel for every operator and the element types of its operands. The error \
              lists every operator that the target has no kernel for.",
    numerics: "none",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[n]
            %y = relu(%x) : f32[n]
            output y = %y",
        after: "
            input %x: f32[n]
            %y = relu(%x) : f32[n]
            output y = %y",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let operators = unsupported(graph, options);
    if operators.is_empty() {
        return Ok(Outcome::default());
    }
    Err(PassError::Unsupported { target: options.target, opset: options.opset, operators })
}

/// A line for each input, weight and operator that the target cannot run.
fn unsupported(graph: &Graph, options: &Options) -> Vec<String> {
    let line = |kind: &str, value: ValueId, reason: String| {
        let value = graph.value(value);
        format!("\n  `{kind}` at `{}` ({}): {reason}", value.name, value.origin)
    };
    let inputs = graph.inputs().iter().map(|input| ("input", *input));
    let weights = graph.weights().map(|(weight, ..)| ("weight", weight));
    let values = inputs.chain(weights).filter_map(|(kind, value)| {
        let reason = (options.target.kernels.value)(graph, value)?;
        Some(line(kind, value, reason))
    });
    let nodes = graph.nodes().filter_map(|(_, node)| {
        let reason = missing(graph, node, options)?;
        Some(line(node.op.kind(), node.outputs[0], reason))
    });
    values.chain(nodes).collect()
}

/// The operators that a target runs.
#[derive(Clone, Copy)]
pub struct Kernels {
    /// Why the target has no kernel for an operator on operands of these element types at an opset; `None` where it has
    /// one.
    pub missing: fn(&Signature, opset: u32) -> Option<String>,
    /// The domains of which the target runs operators that pass through, in the order in which messages list them.
    pub domains: &'static [&'static str],
    /// Why the target cannot run an operator of the graph that it has a kernel for by its element types.
    pub node: fn(&Node) -> Option<String>,
    /// Why the target cannot run an operator that passes through, of one of these domains. Operators of the default
    /// domain are what they are at the opset that is written: the export checks that.
    pub foreign: fn(&Graph, &Foreign) -> Option<String>,
    /// Why the target cannot hold an input or a weight.
    pub value: fn(&Graph, ValueId) -> Option<String>,
}

/// An operator and the element types that a kernel is chosen by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The operator.
    pub row: &'static Row,
    /// The element types of the operands that are there, each with the name of the operand, e.g. `weight`, in the order
    /// of the text form.
    pub operands: Vec<(&'static str, DType)>,
    /// The element types of the results.
    pub results: Vec<DType>,
}

impl Signature {
    /// That of a node of a graph.
    #[must_use]
    pub fn of(graph: &Graph, node: &Node) -> Self {
        let mut operands = Vec::new();
        node.op.visit_named_operands(&mut |name, value| operands.push((name, graph.ty(value).dtype)));
        let results = node.outputs.iter().map(|value| graph.ty(*value).dtype).collect();
        Self { row: node.op.row(), operands, results }
    }

    /// The element type of the numbers that the operator works on: that of its [subject](Row::subject), or of its result
    /// where it has none.
    #[must_use]
    pub fn subject(&self) -> Option<DType> {
        self.row.subject(&self.operands).map(|at| self.operands[at].1).or(self.results.first().copied())
    }
}

/// Why the target cannot run a node.
fn missing(graph: &Graph, node: &Node, options: &Options) -> Option<String> {
    match &node.op {
        Op::Foreign(foreign) => missing_foreign(graph, foreign, options.target),
        Op::Attention(p)
            if options.attention != AttentionForm::Whole && (mask::is_needed(p) || !attention::has_operator(p)) =>
        {
            Some("no kernel".to_owned())
        }
        Op::FakeQuantize(p) if options.target.quantized == QuantizedForm::Codes && unfit(p).is_some() => unfit(p),
        _ => (options.target.kernels.missing)(&Signature::of(graph, node), options.opset)
            .or_else(|| (options.target.kernels.node)(node)),
    }
}

/// Why the target cannot run an operator that passes through, or one in its graphs.
fn missing_foreign(graph: &Graph, foreign: &Foreign, target: &Target) -> Option<String> {
    let domains = target.kernels.domains;
    if domains.is_empty() {
        let why = format!("target {target} runs the operators of planish's graph only");
        let quantizes = ["QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"].iter().any(|op| foreign.is(op));
        return Some(if quantizes { format!("{why}, and quantization to i8 with fixed scales") } else { why });
    }
    let inner = foreign.inner.0.iter().map(|inner| (&inner.op, &inner.domain));
    let unknown = std::iter::once((&foreign.op.0, &foreign.domain.0))
        .chain(inner)
        .find(|(_, domain)| !domains.contains(&domain.as_str()));
    let Some((op, domain)) = unknown else { return (target.kernels.foreign)(graph, foreign) };
    Some(format!("operator {op} of the domain {domain}: target {target} has those of {}", domains.join(", ")))
}
