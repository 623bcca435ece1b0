//! Softmax, norms and what is in front of them: rows that a warp has, that a block has, and that do not fit registers.

use super::Case;

/// Columns of each form of the kernels, and tails.
const COLUMNS: [(usize, &str); 8] =
    [(1, "f32"), (7, "f16"), (32, "bf16"), (70, "f16"), (384, "f32"), (1025, "f16"), (3000, "bf16"), (9001, "f16")];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (columns, dtype) in COLUMNS {
        let statements = format!(
            "input %x: {dtype}[n, {columns}]
             input %w: {dtype}[{columns}]
             input %b: {dtype}[{columns}]
             %s = softmax(%x) : {dtype}[n, {columns}]
             %y = layer_norm(%x, %w, bias: %b) {{eps = 1e-5}} : {dtype}[n, {columns}]
             %z = rms_norm(%x, %w) {{eps = 1e-6}} : {dtype}[n, {columns}]
             output s = %s
             output y = %y
             output z = %z"
        );
        cases.push(Case::new(format_args!("softmax and norms of {dtype} by {columns}"), statements, &[("n", 5)], 5));
    }
    let large_mean = "
        input %x: f32[n, 768]
        input %w: f32[768]
        input %m: f32[]
        %a = exp(%m) : f32[]
        %b = mul(%a, %a) : f32[]
        %c = add(%b, %b) : f32[]
        %l = exp(%c) : f32[]
        %far = add(%x, %l) : f32[n, 768]
        %y = layer_norm(%far, %w) {eps = 1e-5} : f32[n, 768]
        output y = %y";
    cases.push(Case::new("a layer norm of rows with a large mean", large_mean, &[("n", 3)], 9));
    let forms =
        [("layer", ", bias: %b", ", norm_bias: %c"), ("layer", "", ""), ("rms", ", bias: %b", ""), ("rms", "", "")];
    for (columns, dtype) in
        [(7, "f32"), (384, "f16"), (768, "f16"), (1000, "f32"), (1025, "bf16"), (4600, "f16"), (9001, "f16")]
    {
        // All forms of some columns, one of the others.
        let forms = if matches!(columns, 7 | 384 | 1025 | 9001) { &forms[..] } else { &forms[..1] };
        for &(norm, bias, norm_bias) in forms {
            let ty = format!("{dtype}[n, {columns}]");
            let statements = format!(
                "input %x: {ty}
                 input %r: {ty}
                 input %w: {dtype}[{columns}]
                 input %b: {dtype}[{columns}]
                 input %c: {dtype}[{columns}]
                 %y, %s = add_norm(%x, %r, %w{bias}{norm_bias}) {{norm = {norm}, eps = 1e-5}} : {ty}, {ty}
                 output y = %y
                 output s = %s"
            );
            let name = format!("add_norm {norm}{bias}{norm_bias} of {dtype} by {columns}");
            cases.push(Case::new(name, statements, &[("n", 5)], 9));
        }
    }
    for (columns, dtype, ids, norm) in [
        (24, "f32", ["i64", "i64", "i64"], "layer"),
        (768, "f16", ["i64", "i32", "i64"], "layer"),
        (40, "bf16", ["i32"; 3], "rms"),
    ] {
        let ty = format!("{dtype}[b, s, {columns}]");
        let bias = if norm == "layer" { ", norm_bias: %w" } else { "" };
        let statements = format!(
            "input %t: {dtype}[9, {columns}]
             input %p: {dtype}[50, {columns}]
             input %g: {dtype}[7, {columns}]
             input %w: {dtype}[{columns}]
             input %i: {}[b, s]
             input %j: {}[1, s]
             input %k: {}[b, 1]
             %y, %s = embedding_norm([%t, %p, %g], [%i, %j, %k], %w{bias}) {{norm = {norm}, eps = 1e-12}} : {ty}, {ty}
             %z, %unused = embedding_norm([%t], [%i], %w{bias}) {{norm = {norm}, eps = 1e-12}} : {ty}, {ty}
             output y = %y
             output s = %s
             output z = %z",
            ids[0], ids[1], ids[2]
        );
        cases.push(Case::new(
            format_args!("embedding_norm of {dtype} by {columns}"),
            statements,
            &[("b", 3), ("s", 5)],
            10,
        ));
    }
    cases
}
