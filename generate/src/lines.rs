//! Prompts with settings of their own, and how they become batches.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, Result};
use planish_artifact::Artifact;

use super::reader::{Reader, Row};
use super::{Continuation, GenerateOptions, Message, Search, check, load, ready};

/// A prompt, and what it has of its own in place of the settings of all.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What is continued.
    pub content: Content,
    /// The largest number of new tokens.
    pub max_new_tokens: Option<NonZeroUsize>,
    /// The seed of its first continuation; its n-th one draws with this plus n.
    pub seed: Option<u64>,
    /// Strings that stop its text.
    pub stop: Option<Vec<String>>,
    /// Files of images that it comes with.
    pub images: Option<Vec<PathBuf>>,
}

/// What is continued.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A text as it stands. The artifact's tokenizer reads it, and writes what follows.
    Text(String),
    /// A conversation, of which the artifact's chat template makes a text.
    Messages(Vec<Message>),
    /// Token ids.
    Ids(Vec<i64>),
}

impl Line {
    /// With the settings of all.
    #[must_use]
    pub fn of(content: Content) -> Self {
        Self { content, max_new_tokens: None, seed: None, stop: None, images: None }
    }
}

/// How many prompts are a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchBound {
    /// So many rows at most, continuations and beams included, but one prompt in any case.
    pub rows: NonZeroUsize,
    /// So many tokens of prompts at most, padding included, but one prompt in any case.
    pub tokens: usize,
}

/// What became of a line.
#[derive(Debug)]
pub struct Done {
    /// The place of the line.
    pub line: usize,
    /// The number of tokens of its prompt.
    pub prompt_tokens: usize,
    /// As many as are asked for, of beams the best first.
    pub continuations: Vec<Continuation>,
}

/// Continues the prompts of lines in their order, in batches of lines that follow each other. All are checked before the model is
/// loaded. `on_done` gets those of a batch as soon as it has ended.
///
/// # Errors
/// As those of [`generate`](super::generate), with `named(place of the line)` where a line is to blame; and when `on_done` fails.
pub fn generate_lines(
    artifact: &Artifact,
    lines: &[Line],
    options: &GenerateOptions,
    bound: BatchBound,
    named: &dyn Fn(usize) -> String,
    on_done: &mut dyn FnMut(Done) -> Result<()>,
) -> Result<()> {
    let (runtime, searched) = ready(artifact, options)?;
    let mut reader = Reader::new(artifact, options);
    let mut rows = Vec::with_capacity(lines.len());
    for (number, line) in lines.iter().enumerate() {
        let checked = reader.row(line, &searched, number).and_then(|row| {
            check(artifact, runtime.as_ref(), std::slice::from_ref(&row.request.ids), &searched.search)?;
            Ok(row)
        });
        rows.push(checked.with_context(|| named(number))?);
    }
    if rows.is_empty() {
        return Ok(());
    }
    let mut model = load(artifact, runtime.as_ref(), options.loading())?;
    let of_prompt = searched.rows();
    // Rows that read ahead would grow by different numbers of tokens.
    let rows_of = if matches!(searched.search, Search::Lookup(_)) { NonZeroUsize::MIN } else { bound.rows };
    let bound = BatchBound { rows: rows_of, ..bound };
    let mut first = 0;
    while first < rows.len() {
        let count = fitting(&rows[first..], of_prompt, bound);
        let batch = &rows[first..first + count];
        let generated = reader.generate(model.as_mut(), batch, &searched, None)?;
        let mut continuations = generated.continuations.into_iter();
        for (place, row) in batch.iter().enumerate() {
            let continuations = continuations.by_ref().take(searched.continuations.get()).collect();
            on_done(Done { line: first + place, prompt_tokens: row.request.ids.len(), continuations })?;
        }
        first += count;
    }
    Ok(())
}

/// How many of the first rows are a batch, where each prompt becomes so many rows.
fn fitting(rows: &[Row], of_prompt: usize, bound: BatchBound) -> usize {
    let mut longest = 0;
    let fits = |(before, row): &(usize, &Row)| {
        longest = longest.max(row.request.ids.len());
        let count = before + 1;
        // What is not padded has one length.
        let is_alike = row.unpadded == rows[0].unpadded;
        *before == 0 || is_alike && count * of_prompt <= bound.rows.get() && count * longest <= bound.tokens
    };
    rows.iter().enumerate().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Length, Request};

    #[test]
    fn batches_have_no_more_rows_and_tokens_than_they_may() {
        let count = |lengths: &[usize], of_prompt: usize, rows: usize, tokens: usize| {
            let row = |length: &usize| Row {
                request: Request { ids: vec![0; *length], length: Length::Total(9), seed: 0 },
                is_text: false,
                images: Vec::new(),
                unpadded: None,
                may_call: false,
                ends: Vec::new(),
            };
            let rows_of: Vec<Row> = lengths.iter().map(row).collect();
            fitting(&rows_of, of_prompt, BatchBound { rows: NonZeroUsize::new(rows).unwrap(), tokens })
        };
        assert_eq!(count(&[5; 9], 1, 4, 1000), 4);
        assert_eq!(count(&[5; 9], 2, 5, 1000), 2);
        assert_eq!(count(&[5; 2], 1, 4, 1000), 2);
        // Padding counts: three of 5 tokens are 15, and with one of 8 they are 32.
        assert_eq!(count(&[5, 5, 5, 8], 1, 9, 31), 3);
        assert_eq!(count(&[5, 5, 5, 8], 1, 9, 32), 4);
        // One prompt is a batch in any case.
        assert_eq!((count(&[50, 1], 1, 4, 10), count(&[5; 9], 9, 4, 1000)), (1, 1));
    }
}
