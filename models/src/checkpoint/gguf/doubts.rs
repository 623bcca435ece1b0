//! What a GGUF file says of its vocabulary that cannot be right, and does not stop a model from being built.

use std::collections::HashMap;

use super::kind::Kind;
use super::metadata::{Metadata, Value};

/// The special tokens that are named by their ids.
const SPECIAL: [&str; 4] = ["bos", "eos", "unknown", "padding"];

/// The doubts about a file whose embeddings have so many rows, a line each.
pub(super) fn doubts(kind: &Kind, metadata: &Metadata, vocabulary: usize) -> Vec<String> {
    let mut doubts = Vec::new();
    let size = format!("{}.vocab_size", kind.name);
    if let Some(value) = metadata.get(&size).filter(|value| **value != Value::Integer(vocabulary as i128)) {
        doubts.push(format!("`{size}` is {value}, and the embeddings have {vocabulary} rows, which are taken"));
    }
    let tokens = match metadata.get("tokenizer.ggml.tokens") {
        Some(Value::Array(list)) => metadata.texts(list).unwrap_or_default(),
        _ => return doubts,
    };
    for token in SPECIAL {
        let key = format!("tokenizer.ggml.{token}_token_id");
        let Some(value) = metadata.get(&key) else { continue };
        let is_one = matches!(value, Value::Integer(id) if usize::try_from(*id).is_ok_and(|id| id < tokens.len()));
        if !is_one {
            doubts.push(format!("`{key}` is {value}, which is none of the {} tokens, and is left out", tokens.len()));
        }
    }
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut equal = None;
    for (id, token) in tokens.iter().enumerate() {
        if let Some(before) = places.insert(*token, id) {
            let (first, count) = equal.unwrap_or(((before, id), 0));
            equal = Some((first, count + 1));
        }
    }
    if let Some(((a, b), count)) = equal {
        doubts.push(format!(
            "`tokenizer.ggml.tokens` has {count} tokens whose texts are those of others, such as {a} and {b}; texts become the last \
             of them"
        ));
    }
    if let Some(id) = places.get("") {
        doubts.push(format!("token {id} of `tokenizer.ggml.tokens` is empty; no text becomes it"));
    }
    doubts
}
