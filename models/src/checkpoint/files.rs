//! Small files of a checkpoint, read whole.

use std::path::Path;

use planish_files::Kind;

use crate::ModelError;

/// The JSON object that a file holds.
pub(crate) fn read_object(path: &Path, kind: &Kind) -> Result<serde_json::Map<String, serde_json::Value>, ModelError> {
    let bad = |message| ModelError::File { path: path.to_owned(), message };
    let bytes = planish_files::read(path, kind)?;
    let parsed = serde_json::from_slice(&bytes);
    // Python writes numbers that JSON does not have.
    match parsed.or_else(|e| serde_json::from_slice(&without_infinities(&bytes).ok_or(e)?)) {
        Ok(serde_json::Value::Object(object)) => Ok(object),
        Ok(_) => Err(bad("this is not a JSON object".to_owned())),
        Err(e) => Err(bad(format!("this is not JSON: {e}"))),
    }
}

/// The words that Python writes for numbers that are not finite, as the transformers library 5 writes them: as objects such as
/// `{"__float__": "Infinity"}`. `None` where there is none outside of strings.
fn without_infinities(bytes: &[u8]) -> Option<Vec<u8>> {
    const WORDS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let (mut result, mut rest, mut is_text, mut found) = (Vec::with_capacity(bytes.len()), bytes, false, false);
    while let Some(&byte) = rest.first() {
        let word = WORDS.iter().find(|word| !is_text && rest.starts_with(word));
        let taken = match (word, byte) {
            (Some(word), _) => {
                found = true;
                result.extend([b"{\"__float__\": \"", *word, b"\"}"].concat());
                rest = &rest[word.len()..];
                continue;
            }
            (None, b'\\') if is_text => 2,
            (None, b'"') => {
                is_text = !is_text;
                1
            }
            _ => 1,
        };
        let (now, later) = rest.split_at(taken.min(rest.len()));
        result.extend(now);
        rest = later;
    }
    found.then_some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_python_are_objects_outside_of_strings() {
        let text = br#"{"a": [0.0, Infinity], "b": -Infinity, "Infinity": "NaN \" NaN"}"#;
        let read: serde_json::Value = serde_json::from_slice(&without_infinities(text).unwrap()).unwrap();
        let number = |word: &str| serde_json::json!({"__float__": word});
        assert_eq!(read["a"][1], number("Infinity"));
        assert_eq!(read["b"], number("-Infinity"));
        assert_eq!(read["Infinity"], "NaN \" NaN");
        assert_eq!(without_infinities(b"{\"a\": \"NaN\"}"), None);
    }
}
