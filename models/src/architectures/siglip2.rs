//! SigLIP 2 of images of any shape (NaFlex; Tschannen et al. 2025, arXiv:2502.14786), as `transformers/models/siglip2` has it: SigLIP,
//! whose images are as many patches as their shape has. The grid of positions is resampled to the shape of each image, as products of
//! its rows and columns with the weights of bilinear interpolation with antialias.

use planish_ir::ops::{BinaryKind, Cast, Iota, MatMul, Reduce, ReduceKind, Select, Slice, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, PartRole, ValueId, Weight};

use crate::Towers::Apart;
use crate::accept::{end_section, section};
use crate::architecture::{Architecture, Properties};
use crate::architectures::siglip;
use crate::checkpoint::config::{Config, Size};
use crate::layers::builder::Builder;
use crate::layers::patches::{MAX_SIDE, dim};
use crate::layers::towers::{self, IMAGE_LAYERS};
use crate::layers::vision::{self, Context, Layers};
use crate::layers::{encoder, heads};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { model_type: "siglip2", class_prefix: "Siglip2", base: "siglip2", build, ..siglip::ARCHITECTURE };

/// The tower of images.
pub(crate) const IMAGE: Architecture = Architecture {
    model_type: "siglip2_vision_model",
    class_prefix: "Siglip2Vision",
    keys: &[vision::KEYS, &["num_channels", "num_patches", "patch_size", "vision_use_head"]],
    build: |b, _| {
        Image::read(b.config)?.give(b)?;
        Ok(Properties::default())
    },
    ..siglip::IMAGE
};

/// The tower of texts.
pub(crate) const TEXT: Architecture =
    Architecture { model_type: "siglip2_text_model", class_prefix: "Siglip2Text", ..siglip::TEXT };

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let text_config = section(b.config, &["text_config"], &TEXT)?;
    let image_config = section(b.config, &["vision_config"], &IMAGE)?;
    let text = siglip::read_text(&text_config)?;
    let image = Image::read(&image_config)?;
    end_section(b.config, &text_config, &TEXT);
    end_section(b.config, &image_config, &IMAGE);
    if task == Task::ImageClassification {
        let (hidden, mask) = image.encode(b)?;
        let mean = mean_of_patches(b, hidden, mask)?;
        heads::classify(b, image.layers.hidden, mean, "classifier")?;
        return Ok(Properties::default());
    }
    siglip::check_heads(&image_config, image.has_head)?;
    if b.towers == Some(Apart) && task == Task::FeatureExtraction {
        image.give(b)?;
        b.finish_as(names::IMAGE_TOWER, PartRole::Model);
        return siglip::finish_text(b, &text);
    }
    b.images = names::IMAGES;
    let ids = towers::ids(b, names::TEXTS, text.vocabulary());
    let (hidden, mask) = image.encode(b)?;
    let pooled = siglip::pool(b, &image.layers, hidden, Some(mask))?;
    siglip::compare(b, &text, ids, pooled, image.layers.hidden)
}

/// The mean over the patches that an image has: [images, patches, hidden] to [images, hidden]. `mask` is bool[images, patches].
fn mean_of_patches(b: &mut Builder<'_>, x: ValueId, mask: ValueId) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("classifier.mean.{name}");
    let part = b.emit(Cast { x: mask, to: DType::F32 }, &at("mask"))?;
    let [images, patches] = [0, 1].map(|axis| b.graph.ty(mask).shape[axis].clone());
    let part = b.reshape(part, [images, patches, dim(1)], &at("part"))?;
    let weighted = b.binary(BinaryKind::Mul, [x, part], &at("weighted"))?;
    let [sum, count] = [(weighted, "sum"), (part, "count")]
        .map(|(x, name)| b.emit(Reduce { kind: ReduceKind::Sum, x, axes: vec![1], keep: false }, &at(name)));
    b.binary(BinaryKind::Div, [sum?, count?], "classifier.mean")
}

