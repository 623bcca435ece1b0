//! The vocabulary on ranks: tables of tokens by rows, and the heads that score tokens by outputs.

use std::collections::HashSet;

use planish_ir::ops::{Embedding, Linear, Select, Slice};
use planish_ir::{Graph, Node, ValueId, Weight};

use super::ShardError;
use super::cut::Cut;
use super::rank::{Rank, dim};
use crate::pad::Found;

/// What makes up the vocabulary of a graph.
pub(super) struct Tokens {
    tables: HashSet<ValueId>,
    heads: HashSet<ValueId>,
}

impl Tokens {
    pub(super) fn of(graph: &Graph) -> Self {
        let found = Found::of(graph);
        Self {
            tables: found.tables.iter().copied().collect(),
            heads: found.heads.iter().map(|head| head.scores).collect(),
        }
    }

    /// Whether a value is the scores of tokens.
    pub(super) fn is_head(&self, value: ValueId) -> bool {
        self.heads.contains(&value)
    }
}

impl Rank<'_> {
    /// Rows of a table: of tokens that the rank has, and zeros for others, summed over ranks; or some of the columns.
    pub(super) fn embedding(&mut self, node: &Node, op: &Embedding) -> Result<(), ShardError> {
        let (result, ids) = (node.outputs[0], self.from.ty(op.ids).shape.rank());
        if self.held(op.ids).is_some() {
            return self.other(node);
        }
        if self.tokens.tables.contains(&op.weight) {
            return self.lookup(node, op);
        }
        match self.wants.cut(result).cloned().filter(|cut| cut.axis == ids && cut.fits(self.ranks)) {
            Some(cut) => {
                let weight = self.take(op.weight, Some(&cut.along(1)))?;
                let ids = self.take(op.ids, None)?;
                self.held_as(Embedding { weight, ids }, result, Some(cut))
            }
            None => self.other(node),
        }
    }

    fn lookup(&mut self, node: &Node, op: &Embedding) -> Result<(), ShardError> {
        let result = node.outputs[0];
        let Some(weight) = self.rows(op.weight, 0)? else { return self.other(node) };
        let rows = self.ty(weight).shape[0].as_constant().and_then(|rows| usize::try_from(rows).ok()).unwrap_or(0);
        let ids = self.take(op.ids, None)?;
        let (inside, ids) = self.inside(ids, rows, result)?;
        let found = self.part(Embedding { weight, ids }, result)?;
        let inside = self.of_rows(inside, result)?;
        let zero = self.constant(self.from.ty(op.weight).dtype, 0.0, result);
        let own = self.part(Select { condition: inside, a: found, b: zero }, result)?;
        let sum = self.summed(own, result)?;
        self.hold(result, sum, None);
        Ok(())
    }

    /// The scores of the tokens of each rank, put together.
    pub(super) fn head(&mut self, node: &Node, op: &Linear) -> Result<(), ShardError> {
        let (result, outputs) = (node.outputs[0], usize::from(op.transposed.0));
        let size = self.from.weight(op.weight).map_or(0, |weight| weight.shape()[outputs]);
        let bias = match op.bias {
            Some(bias) => match self.rows(bias, 0)? {
                None => return self.other(node),
                own => own,
            },
            None => None,
        };
        let Some(weight) = self.rows(op.weight, outputs)? else { return self.other(node) };
        let x = self.take(op.x, None)?;
        let own = self.part(Linear { x, weight, bias, transposed: op.transposed }, result)?;
        let axis = self.shape(own).rank() - 1;
        let padded = Cut::even(axis, size.next_multiple_of(self.ranks));
        let mut scores = self.joined(own, result, &padded)?;
        if padded.size() > size {
            scores = self.part(Slice { x: scores, axis, start: dim(0), end: dim(size) }, result)?;
        }
        self.hold(result, scores, None);
        Ok(())
    }

    /// The tokens that the rank has, of a weight with an axis of tokens. Zeros follow the last token where the vocabulary does
    /// not divide. `None` where those do not fit the weight.
    fn rows(&mut self, of: ValueId, axis: usize) -> Result<Option<ValueId>, ShardError> {
        let Some(weight) = self.from.weight(of) else { return Ok(None) };
        let size = weight.shape()[axis];
        let cut = Cut::even(axis, size.next_multiple_of(self.ranks));
        if cut.size() == size {
            return self.take(of, Some(&cut)).map(Some);
        }
        if let Some(own) = self.form(of, &cut) {
            return Ok(Some(own));
        }
        let mut shape = weight.shape().to_vec();
        shape[axis] = cut.size();
        let part = |padded: Weight| {
            let range = cut.ranges(self.ranks, self.rank).into_iter().next()?;
            padded.slice(axis, range)
        };
        let Some(part) = weight.pad(&shape, 0.0).and_then(part) else { return Ok(None) };
        let own = self.planned_weight(of, weight, part, Some(&cut));
        self.note_form(of, &cut, own);
        Ok(Some(own))
    }
}
