//! Samples at another rate.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Indexing, Resampler as _, WindowFunction};

/// About how many samples the filter has. More make the band between what stays and what goes narrower.
const FILTER: usize = 2048;

/// Changes the rate of a stream of samples, by a band-limited filter in the domain of frequencies.
pub(crate) struct Resampler {
    fft: Fft<f32>,
    rates: [u32; 2],
    /// Samples that do not fill a chunk yet.
    waiting: Vec<f32>,
    /// Samples before the first one, which come out of the filter's delay.
    delay: usize,
    read: u64,
    written: u64,
}

impl Resampler {
    /// From a rate to another one, in samples per second.
    ///
    /// # Errors
    /// When the library refuses the rates.
    pub(crate) fn new(from: u32, to: u32) -> Result<Self, String> {
        let (input, output) = (from as usize, to as usize);
        // The filter's length at the input grows with the ratio, so that it stays the same at the lower rate. With an odd length
        // the delay would not be a whole number of samples, so periods of both rates come in pairs.
        let period = input / greatest_common_divisor(input, output);
        let chunk = (FILTER * input.div_ceil(output)).div_ceil(period).next_multiple_of(2) * period;
        let fft = Fft::new_custom(input, output, chunk, 1, 1, WindowFunction::BlackmanHarris2, FixedSync::Both)
            .map_err(|error| format!("{from} samples per second cannot become {to}: {error}"))?;
        let delay = fft.output_delay();
        Ok(Self { fft, rates: [from, to], waiting: Vec::new(), delay, read: 0, written: 0 })
    }

    /// What follows at the new rate, as far as it is known by now.
    ///
    /// # Errors
    /// When the library fails.
    pub(crate) fn push(&mut self, samples: &[f32]) -> Result<Vec<f32>, String> {
        self.read += samples.len() as u64;
        self.waiting.extend_from_slice(samples);
        let chunk = self.fft.input_frames_next();
        let mut out = Vec::new();
        let mut start = 0;
        while self.waiting.len() - start >= chunk {
            let next = process(&mut self.fft, &self.waiting[start..][..chunk], None)?;
            self.append(&mut out, &next);
            start += chunk;
        }
        self.waiting.drain(..start);
        Ok(out)
    }

    /// The rest, after the last sample.
    ///
    /// # Errors
    /// When the library fails.
    pub(crate) fn finish(&mut self) -> Result<Vec<f32>, String> {
        let [from, to] = self.rates.map(u128::from);
        let expected = u64::try_from((u128::from(self.read) * to).div_ceil(from)).unwrap_or(u64::MAX);
        let mut out = Vec::new();
        let chunk = self.fft.input_frames_next();
        let mut last = std::mem::take(&mut self.waiting);
        while self.written < expected {
            let filled = last.len();
            last.resize(chunk, 0.0);
            let next = process(&mut self.fft, &last, Some(filled))?;
            self.append(&mut out, &next);
            last.clear();
        }
        let surplus = usize::try_from(self.written - expected).unwrap_or(usize::MAX);
        out.truncate(out.len().saturating_sub(surplus));
        Ok(out)
    }

    fn append(&mut self, out: &mut Vec<f32>, next: &[f32]) {
        let dropped = self.delay.min(next.len());
        self.delay -= dropped;
        self.written += (next.len() - dropped) as u64;
        out.extend_from_slice(&next[dropped..]);
    }
}

fn greatest_common_divisor(mut a: usize, mut b: usize) -> usize {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// One chunk, of which `filled` samples are of the recording.
fn process(fft: &mut Fft<f32>, chunk: &[f32], filled: Option<usize>) -> Result<Vec<f32>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("its rate cannot be changed: {error}");
    let mut out = vec![0.0; fft.output_frames_next()];
    let frames = out.len();
    let input = InterleavedSlice::new(chunk, 1, chunk.len()).map_err(|error| failed(&error))?;
    let mut output = InterleavedSlice::new_mut(&mut out, 1, frames).map_err(|error| failed(&error))?;
    let part = Indexing { input_offset: 0, output_offset: 0, partial_len: filled, active_channels_mask: None };
    let (_, written) = fft.process_into_buffer(&input, &mut output, Some(&part)).map_err(|error| failed(&error))?;
    out.truncate(written);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resampled(from: u32, to: u32, samples: &[f32], block: usize) -> Vec<f32> {
        let mut resampler = Resampler::new(from, to).unwrap();
        let mut out: Vec<f32> = samples.chunks(block).flat_map(|block| resampler.push(block).unwrap()).collect();
        out.extend(resampler.finish().unwrap());
        out
    }

    fn tone(rate: u32, hertz: f64, count: usize) -> Vec<f32> {
        let step = std::f64::consts::TAU * hertz / f64::from(rate);
        (0..count).map(|at| (step * at as f64).sin() as f32).collect()
    }

    #[test]
    fn tones_stay_in_place_and_those_too_high_go() {
        for from in [8000, 11_025, 22_050, 32_000, 44_100, 44_101, 48_000, 96_000, 192_000] {
            let count = from as usize;
            let low = resampled(from, 16_000, &tone(from, 1000.0, count), 777);
            assert_eq!(low.len(), 16_000, "{from}");
            let expected = tone(16_000, 1000.0, low.len());
            let inner = 2000..14_000;
            let worst = inner.clone().map(|at| (low[at] - expected[at]).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-4, "{from}: {worst}");
            if from > 24_000 {
                let high = resampled(from, 16_000, &tone(from, 9000.0, count), 5000);
                let worst = inner.map(|at| high[at].abs()).fold(0.0, f32::max);
                assert!(worst < 1e-4, "{from}: {worst}");
            }
        }
    }

    #[test]
    fn blocks_of_any_size_give_the_same() {
        let samples: Vec<f32> = (0..30_000).map(|at| ((at * 7919) % 1000) as f32 / 1000.0 - 0.5).collect();
        let whole = resampled(22_050, 16_000, &samples, 30_000);
        assert_eq!(whole, resampled(22_050, 16_000, &samples, 97));
        assert_eq!(whole.len(), 30_000_usize * 320 / 441 + 1);
        assert_eq!(resampled(48_000, 16_000, &samples[..1], 1).len(), 1);
        assert!(resampled(48_000, 16_000, &[], 1).is_empty());
    }
}
