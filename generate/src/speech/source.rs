//! The features of recordings, window by window: neither a recording nor its features are in memory as a whole, unless they are
//! short.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use planish_data::tokenizer::document::{Document, whole};
use planish_sounds::{LogMel, Recording, Samples};
use serde_json::Value;
use tempfile::{NamedTempFile, TempPath};

use super::transcriber::Windows;

/// The files that may say how features are made.
const FILES: [&str; 2] = ["preprocessor_config.json", "processor_config.json"];

/// Recordings of up to so many samples stay in memory after they were read once: 10 minutes.
const KEPT: usize = 600 * 16_000;

/// How far below the loudest feature of a recording another one may be: 80 dB, in the unit of features.
const RANGE: f32 = 2.0;

/// How the features of a model are made.
pub(super) struct Features {
    mel: LogMel,
    rate: u32,
    hop: usize,
    /// Samples on either side that the features of a frame depend on.
    reach: usize,
    /// Bands, and frames of a window.
    window: [usize; 2],
}

impl Features {
    /// Reads the settings of an artifact whose encoder takes windows of [bands, frames].
    ///
    /// # Errors
    /// When a file cannot be read, or has a setting that is not computed here.
    pub(super) fn read(folder: &Path, window: [usize; 2]) -> Result<Self> {
        let name = FILES.into_iter().find(|name| folder.join(name).exists()).with_context(|| {
            format!("{} has no {}, which says how features are made; copy it there", folder.display(), FILES[0])
        })?;
        let path = folder.join(name);
        let mut d = Document::open(&path)?.with_context(|| format!("{} is gone", path.display()))?;
        if let Some(inner) = d.take("feature_extractor", "an object", |value| value.as_object().cloned())? {
            d = Document::of(&path.display().to_string(), inner);
        }
        let mut size = |key: &str, usual: usize| {
            let size = d.take(key, "a whole number above 0", |value| whole(value).filter(|size| *size > 0))?;
            Ok::<usize, anyhow::Error>(size.unwrap_or(usual))
        };
        let (bands, hop, fft) = (size("feature_size", 80)?, size("hop_length", 160)?, size("n_fft", 400)?);
        let rate = u32::try_from(size("sampling_rate", 16_000)?)?;
        if d.take("dither", "a number", Value::as_f64)?.is_some_and(|share| share != 0.0) {
            bail!("`dither` of {} adds noise to recordings, which is not done here; remove it", path.display());
        }
        if bands != window[0] {
            bail!(
                "{} makes features of {bands} bands (`feature_size`), and the encoder takes {}; one of them is of another model",
                path.display(),
                window[0]
            );
        }
        let mel = LogMel::new(bands, rate, fft, hop).map_err(|why| anyhow!("{}: {why}", path.display()))?;
        // Whole frames, so that a part of a recording has the frames of the whole.
        let reach = (fft / 2).div_ceil(hop) * hop;
        Ok(Self { mel, rate, hop, reach, window })
    }

    /// Opens a recording: finds its length and its loudest feature.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn open(&self, path: &Path) -> Result<Box<dyn Windows>> {
        if path.as_os_str() == "-" {
            return self.open_copy(&mut io::stdin().lock());
        }
        self.open_file(path, None)
    }

    /// The same of what can be read once: a copy on disk can be read again.
    fn open_copy(&self, from: &mut dyn io::Read) -> Result<Box<dyn Windows>> {
        let mut copy = NamedTempFile::new().context("cannot make a file for standard input")?;
        io::copy(from, copy.as_file_mut()).context("cannot copy standard input to a file")?;
        let copy = copy.into_temp_path();
        let path = copy.to_path_buf();
        self.open_file(&path, Some(copy)).context("standard input")
    }

    fn open_file(&self, path: &Path, copy: Option<TempPath>) -> Result<Box<dyn Windows>> {
        let mut samples = Recording::open(path)?.samples(self.rate)?;
        let beginning = samples.take_up_to(KEPT + 1)?;
        if beginning.len() <= self.window[1] * self.hop {
            return self.short(beginning).map(|windows| Box::new(windows) as Box<dyn Windows>);
        }
        let (source, (count, loudest)) = if beginning.len() <= KEPT {
            let mut at = 0;
            let found = self.scan(&mut |count| {
                let part = &beginning[at..(at + count).min(beginning.len())];
                at += part.len();
                Ok(part.to_vec())
            })?;
            (Source::Memory(beginning), found)
        } else {
            let mut beginning = beginning;
            let found = self.scan(&mut |count| {
                let missing = count.saturating_sub(beginning.len());
                if missing > 0 {
                    beginning.extend(samples.take_up_to(missing)?);
                }
                Ok(beginning.drain(..count.min(beginning.len())).collect())
            })?;
            (Source::File(path.to_owned(), None, copy), found)
        };
        let features = Self { mel: self.mel.clone(), ..*self };
        Ok(Box::new(Whole { features, source, frames: self.mel.frames(count), floor: loudest - RANGE }))
    }

    /// The number of samples, which come in pieces of so many and fewer at the end, and their loudest feature.
    fn scan(&self, next: &mut dyn FnMut(usize) -> Result<Vec<f32>>) -> Result<(usize, f32)> {
        let block = self.window[1] * self.hop;
        // Blocks overlap, so that each feature is one of a block that has all of its samples.
        let overlap = 2 * self.reach;
        let mut samples = next(block + overlap)?;
        let (mut count, mut loudest, mut is_first) = (0, f32::NEG_INFINITY, true);
        loop {
            let more = next(block)?;
            loudest = loudest.max(self.loudest(&samples, is_first, more.is_empty())?);
            if more.is_empty() {
                return Ok((count + samples.len(), loudest));
            }
            let done = samples.len().saturating_sub(overlap);
            count += done;
            samples.drain(..done);
            samples.extend(more);
            is_first = false;
        }
    }

    /// The loudest feature of samples, without the frames at edges that are not those of the recording.
    fn loudest(&self, samples: &[f32], is_first: bool, is_last: bool) -> Result<f32> {
        let features = self.mel.compute(samples).map_err(|why| anyhow!("{why}"))?;
        let frames = self.mel.frames(samples.len());
        let edge = self.reach / self.hop;
        let from = if is_first { 0 } else { edge };
        let to = if is_last { frames } else { frames.saturating_sub(edge) };
        let rows = features.chunks(frames.max(1)).filter_map(|row| row.get(from..to)).flatten();
        Ok(rows.copied().fold(f32::NEG_INFINITY, f32::max))
    }

    /// A recording of one window, filled up with silence.
    fn short(&self, mut samples: Vec<f32>) -> Result<Short> {
        let frames = self.mel.frames(samples.len());
        samples.resize(self.window[1] * self.hop, 0.0);
        let features = self.mel.compute(&samples).map_err(|why| anyhow!("{why}"))?;
        Ok(Short { features, frames, window: self.window })
    }
}

