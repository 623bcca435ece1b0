//! Kaldi's filter banks: those of `ASTFeatureExtractor`, of one length and normalized by given numbers, and those of
//! `SeamlessM4TFeatureExtractor`, normalized by band, with several frames in one place.

use super::Prepared;
use crate::features::{Edges, MelBank, MelOptions, MelScale, Spectra, Window};

/// Samples of a frame, of the way to the next one, and of the transform.
const LENGTHS: [usize; 3] = [400, 160, 512];

/// The share of the sample before that is subtracted from each sample.
const PREEMPHASIS: f64 = 0.97;

/// The least energy: the distance from 1 to the next float32.
pub(super) const FLOOR: f64 = f32::EPSILON as f64;

/// The lowest frequency, in Hz.
const LOWEST: f64 = 20.0;

#[derive(Clone)]
pub(super) struct FilterBank {
    spectra: Spectra,
    bank: MelBank,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    /// So many frames, filled up with zeros, and then normalized by a mean and twice a deviation.
    Fixed { frames: usize, normalize: Option<[f64; 2]> },
    /// All frames, each band with a mean of 0 and a variance of 1, and so many frames in one place.
    Joined { stride: usize },
}

impl FilterBank {
    pub(super) fn new(bands: usize, rate: u32, form: Form) -> Result<Self, String> {
        let window = if let Form::Fixed { .. } = form { Window::Hann } else { Window::Povey };
        let spectra = Spectra::new(window, LENGTHS, Edges::None)?.with_preemphasis(PREEMPHASIS);
        let bank = MelBank::new(MelOptions {
            bands,
            bins: LENGTHS[2] / 2 + 1,
            rate,
            hertz: [LOWEST, f64::from(rate / 2)],
            scale: MelScale::Kaldi,
            is_straight_on_scale: true,
            by_width: false,
        });
        Ok(Self { spectra, bank, form })
    }

    pub(super) fn parts(&self) -> (&Spectra, &MelBank, Form) {
        (&self.spectra, &self.bank, self.form)
    }

    pub(super) fn pads_to_longest(&self) -> bool {
        matches!(self.form, Form::Joined { .. })
    }

    pub(super) fn needed(&self) -> Option<usize> {
        match self.form {
            Form::Fixed { frames, .. } => Some(frames.saturating_mul(LENGTHS[1]).saturating_add(LENGTHS[0])),
            Form::Joined { .. } => None,
        }
    }

    /// How many numbers a place has.
    pub(super) fn width(&self) -> usize {
        match self.form {
            Form::Fixed { .. } => self.bank.len(),
            Form::Joined { stride } => self.bank.len() * stride,
        }
    }

    /// The samples from one place to the next, where recordings of any length have places.
    pub(super) fn place_samples(&self) -> Option<usize> {
        match self.form {
            Form::Fixed { .. } => None,
            Form::Joined { stride } => Some(LENGTHS[1] * stride),
        }
    }

    /// The fewest samples: those of a frame, or of two frames, which have a variance.
    pub(super) fn fewest(&self) -> usize {
        let [length, hop, _] = LENGTHS;
        if self.pads_to_longest() { length + hop } else { length }
    }

    pub(super) fn prepare(&self, samples: &[f32]) -> Result<Prepared, String> {
        let all = self.spectra.frames(samples.len());
        let needed = self.fewest();
        if samples.len() < needed {
            return Err(format!("it has {} samples, and the features of the model need {needed}", samples.len()));
        }
        match self.form {
            Form::Fixed { frames, normalize } => {
                let mut energies = self.spectra.energies(samples, &self.bank, frames)?;
                logarithms(&mut energies);
                energies.resize(frames * self.bank.len(), 0.0);
                if let Some([mean, deviation]) = normalize {
                    for energy in &mut energies {
                        *energy = (*energy - mean) / (2.0 * deviation);
                    }
                }
                let values = energies.into_iter().map(|energy| energy as f32).collect();
                Ok(Prepared {
                    values,
                    length: all.min(frames),
                    places: frames,
                    is_longer: false,
                    is_cut: all > frames,
                    seconds: 0.0,
                })
            }
            Form::Joined { stride } => {
                let scaled: Vec<f32> = samples.iter().map(|sample| sample * 32_768.0).collect();
                let mut energies = self.spectra.energies(&scaled, &self.bank, all)?;
                logarithms(&mut energies);
                normalize_bands(&mut energies, self.bank.len());
                let values = energies.into_iter().map(|energy| energy as f32).collect();
                // A place is read if its second frame is there; frames are filled up to an even number.
                let (length, places) = ((all - 1).div_ceil(stride), all.next_multiple_of(2) / stride);
                Ok(Prepared { values, length, places, is_longer: false, is_cut: false, seconds: 0.0 })
            }
        }
    }
}

fn logarithms(energies: &mut [f64]) {
    for energy in energies {
        *energy = energy.max(FLOOR).ln();
    }
}

/// Gives each band a mean of 0 and a variance of 1, of [frames, bands].
fn normalize_bands(energies: &mut [f64], bands: usize) {
    let frames = (energies.len() / bands.max(1)) as f64;
    for band in 0..bands {
        let of_band = || energies.iter().skip(band).step_by(bands);
        let mean = of_band().sum::<f64>() / frames;
        let variance = of_band().map(|energy| (energy - mean).powi(2)).sum::<f64>() / (frames - 1.0);
        let scale = 1.0 / (variance + 1e-7).sqrt();
        for energy in energies.iter_mut().skip(band).step_by(bands) {
            *energy = (*energy - mean) * scale;
        }
    }
}
