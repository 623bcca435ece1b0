//! Records that are lines.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use super::{Fields, OptionNames, Place, RECORD_BYTES, Record, Records, listed};

/// How many bytes are read at once where lines are counted.
const COUNTED_BYTES: usize = 1 << 20;

/// The lines of a file; blank ones are texts without content.
pub(super) fn plain(path: &Path) -> Result<Records> {
    records(path, |line| Ok(vec![Value::String(line)]))
}

/// The whole file as one text; one that is larger than a record may be as several, one after the other.
pub(super) fn whole(path: &Path) -> Result<Records> {
    let (mut file, _) = planish_files::open(path)?;
    let (name, mut rest) = (path.display().to_string(), Vec::new());
    let mut next = move || -> Result<Option<Record>> {
        let mut bytes = std::mem::take(&mut rest);
        let left = RECORD_BYTES.saturating_sub(bytes.len()) as u64;
        (&mut file).take(left).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let end = match str::from_utf8(&bytes) {
            Ok(text) => text.len(),
            // The last character goes on after what was read.
            Err(error) if error.error_len().is_none() && bytes.len() == RECORD_BYTES => error.valid_up_to(),
            Err(error) => bail!("{name} is not UTF-8 at byte {}", error.valid_up_to()),
        };
        rest = bytes.split_off(end);
        let text = String::from_utf8(bytes).with_context(|| format!("{name} is not UTF-8"))?;
        Ok(Some(Record::Values(vec![Value::String(text)], Place::Line(1))))
    };
    Ok(Box::new(std::iter::from_fn(move || next().transpose())))
}

/// The values that objects have as members, an object a line.
pub(super) fn objects(path: &Path, fields: &Fields<'_>, options: OptionNames) -> Result<Records> {
    let wanted: Vec<String> = fields.wanted.iter().map(|field| (*field).to_owned()).collect();
    let optional = fields.optional.map(str::to_owned);
    records(path, move |line| match line.trim().is_empty() {
        true => Ok(Vec::new()),
        false => members(&line, &wanted, optional.as_deref(), options),
    })
}

/// The number of lines.
pub(super) fn count(path: &Path) -> Result<u64> {
    let mut file = BufReader::with_capacity(COUNTED_BYTES, planish_files::open(path)?.0);
    let (mut lines, mut is_within) = (0, false);
    loop {
        let bytes = file.fill_buf()?;
        let Some(last) = bytes.last() else { return Ok(lines + u64::from(is_within)) };
        is_within = *last != b'\n';
        lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let read = bytes.len();
        file.consume(read);
    }
}

/// The names of the members of the first object.
pub(super) fn names(path: &Path) -> Result<Vec<String>> {
    let names = |line: String| -> Result<Vec<Value>> {
        let value: Value = serde_json::from_str(&line)?;
        Ok(value.as_object().into_iter().flat_map(|object| object.keys().cloned().map(Value::String)).collect())
    };
    for record in records(path, names)? {
        if let Record::Values(names, _) = record? {
            return Ok(names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect());
        }
    }
    Ok(Vec::new())
}

fn members(line: &str, fields: &[String], optional: Option<&str>, options: OptionNames) -> Result<Vec<Value>> {
    let mut value: Value = serde_json::from_str(line).context("this is not JSON")?;
    let object = value.as_object_mut().context("this is not a JSON object")?;
    if let Some(missing) = fields.iter().find(|field| !object.contains_key(*field)) {
        let names = listed(object.keys().map(String::as_str));
        bail!("there is no `{missing}`, but {names}; {}", options.remedy("member"));
    }
    // A text may be what its record is called.
    let last = optional.map(|field| object.get(field).cloned().unwrap_or_default());
    Ok(fields.iter().filter_map(|field| object.remove(field)).chain(last).collect())
}

fn records(path: &Path, values: impl Fn(String) -> Result<Vec<Value>> + 'static) -> Result<Records> {
    let context = format!("cannot read {}", path.display());
    let mut file = BufReader::new(planish_files::open(path)?.0);
    let name = path.display().to_string();
    // Whether a line of which only the beginning was read is to be passed over.
    let (mut number, mut within) = (0, false);
    let mut next = move || -> Result<Option<Record>> {
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
        let record = line.and_then(&values).with_context(|| format!("{name}, line {number}"));
        Ok(Some(record.map_or_else(Record::Bad, |values| Record::Values(values, Place::Line(number)))))
    };
    Ok(Box::new(std::iter::from_fn(move || next().transpose())))
}
