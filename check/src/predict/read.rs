//! How the outputs of a batch become predictions.

use std::num::NonZeroUsize;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use planish_data::Text;
use planish_data::chunks::{KeptText, ReadText};
use planish_data::tokenizer::TextTokenizer;
use planish_eval::Tensor;

use super::config::Activation;
use super::head::Head;
use super::outcome::{Candidate, LabelledToken, Mask, Outcome, Scores, sigmoid, softmax};
use super::span;
use crate::evaluate::metrics::{normalized, top};
use crate::pooling::pool;
use crate::positions::{Positions, floats};

/// The label of a token that is part of nothing, which the transformers library leaves out too.
const OUTSIDE: &str = "O";

/// A batch that was run.
pub(super) struct Batch<'a> {
    /// The texts, a row each; the outputs may have more rows.
    pub(super) texts: Vec<&'a ReadText>,
    /// Which positions hold a token; all where absent.
    pub(super) positions: Option<Positions>,
    /// Whether padding comes before the tokens.
    pub(super) is_left: bool,
}

impl Batch<'_> {
    /// The texts, of which everything is kept.
    fn kept(&self) -> Result<Vec<&KeptText>> {
        self.texts.iter().map(|text| text.kept.as_ref().context("a text was not kept")).collect()
    }

    /// The position of the first token of a text among those of its row.
    fn begin(&self, text: &ReadText, width: usize) -> usize {
        if self.is_left { width.saturating_sub(text.tokens) } else { 0 }
    }
}

impl Head {
    /// What is predicted of the texts of a batch, by the outputs of [`Self::outputs`].
    ///
    /// # Errors
    /// When the outputs have another shape, or a text is none that the task takes.
    pub(super) fn read(&self, outputs: &[Tensor], batch: &Batch<'_>) -> Result<Vec<Outcome>> {
        let [first, ..] = outputs else { bail!("there is no output") };
        match self {
            Self::Embedding { pooling, normalizes, features, .. } => {
                let vectors = pool(*pooling, first, batch.positions.as_ref());
                let embedding = |vector: Vec<f32>| {
                    let mut embedding = if *normalizes { normalized(vector) } else { vector };
                    embedding.truncate(features.unwrap_or(usize::MAX));
                    Outcome::Embedding { embedding }
                };
                Ok(vectors.into_iter().take(batch.texts.len()).map(embedding).collect())
            }
            Self::Score { activation, .. } => {
                let score = |row: &[f32]| {
                    let [logit] = *row else { bail!("the model gives {} scores of a text", row.len()) };
                    let score = if *activation == Activation::Sigmoid { sigmoid(logit) as f32 } else { logit };
                    Ok(Outcome::Score { score })
                };
                of_rows(first, batch, score)
            }
            Self::Class { labels, activation, is_multi_label, .. } => {
                of_rows(first, batch, |row| class(row, labels, *activation, *is_multi_label))
            }
            Self::Tokens { labels, .. } => labelled(first, labels, batch),
            Self::Answer { .. } => {
                let [start, end] = outputs else { bail!("there are no scores of two kinds") };
                answers(start, end, batch)
            }
            Self::Masks { mask, vocabulary, top, tokenizer, .. } => {
                masks(first, (*mask, *vocabulary, *top), tokenizer, batch)
            }
        }
    }
}

/// What is made of the logits [rows, labels] of each text.
fn of_rows(logits: &Tensor, batch: &Batch<'_>, make: impl Fn(&[f32]) -> Result<Outcome>) -> Result<Vec<Outcome>> {
    let &[_, labels] = logits.shape() else {
        bail!("the scores of texts are {:?}, not [texts, labels]", logits.shape())
    };
    floats(logits).chunks_exact(labels.max(1)).take(batch.texts.len()).map(make).collect()
}

/// The best label of logits.
fn class(row: &[f32], labels: &Rc<[String]>, activation: Activation, is_multi_label: bool) -> Result<Outcome> {
    let scores: Vec<f32> = match activation {
        Activation::Sigmoid => row.iter().map(|logit| sigmoid(*logit) as f32).collect(),
        Activation::Softmax => softmax(row).into_iter().map(|score| score as f32).collect(),
        Activation::Identity => row.to_vec(),
    };
    let best = top(row);
    let (Some(label), Some(score)) = (labels.get(best), scores.get(best)) else {
        bail!("the model gives {} scores of a text, and has {} labels", row.len(), labels.len())
    };
    // A label is true where its probability is above 0.5, so its logit above 0.
    let likely = labels.iter().zip(row).filter(|(_, logit)| **logit > 0.0);
    let likely = is_multi_label.then(|| likely.map(|(label, _)| label.clone()).collect());
    let (label, score, labels) = (label.clone(), *score, Rc::clone(labels));
    Ok(Outcome::Class { label, score, labels: likely, scores: Scores { labels, scores } })
}

