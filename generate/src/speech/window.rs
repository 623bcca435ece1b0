//! The text of windows: greedy or drawn tokens, and again at a higher temperature where the text is doubtful
//! (`WhisperGenerationMixin.generate_with_fallback` of the transformers library).

use std::io::Write;

use anyhow::{Result, anyhow, bail};
use fastrand::Rng;
use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::model::{Heard, SpeechModel};
use super::rules::{Timestamps, log_sum};
use super::settings::{Settings, Thresholds};
use crate::processors::Sequence;
use crate::sample::Sampling;

/// The temperature from which on a text is not what the next window is read after.
const UNSURE: f64 = 0.5;

/// A window that is to be decoded.
pub(super) struct Task {
    /// What its text begins with: what was said before, and the beginning of any text.
    pub(super) text: Vec<i64>,
    /// How long the text gets at most.
    pub(super) longest: usize,
}

/// The text of a window.
#[derive(Clone, Debug)]
pub(super) struct Said {
    /// Without the token that ends it.
    pub(super) tokens: Vec<i64>,
    pub(super) temperature: f64,
    /// The mean log probability of its tokens.
    pub(super) logprob: f64,
    pub(super) compression_ratio: f64,
    /// The probability of no speech, where the model has a token for it.
    pub(super) no_speech: Option<f64>,
    /// Whether it is taken for silence.
    pub(super) is_silence: bool,
}

impl Said {
    /// Whether the next window may be read after it.
    pub(super) fn is_sure(&self) -> bool {
        self.temperature < UNSURE
    }
}

/// How windows are decoded.
pub(super) struct Decoding<'a> {
    pub(super) settings: &'a Settings,
    pub(super) rules: Option<Timestamps>,
    pub(super) thresholds: Thresholds,
    /// Temperatures in the order in which they are tried; 0 is the likeliest token.
    pub(super) temperatures: &'a [f64],
    /// How many tokens a text begins with, without what was said before.
    pub(super) beginning: usize,
}

/// A row while it is decoded.
#[derive(Default)]
struct Row {
    new: Vec<i64>,
    logprobs: Vec<f64>,
    no_speech: Option<f64>,
}

