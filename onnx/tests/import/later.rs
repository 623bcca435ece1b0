//! Operators that pass through, written in a later opset than the graph came in.

use planish_onnx::proto::{AttributeProto, AttributeType, DataType, GraphProto, ModelProto, NodeProto};
use planish_onnx::{ExportOptions, Placement, export};
use planish_testing::scratch;
use prost::Message;

use planish_testing::onnx::{attribute, f32, graph, graph_attribute, import, int, model, node, typed};

/// What a graph of an opset is written as in another.
fn written(from: i64, to: u32, graph: GraphProto) -> Result<GraphProto, String> {
    let graph = import(&model(from, graph))?;
    let folder = scratch();
    let options = ExportOptions {
        opset: to,
        placement: Placement::Copy,
        external_above: u64::MAX,
        data_suffix: "_data",
        metadata: &[],
        progress: &|_| {},
    };
    export(&graph, "model", folder.path(), &options).map_err(|e| e.to_string())?;
    let bytes = std::fs::read(folder.path().join("model.onnx")).unwrap();
    Ok(ModelProto::decode(&bytes[..]).unwrap().graph.unwrap())
}

fn of_x(dims: &str, call: NodeProto) -> GraphProto {
    graph(vec![f32("x", dims)], vec![], vec![call], &["y"])
}

/// A graph that decides by an input whether `y` is this node's result or `x`.
fn inside(call: NodeProto) -> GraphProto {
    let branch = |nodes: Vec<NodeProto>, result: &str| GraphProto {
        output: vec![f32(result, "n, 2, 2")],
        ..graph(vec![], vec![], nodes, &[])
    };
    let branches = vec![
        graph_attribute("then_branch", branch(vec![call], "b")),
        graph_attribute("else_branch", branch(vec![node("e = Identity(x)", vec![])], "e")),
    ];
    let inputs = vec![f32("x", "n, 2, 2"), typed("c", DataType::Bool, "")];
    graph(inputs, vec![], vec![node("y = If(c)", branches)], &["y"])
}

fn operators(nodes: &[NodeProto]) -> Vec<&str> {
    nodes.iter().map(|n| n.op_type.as_str()).collect()
}

fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { f, ..attribute(name, AttributeType::Float) }
}

fn axis(node: &NodeProto) -> i64 {
    node.attribute.iter().find(|a| a.name == "axis").unwrap().i
}

/// Once these were along all axes from one on.
#[test]
fn along_the_last_axis() {
    for op in ["LogSoftmax", "Hardmax"] {
        let call = |at: i64| node(&format!("y = {op}(x)"), vec![int("axis", at)]);
        for graph in [of_x("n, 4", call(1)), of_x("n, 2, 4", call(2)), of_x("n, 2, 4", call(-1))] {
            let graph = written(11, 18, graph).unwrap();
            assert_eq!((operators(&graph.node), axis(&graph.node[0])), (vec![op], -1));
        }
        let graph = written(11, 18, of_x("n, 2, 4", node(&format!("y = {op}(x)"), vec![]))).unwrap();
        assert_eq!(operators(&graph.node), ["Flatten", "Shape", op, "Reshape"]);
        assert_eq!((axis(&graph.node[0]), axis(&graph.node[2])), (1, -1));
        assert_eq!(graph.node[3].output, ["y"]);
    }
}

/// In a graph of a node it is not known how many axes there are.
#[test]
fn inside_of_graphs() {
    let body = |call: NodeProto| {
        let graph = written(10, 18, inside(call)).unwrap();
        graph.node[0].attribute.iter().find(|a| a.name == "then_branch").unwrap().g.clone().unwrap().node
    };
    let softmax = body(node("b = Softmax(x)", vec![int("axis", 2)]));
    assert_eq!(operators(&softmax), ["Flatten", "Shape", "Softmax", "Reshape"]);
    let clip = body(node("b = Clip(x)", vec![float("min", 0.0), float("max", 6.0)]));
    assert_eq!(operators(&clip), ["CastLike", "CastLike", "Clip"]);
    assert_eq!(clip[2].input[1..], [clip[0].output[0].clone(), clip[1].output[0].clone()]);
    let dropout = body(node("b = Dropout(x)", vec![float("ratio", 0.5)]));
    assert_eq!((operators(&dropout), dropout[0].attribute.len()), (vec!["Dropout"], 0));
}

