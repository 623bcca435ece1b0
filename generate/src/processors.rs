//! What changes scores before a token is chosen: the logits processors of the transformers library.

use std::borrow::Cow;
use std::num::NonZeroUsize;

use anyhow::{Result, bail};

/// Rules by which scores of the next token are changed; by default none. Those that forbid a token
/// make its score negative infinity. They apply in the order of the fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Processors {
    /// Multiplies scores above 0 of tokens that the prompt has, and divides those below, with this; 1 changes nothing
    /// (`EncoderRepetitionPenaltyLogitsProcessor` of the transformers library).
    pub encoder_repetition_penalty: f32,
    /// Divides scores above 0 of tokens that the text has, and multiplies those below, with this
    /// (Keskar et al. 2019); 1 changes nothing.
    pub repetition_penalty: f32,
    /// Is subtracted from the score of a token for each time that it was generated (the API of OpenAI); the prompt does not count.
    pub frequency_penalty: f32,
    /// Is subtracted from the scores of tokens that were generated, however often.
    pub presence_penalty: f32,
    /// No sequence of so many tokens is in the text twice.
    pub no_repeat_ngram_size: Option<NonZeroUsize>,
    /// No sequence of so many tokens that is in the prompt is in the text.
    pub encoder_no_repeat_ngram_size: Option<NonZeroUsize>,
    /// Sequences that the text never gets. One of a single end token does not count.
    pub bad_words: Vec<Vec<i64>>,
    /// A shorter text does not end.
    pub min_length: usize,
    /// A text with fewer new tokens does not end.
    pub min_new_tokens: usize,
    /// What follows a text of one token.
    pub forced_bos: Option<i64>,
    /// What a text ends with that gets as long as it may; nothing where it is empty.
    pub forced_eos: Vec<i64>,
    /// Tokens that never come.
    pub suppress: Vec<i64>,
    /// Tokens that do not come first, a forced one aside.
    pub begin_suppress: Vec<i64>,
    /// Whether beams turn scores into log probabilities again after all of this.
    pub renormalize: bool,
}

impl Default for Processors {
    fn default() -> Self {
        Self {
            encoder_repetition_penalty: 1.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            no_repeat_ngram_size: None,
            encoder_no_repeat_ngram_size: None,
            bad_words: Vec::new(),
            min_length: 0,
            min_new_tokens: 0,
            forced_bos: None,
            forced_eos: Vec::new(),
            suppress: Vec::new(),
            begin_suppress: Vec::new(),
            renormalize: false,
        }
    }
}

/// A text that is to be continued, as ids.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// The prompt: what a decoder's text begins with, and what the encoder of an encoder-decoder reads.
    pub prompt: &'a [i64],
    /// What the text begins with.
    pub beginning: &'a [i64],
    /// What was generated.
    pub new: &'a [i64],
    /// How many new tokens it gets at most.
    pub limit: usize,
    /// What ends it.
    pub end_tokens: &'a [i64],
}

impl Processors {
    /// Whether all ids are in the vocabulary, and what is forced is not forbidden.
    ///
    /// # Errors
    /// With the name of the setting of which that is not so.
    pub fn check(&self, vocabulary: i64) -> Result<()> {
        let check = |key: &str, ids: &[i64]| match ids.iter().find(|id| !(0..vocabulary).contains(*id)) {
            Some(id) => {
                bail!("`{key}` has the id {id}, which is not in the vocabulary: ids are from 0 to {}", vocabulary - 1)
            }
            None => Ok(()),
        };
        check("bad_words_ids", &self.bad_words.concat())?;
        check("forced_bos_token_id", self.forced_bos.as_slice())?;
        check("forced_eos_token_id", &self.forced_eos)?;
        for (key, ids) in
            [("forced_bos_token_id", self.forced_bos.as_slice()), ("forced_eos_token_id", &self.forced_eos)]
        {
            if !ids.is_empty() && ids.iter().all(|id| self.suppress.contains(id)) {
                bail!(
                    "`{key}` is {ids:?}, which `suppress_tokens` forbids: no token could follow; remove one of the two"
                );
            }
        }
        Ok(())
    }

