//! Operators that exporters of half precision put between casts, to compute inside in float32.

use planish_ir::ops::{Attention, Cast, Flag, Unary, UnaryKind};
use planish_ir::weight::WeightExpr;
use planish_ir::{DType, NodeId, Op, Rewriter, Weight};

use super::pattern::{op, widened};
use super::{Found, NoMatch, Rule};

/// `cast(norm(cast(x)))`, and the same of activations and attention, which compute in float32 whatever
/// their operands are.
pub(super) const NARROW: Rule = Rule { name: "half precision", find: narrow };

fn narrow(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Cast(Cast { x, to }) = graph.node(node).op else { return Err(NoMatch::Other) };
    let Some(inner) = op(graph, x).filter(|op| matches!(to, DType::F16 | DType::Bf16) && is_wide_inside(op)).cloned()
    else {
        return Err(NoMatch::Other);
    };
    let output = graph.node(node).outputs[0];
    let mut operands = Vec::new();
    for operand in inner.operands() {
        if graph.ty(operand).dtype != graph.ty(x).dtype {
            continue;
        }
        let half = match (widened(graph, operand), graph.weight(operand)) {
            (Some(half), _) if graph.ty(half).dtype == to => half,
            (None, Some(weight)) if weight.shape().len() == 1 => match in_half(weight, to) {
                Some(weight) => graph.weight_like(weight, operand),
                None => return Err(NoMatch::Miss(format!("`{}` does not fit {to}", graph.value(operand).name))),
            },
            // A bias may stay in float32.
            _ if graph.ty(operand).dtype == DType::F32
                && matches!(&inner, Op::Attention(p) if p.bias == Some(operand)) =>
            {
                continue;
            }
            _ => return Err(NoMatch::Other),
        };
        operands.push((operand, half));
    }
    let mut narrowed = inner;
    narrowed
        .visit_operands_mut(&mut |v| *v = operands.iter().find(|(wide, _)| wide == v).map_or(*v, |(_, half)| *half));
    Ok(vec![graph.emit(narrowed, output)?])
}

/// Whether an operator of half operands computes inside in float32, and has one result.
fn is_wide_inside(op: &Op) -> bool {
    matches!(
        op,
        Op::LayerNorm(_)
            | Op::RmsNorm(_)
            | Op::Gelu(_)
            | Op::Unary(Unary { kind: UnaryKind::Silu, .. })
            | Op::Attention(Attention { present: Flag(false), .. })
    )
}

/// A vector in a half type, where none of its elements becomes infinite. What cannot be read, the export
/// reports.
fn in_half(weight: &Weight, to: DType) -> Option<Weight> {
    if let WeightExpr::Cast(of) = weight.expr()
        && of.dtype() == to
    {
        return Some(of.clone());
    }
    let weight = weight.cast(to)?;
    match weight.read_numbers() {
        Ok(numbers) if numbers.iter().any(|n| !n.is_finite()) => None,
        _ => Some(weight),
    }
}