/// Before opset 27 Range has no half types, and before opset 28 Celu has none but float32.
#[test]
fn element_types_of_later_opsets() {
    let of = |elements: DataType, call: &str, attributes: Vec<_>| {
        let inputs = ["a", "b", "c"].map(|name| typed(name, elements, "")).to_vec();
        graph(inputs, vec![], vec![node(call, attributes)], &["y"])
    };
    let range = |elements, to| written(27, to, of(elements, "y = Range(a, b, c)", vec![int("stash_type", 1)]));
    let plain = range(DataType::Float, 20).unwrap();
    assert_eq!((operators(&plain.node), plain.node[0].attribute.len()), (vec!["Range"], 0));
    assert_eq!(range(DataType::Float16, 27).unwrap().node[0].attribute.len(), 1);
    for elements in [DataType::Float16, DataType::Bfloat16] {
        let error = range(elements, 26).err().unwrap();
        let expected =
            "the graph is of opset 27, 26 is written; it came or changed with opset 27; --opset chooses another";
        assert!(error.contains(expected), "{error}");
    }
    let celu = |to| written(28, to, of(DataType::Float16, "y = Celu(a)", vec![]));
    assert!(celu(28).is_ok() && celu(27).err().unwrap().contains("changed with opset 28"));
}

/// In a graph of a node the type of an operand is known of a constant or a cast, and `stash_type` says that it is a half type.
#[test]
fn element_types_inside_of_graphs() {
    let written_in = |first: NodeProto, second: NodeProto, [from, to]: [i64; 2]| {
        let branch = |nodes: Vec<NodeProto>, result: &str| GraphProto {
            output: vec![typed(result, DataType::Float, "?")],
            ..graph(vec![], vec![], nodes, &[])
        };
        let nodes = vec![first, second, node("b = Cast(r)", vec![int("to", 1)])];
        let branches = vec![
            graph_attribute("then_branch", branch(nodes, "b")),
            graph_attribute("else_branch", branch(vec![node("o = Identity(x)", vec![])], "o")),
        ];
        let inputs = vec![f32("x", "n"), typed("c", DataType::Bool, ""), f32("z", ""), f32("e", ""), f32("d", "")];
        written(from, to.try_into().unwrap(), graph(inputs, vec![], vec![node("y = If(c)", branches)], &["y"]))
    };
    let of = |first: NodeProto, attributes: Vec<_>| written_in(first, node("r = Range(s, e, d)", attributes), [27, 26]);
    let cast = |to| node("s = Cast(z)", vec![int("to", to)]);
    let error = of(cast(10), vec![]).err().unwrap();
    assert!(error.contains("Range in its graph: it came or changed with opset 27"), "{error}");
    assert!(of(cast(1), vec![int("stash_type", 1)]).is_ok());
    let unknown = || node("s = Identity(z)", vec![]);
    assert!(of(unknown(), vec![]).is_ok());
    assert!(of(unknown(), vec![int("stash_type", 1)]).is_err());
    let celu = |to| written_in(cast(to), node("r = Celu(s)", vec![]), [28, 27]);
    assert!(celu(1).is_ok() && celu(10).err().unwrap().contains("Celu in its graph: it came or changed with opset 28"));
}

/// All that cannot be written are named, and another opset is offered where it helps.
#[test]
fn what_has_no_form() {
    let train = |name: &str| {
        node(&format!("{name}, {name}1, {name}2, {name}3, {name}4 = BatchNormalization(x, s, s, s, s)"), vec![])
    };
    let mut graph = graph(vec![f32("x", "n, 2"), f32("s", "2")], vec![], vec![train("y"), train("z")], &["y", "z"]);
    graph.value_info = ["y", "z"].iter().flat_map(|y| (1..5).map(move |i| f32(&format!("{y}{i}"), "2"))).collect();
    let error = written(9, 18, graph).err().unwrap();
    assert!(error.contains("`BatchNormalization` at `y`") && error.contains("`BatchNormalization` at `z`"), "{error}");
    assert!(error.contains("it came or changed with opset 14") && !error.contains("--opset"), "{error}");

    let error = written(20, 17, of_x("n, 2, 2, 2", node("y = ReduceMax(x)", vec![]))).map(|g| g.node.len());
    assert_eq!(error, Ok(1), "the IR has it");
    let grid = vec![f32("x", "n, 1, 2, 2"), f32("u", "n, 2, 2, 2")];
    let sample = vec![node("y = GridSample(x, u)", vec![])];
    let error = written(20, 17, self::graph(grid, vec![], sample, &["y"])).err().unwrap();
    assert!(error.contains("it came or changed with opset 20; --opset chooses another"), "{error}");

    // Only opset 28 has the remainder of floats with the sign of the divisor.
    let rest = |fmod: i64| of_x("n, 2", node("y = Mod(x, x)", vec![int("fmod", fmod)]));
    let error = written(28, 24, rest(0)).err().unwrap();
    assert!(error.contains("it came or changed with opset 28; --opset chooses another"), "{error}");
    assert_eq!(written(28, 24, rest(1)).map(|g| g.node.len()), Ok(1));
}
