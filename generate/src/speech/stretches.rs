//! What is decoded apart: recordings, or pieces of them that are cut where it is quiet, so that the windows of one recording run side by
//! side.

use anyhow::Result;

use super::TranscribeObserver;
use super::transcriber::Windows;

/// Opens the recording of a number, from 0 on.
pub(super) type Opener<'a> = &'a mut dyn FnMut(usize) -> Result<Box<dyn Windows>>;

/// A recording or a piece of one.
pub(super) struct Stretch {
    /// The number of the recording.
    pub(super) recording: usize,
    /// Its place among those of the recording.
    pub(super) place: usize,
    /// The frame of the recording that it begins at.
    pub(super) from: usize,
    /// Whether the recording ends with it.
    pub(super) is_last: bool,
    /// How long the recording is.
    pub(super) seconds: f64,
    pub(super) windows: Box<dyn Windows>,
}

/// A recording that is being cut.
struct Cutting {
    recording: usize,
    windows: Box<dyn Windows>,
    place: usize,
    from: usize,
}

/// The stretches of some recordings, in their order.
pub(super) struct Stretches<'a> {
    open: Opener<'a>,
    waiting: std::ops::Range<usize>,
    /// The frames of a window, where recordings are cut into pieces of at most one.
    width: Option<usize>,
    cutting: Option<Cutting>,
}

impl<'a> Stretches<'a> {
    /// Those of so many recordings; with the `width` of a window they are cut.
    pub(super) fn new(count: usize, open: Opener<'a>, width: Option<usize>) -> Self {
        Self { open, waiting: 0..count, width, cutting: None }
    }

    /// The next one. `began` is told the length of a recording in seconds when it is opened.
    ///
    /// # Errors
    /// When a recording cannot be read.
    pub(super) fn next(&mut self, observer: &dyn TranscribeObserver) -> Result<Option<Stretch>> {
        if let (Some(cutting), Some(width)) = (&mut self.cutting, self.width) {
            let (stretch, is_over) = cutting.cut(width)?;
            if is_over {
                self.cutting = None;
            }
            return Ok(Some(stretch));
        }
        let Some(recording) = self.waiting.next() else { return Ok(None) };
        let windows = (self.open)(recording)?;
        let seconds = windows.seconds();
        observer.began(recording, seconds)?;
        if self.width.is_some_and(|width| windows.frames() > width) {
            self.cutting = Some(Cutting { recording, windows, place: 0, from: 0 });
            return self.next(observer);
        }
        Ok(Some(Stretch { recording, place: 0, from: 0, is_last: true, seconds, windows }))
    }
}

impl Cutting {
    /// The next piece, and whether it is the last.
    fn cut(&mut self, width: usize) -> Result<(Stretch, bool)> {
        let mut features = self.windows.window(self.from)?;
        let left = self.windows.frames() - self.from;
        let is_last = left <= width;
        let frames = if is_last { left } else { quietest(&features, width) };
        // What comes after the piece becomes silence.
        let least = features.iter().copied().fold(f32::INFINITY, f32::min);
        features.chunks_mut(width).for_each(|row| row[frames..].fill(least));
        let piece = Piece { features, frames, width, silence: least };
        let (recording, place, from, seconds) = (self.recording, self.place, self.from, self.windows.seconds());
        self.place += 1;
        self.from += frames;
        Ok((Stretch { recording, place, from, is_last, seconds, windows: Box::new(piece) }, is_last))
    }
}

/// Frames on either side that the loudness of a frame is taken over.
const AROUND: usize = 15;

/// The frame in the second half of features [bands, width] around which they are least; the last of such.
fn quietest(features: &[f32], width: usize) -> usize {
    let mut loudness = vec![0.0f64; width + 1];
    for row in features.chunks(width) {
        for (sum, feature) in loudness[1..].iter_mut().zip(row) {
            *sum += f64::from(*feature);
        }
    }
    // Sums up to each frame.
    for at in 1..=width {
        loudness[at] += loudness[at - 1];
    }
    let around = |at: usize| {
        let (from, to) = (at.saturating_sub(AROUND), (at + AROUND).min(width));
        (loudness[to] - loudness[from]) / (to - from).max(1) as f64
    };
    let least = |best: (usize, f64), at: usize| if around(at) <= best.1 { (at, around(at)) } else { best };
    let first = width.div_ceil(2).max(1);
    (first..width).fold((first, f64::INFINITY), least).0
}

/// A piece of a recording that fits one window.
struct Piece {
    features: Vec<f32>,
    frames: usize,
    width: usize,
    silence: f32,
}

impl Windows for Piece {
    fn frames(&self) -> usize {
        self.frames
    }

    fn seconds(&self) -> f64 {
        self.frames as f64 / 100.0
    }

    fn window(&mut self, from: usize) -> Result<Vec<f32>> {
        let mut window = vec![self.silence; self.features.len()];
        for (to, row) in window.chunks_mut(self.width).zip(self.features.chunks(self.width)) {
            let taken = row.get(from..).unwrap_or_default();
            to[..taken.len()].copy_from_slice(taken);
        }
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Features of two bands, of which frame n is quiet where `is_quiet` says so.
    fn features(width: usize, is_quiet: impl Fn(usize) -> bool) -> Vec<f32> {
        let row: Vec<f32> = (0..width).map(|n| if is_quiet(n) { -1.0 } else { 1.0 }).collect();
        [row.clone(), row].concat()
    }

    #[test]
    fn a_piece_ends_in_the_middle_of_silence() {
        assert_eq!(quietest(&features(3000, |n| (2000..2030).contains(&n)), 3000), 2015);
        // What is quiet in the first half is left alone.
        assert_eq!(quietest(&features(3000, |n| n < 1000 || (2500..2510).contains(&n)), 3000), 2515);
        assert_eq!(quietest(&features(1, |_| true), 1), 1);
    }

    #[test]
    fn a_piece_is_filled_up_with_silence() {
        let mut piece = Piece { features: vec![1.0, 2.0, 0.0, 3.0, 4.0, 0.0], frames: 2, width: 3, silence: 0.0 };
        assert_eq!(piece.window(1).unwrap(), [2.0, 0.0, 0.0, 4.0, 0.0, 0.0]);
        assert_eq!((piece.frames(), piece.seconds()), (2, 0.02));
    }
}
