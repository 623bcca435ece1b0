//! The contents of the graphs of operators that pass through.

use planish_ir::Op;
use planish_ir::ops::{Foreign, Setting};
use planish_onnx::proto::{AttributeProto, AttributeType, DataType, GraphProto, NodeProto, TensorProto};
use prost::Message;

use planish_testing::onnx::{attribute, f32, graph, graph_attribute, import, model, node, output, typed};

/// A constant of 400 numbers, as bytes.
fn large(name: &str) -> TensorProto {
    let raw: Vec<u8> = (0..400u16).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    TensorProto {
        name: name.to_owned(),
        dims: vec![20, 20],
        data_type: DataType::Float.into(),
        raw_data: raw.into(),
        ..TensorProto::default()
    }
}

fn constant(name: &str) -> NodeProto {
    let value = AttributeProto { t: Some(large("")), ..attribute("value", AttributeType::Tensor) };
    node(&format!("{name} = Constant()"), vec![value])
}

/// A product with a constant, which is also a result.
fn product(initializer: bool) -> GraphProto {
    let mut nodes = vec![node("b = MatMul(x, w)", vec![])];
    let constants = if initializer { vec![large("w")] } else { vec![] };
    if !initializer {
        nodes.insert(0, constant("w"));
    }
    GraphProto { output: vec![f32("b", "n, 20"), f32("w", "20, 20")], ..graph(vec![], constants, nodes, &[]) }
}

fn choice(then: GraphProto, other: GraphProto) -> NodeProto {
    node("y, z = If(c)", vec![graph_attribute("then_branch", then), graph_attribute("else_branch", other)])
}

fn around(node: NodeProto) -> GraphProto {
    let outputs: Vec<String> = node.output.clone();
    let inputs = vec![f32("x", "n, 20"), typed("c", DataType::Bool, "")];
    let mut graph = graph(inputs, vec![], vec![node], &[]);
    graph.output = outputs.iter().map(|name| output(name)).collect();
    graph
}

/// The operator that an imported graph contains, its graphs, and how many weights it takes from around it.
fn passed(graph: GraphProto) -> (Foreign, Vec<GraphProto>, usize) {
    let graph = import(&model(17, graph)).unwrap();
    let (_, node) = graph.nodes().find(|(_, node)| matches!(node.op, Op::Foreign(_))).unwrap();
    let Op::Foreign(foreign) = &node.op else { unreachable!() };
    let weights = foreign.captured.iter().filter_map(|v| graph.weight(*v));
    let expected = large("").raw_data;
    let count = weights.inspect(|w| assert_eq!(w.read().unwrap(), expected)).count();
    let graphs = foreign.settings.0.iter().filter_map(|(_, setting)| match setting {
        Setting::Graph(bytes) => Some(GraphProto::decode(&bytes[..]).unwrap()),
        _ => None,
    });
    (foreign.clone(), graphs.collect(), count)
}

/// No constant is left that says neither its elements nor where they are.
#[track_caller]
fn assert_whole(graph: &GraphProto) {
    let bytes = |t: &TensorProto| t.raw_data.len() + 4 * t.float_data.len();
    assert!(graph.initializer.iter().all(|t| bytes(t) > 0 && t.left.is_none()));
    for attribute in graph.node.iter().flat_map(|n| &n.attribute) {
        assert!(attribute.t.as_ref().is_none_or(|t| bytes(t) > 0 && t.left.is_none()));
        attribute.g.iter().for_each(assert_whole);
    }
}

#[test]
fn large_constants_become_weights_of_the_graph_around() {
    let (_, graphs, weights) = passed(around(choice(product(true), product(false))));
    assert_eq!(weights, 2);
    for graph in &graphs {
        assert_whole(graph);
        let ops: Vec<&str> = graph.node.iter().map(|n| n.op_type.as_str()).collect();
        assert_eq!(ops, ["Identity", "MatMul"]);
        assert_eq!(graph.node[0].output, ["w"]);
    }
}

#[test]
fn large_constants_of_graphs_in_graphs_too() {
    let inner = choice(product(true), product(false));
    let between = |inner: NodeProto| GraphProto {
        output: vec![f32("y", "n, 20"), f32("z", "20, 20")],
        ..graph(vec![], vec![], vec![inner], &[])
    };
    let (_, graphs, weights) = passed(around(choice(between(inner.clone()), between(inner))));
    assert_eq!(weights, 4);
    graphs.iter().for_each(assert_whole);
}

/// The file may have a name that the constant could get outside.
#[test]
fn names_outside_are_not_those_inside() {
    let mut then = product(true);
    then.node.push(node("y/w = Neg(w)", vec![]));
    let (foreign, graphs, weights) = passed(around(choice(then, product(true))));
    assert_eq!(weights, 2);
    let names: Vec<&str> = foreign.captures.iter().map(|c| c.0.as_str()).collect();
    assert_eq!(names, ["y/w_", "x", "y/w"]);
    assert_eq!(graphs[0].node[0].input, ["y/w_"]);
}

#[test]
fn what_is_not_read_is_refused() {
    let refused = |then: GraphProto, expected: &str| {
        let error = import(&model(17, around(choice(then, product(true))))).err().unwrap_or_default();
        assert!(error.contains(expected), "`{expected}` is not in `{error}`");
    };
    let mut then = product(true);
    then.node[0].attribute.push(AttributeProto { t: Some(large("")), ..attribute("t", AttributeType::Tensor) });
    refused(then.clone(), "MatMul `b` in it: its tensor `t` is large");
    then.node[0].attribute[0] = attribute("types", AttributeType::TypeProtos);
    refused(then, "attribute `types` of kind TypeProtos is not supported");
}

/// Operators of other domains are known to the operator, so that the target can be asked about them.
#[test]
fn operators_of_other_domains() {
    let mut then = product(true);
    then.node.push(NodeProto { domain: "com.microsoft".to_owned(), ..node("g = Gelu(b)", vec![]) });
    let (foreign, ..) = passed(around(choice(then, product(true))));
    let inner: Vec<(&str, &str)> = foreign.inner.0.iter().map(|i| (i.domain.as_str(), i.op.as_str())).collect();
    assert_eq!(inner, [("com.microsoft", "Gelu")]);
}
