//! Short-time Fourier transforms.

use std::sync::Arc;

use rayon::prelude::*;
use realfft::{RealFftPlanner, RealToComplex};

use super::{MelBank, Window};

/// How many frames a thread takes at a time.
const FRAMES: usize = 64;

/// What is before the first sample and after the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edges {
    /// Nothing: frames are those that the samples fill.
    None,
    /// The samples mirrored: the first frame has its middle at the first sample.
    Reflected,
    /// Zeros, with frames as before.
    Zeros,
}

/// Windows of samples as powers of frequencies.
#[derive(Clone)]
pub struct Spectra {
    window: Vec<f64>,
    hop: usize,
    edges: Edges,
    /// What Kaldi does to each frame: subtract its mean, and this share of the sample before from each sample.
    preemphasis: Option<f64>,
    plan: Arc<dyn RealToComplex<f64>>,
}

impl Spectra {
    /// Frames of `length` samples, a new one every `hop` samples, transformed with zeros up to `fft` samples.
    ///
    /// # Errors
    /// When lengths are 0 or a frame is longer than its transform.
    pub fn new(window: Window, [length, hop, fft]: [usize; 3], edges: Edges) -> Result<Self, String> {
        if length == 0 || hop == 0 || fft < length {
            return Err(format!("frames of {length} samples every {hop} samples cannot be transformed in {fft}"));
        }
        let plan = RealFftPlanner::<f64>::new().plan_fft_forward(fft);
        Ok(Self { window: window.of(length), hop, edges, preemphasis: None, plan })
    }

    /// The same with frames of as many samples as the transform has, and the window in the middle of each (torch.stft).
    #[must_use]
    pub fn with_window_in_the_middle(mut self) -> Self {
        let missing = self.plan.len() - self.window.len();
        let mut window = vec![0.0; missing / 2];
        window.extend(&self.window);
        window.resize(self.plan.len(), 0.0);
        self.window = window;
        self
    }

    /// The same with frames from which the mean is subtracted, and this share of the sample before.
    #[must_use]
    pub fn with_preemphasis(mut self, share: f64) -> Self {
        self.preemphasis = Some(share);
        self
    }

    /// How many frames so many samples have.
    #[must_use]
    pub fn frames(&self, samples: usize) -> usize {
        let length = self.window.len();
        let samples = if self.edges == Edges::None { samples } else { samples + 2 * (length / 2) };
        samples.checked_sub(length).map_or(0, |rest| rest / self.hop + 1)
    }

    /// The energies of bands in each of the first frames: [frames, bands].
    ///
    /// # Errors
    /// When the bank is of another transform.
    pub fn energies(&self, samples: &[f32], bank: &MelBank, frames: usize) -> Result<Vec<f64>, String> {
        let bins = self.plan.len() / 2 + 1;
        if bank.bins() != bins {
            return Err(format!("a bank of {} frequencies does not fit a transform with {bins}", bank.bins()));
        }
        let bands = bank.len().max(1);
        let mut energies = vec![0.0; frames.min(self.frames(samples.len())) * bands];
        energies.par_chunks_mut(FRAMES * bands).enumerate().for_each(|(part, energies)| {
            let mut input = self.plan.make_input_vec();
            let mut output = self.plan.make_output_vec();
            let mut scratch = self.plan.make_scratch_vec();
            let mut power = vec![0.0; bins];
            for (frame, bands) in energies.chunks_exact_mut(bands).enumerate() {
                if !self.frame(samples, part * FRAMES + frame, &mut input) {
                    continue;
                }
                // It fails for buffers of other lengths only.
                let _ = self.plan.process_with_scratch(&mut input, &mut output, &mut scratch);
                for (power, value) in power.iter_mut().zip(&output) {
                    *power = value.norm_sqr();
                }
                bank.apply(&power, bands);
            }
        });
        Ok(energies)
    }

    /// A frame as the transform takes it; whether it has anything but zeros.
    fn frame(&self, samples: &[f32], frame: usize, input: &mut [f64]) -> bool {
        let length = self.window.len();
        let margin = self.margin();
        let start = frame * self.hop;
        let (frame, rest) = input.split_at_mut(length);
        rest.fill(0.0);
        match (start.checked_sub(margin), samples.len()) {
            (Some(start), all) if start + length <= all => {
                for (to, from) in frame.iter_mut().zip(&samples[start..]) {
                    *to = f64::from(*from);
                }
            }
            _ => {
                for (at, to) in frame.iter_mut().enumerate() {
                    *to = f64::from(self.sample(samples, start + at, margin));
                }
            }
        }
        if frame.iter().all(|sample| *sample == 0.0) {
            return false;
        }
        self.shape(frame);
        true
    }

