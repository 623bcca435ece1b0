//! `Wav2Vec2FeatureExtractor`: samples, normalized.

use super::Prepared;

/// What is added to the variance.
pub(super) const EPSILON: f64 = 1e-7;

#[derive(Clone, Copy, Debug)]
pub(super) struct Waveform {
    /// Whether samples get a mean of 0 and a variance of 1.
    pub(super) normalizes: bool,
    /// Whether models take a mask of the padding; if not, the padding is normalized with the samples.
    pub(super) masks: bool,
}

impl Waveform {
    pub(super) fn prepare(self, samples: &[f32]) -> Prepared {
        let length = samples.len();
        Prepared { values: samples.to_vec(), length, places: length, is_longer: false, is_cut: false, seconds: 0.0 }
    }

    /// Normalizes a row, of which so many places are samples.
    pub(super) fn normalize(self, row: &mut [f32], samples: usize) {
        if !self.normalizes {
            return;
        }
        let part = if self.masks { &mut row[..samples] } else { row };
        let count = part.len().max(1) as f64;
        let mean = part.iter().map(|sample| f64::from(*sample)).sum::<f64>() / count;
        let variance = part.iter().map(|sample| (f64::from(*sample) - mean).powi(2)).sum::<f64>() / count;
        let scale = 1.0 / (variance + EPSILON).sqrt();
        for sample in part {
            *sample = ((f64::from(*sample) - mean) * scale) as f32;
        }
    }
}
