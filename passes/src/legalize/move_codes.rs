//! Moving codes in place of the numbers that they stand for.

use planish_ir::ops::{Foreign, Reshape, Slice, Transpose};
use planish_ir::{DType, Graph, NodeId, Op, Rewriter, Step, ValueId, Weight};

use crate::{Example, ONNX, Options, Outcome, Pass, PassError, QuantizedForm};

/// Has reshapes, transposes and slices of dequantized values move the codes.
pub const MOVE_CODES: Pass = Pass {
    name: "move-codes",
    summary: "Moves DequantizeLinear with one scale behind the reshapes, transposes and slices that take its result, which \
              then move codes of 8 bits. When ONNX Runtime loads a graph, it puts a QuantizeLinear and a DequantizeLinear \
              behind an operator that moves what a DequantizeLinear gives. At opset 21 and later it then refuses codes \
              of i8, and it ends the process where a graph within the graph reads what was moved. Nothing is left to \
              match where codes are moved. TensorRT wants pairs in front of layers, so target trt keeps them there.",
    numerics: "none",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %q: i8[n, 2, 3]
            weight @s = dense([0.5]) : f32[]
            weight @z = dense([6]) : i8[]
            %d = foreign([%q, @s, @z], []) {domain = \"ai.onnx\", op = \"DequantizeLinear\", version = 19, captures = [], results = [f32[n, 2, 3]]} : f32[n, 2, 3]
            %y = reshape(%d) {shape = [n, 6]} : f32[n, 6]
            output y = %y",
        after: "
            input %q: i8[n, 2, 3]
            weight @s = dense([0.5]) : f32[]
            weight @z = dense([6]) : i8[]
            %y/reshape = reshape(%q) {shape = [n, 6]} : i8[n, 6]
            %y = foreign([%y/reshape, @s, @z], []) {domain = \"ai.onnx\", op = \"DequantizeLinear\", version = 19, captures = [], results = [f32[n, 6]]} : f32[n, 6]
            output y = %y",
    },
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    if !matches!(options.target.quantized, QuantizedForm::Pairs | QuantizedForm::IntegerProducts) {
        return Ok(Outcome::default());
    }
    let changed = graph.rewrite(step)?;
    graph.compact();
    Ok(changed.into())
}

fn step(graph: &mut Rewriter<'_>, node: NodeId) -> Result<Step, PassError> {
    let mut op = graph.node(node).op.clone();
    let (Op::Reshape(Reshape { x, .. }) | Op::Transpose(Transpose { x, .. }) | Op::Slice(Slice { x, .. })) = &mut op
    else {
        return Ok(Step::Keep);
    };
    let Some((dequantize, codes)) = dequantized(graph, *x) else { return Ok(Step::Keep) };
    *x = codes;
    let output = graph.node(node).outputs[0];
    let moved = graph.part(op, output)?;
    let mut inputs = vec![Some(moved)];
    for number in &dequantize.inputs[1..] {
        inputs.push(number.map(|number| scalar(graph, number, output)));
    }
    let results = planish_ir::ops::Results(vec![Some(graph.type_of(output).clone())]);
    Ok(Step::Replace(vec![graph.emit(Foreign { inputs, results, ..dequantize }, output)?]))
}

/// A `DequantizeLinear` of codes of 8 bits with one scale, and the codes, where it gives a value.
fn dequantized(graph: &Graph, value: ValueId) -> Option<(Foreign, ValueId)> {
    let Op::Foreign(foreign) = &graph.producer(value)?.op else { return None };
    let one = |value: &Option<ValueId>| {
        value.is_none_or(|value| graph.weight(value).is_some_and(|weight| weight.elements() == 1))
    };
    let [Some(codes), numbers @ ..] = &foreign.inputs[..] else { return None };
    let plain = foreign.is("DequantizeLinear") && foreign.settings.0.iter().all(|(name, _)| name == "axis");
    let whole = plain && numbers.first().is_some_and(Option::is_some) && numbers.iter().all(one);
    let ty = graph.type_of(*codes);
    let bytes = ty.as_tensor().is_some_and(|ty| matches!(ty.dtype, DType::I8 | DType::U8));
    (whole && bytes).then(|| (foreign.clone(), *codes))
}

/// A weight of one element without dimensions: a vector of one is for an axis of one element, which may have moved.
fn scalar(graph: &mut Rewriter<'_>, value: ValueId, like: ValueId) -> ValueId {
    let flat = graph.weight(value).filter(|weight| !weight.shape().is_empty());
    match flat.and_then(|weight: &Weight| weight.reshape(&[])) {
        Some(weight) => graph.weight_part(weight, like),
        None => value,
    }
}
