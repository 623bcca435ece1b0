use planish_eval::Tensor;
use planish_ir::DType;
use planish_ir::ops::{Flag, Linear, MatMul, Transpose};
use proptest::prelude::*;

use crate::{apply, assert_close, random, tensor};

fn matmul(a: &Tensor, b: &Tensor) -> Tensor {
    apply(&[a, b], |v| MatMul { a: v[0], b: v[1] })
}

fn linear(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
    apply(&[x, weight, bias], |v| Linear::new(v[0], v[1], Some(v[2])))
}

/// The product of row-major [m, k] and [k, n] by the definition.
fn naive(a: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let element = |i: usize| (0..k).map(|l| a[i / n * k + l] * b[l * n + i % n]).sum();
    (0..m * n).map(element).collect()
}

#[test]
fn linear_by_hand() {
    let weight = tensor(&[3, 2], vec![1f32, 0.0, 0.0, 1.0, 2.0, -1.0]);
    let x = tensor(&[1, 2, 2], vec![3f32, 4.0, 5.0, 6.0]);
    let plain = apply(&[&x, &weight], |v| Linear::new(v[0], v[1], None));
    assert_eq!(plain, tensor(&[1, 2, 3], vec![3f32, 4.0, 2.0, 5.0, 6.0, 4.0]));
    let bias = tensor(&[3], vec![0.5f32, 0.0, -2.0]);
    assert_eq!(linear(&x, &weight, &bias), tensor(&[1, 2, 3], vec![3.5f32, 4.0, 0.0, 5.5, 6.0, 2.0]));
}

#[test]
fn a_vector_is_one_row() {
    let weight = tensor(&[2, 2], vec![1f64, 2.0, 3.0, 4.0]);
    let y = apply(&[&tensor(&[2], vec![1f64, 10.0]), &weight], |v| Linear::new(v[0], v[1], None));
    assert_eq!(y, tensor(&[2], vec![21f64, 43.0]));
}

#[test]
fn a_weight_stored_the_other_way_round_gives_the_same() {
    let (x, weight, bias) =
        (random(DType::F32, &[2, 5, 3], 1), random(DType::F32, &[4, 3], 2), random(DType::F32, &[4], 3));
    let turned = apply(&[&weight], |v| Transpose { x: v[0], perm: vec![1, 0] });
    let transposed =
        apply(&[&x, &turned, &bias], |v| Linear { transposed: Flag(true), ..Linear::new(v[0], v[1], Some(v[2])) });
    assert_eq!(transposed, linear(&x, &weight, &bias));
}

#[test]
fn empty_sizes() {
    let x = tensor(&[2, 0], Vec::<f32>::new());
    let weight = tensor(&[3, 0], Vec::<f32>::new());
    let bias = tensor(&[3], vec![1f32, 2.0, 3.0]);
    assert_eq!(linear(&x, &weight, &bias), tensor(&[2, 3], vec![1f32, 2.0, 3.0, 1.0, 2.0, 3.0]));
    let b = tensor(&[0, 4], Vec::<f32>::new());
    assert_eq!(matmul(&x, &b), tensor(&[2, 4], vec![0f32; 8]));
    assert_eq!(matmul(&tensor(&[0, 2], Vec::<f32>::new()), &x).shape(), [0, 0]);
}

#[test]
fn sums_are_exact_where_the_element_type_is_not() {
    // In f32 the middle term would vanish.
    let a = tensor(&[1, 3], vec![1e8f32, 1.0, -1e8]);
    assert_eq!(matmul(&a, &tensor(&[3, 1], vec![1f32; 3])), tensor(&[1, 1], vec![1f32]));
}

#[test]
fn many_blocks_agree_with_the_definition() {
    let [m, n, k] = [300, 130, 70];
    for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
        let (x, weight) = (random(dtype, &[m, k], 1), random(dtype, &[n, k], 2));
        let bias = random(dtype, &[n], 3);
        let transposed = apply(&[&weight], |v| Transpose { x: v[0], perm: vec![1, 0] });
        let mut expected = naive(&x.to_f64(), &transposed.to_f64(), [m, n, k]);
        let product = matmul(&x, &transposed);
        let tolerance = if dtype == DType::F64 { 1e-14 } else { 0.0 };
        let rounded = |v: &[f64]| Tensor::from_f64(dtype, vec![m, n], v).unwrap().to_f64();
        assert_close(&product, &rounded(&expected), tolerance);
        expected.iter_mut().enumerate().for_each(|(i, v)| *v += bias.to_f64()[i % n]);
        assert_close(&linear(&x, &weight, &bias), &rounded(&expected), tolerance);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn matmul_is_the_triple_loop(m in 1usize..20, n in 1usize..20, k in 1usize..20, seed in any::<u64>()) {
        let (a, b) = (random(DType::F64, &[m, k], seed), random(DType::F64, &[k, n], seed ^ 1));
        assert_close(&matmul(&a, &b), &naive(&a.to_f64(), &b.to_f64(), [m, n, k]), 1e-14);
    }

    #[test]
    fn batches_broadcast(batch in 1usize..4, heads in 1usize..4, seed in any::<u64>()) {
        let [m, n, k] = [2, 3, 4];
        let a = random(DType::F64, &[batch, 1, m, k], seed);
        let b = random(DType::F64, &[heads, k, n], seed ^ 1);
        let product = matmul(&a, &b);
        prop_assert_eq!(product.shape(), &[batch, heads, m, n]);
        let (x, y) = (a.to_f64(), b.to_f64());
        let expected: Vec<f64> = (0..batch * heads)
            .flat_map(|i| naive(&x[i / heads * m * k..][..m * k], &y[i % heads * k * n..][..k * n], [m, n, k]))
            .collect();
        assert_close(&product, &expected, 1e-14);
    }
}
