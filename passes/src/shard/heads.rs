//! The heads of attention on ranks.

use planish_ir::ops::Attention;
use planish_ir::{Dim, Graph, Node};

use super::apart::{Need, size};
use super::cut::Cut;
use super::{ShardError, at};

/// How the operands and results of an attention are cut: by heads.
pub(super) struct Heads {
    /// The heads of a rank.
    pub(super) heads: usize,
    /// The heads of keys and values of a rank.
    pub(super) kv_heads: usize,
    q: Cut,
    k: Cut,
    v: Cut,
    bias: Option<Cut>,
    cache: Cut,
    result: Cut,
}

impl Heads {
    /// Whole heads for each rank. Where there are fewer heads of keys and values than ranks, several ranks have the same.
    ///
    /// # Errors
    /// When the numbers of heads do not divide.
    pub(super) fn of(graph: &Graph, node: &Node, op: &Attention, ranks: usize) -> Result<Self, ShardError> {
        let indivisible = |what: &'static str, number: usize| at(graph, node, what, number, ranks);
        if !op.heads.is_multiple_of(ranks) {
            return Err(indivisible("heads", op.heads));
        }
        let all = op.kv_heads();
        let (kv_heads, copies) = match (all.is_multiple_of(ranks), ranks.is_multiple_of(all)) {
            (true, _) => (all / ranks, 1),
            (false, true) => (1, ranks / all),
            (false, false) => return Err(indivisible("heads of keys and values", all)),
        };
        let last = |shape: &[Dim]| shape.last().and_then(size).unwrap_or(0);
        let keys = |value| match &graph.ty(value).shape[..] {
            shape @ [_, _, _] => Cut::copied(2, last(shape), copies),
            _ => Cut::copied(1, all, copies),
        };
        let bias = op.bias.and_then(|bias| {
            let shape = &graph.ty(bias).shape;
            let axis = shape.rank().checked_sub(3)?;
            (size(&shape[axis]) == Some(op.heads) && op.heads > 1).then(|| Cut::even(axis, op.heads))
        });
        Ok(Self {
            heads: op.heads / ranks,
            kv_heads,
            q: Cut::even(2, last(&graph.ty(op.q).shape)),
            k: keys(op.k),
            v: keys(op.v),
            bias,
            cache: Cut::copied(1, all, copies),
            result: Cut::even(2, last(&graph.ty(node.outputs[0]).shape)),
        })
    }

    /// The operands, as ranks take them.
    pub(super) fn needs(&self, op: &Attention) -> Vec<Need> {
        let cut = |cut: &Cut| Some(cut.clone());
        let mut needs = vec![(op.q, cut(&self.q)), (op.k, cut(&self.k)), (op.v, cut(&self.v))];
        needs.extend(op.mask.map(|mask| (mask, None)));
        needs.extend(op.bias.map(|bias| (bias, self.bias.clone())));
        needs.extend([op.past_key, op.past_value].into_iter().flatten().map(|past| (past, cut(&self.cache))));
        needs
    }

    /// The results, as ranks have them: of the queries, and all keys and values.
    pub(super) fn results(&self) -> [Cut; 3] {
        [self.result.clone(), self.cache.clone(), self.cache.clone()]
    }
}
