//! `ParakeetFeatureExtractor`: logarithms of mel energies, normalized by band.

use super::Prepared;
use crate::features::{Edges, MelBank, MelOptions, MelScale, Spectra, Window};

/// What is added to energies before the logarithm.
const GUARD: f64 = 1.0 / (1 << 24) as f64;

/// What is added to deviations.
const EPSILON: f64 = 1e-5;

#[derive(Clone)]
pub(super) struct Parakeet {
    spectra: Spectra,
    bank: MelBank,
    hop: usize,
    preemphasis: Option<f32>,
}

/// What a processor is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParakeetOptions {
    pub(super) bands: usize,
    pub(super) rate: u32,
    pub(super) hop: usize,
    pub(super) fft: usize,
    pub(super) window: usize,
    /// The share of the sample before that is subtracted from each sample.
    pub(super) preemphasis: Option<f64>,
}

impl Parakeet {
    pub(super) fn new(options: ParakeetOptions) -> Result<Self, String> {
        let ParakeetOptions { bands, rate, hop, fft, window, preemphasis } = options;
        let spectra = Spectra::new(Window::Hann, [window, hop, fft], Edges::Zeros)?.with_window_in_the_middle();
        let bank = MelBank::new(MelOptions {
            bands,
            bins: fft / 2 + 1,
            rate,
            hertz: [0.0, f64::from(rate) / 2.0],
            scale: MelScale::Slaney,
            is_straight_on_scale: false,
            by_width: true,
        });
        Ok(Self { spectra, bank, hop, preemphasis: preemphasis.map(|share| share as f32) })
    }

    pub(super) fn bands(&self) -> usize {
        self.bank.len()
    }

    /// The samples from one frame to the next.
    pub(super) fn hop(&self) -> usize {
        self.hop
    }

    /// The fewest samples: those of two frames, which have a deviation.
    pub(super) fn fewest(&self) -> usize {
        2 * self.hop
    }

    pub(super) fn prepare(&self, samples: &[f32]) -> Result<Prepared, String> {
        let (length, needed) = (samples.len() / self.hop, self.fewest());
        if samples.len() < needed {
            return Err(format!("it has {} samples, and the features of the model need {needed}", samples.len()));
        }
        let emphasized: Vec<f32>;
        let samples = match self.preemphasis {
            None => samples,
            Some(share) => {
                let rest = samples.windows(2).map(|pair| pair[1] - share * pair[0]);
                emphasized = samples[..1].iter().copied().chain(rest).collect();
                &emphasized
            }
        };
        let bands = self.bank.len();
        let mut energies = self.spectra.energies(samples, &self.bank, length)?;
        for energy in &mut energies {
            *energy = (*energy + GUARD).ln();
        }
        for band in 0..bands {
            let of_band = || energies.iter().skip(band).step_by(bands);
            let mean = of_band().sum::<f64>() / length as f64;
            let variance = of_band().map(|energy| (energy - mean).powi(2)).sum::<f64>() / (length - 1) as f64;
            let scale = 1.0 / (variance.sqrt() + EPSILON);
            for energy in energies.iter_mut().skip(band).step_by(bands) {
                *energy = (*energy - mean) * scale;
            }
        }
        let values = energies.into_iter().map(|energy| energy as f32).collect();
        Ok(Prepared { values, length, places: length + 1, is_longer: false, is_cut: false, seconds: 0.0 })
    }
}
