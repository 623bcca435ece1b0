//! Default values of inputs, for a prompt without padding and with an empty cache.

use std::borrow::Cow;
use std::collections::BTreeMap;

use planish_eval::Tensor;
use planish_ir::interface::CacheKind;
use planish_ir::{Bindings, DType, Dim, InputRole};

use crate::manifest::Input;

/// Sizes of open dimensions: symbols and sums of them.
type Sizes<'a> = BTreeMap<&'a Dim, usize>;

/// Adds the inputs among those `described` that are missing and follow from what is given: an empty
/// cache, a mask of ones, positions that the mask counts, segments of zeros. Returns what was added,
/// in words.
pub(super) fn add(inputs: &mut Vec<(String, Tensor)>, described: &[(Cow<'_, str>, &Input)]) -> Vec<String> {
    let given = |name: &str| inputs.iter().any(|(other, _)| other == name);
    let missing: Vec<(&str, &Input)> =
        described.iter().map(|(name, input)| (name.as_ref(), *input)).filter(|(name, _)| !given(name)).collect();
    let mut sizes = sizes(inputs, described);
    let mut notes = Vec::new();

    // All keys and values or none: some of them, or an encoder's, are never empty.
    let all: Vec<_> = described.iter().filter(|(_, input)| input.role.cache().is_some()).collect();
    let (states, cache): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, input)| is_state(input));
    let is_first = cache.iter().chain(&states).all(|(name, _)| !given(name));
    let pasts: Option<Vec<&Dim>> = cache.iter().map(|(name, input)| past(input).filter(|_| !given(name))).collect();
    if let Some(pasts) = pasts.filter(|pasts| !pasts.is_empty()) {
        sizes.extend(pasts.into_iter().map(|past| (past, 0)));
        let empty = |(name, input): &(&str, &Input)| {
            let tensor = Tensor::zeros(input.value.dtype()?, shape(input, &sizes)?)?;
            (input.role.cache().is_some() && !is_state(input)).then(|| ((*name).to_owned(), tensor))
        };
        let all: Vec<_> = missing.iter().filter_map(empty).collect();
        if all.len() == cache.len() {
            inputs.extend(all);
            notes.push(format!("{}* are empty", common(cache.iter().map(|(name, _)| name.as_ref()))));
        }
    }
    if is_first && !states.is_empty() {
        // Where no key says how long the past is, the mask of a first step is as long as its tokens.
        let second = |wanted: fn(InputRole) -> bool| {
            described.iter().find(|(_, input)| wanted(input.role)).and_then(|(_, input)| input.value.dims().get(1))
        };
        if let (Some(mask), Some(tokens)) = (second(|role| role == InputRole::Mask), second(InputRole::is_token_ids))
            && let Some(count) = sizes.get(tokens).copied()
        {
            sizes.entry(mask).or_insert(count);
        }
        let zeros = |(name, input): &(&str, &Input)| {
            let tensor = Tensor::zeros(input.value.dtype()?, shape(input, &sizes)?)?;
            is_state(input).then(|| ((*name).to_owned(), tensor))
        };
        let all: Vec<_> = missing.iter().filter_map(zeros).collect();
        if all.len() == states.len() {
            inputs.extend(all);
            notes.push(format!("{}* are zeros", common(states.iter().map(|(name, _)| name.as_ref()))));
        }
    }
    // The mask first: positions are counted by it.
    let of = |wanted: fn(InputRole) -> bool| missing.iter().filter(move |(_, input)| wanted(input.role));
    let others = of(|role| matches!(role, InputRole::Positions | InputRole::TokenTypes));
    for (name, input) in of(InputRole::is_mask).chain(others) {
        let Some(shape) = shape(input, &sizes).filter(|_| input.value.dtype() == Some(DType::I64)) else { continue };
        let count = shape.iter().product();
        let (numbers, what) = match input.role {
            InputRole::TokenTypes => (Some(vec![0; count]), "is all zeros".to_owned()),
            InputRole::Positions => {
                let mask = described.iter().find(|(_, input)| input.role == InputRole::Mask);
                let mask = mask.map_or("", |(name, _)| name);
                (positions(inputs, mask, &shape), format!("counts the tokens of {mask}"))
            }
            _ => (Some(vec![1; count]), "is all ones".to_owned()),
        };
        if let Some(tensor) = numbers.and_then(|numbers: Vec<i64>| Tensor::new(shape, numbers)) {
            inputs.push(((*name).to_owned(), tensor));
            notes.push(format!("{name} {what}"));
        }
    }
    notes
}

