//! What is beside attention in a layer: another mixer, and gates of what attention gives.

use planish_ir::ops::Split;
use planish_ir::{Dim, ValueId};

use super::{Blocks, scaled};
use crate::ModelError;
use crate::layers::attention::Text;
use crate::layers::builder::{Builder, SEQUENCE};

impl<T: Text> Blocks<'_, T> {
    /// Attention, and the sum of it and another mixer where there is one.
    pub(super) fn attention_and_beside(
        &mut self,
        b: &mut Builder<'_>,
        x: ValueId,
        layer: usize,
        at: &dyn Fn(&str) -> String,
    ) -> Result<ValueId, ModelError> {
        let s = self.s;
        let (module, [before, after]) = (at(s.names.attention), s.attention_factors);
        let beside = match (s.beside, self.text.decoder()) {
            (Some(mixer), Some(decoder)) => Some((mixer.apply)(b, s, decoder, x, &at(mixer.module))?),
            _ => None,
        };
        let x = scaled(b, x, before, &format!("{module}.input"))?;
        let attended = self.attention(b, x, layer, &module)?;
        let attended = scaled(b, attended, after, &format!("{module}.output"))?;
        beside.map_or(Ok(attended), |beside| b.add(beside, attended, &format!("{module}.beside")))
    }

    /// The queries and the gates of all heads, which are side by side in each head.
    pub(super) fn gates(&self, b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<[ValueId; 2], ModelError> {
        let (heads, size) = (self.s.heads.queries, self.s.heads.size);
        let tokens = [b.texts(), Dim::symbol(SEQUENCE)];
        let apart = [heads.signed(), 2 * size.signed()].map(Dim::constant);
        let apart = b.reshape(x, tokens.clone().into_iter().chain(apart), &format!("{module}.heads"))?;
        let parts = b.emit_all(Split { x: apart, axis: 3, sizes: vec![size.value; 2] }, &format!("{module}.parts"))?;
        let features = Dim::from(heads.signed()).checked_mul(&size.signed().into()).unwrap_or_default();
        let mut merged = |part, name: &str| {
            b.reshape(part, tokens.clone().into_iter().chain([features.clone()]), &format!("{module}.{name}"))
        };
        match parts[..] {
            [queries, gates] => Ok([merged(queries, "queries")?, merged(gates, "gates")?]),
            _ => unreachable!("a split has as many results as sizes"),
        }
    }
}
