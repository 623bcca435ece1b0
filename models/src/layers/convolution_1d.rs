//! Convolutions over time: of sequences [batch_size, channels, steps].

use planish_ir::ops::Conv;
use planish_ir::{Shape, ValueId};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;
use crate::layers::convolution::Window;

/// `torch.nn.Conv1d` of [out, in] channels, with or without bias. Where the number of steps has no polynomial form, it is a
/// symbol whose name says how it comes about.
pub(crate) fn conv(
    b: &mut Builder<'_>,
    x: ValueId,
    module: &str,
    [out, inner]: [Size; 2],
    window: Window,
    bias: bool,
) -> Result<ValueId, ModelError> {
    let kernel = Size::derived(window.kernel, "the size of a kernel");
    let weight = b.weight(&[&format!("{module}.weight")], &[out, inner, kernel])?;
    let bias = if bias { Some(b.weight(&[&format!("{module}.bias")], &[out])?) } else { None };
    let steps = b.graph.ty(x).shape[2].clone();
    let conv = Conv {
        x,
        weight,
        bias,
        strides: vec![window.stride],
        dilations: vec![window.dilation],
        pads: vec![window.padding; 2],
        groups: 1,
        sizes: Shape::new([window.places(&steps)]),
    };
    b.emit(conv, module)
}
