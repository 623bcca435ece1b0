//! The sizes of inputs: the values of the symbols in their dimensions.

use std::collections::HashMap;

use planish_artifact::chain::CACHE;
use planish_ir::{Bindings, DType, Dim, Graph, Symbol};
use planish_runtimes::Port;

use super::{InputError, InputSpec, LETTERS, MAX_BYTES, Values};

/// The sizes of dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// Rows.
    pub batch: usize,
    /// Tokens in a row.
    pub sequence: usize,
    /// What other open dimensions of tensors of four dimensions and more are, as the sides of images; what to do
    /// is an error where this is absent.
    pub side: Option<usize>,
}

/// The shapes of the inputs that [`sized_inputs`](super::sized_inputs) makes, in order.
///
/// # Errors
/// When a dimension has no size, and when the inputs have more than [`MAX_BYTES`].
pub fn shapes(specs: &[InputSpec], sizes: Sizes) -> Result<Vec<Vec<usize>>, InputError> {
    bound_shapes(specs, &bindings(specs, sizes))
}

/// The shapes of inputs whose symbols stand for these sizes.
pub(crate) fn bound_shapes(specs: &[InputSpec], bindings: &Bindings) -> Result<Vec<Vec<usize>>, InputError> {
    let mut left = MAX_BYTES;
    let shape = |spec: &InputSpec| {
        let size = |dim: &Dim| {
            let size = dim.evaluate(bindings).and_then(|size| usize::try_from(size).ok());
            let (input, dimension) = (&spec.port.name, dim);
            size.ok_or_else(|| InputError::Dimension { input: input.clone(), dimension: dimension.clone() })
        };
        let shape = spec.port.ty.shape.iter().map(size).collect::<Result<Vec<_>, _>>()?;
        // Sizes count even where another one is 0: there are masks and rows of them.
        let times = |n: u64, size: &usize| n.checked_mul(u64::try_from(*size).ok()?.max(1));
        let bytes = shape.iter().try_fold(bytes_of(spec.port.ty.dtype), times);
        left = bytes.and_then(|bytes| left.checked_sub(bytes)).ok_or_else(|| too_large(spec, shape.clone()))?;
        Ok(shape)
    };
    specs.iter().map(shape).collect()
}

/// The bytes of an element of an input.
fn bytes_of(dtype: DType) -> u64 {
    (if dtype == DType::String { LETTERS } else { dtype.size() }) as u64
}

pub(crate) fn too_large(spec: &InputSpec, shape: Vec<usize>) -> InputError {
    let is_open = spec.port.ty.shape.as_constant().is_none();
    InputError::TooLarge { input: spec.port.name.clone(), dtype: spec.port.ty.dtype, shape, is_open }
}

/// Whether a model continues from a cache of keys and values.
#[must_use]
pub fn has_cache(specs: &[InputSpec]) -> bool {
    specs.iter().any(|spec| spec.port.name.starts_with(CACHE))
}

/// Whether a model takes sequences of any length.
#[must_use]
pub fn has_sequence(specs: &[InputSpec]) -> bool {
    let by_place = by_place(specs);
    let is_sequence = |symbol: &Symbol| match by_name(symbol) {
        None => by_place.get(symbol) == Some(&Meaning::Tokens),
        Some(_) => is_of_sequence(symbol),
    };
    specs.iter().any(|spec| spec.port.ty.shape.iter().flat_map(Dim::symbols).any(is_sequence))
}

/// Whether a symbol is a number of rows by its name, or its name says nothing.
pub fn is_rows(symbol: &Symbol) -> bool {
    matches!(by_name(symbol), None | Some(Meaning::Rows)) && is_plain(symbol)
}

/// Whether a symbol is a number of rows by its name.
pub(crate) fn is_batch(symbol: &Symbol) -> bool {
    by_name(symbol) == Some(Meaning::Rows)
}

/// Whether a symbol is the length of a sequence by its name.
pub fn is_of_sequence(symbol: &str) -> bool {
    symbol.contains("seq")
}

/// What a symbol of a dimension counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// The rows of a batch.
    Rows,
    /// The tokens whose keys and values are cached.
    Past,
    /// The tokens of a row.
    Tokens,
}

/// What a symbol counts by its name, where the name says it.
fn by_name(symbol: &str) -> Option<Meaning> {
    match symbol {
        _ if symbol.contains("batch") => Some(Meaning::Rows),
        _ if symbol.contains("past") => Some(Meaning::Past),
        _ if is_of_sequence(symbol) || symbol.contains("length") => Some(Meaning::Tokens),
        _ => None,
    }
}

