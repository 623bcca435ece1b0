//! Queries, keys and values by head.

use planish_ir::ops::{Concat, Expand, Reshape};
use planish_ir::{BuildError, Dim, Graph, Op, Rewriter, Shape, ValueId};

use super::super::pattern::{op, reshaped, transposed};
use crate::build::reshape_once;

/// [batch, positions, heads, size] to [batch, heads, positions, size], or back.
pub(super) const HEADS_FIRST: &[usize] = &[0, 2, 1, 3];

/// [batch, heads, keys, size] to [batch, heads, size, keys], or back.
pub(super) const KEYS_LAST: &[usize] = &[0, 1, 3, 2];

/// Heads and their size, of [batch, heads, positions, size].
pub(super) fn sizes(shape: &Shape) -> Option<[usize; 2]> {
    let size = |dim: &Dim| usize::try_from(dim.as_constant()?).ok().filter(|size| *size > 0);
    match &shape[..] {
        [_, heads, _, features] => Some([size(heads)?, size(features)?]),
        _ => None,
    }
}

/// Keys and values in the heads that they have, where both are repeated for the queries' heads that share one.
pub(super) fn unrepeated(graph: &mut Rewriter<'_>, repeated: [ValueId; 2]) -> Result<[ValueId; 2], BuildError> {
    let [Some((k, k_dims)), Some((v, v_dims))] = repeated.map(|value| before_repeating(graph, value)) else {
        return Ok(repeated);
    };
    if k_dims[1] != v_dims[1] {
        return Ok(repeated);
    }
    Ok([reshape_once(graph, k, k_dims)?, reshape_once(graph, v, v_dims)?])
}

/// What is repeated, and its shape, [batch, kv heads, keys, size], where a value is
/// `reshape(expand([batch, kv heads, 1, keys, size]))`.
fn before_repeating(graph: &Graph, value: ValueId) -> Option<(ValueId, [Dim; 4])> {
    let expanded = reshaped(graph, value)?;
    let Op::Expand(Expand { x, .. }) = op(graph, expanded)? else { return None };
    let one = Dim::constant(1);
    match (&graph.ty(*x).shape[..], &graph.ty(expanded).shape[..]) {
        ([b, h, single, k, s], [b2, h2, _, k2, s2]) if *single == one && [b, h, k, s] == [b2, h2, k2, s2] => {
            let merged = &graph.ty(value).shape;
            (merged[2..] == [k.clone(), s.clone()]).then(|| (*x, [b, h, k, s].map(Clone::clone)))
        }
        _ => None,
    }
}

/// The keys and values of an attention.
pub(super) struct Keys {
    /// Those that a cache holds.
    pub(super) past: Option<[ValueId; 2]>,
    /// Those after them, as attention takes them.
    pub(super) new: [ValueId; 2],
}

/// Keys and values as attention takes them, with those of a cache apart.
pub(super) fn cached(graph: &Rewriter<'_>, k: ValueId, v: ValueId) -> Result<Keys, BuildError> {
    Ok(match (after(graph, k), after(graph, v)) {
        (Some([past_k, k]), Some([past_v, v])) if graph.ty(past_k).shape[2] == graph.ty(past_v).shape[2] => {
            Keys { past: Some([past_k, past_v]), new: [side_by_side(graph, k), side_by_side(graph, v)] }
        }
        _ => Keys { past: None, new: [side_by_side(graph, k), side_by_side(graph, v)] },
    })
}

/// The two parts, where positions are put after others.
pub(super) fn after(graph: &Graph, value: ValueId) -> Option<[ValueId; 2]> {
    match op(graph, value)? {
        Op::Concat(Concat { parts, axis: 2 }) => parts[..].try_into().ok(),
        _ => None,
    }
}

/// What [batch, heads, positions, size] was split into heads from; itself where it was not.
pub(super) fn side_by_side(graph: &Graph, value: ValueId) -> ValueId {
    let whole = || {
        let split = transposed(graph, value, HEADS_FIRST)?;
        let Op::Reshape(Reshape { x, .. }) = op(graph, split)? else { return None };
        let (from, to) = (&graph.ty(*x).shape, &graph.ty(split).shape);
        (from.rank() == 3 && from[..2] == to[..2]).then_some(*x)
    };
    whole().unwrap_or(value)
}
