//! The features of recordings, window by window: neither a recording nor its features are in memory as a whole, unless they are
//! short.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use planish_sounds::{FILES, LogMel, Processor, Recording, Samples};
use tempfile::{NamedTempFile, TempPath};

use super::transcriber::Windows;

/// Recordings of up to so many samples stay in memory after they were read once: 10 minutes.
const KEPT: usize = 600 * 16_000;

/// The frames of features of a second, which timestamps are counted in.
const FRAMES_PER_SECOND: usize = 100;

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
    /// Whether the encoder takes samples, and makes features of them itself.
    takes_samples: bool,
}

/// Bands and frames of windows, as the settings of an artifact say them.
///
/// # Errors
/// When they are malformed or not supported.
pub(super) fn window_of(folder: &Path) -> Result<[Option<usize>; 2]> {
    let processor = Processor::open(folder)?;
    let log_mel = processor.as_ref().and_then(Processor::log_mel);
    let sizes = log_mel.map(|(mel, samples)| [Some(mel.bank().len()), Some(mel.frames(samples))]);
    Ok(sizes.unwrap_or_default())
}

/// A copy of standard input on disk, which can be read again, where the path is `-`.
///
/// # Errors
/// When it cannot be copied.
fn copied(path: &Path) -> Result<Option<TempPath>> {
    if path.as_os_str() != "-" {
        return Ok(None);
    }
    let mut copy = NamedTempFile::new().context("cannot make a file for standard input")?;
    io::copy(&mut io::stdin().lock(), copy.as_file_mut()).context("cannot copy standard input to a file")?;
    Ok(Some(copy.into_temp_path()))
}

/// Gives a file to `read`: the path, or a copy of standard input where the path is `-`.
///
/// # Errors
/// When standard input cannot be copied, and those of `read`.
pub(super) fn on_file(path: &Path, read: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    match copied(path)? {
        None => read(path),
        Some(copy) => read(&copy).context("standard input"),
    }
}

impl Features {
    /// Reads the settings of an artifact whose encoder takes windows of [bands, frames], or the samples of these.
    ///
    /// # Errors
    /// When no file says it, one is malformed, is of another model, or has a setting that is not computed here.
    pub(super) fn read(folder: &Path, window: [usize; 2], takes_samples: bool) -> Result<Self> {
        let Some(processor) = Processor::open(folder)? else {
            bail!("{} has no {}, which says how features are made; copy it there", folder.display(), FILES[0]);
        };
        let read = Self::of(&processor, window).map(|features| Self { takes_samples, ..features });
        read.with_context(|| format!("the settings of features in {}", folder.display()))
    }

    fn of(processor: &Processor, window: [usize; 2]) -> Result<Self> {
        let Some((mel, samples)) = processor.log_mel() else {
            bail!("`feature_extractor_type` is of another model; the encoder takes those of WhisperFeatureExtractor");
        };
        let (mel, rate, hop, [bands, frames]) = (mel.clone(), processor.rate(), mel.hop(), window);
        if mel.bank().len() != bands {
            bail!(
                "`feature_size` is {}, and the encoder takes {bands} bands; one is of another model",
                mel.bank().len()
            );
        }
        if hop.checked_mul(FRAMES_PER_SECOND) != Some(rate as usize) {
            bail!("`hop_length` is {hop} and `sampling_rate` {rate}, and timestamps count frames of 10 ms");
        }
        if Some(samples) != frames.checked_mul(hop) {
            let seconds = samples / rate as usize;
            bail!(
                "`chunk_length` is {seconds} s, which are {} frames, and the encoder takes {frames}; one is of another model",
                mel.frames(samples)
            );
        }
        if !processor.pads_with_silence() {
            bail!(
                "`padding_side` has to be right and `padding_value` 0: the silence after a recording is part of a window"
            );
        }
        // Whole frames, so that a part of a recording has the frames of the whole.
        let reach = (mel.length() / 2).div_ceil(hop) * hop;
        Ok(Self { mel, rate, hop, reach, window, takes_samples: false })
    }

    /// Opens a recording: finds its length and its loudest feature.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn open(&self, path: &Path) -> Result<Box<dyn Windows>> {
        match copied(path)? {
            None => self.open_file(path, None),
            Some(copy) => {
                let path = copy.to_path_buf();
                self.open_file(&path, Some(copy)).context("standard input")
            }
        }
    }

    fn open_file(&self, path: &Path, copy: Option<TempPath>) -> Result<Box<dyn Windows>> {
        let mut samples = Recording::open(path)?.samples(self.rate)?;
        let beginning = samples.take_up_to(KEPT + 1)?;
        if beginning.len() <= self.window[1] * self.hop && !self.takes_samples {
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
        let floor = loudest - RANGE;
        Ok(Box::new(Whole { features, source, frames: self.mel.frames(count), seconds: self.seconds(count), floor }))
    }

    /// How long so many samples are.
    fn seconds(&self, samples: usize) -> f64 {
        samples as f64 / f64::from(self.rate)
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
        if self.takes_samples {
            return Ok(f32::NEG_INFINITY);
        }
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
        let (frames, seconds) = (self.mel.frames(samples.len()), self.seconds(samples.len()));
        samples.resize(self.window[1] * self.hop, 0.0);
        let features = self.mel.compute(&samples).map_err(|why| anyhow!("{why}"))?;
        Ok(Short { features, frames, seconds, window: self.window })
    }
}

/// A recording that fits one window.
struct Short {
    features: Vec<f32>,
    /// Without the silence.
    frames: usize,
    seconds: f64,
    window: [usize; 2],
}

impl Windows for Short {
    fn frames(&self) -> usize {
        self.frames
    }

    fn seconds(&self) -> f64 {
        self.seconds
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
    seconds: f64,
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

    fn seconds(&self) -> f64 {
        self.seconds
    }

    fn window(&mut self, from: usize) -> Result<Vec<f32>> {
        let Features { hop, reach, window: [bands, width], takes_samples, .. } = self.features;
        if takes_samples {
            let mut samples = self.samples(from * hop, width * hop)?;
            samples.resize(width * hop, 0.0);
            return Ok(samples);
        }
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What reading the settings of a Whisper of windows of 1 s says, with one in the place of its own.
    fn with(key: &str, value: Value) -> String {
        let mut settings = json!({"feature_extractor_type": "WhisperFeatureExtractor", "chunk_length": 1});
        settings[key] = value;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILES[0]), settings.to_string()).unwrap();
        Features::read(folder.path(), [80, 100], false).err().map(|error| format!("{error:#}")).unwrap_or_default()
    }

    #[test]
    fn settings_that_cannot_be_honoured_are_refused() {
        assert_eq!(with("n_fft", json!(400)), "");
        for (key, value, says) in [
            ("feature_extractor_type", json!("ASTFeatureExtractor"), "WhisperFeatureExtractor"),
            ("feature_size", json!(128), "the encoder takes 80 bands"),
            ("chunk_length", json!(30), "30 s, which are 3000 frames, and the encoder takes 100"),
            ("hop_length", json!(99_999_999_999_u64), "99999999999"),
            ("n_fft", json!(1_u64 << 40), "1099511627776"),
            ("sampling_rate", json!(8000), "frames of 10 ms"),
            ("padding_side", json!("left"), "has to be right"),
            ("padding_value", json!(0.5), "`padding_value` 0"),
            ("dither", json!(0.1), "random noise"),
        ] {
            let said = with(key, value);
            assert!(said.contains(key) && said.contains(says), "{key}: {said}");
        }
    }
}
