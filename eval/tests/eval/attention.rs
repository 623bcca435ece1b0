use planish_eval::Tensor;
use planish_ir::ops::{Attention, Expand, Flag, Real, Reshape, Transpose};
use planish_ir::{DType, Shape, ValueId};
use proptest::prelude::*;

use crate::{apply, assert_close, random, tensor, try_apply};

fn attention(qkv: [&Tensor; 3], mask: Option<&Tensor>, heads: usize, scale: f64) -> Tensor {
    let operands: Vec<&Tensor> = qkv.into_iter().chain(mask).collect();
    apply(&operands, |x| Attention { mask: x.get(3).copied(), ..Attention::new(x[0], x[1], x[2], heads, Real(scale)) })
}

/// One query at a time, by the definition: [queries, features] of one sequence.
fn naive(qkv: [&Tensor; 3], mask: &[bool], heads: usize, scale: f64) -> Vec<f64> {
    let [q, k, v] = qkv.map(Tensor::to_f64);
    let [queries, keys, features, value_features] =
        [qkv[0].shape()[1], qkv[1].shape()[1], qkv[0].shape()[2], qkv[2].shape()[2]];
    let mut out = vec![0.0; queries * value_features];
    for (query, head) in (0..queries).flat_map(|query| (0..heads).map(move |head| (query, head))) {
        let range = head * features / heads..(head + 1) * features / heads;
        let score = |key: usize| range.clone().map(|f| q[query * features + f] * k[key * features + f]).sum::<f64>();
        let weights: Vec<f64> = (0..keys).map(|key| if mask[key] { (scale * score(key)).exp() } else { 0.0 }).collect();
        let total: f64 = weights.iter().sum();
        for f in head * value_features / heads..(head + 1) * value_features / heads {
            out[query * value_features + f] =
                (0..keys).map(|key| weights[key] / total * v[key * value_features + f]).sum();
        }
    }
    out
}

#[test]
fn by_hand() {
    // Scores are 0 and ln 3: weights 1/4 and 3/4.
    let q = tensor(&[1, 1, 1], vec![1.0]);
    let k = tensor(&[1, 2, 1], vec![0.0, 2.0 * 3f64.ln()]);
    let v = tensor(&[1, 2, 2], vec![4.0, 0.0, 8.0, 100.0]);
    assert_close(&attention([&q, &k, &v], None, 1, 0.5), &[7.0, 75.0], 1e-15);
}

#[test]
fn a_row_without_keys_attends_to_all_alike() {
    let (q, k) = (random(DType::F32, &[2, 3, 4], 1), random(DType::F32, &[2, 2, 4], 2));
    let v = tensor(&[2, 2, 2], vec![1f32, 2.0, 3.0, 6.0, 1.0, 2.0, 3.0, 6.0]);
    let mask = tensor(&[2, 2], vec![false, false, false, true]);
    let out = attention([&q, &k, &v], Some(&mask), 2, 1.0).to_f64();
    assert_eq!(out, [2.0, 4.0, 2.0, 4.0, 2.0, 4.0, 3.0, 6.0, 3.0, 6.0, 3.0, 6.0]);
}

#[test]
fn empty_sizes() {
    let none = tensor(&[1, 0, 2], Vec::<f32>::new());
    let one = tensor(&[1, 1, 2], vec![1f32, 2.0]);
    assert_eq!(attention([&none, &one, &one], None, 1, 1.0).shape(), [1, 0, 2]);
    assert_eq!(attention([&one, &none, &none], None, 2, 1.0), tensor(&[1, 1, 2], vec![0f32, 0.0]));
    let batch = tensor(&[0, 1, 2], Vec::<f32>::new());
    assert_eq!(attention([&batch, &batch, &batch], None, 1, 1.0).shape(), [0, 1, 2]);
}

