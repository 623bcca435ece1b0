//! Recordings window by window (`WhisperGenerationMixin.generate` of the transformers library for long recordings): each window
//! begins where the last timestamp of the one before it is. The windows of several recordings run side by side.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use fastrand::Rng;
use planish_data::tokenizer::TextTokenizer;

use super::model::{Heard, SpeechModel};
use super::rules::{Timestamps, log_sum};
use super::segments::pieces;
use super::settings::{Settings, SpeechTask};
use super::stretches::{Opener, Stretch, Stretches};
use super::told::AllTold;
use super::window::{Decoding, Said, Task};
use super::{Segment, TranscribeObserver};

/// Features of a recording.
pub(super) trait Windows {
    /// How many frames it has.
    fn frames(&self) -> usize;

    /// How long it is.
    fn seconds(&self) -> f64;

    /// The features from a frame on, [bands, frames of a window], with zeros after the end.
    ///
    /// # Errors
    /// When the recording cannot be read.
    fn window(&mut self, from: usize) -> Result<Vec<f32>>;
}

/// What is asked for.
pub(super) struct Asked<'a> {
    pub(super) language: Option<&'a str>,
    pub(super) task: Option<SpeechTask>,
    pub(super) temperatures: &'a [f64],
    /// How many windows run side by side.
    pub(super) batch: usize,
    /// Whether recordings are cut where it is quiet, into pieces of at most a window.
    pub(super) cuts: bool,
    pub(super) seed: u64,
    /// The numbers that recordings draw by; their places where there are none.
    pub(super) numbers: &'a [usize],
}

/// A stretch that is being transcribed.
struct Open {
    stretch: Stretch,
    /// The frame of the stretch that the next window begins at.
    seek: usize,
    /// What each text begins with, once the language is known.
    beginning: Option<Vec<i64>>,
    /// The last tokens of the segments so far.
    said: Vec<i64>,
    has_segments: bool,
    /// Whether the window before was decoded at a low temperature.
    is_sure: bool,
    /// `max_length` of generation_config.json, which grows with what windows are read after.
    max_length: Option<usize>,
    rng: Rng,
}

/// A model with its settings.
pub(super) struct Transcriber<'a> {
    pub(super) model: SpeechModel,
    pub(super) settings: Settings,
    pub(super) tokenizer: TextTokenizer,
    pub(super) observer: &'a dyn TranscribeObserver,
}

