//! Operators that ONNX Runtime adds (its docs/ContribOperators.md): activations, products and norms that its tools
//! fuse.

use planish_ir::DType;

use super::arith::broadcast_shape;
use super::norm::{normalized, scale};
use super::{Maybe, Node, blocks, grouped, not_known, of_integers, of_numbers, one, quantized, recurrences};
use crate::Tensor;
use crate::error::Failure;
use crate::product::{Matrix, multiply};
use crate::strided::{broadcast, walk};

/// The domain of these operators.
pub(super) const DOMAIN: &str = "com.microsoft";

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "Gelu" => one(biased(node, erf_gelu)?),
        "BiasGelu" => one(biased(node, erf_gelu)?),
        "FastGelu" => one(biased(node, tanh_gelu)?),
        "QuickGelu" => {
            let alpha = node.float("alpha", 1.702);
            one(biased(node, |v| v / (1.0 + libm::exp(-alpha * v)))?)
        }
        "FusedMatMul" | "TransposeMatMul" if [0, 0] == ["transBatchA", "transBatchB"].map(|name| node.int(name, 0)) => {
            let (a, b) = (node.operand(0)?, node.operand(1)?);
            let turned = ["transA", "transB"].map(|name| node.int(name, 0) != 0);
            let (shape, mut values) = product(node, a, b, turned)?;
            let alpha = node.float("alpha", 1.0);
            values.iter_mut().for_each(|v| *v *= alpha);
            one(of_numbers(a.dtype(), &shape, &values)?)
        }
        "FusedGemm" => one(fused_gemm(node)?),
        "SkipLayerNormalization" => skip_norm(node, true).map(Some),
        "SkipSimplifiedLayerNormalization" => skip_norm(node, false).map(Some),
        "EmbedLayerNormalization" => embed(node).map(Some),
        "GroupQueryAttention" => grouped::run(node).map(Some),
        "MatMulNBits" | "MatMulBnb4" | "GatherBlockQuantized" => blocks::run(node),
        "CausalConvWithState" | "LinearAttention" => recurrences::run(node),
        _ => quantized::run(node),
    }
}

fn erf_gelu(v: f64) -> f64 {
    0.5 * v * (1.0 + libm::erf(v / std::f64::consts::SQRT_2))
}

fn tanh_gelu(v: f64) -> f64 {
    0.5 * v * (1.0 + libm::tanh((2.0 / std::f64::consts::PI).sqrt() * (v + 0.044_715 * v * v * v)))
}

/// A function of the first operand's elements, with the second one added where it is given.
fn biased(node: &Node<'_>, f: impl Fn(f64) -> f64) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let mut values = x.to_f64();
    if let Some(bias) = node.optional(1) {
        scale(&mut values, x.shape(), bias, |v, b| v + b)?;
    }
    values.iter_mut().for_each(|v| *v = f(*v));
    of_numbers(x.dtype(), x.shape(), &values)
}

/// The product of batches of matrices, each as it is or with rows and columns exchanged.
fn product(node: &Node<'_>, a: &Tensor, b: &Tensor, turned: [bool; 2]) -> Result<(Vec<usize>, Vec<f64>), String> {
    let ([outer_a @ .., rows_a, columns_a], [outer_b @ .., rows_b, columns_b]) = (a.shape(), b.shape()) else {
        return Err(format!("{} and {} are not matrices", a.ty(), b.ty()));
    };
    let (m, k) = if turned[0] { (*columns_a, *rows_a) } else { (*rows_a, *columns_a) };
    let (inner, n) = if turned[1] { (*columns_b, *rows_b) } else { (*rows_b, *columns_b) };
    if k != inner {
        return Err(format!("{} and {} do not fit each other", a.ty(), b.ty()));
    }
    let batch = broadcast_shape(outer_a, outer_b)?;
    let shape = [&batch[..], &[m, n]].concat();
    let mut out = Vec::with_capacity(node.count(&shape)?);
    let (x, y) = (a.to_f64(), b.to_f64());
    walk(&batch, [&broadcast(outer_a, &batch), &broadcast(outer_b, &batch)], |run| {
        for [i, j] in run.positions() {
            let (x, y) = (&x[i * m * k..(i + 1) * m * k], &y[j * k * n..(j + 1) * k * n]);
            let x = if turned[0] { Matrix::new(x, k, m).transposed() } else { Matrix::new(x, m, k) };
            let y = if turned[1] { Matrix::new(y, n, k).transposed() } else { Matrix::new(y, k, n) };
            out.extend(multiply(x, y));
        }
        Ok::<_, String>(())
    })?;
    Ok((shape, out))
}

