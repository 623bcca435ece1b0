//! Known integers that are picked, laid out otherwise and reduced stay known.

use planish_onnx::proto::{DataType, GraphProto, NodeProto, TensorProto};

use planish_testing::onnx::{assert_nodes, f32, floats, graph, int, integers, ints, lines, node, output, typed};

/// A graph of one input `x` [n, m, 4].
fn of_x(constants: Vec<TensorProto>, nodes: Vec<NodeProto>) -> GraphProto {
    graph(vec![f32("x", "n, m, 4")], constants, nodes, &["y"])
}

/// TorchScript turns pads around so: rows in reverse, transposed, in one row.
#[test]
fn rows_in_reverse_and_transposed() {
    let constants = vec![
        floats("ones", &[1], &[1.0]),
        integers("pads", &[2, 2], &[2, 4, 1, 4]),
        integers("far", &[1], &[i64::MIN]),
        integers("zero", &[1], &[0]),
        integers("minus", &[1], &[-1]),
    ];
    let nodes = vec![
        node("turned = Slice(pads, minus, far, zero, minus)", vec![]),
        node("columns = Transpose(turned)", vec![ints("perm", &[1, 0])]),
        node("all = Reshape(columns, minus)", vec![]),
        node("y = Expand(ones, all)", vec![]),
    ];
    assert_nodes(17, of_x(constants, nodes), &["%y = expand(@ones) {shape = [1, 2, 4, 4]} : f32[1, 2, 4, 4]"]);
}

/// A slice that goes backward begins at an element: one that begins far in front of the first one has that.
#[test]
fn backward_from_in_front_of_the_first() {
    let constants = |start: i64| {
        vec![
            floats("ones", &[1], &[1.0]),
            integers("sizes", &[3], &[5, 6, 7]),
            integers("none", &[0], &[]),
            integers("start", &[1], &[start]),
            integers("end", &[1], &[-100]),
            integers("zero", &[1], &[0]),
            integers("minus", &[1], &[-1]),
        ]
    };
    let nodes = |of: &str| {
        let turned = format!("turned = Slice({of}, start, end, zero, minus)");
        vec![node(&turned, vec![]), node("y = Expand(ones, turned)", vec![])]
    };
    for start in [-10, i64::MIN] {
        let first = &["%y = expand(@ones) {shape = [5]} : f32[5]"];
        assert_nodes(17, of_x(constants(start), nodes("sizes")), first);
        assert_nodes(17, of_x(constants(start), nodes("none")), &[]);
    }
    let all = &["%y = expand(@ones) {shape = [7, 6, 5]} : f32[7, 6, 5]"];
    assert_nodes(17, of_x(constants(i64::MAX), nodes("sizes")), all);
}

/// `repeat_interleave` as TorchScript writes it: rows of which each is taken as often as it is counted.
#[test]
fn places_of_what_holds() {
    let constants = vec![
        integers("counts", &[2], &[2, 1]),
        integers("table", &[2, 2], &[1, 1, 4, 9]),
        integers("zero", &[], &[0]),
        integers("step", &[], &[1]),
        integers("axis", &[1], &[1]),
        floats("ones", &[1], &[1.0]),
    ];
    let nodes = vec![
        node("most = ReduceMax(counts)", vec![int("keepdims", 0)]),
        node("to = Range(zero, most, step)", vec![]),
        node("each = Unsqueeze(counts, axis)", vec![]),
        node("taken = Less(to, each)", vec![]),
        // [[0, 0, 1], [0, 1, 0]]
        node("places = NonZero(taken)", vec![]),
        node("pairs = Transpose(places)", vec![ints("perm", &[1, 0])]),
        node("shape = GatherND(table, pairs)", vec![]),
        node("y = Expand(ones, shape)", vec![]),
    ];
    assert_nodes(17, of_x(constants, nodes), &["%y = expand(@ones) {shape = [1, 1, 4]} : f32[1, 1, 4]"]);
}

#[test]
fn sums_along_axes() {
    let constants =
        vec![integers("table", &[2, 2], &[1, 2, 3, 4]), integers("axis", &[1], &[0]), floats("ones", &[1], &[1.0])];
    let nodes =
        vec![node("sums = ReduceSum(table, axis)", vec![int("keepdims", 0)]), node("y = Expand(ones, sums)", vec![])];
    assert_nodes(17, of_x(constants, nodes), &["%y = expand(@ones) {shape = [4, 6]} : f32[4, 6]"]);
}

/// A size that was used as a tensor is still known.
#[test]
fn sizes_stay_known_after_their_use() {
    let nodes = vec![
        node("sizes = Shape(x)", vec![]),
        node("more = Add(sizes, k)", vec![]),
        node("front = Slice(sizes, zero, one, zero)", vec![]),
        node("shape = Concat(front, minus)", vec![int("axis", 0)]),
        node("y = Reshape(x, shape)", vec![]),
    ];
    let mut whole =
        of_x(vec![integers("zero", &[1], &[0]), integers("one", &[1], &[1]), integers("minus", &[1], &[-1])], nodes);
    whole.input.push(typed("k", DataType::Int64, "3"));
    whole.output.push(output("more"));
    let lines = lines(17, whole);
    assert!(lines.contains(&"%y = reshape(%x) {shape = [n, 4*m]} : f32[n, 4*m]".to_owned()), "{lines:?}");
}

/// What is the larger of a size and itself, or of sizes that differ by a constant, is known.
#[test]
fn the_larger_of_sizes() {
    let nodes = vec![
        node("sizes = Shape(x)", vec![]),
        node("front = Slice(sizes, zero, one, zero)", vec![]),
        node("more = Add(front, one)", vec![]),
        node("least = Min(more, front)", vec![]),
        node("most = Max(front, least)", vec![]),
        node("shape = Concat(most, minus)", vec![int("axis", 0)]),
        node("y = Reshape(x, shape)", vec![]),
    ];
    let constants = [integers("zero", &[1], &[0]), integers("one", &[1], &[1]), integers("minus", &[1], &[-1])];
    assert_nodes(17, of_x(constants.to_vec(), nodes), &["%y = reshape(%x) {shape = [n, 4*m]} : f32[n, 4*m]"]);
}

/// Indices that are out of range are left to the run.
#[test]
fn out_of_range() {
    let nodes = vec![node("y = Gather(table, far)", vec![int("axis", 0)])];
    let constants = vec![integers("table", &[2], &[1, 2]), integers("far", &[1], &[5])];
    let lines = lines(17, of_x(constants, nodes));
    assert!(lines.last().is_some_and(|line| line.contains("gather")), "{lines:?}");
}

/// What is too large to be followed is not made.
#[test]
fn expanded_to_sizes_beyond_memory() {
    let constants = vec![integers("one", &[1], &[1]), integers("many", &[2], &[1 << 32, 2])];
    let nodes = vec![node("y = Expand(one, many)", vec![])];
    assert_nodes(17, of_x(constants, nodes), &["%y = expand(@one) {shape = [4294967296, 2]} : i64[4294967296, 2]"]);
}
