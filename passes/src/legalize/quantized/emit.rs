//! The operators that compute with codes.

use planish_ir::ops::{
    Binary, BinaryKind, Concat, FakeQuantize, Flag, Foreign, Gather, InnerOperators, Linear, MatMul, Results, Setting,
    Settings, Slice, Text,
};
use planish_ir::weight::{Channels, code_range};
use planish_ir::{BuildError, DType, Dim, Graph, Rewriter, TensorType, Value, ValueId, Weight};

use super::weights::channel_settings;
use super::{Coded, Lowering, Matrix, added_columns, first_opset};
use crate::PassError;
use crate::build::Builder;
use crate::legalize::dim;

/// The domain of ONNX Runtime's own operators.
pub(crate) const MICROSOFT: &str = "com.microsoft";

/// The opset whose QuantizeLinear and DequantizeLinear are emitted where they have the types; their forms of later opsets
/// take the same.
const QUANTIZE_OPSET: u32 = 19;

/// The last opset whose QuantizeLinear and DequantizeLinear ONNX Runtime's CPU provider has kernels for: 1.32 has none for
/// those of opset 28.
pub const LAST_WITH_QUANTIZE_KERNELS: u32 = 27;

/// One scale for all.
const WHOLE: Channels = Channels::Axis(0);

/// The first opset whose DequantizeLinear has a scale for each block.
const BLOCKS_OPSET: u32 = 21;