impl Decoding<'_> {
    /// Decodes windows whose texts begin with as many tokens. `states` is what the encoder gives for them.
    ///
    /// # Errors
    /// When the model fails, or forbids all tokens.
    pub(super) fn windows(
        &self,
        model: &mut SpeechModel,
        states: &Heard,
        tasks: &[Task],
        rngs: &mut [Rng],
    ) -> Result<Vec<Said>> {
        let mut found: Vec<Option<Said>> = vec![None; tasks.len()];
        let mut open: Vec<usize> = (0..tasks.len()).collect();
        for (n, &temperature) in self.temperatures.iter().enumerate() {
            let all = open.len() == tasks.len();
            let rows = if all { None } else { Some(states.take_rows(&open)?) };
            let said = self.at(model, rows.as_ref().unwrap_or(states), tasks, &open, temperature, rngs)?;
            let is_last = n + 1 == self.temperatures.len();
            let mut again = Vec::new();
            for (row, (said, is_doubtful)) in open.iter().zip(said) {
                if is_doubtful && !is_last {
                    again.push(*row);
                }
                found[*row] = Some(said);
            }
            open = again;
            if open.is_empty() {
                break;
            }
        }
        found.into_iter().map(|said| said.ok_or_else(|| anyhow!("no temperature is given"))).collect()
    }

    /// Decodes some of the windows at a temperature, and says which are doubtful.
    fn at(
        &self,
        model: &mut SpeechModel,
        states: &Heard,
        tasks: &[Task],
        open: &[usize],
        temperature: f64,
        rngs: &mut [Rng],
    ) -> Result<Vec<(Said, bool)>> {
        let texts: Vec<Vec<i64>> = open.iter().map(|row| tasks[*row].text.clone()).collect();
        let mut rows: Vec<Row> = open.iter().map(|_| Row::default()).collect();
        let mut scores = model.start(states, &texts)?;
        if let Some(token) = self.settings.no_timestamps.and_then(|id| usize::try_from(id - 1).ok()) {
            // After the first of the tokens that any text begins with.
            let column = if self.beginning > 1 { scores.count().checked_sub(self.beginning) } else { None };
            for (at, row) in rows.iter_mut().enumerate() {
                let of = column.map_or_else(|| scores.last(at), |column| scores.at(at, column));
                row.no_speech = of.get(token).map(|score| (f64::from(*score) - log_sum(of)).exp());
            }
        }
        // The rows of the model, as places among `rows`.
        let mut live: Vec<usize> = (0..open.len()).collect();
        loop {
            let mut next = Vec::new();
            for (at, &place) in live.iter().enumerate() {
                let task = &tasks[open[place]];
                let row = &mut rows[place];
                let (token, logprob) =
                    self.choose(scores.last(at), task, &row.new, temperature, &mut rngs[open[place]])?;
                row.new.push(token);
                row.logprobs.push(logprob);
                if token != self.settings.end && task.text.len() + row.new.len() < task.longest {
                    next.push((at, place, token));
                }
            }
            if next.is_empty() {
                break;
            }
            let kept: Vec<usize> = next.iter().map(|(at, ..)| *at).collect();
            let ids: Vec<i64> = next.iter().map(|(.., id)| *id).collect();
            scores = model.step(Some(&kept[..]).filter(|_| kept.len() < live.len()), &ids)?;
            live = next.iter().map(|(_, place, _)| *place).collect();
        }
        Ok(rows.into_iter().map(|row| self.judged(row, temperature, model.vocabulary)).collect())
    }

    /// The next token of a row, and its log probability among what could follow.
    fn choose(&self, scores: &[f32], task: &Task, new: &[i64], temperature: f64, rng: &mut Rng) -> Result<(i64, f64)> {
        let base = &self.settings.base;
        let end_tokens = [self.settings.end];
        let limit = task.longest.saturating_sub(task.text.len());
        let text = Sequence { prompt: &task.text, beginning: &task.text, new, limit, end_tokens: &end_tokens };
        let mut scores = base.processors.processed(scores, text).into_owned();
        if let Some(rules) = &self.rules {
            rules.apply(&mut scores, new);
        }
        let (token, sum) = if temperature > 0.0 {
            let sampling = Sampling { temperature, top_k: base.top_k, top_p: base.top_p, min_p: base.min_p };
            let considered: Vec<f32> =
                sampling.warped(&scores, 1).iter().map(|(_, score)| (score * temperature) as f32).collect();
            (sampling.draw(&scores, rng), log_sum(&considered))
        } else {
            let best = |(at, score): (usize, f32), (other, of): (usize, &f32)| match *of > score {
                true => (other, *of),
                false => (at, score),
            };
            let (at, score) = scores.iter().enumerate().fold((0, f32::NEG_INFINITY), best);
            ((score > f32::NEG_INFINITY).then_some(at), log_sum(&scores))
        };
        let Some(token) = token else {
            bail!("the settings of generation_config.json and the rules of timestamps forbid all tokens")
        };
        Ok((i64::try_from(token)?, f64::from(scores[token]) - sum))
    }

    /// What a row says, and whether that is doubtful.
    fn judged(&self, row: Row, temperature: f64, vocabulary: usize) -> (Said, bool) {
        let Row { mut new, mut logprobs, no_speech } = row;
        let Settings { end, pad, .. } = *self.settings;
        // The library takes off as many tokens as there are of padding, where a text ends with one.
        if pad.is_some() && new.last().copied() == pad {
            let count = new.iter().filter(|id| Some(**id) == pad).count() - usize::from(pad == Some(end));
            new.truncate(new.len() - count);
            logprobs.truncate(new.len());
        }
        let logprob = logprobs.iter().sum::<f64>() / logprobs.len().max(1) as f64;
        let compression_ratio = compression_ratio(&new, vocabulary);
        if new.last() == Some(&end) {
            new.pop();
        }
        let Thresholds { compression_ratio: most, logprob: least, no_speech: silence } = self.thresholds;
        let is_repeating = most.is_some_and(|most| compression_ratio > most);
        let is_unlikely = least.is_some_and(|least| logprob < least);
        let is_silent = silence.zip(no_speech).is_some_and(|(most, no_speech)| no_speech > most);
        let is_silence = is_silent && (is_unlikely || least.is_none());
        let said = Said { tokens: new, temperature, logprob, compression_ratio, no_speech, is_silence };
        (said, (is_repeating || is_unlikely) && !is_silence)
    }
}

/// How much longer ids are than what zlib makes of them.
fn compression_ratio(ids: &[i64], vocabulary: usize) -> f64 {
    let width = ((vocabulary as f64).log2() / 8.0) as usize + 1;
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes().into_iter().take(width)).collect();
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let compressed = encoder.write_all(&bytes).and_then(|()| encoder.finish()).unwrap_or_default();
    bytes.len() as f64 / compressed.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_compresses() {
        // Python's zlib makes 15 bytes of 200 ids of 2 bytes that are the same.
        let ratio = compression_ratio(&[7; 200], 51865);
        assert!((400.0 / 17.0..=400.0 / 13.0).contains(&ratio), "{ratio}");
        assert!(compression_ratio(&[1, 2, 3], 51865) < 1.0);
        assert_eq!(compression_ratio(&[], 100), 0.0);
    }
}
