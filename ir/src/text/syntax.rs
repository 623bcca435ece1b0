//! Reading the small syntax that statements are made of.

use std::fmt::Write;

use crate::{Dim, Shape, TensorType};

/// Splits at each `separator` outside of brackets and quotes; the parts are trimmed. An empty text
/// has no parts.
pub(crate) fn split(text: &str, separator: char) -> Result<Vec<&str>, String> {
    let mut parts = Vec::new();
    let mut start = 0;
    scan(text, |at, c, depth| {
        if c == separator && depth == 0 {
            parts.push(text[start..at].trim());
            start = at + c.len_utf8();
        }
    })?;
    let rest = text[start..].trim();
    if !rest.is_empty() || !parts.is_empty() {
        parts.push(rest);
    }
    Ok(parts)
}

/// The text before and after the first `needle` outside of brackets and quotes.
pub(crate) fn cut<'a>(text: &'a str, needle: &str) -> Result<Option<(&'a str, &'a str)>, String> {
    let mut found = None;
    scan(text, |at, _, depth| {
        if found.is_none() && depth == 0 && text[at..].starts_with(needle) {
            found = Some(at);
        }
    })?;
    Ok(found.map(|at| (text[..at].trim(), text[at + needle.len()..].trim())))
}

/// The most brackets around a character: reading descends into them.
const MAX_DEPTH: usize = 200;

/// Calls `f` with each character outside of quotes, its position and the depth of brackets
/// around it; brackets themselves count as outside.
fn scan(text: &str, mut f: impl FnMut(usize, char, usize)) -> Result<(), String> {
    let mut depth = 0usize;
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        if quoted {
            quoted = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            continue;
        }
        if matches!(c, ')' | ']' | '}') {
            depth = depth.checked_sub(1).ok_or_else(|| format!("unexpected `{c}`"))?;
        }
        f(at, c, depth);
        match c {
            '(' | '[' | '{' if depth == MAX_DEPTH => {
                return Err(format!("brackets are nested more than {MAX_DEPTH} deep"));
            }
            '(' | '[' | '{' => depth += 1,
            '"' => quoted = true,
            _ => {}
        }
    }
    match (quoted, depth) {
        (true, _) => Err("a quote is not closed".to_owned()),
        (_, 0) => Ok(()),
        _ => Err("a bracket is not closed".to_owned()),
    }
}

/// Splits `head(inside)rest` into its three parts; `head` may be empty.
pub(crate) fn enclosed(text: &str, open: char, close: char) -> Result<(&str, &str, &str), String> {
    let expected = || format!("expected `{open}...{close}` in `{text}`");
    let mut bounds = (None, None);
    scan(text, |at, c, depth| {
        if depth == 0 && c == open && bounds.0.is_none() {
            bounds.0 = Some(at);
        }
        if depth == 0 && c == close && bounds.0.is_some() && bounds.1.is_none() {
            bounds.1 = Some(at);
        }
    })?;
    match bounds {
        (Some(a), Some(b)) => Ok((text[..a].trim(), text[a + 1..b].trim(), text[b + 1..].trim())),
        _ => Err(expected()),
    }
}

/// The items of `[a, b, ...]`.
pub(crate) fn list(text: &str) -> Result<Vec<String>, String> {
    match enclosed(text, '[', ']')? {
        ("", inside, "") => Ok(split(inside, ',')?.into_iter().map(str::to_owned).collect()),
        _ => Err(format!("expected a list in brackets, found `{text}`")),
    }
}

/// A quoted string.
pub(crate) fn string(text: &str) -> Result<String, String> {
    let inside = text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
    let inside = inside.ok_or_else(|| format!("expected a quoted string, found `{text}`"))?;
    let mut out = String::new();
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some(c @ ('"' | '\\')) => c,
                _ => return Err(format!("unknown escape in `{text}`")),
            },
            '"' => return Err(format!("unexpected text after the string in `{text}`")),
            c => c,
        });
    }
    Ok(out)
}

/// Whether a text is in one line, as it is.
pub(crate) fn is_quotable(text: &str) -> bool {
    !text.contains(|c: char| c.is_control() && c != '\n')
}

/// A string in quotes, as [`string`] reads it.
pub(crate) fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// The most factors of a product: reading takes time with the square of their number.
const MAX_FACTORS: usize = 256;

/// A dimension: sums of products of numbers and symbols.
pub(crate) fn dim(text: &str) -> Result<Dim, String> {
    let mut sum = Dim::constant(0);
    let mut rest = text.trim();
    let mut first = true;
    while first || !rest.is_empty() {
        let negative = rest.starts_with('-');
        if negative || (!first && rest.starts_with('+')) {
            rest = rest[1..].trim_start();
        } else if !first {
            return Err(format!("expected `+` or `-` before `{rest}` in dimension `{text}`"));
        }
        first = false;
        let end = rest.find(['+', '-']).unwrap_or(rest.len());
        let mut product = Dim::constant(if negative { -1 } else { 1 });
        for (i, factor) in rest[..end].split('*').enumerate() {
            if i == MAX_FACTORS {
                return Err(format!("a product in a dimension has more than {MAX_FACTORS} factors"));
            }
            let factor = factor.trim();
            // The smallest number has no positive counterpart.
            let smallest = i == 0 && negative && factor == "9223372036854775808";
            let next = if smallest { Some(Dim::constant(i64::MIN)) } else { product.checked_mul(&atom(factor, text)?) };
            product = next.ok_or_else(|| too_large(text))?;
        }
        sum = sum.checked_add(&product).ok_or_else(|| too_large(text))?;
        rest = &rest[end..];
    }
    Ok(sum)
}

fn too_large(text: &str) -> String {
    format!("dimension `{text}` does not fit 64 bits")
}

fn atom(factor: &str, text: &str) -> Result<Dim, String> {
    let starts_as_name = factor.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if starts_as_name && factor.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(Dim::symbol(factor));
    }
    if !factor.is_empty() && factor.bytes().all(|b| b.is_ascii_digit()) {
        return factor.parse().map(Dim::constant).map_err(|_| too_large(text));
    }
    Err(format!("`{factor}` is neither a number nor a symbol in dimension `{text}`"))
}

/// A shape such as `[batch_size, 128]`.
pub(crate) fn shape(text: &str) -> Result<Shape, String> {
    Ok(Shape::new(list(text)?.iter().map(|d| dim(d)).collect::<Result<Vec<_>, _>>()?))
}

/// A type such as `f32[batch_size, 128]`.
pub(crate) fn tensor_type(text: &str) -> Result<TensorType, String> {
    let at = text.find('[').ok_or_else(|| format!("expected a type such as f32[2, 3], found `{text}`"))?;
    Ok(TensorType::new(text[..at].parse()?, shape(&text[at..])?))
}

/// Bytes in hexadecimal, as [`unhex`] reads them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes of hexadecimal digits.
pub(crate) fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|d| d.len() % 2 == 0).ok_or("hexadecimal bytes expected")?;
    Ok(digits.chunks_exact(2).filter_map(|d| u8::try_from(d[0] << 4 | d[1]).ok()).collect())
}
