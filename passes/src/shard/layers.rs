//! The layers that ranks share: each has a part of their weights.

use planish_ir::ops::{Attention, Binary, BinaryKind, Experts, Linear, Reshape, Select};
use planish_ir::{Node, Op, Shape, ValueId};

use super::cut::Cut;
use super::heads::Heads;
use super::rank::{Rank, dim};
use super::{ShardError, at};

impl Rank<'_> {
    /// The heads of the rank.
    pub(super) fn attention(&mut self, node: &Node, op: &Attention) -> Result<(), ShardError> {
        let heads = Heads::of(self.from, node, op, self.ranks)?;
        let Op::Attention(own) = self.with_operands(node, &heads.needs(op))? else { return Ok(()) };
        let kv_heads = op.kv_heads.map(|_| heads.kv_heads);
        let own = self.emit(Attention { heads: heads.heads, kv_heads, ..own }, node.outputs[0])?;
        for ((result, own), cut) in node.outputs.iter().zip(own).zip(heads.results()) {
            self.hold(*result, own, Some(cut));
        }
        Ok(())
    }

    /// A linear layer: of the features of the rank, with a sum over ranks, or of the outputs of the rank.
    pub(super) fn linear(&mut self, node: &Node, op: &Linear) -> Result<(), ShardError> {
        let result = node.outputs[0];
        let last = self.from.ty(op.x).shape.rank() - 1;
        let (outputs, inputs) = if op.transposed.0 { (1, 0) } else { (0, 1) };
        match (self.held(op.x), self.wants.cut(result).cloned()) {
            (Some(x), _) if x.axis == last && x.is_apart() => {
                let partial = Linear {
                    x: self.take(op.x, Some(&x))?,
                    weight: self.take(op.weight, Some(&x.along(inputs)))?,
                    bias: None,
                    transposed: op.transposed,
                };
                let partial = self.part(partial, result)?;
                self.summed_with(partial, op.bias, result)
            }
            (Some(x), _) if x.axis != last => {
                let own = Linear {
                    x: self.take(op.x, Some(&x))?,
                    weight: self.take(op.weight, None)?,
                    bias: self.optional(op.bias, None)?,
                    transposed: op.transposed,
                };
                self.held_as(own, result, Some(x))
            }
            (_, Some(cut)) if cut.axis == last && cut.fits(self.ranks) => {
                let own = Linear {
                    x: self.take(op.x, None)?,
                    weight: self.take(op.weight, Some(&cut.along(outputs)))?,
                    bias: self.optional(op.bias, Some(&cut.along(0)))?,
                    transposed: op.transposed,
                };
                self.held_as(own, result, Some(cut))
            }
            _ if self.tokens.is_head(result) => self.head(node, op),
            _ => self.other(node),
        }
    }

    /// Holds the only result of an operator.
    pub(super) fn held_as(&mut self, op: impl Into<Op>, result: ValueId, cut: Option<Cut>) -> Result<(), ShardError> {
        let own = self.emit(op, result)?;
        self.hold(result, own[0], cut);
        Ok(())
    }

    pub(super) fn optional(
        &mut self,
        value: Option<ValueId>,
        cut: Option<&Cut>,
    ) -> Result<Option<ValueId>, ShardError> {
        value.map(|value| self.take(value, cut)).transpose()
    }

    /// The sum over ranks, and the bias once after it.
    fn summed_with(&mut self, partial: ValueId, bias: Option<ValueId>, result: ValueId) -> Result<(), ShardError> {
        let sum = self.summed(partial, result)?;
        match bias {
            Some(bias) => {
                let bias = self.take(bias, None)?;
                self.held_as(Binary { kind: BinaryKind::Add, a: sum, b: bias }, result, None)
            }
            None => {
                self.hold(result, sum, None);
                Ok(())
            }
        }
    }

    /// The experts of the rank, to which tokens that take others give the score 0, and the sum over ranks.
    pub(super) fn experts(&mut self, node: &Node, op: &Experts) -> Result<(), ShardError> {
        let result = node.outputs[0];
        let all = self.from.weight(op.gate).map_or(0, |gate| gate.shape()[0]);
        if all == 0 {
            return self.other(node);
        }
        if !all.is_multiple_of(self.ranks) {
            return Err(at(self.from, node, "experts", all, self.ranks));
        }
        let cut = Cut::even(0, all);
        let x = self.take(op.x, None)?;
        let (indices, scores) = (self.take(op.indices, None)?, self.take(op.scores, None)?);
        let (inside, indices) = self.inside(indices, all / self.ranks, result)?;
        let zero = self.constant(self.from.ty(op.scores).dtype, 0.0, result);
        let scores = self.part(Select { condition: inside, a: scores, b: zero }, result)?;
        let own = Experts {
            x,
            indices,
            scores,
            gate: self.take(op.gate, Some(&cut))?,
            down: self.take(op.down, Some(&cut))?,
            up: self.optional(op.up, Some(&cut))?,
            gate_bias: self.optional(op.gate_bias, Some(&cut))?,
            up_bias: self.optional(op.up_bias, Some(&cut))?,
            down_bias: self.optional(op.down_bias, Some(&cut))?,
            ..op.clone()
        };
        let partial = self.part(own, result)?;
        self.summed_with(partial, None, result)
    }

    /// Whether indices are among the `count` that the rank has, and which of these they are; 0 for others.
    pub(super) fn inside(
        &mut self,
        indices: ValueId,
        count: usize,
        like: ValueId,
    ) -> Result<(ValueId, ValueId), ShardError> {
        let dtype = self.ty(indices).dtype;
        let first = self.constant(dtype, (self.rank * count) as f64, like);
        let [zero, end] = [0, count].map(|number| self.constant(dtype, number as f64, like));
        let own = self.part(Binary { kind: BinaryKind::Sub, a: indices, b: first }, like)?;
        let from_zero = self.part(Binary { kind: BinaryKind::GreaterOrEqual, a: own, b: zero }, like)?;
        let below = self.part(Binary { kind: BinaryKind::Less, a: own, b: end }, like)?;
        let inside = self.part(Binary { kind: BinaryKind::And, a: from_zero, b: below }, like)?;
        let own = self.part(Select { condition: inside, a: own, b: zero }, like)?;
        Ok((inside, own))
    }

    /// A mask with one more dimension, to be applied to rows.
    pub(super) fn of_rows(&mut self, mask: ValueId, like: ValueId) -> Result<ValueId, ShardError> {
        let shape = Shape::new(self.ty(mask).shape.iter().cloned().chain([dim(1)]));
        self.part(Reshape { x: mask, shape }, like)
    }
}
