//! Which constants of a graph are codes.

use std::collections::HashSet;

use planish_ir::ops::{Concat, Foreign, Gather, Reshape, Slice, Transpose};
use planish_ir::{DType, Graph, Op, ValueId, Weight};

use crate::legalize::{MICROSOFT, reshaped};

/// The operators that take codes, and which of their operands are some. Others, such as zero points, say what codes mean.
const OPERANDS: &[(&str, &[usize])] = &[
    ("ConvInteger", &[0, 1]),
    ("DequantizeLinear", &[0]),
    ("DynamicQuantizeLSTM", &[1, 2]),
    ("DynamicQuantizeMatMul", &[1]),
    ("GatherBlockQuantized", &[0]),
    ("MatMulBnb4", &[1]),
    ("MatMulInteger", &[0, 1]),
    ("MatMulInteger16", &[0, 1]),
    ("MatMulIntegerToFloat", &[0, 1]),
    ("MatMulNBits", &[1]),
    ("QAttention", &[0, 1]),
    ("QEmbedLayerNormalization", &[2, 3, 4]),
    ("QGemm", &[0, 3]),
    ("QLinearAdd", &[0, 3]),
    ("QLinearConv", &[0, 3]),
    ("QLinearMatMul", &[0, 3]),
    ("QLinearMul", &[0, 3]),
    ("QMoE", &[2, 5, 8]),
];

/// The weights of a graph that are codes, or what codes with scales stand for. Integers are codes where an operator takes them
/// as such, moved or as they are, but for those of 32 bits, which are sums of products.
#[must_use]
pub fn weights_of_codes(graph: &Graph) -> HashSet<ValueId> {
    let taken = taken(graph);
    let stands_for_codes = |weight: &Weight| {
        weight.as_dequantized().is_some() || weight.as_codebook().is_some() || reshaped(weight).is_some()
    };
    let is_code = |id: &ValueId, weight: &Weight| taken.contains(id) && weight.dtype() != DType::I32;
    let weights = graph.weights().filter(|(id, _, weight)| stands_for_codes(weight) || is_code(id, weight));
    weights.map(|(id, ..)| id).collect()
}

/// The values that operators take as codes.
fn taken(graph: &Graph) -> HashSet<ValueId> {
    let mut taken = HashSet::new();
    let nodes: Vec<_> = graph.nodes().map(|(_, node)| node).collect();
    // What takes a value comes after it.
    for node in nodes.into_iter().rev() {
        match &node.op {
            Op::Foreign(op) => taken.extend(operands(op)),
            op if taken.contains(&node.outputs[0]) => taken.extend(moved(op)),
            _ => {}
        }
    }
    taken
}

fn operands(op: &Foreign) -> impl Iterator<Item = ValueId> + '_ {
    let is_known = op.is_standard() || op.domain.0 == MICROSOFT;
    let places = OPERANDS.iter().find(|(name, _)| is_known && *name == op.op.0).map_or(&[][..], |(_, places)| places);
    places.iter().filter_map(|place| op.inputs.get(*place).copied().flatten())
}

/// What an operator gives elements of as they are.
fn moved(op: &Op) -> Vec<ValueId> {
    match op {
        Op::Transpose(Transpose { x, .. })
        | Op::Reshape(Reshape { x, .. })
        | Op::Slice(Slice { x, .. })
        | Op::Gather(Gather { x, .. }) => vec![*x],
        Op::Concat(Concat { parts, .. }) => parts.clone(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use planish_ir::text::{no_files, parse};

    use super::*;

    #[test]
    fn integers_are_codes_where_operators_take_them_so() {
        let graph = parse(
            "
            graph \"codes\" {
              input %x: f32[s, b, 2]
              input %ids: i64[n]
              weight @w = dense([1, 2, 3, 4, 5, 6, 7, 8]) : i8[1, 2, 4]
              weight @r = dense([1, 2, 3, 4]) : i8[1, 1, 4]
              weight @scales = dense([0.5, 0.5, 0.5, 0.5]) : f32[1, 4]
              weight @zeros = dense([0, 0, 0, 0]) : i8[1, 4]
              weight @moved = dense([1, 2, 3, 4]) : u8[2, 2]
              weight @looked_up = dense([1, 2, 3, 4]) : u8[2, 2]
              weight @scale = dense([0.5]) : f32[]
              weight @numbers = dense([1, 2, 3, 4]) : u8[2, 2]
              weight @dequantized = dequantize([dense([1, 2]) : i8[1, 2], dense([0.5]) : f32[1]], 0) : f32[1, 2]
              weight @floats = dense([0.5, 1.0]) : f32[1, 2]
              %y = foreign([%x, @w, @r, _, _, _, _, _, @scales, @zeros, @scales, @zeros], []) {domain = \"com.microsoft\", op = \"DynamicQuantizeLSTM\", version = 1, settings = [hidden_size = int(1)], captures = [], results = [f32[s, 1, b, 1]]} : f32[s, 1, b, 1]
              %t = transpose(@moved) {perm = [1, 0]} : u8[2, 2]
              %a = foreign([%t, @scale], []) {domain = \"ai.onnx\", op = \"DequantizeLinear\", version = 19, captures = [], results = [f32[2, 2]]} : f32[2, 2]
              %rows = gather(@looked_up, %ids) {axis = 0} : u8[n, 2]
              %e = foreign([%rows, @scale], []) {domain = \"ai.onnx\", op = \"DequantizeLinear\", version = 19, captures = [], results = [f32[n, 2]]} : f32[n, 2]
              %c = cast(@numbers) {to = f32} : f32[2, 2]
              %sum = add(@dequantized, @floats) : f32[1, 2]
              output y = %y
              output a = %a
              output e = %e
              output c = %c
              output sum = %sum
            }",
            &no_files,
        )
        .unwrap();
        let found = weights_of_codes(&graph);
        let names = graph.weights().filter(|(id, ..)| found.contains(id)).map(|(_, value, _)| value.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["w", "r", "moved", "looked_up", "dequantized"]);
    }
}
