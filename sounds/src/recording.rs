//! Files of sound, as samples of one channel at a rate.

use std::io::{self, Cursor, Read, Seek};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use symphonia::core::io::{MediaSource, ReadOnlySource};

use crate::SoundError;
use crate::decode::Decoder;
use crate::resample::Resampler;

/// The endings of the names of recordings, in lower case.
pub const ENDINGS: [&str; 7] = ["wav", "flac", "mp3", "ogg", "oga", "m4a", "aac"];

/// The samples per second that a recording may have, and may be given.
pub const RATES: RangeInclusive<u32> = 1000..=768_000;

/// Whether a file is a recording by the ending of its name.
#[must_use]
pub fn is_recording(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

/// A file of sound that is open. Nothing but what is decoded at a time is in memory.
pub struct Recording {
    path: PathBuf,
    decoder: Box<Decoder>,
}

impl Recording {
    /// Opens a WAV, FLAC, MP3, Ogg (Vorbis), MPEG-4 or ADTS (AAC or ALAC) file, by what its bytes say.
    ///
    /// # Errors
    /// When the file cannot be read, is none of these, is damaged, or has no samples.
    pub fn open(path: &Path) -> Result<Self, SoundError> {
        let (file, length) = planish_files::open(path)?;
        Self::of(Box::new(Bounded { inner: file, length }), path)
    }

    /// The same for bytes; `path` is what errors call them.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_bytes(bytes: Vec<u8>, path: &Path) -> Result<Self, SoundError> {
        let length = bytes.len() as u64;
        Self::of(Box::new(Bounded { inner: Cursor::new(bytes), length }), path)
    }

    /// The same for what can be read once, such as standard input. MPEG-4 files that have their table at the end cannot be read so.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_stream(stream: impl Read + Send + Sync + 'static, path: &Path) -> Result<Self, SoundError> {
        Self::of(Box::new(ReadOnlySource::new(stream)), path)
    }

    fn of(source: Box<dyn MediaSource>, path: &Path) -> Result<Self, SoundError> {
        let empty = source.byte_len() == Some(0);
        let opened = if empty { Err("the file is empty".to_owned()) } else { Decoder::new(source) };
        match opened {
            Ok(decoder) => Ok(Self { path: path.to_owned(), decoder: Box::new(decoder) }),
            Err(message) => Err(SoundError::File { path: path.to_owned(), message }),
        }
    }

    /// The samples per second of the file.
    #[must_use]
    pub fn rate(&self) -> u32 {
        self.decoder.rate
    }

    /// How many channels it has.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.decoder.channels
    }

    /// How many seconds it has by its own words, which may be wrong; for progress.
    #[must_use]
    pub fn seconds(&self) -> Option<f64> {
        self.decoder.declared.map(|samples| samples as f64 / f64::from(self.decoder.rate))
    }

    /// The mean of its channels at a rate, in samples per second, from -1 to 1 where the file is not louder.
    ///
    /// # Errors
    /// When the rate is none of [`RATES`].
    pub fn samples(self, rate: u32) -> Result<Samples, SoundError> {
        let refused = |message: String| SoundError::File { path: self.path.clone(), message };
        if !RATES.contains(&rate) {
            return Err(refused(format!("a model of {rate} samples per second is not supported")));
        }
        let own = self.decoder.rate;
        let resampler = if own == rate { None } else { Some(Box::new(Resampler::new(own, rate).map_err(refused)?)) };
        let Self { path, decoder } = self;
        Ok(Samples { path, rate, decoder, resampler, waiting: Vec::new(), is_over: false })
    }
}

/// Samples of a recording, block after block.
pub struct Samples {
    path: PathBuf,
    rate: u32,
    decoder: Box<Decoder>,
    resampler: Option<Box<Resampler>>,
    /// Samples that [`take_up_to`](Self::take_up_to) has left.
    waiting: Vec<f32>,
    is_over: bool,
}

impl Samples {
    /// The samples per second.
    #[must_use]
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// The next `count` samples: fewer at the end, and none after it.
    ///
    /// # Errors
    /// When the file is damaged or can no longer be read.
    pub fn take_up_to(&mut self, count: usize) -> Result<Vec<f32>, SoundError> {
        while self.waiting.len() < count {
            let Some(block) = self.decoded().transpose()? else { break };
            self.waiting.extend(block);
        }
        let rest = self.waiting.split_off(count.min(self.waiting.len()));
        Ok(std::mem::replace(&mut self.waiting, rest))
    }

    /// All samples, if there are no more than `most` of them.
    ///
    /// # Errors
    /// As [`take_up_to`](Self::take_up_to), and when there are more.
    pub fn all(mut self, most: usize) -> Result<Vec<f32>, SoundError> {
        let all = self.take_up_to(most.saturating_add(1))?;
        if all.len() > most {
            let seconds = most as f64 / f64::from(self.rate);
            let message = format!("it has more than {seconds:.0} s, which do not fit in one input; cut it in pieces");
            return Err(SoundError::File { path: self.path, message });
        }
        Ok(all)
    }

    /// What is decoded next.
    fn decoded(&mut self) -> Option<Result<Vec<f32>, SoundError>> {
        while !self.is_over {
            let next = match (self.decoder.next(), &mut self.resampler) {
                (Ok(Some(samples)), None) => Ok(samples),
                (Ok(Some(samples)), Some(resampler)) => resampler.push(&samples),
                (Ok(None), resampler) => {
                    self.is_over = true;
                    resampler.as_mut().map_or_else(|| Ok(Vec::new()), |resampler| resampler.finish())
                }
                (Err(message), _) => Err(message),
            };
            match next {
                Ok(samples) if samples.is_empty() => {}
                Ok(samples) => return Some(Ok(samples)),
                Err(message) => {
                    self.is_over = true;
                    return Some(Err(SoundError::File { path: self.path.clone(), message }));
                }
            }
        }
        None
    }
}

impl Iterator for Samples {
    type Item = Result<Vec<f32>, SoundError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.waiting.is_empty() {
            true => self.decoded(),
            false => Some(Ok(std::mem::take(&mut self.waiting))),
        }
    }
}

/// A source whose length is known.
struct Bounded<T> {
    inner: T,
    length: u64,
}

impl<T: Read> Read for Bounded<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer)
    }
}

impl<T: Seek> Seek for Bounded<T> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

impl<T: Read + Seek + Send + Sync> MediaSource for Bounded<T> {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.length)
    }
}
