//! From samples to the inputs of a model, as the feature extractors of the transformers library compute them.

mod clap;
mod filter_bank;
mod in_graph;
mod parakeet;
mod settings;
mod waveform;

use std::path::Path;

pub use in_graph::{BandForm, BandSteps, InGraph};
pub use settings::FILES;

use crate::features::LogMel;
use crate::{Recording, SoundError};
use clap::Clap;
use filter_bank::FilterBank;
use parakeet::Parakeet;
use waveform::Waveform;

/// The most samples of a recording that become one input.
const MOST: usize = 1 << 26;

/// How recordings become the inputs of a model.
#[derive(Clone)]
pub struct Processor {
    /// Samples per second.
    rate: u32,
    /// What fills rows up.
    padding: f32,
    /// Whether it comes before the samples of a window.
    is_left: bool,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    /// The samples themselves.
    Waveform(Waveform),
    /// Logarithms of mel energies of a window of so many samples.
    LogMel(LogMel, usize),
    /// Kaldi's filter banks.
    FilterBank(FilterBank),
    /// Mel energies in decibels of a window, or of parts of the recording.
    Clap(Clap),
    /// Logarithms of mel energies, normalized by band.
    Parakeet(Parakeet),
    /// The samples for a graph that processes them.
    Samples(in_graph::Samples),
}

/// A recording as numbers, before it is put into a batch with others.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    values: Vec<f32>,
    /// How many samples or frames the model is told to read.
    length: usize,
    /// How many rows of the input it has, the ones that are masked included.
    places: usize,
    /// Whether the recording is longer than the input, as ClapFeatureExtractor says it.
    is_longer: bool,
    /// Whether the end of the recording is not in the input.
    pub is_cut: bool,
    /// How many seconds of it were read.
    pub seconds: f64,
}

/// The inputs of recordings, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Sounds {
    /// [recordings, samples], or [recordings, bands, frames], [recordings, frames, bands], [recordings, parts, frames, bands].
    pub values: Vec<f32>,
    /// The shape of `values`.
    pub shape: Vec<usize>,
    /// 1 where there is a recording, and 0 where there is padding: [recordings, samples or frames].
    pub mask: Vec<i64>,
    /// The shape of `mask`.
    pub mask_shape: [usize; 2],
    /// Which recordings are longer than the input, as ClapFeatureExtractor says it: `[recordings]`.
    pub is_longer: Vec<bool>,
}

impl Prepared {
    /// How many samples or frames it has.
    #[must_use]
    pub fn places(&self) -> usize {
        self.places
    }

    /// How many of these the model is told to read.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }
}

impl Processor {
    /// The samples per second that it takes.
    #[must_use]
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Whether inputs are samples, of any number.
    #[must_use]
    pub fn gives_waveforms(&self) -> bool {
        matches!(self.kind, Kind::Waveform(_))
    }

    /// Whether recordings of a batch are filled up to the longest of them. If not, all inputs have one size.
    #[must_use]
    pub fn pads_to_longest(&self) -> bool {
        match &self.kind {
            Kind::Waveform(_) | Kind::Parakeet(_) | Kind::Samples(_) => true,
            Kind::LogMel(..) | Kind::Clap(_) => false,
            Kind::FilterBank(bank) => bank.pads_to_longest(),
        }
    }

    /// Whether recordings that are too short are filled up with zeros, after their end.
    #[must_use]
    pub fn pads_with_silence(&self) -> bool {
        !self.is_left && self.padding == 0.0
    }

    /// The samples from one place of features to the next, where recordings of any length have places; `None` of other processors.
    #[must_use]
    pub fn place_samples(&self) -> Option<usize> {
        match &self.kind {
            Kind::FilterBank(bank) => bank.place_samples(),
            Kind::Parakeet(parakeet) => Some(parakeet.hop()),
            Kind::Waveform(_) | Kind::LogMel(..) | Kind::Clap(_) | Kind::Samples(_) => None,
        }
    }

    /// The fewest samples that it takes.
    #[must_use]
    pub fn fewest(&self) -> usize {
        match &self.kind {
            Kind::FilterBank(bank) => bank.fewest(),
            Kind::Parakeet(parakeet) => parakeet.fewest(),
            Kind::Samples(samples) => samples.fewest(),
            Kind::Waveform(_) | Kind::LogMel(..) | Kind::Clap(_) => 1,
        }
    }

    /// The features of windows of a fixed number of samples, for which Whisper is made; `None` of other processors.
    #[must_use]
    pub fn log_mel(&self) -> Option<(&LogMel, usize)> {
        if let Kind::LogMel(mel, samples) = &self.kind { Some((mel, *samples)) } else { None }
    }

    /// A file as numbers. Of a recording that is longer than the input, no more is decoded than is needed.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, too long or too short.
    pub fn read(&self, path: &Path) -> Result<Prepared, SoundError> {
        self.prepare_recording(Recording::open(path)?, path)
    }

