//! Samples of texts: what a record of a file is for a model.

use std::sync::Arc;

use serde_json::Value;

/// A text of a data set, and what is known of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) text: Text,
    /// The label; absent where none is asked for.
    pub(crate) label: Option<Label>,
    /// What its record is called; absent where that has no such field, or none is asked for.
    pub(crate) id: Option<Value>,
    /// Which document of its record it is, from 0 on; absent where a record is one text.
    pub(crate) document: Option<usize>,
}

impl Sample {
    fn new(text: Text, label: Option<Label>) -> Self {
        Self { text, label, id: None, document: None }
    }
}

/// What a model reads at once.
#[derive(Clone, Debug, PartialEq)]
pub enum Text {
    /// A text.
    One(String),
    /// Two texts that are read together. Pairs of one query share it.
    Pair(Arc<str>, String),
    /// A text that was divided into words, which have a label each.
    Words(Vec<String>),
}

impl Default for Text {
    /// A text of no characters.
    fn default() -> Self {
        Self::One(String::new())
    }
}

impl Text {
    /// The number of characters.
    pub(crate) fn characters(&self) -> u64 {
        let count = |text: &str| text.chars().count() as u64;
        match self {
            Self::One(text) => count(text),
            Self::Pair(first, second) => count(first) + count(second),
            Self::Words(words) => words.iter().map(|word| count(word)).sum(),
        }
    }

    /// The number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::One(text) => text.len(),
            Self::Pair(first, second) => first.len() + second.len(),
            Self::Words(words) => words.iter().map(String::len).sum(),
        }
    }

    pub(super) fn is_blank(&self) -> bool {
        let is_blank = |text: &str| text.trim().is_empty();
        match self {
            Self::One(text) => is_blank(text),
            Self::Pair(first, second) => is_blank(first) && is_blank(second),
            Self::Words(words) => words.iter().all(|word| is_blank(word)),
        }
    }
}

/// A label as a file has it.
#[derive(Clone, Debug, PartialEq)]
pub enum Label {
    /// The name of a class, or a number in a file without numbers.
    Name(String),
    /// A class or a score.
    Number(f64),
    /// One for each word.
    Words(Vec<Label>),
}

impl Label {
    /// A label from a value; `None` where it is neither a name nor a number.
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(name) => Some(Self::Name(name.clone())),
            Value::Number(number) => number.as_f64().map(Self::Number),
            Value::Bool(is_true) => Some(Self::Number(f64::from(u8::from(*is_true)))),
            _ => None,
        }
    }

    fn list(name: &str, value: &Value, wanted: usize, of: &str) -> Result<Vec<Self>, String> {
        let Value::Array(values) = value else {
            return Err(format!("`{name}` is not a list with a label for each of {of}"));
        };
        if values.len() != wanted {
            return Err(format!("`{name}` has {} labels, and {of} has {wanted} members", values.len()));
        }
        let label =
            |value| Self::of(value).ok_or_else(|| format!("`{name}` has a member that is neither a name nor a number"));
        values.iter().map(label).collect()
    }
}

/// The samples that a record is, by the values of its fields: `texts` and the label. `remedy` is what to do where
/// a text is something else.
///
/// Blank texts are samples too. A list of words is one text. A text and a list of texts are a query and its documents: a pair for each.
pub(super) fn samples(
    texts: &[String],
    label: Option<&str>,
    mut values: Vec<Value>,
    remedy: &str,
) -> Result<Vec<Sample>, String> {
    let label = match label {
        Some(name) => values.pop().map(|value| (name, value)),
        None => None,
    };
    let one = |label: &Option<(&str, Value)>| -> Result<Option<Label>, String> {
        let Some((name, value)) = label else { return Ok(None) };
        let found = Label::of(value);
        found.map(Some).ok_or_else(|| format!("`{name}` is not a label: it is neither a name nor a number"))
    };
    let mut values = texts.iter().zip(values);
    let samples = match (values.next(), values.next()) {
        (Some((name, Value::Array(words))), None) => {
            let words = strings(name, words)?;
            let label = match &label {
                Some((field, value)) => {
                    Some(Label::Words(Label::list(field, value, words.len(), &format!("`{name}`"))?))
                }
                None => None,
            };
            vec![Sample::new(Text::Words(words), label)]
        }
        (Some((name, text)), None) => {
            vec![Sample::new(Text::One(string(name, text, remedy)?), one(&label)?)]
        }
        (Some((query, text)), Some((name, Value::Array(documents)))) => {
            let (text, documents) = (Arc::from(string(query, text, remedy)?), strings(name, documents)?);
            let labels = match &label {
                Some((field, value)) => {
                    let labels = Label::list(field, value, documents.len(), &format!("`{name}`"))?;
                    labels.into_iter().map(Some).collect()
                }
                None => vec![None; documents.len()],
            };
            let sample = |(at, (document, label))| Sample {
                document: Some(at),
                ..Sample::new(Text::Pair(Arc::clone(&text), document), label)
            };
            documents.into_iter().zip(labels).enumerate().map(sample).collect()
        }
        (Some((first, one_text)), Some((second, other))) => {
            let text = Text::Pair(string(first, one_text, remedy)?.into(), string(second, other, remedy)?);
            vec![Sample::new(text, one(&label)?)]
        }
        (None, _) => Vec::new(),
    };
    Ok(samples)
}

