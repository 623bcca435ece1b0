//! Pictures as inputs: what an image processor of the transformers library makes of pixels, as operators of the graph.

use planish_ir::ops::{BinaryKind, Cast, Concat, Setting, Sizes, Slice, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};

use crate::ModelError;
use crate::layers::builder::Builder;
use crate::layers::convolution::foreign_since;
use crate::layers::resize::text;
use crate::names;

/// What is done to pictures before they are the numbers of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PictureSteps {
    /// The size that they are resized to, and how.
    pub resize: Option<(PictureSize, Interpolation)>,
    /// Height and width of the center that is kept, which is no larger than the picture.
    pub crop: Option<[usize; 2]>,
    /// What samples from 0 to 255 are multiplied by.
    pub rescale: Option<f64>,
    /// Mean and standard deviation of the channels.
    pub normalize: Option<[[f64; 3]; 2]>,
    /// Whether channels go from blue to red.
    pub is_bgr: bool,
}

/// What pictures are resized to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureSize {
    /// This height and width.
    Sides([usize; 2]),
    /// A shorter edge of this length, in the form of the picture.
    ShortestEdge(usize),
}

/// What numbers between pixels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// Means weighted by a triangle.
    Linear,
    /// Sums weighted by Keys' cubic with a = -0.5.
    Cubic,
}

/// The first opset whose Resize weighs all pixels that one of the result covers.
pub const PICTURES_OPSET: u32 = 18;

/// What rounds sums to levels: a half, and a little, so that sums that are a half but for errors of float32 round up in each runtime.
const HALF: f64 = 0.5 + 1.0 / 1024.0;

/// What says how pictures become pixels, for messages.
const FILE: &str = "preprocessor_config.json";

/// Adds the input of pixels, f32[images, channels, height, width], or where pictures are to be processed in the graph, that of
/// pictures and what becomes of them.
pub(crate) fn input(b: &mut Builder<'_>, [channels, height, width]: [Dim; 3]) -> Result<ValueId, ModelError> {
    let Some(steps) = b.pictures else {
        return Ok(b.floats(names::PIXELS.0, names::PIXELS.1, [Dim::symbol(b.images), channels, height, width]));
    };
    b.has_pictures = true;
    if channels != Dim::constant(3) {
        return Err(b.config.error(format!(
            "`num_channels` is {channels}, and pictures have 3 channels; leave `preprocessing` of the recipe out"
        )));
    }
    let pixels = steps.build(b)?;
    let given = b.graph.ty(pixels).shape.clone();
    let fits = |(wanted, given): (&Dim, &Dim)| wanted.as_constant().is_none() || wanted == given;
    if [height.clone(), width.clone()].iter().zip(given.iter().skip(2)).all(fits) {
        return Ok(pixels);
    }
    Err(b.config.error(format!(
        "the model takes images of {height} x {width}, and {FILE} makes pictures {} x {}; set `size` or `crop_size` there",
        given[2], given[3]
    )))
}

impl PictureSteps {
    /// Height and width of all pictures after these steps; absent where they depend on the picture.
    #[must_use]
    pub fn size(&self) -> Option<[usize; 2]> {
        match (self.crop, self.resize) {
            (Some(sides), _) | (None, Some((PictureSize::Sides(sides), _))) => Some(sides),
            _ => None,
        }
    }

    /// The pixels of pictures: f32[images, 3, height, width] of u8[images, height, width, 3].
    fn build(&self, b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
        let (name, role) = names::IMAGE;
        let [height, width] = [names::HEIGHT, names::WIDTH].map(Dim::symbol);
        let dims = [Dim::symbol(b.images), height, width, Dim::constant(3)];
        let picture = b.add_input(name, role, DType::U8, dims);
        let planes = b.transpose(picture, &[0, 3, 1, 2], &format!("{name}.planes"))?;
        let mut x = b.emit(Cast { x: planes, to: DType::F32 }, &format!("{name}.levels"))?;
        match self.resize {
            Some((PictureSize::Sides(sides), how)) => x = to_sides(b, x, sides, how)?,
            Some((PictureSize::ShortestEdge(edge), how)) => x = to_edge(b, x, edge, how)?,
            None => {}
        }
        if let Some(sides) = self.crop {
            x = center(b, x, sides)?;
        }
        if self.is_bgr {
            let channel = |b: &mut Builder<'_>, at: i64| {
                let (start, end) = (Dim::constant(at), Dim::constant(at + 1));
                b.emit(Slice { x, axis: 1, start, end }, &format!("{name}.channel_{at}"))
            };
            let parts = vec![channel(b, 2)?, channel(b, 1)?, channel(b, 0)?];
            x = b.emit(Concat { parts, axis: 1 }, &format!("{name}.bgr"))?;
        }
        if let Some(factor) = self.rescale {
            x = b.with_number(BinaryKind::Mul, x, factor, &format!("{name}.rescaled"), FILE)?;
        }
        if let Some([mean, deviation]) = self.normalize {
            let mean = of_channels(b, &format!("{name}.mean"), mean);
            x = b.binary(BinaryKind::Sub, [x, mean], &format!("{name}.centered"))?;
            let deviation = of_channels(b, &format!("{name}.deviation"), deviation);
            x = b.binary(BinaryKind::Div, [x, deviation], &format!("{name}.normalized"))?;
        }
        Ok(x)
    }
}

