//! Weights of codes with a scale for each block, and scales that are fitted to a weight.

use planish_ir::weight::{BlockFit, CHUNK_BYTES, Channels, Dequantized, Fitted, Search, code_range};
use planish_ir::{DType, Weight};
use proptest::prelude::*;

use crate::weight::{pieces, stored};

const CODES: [DType; 6] = [DType::I2, DType::U2, DType::I4, DType::U4, DType::I8, DType::U8];
const SEARCHES: [Search; 3] = [Search::Range, Search::LeastSquares, Search::HalfQuadratic];

fn floats(shape: &[usize], values: &[f64]) -> Weight {
    Weight::numbers(DType::F32, shape.to_vec(), values).unwrap()
}

/// Numbers that depend on the index, with a few that are much larger.
fn matrix(rows: usize, columns: usize) -> Weight {
    let numbers: Vec<f64> = (0..rows * columns)
        .map(|i| ((i * 37 % 101) as f64 - 50.0) / 50.0 * if i % 29 == 0 { 4.0 } else { 1.0 })
        .collect();
    floats(&[rows, columns], &numbers)
}

fn numbers(of: &Dequantized) -> Vec<f64> {
    of.codes.dequantize(of.channels, &of.scales, of.zero_points.as_ref()).unwrap().read_numbers().unwrap()
}

fn error(weight: &Weight, of: &Dequantized) -> f64 {
    weight.read_numbers().unwrap().iter().zip(numbers(of)).map(|(a, b)| (a - b).powi(2)).sum()
}

/// The index of the scale of each element, by the definition.
fn scale_index(shape: [usize; 3], axis: usize, size: usize, [i, j, k]: [usize; 3]) -> usize {
    let mut blocks = shape;
    blocks[axis] = shape[axis].div_ceil(size);
    let mut at = [i, j, k];
    at[axis] /= size;
    (at[0] * blocks[1] + at[1]) * blocks[2] + at[2]
}

#[test]
fn elements_have_the_scale_of_their_block() {
    let shape = [3, 5, 4];
    let x: Vec<f64> = (0..60).map(|i| f64::from(i * 7 % 41) - 20.0).collect();
    for (axis, size) in [(0, 2), (1, 2), (1, 5), (2, 3), (2, 1), (2, 100)] {
        let channels = Channels::Blocks { axis, size };
        let of = channels.of(&shape).unwrap();
        let count: usize = of.iter().product();
        let scales: Vec<f64> = (0..count).map(|i| 0.25 * (1 << (i % 5)) as f64).collect();
        let zeros: Vec<f64> = (0..count).map(|i| (i % 4) as f64 + 6.0).collect();
        let zero_points = Weight::numbers(DType::U4, of.clone(), &zeros).unwrap();
        let quantized = floats(&shape, &x).quantize(DType::U4, channels, &floats(&of, &scales), Some(&zero_points));
        let quantized = quantized.unwrap();
        let back = quantized.dequantize(channels, &floats(&of, &scales), Some(&zero_points)).unwrap();
        let (found, back) = (quantized.read_numbers().unwrap(), back.read_numbers().unwrap());
        for at in 0..60 {
            let block = scale_index(shape, axis, size, [at / 20, at / 4 % 5, at % 4]);
            let code = ((x[at] / scales[block]).round_ties_even() + zeros[block]).clamp(0.0, 15.0);
            assert_eq!(found[at], code, "axis {axis}, blocks of {size}, element {at}");
            assert_eq!(back[at], (code - zeros[block]) * scales[block]);
        }
    }
}

