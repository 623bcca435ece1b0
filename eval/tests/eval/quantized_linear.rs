//! Codes, and layers of codes, against what the codes stand for.

use planish_eval::Tensor;
use planish_ir::DType;
use planish_ir::ops::{
    Activation, Binary, BinaryKind, FakeQuantize, Flag, FusedLinear, Quantize, QuantizedLinear, Real,
};
use proptest::prelude::*;

use crate::{apply, assert_close, numbers, random, tensor};

fn quantized(x: &Tensor, scale: f64) -> Tensor {
    apply(&[x], |v| Quantize { x: v[0], scale: Real(scale) })
}

fn random_codes(shape: &[usize], seed: u64) -> Tensor {
    quantized(&random(DType::F32, shape, seed), 1.0 / 127.0)
}

#[test]
fn ties_go_to_even_and_codes_saturate() {
    let x = [0.25, 0.75, 1.25, -0.25, 1e9, -1e9, f64::NAN, f64::INFINITY];
    let codes = quantized(&numbers(DType::F32, &[2, 4], &x), 0.5);
    assert_eq!(codes, tensor(&[2, 4], vec![0i8, 2, 2, 0, 127, -128, 0, 127]));
}

proptest! {
    /// Codes times the scale are what `fake_quantize` gives, in every type.
    #[test]
    fn codes_are_those_of_fake_quantize(
        values in prop::collection::vec(-20f64..20.0, 12),
        scale in 1e-3f32..0.2,
        dtype in prop::sample::select(vec![DType::F16, DType::Bf16, DType::F32, DType::F64]),
    ) {
        let x = numbers(dtype, &[3, 4], &values);
        let codes = quantized(&x, scale.into()).to_f64();
        let numbers_of: Vec<f64> = codes.iter().map(|code| f64::from(*code as f32 * scale)).collect();
        let rounded = apply(&[&x], |v| FakeQuantize::new(v[0], DType::I8, scale.into(), 0));
        prop_assert_eq!(numbers(dtype, &[3, 4], &numbers_of), rounded);
    }
}

#[test]
fn a_layer_by_hand() {
    let x = tensor(&[1, 2], vec![100i8, -128]);
    let weight = tensor(&[3, 2], vec![127i8, 0, 0, 127, 1, 1]);
    let scales = tensor(&[3], vec![1f32, 0.5, 0.25]);
    let bias = tensor(&[3], vec![1f32, 2.0, 3.0]);
    let residual = tensor(&[1, 3], vec![10f32, 20.0, 30.0]);
    let result = apply(&[&x, &weight, &scales, &bias, &residual], |v| QuantizedLinear {
        x: v[0],
        weight: v[1],
        scales: v[2],
        bias: Some(v[3]),
        residual: Some(v[4]),
        to: DType::F32,
        activation: Activation::Relu,
    });
    // The sums are 12700, -16256 and -28.
    assert_eq!(result, tensor(&[1, 3], vec![12711f32, 20.0, 30.0]));
}

/// The same layer of the numbers that the codes stand for.
#[test]
fn a_layer_of_codes_is_one_of_numbers() {
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F16, 2e-3), (DType::Bf16, 2e-2)] {
        let (x, weight) = (random_codes(&[2, 3, 70], 1), random_codes(&[5, 70], 2));
        let scales: Vec<f64> = random(DType::F32, &[5], 3).to_f64().iter().map(|x| x.abs() / 4096.0).collect();
        let scales = numbers(DType::F32, &[5], &scales);
        let (bias, residual) = (random(dtype, &[5], 4), random(dtype, &[2, 3, 5], 5));
        for activation in [Activation::None, Activation::GeluErf, Activation::Silu] {
            let result = apply(&[&x, &weight, &scales, &bias, &residual], |v| QuantizedLinear {
                x: v[0],
                weight: v[1],
                scales: v[2],
                bias: Some(v[3]),
                residual: Some(v[4]),
                to: dtype,
                activation,
            });
            let wide = |x: &Tensor| numbers(DType::F64, x.shape(), &x.to_f64());
            let column = numbers(DType::F64, &[5, 1], &scales.to_f64());
            let matrix = apply(&[&wide(&weight), &column], |v| Binary { kind: BinaryKind::Mul, a: v[0], b: v[1] });
            let expected = apply(&[&wide(&x), &matrix, &wide(&bias), &wide(&residual)], |v| FusedLinear {
                x: v[0],
                weight: v[1],
                bias: Some(v[2]),
                residual: Some(v[3]),
                transposed: Flag(false),
                activation,
            });
            assert_eq!(result.dtype(), dtype);
            assert_close(&result, &expected.to_f64(), tolerance);
        }
    }
}

/// Sums that no type of 32 bits has a number for as a float.
#[test]
fn sums_are_exact() {
    let size = QuantizedLinear::MAX_IN;
    let mut codes = vec![127i8; size];
    codes[0] = 1;
    let layer = |x: Vec<i8>| {
        let (x, weight) = (tensor(&[1, size], x), tensor(&[1, size], codes.clone()));
        let scales = tensor(&[1], vec![1f32]);
        let result = apply(&[&x, &weight, &scales], |v| QuantizedLinear {
            x: v[0],
            weight: v[1],
            scales: v[2],
            bias: None,
            residual: None,
            to: DType::F64,
            activation: Activation::None,
        });
        result.to_f64()[0]
    };
    let expected = codes.iter().map(|code| f64::from(*code) * 127.0).sum::<f64>();
    assert_eq!(layer(vec![127; size]), expected);
    assert_eq!(layer(vec![-127; size]), -expected);
    assert!(expected < f64::from(i32::MAX));
}

#[test]
fn nothing_to_multiply() {
    let (scales, bias) = (tensor(&[2], vec![1f32; 2]), tensor(&[2], vec![3f32, 4.0]));
    for rows in [0, 2] {
        let (x, weight) = (tensor(&[rows, 0], Vec::<i8>::new()), tensor(&[2, 0], Vec::<i8>::new()));
        let result = apply(&[&x, &weight, &scales, &bias], |v| QuantizedLinear {
            x: v[0],
            weight: v[1],
            scales: v[2],
            bias: Some(v[3]),
            residual: None,
            to: DType::F32,
            activation: Activation::None,
        });
        assert_eq!(result, tensor(&[rows, 2], [3f32, 4.0].repeat(rows)));
    }
}
