//! Documents that a benchmark wrote before.

use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_files::Kind;
use serde_json::Value;

use super::document::{Document, SCHEMA};

impl Document {
    /// Reads the file that `planish bench --json FILE` wrote.
    ///
    /// # Errors
    /// When it cannot be read, is not such a document, or one of another version of the form.
    pub fn read(path: &Path) -> Result<Self> {
        let text = planish_files::read(path, &Kind::BENCHMARK)?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &[u8]) -> Result<Self> {
        let value: Value = serde_json::from_slice(text).context("this is not JSON")?;
        let (Some(schema), true) = (value.get("schema").and_then(Value::as_u64), value.get("cells").is_some()) else {
            bail!("this is not a document of planish bench: give a file that `planish bench --json FILE` wrote");
        };
        if schema != u64::from(SCHEMA) {
            let version = value.pointer("/tool/version").and_then(Value::as_str);
            let writer = version.map_or_else(String::new, |version| format!(" (written by planish {version})"));
            bail!(
                "this document has version {schema} of the form{writer}, and this planish reads version {SCHEMA}: measure \
                 again with this planish"
            );
        }
        // From the text and not from the value: the error then has the line.
        serde_json::from_slice(text).with_context(|| format!("this is not a document of version {SCHEMA}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::examples::{cell, document};
    use super::*;

    #[test]
    fn what_was_written_can_be_read() {
        let written = serde_json::to_string(&document(vec![cell("a", 8, Some(3)), cell("b", 8, None)])).unwrap();
        let read = Document::parse(written.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), written);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let good = serde_json::to_string(&document(vec![cell("a", 8, Some(3))])).unwrap();
        let cases = [
            ("{", "this is not JSON: EOF while parsing an object at line 1 column 1".to_owned()),
            ("[1]", "this is not a document of planish bench".to_owned()),
            (r#"{"schema": 4, "producer": "planish 0.1.0"}"#, "this is not a document of planish bench".to_owned()),
            (
                &good.replace("\"schema\":2", "\"schema\":1"),
                "version 1 of the form (written by planish 0.1.0)".to_owned(),
            ),
            (&good.replace("\"schema\":2", "\"schema\":\"2\""), "this is not a document of planish bench".to_owned()),
            (
                &good.replace("\"p50\"", "\"p51\""),
                "not a document of version 2: missing field `p50` at line 1".to_owned(),
            ),
            (&good.replace("\"encode\"", "\"sing\""), "unknown variant `sing`".to_owned()),
        ];
        for (text, expected) in cases {
            let error = format!("{:#}", Document::parse(text.as_bytes()).unwrap_err());
            assert!(error.contains(&expected), "{text}: {error}");
        }
    }
}
