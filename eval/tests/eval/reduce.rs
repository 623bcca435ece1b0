use planish_eval::Tensor;
use planish_ir::DType;
use planish_ir::ops::{CumSum, Reduce, ReduceKind};
use proptest::prelude::*;

use crate::{apply, assert_close, fails, random, tensor};

fn reduce(kind: ReduceKind, x: &Tensor, axes: &[usize], keep: bool) -> Tensor {
    apply(&[x], |v| Reduce { kind, x: v[0], axes: axes.to_vec(), keep })
}

fn cumsum(x: &Tensor, axis: usize) -> Tensor {
    apply(&[x], |v| CumSum { x: v[0], axis })
}

#[test]
fn over_each_choice_of_axes() {
    let x = tensor(&[2, 3], vec![1f32, 2.0, 6.0, -4.0, 0.0, 10.0]);
    assert_eq!(reduce(ReduceKind::Sum, &x, &[0], false), tensor(&[3], vec![-3f32, 2.0, 16.0]));
    assert_eq!(reduce(ReduceKind::Sum, &x, &[1], true), tensor(&[2, 1], vec![9f32, 6.0]));
    assert_eq!(reduce(ReduceKind::Mean, &x, &[1], false), tensor(&[2], vec![3f32, 2.0]));
    assert_eq!(reduce(ReduceKind::Max, &x, &[0, 1], false), tensor(&[], vec![10f32]));
}

#[test]
fn integers() {
    let x = tensor(&[2, 2], vec![7i32, -8, -10, 3]);
    assert_eq!(reduce(ReduceKind::Sum, &x, &[1], false), tensor(&[2], vec![-1, -7]));
    assert_eq!(reduce(ReduceKind::Mean, &x, &[1], false), tensor(&[2], vec![0, -3]));
    assert_eq!(reduce(ReduceKind::Max, &x, &[0], false), tensor(&[2], vec![7, 3]));
    let wide = tensor(&[3], vec![100i8, 100, -100]);
    assert_eq!(reduce(ReduceKind::Sum, &wide, &[0], false), tensor(&[], vec![100i8]));
    let over = fails(&[&tensor(&[2], vec![100i8, 100])], |v| Reduce {
        kind: ReduceKind::Sum,
        x: v[0],
        axes: vec![0],
        keep: false,
    });
    assert!(over.contains("`reduce_sum`: a sum is out of range for i8"), "{over}");
}

#[test]
fn of_no_elements() {
    let none = tensor(&[2, 0], Vec::<f32>::new());
    assert_eq!(reduce(ReduceKind::Sum, &none, &[1], false), tensor(&[2], vec![0f32, 0.0]));
    assert!(reduce(ReduceKind::Mean, &none, &[1], false).to_f64().iter().all(|v| v.is_nan()));
    assert_eq!(reduce(ReduceKind::Max, &none, &[0], false).shape(), [0]);
    assert_eq!(reduce(ReduceKind::Max, &none, &[1], false), tensor(&[2], vec![f32::NEG_INFINITY; 2]));
    assert_eq!(reduce(ReduceKind::Min, &none, &[1], false), tensor(&[2], vec![f32::INFINITY; 2]));
    let none = tensor(&[0], Vec::<i64>::new());
    let max = fails(&[&none], |v| Reduce { kind: ReduceKind::Max, x: v[0], axes: vec![0], keep: false });
    assert!(max.contains("`reduce_max`: is not defined for no elements, along axes [0] of i64[0]"), "{max}");
    let mean = fails(&[&none], |v| Reduce { kind: ReduceKind::Mean, x: v[0], axes: vec![0], keep: false });
    assert!(mean.contains("is not defined for no elements"), "{mean}");
}

#[test]
fn not_a_number_is_the_maximum() {
    for x in [[f32::NAN, 1.0, 2.0], [1.0, f32::NAN, 2.0], [1.0, 2.0, f32::NAN]] {
        assert!(reduce(ReduceKind::Max, &tensor(&[3], x.to_vec()), &[0], false).to_f64()[0].is_nan());
    }
    let lowest = tensor(&[2], vec![f32::NEG_INFINITY; 2]);
    assert_eq!(reduce(ReduceKind::Max, &lowest, &[0], false), tensor(&[], vec![f32::NEG_INFINITY]));
}

#[test]
fn sums_do_not_lose_small_terms() {
    let mut x = vec![1f32; 100_000];
    x[0] = 16_777_216.0;
    assert_eq!(reduce(ReduceKind::Sum, &tensor(&[100_000], x), &[0], false).to_f64(), [16_877_216.0]);
}

#[test]
fn running_sums_along_each_axis() {
    let x = tensor(&[2, 3], vec![1i64, 2, 3, 4, 5, 6]);
    assert_eq!(cumsum(&x, 1), tensor(&[2, 3], vec![1i64, 3, 6, 4, 9, 15]));
    assert_eq!(cumsum(&x, 0), tensor(&[2, 3], vec![1i64, 2, 3, 5, 7, 9]));
    let over = fails(&[&tensor(&[2], vec![i64::MAX, 1])], |v| CumSum { x: v[0], axis: 0 });
    assert!(over.contains("`cumsum`: a sum is out of range for i64"), "{over}");
}

proptest! {
    #[test]
    fn axes_one_after_the_other(dims in prop::collection::vec(1usize..5, 3), seed in any::<u64>()) {
        let x = random(DType::F64, &dims, seed);
        let together = reduce(ReduceKind::Sum, &x, &[0, 2], false);
        let one_by_one = reduce(ReduceKind::Sum, &reduce(ReduceKind::Sum, &x, &[2], false), &[0], false);
        assert_close(&together, &one_by_one.to_f64(), 1e-14);
    }

    #[test]
    fn the_last_running_sum_is_the_sum(n in 1usize..40, seed in any::<u64>()) {
        let x = random(DType::F32, &[n], seed);
        let last = cumsum(&x, 0).to_f64()[n - 1];
        prop_assert_eq!(last, reduce(ReduceKind::Sum, &x, &[0], false).to_f64()[0]);
    }
}
