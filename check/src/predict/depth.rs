//! Depths of pictures: maps of the size of the picture, as `post_process_depth_estimation` of the image processors of the
//! transformers library makes them.

use anyhow::{Result, bail};
use planish_eval::Tensor;
use rayon::prelude::*;

use super::outcome::Outcome;
use super::read::Batch;
use crate::positions::floats;

/// The places of a line that a place between them is made of.
const REACH: usize = 4;

/// The coefficient of cubic interpolation that `torch.nn.functional.interpolate` has.
const CUBIC: f32 = -0.75;

/// The depth of each pixel of a picture.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DepthMap {
    /// Height and width.
    pub(super) size: [usize; 2],
    /// [height, width].
    pub(super) depths: Vec<f32>,
}

impl DepthMap {
    /// The smallest and the largest depth; 0 where there is none.
    pub(super) fn range(&self) -> [f32; 2] {
        let all = self.depths.iter().copied();
        match (all.clone().reduce(f32::min), all.reduce(f32::max)) {
            (Some(smallest), Some(largest)) => [smallest, largest],
            _ => [0.0; 2],
        }
    }

    /// Each depth as a number from 0, the smallest, to `most`, the largest, cut to whole numbers; 0 where all are alike.
    pub(super) fn levels(&self, most: f32) -> impl Iterator<Item = f32> {
        let [smallest, largest] = self.range();
        let span = largest - smallest;
        let level = move |depth: &f32| if span > 0.0 { ((depth - smallest) / span * most).floor() } else { 0.0 };
        self.depths.iter().map(level)
    }
}

/// The depths of the pictures of a batch, of maps [rows, height, width].
pub(super) fn depths(maps: &Tensor, batch: &Batch<'_>) -> Result<Vec<Outcome>> {
    let &[_, height, width] = maps.shape() else {
        bail!("the depths of places are {:?}, not [rows, height, width]", maps.shape())
    };
    if height == 0 || width == 0 {
        bail!("the model gives depths of {height} x {width} places of a picture");
    }
    let maps = floats(maps);
    let of_row = |(sample, map): (_, &[f32])| {
        let map = resized(map, [height, width], batch.size(sample)?);
        let [minimum, maximum] = map.range();
        match map.depths.par_iter().all(|depth| depth.is_finite()) {
            true => Ok(Outcome::Depth { minimum, maximum, map: Some(map) }),
            false => Ok(Outcome::NotFinite),
        }
    };
    batch.texts.iter().copied().zip(maps.chunks_exact(height * width)).map(of_row).collect()
}

/// A map [height, width] at another size, by cubic interpolation. What is outside of it is as its border.
fn resized(map: &[f32], [from_height, from_width]: [usize; 2], size: [usize; 2]) -> DepthMap {
    let [height, width] = size;
    let columns: Vec<Between> = (0..width).map(|x| Between::of(x, from_width, width)).collect();
    let mut depths = vec![0.0; height * width];
    depths.par_chunks_mut(width.max(1)).enumerate().for_each(|(y, line)| {
        let row = Between::of(y, from_height, height);
        let lines = row.places.map(|at| &map[at * from_width..][..from_width]);
        for (column, depth) in columns.iter().zip(line) {
            *depth = row.mix(lines.map(|line| column.mix(column.places.map(|at| line[at]))));
        }
    });
    DepthMap { size, depths }
}

/// The places that are next to a place of a line that has another length, without the corners at the same places.
#[derive(Clone, Copy)]
struct Between {
    places: [usize; REACH],
    /// The part that each has.
    parts: [f32; REACH],
}

impl Between {
    fn of(place: usize, from: usize, to: usize) -> Self {
        let center = (place as f32 + 0.5) * (from as f32 / to as f32) - 0.5;
        let (first, last) = (center.floor(), from.saturating_sub(1));
        let places = [0, 1, 2, 3].map(|at| ((first + at as f32 - 1.0).max(0.0) as usize).min(last));
        let near = |x: f32| ((CUBIC + 2.0) * x - (CUBIC + 3.0)) * x * x + 1.0;
        let far = |x: f32| ((CUBIC * x - 5.0 * CUBIC) * x + 8.0 * CUBIC) * x - 4.0 * CUBIC;
        let after = center - first;
        Self { places, parts: [far(after + 1.0), near(after), near(1.0 - after), far(2.0 - after)] }
    }

    fn mix(&self, values: [f32; REACH]) -> f32 {
        values.iter().zip(self.parts).map(|(value, part)| value * part).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By `torch.nn.functional.interpolate` with the mode `bicubic`.
    #[test]
    fn depths_between_places_are_those_of_torch() {
        let map = resized(&[1.0, 2.0, 4.0, 8.0, 3.0, 0.0], [2, 3], [3, 5]);
        let expected = [
            0.24636, 0.80720, 1.91319, 3.51232, 4.58089, 4.69200, 3.76000, 2.50000, 2.05000, 1.95200, 9.13764, 6.71280,
            3.08681, 0.58768, -0.67689,
        ];
        assert!(map.depths.iter().zip(expected).all(|(own, other)| (own - other).abs() < 1e-5), "{:?}", map.depths);
        assert_eq!(resized(&[1.0, 2.0], [1, 2], [1, 2]).depths, [1.0, 2.0]);
    }

    #[test]
    fn levels_go_from_the_smallest_to_the_largest_depth() {
        let map = |depths: &[f32]| DepthMap { size: [1, depths.len()], depths: depths.to_vec() };
        assert_eq!(map(&[2.0, 4.0, 3.0]).levels(255.0).collect::<Vec<_>>(), [0.0, 255.0, 127.0]);
        assert_eq!(map(&[2.0, 2.0]).levels(255.0).collect::<Vec<_>>(), [0.0, 0.0]);
        assert_eq!((map(&[2.0, 4.0]).range(), map(&[]).range()), ([2.0, 4.0], [0.0, 0.0]));
    }
}
