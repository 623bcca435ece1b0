//! Loops and scans: those of a known number of rounds become nodes that compute the same.

use planish_eval::{Tensor, evaluate};
use planish_ir::{Graph, Op};
use planish_onnx::proto::{AttributeProto, DataType, GraphProto, NodeProto, TensorProto, ValueInfoProto};

use planish_testing::onnx::{f32, floats, graph, graph_attribute, import, int, integers, ints, model, node, typed};

/// A constant condition.
fn condition(name: &str, holds: bool) -> TensorProto {
    let data_type = DataType::Bool.into();
    TensorProto { name: name.to_owned(), data_type, int32_data: vec![holds.into()], ..TensorProto::default() }
}

/// The body of a loop: `i` is the round, `c` the condition.
fn body(
    state: Vec<ValueInfoProto>,
    constants: Vec<TensorProto>,
    nodes: Vec<NodeProto>,
    results: &[&str],
) -> GraphProto {
    let mut inputs = vec![typed("i", DataType::Int64, ""), typed("c", DataType::Bool, "")];
    inputs.extend(state);
    graph(inputs, constants, nodes, results)
}

/// `s` and `r`: the next `s` is `s + i`, and each round gives `2 s`.
fn sums(condition: &str) -> GraphProto {
    let nodes = vec![
        node(
            "k = Constant()",
            vec![AttributeProto { f: 2.0, ..planish_testing::onnx::attribute("value_float", FLOAT) }],
        ),
        node("limit = Constant()", vec![AttributeProto { i: 1, ..int("value_int", 1) }]),
        node("less = Less(i, limit)", vec![]),
        node("f = Cast(i)", vec![int("to", 1)]),
        node("next = Add(s, f)", vec![]),
        node("r = Mul(s, k)", vec![]),
    ];
    body(vec![f32("s", "2")], vec![], nodes, &[condition, "next", "r"])
}

const FLOAT: planish_onnx::proto::AttributeType = planish_onnx::proto::AttributeType::Float;

/// A graph of a loop over `sums` with `n` rounds.
fn summing(n: i64, condition_in: Option<bool>, condition_out: &str) -> GraphProto {
    let call = if condition_in.is_some() { "y, z = Loop(n, go, x)" } else { "y, z = Loop(n, __, x)" };
    let mut constants = vec![integers("n", &[], &[n])];
    constants.extend(condition_in.map(|holds| condition("go", holds)));
    let call = node(call, vec![graph_attribute("body", sums(condition_out))]);
    graph(vec![f32("x", "2")], constants, vec![call], &["y", "z"])
}

/// What a graph computes, as shapes and numbers.
#[track_caller]
fn computed(graph: GraphProto, inputs: &[(&str, Tensor)]) -> Vec<(Vec<usize>, Vec<f64>)> {
    let graph = import(&model(17, graph)).unwrap();
    assert!(!has_operators(&graph), "{graph}");
    let outputs = evaluate(&graph, inputs).unwrap();
    outputs.into_iter().map(|(_, tensor)| (tensor.shape().to_vec(), tensor.to_f64())).collect()
}

fn has_operators(graph: &Graph) -> bool {
    graph.nodes().any(|(_, node)| matches!(node.op, Op::Foreign(_)))
}

fn tensor(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::new(shape.to_vec(), values.to_vec()).unwrap()
}