/// Elements that share bytes are moved as elements that do not.
#[test]
fn packed_elements_move() {
    for dtype in [DType::I2, DType::U2, DType::I4, DType::U4] {
        let (least, largest) = code_range(dtype).unwrap();
        let values: Vec<f64> = (0..15).map(|i| (least + i * 5 % (largest - least + 1)) as f64).collect();
        let packed = Weight::numbers(dtype, vec![3, 5], &values).unwrap();
        let wide = Weight::numbers(DType::I32, vec![3, 5], &values).unwrap();
        let moves: [fn(&Weight) -> Weight; 6] = [
            |w| w.transpose(&[1, 0]).unwrap(),
            |w| w.pad(&[4, 7], 1.0).unwrap(),
            |w| w.gather(1, &[4, 0, 0, 2]).unwrap(),
            |w| w.gather(0, &[2, 1]).unwrap(),
            |w| Weight::concat(&[w.clone(), w.transpose(&[1, 0]).unwrap().reshape(&[3, 5]).unwrap()], 0).unwrap(),
            |w| Weight::concat(&[w.clone(), w.gather(1, &[1]).unwrap()], 1).unwrap().reshape(&[2, 9]).unwrap(),
        ];
        for (at, f) in moves.into_iter().enumerate() {
            let (moved, expected) = (f(&packed), f(&wide));
            assert_eq!(moved.shape(), expected.shape());
            assert_eq!(moved.read_numbers().unwrap(), expected.read_numbers().unwrap(), "{dtype}, move {at}");
            assert_eq!(moved.read().unwrap().len() as u64, moved.bytes());
        }
    }
    let whole: Vec<f64> = (0..10).map(|i| f64::from(i) - 5.0).collect();
    let five = Weight::numbers(DType::I4, vec![5], &whole[..5]).unwrap();
    let nibbles = five.as_bytes(&[3]).unwrap();
    assert_eq!((nibbles.dtype(), nibbles.read().unwrap()), (DType::U8, five.read().unwrap()));
    assert_eq!(five.as_bytes(&[5]), None);
    for (signed, unsigned, half) in
        [(DType::I2, DType::U2, 2.0), (DType::I4, DType::U4, 8.0), (DType::I8, DType::U8, 128.0)]
    {
        let values = [-1.0, 1.0, 0.0, -2.0, 1.0];
        let codes = Weight::numbers(signed, vec![5], &values).unwrap();
        let flipped = codes.flip_sign().unwrap();
        let moved: Vec<f64> = values.iter().map(|v| v + half).collect();
        assert_eq!((flipped.dtype(), flipped.read_numbers().unwrap()), (unsigned, moved));
        // What fills up the last byte stays 0.
        assert_eq!(
            flipped.read().unwrap(),
            Weight::numbers(unsigned, vec![5], &flipped.read_numbers().unwrap()).unwrap().read().unwrap()
        );
        assert_eq!(flipped.flip_sign(), Some(codes));
    }
    assert_eq!(floats(&[1], &[0.0]).flip_sign(), None);
}

/// Codes whose scales are fitted are those of the same scales as numbers, also where rows go over the ends of pieces.
#[test]
fn codes_of_a_fit_are_codes_of_its_scales() {
    let columns = 7 + CHUNK_BYTES / 12;
    let weight = matrix(9, columns);
    let weight = stored(DType::F32, &[9, columns], weight.read().unwrap(), 0);
    for codes in [DType::I4, DType::U4, DType::I8] {
        let fit = BlockFit { codes, size: 32, search: Search::LeastSquares, negative: true };
        let of = weight.fit(fit, None).unwrap();
        let held = |w: &Weight| Weight::inline(w.dtype(), w.shape().to_vec(), w.read().unwrap()).unwrap();
        let (scales, zeros) = (held(&of.scales), of.zero_points.as_ref().map(held));
        let same = weight.quantize(codes, of.channels, &scales, zeros.as_ref()).unwrap();
        assert!(of.codes.read().unwrap() == same.read().unwrap(), "{codes}");
        assert!(pieces(&of.codes).iter().chain(&pieces(&of.scales)).all(|p| p.len() <= CHUNK_BYTES), "{codes}");
    }
}

