//! Softmax and norms: rows that a warp has, that a block has, and that do not fit registers.

use super::*;

/// Columns of each form of the kernels, and tails.
const COLUMNS: [(usize, &str); 8] =
    [(1, "f32"), (7, "f16"), (32, "bf16"), (70, "f16"), (384, "f32"), (1025, "f16"), (3000, "bf16"), (9001, "f16")];

#[test]
fn softmax_of_rows() {
    for (columns, dtype) in COLUMNS {
        let statements = format!(
            "input %x: {dtype}[n, {columns}]
                 %y = softmax(%x) : {dtype}[n, {columns}]
                 output y = %y"
        );
        check(&statements, &[("n", 5)], 3);
    }
}

#[test]
fn norms_of_rows() {
    for (columns, dtype) in COLUMNS {
        let statements = format!(
            "input %x: {dtype}[n, {columns}]
                 input %w: {dtype}[{columns}]
                 input %b: {dtype}[{columns}]
                 %y = layer_norm(%x, %w, bias: %b) {{eps = 1e-5}} : {dtype}[n, {columns}]
                 %z = rms_norm(%x, %w) {{eps = 1e-6}} : {dtype}[n, {columns}]
                 output y = %y
                 output z = %z"
        );
        check(&statements, &[("n", 5)], 5);
    }
}

#[test]
fn a_large_mean_costs_no_accuracy() {
    let graph = graph(
        "input %x: f32[n, 768]
         input %w: f32[768]
         %y = layer_norm(%x, %w) {eps = 1e-5} : f32[n, 768]
         output y = %y",
    );
    let mut inputs = inputs(&graph, &[("n", 3)], 7);
    let large: Vec<f64> = inputs[0].1.to_f64().iter().map(|x| x + 3000.0).collect();
    inputs[0].1 = Tensor::from_f64(DType::F32, vec![3, 768], &large).unwrap();
    check_with(&graph, &inputs);
}

#[test]
fn sums_in_front_of_norms() {
    let forms =
        [("layer", ", bias: %b", ", norm_bias: %c"), ("layer", "", ""), ("rms", ", bias: %b", ""), ("rms", "", "")];
    for (columns, dtype) in [(7, "f32"), (384, "f16"), (1025, "bf16"), (9001, "f16")] {
        for (norm, bias, norm_bias) in forms {
            let statements = format!(
                        "input %x: {dtype}[n, {columns}]
                         input %r: {dtype}[n, {columns}]
                         input %w: {dtype}[{columns}]
                         input %b: {dtype}[{columns}]
                         input %c: {dtype}[{columns}]
                         %y, %s = add_norm(%x, %r, %w{bias}{norm_bias}) {{norm = {norm}, eps = 1e-5}} : {dtype}[n, {columns}], {dtype}[n, {columns}]
                         output y = %y
                         output s = %s"
                    );
            check(&statements, &[("n", 5)], 9);
        }
    }
}
