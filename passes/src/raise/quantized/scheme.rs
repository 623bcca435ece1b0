//! Scales and zero points.

use planish_ir::ops::{FakeQuantize, Foreign, Setting};
use planish_ir::weight::Channels;
use planish_ir::{DType, Dim, Graph, Shape, ValueId, Weight};

use super::super::NoMatch;
use super::miss;

/// What codes stand for: constant scales and zero points.
#[derive(Clone, Debug)]
pub(super) struct Scheme {
    /// Floats, `[channels]` or `[]`.
    pub(super) scales: Weight,
    /// Of the type of the codes and the shape of the scales; absent where all are 0.
    pub(super) zero_points: Option<Weight>,
    /// The dimension of the channels; 0 where there is one scale.
    pub(super) axis: usize,
}

/// An operand that is there.
pub(super) fn input(foreign: &Foreign, index: usize) -> Option<ValueId> {
    foreign.inputs.get(index).copied().flatten()
}

/// An attribute, where it is an integer.
pub(super) fn int(foreign: &Foreign, name: &str) -> Option<i64> {
    match foreign.setting(name) {
        Some(Setting::Int(value)) => Some(*value),
        _ => None,
    }
}

/// The constant that a value is, of at most one dimension.
pub(super) fn constant(graph: &Graph, value: ValueId, what: &str) -> Result<Weight, NoMatch> {
    let name = &graph.value(value).name;
    let Some(weight) = graph.weight(value) else { return miss(format!("the {what} `{name}` is not a constant")) };
    let of_all = || if weight.elements() == 1 { weight.reshape(&[]) } else { None };
    match of_all().or_else(|| (weight.shape().len() == 1).then(|| weight.clone())) {
        Some(weight) => Ok(weight),
        None => miss(format!("the {what} `{name}` is {}, not a vector", graph.ty(value))),
    }
}

impl Scheme {
    /// The scale and the zero point that are the operands `at` and `at + 1` of an operator, for codes of a type and a shape.
    pub(super) fn of(
        graph: &Graph,
        foreign: &Foreign,
        at: usize,
        codes: DType,
        shape: &Shape,
    ) -> Result<Self, NoMatch> {
        let Some(scale) = input(foreign, at) else { return Err(NoMatch::Other) };
        if int(foreign, "block_size").is_some_and(|size| size != 0) {
            return miss(format!("`{}` has a scale for each block", graph.value(scale).name));
        }
        let axis = int(foreign, "axis").unwrap_or(1);
        let rank = i64::try_from(shape.rank()).unwrap_or(0);
        let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).unwrap_or(0);
        Self::along(graph, scale, input(foreign, at + 1), codes, shape, axis)
    }

    /// With channels along `axis` where there are several scales.
    pub(super) fn along(
        graph: &Graph,
        scale: ValueId,
        zero: Option<ValueId>,
        codes: DType,
        shape: &Shape,
        axis: usize,
    ) -> Result<Self, NoMatch> {
        let scales = constant(graph, scale, "scale")?;
        let name = &graph.value(scale).name;
        let channels = scales.shape().first().copied();
        let size = shape.get(axis).and_then(Dim::as_constant).and_then(|size| usize::try_from(size).ok());
        if channels.is_some() && channels != size {
            return miss(format!(
                "the scales `{name}` are {}, which does not fit {shape} along {axis}",
                graph.ty(scale)
            ));
        }
        let positive = scales.read_numbers().is_ok_and(|all| all.iter().all(|s| *s > 0.0 && s.is_finite()));
        if !positive {
            return miss(format!("a scale of `{name}` is not a positive number"));
        }
        let zero_points = match zero {
            Some(zero) => zero_points(graph, zero, codes, &scales)?,
            None => None,
        };
        Ok(Self { scales, zero_points, axis: if channels.is_some() { axis } else { 0 } })
    }

    /// What the codes of a weight stand for, where there is one scale, and the type of the codes.
    pub(super) fn of_weight(weight: &Weight) -> Option<(DType, Self)> {
        let of = weight.as_dequantized()?;
        let Channels::Axis(axis) = of.channels else { return None };
        Some((of.codes.dtype(), Self { scales: of.scales, zero_points: of.zero_points, axis }))
    }

    /// The numbers that codes stand for.
    pub(super) fn dequantize(&self, codes: &Weight) -> Result<Weight, NoMatch> {
        match codes.dequantize(self.axis, &self.scales, self.zero_points.as_ref()) {
            Some(weight) => Ok(weight),
            None => miss(format!("codes of {} with scales of {} are no weight", codes.dtype(), self.scales.dtype())),
        }
    }

    /// Quantization of a value to these codes, where there is one scale.
    pub(super) fn fake(&self, x: ValueId, to: DType) -> Option<FakeQuantize> {
        let scale = self.scales.number()?;
        let zero = self.zero_points.as_ref().map_or(Some(0.0), Weight::number)?;
        Some(FakeQuantize::new(x, to, scale, zero as i64))
    }

    /// Whether both give the same numbers.
    pub(super) fn is(&self, other: &Self) -> bool {
        let same =
            |a: &Weight, b: &Weight| a == b || matches!((a.read_numbers(), b.read_numbers()), (Ok(a), Ok(b)) if a == b);
        let zeros = match (&self.zero_points, &other.zero_points) {
            (Some(a), Some(b)) => same(a, b),
            (None, None) => true,
            _ => false,
        };
        zeros
            && self.scales.dtype() == other.scales.dtype()
            && self.axis == other.axis
            && same(&self.scales, &other.scales)
    }
}

/// Zero points of the shape of the scales; `None` where all are 0.
fn zero_points(graph: &Graph, zero: ValueId, codes: DType, scales: &Weight) -> Result<Option<Weight>, NoMatch> {
    let zeros = constant(graph, zero, "zero point")?;
    let name = &graph.value(zero).name;
    let Ok(numbers) = zeros.read_numbers() else { return miss(format!("the zero point `{name}` cannot be read")) };
    if numbers.iter().all(|zero| *zero == 0.0) {
        return Ok(None);
    }
    let repeated = (numbers.len() == 1 && !scales.shape().is_empty())
        .then(|| Weight::numbers(codes, scales.shape().to_vec(), &vec![numbers[0]; scales.elements()]))
        .flatten();
    let zeros = repeated.unwrap_or(zeros);
    if zeros.dtype() != codes || zeros.shape() != scales.shape() {
        return miss(format!("the zero point `{name}` is {}, and the codes are {codes}", graph.ty(zero)));
    }
    Ok(Some(zeros))
}
