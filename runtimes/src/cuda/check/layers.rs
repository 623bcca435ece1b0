//! Matrix products: linear layers with what is after them, and products of tensors in all layouts.

use super::Case;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        let statements = format!(
            "input %x: {dtype}[b, s, 24]
             input %w: {dtype}[40, 24]
             input %t: {dtype}[24, 40]
             input %c: {dtype}[40]
             input %r: {dtype}[b, s, 40]
             %a = linear(%x, %w, bias: %c) : {dtype}[b, s, 40]
             %d = linear(%x, %t) {{transposed = true}} : {dtype}[b, s, 40]
             %e = fused_linear(%x, %w, bias: %c, residual: %r) {{activation = none}} : {dtype}[b, s, 40]
             %f = fused_linear(%x, %t, bias: %c, residual: %r) {{transposed = true, activation = gelu_erf}} : {dtype}[b, s, 40]
             %g = fused_linear(%x, %w, bias: %c) {{activation = gelu_tanh}} : {dtype}[b, s, 40]
             %h = fused_linear(%x, %w) {{activation = relu}} : {dtype}[b, s, 40]
             %i = fused_linear(%x, %w, residual: %r) {{activation = silu}} : {dtype}[b, s, 40]
             %p, %q = split(%a) {{axis = 2, sizes = [16, 24]}} : {dtype}[b, s, 16], {dtype}[b, s, 24]
             %j = linear(%q, %w) : {dtype}[b, s, 40]
             %u, %v = split(%d) {{axis = 2, sizes = [20, 20]}} : {dtype}[b, s, 20], {dtype}[b, s, 20]
             %k = gated(%u, %v) {{activation = silu}} : {dtype}[b, s, 20]
             %l = fused_linear(%x, %w, bias: %c, residual: %d) {{activation = none}} : {dtype}[b, s, 40]
             %both = concat([%d, %a]) {{axis = 2}} : {dtype}[b, s, 80]
             %left, %right = split(%both) {{axis = 2, sizes = [40, 40]}} : {dtype}[b, s, 40], {dtype}[b, s, 40]
             %m = fused_linear(%x, %w, bias: %c, residual: %right) {{activation = none}} : {dtype}[b, s, 40]
             %first = slice(%x) {{axis = 1, start = 0, end = 1}} : {dtype}[b, 1, 24]
             %row = reshape(%first) {{shape = [b, 24]}} : {dtype}[b, 24]
             %one = slice(%row) {{axis = 0, start = 0, end = 1}} : {dtype}[1, 24]
             %many = expand(%one) {{shape = [5, 24]}} : {dtype}[5, 24]
             %n = linear(%many, %w, bias: %c) : {dtype}[5, 40]
             %none = slice(%x) {{axis = 2, start = 0, end = 0}} : {dtype}[b, s, 0]
             %empty = slice(%w) {{axis = 1, start = 0, end = 0}} : {dtype}[40, 0]
             %o = linear(%none, %empty, bias: %c) : {dtype}[b, s, 40]
             output l = %l
             output m = %m
             output n = %n
             output o = %o
             output e = %e
             output f = %f
             output g = %g
             output h = %h
             output i = %i
             output j = %j
             output k = %k"
        );
        cases.push(Case::new(format_args!("linear layers of {dtype}"), statements, &[("b", 3), ("s", 7)], 3));
        // A few rows: each way to divide the work, and rows that are no multiples of 16 bytes.
        let sizes: &[_] = match dtype {
            "f32" => &[(2, 301, 64), (4, 24, 268)],
            "f16" => &[(1, 100, 520), (4, 20, 1032), (3, 72, 700)],
            _ => &[(3, 50, 1032), (1, 304, 40)],
        };
        for &(m, n, k) in sizes {
            let statements = format!(
                "input %x: {dtype}[{m}, {k}]
                 input %w: {dtype}[{n}, {k}]
                 input %t: {dtype}[{k}, {n}]
                 input %c: {dtype}[{n}]
                 input %r: {dtype}[{m}, {n}]
                 %a = linear(%x, %w, bias: %c) : {dtype}[{m}, {n}]
                 %d = linear(%x, %t) {{transposed = true}} : {dtype}[{m}, {n}]
                 %e = fused_linear(%x, %w, residual: %r) {{activation = none}} : {dtype}[{m}, {n}]
                 %f = fused_linear(%x, %t, bias: %c, residual: %r) {{transposed = true, activation = gelu_erf}} : {dtype}[{m}, {n}]
                 output a = %a
                 output d = %d
                 output e = %e
                 output f = %f"
            );
            let name = format!("linear layers of {m} rows of {dtype}, {k} to {n} features");
            cases.push(Case::new(name, statements, &[], 4));
        }
        let statements = format!(
            "input %x: {dtype}[b, 2, s, 12]
             input %y: {dtype}[b, 2, 12, 9]
             input %z: {dtype}[12, 9]
             %t = transpose(%x) {{perm = [0, 1, 3, 2]}} : {dtype}[b, 2, 12, s]
             %u = transpose(%x) {{perm = [0, 2, 1, 3]}} : {dtype}[b, s, 2, 12]
             %a = matmul(%x, %y) : {dtype}[b, 2, s, 9]
             %c = matmul(%x, %t) : {dtype}[b, 2, s, s]
             %d = matmul(%u, %z) : {dtype}[b, s, 2, 9]
             output a = %a
             output c = %c
             output d = %d"
        );
        cases.push(Case::new(format_args!("products of {dtype}"), statements, &[("b", 2), ("s", 5)], 4));
    }
    cases
}
