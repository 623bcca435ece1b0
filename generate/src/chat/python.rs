//! Values as Python writes them: printed, and as JSON.

use std::fmt::Write;

use minijinja::value::{Kwargs, Tuple, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// The most levels of lists and maps in each other that are written.
const MOST_LEVELS: usize = 100;

/// The most bytes that are written of one value.
const MOST_BYTES: usize = 16 << 20;

/// The most spaces of an indent.
pub(super) const MOST_SPACES: usize = 1000;

/// A value as `str` of Python gives it.
pub(super) fn text(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    match value.as_str() {
        Some(text) => out.push_str(text),
        None => print(value, 0, &mut out)?,
    }
    Ok(out)
}

/// A value as `repr` of Python gives it.
fn print(value: &Value, level: usize, out: &mut String) -> Result<(), Error> {
    bounded(level, out)?;
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => number(value, out),
        ValueKind::String => quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq => {
            let is_tuple = value.downcast_object_ref::<Tuple>().is_some();
            out.push(if is_tuple { '(' } else { '[' });
            let mut count = 0;
            for item in value.try_iter()? {
                out.push_str(if count > 0 { ", " } else { "" });
                print(&item, level + 1, out)?;
                count += 1;
            }
            out.push_str(match (is_tuple, count) {
                (false, _) => "]",
                (true, 1) => ",)",
                (true, _) => ")",
            });
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                print(&key, level + 1, out)?;
                out.push_str(": ");
                print(&value.get_item(&key)?, level + 1, out)?;
            }
            out.push('}');
        }
        // Of others Python prints where they are in memory.
        _ => _ = write!(out, "{value}"),
    }
    Ok(())
}

/// A string in quotes, single ones unless it has just those.
fn quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_ascii_control() => _ = write!(out, "\\x{:02x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// A number: the fewest digits that tell it from others.
fn number(value: &Value, out: &mut String) {
    match f64::try_from(value.clone()) {
        Ok(number) if !value.is_integer() => float(number, out),
        _ => _ = write!(out, "{value}"),
    }
}

fn float(number: f64, out: &mut String) {
    let magnitude = number.abs();
    let plain = magnitude == 0.0 || (1e-4..1e16).contains(&magnitude);
    let _ = match format!("{number:e}").split_once('e') {
        _ if number.is_nan() => write!(out, "nan"),
        _ if number.is_infinite() => write!(out, "{}inf", if number < 0.0 { "-" } else { "" }),
        // Python has a sign and two digits in exponents.
        Some((digits, exponent)) if !plain => match exponent.strip_prefix('-') {
            Some(exponent) => write!(out, "{digits}e-{exponent:0>2}"),
            None => write!(out, "{digits}e+{exponent:0>2}"),
        },
        _ => write!(out, "{number:?}"),
    };
}

/// How JSON is written.
struct Style {
    /// What each level is indented by, where there are lines.
    indent: Option<String>,
    item: String,
    key: String,
    ascii: bool,
    sorted: bool,
}

/// The filter `tojson` as the transformers library has it: `json.dumps` without escapes for HTML.
pub(super) fn tojson(value: &Value, ascii: Option<bool>, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<Value> = kwargs.get("indent")?;
    let indent = match indent.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => Some(match indent.as_usize() {
            Some(spaces) => spaces_of(spaces)?,
            None => indent.as_str().unwrap_or_default().to_owned(),
        }),
    };
    let item = if indent.is_some() { "," } else { ", " };
    let separators: Option<Value> = kwargs.get("separators")?;
    let (item, key) = match separators.filter(|separators| !separators.is_none()) {
        None => (item.to_owned(), ": ".to_owned()),
        Some(pair) => (text(&pair.get_item_by_index(0)?)?, text(&pair.get_item_by_index(1)?)?),
    };
    let ascii = ascii.or(kwargs.get("ensure_ascii")?).unwrap_or(false);
    let sorted = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let mut out = String::new();
    json(value, &Style { indent, item, key, ascii, sorted }, 0, &mut out)?;
    Ok(Value::from(out))
}

/// So many spaces, if that is a sensible number.
pub(super) fn spaces_of(count: usize) -> Result<String, Error> {
    match count <= MOST_SPACES {
        true => Ok(" ".repeat(count)),
        false => Err(refused(format!("an indent of {count} is more than {MOST_SPACES}"))),
    }
}

