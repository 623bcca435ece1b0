//! Moving codes in place of the numbers that they stand for.

use planish_ir::ops::{Foreign, Reshape, Results, Setting, Slice, Transpose};
use planish_ir::{DType, Graph, NodeId, Op, Rewriter, Step, TensorType, ValueId, Weight};

use crate::{Example, ONNX, Options, Outcome, Pass, PassError, QuantizedForm};

/// Has reshapes, transposes, slices and MaxPool of dequantized values take the codes.
pub const MOVE_CODES: Pass = Pass {
    name: "move-codes",
    summary: "Moves DequantizeLinear with one scale after reshapes, transposes, slices and MaxPool of its result. They then \
              take codes of 8 bits. When ONNX Runtime loads a graph, it puts a QuantizeLinear and a DequantizeLinear \
              after such an operator on what a DequantizeLinear gives. At opset 21 and later it then refuses codes \
              of i8, and it ends the process where a graph within the graph reads what was moved. Nothing is left to \
              match where codes are moved. A QuantizeLinear with the same scale and zero point as the DequantizeLinear before it gives the \
              codes again, and goes. TensorRT wants pairs in front of layers, so target trt keeps them there. So does target openvino: of codes that are \
              moved, OpenVINO makes floats in front of the product of queries and keys.",
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
    applies: |options| {
        matches!(options.target.quantized, QuantizedForm::Pairs | QuantizedForm::IntegerProducts)
    },
    run,
};

fn run(graph: &mut Graph, _: &Options) -> Result<Outcome, PassError> {
    let changed = graph.rewrite(step)?;
    graph.compact();
    Ok(changed.into())
}

fn step(graph: &mut Rewriter<'_>, node: NodeId) -> Result<Step, PassError> {
    let (mut op, output) = (graph.node(node).op.clone(), graph.node(node).outputs[0]);
    if let Op::Foreign(quantize) = &op
        && let Some(codes) = restored(graph, quantize, output)
    {
        return Ok(Step::Replace(vec![codes]));
    }
    let x = match &mut op {
        Op::Reshape(Reshape { x, .. }) | Op::Transpose(Transpose { x, .. }) | Op::Slice(Slice { x, .. }) => x,
        Op::Foreign(pool) if is_max_pool(pool) => match &mut pool.inputs[..] {
            [Some(x)] => x,
            _ => return Ok(Step::Keep),
        },
        _ => return Ok(Step::Keep),
    };
    let Some((dequantize, codes)) = dequantized(graph, *x) else { return Ok(Step::Keep) };
    *x = codes;
    if let Op::Foreign(pool) = &mut op {
        let (Some(codes), Some(result)) = (graph.type_of(codes).as_tensor(), graph.type_of(output).as_tensor()) else {
            return Ok(Step::Keep);
        };
        let scale = dequantize.inputs.get(1).copied().flatten().and_then(|scale| graph.number(scale));
        if scale.is_none_or(|scale| scale <= 0.0) {
            return Ok(Step::Keep);
        }
        pool.results = Results(vec![Some(TensorType::new(codes.dtype, result.shape.clone()).into())]);
    }
    let moved = graph.part(op, output)?;
    let mut inputs = vec![Some(moved)];
    for number in &dequantize.inputs[1..] {
        inputs.push(number.map(|number| scalar(graph, number, output)));
    }
    let results = Results(vec![Some(graph.type_of(output).clone())]);
    Ok(Step::Replace(vec![graph.emit(Foreign { inputs, results, ..dequantize }, output)?]))
}

/// The codes that a QuantizeLinear gives once more, of numbers that they stand for.
fn restored(graph: &Graph, quantize: &Foreign, result: ValueId) -> Option<ValueId> {
    let is_plain = quantize.is("QuantizeLinear") && quantize.settings.0.iter().all(|(name, _)| name == "axis");
    let (dequantize, codes) = dequantized(graph, quantize.inputs.first().copied().flatten().filter(|_| is_plain)?)?;
    let number = |of: &Foreign, at: usize| graph.number(of.inputs.get(at).copied().flatten()?);
    let [own, other] = [quantize, &dequantize].map(|of| Some((number(of, 1)?, number(of, 2)?)));
    let is_same = own.is_some_and(|(scale, _)| scale > 0.0) && own == other;
    (is_same && graph.type_of(codes) == graph.type_of(result)).then_some(codes)
}

/// Whether an operator is the maximum of windows each of which has an element, without the places of the maxima.
fn is_max_pool(op: &Foreign) -> bool {
    let is_whole = |(name, setting): &(String, Setting)| match (name.as_str(), setting) {
        ("ceil_mode", Setting::Int(mode)) => *mode == 0,
        ("dilations", Setting::Ints(dilations)) => dilations.iter().all(|dilation| *dilation == 1),
        ("ceil_mode" | "dilations", _) => false,
        _ => true,
    };
    op.is("MaxPool") && op.version >= BYTES && op.results.0.len() == 1 && op.settings.0.iter().all(is_whole)
}

/// The opset from which on MaxPool takes codes of 8 bits.
const BYTES: usize = 12;

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
