//! Sums of products against sums over all indices.

use std::collections::BTreeMap;

use planish_eval::Tensor;
use planish_ir::DType;
use planish_ir::ops::Setting;
use proptest::prelude::*;

use crate::foreign::{open, try_run};
use crate::{assert_close, numbers, random, tensor};

fn einsum(equation: &str, operands: &[&Tensor], rank: usize) -> Result<Tensor, String> {
    let settings = [("equation", Setting::Bytes(equation.as_bytes().to_vec().into()))];
    let given: Vec<_> = operands.iter().map(|t| Some(*t)).collect();
    let dtype = operands.first().map_or(DType::F32, |t| t.dtype());
    try_run("Einsum", &settings, &given, &[open(dtype, rank)]).map(|mut results| results.remove(0))
}

/// The result's elements, by going over all indices of all letters.
fn naive(terms: &[String], result: &str, sizes: &BTreeMap<char, usize>, operands: &[Tensor]) -> Vec<f64> {
    let inner: Vec<char> = sizes.keys().copied().filter(|c| !result.contains(*c)).collect();
    let letters: Vec<char> = result.chars().chain(inner).collect();
    let count = |letters: &mut dyn Iterator<Item = char>| letters.map(|c| sizes[&c]).product::<usize>();
    let mut out = vec![0.0; count(&mut result.chars())];
    let each = count(&mut letters.iter().copied().skip(result.len()));
    let values: Vec<Vec<f64>> = operands.iter().map(Tensor::to_f64).collect();
    for position in 0..out.len() * each {
        let mut rest = position;
        let mut index = BTreeMap::new();
        for letter in letters.iter().rev() {
            index.insert(*letter, rest % sizes[letter]);
            rest /= sizes[letter];
        }
        let element = |(term, values): (&String, &Vec<f64>)| {
            values[term.chars().fold(0, |at, letter| at * sizes[&letter] + index[&letter])]
        };
        out[position / each] += terms.iter().zip(&values).map(element).product::<f64>();
    }
    out
}

prop_compose! {
    /// Up to three terms over five letters of sizes 1 to 3, with letters that repeat, and a result.
    fn equation()(
        terms in proptest::collection::vec("[a-e]{0,3}", 1..4),
        sizes in proptest::collection::vec(1usize..4, 5),
        order in Just("abcde".chars().collect::<Vec<char>>()).prop_shuffle(),
        kept in proptest::collection::vec(any::<bool>(), 5),
    ) -> (Vec<String>, String, BTreeMap<char, usize>) {
        let used: BTreeMap<char, usize> =
            "abcde".chars().zip(sizes).filter(|(c, _)| terms.iter().any(|t| t.contains(*c))).collect();
        let result = order.into_iter().zip(kept).filter(|(c, kept)| *kept && used.contains_key(c)).map(|(c, _)| c);
        (terms, result.collect(), used)
    }
}

proptest! {
    #[test]
    fn it_is_a_sum_over_all_indices((terms, result, sizes) in equation(), seed in 0u64..100) {
        let shape = |term: &String| term.chars().map(|c| sizes[&c]).collect::<Vec<usize>>();
        let operands: Vec<Tensor> =
            terms.iter().zip(seed..).map(|(term, seed)| random(DType::F64, &shape(term), seed)).collect();
        let text = format!("{} -> {result}", terms.join(", "));
        let found = einsum(&text, &operands.iter().collect::<Vec<_>>(), result.len()).unwrap();
        prop_assert_eq!(found.shape(), shape(&result));
        assert_close(&found, &naive(&terms, &result, &sizes, &operands), 1e-12);
    }
}

#[test]
fn without_a_result_letters_that_occur_once_are_left_in_order() {
    let (a, b) = (random(DType::F32, &[2, 3], 1), random(DType::F32, &[3, 4], 2));
    let product = einsum("bj,ja", &[&a, &b], 2).unwrap();
    assert_eq!(product, einsum("bj,ja->ab", &[&a, &b], 2).unwrap());
    assert_eq!(product.shape(), [4, 2]);
}

#[test]
fn dimensions_without_names_broadcast() {
    let (a, b) = (random(DType::F32, &[5, 1, 2, 3], 1), random(DType::F32, &[4, 3, 2], 2));
    let product = einsum("...ij,...jk->...ik", &[&a, &b], 4).unwrap();
    assert_eq!(product.shape(), [5, 4, 2, 2]);
    // As with the operand that repeats written out.
    let repeated = a.to_f64().chunks(6).flat_map(|m| m.repeat(4)).collect::<Vec<f64>>();
    let named = einsum("nbij,bjk->nbik", &[&numbers(DType::F32, &[5, 4, 2, 3], &repeated), &b], 4).unwrap();
    assert_eq!(product, named);
    assert_eq!(einsum("...i->i...", &[&b], 3).unwrap().shape(), [2, 4, 3]);
    assert_eq!(einsum("...,...", &[&a, &a], 4).unwrap().shape(), [5, 1, 2, 3]);
}

#[test]
fn integers_are_exact() {
    let large = 3_037_000_499i64;
    let x = tensor(&[1, 2], vec![large, -large]);
    assert_eq!(
        einsum("ij,ij->i", &[&x, &tensor(&[1, 2], vec![large, 1])], 1).unwrap(),
        tensor(&[1], vec![large * large - large])
    );
    assert!(einsum("ij,ij,ij->", &[&x, &x, &tensor(&[1, 2], vec![large, 1])], 0).unwrap_err().contains("out of range"));
}

#[test]
fn equations_that_do_not_fit() {
    let x = random(DType::F32, &[2, 3], 1);
    for (equation, why) in [
        ("ij,jk->ik", "is of 2 operands, and it has 1"),
        ("i->i", "does not fit an operand of shape [2, 3]"),
        ("ijk->i", "does not fit an operand of shape [2, 3]"),
        ("ii->i", "a dimension of its equation is of 2 elements and of 3"),
        ("ij->ijj", "has a dimension of the result twice"),
        ("ij->k", "has no operand with `k`"),
        ("i1->i", "has `1` in `i1`, expected letters and one `...`"),
        ("i..j->i", "has `.` in"),
    ] {
        let error = einsum(equation, &[&x], 1).unwrap_err();
        assert!(error.contains(why), "{equation}: {error}");
    }
}

/// The outer product of what cannot be held is refused before it is computed.
#[test]
fn products_beyond_memory() {
    let x = tensor(&[1 << 20], vec![0u8; 1 << 20]);
    let error = einsum("a,b,c->abc", &[&x, &x, &x], 3).unwrap_err();
    assert!(error.contains("does not fit in memory"), "{error}");
}