fn x() -> [(&'static str, Tensor); 1] {
    [("x", tensor(&[2], &[1.0, 2.0]))]
}

#[test]
fn rounds_follow_one_another() {
    let three = [(vec![2], vec![4.0, 5.0]), (vec![3, 2], vec![2.0, 4.0, 2.0, 4.0, 4.0, 6.0])];
    for holds in [None, Some(true)] {
        assert_eq!(computed(summing(3, holds, "c"), &x()), three);
    }
    assert_eq!(computed(summing(1, None, "c"), &x()), [(vec![2], vec![1.0, 2.0]), (vec![1, 2], vec![2.0, 4.0])]);
}

#[test]
fn no_rounds() {
    let nothing = [(vec![2], vec![1.0, 2.0]), (vec![0, 2], vec![])];
    for graph in [summing(0, None, "c"), summing(-1, Some(true), "c"), summing(3, Some(false), "c")] {
        assert_eq!(computed(graph, &x()), nothing);
    }
    // However many there could be.
    let mut unknown = summing(3, Some(false), "c");
    unknown.initializer.remove(0);
    unknown.input.push(typed("n", DataType::Int64, ""));
    let count = Tensor::new(vec![], vec![4i64]).unwrap();
    assert_eq!(computed(unknown, &[&x()[..], &[("n", count)]].concat()), nothing);
}

/// The condition that a round gives decides about the next one.
#[test]
fn a_condition_that_ends_the_loop() {
    let two = [(vec![2], vec![2.0, 3.0]), (vec![2, 2], vec![2.0, 4.0, 2.0, 4.0])];
    assert_eq!(computed(summing(5, None, "less"), &x()), two);
}

/// Constants of the body are there once.
#[test]
fn constants_are_shared_by_rounds() {
    let constants = vec![floats("w", &[2], &[3.0, 5.0])];
    let body = body(vec![f32("s", "2")], constants, vec![node("t = Mul(s, w)", vec![])], &["c", "t"]);
    let call = node("y = Loop(n, __, x)", vec![graph_attribute("body", body)]);
    let graph = graph(vec![f32("x", "2")], vec![integers("n", &[], &[2])], vec![call], &["y"]);
    assert_eq!(import(&model(17, graph.clone())).unwrap().weights().count(), 1);
    assert_eq!(computed(graph, &x()), [(vec![2], vec![9.0, 50.0])]);
}

/// A body uses names of the graph around it, and has names of its own that mean something else there.
#[test]
fn names_inside_and_outside() {
    let nodes = vec![node("h = Add(s, k)", vec![]), node("x = Mul(h, h)", vec![])];
    let body = body(vec![f32("s", "2")], vec![], nodes, &["c", "x", "k"]);
    let nodes = vec![
        node("h = Neg(x)", vec![]),
        node("k = Abs(h)", vec![]),
        node("y, z = Loop(n, __, h)", vec![graph_attribute("body", body)]),
        node("u = Add(y, h)", vec![]),
        node("v = Add(u, x)", vec![]),
    ];
    let graph = graph(vec![f32("x", "2")], vec![integers("n", &[], &[2])], nodes, &["v", "z"]);
    // (s + k)^2 from s = -x on, k = x.
    assert_eq!(computed(graph, &x()), [(vec![2], vec![1.0, 4.0]), (vec![2, 2], vec![1.0, 2.0, 1.0, 2.0])]);
}

/// What a round computes from its number and from sizes is known, and so is what depends on it.
#[test]
fn graphs_in_bodies() {
    let inner = body(vec![f32("t", "2")], vec![], vec![node("u = Add(t, x)", vec![])], &["c", "u"]);
    let branch = |op: &str| graph(vec![], vec![], vec![node(&format!("b = {op}(s)"), vec![])], &["b"]);
    let nodes = vec![
        node("even = Equal(i, zero)", vec![]),
        node(
            "a = If(even)",
            vec![graph_attribute("then_branch", branch("Neg")), graph_attribute("else_branch", branch("Exp"))],
        ),
        // As many times as the round has before it.
        node("next = Loop(i, __, a)", vec![graph_attribute("body", inner)]),
    ];
    let outer = body(vec![f32("s", "2")], vec![integers("zero", &[], &[0])], nodes, &["c", "next"]);
    let call = node("y = Loop(n, __, x)", vec![graph_attribute("body", outer)]);
    let graph = graph(vec![f32("x", "2")], vec![integers("n", &[], &[2])], vec![call], &["y"]);
    let expected = [(-1f64).exp() as f32 + 1.0, (-2f64).exp() as f32 + 2.0].map(f64::from);
    let [(shape, found)] = computed(graph, &x()).try_into().unwrap();
    assert_eq!(shape, [2]);
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
}

/// A size that differs from round to round has one name in the body.
#[test]
fn what_grows() {
    let nodes = vec![node("next = Concat(s, s)", vec![int("axis", 0)]), node("size = Shape(s)", vec![])];
    let mut body = body(vec![f32("s", "m")], vec![], nodes, &["c", "next", "size"]);
    body.output[1] = f32("next", "m");
    let call = node("y, z = Loop(n, __, x)", vec![graph_attribute("body", body)]);
    let graph = graph(vec![f32("x", "m")], vec![integers("n", &[], &[2])], vec![call], &["y", "z"]);
    let imported = import(&model(17, graph.clone())).unwrap();
    assert_eq!(imported.ty(imported.outputs()[0].value).to_string(), "f32[4*m]");
    let twice = vec![1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0];
    assert_eq!(computed(graph, &x()), [(vec![8], twice), (vec![2, 1], vec![2.0, 4.0])]);
}

/// The operator stays where there is no telling how often it runs, where that is too often, where a node of the
/// body is none that a graph can have, and where an operand is missing.
#[test]
fn loops_that_stay() {
    let mut unknown = summing(3, None, "c");
    unknown.initializer.clear();
    unknown.input.push(typed("n", DataType::Int64, ""));
    let mut depends = summing(3, None, "c");
    depends.input.push(typed("d", DataType::Bool, ""));
    depends.node[0].attribute = vec![graph_attribute("body", sums("d"))];
    let mut refused = sums("c");
    refused.node.push(NodeProto { domain: "own".to_owned(), ..node("p = F(s, pairs)", vec![]) });
    let data_type = DataType::Complex64.into();
    refused.initializer.push(TensorProto { name: "pairs".to_owned(), data_type, ..TensorProto::default() });
    let mut foreign = summing(3, None, "c");
    foreign.node[0].attribute = vec![graph_attribute("body", refused)];
    let mut missing = summing(3, None, "c");
    missing.node[0].input[2].clear();
    for mut graph in [unknown, depends, foreign, missing, summing(1 << 62, None, "c"), summing(2000, None, "c")] {
        graph.output = vec![f32("y", "2"), f32("z", "m, 2")];
        let body = graph.node[0].attribute[0].g.as_mut().unwrap();
        (body.output[1], body.output[2]) = (f32("next", "2"), f32("r", "2"));
        assert!(has_operators(&import(&model(17, graph)).unwrap()));
    }
}

/// The bound holds for all loops together: these would come to 64 million nodes.
#[test]
fn loops_in_loops_come_to_no_more() {
    let nest = |inner: GraphProto, call: &str, state: &str, next: &str| {
        let call = node(&format!("{next} = Loop({call}, __, {state})"), vec![graph_attribute("body", inner)]);
        let mut body = body(vec![f32(state, "2")], vec![], vec![call], &["c", next]);
        body.output[1] = f32(next, "2");
        body
    };
    let mut inner = body(vec![f32("s", "2")], vec![], vec![node("t = Neg(s)", vec![])], &["c", "t"]);
    inner.output[1] = f32("t", "2");
    let outer = nest(nest(inner, "n", "u", "v"), "n", "p", "q");
    let call = node("y = Loop(n, __, x)", vec![graph_attribute("body", outer)]);
    let mut graph = graph(vec![f32("x", "2")], vec![integers("n", &[], &[400])], vec![call], &["y"]);
    graph.output = vec![f32("y", "2")];
    let imported = import(&model(17, graph)).unwrap();
    assert!(has_operators(&imported) && imported.nodes().count() <= 10_000);
}

/// A scan of running sums: each round gives the sum so far, and the piece itself.
fn scan(attributes: Vec<AttributeProto>, dims: &str, piece: &str) -> GraphProto {
    let nodes = vec![node("next = Add(s, p)", vec![]), node("sum = Identity(next)", vec![])];
    let mut inner = graph(vec![f32("s", piece), f32("p", piece)], vec![], nodes, &["next", "sum", "p"]);
    inner.output[0] = f32("next", piece);
    let mut attributes = attributes;
    attributes.extend([graph_attribute("body", inner), int("num_scan_inputs", 1)]);
    let call = node("last, sums, pieces = Scan(start, x)", attributes);
    graph(vec![f32("start", piece), f32("x", dims)], vec![], vec![call], &["last", "sums", "pieces"])
}

fn start_and(x: Tensor) -> [(&'static str, Tensor); 2] {
    [("start", tensor(&[2], &[10.0, 20.0])), ("x", x)]
}

fn rows() -> [(&'static str, Tensor); 2] {
    start_and(tensor(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
}

#[test]
fn scans_forward_and_backward() {
    let last = (vec![2], vec![19.0, 32.0]);
    let forward = computed(scan(vec![], "3, 2", "2"), &rows());
    let sums = (vec![3, 2], vec![11.0, 22.0, 14.0, 26.0, 19.0, 32.0]);
    let pieces = (vec![3, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(forward, [last.clone(), sums, pieces]);

    let directions = vec![ints("scan_input_directions", &[1]), ints("scan_output_directions", &[0, 1])];
    let backward = computed(scan(directions, "3, 2", "2"), &rows());
    let sums = (vec![3, 2], vec![15.0, 26.0, 18.0, 30.0, 19.0, 32.0]);
    // Backward twice.
    let pieces = (vec![3, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(backward, [last, sums, pieces]);
}

#[test]
fn scans_along_other_axes() {
    let axes = vec![ints("scan_input_axes", &[-1]), ints("scan_output_axes", &[1, -2])];
    let columns = start_and(tensor(&[2, 3], &[1.0, 3.0, 5.0, 2.0, 4.0, 6.0]));
    let found = computed(scan(axes, "2, 3", "2"), &columns);
    let sums = (vec![2, 3], vec![11.0, 14.0, 19.0, 22.0, 26.0, 32.0]);
    let pieces = (vec![3, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(found, [(vec![2], vec![19.0, 32.0]), sums, pieces]);
}

#[test]
fn scans_of_nothing() {
    let nothing = start_and(tensor(&[0, 2], &[]));
    let found = computed(scan(vec![], "0, 2", "2"), &nothing);
    assert_eq!(found, [(vec![2], vec![10.0, 20.0]), (vec![0, 2], vec![]), (vec![0, 2], vec![])]);
}

#[test]
fn scans_that_stay() {
    for dims in ["m, 2", "4000, 2"] {
        let mut graph = scan(vec![], dims, "2");
        graph.output = vec![f32("last", "2"), f32("sums", dims), f32("pieces", dims)];
        assert!(has_operators(&import(&model(17, graph)).unwrap()));
    }
}

/// A scan that stays cuts along first axes: ONNX Runtime ends the process where there is nothing along another.
#[test]
fn scans_that_stay_cut_along_first_axes() {
    let body = graph(vec![f32("s", "2"), f32("p", "2")], vec![], vec![node("t = Add(s, p)", vec![])], &["t", "p"]);
    let attributes = vec![int("num_scan_inputs", 1), ints("scan_input_axes", &[-1]), graph_attribute("body", body)];
    let scan = node("y, z = Scan(s0, x)", attributes);
    let graph = graph(vec![f32("s0", "2"), f32("x", "2, n")], vec![], vec![scan], &["y", "z"]);
    let text = import(&model(17, graph)).unwrap().to_string();
    assert!(text.contains("%x/cut = transpose(%x) {perm = [1, 0]} : f32[n, 2]"), "{text}");
    assert!(text.contains("foreign([%s0, %x/cut]") && !text.contains("scan_input_axes"), "{text}");
}

/// Before opset 9 operands have a batch in front, each element of which is gone over by itself.
#[test]
fn scans_over_a_batch() {
    let nodes = vec![node("t = Add(s, p)", vec![]), node("v = Mul(t, p)", vec![])];
    let body = graph(vec![f32("s", "1"), f32("p", "1")], vec![], nodes, &["t", "v"]);
    let of = |lengths: &str| {
        let attributes =
            vec![int("num_scan_inputs", 1), ints("directions", &[1]), graph_attribute("body", body.clone())];
        let scan = node(&format!("y, z = Scan({lengths}, s0, x)"), attributes);
        let lengths = typed("l", DataType::Int64, "2");
        graph(vec![f32("s0", "2, 1"), f32("x", "2, 3, 1"), lengths], vec![], vec![scan], &["y", "z"])
    };
    let graph = import(&model(8, of("__"))).unwrap();
    assert!(!has_operators(&graph), "{graph}");
    let inputs = [
        ("s0", tensor(&[2, 1], &[0.0, 10.0])),
        ("x", tensor(&[2, 3, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        ("l", Tensor::new(vec![2], vec![3i64, 3]).unwrap()),
    ];
    let results: Vec<Vec<f64>> = evaluate(&graph, &inputs).unwrap().into_iter().map(|(_, t)| t.to_f64()).collect();
    // From the last element on; results are in the order in which they were computed.
    assert_eq!(results, [vec![6.0, 25.0], vec![9.0, 10.0, 6.0, 96.0, 105.0, 100.0]]);
    // Rows of lengths of their own have no other form.
    assert!(has_operators(&import(&model(8, of("l"))).unwrap()));
}
