//! Layers of codes: in all types, with what is after them, of sizes with and without tails.

use super::Case;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (dtype, k, n, tokens) in [
        ("f32", 64, 40, 3),
        ("f16", 36, 516, 3),
        ("bf16", 100, 12, 3),
        ("f16", 768, 3072, 3),
        // Tiles of every size, with tails of rows, columns and codes.
        ("bf16", 80, 72, 35),
        ("f16", 16, 200, 35),
        ("f32", 208, 260, 65),
    ] {
        let statements = format!(
            "input %x: {dtype}[b, s, {k}]
             input %m: {dtype}[{n}, {k}]
             input %u: f32[{n}]
             input %c: {dtype}[{n}]
             input %r: {dtype}[b, s, {n}]
             weight @small = dense([3e-5]) : f32[]
             %z = quantize(%u) {{scale = 1e-3}} : i8[{n}]
             %g = quantize(%x) {{scale = 0.0123}} : i8[b, s, {k}]
             %w = quantize(%m) {{scale = 0.0159}} : i8[{n}, {k}]
             %t = sigmoid(%u) : f32[{n}]
             %q = mul(%t, @small) : f32[{n}]
             %a = quantized_linear(%g, %w, %q) {{to = {dtype}, activation = none}} : {dtype}[b, s, {n}]
             %d = quantized_linear(%g, %w, %q, bias: %c, residual: %r) {{to = {dtype}, activation = gelu_erf}} : {dtype}[b, s, {n}]
             %e = quantized_linear(%g, %w, %q, bias: %c) {{to = {dtype}, activation = gelu_tanh}} : {dtype}[b, s, {n}]
             %f = quantized_linear(%g, %w, %q, residual: %r) {{to = {dtype}, activation = silu}} : {dtype}[b, s, {n}]
             %h = quantized_linear(%g, %w, %q) {{to = {dtype}, activation = relu}} : {dtype}[b, s, {n}]
             output z = %z
             output g = %g
             output a = %a
             output d = %d
             output e = %e
             output f = %f
             output h = %h"
        );
        cases.push(Case::new(
            format_args!("layers of codes of {dtype}, [{n}, {k}]"),
            statements,
            &[("b", 2), ("s", tokens)],
            11,
        ));
    }
    for dtype in ["f32", "f16", "bf16"] {
        // Numbers on both sides of codes, in the middle between two, and beyond the largest: also where they are not in a row.
        let statements = format!(
            "input %x: {dtype}[n, 1027]
             %t = transpose(%x) {{perm = [1, 0]}} : {dtype}[1027, n]
             %a = quantize(%x) {{scale = 0.25}} : i8[n, 1027]
             %c = quantize(%x) {{scale = 0.0078125}} : i8[n, 1027]
             %d = quantize(%t) {{scale = 0.03}} : i8[1027, n]
             %e = fake_quantize(%x) {{to = i8, scale = 0.0078125}} : {dtype}[n, 1027]
             %f = fake_quantize(%t) {{to = i8, scale = 0.0321}} : {dtype}[1027, n]
             output a = %a
             output c = %c
             output d = %d
             output e = %e
             output f = %f"
        );
        cases.push(Case::new(format_args!("codes of {dtype}"), statements, &[("n", 5)], 12));
    }
    cases
}