/// Attributes with whole numbers.
pub(in crate::legalize) fn attributes<N: TryInto<i64>>(
    named: impl IntoIterator<Item = (&'static str, N)>,
) -> Vec<(String, Setting)> {
    let one = |(name, value): (&str, N)| Some((name.to_owned(), Setting::Int(value.try_into().ok()?)));
    named.into_iter().filter_map(one).collect()
}

/// An operator of ONNX with results of these types.
pub(in crate::legalize) fn foreign(
    l: &mut Builder<'_, '_>,
    (domain, op, version): (&str, &str, usize),
    inputs: Vec<Option<ValueId>>,
    settings: Vec<(String, Setting)>,
    results: Vec<TensorType>,
) -> Result<Vec<ValueId>, BuildError> {
    l.emit_all(Foreign {
        inputs,
        captured: Vec::new(),
        domain: Text(domain.to_owned()),
        op: Text(op.to_owned()),
        version,
        settings: Settings(settings),
        captures: Vec::new(),
        inner: InnerOperators(Vec::new()),
        results: Results(results.into_iter().map(|ty| Some(ty.into())).collect()),
    })
}

/// An operator of ONNX itself.
pub(in crate::legalize) fn standard(op: &str, version: usize) -> (&str, &str, usize) {
    (Foreign::STANDARD, op, version)
}

/// The first opset whose QuantizeLinear and DequantizeLinear have codes of a type for floats of a type, with such scales.
#[must_use]
pub fn opset_of_codes(floats: DType, codes: DType, channels: Channels) -> u32 {
    first_opset(floats, codes).max(if matches!(channels, Channels::Blocks { .. }) { BLOCKS_OPSET } else { 0 })
}

impl Lowering {
    /// `QuantizeLinear` or `DequantizeLinear` for codes of a type, in the form of the opset that the graph is written for;
    /// `like` is what is quantized.
    pub(super) fn operator<'a>(
        &self,
        graph: &Graph,
        like: ValueId,
        op: &'a str,
        [codes, floats]: [DType; 2],
        channels: Channels,
    ) -> Result<(&'a str, &'a str, usize), PassError> {
        let blocks = matches!(channels, Channels::Blocks { .. });
        let needed = opset_of_codes(floats, codes, channels);
        let newest = if self.microsoft { LAST_WITH_QUANTIZE_KERNELS } else { u32::MAX };
        if (needed..=newest).contains(&self.opset) {
            let version = needed.max(self.opset.min(QUANTIZE_OPSET));
            return Ok(standard(op, usize::try_from(version).unwrap_or(usize::MAX)));
        }
        // Those of ONNX Runtime take them at any opset, and have no scales for blocks.
        let named = matches!(codes, DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::U4 | DType::I4);
        if self.microsoft && !blocks && named {
            return Ok((MICROSOFT, op, 1));
        }
        let Value { name, origin, .. } = graph.value(like);
        let (name, origin, opset) = (name.clone(), origin.clone(), self.opset);
        Err(PassError::QuantizedOpset { name, origin, floats, codes, opsets: needed..=newest, opset })
    }

    /// The numbers that the codes of a value stand for, through QuantizeLinear and DequantizeLinear, with those of the
    /// columns after.
    pub(super) fn pair(
        &mut self,
        graph: &mut Rewriter<'_>,
        quantize: &FakeQuantize,
        like: ValueId,
    ) -> Result<ValueId, PassError> {
        if let Some(numbers) = self.wide.get(quantize) {
            return Ok(*numbers);
        }
        let coded = self.coded(graph, quantize, like)?;
        let mut l = Builder::at(graph, like);
        let ty = TensorType::new(l.graph.ty(coded.scale).dtype, l.graph.ty(coded.codes).shape.clone());
        let inputs = vec![Some(coded.codes), Some(coded.scale), Some(coded.zero_point)];
        let operator = self.operator(l.graph, like, "DequantizeLinear", [quantize.to, ty.dtype], WHOLE)?;
        let numbers = foreign(&mut l, operator, inputs, Vec::new(), vec![ty])?[0];
        self.wide.insert(quantize.clone(), numbers);
        Ok(numbers)
    }

    /// The codes of a value, with those of the columns after.
    pub(super) fn coded(
        &mut self,
        graph: &mut Rewriter<'_>,
        quantize: &FakeQuantize,
        like: ValueId,
    ) -> Result<Coded, PassError> {
        if let Some(coded) = self.codes.get(quantize) {
            return Ok(*coded);
        }
        let l = &mut Builder::at(graph, like);
        let coded = match quantize.scale {
            Some(scale) => self.fixed(l, quantize, scale.0)?,
            None => dynamic(l, quantize)?,
        };
        self.codes.insert(quantize.clone(), coded);
        Ok(coded)
    }

    /// Codes with a scale that is known.
    fn fixed(&self, l: &mut Builder<'_, '_>, quantize: &FakeQuantize, scale: f64) -> Result<Coded, PassError> {
        let mut coded = self.columns(l, quantize, scale)?;
        let zero = quantize.zero_point.unwrap_or(0);
        let (least, largest) = code_range(quantize.to).unwrap_or((0, 0));
        let range = ((least - zero) as f64 * scale, (largest - zero) as f64 * scale);
        if let Some(rest) = beyond(l, quantize, range)? {
            let rest = self.quantized(l, quantize, rest, coded.scale, coded.zero_point)?;
            let axis = l.graph.ty(rest).shape.rank() - 1;
            coded.codes = l.emit(Concat { parts: vec![coded.codes, rest], axis })?;
        }
        Ok(coded)
    }

    /// The codes of the columns, with a scale that is known and nothing after them.
    pub(super) fn columns(
        &self,
        l: &mut Builder<'_, '_>,
        quantize: &FakeQuantize,
        scale: f64,
    ) -> Result<Coded, PassError> {
        let dtype = l.graph.ty(quantize.x).dtype;
        let scale = l.graph.weight_part(Weight::scalar(dtype, scale), l.like);
        let zero = quantize.zero_point.unwrap_or(0);
        let zero_point = l.graph.weight_part(Weight::scalar(quantize.to, zero as f64), l.like);
        Ok(Coded { codes: self.quantized(l, quantize, quantize.x, scale, zero_point)?, scale, zero_point })
    }

    fn quantized(
        &self,
        l: &mut Builder<'_, '_>,
        quantize: &FakeQuantize,
        x: ValueId,
        scale: ValueId,
        zero_point: ValueId,
    ) -> Result<ValueId, PassError> {
        let TensorType { dtype, shape } = l.graph.ty(x).clone();
        let operator = self.operator(l.graph, quantize.x, "QuantizeLinear", [quantize.to, dtype], WHOLE)?;
        let inputs = vec![Some(x), Some(scale), Some(zero_point)];
        Ok(foreign(l, operator, inputs, Vec::new(), vec![TensorType::new(quantize.to, shape)])?[0])
    }

    /// A product of integers, with the bias.
    pub(super) fn integer_product(
        &mut self,
        graph: &mut Rewriter<'_>,
        input: &FakeQuantize,
        matrix: &Matrix,
        linear: &Linear,
        like: ValueId,
    ) -> Result<ValueId, PassError> {
        let result = graph.ty(like).clone();
        if input.scale.is_none() && self.is_alone(linear.x) {
            let x = with_parts(&mut Builder::at(graph, like), input)?;
            let l = &mut Builder::at(graph, like);
            let (codes, scales, zeros) = weights(l, matrix, linear.weight);
            let inputs = vec![Some(x), Some(codes), Some(scales), zeros, linear.bias];
            return Ok(foreign(l, (MICROSOFT, "DynamicQuantizeMatMul", 1), inputs, Vec::new(), vec![result])?[0]);
        }
        let ahead = match self.ahead(graph, input)? {
            Some(ahead) => ahead.bias(graph, input, matrix, linear, like)?.map(|bias| (ahead.coded, Some(bias))),
            None => None,
        };
        let (coded, bias) = match ahead {
            Some(found) => found,
            None => (self.codes_at(graph, linear.x, input)?, linear.bias),
        };
        let l = &mut Builder::at(graph, like);
        let (codes, scales, zeros) = weights(l, matrix, linear.weight);
        let inputs =
            vec![Some(coded.codes), Some(codes), Some(coded.scale), Some(scales), Some(coded.zero_point), zeros, bias];
        Ok(foreign(l, (MICROSOFT, "MatMulIntegerToFloat", 1), inputs, Vec::new(), vec![result])?[0])
    }

    /// Whether one layer takes a value.
    fn is_alone(&self, value: ValueId) -> bool {
        self.layers.get(&value) == Some(&1)
    }

    /// A product of the numbers that codes stand for, plus the bias.
    pub(super) fn product_of_numbers(
        &mut self,
        graph: &mut Rewriter<'_>,
        input: Option<&FakeQuantize>,
        matrix: &Matrix,
        linear: &Linear,
        like: ValueId,
    ) -> Result<ValueId, PassError> {
        let a = match input {
            Some(input) => self.pair(graph, input, linear.x)?,
            None => linear.x,
        };
        let shared = self.shared_numbers(graph, matrix, linear)?;
        let l = &mut Builder::at(graph, like);
        let b = match shared {
            Some(numbers) => l.transpose(numbers, &[1, 0])?,
            None => self.own_numbers(l, matrix, linear.weight)?,
        };
        let one_row = l.graph.ty(a).shape.rank() == 1;
        if one_row {
            let linear = Linear { x: a, weight: b, bias: linear.bias, transposed: Flag(true) };
            return Ok(l.emit(linear)?);
        }
        let product = l.emit(MatMul { a, b })?;
        Ok(match linear.bias {
            Some(bias) if l.graph.ty(product).shape.rank() == 2 => {
                // ONNX Runtime joins a product and a vector to one Gemm, whose weight it quantizes. It leaves a row.
                let row = l.reshape(bias, [Dim::constant(1), l.graph.ty(bias).shape[0].clone()])?;
                l.binary(BinaryKind::Add, product, row)?
            }
            Some(bias) => l.binary(BinaryKind::Add, product, bias)?,
            None => product,
        })
    }

    /// The numbers of a matrix, [in, out], by a DequantizeLinear of its own.
    fn own_numbers(&self, l: &mut Builder<'_, '_>, matrix: &Matrix, weight: ValueId) -> Result<ValueId, PassError> {
        let shape = matrix.codes.shape().iter().map(|size| dim(*size));
        let floats = matrix.scales.dtype();
        let numbers = TensorType::new(floats, planish_ir::Shape::new(shape));
        let (codes, scales, zeros) = weights(l, matrix, weight);
        let zeros = match zeros {
            None if matches!(matrix.channels, Channels::Axis(_)) => Some(zero_points(l, matrix, weight)),
            zeros => zeros,
        };
        let inputs = vec![Some(codes), Some(scales), zeros];
        let types = [matrix.codes.dtype(), floats];
        let operator = self.operator(l.graph, weight, "DequantizeLinear", types, matrix.channels)?;
        Ok(foreign(l, operator, inputs, channel_settings(matrix.channels), vec![numbers])?[0])
    }
}

