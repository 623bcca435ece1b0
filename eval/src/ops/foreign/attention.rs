//! Attention and rotary embedding of ai.onnx.

use planish_ir::DType;

use super::{Maybe, Node, indices, not_known, of_numbers, one, position, signed};
use crate::Tensor;
use crate::ops::normalize::softmax;
use crate::strided::broadcast;

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "Attention" => attention(node).map(Some),
        "RotaryEmbedding" => one(rotary(node)?),
        _ => Ok(None),
    }
}

/// A tensor as [batch, heads, sequence, size].
pub(super) struct Heads {
    pub(super) shape: [usize; 4],
    pub(super) values: Vec<f64>,
}

impl Heads {
    /// Of a tensor that has these dimensions, or [batch, sequence, heads * size].
    pub(super) fn of(x: &Tensor, heads: i64) -> Result<Self, String> {
        match *x.shape() {
            [batch, heads, length, size] => Ok(Self { shape: [batch, heads, length, size], values: x.to_f64() }),
            [batch, length, features] => {
                let heads = usize::try_from(heads).ok().filter(|&h| h > 0 && features % h == 0);
                let heads = heads.ok_or_else(|| format!("{} is not divided into heads", x.ty()))?;
                let size = features / heads;
                let from = x.to_f64();
                let shape = [batch, heads, length, size];
                let value = |i: Vec<usize>| from[(i[0] * length + i[2]) * features + i[1] * size + i[3]];
                Ok(Self { shape, values: indices(&shape).map(value).collect() })
            }
            _ => Err(format!("an operand is {}, expected three or four dimensions", x.ty())),
        }
    }

    /// After those of the past.
    fn after(self, node: &Node<'_>, past: Option<&Tensor>) -> Result<Self, String> {
        let Some(past) = past else { return Ok(self) };
        let [batch, heads, length, size] = self.shape;
        let &[b, h, before, s] = past.shape() else { return Err(format!("the past is {}", past.ty())) };
        if [b, h, s] != [batch, heads, size] {
            return Err(format!("the past is {}, the new keys or values {:?}", past.ty(), self.shape));
        }
        let old = past.to_f64();
        let mut values = Vec::with_capacity(node.count(&[batch, heads, before + length, size])?);
        for i in 0..batch * heads {
            values.extend_from_slice(&old[i * before * size..(i + 1) * before * size]);
            values.extend_from_slice(&self.values[i * length * size..(i + 1) * length * size]);
        }
        Ok(Self { shape: [batch, heads, before + length, size], values })
    }

    pub(super) fn row(&self, [batch, head, at]: [usize; 3]) -> &[f64] {
        let [_, heads, length, size] = self.shape;
        let from = ((batch * heads + head) * length + at) * size;
        &self.values[from..from + size]
    }
}

/// What is added to a score: 0, or minus infinity where a query does not see a key, or a mask's number.
struct Mask<'a> {
    mask: Option<&'a Tensor>,
    values: Vec<f64>,
    strides: Vec<usize>,
    /// The number of keys that the mask has.
    keys: usize,
    causal: bool,
    /// How many keys before and after its own position a query sees.
    window: [Option<i64>; 2],
    /// The position of the first query, by batch.
    offsets: Vec<i64>,
    /// The number of keys that are there, by batch.
    lengths: Option<Vec<i64>>,
}

impl<'a> Mask<'a> {
    fn of(node: &Node<'a>, [batch, heads, queries, keys]: [usize; 4]) -> Result<Self, String> {
        let mask = node.optional(3);
        let own = mask.map_or_else(Vec::new, |m| m.shape().to_vec());
        let there = own.last().copied().unwrap_or(keys);
        let shape = [batch, heads, queries, there];
        let fits = own.len() <= 4 && own.iter().rev().zip(shape.iter().rev()).all(|(a, b)| a == b || *a == 1);
        if !fits || there > keys {
            return Err(format!("a mask of shape {own:?} does not fit scores of shape {shape:?}"));
        }
        let lengths = node.integers(6)?;
        let offsets = match (&lengths, node.optional(4)) {
            (Some(lengths), None) => lengths.iter().map(|l| l - signed(queries)).collect(),
            (_, past) => vec![signed(past.and_then(|p| p.shape().get(2).copied()).unwrap_or(0)); batch],
        };
        if offsets.len() != batch {
            return Err(format!("there are {} lengths for {batch} rows", offsets.len()));
        }
        let side = |name: &str| Some(node.int(name, -1)).filter(|w| *w >= 0);
        Ok(Self {
            mask,
            values: mask.map_or_else(Vec::new, Tensor::to_f64),
            strides: broadcast(&own, &shape),
            keys: there,
            causal: node.int("is_causal", 0) == 1,
            window: [side("left_window_size"), side("right_window_size")],
            offsets,
            lengths,
        })
    }

