//! `fake_quantize` against explicit codes, and against the operators of ONNX that it stands for.

use planish_eval::Tensor;
use planish_ir::ops::{Columns, FakeQuantize, Real};
use planish_ir::weight::code_range;
use planish_ir::{DType, Graph, Origin, Weight};
use proptest::prelude::*;

use crate::foreign::{open, try_run};
use crate::{apply, numbers, random, tensor};

fn run(x: &Tensor, op: &FakeQuantize) -> Tensor {
    apply(&[x], |v| FakeQuantize { x: v[0], ..op.clone() })
}

fn op(to: DType, scale: f64, zero_point: i64, split: &[usize]) -> FakeQuantize {
    let x = planish_ir::handle::Handle::from_index(0);
    FakeQuantize { split: Columns(split.to_vec()), ..FakeQuantize::new(x, to, scale, zero_point) }
}

fn dynamic(split: &[usize], limit: Option<f64>) -> FakeQuantize {
    let x = planish_ir::handle::Handle::from_index(0);
    FakeQuantize { split: Columns(split.to_vec()), limit: limit.map(Real), ..FakeQuantize::dynamic(x) }
}

/// What the columns of codes of an element stand for, added up: the first takes what it holds, the next the rest.
fn by_copies(x: f64, scale: f64, zero: i64, to: DType, copies: usize) -> f64 {
    let (least, largest) = code_range(to).unwrap();
    let mut left = (x as f32 / scale as f32).round_ties_even() as i64;
    let mut sum = 0;
    for _ in 0..copies {
        let code = (left + zero).clamp(least, largest);
        sum += code - zero;
        left -= code - zero;
    }
    sum as f64 * scale
}

proptest! {
    /// With a scale, each element is what its columns of codes stand for.
    #[test]
    fn codes_with_a_scale_are_those_of_explicit_copies(
        (to, zero) in prop_oneof![
            (Just(DType::U8), 0i64..=255), (Just(DType::I8), -128i64..=127), (Just(DType::U4), 0i64..=15),
            (Just(DType::I16), Just(0i64)),
        ],
        scale in 1e-3f32..0.05,
        values in prop::collection::vec(-20f32..20.0, 12),
        mut split in prop::collection::vec(0usize..4, 0..6),
    ) {
        split.sort_unstable();
        let wide: Vec<f64> = values.iter().copied().map(f64::from).collect();
        let found = run(&numbers(DType::F32, &[3, 4], &wide), &op(to, scale.into(), zero, &split)).to_f64();
        for (at, (found, x)) in found.iter().zip(&wide).enumerate() {
            let copies = 1 + split.iter().filter(|column| **column == at % 4).count();
            let expected = by_copies(*x, scale.into(), zero, to, copies);
            prop_assert!((found - expected).abs() <= 1e-6 * expected.abs(), "{x}: {found} is not {expected}");
        }
    }

    /// Without a scale, it is DynamicQuantizeLinear and DequantizeLinear of the columns with those that are cut off after
    /// them, added up.
    #[test]
    fn codes_without_a_scale_are_those_of_onnx(
        values in prop::collection::vec(-4f32..4.0, 12),
        mut split in prop::collection::vec(0usize..4, 0..4),
        limit in 0.5f32..2.0,
    ) {
        split.sort_unstable();
        let wide: Vec<f64> = values.iter().copied().map(f64::from).collect();
        let limit = (!split.is_empty()).then_some(limit);
        // Each row with its parts after it, and the column of each part.
        let columns: Vec<usize> = (0..4).flat_map(|c| vec![c; 1 + split.iter().filter(|s| **s == c).count()]).collect();
        let parts: Vec<f64> = values.chunks(4).flat_map(|row| columns.chunk_by(|a, b| a == b).flat_map(|same| {
            let mut left = row[same[0]];
            same.iter().enumerate().map(|(at, _)| {
                let last = at + 1 == same.len();
                let now = if last { left } else { left.clamp(-limit.unwrap(), limit.unwrap()) };
                left -= now;
                f64::from(now)
            }).collect::<Vec<_>>()
        })).collect();
        let parts = numbers(DType::F32, &[3, columns.len()], &parts);
        let types = [open(DType::U8, 2), open(DType::F32, 0), open(DType::U8, 0)];
        let codes = try_run("DynamicQuantizeLinear", &[], &[Some(&parts)], &types).unwrap();
        let operands: Vec<Option<&Tensor>> = codes.iter().map(Some).collect();
        let wanted = try_run("DequantizeLinear", &[], &operands, &[open(DType::F32, 2)]).unwrap()[0].to_f64();
        let found = run(&numbers(DType::F32, &[3, 4], &wide), &dynamic(&split, limit.map(f64::from))).to_f64();
        for (row, (found, wanted)) in found.chunks(4).zip(wanted.chunks(columns.len())).enumerate() {
            for (column, found) in found.iter().enumerate() {
                let sum: f64 = wanted.iter().zip(&columns).filter(|(_, c)| **c == column).map(|(v, _)| v).sum();
                prop_assert!((found - sum).abs() <= 1e-5, "row {row}, column {column}: {found} is not {sum}");
            }
        }
    }

    /// A scale so fine that no element of the grid is rounded leaves all as it is, where the columns hold it.
    #[test]
    fn splitting_alone_changes_nothing(units in prop::collection::vec(-380i32..=380, 8)) {
        let scale = 1.0 / 64.0;
        let wide: Vec<f64> = units.iter().map(|u| f64::from(*u) * scale).collect();
        // Three times 127 is 381.
        let found = run(&numbers(DType::F32, &[4, 2], &wide), &op(DType::I8, scale, 0, &[0, 0, 1, 1]));
        prop_assert_eq!(found.to_f64(), wide);
    }
}

