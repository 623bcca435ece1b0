//! The answer to a question: the best span of a text.

use std::ops::Range;

use planish_data::chunks::KeptText;

use super::outcome::softmax;

/// The most tokens of an answer, as in the transformers library (`max_answer_len` of its pipeline).
const MOST_TOKENS: usize = 15;

/// Where the text that has the answer is in a pair.
const CONTEXT: usize = 1;

/// A span of tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Best {
    /// The first token.
    pub(super) first: usize,
    /// The last token.
    pub(super) last: usize,
    /// The product of the probabilities that the answer begins and ends there.
    pub(super) score: f64,
}

/// What a token is to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It may be of the answer.
    Text,
    /// It stands for a question that has no answer: it has a probability, and is of no answer.
    Nothing,
    /// It has no probability.
    Other,
}

/// What a token of a question and a text is; `class` is the id of the token that a pair begins with, which models choose where
/// there is no answer.
pub(super) fn part(text: &KeptText, at: usize, class: Option<i64>) -> Part {
    match text.spans.get(at).copied().flatten() {
        Some(span) if span.sequence == CONTEXT && span.end > span.start => Part::Text,
        Some(span) if span.sequence == CONTEXT => Part::Nothing,
        _ if class.is_some() && text.ids.get(at).copied() == class => Part::Nothing,
        _ => Part::Other,
    }
}

/// The span with the greatest product of both probabilities, of [`MOST_TOKENS`] tokens at most. `None` where no token is of the
/// text that has the answer. Like the transformers library (`select_starts_ends` of its question_answering.py).
pub(super) fn best(starts: &[f32], ends: &[f32], part: impl Fn(usize) -> Part) -> Option<Best> {
    let count = starts.len().min(ends.len());
    let tokens: Vec<(usize, Part)> =
        (0..count).map(|at| (at, part(at))).filter(|(_, part)| *part != Part::Other).collect();
    let of = |logits: &[f32]| softmax(&tokens.iter().map(|(at, _)| logits[*at]).collect::<Vec<f32>>());
    let (starts, ends) = (of(starts), of(ends));
    let scored = tokens.iter().zip(&starts).zip(&ends).filter(|(((_, part), _), _)| *part == Part::Text);
    let scored: Vec<(usize, f64, f64)> = scored.map(|(((at, _), start), end)| (*at, *start, *end)).collect();
    let mut found: Option<Best> = None;
    for (index, (first, start, _)) in scored.iter().enumerate() {
        for (last, _, end) in scored[index..].iter().take_while(|(last, ..)| last - first < MOST_TOKENS) {
            let score = start * end;
            // Of equals the first one counts; a score that is no number is told later.
            if found.is_none_or(|best| score > best.score) {
                found = Some(Best { first: *first, last: *last, score });
            }
        }
    }
    found
}

/// The characters of a text from the word with one token on to the end of the word with another; those of the tokens where the
/// tokenizer knows no words. Like the transformers library (`align_to_words` of its pipeline).
pub(super) fn whole_words(text: &KeptText, first: usize, last: usize) -> (usize, usize) {
    let words = word(text, first).zip(word(text, last));
    let (begin, end) = words.map_or((first, last), |(begin, end)| (begin.start, end.end - 1));
    let span = |at: usize| text.spans.get(at).copied().flatten();
    (span(begin).map_or(0, |span| span.start), span(end).map_or(0, |span| span.end))
}

/// The tokens of the word that a token is of.
fn word(text: &KeptText, at: usize) -> Option<Range<usize>> {
    let is_text = |at: &usize| text.spans.get(*at).copied().flatten().is_some_and(|span| span.sequence == CONTEXT);
    let begins = |at: &usize| text.words.get(*at).copied().flatten().is_some();
    let first = (0..=at).rev().take_while(is_text).find(begins)?;
    let after = (at + 1..text.spans.len()).take_while(|at| is_text(at) && !begins(at)).count();
    Some(first..at + 1 + after)
}

#[cfg(test)]
mod tests {
    use planish_data::{Span, Text};

    use super::*;

    /// Tokens before one are of the question.
    fn after(from: usize) -> impl Fn(usize) -> Part {
        move |at| if at >= from { Part::Text } else { Part::Other }
    }

    fn found(starts: &[f32], ends: &[f32], from: usize) -> Option<(usize, usize)> {
        best(starts, ends, after(from)).map(|best| (best.first, best.last))
    }

    #[test]
    fn an_answer_ends_after_it_begins() {
        assert_eq!(found(&[0.0, 5.0, 0.0, 1.0], &[4.0, 0.0, 0.0, 3.0], 0), Some((1, 3)));
        assert_eq!(found(&[9.0, 0.0, 1.0], &[9.0, 1.0, 0.0], 1), Some((1, 1)), "tokens of the question do not count");
        assert_eq!(found(&[1.0], &[1.0], 1), None);
        assert_eq!(found(&[], &[], 0), None);
    }

    #[test]
    fn an_answer_is_short() {
        let (mut starts, mut ends) = (vec![0.0; 40], vec![0.0; 40]);
        (starts[0], ends[39]) = (9.0, 9.0);
        let Best { first, last, .. } = best(&starts, &ends, after(0)).unwrap();
        assert!(last - first < MOST_TOKENS, "{first} to {last}");
        ends[14] = 5.0;
        assert_eq!(found(&starts, &ends, 0), Some((0, 14)));
    }

    #[test]
    fn the_score_is_a_product_of_probabilities_of_the_text() {
        let (starts, ends) = ([50.0, 0.0, 0.0], [50.0, f32::ln(3.0), 0.0]);
        let one = best(&starts, &ends, after(1)).unwrap();
        assert_eq!((one.first, one.last), (1, 1));
        assert!((one.score - 0.5 * 0.75).abs() < 1e-6, "{}", one.score);
        // A model that says that there is no answer gives all others little probability.
        let none = best(&starts, &ends, |at| if at == 0 { Part::Nothing } else { Part::Text }).unwrap();
        assert!((none.first, none.last) == (1, 1) && none.score < 1e-12, "{}", none.score);
    }

    #[test]
    fn an_answer_grows_to_whole_words() {
        let span = |sequence: usize, start: usize, end: usize| Some(Span { sequence, start, end });
        let mut text = KeptText {
            text: Text::Pair("who".into(), "unbelievable words".to_owned()),
            ids: vec![2, 9, 3, 10, 11, 12, 13, 3],
            spans: vec![None, span(0, 0, 3), None, span(1, 0, 2), span(1, 2, 9), span(1, 9, 12), span(1, 13, 18), None],
            words: vec![None, Some(0), None, Some(0), None, None, Some(1), None],
        };
        assert_eq!(whole_words(&text, 4, 4), (0, 12));
        assert_eq!(whole_words(&text, 5, 6), (0, 18));
        assert_eq!(
            [0, 1, 2, 3].map(|at| part(&text, at, Some(2))),
            [Part::Nothing, Part::Other, Part::Other, Part::Text]
        );
        text.words = vec![None; 8];
        assert_eq!(whole_words(&text, 4, 4), (2, 9), "this tokenizer knows no words");
    }
}
