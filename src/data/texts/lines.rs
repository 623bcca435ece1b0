//! Records that are lines.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

use super::{RECORD_BYTES, Record, Records, listed};

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
    let names = || listed(object.keys().map(String::as_str));
    match object.get(field) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(anyhow!("`{field}` is not a string; name the member with the text by --field")),
        None => Err(anyhow!("there is no `{field}`, but {}; --field names the text", names())),
    }
}

fn records(path: &Path, text: impl Fn(String) -> Result<String> + 'static) -> Result<Records> {
    let context = format!("cannot read {}", path.display());
    let mut file = BufReader::new(planish_files::open(path)?.0);
    let name = path.display().to_string();
    // Whether a line of which only the beginning was read is to be passed over.
    let (mut number, mut within) = (0usize, false);
    let next = move || -> Result<Option<Record>> {
        if std::mem::take(&mut within) {
            file.skip_until(b'\n').context(context.clone())?;
        }
        let mut line = Vec::new();
        let bounded = &mut (&mut file).take(RECORD_BYTES as u64 + 1);
        if bounded.read_until(b'\n', &mut line).context(context.clone())? == 0 {
            return Ok(None);
        }
        number += 1;
        if line.len() > RECORD_BYTES && line.last() != Some(&b'\n') {
            within = true;
            return Ok(Some(Record::Bad(anyhow!(
                "{name}, line {number}: it has more than {RECORD_BYTES} bytes, the most that is read of a text; divide it"
            ))));
        }
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
