//! Which members or columns of a file have the texts that predictions are of.

use std::path::Path;

use planish_data::fields_of;

use super::head::Head;

/// The names of the texts of pairs, the likeliest first.
const PAIRS: [[&str; 2]; 6] = [
    ["query", "document"],
    ["query", "documents"],
    ["query", "text"],
    ["text", "text_pair"],
    ["sentence1", "sentence2"],
    ["premise", "hypothesis"],
];

/// The names of a question and of the text with its answer.
const QUESTION: [&str; 2] = ["question", "context"];

impl Head {
    /// The names of the texts: those that are given, or those of the file that are usual.
    pub(super) fn field(&self, data: &Path, given: Option<&str>, note: &mut dyn FnMut(&str)) -> Option<String> {
        if let Some(given) = given {
            return Some(given.to_owned());
        }
        let names = fields_of(data);
        let has = |name: &&str| names.iter().any(|own| own == name);
        let pair = match self {
            Self::Answer { .. } => return Some(QUESTION.join(",")),
            Self::Score { .. } => PAIRS.iter().find(|pair| pair.iter().all(&has)),
            Self::Class { .. } if !has(&"text") || has(&"text_pair") => PAIRS.iter().find(|pair| pair.iter().all(&has)),
            _ => None,
        }?;
        let field = pair.join(",");
        note(&format!("pairs of texts are read from {field}; --field names others"));
        Some(field)
    }
}
