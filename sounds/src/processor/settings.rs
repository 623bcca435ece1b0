//! The settings of preprocessor_config.json, or of the feature extractor in processor_config.json.

use std::path::Path;

use serde_json::{Map, Value};

use super::clap::{Clap, ClapOptions, FUSED_BANDS, Filling};
use super::filter_bank::{FilterBank, Form};
use super::parakeet::{Parakeet, ParakeetOptions};
use super::waveform::Waveform;
use super::{Kind, MOST, Processor};
use crate::features::LogMel;
use crate::{RATES, SoundError};

/// The files that say how recordings become inputs, in the order in which they are looked for.
pub const FILES: [&str; 2] = ["preprocessor_config.json", "processor_config.json"];

/// The types that are supported, before `FeatureExtractor`.
const TYPES: [&str; 6] = ["Wav2Vec2", "Whisper", "AST", "Clap", "SeamlessM4T", "Parakeet"];

/// The most bands, and the most samples of a transform.
const MAX_BANDS: usize = 1024;
const MAX_TRANSFORM: usize = 1 << 16;

impl Processor {
    /// Reads how recordings become inputs of the model in a folder; `None` where no file says it.
    ///
    /// # Errors
    /// When the file is malformed, or has a type or a setting that is not supported.
    pub fn open(folder: &Path) -> Result<Option<Self>, SoundError> {
        for name in FILES {
            let path = folder.join(name);
            let Some(text) = planish_files::read_if_there(&path, &planish_files::Kind::SETTINGS)? else { continue };
            let wrong = |message: String| SoundError::File { path: path.clone(), message };
            let value: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
            let own = value.as_object().ok_or_else(|| wrong("it is no object of JSON".to_owned()))?;
            // A processor of several kinds of inputs has that of sound inside.
            let of_sound = match own.get("feature_extractor") {
                Some(inner) => inner.as_object().ok_or_else(|| wrong("`feature_extractor` is no object".to_owned()))?,
                None if name == FILES[0] => own,
                None => continue,
            };
            return Self::of(of_sound).map(Some).map_err(wrong);
        }
        Ok(None)
    }

    /// That of settings.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn of(settings: &Map<String, Value>) -> Result<Self, String> {
        let s = Settings(settings);
        let rate = |default: usize| -> Result<u32, String> {
            let rate = u32::try_from(s.count("sampling_rate", default)?).ok().filter(|rate| RATES.contains(rate));
            rate.ok_or_else(|| format!("`sampling_rate` is {:?}, which is not supported", s.get("sampling_rate")))
        };
        let padding = s.number("padding_value", 0.0)? as f32;
        let is_left = s.choice("padding_side", &["right", "left"], "right")? == "left";
        let only_right = || match is_left {
            true => Err("`padding_side` is left, which is not supported for this type".to_owned()),
            false => Ok(()),
        };
        let (rate, kind) = match s.kind()? {
            // With padding on the left, the library normalizes other samples than those of the recording.
            "Wav2Vec2" => {
                only_right()?;
                if s.count("feature_size", 1)? != 1 {
                    return Err("`feature_size` of waveforms has to be 1".to_owned());
                }
                let normalizes = s.boolean("do_normalize", true)?;
                let masks = s.boolean("return_attention_mask", false)?;
                (rate(16_000)?, Kind::Waveform(Waveform { normalizes, masks }))
            }
            "Whisper" => {
                let (rate, hop, fft) = (rate(16_000)?, s.count("hop_length", 160)?, s.transform("n_fft", 400)?);
                if s.number("dither", 0.0)? != 0.0 {
                    return Err("`dither` adds random noise, which is not supported; set it to 0".to_owned());
                }
                let samples = s.product("chunk_length", 30, rate)?;
                if samples < hop {
                    return Err(format!("`chunk_length` has {samples} samples, and `hop_length` is {hop}"));
                }
                (rate, Kind::LogMel(LogMel::new(s.bands("feature_size", 80)?, rate, fft, hop)?, samples))
            }
            "AST" => {
                only_right()?;
                let rate = rate(16_000)?;
                if rate != 16_000 {
                    return Err(format!(
                        "`sampling_rate` is {rate}: the filter banks of another rate than 16000 depend on whether torchaudio is \
                         installed, and are not supported"
                    ));
                }
                let normalize = match s.boolean("do_normalize", true)? {
                    true => Some([s.number("mean", -4.267_739_3)?, s.number("std", 4.568_997_4)?]),
                    false => None,
                };
                if normalize.is_some_and(|[_, deviation]| deviation == 0.0) {
                    return Err("`std` is 0, by which nothing can be divided".to_owned());
                }
                let (frames, bands) = (s.count("max_length", 1024)?, s.bands("num_mel_bins", 128)?);
                (rate, Kind::FilterBank(FilterBank::new(bands, rate, Form::Fixed { frames, normalize })?))
            }
            "SeamlessM4T" => {
                only_right()?;
                let (rate, bands, stride) = (rate(16_000)?, s.bands("num_mel_bins", 80)?, s.count("stride", 2)?);
                if !(2..=64).contains(&stride) {
                    return Err(format!("`stride` is {stride}, and a number from 2 to 64 was expected"));
                }
                (rate, Kind::FilterBank(FilterBank::new(bands, rate, Form::Joined { stride })?))
            }
            "Clap" => {
                only_right()?;
                let rate = rate(48_000)?;
                let options = ClapOptions {
                    bands: s.bands("feature_size", 64)?,
                    rate,
                    hop: s.count("hop_length", 480)?,
                    fft: s.transform("fft_window_size", 1024)?,
                    samples: s.product("max_length_s", 10, rate)?,
                    hertz: [s.number("frequency_min", 0.0)?, s.number("frequency_max", 14_000.0)?],
                    is_fused: s.choice("truncation", &["fusion", "rand_trunc"], "fusion")? == "fusion",
                    filling: match s.choice("padding", &["repeatpad", "repeat", "pad"], "repeatpad")? {
                        "repeatpad" => Filling::RepeatAndSilence,
                        "repeat" => Filling::Repeat,
                        _ => Filling::Silence,
                    },
                };
                if options.is_fused && options.bands != FUSED_BANDS {
                    return Err(format!("`feature_size` with `truncation` of fusion has to be {FUSED_BANDS}"));
                }
                (rate, Kind::Clap(Clap::new(options)?))
            }
            _ => {
                only_right()?;
                if padding != 0.0 {
                    return Err("`padding_value` is not 0, which is not supported for this type".to_owned());
                }
                let rate = rate(16_000)?;
                let preemphasis = match is_not_null(settings, "preemphasis") {
                    true => Some(s.number("preemphasis", 0.97)?),
                    false => None,
                };
                let options = ParakeetOptions {
                    bands: s.bands("feature_size", 80)?,
                    rate,
                    hop: s.count("hop_length", 160)?,
                    fft: s.transform("n_fft", 512)?,
                    window: s.transform("win_length", 400)?,
                    preemphasis,
                };
                (rate, Kind::Parakeet(Parakeet::new(options)?))
            }
        };
        Ok(Self { rate, padding, is_left, kind })
    }
}

