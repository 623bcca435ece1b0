//! Ragged batches: encoders that are computed on the tokens of a batch alone, without its padding.
//!
//! A graph qualifies if, from the embeddings on, every operator computes each token alone, but attention, whose keys
//! the mask of tokens [batch, sequence] leaves out. The values of such operators, [batch, sequence, ..], become [1, tokens,
//! ..] in programs for packed batches: the graph stays as it is, with 1 for the symbol of rows and the number of tokens
//! for that of positions. What is computed of ids before, such as positions, stays [batch, sequence], and a program packs
//! it where an operator on tokens takes it. Poolers take the first token of each row. An output for each token is
//! unpacked, with zeros for padding.

mod layout;
mod operands;

use planish_eval::Tensor;
use planish_ir::handle::Handle;
use planish_ir::ops::Attention;
use planish_ir::{DType, Dim, Graph, InputRole, Op, Shape, Symbol, ValueId};

use super::program::{Target, takes_packed};
pub(crate) use layout::PackedSizes;
use operands::{Operand, extra, of_first_token, of_tokens};

/// How a graph is computed on packed batches.
#[derive(Debug)]
pub(crate) struct Packing {
    /// The place of the mask among the inputs.
    mask: usize,
    axes: Axes,
    /// Which values are computed on tokens alone, by index.
    packed: Vec<bool>,
}

/// What the axes of rows and of positions are called.
#[derive(Debug)]
struct Axes {
    batch: Symbol,
    sequence: Symbol,
}

impl Axes {
    fn mentions(&self, dim: &Dim) -> bool {
        dim.symbols().any(|symbol| *symbol == self.batch || *symbol == self.sequence)
    }

    /// Whether a shape has these axes first, and nowhere else.
    fn lead(&self, shape: &Shape) -> bool {
        match &shape[..] {
            [batch, sequence, rest @ ..] => {
                batch.as_symbol() == Some(&self.batch)
                    && sequence.as_symbol() == Some(&self.sequence)
                    && !rest.iter().any(|dim| self.mentions(dim))
            }
            _ => false,
        }
    }

    /// Whether a shape broadcasts to one of `rank` dimensions that these axes lead.
    fn broadcast(&self, shape: &Shape, rank: usize) -> bool {
        let Some(missing) = rank.checked_sub(shape.rank()) else { return false };
        let fits = |(at, dim): (usize, &Dim)| {
            let is = |symbol: &Symbol| dim.as_symbol() == Some(symbol) || dim.as_constant() == Some(1);
            match at + missing {
                0 => is(&self.batch),
                1 => is(&self.sequence),
                _ => !self.mentions(dim),
            }
        };
        shape.iter().enumerate().all(fits)
    }
}

impl Packing {
    /// How the runtime `cuda` computes a graph on packed batches.
    ///
    /// # Errors
    /// Why it does not: part of a sentence.
    pub(crate) fn of(graph: &Graph, target: &Target) -> Result<Self, String> {
        let is_mask = |value: &ValueId| {
            graph.interface.input(&graph.value(*value).name) == InputRole::Mask
                && graph.type_of(*value).as_tensor().is_some()
        };
        let mask = graph.inputs().iter().position(is_mask).ok_or("there is no input that is the mask of tokens")?;
        let ty = graph.ty(graph.inputs()[mask]);
        let axes = match ty.shape.iter().map(Dim::as_symbol).collect::<Vec<_>>()[..] {
            [Some(batch), Some(sequence)] if batch != sequence => {
                Axes { batch: batch.clone(), sequence: sequence.clone() }
            }
            _ => return Err(format!("the mask of tokens is {ty}, and not [batch, sequence] of open sizes")),
        };
        let mut packing = Self { mask, axes, packed: vec![false; graph.value_count()] };
        let mut attentions = 0;
        for id in graph.needed_nodes() {
            let node = graph.node(id);
            let is_packed = |value: ValueId| packing.packed[value.index()];
            if of_first_token(graph, &node.op).is_some_and(is_packed) {
                continue;
            }
            let Some(&result) = node.outputs.first() else { continue };
            let ty = graph.type_of(result).as_tensor();
            let begins =
                ty.is_some_and(|ty| ty.dtype.is_float() && ty.shape.rank() > 2 && packing.axes.lead(&ty.shape));
            if !begins && !node.op.operands().into_iter().any(is_packed) {
                continue;
            }
            let name = &graph.value(result).name;
            packing
                .check(graph, &node.op, &node.outputs)
                .map_err(|why| format!("`{}` at `{name}` {why}", node.op.kind()))?;
            if let Op::Attention(attention) = &node.op {
                packing
                    .check_attention(graph, attention, target)
                    .map_err(|why| format!("the attention `{name}` {why}"))?;
                attentions += 1;
            }
            node.outputs.iter().for_each(|value| packing.packed[value.index()] = true);
        }
        if attentions == 0 {
            return Err("there is no attention".to_owned());
        }
        Ok(packing)
    }