#[test]
fn many_queries_agree_with_the_definition() {
    let [q, k] = [random(DType::F64, &[1, 300, 8], 1), random(DType::F64, &[1, 40, 8], 2)];
    let v = random(DType::F64, &[1, 40, 4], 3);
    assert_close(&attention([&q, &k, &v], None, 2, 0.5), &naive([&q, &k, &v], &[true; 40], 2, 0.5), 1e-13);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn agrees_with_the_definition(
        queries in 1usize..6,
        mask in prop::collection::vec(any::<bool>(), 1..8),
        heads in 1usize..4,
        seed in any::<u64>(),
    ) {
        prop_assume!(mask.contains(&true));
        let keys = mask.len();
        let q = random(DType::F64, &[1, queries, heads * 3], seed);
        let k = random(DType::F64, &[1, keys, heads * 3], seed ^ 1);
        let v = random(DType::F64, &[1, keys, heads * 2], seed ^ 2);
        let result = attention([&q, &k, &v], Some(&tensor(&[1, keys], mask.clone())), heads, 0.7);
        prop_assert_eq!(result.shape(), &[1, queries, heads * 2]);
        assert_close(&result, &naive([&q, &k, &v], &mask, heads, 0.7), 1e-13);
    }

    #[test]
    fn a_key_left_out_never_matters(
        left_out in 0usize..5,
        junk in prop::sample::select(vec![0f32, -3.0, f32::MAX, f32::INFINITY, f32::NAN]),
        seed in any::<u64>(),
    ) {
        let mut mask = vec![true; 5];
        mask[left_out] = false;
        let mask = tensor(&[1, 5], mask);
        let [q, k, v] = [1, 2, 3].map(|i| random(DType::F32, &[1, 5, 6], seed ^ i));
        let spoil = |x: &Tensor| {
            let mut elements = x.as_f32().unwrap().to_vec();
            elements[left_out * 6..(left_out + 1) * 6].fill(junk);
            tensor(&[1, 5, 6], elements)
        };
        let clean = attention([&q, &k, &v], Some(&mask), 3, 0.5);
        prop_assert_eq!(attention([&q, &spoil(&k), &spoil(&v)], Some(&mask), 3, 0.5), clean);
    }

    #[test]
    fn a_sequence_alone_is_the_same_as_in_a_batch(batch in 1usize..4, seed in any::<u64>()) {
        let [q, k, v] = [1, 2, 3].map(|i| random(DType::F32, &[batch, 4, 6], seed ^ i));
        let together = attention([&q, &k, &v], None, 2, 0.5);
        for b in 0..batch {
            let row = |x: &Tensor| tensor(&[1, 4, 6], x.as_f32().unwrap()[b * 24..(b + 1) * 24].to_vec());
            let alone = attention([&row(&q), &row(&k), &row(&v)], None, 2, 0.5);
            prop_assert_eq!(row(&together), alone);
        }
    }
}

/// Attention with everything that `form` sets, of q, k and v, then whatever `form` names.
fn formed(operands: &[&Tensor], heads: usize, form: impl FnOnce(Attention, &[ValueId]) -> Attention) -> Vec<Tensor> {
    try_apply(operands, |x| form(Attention::new(x[0], x[1], x[2], heads, Real(0.5)), &x[3..])).unwrap()
}

/// Rows `range` of [1, rows, features].
fn rows(x: &Tensor, range: std::ops::Range<usize>) -> Tensor {
    let features = x.shape()[2];
    let elements = x.as_f64().unwrap()[range.start * features..range.end * features].to_vec();
    tensor(&[1, range.len(), features], elements)
}

/// [1, length, heads * size] as caches hold it, [1, heads, length, size].
fn as_cache(x: &Tensor, heads: usize) -> Tensor {
    let (length, size) = (x.shape()[1], x.shape()[2] / heads);
    let shape = Shape::of(&[1, length, heads, size].map(|n| i64::try_from(n).unwrap()));
    let split = apply(&[x], |v| Reshape { x: v[0], shape });
    apply(&[&split], |v| Transpose { x: v[0], perm: vec![0, 2, 1, 3] })
}

fn qkv(length: usize, seed: u64) -> [Tensor; 3] {
    [1, 2, 3].map(|i| random(DType::F64, &[1, length, 6], seed ^ i))
}

#[test]
fn heads_that_share_keys_are_as_with_keys_repeated() {
    let q = random(DType::F64, &[2, 3, 8], 1);
    let [k, v] = [2, 3].map(|seed| random(DType::F64, &[2, 5, 4], seed));
    let shared = formed(&[&q, &k, &v], 4, |a, _| Attention { kv_heads: Some(2), ..a });
    let repeated = [&k, &v].map(|x| {
        let twice = x.as_f64().unwrap().chunks(2).flat_map(|head| [head, head].concat()).collect::<Vec<f64>>();
        tensor(&[2, 5, 8], twice)
    });
    assert_eq!(shared, formed(&[&q, &repeated[0], &repeated[1]], 4, |a, _| a));
}

#[test]
fn a_causal_query_sees_what_came_before_it_and_itself() {
    let [q, k, v] = qkv(5, 7);
    let whole = formed(&[&q, &k, &v], 2, |a, _| Attention { causal: Flag(true), ..a }).remove(0);
    let narrow = |a, _: &[ValueId]| Attention { causal: Flag(true), window: Some(2), ..a };
    let window = formed(&[&q, &k, &v], 2, narrow).remove(0);
    for i in 0..5 {
        let query = rows(&q, i..i + 1);
        let of = |from: usize| attention([&query, &rows(&k, from..i + 1), &rows(&v, from..i + 1)], None, 2, 0.5);
        assert_close(&rows(&whole, i..i + 1), &of(0).to_f64(), 1e-15);
        assert_close(&rows(&window, i..i + 1), &of(i.saturating_sub(1)).to_f64(), 1e-15);
    }
}