#[test]
fn ties_go_to_even_and_codes_saturate() {
    let x = numbers(DType::F32, &[1, 8], &[0.25, 0.75, 1.25, -0.25, -0.75, 1e9, -1e9, 63.4]);
    assert_eq!(run(&x, &op(DType::I8, 0.5, 0, &[])).to_f64(), [0.0, 1.0, 1.0, 0.0, -1.0, 63.5, -64.0, 63.5]);
    assert_eq!(run(&x, &op(DType::U8, 0.5, 3, &[])).to_f64(), [0.0, 1.0, 1.0, 0.0, -1.0, 126.0, -1.5, 63.5]);
    assert_eq!(run(&x, &op(DType::I8, 0.5, 0, &[5, 6, 6])).to_f64()[5..7], [127.0, -192.0]);
}

/// Codes of float8 are the numbers that the type has.
#[test]
fn codes_of_float8() {
    let x = random(DType::F32, &[5, 7], 3);
    let scale = 0.0021f32;
    let found = run(&x, &op(DType::F8E4M3FN, scale.into(), 0, &[])).to_f64();
    let all: Vec<f64> = {
        let bytes: Vec<u8> = (0..=255).collect();
        let codes = Weight::inline(DType::F8E4M3FN, vec![256], bytes).unwrap().read_numbers().unwrap();
        codes.into_iter().filter(|code| code.is_finite()).collect()
    };
    for (found, x) in found.iter().zip(x.to_f64()) {
        let least = all.iter().map(|code| (code * f64::from(scale) - x).abs()).fold(f64::INFINITY, f64::min);
        assert!(((found - x).abs() - least).abs() < 1e-6, "{x} became {found}, off by more than {least}");
    }
    let ends = numbers(DType::F32, &[3], &[1e9, -1e9, f64::INFINITY]);
    assert_eq!(run(&ends, &op(DType::F8E4M3FN, 0.5, 0, &[])).to_f64(), [224.0, -224.0, 224.0]);
    assert!(run(&numbers(DType::F32, &[1], &[f64::NAN]), &op(DType::F8E4M3FN, 0.5, 0, &[])).to_f64()[0].is_nan());
}

#[test]
fn other_float_types_are_computed_in_f32_and_rounded_once() {
    let values = [0.3, -1.7, 2.2, 0.0499];
    for dtype in [DType::F16, DType::Bf16, DType::F64] {
        let x = numbers(dtype, &[2, 2], &values);
        let single = numbers(DType::F32, &[2, 2], &x.to_f64());
        for op in [op(DType::U8, 0.011, 100, &[1]), dynamic(&[], None), dynamic(&[0], Some(0.5))] {
            let found = run(&x, &op);
            let expected = numbers(dtype, &[2, 2], &run(&single, &op).to_f64());
            assert_eq!((found.dtype(), found), (dtype, expected));
        }
    }
}

