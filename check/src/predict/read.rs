//! How the outputs of a batch become predictions.

use std::num::NonZeroUsize;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use planish_data::Text;
use planish_data::chunks::{KeptText, ReadSample};
use planish_data::tokenizer::TextTokenizer;
use planish_eval::Tensor;

use super::characters::Characters;
use super::config::Activation;
use super::depth::depths;
use super::head::Head;
use super::objects::objects;
use super::outcome::{Candidate, LabelledToken, Mask, Outcome, Scores, sigmoid, softmax};
use super::panoptic::instances;
use super::segments::segments;
use super::span::{self, Part};
use super::speech::of_frames;
use crate::evaluate::metrics::{normalized, top};
use crate::pooling::pool;
use crate::positions::{Positions, floats};

/// The label of a token that is part of nothing, which the transformers library leaves out too.
const OUTSIDE: &str = "O";

/// A batch that was run.
pub(super) struct Batch<'a> {
    /// The texts, a row each; the outputs may have more rows.
    pub(super) texts: Vec<&'a ReadSample>,
    /// Which positions hold a token; all where absent.
    pub(super) positions: Option<Positions>,
    /// Whether padding comes before the tokens.
    pub(super) is_left: bool,
    /// What the texts were tokenized with.
    pub(super) tokenizer: Option<&'a TextTokenizer>,
    /// The id that [`Head::marked_token`] gives.
    pub(super) marked: Option<i64>,
}

impl Batch<'_> {
    /// The texts, of which everything is kept.
    fn kept(&self) -> Result<Vec<&KeptText>> {
        self.texts.iter().map(|text| text.kept.as_ref().context("a text was not kept")).collect()
    }

    /// Height and width of the picture that a sample is.
    pub(super) fn size(&self, sample: &ReadSample) -> Result<[usize; 2]> {
        Ok(sample.picture.as_ref().context("a prediction of a picture is asked for a text")?.size)
    }

    /// The position of the first token of a text among those of its row.
    fn begin(&self, text: &ReadSample, width: usize) -> usize {
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
            Self::Objects { labels, scoring, threshold, .. } => {
                let [logits, boxes] = outputs else { bail!("there are no logits and boxes") };
                objects([logits, boxes], (labels, *scoring, *threshold), batch)
            }
            Self::Instances { labels, threshold, .. } => {
                let [logits, masks] = outputs else { bail!("there are no logits and masks") };
                instances([logits, masks], (labels, *threshold), batch)
            }
            Self::Segments { labels, .. } => segments(first, labels, batch),
            Self::Depth { .. } => depths(first, batch),
            Self::Frames { frames, seconds, places, .. } => of_frames(first, frames, (*seconds, *places), batch),
            Self::Masks { vocabulary, top, .. } => masks(first, (*vocabulary, *top), batch),
        }
    }
}

/// What is made of the logits [rows, labels] of each text, where they are finite.
fn of_rows(logits: &Tensor, batch: &Batch<'_>, make: impl Fn(&[f32]) -> Result<Outcome>) -> Result<Vec<Outcome>> {
    let &[_, labels] = logits.shape() else {
        bail!("the scores of texts are {:?}, not [texts, labels]", logits.shape())
    };
    let outcome = |row: &[f32]| if is_finite(row) { make(row) } else { Ok(Outcome::NotFinite) };
    floats(logits).chunks_exact(labels.max(1)).take(batch.texts.len()).map(outcome).collect()
}

fn is_finite(logits: &[f32]) -> bool {
    logits.iter().all(|logit| logit.is_finite())
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
        bail!("the model gives {} scores of a sample, and has {} labels", row.len(), labels.len())
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
        let (is_pair, is_list) = (matches!(text.text, Text::Pair(..)), matches!(text.text, Text::Words(_)));
        let (mut texts, mut tokens) = (Characters::of_each(&text.text), Vec::new());
        for (at, span) in text.spans.iter().enumerate() {
            let Some(span) = span else { continue };
            // The first token of a word says its label.
            let part = if is_list { text.words[at] } else { Some(span.sequence) };
            let Some((number, part)) = part.and_then(|number| Some((number, texts.get_mut(number)?))) else { continue };
            let scores = columns.at(row, begin + at)?;
            if !is_finite(scores) {
                return Ok(Outcome::NotFinite);
            }
            let best = top(scores);
            let label = labels.get(best).with_context(|| format!("the class {best} of a token has no label"))?;
            if label == OUTSIDE {
                continue;
            }
            let (start, end) = if is_list { (0, usize::MAX) } else { (span.start, span.end) };
            let (text, start, end) = part.trimmed(start, end);
            let (label, text, score) = (label.clone(), text.to_owned(), softmax(scores)[best] as f32);
            let (word, sequence) = (is_list.then_some(number), is_pair.then_some(number));
            tokens.push(LabelledToken { label, score, word, sequence, text, start, end });
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
        let part = |at: usize| at.checked_sub(begin).map_or(Part::Other, |at| span::part(text, at, batch.marked));
        // A text of no tokens has no answer.
        let Some(best) = span::best(&starts, &ends, part) else {
            return Ok(Outcome::Answer { answer: String::new(), score: 0.0, start: 0, end: 0 });
        };
        let (from, to) = span::whole_words(text, best.first - begin, best.last - begin);
        let (answer, start, end) = Characters::of(context).trimmed(from, to);
        Ok(Outcome::Answer { answer: answer.to_owned(), score: best.score as f32, start, end })
    };
    batch.kept()?.into_iter().enumerate().map(answer).collect()
}

