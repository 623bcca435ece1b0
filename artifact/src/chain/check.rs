//! Whether inputs are within what a model takes: a runtime would say less, or read past the end of a
//! table.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::{Result, bail};
use planish_eval::Tensor;
use planish_ir::{Dim, InputRole, Symbol, SymbolRole};
use planish_models::names::has_symbol;

use crate::manifest::{Input, PartManifest};

/// The symbols of a part that count tokens, of those that the architectures have; none where it reads no tokens.
fn symbols(part: &PartManifest) -> Vec<(&Symbol, SymbolRole)> {
    let reads = |input: &Input| input.role.is_token_ids() || input.role == InputRole::Embeddings;
    let counts = |role: SymbolRole| matches!(role, SymbolRole::Tokens | SymbolRole::EncoderTokens | SymbolRole::Past);
    let all = part.symbols.iter().filter(|(symbol, _)| has_symbol(symbol) && part.inputs.iter().any(reads));
    all.map(|(symbol, role)| (symbol, *role)).filter(|(_, role)| counts(*role)).collect()
}

/// Checks the inputs of some parts that are described, by their names.
///
/// # Errors
/// When identifiers are out of range, rows too long or of no tokens, or dimensions of one name of several
/// sizes.
pub(super) fn check(
    inputs: &[(String, Tensor)],
    described: &[(Cow<'_, str>, &Input)],
    parts: &[&PartManifest],
    longest: Option<usize>,
) -> Result<()> {
    let known = |name: &str| described.iter().find(|(other, _)| other == name).map(|(_, input)| *input);
    let mut sizes: BTreeMap<&Dim, (usize, &str)> = BTreeMap::new();
    let longest = longest.unwrap_or(usize::MAX);
    let by_part: Vec<Vec<(&Symbol, SymbolRole)>> = parts.iter().map(|part| symbols(part)).collect();
    let role = |symbol: &Symbol| by_part.iter().flatten().find(|(other, _)| *other == symbol).map(|(_, role)| *role);
    for (name, tensor, input) in inputs.iter().filter_map(|(name, tensor)| Some((name, tensor, known(name)?))) {
        let sizes_of = || input.value.dims().iter().zip(tensor.shape());
        let open = || sizes_of().filter(|(dim, _)| dim.as_constant().is_none());
        let tokens = || sizes_of().filter_map(|(dim, size)| Some((dim.as_symbol()?, role(dim.as_symbol()?)?, size)));
        if tokens().any(|(.., size)| *size > longest) {
            bail!("`{name}` has the shape {:?}: the model takes at most {longest} tokens in a row", tensor.shape());
        }
        if let Some((symbol, ..)) = tokens().find(|(_, role, size)| **size == 0 && *role != SymbolRole::Past) {
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
    // Cached tokens and those after them are of one row.
    for symbols in &by_part {
        let of =
            |wanted: SymbolRole| symbols.iter().filter(move |(_, role)| *role == wanted).map(|(symbol, _)| *symbol);
        for (past, new) in of(SymbolRole::Past).flat_map(|past| of(SymbolRole::Tokens).map(move |new| (past, new))) {
            let size = |symbol: &Symbol| sizes.get(&Dim::symbol(symbol)).map_or(0, |(size, _)| *size);
            let sum = size(past).saturating_add(size(new));
            if sum > longest {
                bail!("`{past}` and `{new}` are {sum}: the model takes at most {longest} tokens in a row");
            }
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
