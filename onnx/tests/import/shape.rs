use planish_onnx::ImportOptions;
use planish_onnx::proto::{DataType, GraphProto, NodeProto, TensorProto};

use planish_testing::onnx::{assert_nodes, f32, graph, import_with, int, integers, lines, model, node, typed};

/// A graph of one input `x` [n, m, 4].
fn of_x(constants: Vec<TensorProto>, nodes: Vec<NodeProto>) -> GraphProto {
    graph(vec![f32("x", "n, m, 4")], constants, nodes, &["y"])
}

/// What exporters write for `x.view(n, m * 4)`.
#[test]
fn arithmetic_on_shapes_leaves_no_node() {
    let nodes = vec![
        node("s = Shape(x)", vec![]),
        node("n = Gather(s, zero)", vec![int("axis", 0)]),
        node("m = Gather(s, one)", vec![int("axis", 0)]),
        node("product = Mul(m, four)", vec![]),
        node("a = Unsqueeze(n, axes)", vec![]),
        node("b = Unsqueeze(product, axes)", vec![]),
        node("shape = Concat(a, b)", vec![int("axis", 0)]),
        node("y = Reshape(x, shape)", vec![]),
    ];
    let constants = vec![
        integers("zero", &[], &[0]),
        integers("one", &[], &[1]),
        integers("four", &[], &[4]),
        integers("axes", &[1], &[0]),
    ];
    assert_nodes(17, of_x(constants, nodes), &["%y = reshape(%x) {shape = [n, 4*m]} : f32[n, 4*m]"]);
}

#[test]
fn open_dimensions_are_solved_for() {
    let shape = vec![integers("shape", &[2], &[0, -1])];
    let nodes = vec![node("y = Reshape(x, shape)", vec![])];
    assert_nodes(17, of_x(shape, nodes), &["%y = reshape(%x) {shape = [n, 4*m]} : f32[n, 4*m]"]);
    let twice = vec![integers("shape", &[2], &[-1, -1])];
    let error = planish_testing::onnx::import(&planish_testing::onnx::model(
        17,
        of_x(twice, vec![node("y = Reshape(x, shape)", vec![])]),
    ))
    .err();
    // It passes through; what it means is for the target to refuse.
    assert!(error.is_none_or(|e| e.contains("two dimensions are left open")));
}

#[test]
fn remainders_quotients_and_signs() {
    let nodes = vec![
        node("s = Shape(x)", vec![]),
        node("last = Gather(s, two)", vec![]),
        node("rest = Mod(last, three)", vec![]),
        node("minus = Neg(last)", vec![]),
        node("back = Mod(minus, three)", vec![]),
        node("half = Div(last, two)", vec![]),
        node("a = Unsqueeze(rest, axes)", vec![]),
        node("b = Unsqueeze(back, axes)", vec![]),
        node("c = Unsqueeze(half, axes)", vec![]),
        node("shape = Concat(a, b, c)", vec![int("axis", 0)]),
        node("y = ConstantOfShape(shape)", vec![]),
    ];
    let constants = vec![integers("two", &[], &[2]), integers("three", &[], &[3]), integers("axes", &[1], &[0])];
    assert_nodes(17, of_x(constants, nodes), &["%y = expand(@y/const) {shape = [1, 2, 2]} : f32[1, 2, 2]"]);
}

#[test]
fn ranges_count_along_dimensions() {
    let nodes = vec![
        node("s = Shape(x)", vec![int("start", 0), int("end", 1)]),
        node("n = Squeeze(s)", vec![]),
        node("y = Range(one, n, one)", vec![]),
    ];
    assert_nodes(
        17,
        of_x(vec![integers("one", &[], &[1])], nodes),
        &["%y = iota() {dtype = i64, length = n - 1} : i64[n - 1]", "%y_1 = add(%y, @y/start) : i64[n - 1]"],
    );
}

/// A range to a size that may lie before its start is of a length that only a run knows.
#[test]
fn ranges_between_sizes() {
    let nodes = vec![
        node("s = Shape(x)", vec![]),
        node("n = Gather(s, zero)", vec![]),
        node("m = Gather(s, one)", vec![]),
        node("y = Range(n, m, one)", vec![]),
    ];
    let constants = vec![integers("zero", &[], &[0]), integers("one", &[], &[1])];
    let lines = lines(17, of_x(constants, nodes));
    assert!(lines.last().unwrap().ends_with(": i64[y_dim_0]"), "{lines:?}");
}