    /// The same for a recording that is open; `path` is what errors call it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn prepare_recording(&self, recording: Recording, path: &Path) -> Result<Prepared, SoundError> {
        let mut samples = recording.samples(self.rate)?;
        let read = match self.needed() {
            Some(needed) => samples.take_up_to(needed)?,
            None => samples.all(MOST)?,
        };
        self.prepare(&read).map_err(|message| SoundError::File { path: path.to_owned(), message })
    }

    /// The most samples of a recording that change its input, one more than the input has; `None` where all do.
    fn needed(&self) -> Option<usize> {
        match &self.kind {
            Kind::LogMel(_, samples) => Some(samples + 1),
            Kind::FilterBank(bank) => bank.needed(),
            Kind::Samples(samples) => samples.needed(),
            Kind::Waveform(_) | Kind::Clap(_) | Kind::Parakeet(_) => None,
        }
    }

    /// Samples at its rate as numbers.
    ///
    /// # Errors
    /// When they are too few.
    pub fn prepare(&self, samples: &[f32]) -> Result<Prepared, String> {
        if samples.is_empty() {
            return Err("it has no samples".to_owned());
        }
        let mut prepared = match &self.kind {
            Kind::Waveform(waveform) => waveform.prepare(samples),
            Kind::LogMel(mel, length) => self.window(mel, *length, samples)?,
            Kind::FilterBank(bank) => bank.prepare(samples)?,
            Kind::Clap(clap) => clap.prepare(samples)?,
            Kind::Parakeet(parakeet) => parakeet.prepare(samples)?,
            Kind::Samples(raw) => raw.prepare(samples)?,
        };
        prepared.seconds = samples.len() as f64 / f64::from(self.rate);
        Ok(prepared)
    }

    /// The features of a window that samples are cut or filled up to.
    fn window(&self, mel: &LogMel, length: usize, samples: &[f32]) -> Result<Prepared, String> {
        let taken = &samples[..samples.len().min(length)];
        let missing = length - taken.len();
        let mut window = Vec::with_capacity(length);
        if self.is_left {
            window.resize(missing, self.padding);
        }
        window.extend_from_slice(taken);
        window.resize(length, self.padding);
        let places = mel.frames(length);
        // Masks have every sample where a frame begins.
        let read = if self.is_left {
            places - missing.div_ceil(mel.hop()).min(places)
        } else {
            taken.len().div_ceil(mel.hop())
        };
        Ok(Prepared {
            values: mel.compute(&window)?,
            length: read.min(places),
            places,
            is_longer: false,
            is_cut: samples.len() > length,
            seconds: 0.0,
        })
    }

    /// The inputs of a batch of recordings that were prepared by this processor.
    ///
    /// # Errors
    /// When they do not fit in memory.
    pub fn batch(&self, all: &[Prepared]) -> Result<Sounds, String> {
        let longest = all.iter().map(|one| one.places).max().unwrap_or(0);
        let is_longer = all.iter().map(|one| one.is_longer).collect();
        let shape = match &self.kind {
            Kind::Waveform(_) | Kind::Samples(_) => vec![all.len(), longest],
            Kind::LogMel(mel, _) => vec![all.len(), mel.bank().len(), longest],
            Kind::FilterBank(bank) => vec![all.len(), longest, bank.width()],
            Kind::Clap(clap) => vec![all.len(), clap.parts(), longest, clap.bands()],
            Kind::Parakeet(parakeet) => vec![all.len(), longest, parakeet.bands()],
        };
        let size = shape.iter().try_fold(1_usize, |size, dim| size.checked_mul(*dim));
        let size = size.filter(|size| *size <= 8 * MOST).ok_or("the recordings of a batch are too long; take fewer")?;
        let mut values = vec![self.filling(); size];
        let mut mask = vec![0; all.len() * longest];
        let row = size / all.len().max(1);
        let rows = values.chunks_exact_mut(row.max(1)).zip(mask.chunks_exact_mut(longest.max(1)));
        for (one, (values, mask)) in all.iter().zip(rows) {
            let (taken, length) = (one.values.len().min(row), one.length.min(longest));
            values[..taken].copy_from_slice(&one.values[..taken]);
            let first = if self.is_left { longest - length } else { 0 };
            mask[first..][..length].fill(1);
            if let Kind::Waveform(waveform) = &self.kind {
                waveform.normalize(values, taken);
            }
        }
        Ok(Sounds { values, shape, mask_shape: [all.len(), longest], mask, is_longer })
    }

    /// What is in the rows of a batch where a recording has ended.
    fn filling(&self) -> f32 {
        match self.kind {
            Kind::Parakeet(_) => 0.0,
            _ => self.padding,
        }
    }
}
