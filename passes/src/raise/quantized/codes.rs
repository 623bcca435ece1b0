//! The numbers that codes stand for, and the codes of weights.

use planish_ir::ops::{Expand, Foreign, Gather, Reshape, Setting, Slice, Split, Transpose};
use planish_ir::{DType, Graph, Op, Rewriter, ValueId, Weight};

use super::super::NoMatch;
use super::super::pattern::op;
use super::scheme::{Scheme, input};
use super::{miss, produced};

/// How many operators that move codes are looked through.
const DEPTH: usize = 16;

/// The operand, where a value is its elements in another place.
pub(super) fn moved(graph: &Graph, value: ValueId) -> Option<ValueId> {
    match op(graph, value)? {
        Op::Reshape(Reshape { x, .. })
        | Op::Transpose(Transpose { x, .. })
        | Op::Slice(Slice { x, .. })
        | Op::Split(Split { x, .. })
        | Op::Expand(Expand { x, .. })
        | Op::Gather(Gather { x, .. }) => Some(*x),
        Op::Embedding(embedding) => Some(embedding.weight),
        _ => None,
    }
}

/// The numbers that codes stand for: a weight, or a quantized value, perhaps moved.
pub(super) fn numbers(
    graph: &mut Rewriter<'_>,
    codes: ValueId,
    scheme: &Scheme,
    like: ValueId,
) -> Result<ValueId, NoMatch> {
    let mut path = Vec::new();
    let mut source = codes;
    while let Some(x) = moved(graph, source).filter(|_| path.len() < DEPTH) {
        path.push(source);
        source = x;
    }
    let one_scale = scheme.scales.shape().is_empty();
    if !path.is_empty() && !one_scale {
        return miss(format!("`{}` is moved, and has a scale for each channel", graph.value(source).name));
    }
    let mut value = match graph.weight(source).cloned() {
        Some(weight) => {
            let weight = scheme.dequantize(&weight)?;
            if path.is_empty() { graph.weight_like(weight, like) } else { graph.weight_part(weight, like) }
        }
        None => quantized(graph, source, scheme, like)?,
    };
    for at in path.into_iter().rev() {
        let (before, Some(mut again)) = (moved(graph, at), op(graph, at).cloned()) else { return Err(NoMatch::Other) };
        let index = graph.producer(at).and_then(|node| node.outputs.iter().position(|v| *v == at)).unwrap_or(0);
        again.visit_operands_mut(&mut |v| {
            if Some(*v) == before {
                *v = value;
            }
        });
        value = graph.emit_part(again, like)?[index];
    }
    Ok(value)
}

/// `fake_quantize` of what `QuantizeLinear` takes.
fn quantized(graph: &mut Rewriter<'_>, codes: ValueId, scheme: &Scheme, like: ValueId) -> Result<ValueId, NoMatch> {
    let to = graph.ty(codes).dtype;
    let name = &graph.value(codes).name;
    let Some(quantize) = produced(graph, codes, &["QuantizeLinear"]) else {
        return match op(graph, codes) {
            Some(Op::Foreign(other)) => {
                miss(format!("the codes `{name}` come from {}, not from QuantizeLinear", other.op.0))
            }
            _ => miss(format!("the codes `{name}` do not come from QuantizeLinear")),
        };
    };
    let Some(x) = input(quantize, 0) else { return Err(NoMatch::Other) };
    is_plain(quantize)?;
    let shape = graph.ty(codes).shape.clone();
    let before = Scheme::of(graph, quantize, 1, to, &shape)?;
    if !before.scales.shape().is_empty() {
        return miss(format!("`{name}` has a scale for each channel"));
    }
    if !before.is(scheme) {
        return miss(format!("`{name}` was quantized with another scale or zero point"));
    }
    if graph.ty(x).dtype != scheme.scales.dtype() {
        return miss(format!("`{name}` are codes of {} with scales of {}", graph.ty(x).dtype, scheme.scales.dtype()));
    }
    let Some(fake) = scheme.fake(x, to) else { return miss(format!("the scale of `{name}` cannot be read")) };
    Ok(graph.emit(fake, like)?)
}

/// Whether a `QuantizeLinear` computes in the type of its operand and saturates.
fn is_plain(quantize: &Foreign) -> Result<(), NoMatch> {
    let saturates = quantize.setting("saturate").is_none_or(|setting| *setting == Setting::Int(1));
    let precision = quantize.setting("precision").is_none_or(|setting| *setting == Setting::Int(0));
    if saturates && precision {
        Ok(())
    } else {
        miss("it does not saturate, or it has a precision of its own".to_owned())
    }
}

/// The codes that `QuantizeLinear` gives for a weight.
pub(super) fn codes_of(graph: &Graph, quantize: &Foreign, weight: &Weight, output: ValueId) -> Result<Weight, NoMatch> {
    is_plain(quantize)?;
    let to: DType = graph.ty(output).dtype;
    let shape = graph.ty(output).shape.clone();
    let scheme = Scheme::of(graph, quantize, 1, to, &shape)?;
    match weight.quantize(to, scheme.axis, &scheme.scales, scheme.zero_points.as_ref()) {
        Some(codes) if weight.dtype() == DType::F32 => Ok(codes),
        _ => miss(format!("codes of {to} are not computed from {} here", weight.dtype())),
    }
}
