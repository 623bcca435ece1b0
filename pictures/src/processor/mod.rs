//! From a picture to the inputs of a model, as the image processors of the transformers library compute them with Pillow.

mod fitted;
mod in_graph;
mod settings;
mod sizes;
mod squares;
mod tiles;
mod types;

pub use fitted::fit;
pub use in_graph::{InGraph, ResizedTo};
use rayon::prelude::*;
pub use settings::FILES;
use sizes::Size;
use squares::Squares;
use tiles::Tiling;
pub use tiles::{Grid, Tiles};

use crate::{Filter, Picture};

/// How pictures become the inputs of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Processor {
    resize: Option<(Size, Filter)>,
    /// Height and width of the center that is kept.
    crop: Option<[usize; 2]>,
    /// What samples are multiplied by.
    rescale: Option<f64>,
    /// Mean and standard deviation of the channels.
    normalize: Option<[[f64; 3]; 2]>,
    /// Whether channels go from blue to red.
    is_bgr: bool,
    padding: Padding,
    /// What pictures are made no larger than after they are resized.
    thumbnail: Option<([usize; 2], Filter)>,
    /// Whether models take a mask of the padding.
    masks: bool,
    /// The side of patches, and how many there are of each picture, where patches are the input.
    patch: Option<[usize; 2]>,
    /// How pictures are cut to tiles, where they are.
    tiling: Option<Tiling>,
    /// The squares of patches that pictures become, where all patches are in one row.
    squares: Option<Squares>,
}

/// What is put around pictures after they are normalized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Padding {
    /// Nothing.
    None,
    /// Zeros at the right and below, to the largest height and width of the batch.
    Largest,
    /// Zeros at the right and below, to a height and width.
    To([usize; 2]),
    /// Black on all sides before pictures are normalized, to a height and width; what is larger is cut.
    Around([usize; 2]),
    /// Zeros on all sides, to multiples of a number.
    Multiple(usize),
}

/// The inputs of pictures, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Pixels {
    /// [pictures, 3, height, width], [pictures, patches, numbers of a patch], or [patches of all pictures, numbers of a patch].
    pub values: Vec<f32>,
    /// The shape of `values`.
    pub shape: Vec<usize>,
    /// 1 where there is a picture, and 0 where there is padding: [pictures, height, width], or [pictures, patches].
    pub mask: Vec<i64>,
    /// Height and width of each picture in `values`, without padding; in patches where these are the input.
    pub sizes: Vec<[usize; 2]>,
}

/// A picture as numbers, before it is put into a batch with others.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    height: usize,
    width: usize,
    /// [3, height, width].
    values: Vec<f32>,
    /// Height and width of the picture that it was made of.
    original: [usize; 2],
}

impl Processor {
    /// Whether models take a mask of the padding that it puts around pictures.
    #[must_use]
    pub fn masks_padding(&self) -> bool {
        self.masks
    }

    /// The inputs of a batch of pictures. It is computed by all threads.
    ///
    /// # Errors
    /// When a picture becomes too large or too small, or pictures have different sizes and the processor does not pad them.
    pub fn apply(&self, pictures: &[Picture]) -> Result<Pixels, String> {
        self.batch(pictures.par_iter().map(|picture| self.prepare(picture)).collect::<Result<_, String>>()?)
    }

