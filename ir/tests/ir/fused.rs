//! What operators that are several in one take and do not take.

use planish_ir::{text, verify};

const INPUTS: &str = "  input %x: f16[b, s, 4]
  input %y: f16[b, s, 4]
  input %z: f16[b, s, 6]
  input %f: f32[b, s, 4]
  input %ids: i64[b, s]
  input %row: i64[1, s]
  input %t: i64[t, s]
  input %c: f16[1, s, 1]
  input %kv: f16[b, s, 2]
  input %pk: f16[b, 1, p, 2]
  input %pv: f16[b, 1, p, 2]
  input %other: f16[b, 1, o, 2]
  input %codes: i8[b, s, 4]
  input %matrix: i8[6, 4]
  input %long: i8[b, s, 131072]
  input %large: i8[6, 131072]
  input %scales: f32[6]
  weight @w = uniform(1) : f16[6, 4]
  weight @n = uniform(2) : f16[4]
  weight @b = uniform(3) : f16[6]
  weight @d = uniform(4) : f16[3, 4]
  weight @e = uniform(5) : f16[3, 6]
";

fn parse(statement: &str) -> Result<String, String> {
    let source = format!("graph \"g\" {{\n{INPUTS}  {statement}\n}}\n");
    let graph = text::parse(&source, &text::no_files).map_err(|e| e.to_string())?;
    verify(&graph).map_err(|e| e.to_string())?;
    assert_eq!(graph.to_string(), source);
    Ok(source)
}

#[test]
fn they_round_trip() {
    for statement in [
        "%r = fused_linear(%x, @w) {activation = none} : f16[b, s, 6]",
        "%r = fused_linear(%x, @w, bias: @b, residual: %z) {activation = gelu_erf} : f16[b, s, 6]",
        "%r = fused_linear(%z, @w, bias: @n, residual: %x) {transposed = true, activation = silu} : f16[b, s, 4]",
        "%r = quantize(%x) {scale = 0.25} : i8[b, s, 4]",
        "%r = quantized_linear(%codes, %matrix, %scales) {to = f32, activation = none} : f32[b, s, 6]",
        "%r = quantized_linear(%codes, %matrix, %scales, bias: @b, residual: %z) {to = f16, activation = silu} : f16[b, s, 6]",
        "%r = gated(%x, %y) {activation = gelu_tanh} : f16[b, s, 4]",
        "%r, %sum = add_norm(%x, %y, @n) {norm = rms, eps = 1e-6} : f16[b, s, 4], f16[b, s, 4]",
        "%r, %sum = add_norm(%x, %y, @n, bias: @n, norm_bias: @n) {norm = layer, eps = 1e-6} : f16[b, s, 4], f16[b, s, 4]",
        "%r, %sum = embedding_norm([@d], [%row], @n) {norm = rms, eps = 0.0} : f16[1, s, 4], f16[1, s, 4]",
        "%r, %sum = embedding_norm([@d, @d, @d], [%row, %ids, %ids], @n, norm_bias: @n) {norm = layer, eps = 0.1} : f16[b, s, 4], f16[b, s, 4]",
        "%q, %k, %v = rotary_append(%x, %kv, %kv, %c, %c, past_key: %pk, past_value: %pv) {heads = 2, kv_heads = 1, interleaved = true} : f16[b, s, 4], f16[b, 1, p + s, 2], f16[b, 1, p + s, 2]",
        "%q, %k, %v = rotary_append(%x, %kv, %z, %c, %c) {heads = 2, kv_heads = 1} : f16[b, s, 4], f16[b, 1, s, 2], f16[b, 1, s, 6]",
    ] {
        parse(statement).unwrap();
    }
}

