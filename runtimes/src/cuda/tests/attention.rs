//! Attention in every form, and the keys of caches.

use super::*;

/// An attention with what it may have.
#[derive(Clone, Copy)]
struct Case {
    dtype: &'static str,
    heads: usize,
    kv_heads: usize,
    size: usize,
    value_size: usize,
    batch: i64,
    queries: i64,
    past: i64,
    attributes: &'static str,
    mask: bool,
    bias: Option<&'static str>,
}

const PLAIN: Case = Case {
    dtype: "f32",
    heads: 4,
    kv_heads: 4,
    size: 8,
    value_size: 8,
    batch: 2,
    queries: 9,
    past: 0,
    attributes: "",
    mask: false,
    bias: None,
};

impl Case {
    fn check(self, seed: u64) {
        let Case { dtype, heads, kv_heads, size, value_size, .. } = self;
        let (features, values) = (heads * size, heads * value_size);
        let (kv_features, kv_values) = (kv_heads * size, kv_heads * value_size);
        let mut operands = String::new();
        let mut inputs = format!(
            "input %q: {dtype}[b, s, {features}]\ninput %k: {dtype}[b, s, {kv_features}]\ninput %v: {dtype}[b, s, {kv_values}]\n"
        );
        if self.mask {
            inputs += "input %m: bool[b, p + s]\n";
            operands += ", mask: %m";
        }
        if let Some(bias) = self.bias {
            inputs += &format!("input %c: {dtype}{bias}\n");
            operands += ", bias: %c";
        }
        inputs += &format!("input %pk: {dtype}[b, {kv_heads}, p, {size}]\ninput %pv: {dtype}[b, {kv_heads}, p, {value_size}]\n");
        operands += ", past_key: %pk, past_value: %pv";
        let scale = 1.0 / (size as f64).sqrt();
        let attributes = self.attributes;
        let statements = format!(
            "{inputs}
             %y, %key, %value = attention(%q, %k, %v{operands}) {{heads = {heads}, kv_heads = {kv_heads}, scale = {scale}, {attributes}present = true}} : {dtype}[b, s, {values}], {dtype}[b, {kv_heads}, p + s, {size}], {dtype}[b, {kv_heads}, p + s, {value_size}]
             output y = %y
             output key = %key
             output value = %value"
        );
        check(&statements, &[("b", self.batch), ("s", self.queries), ("p", self.past)], seed);
    }
}

#[test]
fn heads_of_all_sizes() {
    for (size, value_size) in [(1, 1), (8, 8), (16, 24), (64, 64), (80, 80), (128, 128)] {
        for dtype in ["f32", "f16", "bf16"] {
            Case { dtype, size, value_size, heads: 2, kv_heads: 2, queries: 37, ..PLAIN }.check(1);
        }
    }
}

#[test]
fn masks_windows_caps_and_biases() {
    for dtype in ["f32", "f16"] {
        let plain = Case { dtype, queries: 70, mask: true, ..PLAIN };
        Case { attributes: "causal = true, ", ..plain }.check(2);
        Case { attributes: "causal = true, window = 5, ", past: 3, ..plain }.check(3);
        Case { attributes: "softcap = 3.0, ", ..plain }.check(4);
        Case { bias: Some("[1, 4, s, p + s]"), ..plain }.check(5);
        Case { bias: Some("[b, 1, 1, p + s]"), attributes: "causal = true, ", ..plain }.check(6);
    }
}

#[test]
fn queries_share_keys() {
    for dtype in ["f32", "f16", "bf16"] {
        Case { dtype, heads: 6, kv_heads: 2, queries: 40, attributes: "causal = true, ", ..PLAIN }.check(7);
        Case { dtype, heads: 4, kv_heads: 1, queries: 17, past: 50, attributes: "causal = true, ", mask: true, ..PLAIN }.check(8);
    }
}

#[test]
fn few_queries_share_the_keys_among_blocks() {
    for (dtype, size) in [("f32", 8), ("f16", 64), ("bf16", 80), ("f16", 7)] {
        let step = Case { dtype, size, value_size: size, queries: 1, past: 200, attributes: "causal = true, ", ..PLAIN };
        step.check(9);
        Case { heads: 8, kv_heads: 2, mask: true, ..step }.check(10);
        Case { queries: 3, past: 100, attributes: "causal = true, window = 20, ", ..step }.check(11);
        Case { bias: Some("[b, 4, s, p + s]"), attributes: "softcap = 2.0, ", ..step }.check(12);
    }
}

#[test]
fn a_query_without_keys_attends_to_all_alike() {
    for (dtype, queries, past) in [("f32", 20, 0), ("f16", 20, 0), ("f16", 1, 99), ("f32", 1, 99), ("bf16", 90, 60)] {
        let statements = format!(
            "input %q: {dtype}[2, s, 16]
             input %k: {dtype}[2, 1, p + s, 16]
             input %v: {dtype}[2, 1, p + s, 16]
             input %m: bool[2, p + s]
             %y = attention(%q, %k, %v, mask: %m) {{heads = 1, scale = 0.25, causal = true}} : {dtype}[2, s, 16]
             output y = %y"
        );
        let graph = graph(&statements);
        let mut inputs = inputs(&graph, &[("s", queries), ("p", past)], 13);
        // The first row has no keys, the second none of its first half.
        let keys = usize::try_from(queries + past).unwrap();
        let mask: Vec<bool> = (0..2 * keys).map(|at| at >= keys + keys / 2).collect();
        inputs[3].1 = Tensor::new(vec![2, keys], mask).unwrap();
        check_with(&graph, &inputs);
    }
}

