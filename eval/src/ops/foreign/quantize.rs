//! Quantization, and products of quantized tensors.

use planish_ir::{DType, Type, Weight};

use super::convolution::convolve;
use super::{Maybe, Node, indices, integers, of_integers, of_numbers, one, position};
use crate::strided::{broadcast, walk};
use crate::{Data, Tensor};

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "QuantizeLinear" => {
            let (x, scale) = (node.operand(0)?, node.operand(1)?);
            let ty = node.op.results.0.first().and_then(Option::as_ref);
            let dtype = ty.and_then(Type::dtype).ok_or("it has no result")?;
            let part = parts(node, x, scale)?;
            let scales = scale.to_f64();
            if Data::of(dtype).is_some_and(DType::is_float) {
                // Codes of floats are held as numbers, and have no zero point but 0.
                let scaled =
                    x.to_f64().into_iter().enumerate().map(|(i, v)| f64::from(v as f32 / scales[part[i]] as f32));
                let codes = Weight::numbers(dtype, x.shape().to_vec(), &scaled.collect::<Vec<_>>());
                let codes = codes.ok_or("it has too many elements")?;
                return one(Tensor::from_weight(&codes).map_err(|error| error.to_string())?);
            }
            let zero = node.optional(2).map(integers).transpose()?;
            let (low, high) = bounds(dtype)?;
            let values = x.to_f64().into_iter().enumerate().map(|(i, v)| {
                let zero = zero.as_ref().map_or(0, |z| z[part[i]]);
                // The quotient is rounded as the operands are.
                let quotient = (v as f32 / scales[part[i]] as f32).round_ties_even();
                (quotient as i128).saturating_add(zero).clamp(low, high)
            });
            one(of_integers(Data::of(dtype).unwrap_or(dtype), x.shape().to_vec(), &values.collect::<Vec<_>>())?)
        }
        "DequantizeLinear" => {
            let (x, scale) = (node.operand(0)?, node.operand(1)?);
            let part = parts(node, x, scale)?;
            let scales = scale.to_f64();
            // Elements of float8 are held as numbers, and have no zero point but 0.
            let values = match x.dtype().is_float() {
                true => x.to_f64().into_iter().enumerate().map(|(i, v)| v * scales[part[i]]).collect(),
                false => {
                    let zero = node.optional(2).map(integers).transpose()?;
                    let value =
                        |(i, v): (usize, i128)| (v - zero.as_ref().map_or(0, |z| z[part[i]])) as f64 * scales[part[i]];
                    integers(x)?.into_iter().enumerate().map(value).collect::<Vec<_>>()
                }
            };
            let dtype = node.op.results.0.iter().flatten().find_map(planish_ir::Type::dtype).unwrap_or(scale.dtype());
            one(of_numbers(dtype, x.shape(), &values)?)
        }
        "DynamicQuantizeLinear" => {
            let x = node.operand(0)?;
            let Dynamic { codes, scale, zero } = Dynamic::of(&x.to_f64());
            Ok(Some(vec![
                of_integers(DType::U8, x.shape().to_vec(), &codes)?,
                of_numbers(DType::F32, &[], &[scale.into()])?,
                of_integers(DType::U8, Vec::new(), &[zero])?,
            ]))
        }
        "MatMulInteger" => {
            let (a, b) = (node.operand(0)?, node.operand(1)?);
            let (shape, sums) = product(node, a, node.optional(2), b, node.optional(3))?;
            one(of_integers(DType::I32, shape, &sums)?)
        }
        "QLinearMatMul" => {
            let (a, b) = (node.operand(0)?, node.operand(3)?);
            let (shape, sums) = product(node, a, node.optional(2), b, node.optional(5))?;
            let first = |i: usize| -> Result<f64, String> {
                node.operand(i)?.to_f64().first().copied().ok_or_else(|| format!("operand {i} is empty"))
            };
            // One scale for all columns of the second operand, or one for each.
            let (columns, scales) = (shape.last().copied().unwrap_or(1), node.operand(4)?.to_f64());
            if ![1, columns].contains(&scales.len()) {
                return Err(format!("{} scales do not fit {columns} columns", scales.len()).into());
            }
            let (factor, zero) = (first(1)? / first(6)?, first(7)?);
            let of_column = |i: usize| scales[if scales.len() == 1 { 0 } else { i % columns }];
            let dtype = node.operand(7)?.dtype();
            let (low, high) = bounds(dtype)?;
            let scaled = |(i, sum): (usize, &i128)| (*sum as f64 * factor * of_column(i)).round_ties_even() + zero;
            let values = sums.iter().enumerate().map(|sum| scaled(sum) as i128);
            one(of_integers(dtype, shape, &values.map(|v| v.clamp(low, high)).collect::<Vec<_>>())?)
        }
        "QLinearConv" => one(convolution(node)?),
        _ => Ok(None),
    }
}

