//! The text of tokens that come one after the other, up to a string that ends it.

use std::ops::ControlFlow;

use anyhow::Result;
use planish_data::tokenizer::TextTokenizer;

use super::Stop;

/// A text that grows token by token. What may be the beginning of a string that ends it is held back until that is decided.
pub(super) struct TextStream<'a> {
    step: Box<dyn FnMut(i64) -> Result<String> + 'a>,
    ends: &'a [String],
    /// What was given out.
    given: String,
    /// What follows it and is held back.
    held: String,
    is_ended: bool,
}

impl<'a> TextStream<'a> {
    /// An empty text that the first of some strings ends.
    pub(super) fn new(tokenizer: &'a TextTokenizer, ends: &'a [String]) -> Self {
        Self::of(tokenizer.stream(), ends)
    }

    fn of(step: impl FnMut(i64) -> Result<String> + 'a, ends: &'a [String]) -> Self {
        Self { step: Box::new(step), ends, given: String::new(), held: String::new(), is_ended: false }
    }

    /// What a token adds to the text that can be given out: nothing while a character is incomplete, or may be of a string that
    /// ends the text. Says too whether the text ends with this.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub(super) fn push(&mut self, id: i64) -> Result<(String, ControlFlow<Stop>)> {
        self.held += &(self.step)(id)?;
        let whole = first_end(&self.held, self.ends);
        let certain = whole.unwrap_or_else(|| self.held.len() - begun(&self.held, self.ends));
        let rest = self.held.split_off(certain);
        let piece = std::mem::replace(&mut self.held, rest);
        self.given += &piece;
        if whole.is_none() {
            return Ok((piece, ControlFlow::Continue(())));
        }
        self.is_ended = true;
        self.held.clear();
        Ok((piece, ControlFlow::Break(Stop::StopString)))
    }

    /// The whole text, given that of all tokens, and what of it was not given out.
    pub(super) fn finish(mut self, mut all: String) -> (String, String) {
        if self.is_ended {
            return (self.given, String::new());
        }
        if let Some(end) = first_end(&all, self.ends) {
            all.truncate(end);
        }
        // A character that stays incomplete is in the whole text only.
        match all.strip_prefix(&self.given) {
            Some(rest) => {
                let rest = rest.to_owned();
                (all, rest)
            }
            None => {
                self.given += &self.held;
                (self.given, self.held)
            }
        }
    }
}

/// Where the first of some strings begins in a text.
pub(super) fn first_end(text: &str, ends: &[String]) -> Option<usize> {
    ends.iter().filter_map(|end| text.find(end.as_str())).min()
}

/// The length of the longest end of a text that one of some strings begins with, and is longer than.
fn begun(text: &str, ends: &[String]) -> usize {
    let longest = ends.iter().map(String::len).max().unwrap_or(0).saturating_sub(1);
    let starts = text.char_indices().map(|(at, _)| at).filter(|at| text.len() - at <= longest);
    let begins = |at: &usize| ends.iter().any(|end| end.len() > text.len() - at && end.starts_with(&text[*at..]));
    starts.into_iter().find(begins).map_or(0, |at| text.len() - at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is given out of a text in pieces, and the whole text at its end.
    fn streamed(pieces: &[&str], ends: &[&str]) -> (Vec<String>, String) {
        let ends: Vec<String> = ends.iter().map(|end| (*end).to_owned()).collect();
        let piece = |id: i64| Ok(pieces[usize::try_from(id).unwrap()].to_owned());
        let mut stream = TextStream::of(piece, &ends);
        let (mut given, mut read) = (Vec::new(), String::new());
        for (id, piece) in (0..).zip(pieces) {
            let (piece_given, flow) = stream.push(id).unwrap();
            read += piece;
            given.push(piece_given);
            if flow.is_break() {
                break;
            }
        }
        let (whole, rest) = stream.finish(read);
        given.push(rest);
        (given, whole)
    }

    #[test]
    fn a_string_ends_a_text_across_its_tokens() {
        let (given, whole) = streamed(&["a ", "b<", "end", "> c", " d"], &["<end>"]);
        assert_eq!(
            (given, whole.as_str()),
            (vec!["a ".into(), "b".into(), String::new(), String::new(), String::new()], "a b")
        );
        // What looked like it and is not is given out.
        let (given, whole) = streamed(&["a<", "en", "t", "<en"], &["<end>"]);
        assert_eq!((given[2].as_str(), given[3].as_str(), given[4].as_str()), ("<ent", "", "<en"));
        assert_eq!(whole, "a<ent<en");
        // The first one counts, and characters stay whole.
        assert_eq!(streamed(&["aé", "xé\n", "b"], &["b", "\n", "éx"]).1, "a");
        assert_eq!(streamed(&["one two"], &["two", "one"]).1, "");
        assert_eq!(streamed(&["a", "b"], &[]).0, ["a", "b", ""]);
    }

    #[test]
    fn a_character_that_stays_incomplete_is_given_out_at_the_end() {
        let ends = [];
        let mut stream = TextStream::of(|id| Ok(if id == 0 { "a".to_owned() } else { String::new() }), &ends);
        let _ = stream.push(0).unwrap();
        let _ = stream.push(1).unwrap();
        assert_eq!(stream.finish("a\u{fffd}".to_owned()), ("a\u{fffd}".to_owned(), "\u{fffd}".to_owned()));
    }

    proptest! {
        /// In any pieces a text ends where it ends as a whole, and what is given out is all of it.
        #[test]
        fn pieces_make_no_difference(
            pieces in prop::collection::vec("[abé]{0,3}", 0..12),
            ends in prop::collection::vec("[abé]{1,4}", 0..3),
        ) {
            let text = pieces.concat();
            let end = ends.iter().filter_map(|end| text.find(end.as_str())).min().unwrap_or(text.len());
            let parts: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let (given, whole) = streamed(&parts, &ends.iter().map(String::as_str).collect::<Vec<_>>());
            // A string that begins earlier may be complete later than one after it: the text then ends at the latter.
            prop_assert!(whole.len() >= end && text.starts_with(&whole));
            prop_assert_eq!(given.concat(), whole);
        }
    }
}
