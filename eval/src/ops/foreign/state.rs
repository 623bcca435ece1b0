//! Operators that carry a state from one run to the next: attention whose memory is a matrix, and a convolution over what
//! came before.

use super::attention::{Heads, joined};
use super::{Maybe, Node, not_known, of_numbers};
use crate::Tensor;

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "LinearAttention" => linear_attention(node).map(Some),
        "CausalConvWithState" => causal_convolution(node).map(Some),
        _ => Ok(None),
    }
}

/// The state of each head of keys, [key size, value size], decays, takes the product of each token's key and value,
/// and is read by its queries. With an update rate a value is what the state does not give for its key yet.
fn linear_attention(node: &Node<'_>) -> super::Results {
    let rule = node.text("update_rule", "gated_delta");
    let (decays, corrects) = match rule.as_str() {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(not_known("update_rule", other)),
    };
    let [q, k, v] = [node.operand(0)?, node.operand(1)?, node.operand(2)?];
    let (queries, shared) = (Heads::of(q, node.int("q_num_heads", 0))?, node.int("kv_num_heads", 0));
    let (keys, values) = (Heads::of(k, shared)?, Heads::of(v, shared)?);
    let ([batch, heads, length, size], [b, groups, t, s]) = (queries.shape, keys.shape);
    let width = values.shape[3];
    if [b, t, s] != [batch, length, size] || values.shape[..3] != keys.shape[..3] || !heads.is_multiple_of(groups) {
        let found =
            format!("queries {:?}, keys {:?} and values {:?} do not fit", queries.shape, keys.shape, values.shape);
        return Err(found.into());
    }
    let decay = gate(node, 4, decays, [batch, length, groups, size])?;
    let rate = gate(node, 5, corrects, [batch, length, groups, 1])?;
    let count = node.count(&[batch, groups, size, width])?;
    let past = node.optional(3);
    let mut state = past.map_or_else(|| vec![0.0; count], Tensor::to_f64);
    if state.len() != count {
        return Err(format!("its state has {} elements, expected {count}", state.len()).into());
    }
    let scale = match node.float("scale", 0.0) {
        0.0 => 1.0 / (size as f64).sqrt(),
        scale => scale,
    };
    let mut result = vec![0.0; node.count(&[batch, heads, length, width])?];
    for n in 0..batch {
        for g in 0..groups {
            let own = &mut state[(n * groups + g) * size * width..][..size * width];
            for t in 0..length {
                let (key, mut value) = (keys.row([n, g, t]), values.row([n, g, t]).to_vec());
                if let Some(decay) = &decay {
                    own.chunks_mut(width.max(1)).enumerate().for_each(|(d, row)| {
                        let factor = libm::exp(decay.at([n, t, g, d]));
                        row.iter_mut().for_each(|s| *s *= factor);
                    });
                }
                if let Some(rate) = &rate {
                    let rate = rate.at([n, t, g, 0]);
                    for (m, value) in value.iter_mut().enumerate() {
                        let known: f64 = key.iter().enumerate().map(|(d, k)| own[d * width + m] * k).sum();
                        *value = rate * (*value - known);
                    }
                }
                for (d, k) in key.iter().enumerate() {
                    own[d * width..][..width].iter_mut().zip(&value).for_each(|(s, v)| *s += k * v);
                }
                let group = heads / groups;
                for h in g * group..(g + 1) * group {
                    let (query, from) = (queries.row([n, h, t]), ((n * heads + h) * length + t) * width);
                    for (m, out) in result[from..][..width].iter_mut().enumerate() {
                        let read = query.iter().enumerate().map(|(d, q)| own[d * width + m] * q);
                        *out = scale * read.sum::<f64>();
                    }
                }
            }
        }
    }
    let kept = past.map_or(q.dtype(), Tensor::dtype);
    let result = joined(q.dtype(), [batch, heads, length, width], &result)?;
    Ok(vec![result, of_numbers(kept, &[batch, groups, size, width], &state)?])
}

/// Numbers of [batch, length, heads * parts], or of [batch, length, 1] for all heads.
struct Gate {
    values: Vec<f64>,
    length: usize,
    heads: usize,
    parts: usize,
}

impl Gate {
    /// The number of a part of a head; of the head, where it has one for all its parts.
    fn at(&self, [batch, token, head, part]: [usize; 4]) -> f64 {
        let (head, part) = (head.min(self.heads - 1), part.min(self.parts - 1));
        self.values[((batch * self.length + token) * self.heads + head) * self.parts + part]
    }
}

/// An operand that an update rule needs, for [batch, length, heads, parts].
fn gate(
    node: &Node<'_>,
    index: usize,
    needed: bool,
    [batch, length, heads, parts]: [usize; 4],
) -> Result<Option<Gate>, String> {
    if !needed {
        return Ok(None);
    }
    let given = node.operand(index)?;
    let &[b, t, last] = given.shape() else { return Err(format!("a gate is {}", given.ty())) };
    let (heads, parts) = match last {
        _ if last == heads * parts => (heads, parts),
        _ if last == heads => (heads, 1),
        1 => (1, 1),
        _ => return Err(format!("a gate is {}, expected {heads} heads", given.ty())),
    };
    if [b, t] != [batch, length] || last == 0 {
        return Err(format!("a gate is {}, expected {batch} rows of {length}", given.ty()));
    }
    Ok(Some(Gate { values: given.to_f64(), length, heads, parts }))
}

/// Each channel by itself with what came before: [batch, channels, length].
fn causal_convolution(node: &Node<'_>) -> super::Results {
    let (x, weight) = (node.operand(0)?, node.operand(1)?);
    let (&[batch, channels, length], &[own, 1, taps]) = (x.shape(), weight.shape()) else {
        return Err(format!("its operands are {} and {}", x.ty(), weight.ty()).into());
    };
    let before = taps.checked_sub(1).ok_or_else(|| format!("its weight is {}", weight.ty()))?;
    let activates = match node.text("activation", "none").as_str() {
        "none" => false,
        "silu" | "swish" => true,
        other => return Err(not_known("activation", other)),
    };
    let bias = node.optional(2).map(Tensor::to_f64);
    let past = node.optional(3);
    let fits = past.is_none_or(|past| past.shape() == [batch, channels, before]);
    if own != channels || bias.as_ref().is_some_and(|bias| bias.len() != channels) || !fits {
        return Err(format!("{} does not fit {}, its bias or its state", x.ty(), weight.ty()).into());
    }
    let (values, factors, past) = (x.to_f64(), weight.to_f64(), past.map(Tensor::to_f64));
    let mut result = Vec::with_capacity(node.count(&[batch, channels, length])?);
    let mut state = Vec::with_capacity(node.count(&[batch, channels, before])?);
    for row in 0..batch * channels {
        let mut all = past.as_ref().map_or_else(|| vec![0.0; before], |past| past[row * before..][..before].to_vec());
        all.extend_from_slice(&values[row * length..][..length]);
        let (channel, factors) = (row % channels, &factors[row % channels * taps..][..taps]);
        result.extend((0..length).map(|at| {
            let sum: f64 = all[at..].iter().zip(factors).map(|(x, factor)| x * factor).sum();
            let sum = sum + bias.as_ref().map_or(0.0, |bias| bias[channel]);
            if activates { sum / (1.0 + libm::exp(-sum)) } else { sum }
        }));
        state.extend_from_slice(&all[length..]);
    }
    Ok(vec![
        of_numbers(x.dtype(), &[batch, channels, length], &result)?,
        of_numbers(x.dtype(), &[batch, channels, before], &state)?,
    ])
}