/// The codes, the scales and the zero points of a matrix.
fn weights(l: &mut Builder<'_, '_>, matrix: &Matrix, weight: ValueId) -> (ValueId, ValueId, Option<ValueId>) {
    let codes = l.graph.weight_like(matrix.codes.clone(), weight);
    let scales = l.graph.weight_part(matrix.scales.clone(), weight);
    let zeros = matrix.zero_points.clone().map(|zeros| l.graph.weight_part(zeros, weight));
    (codes, scales, zeros)
}

/// Zero points of 0, which say of which type the codes are.
fn zero_points(l: &mut Builder<'_, '_>, matrix: &Matrix, weight: ValueId) -> ValueId {
    let zeros = vec![0.0; matrix.scales.elements()];
    let shape = matrix.scales.shape().to_vec();
    let zeros = Weight::numbers(matrix.codes.dtype(), shape, &zeros);
    l.graph.weight_part(zeros.unwrap_or_else(|| Weight::scalar(matrix.codes.dtype(), 0.0)), weight)
}

/// Codes with the scale of the elements.
fn dynamic(l: &mut Builder<'_, '_>, quantize: &FakeQuantize) -> Result<Coded, BuildError> {
    let x = with_parts(l, quantize)?;
    let shape = l.graph.ty(x).shape.clone();
    let scalar = |dtype| TensorType::new(dtype, planish_ir::Shape::new([]));
    let types = vec![TensorType::new(DType::U8, shape), scalar(DType::F32), scalar(DType::U8)];
    let results = foreign(l, standard("DynamicQuantizeLinear", 11), vec![Some(x)], Vec::new(), types)?;
    Ok(Coded { codes: results[0], scale: results[1], zero_point: results[2] })
}

