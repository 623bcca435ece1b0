//! The heads of detectors: boxes and classes of objects.

use planish_ir::ops::{Cast, Concat, Expand, Iota, Unary, UnaryKind};
use planish_ir::{DType, Dim, Shape, ValueId};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::convolution;
use crate::names;

/// Configuration keys of the losses of training.
pub(crate) const LOSSES: &[&str] = &[
    "auxiliary_loss",
    "bbox_cost",
    "bbox_loss_coefficient",
    "class_cost",
    "dice_loss_coefficient",
    "eos_coefficient",
    "giou_cost",
    "giou_loss_coefficient",
    "mask_loss_coefficient",
];

/// So many linear layers from `inner` to `out` features, with ReLU between them.
pub(crate) fn perceptron(
    b: &mut Builder<'_>,
    x: ValueId,
    module: &str,
    [out, inner]: [Size; 2],
    layers: usize,
) -> Result<ValueId, ModelError> {
    perceptron_from(b, x, module, [out, inner, inner], layers)
}

/// The same of `first` features, with `inner` ones between layers.
pub(crate) fn perceptron_from(
    b: &mut Builder<'_>,
    x: ValueId,
    module: &str,
    [out, inner, first]: [Size; 3],
    layers: usize,
) -> Result<ValueId, ModelError> {
    (0..layers).try_fold(x, |x, at| {
        let (path, is_last) = (format!("{module}.layers.{at}"), at + 1 == layers);
        let linear = b.linear(x, &path, if is_last { out } else { inner }, if at == 0 { first } else { inner })?;
        if is_last { Ok(linear) } else { Activation::RELU.apply(b, linear, &format!("{path}.activation")) }
    })
}

/// `pred_boxes`: center, width and height of each object as parts of the image.
pub(crate) fn boxes(b: &mut Builder<'_>, x: ValueId, module: &str, hidden: Size) -> Result<(), ModelError> {
    let sides = perceptron(b, x, module, [Size::derived(4, "center, width and height"), hidden], 3)?;
    let boxes = b.emit(Unary { kind: UnaryKind::Sigmoid, x: sides }, &format!("{module}.sigmoid"))?;
    b.give(names::PRED_BOXES, boxes);
    Ok(())
}

/// Features of positions along a side of a map: [places of the side, features].
#[derive(Clone, Copy)]
pub(crate) enum Along {
    Rows(ValueId),
    Columns(ValueId),
}

/// The positions of the places of a map, row by row: [1, places, 2 * features], of those of both sides.
pub(crate) fn positions(
    b: &mut Builder<'_>,
    parts: [Along; 2],
    [height, width]: &[Dim; 2],
    features: Size,
    module: &str,
) -> Result<ValueId, ModelError> {
    let (one, size) = (Dim::constant(1), convolution::dim(features));
    let shape = Shape::new([height.clone(), width.clone(), size.clone()]);
    let mut spread = |part: Along| {
        let (x, dims, name) = match part {
            Along::Rows(x) => (x, [height.clone(), one.clone(), size.clone()], "rows"),
            Along::Columns(x) => (x, [one.clone(), width.clone(), size.clone()], "columns"),
        };
        let x = b.reshape(x, dims, &format!("{module}.{name}"))?;
        b.emit(Expand { x, shape: shape.clone() }, &format!("{module}.{name}.expand"))
    };
    let parts = parts.map(&mut spread).into_iter().collect::<Result<Vec<_>, _>>()?;
    let joined = b.emit(Concat { parts, axis: 2 }, &format!("{module}.concat"))?;
    let both = Size::derived(2 * features.value, "features of both sides");
    match height.checked_mul(width) {
        Some(places) => b.reshape(joined, [one, places, convolution::dim(both)], module),
        None => Err(b.config.error("images have more places than 64 bits count")),
    }
}

/// 0, 1, 2 ... along a side: f32[places].
pub(crate) fn numbers(b: &mut Builder<'_>, count: &Dim, module: &str) -> Result<ValueId, ModelError> {
    let numbers = b.emit(Iota { dtype: DType::I64, length: count.clone() }, &format!("{module}.places"))?;
    b.emit(Cast { x: numbers, to: DType::F32 }, &format!("{module}.numbers"))
}