/// Integers of 32 bits are left to a run where they leave these.
#[test]
fn products_beyond_32_bits() {
    let of_32 = |name: &str, value: i32| TensorProto {
        data_type: DataType::Int32.into(),
        int32_data: vec![value],
        int64_data: vec![],
        ..integers(name, &[], &[])
    };
    let nodes = vec![node("p = Mul(a, b)", vec![]), node("y = Cast(p)", vec![int("to", 7)])];
    let of = |b: i32| lines(17, of_x(vec![of_32("a", 1 << 30), of_32("b", b)], nodes.clone()));
    assert_eq!(of(4)[2..], ["%p = mul(@a, @b) : i32[]", "%y = cast(%p) {to = i64} : i64[]"]);
    assert!(of(1).iter().all(|line| line.starts_with("weight")), "{:?}", of(1));
}

#[test]
fn squeezing_and_flattening() {
    let nodes = vec![
        node("a = Unsqueeze(x, axes)", vec![]),
        node("b = Squeeze(a, axes)", vec![]),
        node("y = Flatten(b)", vec![int("axis", -1)]),
    ];
    assert_nodes(
        17,
        of_x(vec![integers("axes", &[2], &[0, 4])], nodes),
        &[
            "%a = reshape(%x) {shape = [1, n, m, 4, 1]} : f32[1, n, m, 4, 1]",
            "%b = reshape(%a) {shape = [n, m, 4]} : f32[n, m, 4]",
            "%y = reshape(%b) {shape = [m*n, 4]} : f32[m*n, 4]",
        ],
    );
    let open = lines(17, of_x(vec![], vec![node("y = Squeeze(x)", vec![])]));
    assert!(open[0].contains("op = \"Squeeze\"") && open[0].ends_with(" : f32[*]"), "{open:?}");
}

/// The first token, as TensorFlow's exporter writes it: an axis of open size has a first and a last element.
#[test]
fn squeezing_a_slice() {
    let of = |from: i64, to: i64| {
        let constants = vec![
            integers("from", &[1], &[from]),
            integers("to", &[1], &[to]),
            integers("axis", &[1], &[1]),
            integers("step", &[1], &[2]),
        ];
        let slice = if to == 2 { "a = Slice(x, from, to, axis, step)" } else { "a = Slice(x, from, to, axis)" };
        lines(17, of_x(constants, vec![node(slice, vec![]), node("y = Squeeze(a, axis)", vec![])])).pop().unwrap()
    };
    for (from, to) in [(0, 1), (-1, i64::MAX)] {
        assert_eq!(of(from, to), "%y = reshape(%a) {shape = [n, 4]} : f32[n, 4]");
    }
    // How many these are is not known, but which axis goes.
    assert!(of(0, 2).ends_with(": f32[n, 4]"), "{}", of(0, 2));
}

/// Without axes those go that are known to be 1.
#[test]
fn squeezing_without_axes() {
    let of = |dims: &str| {
        let squeeze = graph(vec![f32("x", dims)], vec![], vec![node("y = Squeeze(x)", vec![])], &["y"]);
        let (graph, warnings) = import_with(&model(17, squeeze), &ImportOptions::default()).unwrap();
        (graph.ty(graph.outputs()[0].value).to_string(), warnings.len())
    };
    assert_eq!(of("n, 1, 4"), ("f32[n, 4]".to_owned(), 1));
    assert_eq!(of("2, 1, 4"), ("f32[2, 4]".to_owned(), 0));
}

/// Known integers become a tensor where they are used as one.
#[test]
fn sizes_as_values() {
    let nodes = vec![node("s = Shape(x)", vec![]), node("y = Add(s, k)", vec![])];
    let inputs = vec![f32("x", "n, m, 4"), typed("k", DataType::Int64, "3")];
    assert_nodes(
        17,
        graph(inputs, vec![], nodes, &["y"]),
        &["%s = sizes() {of = [n, m, 4]} : i64[3]", "%y = add(%s, %k) : i64[3]"],
    );
}

/// Two names of a constant are one weight.
#[test]
fn identities() {
    let nodes = vec![node("v = Identity(w)", vec![]), node("y = Add(w, v)", vec![])];
    // What is known is computed at once, so these are too many to be followed.
    let many = || integers("w", &[2000], &[7; 2000]);
    let lines = lines(17, of_x(vec![many()], nodes));
    let [weight, sum] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(weight.starts_with("weight @w"), "{weight}");
    assert_eq!(sum, "%y = add(@w, @w) : i64[2000]");
}

/// Texts that are not names become names, and sums of names are sums.
#[test]
fn names_of_dimensions() {
    let inputs = vec![f32("x", "past, past + new"), f32("u", "?, batch size"), f32("v", "new, batch_size")];
    let graph = planish_testing::onnx::import(&planish_testing::onnx::model(
        17,
        graph(inputs, vec![], vec![], &["x", "u", "v"]),
    ))
    .unwrap();
    let types: Vec<String> = graph.inputs().iter().map(|v| graph.ty(*v).to_string()).collect();
    assert_eq!(types, ["f32[past, new + past]", "f32[u_dim_0, batch_size_1]", "f32[new, batch_size]"]);
}
