use planish_eval::Tensor;
use planish_ir::DType;
use planish_ir::ops::{Binary, BinaryKind, LayerNorm, Real, RmsNorm, Softmax};
use proptest::prelude::*;

use crate::{apply, assert_close, random, tensor};

fn softmax(x: &Tensor) -> Tensor {
    apply(&[x], |v| Softmax { x: v[0] })
}

fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Tensor {
    apply(&[x, weight, bias], |v| LayerNorm { x: v[0], weight: v[1], bias: Some(v[2]), eps: Real(eps) })
}

#[test]
fn softmax_of_logarithms_is_their_share() {
    let x: Vec<f64> = [1.0f64, 2.0, 5.0, 3.0, 3.0, 2.0].iter().map(|v| v.ln()).collect();
    assert_close(&softmax(&tensor(&[2, 3], x)), &[0.125, 0.25, 0.625, 0.375, 0.375, 0.25], 1e-15);
}

#[test]
fn softmax_of_large_and_infinite_numbers() {
    assert_eq!(softmax(&tensor(&[2], vec![1e30f32, 1e30])), tensor(&[2], vec![0.5f32, 0.5]));
    assert_eq!(softmax(&tensor(&[2], vec![f32::NEG_INFINITY, -1e30])), tensor(&[2], vec![0f32, 1.0]));
    assert!(softmax(&tensor(&[2], vec![f32::NEG_INFINITY; 2])).to_f64().iter().all(|v| v.is_nan()));
    assert_eq!(softmax(&tensor(&[2, 0], Vec::<f32>::new())).shape(), [2, 0]);
}

#[test]
fn layer_norm_by_hand() {
    // Mean 3, variance 4.
    let x = tensor(&[1, 4], vec![1.0, 1.0, 5.0, 5.0]);
    let (weight, bias) = (tensor(&[4], vec![1.0, 2.0, 3.0, 0.0]), tensor(&[4], vec![0.0, 10.0, 0.0, 7.0]));
    assert_close(&layer_norm(&x, &weight, &bias, 0.0), &[-1.0, 8.0, 3.0, 7.0], 0.0);
    // With 5 added to the variance, the deviation is 3.
    let without = apply(&[&x, &weight], |v| LayerNorm { x: v[0], weight: v[1], bias: None, eps: Real(5.0) });
    assert_close(&without, &[-2.0 / 3.0, -4.0 / 3.0, 2.0, 0.0], 1e-15);
}

#[test]
fn rms_norm_by_hand() {
    // The mean square is 16, with 9 added 25.
    let (x, weight) = (tensor(&[1, 2], vec![4.0, -4.0]), tensor(&[2], vec![1.0, 3.0]));
    let norm = |eps| apply(&[&x, &weight], |v| RmsNorm { x: v[0], weight: v[1], eps: Real(eps) });
    assert_close(&norm(0.0), &[1.0, -3.0], 0.0);
    assert_close(&norm(9.0), &[0.8, -2.4], 1e-15);
    let none = tensor(&[2, 0], Vec::<f32>::new());
    let weight = tensor(&[0], Vec::<f32>::new());
    assert_eq!(apply(&[&none, &weight], |v| RmsNorm { x: v[0], weight: v[1], eps: Real(1.0) }).shape(), [2, 0]);
}

proptest! {
    #[test]
    fn softmax_rows_sum_to_one(rows in 1usize..5, n in 1usize..50, seed in any::<u64>()) {
        let y = softmax(&random(DType::F64, &[rows, n], seed)).to_f64();
        for row in y.chunks(n) {
            prop_assert!(row.iter().all(|v| *v > 0.0));
            prop_assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-14);
        }
    }

    #[test]
    fn softmax_ignores_a_common_offset(n in 1usize..20, seed in any::<u64>(), offset in -50.0..50.0f64) {
        let x = random(DType::F64, &[n], seed);
        let moved = apply(&[&x, &tensor(&[], vec![offset])], |v| Binary { kind: BinaryKind::Add, a: v[0], b: v[1] });
        assert_close(&softmax(&moved), &softmax(&x).to_f64(), 1e-13);
    }

    #[test]
    fn layer_norm_makes_mean_0_and_variance_1(rows in 1usize..4, n in 2usize..40, seed in any::<u64>()) {
        let x = random(DType::F64, &[rows, n], seed);
        let y = layer_norm(&x, &tensor(&[n], vec![1.0; n]), &tensor(&[n], vec![0.0; n]), 0.0).to_f64();
        for row in y.chunks(n) {
            prop_assert!(row.iter().sum::<f64>().abs() < 1e-10);
            prop_assert!((row.iter().map(|v| v * v).sum::<f64>() / n as f64 - 1.0).abs() < 1e-10);
        }
    }
}
