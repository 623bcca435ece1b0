use planish_onnx::proto::{AttributeProto, AttributeType, GraphProto, NodeProto, TensorProto};

use planish_testing::onnx::{assert_nodes, attribute, f32, floats, graph, int, integers, ints, node, text};

fn of_x(constants: Vec<TensorProto>, nodes: Vec<NodeProto>) -> GraphProto {
    graph(vec![f32("x", "n, 2")], constants, nodes, &["y"])
}

fn weight() -> TensorProto {
    floats("w", &[3, 2], &[0.0; 6])
}

#[test]
fn products_with_a_weight_are_linear_layers() {
    let bias = || floats("b", &[3], &[0.0; 3]);
    assert_nodes(
        17,
        of_x(vec![weight(), bias()], vec![node("y = Gemm(x, w, b)", vec![int("transB", 1)])]),
        &["%y = linear(%x, @w, bias: @b) : f32[n, 3]"],
    );
    let half = AttributeProto { f: 0.5, ..attribute("alpha", AttributeType::Float) };
    assert_nodes(
        17,
        of_x(vec![weight(), bias()], vec![node("y = Gemm(x, w, b)", vec![int("transB", 1), half])]),
        &[
            "%y = transpose(@w) {perm = [1, 0]} : f32[2, 3]",
            "%y_1 = matmul(%x, %y) : f32[n, 3]",
            "%y_2 = mul(%y_1, @y/const) : f32[n, 3]",
            "%y_3 = add(%y_2, @b) : f32[n, 3]",
        ],
    );
}

#[test]
fn vectors_are_matrices_of_one_row_or_column() {
    assert_nodes(
        17,
        of_x(vec![floats("v", &[2], &[1.0, 2.0])], vec![node("y = MatMul(x, v)", vec![])]),
        &[
            "%y = reshape(@v) {shape = [2, 1]} : f32[2, 1]",
            "%y_1 = matmul(%x, %y) : f32[n, 1]",
            "%y_2 = reshape(%y_1) {shape = [n]} : f32[n]",
        ],
    );
}

#[test]
fn softmax_along_an_axis_and_over_all_after_it() {
    let softmax = |opset, axis| {
        let graph =
            graph(vec![f32("x", "n, 2, 3")], vec![], vec![node("y = Softmax(x)", vec![int("axis", axis)])], &["y"]);
        planish_testing::onnx::lines(opset, graph)
    };
    assert_eq!(softmax(13, -1), ["%y = softmax(%x) : f32[n, 2, 3]"]);
    assert_eq!(
        softmax(13, 1),
        [
            "%y = transpose(%x) {perm = [0, 2, 1]} : f32[n, 3, 2]",
            "%y_1 = softmax(%y) : f32[n, 3, 2]",
            "%y_2 = transpose(%y_1) {perm = [0, 2, 1]} : f32[n, 2, 3]",
        ]
    );
    assert_eq!(
        softmax(11, 1),
        [
            "%y = reshape(%x) {shape = [n, 6]} : f32[n, 6]",
            "%y_1 = softmax(%y) : f32[n, 6]",
            "%y_2 = reshape(%y_1) {shape = [n, 2, 3]} : f32[n, 2, 3]",
        ]
    );
}

#[test]
fn norms() {
    let scale = || floats("s", &[2], &[1.0; 2]);
    assert_nodes(
        17,
        of_x(vec![scale()], vec![node("y = LayerNormalization(x, s)", vec![])]),
        &["%y = layer_norm(%x, @s) {eps = 9.999999747378752e-6} : f32[n, 2]"],
    );
    assert_nodes(
        23,
        of_x(vec![scale()], vec![node("y = RMSNormalization(x, s)", vec![])]),
        &["%y = rms_norm(%x, @s) {eps = 9.999999747378752e-6} : f32[n, 2]"],
    );
    assert_nodes(
        20,
        of_x(vec![], vec![node("y = Gelu(x)", vec![text("approximate", "tanh")])]),
        &["%y = gelu(%x) {form = tanh} : f32[n, 2]"],
    );
}

/// Axes are an attribute or an operand, depending on the operator and the opset.
#[test]
fn reductions() {
    let mean = &["%y = reduce_mean(%x) {axes = [1], keep = false} : f32[n]"];
    let keep = int("keepdims", 0);
    assert_nodes(17, of_x(vec![], vec![node("y = ReduceMean(x)", vec![ints("axes", &[-1]), keep.clone()])]), mean);
    let axes = || vec![integers("axes", &[1], &[-1])];
    assert_nodes(18, of_x(axes(), vec![node("y = ReduceMean(x, axes)", vec![keep])]), mean);
    assert_nodes(
        18,
        of_x(axes(), vec![node("y = ReduceL2(x, axes)", vec![])]),
        &[
            "%y = mul(%x, %x) : f32[n, 2]",
            "%y_1 = reduce_sum(%y) {axes = [1], keep = true} : f32[n, 1]",
            "%y_2 = sqrt(%y_1) : f32[n, 1]",
        ],
    );
    let nothing = vec![node("y = ReduceSum(x)", vec![int("noop_with_empty_axes", 1)])];
    assert_nodes(18, of_x(vec![], nothing), &[]);
}
