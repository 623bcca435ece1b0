//! Columns after an activation, computed by the layer that gives the activation.

use planish_ir::ops::{Concat, FakeQuantize, Foreign, Gelu, Linear, Setting, Unary, UnaryKind};
use planish_ir::weight::WeightError;
use planish_ir::{DType, Op, Rewriter, TensorType, ValueId, Weight};

use super::emit::{MICROSOFT, foreign};
use super::{Coded, Lowering, Matrix, added_columns};
use crate::build::Builder;
use crate::legalize::dim;
use crate::{PassError, QuantizedForm};

/// Codes with columns after them that are never less than 0.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    /// The codes, and after them those of the columns that are split, whose code of 0 is 0.
    pub(super) coded: Coded,
    /// What an element after stands for more than its code, if the zero point of the others is taken off.
    shift: f64,
}

/// A product of integers, whose weight and scales are known.
struct Product {
    codes: ValueId,
    scale: ValueId,
    zero_point: ValueId,
    /// What a code of 1 of the input stands for.
    input: f64,
    weight: Weight,
    /// For each feature.
    scales: Vec<f64>,
    bias: Vec<f64>,
}

impl Lowering {
    /// The codes of the activation of a product of integers. For large elements, the activation returns its operand: what
    /// the columns that are split exceed the range by is the product, less a constant. An operator with integers as results
    /// computes these columns of the product once more, instead of gathering them, limiting and quantizing them.
    pub(super) fn ahead(
        &mut self,
        graph: &mut Rewriter<'_>,
        quantize: &FakeQuantize,
    ) -> Result<Option<Ahead>, PassError> {
        if let Some(known) = self.ahead.get(quantize) {
            return Ok(*known);
        }
        let found = self.columns_ahead(graph, quantize)?;
        self.ahead.insert(quantize.clone(), found);
        Ok(found)
    }

    fn columns_ahead(&mut self, graph: &mut Rewriter<'_>, quantize: &FakeQuantize) -> Result<Option<Ahead>, PassError> {
        let (Some(scale), DType::U8, false) = (quantize.scale, quantize.to, quantize.split.0.is_empty()) else {
            return Ok(None);
        };
        let (scale, zero) = (scale.0, quantize.zero_point.unwrap_or(0));
        let largest = 255 - zero;
        let at = quantize.x;
        let operand = graph.producer(at).and_then(|node| operand(&node.op, [zero, largest], scale));
        let Some(before) = operand.filter(|_| self.form == QuantizedForm::IntegerProducts) else { return Ok(None) };
        let read = |source| PassError::of_weight(graph, at, source);
        let Some(product) = Product::of(graph, before).map_err(read)? else { return Ok(None) };
        let parts: Vec<(usize, usize)> = added_columns(&quantize.split.0).collect();
        let columns: Vec<usize> = parts.iter().map(|(column, _)| *column).collect();
        let units: Vec<f64> = columns.iter().map(|column| product.input * product.scales[*column]).collect();
        // Codes after have the range of u8, those before them what the zero point leaves of it.
        let start = |before: usize| (largest as f64 + 255.0 * (before - 1) as f64) * scale;
        let offsets = parts
            .iter()
            .zip(&units)
            .map(|((column, before), unit)| ((product.bias[*column] - start(*before)) / unit).round_ties_even());
        let offsets: Vec<f64> = offsets.collect();
        let held = |offset: &f64| (f64::from(i32::MIN / 2)..f64::from(i32::MAX / 2)).contains(offset);
        let Some(weight) = product.weight.gather(1, &columns).filter(|_| offsets.iter().all(held)) else {
            return Ok(None);
        };

        let vector = |dtype, values: &[f64]| Weight::numbers(dtype, vec![values.len()], values);
        let scales: Vec<f64> = columns.iter().map(|column| product.scales[*column]).collect();
        let zeros = vec![0.0; columns.len()];
        let parts = [vector(DType::F32, &scales), vector(DType::I8, &zeros), vector(DType::I32, &offsets)];
        let [Some(scales), Some(zeros), Some(offsets)] = parts else { return Ok(None) };
        let mut coded = self.columns(&mut Builder::at(graph, at), quantize, scale)?;
        let l = &mut Builder::at(graph, at);
        let [weight, scales, zeros, offsets] = [weight, scales, zeros, offsets].map(|w| l.graph.weight_part(w, at));
        let none = l.graph.weight_part(Weight::scalar(DType::U8, 0.0), at);
        let inputs =
            [product.codes, product.scale, product.zero_point, weight, scales, zeros, offsets, coded.scale, none];
        let width = l.graph.ty(coded.codes).shape.rank() - 1;
        let ty = TensorType::new(DType::U8, l.graph.ty(coded.codes).shape.with_dim(width, dim(columns.len())));
        let alpha = vec![("alpha".to_owned(), Setting::Float(planish_ir::ops::Real(1.0)))];
        let rest = foreign(l, (MICROSOFT, "QGemm", 1), inputs.map(Some).to_vec(), alpha, vec![ty])?[0];
        coded.codes = l.emit(Concat { parts: vec![coded.codes, rest], axis: width })?;
        Ok(Some(Ahead { coded, shift: zero as f64 * scale }))
    }
}

