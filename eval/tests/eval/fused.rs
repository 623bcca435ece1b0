//! Operators that are several in one, against the operators that they are.

use planish_eval::Tensor;
use planish_ir::ops::{
    Activation, AddNorm, Attention, Binary, BinaryKind, Cast, Embedding, EmbeddingNorm, Flag, FusedLinear, Gated, Gelu,
    GeluForm, LayerNorm, Linear, NormKind, Real, RmsNorm, Rotary, RotaryAppend, Unary, UnaryKind,
};
use planish_ir::{DType, ValueId};
use proptest::prelude::*;

use crate::{apply, fails, numbers, random, tensor, try_apply};

fn activated(activation: Activation, x: &Tensor) -> Tensor {
    let form = |form: GeluForm| apply(&[x], |v| Gelu { x: v[0], form });
    let kind = |kind: UnaryKind| apply(&[x], |v| Unary { kind, x: v[0] });
    match activation {
        Activation::None => x.clone(),
        Activation::GeluErf => form(GeluForm::Erf),
        Activation::GeluTanh => form(GeluForm::Tanh),
        Activation::Silu => kind(UnaryKind::Silu),
        Activation::Relu => kind(UnaryKind::Relu),
    }
}

fn binary(kind: BinaryKind, a: &Tensor, b: &Tensor) -> Tensor {
    apply(&[a, b], |v| Binary { kind, a: v[0], b: v[1] })
}

fn cast(x: &Tensor, to: DType) -> Tensor {
    apply(&[x], |v| Cast { x: v[0], to })
}

fn norm(kind: NormKind, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let operands: Vec<&Tensor> = [x, weight].into_iter().chain(bias).collect();
    match kind {
        NormKind::Layer => {
            apply(&operands, |v| LayerNorm { x: v[0], weight: v[1], bias: v.get(2).copied(), eps: Real(0.01) })
        }
        NormKind::Rms => apply(&operands, |v| RmsNorm { x: v[0], weight: v[1], eps: Real(0.01) }),
    }
}

/// What `f64` gives, rounded to a half type once, is the result of that type.
fn halves(wide: &Tensor, half: &Tensor) {
    assert_eq!(cast(wide, half.dtype()), *half);
}

