use planish_ir::ops::{Embedding, Gather, Iota};
use planish_ir::{DType, Dim};
use proptest::prelude::*;

use crate::{apply, fails, random, tensor};

#[test]
fn gather_replaces_the_axis() {
    let x = tensor(&[2, 3], vec![1i32, 2, 3, 4, 5, 6]);
    let indices = tensor(&[2, 2], vec![2i64, 0, 1, 1]);
    let result = apply(&[&x, &indices], |v| Gather { x: v[0], indices: v[1], axis: 1 });
    assert_eq!(result, tensor(&[2, 2, 2], vec![3, 1, 2, 2, 6, 4, 5, 5]));
    let scalar = tensor(&[], vec![1i32]);
    let row = apply(&[&x, &scalar], |v| Gather { x: v[0], indices: v[1], axis: 0 });
    assert_eq!(row, tensor(&[3], vec![4, 5, 6]));
}

#[test]
fn negative_indices_count_from_the_end() {
    let x = tensor(&[3], vec![1, 2, 3]);
    let result = apply(&[&x, &tensor(&[3], vec![-1i64, -3, 1])], |v| Gather { x: v[0], indices: v[1], axis: 0 });
    assert_eq!(result, tensor(&[3], vec![3, 1, 2]));
}

#[test]
fn embedding_picks_rows() {
    let table = tensor(&[3, 2], vec![0f32, 1.0, 10.0, 11.0, 20.0, 21.0]);
    let ids = tensor(&[1, 2], vec![2i64, 0]);
    let result = apply(&[&table, &ids], |v| Embedding { weight: v[0], ids: v[1] });
    assert_eq!(result, tensor(&[1, 2, 2], vec![20f32, 21.0, 0.0, 1.0]));
}

#[test]
fn indices_out_of_range_are_named() {
    let x = random(DType::F32, &[2, 3], 0);
    for (index, axis) in [(3i64, 1), (-3, 0), (2, 0)] {
        let message = fails(&[&x, &tensor(&[2], vec![0, index])], |v| Gather { x: v[0], indices: v[1], axis });
        let expected = format!(
            "`gather`: element 1 of `indices` is {index}, out of range for axis {axis} of f32[2, 3], of size {}",
            [2, 3][axis]
        );
        assert!(message.contains(&expected), "{message}");
    }
    let message = fails(&[&x, &tensor(&[1], vec![7i32])], |v| Embedding { weight: v[0], ids: v[1] });
    assert!(message.contains("`embedding`: element 0 of `ids` is 7, out of range for axis 0"), "{message}");
    let empty = tensor(&[0, 2], Vec::<f32>::new());
    let message = fails(&[&empty, &tensor(&[1], vec![0i32])], |v| Gather { x: v[0], indices: v[1], axis: 0 });
    assert!(message.contains("of size 0"), "{message}");
}

#[test]
fn iota_counts() {
    let iota = |dtype, length| apply(&[], |_| Iota { dtype, length: Dim::constant(length) });
    assert_eq!(iota(DType::I64, 3), tensor(&[3], vec![0i64, 1, 2]));
    assert_eq!(iota(DType::I32, 2), tensor(&[2], vec![0, 1]));
    assert_eq!(iota(DType::I32, 0), tensor(&[0], Vec::<i32>::new()));
}

#[test]
fn a_result_that_no_memory_holds_is_an_error() {
    let message = fails(&[], |_| Iota { dtype: DType::I64, length: Dim::constant(i64::MAX / 4) });
    assert!(message.contains("`iota`: a result of i64[2305843009213693951] does not fit in memory"), "{message}");
}

proptest! {
    #[test]
    fn gathering_every_index_is_the_identity(dims in prop::collection::vec(1usize..4, 3), axis in 0usize..3, seed in any::<u64>()) {
        let x = random(DType::Bf16, &dims, seed);
        let all: Vec<i64> = (0..i64::try_from(dims[axis]).unwrap()).collect();
        prop_assert_eq!(apply(&[&x, &tensor(&[dims[axis]], all)], |v| Gather { x: v[0], indices: v[1], axis }), x);
    }
}
