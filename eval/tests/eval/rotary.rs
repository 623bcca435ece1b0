use planish_eval::Tensor;
use planish_ir::DType;
use planish_ir::ops::{Flag, Rotary};
use proptest::prelude::*;

use crate::{apply, assert_close, random, tensor};

fn rotary(x: &Tensor, cos: &Tensor, sin: &Tensor, heads: usize, interleaved: bool) -> Tensor {
    apply(&[x, cos, sin], |v| Rotary { x: v[0], cos: v[1], sin: v[2], heads, interleaved: Flag(interleaved) })
}

#[test]
fn pairs_turn_and_the_rest_stays() {
    // A quarter turn, then a half turn.
    let (cos, sin) = (tensor(&[1, 1, 2], vec![0.0, -1.0]), tensor(&[1, 1, 2], vec![1.0, 0.0]));
    let x = tensor(&[1, 1, 10], (1..=10).map(f64::from).collect::<Vec<_>>());
    let halves = rotary(&x, &cos, &sin, 2, false);
    assert_close(&halves, &[-3.0, -2.0, 1.0, -4.0, 5.0, -8.0, -7.0, 6.0, -9.0, 10.0], 0.0);
    let neighbours = rotary(&x, &cos, &sin, 2, true);
    assert_close(&neighbours, &[-2.0, 1.0, -3.0, -4.0, 5.0, -7.0, 6.0, -8.0, -9.0, 10.0], 0.0);
}

#[test]
fn each_row_has_its_angles_unless_all_share_them() {
    let x = tensor(&[2, 2, 2], vec![1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    let (cos, sin) = (tensor(&[2, 2, 1], vec![1.0, 2.0, 3.0, 4.0]), tensor(&[2, 2, 1], vec![5.0, 6.0, 7.0, 8.0]));
    assert_close(&rotary(&x, &cos, &sin, 1, false), &[1.0, 5.0, 2.0, 6.0, 3.0, 7.0, 4.0, 8.0], 0.0);
    let (cos, sin) = (tensor(&[1, 2, 1], vec![1.0, 2.0]), tensor(&[1, 2, 1], vec![5.0, 6.0]));
    assert_close(&rotary(&x, &cos, &sin, 1, false), &[1.0, 5.0, 2.0, 6.0, 1.0, 5.0, 2.0, 6.0], 0.0);
}

#[test]
fn empty_sizes() {
    let x = tensor(&[0, 3, 4], Vec::<f32>::new());
    let angles = tensor(&[1, 3, 2], vec![0f32; 6]);
    assert_eq!(rotary(&x, &angles, &angles, 1, false).shape(), [0, 3, 4]);
}

proptest! {
    /// What it is for: products of rotated queries and keys depend on distances only.
    #[test]
    fn products_depend_on_distances(position in 0u8..50, distance in 0u8..9, interleaved: bool, seed in any::<u64>()) {
        let [q, k] = [1, 2].map(|i| random(DType::F64, &[1, 1, 4], seed ^ i));
        let at = |x: &Tensor, position: u8| {
            let angles = [0.7, 0.01].map(|frequency| f64::from(position) * frequency);
            let (cos, sin) = (angles.map(f64::cos).to_vec(), angles.map(f64::sin).to_vec());
            rotary(x, &tensor(&[1, 1, 2], cos), &tensor(&[1, 1, 2], sin), 1, interleaved).to_f64()
        };
        let product = |p: u8| at(&q, p + distance).iter().zip(at(&k, p)).map(|(a, b)| a * b).sum::<f64>();
        prop_assert!((product(position) - product(0)).abs() < 1e-13);
    }
}