/// Scores of each token: [rows, tokens, scores].
struct Columns<'a> {
    numbers: std::borrow::Cow<'a, [f32]>,
    tokens: usize,
    scores: usize,
}

impl<'a> Columns<'a> {
    fn of(tensor: &'a Tensor) -> Result<Self> {
        let &[_, tokens, scores] = tensor.shape() else {
            bail!("the scores of tokens are {:?}, not [texts, tokens, scores]", tensor.shape())
        };
        Ok(Self { numbers: floats(tensor), tokens, scores })
    }

    /// The scores at a position of a row.
    fn at(&self, row: usize, position: usize) -> Result<&[f32]> {
        let from = (row * self.tokens + position) * self.scores;
        let scores = self.numbers.get(from..from + self.scores).filter(|_| position < self.tokens);
        scores.with_context(|| format!("the model gives no score of token {} of a text", position + 1))
    }
}

/// The labels of tokens, or of the words of a list.
fn labelled(logits: &Tensor, labels: &[String], batch: &Batch<'_>) -> Result<Vec<Outcome>> {
    let columns = Columns::of(logits)?;
    let kept = batch.kept()?;
    let of_text = |(row, text): (usize, &KeptText)| {
        let begin = batch.begin(batch.texts[row], columns.tokens);
        let mut tokens = Vec::new();
        for (at, span) in text.spans.iter().enumerate() {
            let Some(span) = span else { continue };
            let (word, whole, start, end) = match &text.text {
                Text::Words(words) => {
                    // The first token of a word says its label.
                    let Some((number, word)) = text.words[at].and_then(|at| Some((at, words.get(at)?))) else {
                        continue;
                    };
                    (Some(number), word, 0, word.chars().count())
                }
                Text::One(text) | Text::Pair(text, _) if span.sequence == 0 => (None, text, span.start, span.end),
                Text::Pair(_, text) => (None, text, span.start, span.end),
                Text::One(_) => continue,
            };
            let scores = columns.at(row, begin + at)?;
            let best = top(scores);
            let label = labels.get(best).with_context(|| format!("the class {best} of a token has no label"))?;
            if label == OUTSIDE {
                continue;
            }
            let (text, start, end) = trimmed(whole, start, end);
            let score = softmax(scores)[best] as f32;
            tokens.push(LabelledToken { label: label.clone(), score, word, text, start, end });
        }
        Ok(Outcome::Tokens { tokens })
    };
    kept.into_iter().enumerate().map(of_text).collect()
}

/// The answers to questions, by the scores [rows, tokens] of their first and last tokens.
fn answers(start: &Tensor, end: &Tensor, batch: &Batch<'_>) -> Result<Vec<Outcome>> {
    let (&[_, tokens], &[_, others]) = (start.shape(), end.shape()) else {
        bail!("the scores of answers are {:?} and {:?}, not [texts, tokens]", start.shape(), end.shape())
    };
    let (starts, ends) = (floats(start), floats(end));
    let row_of = |scores: &[f32], tokens: usize, row: usize| scores.chunks(tokens.max(1)).nth(row).map(<[f32]>::to_vec);
    let answer = |(row, text): (usize, &KeptText)| {
        let rows = row_of(&starts, tokens, row).zip(row_of(&ends, others, row));
        let (starts, ends) = rows.context("the model gives no scores of a text")?;
        let Text::Pair(_, context) = &text.text else {
            bail!("an answer is found in a pair of a question and a text; --field names both")
        };
        let begin = batch.begin(batch.texts[row], tokens);
        let span_at = |at: usize| at.checked_sub(begin).and_then(|at| text.spans.get(at).copied().flatten());
        let is_text = |at: usize| span_at(at).is_some_and(|span| span.sequence == 1 && span.end > span.start);
        // A text of no tokens has no answer.
        let Some(best) = span::best(&starts, &ends, is_text) else {
            return Ok(Outcome::Answer { answer: String::new(), score: 0.0, start: 0, end: 0 });
        };
        let (first, last) = (span_at(best.first), span_at(best.last));
        let (from, to) = (first.map_or(0, |span| span.start), last.map_or(0, |span| span.end));
        let (answer, start, end) = trimmed(context, from, to);
        Ok(Outcome::Answer { answer, score: best.score as f32, start, end })
    };
    batch.kept()?.into_iter().enumerate().map(answer).collect()
}

