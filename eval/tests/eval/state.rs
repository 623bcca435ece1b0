//! Attention whose memory is a matrix, and convolutions over what came before, each by hand. ONNX's node tests have
//! larger ones.

use planish_eval::Tensor;
use planish_ir::ops::{Real, Setting};
use planish_ir::{DType, Shape, TensorType};

use crate::foreign::try_run;
use crate::{assert_close, tensor};

fn text(value: &str) -> Setting {
    Setting::Bytes(value.as_bytes().into())
}

fn ty(shape: &[i64]) -> TensorType {
    TensorType::new(DType::F32, Shape::new(shape.iter().map(|d| (*d).into())))
}

fn row(values: &[f32]) -> Tensor {
    tensor(&[1, values.len(), 1], values.to_vec())
}

/// One head of one feature, two tokens.
fn linear(rule: &str, state: Option<f32>, gates: [Option<&[f32]>; 2]) -> Result<Vec<Tensor>, String> {
    let (q, k, v) = (row(&[1.0, 2.0]), row(&[3.0, 4.0]), row(&[5.0, 6.0]));
    let past = state.map(|state| tensor(&[1, 1, 1, 1], vec![state]));
    let [decay, rate] = gates.map(|gate| gate.map(row));
    let settings = [
        ("q_num_heads", Setting::Int(1)),
        ("kv_num_heads", Setting::Int(1)),
        ("scale", Setting::Float(Real(1.0))),
        ("update_rule", text(rule)),
    ];
    let operands = [Some(&q), Some(&k), Some(&v), past.as_ref(), decay.as_ref(), rate.as_ref()];
    try_run("LinearAttention", &settings, &operands, &[ty(&[1, 2, 1]), ty(&[1, 1, 1, 1])])
}

#[test]
fn linear_attention() {
    let half = f32::ln(0.5);
    let of = |rule: &str, state: Option<f32>, gates: [Option<&[f32]>; 2]| {
        let found = linear(rule, state, gates).unwrap();
        [found[0].to_f64(), found[1].to_f64()].concat()
    };
    let close = |found: Vec<f64>, expected: [f64; 3]| assert_close(&tensor(&[3], found), &expected, 1e-6);
    // The states are 15 and 39.
    close(of("linear", None, [None, None]), [15.0, 78.0, 39.0]);
    // 2 / 2 + 15 and 16 / 2 + 24.
    close(of("gated", Some(2.0), [Some(&[half, half]), None]), [16.0, 64.0, 32.0]);
    // 2 + 3 * 0.5 * (5 - 2 * 3) and 0.5 + 4 * 0.5 * (6 - 0.5 * 4).
    close(of("delta", Some(2.0), [None, Some(&[0.5, 0.5])]), [0.5, 17.0, 8.5]);
    // 1 + 3 * 0.5 * (5 - 1 * 3) and 2 + 4 * 0.5 * (6 - 2 * 4).
    close(of("gated_delta", Some(2.0), [Some(&[half, half]), Some(&[0.5, 0.5])]), [4.0, -4.0, -2.0]);
    assert!(linear("other", None, [None, None]).unwrap_err().contains("update_rule `other`"));
    assert!(linear("gated", None, [None, None]).is_err());
}

#[test]
fn causal_convolution() {
    let run = |activation: &str, past: Option<&Tensor>, bias: Option<&Tensor>| {
        let (x, weight) = (tensor(&[1, 1, 3], vec![1f32, 2.0, 3.0]), tensor(&[1, 1, 2], vec![1f32, 10.0]));
        let operands = [Some(&x), Some(&weight), bias, past];
        let settings = [("activation", text(activation))];
        try_run("CausalConvWithState", &settings, &operands, &[ty(&[1, 1, 3]), ty(&[1, 1, 1])])
    };
    let (past, bias) = (tensor(&[1, 1, 1], vec![4f32]), tensor(&[1], vec![1f32]));
    let found = run("none", Some(&past), Some(&bias)).unwrap();
    assert_eq!((found[0].to_f64(), found[1].to_f64()), (vec![15.0, 22.0, 33.0], vec![3.0]));
    assert_eq!(run("none", None, None).unwrap()[0].to_f64(), [10.0, 21.0, 32.0]);
    let small = tensor(&[1], vec![-20f32]);
    let silu = |v: f64| v / (1.0 + (-v).exp());
    assert_close(&run("silu", None, Some(&small)).unwrap()[0], &[silu(-10.0), silu(1.0), silu(12.0)], 1e-6);
    assert!(run("none", Some(&tensor(&[1, 1, 2], vec![1f32, 1.0])), None).unwrap_err().contains("does not fit"));
}
