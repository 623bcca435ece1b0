//! Programs for packed batches: values on tokens alone, and how others get there and back.

use std::collections::HashMap;

use planish_ir::{Bindings, DType, Op, ValueId};

use super::build::Builder;
use super::movement::Outside;
use super::{Base, Place, View};
use crate::cuda::packing::{PackedSizes, Packing};

/// What a builder of a program for a packed batch knows.
pub(super) struct OnTokens<'a> {
    packing: &'a Packing,
    pub(super) sizes: PackedSizes,
    /// What symbols stand for in operators on tokens: one row of all tokens.
    bindings: Bindings,
    /// Values [batch, sequence, ..] that were packed, by the number of dimensions that they were broadcast to.
    copies: HashMap<(ValueId, usize), View>,
    /// Those that the operator on tokens takes that is being built; `None` while another operator is.
    operands: Option<HashMap<ValueId, View>>,
}

impl<'a> OnTokens<'a> {
    pub(super) fn new(packing: &'a Packing, sizes: PackedSizes, bindings: &Bindings) -> Self {
        let mut bindings = bindings.clone();
        let [batch, sequence] = packing.symbols();
        bindings.insert(batch.clone(), 1);
        bindings.insert(sequence.clone(), i64::try_from(sizes.tokens).unwrap_or(i64::MAX));
        Self { packing, sizes, bindings, copies: HashMap::new(), operands: None }
    }

    /// Whether a value is one on tokens.
    pub(super) fn has(&self, value: ValueId) -> bool {
        self.packing.is_packed(value)
    }

    /// What symbols stand for, while an operator on tokens is built.
    pub(super) fn bindings(&self) -> Option<&Bindings> {
        self.operands.as_ref().map(|_| &self.bindings)
    }

    /// A value that was packed for the operator that is being built.
    pub(super) fn operand(&self, value: ValueId) -> Option<&View> {
        self.operands.as_ref()?.get(&value)
    }

    /// Where the sequences start that an attention attends in, while one is built.
    pub(super) fn starts(&self) -> Option<View> {
        self.operands.as_ref().map(|_| self.numbers(0, self.sizes.sequences() + 1))
    }

    /// Some of the numbers that say where tokens are.
    fn numbers(&self, first: usize, count: usize) -> View {
        let place = Place { base: Base::Packing, offset: first * DType::I32.size() };
        View::contiguous(place, DType::I32, vec![count])
    }
}

/// [a, b, ..] as [a * b, ..].
fn as_rows(x: &View) -> View {
    let shape = [&[x.shape[0] * x.shape[1]], &x.shape[2..]].concat();
    View::contiguous(x.place, x.dtype, shape)
}

impl Builder<'_> {
    /// The steps of an operator: on tokens, if its results are.
    pub(super) fn node_on_tokens(&mut self, op: &Op, results: &[ValueId]) -> Result<(), String> {
        let (Some(packed), Some(&result)) = (&self.packed, results.first()) else { return self.node(op, results) };
        if let Some(x) = packed.packing.first_token(self.graph, op) {
            return self.first_tokens(result, x);
        }
        if !packed.has(result) {
            return self.node(op, results);
        }
        let mut operands = HashMap::new();
        for (value, rank) in packed.packing.unpacked_operands(self.graph, op, result) {
            operands.insert(value, self.packed_copy(value, rank)?);
        }
        if let Some(packed) = &mut self.packed {
            packed.operands = Some(operands);
        }
        let built = self.node(op, results);
        if let Some(packed) = &mut self.packed {
            packed.operands = None;
        }
        built
    }

    /// A value that broadcasts to [batch, sequence, ..] of `rank` dimensions, packed: [1, tokens, ..].
    fn packed_copy(&mut self, value: ValueId, rank: usize) -> Result<View, String> {
        let Some(packed) = &self.packed else { return self.view(value) };
        if let Some(copy) = packed.copies.get(&(value, rank)) {
            return Ok(copy.clone());
        }
        let sizes = packed.sizes;
        let rows = packed.numbers(sizes.rows(), sizes.tokens);
        let view = self.view(value)?;
        // As many dimensions of features as it has itself.
        let others = view.shape.len().saturating_sub(rank.saturating_sub(2));
        let shape = [&[sizes.batch, sizes.sequence], &view.shape[others..]].concat();
        let whole = self.without_gaps(view.expand(&shape))?;
        let copy = self.temporary(whole.dtype, [&[1, sizes.tokens], &shape[2..]].concat())?;
        self.gather_rows(&as_rows(&copy), &as_rows(&whole), &rows, 0, Outside::NotNumbers)?;
        if let Some(packed) = &mut self.packed {
            packed.copies.insert((value, rank), copy.clone());
        }
        Ok(copy)
    }

    /// The first token of each row of a value on tokens.
    fn first_tokens(&mut self, result: ValueId, x: ValueId) -> Result<(), String> {
        let x = self.whole(x)?;
        let result = self.result(result)?;
        let Some(packed) = &self.packed else { return Err("the batch is not packed".to_owned()) };
        let starts = packed.numbers(0, packed.sizes.batch);
        // [batch, ..] or [batch, 1, ..]
        let rows = as_rows(&x);
        let to = View::contiguous(result.place, result.dtype, [&[packed.sizes.batch], &rows.shape[1..]].concat());
        self.gather_rows(&to, &rows, &starts, 0, Outside::NotNumbers)
    }

    /// Copies a value on tokens to [batch, sequence, ..], with zeros for padding.
    pub(super) fn unpack(&mut self, to: &View, x: View) -> Result<(), String> {
        let x = self.without_gaps(x)?;
        let Some(packed) = &self.packed else { return Err("the batch is not packed".to_owned()) };
        let places = packed.numbers(packed.sizes.places(), packed.sizes.batch * packed.sizes.sequence);
        self.gather_rows(&as_rows(to), &as_rows(&x), &places, 0, Outside::Zeros)
    }
}