/// The columns of an input, limited where they are split, and what they exceed the limit by after them.
fn with_parts(l: &mut Builder<'_, '_>, quantize: &FakeQuantize) -> Result<ValueId, BuildError> {
    let Some(limit) = quantize.limit else { return Ok(quantize.x) };
    let Some(rest) = beyond(l, quantize, (-limit.0, limit.0))? else { return Ok(quantize.x) };
    let columns = l.graph.ty(quantize.x).shape.last().and_then(Dim::as_constant).unwrap_or(0);
    let bound = |sign: f64| -> Vec<f64> {
        let mut bounds = vec![sign * f64::from(f32::MAX); usize::try_from(columns).unwrap_or(0)];
        quantize.split.0.iter().for_each(|column| bounds[*column] = sign * limit.0);
        bounds
    };
    let first = clip(l, quantize.x, &bound(-1.0), &bound(1.0))?;
    let axis = l.graph.ty(first).shape.rank() - 1;
    l.emit(Concat { parts: vec![first, rest], axis })
}

/// What the columns that are split exceed the range by, for each of the columns after: what is left of it after the
/// columns of codes before. With a limit, each but the last takes no more than the limit. `None` where nothing is split.
fn beyond(
    l: &mut Builder<'_, '_>,
    quantize: &FakeQuantize,
    (low, high): (f64, f64),
) -> Result<Option<ValueId>, BuildError> {
    let parts: Vec<(usize, usize)> = added_columns(&quantize.split.0).collect();
    if parts.is_empty() {
        return Ok(None);
    }
    let columns: Vec<usize> = parts.iter().map(|(column, _)| *column).collect();
    let x = taken(l, quantize.x, &columns)?;
    let times = |bound: f64| -> Vec<f64> { parts.iter().map(|(_, before)| bound * *before as f64).collect() };
    let before = clip(l, x, &times(low), &times(high))?;
    let rest = l.binary(BinaryKind::Sub, x, before)?;
    let is_last = |(column, before): &(usize, usize)| quantize.split.count(*column) == *before;
    if quantize.limit.is_none() || parts.iter().all(is_last) {
        return Ok(Some(rest));
    }
    let bound = |bound: f64, end: f64| -> Vec<f64> {
        parts.iter().map(|part| if is_last(part) { end } else { bound }).collect()
    };
    let (least, largest) = (f64::from(f32::MIN), f64::from(f32::MAX));
    clip(l, rest, &bound(low, least), &bound(high, largest)).map(Some)
}

/// Some columns of a value, in this order.
fn taken(l: &mut Builder<'_, '_>, x: ValueId, columns: &[usize]) -> Result<ValueId, BuildError> {
    let axis = l.graph.ty(x).shape.rank() - 1;
    let first = columns.first().copied().unwrap_or(0);
    if columns.iter().copied().eq(first..first + columns.len()) {
        return l.emit(Slice { x, axis, start: dim(first), end: dim(first + columns.len()) });
    }
    let indices: Vec<i64> = columns.iter().filter_map(|column| i64::try_from(*column).ok()).collect();
    let indices = l.graph.weight_part(Weight::integers(&indices), l.like);
    l.emit(Gather { x, indices, axis })
}

/// A value limited by bounds for each column.
fn clip(l: &mut Builder<'_, '_>, x: ValueId, low: &[f64], high: &[f64]) -> Result<ValueId, BuildError> {
    let dtype = l.graph.ty(x).dtype;
    let limited = |l: &mut Builder<'_, '_>, kind, x, bounds: &[f64]| -> Result<ValueId, BuildError> {
        let same = bounds.iter().all(|bound| *bound == bounds[0]);
        let shape = if same { Vec::new() } else { vec![bounds.len()] };
        let numbers = if same { &bounds[..1] } else { bounds };
        let Some(bounds) = Weight::numbers(dtype, shape, numbers) else { return Ok(x) };
        let b = l.graph.weight_part(bounds, l.like);
        l.emit(Binary { kind, a: x, b })
    };
    let above = limited(l, BinaryKind::Max, x, low)?;
    limited(l, BinaryKind::Min, above, high)
}
