//! The types of the results of operators that pass through, and of convolutions and what looks for the largest elements.

use planish_onnx::proto::{DataType, GraphProto, NodeProto, TensorProto, ValueInfoProto};

use planish_testing::onnx::{
    f32, floats, graph, graph_attribute, import, int, integers, ints, lines, model, node, text, typed,
};

/// The types of the results `y`, `z`, ... of a node of operands `x`, `u`, ... and constants.
#[track_caller]
fn results(inputs: Vec<ValueInfoProto>, constants: Vec<TensorProto>, node: NodeProto) -> Vec<String> {
    let outputs: Vec<String> = node.output.clone();
    let outputs: Vec<&str> = outputs.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    let graph = import(&model(18, graph(inputs, constants, vec![node], &outputs))).unwrap();
    let own = ["foreign", "conv", "top_k", "argmax"];
    assert!(graph.nodes().any(|(_, n)| own.contains(&n.op.mnemonic())));
    graph.outputs().iter().map(|o| graph.type_of(o.value).to_string()).collect()
}

#[track_caller]
fn one(inputs: Vec<ValueInfoProto>, constants: Vec<TensorProto>, node: NodeProto, expected: &str) {
    assert_eq!(results(inputs, constants, node), [expected]);
}

fn x() -> Vec<ValueInfoProto> {
    vec![f32("x", "n, 4")]
}

/// An operand of as many integers as are said.
fn and_integers(count: &str) -> Vec<ValueInfoProto> {
    vec![f32("x", "n, 4"), typed("u", DataType::Int64, count)]
}

fn image() -> Vec<ValueInfoProto> {
    vec![f32("x", "n, 3, h, 8")]
}

#[test]
fn element_by_element() {
    one(vec![f32("x", "n, 1"), f32("u", "4")], vec![], node("y = Mod(x, u)", vec![int("fmod", 1)]), "f32[n, 4]");
    one(x(), vec![], node("y = HardSwish(x)", vec![]), "f32[n, 4]");
    one(x(), vec![], node("y = IsInf(x)", vec![]), "bool[n, 4]");
    one(x(), vec![], node("y = EyeLike(x)", vec![int("dtype", 7)]), "i64[n, 4]");
}

#[test]
fn sizes_that_a_run_determines_are_symbols() {
    one(and_integers("3"), vec![], node("y = Reshape(x, u)", vec![]), "f32[y_dim_0, y_dim_1, y_dim_2]");
    one(and_integers("2"), vec![], node("y = Tile(x, u)", vec![]), "f32[y_dim_0, y_dim_1]");
    one(and_integers("2"), vec![], node("y = Expand(x, u)", vec![]), "f32[y_dim_0, 4]");
    one(x(), vec![], node("y = NonZero(x)", vec![]), "i64[2, y_dim_1]");
    one(and_integers("1"), vec![], node("y = ReduceSum(x, u)", vec![int("keepdims", 0)]), "f32[y_dim_0]");
    assert_eq!(results(and_integers("1"), vec![], node("y, z = TopK(x, u)", vec![])), ["f32[n, y_k]", "i64[n, y_k]"]);
}

#[test]
fn what_is_declared_fills_in_what_is_open() {
    let mut graph = graph(and_integers("2"), vec![], vec![node("y = Reshape(x, u)", vec![])], &["y"]);
    graph.output = vec![f32("y", "n, 7")];
    let graph = import(&model(17, graph)).unwrap();
    assert_eq!(graph.ty(graph.outputs()[0].value).to_string(), "f32[n, 7]");
}

#[test]
fn elements_by_index() {
    let indices = |dims: &str| vec![f32("x", "n, 4"), typed("u", DataType::Int64, dims)];
    one(indices("2, m"), vec![], node("y = GatherElements(x, u)", vec![]), "f32[2, m]");
    one(indices("k, 1"), vec![], node("y = GatherND(x, u)", vec![]), "f32[k, 4]");
    one(indices("k, 2"), vec![], node("y = GatherND(x, u)", vec![]), "f32[k]");
    one(x(), vec![], node("y = ArgMax(x)", vec![int("axis", -1), int("keepdims", 0)]), "i64[n]");
}

