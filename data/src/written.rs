//! Texts that a decoder after an encoder writes itself, of recordings and pictures that come without one.

use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_artifact::manifest::Input;
use planish_eval::Tensor;
use planish_ir::InputRole;
use planish_models::{Loaded, Task};

use crate::tokenizer::{end_tokens, token};

/// The most tokens of a text.
const WRITTEN: usize = 24;

/// How a decoder writes texts: the likeliest token follows those before it.
#[derive(Clone, Debug)]
pub struct Writing {
    /// The name of the decoder's ids among the inputs of the model.
    input: String,
    /// The id that a text begins with.
    start: i64,
    /// The ids that end a text.
    ends: Vec<i64>,
    /// The id that stands after the end of a text.
    fill: i64,
    /// How many tokens a text has at most.
    longest: usize,
}

impl Writing {
    /// For a model of recordings or pictures with these inputs; none where it has no decoder that takes ids.
    /// `folder` has generation_config.json or config.json.
    ///
    /// # Errors
    /// When no file names the id that a text begins with, or a file cannot be read.
    pub(crate) fn of<'a>(
        wanted: impl IntoIterator<Item = (&'a str, &'a Input)>,
        model: &Loaded,
        folder: &Path,
    ) -> Result<Option<Self>> {
        let mut wanted = wanted.into_iter();
        let decoder = wanted.find(|(_, input)| input.role == InputRole::DecoderTokenIds);
        let writes = matches!(model.task, Some(Task::AutomaticSpeechRecognition | Task::ImageToText));
        let Some((name, _)) = decoder.filter(|_| writes) else { return Ok(None) };
        let start = token(folder, "decoder_start_token_id")?;
        let missing = || format!("{} has no `decoder_start_token_id`, which a text begins with", folder.display());
        let start = start.with_context(missing)?;
        let ends = end_tokens(folder)?;
        let fill = token(folder, "pad_token_id")?.or(ends.first().copied()).unwrap_or(start);
        let longest = model.max_positions.unwrap_or(WRITTEN).min(WRITTEN);
        Ok(Some(Self { input: name.to_owned(), start, ends, fill, longest }))
    }

    /// The name of the decoder's ids and the first id of so many texts, [rows, 1].
    ///
    /// # Errors
    /// When there are too many rows.
    pub(crate) fn first(&self, rows: usize) -> Result<(String, Tensor)> {
        let ids = Tensor::new(vec![rows, 1], vec![self.start; rows]).context("there are too many rows")?;
        Ok((self.input.clone(), ids))
    }

    /// The ids of texts, [rows, tokens], and which of them are tokens of a text, 1 or 0 in the same shape. A text has a token
    /// after the first one, so a decoder with a cache has something to read; the end of a text is none. `logits` gives those
    /// of ids, [rows, tokens, vocabulary], and is called once for each token.
    ///
    /// # Errors
    /// When `logits` fails, or what it gives has another shape.
    pub fn text(&self, rows: usize, logits: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<(Tensor, Tensor)> {
        let mut texts = vec![vec![self.start]; rows];
        let mut lengths: Vec<Option<usize>> = vec![None; rows];
        let matrix = |texts: &[Vec<i64>]| {
            let width = texts.first().map_or(0, Vec::len);
            Tensor::new(vec![rows, width], texts.concat()).context("there are too many tokens")
        };
        for width in 1..self.longest {
            if !lengths.contains(&None) {
                break;
            }
            let scores = logits(&matrix(&texts)?)?;
            let &[_, _, vocabulary] = scores.shape() else { bail!("logits are {:?}", scores.shape()) };
            if scores.shape() != [rows, width, vocabulary] {
                bail!("logits of {rows} texts of {width} tokens are {:?}", scores.shape());
            }
            let scores = scores.to_f64();
            for (row, (text, length)) in texts.iter_mut().zip(&mut lengths).enumerate() {
                let last = &scores[(row * width + width - 1) * vocabulary..][..vocabulary];
                let best = self.likeliest(last, width > 1);
                match best {
                    Some(id) if length.is_none() => text.push(id),
                    _ => {
                        length.get_or_insert(width);
                        text.push(self.fill);
                    }
                }
            }
        }
        let kept = |(text, length): (&Vec<i64>, &Option<usize>)| {
            let length = length.unwrap_or(text.len());
            (0..text.len()).map(|at| i64::from(at < length)).collect::<Vec<_>>()
        };
        let kept: Vec<Vec<i64>> = texts.iter().zip(&lengths).map(kept).collect();
        Ok((matrix(&texts)?, matrix(&kept)?))
    }

    /// The likeliest id by its scores, the first of several; none where that ends a text, if it may end.
    fn likeliest(&self, scores: &[f64], may_end: bool) -> Option<i64> {
        let numbered = (0..).zip(scores).filter(|(id, _)| may_end || !self.ends.contains(id));
        let best = numbered.reduce(|best, other| if *other.1 > *best.1 { other } else { best });
        best.map(|(id, _)| id).filter(|id| !self.ends.contains(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writing(longest: usize) -> Writing {
        Writing { input: "decoder_input_ids".to_owned(), start: 4, ends: vec![0, 3], fill: 9, longest }
    }

    /// Scores by which the id after each is a number for its row, [rows, tokens, 10].
    fn scores(ids: &Tensor, next: &dyn Fn(usize, usize) -> usize) -> Tensor {
        let &[rows, width] = ids.shape() else { panic!("{:?}", ids.shape()) };
        let one = |row: usize, at: usize| (0..10).map(move |id| if id == next(row, at) { 1.0f32 } else { 0.0 });
        let all = (0..rows).flat_map(|row| (0..width).flat_map(move |at| one(row, at)));
        Tensor::new(vec![rows, width, 10], all.collect::<Vec<f32>>()).unwrap()
    }

    #[test]
    fn a_text_ends_by_itself_or_by_its_length() {
        // The second row ends after two tokens, and the first never.
        let next = |row: usize, at: usize| if row == 1 && at == 1 { 3 } else { 5 + at };
        let (ids, kept) = writing(4).text(2, &mut |ids| Ok(scores(ids, &next))).unwrap();
        assert_eq!(ids.as_i64().unwrap(), [4, 5, 6, 7, 4, 5, 9, 9]);
        assert_eq!(kept.as_i64().unwrap(), [1, 1, 1, 1, 1, 1, 0, 0]);
    }

    #[test]
    fn no_text_ends_before_its_second_token() {
        let (ids, kept) = writing(8).text(1, &mut |ids| Ok(scores(ids, &|_, _| 3))).unwrap();
        // All others are equal, and the first of these is taken.
        assert_eq!((ids.as_i64().unwrap(), kept.as_i64().unwrap()), (&[4, 1, 9][..], &[1, 1, 0][..]));
    }

    #[test]
    fn logits_of_another_shape_are_refused() {
        let short = |_: &Tensor| Ok(Tensor::zeros(planish_ir::DType::F32, vec![1, 2, 10]).unwrap());
        let error = writing(4).text(1, &mut { short }).unwrap_err().to_string();
        assert!(error.contains("logits of 1 texts of 1 tokens are [1, 2, 10]"), "{error}");
    }
}