    fn at(&self, index: [usize; 4]) -> f64 {
        let [batch, _, query, key] = index;
        let distance = signed(key) - signed(query) - self.offsets[batch];
        let hidden = self.causal && distance > 0
            || self.window[0].is_some_and(|w| -distance > w)
            || self.window[1].is_some_and(|w| distance > w)
            || self.lengths.as_ref().is_some_and(|l| signed(key) >= l[batch]);
        let Some(mask) = self.mask else { return if hidden { f64::NEG_INFINITY } else { 0.0 } };
        if hidden || key >= self.keys {
            return f64::NEG_INFINITY;
        }
        let value = self.values[index.iter().zip(&self.strides).map(|(i, s)| i * s).sum::<usize>()];
        match mask.dtype() {
            DType::Bool if value == 0.0 => f64::NEG_INFINITY,
            DType::Bool => 0.0,
            _ => value,
        }
    }
}

/// What the fourth result shows of the scores.
const CAPPED: i64 = 1;
const MASKED: i64 = 2;
const PROBABILITIES: i64 = 3;

/// A row of which every key is hidden is zero.
fn attention(node: &Node<'_>) -> super::Results {
    const KNOWN: [&str; 9] = [
        "is_causal",
        "kv_num_heads",
        "q_num_heads",
        "qk_matmul_output_mode",
        "scale",
        "softcap",
        "softmax_precision",
        "left_window_size",
        "right_window_size",
    ];
    if let Some((name, _)) = node.op.settings.0.iter().find(|(name, _)| !KNOWN.contains(&name.as_str())) {
        return Err(not_known("attribute", name));
    }
    let [q, k, v] = [node.operand(0)?, node.operand(1)?, node.operand(2)?];
    let (queries, shared) = (Heads::of(q, node.int("q_num_heads", 0))?, node.int("kv_num_heads", 0));
    let keys = Heads::of(k, shared)?.after(node, node.optional(4))?;
    let values = Heads::of(v, shared)?.after(node, node.optional(5))?;
    let ([batch, heads, length, size], [b, groups, all, s]) = (queries.shape, keys.shape);
    let width = values.shape[3];
    if [b, s] != [batch, size] || groups == 0 || heads % groups != 0 || values.shape[..3] != keys.shape[..3] {
        return Err(format!(
            "queries {:?}, keys {:?} and values {:?} do not fit",
            queries.shape, keys.shape, values.shape
        )
        .into());
    }
    let mask = Mask::of(node, [batch, heads, length, all])?;
    let (scale, cap) = (node.float("scale", 1.0 / (size as f64).sqrt()), node.float("softcap", 0.0));
    let shown = node.int("qk_matmul_output_mode", 0);
    let mut result = Vec::with_capacity(node.count(&[batch, heads, length, width])?);
    let mut scores = Vec::with_capacity(node.count(&[batch, heads, length, all])?);
    for index in indices(&[batch, heads, length]) {
        let [n, h, i] = [index[0], index[1], index[2]];
        let query = queries.row([n, h, i]);
        let dot =
            |j: usize| query.iter().zip(keys.row([n, h * groups / heads, j])).map(|(a, b)| a * b).sum::<f64>() * scale;
        let mut row: Vec<f64> = (0..all).map(dot).collect();
        let mut kept = row.clone();
        if cap > 0.0 {
            row.iter_mut().for_each(|s| *s = cap * libm::tanh(*s / cap));
        }
        if shown == CAPPED {
            kept.clone_from(&row);
        }
        let addends: Vec<f64> = (0..all).map(|j| mask.at([n, h, i, j])).collect();
        row.iter_mut().zip(&addends).for_each(|(s, a)| *s += a);
        if shown == MASKED {
            kept.clone_from(&row);
        }
        match addends.iter().all(|a| *a == f64::NEG_INFINITY) {
            true => row.fill(0.0),
            false => softmax(&mut row),
        }
        if shown == PROBABILITIES {
            kept.clone_from(&row);
        }
        scores.extend(kept);
        let mut sum = vec![0.0; width];
        for (j, weight) in row.iter().enumerate().filter(|(_, w)| **w != 0.0) {
            sum.iter_mut().zip(values.row([n, h * groups / heads, j])).for_each(|(sum, v)| *sum += weight * v);
        }
        result.extend(sum);
    }
    let result = match q.shape().len() {
        4 => of_numbers(q.dtype(), &[batch, heads, length, width], &result)?,
        _ => joined(q.dtype(), [batch, heads, length, width], &result)?,
    };
    Ok(vec![
        result,
        of_numbers(k.dtype(), &keys.shape, &keys.values)?,
        of_numbers(v.dtype(), &values.shape, &values.values)?,
        of_numbers(q.dtype(), &[batch, heads, length, all], &scores)?,
    ])
}

