use half::f16;
use planish_eval::Tensor;
use planish_ir::DType;
use planish_ir::ops::{Binary, BinaryKind, Select};
use proptest::prelude::*;

use crate::{apply, fails, numbers, random, tensor};

fn binary(kind: BinaryKind, a: &Tensor, b: &Tensor) -> Tensor {
    apply(&[a, b], |v| Binary { kind, a: v[0], b: v[1] })
}

fn error(kind: BinaryKind, a: &Tensor, b: &Tensor) -> String {
    fails(&[a, b], |v| Binary { kind, a: v[0], b: v[1] })
}

#[test]
fn arithmetic_in_every_number_type() {
    let dtypes: Vec<DType> = DType::ALL.iter().copied().filter(|d| *d != DType::Bool && d.is_computed()).collect();
    assert_eq!(dtypes.len(), 12);
    for dtype in dtypes {
        let (a, b) = (numbers(dtype, &[2], &[7.0, 3.0]), numbers(dtype, &[2], &[2.0, 3.0]));
        let quotient = if dtype.is_float() { 3.5 } else { 3.0 };
        let expected: [(BinaryKind, [f64; 2]); 10] = [
            (BinaryKind::Add, [9.0, 6.0]),
            (BinaryKind::Sub, [5.0, 0.0]),
            (BinaryKind::Mul, [14.0, 9.0]),
            (BinaryKind::Div, [quotient, 1.0]),
            (BinaryKind::Pow, [49.0, 27.0]),
            (BinaryKind::Min, [2.0, 3.0]),
            (BinaryKind::Max, [7.0, 3.0]),
            (BinaryKind::Equal, [0.0, 1.0]),
            (BinaryKind::Less, [0.0, 0.0]),
            (BinaryKind::Greater, [1.0, 0.0]),
        ];
        for (kind, expected) in expected {
            let result = binary(kind, &a, &b);
            assert_eq!(result.to_f64(), expected, "{kind} of {dtype}");
            assert_eq!(result.dtype(), if kind.is_predicate() { DType::Bool } else { dtype });
        }
    }
}

#[test]
fn booleans() {
    let (a, b) = (tensor(&[4], vec![false, false, true, true]), tensor(&[4], vec![false, true, false, true]));
    assert_eq!(binary(BinaryKind::And, &a, &b), tensor(&[4], vec![false, false, false, true]));
    assert_eq!(binary(BinaryKind::Or, &a, &b), tensor(&[4], vec![false, true, true, true]));
    assert_eq!(binary(BinaryKind::Equal, &a, &b), tensor(&[4], vec![true, false, false, true]));
}

#[test]
fn integers_truncate_towards_zero_and_keep_64_bits() {
    let (a, b) = (tensor(&[2], vec![-7i32, 7]), tensor(&[2], vec![2, -2]));
    assert_eq!(binary(BinaryKind::Div, &a, &b), tensor(&[2], vec![-3, -3]));
    let large = tensor(&[1], vec![(1i64 << 53) + 1]);
    assert_eq!(binary(BinaryKind::Add, &large, &tensor(&[1], vec![1i64])), tensor(&[1], vec![(1i64 << 53) + 2]));
    assert_eq!(binary(BinaryKind::Less, &tensor(&[1], vec![1i64 << 53]), &large), tensor(&[1], vec![true]));
}

