//! Words of recordings: how many errors transcripts have.

use std::path::Path;

use anyhow::{Context, Result};
use planish_artifact::evaluation::{LabelFigure, LabelMetric};
use planish_data::tokenizer::ctc::CtcDecoder;
use planish_data::{Label, RowInfo};

/// Transcripts of both sides next to what was said.
pub(in crate::evaluate) struct Transcripts {
    decoder: CtcDecoder,
    /// Words that are missing, wrong or too many, of the reference and of the artifact.
    errors: [usize; 2],
    words: usize,
}

impl Transcripts {
    /// For a model whose vocabulary is in a folder.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub(in crate::evaluate) fn open(folder: &Path) -> Result<Self> {
        Ok(Self { decoder: CtcDecoder::open(folder, None)?, errors: [0; 2], words: 0 })
    }

    /// Adds a recording: the likeliest token of each frame on both sides.
    ///
    /// # Errors
    /// When its label is no text.
    pub(in crate::evaluate) fn add(&mut self, row: &RowInfo, frames: &[Vec<i64>; 2]) -> Result<()> {
        let said = match &row.label {
            Some(Label::Name(said)) => said.clone(),
            Some(Label::Number(number)) => number.to_string(),
            Some(Label::Words(_)) | None => {
                None.context("--label names a text for each recording: what is said in it")?
            }
        };
        let expected: Vec<&str> = said.split_whitespace().collect();
        self.words += expected.len();
        for (errors, ids) in self.errors.iter_mut().zip(frames) {
            let text = self.decoder.decode(ids)?.text;
            *errors += edits(&expected, &text.split_whitespace().collect::<Vec<_>>());
        }
        Ok(())
    }

    /// The word error rate: errors next to the words that were said, in %. `None` where nothing was said.
    pub(super) fn figure(&self) -> Option<LabelFigure> {
        let rate = |errors: usize| 100.0 * errors as f64 / self.words as f64;
        let [reference, artifact] = self.errors.map(rate);
        let (metric, count) = (LabelMetric::WordErrorRate, self.words as u64);
        (count > 0).then_some(LabelFigure { metric, artifact, reference, interval: None, count })
    }
}

/// How many words have to be put in, taken out or changed to make one text of the other (Levenshtein 1966).
fn edits(expected: &[&str], given: &[&str]) -> usize {
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