impl Ahead {
    /// The bias of a layer that takes such codes: the product takes the zero point off all of them.
    pub(super) fn bias(
        &self,
        graph: &mut Rewriter<'_>,
        quantize: &FakeQuantize,
        matrix: &Matrix,
        linear: &Linear,
        like: ValueId,
    ) -> Result<Option<ValueId>, PassError> {
        let read = |graph: &Rewriter<'_>, source| PassError::of_weight(graph, linear.weight, source);
        let shape = matrix.codes.shape().to_vec();
        let rows: Vec<usize> = (shape[0] - quantize.split.0.len()..shape[0]).collect();
        let Some(codes) = matrix.codes.gather(0, &rows) else { return Ok(None) };
        let codes = codes.read_numbers().map_err(|source| read(graph, source))?;
        let scales = matrix.scales.read_numbers().map_err(|source| read(graph, source))?;
        let zeros = match &matrix.zero_points {
            Some(zeros) => zeros.read_numbers().map_err(|source| read(graph, source))?,
            None => vec![0.0],
        };
        let own = match linear.bias.map(|bias| graph.weight(bias)) {
            None => vec![0.0; shape[1]],
            Some(Some(bias)) => bias.read_numbers().map_err(|source| read(graph, source))?,
            Some(None) => return Ok(None),
        };
        let of = |numbers: &[f64], feature: usize| numbers[if numbers.len() == 1 { 0 } else { feature }];
        let biases: Vec<f64> = (0..shape[1])
            .map(|feature| {
                let sum: f64 =
                    codes.iter().skip(feature).step_by(shape[1]).map(|code| code - of(&zeros, feature)).sum();
                own[feature] + self.shift * sum * of(&scales, feature)
            })
            .collect();
        let biases = Weight::numbers(DType::F32, vec![biases.len()], &biases);
        Ok(biases.map(|biases| match linear.bias {
            Some(bias) => graph.weight_like(biases, bias),
            None => graph.weight_part(biases, like),
        }))
    }
}

/// The least result of Gelu, with either formula.
pub(in crate::legalize) const LEAST_OF_GELU: f64 = -0.1701;

/// The operand of an activation whose results have codes of at least `-below`, and which returns its operand where that
/// has a code of `above` or more, to within a quarter of a code of 1, which stands for `unit`.
fn operand(op: &Op, [below, above]: [i64; 2], unit: f64) -> Option<ValueId> {
    let start = above as f64 * unit;
    match op {
        Op::Unary(Unary { kind: UnaryKind::Relu, x }) => Some(*x),
        // What is missing is less than the density of the normal distribution, with either formula.
        Op::Gelu(Gelu { x, .. }) => {
            let missing = (-start * start / 2.0).exp() / std::f64::consts::TAU.sqrt();
            let held = (LEAST_OF_GELU / unit).round_ties_even() >= -(below as f64);
            (held && start > 0.0 && missing <= unit / 4.0).then_some(*x)
        }
        _ => None,
    }
}

impl Product {
    /// The product of integers that gives a matrix.
    fn of(graph: &Rewriter<'_>, value: ValueId) -> Result<Option<Self>, WeightError> {
        let Some(Op::Foreign(Foreign { domain, op, inputs, .. })) = graph.producer(value).map(|node| &node.op) else {
            return Ok(None);
        };
        let is_product = domain.0 == MICROSOFT && op.0 == "MatMulIntegerToFloat";
        let [Some(codes), Some(weight), Some(scale), Some(scales), Some(zero_point), None, bias] = inputs[..] else {
            return Ok(None);
        };
        let known = |value: ValueId| graph.weight(value);
        let (Some(weight), Some(input), Some(scales)) = (known(weight), graph.number(scale), known(scales)) else {
            return Ok(None);
        };
        let features = weight.shape().last().copied().unwrap_or(0);
        let fits = weight.dtype() == DType::I8
            && scales.elements() == features
            && graph.ty(codes).dtype == DType::U8
            && graph.ty(codes).shape.rank() == 2
            && known(zero_point).is_some();
        let bias = match bias.map(known) {
            None => vec![0.0; features],
            Some(Some(bias)) => bias.read_numbers()?,
            Some(None) => return Ok(None),
        };
        let weight = weight.clone();
        let scales = scales.read_numbers()?;
        Ok((is_product && fits).then_some(Self { codes, scale, zero_point, input, weight, scales, bias }))
    }
}
