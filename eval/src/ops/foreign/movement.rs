//! Operators that move elements by position.

use super::arith::broadcast_shape;
use super::{Maybe, Node, axes, axis, indices, one, pick, position, signed, sizes};
use crate::Tensor;

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "Reshape" => one(reshape(node)?),
        "Expand" => {
            let x = node.operand(0)?;
            let asked = sizes("sizes", &node.integers(1)?.ok_or("it has no shape")?)?;
            let shape = broadcast_shape(x.shape(), &asked)?;
            let missing = shape.len() - x.shape().len();
            one(by_index(node, x, None, shape, |index| {
                let own = index[missing..].iter().zip(x.shape()).map(|(&i, &size)| if size == 1 { 0 } else { i });
                Some(own.collect())
            })?)
        }
        "Tile" => {
            let x = node.operand(0)?;
            let repeats = sizes("repeats", &node.integers(1)?.ok_or("it has no repeats")?)?;
            if repeats.len() != x.shape().len() {
                return Err(format!("{repeats:?} are not repeats of {}", x.ty()).into());
            }
            let product = |(size, times): (&usize, &usize)| size.checked_mul(*times).ok_or("its size overflows");
            let shape = x.shape().iter().zip(&repeats).map(product).collect::<Result<Vec<_>, _>>()?;
            one(by_index(node, x, None, shape, |index| {
                Some(index.iter().zip(x.shape()).map(|(i, size)| i % size).collect())
            })?)
        }
        "Pad" => one(pad(node)?),
        "Slice" => one(slice(node)?),
        "Squeeze" => {
            let x = node.operand(0)?;
            let given = node.parameter("axes", 1)?;
            let gone = match &given {
                Some(given) => axes(Some(given), x.shape().len())?,
                None => (0..x.shape().len()).filter(|&a| x.shape()[a] == 1).collect(),
            };
            let kept = x.shape().iter().enumerate().filter(|(a, _)| !gone.contains(a)).map(|(_, &d)| d);
            one(super::tensor(kept.collect(), x.data().clone())?)
        }
        "Unsqueeze" => {
            let x = node.operand(0)?;
            let given = node.parameter("axes", 1)?.ok_or("it has no axes")?;
            let rank = x.shape().len() + given.len();
            let new = axes(Some(&given), rank)?;
            let mut rest = x.shape().iter().copied();
            let shape = (0..rank).map(|a| if new.contains(&a) { 1 } else { rest.next().unwrap_or(1) });
            one(super::tensor(shape.collect(), x.data().clone())?)
        }
        "Concat" => one(concat(node)?),
        "Split" => Ok(Some(split(node)?)),
        "DepthToSpace" | "SpaceToDepth" => one(blocks(node)?),
        "CenterCropPad" => one(center_crop_pad(node)?),
        "ReverseSequence" => one(reverse_sequence(node)?),
        "Trilu" => {
            let x = node.operand(0)?;
            let k = node.integers(1)?.and_then(|k| k.first().copied()).unwrap_or(0);
            let (rank, upper) = (x.shape().len(), node.int("upper", 1) == 1);
            if rank < 2 {
                return Err(format!("{} is not a matrix", x.ty()).into());
            }
            one(by_index(node, x, None, x.shape().to_vec(), |index| {
                let above = signed(index[rank - 1]) - signed(index[rank - 2]);
                let kept = if upper { above >= k } else { above <= k };
                kept.then(|| index.to_vec())
            })?)
        }
        _ => Ok(None),
    }
}

/// A tensor whose element at each index is one of `x`, or `fill` (zero without one).
fn by_index(
    node: &Node<'_>,
    x: &Tensor,
    fill: Option<&Tensor>,
    shape: Vec<usize>,
    f: impl Fn(&[usize]) -> Option<Vec<usize>>,
) -> Result<Tensor, String> {
    node.count(&shape)?;
    let at: Vec<Option<usize>> = indices(&shape).map(|i| f(&i).map(|own| position(&own, x.shape()))).collect();
    pick(x, fill, shape, &at)
}

fn reshape(node: &Node<'_>) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let asked = node.integers(1)?.ok_or("it has no shape")?;
    let keep_zero = node.int("allowzero", 0) == 1;
    let mut shape = Vec::new();
    for (i, &size) in asked.iter().enumerate() {
        shape.push(match size {
            0 if !keep_zero => {
                *x.shape().get(i).ok_or_else(|| format!("{asked:?} keeps a dimension that does not exist"))?
            }
            -1 => 1,
            _ => usize::try_from(size).map_err(|_| format!("{asked:?} is not a shape"))?,
        });
    }
    if let Some(open) = asked.iter().position(|&d| d == -1) {
        shape[open] = x.data().len() / shape.iter().product::<usize>().max(1);
    }
    super::tensor(shape, x.data().clone())
}

