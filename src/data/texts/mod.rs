//! Texts in files of lines.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

/// The lines of a file that are not blank, so many at most.
pub(super) fn lines(path: &Path, most: usize) -> Result<Vec<String>> {
    read(path, most, |line| Ok(line.to_owned()))
}

/// The texts that objects contain as a member, an object a line, so many at most. Blank lines and texts are passed
/// over.
pub(super) fn members(path: &Path, field: &str, most: usize) -> Result<Vec<String>> {
    read(path, most, |line| {
        let value: Value = serde_json::from_str(line).context("this is not JSON")?;
        let object = value.as_object().context("this is not a JSON object")?;
        let names = || object.keys().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        match object.get(field) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(anyhow!("`{field}` is not a string; name the member with the text by --field")),
            None => Err(anyhow!("there is no `{field}`, but {}; --field names the text", names())),
        }
    })
}

fn read(path: &Path, most: usize, text: impl Fn(&str) -> Result<String>) -> Result<Vec<String>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut texts = Vec::new();
    for (index, line) in BufReader::new(file).lines().enumerate() {
        if texts.len() == most {
            break;
        }
        let at = || format!("{}, line {}", path.display(), index + 1);
        let line = line.with_context(at)?;
        if line.trim().is_empty() {
            continue;
        }
        let text = text(&line).with_context(at)?;
        if !text.trim().is_empty() {
            texts.push(text);
        }
    }
    if texts.is_empty() {
        bail!("{} contains no text", path.display());
    }
    Ok(texts)
}
