use super::*;
use crate::{Symbol, text};

fn graph(lines: &str) -> Graph {
    let parsed = text::parse(&format!("graph \"g\" {{\n{lines}\n}}"), &text::no_files);
    parsed.unwrap_or_else(|problem| panic!("{problem}\n{lines}"))
}

fn sizes(sizes: &[(&str, i64)]) -> Bindings {
    sizes.iter().map(|(name, size)| (Symbol::new(name), *size)).collect()
}

/// The cost of the nodes of a graph for `b = 2` rows of `s = 3` tokens after `p = 5`.
fn cost(lines: &str) -> Cost {
    let costs = costs(&graph(lines), &sizes(&[("b", 2), ("s", 3), ("p", 5)]));
    assert_eq!(costs.uncounted, [], "{lines}");
    costs.total()
}

/// The cost of an operator of ONNX; of ONNX Runtime where it has the name of the domain before it.
fn foreign(op: &str, inputs: &[&str], result: &str, settings: &str) -> Cost {
    let (domain, op) = op.split_once('.').map_or(("ai.onnx", op), |(_, op)| ("com.microsoft", op));
    let declared = inputs.iter().enumerate().filter(|(_, ty)| **ty != "_");
    let declared: Vec<String> = declared.map(|(i, ty)| format!("input %i{i}: {ty}")).collect();
    let name = |(i, ty): (usize, &&str)| if *ty == "_" { "_".to_owned() } else { format!("%i{i}") };
    let names: Vec<String> = inputs.iter().enumerate().map(name).collect();
    let settings = if settings.is_empty() { String::new() } else { format!("settings = [{settings}], ") };
    cost(&format!(
        "{}\n%y = foreign([{}], []) {{domain = \"{domain}\", op = \"{op}\", version = 20, {settings}captures = [], results = [{result}]}} : {result}\noutput y = %y",
        declared.join("\n"),
        names.join(", "),
    ))
}

#[test]
fn a_linear_layer_costs_two_operations_a_weight_and_token() {
    let cost = cost(
        "input %x: f32[b, s, 4]\nweight @w = uniform(1) : f32[8, 4]\nweight @c = uniform(2) : f32[8]
         %y = linear(%x, @w, bias: @c) : f32[b, s, 8]\noutput y = %y",
    );
    let (tokens, weights) = (2 * 3, 8 * 4);
    assert_eq!(
        cost,
        Cost {
            flops: 2 * tokens * weights + tokens * 8,
            product_flops: 2 * tokens * weights,
            read: 4 * (tokens * 4 + weights + 8),
            weights: 4 * (weights + 8),
            written: 4 * tokens * 8,
        }
    );
    assert_eq!(cost.intensity(), Some(432.0 / (96.0 + 160.0 + 192.0)));
}

#[test]
fn attention_counts_each_query_with_each_key_and_the_cache() {
    let cost = cost(
        "input %q: f32[b, s, 8]\ninput %k: f32[b, s, 4]\ninput %v: f32[b, s, 6]
         input %pk: f32[b, 2, p, 2]\ninput %pv: f32[b, 2, p, 3]
         %y, %a, %c = attention(%q, %k, %v, past_key: %pk, past_value: %pv) {heads = 4, kv_heads = 2, scale = 0.5, softcap = 2.0, causal = true, present = true} : f32[b, s, 12], f32[b, 2, p + s, 2], f32[b, 2, p + s, 3]
         output y = %y\noutput a = %a\noutput c = %c",
    );
    let (batch, heads, queries, keys) = (2, 4, 3, 8);
    let scores = batch * heads * queries * keys;
    assert_eq!(cost.product_flops, 2 * scores * 2 + 2 * scores * 3);
    assert_eq!(cost.flops, cost.product_flops + scores * (6 + 3));
    assert_eq!(cost.read, 4 * (6 * (8 + 4 + 6) + batch * 2 * 5 * (2 + 3)));
    assert_eq!(cost.written, 4 * (6 * 12 + batch * 2 * keys * (2 + 3)));
}