#[test]
fn pads_and_steps() {
    one(x(), vec![integers("p", &[4], &[1, 0, 2, 0])], node("y = Pad(x, p)", vec![]), "f32[n + 3, 4]");
    let (pads, axes) = (integers("p", &[2], &[0, 1]), integers("a", &[1], &[-1]));
    one(x(), vec![pads.clone(), axes.clone()], node("y = Pad(x, p, _, a)", vec![]), "f32[n, 5]");
    let pads_of_axes = graph(x(), vec![pads, axes], vec![node("y = Pad(x, p, _, a)", vec![])], &["y"]);
    let lines = lines(18, pads_of_axes);
    assert!(lines[0].contains("@y/pads = dense([0, 0, 0, 1]) : i64[4]"), "{lines:?}");
    assert!(lines[1].contains("foreign([%x, @y/pads], [])"), "{lines:?}");
    let reversed = vec![
        integers("from", &[1], &[-1]),
        integers("to", &[1], &[-i64::MAX]),
        integers("axis", &[1], &[0]),
        integers("step", &[1], &[-1]),
    ];
    one(x(), reversed, node("y = Slice(x, from, to, axis, step)", vec![]), "f32[n, 4]");
    let backward = |start: i64| {
        let numbers = [("from", start), ("to", -100), ("axis", 1), ("step", -1)];
        numbers.map(|(name, number)| integers(name, &[1], &[number])).to_vec()
    };
    let slice = || node("y = Slice(x, from, to, axis, step)", vec![]);
    one(x(), backward(-10), slice(), "f32[n, 1]");
    one(x(), backward(10), slice(), "f32[n, 4]");
    one(vec![f32("x", "n, 0")], backward(-10), slice(), "f32[n, 0]");
    let every_third = vec![
        integers("from", &[1], &[0]),
        integers("to", &[1], &[9]),
        integers("axis", &[1], &[1]),
        integers("step", &[1], &[3]),
    ];
    one(x(), every_third, node("y = Slice(x, from, to, axis, step)", vec![]), "f32[n, 2]");
}

#[test]
fn windows_that_move() {
    let filters = || vec![floats("w", &[5, 3, 2, 2], &[0.0; 60])];
    one(image(), filters(), node("y = Conv(x, w)", vec![]), "f32[n, 5, h - 1, 7]");
    one(image(), filters(), node("y = Conv(x, w)", vec![ints("strides", &[2, 2])]), "f32[n, 5, y_dim_2, 4]");
    one(
        image(),
        filters(),
        node("y = Conv(x, w)", vec![ints("pads", &[1, 1, 0, 0]), ints("dilations", &[1, 2])]),
        "f32[n, 5, h, 7]",
    );
    let pool = || vec![ints("kernel_shape", &[1, 3]), ints("strides", &[1, 2])];
    one(image(), vec![], node("y = MaxPool(x)", pool()), "f32[n, 3, h, 3]");
    let up = [pool(), vec![int("ceil_mode", 1)]].concat();
    one(image(), vec![], node("y = MaxPool(x)", up), "f32[n, 3, h, 4]");
    one(
        image(),
        vec![],
        node("y = AveragePool(x)", [pool(), vec![text("auto_pad", "SAME_UPPER")]].concat()),
        "f32[n, 3, h, 4]",
    );
    one(image(), vec![], node("y = GlobalAveragePool(x)", vec![]), "f32[n, 3, 1, 1]");
    let transposed = vec![floats("w", &[3, 5, 2, 2], &[0.0; 60])];
    one(image(), transposed, node("y = ConvTranspose(x, w)", vec![ints("strides", &[2, 2])]), "f32[n, 5, 2*h, 16]");
}

#[test]
fn resized_images() {
    let scales = vec![floats("s", &[4], &[1.0, 1.0, 2.0, 0.5])];
    one(image(), scales, node("y = Resize(x, _, s)", vec![]), "f32[n, 3, 2*h, 4]");
    let sizes = vec![integers("s", &[2], &[7, 9])];
    one(image(), sizes, node("y = Resize(x, _, _, s)", vec![ints("axes", &[2, 3])]), "f32[n, 3, 7, 9]");
}

