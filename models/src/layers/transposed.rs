//! Convolutions of places that are tokens, and transposed ones, which give more rows and columns.

use planish_ir::ops::{Expand, Flag, Linear, Setting};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;
use crate::layers::convolution::{Window, affine, dim, dims, filters, foreign};

/// `torch.nn.Conv2d` of [out, in] channels with one place in its window, with or without bias, of places that are tokens.
pub(crate) fn pointwise(
    b: &mut Builder<'_>,
    x: ValueId,
    module: &str,
    [out, inner]: [Size; 2],
    bias: bool,
) -> Result<ValueId, ModelError> {
    let weight = b.weight(&[&format!("{module}.weight")], &filters([out, inner], Window::patches(1), 1))?;
    let weight = b.reshape(weight, [dim(out), dim(inner)], &format!("{module}.matrix"))?;
    let bias = if bias { Some(b.weight(&[&format!("{module}.bias")], &[out])?) } else { None };
    b.emit(Linear::new(x, weight, bias), module)
}

/// `torch.nn.ConvTranspose2d` of [out, in] channels whose windows lie side by side, of places that are tokens: a feature map
/// with `factor` times as many rows and columns. Each place gives a square of its own, so it is a linear layer of each place.
pub(crate) fn conv_transpose(
    b: &mut Builder<'_>,
    x: ValueId,
    [rows, columns]: [Dim; 2],
    module: &str,
    [out, inner]: [Size; 2],
    factor: usize,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let batch = b.graph.ty(x).shape.first().cloned().unwrap_or_default();
    let side = Size::derived(factor, "the size of a kernel");
    let area = dim(Size::derived(factor * factor, "the places of a kernel"));
    let features = dim(Size::derived(out.value * factor * factor, "the channels and places of a kernel"));
    let weight = b.weight(&[&at("weight")], &[inner, out, side, side])?;
    let weight = b.reshape(weight, [dim(inner), features.clone()], &at("matrix"))?;
    let bias = b.weight(&[&at("bias")], &[out])?;
    let bias = b.reshape(bias, [dim(out), Dim::constant(1)], &at("bias.column"))?;
    let bias = b.emit(Expand { x: bias, shape: Shape::new([dim(out), area]) }, &at("bias.expand"))?;
    let bias = b.reshape(bias, [features], &at("bias.places"))?;
    let squares = b.emit(Linear { transposed: Flag(true), ..Linear::new(x, weight, Some(bias)) }, module)?;
    let parts = [batch.clone(), rows.clone(), columns.clone(), dim(out), dim(side), dim(side)];
    let squares = b.reshape(squares, parts, &at("squares"))?;
    let squares = b.transpose(squares, &[0, 3, 1, 4, 2, 5], &at("by_place"))?;
    match [rows.checked_mul(&dim(side)), columns.checked_mul(&dim(side))] {
        [Some(height), Some(width)] => b.reshape(squares, [batch, dim(out), height, width], &at("map")),
        _ => Err(b.config.error("feature maps have more places than 64 bits count")),
    }
}

/// `torch.nn.ConvTranspose2d` without bias of [out, in] channels, with `torch.nn.BatchNorm2d` after it: `stride` times as many rows
/// and columns, for a window with `kernel - 2 * padding` of that.
pub(crate) fn normalized_transpose(
    b: &mut Builder<'_>,
    x: ValueId,
    [module, norm]: [&str; 2],
    [out, inner]: [Size; 2],
    window: Window,
) -> Result<ValueId, ModelError> {
    let [_, _, kernel, _] = filters([out, inner], window, 1);
    let (weight, origin) = b.tensors.take(&[&format!("{module}.weight")], &[inner, out, kernel, kernel])?;
    let [factors, shifts] = affine(b, None, norm, out)?;
    let numbers = |values: &[f64]| Weight::numbers(DType::F32, vec![out.value], values);
    let scaled = numbers(&factors).and_then(|factors| weight.scale(1, &factors)).zip(numbers(&shifts));
    let Some((weight, shifts)) = scaled else { unreachable!("there is a number for each filter") };
    let weight = b.graph.add_weight(&format!("{module}.weight"), weight, origin);
    let bias = b.graph.add_weight(&format!("{norm}.bias"), shifts, Origin::Module(norm.into()));
    let [batch, _, height, width] = dims(b, x)?;
    let stride = dim(Size::derived(window.stride, "the stride of a kernel"));
    let shape = match [height.checked_mul(&stride), width.checked_mul(&stride)] {
        [Some(height), Some(width)] => Shape::new([batch, dim(out), height, width]),
        _ => return Err(b.config.error("feature maps have more places than 64 bits count")),
    };
    let ints = |value: usize, count: usize| Setting::Ints(vec![i64::try_from(value).unwrap_or(i64::MAX); count]);
    let settings = [
        ("kernel_shape", ints(window.kernel, 2)),
        ("pads", ints(window.padding, 4)),
        ("strides", ints(window.stride, 2)),
    ];
    foreign(b, "ConvTranspose", vec![Some(x), Some(weight), Some(bias)], &settings, shape, module)
}
