//! Normalizations, computed in `f64` and rounded once.

use planish_ir::DType;

use super::arith::broadcast_shape;
use super::{Maybe, Node, around, axes, indices, of_numbers, one, position};
use crate::Tensor;
use crate::strided::broadcast;

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "LayerNormalization" => layer_norm(node).map(Some),
        "RMSNormalization" => {
            let x = node.operand(0)?;
            let from = node.axis("axis", -1, x.shape().len())?;
            let (mut values, _, _) = normalized(x.to_f64(), x.shape(), from, node.float("epsilon", 1e-5), false);
            scale(&mut values, x.shape(), node.operand(1)?, |v, s| v * s)?;
            one(of_numbers(x.dtype(), x.shape(), &values)?)
        }
        "BatchNormalization" if node.int("training_mode", 0) == 0 => {
            let x = node.operand(0)?;
            let [gamma, beta, mean, variance] = parameters(node)?;
            let (eps, channels) = (node.float("epsilon", 1e-5), gamma.len());
            let (_, size, inner) = around(x.shape(), 1.min(x.shape().len().saturating_sub(1)));
            if size != channels {
                return Err(format!("{} does not have {channels} channels", x.ty()).into());
            }
            let channel = |i: usize| i / inner % size;
            let values = x.to_f64().into_iter().enumerate().map(|(i, v)| {
                let c = channel(i);
                (v - mean[c]) / (variance[c] + eps).sqrt() * gamma[c] + beta[c]
            });
            one(of_numbers(x.dtype(), x.shape(), &values.collect::<Vec<_>>())?)
        }
        "InstanceNormalization" => {
            let x = node.operand(0)?;
            one(grouped(x, x.shape().get(1).copied().unwrap_or(1), node)?)
        }
        "GroupNormalization" => {
            let groups = usize::try_from(node.int("num_groups", 1)).map_err(|_| "its num_groups is negative")?;
            one(grouped(node.operand(0)?, groups, node)?)
        }
        "LpNormalization" => {
            let x = node.operand(0)?;
            let a = node.axis("axis", -1, x.shape().len())?;
            let squared = node.int("p", 2) == 2;
            one(along(x, &[a], |row| {
                let norm = if squared {
                    row.iter().map(|v| v * v).sum::<f64>().sqrt()
                } else {
                    row.iter().map(|v| v.abs()).sum()
                };
                if norm != 0.0 {
                    row.iter_mut().for_each(|v| *v /= norm);
                }
            })?)
        }
        "MeanVarianceNormalization" => {
            let x = node.operand(0)?;
            let over = axes(Some(&node.ints("axes").unwrap_or_else(|| vec![0, 2, 3])), x.shape().len())?;
            one(along(x, &over, |row| standardize(row, 1e-9))?)
        }
        "LRN" => one(local_response(node)?),
        _ => Ok(None),
    }
}

fn parameters(node: &Node<'_>) -> Result<[Vec<f64>; 4], String> {
    let all = (1..5).map(|i| Ok(node.operand(i)?.to_f64())).collect::<Result<Vec<_>, String>>()?;
    all.try_into().map_err(|_| "it has four parameters".to_owned())
}

/// To mean 0 and variance 1; the two that it had.
fn standardize(row: &mut [f64], eps: f64) -> (f64, f64) {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    row.iter_mut().for_each(|v| *v -= mean);
    let inverse = 1.0 / (row.iter().map(|v| v * v).sum::<f64>() / n + eps).sqrt();
    row.iter_mut().for_each(|v| *v *= inverse);
    (mean, inverse)
}

/// All dimensions from one on normalized together: elements, means, inverse deviations.
pub(super) fn normalized(
    mut values: Vec<f64>,
    shape: &[usize],
    from: usize,
    eps: f64,
    centered: bool,
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let size: usize = shape[from..].iter().product();
    let (mut means, mut inverses) = (Vec::new(), Vec::new());
    for row in values.chunks_mut(size.max(1)) {
        if centered {
            let (mean, inverse) = standardize(row, eps);
            means.push(mean);
            inverses.push(inverse);
        } else {
            let square = row.iter().map(|v| v * v).sum::<f64>() / size as f64;
            row.iter_mut().for_each(|v| *v /= (square + eps).sqrt());
        }
    }
    (values, means, inverses)
}