/// A tower of images.
struct Image {
    layers: Layers,
    /// The numbers of a patch: all channels of its pixels.
    patch: Size,
    /// Rows and columns of the grid of positions.
    side: usize,
    /// Whether an attention makes one vector of all patches.
    has_head: bool,
}

impl Image {
    /// Reads the configuration.
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let layers = Layers::read(config, &siglip::DEFAULTS, &IMAGE_LAYERS)?;
        let (channels, patch) = (config.size("num_channels", 3)?.value, config.size("patch_size", 16)?.value);
        let patch = patch.checked_mul(patch).and_then(|pixels| pixels.checked_mul(channels));
        let patch = patch
            .ok_or_else(|| config.error("`patch_size` and `num_channels` give more numbers than a patch may have"))?;
        let count = config.size("num_patches", 256)?;
        let side = count.value.isqrt();
        if side * side != count.value {
            return Err(config.error(format!("{count}, which is no square: positions are those of a square grid")));
        }
        let patch = Size::derived(patch, "num_channels * patch_size^2");
        Ok(Self { layers, patch, side, has_head: config.boolean("vision_use_head", true)? })
    }

    /// The inputs and the outputs of this tower alone.
    fn give(&self, b: &mut Builder<'_>) -> Result<(), ModelError> {
        let (hidden, mask) = self.encode(b)?;
        b.give(names::HIDDEN, hidden);
        if self.has_head {
            let pooled = siglip::pool(b, &self.layers, hidden, Some(mask))?;
            b.give(names::POOLED, pooled);
        }
        Ok(())
    }

    /// Adds the inputs of patches, of a mask and of shapes: the vectors of all patches, [images, num_patches, hidden], and which of them
    /// an image has, bool[images, num_patches].
    fn encode(&self, b: &mut Builder<'_>) -> Result<(ValueId, ValueId), ModelError> {
        const MODULE: &str = "vision_model.embeddings";
        let (images, patches, size) = (Dim::symbol(b.images), Dim::symbol(names::PATCHES), self.layers.hidden);
        let (name, role) = names::PIXELS;
        let pixels = b.floats(name, role, [images.clone(), patches.clone(), dim(self.patch.value)]);
        let mask = b.ids(names::PIXEL_MASK, [images.clone(), patches], 2);
        let grid = b.ids(names::PATCH_GRID, [images, dim(2)], MAX_SIDE.cast_signed() + 1);
        let mask = encoder::mask(b, mask)?;
        let embedded = b.linear(pixels, &format!("{MODULE}.patch_embedding"), size, self.patch)?;
        let positions = self.positions(b, grid)?;
        let x = b.add(embedded, positions, &format!("{MODULE}.add"))?;
        let x = self.layers.apply(b, x, Context { mask: Some(mask), ..Context::default() })?;
        Ok((b.layer_norm(x, "vision_model.post_layernorm", size, self.layers.eps)?, mask))
    }

    /// The positions of patches of images of some shapes, i64[images, 2]: [images, num_patches, hidden]. Patches beyond those of an image
    /// have the position of its first one.
    fn positions(&self, b: &mut Builder<'_>, grid: ValueId) -> Result<ValueId, ModelError> {
        const MODULE: &str = "vision_model.embeddings.position_embedding";
        let at = |name: &str| format!("{MODULE}.{name}");
        let (side, size) = (self.side, self.layers.hidden);
        let sides = [("rows", 0), ("columns", 1)].map(|(name, axis): (&str, usize)| {
            let [start, end] = [axis, axis + 1].map(dim);
            b.emit(Slice { x: grid, axis: 1, start, end }, &at(name))
        });
        let [rows, columns] = sides;
        let (rows, columns) = (rows?, columns?);
        let number = b.emit(Iota { dtype: DType::I64, length: Dim::symbol(names::PATCHES) }, &at("patch"))?;
        let count = b.binary(BinaryKind::Mul, [rows, columns], &at("count"))?;
        let is_there = b.binary(BinaryKind::Greater, [count, number], &at("is_there"))?;
        let none = b.graph.add_scalar(&at("none"), DType::I64, 0.0);
        let number = b.emit(Select { condition: is_there, a: number, b: none }, &at("number"))?;
        let row = b.binary(BinaryKind::Div, [number, columns], &at("row"))?;
        let before = b.binary(BinaryKind::Mul, [row, columns], &at("before"))?;
        let column = b.binary(BinaryKind::Sub, [number, before], &at("column"))?;
        let of_rows = self.weights(b, [row, rows], &at("of_rows"))?;
        let of_columns = self.weights(b, [column, columns], &at("of_columns"))?;
        let [images, patches] = [0, 1].map(|axis| b.graph.ty(number).shape[axis].clone());
        let tall = b.reshape(of_rows, [images.clone(), patches.clone(), dim(side), dim(1)], &at("tall"))?;
        let wide = b.reshape(of_columns, [images.clone(), patches.clone(), dim(1), dim(side)], &at("wide"))?;
        let both = b.binary(BinaryKind::Mul, [tall, wide], &at("both"))?;
        let both = b.reshape(both, [images, patches, dim(side * side)], &at("weights"))?;
        let count = Size::derived(side * side, "num_patches");
        let table = b.weight(&[&format!("{MODULE}.weight")], &[count, size])?;
        b.emit(MatMul { a: both, b: table }, MODULE)
    }

    /// The weights that the places of a line of the grid have in a place of another line, for places i64[images, num_patches] of lines
    /// of i64[images, 1] places: [images, num_patches, side].
    fn weights(&self, b: &mut Builder<'_>, [place, length]: [ValueId; 2], module: &str) -> Result<ValueId, ModelError> {
        const KEY: &str = "num_patches";
        let at = |name: &str| format!("{module}.{name}");
        let places: Vec<f64> = (0..self.side).map(|at| at as f64 + 0.5).collect();
        let places = Weight::numbers(DType::F32, vec![self.side], &places);
        let places = places.unwrap_or_else(|| unreachable!("the shape is that of the numbers"));
        let places = b.graph.add_weight(&at("places"), places, Origin::Unknown);
        let length = b.emit(Cast { x: length, to: DType::F32 }, &at("length"))?;
        let all = b.number(self.side as f64, &at("side"), KEY);
        let scale = b.binary(BinaryKind::Div, [all, length], &at("scale"))?;
        let one = b.number(1.0, &at("one"), KEY);
        let reach = b.binary(BinaryKind::Max, [scale, one], &at("reach"))?;
        let place = b.emit(Cast { x: place, to: DType::F32 }, &at("place"))?;
        let middle = b.with_number(BinaryKind::Add, place, 0.5, &at("middle"), KEY)?;
        let center = b.binary(BinaryKind::Mul, [middle, scale], &at("center"))?;
        let [images, patches] = [0, 1].map(|axis| b.graph.ty(center).shape[axis].clone());
        let center = b.reshape(center, [images.clone(), patches, dim(1)], &at("center.column"))?;
        let reach = b.reshape(reach, [images, dim(1), dim(1)], &at("reach.column"))?;
        let distance = b.binary(BinaryKind::Sub, [places, center], &at("distance"))?;
        let distance = b.emit(Unary { kind: UnaryKind::Abs, x: distance }, &at("distance.abs"))?;
        let part = b.binary(BinaryKind::Div, [distance, reach], &at("distance.part"))?;
        let weight = b.binary(BinaryKind::Sub, [one, part], &at("slope"))?;
        let weight = b.with_number(BinaryKind::Max, weight, 0.0, &at("weight"), KEY)?;
        let sum = b.emit(Reduce { kind: ReduceKind::Sum, x: weight, axes: vec![2], keep: true }, &at("sum"))?;
        b.binary(BinaryKind::Div, [weight, sum], module)
    }
}
