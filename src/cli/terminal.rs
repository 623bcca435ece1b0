//! Where text from files goes to standard output and standard error.
//!
//! Names, values and messages come out of files by unknown authors. So what could move the cursor, change colours or the order of
//! letters is shown as an escape, and lines after the first of a message are indented, so that a line break in a name makes no
//! message of its own. JSON, and text in a pipe that a command was asked for, are as they are.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use indicatif::ProgressDrawTarget;
use serde::Serialize;

/// The most characters of a word of a message: a longer one loses its middle.
const WORD: usize = 1_000;

/// The most characters of a line of a message.
const LINE: usize = 8_000;

/// The most characters of a name in a table.
const NAME: usize = 200;

/// Whether `--quiet` is given.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Leaves out notes and progress from now on, or not. Warnings, errors and what a command was asked for stay.
pub(crate) fn set_quiet(is_quiet: bool) {
    IS_QUIET.store(is_quiet, Ordering::Relaxed);
}

fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Writes to standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    print_exact(&escaped(text))
}

/// Writes text that a model or planish made to standard output: as it is where no terminal reads it.
pub(crate) fn print_made(text: &str) -> Result<()> {
    if is_output_terminal() { print(text) } else { print_exact(text) }
}

/// Writes one JSON document to standard output: for a person on a terminal, else on one line.
pub(crate) fn print_json(document: &impl Serialize) -> Result<()> {
    let text = match is_output_terminal() {
        true => escaped_json(&serde_json::to_string_pretty(document)?),
        false => serde_json::to_string(document)?,
    };
    print_exact(&(text + "\n"))
}

/// JSON with its own escapes in place of characters that do more than show themselves.
fn escaped_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match acts(c) {
            // Writing to a string does not fail.
            true => _ = write!(shown, "\\u{:04x}", u32::from(c)),
            false => shown.push(c),
        }
    }
    shown
}

/// Writes lines of JSON to standard output.
pub(crate) fn print_lines(lines: &str) -> Result<()> {
    if is_output_terminal() { print_exact(&escaped_json(lines)) } else { print_exact(lines) }
}

fn print_exact(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Writes a warning to standard error, each text once.
pub(crate) fn warn(text: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned()) {
        say(&message("warning: ", text));
    }
}

/// Writes a note to standard error, such as a default that was assumed.
pub(crate) fn note(text: &str) {
    progress(&message("note: ", text));
}

/// Writes lines to standard error about what goes on.
pub(crate) fn progress(text: &str) {
    if !is_quiet() {
        say(text);
    }
}

pub(crate) fn error(text: &str) {
    say(&message("error: ", text));
}

/// Writes lines to standard error that the command was asked for, beside those of its output.
pub(crate) fn say(text: &str) {
    let text = escaped(text);
    let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
    // Standard error may be closed; nothing that is said there is worth failing for.
    let _ = io::stderr().lock().write_all([text.as_bytes(), end.as_bytes()].concat().as_slice());
}

/// Whether a terminal shows standard output.
pub(crate) fn is_output_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether a terminal shows standard error.
pub(crate) fn is_error_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Where a bar shows progress: on a terminal that is to show it.
pub(crate) fn bars() -> ProgressDrawTarget {
    if is_error_terminal() && !is_quiet() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}

/// A message: lines after the first are indented, and words and lines that are too long lose their middle.
fn message(kind: &str, text: &str) -> String {
    let mut message = kind.to_owned();
    for (number, line) in text.trim_end().lines().enumerate() {
        if number > 0 {
            message.push('\n');
            if !line.starts_with(' ') {
                message.push_str("  ");
            }
        }
        // Blanks stay as they are.
        let words = line.split_inclusive(' ').map(|word| shortened(word, WORD));
        message.push_str(&shortened(&words.collect::<String>(), LINE));
    }
    message
}

/// A text of so many characters at most: the middle of a longer one is left out.
fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let count = text.chars().count();
    if count <= most {
        return Cow::Borrowed(text);
    }
    let begin: String = text.chars().take(most / 2).collect();
    let end: String = text.chars().skip(count - most / 4).collect();
    Cow::Owned(format!("{begin}...({count} characters)...{end}"))
}

/// A name for one cell of a table: on one line, and of bounded length.
pub(crate) fn name(text: &str) -> String {
    escaped(&shortened(text, NAME)).replace('\n', "\\n").replace('\t', "\\t")
}

/// The text with escapes in place of characters that do more than show themselves: control characters but line breaks and
/// tabs, and those that change the direction of text.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\r' => shown.push_str("\\r"),
            c if acts(c) => {
                // Writing to a string does not fail.
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Whether a character does more than show itself. Those of direction are U+061C, U+200E, U+200F, U+202A to U+202E and U+2066 to
/// U+2069 (Unicode Technical Standard 55), and U+2028 and U+2029 break lines.
fn acts(c: char) -> bool {
    let is_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && c != '\n' && c != '\t') || is_direction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_act_are_shown() {
        assert!(matches!(escaped("plain \u{e4} \u{65e5}\n\tok"), Cow::Borrowed(_)));
        assert_eq!(escaped("\u{1b}]0;owned\u{7}\rall good\n"), "\\u{1b}]0;owned\\u{7}\\rall good\n");
        assert_eq!(escaped("\u{9b}2K\u{7f}\u{202e}abc"), "\\u{9b}2K\\u{7f}\\u{202e}abc");
        assert_eq!(name("a\nb\tc\u{1b}"), "a\\nb\\tc\\u{1b}");
        let json = escaped_json("\"a\u{9b}2K\u{202e}\u{e4}\"");
        assert_eq!(json, "\"a\\u009b2K\\u202e\u{e4}\"");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "a\u{9b}2K\u{202e}\u{e4}");
    }

    #[test]
    fn a_line_break_makes_no_message_of_its_own() {
        let text = "tensor `a\nerror: all is well` is missing\n  indented already\n";
        let expected = "warning: tensor `a\n  error: all is well` is missing\n  indented already";
        assert_eq!(message("warning: ", text), expected);
    }

    #[test]
    fn long_names_lose_their_middle() {
        let long = "x".repeat(1 << 20);
        let told = message("error: ", &format!("tensor `{long}` is missing"));
        assert!(told.len() < 1_000 && told.starts_with("error: tensor `xxx"), "{told}");
        assert!(told.contains("...(1048579 characters)...x") && told.ends_with("x` is missing"), "{told}");
        let many = message("", &"word ".repeat(1 << 18));
        assert!(many.len() < 8_000 && many.contains("...(1310719 characters)..."), "{}", many.len());
        assert_eq!(name(&long).len(), 100 + "...(1048576 characters)...".len() + 50);
        let fits = "y".repeat(1_000);
        assert_eq!(message("", &fits), fits);
    }
}