/// Whether an input is the state of a convolution or of a recurrence: zeros before the first token.
fn is_state(input: &Input) -> bool {
    input.role.cache().is_some_and(|entry| entry.kind.is_state())
}

/// The dimension of earlier positions.
fn past(input: &Input) -> Option<&Dim> {
    let CacheKind::Growing { axis } = input.role.cache()?.kind else { return None };
    input.value.dims().get(axis).filter(|dim| dim.as_symbol().is_some())
}

/// What names begin with, up to the last dot of what they share.
fn common<'a>(mut names: impl Iterator<Item = &'a str>) -> &'a str {
    let first = names.next().unwrap_or_default();
    let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let length = names.fold(first.len(), |length, name| length.min(shared(first, name)));
    let start = first.get(..length).unwrap_or(first);
    start.find('.').and_then(|dot| start.get(..=dot)).unwrap_or(start)
}

/// What the inputs say of the sizes of open dimensions.
fn sizes<'a>(inputs: &[(String, Tensor)], described: &[(Cow<'_, str>, &'a Input)]) -> Sizes<'a> {
    let mut sizes = Sizes::new();
    for (name, input) in described {
        let tensor = inputs.iter().find(|(other, _)| other == name).map(|(_, tensor)| tensor);
        let dims = tensor.filter(|tensor| tensor.shape().len() == input.value.dims().len());
        let dims = dims.into_iter().flat_map(|tensor| input.value.dims().iter().zip(tensor.shape()));
        sizes.extend(dims.filter(|(dim, _)| dim.as_constant().is_none()).map(|(dim, size)| (dim, *size)));
    }
    sizes
}

/// The shape of an input, where all of its dimensions are known.
fn shape(input: &Input, sizes: &Sizes<'_>) -> Option<Vec<usize>> {
    let solved = sizes.iter().filter_map(|(dim, size)| dim.solve(i64::try_from(*size).ok()?));
    let bindings: Bindings = solved.map(|(symbol, size)| (symbol.clone(), size)).collect();
    let size = |dim: &Dim| match sizes.get(dim) {
        Some(size) => Some(*size),
        None => usize::try_from(dim.evaluate(&bindings)?).ok(),
    };
    let shape: Vec<usize> = input.value.dims().iter().map(size).collect::<Option<_>>()?;
    shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size))?;
    Some(shape)
}

/// 0, 1, 2, ... from the first token of each row on by the mask, 0 before it: its last columns.
fn positions(inputs: &[(String, Tensor)], mask: &str, shape: &[usize]) -> Option<Vec<i64>> {
    let (_, mask) = inputs.iter().find(|(name, _)| name == mask)?;
    let &[all_rows, all] = mask.shape() else { return None };
    let (coordinates, rows, width) = match *shape {
        [rows, width] => (1, rows, width),
        [coordinates, rows, width] => (coordinates, rows, width),
        _ => return None,
    };
    if rows != all_rows || width > all {
        return None;
    }
    let row = |row: &[f64]| {
        let counted = row.iter().scan(0i64, |tokens, token| {
            *tokens += i64::from(*token != 0.0);
            Some((*tokens - 1).max(0))
        });
        counted.skip(all - width).collect::<Vec<_>>()
    };
    let positions: Vec<i64> = mask.to_f64().chunks(all.max(1)).flat_map(row).collect();
    // Coordinates of a text are the same.
    Some(positions.repeat(coordinates))
}