#[test]
fn the_range_spans_the_elements() {
    let of = |codes, negative, values: &[f64]| {
        let fit = BlockFit { codes, size: values.len(), search: Search::Range, negative };
        let of = floats(&[1, values.len()], values).fit(fit, None).unwrap();
        let zero = of.zero_points.map(|zeros| zeros.number().unwrap());
        (of.scales.number().unwrap(), zero, of.codes.read_numbers().unwrap())
    };
    assert_eq!(of(DType::I4, false, &[7.0, -3.5, 1.0]), (1.0, None, vec![7.0, -4.0, 1.0]));
    assert_eq!(of(DType::I4, false, &[-8.0, 3.0]), (1.0, None, vec![-8.0, 3.0]));
    assert_eq!(of(DType::I4, true, &[8.0, -3.0]), (-1.0, None, vec![-8.0, 3.0]));
    assert_eq!(of(DType::U4, false, &[-5.0, 10.0]), (1.0, Some(5.0), vec![0.0, 15.0]));
    // The range has 0, which has a code of its own.
    assert_eq!(of(DType::U4, false, &[15.0, 30.0]), (2.0, Some(0.0), vec![8.0, 15.0]));
    assert_eq!(of(DType::I4, true, &[0.0, 0.0]), (1.0, None, vec![0.0, 0.0]));
    assert_eq!(of(DType::U4, true, &[0.0, 0.0]), (1.0, Some(8.0), vec![8.0, 8.0]));
}

/// A block whose columns do not count keeps the codes of its range.
#[test]
fn columns_of_no_importance_keep_their_range() {
    let values = [0.3, -0.2, 0.1, 0.25, 30.0, -20.0, 10.0, 25.0];
    let weight = floats(&[1, 8], &values);
    for (codes, negative) in [(DType::I4, true), (DType::I4, false), (DType::U4, true)] {
        let fit = |search| BlockFit { codes, size: 4, search, negative };
        let range = weight.fit(fit(Search::Range), None).unwrap();
        let found = weight.fit(fit(Search::LeastSquares), Some(&floats(&[8], &[0.0; 8]))).unwrap();
        assert_eq!(found.scales.read_numbers().unwrap(), range.scales.read_numbers().unwrap(), "{codes}");
        assert_eq!(found.codes.read_numbers().unwrap(), range.codes.read_numbers().unwrap(), "{codes}");
    }
}

#[test]
fn groups_of_rows_have_an_importance_each() {
    let fit = BlockFit { codes: DType::I4, size: 16, search: Search::LeastSquares, negative: true };
    // Rows of more bytes than a piece, so that pieces end inside of groups.
    let (rows, columns) = (6, CHUNK_BYTES / 8);
    let whole = matrix(rows, columns);
    let importance: Vec<f64> = (0..3 * columns).map(|i| (i * 13 % 7 + i / columns) as f64).collect();
    let of_all = whole.fit(fit, Some(&floats(&[3, columns], &importance))).unwrap();
    for (group, own) in importance.chunks(columns).enumerate() {
        let range = 2 * group..2 * group + 2;
        let alone = whole.rows(range.clone()).unwrap().fit(fit, Some(&floats(&[columns], own))).unwrap();
        for (all, alone) in [(&of_all.scales, &alone.scales), (&of_all.codes, &alone.codes)] {
            assert_eq!(all.rows(range.clone()).unwrap().read().unwrap(), alone.read().unwrap(), "group {group}");
            let (bytes, length) = (all.read().unwrap(), alone.read().unwrap().len());
            assert_eq!(bytes[group * length..][..length], alone.read().unwrap(), "group {group} of the whole");
        }
    }
    // Rows inside of a group, of two whole groups, and of parts of two.
    for range in [3..4, 2..6, 1..3] {
        let (some, all) = (of_all.scales.rows(range.clone()).unwrap(), of_all.scales.read_numbers().unwrap());
        let blocks = columns / 16;
        assert_eq!(some.read_numbers().unwrap(), all[range.start * blocks..range.end * blocks], "{range:?}");
    }
    assert!(whole.fit(fit, Some(&floats(&[4, columns], &vec![1.0; 4 * columns]))).is_none());
}

