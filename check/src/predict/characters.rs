//! Places in a text that are counted in characters.

use planish_data::Text;

/// A text of which parts are taken, one after the other from its beginning on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Characters<'a> {
    text: &'a str,
    /// The beginning of the last part, in characters and in bytes.
    last: (usize, usize),
}

impl<'a> Characters<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self { text, last: (0, 0) }
    }

    /// Those of each text of a pair, or of each word.
    pub(super) fn of_each(text: &'a Text) -> Vec<Self> {
        match text {
            Text::One(text) => vec![Self::of(text)],
            Text::Pair(first, second) => vec![Self::of(first), Self::of(second)],
            Text::Words(words) => words.iter().map(|word| Self::of(word)).collect(),
        }
    }

    /// The part from one character on and before another, without blanks around it, and the characters where it is then. The
    /// time grows with the distance from the beginning of the part before, or, where that comes later, with that from the
    /// beginning of the text.
    pub(super) fn trimmed(&mut self, start: usize, end: usize) -> (&'a str, usize, usize) {
        if start < self.last.0 {
            self.last = (0, 0);
        }
        let from = self.last.1 + length(&self.text[self.last.1..], start - self.last.0);
        if from < self.text.len() {
            self.last = (start, from);
        }
        let rest = &self.text[from..];
        let whole = &rest[..length(rest, end.saturating_sub(start))];
        let start = start + whole.chars().take_while(|c| c.is_whitespace()).count();
        let found = whole.trim();
        (found, start, start + found.chars().count())
    }
}

/// The bytes of so many characters of a text, or of all where it has fewer.
fn length(text: &str, characters: usize) -> usize {
    text.char_indices().nth(characters).map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters() {
        let mut text = Characters::of("\u{e4}\u{1f600} b\u{fc}c  d");
        assert_eq!(text.trimmed(2, 5), ("b\u{fc}", 3, 5));
        assert_eq!(text.trimmed(5, 6), ("c", 5, 6));
        assert_eq!(text.trimmed(1, 2), ("\u{1f600}", 1, 2), "parts may come in any order");
        assert_eq!(text.trimmed(6, 8), ("", 8, 8));
        assert_eq!(text.trimmed(8, usize::MAX), ("d", 8, 9));
        assert_eq!(text.trimmed(20, 22), ("", 20, 20));
        assert_eq!(text.trimmed(8, 9), ("d", 8, 9));
    }
}