fn string(name: &str, value: Value, remedy: &str) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Null => Err(format!("`{name}` is null")),
        _ => Err(format!("`{name}` is not a string; {remedy}")),
    }
}

fn strings(name: &str, values: Vec<Value>) -> Result<Vec<String>, String> {
    let string = |value| match value {
        Value::String(text) => Ok(text),
        _ => Err(format!("`{name}` is a list with a member that is not a string")),
    };
    values.into_iter().map(string).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(fields: &[&str], label: Option<&str>, values: Value) -> Result<Vec<Sample>, String> {
        let Value::Array(values) = values else { panic!("an array") };
        let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        samples(&fields, label, values, "name another member")
    }

    #[test]
    fn a_record_is_what_its_fields_say() {
        let text = |of: &str| of.to_owned();
        let sample = Sample::new;
        let name = |of: &str| Some(Label::Name(of.to_owned()));
        assert_eq!(of(&["t"], None, json!(["a b"])).unwrap(), [sample(Text::One(text("a b")), None)]);
        assert_eq!(of(&["t"], Some("l"), json!(["a", "good"])).unwrap(), [sample(Text::One(text("a")), name("good"))]);
        let pair = sample(Text::Pair("a".into(), text("b")), Some(Label::Number(2.5)));
        assert_eq!(of(&["t", "u"], Some("l"), json!(["a", "b", 2.5])).unwrap(), [pair]);
        let words = sample(
            Text::Words(vec![text("a"), text("b")]),
            Some(Label::Words(vec![Label::Number(0.0), Label::Number(3.0)])),
        );
        assert_eq!(of(&["t"], Some("l"), json!([["a", "b"], [0, 3]])).unwrap(), [words]);
        let documents = ["b", "c"].into_iter().zip([1.0, 0.0]);
        let ranked: Vec<Sample> = documents
            .enumerate()
            .map(|(at, (document, number))| Sample {
                document: Some(at),
                ..sample(Text::Pair("a".into(), text(document)), Some(Label::Number(number)))
            })
            .collect();
        let found = of(&["q", "d"], Some("r"), json!(["a", ["b", "c"], [1, 0]])).unwrap();
        assert_eq!(found, ranked);
        let [Text::Pair(one, _), Text::Pair(other, _)] = [&found[0].text, &found[1].text] else { panic!("pairs") };
        assert!(Arc::ptr_eq(one, other), "the query is in memory once");
        let is_blank = |fields: &[&str], values| of(fields, None, values).unwrap()[0].text.is_blank();
        assert!(is_blank(&["t"], json!(["  "])) && is_blank(&["t", "u"], json!([" ", ""])));
        assert!(!is_blank(&["t", "u"], json!([" ", "a"])));
    }

    #[test]
    fn what_a_record_is_not_is_said() {
        for (fields, values, message) in [
            (&["t"][..], json!([1, 0]), "`t` is not a string; name another member"),
            (&["t"], json!([null, 0]), "`t` is null"),
            (&["t"], json!(["a", null]), "`l` is not a label"),
            (&["t"], json!([["a", 1], [0, 0]]), "`t` is a list with a member that is not a string"),
            (&["t"], json!([["a", "b"], [0]]), "`l` has 1 labels, and `t` has 2 members"),
            (&["t"], json!([["a"], 0]), "`l` is not a list with a label for each of `t`"),
            (&["q", "d"], json!(["a", ["b"], [[]]]), "`l` has a member that is neither"),
        ] {
            let error = of(fields, Some("l"), values).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