/// A number of each channel: f32[3, 1, 1].
fn of_channels(b: &mut Builder<'_>, name: &str, numbers: [f64; 3]) -> ValueId {
    let weight = Weight::numbers(DType::F32, vec![3, 1, 1], &numbers);
    let weight = weight.unwrap_or_else(|| unreachable!("there is a number for each channel"));
    b.graph.add_weight(name, weight, Origin::Module(names::IMAGE.0.into()))
}

/// Integers: i64[count].
fn integers(b: &mut Builder<'_>, name: &str, numbers: &[usize]) -> ValueId {
    let numbers: Vec<f64> = numbers.iter().map(|number| *number as f64).collect();
    let weight = Weight::numbers(DType::I64, vec![numbers.len()], &numbers);
    let weight = weight.unwrap_or_else(|| unreachable!("the shape is that of the numbers"));
    b.graph.add_weight(name, weight, Origin::Module(names::IMAGE.0.into()))
}

fn side(length: usize) -> Dim {
    Dim::constant(i64::try_from(length).unwrap_or(i64::MAX))
}

/// Pictures of a height and width.
fn to_sides(
    b: &mut Builder<'_>,
    x: ValueId,
    [height, width]: [usize; 2],
    how: Interpolation,
) -> Result<ValueId, ModelError> {
    let shape = b.graph.ty(x).shape.clone();
    let wide = Shape::new([shape[0].clone(), shape[1].clone(), shape[2].clone(), side(width)]);
    let whole = Shape::new([shape[0].clone(), shape[1].clone(), side(height), side(width)]);
    let name = names::IMAGE.0;
    let [of_wide, of_whole] = [("wide", &wide), ("whole", &whole)]
        .map(|(part, shape)| b.emit(Sizes { of: shape.clone() }, &format!("{name}.{part}.sizes")));
    resized(b, x, [(of_wide?, wide), (of_whole?, whole)], how)
}

/// Pictures of a shorter edge, the longer of which is rounded down.
fn to_edge(b: &mut Builder<'_>, x: ValueId, edge: usize, how: Interpolation) -> Result<ValueId, ModelError> {
    let name = names::IMAGE.0;
    let shape = b.graph.ty(x).shape.clone();
    let (height, width) = (shape[2].clone(), shape[3].clone());
    let sizes = |b: &mut Builder<'_>, dims: &[Dim], part: &str| {
        b.emit(Sizes { of: Shape::new(dims.iter().cloned()) }, &format!("{name}.{part}"))
    };
    let sides = sizes(b, &[height.clone(), width.clone()], "sides")?;
    let others = sizes(b, &[width, height.clone()], "other_sides")?;
    let edge = integers(b, &format!("{name}.edge"), &[edge]);
    let longer = b.binary(BinaryKind::Mul, [sides, edge], &format!("{name}.scaled_sides"))?;
    let longer = b.binary(BinaryKind::Div, [longer, others], &format!("{name}.longer_sides"))?;
    let to = b.binary(BinaryKind::Max, [longer, edge], &format!("{name}.new_sides"))?;
    let new_width =
        b.emit(Slice { x: to, axis: 0, start: Dim::constant(1), end: Dim::constant(2) }, &format!("{name}.new_width"))?;
    let [rows, wide] = ["resized_height", "resized_width"].map(Dim::symbol);
    let lines = sizes(b, &[shape[0].clone(), shape[1].clone(), height.clone()], "lines")?;
    let images = sizes(b, &[shape[0].clone(), shape[1].clone()], "images")?;
    let of_wide = b.emit(Concat { parts: vec![lines, new_width], axis: 0 }, &format!("{name}.wide.sizes"))?;
    let of_whole = b.emit(Concat { parts: vec![images, to], axis: 0 }, &format!("{name}.whole.sizes"))?;
    let first = Shape::new([shape[0].clone(), shape[1].clone(), height, wide.clone()]);
    let second = Shape::new([shape[0].clone(), shape[1].clone(), rows, wide]);
    resized(b, x, [(of_wide, first), (of_whole, second)], how)
}

