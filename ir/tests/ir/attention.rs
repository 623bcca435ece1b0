//! What attention and its kin do not take.

use planish_ir::text;

const INPUTS: &str = "
  input %q: f32[b, s, 8]
  input %k: f32[b, s, 4]
  input %t: f32[b, t, 4]
  input %pk: f32[b, 2, p, 2]
  input %pv: f32[b, 2, p, 3]
  input %m: bool[b, s]
  input %c: f32[b, s, 2]
  input %w: f32[8]
";

fn parse(statement: &str) -> Result<(), String> {
    let source = format!("graph \"g\" {{{INPUTS}  {statement}\n}}");
    text::parse(&source, &text::no_files).map(drop).map_err(|e| e.to_string())
}

#[test]
fn operands_and_attributes_must_fit() {
    let attention = |operands: &str, attributes: &str| {
        parse(&format!("%y = attention({operands}) {{{attributes}, scale = 0.5}} : f32[b, s, 8]"))
    };
    for (operands, attributes, message) in [
        ("%q, %q, %q", "heads = 3", "3 heads do not divide 8 features"),
        ("%q, %q, %q", "heads = 0", "there are no heads"),
        ("%q, %k, %k", "heads = 4, kv_heads = 3", "3 heads of keys do not divide 4"),
        ("%q, %k, %k", "heads = 4", "`q`, `k` and `v` are f32[b, s, 8], f32[b, s, 4] and f32[b, s, 4]"),
        ("%q, %q, %q", "heads = 4, window = 0", "a window is at least 1"),
        ("%q, %t, %t", "heads = 4, kv_heads = 2, window = 2", "there are s queries and t new keys"),
        ("%q, %q, %q", "heads = 4, softcap = 0.0", "a softcap is positive"),
        ("%q, %t, %t", "heads = 4, kv_heads = 2, causal = true", "there are s queries and t new keys"),
        ("%q, %k, %k, past_key: %pk", "heads = 4, kv_heads = 2", "`past_key` and `past_value` do not fit"),
        ("%q, %k, %k, past_key: %pk, past_value: %pv", "heads = 4, kv_heads = 2", "do not fit"),
        ("%q, %k, %k, mask: %m, past_key: %pk, past_value: %pk", "heads = 4, kv_heads = 2", "expected bool[b, p + s]"),
        (
            "%q, %k, %k, bias: %w",
            "heads = 4, kv_heads = 2",
            "`bias` is f32[8], expected what broadcasts to f32[b, 4, s, s]",
        ),
        ("%q, %pk, %pk", "heads = 4, kv_heads = 4", "`k` is f32[b, 2, p, 2], expected f32[b, keys, features]"),
    ] {
        let error = attention(operands, attributes).expect_err("it does not fit");
        assert!(error.contains(message), "{operands} {attributes}\n  gives {error}\n  and not {message}");
    }
    assert_eq!(attention("%q, %k, %k, mask: %m", "heads = 4, kv_heads = 2, causal = true, window = 1"), Ok(()));
}

#[test]
fn causal_attention_to_all_keys_of_a_cache_has_no_fewer_keys_than_queries() {
    let attention = |queries: &str, keys: &str, more: &str| {
        parse(&format!(
            "input %fq: f32[b, {queries}, 8]\n  input %fk: f32[b, 4, {keys}, 2]\n  \
             %y = attention(%fq, %fk, %fk{more}) {{heads = 4, scale = 0.5, causal = true}} : f32[b, {queries}, 8]"
        ))
    };
    assert_eq!(attention("s", "p + s", ""), Ok(()));
    assert_eq!(attention("s", "t", ""), Ok(()));
    assert_eq!(attention("3", "t", ""), Ok(()));
    assert_eq!(attention("3", "7", ""), Ok(()));
    assert!(attention("3", "2", "").unwrap_err().contains("there are 3 queries and 2 new keys"));
    let past = "\n  input %fp: f32[b, 4, p, 2]";
    let error = parse(&format!(
        "input %fk: f32[b, 4, t, 2]{past}\n  %y = attention(%q, %fk, %fk, past_key: %fp, past_value: %fp) \
         {{heads = 4, scale = 0.5, causal = true}} : f32[b, s, 8]"
    ));
    assert!(error.unwrap_err().contains("there are s queries and t new keys"));
}

#[test]
fn rotary_angles_fit_heads() {
    let rotary =
        |operands: &str, heads: usize| parse(&format!("%y = rotary({operands}) {{heads = {heads}}} : f32[b, s, 8]"));
    assert_eq!(rotary("%q, %c, %c", 2), Ok(()));
    let not = "`cos` is f32[b, s, 2], which does not fit `x`, f32[b, s, 8], in 4 heads";
    assert!(rotary("%q, %c, %c", 4).unwrap_err().contains(not));
    assert!(rotary("%q, %c, %k", 2).unwrap_err().contains("expected one type"));
    assert!(rotary("%q, %c, %c", 3).unwrap_err().contains("3 heads do not divide 8 features"));
}

#[test]
fn weights_fit_as_they_are_stored() {
    let norm = parse("%y = rms_norm(%k, %w) {eps = 1e-6} : f32[b, s, 4]").unwrap_err();
    assert!(norm.contains("`weight` is f32[8], expected f32[4]"), "{norm}");
    let linear = |attributes: &str, out: usize| {
        parse(&format!("weight @l = uniform(1) : f32[4, 3]\n%y = linear(%k, @l) {attributes}: f32[b, s, {out}]"))
    };
    assert_eq!(linear("{transposed = true} ", 3), Ok(()));
    let error = linear("", 4).unwrap_err();
    assert!(error.contains("`weight` is f32[4, 3], expected f32[4, 4]"), "{error}");
}
