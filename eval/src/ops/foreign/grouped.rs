//! ONNX Runtime's GroupQueryAttention (its docs/ContribOperators.md): attention that appends to a cache.

use super::attention::{Heads, joined};
use super::{Node, Results, indices, not_known, of_numbers};
use crate::Tensor;
use crate::ops::normalize::softmax;
use crate::strided::broadcast;

/// The operands that this kernel takes: queries, keys, values, the cache, the last position of each row, the number of
/// all keys, and what is added to scores.
const KNOWN: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 10];

/// The attributes that it takes.
const SETTINGS: [&str; 6] = ["num_heads", "kv_num_heads", "scale", "softcap", "local_window_size", "do_rotary"];

/// The result, and the cache with the new keys and values in it. The cache may have room after its keys: it then stays as
/// long as it is.
pub(super) fn run(node: &Node<'_>) -> Results {
    if let Some((name, _)) = node.op.settings.0.iter().find(|(name, _)| !SETTINGS.contains(&name.as_str())) {
        return Err(not_known("attribute", name));
    }
    if node.int("do_rotary", 0) != 0 || node.int("local_window_size", -1) > 0 {
        return Err(not_known("attribute", "do_rotary or local_window_size"));
    }
    if let Some(index) =
        (0..node.operands.len()).find(|index| !KNOWN.contains(index) && node.optional(*index).is_some())
    {
        return Err(not_known("operand", &index.to_string()));
    }
    let [q, k, v] = [node.operand(0)?, node.operand(1)?, node.operand(2)?];
    let shared = node.int("kv_num_heads", 0);
    let (queries, new_keys, new_values) =
        (Heads::of(q, node.int("num_heads", 0))?, Heads::of(k, shared)?, Heads::of(v, shared)?);
    let ([batch, heads, length, size], [rows, groups, new, width]) = (queries.shape, new_keys.shape);
    let missing = || "it has no lengths of rows or no number of all keys".to_owned();
    let last = node.integers(5)?.filter(|last| last.len() == batch).ok_or_else(missing)?;
    let total = node.integers(6)?.and_then(|total| usize::try_from(*total.first()?).ok()).ok_or_else(missing)?;
    if [rows, new, width] != [batch, length, size]
        || new_values.shape != new_keys.shape
        || groups == 0
        || heads % groups != 0
        || total < length
    {
        return Err(format!("{}, {} and {} do not fit {total} keys", q.ty(), k.ty(), v.ty()).into());
    }
    // The keys of each row after the new ones, which count where a prompt is padded on the right only.
    let before = |row: usize| match total == length {
        true => Some(0),
        false => usize::try_from(last[row] + 1).ok()?.checked_sub(length),
    };
    let before: Vec<usize> = (0..batch).map(before).collect::<Option<_>>().ok_or_else(missing)?;
    let keys = appended(node, node.optional(3), &new_keys, &before, total)?;
    let values = appended(node, node.optional(4), &new_values, &before, total)?;
    let addend = node.optional(10);
    let shape = [batch, heads, length, total];
    if let Some(addend) = addend {
        let fits = addend.shape().len() == 4 && addend.shape().iter().zip(shape).all(|(a, b)| *a == b || *a == 1);
        if !fits {
            return Err(format!("{} is not added to scores of {shape:?}", addend.ty()).into());
        }
    }
    let addends = addend.map(Tensor::to_f64).unwrap_or_default();
    let strides = addend.map(|addend| broadcast(addend.shape(), &shape)).unwrap_or_default();
    let (scale, cap) = (node.float("scale", 0.0), node.float("softcap", 0.0));
    let scale = if scale == 0.0 { 1.0 / (size as f64).sqrt() } else { scale };
    let mut result = Vec::with_capacity(node.count(&[batch, heads, length, size])?);
    for index in indices(&[batch, heads, length]) {
        let [row, head, at] = [index[0], index[1], index[2]];
        let group = head * groups / heads;
        let score = |key: usize| {
            let products = queries.row([row, head, at]).iter().zip(keys.row([row, group, key])).map(|(a, b)| a * b);
            let score = products.sum::<f64>() * scale;
            let capped = if cap > 0.0 { cap * libm::tanh(score / cap) } else { score };
            let own = [row, head, at, key];
            capped + addends.get(own.iter().zip(&strides).map(|(i, s)| i * s).sum::<usize>()).unwrap_or(&0.0)
        };
        let mut scores: Vec<f64> = (0..=before[row] + at).map(score).collect();
        softmax(&mut scores);
        let mut sum = vec![0.0; size];
        for (key, weight) in scores.iter().enumerate() {
            sum.iter_mut().zip(values.row([row, group, key])).for_each(|(sum, value)| *sum += weight * value);
        }
        result.extend(sum);
    }
    Ok(vec![
        joined(q.dtype(), [batch, heads, length, size], &result)?,
        of_numbers(k.dtype(), &keys.shape, &keys.values)?,
        of_numbers(v.dtype(), &values.shape, &values.values)?,
    ])
}

/// The past with new keys or values written after so many of each row; as long as it is, if there is room for all.
fn appended(
    node: &Node<'_>,
    past: Option<&Tensor>,
    new: &Heads,
    before: &[usize],
    total: usize,
) -> Result<Heads, String> {
    let [batch, heads, length, size] = new.shape;
    let old = past.map_or(&[][..], Tensor::shape);
    let own = match *old {
        [] => 0,
        [b, h, own, s] if [b, h, s] == [batch, heads, size] => own,
        _ => return Err(format!("a past of {old:?} does not fit new keys of {:?}", new.shape)),
    };
    let room = own.max(total);
    let mut values = vec![0.0; node.count(&[batch, heads, room, size])?];
    let past = past.map(Tensor::to_f64).unwrap_or_default();
    for (at, head) in values.chunks_mut((room * size).max(1)).enumerate() {
        let first = before[at / heads];
        if first > own || first + length > room {
            return Err(format!("there are {own} keys of the past, and {first} are in front of the {length} new ones"));
        }
        head[..own * size].copy_from_slice(&past[at * own * size..(at + 1) * own * size]);
        head[first * size..(first + length) * size]
            .copy_from_slice(&new.values[at * length * size..(at + 1) * length * size]);
    }
    Ok(Heads { shape: [batch, heads, room, size], values })
}
