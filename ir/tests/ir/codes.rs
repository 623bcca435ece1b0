//! Weights that are codes with scales, against what they should be by a formula.

use planish_ir::weight::{CHUNK_BYTES, Channels, Dequantized, code_range, is_code};
use planish_ir::{DType, Weight};
use proptest::prelude::*;

use crate::weight::{pieces, stored};

fn floats(shape: &[usize], values: &[f64]) -> Weight {
    Weight::numbers(DType::F32, shape.to_vec(), values).unwrap()
}

fn codes(dtype: DType, shape: &[usize], values: &[f64]) -> Weight {
    Weight::numbers(dtype, shape.to_vec(), values).unwrap()
}

#[track_caller]
fn reads(weight: Option<Weight>, expected: &[f64]) {
    let found = weight.unwrap().read_numbers().unwrap();
    let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
    assert!(found.len() == expected.len() && found.iter().zip(expected).all(same), "{found:?} is not {expected:?}");
}

#[test]
fn each_type_of_codes_rounds_to_even_and_saturates() {
    let scale = Weight::scalar(DType::F32, 0.5);
    let x = floats(&[7], &[0.25, 0.75, -0.25, -0.75, 3.1, 1e30, -1e30]);
    let given = |to: DType| x.quantize(to, 0, &scale, None);
    reads(given(DType::I8), &[0.0, 2.0, 0.0, -2.0, 6.0, 127.0, -128.0]);
    reads(given(DType::U8), &[0.0, 2.0, 0.0, 0.0, 6.0, 255.0, 0.0]);
    reads(given(DType::I4), &[0.0, 2.0, 0.0, -2.0, 6.0, 7.0, -8.0]);
    reads(given(DType::U4), &[0.0, 2.0, 0.0, 0.0, 6.0, 15.0, 0.0]);
    reads(given(DType::I2), &[0.0, 1.0, 0.0, -2.0, 1.0, 1.0, -2.0]);
    reads(given(DType::I16), &[0.0, 2.0, 0.0, -2.0, 6.0, 32767.0, -32768.0]);
    reads(given(DType::U16), &[0.0, 2.0, 0.0, 0.0, 6.0, 65535.0, 0.0]);
    reads(given(DType::I32), &[0.0, 2.0, 0.0, -2.0, 6.0, f64::from(i32::MAX), f64::from(i32::MIN)]);
    reads(given(DType::F8E4M3FN), &[0.5, 1.5, -0.5, -1.5, 6.0, 448.0, -448.0]);
    reads(given(DType::F4E2M1), &[0.5, 1.5, -0.5, -1.5, 6.0, 6.0, -6.0]);
    // Ties of float8: 17 is between 16 and 18, and 19 between 18 and 20.
    reads(floats(&[2], &[8.5, 9.5]).quantize(DType::F8E4M3FN, 0, &scale, None), &[16.0, 20.0]);
}

#[test]
fn zero_points_are_added_and_taken_off() {
    let scale = Weight::scalar(DType::F32, 0.5);
    let zero = Weight::scalar(DType::U8, 128.0);
    let x = floats(&[4], &[0.0, -64.0, -64.5, 63.5]);
    let given = x.quantize(DType::U8, 0, &scale, Some(&zero)).unwrap();
    reads(Some(given.clone()), &[128.0, 0.0, 0.0, 255.0]);
    reads(given.dequantize(0, &scale, Some(&zero)), &[0.0, -64.0, -64.0, 63.5]);
    let each = codes(DType::I4, &[2], &[-8.0, 3.0]);
    let scales = floats(&[2], &[1.0, 2.0]);
    let rows = floats(&[2, 2], &[0.0, 20.0, 0.0, -30.0]);
    let given = rows.quantize(DType::I4, 0, &scales, Some(&each)).unwrap();
    reads(Some(given.clone()), &[-8.0, 7.0, 3.0, -8.0]);
    reads(given.dequantize(0, &scales, Some(&each)), &[0.0, 15.0, 0.0, -22.0]);
}

