//! Elements of fewer than 8 bits and floating-point numbers of 8 bits and fewer, against tables that the Python
//! package ml_dtypes made (tools/small_types.py). Tensors hold such elements in a wider type.

use planish_eval::{Tensor, evaluate};
use planish_ir::ops::Cast;
use planish_ir::{DType, Graph, Origin, Weight};

const NUMBERS: &str = include_str!("../../../fixtures/small_types/numbers.csv");
const MIDPOINTS: &str = include_str!("../../../fixtures/small_types/midpoints.csv");

/// The number of bit patterns of all types: two of 2 bits, three of 4, two of 6 and five of 8.
const PATTERNS: usize = 2 * 4 + 3 * 16 + 2 * 64 + 5 * 256;

/// The types of a table, each with its entries.
fn rows(table: &str) -> Vec<(DType, Vec<&str>)> {
    let lines = table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_once(',').unwrap());
    lines.map(|(name, entries)| (name.parse().unwrap(), entries.split(' ').collect())).collect()
}

/// Bit patterns in bytes as ONNX packs them: the first one in the lowest bits.
fn packed(dtype: DType, codes: &[u8]) -> Vec<u8> {
    let bits = dtype.bits();
    let mut bytes = vec![0; (codes.len() * bits).div_ceil(8)];
    for at in 0..codes.len() * bits {
        bytes[at / 8] |= (codes[at / bits] >> (at % bits) & 1) << (at % 8);
    }
    bytes
}

/// The bit patterns that bytes hold.
fn unpacked(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    let bits = dtype.bits();
    let bit = |at: usize| bytes[at / 8] >> (at % 8) & 1;
    let code = |code: usize| (0..bits).fold(0, |sum, at| sum | bit(code * bits + at) << at);
    (0..bytes.len() * 8 / bits).map(code).collect()
}

/// A weight of every bit pattern of a type, in order.
fn every_pattern(dtype: DType) -> Weight {
    let codes: Vec<u8> = (0..1u16 << dtype.bits()).map(|code| u8::try_from(code).unwrap()).collect();
    Weight::inline(dtype, vec![codes.len()], packed(dtype, &codes)).unwrap()
}

/// The weight as a tensor, its conversions to float32 and float64, and what `cast` computes of it in a graph.
fn conversions(weight: &Weight) -> Vec<(&'static str, Tensor)> {
    let as_tensor = |weight: &Weight| Tensor::from_weight(weight).unwrap();
    let converted = |to| as_tensor(&weight.cast(to).unwrap());
    let mut graph = Graph::new("small");
    let x = graph.add_weight("x", weight.clone(), Origin::Unknown);
    let y = graph.emit(Cast { x, to: DType::F32 }, "y", Origin::Unknown).unwrap();
    graph.add_output("y", y[0]);
    let computed = evaluate(&graph, &[]).unwrap().remove(0).1;
    vec![
        ("a tensor", as_tensor(weight)),
        ("the weight in float32", converted(DType::F32)),
        ("the weight in float64", converted(DType::F64)),
        ("the cast in a graph", computed),
    ]
}

/// Where conversions of bit patterns differ from a table, and how many were compared.
fn compare(table: &str) -> (Vec<String>, usize) {
    let (mut differences, mut compared) = (Vec::new(), 0);
    for (dtype, entries) in rows(table) {
        let expected: Vec<f64> = entries.iter().map(|n| n.parse().unwrap()).collect();
        for (what, tensor) in conversions(&every_pattern(dtype)) {
            let found = tensor.to_f64();
            assert_eq!(found.len(), expected.len(), "{dtype}");
            for (code, (a, b)) in found.iter().zip(&expected).enumerate() {
                let same = a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                if !same {
                    differences.push(format!("{what}, {dtype} {code:#x}: {a}, expected {b}"));
                }
                compared += 1;
            }
        }
    }
    (differences, compared)
}