/// What symbols count by their places: first dimensions count rows, those of a cache what is past, and the others tokens,
/// but for tensors such as images.
fn by_place(specs: &[InputSpec]) -> HashMap<&Symbol, Meaning> {
    let named = |axes: fn(&Port, usize) -> bool, meaning: Meaning| {
        let dims = specs.iter().flat_map(move |spec| {
            let port = &spec.port;
            port.ty.shape.iter().enumerate().filter(move |(axis, _)| axes(port, *axis)).map(|(_, dim)| dim)
        });
        dims.filter_map(Dim::as_symbol).filter(|symbol| is_plain(symbol)).map(move |symbol| (symbol, meaning))
    };
    let past = |port: &Port, axis: usize| port.name.starts_with(CACHE) && axis == 2;
    let tokens = |port: &Port, axis: usize| axis > 0 && port.ty.shape.rank() < 4;
    let mut meanings: HashMap<&Symbol, Meaning> = named(tokens, Meaning::Tokens).collect();
    meanings.extend(named(past, Meaning::Past));
    meanings.extend(named(|_, axis| axis == 0, Meaning::Rows));
    meanings
}

/// Which sizes of a model are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// The number of rows.
    pub rows: bool,
    /// The number of tokens in a row.
    pub tokens: bool,
    /// The number of cached tokens.
    pub past: bool,
}

/// Which sizes these ports of a model leave open.
#[must_use]
pub fn open_sizes(ports: &[Port]) -> Open {
    let specs: Vec<InputSpec> = ports.iter().map(spec).collect();
    let by_place = by_place(&specs);
    let symbols = ports.iter().flat_map(|port| port.ty.shape.iter()).flat_map(Dim::symbols);
    let meanings: Vec<Meaning> =
        symbols.filter_map(|symbol| by_name(symbol).or_else(|| by_place.get(symbol).copied())).collect();
    let has = |meaning| meanings.contains(&meaning);
    Open { rows: has(Meaning::Rows), tokens: has(Meaning::Tokens), past: has(Meaning::Past) }
}

/// A port whose values do not matter.
fn spec(port: &Port) -> InputSpec {
    InputSpec { port: port.clone(), values: Values::Noise }
}

/// The size of each symbol of ports that has one, with a past of so many keys.
#[must_use]
pub fn port_bindings(ports: &[Port], sizes: Sizes, past: usize) -> Bindings {
    let specs: Vec<InputSpec> = ports.iter().map(spec).collect();
    let by_place = by_place(&specs);
    let mut bindings = bindings(&specs, sizes);
    for (symbol, size) in &mut bindings {
        let meaning = by_name(symbol).or_else(|| by_place.get(symbol).copied());
        if let (Some(Meaning::Past), Ok(past)) = (meaning, i64::try_from(past)) {
            *size = past;
        }
    }
    bindings
}

/// The size of each symbol that has one.
fn bindings(specs: &[InputSpec], sizes: Sizes) -> Bindings {
    let by_place = by_place(specs);
    let size = |symbol: &Symbol| match by_name(symbol).or_else(|| by_place.get(symbol).copied()) {
        Some(Meaning::Rows) => Some(sizes.batch),
        Some(Meaning::Past) => Some(0),
        Some(Meaning::Tokens) => Some(sizes.sequence),
        None => side(symbol, sizes.side),
    };
    let symbols = specs.iter().flat_map(|spec| spec.port.ty.shape.iter()).flat_map(Dim::symbols);
    symbols.filter_map(|symbol| Some((symbol.clone(), i64::try_from(size(symbol)?).ok()?))).collect()
}

/// What the symbols of a graph's inputs stand for where the inputs of these names have these sizes.
pub fn shape_bindings<'a>(graph: &Graph, shapes: impl IntoIterator<Item = (&'a str, &'a [usize])>) -> Bindings {
    let mut bindings = Bindings::new();
    for (name, shape) in shapes {
        let Some(input) = graph.inputs().iter().find(|input| graph.value(**input).name == name) else { continue };
        let Some(ty) = graph.type_of(*input).as_tensor() else { continue };
        for (dim, size) in ty.shape.iter().zip(shape) {
            if let (Some(symbol), Ok(size)) = (dim.as_symbol(), i64::try_from(*size)) {
                bindings.insert(symbol.clone(), size);
            }
        }
    }
    bindings
}

/// The size of an open dimension of an image: of colours there are three.
fn side(symbol: &str, side: Option<usize>) -> Option<usize> {
    side.filter(|_| is_plain(symbol)).map(|side| if symbol.contains("channel") { 3 } else { side })
}

/// Whether a symbol is a name, and not the text of a computation such as `Max(1, s)`.
fn is_plain(symbol: &str) -> bool {
    symbol.chars().all(|c| c.is_alphanumeric() || c == '_')
}