    /// Whether no scores are changed, whatever the text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self { renormalize: self.renormalize, ..Self::default() }
    }

    /// The scores of what follows a text.
    #[must_use]
    pub fn processed<'s>(&self, scores: &'s [f32], text: Sequence<'_>) -> Cow<'s, [f32]> {
        if self.is_empty() {
            return Cow::Borrowed(scores);
        }
        let mut scores = scores.to_vec();
        self.apply(&mut scores, text);
        Cow::Owned(scores)
    }

    fn apply(&self, scores: &mut [f32], text: Sequence<'_>) {
        let ids = [text.beginning, text.new].concat();
        penalize_repetition(scores, text.prompt, self.encoder_repetition_penalty.recip());
        penalize_repetition(scores, &ids, self.repetition_penalty);
        self.penalize_generated(scores, text.new);
        for (size, of) in [(self.no_repeat_ngram_size, &ids[..]), (self.encoder_no_repeat_ngram_size, text.prompt)] {
            let Some(size) = size else { continue };
            let (known, same) = (of.windows(size.get()), &ids[(ids.len() + 1).saturating_sub(size.get())..]);
            for ngram in known {
                if let Some((next, _)) = ngram.split_last().filter(|(_, before)| *before == same) {
                    forbid(scores, *next);
                }
            }
        }
        for word in self.bad_words.iter().filter(|word| !matches!(word[..], [id] if text.end_tokens.contains(&id))) {
            if let Some((last, _)) = word.split_last().filter(|(_, before)| ids.ends_with(before)) {
                forbid(scores, *last);
            }
        }
        if ids.len() < self.min_length || text.new.len() < self.min_new_tokens {
            text.end_tokens.iter().for_each(|&id| forbid(scores, id));
        }
        if let Some(first) = self.forced_bos.filter(|_| ids.len() == 1) {
            force(scores, &[first]);
        }
        if !self.forced_eos.is_empty() && text.new.len() + 1 == text.limit {
            force(scores, &self.forced_eos);
        }
        self.suppress.iter().for_each(|&id| forbid(scores, id));
        let forced = usize::from(text.beginning.len() <= 1 && self.forced_bos.is_some());
        if text.new.len() == forced {
            self.begin_suppress.iter().for_each(|&id| forbid(scores, id));
        }
    }

    /// Subtracts the penalties of tokens that were generated.
    fn penalize_generated(&self, scores: &mut [f32], new: &[i64]) {
        if (self.frequency_penalty, self.presence_penalty) == (0.0, 0.0) {
            return;
        }
        let mut ids = new.to_vec();
        ids.sort_unstable();
        for same in ids.chunk_by(|a, b| a == b) {
            if let Some(score) = score(scores, same[0]) {
                *score -= self.frequency_penalty * same.len() as f32 + self.presence_penalty;
            }
        }
    }
}

/// Makes tokens less likely that are among these ids: scores above 0 are divided by the penalty, and those below multiplied.
fn penalize_repetition(scores: &mut [f32], ids: &[i64], penalty: f32) {
    if penalty == 1.0 {
        return;
    }
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        if let Some(score) = score(scores, id) {
            *score = if *score < 0.0 { *score * penalty } else { *score / penalty };
        }
    }
}

fn score(scores: &mut [f32], id: i64) -> Option<&mut f32> {
    scores.get_mut(usize::try_from(id).ok()?)
}

fn forbid(scores: &mut [f32], id: i64) {
    if let Some(score) = score(scores, id) {
        *score = f32::NEG_INFINITY;
    }
}

