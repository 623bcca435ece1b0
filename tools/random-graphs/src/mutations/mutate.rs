//! Random changes of an ONNX model that keep its encoding intact: nodes, attributes, constants, types and names.

use fastrand::Rng;
use planish_onnx::proto::{
    AttributeProto, DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto,
};

/// Integers at which sizes, axes and counts go wrong.
const INTEGERS: [i64; 18] = [
    0,
    1,
    -1,
    2,
    3,
    -2,
    7,
    64,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    1 << 40,
    -(1 << 40),
    1 << 62,
    i64::MAX,
    i64::MIN,
];

/// Numbers at which arithmetic goes wrong.
const NUMBERS: [f32; 9] = [0.0, -0.0, 1.0, -1.0, 1e-40, 1e38, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

/// Operators that a node is turned into.
const OPERATORS: [&str; 40] = [
    "Add",
    "Mul",
    "Div",
    "Sub",
    "Pow",
    "MatMul",
    "Gemm",
    "Softmax",
    "Gather",
    "Reshape",
    "Transpose",
    "Slice",
    "Concat",
    "Split",
    "Expand",
    "Unsqueeze",
    "Squeeze",
    "Shape",
    "Range",
    "Where",
    "Cast",
    "ReduceMean",
    "LayerNormalization",
    "Tile",
    "Pad",
    "NonZero",
    "ConstantOfShape",
    "CumSum",
    "TopK",
    "Einsum",
    "Resize",
    "Conv",
    "QuantizeLinear",
    "DequantizeLinear",
    "GatherND",
    "ScatterND",
    "OneHot",
    "Trilu",
    "Mod",
    "Equal",
];

/// A change of a graph.
type Change = fn(&mut GraphProto, &mut Rng);

const CHANGES: [Change; 19] = [
    remove_node,
    repeat_node,
    swap_nodes,
    change_operator,
    rewire,
    rewire,
    drop_operand,
    reorder_operands,
    rename_result,
    change_attribute,
    change_attribute,
    remove_attribute,
    change_constant_shape,
    change_constant_elements,
    change_constant_elements,
    change_constant_type,
    change_port_shape,
    change_port_type,
    change_outputs,
];

/// Makes one to four changes.
pub(crate) fn mutate(model: &mut ModelProto, rng: &mut Rng) {
    for _ in 0..rng.usize(1..=4) {
        if rng.u8(..20) == 0 {
            change_opset(model, rng);
        } else if let Some(graph) = &mut model.graph {
            let graph = inner(graph, rng);
            CHANGES[rng.usize(..CHANGES.len())](graph, rng);
        }
    }
}

/// The graph itself, or now and then a graph that one of its nodes holds.
fn inner<'a>(graph: &'a mut GraphProto, rng: &mut Rng) -> &'a mut GraphProto {
    let holds = |node: &NodeProto| node.attribute.iter().any(|a| a.g.is_some());
    let holders: Vec<usize> = (0..graph.node.len()).filter(|&n| holds(&graph.node[n])).collect();
    match rng.choice(&holders) {
        Some(&node) if rng.bool() => {
            let graphs: Vec<usize> =
                (0..graph.node[node].attribute.len()).filter(|&a| graph.node[node].attribute[a].g.is_some()).collect();
            let attribute = graphs[rng.usize(..graphs.len())];
            graph.node[node].attribute[attribute].g.get_or_insert_default()
        }
        _ => graph,
    }
}

fn change_opset(model: &mut ModelProto, rng: &mut Rng) {
    if let Some(opset) = rng.choice(&mut model.opset_import) {
        opset.version = if rng.bool() { rng.i64(1..27) } else { integer(rng, opset.version) };
    }
}

fn remove_node(graph: &mut GraphProto, rng: &mut Rng) {
    if !graph.node.is_empty() {
        graph.node.remove(rng.usize(..graph.node.len()));
    }
}

fn repeat_node(graph: &mut GraphProto, rng: &mut Rng) {
    if let Some(node) = rng.choice(&graph.node) {
        let mut node = node.clone();
        if rng.bool() {
            node.output.iter_mut().for_each(|name| name.push_str("_again"));
        }
        graph.node.insert(rng.usize(..=graph.node.len()), node);
    }
}

