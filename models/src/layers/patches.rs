//! Images as tokens: patches that do not overlap, with tokens of other kinds before them (Dosovitskiy et al. 2020,
//! arXiv:2010.11929).

use planish_ir::ops::{Concat, Expand, Linear, Reduce, ReduceKind, Slice};
use planish_ir::{Dim, Shape, ValueId, Weight};
use serde_json::Value;

use crate::ModelError;
use crate::checkpoint::config::{Config, Size};
use crate::layers::builder::Builder;
use crate::layers::pictures;
use crate::layers::resample::{Filter, resample};

/// The keys that [`Images`] has.
pub(crate) const KEYS: &[&str] = &["image_size", "num_channels", "patch_size"];

/// The images that a model takes, and their patches.
#[derive(Clone, Copy)]
pub(crate) struct Images {
    pub(crate) channels: Size,
    /// Height and width in pixels.
    pub(crate) image: [usize; 2],
    /// Those of the images that it was trained on.
    pub(crate) trained: [usize; 2],
    /// Height and width of a patch in pixels.
    pub(crate) patch: [usize; 2],
}

impl Images {
    /// Reads the sizes, of which a configuration without one has those of transformers.
    pub(crate) fn read(config: &Config<'_>, image: usize, patch: usize) -> Result<Self, ModelError> {
        Self::of_any_size(config, image, patch)?.made_of_patches(config)
    }

    /// The same of a model that leaves out the last rows and columns of pixels that fill no patch.
    pub(crate) fn read_any(config: &Config<'_>, image: usize, patch: usize) -> Result<Self, ModelError> {
        let s = Self::of_any_size(config, image, patch)?;
        if (0..2).all(|i| s.patch[i] <= s.image[i]) { Ok(s) } else { s.made_of_patches(config) }
    }

    /// The same of a model that takes images of other sizes than `image_size`: of that which the caller asks for. Where it
    /// `follows` pictures, as transformers has it take images of any size, it is else that of the pictures that come.
    pub(crate) fn resizable(
        config: &Config<'_>,
        image: usize,
        patch: usize,
        follows: bool,
    ) -> Result<Self, ModelError> {
        let s = Self::of_any_size(config, image, patch)?;
        let (asked, pictures) = config.sizes_of_images();
        if let Some(image) = asked {
            return Self { image, ..s }.made_of_patches(config);
        }
        let Some(pictures) = pictures.filter(|pictures| *pictures != s.trained) else {
            return s.made_of_patches(config);
        };
        let followed = Self { image: pictures, ..s };
        if follows && followed.has_whole_patches() {
            s.warn_followed(config, pictures);
            return Ok(followed);
        }
        let ([height, width], sides) = (s.trained, s.other_pictures(pictures));
        config.warn(format!(
            "{sides}: the graph takes {height} x {width}; to have it take others, add --recipe image-size=HEIGHTxWIDTH"
        ));
        s.made_of_patches(config)
    }

    /// The same of a model for which patches need not divide images: of a size as asked for, or as pictures come.
    pub(crate) fn following(config: &Config<'_>, image: usize, patch: usize) -> Result<Self, ModelError> {
        let s = Self::of_any_size(config, image, patch)?;
        let (asked, pictures) = config.sizes_of_images();
        let pictures = pictures.filter(|pictures| asked.is_none() && *pictures != s.image);
        pictures.into_iter().for_each(|pictures| s.warn_followed(config, pictures));
        Ok(Self { image: asked.or(pictures).unwrap_or(s.image), ..s })
    }

    /// Warns that the graph takes images of the size that pictures become.
    fn warn_followed(&self, config: &Config<'_>, pictures: [usize; 2]) {
        let ([height, width], sides) = (pictures, self.other_pictures(pictures));
        config.warn(format!(
            "{sides}: the graph takes {height} x {width}, as transformers does; to choose, add --recipe \
             image-size=HEIGHTxWIDTH"
        ));
    }

    fn other_pictures(&self, [height, width]: [usize; 2]) -> String {
        let [rows, columns] = self.trained;
        format!("`image_size` is {rows} x {columns}, but preprocessor_config.json makes pictures {height} x {width}")
    }

    /// Those of a model that pads images whose sizes its patches do not divide.
    pub(crate) fn of_any_size(config: &Config<'_>, image: usize, patch: usize) -> Result<Self, ModelError> {
        let channels = config.size("num_channels", 3)?;
        let image = height_and_width(config, "image_size", image)?;
        Ok(Self { channels, image, trained: image, patch: height_and_width(config, "patch_size", patch)? })
    }

    fn has_whole_patches(&self) -> bool {
        (0..2).all(|i| self.patch[i] <= self.image[i] && self.image[i].is_multiple_of(self.patch[i]))
    }