    /// The inputs of a batch of pictures that were prepared by this processor.
    ///
    /// # Errors
    /// When pictures have different sizes and the processor does not pad them.
    pub fn batch(&self, mut all: Vec<Prepared>) -> Result<Pixels, String> {
        if let Some([patch, most]) = self.patch {
            return in_patches(&all, patch, most);
        }
        if let Some(squares) = &self.squares {
            return squares.in_one_row(&all);
        }
        let mut sizes: Vec<[usize; 2]> = all.iter().map(|one| [one.height, one.width]).collect();
        let largest = |side: usize| sizes.iter().map(|size| size[side]).max().unwrap_or(0);
        let to = match self.padding {
            Padding::Largest => Some([largest(0), largest(1)]),
            Padding::To(sides) => Some(sides),
            Padding::Multiple(of) => {
                all = all.iter().map(|one| one.padded_to_multiples(of)).collect::<Result<_, _>>()?;
                sizes = all.iter().map(|one| [one.height, one.width]).collect();
                None
            }
            Padding::None | Padding::Around(_) => None,
        };
        let [height, width] = match (to, sizes.first()) {
            (Some(to), _) => to,
            (None, first) => first.copied().unwrap_or([0; 2]),
        };
        if let Some(other) = sizes
            .iter()
            .find(|size| if to.is_some() { size[0] > height || size[1] > width } else { **size != [height, width] })
        {
            return Err(format!(
                "a picture of {} x {} pixels after it was resized does not fit in a batch of {height} x {width}; give pictures of \
                 one size, or batches of one",
                other[0], other[1]
            ));
        }
        let mut values = vec![0.0; all.len() * 3 * height * width];
        let mut mask = vec![0; all.len() * height * width];
        let planes =
            values.chunks_exact_mut((3 * height * width).max(1)).zip(mask.chunks_exact_mut((height * width).max(1)));
        for (one, (values, mask)) in all.iter().zip(planes) {
            for (row, line) in one.values.chunks_exact(one.width).enumerate() {
                let (channel, row) = (row / one.height, row % one.height);
                values[(channel * height + row) * width..][..one.width].copy_from_slice(line);
                mask[row * width..][..one.width].fill(1);
            }
        }
        Ok(Pixels { values, shape: vec![all.len(), 3, height, width], mask, sizes })
    }

    /// A picture after it was resized, cropped and normalized.
    ///
    /// # Errors
    /// When it becomes too large or too small.
    pub fn prepare(&self, picture: &Picture) -> Result<Prepared, String> {
        if self.tiling.is_some() {
            return Err("pictures are cut to tiles, which models that generate text read: `planish generate --image`"
                .to_owned());
        }
        let mut now = None;
        let mut kept = self.crop;
        if let Some((size, filter)) = self.resize {
            let form = [picture.height(), picture.width()];
            squares::check_form(size, form)?;
            let ([height, width], center) = size.of(form);
            let pixels = height.checked_mul(width).filter(|pixels| *pixels as u64 <= crate::MAX_PIXELS);
            let resized = pixels.and_then(|_| picture.resize(width, height, filter));
            now = Some(resized.ok_or_else(|| {
                format!("a picture of {} x {} pixels would become {height} x {width}", form[0], form[1])
            })?);
            if let (Some(center), None) = (center, kept) {
                kept = Some(center);
            } else if let Some(center) = center {
                now = now.as_ref().and_then(|now| cropped(now, center));
            }
        }
        if let Some((largest, filter)) = self.thumbnail {
            let from = now.as_ref().unwrap_or(picture);
            let form = [from.height(), from.width()];
            let [height, width] = sizes::within(form, largest);
            if [height, width] != form {
                now = Some(from.resize(width, height, filter).ok_or("a picture becomes too large")?);
            }
        }
        if let Padding::Around(sides) = self.padding {
            now = Some(centered(now.as_ref().unwrap_or(picture), sides).ok_or("a picture becomes too large")?);
        }
        let now = now.as_ref().unwrap_or(picture);
        let cropped = kept.map(|size| cropped(now, size).ok_or("the center of a picture has no pixels")).transpose()?;
        let original = [picture.height(), picture.width()];
        Ok(Prepared { original, ..self.numbers(cropped.as_ref().unwrap_or(now)) })
    }