fn pad(node: &Node<'_>) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let rank = x.shape().len();
    let over = axes(node.integers(3)?.as_deref(), rank)?;
    let given = node.parameter("pads", 1)?.ok_or("it has no pads")?;
    if given.len() != 2 * over.len() {
        return Err(format!("it has {} pads for {} axes", given.len(), over.len()));
    }
    let (mut before, mut shape) = (vec![0i64; rank], x.shape().to_vec());
    for (i, &a) in over.iter().enumerate() {
        before[a] = given[i];
        let size = signed(shape[a]).saturating_add(given[i]).saturating_add(given[i + over.len()]);
        shape[a] = usize::try_from(size).map_err(|_| format!("{given:?} take more than {} has", x.ty()))?;
    }
    let mode = node.text("mode", "constant");
    let inside = |at: i64, size: usize| -> Option<usize> {
        let n = signed(size);
        let at = match mode.as_str() {
            "edge" => at.clamp(0, n - 1),
            "wrap" => at.rem_euclid(n.max(1)),
            "reflect" if n > 1 => {
                let folded = at.rem_euclid(2 * (n - 1));
                folded.min(2 * (n - 1) - folded)
            }
            "reflect" => 0,
            _ => at,
        };
        usize::try_from(at).ok().filter(|&at| at < size)
    };
    by_index(node, x, node.optional(2), shape, |index| {
        index.iter().zip(&before).zip(x.shape()).map(|((&i, b), &size)| inside(signed(i) - b, size)).collect()
    })
}

fn slice(node: &Node<'_>) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let starts = node.parameter("starts", 1)?.ok_or("it has no starts")?;
    let ends = node.parameter("ends", 2)?.ok_or("it has no ends")?;
    let default: Vec<i64> = (0..).take(starts.len()).collect();
    let over = axes(Some(&node.parameter("axes", 3)?.unwrap_or(default)), x.shape().len())?;
    let steps = node.integers(4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), over.len(), steps.len()] != [starts.len(); 3] {
        return Err("its starts, ends, axes and steps differ in number".to_owned());
    }
    let mut shape = x.shape().to_vec();
    let mut from = vec![(0i64, 1i64); shape.len()];
    for (i, &a) in over.iter().enumerate() {
        let (size, step) = (signed(shape[a]), steps[i]);
        let front = |v: i64| if v < 0 { v.saturating_add(size) } else { v };
        // What is out of range is the nearest element; after it begins and ends nothing, in front of it ends a slice
        // that goes backward.
        let (start, end) = match step {
            0 => return Err("a step is 0".to_owned()),
            _ if size == 0 => (0, 0),
            1.. => (front(starts[i]).clamp(0, size), front(ends[i]).clamp(0, size)),
            _ => (front(starts[i]).clamp(0, size - 1), front(ends[i]).clamp(-1, size - 1)),
        };
        let (span, wide) = (i128::from(end - start), i128::from(step));
        shape[a] = usize::try_from((span + wide - wide.signum()) / wide).unwrap_or(0);
        from[a] = (start, step);
    }
    by_index(node, x, None, shape, |index| {
        let own = index.iter().zip(&from).map(|(&i, (start, step))| usize::try_from(start + signed(i) * step).ok());
        own.collect()
    })
}

fn concat(node: &Node<'_>) -> Result<Tensor, String> {
    let parts = (0..node.operands.len()).map(|i| node.operand(i)).collect::<Result<Vec<_>, _>>()?;
    let bytes = parts.iter().try_fold(0u64, |sum, t| sum.checked_add(t.bytes()));
    node.context.memory.check(bytes, || "a result".to_owned())?;
    let weights = parts.iter().map(|t| planish_ir::Weight::inline(t.dtype(), t.shape().to_vec(), t.to_bytes()));
    let weights = weights.collect::<Option<Vec<_>>>().ok_or("an operand is too large")?;
    let first = parts.first().ok_or("it has no operand")?;
    let a = node.axis("axis", 0, first.shape().len())?;
    let all = planish_ir::Weight::concat(&weights, a).ok_or("its operands do not fit each other")?;
    Tensor::from_weight(&all).map_err(|e| e.to_string())
}

