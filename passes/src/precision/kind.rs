//! The kinds of operators that decide their precision.

use planish_ir::handle::Handle;
use planish_ir::ops::{Binary, BinaryKind, Magnitude, Precision};
use planish_ir::{DType, Def, Graph, Node, Op, ValueId};

use super::plan::Computes;

/// What is known of a value once the operator that computes it is planned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fact {
    /// What it comes from.
    pub(super) source: Source,
    /// Whether it is in float32 by its kind and may be too large or too small for half precision: a sum, an exponential,
    /// or what follows one.
    pub(super) wide: bool,
    /// Whether it comes from a weight that overflows, and nothing in between bounds it.
    pub(super) unbounded: bool,
}

impl Fact {
    /// What is known of each value, by index, before any operator is planned.
    pub(super) fn of_inputs(graph: &Graph) -> Vec<Self> {
        let fact = Self { source: Source::Weights, wide: false, unbounded: false };
        let mut facts = vec![fact; graph.value_count()];
        graph.inputs().iter().for_each(|id| facts[id.index()].source = Source::Data);
        facts
    }
}

/// What a float32 value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) enum Source {
    /// Weights alone.
    Weights,
    /// Integers and booleans, and weights.
    Integers,
    /// Something that was looked up or given: the data that flows through the model.
    Data,
}

/// Whether a float32 value goes in or comes out.
pub(super) fn touches(graph: &Graph, node: &Node) -> bool {
    let single = |value: &ValueId| graph.ty(*value).dtype == DType::F32;
    // The bias of an attention may be float32 whatever the rest is.
    let bias = attention_bias(&node.op);
    node.op.operands().iter().any(|v| single(v) && Some(*v) != bias) || node.outputs.iter().any(single)
}

/// What the results of an operator come from; `facts` has that of its operands.
pub(super) fn source(graph: &Graph, node: &Node, facts: &[Fact]) -> Source {
    let operands = node.op.operands();
    let largest = |values: &[ValueId]| {
        let of = |value: &ValueId| match (&graph.value(*value).def, graph.ty(*value).dtype) {
            (Def::Weight(_), _) => Source::Weights,
            (_, DType::F32) => facts[value.index()].source,
            _ => Source::Integers,
        };
        values.iter().map(of).fold(Source::Weights, |a, b| if b > a { b } else { a })
    };
    match &node.op {
        // Angles may be products of positions and frequencies.
        op if op.is_product() && !matches!(op, Op::Attention(_)) && largest(&operands) == Source::Integers => {
            Source::Integers
        }
        op if op.is_product() => Source::Data,
        Op::Embedding(_) | Op::Rotary(_) | Op::Foreign(_) => Source::Data,
        Op::Iota(_) => Source::Integers,
        // Rows of a table are data, whatever picks them.
        Op::Gather(_) if graph.weight(operands[0]).is_some() => Source::Data,
        Op::Gather(_) => largest(&operands[..1]),
        Op::Cast(p) if graph.ty(p.x).dtype.is_float() && graph.ty(p.x).dtype != DType::F32 => Source::Data,
        _ => largest(&operands),
    }
}

/// What an operator computes in by its kind.
pub(super) fn by_kind(graph: &Graph, node: &Node, source: Source, max_abs: f64) -> Computes {
    if graph.ty(node.outputs[0]).dtype != DType::F32 && !matches!(node.op, Op::Foreign(_)) {
        return Computes::Operands;
    }
    let single = match &node.op {
        _ if source == Source::Integers => true,
        // Numbers of this size are masks: what they are added to must not reach the end of the range.
        Op::Binary(Binary { kind: BinaryKind::Add | BinaryKind::Sub | BinaryKind::Mul, a, b }) => {
            [a, b].into_iter().any(|v| exceeds(graph, *v, max_abs))
        }
        op => op.row().precision == Precision::Single,
    };
    if single { Computes::Single } else { Computes::Half }
}

/// Whether a value is one number, known and larger than a limit.
fn exceeds(graph: &Graph, value: ValueId, limit: f64) -> bool {
    graph.number(value).is_some_and(|number| number.is_finite() && number.abs() > limit)
}

/// Whether results that are in float32 by kind may be as large or as small as only float32 holds, whatever the operands
/// are: sums, powers, integers.
pub(super) fn is_wide(graph: &Graph, op: &Op) -> bool {
    /// Operators that pass through whose results are as large as those of a linear layer, or bounded.
    const MODERATE: [&str; 12] = [
        "AveragePool",
        "BatchNormalization",
        "ConvTranspose",
        "GRU",
        "GlobalAveragePool",
        "GroupNormalization",
        "HardSigmoid",
        "InstanceNormalization",
        "LSTM",
        "MaxPool",
        "RNN",
        "Resize",
    ];
    match op {
        Op::Cast(p) => graph.ty(p.x).dtype != DType::Bool,
        Op::Foreign(p) => !MODERATE.iter().any(|op| p.is(op)),
        _ => op.row().magnitude == Magnitude::Any,
    }
}

/// Whether an operator computes in float32 where an operand comes from float32 and may be as large or as small as
/// only float32 holds. Products do not: they are what half precision is for.
pub(super) fn follows(op: &Op) -> bool {
    !op.is_product() && !matches!(op, Op::Rotary(_) | Op::Embedding(_))
}

/// Whether an operator looks rows of a table of weights up: the table stays as it is whatever uses the rows.
pub(super) fn looks_up(graph: &Graph, op: &Op) -> bool {
    match op {
        Op::Embedding(_) => true,
        Op::Gather(p) => graph.weight(p.x).is_some(),
        _ => false,
    }
}

/// Whether results are of moderate size, or as far as can be said so, whatever the size of the operands.
pub(super) fn is_bounded(op: &Op) -> bool {
    op.row().magnitude == Magnitude::Bounded
}

/// The bias of an attention, which is added where its softmax is computed: in float32.
pub(super) fn attention_bias(op: &Op) -> Option<ValueId> {
    match op {
        Op::Attention(p) => p.bias,
        _ => None,
    }
}
