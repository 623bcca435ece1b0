//! What the newest opsets and versions of the format have.

use planish_ir::{DType, Graph, Weight};
use planish_onnx::proto::{AttributeType, DataType, GraphProto, TensorProto};
use planish_onnx::{ImportOptions, oldest_opset};

use planish_testing::onnx::{
    assert_nodes, attribute, f32, graph, graph_attribute, import, import_with, int, model, node, text, typed,
};

fn of_x(dims: &str, call: &str) -> GraphProto {
    graph(vec![f32("x", dims)], vec![], vec![node(call, vec![])], &["y"])
}

/// What is newer than known is read as the newest that is known, and a warning says so.
#[test]
fn versions_that_are_not_known_yet() {
    let warnings = |ir_version: i64, opset: i64| {
        let model = planish_onnx::proto::ModelProto { ir_version, ..model(opset, of_x("n, 2", "y = Relu(x)")) };
        import_with(&model, &ImportOptions::default()).unwrap().1
    };
    assert_eq!(warnings(14, 28), [""; 0]);
    let found = warnings(15, 29);
    let [format, opset] = found.as_slice() else { panic!("{found:?}") };
    assert!(format.starts_with("version 15 of the format is newer than 14, the newest known"), "{format}");
    assert!(opset.starts_with("it is written in opset 29, which is newer than 28, the newest known"), "{opset}");
    assert_eq!(warnings(i64::MAX, i64::MAX).len(), 2);
}

/// Only an operator that is not known is a reason to refuse a graph of a newer opset.
#[test]
fn operators_that_are_not_known_yet() {
    let error = import(&model(29, of_x("n, 2", "y = Novel(x)"))).err().unwrap();
    assert!(error.contains("Novel `y`: it is not an operator of ONNX up to opset 28"), "{error}");
}

#[test]
fn gated_activations() {
    let two = |call: &str| graph(vec![f32("a", "n, 2"), f32("b", "n, 2")], vec![], vec![node(call, vec![])], &["y"]);
    assert_nodes(28, two("y = SwiGLU(a, b)"), &["%y = silu(%a) : f32[n, 2]", "%y_1 = mul(%y, %b) : f32[n, 2]"]);
    assert_nodes(24, of_x("n, 2", "y = Swish(x)"), &["%y = silu(%x) : f32[n, 2]"]);
    let error = import(&model(27, two("y = SwiGLU(a, b)"))).err().unwrap();
    assert!(error.contains("it came with opset 28, and the graph is of opset 27"), "{error}");
}

fn result_types(graph: &Graph) -> Vec<String> {
    graph.outputs().iter().map(|output| graph.type_of(output.value).to_string()).collect()
}

#[test]
fn operators_with_states() {
    let heads = vec![int("q_num_heads", 4), int("kv_num_heads", 2), text("update_rule", "linear")];
    let inputs = vec![f32("q", "b, s, 32"), f32("k", "b, s, 16"), f32("v", "b, s, 12")];
    let linear = graph(inputs, vec![], vec![node("y, z = LinearAttention(q, k, v)", heads)], &["y", "z"]);
    assert_eq!(result_types(&import(&model(27, linear)).unwrap()), ["f32[b, s, 24]", "f32[b, 2, 8, 6]"]);
    let inputs = vec![f32("x", "b, 6, s"), f32("w", "6, 1, 4")];
    let causal = graph(inputs, vec![], vec![node("y, z = CausalConvWithState(x, w)", vec![])], &["y", "z"]);
    assert_eq!(result_types(&import(&model(27, causal)).unwrap()), ["f32[b, 6, s]", "f32[b, 6, 3]"]);
}

/// As numbers each element is one; as bytes four are in three.
#[test]
fn elements_of_6_bits() {
    let numbers = TensorProto {
        name: "w".to_owned(),
        dims: vec![5],
        data_type: DataType::Float6e2m3.into(),
        int32_data: vec![0, 8, 16, 8, 4],
        ..TensorProto::default()
    };
    let bytes = TensorProto { raw_data: vec![0, 2, 33, 4].into(), int32_data: vec![], ..numbers.clone() };
    for tensor in [numbers, bytes] {
        let call = node("y = Cast(w)", vec![int("to", 1)]);
        let graph = import(&model(28, graph(vec![f32("x", "1")], vec![tensor], vec![call], &["y"]))).unwrap();
        let weights: Vec<&Weight> = graph.weights().map(|(_, _, weight)| weight).collect();
        assert_eq!((weights.len(), weights[0].dtype()), (1, DType::F6E2M3));
        assert_eq!(weights[0].read_numbers().unwrap(), [0.0, 1.0, 2.0, 1.0, 0.5]);
    }
}

