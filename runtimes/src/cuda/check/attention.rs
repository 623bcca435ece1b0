//! Attention in every form, rotary embedding, and the keys of caches.

use super::Case;

/// An attention with what it may have.
#[derive(Clone, Copy)]
struct Form {
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

const PLAIN: Form = Form {
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

impl Form {
    fn case(self, seed: u64) -> Case {
        let Form { dtype, heads, kv_heads, size, value_size, attributes, .. } = self;
        let (features, values) = (heads * size, heads * value_size);
        let (keys, kv_values) = (kv_heads * size, kv_heads * value_size);
        let (key, value) =
            (format!("{dtype}[b, {kv_heads}, p + s, {size}]"), format!("{dtype}[b, {kv_heads}, p + s, {value_size}]"));
        let mut operands = String::new();
        let mut inputs = format!(
            "input %q: {dtype}[b, s, {features}]
             input %k: {dtype}[b, s, {keys}]
             input %v: {dtype}[b, s, {kv_values}]
             input %pk: {dtype}[b, {kv_heads}, p, {size}]
             input %pv: {dtype}[b, {kv_heads}, p, {value_size}]\n"
        );
        if self.mask {
            inputs += "input %m: bool[b, p + s]\n";
            operands += ", mask: %m";
        }
        if let Some(bias) = self.bias {
            inputs += &format!("input %c: {bias}\n").replace("FLOAT", dtype);
            operands += ", bias: %c";
        }
        operands += ", past_key: %pk, past_value: %pv";
        let scale = 1.0 / (size as f64).sqrt();
        let statements = format!(
            "{inputs}
             %y, %key, %value = attention(%q, %k, %v{operands}) {{heads = {heads}, kv_heads = {kv_heads}, scale = {scale}, {attributes}present = true}} : {dtype}[b, s, {values}], {key}, {value}
             output y = %y
             output key = %key
             output value = %value"
        );
        let name = format!(
            "attention of {dtype}, {heads} heads of {size} and {value_size} with {kv_heads} of keys, {} queries after {}, {attributes}mask {}, bias {:?}",
            self.queries, self.past, self.mask, self.bias
        );
        Case::new(name, statements, &[("b", self.batch), ("s", self.queries), ("p", self.past)], seed)
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // Heads of all sizes.
    for (size, value_size, dtype) in [
        (1, 1, "f32"),
        (7, 7, "f16"),
        (16, 24, "bf16"),
        (24, 16, "f32"),
        (64, 64, "f16"),
        (64, 64, "bf16"),
        (80, 80, "f16"),
        (128, 128, "bf16"),
        (192, 128, "f16"),
    ] {
        cases.push(Form { dtype, size, value_size, heads: 2, kv_heads: 2, queries: 37, ..PLAIN }.case(1));
    }
    // Masks, windows, caps and biases.
    for dtype in ["f32", "f16"] {
        let plain = Form { dtype, queries: 70, mask: true, ..PLAIN };
        cases.push(Form { attributes: "causal = true, ", ..plain }.case(2));
        cases.push(Form { attributes: "causal = true, window = 5, ", past: 3, ..plain }.case(3));
        cases.push(Form { attributes: "window = 5, ", ..plain }.case(3));
        cases.push(Form { attributes: "softcap = 3.0, ", ..plain }.case(4));
        cases.push(Form { bias: Some("FLOAT[1, 4, s, p + s]"), ..plain }.case(5));
        cases.push(Form { bias: Some("f32[b, 1, 1, p + s]"), attributes: "causal = true, ", ..plain }.case(6));
    }
    // So many queries that a block has 128 of them.
    for (dtype, size, mask, attributes) in [("f16", 64, true, ""), ("bf16", 80, false, "causal = true, ")] {
        let many = Form { dtype, size, value_size: size, queries: 150, batch: 8, heads: 1, kv_heads: 1, ..PLAIN };
        cases.push(Form { attributes, mask, ..many }.case(6));
    }
    // Queries that share keys, and tiles with a past.
    for dtype in ["f32", "f16", "bf16"] {
        let shared = Form { dtype, attributes: "causal = true, ", ..PLAIN };
        cases.push(Form { heads: 6, kv_heads: 2, queries: 40, ..shared }.case(7));
        cases.push(Form { heads: 4, kv_heads: 1, queries: 17, past: 50, mask: true, ..shared }.case(8));
    }
    // Long enough that float32 does not store its scores either.
    cases.push(Form { batch: 1, heads: 1, kv_heads: 1, queries: 4200, ..PLAIN }.case(8));
    // Keys that are a part of a longer sequence, and a past that is a part of an input or of two results.
    let parts = "
        input %x: f16[2, t, 8]
        input %past: f16[2, 2, p, 4]
        %k = slice(%x) {axis = 1, start = 2, end = 9} : f16[2, 7, 8]
        %some = slice(%past) {axis = 2, start = 0, end = 3} : f16[2, 2, 3, 4]
        %y, %a, %b = attention(%k, %k, %k, past_key: %past, past_value: %past) {heads = 2, scale = 0.5, causal = true, present = true} : f16[2, 7, 8], f16[2, 2, p + 7, 4], f16[2, 2, p + 7, 4]
        %z, %c, %d = attention(%k, %k, %y, past_key: %some, past_value: %some) {heads = 2, scale = 0.5, causal = true, present = true} : f16[2, 7, 8], f16[2, 2, 10, 4], f16[2, 2, 10, 4]
        output y = %y
        output z = %z
        output a = %a
        output b = %b
        output c = %c
        output d = %d";
    cases.push(Case::new("attention to parts of sequences", parts, &[("t", 12), ("p", 5)], 16));
    // Few queries, whose keys are shared among blocks.
    for (dtype, size) in [("f32", 8), ("f16", 64), ("bf16", 80), ("f16", 7)] {
        let causal = "causal = true, ";
        let step = Form { dtype, size, value_size: size, queries: 1, past: 200, attributes: causal, ..PLAIN };
        cases.push(step.case(9));
        cases.push(Form { heads: 8, kv_heads: 2, mask: true, ..step }.case(10));
        cases.push(Form { queries: 3, past: 100, attributes: "causal = true, window = 20, ", ..step }.case(11));
        cases.push(Form { bias: Some("FLOAT[b, 4, s, p + s]"), attributes: "softcap = 2.0, ", ..step }.case(12));
    }
    // A query without keys attends to all alike.
    for (dtype, queries, past) in [("f32", 20, 0), ("f16", 20, 0), ("f16", 1, 99), ("f32", 1, 99), ("bf16", 90, 60)] {
        let statements = format!(
            "input %q: {dtype}[2, s, 16]
             input %k: {dtype}[2, 1, t, 16]
             input %v: {dtype}[2, 1, t, 16]
             input %m: bool[2, t]
             %y = attention(%q, %k, %v, mask: %m) {{heads = 1, scale = 0.25, causal = true}} : {dtype}[2, s, 16]
             output y = %y"
        );
        let name = format!("attention of {dtype}, {queries} queries after {past} without keys");
        let case = Case::new(name, statements, &[("s", queries), ("t", queries + past)], 13);
        // The first row has no keys, the second none of its first 40.
        cases.push(Case { mask: Some(|row, key| row == 1 && key >= 10), ..case });
    }
    for (dtype, interleaved, heads, past, cos) in [
        ("f32", "", 4, 0, "b"),
        ("f16", ", interleaved = true", 4, 5, "1"),
        ("bf16", "", 6, 9, "b"),
        ("f16", "", 4, 5, "1"),
    ] {
        let (features, all) = (heads * 8, heads * 8 + 32);
        let cache = format!("{dtype}[b, 2, p + s, 8]");
        let statements = format!(
            "input %x: {dtype}[b, s, {all}]
             input %cos: {dtype}[{cos}, s, 3]
             input %sin: {dtype}[{cos}, s, 3]
             input %pk: {dtype}[b, 2, p, 8]
             input %pv: {dtype}[b, 2, p, 8]
             %q, %k, %v = split(%x) {{axis = 2, sizes = [{features}, 16, 16]}} : {dtype}[b, s, {features}], {dtype}[b, s, 16], {dtype}[b, s, 16]
             %t, %key, %value = rotary_append(%q, %k, %v, %cos, %sin, past_key: %pk, past_value: %pv) {{heads = {heads}, kv_heads = 2{interleaved}}} : {dtype}[b, s, {features}], {cache}, {cache}
             %y = attention(%t, %key, %value) {{heads = {heads}, kv_heads = 2, scale = 0.3, causal = true}} : {dtype}[b, s, {features}]
             %r = rotary(%q, %cos, %sin) {{heads = {heads}{interleaved}}} : {dtype}[b, s, {features}]
             output y = %y
             output r = %r
             output key = %key
             output value = %value"
        );
        let name = format!("rotary embedding of {dtype}{interleaved} in {heads} heads after {past}");
        cases.push(Case::new(name, statements, &[("b", 2), ("s", 7), ("p", past)], 15));
    }
    cases
}