    /// Whether an operator computes each token alone.
    fn check(&self, graph: &Graph, op: &Op, results: &[ValueId]) -> Result<(), String> {
        let alone = || "does not compute each token alone".to_owned();
        let operands = of_tokens(graph, op, results[0]).ok_or_else(alone)?;
        let leads = |value: &ValueId| self.axes.lead(&graph.ty(*value).shape);
        if !results.iter().all(leads) {
            return Err(alone());
        }
        for value in op.operands() {
            let shape = &graph.ty(value).shape;
            let fits = match operands.iter().find(|operand| operand.value == value) {
                Some(operand) if self.packed[value.index()] => operand.rank == shape.rank(),
                Some(Operand { rank, broadcasts: true, .. }) => self.axes.broadcast(shape, *rank),
                Some(Operand { broadcasts: false, .. }) => self.axes.lead(shape),
                // A bias over queries and keys is looked at with its attention, as is a mask.
                None if matches!(op, Op::Attention(_)) => !self.packed[value.index()],
                None => !self.packed[value.index()] && !shape.iter().any(|dim| self.axes.mentions(dim)),
            };
            if !fits {
                return Err(format!("takes `{}`, which is {}", graph.value(value).name, graph.ty(value)));
            }
        }
        let mut dims = Ok(());
        if !matches!(op, Op::Reshape(_) | Op::Expand(_)) {
            op.visit_dims(&mut |dim| {
                if self.axes.mentions(dim) {
                    dims = Err(alone());
                }
            });
        }
        dims
    }

    /// Whether an attention leaves out what the mask does, and no other than that of other rows.
    fn check_attention(&self, graph: &Graph, attention: &Attention, target: &Target) -> Result<(), String> {
        if let Some(extra) = extra(attention) {
            return Err(extra.to_owned());
        }
        let input = graph.inputs()[self.mask];
        let is_input = |mask: ValueId| match graph.producer(mask).map(|node| &node.op) {
            Some(Op::Cast(cast)) => cast.x == input && cast.to == DType::Bool,
            _ => mask == input,
        };
        match attention.mask {
            None => return Err("has no mask".to_owned()),
            Some(mask) if !is_input(mask) => {
                return Err(format!("has the mask `{}`, which is not that of tokens", graph.value(mask).name));
            }
            Some(_) => {}
        }
        let of_rows = |value: &ValueId| {
            graph.ty(*value).shape.iter().any(|dim| dim.symbols().any(|symbol| *symbol == self.axes.batch))
        };
        if let Some(bias) = attention.bias.filter(of_rows) {
            return Err(format!("has the bias `{}`, which each row has for itself", graph.value(bias).name));
        }
        let size = |value: ValueId, heads: usize| {
            let features = graph.ty(value).shape[2].as_constant().and_then(|n| usize::try_from(n).ok());
            features.map(|features| features / heads).ok_or("has heads of open sizes")
        };
        let (size, value_size) = (size(attention.k, attention.kv_heads())?, size(attention.v, attention.kv_heads())?);
        let dtype = graph.ty(attention.q).dtype;
        takes_packed(target, dtype, size, value_size).then_some(()).ok_or_else(|| {
            format!("has heads of {size} and {value_size} features, for which no kernel takes packed batches")
        })
    }

    /// The place of the mask among the inputs.
    pub(crate) fn mask(&self) -> usize {
        self.mask
    }

    /// The symbols of rows and of positions.
    pub(crate) fn symbols(&self) -> [&Symbol; 2] {
        [&self.axes.batch, &self.axes.sequence]
    }

    /// Whether a value is computed on tokens alone: [1, tokens, ..] of a packed batch.
    pub(crate) fn is_packed(&self, value: ValueId) -> bool {
        self.packed[value.index()]
    }

    /// Of a node whose results are computed on tokens: the operands that are not, and that are packed for it, with the
    /// number of dimensions that they are broadcast to.
    pub(crate) fn unpacked_operands(&self, graph: &Graph, op: &Op, result: ValueId) -> Vec<(ValueId, usize)> {
        let mentions = |value: ValueId| graph.ty(value).shape.iter().any(|dim| self.axes.mentions(dim));
        let operands = of_tokens(graph, op, result).unwrap_or_default().into_iter();
        let needed = operands.filter(|operand| !self.is_packed(operand.value) && mentions(operand.value));
        needed.map(|operand| (operand.value, operand.rank)).collect()
    }

    /// The operand of which an operator takes the first token of each row, where that is packed.
    pub(crate) fn first_token(&self, graph: &Graph, op: &Op) -> Option<ValueId> {
        of_first_token(graph, op).filter(|value| self.is_packed(*value))
    }
}

/// A batch whose rows have different lengths.
pub(crate) struct PackedBatch {
    pub(crate) sizes: PackedSizes,
    /// The numbers of [`PackedSizes::numbers`], as bytes.
    pub(crate) numbers: Vec<u8>,
}

impl PackedBatch {
    /// The batch of a mask [batch, sequence]; `None` where it has no padding, or other padding than at the ends of rows, or
    /// a row without any token.
    pub(crate) fn of(mask: &Tensor) -> Option<Self> {
        let lengths = layout::lengths(mask)?;
        let sizes = PackedSizes::of(&lengths, *mask.shape().get(1)?)?;
        let numbers = sizes.numbers(&lengths).into_iter().flat_map(i32::to_le_bytes).collect();
        Some(Self { sizes, numbers })
    }
}
