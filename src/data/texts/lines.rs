//! Records that are lines.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

use super::{Record, Records};

/// The lines of a file; blank ones are texts without content.
pub(super) fn plain(path: &Path) -> Result<Records> {
    records(path, Ok)
}

/// The texts that objects contain as a member, an object a line.
pub(super) fn objects(path: &Path, field: &str) -> Result<Records> {
    let field = field.to_owned();
    records(path, move |line| if line.trim().is_empty() { Ok(line) } else { member(&line, &field) })
}

fn member(line: &str, field: &str) -> Result<String> {
    let value: Value = serde_json::from_str(line).context("this is not JSON")?;
    let object = value.as_object().context("this is not a JSON object")?;
    let names = || object.keys().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
    match object.get(field) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(anyhow!("`{field}` is not a string; name the member with the text by --field")),
        None => Err(anyhow!("there is no `{field}`, but {}; --field names the text", names())),
    }
}

fn records(path: &Path, text: impl Fn(String) -> Result<String> + 'static) -> Result<Records> {
    let context = format!("cannot read {}", path.display());
    let mut file = BufReader::new(File::open(path).context(context.clone())?);
    let name = path.display().to_string();
    let mut number = 0usize;
    let next = move || -> Result<Option<Record>> {
        let mut line = Vec::new();
        if file.read_until(b'\n', &mut line).context(context.clone())? == 0 {
            return Ok(None);
        }
        number += 1;
        while matches!(line.last(), Some(b'\n' | b'\r')) {
            line.pop();
        }
        let line = String::from_utf8(line).context("this is not UTF-8");
        let record = line.and_then(&text).with_context(|| format!("{name}, line {number}"));
        Ok(Some(record.map_or_else(Record::Bad, Record::Text)))
    };
    let mut next = next;
    Ok(Box::new(std::iter::from_fn(move || next().transpose())))
}
