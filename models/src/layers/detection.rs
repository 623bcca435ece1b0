//! The heads of detectors: boxes and classes of objects.

use planish_ir::ValueId;
use planish_ir::ops::{Unary, UnaryKind};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
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
    (0..layers).try_fold(x, |x, at| {
        let (path, is_last) = (format!("{module}.layers.{at}"), at + 1 == layers);
        let linear = b.linear(x, &path, if is_last { out } else { inner }, inner)?;
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