#[test]
fn what_is_no_number_becomes_0_and_infinities_saturate() {
    let x = numbers(DType::F32, &[1, 3], &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    assert_eq!(run(&x, &op(DType::I8, 0.5, 0, &[])).to_f64(), [0.0, 63.5, -64.0]);
    assert_eq!(run(&x, &op(DType::U8, 0.5, 100, &[1, 1])).to_f64(), [0.0, 232.5, -50.0]);
    let x = numbers(DType::F32, &[1, 3], &[f64::NAN, 1.0, -1.0]);
    let found = run(&x, &dynamic(&[], None)).to_f64();
    assert!(found[0] == 0.0 && (found[1] - 1.0).abs() < 0.01 && (found[2] + 1.0).abs() < 0.01, "{found:?}");
}

#[test]
fn nothing_and_zeros() {
    for shape in [&[0, 3][..], &[2, 0], &[0]] {
        let x = tensor(shape, Vec::<f32>::new());
        for op in [op(DType::I8, 0.5, 0, &[]), dynamic(&[], None)] {
            assert_eq!(run(&x, &op), x);
        }
    }
    let zeros = tensor(&[2, 2], vec![0f32; 4]);
    assert_eq!(run(&zeros, &dynamic(&[], None)), zeros);
    assert_eq!(run(&zeros, &dynamic(&[1], Some(1.0))), zeros);
    let scalar = tensor(&[], vec![0.7f32]);
    assert_eq!(run(&scalar, &op(DType::I8, 0.5, 0, &[])).to_f64(), [0.5]);
}

/// Each reason for which there is no type.
#[test]
fn what_does_not_fit() {
    let error = |dtype: DType, shape: &str, op: &FakeQuantize| {
        let mut graph = Graph::new("g");
        let ty = planish_ir::text::parse(
            &format!("graph \"t\" {{\ninput %x: {dtype}{shape}\n}}"),
            &planish_ir::text::no_files,
        )
        .unwrap();
        let x = graph.add_input("x", ty.ty(ty.inputs()[0]).clone(), Origin::Unknown);
        graph.emit(FakeQuantize { x, ..op.clone() }, "q", Origin::Unknown).unwrap_err().to_string()
    };
    let says = |op: &FakeQuantize, part: &str| {
        let message = error(DType::F32, "[n, 4]", op);
        assert!(message.contains(part), "{message}");
    };
    assert!(error(DType::I32, "[n, 4]", &op(DType::I8, 1.0, 0, &[])).contains("`x`"));
    says(&op(DType::F32, 1.0, 0, &[]), "f32 is not a type of codes");
    for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        says(&op(DType::I8, scale, 0, &[]), "a scale or limit is not more than 0");
    }
    says(&op(DType::I8, 1.0, 128, &[]), "the zero point 128 is not a code of i8");
    says(&op(DType::F8E4M3FN, 1.0, 1, &[]), "the zero point 1 is not a code of f8e4m3fn");
    says(&FakeQuantize { to: DType::I8, ..dynamic(&[], None) }, "without a scale the codes are u8");
    says(&FakeQuantize { zero_point: Some(3), ..dynamic(&[], None) }, "have no zero point");
    says(&op(DType::F8E4M3FN, 1.0, 0, &[1]), "codes of f8e4m3fn cannot be split");
    says(&dynamic(&[1], None), "a limit is for columns that are split without a scale");
    says(&dynamic(&[], Some(1.0)), "a limit is for columns that are split without a scale");
    says(&dynamic(&[1], Some(0.0)), "a scale or limit is not more than 0");
    says(&op(DType::I8, 1.0, 0, &[2, 1]), "`split` is not in ascending order");
    says(&op(DType::I8, 1.0, 0, &[4]), "`split` has column 4");
    let unknown = error(DType::F32, "[4, n]", &op(DType::I8, 1.0, 0, &[0]));
    assert!(unknown.contains("`split` has column 0"), "a number of columns that a run decides: {unknown}");
    says(&op(DType::F8E8M0, 1.0, 0, &[]), "f8e8m0 is not a type of codes");
}
