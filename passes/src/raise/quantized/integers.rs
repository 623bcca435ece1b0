//! Products of integers with a weight, whose results are numbers.

use planish_ir::ops::{Binary, BinaryKind, Cast, FakeQuantize, Flag, Foreign, Linear};
use planish_ir::{DType, Graph, NodeId, Op, Rewriter, ValueId};

use super::super::pattern::{binary, op};
use super::super::{Found, NoMatch, Rule};
use super::codes::numbers;
use super::scheme::{Scheme, input};
use super::{foreign, miss, produced};

/// `DynamicQuantizeMatMul` with a weight.
pub(super) const DYNAMIC: Rule = Rule { name: "quantized product", find: dynamic };

fn dynamic(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let found = foreign(graph, node, &["DynamicQuantizeMatMul"])?.clone();
    let output = graph.node(node).outputs[0];
    let [Some(x), Some(b), Some(scale)] = [0, 1, 2].map(|at| input(&found, at)) else { return Err(NoMatch::Other) };
    let weight = weight(graph, b, scale, input(&found, 3))?;
    let x = graph.part(FakeQuantize::dynamic(x), output)?;
    Ok(vec![graph.emit(Linear { x, weight, bias: input(&found, 4), transposed: Flag(true) }, output)?])
}

/// `MatMulIntegerToFloat` of a quantized value and a weight.
pub(super) const TO_FLOAT: Rule = Rule { name: "quantized product", find: to_float };

fn to_float(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let found = foreign(graph, node, &["MatMulIntegerToFloat"])?.clone();
    let output = graph.node(node).outputs[0];
    let [Some(a), Some(b), Some(a_scale), Some(b_scale)] = [0, 1, 2, 3].map(|at| input(&found, at)) else {
        return Err(NoMatch::Other);
    };
    let weight = weight(graph, b, b_scale, input(&found, 5))?;
    let x = match dynamically(graph, a, Some(a_scale), input(&found, 4))? {
        Some(x) => graph.part(FakeQuantize::dynamic(x), a)?,
        None => {
            let (dtype, shape) = (graph.ty(a).dtype, graph.ty(a).shape.clone());
            // A row that has more than one scale fits no axis.
            let scheme = Scheme::along(graph, a_scale, input(&found, 4), dtype, &shape, usize::MAX)?;
            numbers(graph, a, &scheme, a)?
        }
    };
    Ok(vec![graph.emit(Linear { x, weight, bias: input(&found, 6), transposed: Flag(true) }, output)?])
}

/// `MatMulInteger` of what `DynamicQuantizeLinear` gives, times both scales.
pub(super) const SCALED: Rule = Rule { name: "quantized product", find: scaled };

fn scaled(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Binary(Binary { kind: BinaryKind::Mul, .. }) = graph.node(node).op else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    let mut factors = Vec::new();
    factors_of(graph, output, &mut factors, 3);
    let Some((at, product)) =
        factors.iter().enumerate().find_map(|(at, v)| Some((at, sum_of_products(graph, *v)?.clone())))
    else {
        return Err(NoMatch::Other);
    };
    factors.remove(at);
    let [Some(a), Some(b)] = [0, 1].map(|at| input(&product, at)) else { return Err(NoMatch::Other) };
    let (constants, computed): (Vec<_>, Vec<_>) = factors.into_iter().partition(|v| graph.weight(*v).is_some());
    let ([b_scale], [a_scale]) = (&constants[..], &computed[..]) else {
        let name = &graph.value(a).name;
        return miss(format!("the product of `{name}` is not multiplied with its scale and one of the weight"));
    };
    let Some(x) = dynamically(graph, a, Some(*a_scale), input(&product, 2))? else {
        return miss(format!("`{}` does not come from DynamicQuantizeLinear", graph.value(a).name));
    };
    let weight = weight(graph, b, *b_scale, input(&product, 3))?;
    let x = graph.part(FakeQuantize::dynamic(x), a)?;
    Ok(vec![graph.emit(Linear { x, weight, bias: None, transposed: Flag(true) }, output)?])
}

/// The factors of a product.
fn factors_of(graph: &Graph, value: ValueId, factors: &mut Vec<ValueId>, depth: usize) {
    match binary(graph, value, BinaryKind::Mul).filter(|_| depth > 0) {
        Some(operands) => operands.into_iter().for_each(|v| factors_of(graph, v, factors, depth - 1)),
        None => factors.push(value),
    }
}

/// The `MatMulInteger`, where a value is its result as floats.
fn sum_of_products(graph: &Graph, value: ValueId) -> Option<&Foreign> {
    match op(graph, value)? {
        Op::Cast(Cast { x, to: DType::F32 }) => produced(graph, *x, &["MatMulInteger"]),
        _ => None,
    }
}

/// What `DynamicQuantizeLinear` takes, where codes, scale and zero point are what it gives; `None` where the codes come
/// from another operator.
fn dynamically(
    graph: &Graph,
    codes: ValueId,
    scale: Option<ValueId>,
    zero: Option<ValueId>,
) -> Result<Option<ValueId>, NoMatch> {
    let Some(quantize) = produced(graph, codes, &["DynamicQuantizeLinear"]) else { return Ok(None) };
    let given = graph.producer(codes).map(|node| node.outputs.clone()).unwrap_or_default();
    if given != [Some(codes), scale, zero].into_iter().flatten().collect::<Vec<_>>() {
        let name = &graph.value(codes).name;
        return miss(format!(
            "the product of `{name}` takes another scale or zero point than DynamicQuantizeLinear gives"
        ));
    }
    Ok(input(quantize, 0))
}

/// A matrix [in, out] with scales for all or for each column.
fn weight(graph: &mut Rewriter<'_>, codes: ValueId, scale: ValueId, zero: Option<ValueId>) -> Result<ValueId, NoMatch> {
    let name = graph.value(codes).name.clone();
    let Some(weight) = graph.weight(codes).cloned() else { return miss(format!("`{name}` is not a weight")) };
    if weight.shape().len() != 2 {
        return miss(format!("the weight `{name}` is {}, not a matrix", graph.ty(codes)));
    }
    let shape = graph.ty(codes).shape.clone();
    let scheme = Scheme::along(graph, scale, zero, weight.dtype(), &shape, 1)?;
    Ok(graph.weight_like(scheme.dequantize(&weight)?, codes))
}