fn json(value: &Value, style: &Style, level: usize, out: &mut String) -> Result<(), Error> {
    bounded(level, out)?;
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => json_number(value, out),
        ValueKind::String => json_string(value.as_str().unwrap_or_default(), style.ascii, out),
        ValueKind::Seq | ValueKind::Iterable => {
            items(value.try_iter()?, ['[', ']'], style, level, out, &mut |item, out| {
                json(item, style, level + 1, out)
            })?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sorted {
                keys.sort();
            }
            items(keys.into_iter(), ['{', '}'], style, level, out, &mut |key, out| {
                let mut name = String::new();
                match key.as_str() {
                    Some(key) => name.push_str(key),
                    None => json(key, style, level + 1, &mut name)?,
                }
                json_string(&name, style.ascii, out);
                out.push_str(&style.key);
                json(&value.get_item(key)?, style, level + 1, out)
            })?;
        }
        kind => return Err(refused(format!("tojson of what is {kind}"))),
    }
    Ok(())
}

/// The items of a list or map between its brackets.
fn items(
    items: impl Iterator<Item = Value>,
    [open, close]: [char; 2],
    style: &Style,
    level: usize,
    out: &mut String,
    write: &mut dyn FnMut(&Value, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    let line = |level: usize, out: &mut String| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            (0..level).for_each(|_| out.push_str(indent));
        }
    };
    out.push(open);
    let mut is_empty = true;
    for item in items {
        if !is_empty {
            out.push_str(&style.item);
        }
        is_empty = false;
        line(level + 1, out);
        write(&item, out)?;
    }
    if !is_empty {
        line(level, out);
    }
    out.push(close);
    Ok(())
}

fn json_number(value: &Value, out: &mut String) {
    match f64::try_from(value.clone()) {
        Ok(number) if number.is_nan() => out.push_str("NaN"),
        Ok(number) if number.is_infinite() => out.push_str(if number < 0.0 { "-Infinity" } else { "Infinity" }),
        _ => self::number(value, out),
    }
}

fn json_string(text: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            c if c < ' ' || (ascii && !(' '..='~').contains(&c)) => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| _ = write!(out, "\\u{unit:04x}"));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The filter `indent` of Jinja: all lines but the first and blank ones, unless those are asked for.
pub(super) fn indent(
    value: &Value,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let spaces = spaces_of(width.or(kwargs.get("width")?).unwrap_or(4))?;
    let first = first.or(kwargs.get("first")?).unwrap_or(false);
    let blank = blank.or(kwargs.get("blank")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let mut out = String::new();
    for (i, line) in text(value)?.split('\n').enumerate() {
        out.push_str(if i > 0 { "\n" } else { "" });
        let indents = if i > 0 { blank || !line.is_empty() } else { first };
        out.push_str(if indents { &spaces } else { "" });
        out.push_str(line);
        bounded(0, &out)?;
    }
    Ok(Value::from(out))
}

fn bounded(level: usize, out: &str) -> Result<(), Error> {
    if level > MOST_LEVELS {
        return Err(refused(format!("a value of more than {MOST_LEVELS} lists and maps in each other")));
    }
    if out.len() > MOST_BYTES {
        return Err(refused(format!("a text of more than {} MB", MOST_BYTES >> 20)));
    }
    Ok(())
}

pub(super) fn refused(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_python_does() {
        let printed = |number: f64| text(&Value::from(number)).unwrap();
        let all = [0.0, -1.0, 0.1 + 0.2, 1e15, 1e16, 1.5e300, 1e-4, 12e-6, -1e-100, f64::NAN, f64::NEG_INFINITY];
        let expected = "0.0 -1.0 0.30000000000000004 1000000000000000.0 1e+16 1.5e+300 0.0001 1.2e-05 -1e-100 nan -inf";
        assert_eq!(all.map(printed).join(" "), expected);
        assert_eq!(text(&Value::from(10)).unwrap(), "10");
    }

    #[test]
    fn strings_are_quoted_as_python_does() {
        let of = |word: &str| text(&Value::from(vec![Value::from(word)])).unwrap();
        assert_eq!(of("it's"), "[\"it's\"]");
        assert_eq!(of("\"it's\"\n\x01é"), "['\"it\\'s\"\\n\\x01é']");
    }
}
