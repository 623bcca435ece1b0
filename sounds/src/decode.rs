//! Bytes of a file as samples of one channel, a packet at a time.

use std::io;

use planish_files::caught;
use symphonia::core::audio::GenericAudioBufferRef;
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::common::Limit;
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream};
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;

use crate::recording::RATES;

/// The most channels that are mixed: those of a file with more are no loudspeakers.
const MAX_CHANNELS: usize = 64;

/// The most samples of all channels that a packet may have. Packets of the formats that are read have some thousands.
const MAX_PACKET: u64 = 1 << 24;

/// The most bytes of a tag or picture in a file that are kept: none is used.
const MAX_TAG: usize = 64 << 10;

/// A file that is decoded.
pub(crate) struct Decoder {
    format: Box<dyn FormatReader>,
    decoder: Box<dyn AudioDecoder>,
    track: u32,
    /// Samples per second.
    pub(crate) rate: u32,
    pub(crate) channels: usize,
    /// How many samples of each channel the file says to have.
    pub(crate) declared: Option<u64>,
    /// What was decoded to learn the rate.
    first: Option<Vec<f32>>,
    /// Samples that came out so far.
    decoded: u64,
}

impl Decoder {
    /// Opens a file of any format, and decodes as much of it as gives samples.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub(crate) fn new(source: Box<dyn MediaSource>) -> Result<Self, String> {
        let mut decoder = guarded(|| Self::open(source))??;
        let first = loop {
            match decoder.packet()? {
                None => return Err("it has no samples".to_owned()),
                Some(samples) if samples.is_empty() => {}
                Some(samples) => break samples,
            }
        };
        decoder.first = Some(first);
        Ok(decoder)
    }

    fn open(source: Box<dyn MediaSource>) -> Result<Self, String> {
        let stream = MediaSourceStream::new(source, Default::default());
        let tags = MetadataOptions::default()
            .limit_tag_bytes(Limit::Maximum(MAX_TAG))
            .limit_visual_bytes(Limit::Maximum(MAX_TAG));
        let format = symphonia::default::get_probe()
            .probe(&Hint::new(), stream, FormatOptions::default(), tags)
            .map_err(|error| format!("this is no recording in WAV, FLAC, MP3, Ogg or MPEG-4: {error}"))?;
        let track = format.default_track(TrackType::Audio).ok_or("it has no track of sound")?;
        let parameters = track.codec_params.as_ref().and_then(|parameters| parameters.audio());
        let parameters = parameters.ok_or("it does not say how its sound is coded")?;
        let channels = parameters.channels.as_ref().map_or(1, |channels| channels.count());
        if channels == 0 || channels > MAX_CHANNELS {
            return Err(format!("it has {channels} channels, and 1 to {MAX_CHANNELS} were expected"));
        }
        let frames = parameters.max_frames_per_packet.unwrap_or(0);
        if frames.checked_mul(channels as u64).is_none_or(|samples| samples > MAX_PACKET) {
            return Err(format!("its packets have {frames} samples of {channels} channels, which no format has"));
        }
        let decoder = symphonia::default::get_codecs()
            .make_audio_decoder(parameters, &AudioDecoderOptions::default())
            .map_err(|error| format!("its sound is coded in a way that is not read: {error}"))?;
        let (track, declared) = (track.id, track.num_frames);
        Ok(Self { format, decoder, track, rate: 0, channels, declared, first: None, decoded: 0 })
    }

    /// The next samples, the mean of the channels; `None` after the last one.
    ///
    /// # Errors
    /// What is damaged, and where.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<f32>>, String> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.packet(),
        }
    }

    fn packet(&mut self) -> Result<Option<Vec<f32>>, String> {
        let Some(packet) = self.read()? else { return Ok(None) };
        match self.decode(&packet) {
            Ok(samples) => {
                self.decoded += samples.len() as u64;
                Ok(Some(samples))
            }
            // The last packet of a file that was cut off is incomplete.
            Err(_) if self.decoded > 0 && self.read().is_ok_and(|after| after.is_none()) => Ok(None),
            Err(message) => Err(self.at(&message)),
        }
    }

    /// The next packet of the sound; `None` at the end of the file, also where it was cut off.
    fn read(&mut self) -> Result<Option<Packet>, String> {
        loop {
            match guarded(|| self.format.next_packet())? {
                Ok(Some(packet)) if packet.track_id == self.track => return Ok(Some(packet)),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(Error::IoError(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                Err(Error::ResetRequired) => {
                    return Err(self.at("another stream follows in the same file, which is not read"));
                }
                Err(error) => return Err(self.at(&format!("it is damaged: {error}"))),
            }
        }
    }

    fn decode(&mut self, packet: &Packet) -> Result<Vec<f32>, String> {
        let (samples, rate) = guarded(|| {
            let decoded = self.decoder.decode(packet).map_err(|error| format!("it is damaged: {error}"))?;
            Ok::<_, String>((mean(&decoded), decoded.spec().rate()))
        })??;
        if self.rate == 0 {
            if !RATES.contains(&rate) {
                let (least, most) = (RATES.start(), RATES.end());
                return Err(format!("it has {rate} samples per second, and {least} to {most} were expected"));
            }
            self.rate = rate;
        } else if rate != self.rate {
            return Err(format!("its rate changes from {} to {rate} samples per second", self.rate));
        }
        Ok(samples)
    }

    /// A message with the time at which something is.
    fn at(&self, message: &str) -> String {
        match self.decoded {
            0 => message.to_owned(),
            decoded => format!("at {:.2} s: {message}", decoded as f64 / f64::from(self.rate)),
        }
    }
}

/// Work of the library that decodes; a panic is an error.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    caught(work).map_err(|panic| format!("the library that decodes it failed: {panic}"))
}

/// The mean of the channels. A sample that is no number is silence.
fn mean(buffer: &GenericAudioBufferRef<'_>) -> Vec<f32> {
    let channels = buffer.num_planes().max(1);
    let mut all: Vec<f32> = Vec::new();
    buffer.copy_to_vec_interleaved(&mut all);
    if channels > 1 {
        let frames = all.len() / channels;
        for frame in 0..frames {
            let sum: f32 = all[frame * channels..][..channels].iter().sum();
            all[frame] = sum / channels as f32;
        }
        all.truncate(frames);
    }
    for sample in &mut all {
        if !sample.is_finite() {
            *sample = 0.0;
        }
    }
    all
}
