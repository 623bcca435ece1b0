//! Values of the inputs of a part as code of Python: of a text that a tokenizer reads, or of sizes alone.

use planish_artifact::manifest::{Input, PartManifest};
use planish_ir::{DType, InputRole, SymbolRole};

/// What `SymbolRole`s are in the examples.
const SIZES: [(SymbolRole, i64); 14] = [
    (SymbolRole::Rows, 1),
    (SymbolRole::Tokens, 8),
    (SymbolRole::Past, 0),
    (SymbolRole::PastAndTokens, 8),
    (SymbolRole::EncoderTokens, 8),
    (SymbolRole::Choices, 2),
    (SymbolRole::Prompts, 1),
    (SymbolRole::Points, 1),
    (SymbolRole::Channels, 3),
    (SymbolRole::Height, 224),
    (SymbolRole::Width, 224),
    (SymbolRole::Samples, 16_000),
    (SymbolRole::Frames, 128),
    (SymbolRole::Other, 1),
];

/// The library that makes tensors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Library {
    Numpy,
    Torch,
}

/// The inputs that are no cache entries.
pub(super) fn plain_inputs(part: &PartManifest) -> impl Iterator<Item = &Input> {
    part.inputs.iter().filter(|input| input.role.cache().is_none())
}

/// Values of inputs for the text in `encoding`, by their names; none where an input is not of each token.
pub(super) fn of_text(part: &PartManifest) -> Option<Vec<(String, String)>> {
    let one = |input: &Input| {
        let ids = match input.role {
            InputRole::TokenIds => "[encoding.ids]",
            InputRole::Mask => "[encoding.attention_mask]",
            InputRole::TokenTypes => "[encoding.type_ids]",
            InputRole::Positions => "[range(len(encoding.ids))]",
            _ => return None,
        };
        let dtype = dtype(input.value.dtype()?, Library::Numpy).filter(|_| input.value.dims().len() == 2)?;
        Some((quoted(&input.value.name), format!("np.array({ids}, {dtype})")))
    };
    plain_inputs(part).map(one).collect()
}

/// Values of inputs by their sizes alone, ones for masks and zeros for the rest; none where a size or a type is not known.
pub(super) fn of_sizes<'a>(
    part: &PartManifest,
    inputs: impl Iterator<Item = &'a Input>,
    library: Library,
) -> Option<Vec<(String, String)>> {
    let bindings = part.symbols.iter().map(|(symbol, role)| {
        let size = SIZES.iter().find(|(of, _)| of == role).map_or(1, |(_, size)| *size);
        (symbol.clone(), size)
    });
    let bindings: planish_ir::Bindings = bindings.collect();
    let one = |input: &Input| {
        let sizes: Vec<String> =
            input.value.dims().iter().map(|dim| Some(dim.evaluate(&bindings)?.to_string())).collect::<Option<_>>()?;
        let ty = input.value.ty.as_tensor()?;
        let is_mask = matches!(
            input.role,
            InputRole::Mask
                | InputRole::EncoderMask
                | InputRole::PixelMask
                | InputRole::RecordingMask
                | InputRole::PointLabels
        );
        let (fill, dtype) = (if is_mask { "ones" } else { "zeros" }, dtype(ty.dtype, library)?);
        let shape = if let [one] = sizes.as_slice() { format!("({one},)") } else { format!("({})", sizes.join(", ")) };
        let value = match library {
            _ if input.role == InputRole::PatchGrid => return None,
            Library::Numpy => format!("np.{fill}({shape}, {dtype})"),
            Library::Torch => format!("torch.{fill}({shape}, dtype={dtype})"),
        };
        Some((quoted(&input.value.name), value))
    };
    inputs.map(one).collect()
}

/// The name of an element type; none where the library has no such type.
pub(super) fn dtype(dtype: DType, library: Library) -> Option<String> {
    let name = match dtype {
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::F16 => "float16",
        DType::I64 => "int64",
        DType::I32 => "int32",
        DType::I8 => "int8",
        DType::U8 => "uint8",
        DType::Bool if library == Library::Numpy => "bool_",
        DType::Bool => "bool",
        DType::Bf16 if library == Library::Torch => "bfloat16",
        _ => return None,
    };
    Some(format!("{}.{name}", if library == Library::Numpy { "np" } else { "torch" }))
}

/// A text as a literal of Python and of JavaScript.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
