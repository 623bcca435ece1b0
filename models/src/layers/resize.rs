//! Feature maps [batch_size, channels, height, width] at other places: `torch.nn.functional.interpolate` and `grid_sample`.

use planish_ir::ops::{Real, Setting, Sizes};
use planish_ir::{Dim, Shape, ValueId};

use crate::ModelError;
use crate::layers::builder::Builder;
use crate::layers::convolution::{dims, foreign, foreign_since};

/// The first version of the operator GridSample of ONNX.
const GRID_SAMPLE: usize = 16;

/// How values between places are computed: the modes of `torch.nn.functional.interpolate`.
#[derive(Clone, Copy)]
pub(crate) enum Interpolation {
    /// `bilinear`.
    Linear,
    /// `bilinear` with `align_corners`: the centres of the elements at the corners keep their places.
    LinearCorners,
    /// `bicubic`.
    Cubic,
    /// `bicubic` with `align_corners`.
    CubicCorners,
    /// `nearest`.
    Nearest,
}

impl Interpolation {
    /// The settings of the operator Resize of ONNX.
    fn settings(self) -> Vec<(&'static str, Setting)> {
        let (places, mode) = match self {
            Self::Linear => ("half_pixel", "linear"),
            Self::LinearCorners => ("align_corners", "linear"),
            Self::Cubic => ("half_pixel", "cubic"),
            Self::CubicCorners => ("align_corners", "cubic"),
            Self::Nearest => ("asymmetric", "nearest"),
        };
        let mut settings = vec![("coordinate_transformation_mode", text(places)), ("mode", text(mode))];
        match self {
            Self::Cubic | Self::CubicCorners => settings.push(("cubic_coeff_a", Setting::Float(Real(-0.75)))),
            Self::Nearest => settings.push(("nearest_mode", text("floor"))),
            Self::Linear | Self::LinearCorners => {}
        }
        settings
    }
}

/// A feature map of another height and width; the same map where it has these.
pub(crate) fn resize(
    b: &mut Builder<'_>,
    x: ValueId,
    [height, width]: [Dim; 2],
    interpolation: Interpolation,
    module: &str,
) -> Result<ValueId, ModelError> {
    let [batch, channels, from_height, from_width] = dims(b, x)?;
    if [&from_height, &from_width] == [&height, &width] {
        return Ok(x);
    }
    let shape = Shape::new([batch, channels, height, width]);
    let sizes = b.emit(Sizes { of: shape.clone() }, &format!("{module}.sizes"))?;
    foreign(b, "Resize", vec![Some(x), None, None, Some(sizes)], &interpolation.settings(), shape, module)
}

/// `torch.nn.functional.grid_sample` without corners at the same places: the values of maps [rows, channels, height, width]
/// between their places at x and y from -1 to 1, [rows, queries, points, 2], and 0 outside: [rows, channels, queries, points].
pub(crate) fn grid_sample(
    b: &mut Builder<'_>,
    map: ValueId,
    grid: ValueId,
    module: &str,
) -> Result<ValueId, ModelError> {
    let ([rows, channels, ..], [_, queries, points, _]) = (dims(b, map)?, dims(b, grid)?);
    let shape = Shape::new([rows, channels, queries, points]);
    let settings = [("align_corners", Setting::Int(0)), ("mode", text("bilinear")), ("padding_mode", text("zeros"))];
    foreign_since(b, "GridSample", GRID_SAMPLE, vec![Some(map), Some(grid)], &settings, shape, module)
}

/// A setting of an operator of ONNX.
pub(super) fn text(text: &str) -> Setting {
    Setting::Bytes(text.as_bytes().into())
}
