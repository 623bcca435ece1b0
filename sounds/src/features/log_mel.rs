//! The logarithms of mel energies that Whisper takes.

use super::mel::MelOptions;
use super::{Edges, MelBank, MelScale, Spectra, Window};

/// The least energy.
pub(crate) const FLOOR: f64 = 1e-10;

/// Logarithms of mel energies, as `WhisperFeatureExtractor` of the transformers library computes them.
#[derive(Clone)]
pub struct LogMel {
    spectra: Spectra,
    bank: MelBank,
    length: usize,
    hop: usize,
}

impl LogMel {
    /// With so many bands up to 8 kHz, of windows of `fft` samples every `hop` samples.
    ///
    /// # Errors
    /// When lengths are 0.
    pub fn new(bands: usize, rate: u32, fft: usize, hop: usize) -> Result<Self, String> {
        let spectra = Spectra::new(Window::PeriodicHann, [fft, hop, fft], Edges::Reflected)?;
        let bank = MelBank::new(MelOptions {
            bands,
            bins: fft / 2 + 1,
            rate,
            hertz: [0.0, 8000.0],
            scale: MelScale::Slaney,
            is_straight_on_scale: false,
            by_width: true,
        });
        Ok(Self { spectra, bank, length: fft, hop })
    }

    /// The filters of its bands.
    #[must_use]
    pub fn bank(&self) -> &MelBank {
        &self.bank
    }

    pub(crate) fn spectra(&self) -> &Spectra {
        &self.spectra
    }

    /// Samples that the features of a frame are computed from.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Samples from one frame to the next.
    #[must_use]
    pub fn hop(&self) -> usize {
        self.hop
    }

    /// How many frames so many samples have.
    #[must_use]
    pub fn frames(&self, samples: usize) -> usize {
        samples / self.hop
    }

    /// Features of samples, which include the silence that fills the window up: [bands, frames].
    ///
    /// # Errors
    /// Never for what [`new`](Self::new) makes.
    pub fn compute(&self, samples: &[f32]) -> Result<Vec<f32>, String> {
        let (bands, frames) = (self.bank.len(), self.frames(samples.len()));
        let mut energies = self.spectra.energies(samples, &self.bank, frames)?;
        for energy in &mut energies {
            *energy = energy.max(FLOOR).log10();
        }
        let least = energies.iter().copied().fold(f64::NEG_INFINITY, f64::max) - 8.0;
        let mut features = vec![0.0; energies.len()];
        for (frame, energies) in energies.chunks_exact(bands.max(1)).enumerate() {
            for (band, energy) in energies.iter().enumerate() {
                features[band * frames + frame] = ((energy.max(least) + 4.0) / 4.0) as f32;
            }
        }
        Ok(features)
    }
}