#[test]
fn operands_and_attributes_must_fit() {
    for (call, message) in [
        ("fused_linear(%x, @w, residual: %y) {activation = none}", "`residual` is f16[b, s, 4], expected f16[b, s, 6]"),
        ("fused_linear(%x, @w, bias: @n) {activation = none}", "`bias` is f16[4], expected f16[6]"),
        ("fused_linear(%x, @w) {activation = tanh}", "`tanh` is none of none, gelu_erf, gelu_tanh, silu, relu"),
        ("fused_linear(%x, @w)", "attribute `activation` is missing"),
        ("quantize(%ids) {scale = 0.25}", "`x` is i64[b, s], expected floating-point numbers"),
        ("quantize(%x) {scale = 0.0}", "the scale is not more than 0"),
        ("quantized_linear(%x, %matrix, %scales) {to = f16, activation = none}", "expected codes of i8"),
        (
            "quantized_linear(%codes, @w, %scales) {to = f16, activation = none}",
            "`weight` is f16[6, 4], expected i8[6, 4]",
        ),
        ("quantized_linear(%codes, %codes, %scales) {to = f16, activation = none}", "expected 2 dimensions"),
        ("quantized_linear(%codes, %matrix, @b) {to = f16, activation = none}", "`scales` is f16[6], expected f32[6]"),
        ("quantized_linear(%codes, %matrix, %scales, bias: %scales) {to = f16, activation = none}", "`bias` is f32[6]"),
        ("quantized_linear(%codes, %matrix, %scales) {to = i32, activation = none}", "the result is i32"),
        (
            "quantized_linear(%codes, %matrix, %scales, residual: %x) {to = f16, activation = none}",
            "`residual` is f16[b, s, 4], expected f16[b, s, 6]",
        ),
        (
            "quantized_linear(%long, %large, %scales) {to = f16, activation = none}",
            "sums of more than 131071 products of codes do not fit 32 bits",
        ),
        ("gated(%x, %z) {activation = silu}", "`up` is f16[b, s, 6], expected f16[b, s, 4]"),
        ("gated(%ids, %ids) {activation = silu}", "`gate` is i64[b, s], expected floating-point numbers"),
        ("add_norm(%x, %f, @n) {norm = rms, eps = 0.1}", "`residual` is f32[b, s, 4], expected f16[b, s, 4]"),
        ("add_norm(%x, %y, @n, norm_bias: @n) {norm = rms, eps = 0.1}", "an rms norm has no `norm_bias`"),
        ("add_norm(%x, %y, @b) {norm = layer, eps = 0.1}", "`weight` is f16[6], expected f16[4]"),
        ("add_norm(%x, %y, @n, bias: @b) {norm = layer, eps = 0.1}", "`bias` is f16[6], expected f16[4]"),
        (
            "embedding_norm([], [], @n) {norm = rms, eps = 0.1}",
            "there are 0 tables and 0 ids, expected as many, and 1 to 3",
        ),
        ("embedding_norm([@d], [%ids, %ids], @n) {norm = rms, eps = 0.1}", "there are 1 tables and 2 ids"),
        ("embedding_norm([@d, @d, @d, @d], [%ids, %ids, %ids, %ids], @n) {norm = rms, eps = 0.1}", "1 to 3"),
        (
            "embedding_norm([@d, @e], [%ids, %ids], @n) {norm = rms, eps = 0.1}",
            "a table is f16[3, 6], and the first is f16[3, 4]",
        ),
        ("embedding_norm([@d], [%x], @n) {norm = rms, eps = 0.1}", "`ids` is f16[b, s, 4], expected i32 or i64"),
        ("embedding_norm([@d, @d], [%ids, %t], @n) {norm = rms, eps = 0.1}", "[b, s] and [t, s] do not broadcast"),
        ("rotary_append(%x, %x, %kv, %c, %c) {heads = 2, kv_heads = 1}", "heads of one size are expected"),
        ("rotary_append(%x, %kv, %f, %c, %c) {heads = 2, kv_heads = 1}", "`v` is f32[b, s, 4], which does not fit `q`"),
        ("rotary_append(%x, %kv, %kv, %c, %kv) {heads = 2, kv_heads = 1}", "expected one type"),
        ("rotary_append(%x, %kv, %kv, %c, %c) {heads = 0, kv_heads = 1}", "there are no heads"),
        (
            "rotary_append(%x, %kv, %kv, %c, %c, past_key: %pk) {heads = 2, kv_heads = 1}",
            "one of `past_key` and `past_value` is missing",
        ),
        (
            "rotary_append(%x, %kv, %kv, %c, %c, past_key: %pk, past_value: %other) {heads = 2, kv_heads = 1}",
            "`past_value` is f16[b, 1, o, 2], expected f16[b, 1, p, 2]",
        ),
    ] {
        let error = parse(&format!("%r = {call} : f16[b, s, 4]")).expect_err("it does not fit");
        assert!(error.contains(message), "{call}\n  gives {error}\n  and not {message}");
    }
}

#[test]
fn they_are_fused() {
    let source = format!(
        "graph \"g\" {{\n{INPUTS}  %r = gated(%x, %y) {{activation = silu}} : f16[b, s, 4]\n  %h = tanh(%r) : f16[b, s, 4]\n}}"
    );
    let graph = text::parse(&source, &text::no_files).unwrap();
    assert_eq!(graph.nodes().map(|(_, node)| node.op.is_fused()).collect::<Vec<_>>(), [true, false]);
}