#[test]
fn sums_of_products() {
    let operands = || vec![f32("x", "b, i, 4"), f32("u", "b, 4, j")];
    one(operands(), vec![], node("y = Einsum(x, u)", vec![text("equation", "bik, bkj -> bij")]), "f32[b, i, j]");
    one(operands(), vec![], node("y = Einsum(x, u)", vec![text("equation", "...ik,...kj")]), "f32[b, i, j]");
    one(operands(), vec![], node("y = Einsum(x, u)", vec![text("equation", "bik,bkj->")]), "f32[]");
}

/// Operators of ONNX Runtime's own.
#[test]
fn contributed_operators() {
    let of = |inputs: Vec<ValueInfoProto>, call: NodeProto| {
        let call = NodeProto { domain: "com.microsoft".to_owned(), ..call };
        results(inputs, vec![], call)
    };
    let operands = || vec![f32("x", "b, 4, i"), f32("u", "j, 4")];
    let turned = vec![int("transA", 1), int("transB", 1)];
    assert_eq!(of(operands(), node("y = FusedMatMul(x, u)", turned)), ["f32[b, i, j]"]);
    assert_eq!(
        of(
            [x(), vec![f32("u", "n, 4"), f32("w", "4")]].concat(),
            node("y, z, __, v = SkipLayerNormalization(x, u, w)", vec![])
        ),
        ["f32[n, 4]", "f32[n, 1]", "f32[n, 4]"]
    );
    let bytes = |name: &str, dims: &str| typed(name, DataType::Uint8, dims);
    let packed = || vec![f32("x", "b, s, 32"), bytes("u", "8, 1, 16"), f32("w", "8")];
    let sizes = vec![int("K", 32), int("N", 8), int("bits", 4), int("block_size", 32)];
    assert_eq!(of(packed(), node("y = MatMulNBits(x, u, w)", sizes)), ["f32[b, s, 8]"]);
    let table = || vec![bytes("x", "9, 16"), typed("i", DataType::Int64, "b, s"), f32("w", "9, 2")];
    let lookup = |bits| node("y = GatherBlockQuantized(x, i, w)", vec![int("bits", bits), int("block_size", 16)]);
    assert_eq!(of(table(), lookup(4)), ["f32[b, s, 32]"]);
    assert_eq!(of(table(), lookup(8)), ["f32[b, s, 16]"]);
    let scaled = || vec![bytes("x", "n, 4"), f32("u", ""), bytes("z", "4")];
    assert_eq!(of(scaled(), node("y = QLinearAdd(x, u, _, z, u, _, u)", vec![])), ["u8[n, 4]"]);
    assert_eq!(of(scaled(), node("y = QLinearSigmoid(x, u, _, u)", vec![])), ["u8[n, 4]"]);
    let two = vec![bytes("x", "n, 4"), f32("u", ""), bytes("z", "n, 3"), bytes("o", "")];
    assert_eq!(of(two, node("y = QLinearConcat(u, o, x, u, o, z, u, o)", vec![int("axis", 1)])), ["u8[n, 7]"]);
    let ids = vec![typed("i", DataType::Int32, "b, s"), f32("t", "9, 6"), f32("p", "5, 6"), f32("g", "6")];
    let embed = "y, m = EmbedLayerNormalization(i, _, t, p, _, g, g)";
    assert_eq!(of(ids, node(embed, vec![])), ["f32[b, s, 6]", "i32[b]"]);
    let joined = vec![f32("x", "b, s, 6"), f32("u", "6, 24"), f32("w", "24")];
    assert_eq!(of(joined, node("y = Attention(x, u, w)", vec![int("num_heads", 2)])), ["f32[b, s, 8]"]);
    let grouped = vec![int("num_heads", 4), int("kv_num_heads", 2)];
    assert_eq!(of(vec![f32("x", "b, s, 32")], node("y = GroupQueryAttention(x)", grouped)), ["f32[b, s, 16]"]);
    // Of others nothing is known, which nobody asked for.
    assert_eq!(of(x(), node("y = Odd(x)", vec![])), ["?"]);
}

