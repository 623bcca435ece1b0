//! Cache entries by their names: `past_key_values.0.key` and `present.0.decoder.key` of Optimum and Transformers.js,
//! `past_conv.0` and `past_recurrent.0` of the latter, `past_key_values.layers.0.keys` of PyTorch's exporter, and
//! `past_key_self_0`, `present_key_cross_0` and `past.0.conv` of onnxruntime-genai.

use planish_ir::TensorType;
use planish_ir::interface::{CacheEntry, CacheKind, CacheTensor};

/// What the names of inputs and outputs begin with, the longest first.
const PAST: &[&str] = &["past_key_values", "past_states", "past"];
const PRESENT: &[&str] = &["present_key_values", "present_states", "present"];

/// What words of a name say.
#[derive(Clone, Copy)]
enum Word {
    Tensor(CacheTensor),
    Kind(CacheKind),
    /// Nothing.
    Filler,
}

const WORDS: &[(&str, Word)] = &[
    ("key", Word::Tensor(CacheTensor::Key)),
    ("keys", Word::Tensor(CacheTensor::Key)),
    ("value", Word::Tensor(CacheTensor::Value)),
    ("values", Word::Tensor(CacheTensor::Value)),
    ("query", Word::Tensor(CacheTensor::Query)),
    ("encoder", Word::Kind(CacheKind::Encoder)),
    ("cross", Word::Kind(CacheKind::Encoder)),
    ("conv", Word::Kind(CacheKind::Convolution)),
    ("recurrent", Word::Kind(CacheKind::Recurrent)),
    ("ssm", Word::Kind(CacheKind::Recurrent)),
    ("decoder", Word::Filler),
    ("self", Word::Filler),
    ("layers", Word::Filler),
    ("cache", Word::Filler),
    ("state", Word::Filler),
];

/// The entry that an input is.
pub(super) fn past(name: &str, ty: Option<&TensorType>) -> Option<CacheEntry> {
    entry(name, PAST, ty)
}

/// The entry that an output is.
pub(super) fn present(name: &str, ty: Option<&TensorType>) -> Option<CacheEntry> {
    entry(name, PRESENT, ty)
}

fn entry(name: &str, beginnings: &[&str], ty: Option<&TensorType>) -> Option<CacheEntry> {
    let rest = beginnings.iter().find_map(|beginning| name.strip_prefix(beginning)?.strip_prefix(['.', '_']))?;
    let (mut layer, mut tensor, mut kind) = (None, None, None);
    for word in rest.split(['.', '_']) {
        if let Ok(number) = word.parse::<usize>() {
            // Two numbers are none of a layer.
            if layer.replace(number).is_some() {
                return None;
            }
            continue;
        }
        let (_, word) = WORDS.iter().find(|(known, _)| *known == word)?;
        match *word {
            // `key_value` is one tensor of both.
            Word::Tensor(CacheTensor::Value) if tensor == Some(CacheTensor::Key) => {
                tensor = Some(CacheTensor::KeyAndValue);
            }
            Word::Tensor(of) => tensor = Some(of),
            Word::Kind(of) => kind = Some(of),
            Word::Filler => {}
        }
    }
    let state = matches!(kind, Some(CacheKind::Convolution | CacheKind::Recurrent));
    let tensor = tensor.unwrap_or(if state { CacheTensor::State } else { CacheTensor::KeyAndValue });
    let kind = kind.unwrap_or(CacheKind::Growing { axis: growing_axis(ty) });
    Some(CacheEntry { layer: layer?, kind, tensor })
}

/// The axis of tokens of keys and values: the last but one. Names alone are of [rows, heads, tokens, size].
fn growing_axis(ty: Option<&TensorType>) -> usize {
    ty.map_or(2, |ty| ty.shape.rank().saturating_sub(2))
}