#[test]
fn integers_out_of_range_name_the_operator() {
    let max = tensor(&[1], vec![i64::MAX]);
    let one = tensor(&[1], vec![1i64]);
    let minus_one = tensor(&[1], vec![-1i64]);
    for (kind, a, b, why) in [
        (BinaryKind::Add, &max, &one, "`add`: a result is out of range, in i64"),
        (BinaryKind::Mul, &max, &max, "`mul`: a result is out of range, in i64"),
        (BinaryKind::Pow, &max, &max, "`pow`: a result is out of range, in i64"),
        (BinaryKind::Pow, &max, &minus_one, "`pow`: a power of an integer has a negative exponent, in i64"),
        (BinaryKind::Sub, &tensor(&[1], vec![0u8]), &tensor(&[1], vec![1u8]), "`sub`: a result is out of range, in u8"),
        (BinaryKind::Div, &tensor(&[1], vec![i8::MIN]), &tensor(&[1], vec![-1i8]), "out of range, in i8"),
        (BinaryKind::Div, &one, &tensor(&[1], vec![0i64]), "`div`: division by zero, in i64"),
    ] {
        let message = error(kind, a, b);
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn integer_powers_with_any_exponent() {
    let base = tensor(&[5], vec![0i64, 0, 1, -1, -1]);
    let exponent = tensor(&[5], vec![0i64, i64::MAX, i64::MAX, i64::MAX, i64::MAX - 1]);
    assert_eq!(binary(BinaryKind::Pow, &base, &exponent), tensor(&[5], vec![1i64, 0, 1, -1, 1]));
}

#[test]
fn not_a_number_and_infinities() {
    let (a, b) = (tensor(&[2], vec![f32::NAN, 1.0]), tensor(&[2], vec![1.0, f32::NAN]));
    for kind in [BinaryKind::Min, BinaryKind::Max] {
        assert!(binary(kind, &a, &b).to_f64().iter().all(|v| v.is_nan()), "{kind}");
    }
    assert_eq!(binary(BinaryKind::Equal, &a, &a), tensor(&[2], vec![false, true]));
    let zero = tensor(&[], vec![0f32]);
    assert_eq!(binary(BinaryKind::Div, &tensor(&[], vec![1f32]), &zero), tensor(&[], vec![f32::INFINITY]));
    let large = tensor(&[], vec![f16::MAX]);
    assert_eq!(binary(BinaryKind::Add, &large, &large), tensor(&[], vec![f16::INFINITY]));
}

#[test]
fn select_broadcasts_three_ways() {
    let condition = tensor(&[2, 1], vec![true, false]);
    let (a, b) = (tensor(&[3], vec![1i32, 2, 3]), tensor(&[], vec![0i32]));
    let result = apply(&[&condition, &a, &b], |v| Select { condition: v[0], a: v[1], b: v[2] });
    assert_eq!(result, tensor(&[2, 3], vec![1, 2, 3, 0, 0, 0]));
}

/// Two shapes that broadcast, and what they broadcast to.
fn shapes() -> impl Strategy<Value = (Vec<usize>, Vec<usize>, Vec<usize>)> {
    prop::collection::vec((0usize..4, 0u8..3), 0..4).prop_flat_map(|dims| {
        let rank = dims.len();
        (Just(dims), 0..=rank, any::<bool>()).prop_map(|(dims, cut, swap)| {
            let a: Vec<usize> = dims.iter().map(|(d, which)| if *which == 1 { 1 } else { *d }).collect();
            let b: Vec<usize> = dims[cut..].iter().map(|(d, which)| if *which == 2 { 1 } else { *d }).collect();
            let one = |i: usize| i.checked_sub(cut).map_or(1, |k| b[k]);
            let out = (0..dims.len()).map(|i| if a[i] == 1 { one(i) } else { a[i] }).collect();
            if swap { (b, a, out) } else { (a, b, out) }
        })
    })
}

/// The element of a tensor that is at `index` of the result it broadcasts to.
fn at(x: &Tensor, index: &[usize]) -> f64 {
    let own = &index[index.len() - x.shape().len()..];
    let flat = own.iter().zip(x.shape()).fold(0, |flat, (i, d)| flat * d + if *d == 1 { 0 } else { *i });
    x.to_f64()[flat]
}

proptest! {
    #[test]
    fn broadcast_is_index_arithmetic((a, b, out) in shapes(), seed in any::<u64>()) {
        let (a, b) = (random(DType::F64, &a, seed), random(DType::F64, &b, seed ^ 1));
        let result = binary(BinaryKind::Sub, &a, &b);
        prop_assert_eq!(result.shape(), &out[..]);
        for (flat, value) in result.to_f64().into_iter().enumerate() {
            let mut rest = flat;
            let mut index: Vec<usize> = out.iter().rev().map(|d| { let i = rest % d; rest /= d; i }).collect();
            index.reverse();
            prop_assert_eq!(value, at(&a, &index) - at(&b, &index));
        }
    }

    #[test]
    fn commutative_operators_commute((a, b, _) in shapes(), seed in any::<u64>()) {
        let (a, b) = (random(DType::F32, &a, seed), random(DType::F32, &b, seed ^ 1));
        for kind in [BinaryKind::Add, BinaryKind::Mul, BinaryKind::Min, BinaryKind::Max, BinaryKind::Equal] {
            prop_assert!(kind.is_commutative());
            prop_assert_eq!(binary(kind, &a, &b), binary(kind, &b, &a));
        }
    }

    #[test]
    fn integer_sums_are_exact_or_an_error(a in any::<i16>(), b in any::<i16>()) {
        let (x, y) = (tensor(&[], vec![a]), tensor(&[], vec![b]));
        match a.checked_add(b) {
            Some(sum) => prop_assert_eq!(binary(BinaryKind::Add, &x, &y), tensor(&[], vec![sum])),
            None => prop_assert!(error(BinaryKind::Add, &x, &y).contains("out of range")),
        }
    }
}