/// Numbers as codes of u8, with the scale of their range, 0 included.
pub(super) struct Dynamic {
    pub(super) codes: Vec<i128>,
    pub(super) scale: f32,
    pub(super) zero: i128,
}

impl Dynamic {
    /// In f32, as DynamicQuantizeLinear. The scale of zeros alone is 1, as ONNX Runtime has it. What is not a number takes
    /// no part in the range and has the code of 0.
    pub(super) fn of(values: &[f64]) -> Self {
        let low = values.iter().copied().fold(0.0, f64::min) as f32;
        let high = values.iter().copied().fold(0.0, f64::max) as f32;
        let scale = if low == high { 1.0 } else { (high - low) / 255.0 };
        let zero = (-low / scale).round_ties_even().clamp(0.0, 255.0);
        let code = |v: &f64| {
            let quotient = (*v as f32 / scale).round_ties_even();
            if quotient.is_nan() { zero as i128 } else { (quotient + zero).clamp(0.0, 255.0) as i128 }
        };
        Self { codes: values.iter().map(code).collect(), scale, zero: zero as i128 }
    }
}

/// A convolution of quantized tensors, with a scale for each filter.
fn convolution(node: &Node<'_>) -> Result<Tensor, String> {
    let (x, w) = (node.operand(0)?, node.operand(3)?);
    let filters = w.shape().first().copied().unwrap_or(0);
    // One number for all filters, or one for each.
    let each = |index: usize| -> Result<Vec<f64>, String> {
        match node.operand(index)?.to_f64() {
            one if one.len() == 1 => Ok(vec![one[0]; filters]),
            many if many.len() == filters => Ok(many),
            other => Err(format!("operand {index} has {} elements for {filters} filters", other.len())),
        }
    };
    let first = |i: usize| -> Result<f64, String> {
        node.operand(i)?.to_f64().first().copied().ok_or_else(|| format!("operand {i} is empty"))
    };
    let (zero, zeros, size) = (first(2)?, each(5)?, w.data().len() / filters.max(1));
    let values: Vec<f64> = x.to_f64().into_iter().map(|v| v - zero).collect();
    let weights: Vec<f64> = w.to_f64().into_iter().enumerate().map(|(i, v)| v - zeros[i / size.max(1)]).collect();
    let (shape, sums) = convolve(node, x, &values, w, &weights, node.optional(8))?;
    let (factor, scales, out_zero) = (first(1)? / first(6)?, each(4)?, first(7)?);
    let dtype = node.operand(7)?.dtype();
    let (low, high) = bounds(dtype)?;
    let area: usize = shape[2..].iter().product();
    let values = sums.into_iter().enumerate().map(|(i, sum)| {
        let scale = scales[i / area.max(1) % filters];
        ((sum * factor * scale).round_ties_even() + out_zero) as i128
    });
    of_integers(dtype, shape, &values.map(|v| v.clamp(low, high)).collect::<Vec<_>>())
}