/// A recording that fits one window.
struct Short {
    features: Vec<f32>,
    /// Without the silence.
    frames: usize,
    window: [usize; 2],
}

impl Windows for Short {
    fn frames(&self) -> usize {
        self.frames
    }

    fn window(&mut self, from: usize) -> Result<Vec<f32>> {
        let [_, width] = self.window;
        let mut window = vec![0.0; self.features.len()];
        // What is after the recording has features of silence for the first window only.
        let to = if from == 0 { width } else { self.frames };
        for (to_row, row) in window.chunks_mut(width).zip(self.features.chunks(width)) {
            let taken = row.get(from..to).unwrap_or_default();
            to_row[..taken.len()].copy_from_slice(taken);
        }
        Ok(window)
    }
}

/// Where the samples of a recording are.
enum Source {
    Memory(Vec<f32>),
    /// In a file. A copy is removed at the end.
    File(PathBuf, Option<Box<Reading>>, #[allow(dead_code, reason = "held until it is dropped")] Option<TempPath>),
}

/// A file that is read from its beginning on.
struct Reading {
    samples: Samples,
    /// The place of the first of those that wait.
    start: usize,
    /// Samples that were read already.
    waiting: Vec<f32>,
}

/// A recording of several windows.
struct Whole {
    features: Features,
    source: Source,
    frames: usize,
    /// The least feature.
    floor: f32,
}

impl Whole {
    /// Samples from one on, fewer at the end.
    fn samples(&mut self, from: usize, count: usize) -> Result<Vec<f32>> {
        match &mut self.source {
            Source::Memory(samples) => {
                let from = from.min(samples.len());
                Ok(samples[from..].iter().copied().take(count).collect())
            }
            Source::File(path, reading, _) => {
                // Windows go forward, by no more than one window at a time.
                if reading.as_ref().is_none_or(|reading| reading.start > from) {
                    let samples = Recording::open(path)?.samples(self.features.rate)?;
                    *reading = Some(Box::new(Reading { samples, start: 0, waiting: Vec::new() }));
                }
                let Some(reading) = reading else { bail!("the recording is not open") };
                let Reading { samples, start, waiting } = reading.as_mut();
                loop {
                    let gone = (from - *start).min(waiting.len());
                    waiting.drain(..gone);
                    *start += gone;
                    if *start < from {
                        *waiting = samples.take_up_to((from - *start).min(KEPT))?;
                        if waiting.is_empty() {
                            return Ok(Vec::new());
                        }
                        continue;
                    }
                    let missing = count.saturating_sub(waiting.len());
                    if missing > 0 {
                        waiting.extend(samples.take_up_to(missing)?);
                    }
                    return Ok(waiting.iter().copied().take(count).collect());
                }
            }
        }
    }
}

impl Windows for Whole {
    fn frames(&self) -> usize {
        self.frames
    }

    fn window(&mut self, from: usize) -> Result<Vec<f32>> {
        let Features { hop, reach, window: [bands, width], .. } = self.features;
        let edge = (reach / hop).min(from);
        let first = (from - edge) * hop;
        // One more reach at the end, of which the mirrored features are left out.
        let samples = self.samples(first, (width + edge) * hop + reach)?;
        let features = self.features.mel.compute(&samples).map_err(|why| anyhow!("{why}"))?;
        let frames = self.features.mel.frames(samples.len());
        let taken = width.min(self.frames - from.min(self.frames)).min(frames.saturating_sub(edge));
        let mut window = vec![0.0; bands * width];
        for (to, row) in window.chunks_mut(width).zip(features.chunks(frames.max(1))) {
            for (to, feature) in to.iter_mut().zip(&row[edge..edge + taken]) {
                *to = feature.max(self.floor);
            }
        }
        Ok(window)
    }
}
