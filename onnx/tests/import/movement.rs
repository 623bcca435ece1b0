use planish_ir::Op;
use planish_onnx::proto::{DataType, GraphProto, NodeProto, TensorProto};

use planish_testing::onnx::{assert_nodes, f32, floats, graph, import, int, integers, ints, lines, model, node, typed};

fn of_x(constants: Vec<TensorProto>, nodes: Vec<NodeProto>, outputs: &[&str]) -> GraphProto {
    graph(vec![f32("x", "n, 4")], constants, nodes, outputs)
}

#[test]
fn transposes_and_concatenations() {
    let nodes = vec![
        node("t = Transpose(x)", vec![]),
        node("same = Transpose(t)", vec![ints("perm", &[0, 1])]),
        node("y = Concat(same, t)", vec![int("axis", -1)]),
    ];
    assert_nodes(
        17,
        of_x(vec![], nodes, &["y"]),
        &["%t = transpose(%x) {perm = [1, 0]} : f32[4, n]", "%y = concat([%t, %t]) {axis = 1} : f32[4, 2*n]"],
    );
}

#[test]
fn repeats() {
    let constants = vec![integers("s", &[3], &[2, 1, -1]), integers("r", &[2], &[1, 3])];
    assert_nodes(
        17,
        of_x(constants, vec![node("e = Expand(x, s)", vec![]), node("y = Tile(x, r)", vec![])], &["e", "y"]),
        &[
            "%e = expand(%x) {shape = [2, n, 4]} : f32[2, n, 4]",
            "%y = reshape(%x) {shape = [n, 1, 4]} : f32[n, 1, 4]",
            "%y_1 = expand(%y) {shape = [n, 3, 4]} : f32[n, 3, 4]",
            "%y_2 = reshape(%y_1) {shape = [n, 12]} : f32[n, 12]",
        ],
    );
}

#[test]
fn slices_count_from_either_end() {
    let constants = vec![
        integers("start", &[1], &[1]),
        integers("far", &[1], &[i64::MAX]),
        integers("last", &[1], &[-1]),
        integers("zero", &[1], &[0]),
        integers("one", &[1], &[1]),
    ];
    let nodes = vec![
        node("a = Slice(x, start, far, one)", vec![]),
        node("b = Slice(x, last, far, zero)", vec![]),
        node("c = Slice(x, zero, far, zero)", vec![]),
        node("y = Add(c, b)", vec![]),
    ];
    assert_nodes(
        17,
        of_x(constants, nodes, &["a", "y"]),
        &[
            "%a = slice(%x) {axis = 1, start = 1, end = 4} : f32[n, 3]",
            "%b = slice(%x) {axis = 0, start = n - 1, end = n} : f32[1, 4]",
            "%y = add(%x, %b) : f32[n, 4]",
        ],
    );
}

/// `scores[-length:]`, as exporters write it.
#[test]
fn a_slice_from_a_negated_dimension() {
    let nodes = vec![
        node("s = Shape(q)", vec![int("start", 0), int("end", 1)]),
        node("from = Neg(s)", vec![]),
        node("y = Slice(x, from, far, zero)", vec![]),
    ];
    let constants = vec![integers("far", &[1], &[i64::MAX]), integers("zero", &[1], &[0])];
    let inputs = vec![f32("x", "past + new, 4"), f32("q", "new, past")];
    assert_nodes(
        17,
        graph(inputs, constants, nodes, &["y"]),
        &["%y = slice(%x) {axis = 0, start = past, end = new + past} : f32[new, 4]"],
    );
}

/// A mask of a cache and new tokens has as many places as there are new tokens.
#[test]
fn the_last_places_of_a_mask() {
    let nodes = vec![
        node("all = Shape(mask)", vec![int("start", 0), int("end", 1)]),
        node("new = Shape(x)", vec![int("start", 0), int("end", 1)]),
        node("from = Sub(all, new)", vec![]),
        node("y = Slice(mask, from, all, zero)", vec![]),
    ];
    let inputs = vec![f32("mask", "total"), f32("x", "new")];
    assert_nodes(
        17,
        graph(inputs, vec![integers("zero", &[1], &[0])], nodes, &["y"]),
        &["%y = slice(%mask) {axis = 0, start = -new + total, end = total} : f32[new]"],
    );
}

