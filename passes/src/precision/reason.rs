//! Why operators stay in float32.

use std::collections::HashMap;
use std::fmt;

use planish_ir::handle::Handle;
use planish_ir::ops::BinaryKind;
use planish_ir::{DType, Graph, Node, Op, Value, ValueId};
use serde::{Deserialize, Serialize};

use super::kind::{Fact, attention_bias};
use super::{HalfPrecision, Loss};
use crate::observe::scores_name;
use crate::{KeptType, Named};

/// An operator, or on targets that compute in float32 a weight, that is kept in float32.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The name of its first result, or of the weight.
    pub name: String,
    /// What messages call the operator, or `weight`.
    pub operator: String,
    /// Where it came from.
    pub origin: String,
    /// Why.
    pub reason: String,
}

impl Kept {
    /// An operator.
    pub(super) fn operator(graph: &Graph, node: &Node, reason: &Reason) -> Self {
        Self::value(graph.value(node.outputs[0]), node.op.kind(), reason)
    }

    /// A weight.
    pub(super) fn weight(weight: &Value, reason: &Reason) -> Self {
        Self::value(weight, "weight", reason)
    }

    fn value(value: &Value, operator: &str, reason: &Reason) -> Self {
        let (origin, reason) = (value.origin.to_string(), reason.to_string());
        Self { name: value.name.clone(), operator: operator.to_owned(), origin, reason }
    }
}

/// Why something is kept in float32.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reason {
    /// A weight that overflows or underflows in the half type.
    Weight(Loss),
    /// A value beyond the limit.
    Activation {
        /// The value, or the scores of an attention.
        name: String,
        /// Its largest magnitude.
        magnitude: f64,
        /// The limit.
        limit: f64,
    },
    /// A value of unknown range, which comes from a weight that overflows.
    Unbounded(String),
    /// The weight that it looks rows up in is one that another operator takes in float32.
    Shared(String),
    /// The graph has it in this half type, which is not the one that is asked for.
    OtherHalf(DType),
    /// It passes through as it is.
    PassesThrough,
    /// It gives the numbers by which this is chosen.
    Choice(String),
    /// It makes features of recordings.
    Processing,
    /// It was asked for by this pattern.
    Asked(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Weight(Loss { name, overflows, elements, max_abs, .. }) if *overflows > 0 => {
                write!(
                    f,
                    "{overflows} of {elements} elements of the weight `{name}` overflow or are not numbers; the largest is {max_abs:.3e}"
                )
            }
            Reason::Weight(Loss { name, max_abs, relative_error, .. }) => write!(
                f,
                "the weight `{name}` underflows: its largest element is {max_abs:.3e}, its relative error {relative_error:.1e}"
            ),
            Reason::Activation { name, magnitude, limit } => {
                write!(f, "`{name}` reaches {magnitude:.3e}, the limit is {limit:.3e}")
            }
            Reason::Unbounded(name) => write!(
                f,
                "`{name}` comes from a weight that overflows; --calibrate with data says how large it really is"
            ),
            Reason::Shared(weight) => write!(f, "its table `{weight}` stays one with that of an operator in float32"),
            Reason::OtherHalf(dtype) => write!(f, "the graph computes it in {dtype}, which is not the requested type"),
            Reason::PassesThrough => f.write_str("it passes through as it is"),
            Reason::Choice(chosen) => write!(f, "`{chosen}` is chosen by it"),
            Reason::Processing => f.write_str("it makes features of recordings"),
            Reason::Asked(pattern) => write!(f, "asked for by `{pattern}`"),
        }
    }
}

/// Why an operator is to keep float32: the last exception that names it says so.
pub(super) fn asked(graph: &Graph, node: &Node, precision: &HalfPrecision, matched: &mut [bool]) -> Option<Reason> {
    let mut found = None;
    for (exception, matched) in precision.keep.0.iter().zip(matched) {
        let Named::Names(pattern) = &exception.of else { continue };
        let weights = node.op.operands().into_iter().filter(|operand| graph.weight(*operand).is_some());
        if exception.of.any(node.outputs.iter().copied().chain(weights).map(|value| graph.value(value))) {
            *matched = true;
            found = (exception.ty == KeptType::Single).then(|| Reason::Asked(pattern.to_string()));
        }
    }
    found
}

/// What speaks against half precision.
pub(super) fn evidence(
    graph: &Graph,
    node: &Node,
    precision: &HalfPrecision,
    unfit: &HashMap<ValueId, &Loss>,
    facts: &[Fact],
) -> Option<Reason> {
    let mut operands = node.op.operands();
    // It is added in float32 in any case.
    let bias = attention_bias(&node.op);
    operands.retain(|operand| Some(*operand) != bias);
    if let Some(operand) = operands.iter().find(|operand| facts[operand.index()].unbounded) {
        return Some(Reason::Unbounded(graph.value(*operand).name.clone()));
    }
    // The smaller or larger of a number and infinity is the number.
    let clamps = matches!(&node.op, Op::Binary(p) if matches!(p.kind, BinaryKind::Min | BinaryKind::Max));
    let losses = operands.iter().filter_map(|operand| unfit.get(operand));
    if let Some(loss) = losses.into_iter().find(|loss| !clamps || loss.overflows == 0) {
        return Some(Reason::Weight((*loss).clone()));
    }
    let names = node.outputs.iter().chain(&operands).map(|value| graph.value(*value).name.clone());
    let scores = matches!(node.op, Op::Attention(_)).then(|| scores_name(&graph.value(node.outputs[0]).name));
    names.chain(scores).find_map(|name| {
        let magnitude = *precision.observed.get(&name)?;
        let limit = precision.max_abs;
        // What is not a number exceeds every limit.
        (magnitude > limit || magnitude.is_nan()).then_some(Reason::Activation { name, magnitude, limit })
    })
}
