//! Segments of pictures by the masks of found objects, as `post_process_panoptic_segmentation` of DETR's image processor in the
//! transformers library makes them.

use anyhow::{Context, Result, bail};
use planish_eval::Tensor;
use rayon::prelude::*;
use serde::Serialize;

use super::outcome::{Outcome, sigmoid, softmax};
use super::read::Batch;
use super::segments::{Between, ClassMap};
use crate::evaluate::metrics::top;
use crate::positions::floats;

/// The probability from which on a pixel is of a mask.
const OF_MASK: f32 = 0.5;

/// The part of its mask that an object has to keep where others are in front of it.
const KEPT: f64 = 0.8;

/// The pixels of a picture that are of one object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Instance {
    /// The number of its pixels in the map, from 1.
    pub(super) id: usize,
    pub(super) label: String,
    /// The probability of the label.
    pub(super) score: f32,
    /// How many pixels it has.
    pub(super) pixels: usize,
}

/// An object whose label is likely enough, with the probabilities of its mask, [height, width] of fewer places.
struct Found {
    class: usize,
    score: f32,
    mask: Vec<f32>,
}

/// The instances of the pictures of a batch, of logits [rows, objects, labels + 1], the last of which is no object, and masks
/// [rows, objects, height, width], with scores above a threshold.
pub(super) fn instances(
    [logits, masks]: [&Tensor; 2],
    (labels, threshold): (&[String], f32),
    batch: &Batch<'_>,
) -> Result<Vec<Outcome>> {
    let (&[_, count, classes], &[_, others, height, width]) = (logits.shape(), masks.shape()) else {
        bail!(
            "logits and masks are {:?} and {:?}, not [rows, objects, classes] and [rows, objects, height, width]",
            logits.shape(),
            masks.shape()
        )
    };
    if count != others || count >= usize::from(u16::MAX) || classes < 2 {
        bail!("there are logits of {count} objects and {classes} classes, and masks of {others} objects");
    }
    let (logits, masks) = (floats(logits), floats(masks));
    let places = height * width;
    let rows = logits.chunks_exact((count * classes).max(1)).zip(masks.chunks_exact((count * places).max(1)));
    let of_row = |(sample, (logits, masks)): (_, (&[f32], &[f32]))| {
        let size = batch.size(sample)?;
        if !logits.iter().chain(masks).all(|number| number.is_finite()) {
            return Ok(Outcome::NotFinite);
        }
        let likely = |(logits, mask): (&[f32], &[f32])| {
            let (class, scores) = (top(logits), softmax(logits));
            let score = scores[class] as f32;
            let mask = || mask.iter().map(|logit| sigmoid(*logit) as f32).collect();
            (class + 1 < classes && score > threshold).then(|| Found { class, score, mask: mask() })
        };
        let objects = logits.chunks_exact(classes).zip(masks.chunks_exact(places.max(1)));
        let found: Vec<Found> = objects.filter_map(likely).collect();
        let (kept, map) = separated(&found, [height, width], size);
        let instance = |(at, (object, pixels)): (usize, (usize, usize))| {
            let Found { class, score, .. } = &found[object];
            let label = labels.get(*class).cloned();
            let label = label.with_context(|| format!("the class {class} of an object has no label"))?;
            Ok(Instance { id: at + 1, label, score: *score, pixels })
        };
        let segments = kept.into_iter().enumerate().map(instance).collect::<Result<_>>()?;
        Ok(Outcome::Instances { segments, map: Some(map) })
    };
    batch.texts.iter().copied().zip(rows).map(of_row).collect()
}

/// The objects that keep enough of their masks, with the numbers of their pixels, and the number from 1 of that which each pixel is
/// of, or 0. A pixel is of the object whose mask there, times its score, is the largest; of equals the first one counts.
fn separated(found: &[Found], from: [usize; 2], size: [usize; 2]) -> (Vec<(usize, usize)>, ClassMap) {
    let [from_height, from_width] = from;
    let [height, width] = size;
    let columns: Vec<Between> = (0..width).map(|x| Between::of(x, from_width, width)).collect();
    let mut best = vec![0; height * width];
    // Of each object how many pixels are of its mask, and how many of these are not of another one.
    let count = |(y, line): (usize, &mut [u16])| {
        let row = Between::of(y, from_height, height);
        let mut counts = vec![[0; 2]; found.len()];
        let mut largest = vec![f32::NEG_INFINITY; line.len()];
        for (at, Found { score, mask, .. }) in found.iter().enumerate() {
            let [above, below] = row.places().map(|at| &mask[at * from_width..][..from_width]);
            for ((column, largest), best) in columns.iter().zip(&mut largest).zip(&mut *line) {
                let weighted = score * row.mix(column.between(above), column.between(below));
                counts[at][0] += usize::from(weighted >= OF_MASK);
                if weighted > *largest {
                    // There are fewer objects than numbers here.
                    (*largest, *best) = (weighted, at as u16);
                }
            }
        }
        line.iter().filter(|_| !found.is_empty()).for_each(|best| counts[usize::from(*best)][1] += 1);
        counts
    };
    let sum = |mut all: Vec<[usize; 2]>, line: Vec<[usize; 2]>| {
        all.iter_mut().zip(line).for_each(|(all, line)| *all = [all[0] + line[0], all[1] + line[1]]);
        all
    };
    let counts = best.par_chunks_mut(width.max(1)).enumerate().map(count).reduce(|| vec![[0; 2]; found.len()], sum);
    let is_kept = |[of_mask, own]: [usize; 2]| of_mask > 0 && own as f64 / of_mask as f64 > KEPT;
    let kept: Vec<_> = counts.iter().enumerate().filter(|(_, counts)| is_kept(**counts)).collect();
    let mut numbers = vec![0; found.len()];
    for (number, (object, _)) in kept.iter().enumerate() {
        numbers[*object] = number as u16 + 1;
    }
    let classes = best.iter().map(|object| numbers.get(usize::from(*object)).copied().unwrap_or(0)).collect();
    (kept.into_iter().map(|(object, [_, own])| (object, *own)).collect(), ClassMap { size, classes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(score: f32, mask: &[f32]) -> Found {
        Found { class: 0, score, mask: mask.to_vec() }
    }

    #[test]
    fn a_pixel_is_of_the_object_that_is_likeliest_there() {
        // The second one is hidden by the first but for a pixel, the third one has no pixel of its own mask.
        let objects =
            [found(0.9, &[1.0, 1.0, 0.0, 0.0]), found(0.8, &[0.0, 1.0, 1.0, 0.0]), found(0.6, &[0.0, 0.0, 0.0, 0.6])];
        let (kept, map) = separated(&objects, [1, 4], [1, 4]);
        // 2 of 2 pixels; 1 of 2; 0.36 is below a half.
        assert_eq!((kept, map.classes), (vec![(0, 2)], vec![1, 1, 0, 0]));
        let apart = [found(0.9, &[1.0, 0.0]), found(0.9, &[0.0, 1.0])];
        assert_eq!(separated(&apart, [1, 2], [1, 4]).1.classes, [1, 1, 2, 2]);
        let (kept, map) = separated(&[], [1, 2], [2, 1]);
        assert_eq!((kept, map.classes), (vec![], vec![0, 0]));
    }
}