#[test]
fn a_linear_layer_with_everything_by_hand() {
    let x = tensor(&[1, 2], vec![1f32, -2.0]);
    let weight = tensor(&[3, 2], vec![1f32, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let bias = tensor(&[3], vec![0f32, 1.0, 3.0]);
    let residual = tensor(&[1, 3], vec![10f32, 20.0, 30.0]);
    let result = apply(&[&x, &weight, &bias, &residual], |v| FusedLinear {
        x: v[0],
        weight: v[1],
        bias: Some(v[2]),
        residual: Some(v[3]),
        transposed: Flag(false),
        activation: Activation::Relu,
    });
    // The products are 1, -2 and -1; with the bias 1, -1 and 2.
    assert_eq!(result, tensor(&[1, 3], vec![11f32, 20.0, 32.0]));
}

#[test]
fn each_result_rounds_once() {
    // 1 + 2^-11 is not an f16: the sum is, with the residual.
    let ulp = 2f64.powi(-11);
    let [x, weight] = [numbers(DType::F16, &[1, 2], &[1.0, ulp]), numbers(DType::F16, &[1, 2], &[1.0, 1.0])];
    let residual = numbers(DType::F16, &[1, 1], &[ulp]);
    let result = apply(&[&x, &weight, &residual], |v| FusedLinear {
        residual: Some(v[2]),
        ..FusedLinear::new(&Linear::new(v[0], v[1], None))
    });
    assert_eq!(result.to_f64(), [1.0 + 2.0 * ulp]);
    let [one, bias] = [numbers(DType::F16, &[1, 1], &[1.0]), numbers(DType::F16, &[1], &[ulp])];
    let results = try_apply(&[&one, &residual, &bias], |v| AddNorm {
        x: v[0],
        residual: v[1],
        weight: v[2],
        bias: Some(v[2]),
        norm_bias: None,
        norm: NormKind::Rms,
        eps: Real(0.0),
    });
    assert_eq!(results.unwrap()[1].to_f64(), [1.0 + 2.0 * ulp]);
}

#[test]
fn nothing_to_sum_leaves_bias_and_residual() {
    let (x, weight) = (random(DType::F32, &[2, 0], 1), random(DType::F32, &[3, 0], 2));
    let (bias, residual) = (random(DType::F32, &[3], 3), random(DType::F32, &[2, 3], 4));
    let result = apply(&[&x, &weight, &bias, &residual], |v| FusedLinear {
        bias: Some(v[2]),
        residual: Some(v[3]),
        ..FusedLinear::new(&Linear::new(v[0], v[1], None))
    });
    assert_eq!(result, binary(BinaryKind::Add, &residual, &bias));
}

#[test]
fn ids_out_of_range_are_errors() {
    let (table, weight) = (random(DType::F32, &[3, 2], 1), random(DType::F32, &[2], 2));
    let message = fails(&[&table, &tensor(&[1], vec![3i64]), &weight], |v| EmbeddingNorm {
        tables: vec![v[0]],
        ids: vec![v[1]],
        weight: v[2],
        norm_bias: None,
        norm: NormKind::Rms,
        eps: Real(0.0),
    });
    assert!(message.contains("element 0 of `ids` is 3, out of range"), "{message}");
}

#[test]
fn empty_sizes() {
    let none = random(DType::F32, &[2, 0, 4], 1);
    let weight = random(DType::F32, &[4], 2);
    let results = try_apply(&[&none, &weight], |v| AddNorm {
        x: v[0],
        residual: v[0],
        weight: v[1],
        bias: None,
        norm_bias: None,
        norm: NormKind::Layer,
        eps: Real(0.1),
    });
    assert_eq!(results.unwrap(), [none.clone(), none]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn fused_linear_is_a_linear_layer_an_activation_and_a_sum(
        activation in prop::sample::select(Activation::ALL),
        transposed: bool,
        bias: bool,
        residual: bool,
        rows in prop::sample::select(vec![1usize, 2, 300]),
        out in prop::sample::select(vec![1usize, 5, 70]),
        seed: u64,
    ) {
        let weight_shape = if transposed { [3, out] } else { [out, 3] };
        let shapes: [&[usize]; 4] = [&[rows, 3], &weight_shape, &[out], &[rows, out]];
        let wide: Vec<Tensor> = (0..).zip(shapes).map(|(i, shape)| random(DType::F64, shape, seed ^ i)).collect();
        let fused = |t: &[Tensor]| apply(&t.iter().collect::<Vec<_>>(), |v| FusedLinear {
            bias: bias.then_some(v[2]),
            residual: residual.then_some(v[3]),
            transposed: Flag(transposed),
            activation,
            ..FusedLinear::new(&Linear::new(v[0], v[1], None))
        });
        let linear = apply(&wide.iter().collect::<Vec<_>>(), |v| {
            Linear { transposed: Flag(transposed), ..Linear::new(v[0], v[1], bias.then_some(v[2])) }
        });
        let active = activated(activation, &linear);
        let expected = if residual { binary(BinaryKind::Add, &active, &wide[3]) } else { active };
        prop_assert_eq!(fused(&wide), expected);
        let half: Vec<Tensor> = wide.iter().map(|t| cast(t, DType::Bf16)).collect();
        let rounded: Vec<Tensor> = half.iter().map(|t| cast(t, DType::F64)).collect();
        halves(&fused(&rounded), &fused(&half));
    }

    #[test]
    fn gated_is_an_activation_and_a_product(activation in prop::sample::select(Activation::ALL), seed: u64) {
        let wide = [0, 1].map(|i| random(DType::F64, &[3, 4], seed ^ i));
        let gated = |t: &[Tensor; 2]| apply(&[&t[0], &t[1]], |v| Gated { gate: v[0], up: v[1], activation });
        let expected = binary(BinaryKind::Mul, &activated(activation, &wide[0]), &wide[1]);
        prop_assert_eq!(gated(&wide), expected);
        let half = wide.each_ref().map(|t| cast(t, DType::F16));
        halves(&gated(&half.each_ref().map(|t| cast(t, DType::F64))), &gated(&half));
    }

    #[test]
    fn add_norm_is_sums_and_a_norm(rms: bool, bias: bool, norm_bias: bool, half: bool, seed: u64) {
        let dtype = if half { DType::F16 } else { DType::F64 };
        let kind = if rms { NormKind::Rms } else { NormKind::Layer };
        let shapes: [&[usize]; 5] = [&[2, 3, 4], &[2, 3, 4], &[4], &[4], &[4]];
        let t: Vec<Tensor> = (0..).zip(shapes).map(|(i, shape)| random(dtype, shape, seed ^ i)).collect();
        let norm_bias = norm_bias && !rms;
        let results = try_apply(&t.iter().collect::<Vec<_>>(), |v| AddNorm {
            x: v[0],
            residual: v[1],
            weight: v[2],
            bias: bias.then_some(v[3]),
            norm_bias: norm_bias.then_some(v[4]),
            norm: kind,
            eps: Real(0.01),
        }).unwrap();
        let wide: Vec<Tensor> = t.iter().map(|t| cast(t, DType::F64)).collect();
        let x = if bias { binary(BinaryKind::Add, &wide[0], &wide[3]) } else { wide[0].clone() };
        let sum = cast(&binary(BinaryKind::Add, &x, &wide[1]), dtype);
        prop_assert_eq!(&results[0], &norm(kind, &sum, &t[2], norm_bias.then_some(&t[4])));
        prop_assert_eq!(&results[1], &sum);
    }

    #[test]
    fn embedding_norm_is_embeddings_sums_and_a_norm(tables in 1u8..4, row: bool, half: bool, seed: u64) {
        let dtype = if half { DType::Bf16 } else { DType::F32 };
        let all: Vec<Tensor> = (0..tables).map(|i| random(dtype, &[5, 4], seed.wrapping_add(u64::from(i)))).collect();
        // Those of positions are of one row of the batch.
        let ids: Vec<Tensor> = (0..tables)
            .map(|i| match row && i > 0 {
                true => tensor(&[1, 3], vec![0i64, 1, 2]),
                false => tensor(&[2, 3], (0..6).map(|at| (at * 3 + i64::from(i)) % 5).collect::<Vec<i64>>()),
            })
            .collect();
        let tables = usize::from(tables);
        let (weight, bias) = (random(dtype, &[4], 8), random(dtype, &[4], 9));
        let operands: Vec<&Tensor> = all.iter().chain(&ids).chain([&weight, &bias]).collect();
        let results = try_apply(&operands, |v| EmbeddingNorm {
            tables: v[..tables].to_vec(),
            ids: v[tables..2 * tables].to_vec(),
            weight: v[2 * tables],
            norm_bias: Some(v[2 * tables + 1]),
            norm: NormKind::Layer,
            eps: Real(0.01),
        }).unwrap();
        let rows = all.iter().zip(&ids).map(|(t, i)| apply(&[t, i], |v| Embedding { weight: v[0], ids: v[1] }));
        let sum = rows.reduce(|a, b| binary(BinaryKind::Add, &a, &b)).unwrap();
        prop_assert_eq!(&results[0], &norm(NormKind::Layer, &sum, &weight, Some(&bias)));
        prop_assert_eq!(&results[1], &sum);
    }

    #[test]
    fn rotary_append_is_what_attention_does_after_rotary(past: bool, interleaved: bool, rows: bool, seed: u64) {
        let angles = [if rows { 2 } else { 1 }, 3, 1];
        let shapes: [&[usize]; 7] =
            [&[2, 3, 8], &[2, 3, 4], &[2, 3, 6], &angles, &angles, &[2, 2, 5, 2], &[2, 2, 5, 3]];
        let t: Vec<Tensor> = (0..).zip(shapes).map(|(i, shape)| random(DType::F64, shape, seed ^ i)).collect();
        let turned = |x: &Tensor, heads| {
            apply(&[x, &t[3], &t[4]], |v| {
                Rotary { x: v[0], cos: v[1], sin: v[2], heads, interleaved: Flag(interleaved) }
            })
        };
        let appended = try_apply(&t.iter().collect::<Vec<_>>(), |v| RotaryAppend {
            q: v[0],
            k: v[1],
            v: v[2],
            cos: v[3],
            sin: v[4],
            past_key: past.then_some(v[5]),
            past_value: past.then_some(v[6]),
            heads: 4,
            kv_heads: 2,
            interleaved: Flag(interleaved),
        }).unwrap();
        let base = |v: &[ValueId]| Attention {
            kv_heads: Some(2),
            causal: Flag(true),
            window: Some(4),
            ..Attention::new(v[0], v[1], v[2], 4, Real(0.5))
        };
        let (q, k) = (turned(&t[0], 4), turned(&t[1], 2));
        let expected = try_apply(&[&q, &k, &t[2], &t[5], &t[6]], |v| Attention {
            past_key: past.then_some(v[3]),
            past_value: past.then_some(v[4]),
            present: Flag(true),
            ..base(v)
        }).unwrap();
        prop_assert_eq!(&appended[0], &q);
        prop_assert_eq!(&appended[1..], &expected[1..]);
        // Queries are at the positions of the last keys.
        let whole = apply(&appended.iter().collect::<Vec<_>>(), base);
        prop_assert_eq!(&whole, &expected[0]);
    }
}