/// The oldest opset from 20 on that a graph of opset 28 can be written in.
fn oldest(graph: GraphProto) -> u32 {
    oldest_opset(&import(&model(28, graph)).unwrap(), 20, 28)
}

#[test]
fn the_oldest_opset_that_means_the_same() {
    let of = |elements: DataType, call: &str, attributes: Vec<_>| {
        graph(vec![typed("x", elements, "n, 2, 2, 2")], vec![], vec![node(call, attributes)], &["y"])
    };
    let floats = |call: &str, attributes: Vec<_>| oldest(of(DataType::Float, call, attributes));
    assert_eq!(floats("y = Celu(x)", vec![]), 20);
    assert_eq!(oldest(of(DataType::Float16, "y = Celu(x)", vec![])), 28);
    assert_eq!(oldest(of(DataType::Int32, "y = BitShift(x, x)", vec![text("direction", "LEFT")])), 28);
    assert_eq!(oldest(of(DataType::Uint32, "y = BitShift(x, x)", vec![text("direction", "LEFT")])), 20);
    assert_eq!(floats("y = Mod(x, x)", vec![]), 28);
    assert_eq!(floats("y = Mod(x, x)", vec![int("fmod", 0)]), 28);
    assert_eq!(floats("y = Mod(x, x)", vec![int("fmod", 1)]), 20);
    assert_eq!(oldest(of(DataType::Int64, "y = Mod(x, x)", vec![])), 20);
    assert_eq!(floats("y = Mish(x)", vec![]), 20);
    assert_eq!(floats("y = SpaceToDepth(x)", vec![int("blocksize", 2), text("mode", "DCR")]), 20);
    assert_eq!(floats("y = SpaceToDepth(x)", vec![int("blocksize", 2), text("mode", "CRD")]), 28);
    assert_eq!(oldest(of(DataType::Int8, "y = BitCast(x)", vec![int("to", 2)])), 26);
    assert_eq!(oldest(of(DataType::Uint2, "y = Transpose(x)", vec![])), 25);
    let attention = |attributes: Vec<_>| {
        let heads = ["q", "k", "v"].map(|name| f32(name, "b, 2, s, 4")).to_vec();
        oldest(graph(heads, vec![], vec![node("y = Attention(q, k, v)", attributes)], &["y"]))
    };
    assert_eq!(attention(vec![int("is_causal", 1)]), 23);
    assert_eq!(attention(vec![int("left_window_size", -1)]), 23);
    assert_eq!(attention(vec![int("left_window_size", 2)]), 25);
}

/// Of the values in a graph of a node no type is known, so any may be there.
#[test]
fn the_oldest_opset_of_graphs_in_nodes() {
    let inside = |op: &str, attributes: Vec<_>| {
        let branch = |call| GraphProto { output: vec![f32("r", "?")], ..graph(vec![], vec![], vec![call], &[]) };
        let branches = vec![
            graph_attribute("then_branch", branch(node(&format!("r = {op}(x)"), attributes))),
            graph_attribute("else_branch", branch(node("r = Identity(x)", vec![]))),
        ];
        let inputs = vec![f32("x", "n"), typed("c", DataType::Bool, "")];
        oldest(graph(inputs, vec![], vec![node("y = If(c)", branches)], &["y"]))
    };
    assert_eq!(inside("Mish", vec![]), 20);
    assert_eq!(inside("Celu", vec![]), 28);
    assert_eq!(inside("Mod", vec![int("fmod", 1)]), 20);
    let to = |number: i64| planish_onnx::proto::AttributeProto { i: number, ..attribute("to", AttributeType::Int) };
    // What opset 24 added to it is not looked at.
    assert_eq!(inside("Cast", vec![to(1)]), 24);
    assert_eq!(inside("Cast", vec![to(25)]), 25);
}