#[test]
fn positions_are_rotated_in_front_of_a_cache() {
    for (dtype, interleaved, heads, past) in [("f32", "", 4, 0), ("f16", ", interleaved = true", 4, 5), ("bf16", "", 6, 9)] {
        for cos_batch in ["b", "1"] {
            let statements = format!(
                "input %x: {dtype}[b, s, {all}]
                 input %cos: {dtype}[{cos_batch}, s, 3]
                 input %sin: {dtype}[{cos_batch}, s, 3]
                 input %pk: {dtype}[b, 2, p, 8]
                 input %pv: {dtype}[b, 2, p, 8]
                 %q, %k, %v = split(%x) {{axis = 2, sizes = [{features}, 16, 16]}} : {dtype}[b, s, {features}], {dtype}[b, s, 16], {dtype}[b, s, 16]
                 %t, %key, %value = rotary_append(%q, %k, %v, %cos, %sin, past_key: %pk, past_value: %pv) {{heads = {heads}, kv_heads = 2{interleaved}}} : {dtype}[b, s, {features}], {dtype}[b, 2, p + s, 8], {dtype}[b, 2, p + s, 8]
                 %y = attention(%t, %key, %value) {{heads = {heads}, kv_heads = 2, scale = 0.3, causal = true}} : {dtype}[b, s, {features}]
                 %r = rotary(%q, %cos, %sin) {{heads = {heads}{interleaved}}} : {dtype}[b, s, {features}]
                 output y = %y
                 output r = %r
                 output key = %key
                 output value = %value",
                features = heads * 8,
                all = heads * 8 + 32,
            );
            check(&statements, &[("b", 2), ("s", 7), ("p", past)], 15);
        }
    }
}

#[test]
fn a_cache_grows_in_its_memory() {
    let graph = graph(
        "input %x: f32[b, s, 8]
         input %pk: f32[b, 2, p, 4]
         input %pv: f32[b, 2, p, 4]
         %y, %key, %value = attention(%x, %x, %x, past_key: %pk, past_value: %pv) {heads = 2, scale = 0.5, causal = true, present = true} : f32[b, s, 8], f32[b, 2, p + s, 4], f32[b, 2, p + s, 4]
         output y = %y
         output key = %key
         output value = %value",
    );
    let mut session = session(&graph, Style::Fused);
    let all = inputs(&graph, &[("b", 2), ("s", 90), ("p", 0)], 17);
    let part = |from: usize, to: usize| {
        let x = all[0].1.to_f64();
        let rows: Vec<f64> =
            (0..2).flat_map(|b| x[b * 90 * 8 + from * 8..b * 90 * 8 + to * 8].to_vec()).collect();
        Tensor::from_f64(DType::F32, vec![2, to - from, 8], &rows).unwrap()
    };
    let named: Vec<(&str, Tensor)> = all.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let whole = evaluate(&graph, &named).unwrap();
    let empty = || crate::RuntimeValue::from(all[1].1.clone());
    let (mut key, mut value) = (empty(), empty());
    let mut addresses = std::collections::BTreeSet::new();
    let mut at = 0;
    for length in [10, 1, 1, 3, 60, 1, 14] {
        let x = crate::RuntimeValue::from(part(at, at + length));
        let outputs = session.run_values(&[("x", &x), ("pk", &key), ("pv", &value)]).unwrap();
        let mut outputs = outputs.into_iter().map(|(_, value)| value);
        let (y, keys, values) = (outputs.next().unwrap(), outputs.next().unwrap(), outputs.next().unwrap());
        if let crate::value::Kept::Cuda(tensor) = &keys.0 {
            addresses.insert(tensor.memory.address());
        }
        let (given, wanted) = (y.to_tensor().unwrap().to_f64(), whole[0].1.to_f64());
        for b in 0..2 {
            let wanted = &wanted[b * 90 * 8 + at * 8..][..length * 8];
            let close = given[b * length * 8..][..length * 8].iter().zip(wanted).all(|(x, y)| (x - y).abs() < 1e-5);
            assert!(close, "tokens {at}.. of row {b}");
        }
        at += length;
        (key, value) = (keys, values);
    }
    // Most steps continue the memory of the step in front of them.
    assert!(addresses.len() < 4, "{addresses:?}");
    for ((_, wanted), given) in whole[1..].iter().zip([&key, &value]) {
        assert_eq!(given.to_tensor().unwrap().to_f64(), wanted.to_f64());
    }
    // Beams take rows; two that continue the same keys do not write over each other.
    let beams = key.take_rows(&[1, 1]).unwrap();
    let values = value.take_rows(&[1, 1]).unwrap();
    let x = crate::RuntimeValue::from(part(0, 1));
    let first = session.run_values(&[("x", &x), ("pk", &beams), ("pv", &values)]).unwrap();
    let other = crate::RuntimeValue::from(part(5, 6));
    session.run_values(&[("x", &other), ("pk", &beams), ("pv", &values)]).unwrap();
    let last = first[1].1.to_tensor().unwrap().to_f64();
    let expected = part(0, 1).to_f64();
    assert_eq!(last[90 * 4..][..4], expected[..4]);
}
