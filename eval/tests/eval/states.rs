use planish_eval::Tensor;
use planish_ir::DType;
use planish_ir::ops::{CausalConv, Flag, LinearAttention, Real};

use crate::{assert_close, random, tensor, try_apply};

/// A step after a text gives what one run of both gives.
#[test]
fn a_convolution_continues_from_its_state() {
    let x = tensor(&[1, 3, 2], vec![1.0f32, 10.0, 2.0, 20.0, 3.0, 30.0]);
    let weight = tensor(&[2, 1, 3], vec![1.0f32, 2.0, 3.0, 0.0, 1.0, 0.5]);
    let (bias, state) = (tensor(&[2], vec![0.5f32, 0.0]), tensor(&[1, 2, 2], vec![-1.0f32, 7.0, -2.0, 8.0]));
    let op = |silu| {
        move |v: &[planish_ir::ValueId]| CausalConv {
            x: v[0],
            weight: v[1],
            bias: Some(v[2]),
            state: Some(v[3]),
            silu: Flag(silu),
        }
    };
    let results = try_apply(&[&x, &weight, &bias, &state], op(false)).unwrap();
    assert_close(&results[0], &[-1.5, 13.0, 6.5, 20.0, 14.5, 35.0], 0.0);
    assert_close(&results[1], &[2.0, 20.0, 3.0, 30.0], 0.0);
    let sigmoid = |x: f64| x / (1.0 + (-x).exp());
    let activated = try_apply(&[&x, &weight, &bias, &state], op(true)).unwrap();
    assert_close(&activated[0], &[-1.5, 13.0, 6.5, 20.0, 14.5, 35.0].map(sigmoid), 1e-6);
}

#[test]
fn a_convolution_without_a_state_begins_with_zeros() {
    let (x, weight) = (tensor(&[2, 1, 1], vec![2.0f32, 3.0]), tensor(&[1, 1, 3], vec![5.0f32, 7.0, 11.0]));
    let op =
        |v: &[planish_ir::ValueId]| CausalConv { x: v[0], weight: v[1], bias: None, state: None, silu: Flag(false) };
    let results = try_apply(&[&x, &weight], op).unwrap();
    assert_close(&results[0], &[22.0, 33.0], 0.0);
    assert_close(&results[1], &[0.0, 2.0, 0.0, 3.0], 0.0);
}

const ROWS: usize = 2;
const TOKENS: usize = 5;
const HEADS: usize = 4;
const GROUPS: usize = 2;
const KEY: usize = 3;
const VALUE: usize = 2;

/// What the formula of the operator says, token by token.
fn expected(all: &[Tensor; 6], by_element: bool, beta: bool) -> [Vec<f64>; 2] {
    let [q, k, v, decay, betas, state] = all.each_ref().map(Tensor::to_f64);
    let (mut y, mut last) = (vec![0.0; ROWS * TOKENS * HEADS * VALUE], Vec::new());
    for row in 0..ROWS {
        for head in 0..HEADS {
            let mut s = [[0.0; VALUE]; KEY];
            for i in 0..KEY {
                for j in 0..VALUE {
                    s[i][j] = state[((row * HEADS + head) * KEY + i) * VALUE + j];
                }
            }
            for token in (0..TOKENS).map(|token| row * TOKENS + token) {
                let group = head / (HEADS / GROUPS);
                let kept = |i: usize| match by_element {
                    true => decay[(token * HEADS + head) * KEY + i].exp(),
                    false => decay[token * HEADS + head].exp(),
                };
                let (q, k) = (&q[(token * GROUPS + group) * KEY..], &k[(token * GROUPS + group) * KEY..]);
                s.iter_mut().enumerate().for_each(|(i, row)| row.iter_mut().for_each(|s| *s *= kept(i)));
                let before = s;
                for j in 0..VALUE {
                    let v = v[(token * HEADS + head) * VALUE + j];
                    let held: f64 = (0..KEY).map(|i| before[i][j] * k[i]).sum();
                    let new = if beta { betas[token * HEADS + head] * (v - held) } else { v };
                    (0..KEY).for_each(|i| s[i][j] += k[i] * new);
                    y[(token * HEADS + head) * VALUE + j] = 0.5 * (0..KEY).map(|i| s[i][j] * q[i]).sum::<f64>();
                }
            }
            last.extend(s.into_iter().flatten());
        }
    }
    [y, last]
}

#[test]
fn a_state_is_decayed_and_then_takes_the_token() {
    for (by_element, beta) in [(false, false), (true, false), (false, true), (true, true)] {
        let f = |shape: &[usize], seed| random(DType::F32, shape, seed);
        let decays = if by_element { HEADS * KEY } else { HEADS };
        let all = [
            f(&[ROWS, TOKENS, GROUPS * KEY], 1),
            f(&[ROWS, TOKENS, GROUPS * KEY], 2),
            f(&[ROWS, TOKENS, HEADS * VALUE], 3),
            f(&[ROWS, TOKENS, decays], 4),
            f(&[ROWS, TOKENS, HEADS], 5),
            f(&[ROWS, HEADS, KEY, VALUE], 6),
        ];
        let results = try_apply(&all.iter().collect::<Vec<_>>(), |v| LinearAttention {
            q: v[0],
            k: v[1],
            v: v[2],
            decay: Some(v[3]),
            beta: beta.then_some(v[4]),
            state: Some(v[5]),
            heads: HEADS,
            key_heads: GROUPS,
            scale: Real(0.5),
        });
        let [y, last] = expected(&all, by_element, beta);
        let results = results.unwrap();
        assert_close(&results[0], &y, 1e-6);
        assert_close(&results[1], &last, 1e-6);
    }
}