    fn made_of_patches(self, config: &Config<'_>) -> Result<Self, ModelError> {
        if self.has_whole_patches() {
            return Ok(self);
        }
        let [image, patch] = [self.image, self.patch].map(|[height, width]| format!("{height} x {width}"));
        let [height, width]: [usize; 2] =
            std::array::from_fn(|i| (self.image[i] / self.patch[i]).max(1) * self.patch[i]);
        Err(config.error(format!(
            "images of {image} (`image_size`) are not made of patches of {patch}; take {height} x {width}"
        )))
    }

    /// Rows and columns of patches in the images that it was trained on.
    pub(crate) fn trained_grid(&self) -> [usize; 2] {
        [self.trained[0] / self.patch[0], self.trained[1] / self.patch[1]]
    }

    /// Rows and columns of patches.
    pub(crate) fn grid(&self) -> [usize; 2] {
        [self.image[0] / self.patch[0], self.image[1] / self.patch[1]]
    }

    /// The number of patches.
    pub(crate) fn patches(&self) -> usize {
        self.grid().iter().product()
    }

    /// Adds the input of pixels: f32[batch_size, channels, height, width].
    pub(crate) fn pixels(&self, b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
        let [height, width] = self.image;
        pictures::input(b, [dim(self.channels.value), dim(height), dim(width)])
    }

    /// Adds the input of pixels and projects its patches: [batch_size, patches, features], row by row. `module` names what is
    /// before the convolution `projection`.
    pub(crate) fn embed(
        &self,
        b: &mut Builder<'_>,
        module: &str,
        projection: &str,
        features: Size,
        bias: bool,
    ) -> Result<ValueId, ModelError> {
        let pixels = self.pixels(b)?;
        self.project(b, pixels, [module, projection], features, bias)
    }

    /// The same of pixels that are there. The patches do not overlap, so the convolution is a linear layer of their pixels.
    pub(crate) fn project(
        &self,
        b: &mut Builder<'_>,
        pixels: ValueId,
        [module, projection]: [&str; 2],
        features: Size,
        bias: bool,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let batch = b.graph.ty(pixels).shape[0].clone();
        let ([height, width], [tall, wide], [rows, columns]) = (self.image, self.patch, self.grid());
        let channels = dim(self.channels.value);
        let mut pixels = pixels;
        for (axis, size, used) in [(2, height, rows * tall), (3, width, columns * wide)] {
            if used < size {
                let slice = Slice { x: pixels, axis, start: dim(0), end: dim(used) };
                pixels = b.emit(slice, &at(if axis == 2 { "rows" } else { "columns" }))?;
            }
        }
        let parts = [channels, dim(rows), dim(tall), dim(columns), dim(wide)];
        let parts = b.reshape(pixels, std::iter::once(batch.clone()).chain(parts), &at("parts"))?;
        let parts = b.transpose(parts, &[0, 2, 4, 1, 3, 5], &at("by_patch"))?;
        let pixels = self.channels.value * tall * wide;
        let patches = b.reshape(parts, [batch, dim(rows * columns), dim(pixels)], &at("patches"))?;
        let (tall, wide) = (Size::derived(tall, "patch_size"), Size::derived(wide, "patch_size"));
        let weight = b.weight(&[&format!("{projection}.weight")], &[features, self.channels, tall, wide])?;
        let weight = b.reshape(weight, [dim(features.value), dim(pixels)], &format!("{projection}.matrix"))?;
        let bias = bias.then(|| b.weight(&[&format!("{projection}.bias")], &[features])).transpose()?;
        b.emit(Linear::new(patches, weight, bias), projection)
    }
}

/// Tokens of a weight [1, count, features] for each image: [batch_size, count, features].
pub(crate) fn tokens(b: &mut Builder<'_>, name: &str, count: usize, features: Size) -> Result<ValueId, ModelError> {
    let one = Size::derived(1, "one image");
    let stored = b.weight(&[name], &[one, Size::derived(count, "tokens beside patches"), features])?;
    for_each(b, stored, count, features, name)
}

/// The same of a value that is there.
pub(crate) fn for_each(
    b: &mut Builder<'_>,
    x: ValueId,
    count: usize,
    features: Size,
    name: &str,
) -> Result<ValueId, ModelError> {
    let shape = Shape::new([Dim::symbol(b.images), dim(count), dim(features.value)]);
    b.emit(Expand { x, shape }, &format!("{name}.expand"))
}

/// Tokens one after the other: [batch_size, tokens, features].
pub(crate) fn join(b: &mut Builder<'_>, parts: Vec<ValueId>, module: &str) -> Result<ValueId, ModelError> {
    b.emit(Concat { parts, axis: 1 }, module)
}

/// Adds a table of positions, [1, count, features], to as many tokens.
pub(crate) fn add_positions(
    b: &mut Builder<'_>,
    x: ValueId,
    table: &str,
    count: usize,
    features: Size,
) -> Result<ValueId, ModelError> {
    let one = Size::derived(1, "one image");
    let positions =
        b.weight(&[table], &[one, Size::derived(count, "tokens by `image_size` and `patch_size`"), features])?;
    b.add(x, positions, "embeddings.add")
}

