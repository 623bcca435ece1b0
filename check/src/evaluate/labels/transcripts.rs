//! Words and characters of recordings: how many errors transcripts have.

use std::path::Path;

use anyhow::{Context, Result};
use planish_artifact::evaluation::{LabelFigure, LabelMetric};
use planish_data::tokenizer::ctc::CtcDecoder;
use planish_data::{Label, RowInfo};
use serde::{Deserialize, Serialize};

use super::Labelled;

/// What makes transcripts of both sides of the tokens of frames.
pub(in crate::evaluate) struct Transcripts {
    decoder: CtcDecoder,
}

/// Errors of texts of both sides next to what was said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::evaluate) struct Rates {
    words: Errors,
    characters: Errors,
}

/// Units of transcripts that are missing, wrong or too many, of the reference and of the artifact, and how many were said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Errors {
    errors: [usize; 2],
    count: usize,
}

impl Errors {
    fn add<T: PartialEq>(&mut self, expected: &[T], given: [&[T]; 2]) {
        self.count += expected.len();
        for (errors, given) in self.errors.iter_mut().zip(given) {
            *errors += edits(expected, given);
        }
    }

    fn fold(&mut self, other: &Self) {
        self.count += other.count;
        self.errors.iter_mut().zip(other.errors).for_each(|(own, its)| *own += its);
    }

    /// Errors next to what was said, in %. `None` where nothing was said.
    fn figure(&self, metric: LabelMetric) -> Option<LabelFigure> {
        let rate = |errors: usize| 100.0 * errors as f64 / self.count as f64;
        let ([reference, artifact], count) = (self.errors.map(rate), self.count as u64);
        (count > 0).then_some(LabelFigure { metric, artifact, reference, interval: None, count })
    }
}

impl Transcripts {
    /// For a model whose vocabulary is in a folder.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub(in crate::evaluate) fn open(folder: &Path) -> Result<Self> {
        Ok(Self { decoder: CtcDecoder::open(folder, None)? })
    }

    /// Adds a recording: the likeliest token of each frame on both sides.
    ///
    /// # Errors
    /// When its label is no text.
    pub(in crate::evaluate) fn add(&self, seen: &mut Labelled, row: &RowInfo, frames: &[Vec<i64>; 2]) -> Result<()> {
        let [reference, artifact] = [self.decoder.decode(&frames[0])?.text, self.decoder.decode(&frames[1])?.text];
        seen.add_texts(row.label.as_ref(), [&reference, &artifact])
    }
}

impl Rates {
    /// Adds what the reference and the artifact made of a recording.
    ///
    /// # Errors
    /// When its label is no text.
    pub(in crate::evaluate) fn add(&mut self, label: Option<&Label>, texts: [&str; 2]) -> Result<()> {
        let said = match label {
            Some(Label::Name(said)) => said.clone(),
            Some(Label::Number(number)) => number.to_string(),
            Some(Label::Words(_)) | None => {
                None.context("--label names a text for each recording: what is said in it")?
            }
        };
        compare([&mut self.words, &mut self.characters], &said, texts);
        Ok(())
    }

    /// Adds other errors.
    pub(in crate::evaluate) fn fold(&mut self, other: &Self) {
        self.words.fold(&other.words);
        self.characters.fold(&other.characters);
    }

    /// The rates of errors in words and in characters.
    pub(in crate::evaluate) fn figures(&self) -> impl Iterator<Item = LabelFigure> {
        let rates =
            [self.words.figure(LabelMetric::WordErrorRate), self.characters.figure(LabelMetric::CharacterErrorRate)];
        rates.into_iter().flatten()
    }
}

/// Compares texts as the package jiwer does: words are what stands between spaces, and characters those of a text
/// without the spaces around it. Nothing else is made alike, neither cases nor punctuation.
fn compare([of_words, of_characters]: [&mut Errors; 2], said: &str, texts: [&str; 2]) {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let characters = |text: &str| text.trim().chars().collect::<Vec<_>>();
    let [first, second] = texts.map(words);
    of_words.add(&words(said), [&first, &second]);
    let [first, second] = texts.map(characters);
    of_characters.add(&characters(said), [&first, &second]);
}

/// How many units have to be put in, taken out or changed to make one text of the other (Levenshtein 1966).
fn edits<T: PartialEq>(expected: &[T], given: &[T]) -> usize {
    let mut row: Vec<usize> = (0..=given.len()).collect();
    for (at, wanted) in expected.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, word) in given.iter().enumerate() {
            let changed = diagonal + usize::from(word != wanted);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[given.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_as_jiwer_counts_them() {
        // Errors and words, then errors and characters, by jiwer 4.0.0.
        for (said, text, words, characters) in [
            ("the cat sat on the mat", "the bat sat on mat today", [3, 6], [8, 22]),
            ("hello  world", "hello world", [0, 2], [1, 12]),
            ("Größe zählt", "Grosse zahlt nicht", [3, 2], [10, 11]),
            ("a b c d", "b c d e", [2, 4], [4, 7]),
            (" x ", "", [1, 1], [1, 1]),
        ] {
            let (mut of_words, mut of_characters) = (Errors::default(), Errors::default());
            compare([&mut of_words, &mut of_characters], said, [text, said]);
            assert_eq!([of_words.errors[0], of_words.count], words, "{said}");
            assert_eq!([of_characters.errors[0], of_characters.count], characters, "{said}");
            assert_eq!([of_words.errors[1], of_characters.errors[1]], [0, 0], "{said}");
        }
    }

    #[test]
    fn errors_are_words_put_in_taken_out_or_changed() {
        let edits = |expected: &str, given: &str| {
            let [expected, given] = [expected, given].map(|text| text.split_whitespace().collect::<Vec<_>>());
            edits(&expected, &given)
        };
        assert_eq!(edits("the cat sat", "the cat sat"), 0);
        assert_eq!(edits("the cat sat", "the bat sat down"), 2);
        assert_eq!(edits("the cat sat", ""), 3);
        assert_eq!(edits("", "a b"), 2);
        assert_eq!(edits("a b c d", "b c d e"), 2);
    }
}
