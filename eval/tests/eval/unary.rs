use half::{bf16, f16};
use planish_eval::Tensor;
use planish_ir::DType;
use planish_ir::ops::{Gelu, GeluForm, Unary, UnaryKind};

use crate::{apply, assert_close, fails, numbers, tensor};

fn unary(kind: UnaryKind, x: &Tensor) -> Tensor {
    apply(&[x], |v| Unary { kind, x: v[0] })
}

fn gelu(form: GeluForm, x: &Tensor) -> Tensor {
    apply(&[x], |v| Gelu { x: v[0], form })
}

/// A function of two numbers in every floating-point type.
fn check(kind: UnaryKind, x: f64, expected: f64) {
    for (dtype, tolerance) in [(DType::F64, 2e-16), (DType::F32, 6e-8), (DType::F16, 5e-4), (DType::Bf16, 4e-3)] {
        let result = unary(kind, &numbers(dtype, &[1, 1], &[x]));
        assert_eq!((result.dtype(), result.shape()), (dtype, &[1, 1][..]));
        assert_close(&result, &[expected], tolerance);
    }
}

#[test]
fn each_function_at_a_number() {
    check(UnaryKind::Neg, 1.5, -1.5);
    check(UnaryKind::Abs, -1.5, 1.5);
    check(UnaryKind::Exp, -1.5, 0.223_130_160_148_429_83);
    check(UnaryKind::Sqrt, 2.25, 1.5);
    check(UnaryKind::Cos, 0.5, 0.877_582_561_890_372_7);
    check(UnaryKind::Cos, -2.0, -0.416_146_836_547_142_4);
    check(UnaryKind::Sin, 0.5, 0.479_425_538_604_203);
    check(UnaryKind::Sin, -2.0, -0.909_297_426_825_681_7);
    check(UnaryKind::Erf, 0.5, 0.520_499_877_813_046_5);
    check(UnaryKind::Erf, -2.0, -0.995_322_265_018_952_7);
    check(UnaryKind::Tanh, 0.5, 0.462_117_157_260_009_76);
    check(UnaryKind::Sigmoid, 0.5, 0.622_459_331_201_854_6);
    check(UnaryKind::Sigmoid, -800.0, 0.0);
    check(UnaryKind::Relu, -2.0, 0.0);
    check(UnaryKind::Relu, 2.0, 2.0);
    check(UnaryKind::Silu, 0.5, 0.311_229_665_600_927_3);
}

/// The series erf(x) = 2/sqrt(pi) * sum((-1)^n x^(2n+1) / (n! (2n+1))) converges fast for small x.
#[test]
fn erf_agrees_with_its_series() {
    for i in -20..=20 {
        let x = f64::from(i) / 10.0;
        let (mut power, mut sum) = (x, x);
        for n in 1..60 {
            power *= -x * x / f64::from(n);
            sum += power / f64::from(2 * n + 1);
        }
        let expected = sum * 2.0 / std::f64::consts::PI.sqrt();
        assert_close(&unary(UnaryKind::Erf, &tensor(&[], vec![x])), &[expected], 2e-15);
    }
}

#[test]
fn half_precision_rounds_once() {
    let x = f16::from_f32(0.3);
    let expected = f16::from_f64(x.to_f64().exp());
    assert_eq!(unary(UnaryKind::Exp, &tensor(&[1], vec![x])), tensor(&[1], vec![expected]));
    let x = bf16::from_f32(0.3);
    let expected = bf16::from_f64(x.to_f64().tanh());
    assert_eq!(unary(UnaryKind::Tanh, &tensor(&[1], vec![x])), tensor(&[1], vec![expected]));
}

#[test]
fn special_numbers() {
    let x = tensor(&[3], vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    let relu = unary(UnaryKind::Relu, &x).to_f64();
    assert!(relu[0].is_nan());
    assert_eq!(relu[1..], [f64::INFINITY, 0.0]);
    assert!(unary(UnaryKind::Sqrt, &tensor(&[], vec![-1f32])).to_f64()[0].is_nan());
    assert_eq!(unary(UnaryKind::Exp, &tensor(&[], vec![100f32])).to_f64(), [f64::INFINITY]);
    assert_eq!(unary(UnaryKind::Sigmoid, &tensor(&[2], vec![f64::NEG_INFINITY, f64::INFINITY])).to_f64(), [0.0, 1.0]);
}

#[test]
fn integers_and_booleans() {
    assert_eq!(unary(UnaryKind::Neg, &tensor(&[2], vec![i64::MAX, -3])), tensor(&[2], vec![-i64::MAX, 3]));
    assert_eq!(unary(UnaryKind::Abs, &tensor(&[2], vec![-7i8, 7])), tensor(&[2], vec![7i8, 7]));
    assert_eq!(unary(UnaryKind::Abs, &tensor(&[1], vec![200u8])), tensor(&[1], vec![200u8]));
    assert_eq!(unary(UnaryKind::Not, &tensor(&[2], vec![true, false])), tensor(&[2], vec![false, true]));
}

#[test]
fn integers_out_of_range() {
    for (kind, x) in [(UnaryKind::Neg, tensor(&[1], vec![i64::MIN])), (UnaryKind::Abs, tensor(&[1], vec![i8::MIN]))] {
        let message = fails(&[&x], |v| Unary { kind, x: v[0] });
        assert!(message.contains(&format!("`{kind}`: a result is out of range for {}", x.dtype())), "{message}");
    }
    assert!(fails(&[&tensor(&[1], vec![1u8])], |v| Unary { kind: UnaryKind::Neg, x: v[0] }).contains("u8"));
}

#[test]
fn gelu_in_both_forms() {
    // Phi(1) = 0.841344746068542948..., Phi(-2) = 0.022750131948179207...
    let x = tensor(&[3], vec![1.0, -2.0, 0.0]);
    assert_close(&gelu(GeluForm::Erf, &x), &[0.841_344_746_068_543, -0.045_500_263_896_358_41, 0.0], 2e-16);
    let tanh = |x: f64| x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh());
    assert_close(&gelu(GeluForm::Tanh, &x), &[tanh(1.0), tanh(-2.0), 0.0], 4e-16);
    // Far out, the relative error stays small: Phi(-8) = 6.220960574271785e-16.
    let far = gelu(GeluForm::Erf, &tensor(&[], vec![-8.0])).to_f64()[0];
    assert!((far / (-8.0 * 6.220_960_574_271_785e-16) - 1.0).abs() < 1e-12, "{far}");
}
