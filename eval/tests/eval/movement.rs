use planish_eval::Tensor;
use planish_ir::ops::{Concat, Expand, Reshape, Slice, Split, Transpose};
use planish_ir::{DType, Dim, Shape};
use proptest::prelude::*;

use crate::{apply, random, tensor, try_apply};

fn transpose(x: &Tensor, perm: &[usize]) -> Tensor {
    apply(&[x], |v| Transpose { x: v[0], perm: perm.to_vec() })
}

fn concat(parts: &[&Tensor], axis: usize) -> Tensor {
    apply(parts, |v| Concat { parts: v.to_vec(), axis })
}

fn slice(x: &Tensor, axis: usize, start: i64, end: i64) -> Tensor {
    apply(&[x], |v| Slice { x: v[0], axis, start: Dim::constant(start), end: Dim::constant(end) })
}

/// 0, 1, 2 ... in every element type that holds them, booleans alternating.
fn each_dtype(shape: &[usize], check: impl Fn(&Tensor, &dyn Fn(&[usize], &[usize]) -> Tensor)) {
    let dtypes: Vec<DType> = DType::ALL.iter().copied().filter(|d| d.is_computed()).collect();
    assert_eq!(dtypes.len(), 13);
    for dtype in dtypes {
        let of = |shape: &[usize], values: &[usize]| {
            let values: Vec<f64> = values.iter().map(|&v| v as f64).collect();
            let values: Vec<f64> = if dtype == DType::Bool { values.iter().map(|v| v % 2.0).collect() } else { values };
            Tensor::from_f64(dtype, shape.to_vec(), &values).unwrap()
        };
        let all: Vec<usize> = (0..shape.iter().product()).collect();
        check(&of(shape, &all), &of);
    }
}

#[test]
fn reshape_keeps_the_order() {
    each_dtype(&[2, 3], |x, of| {
        assert_eq!(
            apply(&[x], |v| Reshape { x: v[0], shape: Shape::of(&[3, 1, 2]) }),
            of(&[3, 1, 2], &[0, 1, 2, 3, 4, 5])
        );
    });
}

#[test]
fn transpose_permutes() {
    each_dtype(&[2, 3], |x, of| assert_eq!(transpose(x, &[1, 0]), of(&[3, 2], &[0, 3, 1, 4, 2, 5])));
    each_dtype(&[2, 2, 2], |x, of| {
        assert_eq!(transpose(x, &[2, 0, 1]), of(&[2, 2, 2], &[0, 2, 4, 6, 1, 3, 5, 7]));
    });
}

#[test]
fn slice_takes_a_range() {
    each_dtype(&[2, 3], |x, of| {
        assert_eq!(slice(x, 1, 1, 3), of(&[2, 2], &[1, 2, 4, 5]));
        assert_eq!(slice(x, 0, 1, 2), of(&[1, 3], &[3, 4, 5]));
        assert_eq!(slice(x, 1, 2, 2), of(&[2, 0], &[]));
    });
}

#[test]
fn split_cuts_an_axis() {
    each_dtype(&[2, 3], |x, of| {
        let parts = try_apply(&[x], |v| Split { x: v[0], axis: 1, sizes: vec![1, 0, 2] }).unwrap();
        assert_eq!(parts, [of(&[2, 1], &[0, 3]), of(&[2, 0], &[]), of(&[2, 2], &[1, 2, 4, 5])]);
    });
}

#[test]
fn concat_puts_side_by_side() {
    each_dtype(&[1, 2], |x, of| {
        assert_eq!(concat(&[x, x], 0), of(&[2, 2], &[0, 1, 0, 1]));
        assert_eq!(concat(&[x, &of(&[1, 1], &[2]), x], 1), of(&[1, 5], &[0, 1, 2, 0, 1]));
    });
    let none = tensor(&[0, 2], Vec::<i8>::new());
    assert_eq!(concat(&[&none, &none], 1), tensor(&[0, 4], Vec::<i8>::new()));
}

#[test]
fn expand_repeats() {
    each_dtype(&[2, 1], |x, of| {
        let expanded = apply(&[x], |v| Expand { x: v[0], shape: Shape::of(&[2, 2, 3]) });
        assert_eq!(expanded, of(&[2, 2, 3], &[0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]));
    });
}

proptest! {
    #[test]
    fn a_permutation_and_its_inverse(
        perm in Just(vec![0usize, 1, 2, 3]).prop_shuffle(),
        dims in prop::collection::vec(0usize..4, 4),
        seed in any::<u64>(),
    ) {
        let x = random(DType::F32, &dims, seed);
        let mut inverse = vec![0; 4];
        perm.iter().enumerate().for_each(|(i, &p)| inverse[p] = i);
        prop_assert_eq!(transpose(&transpose(&x, &perm), &inverse), x);
    }

    #[test]
    fn parts_side_by_side_are_the_whole(
        dims in prop::collection::vec(1usize..5, 3),
        axis in 0usize..3,
        cut in 0usize..5,
        seed in any::<u64>(),
    ) {
        let x = random(DType::F16, &dims, seed);
        let cut = cut.min(dims[axis]);
        let parts = try_apply(&[&x], |v| Split { x: v[0], axis, sizes: vec![cut, dims[axis] - cut] }).unwrap();
        prop_assert_eq!(&concat(&[&parts[0], &parts[1]], axis), &x);
        let (at, size) = (i64::try_from(cut).unwrap(), i64::try_from(dims[axis]).unwrap());
        prop_assert_eq!(&slice(&x, axis, 0, at), &parts[0]);
        prop_assert_eq!(&slice(&x, axis, at, size), &parts[1]);
    }
}
