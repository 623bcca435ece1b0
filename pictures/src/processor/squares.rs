//! Pictures of any shape as patches in one row, as the image processor of Qwen2-VL in the transformers library makes them: squares of
//! patches row by row, and the patches of a square row by row.

use super::sizes::Size;
use super::tiles::Grid;
use super::{Pixels, Prepared, Processor};

/// Squares of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Squares {
    /// The side of a patch in pixels.
    pub(super) patch: usize,
    /// The side of a square in patches.
    pub(super) merge: usize,
    /// How often a patch has the picture: frames of a video.
    pub(super) frames: usize,
}

/// The most that a side of a picture may be longer than the other.
const LONGEST_FORM: f64 = 200.0;

/// Refuses pictures that are too long for sizes in pixels.
pub(super) fn check_form(size: Size, [height, width]: [usize; 2]) -> Result<(), String> {
    let (short, long) = (height.min(width) as f64, height.max(width) as f64);
    match size {
        Size::Pixels { .. } if long / short > LONGEST_FORM => Err(format!(
            "a picture of {height} x {width} pixels is more than {LONGEST_FORM} times as long on one side as on the other; cut it"
        )),
        _ => Ok(()),
    }
}

impl Squares {
    /// The side of a square in pixels.
    pub(super) fn length(self) -> usize {
        self.patch * self.merge
    }

    /// Rows and columns of patches of a picture of a height and width, where it is resized to a size.
    pub(super) fn grid(self, form: [usize; 2], size: Option<Size>) -> Result<Grid, String> {
        let sides = match size {
            None => form,
            Some(size) => {
                check_form(size, form)?;
                size.of(form).0
            }
        };
        self.of_sides(sides)
    }

    fn of_sides(self, [height, width]: [usize; 2]) -> Result<Grid, String> {
        let of = self.length();
        match height.is_multiple_of(of) && width.is_multiple_of(of) && height > 0 && width > 0 {
            true => Ok([height / self.patch, width / self.patch]),
            false => Err(format!(
                "a picture is {height} x {width} pixels, and {of} (`patch_size` * `merge_size`) does not divide both; set `do_resize` to \
                 true"
            )),
        }
    }

    /// The patches of pictures. The numbers of a patch are those of a channel, of a frame, of a row.
    pub(super) fn in_one_row(self, all: &[Prepared]) -> Result<Pixels, String> {
        let Self { patch, merge, frames } = self;
        let size = 3 * frames * patch * patch;
        let sizes = all.iter().map(|one| self.of_sides([one.height, one.width])).collect::<Result<Vec<_>, _>>()?;
        let count: usize = sizes.iter().map(|[rows, columns]| rows * columns).sum();
        let mut values = Vec::with_capacity(count * size);
        for (one, [_, columns]) in all.iter().zip(&sizes) {
            let (area, across) = (merge * merge, columns / merge);
            for number in 0..one.height / patch * columns {
                let (square, within) = (number / area, number % area);
                let row = square / across * merge + within / merge;
                let column = square % across * merge + within % merge;
                for line in 0..3 * frames * patch {
                    let (channel, y) = (line / (frames * patch), row * patch + line % patch);
                    let from = (channel * one.height + y) * one.width + column * patch;
                    values.extend_from_slice(&one.values[from..from + patch]);
                }
            }
        }
        Ok(Pixels { values, shape: vec![count, size], mask: vec![1; count], sizes })
    }
}

impl Processor {
    /// The side in patches of the squares that become one place of an image, where pictures become squares of patches.
    #[must_use]
    pub fn side_of_squares(&self) -> Option<usize> {
        self.squares.map(|squares| squares.merge)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Picture;

    fn processor(more: &serde_json::Value) -> Result<Processor, String> {
        let mut all =
            json!({"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 2, "temporal_patch_size": 2});
        for (key, value) in more.as_object().unwrap() {
            all[key] = value.clone();
        }
        Processor::of(all.as_object().unwrap())
    }

    #[test]
    fn patches_are_in_squares() {
        let plain = json!({"do_resize": false, "do_rescale": false, "do_normalize": false});
        let own = processor(&plain).unwrap();
        let picture = Picture::new(8, 4, (0..96).collect()).unwrap();
        let pixels = own.apply(std::slice::from_ref(&picture)).unwrap();
        assert_eq!((pixels.shape, own.grid(&picture)), (vec![8, 24], Ok([2, 4])));
        // Of the first channel the patches begin with these samples: row by row in the first square, then in the second.
        let first: Vec<f32> = pixels.values.chunks(24).map(|patch| patch[0]).collect();
        assert_eq!(first, [0.0, 6.0, 48.0, 54.0, 12.0, 18.0, 60.0, 66.0]);
        // Two rows of a patch in each of two frames.
        assert_eq!(pixels.values[..8], [0.0, 3.0, 24.0, 27.0, 0.0, 3.0, 24.0, 27.0]);
        let error = own.apply(&[Picture::new(3, 4, vec![0; 36]).unwrap()]).unwrap_err();
        assert!(error.contains("4 x 3") && error.contains("do_resize"), "{error}");
    }

    #[test]
    fn sizes_are_numbers_of_pixels() {
        let grid = |more: &serde_json::Value, width: usize, height: usize| {
            processor(more)?.grid(&Picture::new(width, height, vec![0; width * height * 3]).unwrap())
        };
        assert_eq!(grid(&json!({"size": {"shortest_edge": 64, "longest_edge": 144}}), 30, 20), Ok([4, 6]));
        let older = json!({"min_pixels": 64, "max_pixels": 144, "size": {"min_pixels": 1, "max_pixels": 9}});
        assert_eq!(grid(&older, 30, 20), Ok([4, 6]));
        assert!(grid(&json!({"size": {"shortest_edge": 64}}), 8, 8).unwrap_err().contains("longest_edge"));
        assert!(grid(&json!({}), 1, 201).unwrap_err().contains("200 times"));
    }
}