fn split(node: &Node<'_>) -> Result<Vec<Tensor>, String> {
    let x = node.operand(0)?;
    let a = node.axis("axis", 0, x.shape().len())?;
    let parts = node.op.results.0.len();
    let size = x.shape()[a];
    let lengths = match node.parameter("split", 1)? {
        Some(given) => sizes("sizes", &given)?,
        None => {
            let each = size.div_ceil(parts.max(1));
            (0..parts).map(|i| each.min(size.saturating_sub(i * each))).collect()
        }
    };
    if lengths.iter().sum::<usize>() != size {
        return Err(format!("{lengths:?} do not add up to {size}"));
    }
    let mut start = 0;
    let part = |length: &usize| {
        let mut shape = x.shape().to_vec();
        shape[a] = *length;
        let first = start;
        start += length;
        by_index(node, x, None, shape, |index| {
            let mut own = index.to_vec();
            own[a] += first;
            Some(own)
        })
    };
    lengths.iter().map(part).collect()
}

/// Blocks of pixels as channels, or the way back.
fn blocks(node: &Node<'_>) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let [n, c, h, w] = x.shape() else { return Err(format!("{} is not a batch of images", x.ty())) };
    let b = usize::try_from(node.int("blocksize", 1)).ok().filter(|&b| b > 0).ok_or("its blocksize is not positive")?;
    let columns_first = node.text("mode", "DCR") == "CRD";
    if node.name() == "SpaceToDepth" {
        if h % b != 0 || w % b != 0 {
            return Err(format!("{} has no blocks of {b}", x.ty()));
        }
        return by_index(node, x, None, vec![*n, c * b * b, h / b, w / b], |index| {
            let [n, channel, y, x] = index else { return None };
            let (block, c) = match columns_first {
                true => (channel % (b * b), channel / (b * b)),
                false => (channel / c, channel % c),
            };
            Some(vec![*n, c, y * b + block / b, x * b + block % b])
        });
    }
    if c % (b * b) != 0 {
        return Err(format!("{} has no blocks of {b}", x.ty()));
    }
    let depth = c / (b * b);
    by_index(node, x, None, vec![*n, depth, h * b, w * b], |index| {
        let [n, c, y, x] = index else { return None };
        let block = (y % b) * b + x % b;
        let channel = if columns_first { c * b * b + block } else { block * depth + c };
        Some(vec![*n, channel, y / b, x / b])
    })
}

fn center_crop_pad(node: &Node<'_>) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let asked = sizes("sizes", &node.integers(1)?.ok_or("it has no shape")?)?;
    let over = axes(node.ints("axes").as_deref(), x.shape().len())?;
    if asked.len() != over.len() {
        return Err(format!("{} sizes for {} axes", asked.len(), over.len()));
    }
    let (mut shape, mut shift) = (x.shape().to_vec(), vec![0i64; x.shape().len()]);
    for (&a, &size) in over.iter().zip(&asked) {
        let (old, new) = (signed(x.shape()[a]), signed(size));
        // Of an odd number, the smaller half goes before.
        shift[a] = if old > new { (old - new) / 2 } else { -((new - old) / 2) };
        shape[a] = size;
    }
    by_index(node, x, None, shape, |index| {
        let own = index.iter().zip(&shift).zip(x.shape());
        own.map(|((&i, s), &size)| usize::try_from(signed(i) + s).ok().filter(|&i| i < size)).collect()
    })
}

/// The first elements along an axis in reverse, as many as are said for each batch.
fn reverse_sequence(node: &Node<'_>) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let lengths = sizes("lengths", &node.integers(1)?.ok_or("it has no lengths")?)?;
    let (batch, time) =
        (axis(node.int("batch_axis", 1), x.shape().len())?, axis(node.int("time_axis", 0), x.shape().len())?);
    let (rows, longest) = (x.shape()[batch], x.shape()[time]);
    if lengths.len() != rows || lengths.iter().any(|&l| l > longest) {
        return Err(format!("its lengths are {lengths:?}, expected {rows} of at most {longest} each for {}", x.ty()));
    }
    by_index(node, x, None, x.shape().to_vec(), |index| {
        let mut own = index.to_vec();
        let length = lengths[index[batch]];
        if index[time] < length {
            own[time] = length - 1 - index[time];
        }
        Some(own)
    })
}