#[test]
fn fused_operators_count_as_the_chains_that_they_replace() {
    let shared = "input %x: f32[b, s, 4]\ninput %r: f32[b, s, 4]\nweight @w = uniform(1) : f32[4, 4]
        weight @c = uniform(2) : f32[4]\nweight @n = uniform(3) : f32[4]";
    let pairs = [
        (
            "%y = fused_linear(%x, @w, bias: @c, residual: %r) {activation = gelu_tanh} : f32[b, s, 4]\noutput y = %y",
            "%l = linear(%x, @w, bias: @c) : f32[b, s, 4]\n%g = gelu(%l) {form = tanh} : f32[b, s, 4]
             %y = add(%g, %r) : f32[b, s, 4]\noutput y = %y",
        ),
        (
            "%y, %t = add_norm(%x, %r, @n, bias: @c) {norm = rms, eps = 0.1} : f32[b, s, 4], f32[b, s, 4]\noutput y = %y",
            "%s = add(%x, @c) : f32[b, s, 4]\n%t = add(%s, %r) : f32[b, s, 4]
             %y = rms_norm(%t, @n) {eps = 0.1} : f32[b, s, 4]\noutput y = %y",
        ),
        (
            "%y = gated(%x, %r) {activation = silu} : f32[b, s, 4]\noutput y = %y",
            "%a = silu(%x) : f32[b, s, 4]\n%y = mul(%a, %r) : f32[b, s, 4]\noutput y = %y",
        ),
    ];
    for (fused, chain) in pairs {
        let [fused, chain] = [fused, chain].map(|lines| cost(&format!("{shared}\n{lines}")));
        assert_eq!((fused.flops, fused.product_flops), (chain.flops, chain.product_flops));
        assert_eq!(fused.weights, chain.weights);
        assert!(fused.bytes() < chain.bytes());
    }
}