    /// What is done to the samples of a frame before the transform.
    fn shape(&self, frame: &mut [f64]) {
        if let Some(share) = self.preemphasis {
            let mean = frame.iter().sum::<f64>() / frame.len() as f64;
            let mut before = frame[0] - mean;
            for sample in frame.iter_mut() {
                let own = *sample - mean;
                *sample = own - share * before;
                before = own;
            }
        }
        for (sample, window) in frame.iter_mut().zip(&self.window) {
            *sample *= window;
        }
    }

    /// Samples of a frame, and from one frame to the next.
    pub(crate) fn lengths(&self) -> [usize; 2] {
        [self.window.len(), self.hop]
    }

    /// The samples before the first one that the first frame has.
    pub(crate) fn margin(&self) -> usize {
        if self.edges == Edges::None { 0 } else { self.window.len() / 2 }
    }

    /// What the samples of a frame are multiplied by: for each frequency a row of the real part, and then for each one of the
    /// imaginary part, [2 * frequencies, length].
    pub(crate) fn matrix(&self) -> Vec<f64> {
        let (length, bins) = (self.window.len(), self.plan.len() / 2 + 1);
        let mut matrix = vec![0.0; 2 * bins * length];
        let mut input = self.plan.make_input_vec();
        let mut output = self.plan.make_output_vec();
        for at in 0..length {
            input.fill(0.0);
            input[at] = 1.0;
            self.shape(&mut input[..length]);
            // It fails for buffers of other lengths only.
            let _ = self.plan.process(&mut input, &mut output);
            for (bin, value) in output.iter().enumerate() {
                matrix[bin * length + at] = value.re;
                matrix[(bins + bin) * length + at] = value.im;
            }
        }
        matrix
    }

    /// The sample at a place of what has `margin` samples before the first one.
    fn sample(&self, samples: &[f32], place: usize, margin: usize) -> f32 {
        let inside = place.checked_sub(margin).filter(|place| *place < samples.len());
        match (inside, self.edges, samples.len()) {
            (Some(place), ..) => samples[place],
            (None, Edges::Reflected, 1) => samples[0],
            (None, Edges::Reflected, all) if all > 1 => {
                let period = 2 * (all - 1);
                let place = (place + period * margin.div_ceil(period) - margin) % period;
                samples[place.min(period - place)]
            }
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(spectra: &Spectra, samples: &[f32], at: usize) -> Vec<f64> {
        let mut input = vec![9.0; spectra.plan.len()];
        spectra.frame(samples, at, &mut input);
        input
    }

    #[test]
    fn edges_are_as_numpy_pads_them() {
        let samples = [1.0, 2.0, 3.0, 4.0, 5.0];
        let ones = |edges, length: usize| {
            let mut spectra = Spectra::new(Window::Hann, [length, 2, length], edges).unwrap();
            spectra.window.fill(1.0);
            spectra
        };
        let reflected = ones(Edges::Reflected, 4);
        assert_eq!(reflected.frames(5), 3);
        assert_eq!(frame(&reflected, &samples, 0), [3.0, 2.0, 1.0, 2.0]);
        assert_eq!(frame(&reflected, &samples, 2), [3.0, 4.0, 5.0, 4.0]);
        assert_eq!(frame(&ones(Edges::Reflected, 8), &samples[..2], 0), [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
        assert_eq!(frame(&ones(Edges::Reflected, 8), &samples[..3], 0), [1.0, 2.0, 3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
        assert_eq!(frame(&ones(Edges::Zeros, 4), &samples, 0), [0.0, 0.0, 1.0, 2.0]);
        assert_eq!((ones(Edges::None, 4).frames(5), ones(Edges::None, 4).frames(3)), (1, 0));
        let kaldi = ones(Edges::None, 4).with_preemphasis(0.5);
        assert_eq!(frame(&kaldi, &samples, 0), [-0.75, 0.25, 0.75, 1.25]);
    }

    #[test]
    fn windows_are_in_the_middle() {
        let spectra = Spectra::new(Window::Hann, [3, 1, 6], Edges::Zeros).unwrap().with_window_in_the_middle();
        assert_eq!(spectra.window.len(), 6);
        assert!((spectra.window[2] - 1.0).abs() < 1e-12);
        assert!(Spectra::new(Window::Hann, [8, 1, 4], Edges::None).is_err());
        assert!(Spectra::new(Window::Hann, [8, 0, 8], Edges::None).is_err());
    }
}