#[test]
fn what_cannot_be_fitted_is_none() {
    let fit = BlockFit { codes: DType::I4, size: 4, search: Search::Range, negative: false };
    let weight = matrix(2, 8);
    let none = |weight: &Weight, fit, importance: Option<&Weight>| assert_eq!(weight.fit(fit, importance), None);
    none(&weight.reshape(&[16]).unwrap(), fit, None);
    none(&weight.cast(DType::I32).unwrap(), fit, None);
    none(&weight, BlockFit { size: 0, ..fit }, None);
    none(&weight, BlockFit { codes: DType::F8E4M3FN, ..fit }, None);
    none(&weight, fit, Some(&floats(&[2], &[1.0, 1.0])));
    assert_eq!(weight.fitted(fit, None, Fitted::ZeroPoints), None, "signed codes have none");
    assert_eq!(floats(&[3, 0], &[]).fit(fit, None).unwrap().codes.read().unwrap(), Vec::<u8>::new());
}

/// The error of each search on numbers with a normal distribution and a few outliers.
#[test]
fn searches_lower_the_error() {
    let uniform = |seed| Weight::uniform(DType::F64, vec![64 * 128], seed).unwrap().read_numbers().unwrap();
    let sums: Vec<Vec<f64>> = (0..6).map(uniform).collect();
    let normal: Vec<f64> =
        (0..64 * 128).map(|i| sums.iter().map(|s| s[i]).sum::<f64>() * if i % 97 == 0 { 2.0 } else { 1.0 }).collect();
    let weight = floats(&[64, 128], &normal);
    for codes in [DType::I4, DType::U4] {
        let of = SEARCHES.map(|search| weight.fit(BlockFit { codes, size: 32, search, negative: true }, None).unwrap());
        let squares = of.each_ref().map(|of| error(&weight, of));
        assert!(squares[1] < 0.95 * squares[0], "{codes}: {squares:?}");
        let roots =
            of.each_ref().map(|of| -> f64 { normal.iter().zip(numbers(of)).map(|(a, b)| (a - b).abs().sqrt()).sum() });
        assert!(roots[2] < 0.98 * roots[0], "{codes}: {roots:?}");
    }
    // Columns that count more have a smaller error.
    let important: Vec<f64> = (0..128).map(|i| if i % 8 == 0 { 50.0 } else { 1.0 }).collect();
    let fit = BlockFit { codes: DType::I4, size: 32, search: Search::LeastSquares, negative: true };
    let weighted = |of: Dequantized| -> f64 {
        let errors = normal.iter().zip(numbers(&of)).map(|(a, b)| (a - b).powi(2));
        errors.enumerate().map(|(i, e)| e * important[i % 128]).sum()
    };
    let with = weighted(weight.fit(fit, Some(&floats(&[128], &important))).unwrap());
    let without = weighted(weight.fit(fit, None).unwrap());
    assert!(with < 0.9 * without, "{with} {without}");
}

