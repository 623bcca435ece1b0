//! Layers with a state of a fixed size.

use planish_onnx::proto::{AttributeProto, AttributeType, DataType, GraphProto, NodeProto};
use planish_testing::onnx::{assert_nodes, attribute, f32, graph, int, lines, node, text, typed};

/// A node of ONNX Runtime's domain.
fn contrib(call: &str, attributes: Vec<AttributeProto>) -> NodeProto {
    NodeProto { domain: "com.microsoft".to_owned(), ..node(call, attributes) }
}

fn heads(queries: i64, values: i64, rule: &'static str) -> Vec<AttributeProto> {
    vec![int("q_num_heads", queries), int("kv_num_heads", values), text("update_rule", rule)]
}

/// Two heads of keys of 4 numbers, four heads of values of 3.
fn attention(node: NodeProto, state: DataType) -> GraphProto {
    let inputs = vec![
        f32("q", "b, s, 8"),
        f32("k", "b, s, 8"),
        f32("v", "b, s, 12"),
        typed("p", state, "b, 4, 4, 3"),
        f32("d", "b, s, 4"),
        f32("t", "b, s, 4"),
    ];
    graph(inputs, vec![], vec![node], &["y", "z"])
}

#[test]
fn rules_say_which_operands_count() {
    let call = "y, z = LinearAttention(q, k, v, p, d, t)";
    let with = |given: &str, attributes: &str, heads: usize| {
        format!(
            "%y, %y_1 = linear_attention(%q, %k, %v{given}, state: %p) {{heads = {heads}, key_heads = 2, scale = {attributes}}} : \
             f32[b, s, 12], f32[b, 4, 4, 3]"
        )
    };
    for (rule, given) in
        [("linear", ""), ("gated", ", decay: %d"), ("delta", ", beta: %t"), ("gated_delta", ", decay: %d, beta: %t")]
    {
        let graph = attention(contrib(call, heads(2, 4, rule)), DataType::Float);
        assert_nodes(20, graph, &[with(given, "0.5", 4).as_str()]);
    }
    let scale = AttributeProto { f: 3.0, ..attribute("scale", AttributeType::Float) };
    let given = [heads(2, 4, "linear"), vec![scale, int("chunk_size", 64)]].concat();
    assert_nodes(20, attention(contrib(call, given), DataType::Float), &[with("", "3.0", 4).as_str()]);
}

#[test]
fn a_state_of_another_type_is_computed_in_float32() {
    let inputs = vec![
        typed("q", DataType::Float16, "b, s, 8"),
        typed("k", DataType::Float16, "b, s, 8"),
        typed("v", DataType::Float16, "b, s, 6"),
        f32("p", "b, 2, 4, 3"),
    ];
    let call = contrib("y, z = LinearAttention(q, k, v, p)", heads(2, 2, "linear"));
    assert_nodes(
        20,
        graph(inputs, vec![], vec![call], &["y", "z"]),
        &[
            "%y = cast(%q) {to = f32} : f32[b, s, 8]",
            "%y_1 = cast(%k) {to = f32} : f32[b, s, 8]",
            "%y_2 = cast(%v) {to = f32} : f32[b, s, 6]",
            "%y_3, %y_4 = linear_attention(%y, %y_1, %y_2, state: %p) {heads = 2, key_heads = 2, scale = 0.5} : f32[b, s, 6], f32[b, 2, 4, 3]",
            "%y_5 = cast(%y_3) {to = f16} : f16[b, s, 6]",
        ],
    );
}

#[test]
fn other_forms_pass_through() {
    let passes = |opset, graph: GraphProto| {
        let lines = lines(opset, graph);
        assert!(lines.iter().any(|line| line.contains("foreign(")), "{lines:?}");
    };
    // Four heads of queries for two of keys.
    let shared = vec![f32("q", "b, s, 32"), f32("k", "b, s, 16"), f32("v", "b, s, 12")];
    let call = node("y, z = LinearAttention(q, k, v)", heads(4, 2, "linear"));
    passes(27, graph(shared, vec![], vec![call], &["y", "z"]));
    // A window of states.
    let inputs = vec![f32("x", "b, 6, s"), f32("w", "6, 1, 4")];
    let call = contrib("y, z = CausalConvWithState(x, w)", vec![int("dilation", 2)]);
    passes(20, graph(inputs, vec![], vec![call], &["y", "z"]));
}

#[test]
fn convolutions_of_both_layouts() {
    let rows = vec![f32("x", "b, s, 6"), f32("w", "6, 1, 4"), f32("c", "6"), f32("p", "b, 3, 6")];
    let last = vec![int("channels_last", 1), text("activation", "silu")];
    assert_nodes(
        20,
        graph(rows, vec![], vec![contrib("y, z = CausalConvWithState(x, w, c, p)", last)], &["y", "z"]),
        &["%y, %y_1 = causal_conv(%x, %w, bias: %c, state: %p) {silu = true} : f32[b, s, 6], f32[b, 3, 6]"],
    );
    let columns = vec![f32("x", "b, 6, s"), f32("w", "6, 1, 4"), f32("p", "b, 6, 3")];
    assert_nodes(
        27,
        graph(columns, vec![], vec![node("y, z = CausalConvWithState(x, w, , p)", vec![])], &["y", "z"]),
        &[
            "%y = transpose(%x) {perm = [0, 2, 1]} : f32[b, s, 6]",
            "%y_1 = transpose(%p) {perm = [0, 2, 1]} : f32[b, 3, 6]",
            "%y_2, %y_3 = causal_conv(%y, %w, state: %y_1) : f32[b, s, 6], f32[b, 3, 6]",
            "%y_4 = transpose(%y_2) {perm = [0, 2, 1]} : f32[b, 6, s]",
            "%y_5 = transpose(%y_3) {perm = [0, 2, 1]} : f32[b, 6, 3]",
        ],
    );
}