fn swap_nodes(graph: &mut GraphProto, rng: &mut Rng) {
    if !graph.node.is_empty() {
        let (a, b) = (rng.usize(..graph.node.len()), rng.usize(..graph.node.len()));
        graph.node.swap(a, b);
    }
}

fn change_operator(graph: &mut GraphProto, rng: &mut Rng) {
    let other = rng.choice(&graph.node).map(|node| (node.op_type.clone(), node.domain.clone()));
    if let (Some(node), Some(other)) = (rng.choice(&mut graph.node), other) {
        match rng.u8(..8) {
            0 => node.domain = ["", "ai.onnx", "com.microsoft", "nowhere"][rng.usize(..4)].to_owned(),
            1..4 => (node.op_type, node.domain) = other,
            _ => node.op_type = OPERATORS[rng.usize(..OPERATORS.len())].to_owned(),
        }
    }
}

/// Some value's name.
fn name(graph: &GraphProto, rng: &mut Rng) -> String {
    let results = graph.node.iter().flat_map(|node| &node.output);
    let names = results
        .chain(graph.initializer.iter().map(|tensor| &tensor.name))
        .chain(graph.input.iter().map(|port| &port.name));
    let names: Vec<&String> = names.collect();
    rng.choice(&names).map_or_else(|| "nothing".to_owned(), |name| (*name).clone())
}

fn rewire(graph: &mut GraphProto, rng: &mut Rng) {
    let name = if rng.u8(..12) == 0 { String::new() } else { name(graph, rng) };
    if let Some(node) = rng.choice(&mut graph.node)
        && let Some(operand) = rng.choice(&mut node.input)
    {
        *operand = name;
    }
}

fn drop_operand(graph: &mut GraphProto, rng: &mut Rng) {
    let more = name(graph, rng);
    if let Some(node) = rng.choice(&mut graph.node) {
        match rng.bool() {
            true => drop(node.input.pop()),
            false => node.input.push(more),
        }
    }
}

fn reorder_operands(graph: &mut GraphProto, rng: &mut Rng) {
    if let Some(node) = rng.choice(&mut graph.node) {
        rng.shuffle(&mut node.input);
    }
}

fn rename_result(graph: &mut GraphProto, rng: &mut Rng) {
    let name = name(graph, rng);
    if let Some(node) = rng.choice(&mut graph.node)
        && let Some(result) = rng.choice(&mut node.output)
    {
        *result = name;
    }
}

fn integer(rng: &mut Rng, near: i64) -> i64 {
    match rng.u8(..3) {
        0 => near.wrapping_add(rng.i64(-2..=2)),
        _ => INTEGERS[rng.usize(..INTEGERS.len())],
    }
}

fn change_attribute(graph: &mut GraphProto, rng: &mut Rng) {
    let with: Vec<usize> = (0..graph.node.len()).filter(|&n| !graph.node[n].attribute.is_empty()).collect();
    let Some(&node) = rng.choice(&with) else { return };
    let attributes = &mut graph.node[node].attribute;
    let at = rng.usize(..attributes.len());
    let AttributeProto { i, f, s, t, floats, ints, kind, .. } = &mut attributes[at];
    match rng.u8(..10) {
        0 => *kind = rng.i32(0..15),
        1 => {
            *s = ["", "constant", "linear", "reverse", "SAME_UPPER", "ij,jk->ik", "...i,i...->i"][rng.usize(..7)].into()
        }
        2 => *f = NUMBERS[rng.usize(..NUMBERS.len())],
        3 => floats.push(NUMBERS[rng.usize(..NUMBERS.len())]),
        4 => ints.push(integer(rng, 0)),
        5 => drop(ints.pop()),
        6 => t.iter_mut().for_each(|tensor| change_elements(tensor, rng)),
        _ => match rng.choice(&mut *ints) {
            Some(one) => *one = integer(rng, *one),
            None => *i = integer(rng, *i),
        },
    }
}

fn remove_attribute(graph: &mut GraphProto, rng: &mut Rng) {
    if let Some(node) = rng.choice(&mut graph.node)
        && !node.attribute.is_empty()
    {
        node.attribute.remove(rng.usize(..node.attribute.len()));
    }
}