fn bounds(dtype: DType) -> Result<(i128, i128), String> {
    let bits = dtype.bits();
    match Data::of(dtype) {
        Some(held) if held.is_unsigned() => Ok((0, (1 << bits) - 1)),
        Some(held) if held.is_integer() => Ok((-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
        _ => Err(format!("it quantizes to {dtype}")),
    }
}

/// Which element of the scale belongs to each element: one for all, one along an axis, or one for a block.
fn parts(node: &Node<'_>, x: &Tensor, scale: &Tensor) -> Result<Vec<usize>, String> {
    if let Some(zero) = node.optional(2).filter(|zero| zero.data().len() != scale.data().len()) {
        return Err(format!("a zero point of {} does not fit a scale of {}", zero.ty(), scale.ty()));
    }
    if scale.data().len() == 1 {
        return Ok(vec![0; x.data().len()]);
    }
    let a = node.axis("axis", 1, x.shape().len())?;
    let block = usize::try_from(node.int("block_size", 0)).unwrap_or(0);
    let part = |mut index: Vec<usize>| match block {
        0 => index[a],
        _ => {
            index[a] /= block;
            position(&index, scale.shape())
        }
    };
    let parts: Vec<usize> = indices(x.shape()).map(part).collect();
    match parts.iter().all(|&p| p < scale.data().len()) {
        true => Ok(parts),
        false => Err(format!("a scale of {} does not fit {}", scale.ty(), x.ty())),
    }
}

/// A product of matrices of integers, less their zero points. As in MatMul, a vector on the left is a matrix of one row,
/// and one on the right a matrix of one column, which the result then has not.
pub(super) fn product(
    node: &Node<'_>,
    a: &Tensor,
    zero_a: Option<&Tensor>,
    b: &Tensor,
    zero_b: Option<&Tensor>,
) -> Result<(Vec<usize>, Vec<i128>), String> {
    let (row, column) = (a.shape().len() == 1, b.shape().len() == 1);
    let left = if row { [&[1], a.shape()].concat() } else { a.shape().to_vec() };
    let right = if column { [b.shape(), &[1]].concat() } else { b.shape().to_vec() };
    let ([outer_a @ .., m, k], [outer_b @ .., rows, n]) = (&left[..], &right[..]) else {
        return Err(format!("{} and {} are not matrices", a.ty(), b.ty()));
    };
    if k != rows {
        return Err(format!("{} and {} do not fit each other", a.ty(), b.ty()));
    }
    let zeros = |zero: Option<&Tensor>| zero.map_or_else(|| Ok(vec![0]), integers);
    let (zero_a, zero_b) = (zeros(zero_a)?, zeros(zero_b)?);
    let (x, y) = (integers(a)?, integers(b)?);
    let batch = super::arith::broadcast_shape(outer_a, outer_b)?;
    let kept = [(*m, row), (*n, column)].into_iter().filter(|(_, is_vector)| !is_vector).map(|(size, _)| size);
    let shape: Vec<usize> = batch.iter().copied().chain(kept).collect();
    let mut out = Vec::with_capacity(node.count(&shape)?);
    let of_row = |i: usize| zero_a[if zero_a.len() == *m { i } else { 0 }];
    let of_column = |j: usize| zero_b[if zero_b.len() == *n { j } else { 0 }];
    walk(&batch, [&broadcast(outer_a, &batch), &broadcast(outer_b, &batch)], |run| {
        for [p, q] in run.positions() {
            for (i, j) in (0..*m).flat_map(|i| (0..*n).map(move |j| (i, j))) {
                let one = |l: usize| (x[(p * m + i) * k + l] - of_row(i)) * (y[(q * k + l) * n + j] - of_column(j));
                out.push((0..*k).map(one).sum());
            }
        }
        Ok::<_, String>(())
    })?;
    Ok((shape, out))
}
