//! What the model card beside a model says that goes on to what is made of it. A card of the Hugging Face hub is a README.md that
//! begins with YAML between two lines `---`.
//!
//! Of the YAML this reads the few keys below, a line at a time: `key: value`, `key: [a, b]`, and `key:` with lines `- value` after
//! it. Other forms of values, such as texts of several lines, are left out.

use std::path::Path;

use planish_files::{FileError, Kind};
use serde::{Deserialize, Serialize};

/// The name of a model card.
pub const CARD: &str = "README.md";

/// The line before and after the YAML.
const FENCE: &str = "---";

/// The metadata of a model card that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelCard {
    /// The identifier of the license, such as `apache-2.0` or `other`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// The name of a license that is `other`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license_name: Option<String>,
    /// Where that license is: an address, or a file beside the card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license_link: Option<String>,
    /// The codes of the languages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub language: Vec<String>,
    /// What the model was made from, by names of the hub.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub base_model: Vec<String>,
    /// How it was made from that, where the card says so: `finetune`, `adapter`, `merge` or `quantized`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_model_relation: Option<String>,
    /// The task, by the hub's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline_tag: Option<String>,
}

impl ModelCard {
    /// Reads the card in a folder; none where there is no card, or it says nothing that is kept.
    ///
    /// # Errors
    /// When the card cannot be read.
    pub fn read(folder: &Path) -> Result<Option<Self>, FileError> {
        let text = planish_files::read_if_there(&folder.join(CARD), &Kind::CARD)?;
        Ok(text.map(|text| Self::parse(&text)).filter(|card| *card != Self::default()))
    }

    /// The metadata of a text; empty where it does not begin with YAML.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut lines = text.trim_start_matches('\u{feff}').lines().map(str::trim_end);
        if lines.next() != Some(FENCE) {
            return Self::default();
        }
        let lines: Vec<&str> = lines.collect();
        let Some(end) = lines.iter().position(|line| *line == FENCE) else { return Self::default() };
        let mut card = Self::default();
        let mut rest = &lines[..end];
        while let [line, after @ ..] = rest {
            rest = after;
            let Some((key, value)) = line.split_once(':').filter(|(key, _)| !key.starts_with([' ', '#', '-'])) else {
                continue;
            };
            let values = match plain(value) {
                "" => items(&mut rest),
                list if list.starts_with('[') => flow(list),
                value => scalar(value).into_iter().collect(),
            };
            card.set(key.trim(), values);
        }
        card
    }

    fn set(&mut self, key: &str, values: Vec<String>) {
        let first = values.first().cloned();
        match key {
            "license" => self.license = first,
            "license_name" => self.license_name = first,
            "license_link" => self.license_link = first,
            "language" => self.language = values,
            "base_model" => self.base_model = values,
            "base_model_relation" => self.base_model_relation = first,
            "pipeline_tag" => self.pipeline_tag = first,
            _ => {}
        }
    }
}

/// A value without blanks around it and without a comment after it.
fn plain(value: &str) -> &str {
    let value = value.trim();
    if value.starts_with('#') {
        return "";
    }
    match value.starts_with(['"', '\'']) {
        true => value,
        false => value.split_once(" #").map_or(value, |(value, _)| value.trim_end()),
    }
}

/// The lines `- value` at the front, which are taken away.
fn items(rest: &mut &[&str]) -> Vec<String> {
    let mut values = Vec::new();
    while let [line, after @ ..] = *rest {
        match line.trim_start().strip_prefix('-').filter(|value| value.starts_with(' ')) {
            Some(value) => values.extend(scalar(plain(value))),
            None if line.trim_start().is_empty() || line.trim_start().starts_with('#') => {}
            None => break,
        }
        *rest = after;
    }
    values
}

/// The values of a list in brackets.
fn flow(list: &str) -> Vec<String> {
    let inner = list.strip_prefix('[').and_then(|list| list.strip_suffix(']'));
    inner.into_iter().flat_map(|inner| inner.split(',')).filter_map(|value| scalar(plain(value))).collect()
}

/// A text of one line; none of other forms.
fn scalar(value: &str) -> Option<String> {
    let quoted = |quote: char| value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
    let text = match (quoted('"'), quoted('\'')) {
        (Some(text), _) if text.contains(['\\', '"']) => return serde_json::from_str(value).ok(),
        (Some(text), _) => text.to_owned(),
        (None, Some(text)) => text.replace("''", "'"),
        // Maps, anchors, tags, texts of several lines, and what is quoted and goes on after the quote.
        (None, None) if value.starts_with(['"', '\'', '{', '[', '|', '>', '&', '*', '!', '%', '@', '`']) => {
            return None;
        }
        (None, None) if value.contains(": ") || ["~", "null"].contains(&value) => return None,
        (None, None) => value.to_owned(),
    };
    Some(text).filter(|text| !text.trim().is_empty() && !text.chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(values: &[&str]) -> Vec<String> {
        values.iter().map(|value| (*value).to_owned()).collect()
    }

    #[test]
    fn the_usual_forms_are_read() {
        let text = "---\nlanguage:\n- en\n  # a comment\n- \"no\"\nlicense: other # see below\nlicense_name: 'the team''s'\n\
                    license_link: https://example.org/a#b\nbase_model: [org/a, 'org/b']\ntags:\n- license\n\
                    pipeline_tag: text-generation\r\nmodel-index:\n- name: x\n  license: mit\n---\nlicense: mit\n";
        let card = ModelCard::parse(text);
        assert_eq!(card.language, texts(&["en", "no"]));
        assert_eq!(card.license.as_deref(), Some("other"));
        assert_eq!(card.license_name.as_deref(), Some("the team's"));
        assert_eq!(card.license_link.as_deref(), Some("https://example.org/a#b"));
        assert_eq!(card.base_model, texts(&["org/a", "org/b"]));
        assert_eq!(card.pipeline_tag.as_deref(), Some("text-generation"));
        assert_eq!(card.base_model_relation, None);
        let indented = ModelCard::parse("---\nlanguage:\n  - de\n  - fr\nlicense: \"a\\u0062\"\n---");
        assert_eq!((indented.language, indented.license.as_deref()), (texts(&["de", "fr"]), Some("ab")));
    }

    #[test]
    fn what_is_no_such_text_says_nothing() {
        for text in [
            "",
            "# A title\nlicense: mit",
            "---\nlicense: mit\n",
            "text\n---\nlicense: mit\n---",
            "---\nlicense: |\n  mit\n---",
            "---\nlicense: {a: b}\n---",
            "---\nlicense: &a mit\n---",
            "---\nlicense: \"mit\" x\n---",
            "---\nlicense: null\n---",
            "---\nlicense:\n---",
            "---\nlanguage: [\n---",
            "---\nlanguage:\n- {a: b}\n---",
            "---\n license: mit\n---",
        ] {
            assert_eq!(ModelCard::parse(text), ModelCard::default(), "{text}");
        }
    }

    #[test]
    fn a_folder_may_have_no_card() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(ModelCard::read(folder.path()).unwrap(), None);
        std::fs::write(folder.path().join(CARD), "# A model\n").unwrap();
        assert_eq!(ModelCard::read(folder.path()).unwrap(), None);
        std::fs::write(folder.path().join(CARD), "---\nlicense: mit\n---\n").unwrap();
        assert_eq!(ModelCard::read(folder.path()).unwrap().unwrap().license.as_deref(), Some("mit"));
        std::fs::write(folder.path().join(CARD), [0xff, 0xfe]).unwrap();
        ModelCard::read(folder.path()).unwrap_err();
    }
}
