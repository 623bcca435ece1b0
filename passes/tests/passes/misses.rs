//! What raising says where it comes near.

use planish_ir::text;
use planish_passes::raise::misses;

/// The reasons that raising gives for a graph of a filetest.
fn reasons(graph: &str) -> Vec<String> {
    let graph = graph.split("; ---").next().unwrap_or_default();
    let graph = text::parse(graph.split_once('\n').unwrap().1, &text::no_files).unwrap();
    misses(&graph).unwrap().into_iter().map(|miss| format!("{} at {}: {}", miss.rule, miss.at, miss.reason)).collect()
}

#[test]
fn a_near_miss_names_the_condition_and_the_value() {
    let activations = reasons(include_str!("../../../tests/filetests/raise-activations/gelu_near.ir"));
    assert_eq!(
        activations,
        [
            "gelu at of_another: `c` is multiplied with something else than `x` / 2",
            "gelu at divided_by_two: `g` is 1 + erf of what is not GELU's argument",
        ]
    );
    let linear = reasons(include_str!("../../../tests/filetests/raise-linear/no_layer.ir"));
    assert_eq!(linear, ["linear at several: the weight `batched` is f32[2, 4, 3], not a matrix"]);
    let norms = reasons(include_str!("../../../tests/filetests/raise-norms/near.ir"));
    assert_eq!(
        norms,
        [
            "norm at other_axis: the mean `m` is not over the last axis, and that axis kept",
            "norm at of_another: what is divided by `s` is not `x` times a vector",
            "norm at no_square: `i`, whose mean is taken, is not a square",
        ]
    );
    let casts = reasons(include_str!("../../../tests/filetests/raise-norms/casts_near.ir"));
    assert_eq!(
        casts,
        [
            "norm at square_in_half: `f`, whose mean is taken, is not a square",
            "half precision at weights_beyond_half: `large` does not fit f16",
        ]
    );
    let attention = reasons(include_str!("../../../tests/filetests/raise-attention/near.ir"));
    assert_eq!(
        attention,
        [
            "attention at capped_after_the_bias: `h` scales or caps scores that were capped, or to which something was added",
            "attention at no_scores: `e`, which exp computes, is not a step from queries and keys to scores",
            "attention at no_heads: `q3` is f32[b, s, 4], which is not of batch, heads, positions and features",
        ]
    );
    let quantized = reasons(include_str!("../../../tests/filetests/raise-quantized/no_blocks.ir"));
    assert_eq!(
        quantized,
        [
            "quantized product at computed: `b` is not a weight",
            "quantized product at zeros_between: the zero points `between` are numbers between codes",
            "quantized product at grouped: `groups` has other groups than blocks of neighbours",
            "quantized value at blocks: `s` is not a weight",
        ]
    );
    let rotary = reasons(include_str!("../../../tests/filetests/raise-rotary/near.ir"));
    assert_eq!(rotary, ["rotary at no_angles: `free` is not of angles that stand twice beside each other"]);
}

#[test]
fn a_factor_of_about_what_was_meant_is_a_near_miss() {
    let norms = reasons(include_str!("../../../tests/filetests/raise-norms/factor_near.ir"));
    assert_eq!(norms, ["norm at by_about_one: what is divided by `r` is `x` times the number 1.00005"]);
    let activations = reasons(include_str!("../../../tests/filetests/raise-activations/factor_near.ir"));
    assert_eq!(activations, ["gelu at about_halved: `c` is multiplied with something else than `x` / 2"]);
}

#[test]
fn other_forms_have_near_misses_of_their_own() {
    let roots = reasons(include_str!("../../../tests/filetests/raise-norms/near_roots.ir"));
    assert_eq!(
        roots,
        [
            "norm at no_root: `r` has another power of `m` than its square root",
            "norm at put_before: the mean `row` is not over the last axis, and that axis kept",
            "norm at of_any_size: the features of `z` are not known",
        ]
    );
    let spread = reasons(include_str!("../../../tests/filetests/raise-norms/scale_spread_near.ir"));
    assert_eq!(
        spread,
        [
            "layer_norm at bias_is_no_vector: `shift`, to which `xs` is added, is not a vector of weights",
            "layer_norm at two_weights: `xs` and `mv` are not `x` and its mean times the same vector over `r`",
        ]
    );
    let gelu = reasons(include_str!("../../../tests/filetests/raise-activations/gelu_half_inside.ir"));
    assert_eq!(
        gelu,
        [
            "gelu at no_multiple: `e` is not a multiple of 1 + erf",
            "gelu at halved_twice: `d` is multiplied with something else than `x`",
        ]
    );
    let silu = reasons(include_str!("../../../tests/filetests/raise-activations/silu_written_out.ir"));
    assert_eq!(silu, ["silu at of_another: `z` is multiplied with the sigmoid of `x`, not its own",]);
}

#[test]
fn a_mask_that_stays_a_bias_is_a_near_miss() {
    let file = include_str!("../../../tests/filetests/raise-attention/unknown_mask_stays_a_bias.ir");
    let (_, after) = file.split_once("; ---").unwrap();
    let bias = reasons(&format!("; after{after}"));
    assert_eq!(
        bias,
        ["mask at c: `mask` leaves out keys by `same` at [batch, 0, query, key], and a mask of keys has [batch, key]"]
    );
}