impl Transcriber<'_> {
    /// Transcribes so many recordings.
    ///
    /// # Errors
    /// When one cannot be read, the model fails, or what is asked for cannot be.
    pub(super) fn run(&mut self, count: usize, open: Opener<'_>, asked: &Asked<'_>) -> Result<()> {
        let beginning = self.settings.beginning(asked.language, asked.task)?;
        let width = asked.cuts.then_some(self.model.window[1]);
        let mut stretches = Stretches::new(count, open, width);
        let mut told = AllTold::new(self.observer);
        let mut live: Vec<Open> = Vec::new();
        let mut is_empty = false;
        loop {
            while live.len() < asked.batch.max(1) {
                let Some(stretch) = stretches.next(told.observer())? else {
                    is_empty = true;
                    break;
                };
                let number = stretch.recording;
                let drawn = asked.numbers.get(number).copied().unwrap_or(number);
                told.of(number).seconds = stretch.seconds;
                if let Some(language) = beginning.get(1).copied().flatten() {
                    told.of(number).language = Some(language);
                }
                live.push(Open {
                    seek: 0,
                    beginning: beginning.iter().copied().collect(),
                    said: Vec::new(),
                    has_segments: false,
                    is_sure: true,
                    max_length: self.settings.base.max_length,
                    rng: Rng::with_seed(asked.seed.wrapping_add(drawn as u64)),
                    stretch,
                });
            }
            let (over, still): (Vec<Open>, Vec<Open>) =
                live.into_iter().partition(|open| open.seek >= open.stretch.windows.frames());
            live = still;
            for open in &over {
                let Stretch { recording, place, is_last, .. } = open.stretch;
                told.over(recording, place, is_last, &self.settings)?;
            }
            if live.is_empty() && is_empty {
                return Ok(());
            }
            if !live.is_empty() {
                self.round(&mut live, &beginning, asked, &mut told)?;
            }
        }
    }

    /// A window of each recording.
    fn round(
        &mut self,
        live: &mut [Open],
        beginning: &[Option<i64>],
        asked: &Asked<'_>,
        told: &mut AllTold<'_>,
    ) -> Result<()> {
        let windows = live.iter_mut().map(|open| open.stretch.windows.window(open.seek)).collect::<Result<Vec<_>>>()?;
        let states = self.model.encode(&windows)?;
        self.detect(live, &states, beginning, told)?;
        let mut by_length: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut tasks = Vec::new();
        for (row, open) in live.iter_mut().enumerate() {
            let task = self.task(open)?;
            by_length.entry(task.text.len()).or_default().push(row);
            tasks.push(Some(task));
        }
        let rules = self.settings.first_timestamp().map(|first| Timestamps {
            first,
            end: self.settings.end,
            max_initial: self.settings.max_initial_timestamp,
        });
        let mut results: Vec<(usize, Said)> = Vec::new();
        for rows in by_length.into_values() {
            let taken = if rows.len() == live.len() { None } else { Some(states.take_rows(&rows)?) };
            let own: Vec<Task> = rows.iter().filter_map(|row| tasks[*row].take()).collect();
            let mut rngs: Vec<Rng> = rows.iter().map(|row| live[*row].rng.clone()).collect();
            let decoding = Decoding {
                settings: &self.settings,
                rules,
                thresholds: self.settings.thresholds,
                temperatures: asked.temperatures,
                beginning: live[rows[0]].beginning.as_ref().map_or(1, Vec::len),
            };
            let said = decoding.windows(&mut self.model, taken.as_ref().unwrap_or(&states), &own, &mut rngs)?;
            for ((row, said), rng) in rows.into_iter().zip(said).zip(rngs) {
                live[row].rng = rng;
                results.push((row, said));
            }
        }
        results.sort_by_key(|(row, _)| *row);
        results.into_iter().try_for_each(|(row, said)| self.take(&mut live[row], said, told))
    }

    /// Finds the language of recordings whose language is not known.
    fn detect(
        &mut self,
        live: &mut [Open],
        states: &Heard,
        beginning: &[Option<i64>],
        told: &mut AllTold<'_>,
    ) -> Result<()> {
        // The first window of a recording tells the language of all.
        let mut rows: Vec<usize> = Vec::new();
        for (row, open) in live.iter().enumerate() {
            let recording = open.stretch.recording;
            let is_known = open.beginning.is_some() || told.of(recording).language.is_some();
            if !is_known && rows.iter().all(|other| live[*other].stretch.recording != recording) {
                rows.push(row);
            }
        }
        if !rows.is_empty() {
            self.find_languages(live, &rows, states, told)?;
        }
        for open in live.iter_mut().filter(|open| open.beginning.is_none()) {
            let language =
                told.of(open.stretch.recording).language.context("the language of a recording is not known")?;
            open.beginning = Some(beginning.iter().map(|token| token.unwrap_or(language)).collect());
        }
        Ok(())
    }

    /// Finds the languages of the recordings of some rows.
    fn find_languages(&mut self, live: &[Open], rows: &[usize], states: &Heard, told: &mut AllTold<'_>) -> Result<()> {
        let states = states.take_rows(rows)?;
        let texts = vec![vec![self.settings.start]; rows.len()];
        let scores = self.model.start(&states, &texts)?;
        for (at, &row) in rows.iter().enumerate() {
            let scores = scores.last(at);
            let score = |id: i64| usize::try_from(id).ok().and_then(|id| scores.get(id)).copied();
            let mut languages: Vec<(i64, f32)> =
                self.settings.languages().filter_map(|id| Some((id, score(id)?))).collect();
            languages.sort_by_key(|(id, _)| *id);
            let best = languages.iter().copied().reduce(|best, other| if other.1 > best.1 { other } else { best });
            let (language, best) = best.context("`lang_to_id` has no id of the model's vocabulary")?;
            let all: Vec<f32> = languages.iter().map(|(_, score)| *score).collect();
            let recording = live[row].stretch.recording;
            told.of(recording).language = Some(language);
            let code = self.settings.code(language).unwrap_or_default();
            self.observer.detected(recording, code, (f64::from(best) - log_sum(&all)).exp())?;
        }
        Ok(())
    }

    /// What the text of the next window begins with, and how long it gets.
    fn task(&self, open: &mut Open) -> Result<Task> {
        let longest = self.model.longest;
        let beginning = open.beginning.clone().unwrap_or_default();
        let mut text = Vec::new();
        if self.settings.conditions && open.is_sure && open.has_segments {
            text = self.settings.previous(&open.said, longest);
        }
        text.extend(beginning);
        let new = self.settings.base.max_new_tokens;
        let most = match (new, &mut open.max_length) {
            (Some(new), _) => text.len().saturating_add(new.get()).min(longest),
            (None, Some(length)) => {
                *length = length.saturating_add(text.len().min((longest / 2).saturating_sub(1))).min(longest);
                *length
            }
            (None, None) => longest,
        };
        if text.len() >= longest {
            anyhow::bail!("the text of a window begins with {} tokens, and the model takes {longest}", text.len());
        }
        Ok(Task { text, longest: most })
    }

    /// Takes what a window says, and moves on.
    fn take(&self, open: &mut Open, said: Said, told: &mut AllTold<'_>) -> Result<()> {
        let [_, window] = self.model.window;
        let Stretch { recording, place, .. } = open.stretch;
        let frames = (open.stretch.windows.frames() - open.seek).min(window);
        let from = open.stretch.from + open.seek;
        open.is_sure = said.is_sure();
        if said.is_silence {
            open.seek += frames;
            return told.progress(recording, frames);
        }
        let first = self.settings.first_timestamp();
        let (found, next) = pieces(&said.tokens, first, from, frames);
        // A window whose last timestamp is its beginning would come again.
        let moved = if next == 0 { frames } else { next };
        open.seek += moved;
        let most = self.model.longest / 2;
        for piece in found {
            let is_time = |id: &i64| first.is_some_and(|first| *id >= first);
            let ends_in_two = piece.tokens.len() > 2 && is_time(&piece.tokens[piece.tokens.len() - 2]);
            open.said.extend(&piece.tokens[..piece.tokens.len() - usize::from(ends_in_two)]);
            open.has_segments = true;
            let words: Vec<i64> = piece.tokens.iter().copied().filter(|id| !is_time(id)).collect();
            let segment = Segment {
                id: 0,
                seek: Some(from),
                start: piece.start,
                end: piece.end,
                text: self.tokenizer.decode(&words)?.trim().to_owned(),
                tokens: Some(piece.tokens),
                temperature: Some(said.temperature),
                avg_logprob: Some(said.logprob),
                compression_ratio: Some(said.compression_ratio),
                no_speech_prob: said.no_speech,
                words: Vec::new(),
            };
            told.segment(recording, place, segment)?;
        }
        open.said.drain(..open.said.len().saturating_sub(most));
        told.progress(recording, moved)
    }
}