#[test]
fn tables_are_read_by_rows_and_views_cost_nothing() {
    let of =
        |line: &str| cost(&format!("input %i: i64[b, s]\nweight @t = uniform(1) : f16[100, 4]\n{line}\noutput y = %y"));
    let row = 4 * 2;
    let rows = Cost { read: 6 * 8 + 6 * row, weights: 6 * row, written: 6 * row, ..Cost::default() };
    assert_eq!(of("%y = embedding(@t, %i) : f16[b, s, 4]"), rows);
    assert_eq!(of("%y = gather(@t, %i) {axis = 0} : f16[b, s, 4]"), rows);
    assert_eq!(of("%y = reshape(%i) {shape = [b * s]} : i64[b * s]"), Cost::default());
    assert_eq!(of("%y = sizes() {of = [b, s]} : i64[2]"), Cost::default());
    let slice = of("%y = slice(@t) {axis = 0, start = 0, end = 10} : f16[10, 4]");
    assert_eq!((slice.read, slice.weights, slice.written), (10 * row, 10 * row, 10 * row));
    // Two tables, the second of which has one row for all rows of the batch, and a norm of the sum.
    let both = of("input %j: i64[1, s]\nweight @n = uniform(2) : f16[4]
         %y, %z = embedding_norm([@t, @t], [%i, %j], @n) {norm = layer, eps = 0.1} : f16[b, s, 4], f16[b, s, 4]");
    assert_eq!(both.weights, (6 + 3) * row + 4 * 2);
    assert_eq!(both.flops, 6 * 4 * 8);
}

#[test]
fn weights_of_codes_are_read_as_codes() {
    let mut g = Graph::new("g");
    let weight = |dtype, shape| crate::Weight::uniform(dtype, shape, 1);
    let codes = weight(crate::DType::I8, vec![8, 4]).expect("codes");
    let scales = weight(crate::DType::F32, vec![8]).expect("scales");
    let numbers = codes.dequantize(0, &scales, None).expect("numbers of codes");
    assert_eq!(stored_bytes(&numbers), 8 * 4 + 8 * 4);
    let turned = numbers.transpose(&[1, 0]).expect("a transpose");
    assert_eq!(stored_bytes(&turned), 8 * 4 + 8 * 4);
    let x = crate::TensorType::new(crate::DType::F32, crate::Shape::of(&[1, 4]));
    let x = g.add_input("x", x, crate::Origin::Unknown);
    let w = g.add_weight("w", numbers, crate::Origin::Unknown);
    let linear = crate::ops::Linear::new(x, w, None);
    let y = g.emit(linear, "y", crate::Origin::Unknown).expect("a linear layer")[0];
    g.add_output("y", y);
    assert_eq!(costs(&g, &Bindings::new()).total().weights, 64);
}

#[test]
fn products_of_other_exporters_count_alike() {
    let product = 2 * (2 * 3) * 4 * 8;
    let product_flops =
        |op: &str, inputs: &[&str], result: &str, settings: &str| foreign(op, inputs, result, settings).product_flops;
    let x = "f32[b, s, 4]";
    assert_eq!(product_flops("MatMulInteger", &["u8[b, s, 4]", "i8[4, 8]"], "i32[b, s, 8]", ""), product);
    assert_eq!(product_flops("ms.DynamicQuantizeMatMul", &[x, "i8[4, 8]", "f32[8]"], "f32[b, s, 8]", ""), product);
    let bits = "K = int(4), N = int(8), bits = int(4), block_size = int(32)";
    assert_eq!(product_flops("ms.MatMulNBits", &[x, "u8[8, 1, 16]", "f32[8]"], "f32[b, s, 8]", bits), product);
    assert_eq!(product_flops("Gemm", &["f32[4, 6]", "f32[4, 8]"], "f32[6, 8]", "transA = int(1)"), product);
    let einsum = |equation: &str| format!("equation = text(\"{equation}\")");
    assert_eq!(product_flops("Einsum", &[x, "f32[8, 4]"], "f32[b, s, 8]", &einsum("bsk,nk->bsn")), product);
    assert_eq!(product_flops("Einsum", &[x, "f32[8, 4]"], "f32[b, s, 8]", &einsum("...k, nk -> ...n")), product);
    assert_eq!(product_flops("Einsum", &[x], "f32[b, 4, s]", &einsum("bsk->bks")), 0);
}

#[test]
fn attention_of_other_exporters_counts_alike() {
    let (rows, keys, features) = (2 * 3, 5 + 3, 8);
    let products = 4 * rows * keys * features;
    let softmax = 6 * rows * 2 * keys;
    let (x, past) = ("f32[b, s, 8]", "f32[b, 2, p, 4]");
    let heads = "num_heads = int(2)";
    for (op, inputs, settings) in [
        ("ms.MultiHeadAttention", vec![x, x, x, "_", "_", "_", past, past], heads),
        ("ms.GroupQueryAttention", vec![x, x, x, past, past], heads),
        ("ms.GroupQueryAttention", vec!["f32[b, s, 24]", "_", "_", past, past], heads),
        ("Attention", vec![x, x, x, "_", past, past], "q_num_heads = int(2)"),
    ] {
        let cost = foreign(op, &inputs, x, settings);
        assert_eq!((cost.product_flops, cost.flops), (products, products + softmax), "{op} {inputs:?}");
    }
    let heads_first = "f32[b, 2, s, 4]";
    let cost = foreign("Attention", &[heads_first, heads_first, heads_first, "_", past, past], heads_first, "");
    assert_eq!(cost.product_flops, products);
    // The product with the weights of queries, keys and values is part of this one.
    let inputs = [x, "f32[8, 24]", "f32[24]", "_", "f32[2, b, 2, p, 4]"];
    let cost = foreign("ms.Attention", &inputs, x, heads);
    assert_eq!(cost.product_flops, products + 2 * rows * 8 * 24);
}

#[test]
fn convolutions_and_recurrent_layers_count_their_weights() {
    let filters = "f32[16, 3, 4, 4]";
    let conv = foreign("Conv", &["f32[b, 3, 32, 32]", filters], "f32[b, 16, 8, 8]", "");
    assert_eq!(conv.product_flops, 2 * (2 * 16 * 8 * 8) * (3 * 4 * 4));
    let back = foreign("ConvTranspose", &["f32[b, 16, 8, 8]", filters], "f32[b, 3, 32, 32]", "");
    assert_eq!(back.product_flops, conv.product_flops);
    let lstm = foreign("LSTM", &["f32[s, b, 4]", "f32[1, 32, 4]", "f32[1, 32, 8]"], "f32[s, 1, b, 8]", "");
    assert_eq!(lstm.product_flops, 2 * 6 * 32 * (4 + 8));
}

#[test]
fn what_is_not_known_is_named() {
    let reason = |op: &str, domain: &str, result: &str| {
        let lines = format!(
            "input %x: f32[b]\n%y = foreign([%x], []) {{domain = \"{domain}\", op = \"{op}\", version = 1, captures = [], results = [{result}]}} : {result}\noutput y = %y"
        );
        let costs = costs(&graph(&lines), &sizes(&[("b", 2)]));
        assert_eq!(costs.total(), Cost::default());
        costs.uncounted.into_iter().map(|(_, reason)| reason).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(reason("Loop", "ai.onnx", "f32[b]"), "what Loop computes depends on more than sizes");
    assert_eq!(reason("Fancy", "my.own", "f32[b]"), "operator Fancy of domain my.own is not known");
    assert_eq!(reason("MoE", "com.microsoft", "f32[b]"), "operator MoE of ONNX Runtime is not counted");
    assert_eq!(reason("Neg", "ai.onnx", "f32[*]"), "the size of `y`, f32[*], is not known");
    assert_eq!(reason("Compress", "ai.onnx", "f32[n]"), "the size of `y`, f32[n], is not known");
    let lines = "input %x: f32[b]\n%y = neg(%x) : f32[b]\noutput y = %y";
    assert_eq!(costs(&graph(lines), &Bindings::new()).uncounted.len(), 1);
}

#[test]
fn hostile_sizes_stay_at_the_largest_number() {
    let g = graph(
        "input %x: f64[b, b, b]\ninput %z: f64[b, b, 0]\n%y = matmul(%x, %x) : f64[b, b, b]\n%n = neg(%z) : f64[b, b, 0]
         output y = %y\noutput n = %n",
    );
    let largest = costs(&g, &sizes(&[("b", i64::MAX)]));
    assert_eq!(largest.total().flops, u64::MAX);
    assert_eq!(largest.total().bytes(), u64::MAX);
    assert_eq!(largest.nodes[1].1, Cost::default());
    assert_eq!(costs(&g, &sizes(&[("b", -1)])).uncounted.len(), 2);
}

/// Three tokens of two experts each take six of eight experts at most, and the other experts read no weights.
#[test]
fn layers_of_groups_that_a_run_determines_cost_what_the_chosen_ones_do() {
    let split = |parts: usize| {
        let types: Vec<String> = (0..parts).map(|part| format!("f32[e{part}, 4]")).collect();
        let names: Vec<String> = (0..parts).map(|part| format!("%p{part}")).collect();
        let layers = (0..parts).map(|part| {
            format!(
                "weight @w{part} = uniform({part}) : f32[5, 4]\n%l{part} = linear(%p{part}, @w{part}) : f32[e{part}, 5]\n"
            )
        });
        let (types, names, layers) = (types.join(", "), names.join(", "), layers.collect::<String>());
        let outputs: Vec<String> = (0..parts).map(|part| format!("output l{part} = %l{part}")).collect();
        format!(
            "input %x: f32[b*s, 4]\ninput %r: f32[b, s]\ninput %n: i64[{parts}]
             {names} = foreign([%x, %n], []) {{domain = \"ai.onnx\", op = \"Split\", version = 18, settings = [axis = int(0)], captures = [], results = [{types}]}} : {types}
             {layers}{}",
            outputs.join("\n")
        )
    };
    let moved = 4 * (2 * 6 * 4 + 8);
    let of_layers = |layers: u64| 4 * (6 * 4 + layers * 5 * 4);
    for (parts, layers) in [(8, 6), (6, 6), (3, 3)] {
        let cost = cost(&split(parts));
        assert_eq!(cost.product_flops, 2 * 6 * 5 * 4, "{parts}");
        assert_eq!(cost.weights, 4 * layers * 5 * 4, "{parts}");
        assert!(cost.bytes() <= moved + of_layers(layers) + 4 * 6 * 5 + 4 * 8, "{parts}: {cost:?}");
    }
}