/// Those that are norms, activations and embeddings become operators of the graph.
#[test]
fn contributed_operators_with_a_meaning() {
    let of = |inputs: Vec<ValueInfoProto>, call: NodeProto, outputs: &[&str]| {
        let call = NodeProto { domain: "com.microsoft".to_owned(), ..call };
        lines(17, graph(inputs, vec![], vec![call], outputs))
    };
    let biased = || [x(), vec![f32("b", "4")]].concat();
    assert_eq!(
        of(biased(), node("y = BiasGelu(x, b)", vec![]), &["y"]),
        ["%y = add(%x, %b) : f32[n, 4]", "%y_1 = gelu(%y) {form = erf} : f32[n, 4]"]
    );
    assert_eq!(
        of(biased(), node("y = FastGelu(x, b)", vec![]), &["y"]),
        ["%y = add(%x, %b) : f32[n, 4]", "%y_1 = gelu(%y) {form = tanh} : f32[n, 4]"]
    );
    let skipped = vec![f32("x", "n, 4"), f32("u", "n, 4"), f32("w", "4")];
    assert_eq!(
        of(skipped, node("y, __, __, z = SkipSimplifiedLayerNormalization(x, u, w)", vec![]), &["y", "z"]),
        ["%y = add(%x, %u) : f32[n, 4]", "%y_1 = rms_norm(%y, %w) {eps = 9.999999960041972e-13} : f32[n, 4]"]
    );
    let ids = vec![typed("i", DataType::Int32, "b, s"), f32("t", "9, 6"), f32("p", "5, 6"), f32("g", "6")];
    assert_eq!(
        of(ids, node("y = EmbedLayerNormalization(i, _, t, p, _, g, g)", vec![]), &["y"]),
        [
            "%y = embedding(%t, %i) : f32[b, s, 6]",
            "%y_1 = slice(%p) {axis = 0, start = 0, end = s} : f32[s, 6]",
            "%y_2 = add(%y, %y_1) : f32[b, s, 6]",
            "%y_3 = layer_norm(%y_2, %g, bias: %g) {eps = 9.999999960041972e-13} : f32[b, s, 6]",
        ]
    );
    let simplified = node("y = SimplifiedLayerNormalization(x, w)", vec![]);
    assert_eq!(
        lines(11, graph(vec![f32("x", "n, 4"), f32("w", "4")], vec![], vec![simplified], &["y"])),
        ["%y = rms_norm(%x, %w) {eps = 9.999999747378752e-6} : f32[n, 4]"]
    );
}

/// Lists, optional values, text and tensors of any number of dimensions.
#[test]
fn what_is_no_tensor() {
    let list = |node: NodeProto, expected: &[&str]| {
        let cut = planish_testing::onnx::node("s = SplitToSequence(x)", vec![int("axis", 1)]);
        let name = node.output[0].clone();
        let text = lines(18, graph(x(), vec![integers("i", &[], &[1])], vec![cut, node], &["s", &name]));
        let types: Vec<&str> = text.iter().filter_map(|line| Some(line.rsplit_once(" : ")?.1)).collect();
        assert_eq!(types[types.len() - expected.len()..], *expected, "{text:?}");
    };
    list(node("y = SequenceAt(s, i)", vec![]), &["seq(f32[n, 1])", "f32[y_dim_0, 1]"]);
    list(node("y = SequenceErase(s, i)", vec![]), &["seq(f32[n, 1])", "seq(f32[n, 1])"]);
    list(node("y = SequenceLength(s)", vec![]), &["i64[]"]);
    list(node("y = ConcatFromSequence(s)", vec![int("axis", 1)]), &["f32[y_dim_0, y_dim_1]"]);
    list(node("y = ConcatFromSequence(s)", vec![int("axis", 0), int("new_axis", 1)]), &["f32[y_dim_0, y_dim_1, 1]"]);
    list(node("y = Optional(s)", vec![]), &["optional(seq(f32[n, 1]))"]);
    list(node("y = SequenceInsert(s, x)", vec![]), &["seq(f32[n, any])"]);

    let words = || vec![typed("x", DataType::String, "n, 4")];
    let parts = lines(20, graph(words(), vec![], vec![node("y, z = StringSplit(x)", vec![])], &["y", "z"]));
    assert!(parts[0].ends_with(" : string[n, 4, y_dim_2], i64[n, 4]"), "{parts:?}");
    one(words(), vec![], node("y = Equal(x, x)", vec![]), "bool[n, 4]");
    let turned = lines(18, graph(words(), vec![], vec![node("y = Transpose(x)", vec![])], &["y"]));
    assert_eq!(turned, ["%y = transpose(%x) {perm = [1, 0]} : string[4, n]"]);

    let mut any = typed("x", DataType::Float, "");
    any.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().shape = None;
    let any = || vec![any.clone()];
    one(any(), vec![], node("y = Relu(x)", vec![]), "f32[*]");
    one(any(), vec![], node("y = Cast(x)", vec![int("to", 7)]), "i64[*]");
    one(any(), vec![], node("y = Shape(x)", vec![]), "i64[y_dim_0]");
}

