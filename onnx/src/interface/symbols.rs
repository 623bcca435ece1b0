//! What symbols count: by their names where these say it, else by their places in the shapes of inputs.

use std::collections::BTreeMap;

use planish_ir::interface::CacheKind;
use planish_ir::{Dim, InputRole, Symbol, SymbolRole, TensorType};

/// The roles of all symbols in the shapes of inputs.
pub(super) fn roles(inputs: &[(InputRole, &TensorType)]) -> BTreeMap<Symbol, SymbolRole> {
    let places = by_place(inputs);
    let symbols = inputs.iter().flat_map(|(_, ty)| ty.shape.iter()).flat_map(Dim::symbols);
    let role = |symbol: &Symbol| {
        let place = places.get(symbol).copied();
        // What sound is divided into has names of tokens, as in Optimum's graphs.
        let of_sound = place.filter(|role| matches!(role, SymbolRole::Samples | SymbolRole::Frames));
        let role = of_sound.or_else(|| by_name(symbol)).or(place).or_else(|| of_image(symbol)).unwrap_or_default();
        (symbol.clone(), role)
    };
    symbols.map(role).collect()
}

/// Whether the name of a symbol says that it counts the rows of a batch.
#[must_use]
pub fn names_rows(symbol: &str) -> bool {
    symbol.contains("batch")
}

/// What a symbol counts by its name, where that says it.
fn by_name(symbol: &str) -> Option<SymbolRole> {
    match symbol {
        "point_batch_size" => Some(SymbolRole::Prompts),
        "nb_points_per_image" => Some(SymbolRole::Points),
        _ if names_rows(symbol) => Some(SymbolRole::Rows),
        _ if symbol.contains("choice") => Some(SymbolRole::Choices),
        _ if symbol.contains("past") => Some(SymbolRole::Past),
        _ if symbol.starts_with("total_seq") => Some(SymbolRole::PastAndTokens),
        _ if symbol.starts_with("encoder_seq") => Some(SymbolRole::EncoderTokens),
        _ if symbol.contains("seq") || symbol.contains("length") => Some(SymbolRole::Tokens),
        _ => None,
    }
}

/// What a symbol counts that the name of a dimension of an image says.
fn of_image(symbol: &str) -> Option<SymbolRole> {
    match symbol {
        _ if !is_plain(symbol) => None,
        _ if symbol.contains("channel") => Some(SymbolRole::Channels),
        _ if symbol.contains("height") => Some(SymbolRole::Height),
        _ if symbol.contains("width") => Some(SymbolRole::Width),
        _ => None,
    }
}

/// What symbols count by their places: first dimensions count rows, those of a cache what is past, and the others tokens, or
/// what sound is divided into, but for tensors such as images.
fn by_place<'a>(inputs: &[(InputRole, &'a TensorType)]) -> BTreeMap<&'a Symbol, SymbolRole> {
    let place = |input: InputRole, ty: &TensorType, axis: usize| match (input, axis) {
        (_, 0) => Some(SymbolRole::Rows),
        (InputRole::Cache(entry), axis) => match entry.kind {
            CacheKind::Growing { axis: grows } if axis == grows => Some(SymbolRole::Past),
            CacheKind::Encoder if axis + 2 == ty.shape.rank() => Some(SymbolRole::EncoderTokens),
            _ => None,
        },
        (InputRole::Recording | InputRole::RecordingMask | InputRole::Waveform, _) => Some(SymbolRole::Samples),
        (InputRole::Features, _) => Some(SymbolRole::Frames),
        (input, _) if ty.shape.rank() < 4 => match input.is_of_encoder() {
            true => Some(SymbolRole::EncoderTokens),
            false => Some(SymbolRole::Tokens),
        },
        _ => None,
    };
    let mut places: BTreeMap<&Symbol, SymbolRole> = BTreeMap::new();
    for (input, ty) in inputs {
        for (axis, dim) in ty.shape.iter().enumerate() {
            let symbol = dim.as_symbol().filter(|symbol| is_plain(symbol));
            let Some((symbol, role)) = symbol.zip(place(*input, ty, axis)) else { continue };
            let known = places.entry(symbol).or_insert(role);
            if rank(role) > rank(*known) {
                *known = role;
            }
        }
    }
    places
}

/// Which of two roles by place a symbol has that stands in both places: the larger one.
fn rank(role: SymbolRole) -> u8 {
    match role {
        SymbolRole::Rows => 2,
        SymbolRole::Past => 1,
        SymbolRole::Tokens
        | SymbolRole::PastAndTokens
        | SymbolRole::EncoderTokens
        | SymbolRole::Choices
        | SymbolRole::Prompts
        | SymbolRole::Points
        | SymbolRole::Channels
        | SymbolRole::Height
        | SymbolRole::Width
        | SymbolRole::Samples
        | SymbolRole::Frames
        | SymbolRole::Other => 0,
    }
}

/// Whether a symbol is a name, and not the text of a computation such as `Max(1, s)`.
fn is_plain(symbol: &str) -> bool {
    symbol.chars().all(|c| c.is_alphanumeric() || c == '_')
}