/// Pictures of another width, and then of another height, each rounded to levels, as Pillow does. Each size comes with the shape
/// that it is of.
fn resized(
    b: &mut Builder<'_>,
    x: ValueId,
    [wide, whole]: [(ValueId, Shape); 2],
    how: Interpolation,
) -> Result<ValueId, ModelError> {
    let [first, second] = ["wide", "resized"].map(|part| format!("{}.{part}", names::IMAGE.0));
    let mode = if how == Interpolation::Cubic { "cubic" } else { "linear" };
    let mut settings = vec![
        ("antialias", Setting::Int(1)),
        ("coordinate_transformation_mode", text("half_pixel")),
        ("exclude_outside", Setting::Int(1)),
        ("mode", text(mode)),
    ];
    if how == Interpolation::Cubic {
        settings.insert(2, ("cubic_coeff_a", Setting::Float(planish_ir::ops::Real(-0.5))));
    }
    let x = resize(b, x, wide, &settings, &first)?;
    let x = levels(b, x, &first)?;
    let x = resize(b, x, whole, &settings, &second)?;
    levels(b, x, &second)
}

fn resize(
    b: &mut Builder<'_>,
    x: ValueId,
    (sizes, shape): (ValueId, Shape),
    settings: &[(&str, Setting)],
    module: &str,
) -> Result<ValueId, ModelError> {
    let version = PICTURES_OPSET as usize;
    foreign_since(b, "Resize", version, vec![Some(x), None, None, Some(sizes)], settings, shape, module)
}

/// Whole numbers from 0 to 255 that are nearest to numbers.
fn levels(b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let more = b.with_number(BinaryKind::Add, x, HALF, &format!("{module}.more"), FILE)?;
    let whole = b.emit(Unary { kind: UnaryKind::Floor, x: more }, &format!("{module}.whole"))?;
    let some = b.with_number(BinaryKind::Max, whole, 0.0, &format!("{module}.some"), FILE)?;
    b.with_number(BinaryKind::Min, some, 255.0, &format!("{module}.levels"), FILE)
}

/// The center of pictures that are no smaller. An odd difference leaves more at the right and below.
fn center(b: &mut Builder<'_>, x: ValueId, sides: [usize; 2]) -> Result<ValueId, ModelError> {
    let shape = b.graph.ty(x).shape.clone();
    let name = names::IMAGE.0;
    let known = [2, 3].map(|axis| shape[axis].as_constant().and_then(|side| usize::try_from(side).ok()));
    if let [Some(height), Some(width)] = known {
        let mut kept = x;
        for (axis, (from, to)) in [(height, sides[0]), (width, sides[1])].into_iter().enumerate() {
            let start = from.saturating_sub(to) / 2;
            let (start, end) = (side(start), side(start + to));
            kept = b.emit(Slice { x: kept, axis: axis + 2, start, end }, &format!("{name}.center_{axis}"))?;
        }
        return Ok(kept);
    }
    let from = b.emit(Sizes { of: Shape::new(shape.iter().skip(2).cloned()) }, &format!("{name}.resized_sides"))?;
    let to = integers(b, &format!("{name}.kept"), &sides);
    let two = integers(b, &format!("{name}.two"), &[2]);
    let axes = integers(b, &format!("{name}.axes"), &[2, 3]);
    let left = b.binary(BinaryKind::Sub, [from, to], &format!("{name}.left_over"))?;
    let starts = b.binary(BinaryKind::Div, [left, two], &format!("{name}.starts"))?;
    let ends = b.binary(BinaryKind::Add, [starts, to], &format!("{name}.ends"))?;
    let kept = Shape::new([shape[0].clone(), shape[1].clone(), side(sides[0]), side(sides[1])]);
    let inputs = vec![Some(x), Some(starts), Some(ends), Some(axes)];
    foreign_since(b, "Slice", 13, inputs, &[], kept, &format!("{name}.center"))
}
