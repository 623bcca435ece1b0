//! Segments of pictures: the class of each pixel, of logits of fewer places, as `post_process_semantic_segmentation` of the image
//! processors of the transformers library makes them.

use anyhow::{Context, Result, bail};
use planish_eval::Tensor;
use rayon::prelude::*;
use serde::Serialize;

use super::outcome::Outcome;
use super::read::Batch;
use crate::positions::floats;

/// The pixels of a picture that have one label.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Segment {
    pub(super) label: String,
    /// The number of the label, which the pixels have in the map of classes.
    pub(super) class: usize,
    /// How many they are.
    pub(super) pixels: usize,
}

/// The class of each pixel.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClassMap {
    /// Height and width.
    pub(super) size: [usize; 2],
    /// [height, width].
    pub(super) classes: Vec<u16>,
}

/// The segments of the pictures of a batch, of logits [rows, classes, height, width].
pub(super) fn segments(logits: &Tensor, labels: &[String], batch: &Batch<'_>) -> Result<Vec<Outcome>> {
    let &[_, count, height, width] = logits.shape() else {
        bail!("the logits of places are {:?}, not [rows, classes, height, width]", logits.shape())
    };
    if count > usize::from(u16::MAX) {
        bail!("there are {count} classes, and a map of classes has {} at most", u16::MAX);
    }
    let logits = floats(logits);
    let of_row = |(sample, logits): (_, &[f32])| {
        let size = batch.size(sample)?;
        if !logits.iter().all(|number| number.is_finite()) {
            return Ok(Outcome::NotFinite);
        }
        let map = best(logits, [count, height, width], size);
        let mut pixels = vec![0; count];
        map.classes.iter().for_each(|class| pixels[usize::from(*class)] += 1);
        let segment = |(class, pixels): (usize, usize)| {
            let label = labels.get(class).cloned().with_context(|| format!("the class {class} has no label"))?;
            Ok(Segment { label, class, pixels })
        };
        let found = pixels.into_iter().enumerate().filter(|(_, pixels)| *pixels > 0);
        Ok(Outcome::Segments { segments: found.map(segment).collect::<Result<_>>()?, map: Some(map) })
    };
    batch.texts.iter().copied().zip(logits.chunks_exact((count * height * width).max(1))).map(of_row).collect()
}

/// The class with the largest logit at each pixel of a picture, between the places of logits [classes, height, width]. Of
/// equals the first one counts.
fn best(logits: &[f32], [count, from_height, from_width]: [usize; 3], size: [usize; 2]) -> ClassMap {
    let [height, width] = size;
    let columns: Vec<Between> = (0..width).map(|x| Between::of(x, from_width, width)).collect();
    let mut classes = vec![0; height * width];
    classes.par_chunks_mut(width.max(1)).enumerate().for_each(|(y, line)| {
        let row = Between::of(y, from_height, height);
        let mut largest = vec![f32::NEG_INFINITY; line.len()];
        for class in 0..count {
            let plane = &logits[class * from_height * from_width..][..from_height * from_width];
            let [above, below] = row.places().map(|at| &plane[at * from_width..][..from_width]);
            for ((column, largest), best) in columns.iter().zip(&mut largest).zip(&mut *line) {
                let logit = row.mix(column.between(above), column.between(below));
                if logit > *largest {
                    // There are no more classes than numbers here.
                    (*largest, *best) = (logit, class as u16);
                }
            }
        }
    });
    ClassMap { size, classes }
}

/// The two places that are next to a place of a line that has another length, without the corners at the same places.
#[derive(Clone, Copy)]
pub(super) struct Between {
    first: usize,
    second: usize,
    /// The part that the second one has.
    part: f32,
}

impl Between {
    /// Those next to a place of a line of `to`, in one of `from`.
    pub(super) fn of(place: usize, from: usize, to: usize) -> Self {
        let scale = from as f32 / to as f32;
        let center = ((place as f32 + 0.5) * scale - 0.5).max(0.0);
        let last = from.saturating_sub(1);
        let first = (center as usize).min(last);
        Self { first, second: (first + 1).min(last), part: center - first as f32 }
    }

    /// Both.
    pub(super) fn places(self) -> [usize; 2] {
        [self.first, self.second]
    }

    /// What is between the numbers of the two.
    pub(super) fn mix(self, first: f32, second: f32) -> f32 {
        (1.0 - self.part) * first + self.part * second
    }

    /// What is between the two of a line.
    pub(super) fn between(self, line: &[f32]) -> f32 {
        self.mix(line[self.first], line[self.second])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_between_places_mix_their_logits() {
        // Two classes over two places of a row: the first one at the left, the second one at the right.
        let logits = [3.0, 0.0, 0.0, 1.0];
        let map = best(&logits, [2, 1, 2], [2, 4]);
        // The logits at the pixels are 3, 2.25, 0.75, 0 and 0, 0.25, 0.75, 1: of equals the first class counts.
        assert_eq!(map.classes, [0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(best(&logits, [2, 1, 2], [1, 2]).classes, [0, 1]);
        assert_eq!(best(&logits, [2, 2, 1], [1, 1]).classes, [0]);
    }
}
