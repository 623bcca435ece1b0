//! Words put into lines, as subtitles have them.

use std::ops::Range;

use planish_data::tokenizer::ctc::{Decoded, Timed};

/// The longest line in seconds.
const MOST_SECONDS: f64 = 6.0;

/// The longest line in characters: two lines of a subtitle.
const MOST_CHARACTERS: usize = 84;

/// The pause in seconds that ends a line.
const PAUSE: f64 = 1.0;

/// Words in order, those of several lines each in its own. `seconds` is the time from one frame to the next. A word that is longer than
/// a line is taken apart into its characters: there are languages that write nothing between words.
pub(super) fn lines(decoded: Decoded, seconds: f64) -> Vec<Vec<Timed>> {
    let Decoded { words, characters, .. } = decoded;
    let is_long = |frames: &Range<usize>| frames.len() as f64 * seconds > MOST_SECONDS;
    let mut characters = characters.into_iter().peekable();
    let mut lines: Vec<Vec<Timed>> = Vec::new();
    // The characters of the last line.
    let mut length = 0;
    let mut put = |word: Timed| {
        let count = word.text.chars().count();
        match lines.last_mut() {
            Some(line) if !ends_before(line, &word, length + 1 + count, seconds) => {
                length += 1 + count;
                line.push(word);
            }
            _ => {
                length = count;
                lines.push(vec![word]);
            }
        }
    };
    for word in words {
        while characters.next_if(|character| character.frames.start < word.frames.start).is_some() {}
        if !is_long(&word.frames) {
            put(word);
            continue;
        }
        while let Some(character) = characters.next_if(|character| character.frames.end <= word.frames.end) {
            put(character);
        }
    }
    lines
}

/// Whether a line ends before a word with which it has so many characters.
fn ends_before(line: &[Timed], word: &Timed, length: usize, seconds: f64) -> bool {
    let (Some(first), Some(last)) = (line.first(), line.last()) else { return false };
    let time = |from: usize, to: usize| to.saturating_sub(from) as f64 * seconds;
    time(first.frames.start, word.frames.end) > MOST_SECONDS
        || time(last.frames.end, word.frames.start) >= PAUSE
        || length > MOST_CHARACTERS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(text: &str, frames: Range<usize>) -> Timed {
        Timed { text: text.to_owned(), frames }
    }

    /// The texts of the words of lines, of frames of 0.1 s.
    fn texts(words: Vec<Timed>, characters: Vec<Timed>) -> Vec<Vec<String>> {
        let lines = lines(Decoded { text: String::new(), characters, words }, 0.1);
        lines.into_iter().map(|line| line.into_iter().map(|word| word.text).collect()).collect()
    }

    #[test]
    fn a_line_ends_at_a_pause_and_before_it_is_too_long() {
        let pause = vec![timed("a", 0..2), timed("b", 11..12), timed("c", 22..23)];
        assert_eq!(texts(pause, Vec::new()), [vec!["a", "b"], vec!["c"]]);
        let late = vec![timed("a", 0..25), timed("b", 30..60), timed("c", 60..61)];
        assert_eq!(texts(late, Vec::new()), [vec!["a", "b"], vec!["c"]]);
        let word = "x".repeat(28);
        let wide: Vec<Timed> = (0..3).map(|at| timed(&word, at..at + 1)).collect();
        assert_eq!(texts(wide, Vec::new()).iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn a_word_that_is_longer_than_a_line_is_taken_apart() {
        let characters = [timed("a", 0..2), timed(" ", 2..3), timed("b", 3..5), timed("c", 50..52), timed("d", 70..71)];
        let words = vec![timed("a", 0..2), timed("bcd", 3..71)];
        assert_eq!(texts(words, characters.to_vec()), [vec!["a", "b"], vec!["c"], vec!["d"]]);
    }
}
