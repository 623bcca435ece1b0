//! Layers of codes as operators of the graph, for targets that run these.

use std::collections::HashMap;

use planish_ir::ops::{Cast, FakeQuantize, FusedLinear, Quantize, QuantizedLinear, Real};
use planish_ir::weight::{Channels, Dequantized, WeightError, WeightExpr};
use planish_ir::{DType, Graph, Op, Step, ValueId, Weight};

use super::weights::scaled_rows;
use crate::PassError;

/// Products of codes have sizes that are multiples of this (cublasLt with 32-bit sums).
const MULTIPLE: usize = 4;

/// Why a value that is quantized like this has no codes that the target multiplies.
pub(in crate::legalize) fn unfit(quantize: &FakeQuantize) -> Option<String> {
    let FakeQuantize { to, scale, zero_point, split, .. } = quantize;
    let why = match (scale, zero_point) {
        (None, _) => "its scale is that of each run, and this target takes fixed scales".to_owned(),
        _ if *to != DType::I8 => format!("it has codes of {to}, and this target multiplies codes of i8"),
        (_, Some(zero)) if *zero != 0 => format!("its zero point is {zero}, and this target takes codes with one of 0"),
        _ if !split.0.is_empty() => "it has columns that are split, and this target has none".to_owned(),
        _ => return None,
    };
    Some(why)
}

/// Lowers the layers whose input and weight are codes that the target multiplies. The others stay.
pub(super) fn lower(graph: &mut Graph) -> Result<usize, PassError> {
    let mut codes: HashMap<FakeQuantize, ValueId> = HashMap::new();
    let changed = graph.rewrite(|graph, node| {
        let like = graph.node(node).outputs[0];
        let layer = match &graph.node(node).op {
            Op::Linear(linear) => FusedLinear::new(linear),
            Op::FusedLinear(layer) => layer.clone(),
            op => {
                let op = op.clone();
                let rows = scaled_rows(graph, &op, like)?;
                return Ok::<_, PassError>(rows.map_or(Step::Keep, |rows| Step::Replace(vec![rows])));
            }
        };
        let Some((input, scale)) = input(graph, layer.x) else { return Ok(Step::Keep) };
        let matrix = Matrix::of(graph, &layer, scale).map_err(|e| PassError::of_weight(graph, layer.weight, e))?;
        let Some(matrix) = matrix else { return Ok(Step::Keep) };
        let x = match codes.get(&input) {
            Some(x) => *x,
            None => {
                let x = graph.part(Quantize { x: floats(graph, input.x), scale }, layer.x)?;
                *codes.entry(input).or_insert(x)
            }
        };
        let weight = graph.weight_like(matrix.codes, layer.weight);
        let scales = graph.weight_part(matrix.scales, layer.weight);
        let FusedLinear { bias, residual, activation, .. } = layer;
        let to = graph.ty(like).dtype;
        let layer = QuantizedLinear { x, weight, scales, bias, residual, to, activation };
        Ok(Step::Replace(vec![graph.emit(layer, like)?]))
    })?;
    graph.compact();
    Ok(changed)
}

/// How a value is quantized, and its scale, where it is to codes that the target multiplies.
fn input(graph: &Graph, x: ValueId) -> Option<(FakeQuantize, Real)> {
    let Op::FakeQuantize(quantize) = &graph.producer(x)?.op else { return None };
    let scale = quantize.scale.filter(|_| unfit(quantize).is_none())?;
    Some((quantize.clone(), scale))
}

/// The floats of a half type that a value was cast from: they have the same codes.
fn floats(graph: &Graph, x: ValueId) -> ValueId {
    match graph.producer(x).map(|node| &node.op) {
        Some(Op::Cast(Cast { x: half, to: DType::F32 }))
            if matches!(graph.ty(*half).dtype, DType::F16 | DType::Bf16) =>
        {
            *half
        }
        _ => x,
    }
}

/// The weight of a layer of codes.
struct Matrix {
    /// [out, in].
    codes: Weight,
    /// What sums of products of codes are multiplied by, f32, `[out]`.
    scales: Weight,
}

impl Matrix {
    /// That of a layer whose input has a scale; `None` where the target does not multiply the codes.
    fn of(graph: &Graph, layer: &FusedLinear, scale: Real) -> Result<Option<Self>, WeightError> {
        let Some(weight) = graph.weight(layer.weight).and_then(Weight::as_dequantized) else { return Ok(None) };
        let Dequantized { codes, scales, zero_points, channels } = weight;
        let by_feature = scales.shape().is_empty() || channels == Channels::Axis(usize::from(layer.transposed.0));
        let codes = if layer.transposed.0 { codes.transpose(&[1, 0]) } else { Some(codes) };
        let Some(codes) = codes.filter(|codes| codes.dtype() == DType::I8 && by_feature) else { return Ok(None) };
        let [out, size] = *codes.shape() else { return Ok(None) };
        let fits = out.is_multiple_of(MULTIPLE) && size.is_multiple_of(MULTIPLE) && size <= QuantizedLinear::MAX_IN;
        let Some(scales) = exact(&scales).filter(|_| fits && size > 0) else { return Ok(None) };
        if let Some(zeros) = zero_points
            && zeros.read_numbers()?.iter().any(|zero| *zero != 0.0)
        {
            return Ok(None);
        }
        let own = scales.read_numbers()?;
        #[allow(clippy::cast_possible_truncation, reason = "scales are computed in f32")]
        let factor = |own: &f64| f64::from(*own as f32 * scale.0 as f32);
        let factors: Vec<f64> = own.iter().map(factor).cycle().take(out).collect();
        let scales = Weight::numbers(DType::F32, vec![out], &factors);
        Ok(scales.map(|scales| Self { codes, scales }))
    }
}

/// Scales as they were before they were cast with the weight that they are of.
fn exact(scales: &Weight) -> Option<Weight> {
    match scales.expr() {
        WeightExpr::Cast(of) if of.dtype() == DType::F32 => exact(of),
        _ => scales.map(&mut exact),
    }
}
