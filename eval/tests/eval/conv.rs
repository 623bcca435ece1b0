use planish_eval::Tensor;
use planish_ir::ops::Conv;
use planish_ir::{DType, Shape};

use crate::{apply, assert_close, graph, numbers, random, tensor};

/// A convolution without groups.
fn conv(sizes: &[i64], [strides, dilations]: [&[usize]; 2], pads: &[usize]) -> impl Fn(&[planish_ir::ValueId]) -> Conv {
    let (strides, dilations, pads, sizes) = (strides.to_vec(), dilations.to_vec(), pads.to_vec(), Shape::of(sizes));
    move |v| Conv {
        x: v[0],
        weight: v[1],
        bias: v.get(2).copied(),
        strides: strides.clone(),
        dilations: dilations.clone(),
        pads: pads.clone(),
        groups: 1,
        sizes: sizes.clone(),
    }
}

#[test]
fn windows_are_summed_with_their_filters() {
    let x = tensor(&[1, 1, 4], vec![1f32, 2.0, 3.0, 4.0]);
    let w = tensor(&[2, 1, 2], vec![1f32, 1.0, 1.0, -1.0]);
    let bias = tensor(&[2], vec![0f32, 10.0]);
    let y = apply(&[&x, &w, &bias], conv(&[3], [&[1], &[1]], &[0, 0]));
    assert_eq!(y, tensor(&[1, 2, 3], vec![3f32, 5.0, 7.0, 9.0, 9.0, 9.0]));
    // A step of 2, zeros around, and a distance of 2 in a window.
    let y = apply(&[&x, &w], conv(&[2], [&[2], &[2]], &[1, 1]));
    assert_eq!(y, tensor(&[1, 2, 2], vec![2f32, 6.0, -2.0, -2.0]));
}

/// Padding alone makes places.
#[test]
fn an_input_without_spatial_elements_is_zeros() {
    let (x, w) = (tensor(&[1, 2, 0], Vec::<f32>::new()), tensor(&[1, 2, 2], vec![1f32; 4]));
    assert_eq!(apply(&[&x, &w], conv(&[1], [&[1], &[1]], &[1, 1])), tensor(&[1, 1, 1], vec![0f32]));
}

#[test]
fn images_have_two_spatial_axes_and_groups_have_their_own_channels() {
    let (x, w) = (random(DType::F32, &[2, 4, 5, 3], 1), random(DType::F32, &[6, 2, 3, 2], 2));
    let grouped = |v: &[planish_ir::ValueId]| Conv { groups: 2, ..conv(&[3, 3], [&[2, 1], &[1, 1]], &[1, 1, 1, 0])(v) };
    let y = apply(&[&x, &w], grouped);
    let (x, w) = (x.to_f64(), w.to_f64());
    let at = |n: usize, c: usize, i: usize, j: usize| match (i.checked_sub(1), j.checked_sub(1)) {
        (Some(i), Some(j)) if i < 5 && j < 3 => x[((n * 4 + c) * 5 + i) * 3 + j],
        _ => 0.0,
    };
    let element = |e: usize| {
        let (n, o, i, j) = (e / 54, e / 9 % 6, e / 3 % 3, e % 3);
        let terms = (0..12).map(|t| {
            let (c, a, b) = (t / 6, t / 2 % 3, t % 2);
            at(n, o / 3 * 2 + c, 2 * i + a, j + b) * w[((o * 2 + c) * 3 + a) * 2 + b]
        });
        terms.sum::<f64>()
    };
    assert_close(&y, &(0..108).map(element).collect::<Vec<_>>(), 1e-6);
}

#[test]
fn a_size_without_a_polynomial_is_determined_by_the_run() {
    let graph = graph(
        "input %x: f32[b, 1, n]
         weight @w = dense([1.0, 1.0]) : f32[1, 1, 2]
         %y = conv(%x, @w) {strides = [2], dilations = [1], pads = [0, 0], groups = 1, sizes = [frames]} : f32[b, 1, frames]
         %s = sizes() {of = [frames]} : i64[1]
         output y = %y
         output s = %s",
    );
    let run = |x: &[f64]| {
        let x: Tensor = numbers(DType::F32, &[1, 1, x.len()], x);
        planish_eval::evaluate(&graph, &[("x", x)]).unwrap().into_iter().map(|(_, t)| t).collect::<Vec<_>>()
    };
    assert_eq!(run(&[1.0, 2.0, 3.0]), [tensor(&[1, 1, 1], vec![3f32]), tensor(&[1], vec![1i64])]);
    assert_eq!(run(&[1.0, 2.0, 3.0, 4.0]), [tensor(&[1, 1, 2], vec![3f32, 7.0]), tensor(&[1], vec![2i64])]);
}