/// Combines elements with those of a tensor that broadcasts to their shape.
///
/// # Errors
/// When it does not.
pub(super) fn scale(
    values: &mut [f64],
    shape: &[usize],
    other: &Tensor,
    f: impl Fn(f64, f64) -> f64,
) -> Result<(), String> {
    if broadcast_shape(shape, other.shape())? != shape {
        return Err(format!("{} does not broadcast to {shape:?}", other.ty()));
    }
    let (strides, by) = (broadcast(other.shape(), shape), other.to_f64());
    for (value, index) in values.iter_mut().zip(indices(shape)) {
        let at: usize = index.iter().zip(&strides).map(|(i, stride)| i * stride).sum();
        *value = f(*value, by[at]);
    }
    Ok(())
}

fn layer_norm(node: &Node<'_>) -> super::Results {
    let (x, weight) = (node.operand(0)?, node.operand(1)?);
    let from = node.axis("axis", -1, x.shape().len())?;
    let (mut values, means, inverses) = normalized(x.to_f64(), x.shape(), from, node.float("epsilon", 1e-5), true);
    scale(&mut values, x.shape(), weight, |v, s| v * s)?;
    if let Some(bias) = node.optional(2) {
        scale(&mut values, x.shape(), bias, |v, s| v + s)?;
    }
    let mut kept = x.shape().to_vec();
    kept[from..].fill(1);
    Ok(vec![
        of_numbers(x.dtype(), x.shape(), &values)?,
        of_numbers(DType::F32, &kept, &means)?,
        of_numbers(DType::F32, &kept, &inverses)?,
    ])
}

/// Groups of channels normalized, each channel with its factor and its addend, before opset 21 each group.
fn grouped(x: &Tensor, groups: usize, node: &Node<'_>) -> Result<Tensor, String> {
    let [batch, channels, spatial @ ..] = x.shape() else { return Err(format!("{} has no channels", x.ty())) };
    if groups == 0 || channels % groups != 0 {
        return Err(format!("{channels} channels are not {groups} groups"));
    }
    let (gamma, beta) = (node.operand(1)?.to_f64(), node.operand(2)?.to_f64());
    let inner: usize = spatial.iter().product();
    let size = channels / groups * inner;
    let mut values = x.to_f64();
    values.chunks_mut(size.max(1)).take(batch * groups).for_each(|row| {
        standardize(row, node.float("epsilon", 1e-5));
    });
    if gamma.is_empty() || channels % gamma.len() != 0 || beta.len() != gamma.len() {
        return Err(format!("{} factors and {} addends are none of {channels} channels", gamma.len(), beta.len()));
    }
    let per = channels / gamma.len();
    for (i, v) in values.iter_mut().enumerate() {
        let c = i / inner % channels / per.max(1);
        *v = *v * gamma[c] + beta[c];
    }
    of_numbers(x.dtype(), x.shape(), &values)
}

/// A function of all elements that lie along some axes.
fn along<R>(x: &Tensor, over: &[usize], f: impl Fn(&mut [f64]) -> R) -> Result<Tensor, String> {
    let mut kept = x.shape().to_vec();
    over.iter().for_each(|&a| kept[a] = 1);
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); kept.iter().product()];
    for (i, mut index) in indices(x.shape()).enumerate() {
        over.iter().for_each(|&a| index[a] = 0);
        groups[position(&index, &kept)].push(i);
    }
    let mut values = x.to_f64();
    for group in groups {
        let mut row: Vec<f64> = group.iter().map(|&i| values[i]).collect();
        f(&mut row);
        group.into_iter().zip(row).for_each(|(i, v)| values[i] = v);
    }
    of_numbers(x.dtype(), x.shape(), &values)
}

/// Divided by a power of the squares of neighbouring channels.
fn local_response(node: &Node<'_>) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let [_, channels, ..] = x.shape() else { return Err(format!("{} has no channels", x.ty())) };
    let (alpha, beta, bias) = (node.float("alpha", 1e-4), node.float("beta", 0.75), node.float("bias", 1.0));
    let size = usize::try_from(node.int("size", 1)).map_err(|_| "its size is negative")?;
    let (_, _, inner) = around(x.shape(), 1);
    let values = x.to_f64();
    let out = values.iter().enumerate().map(|(i, v)| {
        let c = i / inner % channels;
        let (low, high) = (c.saturating_sub(size.saturating_sub(1) / 2), (c + size / 2).min(channels - 1));
        let squares: f64 = (low..=high).map(|k| values[i - c * inner + k * inner].powi(2)).sum();
        v / (bias + alpha / size as f64 * squares).powf(beta)
    });
    of_numbers(x.dtype(), x.shape(), &out.collect::<Vec<_>>())
}
