use planish_ir::Dim;
use planish_ir::ops::{ArgMax, Flag, TopK};

use crate::{apply, tensor, try_apply};

#[test]
fn the_largest_elements_come_first_and_of_equal_ones_the_first() {
    let x = tensor(&[2, 4], vec![1f32, 3.0, 3.0, 2.0, -1.0, f32::NEG_INFINITY, 0.0, 5.0]);
    let top = |k: i64, smallest| {
        try_apply(&[&x], |v| TopK { x: v[0], axis: 1, k: Dim::constant(k), smallest: Flag(smallest) }).unwrap()
    };
    assert_eq!(top(2, false), [tensor(&[2, 2], vec![3f32, 3.0, 5.0, 0.0]), tensor(&[2, 2], vec![1i64, 2, 3, 2])]);
    assert_eq!(top(1, true), [tensor(&[2, 1], vec![1f32, f32::NEG_INFINITY]), tensor(&[2, 1], vec![0i64, 1])]);
    assert_eq!(top(0, false)[1], tensor(&[2, 0], Vec::<i64>::new()));
}

#[test]
fn zeros_are_equal_and_what_is_no_number_is_above_all() {
    let x = tensor(&[5], vec![-0.0f32, 0.0, 1.0, -f32::NAN, f32::INFINITY]);
    let top = try_apply(&[&x], |v| TopK { x: v[0], axis: 0, k: Dim::constant(5), smallest: Flag(false) }).unwrap();
    assert_eq!(top[1], tensor(&[5], vec![3i64, 4, 2, 0, 1]));
}

#[test]
fn integers_are_ordered_exactly_along_any_axis() {
    let x = tensor(&[3, 2], vec![i64::MAX - 1, 0, i64::MAX, 2, i64::MIN, 1]);
    let results = try_apply(&[&x], |v| TopK { x: v[0], axis: 0, k: Dim::constant(2), smallest: Flag(false) }).unwrap();
    assert_eq!(results, [tensor(&[2, 2], vec![i64::MAX, 2, i64::MAX - 1, 1]), tensor(&[2, 2], vec![1i64, 1, 0, 2])]);
}

#[test]
fn the_first_or_the_last_of_the_largest() {
    let x = tensor(&[2, 3], vec![1f32, 4.0, 4.0, 7.0, 7.0, 0.0]);
    let at = |axis, keep, last| apply(&[&x], |v| ArgMax { x: v[0], axis, keep, last: Flag(last) });
    assert_eq!(at(1, false, false), tensor(&[2], vec![1i64, 0]));
    assert_eq!(at(1, true, true), tensor(&[2, 1], vec![2i64, 1]));
    assert_eq!(at(0, false, false), tensor(&[3], vec![1i64, 1, 0]));
}
