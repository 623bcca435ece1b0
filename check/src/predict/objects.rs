//! Objects in pictures: boxes with labels, of the logits and boxes of detectors, as `post_process_object_detection` of the
//! image processors of the transformers library makes them.

use anyhow::{Context, Result, bail};
use planish_eval::Tensor;
use serde::Serialize;

use super::outcome::{Outcome, sigmoid, softmax};
use super::read::Batch;
use crate::evaluate::metrics::top;
use crate::positions::floats;

/// A found object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Object {
    pub(super) label: String,
    /// The number of the label.
    #[serde(skip)]
    pub(super) class: usize,
    /// The probability of the label.
    pub(super) score: f32,
    /// Where it is, in pixels of the picture.
    #[serde(rename = "box")]
    pub(super) sides: Sides,
}

/// The sides of a box in pixels, from the left and from the top of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Sides {
    pub(super) xmin: f32,
    pub(super) ymin: f32,
    pub(super) xmax: f32,
    pub(super) ymax: f32,
}

/// How logits of an object become a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scoring {
    /// A softmax over the labels and, the last one, no object: an object has its best label (DETR, YOLOS).
    OrNothing,
    /// A sigmoid of each label: the best pairs of object and label, as many as there are objects (RT-DETR), or so many at most.
    Each(Option<usize>),
}

impl Scoring {
    /// That of logits of so many classes, of so many labels; `most` is how many pairs are taken.
    ///
    /// # Errors
    /// When it is neither.
    pub(super) fn of(classes: usize, labels: usize, most: Option<usize>) -> Result<Self> {
        match classes {
            count if count == labels + 1 => Ok(Self::OrNothing),
            count if count == labels => Ok(Self::Each(most)),
            count => bail!(
                "the logits of objects have {count} classes, and there are {labels} labels in config.json; there is a class for each, \
                 or one more for no object"
            ),
        }
    }
}

/// The objects of the pictures of a batch, of logits [rows, objects, classes] and boxes [rows, objects, 4], with scores above
/// a threshold.
pub(super) fn objects(
    [logits, boxes]: [&Tensor; 2],
    (labels, scoring, threshold): (&[String], Scoring, f32),
    batch: &Batch<'_>,
) -> Result<Vec<Outcome>> {
    let (&[_, count, classes], &[_, others, 4]) = (logits.shape(), boxes.shape()) else {
        bail!(
            "logits and boxes are {:?} and {:?}, not [rows, objects, classes] and [rows, objects, 4]",
            logits.shape(),
            boxes.shape()
        )
    };
    if count != others {
        bail!("there are logits of {count} objects, and boxes of {others}");
    }
    let (logits, boxes) = (floats(logits), floats(boxes));
    let rows = logits.chunks_exact((count * classes).max(1)).zip(boxes.chunks_exact((4 * count).max(1)));
    let of_row = |(sample, (logits, boxes)): (_, (&[f32], &[f32]))| {
        let size = batch.size(sample)?;
        if !logits.iter().chain(boxes).all(|number| number.is_finite()) {
            return Ok(Outcome::NotFinite);
        }
        let object = |(at, class, score): (usize, usize, f32)| {
            let label =
                labels.get(class).cloned().with_context(|| format!("the class {class} of an object has no label"))?;
            Ok(Object { label, class, score, sides: Sides::of(&boxes[4 * at..][..4], size) })
        };
        let found = scored(logits, classes, scoring).into_iter().filter(|(_, _, score)| *score > threshold);
        Ok(Outcome::Objects { objects: found.map(object).collect::<Result<_>>()? })
    };
    batch.texts.iter().copied().zip(rows).map(of_row).collect()
}

/// Objects with their classes and scores, of logits [objects, classes].
fn scored(logits: &[f32], classes: usize, scoring: Scoring) -> Vec<(usize, usize, f32)> {
    let rows = logits.chunks_exact(classes.max(1));
    let count = rows.len();
    match scoring {
        Scoring::OrNothing => {
            let best = |(at, row): (usize, &[f32])| {
                let scores = softmax(row);
                let class = top(&row[..classes - 1]);
                (at, class, scores[class] as f32)
            };
            rows.enumerate().map(best).collect()
        }
        Scoring::Each(most) => {
            let mut order: Vec<usize> = (0..logits.len()).collect();
            order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
            order.truncate(most.unwrap_or(count));
            order.into_iter().map(|at| (at / classes, at % classes, sigmoid(logits[at]) as f32)).collect()
        }
    }
}

impl Sides {
    /// The sides of a box whose center, width and height are parts of a picture of some height and width.
    fn of(of: &[f32], [height, width]: [usize; 2]) -> Self {
        let (height, width) = (height as f32, width as f32);
        let (x, y, half_width, half_height) = (of[0], of[1], 0.5 * of[2], 0.5 * of[3]);
        Self {
            xmin: (x - half_width) * width,
            ymin: (y - half_height) * height,
            xmax: (x + half_width) * width,
            ymax: (y + half_height) * height,
        }
    }

    /// Left, top, right and bottom.
    pub(super) fn in_order(self) -> [f32; 4] {
        [self.xmin, self.ymin, self.xmax, self.ymax]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_in_pixels() {
        let sides = Sides::of(&[0.5, 0.25, 0.5, 0.1], [100, 200]);
        let expected = [50.0, 20.0, 150.0, 30.0];
        assert!(sides.in_order().iter().zip(expected).all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-4), "{sides:?}");
    }

    #[test]
    fn no_object_takes_a_part_of_the_scores() {
        let found = scored(&[0.0, f32::ln(2.0), f32::ln(5.0)], 3, Scoring::OrNothing);
        assert_eq!((found[0].0, found[0].1), (0, 1));
        assert!((found[0].2 - 0.25).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn an_object_may_have_several_labels() {
        let logits = [0.0, 2.0, 1.0, -1.0];
        let of = |most| {
            scored(&logits, 2, Scoring::Each(most)).into_iter().map(|(at, class, _)| (at, class)).collect::<Vec<_>>()
        };
        assert_eq!(of(None), [(0, 1), (1, 0)]);
        assert_eq!(of(Some(3)), [(0, 1), (1, 0), (0, 0)]);
        assert_eq!(Scoring::of(3, 2, None).unwrap(), Scoring::OrNothing);
        assert_eq!(Scoring::of(2, 2, Some(9)).unwrap(), Scoring::Each(Some(9)));
        assert!(Scoring::of(4, 2, None).is_err());
    }
}