    /// The samples of a picture as numbers, computed in the types in which the transformers library does.
    fn numbers(&self, picture: &Picture) -> Prepared {
        let (height, width) = (picture.height(), picture.width());
        let table: Vec<[f32; 3]> = (0u8..=255)
            .map(|sample| {
                let scaled = self.rescale.map_or(f32::from(sample), |scale| (f64::from(sample) * scale) as f32);
                [0, 1, 2].map(|channel| match self.normalize {
                    Some([mean, deviation]) => (scaled - mean[channel] as f32) / deviation[channel] as f32,
                    None => scaled,
                })
            })
            .collect();
        let mut values = Vec::with_capacity(3 * height * width);
        let order = if self.is_bgr { [2, 1, 0] } else { [0, 1, 2] };
        for (channel, from) in order.into_iter().enumerate() {
            let samples = picture.pixels()[from..].iter().step_by(3);
            values.extend(samples.map(|sample| table[usize::from(*sample)][channel]));
        }
        Prepared { height, width, values, original: [height, width] }
    }
}

/// The center of a picture; black around it where the picture is smaller.
fn cropped(picture: &Picture, [height, width]: [usize; 2]) -> Option<Picture> {
    // What is left over of an odd difference lies at the left and at the top where the center is smaller, and at the right and
    // below where it is larger: as a division that rounds down, of numbers that may be negative, has it.
    let first = |from: usize, to: usize| Some((i64::try_from(from).ok()? - i64::try_from(to).ok()?).div_euclid(2));
    picture.cut(first(picture.width(), width)?, first(picture.height(), height)?, width, height)
}

/// A picture in the middle of a height and width: what is left over of an odd difference lies at the right and below.
fn centered(picture: &Picture, [height, width]: [usize; 2]) -> Option<Picture> {
    let first = |from: usize, to: usize| Some(-(i64::try_from(to).ok()? - i64::try_from(from).ok()?).div_euclid(2));
    picture.cut(first(picture.width(), width)?, first(picture.height(), height)?, width, height)
}

impl Prepared {
    /// Height and width.
    #[must_use]
    pub fn size(&self) -> [usize; 2] {
        [self.height, self.width]
    }

    /// Height and width of the picture that it was made of, upright.
    #[must_use]
    pub fn original(&self) -> [usize; 2] {
        self.original
    }

    /// With zeros on all sides, to multiples of a number.
    fn padded_to_multiples(&self, of: usize) -> Result<Self, String> {
        let [height, width] = [self.height, self.width].map(|side| side.next_multiple_of(of));
        let count = height.checked_mul(width).filter(|pixels| *pixels as u64 <= crate::MAX_PIXELS);
        let count = count.ok_or_else(|| format!("multiples of {of} pixels are too large for a picture"))?;
        let (top, left) = ((height - self.height) / 2, (width - self.width) / 2);
        let mut values = vec![0.0; 3 * count];
        for (row, line) in self.values.chunks_exact(self.width).enumerate() {
            let (channel, row) = (row / self.height, row % self.height);
            values[(channel * height + top + row) * width + left..][..self.width].copy_from_slice(line);
        }
        Ok(Self { height, width, values, original: self.original })
    }
}

/// The patches of pictures, row by row, with the channels of a pixel next to each other.
fn in_patches(all: &[Prepared], patch: usize, most: usize) -> Result<Pixels, String> {
    let size = 3 * patch * patch;
    let (mut values, mut mask) = (vec![0.0; all.len() * most * size], vec![0; all.len() * most]);
    let mut sizes = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let [rows, columns] = [one.height / patch, one.width / patch];
        let count = rows * columns;
        if count > most || count == 0 {
            return Err(format!("a picture has {rows} x {columns} patches, and there may be 1 to {most}"));
        }
        sizes.push([rows, columns]);
        mask[at * most..][..count].fill(1);
        for (number, numbers) in values[at * most * size..][..count * size].chunks_exact_mut(size).enumerate() {
            let (top, left) = (number / columns * patch, number % columns * patch);
            for (place, value) in numbers.iter_mut().enumerate() {
                let (y, x, channel) = (place / 3 / patch, place / 3 % patch, place % 3);
                *value = one.values[(channel * one.height + top + y) * one.width + left + x];
            }
        }
    }
    Ok(Pixels { values, shape: vec![all.len(), most, size], mask, sizes })
}
