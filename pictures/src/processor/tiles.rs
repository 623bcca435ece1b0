//! Pictures in tiles, as the image processors of Idefics3 and SmolVLM in the transformers library cut them: squares of one side, row by
//! row, and the whole picture as one more.

use super::{Prepared, Processor};
use crate::{Filter, Picture};

/// How pictures are cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tiling {
    /// What the longest edge is resized to first, and the filter; absent where the picture stays.
    pub(super) longest: Option<usize>,
    /// The side of a tile.
    pub(super) side: usize,
    /// Whether there are tiles beside the whole picture.
    pub(super) splits: bool,
    pub(super) filter: Filter,
}

/// The largest edge of a picture that is cut.
const LARGEST: usize = 4096;

/// Rows and columns of the tiles of a picture beside the whole of it, which has none where it is one tile.
pub type Grid = [usize; 2];

/// The images that a picture becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiles {
    /// The tiles row by row, and the whole picture.
    pub images: Vec<Prepared>,
    /// Rows and columns of tiles.
    pub grid: Grid,
}

/// A whole number that a division is rounded down to, as Python's `int`.
fn whole(number: f64) -> usize {
    number as usize
}

impl Tiling {
    /// Height and width after each of two steps: of the longest edge, and of whole tiles.
    fn sizes(&self, [height, width]: [usize; 2]) -> [[usize; 2]; 2] {
        let mut first = [height, width];
        if let Some(longest) = self.longest {
            let form = width as f64 / height as f64;
            let even = |side: usize| side + side % 2;
            first = match width >= height {
                true => [even(whole(longest as f64 / form)), longest],
                false => [longest, even(whole(longest as f64 * form))],
            };
            first = first.map(|side| side.max(1));
            let form = first[1] as f64 / first[0] as f64;
            if first[1] >= first[0] && first[1] > LARGEST {
                first = [whole(LARGEST as f64 / form), LARGEST];
            } else if first[0] > first[1] && first[0] > LARGEST {
                first = [LARGEST, whole(LARGEST as f64 * form)];
            }
            first = first.map(|side| side.max(1));
        }
        let [height, width] = first;
        let form = width as f64 / height as f64;
        let up = |side: usize| side.div_ceil(self.side) * self.side;
        let second = match width >= height {
            true => [up(whole(up(width) as f64 / form)), up(width)],
            false => [up(height), up(whole(up(height) as f64 * form))],
        };
        [first, second]
    }

    /// Rows and columns of tiles of a picture of a height and width.
    fn grid(&self, form: [usize; 2]) -> Grid {
        if !self.splits {
            return [0; 2];
        }
        let grid = self.sizes(form)[1].map(|side| side / self.side);
        if grid.iter().all(|count| *count <= 1) { [0; 2] } else { grid }
    }
}

impl Processor {
    /// Whether pictures are cut to tiles.
    #[must_use]
    pub fn cuts(&self) -> bool {
        self.tiling.is_some()
    }

    /// Rows and columns of the tiles of a picture, beside the whole of it, or of its patches where pictures have any shape.
    ///
    /// # Errors
    /// When it would have too many pixels.
    pub fn grid(&self, picture: &Picture) -> Result<Grid, String> {
        if let Some(squares) = &self.squares {
            return squares.grid([picture.height(), picture.width()], self.resize.map(|(size, _)| size));
        }
        let Some(tiling) = &self.tiling else { return Ok([0; 2]) };
        let form = [picture.height(), picture.width()];
        check(form, tiling.sizes(form)[1])?;
        Ok(tiling.grid(form))
    }