fn fused_gemm(node: &Node<'_>) -> Result<Tensor, Failure> {
    let (a, b) = (node.operand(0)?, node.operand(1)?);
    let (shape, mut values) = product(node, a, b, ["transA", "transB"].map(|name| node.int(name, 0) != 0))?;
    let (alpha, beta) = (node.float("alpha", 1.0), node.float("beta", 1.0));
    values.iter_mut().for_each(|v| *v *= alpha);
    if let Some(c) = node.optional(2) {
        scale(&mut values, &shape, c, |v, c| v + beta * c)?;
    }
    let slope = node.float("activation_alpha", 0.01);
    let function: Box<dyn Fn(f64) -> f64> = match node.text("activation", "").as_str() {
        "" => Box::new(|v| v),
        "Relu" => Box::new(|v: f64| if v < 0.0 { 0.0 } else { v }),
        "Tanh" => Box::new(libm::tanh),
        "Sigmoid" => Box::new(|v| 1.0 / (1.0 + libm::exp(-v))),
        "LeakyRelu" => Box::new(move |v: f64| if v < 0.0 { slope * v } else { v }),
        other => return Err(not_known("activation", other)),
    };
    values.iter_mut().for_each(|v| *v = function(*v));
    Ok(of_numbers(a.dtype(), &shape, &values)?)
}

/// The norm of a sum of two or three operands, over the last dimension, and as the fourth result that sum.
fn skip_norm(node: &Node<'_>, centered: bool) -> super::Results {
    let (x, skip, gamma) = (node.operand(0)?, node.operand(1)?, node.operand(2)?);
    let (beta, bias) = if centered { (node.optional(3), node.optional(4)) } else { (None, node.optional(3)) };
    let mut sum = x.to_f64();
    for other in [Some(skip), bias].into_iter().flatten() {
        scale(&mut sum, x.shape(), other, |v, o| v + o)?;
    }
    let shown = of_numbers(x.dtype(), x.shape(), &sum)?;
    let (normal, statistics) = scaled_norm(node, x.dtype(), x.shape(), sum, centered, gamma, beta)?;
    let [mean, inverse] = statistics;
    Ok(vec![normal, mean, inverse, shown])
}

/// Elements normalized over the last dimension, scaled and shifted; the means and the inverse deviations, which are
/// empty where there are none.
fn scaled_norm(
    node: &Node<'_>,
    dtype: DType,
    shape: &[usize],
    values: Vec<f64>,
    centered: bool,
    gamma: &Tensor,
    beta: Option<&Tensor>,
) -> Result<(Tensor, [Tensor; 2]), String> {
    let from = shape.len().checked_sub(1).ok_or("its operand is a scalar")?;
    let (mut values, means, inverses) = normalized(values, shape, from, node.float("epsilon", 1e-12), centered);
    scale(&mut values, shape, gamma, |v, g| v * g)?;
    if let Some(beta) = beta {
        scale(&mut values, shape, beta, |v, b| v + b)?;
    }
    let kept = if centered { [&shape[..from], &[1]].concat() } else { vec![0] };
    let statistics = [of_numbers(DType::F32, &kept, &means)?, of_numbers(DType::F32, &kept, &inverses)?];
    Ok((of_numbers(dtype, shape, &values)?, statistics))
}

/// The sum of embeddings of words, positions and segments, normalized; how many tokens of each row the mask has;
/// the sum.
fn embed(node: &Node<'_>) -> super::Results {
    let (ids, words, positions) = (node.operand(0)?, node.operand(2)?, node.operand(3)?);
    let ([batch, length], [_, size]) = (ids.shape(), words.shape()) else {
        return Err(format!("{} and {} are not tokens and no table", ids.ty(), words.ty()).into());
    };
    let tokens = batch * length;
    let shape = [*batch, *length, *size];
    let mut sum = vec![0.0; node.count(&shape)?];
    let mut add = |table: &Tensor, rows: Vec<i64>| -> Result<(), String> {
        let ([count, width], true) = (table.shape(), rows.len() == tokens) else {
            return Err(format!("{} is not a table for {tokens} tokens", table.ty()));
        };
        if width != size {
            return Err(format!("{} has no rows of {size} elements", table.ty()));
        }
        let values = table.to_f64();
        for (row, into) in rows.into_iter().zip(sum.chunks_mut((*size).max(1))) {
            let at = usize::try_from(row).ok().filter(|at| at < count);
            let at = at.ok_or_else(|| format!("the index {row} is out of range for {}", table.ty()))?;
            into.iter_mut().zip(&values[at * size..]).for_each(|(sum, v)| *sum += v);
        }
        Ok(())
    };
    add(words, node.integers(0)?.unwrap_or_default())?;
    let own = match node.integers(8)? {
        Some(given) if given.len() == *length => given.repeat(*batch),
        Some(given) => given,
        None => (0..tokens).map(|i| super::signed(i % length)).collect(),
    };
    add(positions, own)?;
    if let (Some(segments), Some(table)) = (node.integers(1)?, node.optional(4)) {
        add(table, segments)?;
    }
    let masked = match node.integers(7)? {
        Some(mask) if mask.len() == tokens => {
            mask.chunks((*length).max(1)).map(|row| row.iter().filter(|v| **v == 1).count() as i128).collect()
        }
        Some(mask) => return Err(format!("its mask has {} elements for {tokens} tokens", mask.len()).into()),
        None => vec![0; *batch],
    };
    let shown = of_numbers(words.dtype(), &shape, &sum)?;
    let (gamma, beta) = (node.operand(5)?, node.operand(6)?);
    let (normal, _) = scaled_norm(node, words.dtype(), &shape, sum, true, gamma, Some(beta))?;
    Ok(vec![normal, of_integers(DType::I32, vec![*batch], &masked)?, shown])
}
