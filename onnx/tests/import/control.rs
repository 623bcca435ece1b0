use planish_onnx::proto::{DataType, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto, TensorProto};

use planish_testing::onnx::{
    assert_nodes, f32, floats, graph, graph_attribute, import, int, integers, lines, model, node, typed,
};

fn branch(op: &str) -> GraphProto {
    graph(vec![], vec![floats("k", &[1], &[2.0])], vec![node(&format!("b = {op}(x, k)"), vec![])], &["b"])
}

fn choice(condition: &str) -> NodeProto {
    let branches = vec![graph_attribute("then_branch", branch("Add")), graph_attribute("else_branch", branch("Mul"))];
    node(&format!("y = If({condition})"), branches)
}

/// The branch that is taken becomes part of the graph, under names of its own.
#[test]
fn a_condition_that_is_known() {
    let nodes = vec![
        node("s = Shape(x)", vec![]),
        node("n = Size(s)", vec![]),
        node("c = Equal(n, n)", vec![]),
        choice("c"),
        node("d = Not(c)", vec![]),
        NodeProto { output: vec!["z".to_owned()], ..choice("d") },
    ];
    assert_nodes(
        17,
        graph(vec![f32("x", "n, 2")], vec![], nodes, &["y", "z"]),
        &[
            "%y/then_branch/b = add(%x, @y/then_branch/k) : f32[n, 2]",
            "%z/else_branch/b = mul(%x, @z/else_branch/k) : f32[n, 2]",
        ],
    );
}

/// Also where it is computed as a number.
#[test]
fn a_condition_that_is_converted() {
    let nodes = vec![
        node("s = Shape(x)", vec![]),
        node("n = Gather(s, one)", vec![]),
        node("c = Cast(n)", vec![int("to", 9)]),
        choice("c"),
    ];
    let inputs = |dims: &str| vec![f32("x", dims)];
    let one = || vec![integers("one", &[], &[1])];
    let added = ["%y/then_branch/b = add(%x, @y/then_branch/k) : f32[n, 2]"];
    assert_nodes(17, graph(inputs("n, 2"), one(), nodes.clone(), &["y"]), &added);
    let multiplied = ["%y/else_branch/b = mul(%x, @y/else_branch/k) : f32[n, 0]"];
    assert_nodes(17, graph(inputs("n, 0"), one(), nodes, &["y"]), &multiplied);
}

/// A branch that is taken and cannot be imported stays in the operator, which declares its result.
#[test]
fn a_branch_that_cannot_be_part_of_the_graph() {
    let own = NodeProto { domain: "own".to_owned(), ..node("h = F(x, k)", vec![]) };
    let pairs =
        || TensorProto { name: "k".to_owned(), data_type: DataType::Complex64.into(), ..TensorProto::default() };
    let branch = |dims: &str| {
        let nodes = vec![own.clone(), node("b = Neg(h)", vec![])];
        GraphProto { output: vec![f32("b", dims)], ..graph(vec![], vec![pairs()], nodes, &[]) }
    };
    let choice = node(
        "y = If(c)",
        vec![graph_attribute("then_branch", branch("2")), graph_attribute("else_branch", branch("2"))],
    );
    let mut condition = integers("c", &[], &[1]);
    condition.data_type = DataType::Bool.into();
    condition.int32_data = vec![1];
    let text = lines(17, graph(vec![f32("x", "2")], vec![condition], vec![choice], &["y"])).join("\n");
    assert!(text.contains("op = \"If\"") && text.contains(": f32[2]"), "{text}");
}

/// Otherwise the operator passes through, with what its branches use of the graph.
#[test]
fn a_condition_that_is_not_known() {
    let mut graph = graph(vec![f32("x", "2"), typed("c", DataType::Bool, "")], vec![], vec![choice("c")], &["y"]);
    graph.output = vec![f32("y", "2")];
    let lines = lines(17, graph);
    let [only] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(only.starts_with("%y = foreign([%c], [%x]) {domain = \"ai.onnx\", op = \"If\""), "{only}");
    assert!(only.contains("captures = [\"x\"]"), "{only}");
}

/// A call becomes the function's nodes, attributes included.
#[test]
fn functions() {
    let mut leaky = node("r = Softmax(h)", vec![int("axis", 0)]);
    leaky.attribute[0].ref_attr_name = "along".to_owned();
    let function = FunctionProto {
        name: "F".to_owned(),
        domain: "own".to_owned(),
        input: vec!["a".to_owned()],
        output: vec!["r".to_owned()],
        node: vec![node("h = Neg(a)", vec![]), leaky],
        ..FunctionProto::default()
    };
    let call = NodeProto { domain: "own".to_owned(), name: "f".to_owned(), ..node("y = F(x)", vec![int("along", -1)]) };
    let mut model = model(17, graph(vec![f32("x", "n, 2")], vec![], vec![call], &["y"]));
    model.opset_import.push(OperatorSetIdProto { domain: "own".to_owned(), version: 1 });
    model.functions = vec![function];
    let text = import(&model).unwrap().to_string();
    let nodes: Vec<&str> = text.lines().map(str::trim).filter(|l| l.starts_with('%')).collect();
    assert_eq!(nodes, ["%f/1/h = neg(%x) : f32[n, 2]", "%y = softmax(%f/1/h) : f32[n, 2]"]);
}

/// A mask that is added only where it leaves something out, as planish writes it for ONNX Runtime, is added in any case. An
/// addend of another mask stays in its branch.
#[test]
fn a_mask_that_is_added_where_it_is_needed() {
    let branch = |nodes: Vec<NodeProto>| graph(vec![], vec![], nodes, &["r"]);
    let axis = || vec![int("axis", -1)];
    let nodes = |mask: &str| {
        vec![
            node("m = Cast(p)", vec![int("to", 9)]),
            node("o = Cast(x)", vec![int("to", 9)]),
            node(&format!("l = Not({mask})"), vec![]),
            node("i = Cast(l)", vec![int("to", 6)]),
            node("t = ReduceSum(i, axes)", vec![int("keepdims", 0)]),
            node("c = Cast(t)", vec![int("to", 9)]),
            node("a = Where(m, zero, least)", vec![]),
            node(
                "y = If(c)",
                vec![
                    graph_attribute(
                        "then_branch",
                        branch(vec![node("s = Add(x, a)", vec![]), node("r = Softmax(s)", axis())]),
                    ),
                    graph_attribute("else_branch", branch(vec![node("r = Softmax(x)", axis())])),
                ],
            ),
        ]
    };
    let weights = || vec![integers("axes", &[2], &[0, 1]), floats("zero", &[], &[0.0]), floats("least", &[], &[-1e30])];
    let last = |mask| {
        let inputs = vec![f32("x", "n, s"), f32("p", "n, s")];
        lines(17, graph(inputs, weights(), nodes(mask), &["y"])).pop().unwrap()
    };
    assert_eq!(last("m"), "%y = softmax(%y/add) : f32[n, s]");
    assert!(last("o").starts_with("%y = foreign([%c]"), "{}", last("o"));
}