fn change_constant_shape(graph: &mut GraphProto, rng: &mut Rng) {
    let Some(tensor) = rng.choice(&mut graph.initializer) else { return };
    match rng.u8(..4) {
        0 => drop(tensor.dims.pop()),
        1 => tensor.dims.push(1),
        2 => rng.shuffle(&mut tensor.dims),
        _ => {
            if let Some(size) = rng.choice(&mut tensor.dims) {
                *size = integer(rng, *size);
            }
        }
    }
}

fn change_constant_elements(graph: &mut GraphProto, rng: &mut Rng) {
    if let Some(tensor) = rng.choice(&mut graph.initializer) {
        change_elements(tensor, rng);
    }
}

/// Changes some of a tensor's elements, or how many bytes there are.
fn change_elements(tensor: &mut TensorProto, rng: &mut Rng) {
    if let Some(element) = rng.choice(&mut tensor.int64_data) {
        *element = integer(rng, *element);
    } else if let Some(element) = rng.choice(&mut tensor.float_data) {
        *element = NUMBERS[rng.usize(..NUMBERS.len())];
    } else if let Some(element) = rng.choice(&mut tensor.int32_data) {
        *element = rng.i32(..);
    } else if !tensor.raw_data.is_empty() {
        let mut bytes = tensor.raw_data.to_vec();
        let width = if bytes.len().is_multiple_of(8) { 8 } else { 4 };
        match rng.u8(..10) {
            0 => bytes.truncate(rng.usize(..bytes.len())),
            1..6 if width == 8 => {
                let at = rng.usize(..bytes.len() / 8) * 8;
                bytes[at..at + 8].copy_from_slice(&integer(rng, 0).to_le_bytes());
            }
            _ if bytes.len() >= 4 => {
                let at = rng.usize(..bytes.len() / 4) * 4;
                bytes[at..at + 4].copy_from_slice(&NUMBERS[rng.usize(..NUMBERS.len())].to_le_bytes());
            }
            _ => bytes[0] = rng.u8(..),
        }
        tensor.raw_data = bytes.into();
    }
}

fn change_constant_type(graph: &mut GraphProto, rng: &mut Rng) {
    if let Some(tensor) = rng.choice(&mut graph.initializer) {
        tensor.data_type = rng.i32(0..27);
    }
}

/// An input, an output, or what is said of a value in between.
fn port<'a>(graph: &'a mut GraphProto, rng: &mut Rng) -> Option<&'a mut ValueInfoProto> {
    let ports = match rng.u8(..4) {
        0 => &mut graph.output,
        1 => &mut graph.value_info,
        _ => &mut graph.input,
    };
    rng.choice(ports)
}

fn change_port_shape(graph: &mut GraphProto, rng: &mut Rng) {
    let Some(port) = port(graph, rng) else { return };
    let Some(tensor) = port.r#type.as_mut().and_then(|ty| ty.tensor_type.as_mut()) else { return };
    let Some(shape) = &mut tensor.shape else { return };
    match rng.u8(..8) {
        0 => tensor.shape = None,
        1 => drop(shape.dim.pop()),
        2 => shape.dim.push(DimensionProto { value: None }),
        3 => rng.shuffle(&mut shape.dim),
        _ => {
            if let Some(dim) = rng.choice(&mut shape.dim) {
                dim.value = match rng.u8(..4) {
                    0 => None,
                    1 => Some(DimensionValue::DimParam(["n", "batch", "n + 1", "2*n", "a b"][rng.usize(..5)].into())),
                    _ => Some(DimensionValue::DimValue(integer(rng, 4))),
                };
            }
        }
    }
}

fn change_port_type(graph: &mut GraphProto, rng: &mut Rng) {
    if let Some(port) = port(graph, rng)
        && let Some(tensor) = port.r#type.as_mut().and_then(|ty| ty.tensor_type.as_mut())
    {
        tensor.elem_type = rng.i32(0..27);
    }
}

fn change_outputs(graph: &mut GraphProto, rng: &mut Rng) {
    let name = name(graph, rng);
    match rng.u8(..3) {
        0 => drop(graph.output.pop()),
        1 => {
            if let Some(output) = rng.choice(&mut graph.output) {
                output.name = name;
            }
        }
        _ => graph.output.push(ValueInfoProto { name, r#type: None }),
    }
}