#[test]
fn a_window_without_causality_is_on_both_sides() {
    let [q, k, v] = qkv(5, 7);
    let window = formed(&[&q, &k, &v], 2, |a, _| Attention { window: Some(2), ..a }).remove(0);
    for i in 0..5 {
        let seen = usize::saturating_sub(i, 1)..(i + 2).min(5);
        let query = rows(&q, i..i + 1);
        let near = attention([&query, &rows(&k, seen.clone()), &rows(&v, seen)], None, 2, 0.5);
        assert_close(&rows(&window, i..i + 1), &near.to_f64(), 1e-15);
    }
}

#[test]
fn softcap_and_bias_by_hand() {
    // Scaled scores are 0 and 4, capped 0 and 2 tanh 2; the bias makes both weigh the same.
    let (q, k) = (tensor(&[1, 1, 1], vec![1.0]), tensor(&[1, 2, 1], vec![0.0, 8.0]));
    let v = tensor(&[1, 2, 1], vec![1.0, 3.0]);
    let capped = formed(&[&q, &k, &v], 1, |a, _| Attention { softcap: Some(Real(2.0)), ..a });
    let weight = 1.0 / (1.0 + (-2.0 * 2f64.tanh()).exp());
    assert_close(&capped[0], &[1.0 + 2.0 * weight], 1e-15);
    let bias = tensor(&[1, 2], vec![2.0 * 2f64.tanh(), 0.0]);
    let even = |a, x: &[ValueId]| Attention { softcap: Some(Real(2.0)), bias: Some(x[0]), ..a };
    assert_close(&formed(&[&q, &k, &v, &bias], 1, even)[0], &[2.0], 1e-15);
}

#[test]
fn a_bias_is_broadcast() {
    let [q, k, v] = qkv(3, 5);
    let whole = random(DType::F64, &[1, 2, 3, 3], 9);
    let of = |bias: &Tensor| formed(&[&q, &k, &v, bias], 2, |a, x| Attention { bias: Some(x[0]), ..a });
    let small = random(DType::F64, &[2, 1, 3], 9);
    let target = Shape::of(&[1, 2, 3, 3]);
    let large = apply(&[&small], |x| Expand { x: x[0], shape: target });
    assert_eq!(of(&small), of(&large));
    assert_ne!(of(&small), of(&whole));
}

#[test]
fn keys_as_caches_hold_them_are_the_same_keys() {
    let [q, k, v] = qkv(4, 3);
    let [cached_k, cached_v] = [&k, &v].map(|x| as_cache(x, 2));
    let present = |a, _: &[ValueId]| Attention { present: Flag(true), ..a };
    let flat = formed(&[&q, &k, &v], 2, present);
    assert_eq!(flat, formed(&[&q, &cached_k, &cached_v], 2, present));
    assert_eq!(flat[1..], [cached_k, cached_v]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn continuing_from_a_cache_is_running_the_whole(
        length in 1usize..7,
        cut in 0usize..7,
        window in prop::option::of(1usize..4),
        seed in any::<u64>(),
    ) {
        let cut = cut.min(length);
        let form = |a| Attention { causal: Flag(true), window, present: Flag(true), ..a };
        let [q, k, v] = qkv(length, seed);
        let whole = formed(&[&q, &k, &v], 3, |a, _| form(a));
        let [past_key, past_value] = [&k, &v].map(|x| as_cache(&rows(x, 0..cut), 3));
        let new = [&q, &k, &v].map(|x| rows(x, cut..length));
        let continued = formed(&[&new[0], &new[1], &new[2], &past_key, &past_value], 3, |a, x| {
            Attention { past_key: Some(x[0]), past_value: Some(x[1]), ..form(a) }
        });
        assert_close(&continued[0], &rows(&whole[0], cut..length).to_f64(), 1e-14);
        prop_assert_eq!(&continued[1..], &whole[1..]);
    }

    #[test]
    fn padding_on_the_left_never_changes_a_result(
        length in 1usize..6,
        padding in 0usize..5,
        window in prop::option::of(1usize..4),
        seed in any::<u64>(),
    ) {
        let form = |a| Attention { causal: Flag(true), window, ..a };
        let padded = qkv(padding + length, seed);
        let all = padding..padding + length;
        let alone = padded.clone().map(|x| rows(&x, all.clone()));
        let alone = formed(&[&alone[0], &alone[1], &alone[2]], 2, |a, _| form(a));
        let mask = tensor(&[1, padding + length], (0..padding + length).map(|i| i >= padding).collect::<Vec<bool>>());
        let masked = formed(&[&padded[0], &padded[1], &padded[2], &mask], 2, |a, x| {
            Attention { mask: Some(x[0]), ..form(a) }
        });
        assert_close(&rows(&masked[0], all), &alone[0].to_f64(), 1e-14);
    }
}
