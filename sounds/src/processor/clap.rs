//! `ClapFeatureExtractor`: mel energies in decibels of some seconds, or of a whole recording and three parts of it.
//!
//! The transformers library draws parts of long recordings at random. Here they are those in the middle of what it draws from, so
//! that the same recording always gives the same.

use super::Prepared;
use crate::features::{Edges, MelBank, MelOptions, MelScale, Spectra, Window};

/// The least energy.
const FLOOR: f64 = 1e-10;

/// The bands that a whole recording is shrunk to, whatever there are.
pub(super) const FUSED_BANDS: usize = 64;

#[derive(Clone)]
pub(super) struct Clap {
    spectra: Spectra,
    bank: MelBank,
    /// The samples of an input.
    samples: usize,
    /// Whether an input has four parts.
    is_fused: bool,
    filling: Filling,
}

/// How recordings that are too short become long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filling {
    /// Repeated, and the last time cut.
    Repeat,
    /// Repeated as often as they fit, and then silence.
    RepeatAndSilence,
    Silence,
}

/// What a processor is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClapOptions {
    pub(super) bands: usize,
    pub(super) rate: u32,
    pub(super) hop: usize,
    pub(super) fft: usize,
    pub(super) samples: usize,
    pub(super) hertz: [f64; 2],
    pub(super) is_fused: bool,
    pub(super) filling: Filling,
}

impl Clap {
    pub(super) fn new(options: ClapOptions) -> Result<Self, String> {
        let ClapOptions { bands, rate, hop, fft, samples, hertz, is_fused, filling } = options;
        let bank = MelOptions {
            bands,
            bins: fft / 2 + 1,
            rate,
            hertz,
            scale: if is_fused { MelScale::Htk } else { MelScale::Slaney },
            is_straight_on_scale: false,
            by_width: !is_fused,
        };
        let spectra = Spectra::new(Window::PeriodicHann, [fft, hop, fft], Edges::Reflected)?;
        Ok(Self { spectra, bank: MelBank::new(bank), samples, is_fused, filling })
    }

    pub(super) fn parts(&self) -> usize {
        if self.is_fused { 4 } else { 1 }
    }

    pub(super) fn bands(&self) -> usize {
        self.bank.len()
    }

    pub(super) fn prepare(&self, samples: &[f32]) -> Result<Prepared, String> {
        let places = self.spectra.frames(self.samples);
        let all = self.spectra.frames(samples.len());
        let is_longer = samples.len() > self.samples;
        let values = match (is_longer, self.is_fused) {
            (false, _) => self.decibels(&self.filled(samples))?.repeat(self.parts()),
            (true, false) => self.decibels(&samples[(samples.len() - self.samples) / 2..][..self.samples])?,
            (true, true) if all == places => self.decibels(samples)?.repeat(4),
            (true, true) => self.fused(&self.decibels(samples)?, all, places),
        };
        // A batch of one fused recording is always said to be longer.
        Ok(Prepared {
            values,
            length: places,
            places,
            is_longer: is_longer || self.is_fused,
            is_cut: is_longer && !self.is_fused,
            seconds: 0.0,
        })
    }

    /// Samples that are repeated or filled up to the length of an input.
    fn filled(&self, samples: &[f32]) -> Vec<f32> {
        let times = self.samples / samples.len();
        let mut filled = match self.filling {
            Filling::Repeat => samples.repeat(times + 1),
            Filling::RepeatAndSilence => samples.repeat(times),
            Filling::Silence => samples.to_vec(),
        };
        filled.resize(self.samples, 0.0);
        filled
    }

    /// [frames, bands].
    fn decibels(&self, samples: &[f32]) -> Result<Vec<f32>, String> {
        let energies = self.spectra.energies(samples, &self.bank, usize::MAX)?;
        Ok(energies.into_iter().map(|energy| (10.0 * energy.max(FLOOR).log10()) as f32).collect())
    }

    /// The whole recording shrunk to the frames of an input, and a part of its beginning, middle and end.
    fn fused(&self, whole: &[f32], all: usize, frames: usize) -> Vec<f32> {
        let bands = self.bank.len();
        let mut fused = Vec::with_capacity(4 * frames * bands);
        let scale = all as f32 / frames as f32;
        for frame in 0..frames {
            // In float32, as torch computes places between frames.
            let place = (scale * (frame as f32 + 0.5) - 0.5).max(0.0);
            let first = (place as usize).min(all - 1);
            let second = (first + 1).min(all - 1);
            let share = (place - first as f32).clamp(0.0, 1.0);
            let [first, second] = [first, second].map(|frame| &whole[frame * bands..][..bands]);
            fused.extend(first.iter().zip(second).map(|(first, second)| first * (1.0 - share) + second * share));
        }
        for part in thirds(all - frames + 1) {
            fused.extend_from_slice(&whole[part * bands..][..frames * bands]);
        }
        fused
    }
}

/// The middle of each third of so many places, as `numpy.array_split` divides them; the first place of an empty one.
fn thirds(count: usize) -> [usize; 3] {
    let size = |third: usize| count / 3 + usize::from(third < count % 3);
    let mut start = 0;
    [0, 1, 2].map(|third| {
        let own = size(third);
        let middle = if own == 0 { 0 } else { start + own / 2 };
        start += own;
        middle
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirds_have_middles() {
        assert_eq!(thirds(9), [1, 4, 7]);
        assert_eq!(thirds(10), [2, 5, 8]);
        assert_eq!(thirds(2), [0, 1, 0]);
    }
}