/// Forbids all tokens but these.
fn force(scores: &mut [f32], ids: &[i64]) {
    scores.fill(f32::NEG_INFINITY);
    for id in ids {
        if let Some(score) = score(scores, *id) {
            *score = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO: f32 = f32::NEG_INFINITY;

    /// Scores 1 to 5 of five tokens, processed; 4 ends, and the text gets at most 3 new tokens.
    fn processed(processors: Processors, beginning: &[i64], new: &[i64]) -> Vec<f32> {
        let text = Sequence { prompt: beginning, beginning, new, limit: 3, end_tokens: &[4] };
        processors.processed(&[1.0, 2.0, 3.0, 4.0, 5.0], text).into_owned()
    }

    #[test]
    fn repetition_makes_tokens_of_the_text_less_likely_once() {
        let processors = Processors { repetition_penalty: 2.0, ..Processors::default() };
        assert_eq!(processed(processors.clone(), &[1, 1], &[3]), [1.0, 1.0, 3.0, 2.0, 5.0]);
        let text = Sequence { prompt: &[], beginning: &[0, 1], new: &[], limit: 3, end_tokens: &[] };
        assert_eq!(processors.processed(&[-1.0, 0.0, -3.0], text)[..], [-2.0, 0.0, -3.0]);
    }

    #[test]
    fn penalties_count_what_was_generated() {
        let penalties = |frequency_penalty, presence_penalty| Processors {
            frequency_penalty,
            presence_penalty,
            ..Processors::default()
        };
        assert_eq!(processed(penalties(0.5, 0.0), &[1, 1], &[3, 0, 3]), [0.5, 2.0, 3.0, 3.0, 5.0]);
        assert_eq!(processed(penalties(0.0, -1.0), &[1, 1], &[3, 0, 3]), [2.0, 2.0, 3.0, 5.0, 5.0]);
        assert_eq!(processed(penalties(0.5, 0.25), &[1, 1], &[3, 0, 3]), [0.25, 2.0, 3.0, 2.75, 5.0]);
        // That of the text comes first.
        let both = Processors { repetition_penalty: 2.0, ..penalties(1.0, 0.5) };
        assert_eq!(processed(both, &[1], &[3]), [1.0, 1.0, 3.0, 0.5, 5.0]);
        assert_eq!(processed(penalties(2.0, 2.0), &[1], &[99, -1]), [1.0, 2.0, 3.0, 4.0, 5.0]);
        let forbidden = Processors { suppress: vec![3], ..penalties(-2.0, 0.0) };
        assert_eq!(processed(forbidden, &[1], &[3]), [1.0, 2.0, 3.0, NO, 5.0]);
    }

    #[test]
    fn what_the_encoder_reads_may_be_favoured_or_left_out() {
        let of = |prompt: &[i64], new: &[i64], processors: Processors| {
            let text = Sequence { prompt, beginning: &[0], new, limit: 9, end_tokens: &[4] };
            processors.processed(&[-1.0, 2.0, 3.0, -4.0, 5.0], text).into_owned()
        };
        let penalty = |encoder_repetition_penalty| Processors { encoder_repetition_penalty, ..Processors::default() };
        assert_eq!(of(&[2, 3, 3], &[1], penalty(2.0)), [-1.0, 2.0, 6.0, -2.0, 5.0]);
        assert_eq!(of(&[2, 3, 3], &[1], penalty(0.5)), [-1.0, 2.0, 1.5, -8.0, 5.0]);
        let size = |size| Processors { encoder_no_repeat_ngram_size: NonZeroUsize::new(size), ..Processors::default() };
        assert_eq!(of(&[2, 3, 1], &[1], size(1)), [-1.0, NO, NO, NO, 5.0]);
        assert_eq!(of(&[2, 3, 2, 1], &[2], size(2)), [-1.0, NO, 3.0, NO, 5.0]);
        assert_eq!(of(&[0, 2, 1], &[2], size(3)), [-1.0, NO, 3.0, -4.0, 5.0]);
        // None of the text is as long yet.
        assert_eq!(of(&[0, 2, 1], &[], size(4)), [-1.0, 2.0, 3.0, -4.0, 5.0]);
    }

    #[test]
    fn what_would_repeat_an_ngram_is_forbidden() {
        let size = |size| Processors { no_repeat_ngram_size: NonZeroUsize::new(size), ..Processors::default() };
        assert_eq!(processed(size(1), &[1], &[2]), [1.0, NO, NO, 4.0, 5.0]);
        assert_eq!(processed(size(2), &[1, 2, 3, 1], &[3, 1]), [1.0, 2.0, NO, NO, 5.0]);
        assert_eq!(processed(size(3), &[1, 2, 3, 1], &[2]), [1.0, 2.0, 3.0, NO, 5.0]);
        // None is complete yet.
        assert_eq!(processed(size(3), &[1], &[]), [1.0, 2.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn bad_words_are_not_completed() {
        let bad_words = vec![vec![0], vec![4], vec![1, 2], vec![3, 1, 3], vec![1, 2, 3, 1, 3]];
        let processors = Processors { bad_words, ..Processors::default() };
        assert_eq!(processed(processors.clone(), &[3], &[1]), [NO, 2.0, NO, NO, 5.0]);
        assert_eq!(processed(processors, &[3], &[]), [NO, 2.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn a_short_text_does_not_end() {
        let ends = |processors: &Processors, beginning: &[i64], new: &[i64]| {
            processed(processors.clone(), beginning, new)[4] == 5.0
        };
        let text = Processors { min_length: 3, ..Processors::default() };
        assert_eq!(
            [ends(&text, &[1], &[1]), ends(&text, &[1], &[1, 1]), ends(&text, &[1; 3], &[])],
            [false, true, true]
        );
        let new = Processors { min_new_tokens: 1, ..Processors::default() };
        assert_eq!([ends(&new, &[1; 9], &[]), ends(&new, &[1; 9], &[1])], [false, true]);
    }

    #[test]
    fn first_and_last_tokens_are_forced() {
        let processors = Processors { forced_bos: Some(2), forced_eos: vec![4, 0], ..Processors::default() };
        assert_eq!(processed(processors.clone(), &[1], &[]), [NO, NO, 0.0, NO, NO]);
        assert_eq!(processed(processors.clone(), &[1], &[2]), [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(processed(processors.clone(), &[1], &[2, 3]), [0.0, NO, NO, NO, 0.0]);
        // A prompt of more than one token has its beginning.
        assert_eq!(processed(processors, &[1, 3], &[]), [1.0, 2.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn tokens_are_suppressed_always_or_at_first() {
        let suppressing = |forced_bos| Processors {
            suppress: vec![0, 99, -1],
            begin_suppress: vec![2],
            forced_bos,
            ..Processors::default()
        };
        assert_eq!(processed(suppressing(None), &[1], &[]), [NO, 2.0, NO, 4.0, 5.0]);
        assert_eq!(processed(suppressing(None), &[1], &[3]), [NO, 2.0, 3.0, 4.0, 5.0]);
        // After a forced token is the first one to choose.
        assert_eq!(processed(suppressing(Some(2)), &[1], &[]), [NO, NO, 0.0, NO, NO]);
        assert_eq!(processed(suppressing(Some(2)), &[1], &[2]), [NO, 2.0, NO, 4.0, 5.0]);
        assert_eq!(processed(suppressing(Some(2)), &[1, 1], &[]), [NO, 2.0, NO, 4.0, 5.0]);
    }

    #[test]
    fn ids_outside_of_the_vocabulary_are_named() {
        let processors = Processors { bad_words: vec![vec![1, 5]], forced_bos: Some(-1), ..Processors::default() };
        let error = |vocabulary| processors.check(vocabulary).unwrap_err().to_string();
        assert!(error(5).contains("`bad_words_ids` has the id 5"), "{}", error(5));
        assert!(error(6).contains("`forced_bos_token_id` has the id -1"), "{}", error(6));
        let suppress = vec![1, 2];
        let forced_eos =
            |ids: &[i64]| Processors { forced_eos: ids.to_vec(), suppress: suppress.clone(), ..Processors::default() };
        let contradiction = |processors: &Processors| processors.check(9).unwrap_err().to_string();
        assert!(
            contradiction(&forced_eos(&[2, 1])).contains("`forced_eos_token_id` is [2, 1], which `suppress_tokens`")
        );
        assert!(forced_eos(&[2, 3]).check(9).is_ok());
        let forced_bos = Processors { forced_bos: Some(1), ..forced_eos(&[]) };
        assert!(contradiction(&forced_bos).contains("`forced_bos_token_id` is [1], which `suppress_tokens`"));
        assert!(Processors::default().check(1).is_ok() && Processors::default().is_empty());
    }
}
