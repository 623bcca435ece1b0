//! Whether inputs are within what a model takes: a runtime would say less, or read past the end of a
//! table.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::{Result, bail};
use planish_eval::Tensor;
use planish_ir::Dim;

use crate::manifest::Input;

/// What the names of dimensions begin with that are tokens in a cache: there may be none.
const PAST: &str = "past_";

/// Dimensions that are tokens in a row, of which there is a most; several are tokens of one row.
const TOKENS: &[&[&str]] =
    &[&["sequence_length"], &["encoder_sequence_length"], &["past_decoder_sequence_length", "decoder_sequence_length"]];

/// Checks the inputs that are described, by their names.
///
/// # Errors
/// When identifiers are out of range, rows too long or of no tokens, or dimensions of one name of several
/// sizes.
pub(super) fn check(
    inputs: &[(String, Tensor)],
    described: &[(Cow<'_, str>, &Input)],
    longest: Option<usize>,
) -> Result<()> {
    let known = |name: &str| described.iter().find(|(other, _)| other == name).map(|(_, input)| *input);
    let mut sizes: BTreeMap<&Dim, (usize, &str)> = BTreeMap::new();
    let longest = longest.unwrap_or(usize::MAX);
    for (name, tensor, input) in inputs.iter().filter_map(|(name, tensor)| Some((name, tensor, known(name)?))) {
        let sizes_of = || input.value.dims().iter().zip(tensor.shape());
        let open = || sizes_of().filter(|(dim, _)| dim.as_constant().is_none());
        let symbols = || sizes_of().filter_map(|(dim, size)| Some((&**dim.as_symbol()?, size)));
        let tokens = |symbol: &str| TOKENS.iter().any(|symbols| symbols.contains(&symbol));
        if symbols().any(|(symbol, size)| tokens(symbol) && *size > longest) {
            bail!("`{name}` has the shape {:?}: the model takes at most {longest} tokens in a row", tensor.shape());
        }
        if let Some((symbol, _)) = symbols().find(|(s, size)| **size == 0 && tokens(s) && !s.starts_with(PAST)) {
            bail!(
                "`{name}` has the shape {:?}: `{symbol}` is 0, and a sequence has at least one token",
                tensor.shape()
            );
        }
        for (dim, &size) in open() {
            let (first, of) = *sizes.entry(dim).or_insert((size, name));
            if first != size {
                bail!("`{dim}` is {first} in `{of}` and {size} in `{name}`: inputs of one run have the same");
            }
        }
        let Some(end) = input.end.filter(|_| tensor.dtype().is_integer()) else { continue };
        // Integers beyond 2^53 are rounded, and stay far out of range.
        let outside = |id: &f64| *id < 0.0 || *id >= end as f64;
        let ids = tensor.to_f64();
        if let Some(at) = ids.iter().position(outside) {
            let (position, last) = (position(at, tensor.shape()), end - 1);
            bail!("`{name}` is {} at {position:?}: the model takes 0 to {last} there", ids[at]);
        }
    }
    for symbols in TOKENS {
        let of_row: Vec<usize> = symbols.iter().filter_map(|symbol| Some(sizes.get(&Dim::symbol(symbol))?.0)).collect();
        let sum = of_row.iter().try_fold(0usize, |sum, size| sum.checked_add(*size)).unwrap_or(usize::MAX);
        if sum > longest {
            bail!("`{}` are {sum}: the model takes at most {longest} tokens in a row", symbols.join("` and `"));
        }
    }
    Ok(())
}

/// The indices of the element at `offset` in a tensor.
fn position(offset: usize, shape: &[usize]) -> Vec<usize> {
    let mut rest = offset;
    let mut indices: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&size| {
            let index = rest % size.max(1);
            rest /= size.max(1);
            index
        })
        .collect();
    indices.reverse();
    indices
}