/// Heads, [batch, heads, sequence, size], side by side: [batch, sequence, heads * size].
pub(super) fn joined(dtype: DType, shape: [usize; 4], values: &[f64]) -> Result<Tensor, String> {
    let [batch, heads, length, width] = shape;
    let value = |i: Vec<usize>| values[position(&[i[0], i[2], i[1], i[3]], &shape)];
    let joined: Vec<f64> = indices(&[batch, length, heads, width]).map(value).collect();
    of_numbers(dtype, &[batch, length, heads * width], &joined)
}

/// Pairs of each head rotated by the angle of their position; what lies after the rotated part stays.
fn rotary(node: &Node<'_>) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let mut heads = Heads::of(x, node.int("num_heads", 0))?;
    let [batch, number, length, size] = heads.shape;
    let (cosines, sines) = (node.operand(1)?, node.operand(2)?);
    let half = cosines.shape().last().copied().unwrap_or(0);
    let positions = node.integers(3)?;
    let rows = cosines.data().len() / half.max(1);
    if sines.shape() != cosines.shape()
        || 2 * half > size
        || positions.as_ref().is_some_and(|p| p.len() != batch * length)
    {
        return Err(format!("{} does not rotate {}", cosines.ty(), x.ty()));
    }
    let (cosines, sines) = (cosines.to_f64(), sines.to_f64());
    let interleaved = node.int("interleaved", 0) == 1;
    for index in indices(&[batch, number, length]) {
        let token = index[0] * length + index[2];
        let at = match &positions {
            Some(positions) => usize::try_from(positions[token]).unwrap_or(usize::MAX),
            None => token,
        };
        if at >= rows {
            return Err(format!("position {at} is beyond the {rows} that it has cosines of"));
        }
        let from = position(&index, &[batch, number, length]) * size;
        for k in 0..half {
            let (a, b) = if interleaved { (from + 2 * k, from + 2 * k + 1) } else { (from + k, from + half + k) };
            let (real, imaginary) = (heads.values[a], heads.values[b]);
            let (cosine, sine) = (cosines[at * half + k], sines[at * half + k]);
            heads.values[a] = cosine * real - sine * imaginary;
            heads.values[b] = sine * real + cosine * imaginary;
        }
    }
    if x.shape().len() == 4 {
        return of_numbers(x.dtype(), x.shape(), &heads.values);
    }
    let value = |i: Vec<usize>| heads.values[position(&[i[0], i[2], i[1], i[3]], &heads.shape)];
    let joined: Vec<f64> = indices(&[batch, length, number, size]).map(value).collect();
    of_numbers(x.dtype(), x.shape(), &joined)
}
