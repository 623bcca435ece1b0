use half::{bf16, f16};
use planish_eval::{Data, Tensor};
use planish_ir::DType;
use planish_ir::ops::Cast;
use proptest::prelude::*;

use crate::{apply, tensor};

fn cast(x: impl Into<Data>, to: DType) -> Tensor {
    let x = x.into();
    apply(&[&tensor(&[x.len()], x)], |v| Cast { x: v[0], to })
}

fn one(x: impl Into<Data>) -> Tensor {
    tensor(&[1], x)
}

#[test]
fn floats_to_floats_round_to_nearest_even() {
    assert_eq!(cast(vec![1.0 + 2f64.powi(-24)], DType::F32), one(vec![1f32]));
    assert_eq!(cast(vec![1f32 + 2f32.powi(-11)], DType::F16), one(vec![f16::ONE]));
    assert_eq!(cast(vec![1f32 + 3.0 * 2f32.powi(-11)], DType::F16), one(vec![f16::from_f32(1.0 + 2f32.powi(-9))]));
    assert_eq!(cast(vec![1e6f32], DType::F16), one(vec![f16::INFINITY]));
    assert_eq!(cast(vec![f16::from_f32(0.1)], DType::Bf16), one(vec![bf16::from_f32(0.1)]));
}

#[test]
fn floats_to_integers_truncate_and_saturate() {
    assert_eq!(cast(vec![2.9f32, -2.9, f32::NAN, 1e10], DType::I32), tensor(&[4], vec![2, -2, 0, i32::MAX]));
    assert_eq!(cast(vec![-1.0f32, 300.0], DType::U8), tensor(&[2], vec![0u8, 255]));
    assert_eq!(cast(vec![f16::from_f32(-3.5)], DType::I64), one(vec![-3i64]));
}

#[test]
fn to_and_from_booleans() {
    assert_eq!(cast(vec![0.0f32, -0.5, f32::NAN], DType::Bool), tensor(&[3], vec![false, true, true]));
    assert_eq!(cast(vec![0i64, 256], DType::Bool), tensor(&[2], vec![false, true]));
    assert_eq!(cast(vec![true, false], DType::I32), tensor(&[2], vec![1, 0]));
    assert_eq!(cast(vec![true, false], DType::F16), tensor(&[2], vec![f16::ONE, f16::ZERO]));
}

#[test]
fn integers_keep_their_low_bits() {
    assert_eq!(cast(vec![200i16], DType::I8), one(vec![-56i8]));
    assert_eq!(cast(vec![-1i8], DType::U8), one(vec![255u8]));
    assert_eq!(cast(vec![i64::MAX - 1], DType::I32), one(vec![-2]));
}

#[test]
fn large_integers_round_once() {
    assert_eq!(cast(vec![(1i64 << 62) + (1 << 38) + 1], DType::F32), one(vec![2f32.powi(62) + 2f32.powi(39)]));
    let expected = 2f64.powi(62) + 2f64.powi(55);
    assert_eq!(cast(vec![(1i64 << 62) + (1 << 54) + 1], DType::Bf16), one(vec![bf16::from_f64(expected)]));
    assert_eq!(cast(vec![-(1i64 << 62) - (1 << 54) - 1], DType::Bf16), one(vec![bf16::from_f64(-expected)]));
    assert_eq!(cast(vec![i64::MIN], DType::F64), one(vec![-(2f64.powi(63))]));
}

proptest! {
    #[test]
    fn widening_and_back_is_the_identity(x in prop::collection::vec(any::<i16>(), 1..20)) {
        let tensor = tensor(&[x.len()], x.clone());
        for through in [DType::I32, DType::I64, DType::F32, DType::F64] {
            let wide = cast(x.clone(), through);
            prop_assert_eq!(&apply(&[&wide], |v| Cast { x: v[0], to: DType::I16 }), &tensor);
        }
    }
}