/// A scan of a number of rounds that is not known.
#[test]
fn rounds_of_a_scan() {
    let body = GraphProto {
        output: vec![f32("t", "2"), f32("v", "2, 3")],
        ..graph(vec![f32("s", "2"), f32("p", "2")], vec![], vec![], &[])
    };
    let body = GraphProto {
        initializer: vec![floats("v", &[2, 3], &[0.0; 6])],
        node: vec![node("t = Add(s, p)", vec![])],
        ..body
    };
    let scan = |axes: &[i64]| {
        let attributes = vec![graph_attribute("body", body.clone()), int("num_scan_inputs", 1)];
        let axes = if axes.is_empty() { vec![] } else { vec![ints("scan_output_axes", axes)] };
        let operands = vec![f32("x", "2"), f32("u", "n, 2")];
        results(operands, vec![], node("y, z = Scan(x, u)", [attributes, axes].concat()))
    };
    assert_eq!(scan(&[]), ["f32[y_dim_0]", "f32[z_dim_0, 2, 3]"]);
    assert_eq!(scan(&[-1]), ["f32[y_dim_0]", "f32[2, 3, z_dim_2]"]);
}

#[test]
fn convolutions_and_the_largest_elements_are_operators_of_the_graph() {
    // Weights have lines of their own.
    let nodes = |all: GraphProto| lines(18, all).into_iter().filter(|line| line.starts_with('%')).collect::<Vec<_>>();
    let filters = || vec![floats("w", &[5, 3, 2, 2], &[0.0; 60])];
    let conv = |attributes| nodes(graph(image(), filters(), vec![node("y = Conv(x, w)", attributes)], &["y"]));
    assert_eq!(
        conv(vec![ints("strides", &[2, 2]), ints("pads", &[1, 0, 1, 0])]),
        [
            "%y = conv(%x, @w) {strides = [2, 2], dilations = [1, 1], pads = [1, 0, 1, 0], groups = 1, sizes = [y_dim_2, 4]} : f32[n, 5, y_dim_2, 4]"
        ]
    );
    // Padding that follows from a size that only a run knows.
    assert!(conv(vec![text("auto_pad", "SAME_UPPER")])[0].starts_with("%y = foreign"));
    let k = || vec![integers("k", &[1], &[2])];
    let top = |attributes| nodes(graph(x(), k(), vec![node("y, z = TopK(x, k)", attributes)], &["y", "z"]));
    assert_eq!(top(vec![]), ["%y, %z = top_k(%x) {axis = 1, k = 2} : f32[n, 2], i64[n, 2]"]);
    assert_eq!(
        top(vec![int("axis", 0), int("largest", 0)]),
        ["%y, %z = top_k(%x) {axis = 0, k = 2, smallest = true} : f32[2, 4], i64[2, 4]"]
    );
    let last = node("y = ArgMax(x)", vec![int("axis", 1), int("keepdims", 0), int("select_last_index", 1)]);
    let last = nodes(graph(x(), vec![], vec![last], &["y"]));
    assert_eq!(last, ["%y = argmax(%x) {axis = 1, keep = false, last = true} : i64[n]"]);
}
