//! The sizes of inputs: the values of the symbols in their dimensions.

use planish_ir::{Bindings, DType, Dim, Graph, Symbol, SymbolRole};

use super::{InputError, InputSpec, LETTERS, MAX_BYTES};

/// The number of texts of which one is chosen, as in SWAG (Zellers et al. 2018, arXiv:1808.05326).
const CHOICES: usize = 4;

/// The number of prompts for each image.
const PROMPTS: usize = 2;

/// The samples of sound that stand for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenSamples {
    /// From one frame of the model to the next.
    pub step: usize,
    /// Of the first frame.
    pub first: usize,
}

/// Those of Moonshine, of which other encoders of speech make a frame or more.
const SAMPLES: TokenSamples = TokenSamples { step: 384, first: 895 };

/// The samples that there are besides, where the first frame does not take more: heads may take more than one frame.
const MORE_SAMPLES: usize = 511;

impl TokenSamples {
    /// The samples of so many tokens.
    fn of(self, tokens: usize) -> Option<usize> {
        tokens.checked_mul(self.step)?.checked_add(self.first.saturating_sub(self.step).max(MORE_SAMPLES))
    }
}

/// The sizes of dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// Rows.
    pub batch: usize,
    /// Tokens in a row, points of a prompt, or frames of a recording.
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
pub fn bound_shapes(specs: &[InputSpec], bindings: &Bindings) -> Result<Vec<Vec<usize>>, InputError> {
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
    specs.iter().any(|spec| spec.role().cache().is_some())
}

/// Whether a model takes sequences of any length.
#[must_use]
pub fn has_sequence(specs: &[InputSpec]) -> bool {
    specs.iter().any(|spec| spec.port.ty.shape.iter().flat_map(Dim::symbols).any(|s| is_of_sequence(spec.of.symbol(s))))
}

/// Whether a symbol counts what is one after another in a row.
pub fn is_of_sequence(role: SymbolRole) -> bool {
    is_new(role) || matches!(role, SymbolRole::Past | SymbolRole::PastAndTokens)
}

/// Whether a symbol counts what a run reads in a row.
fn is_new(role: SymbolRole) -> bool {
    match role {
        SymbolRole::Tokens | SymbolRole::EncoderTokens | SymbolRole::Samples | SymbolRole::Frames => true,
        SymbolRole::Rows
        | SymbolRole::Past
        | SymbolRole::PastAndTokens
        | SymbolRole::Choices
        | SymbolRole::Prompts
        | SymbolRole::Points
        | SymbolRole::Channels
        | SymbolRole::Height
        | SymbolRole::Width
        | SymbolRole::Other => false,
    }
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

/// Which sizes the inputs of a graph leave open.
#[must_use]
pub fn open_sizes(graph: &Graph) -> Open {
    let symbols = graph.inputs().iter().flat_map(|input| graph.ty(*input).shape.iter()).flat_map(Dim::symbols);
    let roles: Vec<SymbolRole> = symbols.map(|symbol| graph.interface.symbol(symbol)).collect();
    let has = |wanted: fn(SymbolRole) -> bool| roles.iter().any(|role| wanted(*role));
    Open { rows: has(|role| role == SymbolRole::Rows), tokens: has(is_new), past: has(|role| role == SymbolRole::Past) }
}

/// The size of each symbol in the inputs of a graph that has one, with a past of so many keys.
#[must_use]
pub fn graph_bindings(graph: &Graph, sizes: Sizes, past: usize) -> Bindings {
    let symbols = graph.inputs().iter().flat_map(|input| graph.ty(*input).shape.iter()).flat_map(Dim::symbols);
    bound(symbols.map(|symbol| (symbol, graph.interface.symbol(symbol))), (sizes, SAMPLES), past)
}

/// The size of each symbol that has one, with a past of so many keys.
pub(crate) fn bindings_after(specs: &[InputSpec], sizes: Sizes, past: usize) -> Bindings {
    let of = |spec: &'_ InputSpec| -> Vec<(Symbol, SymbolRole)> {
        let symbols = spec.port.ty.shape.iter().flat_map(Dim::symbols);
        symbols.map(|symbol| (symbol.clone(), spec.of.symbol(symbol))).collect()
    };
    let symbols: Vec<(Symbol, SymbolRole)> = specs.iter().flat_map(of).collect();
    let samples = specs.iter().find_map(|spec| spec.samples).unwrap_or(SAMPLES);
    bound(symbols.iter().map(|(symbol, role)| (symbol, *role)), (sizes, samples), past)
}

fn bindings(specs: &[InputSpec], sizes: Sizes) -> Bindings {
    bindings_after(specs, sizes, 0)
}

fn bound<'a>(
    symbols: impl Iterator<Item = (&'a Symbol, SymbolRole)>,
    (sizes, samples): (Sizes, TokenSamples),
    past: usize,
) -> Bindings {
    let size = |symbol: &Symbol, role: SymbolRole| match role {
        SymbolRole::Rows => Some(sizes.batch),
        SymbolRole::Past => Some(past),
        SymbolRole::PastAndTokens => sizes.sequence.checked_add(past),
        SymbolRole::Tokens | SymbolRole::EncoderTokens | SymbolRole::Frames => Some(sizes.sequence),
        SymbolRole::Samples => samples.of(sizes.sequence),
        SymbolRole::Points => Some(sizes.sequence),
        SymbolRole::Choices => Some(CHOICES),
        SymbolRole::Prompts => Some(PROMPTS),
        // Of colours there are three.
        SymbolRole::Channels => sizes.side.map(|_| 3),
        SymbolRole::Height | SymbolRole::Width | SymbolRole::Other => sizes.side.filter(|_| is_plain(symbol)),
    };
    symbols.filter_map(|(symbol, role)| Some((symbol.clone(), i64::try_from(size(symbol, role)?).ok()?))).collect()
}

/// What the symbols of a graph's inputs stand for where the inputs of these names have these sizes.
pub fn shape_bindings<'a>(graph: &Graph, shapes: impl IntoIterator<Item = (&'a str, &'a [usize])>) -> Bindings {
    let mut bindings = Bindings::new();
    for (name, shape) in shapes {
        let Some(input) = graph.inputs().iter().find(|input| graph.value(**input).name == name) else { continue };
        let Some(ty) = graph.type_of(*input).as_tensor() else { continue };
        for (dim, size) in ty.shape.iter().zip(shape) {
            if let Some((symbol, size)) = i64::try_from(*size).ok().and_then(|size| dim.solve(size)) {
                bindings.insert(symbol.clone(), size);
            }
        }
    }
    bindings
}

/// Frames, rows and columns of patches of images that have so many patches together, in squares of a side: each image is nearly a
/// square.
pub(super) fn grids(patches: usize, side: usize, images: usize) -> Vec<f64> {
    let squares = patches / (side * side).max(1);
    let grid = |image: usize| {
        let own = squares * (image + 1) / images - squares * image / images;
        let rows = (1..=own.isqrt()).rev().find(|rows| own.is_multiple_of(*rows)).unwrap_or(1);
        [1, side * rows, side * (own / rows)].map(|size| size as f64)
    };
    (0..images).flat_map(grid).collect()
}

/// Whether a symbol is a name, and not the text of a computation such as `Max(1, s)`.
pub fn is_plain(symbol: &str) -> bool {
    symbol.chars().all(|c| c.is_alphanumeric() || c == '_')
}