    /// The images that a picture becomes: itself, where it is not cut.
    ///
    /// # Errors
    /// When one becomes too large or too small.
    pub fn tiles(&self, picture: &Picture) -> Result<Tiles, String> {
        let Some(tiling) = &self.tiling else {
            return Ok(Tiles { images: vec![self.prepare(picture)?], grid: [0; 2] });
        };
        let form = [picture.height(), picture.width()];
        let ([first, second], grid) = (tiling.sizes(form), tiling.grid(form));
        let resize = |of: &Picture, [height, width]: [usize; 2]| {
            check(form, [height, width])?;
            let resized = if [of.height(), of.width()] == [height, width] {
                Some(of.clone())
            } else {
                of.resize(width, height, tiling.filter)
            };
            resized
                .ok_or_else(|| format!("a picture of {} x {} pixels would become {height} x {width}", form[0], form[1]))
        };
        let mut now = if tiling.longest.is_some() { resize(picture, first)? } else { picture.clone() };
        let side = tiling.side;
        let mut parts = Vec::new();
        if tiling.splits {
            now = resize(&now, second)?;
            for at in 0..grid[0] * grid[1] {
                let place = |number: usize| i64::try_from(number * side).unwrap_or(i64::MAX);
                let part = now.cut(place(at % grid[1]), place(at / grid[1]), side, side);
                parts.push(part.ok_or("a tile has too many pixels")?);
            }
        }
        parts.push(resize(&now, [side, side])?);
        let numbers = |part: &Picture| Prepared { original: form, ..self.numbers(part) };
        Ok(Tiles { images: parts.iter().map(numbers).collect(), grid })
    }
}

/// Refuses more pixels than pictures have.
fn check(form: [usize; 2], [height, width]: [usize; 2]) -> Result<(), String> {
    match height.checked_mul(width).filter(|pixels| *pixels as u64 <= crate::MAX_PIXELS) {
        Some(_) => Ok(()),
        None => Err(format!("a picture of {} x {} pixels would become {height} x {width}", form[0], form[1])),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    fn processor(settings: Value) -> Processor {
        let Value::Object(own) = settings else { unreachable!("settings are an object") };
        let kind = Map::from_iter([("image_processor_type".to_owned(), "Idefics3ImageProcessor".into())]);
        Processor::of(&kind.into_iter().chain(own).collect()).unwrap()
    }

    fn picture(height: usize, width: usize) -> Picture {
        Picture::new(width, height, (0..height * width * 3).map(|at| (at % 251) as u8).collect()).unwrap()
    }

    #[test]
    fn pictures_are_cut_row_by_row() {
        let usual = processor(json!({"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 16}}));
        // As `Idefics3ImageProcessorPil` of transformers 5.24 has it.
        for (form, grid) in [([30, 40], [3, 4]), ([40, 30], [4, 3]), ([1, 1], [4, 4]), ([7, 300], [1, 4])] {
            let tiles = usual.tiles(&picture(form[0], form[1])).unwrap();
            assert_eq!((tiles.grid, tiles.images.len()), (grid, grid[0] * grid[1] + 1), "{form:?}");
            assert_eq!(usual.grid(&picture(form[0], form[1])), Ok(grid));
            assert!(tiles.images.iter().all(|image| image.size() == [16, 16]));
        }
        let small = processor(json!({"size": {"longest_edge": 16}, "max_image_size": {"longest_edge": 16}}));
        assert_eq!(small.tiles(&picture(9, 12)).unwrap().grid, [0, 0]);
        let whole = processor(json!({
            "size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 16}, "do_image_splitting": false
        }));
        let tiles = whole.tiles(&picture(9, 12)).unwrap();
        assert_eq!((tiles.grid, tiles.images.len()), ([0, 0], 1));
    }

    #[test]
    fn tiles_have_a_side() {
        let settings = json!({"image_processor_type": "SmolVLMImageProcessor", "max_image_size": {"height": 3}});
        assert!(Processor::of(settings.as_object().unwrap()).unwrap_err().contains("max_image_size"));
        let plain = processor(json!({})).prepare(&picture(4, 4));
        assert!(plain.unwrap_err().contains("tiles"));
    }
}
