//! Convolutions over time: [batch_size, channels, frames].

use planish_ir::ops::Conv;
use planish_ir::{Dim, Shape, ValueId, Weight};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;
use crate::layers::convolution;

/// A window that moves over time.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    /// The frames that it covers.
    pub(crate) kernel: Size,
    /// The frames of a step.
    pub(crate) stride: usize,
    /// The zeros before the first frame, and those after the last one.
    pub(crate) padding: [usize; 2],
    /// The distance between the frames that it covers.
    pub(crate) dilation: usize,
    /// The groups of channels, each with filters of its own.
    pub(crate) groups: usize,
}

impl Window {
    /// A window without zeros around the frames.
    pub(crate) fn new(kernel: Size, stride: usize) -> Self {
        Self { kernel, stride, padding: [0; 2], dilation: 1, groups: 1 }
    }

    /// A window around each `stride`-th frame. With `kernel / 2` zeros on each side a window of an even size has one place more
    /// than there are frames: the last one is left out.
    pub(crate) fn around(kernel: Size, stride: usize, groups: usize) -> Self {
        let before = kernel.value / 2;
        let is_even = usize::from(kernel.value.is_multiple_of(2));
        Self { padding: [before, before - is_even], groups, ..Self::new(kernel, stride) }
    }

    /// The shape of filters of [out, in] channels.
    pub(crate) fn filters(&self, [out, inner]: [Size; 2]) -> [Size; 3] {
        [out, Size::derived(inner.value / self.groups.max(1), inner.key), self.kernel]
    }
}

/// The filters at all places of a window. `frames` names the number of places, where it is no polynomial of the number of frames.
pub(crate) fn emit(
    b: &mut Builder<'_>,
    x: ValueId,
    [weight, bias]: [Option<ValueId>; 2],
    window: Window,
    frames: &str,
    module: &str,
) -> Result<ValueId, ModelError> {
    let Some(weight) = weight else { return Err(b.tensors.missing(&[module])) };
    let length = b.graph.ty(x).shape[2].clone();
    let mut conv = Conv {
        x,
        weight,
        bias,
        strides: vec![window.stride],
        dilations: vec![window.dilation],
        pads: window.padding.to_vec(),
        groups: window.groups,
        sizes: Shape::new([]),
    };
    let places = conv.places(0, &length, window.kernel.value);
    conv.sizes = Shape::new([places.unwrap_or_else(|| Dim::symbol(frames))]);
    b.emit(conv, module)
}

/// `torch.nn.Conv1d` of [out, in] channels, with or without bias.
pub(crate) fn conv(
    b: &mut Builder<'_>,
    x: ValueId,
    module: &str,
    channels: [Size; 2],
    window: Window,
    bias: bool,
    frames: &str,
) -> Result<ValueId, ModelError> {
    let (weight, bias) = b.weight_and_bias(module, &window.filters(channels), bias)?;
    emit(b, x, [Some(weight), bias], window, frames, module)
}

/// The same with a bias and `torch.nn.utils.weight_norm` along the frames of the window (Salimans and Kingma 2016,
/// arXiv:1602.07868): the filters of a frame are a direction over its length, times a length of their own. Older files of
/// transformers have other names for both.
pub(crate) fn weight_normalized(
    b: &mut Builder<'_>,
    x: ValueId,
    module: &str,
    channels: [Size; 2],
    window: Window,
    frames: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let one = Size::derived(1, "the lengths of a weight norm along the window");
    let directions = [at("weight_v"), at("parametrizations.weight.original1")];
    let lengths = [at("weight_g"), at("parametrizations.weight.original0")];
    let (direction, origin) = b.tensors.take(&directions.each_ref().map(String::as_str), &window.filters(channels))?;
    let (length, _) = b.tensors.take(&lengths.each_ref().map(String::as_str), &[one, one, window.kernel])?;
    let normal = direction.inverse_norms(2).and_then(|inverse| direction.scale(2, &inverse));
    let weight: Option<Weight> =
        normal.zip(length.reshape(&[window.kernel.value])).and_then(|(normal, length)| normal.scale(2, &length));
    let Some(weight) = weight else { unreachable!("there is a length for each frame of the window") };
    let weight = b.graph.add_weight(&at("weight"), weight, origin);
    let bias = b.weight(&[&at("bias")], &[channels[0]])?;
    emit(b, x, [Some(weight), Some(bias)], window, frames, module)
}

/// `torch.nn.GroupNorm` of as many groups as channels: each channel is normalized over time.
pub(crate) fn norm_over_time(
    b: &mut Builder<'_>,
    x: ValueId,
    module: &str,
    channels: Size,
) -> Result<ValueId, ModelError> {
    let mut vector = |name: &str| b.weight(&[&format!("{module}.{name}")], &[channels]);
    let (weight, bias) = (vector("weight")?, vector("bias")?);
    convolution::instance_norm(b, [x, weight, bias], module)
}

/// Channels and frames in the other order: [batch_size, a, b] to [batch_size, b, a].
pub(crate) fn turned(b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    b.transpose(x, &[0, 2, 1], module)
}