/// The likeliest tokens with their probabilities, by their ids.
type Best = Vec<(usize, f64)>;

/// The likeliest tokens in place of masks, by logits [rows, tokens, vocabulary].
fn masks(
    logits: &Tensor,
    (mask, vocabulary, top): (i64, usize, NonZeroUsize),
    tokenizer: &TextTokenizer,
    batch: &Batch<'_>,
) -> Result<Vec<Outcome>> {
    let columns = Columns::of(logits)?;
    let best = |(row, text): (usize, &KeptText)| -> Result<Vec<(usize, usize, Best)>> {
        let begin = batch.begin(batch.texts[row], columns.tokens);
        let masked = (0..text.ids.len()).filter(|at| text.ids[*at] == mask);
        let span = |at: usize| text.spans.get(at).copied().flatten().map_or((0, 0), |span| (span.start, span.end));
        let found = |at: usize| {
            let scores = columns.at(row, begin + at)?;
            let (start, end) = span(at);
            Ok((start, end, candidates(&scores[..vocabulary.min(scores.len())], top.get())))
        };
        masked.map(found).collect()
    };
    let found = batch.kept()?.into_iter().enumerate().map(best).collect::<Result<Vec<_>>>()?;
    let ids = found.iter().flatten().flat_map(|(.., best)| best.iter().map(|(id, _)| u32::try_from(*id)));
    let mut tokens = tokenizer.each(ids.collect::<Result<_, _>>()?)?.into_iter();
    let mut of_mask = |(start, end, best): (usize, usize, Best)| {
        let candidate =
            |(id, score): (usize, f64)| Candidate { token: tokens.next().unwrap_or_default(), id, score: score as f32 };
        Mask { start, end, tokens: best.into_iter().map(candidate).collect() }
    };
    Ok(found.into_iter().map(|masks| Outcome::Masks { masks: masks.into_iter().map(&mut of_mask).collect() }).collect())
}

/// The likeliest of some tokens with their probabilities, the best first; of equals the lower id first.
fn candidates(logits: &[f32], count: usize) -> Best {
    let scores = softmax(logits);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    let count = count.min(order.len());
    let by_score = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
    if count > 0 && count < order.len() {
        order.select_nth_unstable_by(count - 1, by_score);
    }
    order.truncate(count);
    order.sort_unstable_by(by_score);
    order.into_iter().map(|id| (id, scores[id])).collect()
}

/// The characters of a text from one on and before another, without blanks around them, and where they are then.
fn trimmed(text: &str, start: usize, end: usize) -> (String, usize, usize) {
    let whole: String = text.chars().skip(start).take(end.saturating_sub(start)).collect();
    let blanks = whole.chars().take_while(|c| c.is_whitespace()).count();
    let found = whole.trim();
    let start = start + blanks;
    (found.to_owned(), start, start + found.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_tokens_come_first() {
        let best = candidates(&[0.0, 2.0, 1.0, 2.0], 3);
        assert_eq!(best.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 3, 2]);
        assert!((best[0].1 - best[1].1).abs() < 1e-12 && best[0].1 > best[2].1);
        assert_eq!((candidates(&[1.0], 5).len(), candidates(&[], 5).len()), (1, 0));
    }

    #[test]
    fn blanks_around_a_span_are_no_part_of_it() {
        assert_eq!(trimmed("\u{e9}t\u{e9} chaud", 3, 9), ("chaud".to_owned(), 4, 9));
        assert_eq!(trimmed("a b", 1, 2), (String::new(), 2, 2));
        assert_eq!(trimmed("a", 5, 3), (String::new(), 5, 5));
    }

    #[test]
    fn several_labels_may_be_true() {
        let labels: Rc<[String]> = ["a", "b", "c"].map(str::to_owned).into();
        let Outcome::Class { label, labels, scores, .. } =
            class(&[1.0, 0.0, 3.0], &labels, Activation::Sigmoid, true).unwrap()
        else {
            panic!("a class")
        };
        assert_eq!((label.as_str(), labels), ("c", Some(vec!["a".to_owned(), "c".to_owned()])));
        assert!((scores.scores[0] - 0.731_058_6).abs() < 1e-6);
        assert!(class(&[0.0, 1.0], &["a".to_owned()].into(), Activation::Softmax, false).is_err());
    }
}