/// The likeliest tokens with their probabilities, by their ids.
type Best = Vec<(usize, f64)>;

/// The likeliest tokens in place of masks, by logits [rows, tokens, vocabulary].
fn masks(logits: &Tensor, (vocabulary, top): (usize, NonZeroUsize), batch: &Batch<'_>) -> Result<Vec<Outcome>> {
    let columns = Columns::of(logits)?;
    let best = |(row, text): (usize, &KeptText)| -> Result<Vec<(Mask, Best)>> {
        let begin = batch.begin(batch.texts[row], columns.tokens);
        let (is_pair, mut texts) = (matches!(text.text, Text::Pair(..)), Characters::of_each(&text.text));
        let masked = (0..text.ids.len()).filter(|at| Some(text.ids[*at]) == batch.marked);
        let found = |at: usize| {
            let scores = columns.at(row, begin + at)?;
            let span = text.spans.get(at).copied().flatten();
            let place = span.and_then(|span| Some(texts.get_mut(span.sequence)?.trimmed(span.start, span.end)));
            let (_, start, end) = place.unwrap_or_default();
            let sequence = span.filter(|_| is_pair).map(|span| span.sequence);
            let mask = Mask { sequence, start, end, tokens: Vec::new() };
            Ok((mask, candidates(&scores[..vocabulary.min(scores.len())], top.get())))
        };
        masked.map(found).collect()
    };
    let found = batch.kept()?.into_iter().enumerate().map(best).collect::<Result<Vec<_>>>()?;
    let ids = found.iter().flatten().flat_map(|(_, best)| best.iter().map(|(id, _)| u32::try_from(*id)));
    let tokenizer = batch.tokenizer.context("tokens need a tokenizer")?;
    let mut tokens = tokenizer.each(ids.collect::<Result<_, _>>()?)?.into_iter();
    let mut of_mask = |(mask, best): (Mask, Best)| {
        let candidate =
            |(id, score): (usize, f64)| Candidate { token: tokens.next().unwrap_or_default(), id, score: score as f32 };
        Mask { tokens: best.into_iter().map(candidate).collect(), ..mask }
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

#[cfg(test)]
mod tests {
    use planish_data::Span;

    use super::*;

    #[test]
    fn the_likeliest_tokens_come_first() {
        let best = candidates(&[0.0, 2.0, 1.0, 2.0], 3);
        assert_eq!(best.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 3, 2]);
        assert!((best[0].1 - best[1].1).abs() < 1e-12 && best[0].1 > best[2].1);
        assert_eq!((candidates(&[1.0], 5).len(), candidates(&[], 5).len()), (1, 0));
    }

    /// A text of three tokens, the first of them around it, and logits of two labels.
    fn labelled_pair(logits: [f32; 6]) -> Outcome {
        let span = |sequence: usize, start: usize, end: usize| Some(Span { sequence, start, end });
        let (ids, words) = (vec![1, 2, 3], vec![None, Some(0), Some(0)]);
        let pair = Text::Pair("\u{e9}t\u{e9} chaud".into(), "b".to_owned());
        let kept = KeptText { text: pair, ids, spans: vec![None, span(0, 3, 9), span(1, 0, 1)], words };
        let text = ReadSample { id: None, document: None, tokens: 3, is_cut: false, kept: Some(kept), picture: None };
        let folder = tempfile::tempdir().unwrap();
        let tokenizer =
            r#"{"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {}, "unk_token": ""}}"#;
        std::fs::write(folder.path().join("tokenizer.json"), tokenizer).unwrap();
        let tokenizer = TextTokenizer::open(folder.path()).unwrap();
        let batch =
            Batch { texts: vec![&text], positions: None, is_left: false, tokenizer: Some(&tokenizer), marked: None };
        let logits = Tensor::new(vec![1, 3, 2], logits.to_vec()).unwrap();
        labelled(&logits, &["O", "X"].map(str::to_owned), &batch).unwrap().remove(0)
    }

    #[test]
    fn tokens_of_a_pair_say_which_text_they_are_in() {
        let Outcome::Tokens { tokens } = labelled_pair([f32::NAN, 0.0, 0.0, 9.0, 0.0, 9.0]) else { panic!("tokens") };
        let places: Vec<_> = tokens.iter().map(|of| (of.sequence, of.text.as_str(), of.start, of.end)).collect();
        assert_eq!(places, [(Some(0), "chaud", 4, 9), (Some(1), "b", 0, 1)]);
    }

    #[test]
    fn logits_that_are_not_finite_are_no_label() {
        for bad in [f32::NAN, f32::INFINITY] {
            assert_eq!(labelled_pair([0.0, 0.0, bad, 0.0, 9.0, 0.0]), Outcome::NotFinite);
            assert!(!is_finite(&[0.0, bad]));
        }
        assert!(!Outcome::NotFinite.is_finite());
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