/// Where a bound may lie outside of the axis, only a run knows how many elements there are.
#[test]
fn slices_that_may_reach_beyond_the_axis() {
    let of = |start: i64, end: i64| {
        let constants =
            vec![integers("from", &[1], &[start]), integers("to", &[1], &[end]), integers("axis", &[1], &[0])];
        let nodes = vec![node("a = Slice(x, from, to, axis)", vec![]), node("y = Shape(a)", vec![])];
        lines(17, of_x(constants, nodes, &["y"])).pop().unwrap()
    };
    for (start, end) in [(-5, i64::MAX), (0, -5), (2, i64::MAX), (0, 2), (-1, 1)] {
        assert_eq!(of(start, end), "%y = sizes() {of = [a_dim_0, 4]} : i64[2]", "{start}..{end}");
    }
    assert_eq!(of(0, -1), "%y = sizes() {of = [n - 1, 4]} : i64[2]");
    for (start, end) in [(0, 1), (-1, i64::MAX)] {
        assert!(of(start, end).starts_with("weight @y"), "{start}..{end}: {}", of(start, end));
    }
}

/// An axis is as long as it is, not as another one is that it is cut to.
#[test]
fn slices_to_a_size_of_something_else() {
    let nodes = vec![
        node("s = Shape(z)", vec![int("start", 0), int("end", 1)]),
        node("a = Slice(x, k, s, k)", vec![]),
        node("y = Relu(a)", vec![]),
    ];
    let of = |dims: &str| {
        let inputs = vec![f32("x", dims), f32("z", "m, 4"), f32("u", "k")];
        lines(17, graph(inputs, vec![integers("k", &[1], &[0])], nodes.clone(), &["y"])).pop().unwrap()
    };
    assert_eq!(of("n, 4"), "%y = relu(%a) : f32[a_dim_0, 4]");
    assert_eq!(of("m + k, 4"), "%y = relu(%a) : f32[m, 4]");
    assert_eq!(of("512, 4"), "%y = relu(%a) : f32[m, 4]", "a table of positions");
}

#[test]
fn splits_with_and_without_sizes() {
    let even = vec![node("a, b = Split(x)", vec![int("axis", 1)])];
    assert_nodes(
        17,
        of_x(vec![], even, &["a", "b"]),
        &["%a, %b = split(%x) {axis = 1, sizes = [2, 2]} : f32[n, 2], f32[n, 2]"],
    );
    let sized = vec![node("a, b = Split(x, sizes)", vec![int("axis", 1)])];
    assert_nodes(
        17,
        of_x(vec![integers("sizes", &[2], &[1, 3])], sized, &["a", "b"]),
        &["%a, %b = split(%x) {axis = 1, sizes = [1, 3]} : f32[n, 1], f32[n, 3]"],
    );
}

#[test]
fn rows_of_a_table_are_an_embedding() {
    let ids = || typed("ids", DataType::Int64, "n");
    let table = || floats("w", &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    assert_nodes(
        17,
        graph(vec![ids()], vec![table()], vec![node("y = Gather(w, ids)", vec![])], &["y"]),
        &["%y = embedding(@w, %ids) : f32[n, 2]"],
    );
    assert_nodes(
        17,
        of_x(vec![integers("last", &[], &[-1])], vec![node("y = Gather(x, last)", vec![int("axis", 1)])], &["y"]),
        &["%y = gather(%x, @last/from_front) {axis = 1} : f32[n]"],
    );
    assert_nodes(
        17,
        of_x(vec![integers("last", &[], &[-1])], vec![node("y = Gather(x, last)", vec![])], &["y"]),
        &["%y = slice(%x) {axis = 0, start = n - 1, end = n} : f32[1, 4]", "%y_1 = reshape(%y) {shape = [4]} : f32[4]"],
    );
}

/// Names that are made up here stand for nothing in the file.
#[test]
fn made_up_names_are_not_those_of_the_file() {
    let constants = vec![integers("i", &[2], &[-1, -2]), integers("i/from_front", &[2], &[0, 0])];
    let nodes =
        vec![node("a = Gather(x, i)", vec![int("axis", 1)]), node("y = Gather(x, i/from_front)", vec![int("axis", 1)])];
    let graph = import(&model(17, of_x(constants, nodes, &["a", "y"]))).unwrap();
    let elements = |name: &str| {
        let value = graph.outputs().iter().find(|o| o.name == name).unwrap().value;
        let Op::Gather(gather) = &graph.producer(value).unwrap().op else { unreachable!() };
        let bytes = graph.weight(gather.indices).unwrap().read().unwrap();
        bytes.chunks(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!((elements("a"), elements("y")), (vec![3, 2], vec![0, 0]));
}

#[test]
fn a_triangle_is_where_columns_and_rows_compare() {
    assert_nodes(
        17,
        of_x(vec![], vec![node("y = Trilu(x)", vec![int("upper", 0)])], &["y"]),
        &[
            "%y = iota() {dtype = i64, length = n} : i64[n]",
            "%y_1 = reshape(%y) {shape = [n, 1]} : i64[n, 1]",
            "%y_2 = iota() {dtype = i64, length = 4} : i64[4]",
            "%y_3 = less_or_equal(%y_2, %y_1) : bool[n, 4]",
            "%y_4 = select(%y_3, %x, @y/const) : f32[n, 4]",
        ],
    );
}