/// Codes beyond what float32 counts in ones.
#[test]
fn codes_of_32_bits_are_taken_exactly() {
    let given = codes(DType::I32, &[2], &[16_777_217.0, f64::from(i32::MIN)]);
    let scale = Weight::scalar(DType::F32, 1.0);
    let zero = Weight::scalar(DType::I32, 1.0);
    reads(given.dequantize(0, &scale, Some(&zero)), &[16_777_216.0, -2_147_483_648.0]);
    reads(given.dequantize(0, &Weight::scalar(DType::F64, 1.0), None), &[16_777_216.0, -2_147_483_648.0]);
}

/// The type of the numbers is that of the scales.
#[test]
fn numbers_have_the_type_of_the_scales() {
    let given = codes(DType::I8, &[2], &[100.0, -3.0]);
    for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
        let numbers = given.dequantize(0, &Weight::scalar(dtype, 0.1), None).unwrap();
        assert_eq!(numbers.dtype(), dtype);
        let scale = Weight::scalar(dtype, 0.1).number().unwrap() as f32;
        let exact = [f64::from(100.0 * scale), f64::from(-3.0 * scale)];
        reads(Some(numbers), &Weight::numbers(dtype, vec![2], &exact).unwrap().read_numbers().unwrap());
    }
}

#[test]
fn elements_times_factors() {
    let x = floats(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    reads(x.scale(0, &floats(&[2], &[2.0, 0.5])), &[2.0, 4.0, 6.0, 2.0, 2.5, 3.0]);
    reads(x.scale(1, &floats(&[3], &[1.0, 10.0, -1.0])), &[1.0, 20.0, -3.0, 4.0, 50.0, -6.0]);
    // Rounded once: in float16 the factor alone would be 0.1 already.
    let half = Weight::numbers(DType::F16, vec![1], &[3.0]).unwrap();
    let factor = Weight::numbers(DType::F64, vec![1], &[0.1]).unwrap();
    let expected = Weight::numbers(DType::F16, vec![1], &[3.0 * 0.1]).unwrap().read_numbers().unwrap();
    reads(half.scale(0, &factor), &expected);
}

#[test]
fn slices_in_another_order() {
    let x = floats(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    reads(x.gather(1, &[2, 0, 2, 2]), &[3.0, 1.0, 3.0, 3.0, 6.0, 4.0, 6.0, 6.0]);
    reads(x.gather(0, &[1]), &[4.0, 5.0, 6.0]);
    reads(x.gather(0, &[]), &[]);
    assert_eq!(x.gather(1, &[0, 1, 2]), Some(x.clone()), "nothing moves");
    reads(floats(&[0, 2], &[]).gather(1, &[1, 1, 0]), &[]);
}

#[test]
fn what_does_not_fit_is_no_weight() {
    let x = floats(&[2, 3], &[0.0; 6]);
    let (two, three) = (floats(&[2], &[1.0; 2]), floats(&[3], &[1.0; 3]));
    let zeros = |dtype, shape: &[usize]| codes(dtype, shape, &vec![0.0; shape.iter().product()]);
    let refused = [
        ("a scale for each index of another axis", x.quantize(DType::I8, 1, &two, None)),
        ("an axis that is not there", x.quantize(DType::I8, 2, &two, None)),
        ("no type of codes", x.quantize(DType::F16, 0, &two, None)),
        ("no type of codes", x.quantize(DType::I64, 0, &two, None)),
        ("integers", zeros(DType::I8, &[2, 3]).quantize(DType::I8, 0, &two, None)),
        ("scales of integers", x.quantize(DType::I8, 0, &zeros(DType::I8, &[2]), None)),
        ("a matrix of scales", x.quantize(DType::I8, 0, &x, None)),
        ("a vector of scales of blocks", x.quantize(DType::I8, Channels::Blocks { axis: 1, size: 2 }, &two, None)),
        ("blocks of nothing", x.quantize(DType::I8, Channels::Blocks { axis: 1, size: 0 }, &x, None)),
        ("zero points of another type", x.quantize(DType::I8, 0, &two, Some(&zeros(DType::U8, &[2])))),
        ("one zero point for two scales", x.quantize(DType::I8, 0, &two, Some(&zeros(DType::I8, &[])))),
        ("zero points of floats", x.quantize(DType::F8E4M3FN, 0, &two, Some(&zeros(DType::F8E4M3FN, &[2])))),
        ("numbers of floats", x.dequantize(0, &two, None)),
        ("a scale for each of another axis", zeros(DType::I8, &[2, 3]).dequantize(0, &three, None)),
        ("factors for another axis", x.scale(0, &three)),
        ("one factor", x.scale(0, &Weight::scalar(DType::F32, 1.0))),
        ("an axis that is not there", x.scale(2, &two)),
        ("elements that are no floats", zeros(DType::I8, &[2]).scale(0, &two)),
        ("an index out of range", x.gather(1, &[3])),
        ("an axis that is not there", x.gather(2, &[0])),
        ("text", Weight::text(vec![1], &["a"]).unwrap().gather(0, &[0])),
    ];
    for (what, weight) in refused {
        assert_eq!(weight, None, "{what}");
    }
    assert_eq!(code_range(DType::U2), Some((0, 3)));
    assert!(is_code(DType::F8E5M2) && !is_code(DType::F32) && !is_code(DType::I64) && !is_code(DType::F8E8M0));
}

/// Weights that are larger than a piece, with the bounds of channels at other places than those of pieces.
#[test]
fn channels_across_pieces() {
    let (rows, columns) = (3, CHUNK_BYTES / 8 + 5);
    let numbers: Vec<f64> = (0..rows * columns).map(|i| ((i * 37) % 255) as f64 - 127.0).collect();
    let bytes = floats(&[rows, columns], &numbers).read().unwrap();
    let x = stored(DType::F32, &[rows, columns], bytes, 0);
    let scales = [0.5, 2.0, 4.0];
    for (weight, scales, axis, channel) in [
        (x.clone(), floats(&[rows], &scales), 0, (|i: usize| i / (CHUNK_BYTES / 8 + 5)) as fn(usize) -> usize),
        (x.reshape(&[columns, rows]).unwrap(), floats(&[rows], &scales), 1, |i| i % 3),
        (x.clone(), Weight::scalar(DType::F32, 0.5), 0, |_| 0),
    ] {
        let coded = |to| weight.quantize(to, axis, &scales, None).unwrap();
        for to in [DType::I8, DType::I16, DType::I4, DType::F8E4M3FN] {
            let quantized = coded(to);
            let found = quantized.read_numbers().unwrap();
            let each = scales.read_numbers().unwrap();
            for (i, (x, found)) in numbers.iter().zip(&found).enumerate() {
                let t = x / each[channel(i)];
                let exact = match code_range(to) {
                    Some((least, largest)) => t.round_ties_even().clamp(least as f64, largest as f64),
                    None => Weight::scalar(to, t).number().unwrap(),
                };
                assert_eq!((i, *found), (i, exact), "{to}, axis {axis}");
            }
            assert!(to.is_packed() || pieces(&quantized).iter().all(|p| p.len() <= CHUNK_BYTES), "{to}");
            let back = quantized.dequantize(axis, &scales, None).unwrap();
            let expected: Vec<f64> = found.iter().enumerate().map(|(i, c)| c * each[channel(i)]).collect();
            assert!(back.read_numbers().unwrap() == expected, "{to}, axis {axis}");
            assert!(pieces(&back).iter().all(|p| p.len() <= CHUNK_BYTES), "{to}");
        }
        if !scales.shape().is_empty() {
            let each = scales.read_numbers().unwrap();
            let expected: Vec<f64> = numbers.iter().enumerate().map(|(i, x)| x * each[channel(i)]).collect();
            let scaled = weight.scale(axis, &scales).unwrap();
            assert!(
                scaled.read_numbers().unwrap() == expected && pieces(&scaled).iter().all(|p| p.len() <= CHUNK_BYTES)
            );
        }
    }
    let gathered = x.gather(0, &[2, 0, 2]).unwrap().read_numbers().unwrap();
    let row = |i: usize| &numbers[i * columns..(i + 1) * columns];
    assert!(gathered == [row(2), row(0), row(2)].concat());
}

/// A weight of codes, perhaps with zero points, and perhaps with one scale for all.
fn of_codes(shape: [usize; 2], axis: usize, kind: u8) -> Weight {
    let count = shape.iter().product::<usize>();
    let numbers: Vec<f64> = (0..count).map(|i| ((i * 31) % 200) as f64 - 100.0).collect();
    let channels: &[usize] = if kind & 1 == 0 { &[shape[axis]] } else { &[] };
    let n = channels.iter().product::<usize>();
    let scales: Vec<f64> = (0..n).map(|i| 0.25 * (i + 1) as f64).collect();
    let zeros: Vec<f64> = (0..n).map(|i| i as f64 - 1.0).collect();
    let zeros = (kind & 2 != 0).then(|| codes(DType::I8, channels, &zeros));
    let given = codes(DType::I8, &shape, &numbers);
    // The axis of one scale for all may be any.
    let axis = if kind & 5 == 5 { 7 } else { axis };
    given.dequantize(axis, &floats(channels, &scales), zeros.as_ref()).unwrap()
}

proptest! {
    /// Whatever moves or converts the elements: codes and scales that are found stand for the same numbers.
    #[test]
    fn codes_and_scales_of_a_transform_stand_for_its_numbers(
        shape in [1usize..4, 1usize..4], axis in 0usize..2, kind in 0u8..8,
        choices in prop::collection::vec((0u8..5, 0usize..8), 0..5),
    ) {
        let mut weight = of_codes(shape, axis, kind);
        for (transform, choice) in choices {
            let rank = weight.shape().len();
            let at = choice % rank;
            weight = match transform {
                0 => weight.transpose(&[1, 0]).unwrap(),
                // Powers of two, which float16 holds.
                1 => weight.cast([DType::F64, DType::F16, DType::F32][choice % 3]).unwrap(),
                2 => {
                    let wider: Vec<usize> = weight.shape().iter().enumerate().map(|(i, d)| d + (choice >> i & 1)).collect();
                    weight.pad(&wider, (choice / 4) as f64).unwrap()
                }
                3 => Weight::concat(&[weight.clone(), weight], at).unwrap(),
                _ => {
                    let last = weight.shape()[at] - 1;
                    weight.gather(at, &[last, 0, last]).unwrap()
                }
            };
        }
        if let Some(Dequantized { codes, scales, zero_points, channels }) = weight.as_dequantized() {
            prop_assert_eq!(codes.shape(), weight.shape());
            let same = codes.dequantize(channels, &scales, zero_points.as_ref()).unwrap();
            prop_assert_eq!(same.dtype(), weight.dtype());
            prop_assert_eq!(same.read_numbers().unwrap(), weight.read_numbers().unwrap());
        }
    }
}

/// Each transform that keeps codes codes.
#[test]
fn codes_are_found_after_transforms() {
    let found = |weight: Option<Weight>| weight.unwrap().as_dequantized();
    for (kind, axis) in [(0, 0), (0, 1), (1, 0), (5, 0), (2, 1)] {
        let weight = of_codes([3, 2], axis, kind);
        let (scaled, zeros) = (kind & 1 == 0, kind & 2 != 0);
        let turned = found(weight.transpose(&[1, 0])).unwrap();
        assert!(!scaled || turned.channels.axis() == 1 - axis);
        assert_eq!(found(weight.cast(DType::F16)).unwrap().scales.dtype(), DType::F16);
        assert_eq!(
            found(weight.pad(&[4, 4], 0.0)).is_some(),
            !zeros,
            "codes of 0 are the number 0 without zero points"
        );
        assert!(found(weight.pad(&[4, 4], 1.0)).is_none());
        assert!((0..2).all(|at| found(weight.gather(at, &[1, 1])).is_some()));
        assert!((0..2).all(|at| found(Weight::concat(&[weight.clone(), weight.clone()], at)).is_some()));
    }
    let plain = floats(&[3, 2], &[0.0; 6]);
    assert!(found(Some(plain.clone())).is_none());
    assert!(found(Weight::concat(&[of_codes([3, 2], 0, 0), plain], 0)).is_none(), "one part is no codes");
    let mixed = [of_codes([3, 2], 0, 0), of_codes([3, 2], 0, 2)];
    assert!(found(Weight::concat(&mixed, 0)).is_none(), "one part has zero points");
    let across = [of_codes([3, 2], 0, 0), of_codes([3, 2], 1, 0)];
    assert!(found(Weight::concat(&across, 0)).is_none(), "the parts have scales of other axes");
    assert!(found(of_codes([3, 2], 0, 0).cast(DType::I32)).is_none());
}
