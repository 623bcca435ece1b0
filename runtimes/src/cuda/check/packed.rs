//! Encoders on batches whose rows have different lengths, which are computed without their padding.

use super::Case;

/// A layer of an encoder.
#[derive(Clone, Copy)]
struct Layer {
    dtype: &'static str,
    heads: usize,
    kv_heads: usize,
    size: usize,
    value_size: usize,
    batch: i64,
    sequence: i64,
    attributes: &'static str,
    bias: Option<&'static str>,
}

const PLAIN: Layer = Layer {
    dtype: "f32",
    heads: 4,
    kv_heads: 4,
    size: 8,
    value_size: 8,
    batch: 5,
    sequence: 9,
    attributes: "",
    bias: None,
};

/// Rows of one token, of all tokens, and of others.
fn has_token(row: usize, position: usize) -> bool {
    position < [7, 1, usize::MAX, 4, 66, 2][row % 6]
}

/// Rows that are all but full.
fn is_full(row: usize, position: usize) -> bool {
    (row, position) != (1, 8)
}

impl Layer {
    fn case(self, seed: u64) -> Case {
        let Self { dtype, heads, kv_heads, size, value_size, attributes, bias, .. } = self;
        let (features, values) = (heads * size, heads * value_size);
        let (keys, kv_values) = (kv_heads * size, kv_heads * value_size);
        let all = features + keys + kv_values;
        let (input, operand) = match bias {
            Some(ty) => (format!("input %c: {ty}").replace("FLOAT", dtype), ", bias: %c"),
            None => (String::new(), ""),
        };
        // Weights are large: scores are to be small enough that a softmax weighs all keys.
        let scale = 0.2 / features as f64;
        let statements = format!(
            "input %ids: i64[b, s]
             input %attention_mask: i64[b, s]
             input %words: {dtype}[9, {features}]
             input %positions: {dtype}[80, {features}]
             input %norm: {dtype}[{features}]
             input %packed: {dtype}[{all}, {features}]
             input %out: {dtype}[{features}, {values}]
             input %up: {dtype}[12, {features}]
             input %up_bias: {dtype}[12]
             {input}
             weight @first = dense([0]) : i64[]
             %mask = cast(%attention_mask) {{to = bool}} : bool[b, s]
             %at = iota() {{dtype = i64, length = s}} : i64[s]
             %x, %sum = embedding_norm([%words, %positions], [%ids, %at], %norm, norm_bias: %norm) {{norm = layer, eps = 1e-5}} : {dtype}[b, s, {features}], {dtype}[b, s, {features}]
             %qkv = linear(%x, %packed) : {dtype}[b, s, {all}]
             %q, %k, %v = split(%qkv) {{axis = 2, sizes = [{features}, {keys}, {kv_values}]}} : {dtype}[b, s, {features}], {dtype}[b, s, {keys}], {dtype}[b, s, {kv_values}]
             %a = attention(%q, %k, %v, mask: %mask{operand}) {{heads = {heads}, kv_heads = {kv_heads}, {attributes}scale = {scale}}} : {dtype}[b, s, {values}]
             %d = linear(%a, %out) : {dtype}[b, s, {features}]
             %n, %r = add_norm(%d, %x, %norm, bias: %norm, norm_bias: %norm) {{norm = layer, eps = 1e-5}} : {dtype}[b, s, {features}], {dtype}[b, s, {features}]
             %h = fused_linear(%n, %up, bias: %up_bias) {{activation = gelu_erf}} : {dtype}[b, s, 12]
             %part = slice(%h) {{axis = 2, start = 0, end = 11}} : {dtype}[b, s, 11]
             %token = gather(%n, @first) {{axis = 1}} : {dtype}[b, {features}]
             %pooled = tanh(%token) : {dtype}[b, {features}]
             output n = %n
             output part = %part
             output pooled = %pooled
             output again = %n"
        );
        let name = format!(
            "packed rows of {} tokens of {dtype}, {heads} heads of {size} and {value_size} with {kv_heads} of keys, {attributes}bias {bias:?}",
            self.sequence
        );
        let case = Case::new(name, statements, &[("b", self.batch), ("s", self.sequence)], seed);
        Case { mask: Some(has_token), is_packed: true, ..case }
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        cases.push(Layer { dtype, ..PLAIN }.case(1));
        cases.push(Layer { dtype, size: 7, value_size: 5, batch: 6, sequence: 70, ..PLAIN }.case(2));
    }
    for dtype in ["f32", "f16"] {
        let long = Layer { dtype, batch: 3, sequence: 70, ..PLAIN };
        cases.push(Layer { kv_heads: 2, attributes: "causal = true, window = 20, ", ..long }.case(3));
        cases.push(Layer { bias: Some("FLOAT[1, 4, s, s]"), ..long }.case(4));
        cases.push(Layer { bias: Some("f32[4, 1, s]"), attributes: "causal = true, softcap = 2.0, ", ..long }.case(5));
        // Tokens that fill up are more than a row has.
        cases.push(Layer { batch: 40, sequence: 4, ..long }.case(6));
        let full = Layer { dtype, ..PLAIN }.case(7);
        cases.push(Case { name: format!("{}, all but one", full.name), mask: Some(is_full), ..full });
    }
    // Several blocks of queries, of 128 each.
    cases.push(Layer { dtype: "f16", heads: 16, kv_heads: 16, batch: 20, sequence: 70, ..PLAIN }.case(8));
    // What is on tokens without being computed by a layer: sums, positions of each row, angles of all rows.
    for (dtype, cos) in [("f32", "1"), ("f16", "b")] {
        let statements = format!(
            "input %attention_mask: bool[b, s]
             input %x: {dtype}[b, s, 48]
             input %y: {dtype}[b, 1, 48]
             input %z: {dtype}[s, 1]
             input %cos: {dtype}[{cos}, s, 4]
             input %sin: {dtype}[{cos}, s, 4]
             %sum = add(%x, %y) : {dtype}[b, s, 48]
             %more = mul(%sum, %z) : {dtype}[b, s, 48]
             %q, %k, %v = split(%more) {{axis = 2, sizes = [16, 16, 16]}} : {dtype}[b, s, 16], {dtype}[b, s, 16], {dtype}[b, s, 16]
             %t = rotary(%q, %cos, %sin) {{heads = 2}} : {dtype}[b, s, 16]
             %u = rotary(%k, %cos, %sin) {{heads = 2}} : {dtype}[b, s, 16]
             %a = attention(%t, %u, %v, mask: %attention_mask) {{heads = 2, scale = 0.3}} : {dtype}[b, s, 16]
             %parts = reshape(%a) {{shape = [b, s, 2, 8]}} : {dtype}[b, s, 2, 8]
             %turned = transpose(%parts) {{perm = [0, 1, 3, 2]}} : {dtype}[b, s, 8, 2]
             %both = reduce_sum(%turned) {{axes = [3], keep = false}} : {dtype}[b, s, 8]
             %scores = softmax(%both) : {dtype}[b, s, 8]
             %one = slice(%scores) {{axis = 2, start = 3, end = 4}} : {dtype}[b, s, 1]
             %logits = reshape(%one) {{shape = [b, s]}} : {dtype}[b, s]
             %first = slice(%scores) {{axis = 1, start = 0, end = 1}} : {dtype}[b, 1, 8]
             %joined = concat([%t, %a]) {{axis = 2}} : {dtype}[b, s, 32]
             output logits = %logits
             output first = %first
             output joined = %joined"
        );
        let case = Case::new(format!("packed sums of {dtype}"), statements, &[("b", 6), ("s", 13)], 9);
        cases.push(Case { mask: Some(has_token), is_packed: true, ..case });
    }
    cases
}
