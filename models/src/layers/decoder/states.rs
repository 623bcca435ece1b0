//! Layers of a decoder with states of a fixed size. Padding leaves states as they are, so a text gives the same with padding
//! before it and without.

use planish_ir::ops::{BinaryKind, CausalConv, Flag, LinearAttention, Slice};
use planish_ir::{DType, Dim, ValueId};

use super::Decoder;
use crate::checkpoint::config::Size;
use crate::layers::builder::{BATCH, Builder, SEQUENCE};
use crate::layers::encoder;
use crate::names::{self, StateOf, TOTAL};
use crate::{ModelError, Task};

/// A convolution of each channel over the tokens up to each.
#[derive(Clone, Copy)]
pub(crate) struct Convolution {
    pub(crate) channels: Size,
    /// How many tokens each result is of.
    pub(crate) taps: Size,
    pub(crate) bias: bool,
    pub(crate) silu: bool,
}

impl Decoder {
    /// A decoder whose layers have states of a fixed size only, with its inputs for a task.
    pub(crate) fn recurrent(b: &mut Builder<'_>, task: Task, vocabulary: Size) -> Result<Self, ModelError> {
        let input_ids = b.input(names::INPUT_IDS, vocabulary.signed())?;
        let all = if task == Task::TextGeneration { TOTAL } else { SEQUENCE };
        let attention_mask = b.ids(names::ATTENTION_MASK, [Dim::symbol(BATCH), Dim::symbol(all)], 2);
        let tied = b.config.get(super::TIED).map(|_| b.config.boolean(super::TIED, false)).transpose()?;
        let padding = super::padding(b, vocabulary);
        Ok(Self {
            input_ids,
            position_ids: input_ids,
            task,
            vocabulary,
            positions: None,
            attention_mask,
            mask: encoder::mask(b, attention_mask)?,
            causal: true,
            wider: 0,
            token_bias: true,
            tied,
            padding,
            keys: Vec::new(),
            without_keys: Vec::new(),
            kept: None,
            states: Vec::new(),
            together: None,
        })
    }

    /// The layer that is being built.
    pub(super) fn layer(&self) -> usize {
        self.keys.len() + self.without_keys.len()
    }

    /// Ends a layer without keys and values.
    pub(crate) fn end_layer(&mut self) {
        // Without a cache no layer has keys.
        if self.task == Task::TextGeneration {
            self.without_keys.push(self.layer());
        }
    }

    /// A value of each new token, [batch_size, sequence_length, features], with zeros for padding.
    pub(crate) fn without_padding(
        &mut self,
        b: &mut Builder<'_>,
        x: ValueId,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let kept = match self.kept {
            Some(kept) => kept,
            None => self.new_tokens(b)?,
        };
        self.kept = Some(kept);
        b.binary(BinaryKind::Mul, [x, kept], &format!("{module}.kept"))
    }

    /// 1 for each new token, 0 for padding.
    fn new_tokens(&self, b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
        let (tokens, end) = (Dim::symbol(SEQUENCE), b.graph.ty(self.mask).shape[1].clone());
        let start = end.checked_sub(&tokens).unwrap_or_default();
        let new = b.emit(Slice { x: self.mask, axis: 1, start, end }, "attention_mask.new")?;
        let new = b.emit(planish_ir::ops::Cast { x: new, to: DType::F32 }, "attention_mask.numbers")?;
        b.reshape(new, [Dim::symbol(BATCH), tokens, Dim::constant(1)], "attention_mask.kept")
    }

    /// A convolution with the weight `MODULE.weight`, and `MODULE.bias`, of `x`, [batch_size, sequence_length, channels], without padding.
    pub(crate) fn convolve(
        &mut self,
        b: &mut Builder<'_>,
        x: ValueId,
        of: Convolution,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let one = Size::derived(1, "groups of channels");
        let weight = b.weight(&[&format!("{module}.weight")], &[of.channels, one, of.taps])?;
        let bias = if of.bias { Some(b.weight(&[&format!("{module}.bias")], &[of.channels])?) } else { None };
        let x = self.without_padding(b, x, module)?;
        let before = Dim::constant(of.taps.signed() - 1);
        let state = self.state(b, StateOf::Convolution, [Dim::symbol(BATCH), before, of.channels.signed().into()]);
        let results = b.emit_all(CausalConv { x, weight, bias, state, silu: Flag(of.silu) }, module)?;
        Ok(self.keep(StateOf::Convolution, &results))
    }

    /// Linear attention, whose `state` is that of the layer. Decays and `beta`, or values, are 0 for padding.
    pub(crate) fn attend_linearly(
        &mut self,
        b: &mut Builder<'_>,
        op: LinearAttention,
        of: StateOf,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let size = |x: ValueId, heads: usize| {
            let heads = i64::try_from(heads).map(Dim::constant).unwrap_or_default();
            b.graph.ty(x).shape[2].exact_div(&heads).unwrap_or_default()
        };
        let heads = i64::try_from(op.heads).map(Dim::constant).unwrap_or_default();
        let dims = [Dim::symbol(BATCH), heads, size(op.k, op.key_heads), size(op.v, op.heads)];
        let state = self.state(b, of, dims);
        let results = b.emit_all(LinearAttention { state, ..op }, module)?;
        Ok(self.keep(of, &results))
    }

    /// The state before the new tokens, where text is generated.
    fn state(&self, b: &mut Builder<'_>, of: StateOf, dims: impl IntoIterator<Item = Dim>) -> Option<ValueId> {
        let (name, role) = of.past(self.layer());
        (self.task == Task::TextGeneration).then(|| b.floats(&name, role, dims))
    }

    /// The first of some results; the second one is the state after the new tokens.
    fn keep(&mut self, of: StateOf, results: &[ValueId]) -> ValueId {
        let &[result, state] = results else { unreachable!("a layer with a state has it as a result") };
        if self.task == Task::TextGeneration {
            let (name, role) = of.present(self.layer());
            self.states.push((name, role, state));
        }
        result
    }
}
