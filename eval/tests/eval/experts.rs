use planish_eval::Tensor;
use planish_ir::DType;
use planish_ir::ops::{Activation, Experts, Real};

use crate::{apply, assert_close, fails, random, tensor};

const EXPERTS: usize = 3;
const IN: usize = 4;
const INNER: usize = 5;

fn operands(indices: Tensor) -> Vec<Tensor> {
    let f = |shape: &[usize], seed| random(DType::F32, shape, seed);
    vec![
        f(&[2, IN], 1),
        indices,
        f(&[2, 2], 2),
        f(&[EXPERTS, INNER, IN], 3),
        f(&[EXPERTS, IN, INNER], 4),
        f(&[EXPERTS, INNER, IN], 5),
        f(&[EXPERTS, INNER], 6),
        f(&[EXPERTS, INNER], 7),
        f(&[EXPERTS, IN], 8),
    ]
}

fn op(v: &[planish_ir::ValueId]) -> Experts {
    Experts {
        x: v[0],
        indices: v[1],
        scores: v[2],
        gate: v[3],
        down: v[4],
        up: Some(v[5]),
        gate_bias: Some(v[6]),
        up_bias: Some(v[7]),
        down_bias: Some(v[8]),
        activation: Activation::Silu,
        alpha: Some(Real(1.702)),
        limit: Some(Real(0.5)),
        shift: Some(Real(1.0)),
    }
}

#[test]
fn each_token_is_the_sum_of_its_experts() {
    let taken = [2usize, 0, 1, 1];
    let all = operands(tensor(&[2, 2], taken.map(|e| i64::try_from(e).unwrap()).to_vec()));
    let y = apply(&all.iter().collect::<Vec<_>>(), op);
    let [x, scores, gate, down, up, gate_bias, up_bias, down_bias] =
        [0, 2, 3, 4, 5, 6, 7, 8].map(|i: usize| all[i].to_f64());
    let mut expected = vec![0.0; 2 * IN];
    for (slot, e) in taken.into_iter().enumerate() {
        let x = &x[slot / 2 * IN..][..IN];
        let dot = |weight: &[f64], row: usize| -> f64 { (0..IN).map(|i| weight[row * IN + i] * x[i]).sum() };
        let inner: Vec<f64> = (0..INNER)
            .map(|row| {
                let row = e * INNER + row;
                let a = (dot(&gate, row) + gate_bias[row]).min(0.5);
                let b = (dot(&up, row) + up_bias[row]).clamp(-0.5, 0.5);
                a / (1.0 + (-1.702 * a).exp()) * (b + 1.0)
            })
            .collect();
        for o in 0..IN {
            let row = e * IN + o;
            let sum: f64 = (0..INNER).map(|i| down[row * INNER + i] * inner[i]).sum();
            expected[slot / 2 * IN + o] += scores[slot] * (sum + down_bias[row]);
        }
    }
    assert_close(&y, &expected, 1e-6);
}

#[test]
fn an_expert_that_is_not_there_is_an_error() {
    let all = operands(tensor(&[2, 2], vec![0i64, 1, 2, 3]));
    let message = fails(&all.iter().collect::<Vec<_>>(), op);
    assert!(message.contains("there is no expert 3 of 3"), "{message}");
}