#[test]
fn every_bit_pattern_is_the_number_that_ml_dtypes_says() {
    let (differences, compared) = compare(NUMBERS);
    assert_eq!(differences, [""; 0]);
    assert_eq!(compared, 4 * PATTERNS);
}

/// The comparison sees a change of any one entry.
#[test]
fn an_entry_that_is_wrong_is_seen() {
    let mut seen = 0;
    for (row, (dtype, entries)) in rows(NUMBERS).into_iter().enumerate() {
        for at in 0..entries.len() {
            let mut changed = entries.clone();
            changed[at] = "12345.0";
            let table = format!("{dtype},{}", changed.join(" "));
            let (differences, _) = compare(&table);
            assert_eq!(differences.len(), 4, "row {row}, entry {at}: {differences:?}");
            assert!(differences.iter().all(|d| d.ends_with("expected 12345")), "{differences:?}");
            seen += 1;
        }
    }
    assert_eq!(seen, PATTERNS);
}

/// The codes of numbers in a type.
fn codes(dtype: DType, numbers: &[f64]) -> Vec<u8> {
    let weight = Weight::numbers(dtype, vec![numbers.len()], numbers).unwrap();
    unpacked(dtype, &weight.read().unwrap())[..numbers.len()].to_vec()
}

/// Halfway between two neighbours ml_dtypes says which it is. Next to that a floating-point type takes the nearer one,
/// and an integer type the one that is nearer to zero.
#[test]
fn numbers_between_two_are_rounded_as_ml_dtypes_does() {
    let all = rows(NUMBERS);
    let mut compared = 0;
    for (dtype, expected) in rows(MIDPOINTS) {
        let (_, numbers) = all.iter().find(|(other, _)| *other == dtype).unwrap();
        let mut finite: Vec<f64> = numbers.iter().map(|n| n.parse().unwrap()).filter(|n: &f64| n.is_finite()).collect();
        finite.sort_by(f64::total_cmp);
        finite.dedup();
        let middles: Vec<f64> = finite.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
        let expected: Vec<u8> = expected.iter().map(|code| u8::from_str_radix(code, 16).unwrap()).collect();
        assert_eq!(codes(dtype, &middles), expected, "{dtype}");

        let is_float = dtype.to_string().starts_with('f');
        let number = |code: u8| -> f64 { numbers[usize::from(code)].parse().unwrap() };
        for (pair, middle) in finite.windows(2).zip(&middles) {
            let [below, above] = [middle.next_down(), middle.next_up()];
            let nearer = if pair[0].abs() < pair[1].abs() { pair[0] } else { pair[1] };
            let wanted = if is_float { [pair[0], pair[1]] } else { [nearer; 2] };
            let found: Vec<f64> = codes(dtype, &[below, above]).into_iter().map(number).collect();
            assert_eq!(found, wanted, "{dtype} beside {middle}");
            compared += 1;
        }
    }
    // One less than the distinct finite numbers of each type.
    assert_eq!(compared, 2 * 3 + 2 * 15 + 14 + 2 * 62 + 252 + 254 + 246 + 254);
}

/// Numbers beyond a type saturate, as `Cast` of ONNX has it by default; ml_dtypes has infinities or no number there.
#[test]
fn numbers_beyond_a_type_saturate() {
    for (dtype, numbers) in rows(NUMBERS).into_iter().filter(|(dtype, _)| *dtype != DType::F8E8M0) {
        let finite = numbers.iter().map(|n| n.parse().unwrap()).filter(|n: &f64| n.is_finite());
        let (low, high) = finite.fold((0.0f64, 0.0f64), |(low, high), n| (low.min(n), high.max(n)));
        let found: Vec<f64> =
            codes(dtype, &[1e9, -1e9]).into_iter().map(|c| numbers[usize::from(c)].parse().unwrap()).collect();
        assert_eq!(found, [high, low], "{dtype}");
    }
}