proptest! {
    /// Of every type of codes, block and row: what is packed is unpacked, no error is above a step of the codes for what is
    /// within the range, and the best search is no worse than the plain one.
    #[test]
    fn fits_round_trip(
        kind in 0usize..6, size in 1usize..40, rows in 1usize..4, columns in 1usize..70,
        seed in any::<u64>(), negative in any::<bool>(),
    ) {
        let weight = Weight::uniform(DType::F32, vec![rows, columns], seed).unwrap();
        let fit = |search| BlockFit { codes: CODES[kind], size, search, negative };
        let errors = SEARCHES.map(|search| {
            let of = weight.fit(fit(search), None).unwrap();
            assert_eq!(of.codes.read().unwrap().len() as u64, of.codes.bytes());
            error(&weight, &of)
        });
        prop_assert!(errors[1] <= errors[0] * 1.000_1 + 1e-9, "{errors:?}");
        let of = weight.fit(fit(Search::Range), None).unwrap();
        let (scales, blocks) = (of.scales.read_numbers().unwrap(), columns.div_ceil(size));
        for (i, (x, y)) in weight.read_numbers().unwrap().iter().zip(numbers(&of)).enumerate() {
            let step = scales[i / columns * blocks + i % columns / size].abs();
            prop_assert!((x - y).abs() <= step * 1.001, "{x} {y} {step}");
        }
    }

    /// Whatever moves the elements: codes and scales of blocks that are found stand for the same numbers.
    #[test]
    fn blocks_move_with_their_elements(
        kind in 0usize..6, size in 1usize..5, shape in [1usize..7, 1usize..7],
        choices in prop::collection::vec((0u8..4, 0usize..8), 0..5),
    ) {
        let fit = BlockFit { codes: CODES[kind], size, search: Search::Range, negative: false };
        let of = matrix(shape[0], shape[1]).fit(fit, None).unwrap();
        let mut weight = of.codes.dequantize(of.channels, &of.scales, of.zero_points.as_ref()).unwrap();
        for (transform, choice) in choices {
            let at = choice % 2;
            weight = match transform {
                0 => weight.transpose(&[1, 0]).unwrap(),
                1 => {
                    let wider: Vec<usize> = weight.shape().iter().enumerate().map(|(i, d)| d + (choice >> i & 1)).collect();
                    weight.pad(&wider, (choice / 7) as f64).unwrap()
                }
                2 => Weight::concat(&[weight.clone(), weight], at).unwrap(),
                _ => {
                    let last = weight.shape()[at] - 1;
                    weight.gather(at, &[last, 0, last]).unwrap()
                }
            };
        }
        if let Some(found) = weight.as_dequantized() {
            prop_assert_eq!(found.codes.shape(), weight.shape());
            prop_assert_eq!(numbers(&found), weight.read_numbers().unwrap());
        }
    }
}

/// Each move along the other axis, and moves of whole blocks, keep codes codes.
#[test]
fn blocks_are_found_after_moves() {
    let fit = |codes| BlockFit { codes, size: 2, search: Search::Range, negative: false };
    for codes in [DType::I4, DType::U4] {
        let of = matrix(3, 4).fit(fit(codes), None).unwrap();
        let weight = of.codes.dequantize(of.channels, &of.scales, of.zero_points.as_ref()).unwrap();
        let found = |weight: Option<Weight>| weight.unwrap().as_dequantized();
        let turned = found(weight.transpose(&[1, 0])).unwrap();
        assert_eq!((turned.channels, turned.scales.shape()), (Channels::Blocks { axis: 0, size: 2 }, &[2, 3][..]));
        assert!(found(weight.pad(&[5, 4], 0.0)).is_some() && found(weight.pad(&[3, 7], 0.0)).is_some());
        assert!(found(weight.gather(0, &[2, 2, 0])).is_some() && found(weight.gather(1, &[1, 0])).is_none());
        assert!((0..2).all(|axis| found(Weight::concat(&[weight.clone(), weight.clone()], axis)).is_some()));
        let ragged = weight.gather(0, &[0, 1, 2, 0]).unwrap();
        let narrow = matrix(4, 3).fit(fit(codes), None).unwrap();
        let narrow = narrow.codes.dequantize(narrow.channels, &narrow.scales, narrow.zero_points.as_ref()).unwrap();
        assert!(found(Weight::concat(&[ragged.clone(), narrow.clone()], 1)).is_some());
        assert!(found(Weight::concat(&[narrow.clone(), ragged], 1)).is_none(), "a block would begin within another");
        assert_eq!(found(narrow.pad(&[4, 4], 0.0)).is_some(), codes == DType::I4, "the block has a zero point");
    }
}