/// A product that a graph has only as an operator of ONNX takes the probabilities all the same.
#[test]
fn products_of_sizes_that_are_not_known_to_agree() {
    let graph = r#"; none
        graph "open" {
          input %a: f32[b, 2, 5, 5]
          input %v: f32[b, 2, s, 4]
          %p = softmax(%a) : f32[b, 2, 5, 5]
          %y = foreign([%p, %v], []) {domain = "ai.onnx", op = "MatMul", version = 17, captures = [],
            results = [f32[b, 2, 5, 4]]} : f32[b, 2, 5, 4]
          output y = %y
        }"#;
    assert_eq!(
        reasons(&graph.replace("captures = [],\n            ", "captures = [], ")),
        [
            "attention at p: the probabilities `p` go to the product `y`, which stays the `MatMul` of ONNX: of its operands, \
          `p`, f32[b, 2, 5, 5] and `v`, f32[b, 2, s, 4], it is not known that 5 is s; --shapes fixes sizes"
        ]
    );
}

#[test]
fn types_that_do_not_fit_are_near_misses() {
    let attention = reasons(include_str!("../../../tests/filetests/raise-attention/near_shapes.ir"));
    assert_eq!(
        attention,
        [
            "attention at c: the operator that would take its place does not fit: `attention` at `c` (unknown origin): \
             `k` is f32[1, 2, s, 4], expected f32[b, keys, features] or f32[b, 2, keys, size]",
            "attention at c2: `m2` is a product with `by_key`, f32[1, 1, 1, 7], which is not a factor of all scores of a \
             query, [.., 1]",
            "attention at w3: the probabilities `w3` go to `transpose`, the output `probabilities`, and no product with \
             values takes them",
        ]
    );
    let rotary = reasons(include_str!("../../../tests/filetests/raise-rotary/near_shapes.ir"));
    assert_eq!(
        rotary,
        [
            "rotary at y: `f` is f32[1, 3, s, 2], which is not the same for all heads where `x` is f32[b, 3, s, 4]",
            "rotary at z: `row` is f32[n, 4], which is not of batch, heads, positions and features",
        ]
    );
    let pairs = reasons(include_str!("../../../tests/filetests/raise-rotary/every_second.ir"));
    assert_eq!(pairs, ["rotary at z: `halves` is not of angles each of which stands twice"]);
}

#[test]
fn a_mask_says_where_it_stands() {
    let queries = reasons(include_str!("../../../tests/filetests/raise-attention/mask_of_queries.ir"));
    let bias =
        "mask at y: `bias` leaves out keys by `attention_mask` at [batch, query], and a mask of keys has [batch, key]";
    assert_eq!(queries, [bias]);
}

#[test]
fn codes_that_do_not_fit_their_scales_are_near_misses() {
    let zeros = |count: usize| vec!["0"; count].join(", ");
    let operator = |name: &str, op: &str, operands: &str, columns: &str, bits: usize| {
        format!(
            "%{name} = foreign([{operands}], []) {{domain = \"com.microsoft\", op = \"{op}\", version = 1, settings = [K = int(16), \
             N = int(2), bits = int({bits}), block_size = int(16)], captures = [], results = [f32[n, {columns}]]}} : f32[n, \
             {columns}]\noutput {name} = %{name}\n"
        )
    };
    let graph = [
        "\ngraph \"unfit\" {\ninput %x: f32[n, 16]\ninput %ids: i64[n]\n".to_owned(),
        format!("weight @codes = dense([{}]) : u8[2, 1, 8]\n", zeros(16)),
        format!("weight @six = dense([{}]) : u8[2, 1, 12]\n", zeros(24)),
        format!("weight @table = dense([{}]) : u8[2, 10]\n", zeros(20)),
        "weight @scales = dense([1.0, 1.0]) : f32[2, 1]\nweight @many = dense([1.0, 1.0, 1.0]) : f32[3]\n".to_owned(),
        "weight @long = dense([0, 0, 0, 0]) : u8[2, 2]\nweight @two = dense([1.0, 1.0, 1.0, 1.0]) : f32[2, 2]\n"
            .to_owned(),
        operator("of_many", "MatMulNBits", "%x, @codes, @many", "2", 4),
        operator("of_long", "MatMulNBits", "%x, @codes, @scales, @long", "2", 4),
        operator("of_six", "MatMulNBits", "%x, @six, @scales", "2", 6),
        operator("part", "GatherBlockQuantized", "@table, %ids, @two", "20", 4),
        "}".to_owned(),
    ];
    assert_eq!(
        reasons(&graph.concat()),
        [
            "quantized product at of_many: the codes `codes`, u8[2, 1, 8] do not fit the scales `many`, f32[3]",
            "quantized product at of_long: the zero points `long` are u8[2, 2], and 2 rows have 1",
            "quantized product at of_six: codes have 6 bits, and 2, 4 and 8 are known",
            "quantized rows at part: the rows of `table` have 20 columns, which are no whole blocks of 16",
        ]
    );
}
