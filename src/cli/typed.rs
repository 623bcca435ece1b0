//! What is read from standard input: texts of bounded length.

use std::io::{BufRead, Read, stdin};

use anyhow::{Context, Result, bail};
use planish_files::Kind;

/// The most bytes of a text: more than any tokenizer takes in its time.
const MOST_BYTES: u64 = 4 << 20;

/// All of standard input, without the end of its last line.
///
/// # Errors
/// When it cannot be read, is not UTF-8, or is too long.
pub(super) fn read_prompt() -> Result<String> {
    let mut bytes = Vec::new();
    stdin().lock().take(MOST_BYTES + 1).read_to_end(&mut bytes).context("cannot read standard input")?;
    text(bytes)
}

/// All of standard input, which may be as long as a file of some kind.
///
/// # Errors
/// As [`read_prompt`].
pub(super) fn read_all(kind: &Kind) -> Result<String> {
    let mut bytes = Vec::new();
    stdin().lock().take(kind.limit + 1).read_to_end(&mut bytes).context("cannot read standard input")?;
    if bytes.len() as u64 > kind.limit {
        bail!("standard input is longer than {} MB; divide it", kind.limit >> 20);
    }
    String::from_utf8(bytes).context("standard input is not UTF-8")
}

/// The next line of standard input, without its end; none after the last one.
///
/// # Errors
/// As [`read_prompt`].
pub(super) fn read_line() -> Result<Option<String>> {
    let mut bytes = Vec::new();
    stdin().lock().take(MOST_BYTES + 1).read_until(b'\n', &mut bytes).context("cannot read standard input")?;
    if bytes.is_empty() { Ok(None) } else { text(bytes).map(Some) }
}

fn text(bytes: Vec<u8>) -> Result<String> {
    if bytes.len() as u64 > MOST_BYTES {
        bail!("a text on standard input is longer than {} MB", MOST_BYTES >> 20);
    }
    let mut text = String::from_utf8(bytes).context("standard input is not UTF-8")?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}
