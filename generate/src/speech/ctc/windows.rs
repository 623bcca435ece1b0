//! Windows of samples that overlap (`chunk_iter` and `rescale_stride` in the pipeline for automatic-speech-recognition of the
//! transformers library).

use std::ops::Range;

use anyhow::{Result, bail};
use planish_sounds::Samples;

use super::LENGTH;

/// How long windows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::speech) struct Plan {
    /// Samples of a window.
    length: usize,
    /// Samples at each edge inside of a recording whose frames are left out.
    stride: usize,
    /// Samples from one frame to the next.
    frame: usize,
}

/// A window of a recording.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::speech) struct Window {
    pub(in crate::speech) samples: Vec<f32>,
    /// The first frame that is kept.
    pub(in crate::speech) from: usize,
    /// The frame after the last one that is kept; all are where it is absent.
    pub(in crate::speech) to: Option<usize>,
    /// The samples of the recording before its beginning.
    pub(in crate::speech) start: usize,
    /// The samples of the recording up to its end.
    pub(in crate::speech) end: usize,
}

/// The windows of a recording, one after the other.
pub(in crate::speech) struct Windows {
    plan: Plan,
    samples: Samples,
    /// Samples that were read, from the beginning of the next window on.
    waiting: Vec<f32>,
    /// The place of the first of them.
    start: usize,
    is_over: bool,
}

impl Plan {
    /// Windows of so many seconds, of which a sixth is left out at each edge. The model makes its first frame of `fewest` samples.
    ///
    /// # Errors
    /// When they are too short for the model.
    pub(in crate::speech) fn new(seconds: f64, rate: u32, frame: usize, fewest: usize) -> Result<Self> {
        let samples = |seconds: f64| {
            let frames = seconds * f64::from(rate) / frame as f64;
            (frames.round_ties_even() as usize).saturating_mul(frame)
        };
        let plan = Self { length: samples(seconds), stride: samples(seconds / 6.0), frame };
        // The last window has more samples than both strides.
        if plan.stride == 0 || 2 * plan.stride + 1 < fewest || plan.length <= 2 * plan.stride {
            bail!(
                "windows of {seconds} s (--set {LENGTH}) are too short: a sixth of one needs a frame of {frame} samples at least, and \
                 a third of one the {fewest} samples of the first frame"
            );
        }
        if plan.length > MOST {
            bail!("windows of {seconds} s (--set {LENGTH}) are too long: {MOST} samples are the most");
        }
        Ok(plan)
    }

    /// The frames of a window of so many samples that are kept, between strides of so many.
    fn kept(self, samples: usize, [left, right]: [usize; 2]) -> Range<usize> {
        let count = (samples as f64 / self.frame as f64).round_ties_even();
        let frames = |stride: usize| (stride as f64 / samples.max(1) as f64 * count).round_ties_even() as usize;
        frames(left)..(count as usize).saturating_sub(frames(right))
    }
}

/// The most samples of a window.
const MOST: usize = 1 << 26;

impl Windows {
    pub(in crate::speech) fn new(plan: Plan, samples: Samples) -> Self {
        Self { plan, samples, waiting: Vec::new(), start: 0, is_over: false }
    }

    /// Whether there is no further window.
    pub(in crate::speech) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The next windows, so many at most, which have as many samples each. There is none after the last one.
    ///
    /// # Errors
    /// When the recording is damaged or cannot be read on.
    pub(in crate::speech) fn next(&mut self, most: usize) -> Result<Vec<Window>> {
        let Plan { length, stride, .. } = self.plan;
        let mut windows = Vec::new();
        while windows.len() < most.max(1) && !self.is_over {
            // One more tells whether there is a window after it.
            let missing = (length + 1).saturating_sub(self.waiting.len());
            if missing > 0 {
                self.waiting.extend(self.samples.take_up_to(missing)?);
            }
            if self.waiting.len() < length && !windows.is_empty() {
                break;
            }
            let is_last = self.waiting.len() <= length;
            let samples: Vec<f32> = self.waiting.iter().copied().take(length).collect();
            let strides = [if self.start == 0 { 0 } else { stride }, if is_last { 0 } else { stride }];
            let kept = self.plan.kept(samples.len(), strides);
            let (to, end) = (Some(kept.end).filter(|_| !is_last), self.start + samples.len());
            windows.push(Window { samples, from: kept.start, to, start: self.start, end });
            let step = length - 2 * stride;
            self.waiting.drain(..step.min(self.waiting.len()));
            self.start += step;
            self.is_over = is_last;
        }
        Ok(windows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_strides_are_left_out() {
        let plan = Plan::new(30.0, 16_000, 320, 400).unwrap();
        assert_eq!(plan, Plan { length: 480_000, stride: 80_000, frame: 320 });
        assert_eq!(plan.kept(480_000, [0, 80_000]), 0..1250);
        assert_eq!(plan.kept(480_000, [80_000, 80_000]), 250..1250);
        assert_eq!(plan.kept(200_100, [80_000, 0]), 250..625);
        assert_eq!(plan.kept(0, [0, 0]), 0..0);
    }

    #[test]
    fn windows_that_give_no_frames_are_refused() {
        for (seconds, says) in [(0.05, "too short"), (-1.0, "too short"), (1e9, "too long")] {
            let refused = Plan::new(seconds, 16_000, 320, 400).err().unwrap().to_string();
            assert!(refused.contains(says) && refused.contains(LENGTH), "{refused}");
        }
    }
}