/// Why a table is not resampled.
pub(crate) const TOO_LONG: &str = "a side of the images has too many patches for positions to be resampled";

/// Where a table of positions comes from.
#[derive(Clone, Copy)]
pub(crate) struct Positions {
    /// The tokens before those of patches, which have positions too.
    pub(crate) before: usize,
    pub(crate) filter: Filter,
    /// Whether the table is one of a square even of images that have the size of `image_size`.
    pub(crate) is_square: bool,
}

/// Adds a table of positions to the tokens of images, some before those of patches. Where images have another size than
/// `image_size`, those of patches are resampled.
pub(crate) fn add_resampled_positions(
    b: &mut Builder<'_>,
    x: ValueId,
    table: &str,
    images: &Images,
    features: Size,
    positions: Positions,
) -> Result<ValueId, ModelError> {
    let Positions { before, filter, is_square } = positions;
    let trained = images.trained_grid();
    let is_asked = images.image != images.trained;
    let (count, side) = (trained[0] * trained[1], (trained[0] * trained[1]).isqrt());
    let from = if is_square { [side; 2] } else { trained };
    if !(is_square || is_asked) || images.grid() == from {
        return add_positions(b, x, table, before + count, features);
    }
    if from[0] * from[1] != count || from[0] != from[1] {
        let [rows, columns] = trained;
        return Err(b.config.error(format!(
            "the positions are those of {rows} x {columns} patches (`image_size`, `patch_size`), and transformers resamples \
             those of a square only"
        )));
    }
    let shape = [1, before + count].map(|size| Size::derived(size, "tokens by `image_size` and `patch_size`"));
    let (stored, origin) = b.tensors.take(&[table], &[shape[0], shape[1], features])?;
    let resampled = || {
        let rows = stored.reshape(&[before + count, features.value])?;
        let patches = resample(&rows.rows(before..before + count)?, from, images.grid(), filter)?;
        let all = Weight::concat(&[rows.rows(0..before)?, patches], 0)?;
        all.reshape(&[1, before + images.patches(), features.value])
    };
    let weight = resampled().ok_or_else(|| b.config.error(format!("tensor `{table}`: {TOO_LONG}")))?;
    let positions = b.graph.add_weight(table, weight, origin);
    b.add(x, positions, "embeddings.add")
}

/// The tokens from `start` up to `end`.
pub(crate) fn between(
    b: &mut Builder<'_>,
    x: ValueId,
    [start, end]: [usize; 2],
    module: &str,
) -> Result<ValueId, ModelError> {
    b.emit(Slice { x, axis: 1, start: dim(start), end: dim(end) }, module)
}

/// The tokens of a grid of patches, of which there are so many rows and columns, after one other token.
pub(crate) fn after_first(
    b: &mut Builder<'_>,
    x: ValueId,
    [rows, columns]: &[Dim; 2],
    module: &str,
) -> Result<ValueId, ModelError> {
    match rows.checked_mul(columns).and_then(|count| count.checked_add(&Dim::constant(1))) {
        Some(end) => b.emit(Slice { x, axis: 1, start: Dim::constant(1), end }, module),
        None => Err(b.config.error("images have more places than 64 bits count")),
    }
}

/// The mean of all tokens: [batch_size, tokens, features] to [batch_size, features].
pub(crate) fn mean(b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    b.emit(Reduce { kind: ReduceKind::Mean, x, axes: vec![1], keep: false }, module)
}

/// A size as a dimension: sizes are bounded where they are read.
pub(crate) fn dim(size: usize) -> Dim {
    Dim::constant(i64::try_from(size).unwrap_or(i64::MAX))
}

/// The largest side of an image: with it, sizes of tensors stay in range.
pub(crate) const MAX_SIDE: u64 = 1 << 14;

/// A key that is one number, or a list of height and width.
pub(crate) fn height_and_width(
    config: &Config<'_>,
    key: &'static str,
    default: usize,
) -> Result<[usize; 2], ModelError> {
    let Some(value) = config.get(key) else { return Ok([config.size(key, default)?.value; 2]) };
    let side = |v: &Value| v.as_u64().filter(|n| (1..=MAX_SIDE).contains(n)).and_then(|n| usize::try_from(n).ok());
    let sides = match value {
        Value::Array(sides) => sides.iter().map(side).collect::<Option<Vec<usize>>>(),
        one => side(one).map(|side| vec![side; 2]),
    };
    match sides.as_deref() {
        Some(&[height, width]) => Ok([height, width]),
        _ => Err(config.unexpected(key, value, &format!("a size from 1 to {MAX_SIDE}, or height and width"))),
    }
}