/// Whether a key has its default or a value, and not null.
fn is_not_null(settings: &Map<String, Value>, key: &str) -> bool {
    settings.get(key).is_none_or(|value| !value.is_null())
}

struct Settings<'a>(&'a Map<String, Value>);

impl Settings<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// The type, before `FeatureExtractor`. Files of the first models do not name it, and make waveforms.
    fn kind(&self) -> Result<&'static str, String> {
        let Some(name) = self.get("feature_extractor_type") else {
            let is_waveform = self.get("sampling_rate").is_some() && self.count("feature_size", 1)? == 1;
            let is_waveform = is_waveform && self.get("num_mel_bins").is_none();
            return match is_waveform {
                true => Ok(TYPES[0]),
                false => Err("it does not say the type of the processor of sound, `feature_extractor_type`".to_owned()),
            };
        };
        let short = name.as_str().and_then(|name| name.strip_suffix("FeatureExtractor"));
        TYPES
            .into_iter()
            .find(|ty| Some(*ty) == short)
            .ok_or_else(|| format!("the type {name} is not supported; those of {} are", TYPES.join(", ")))
    }

    fn boolean(&self, key: &str, default: bool) -> Result<bool, String> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value.as_bool().ok_or_else(|| format!("`{key}` is {value}, and no boolean")),
        }
    }

    fn number(&self, key: &str, default: f64) -> Result<f64, String> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => {
                let number = value.as_f64().filter(|number| (*number as f32).is_finite());
                number.ok_or_else(|| format!("`{key}` is {value}, and no number of float32"))
            }
        }
    }

    /// A whole number from 1 on.
    fn count(&self, key: &str, default: usize) -> Result<usize, String> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let count =
            value.as_u64().and_then(|count| usize::try_from(count).ok()).filter(|count| (1..=MOST).contains(count));
        count.ok_or_else(|| format!("`{key}` is {value}, and a number from 1 to {MOST} was expected"))
    }

    fn within(&self, key: &str, default: usize, most: usize) -> Result<usize, String> {
        let count = self.count(key, default)?;
        if count > most { Err(format!("`{key}` is {count}, and at most {most} was expected")) } else { Ok(count) }
    }

    fn bands(&self, key: &str, default: usize) -> Result<usize, String> {
        self.within(key, default, MAX_BANDS)
    }

    fn transform(&self, key: &str, default: usize) -> Result<usize, String> {
        self.within(key, default, MAX_TRANSFORM)
    }

    /// Seconds as samples.
    fn product(&self, key: &str, default: usize, rate: u32) -> Result<usize, String> {
        let seconds = self.count(key, default)?;
        let samples = seconds.checked_mul(rate as usize).filter(|samples| *samples <= MOST);
        samples.ok_or_else(|| format!("`{key}` is {seconds} s, which no input has"))
    }

    fn choice<'a>(&self, key: &str, of: &[&'a str], default: &'a str) -> Result<&'a str, String> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let found = of.iter().copied().find(|one| Some(*one) == value.as_str());
        found.ok_or_else(|| format!("`{key}` is {value}, and {} were expected", of.join(", ")))
    }
}
