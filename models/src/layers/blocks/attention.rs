//! The attention of a layer: projections, norms of heads, rotation, and scores.

use planish_ir::ops::{BinaryKind, Cast, Concat, Expand, LayerNorm, Linear, Real, Split, Unary, UnaryKind};
use planish_ir::{DType, Dim, Shape, ValueId};

use super::Blocks;
use super::forms::{Growth, HeadNorms, HeadWeights, OutputGate, Projections};
use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::attention::{Heads, Scores, Text};
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::dense::by_kind;
use crate::layers::norm::Norm;

const QUERY_FEATURES: &str = "num_attention_heads * head_dim";
const KEY_FEATURES: &str = "num_key_value_heads * head_dim";

impl<T: Text> Blocks<'_, T> {
    pub(super) fn attention(
        &mut self,
        b: &mut Builder<'_>,
        x: ValueId,
        layer: usize,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let s = self.s;
        let at = |name: &str| format!("{module}.{name}");
        let (window, mut heads) = (s.windows.of(layer), s.heads_of(layer));
        let turns = !s.unrotated.get(layer).copied().unwrap_or(false);
        let angles = self.angles.filter(|_| turns).map(|angles| angles[usize::from(window.is_some())]);
        if let Some((latent, angles)) = s.latent.as_ref().zip(angles) {
            return latent.attend(b, s, &mut self.text, x, angles, module);
        }
        let [query_norm, key_norm] = s.names.head_norms;
        let place = |b: &mut Builder<'_>, mut x, count, norm: &str, rotary: &str| {
            let own = Heads { queries: count, ..heads };
            if !s.norms_rotated {
                x = self.head_norm(b, x, own, &at(norm))?;
            }
            x = self.clipped(b, x, &at(rotary))?;
            if let Some(angles) = angles {
                x = angles.rotate(b, x, count, s.interleaved, &at(rotary))?;
            }
            if s.norms_rotated && (angles.is_some() || s.head_norms != HeadNorms::OfRotated) {
                x = self.head_norm(b, x, own, &at(norm))?;
            }
            Ok::<_, ModelError>(x)
        };
        let sinks = s.sinks.map(|name| b.weight(&[&at(name)], &[heads.queries])).transpose()?;
        let bias = match s.chunks {
            Some(ref chunks) if !chunks.is_in(layer) => None,
            _ => self.bias,
        };
        let scores = Scores { scale: s.scale, window, softcap: s.softcap, sinks, bias };
        let shape = [s.hidden, features(heads, heads.queries, QUERY_FEATURES)];
        if let Some(source) = s.source_of(layer) {
            let q = b.projection(x, &at("q_proj"), [shape[1], s.hidden], s.input_bias)?;
            let q = place(b, q, heads.queries, query_norm, "rotary_q")?;
            let attended = self.text.attend_to_layer(b, q, source, heads, scores, module)?;
            return b.projection(attended, &at(s.names.output), shape, s.output_bias);
        }
        let keys_are_values = s.keys_are_values && window.is_none();
        let [mut q, k, mut v] = self.projections(b, x, heads, keys_are_values, module)?;
        let gate = match s.output_gate {
            OutputGate::Beside => {
                let [queries, gate] = self.gates(b, q, &at("q_proj"))?;
                q = queries;
                Some(gate)
            }
            OutputGate::Apart(name) => Some(b.projection(x, &at(name), [shape[1], s.hidden], false)?),
            OutputGate::None => None,
        };
        let mut q = place(b, q, heads.queries, query_norm, "rotary_q")?;
        let mut k = place(b, k, heads.keys, key_norm, "rotary_k")?;
        v = self.clipped(b, v, &at("v"))?;
        if s.normalizes_values {
            v = by_head(b, v, heads.keys, heads.size, &at("v_norm"), |b, v| {
                Norm::RmsPlain.apply(b, v, &at("v_norm"), heads.size, s.eps)
            })?;
        }
        let grows = s.growth.is_some_and(|growth| !growth.of_unrotated || angles.is_none());
        if let Some(factors) = self.growth.filter(|_| grows) {
            q = b.binary(BinaryKind::Mul, [q, factors], &at("grown_q"))?;
        }
        if s.repeats_keys && heads.keys.value != heads.queries.value {
            k = repeated(b, k, heads, &at("repeated_k"))?;
            v = repeated(b, v, heads, &at("repeated_v"))?;
            heads.keys = heads.queries;
        }
        let mut attended = self.text.attend(b, [q, k, v], heads, scores, module)?;
        if let Some(gate) = gate {
            let gate = b.emit(Unary { kind: UnaryKind::Sigmoid, x: gate }, &at("gate.sigmoid"))?;
            attended = b.binary(BinaryKind::Mul, [attended, gate], &at("gated"))?;
        }
        b.projection(attended, &at(s.names.output), shape, s.output_bias)
    }

    /// A value whose elements are limited where the model has a bound for them.
    fn clipped(&self, b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
        let Some((most, key)) = self.s.clip else { return Ok(x) };
        let below = b.with_number(BinaryKind::Min, x, most, &format!("{module}.min"), key)?;
        b.with_number(BinaryKind::Max, below, -most, &format!("{module}.clip"), key)
    }

    /// Queries, keys and values.
    fn projections(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        heads: Heads,
        keys_are_values: bool,
        module: &str,
    ) -> Result<[ValueId; 3], ModelError> {
        let s = self.s;
        let at = |name: &str| format!("{module}.{name}");
        let (queries, keys) =
            (features(heads, heads.queries, QUERY_FEATURES), features(heads, heads.keys, KEY_FEATURES));
        let key = "(num_attention_heads + 2 * num_key_value_heads) * head_dim";
        let all = Size::derived(queries.value + 2 * keys.value, key);
        match s.projections {
            Projections::Apart => {
                let both = Size::derived(2 * queries.value, "queries and gates");
                let wide = if s.output_gate == OutputGate::Beside { both } else { queries };
                let q = b.projection(x, &at("q_proj"), [wide, s.hidden], s.input_bias)?;
                let k = b.projection(x, &at("k_proj"), [keys, s.hidden], s.input_bias)?;
                let v = match keys_are_values {
                    true => k,
                    false => b.projection(x, &at("v_proj"), [keys, s.hidden], s.input_bias)?,
                };
                Ok([q, k, v])
            }
            Projections::Packed(name) => {
                let packed = b.projection(x, &at(name), [all, s.hidden], s.input_bias)?;
                split(b, packed, [queries.value, keys.value, keys.value], &at("split"))
            }
            Projections::Grouped { name, groups, values_first } => {
                let packed = self.grouped(b, x, groups, all, &at(name))?;
                let [q, second, third] = match queries.value == keys.value {
                    true => b.thirds(packed, queries, &at("split"))?,
                    false => self.apart(b, packed, groups, &at("split"))?,
                };
                Ok(if values_first { [q, third, second] } else { [q, second, third] })
            }
        }
    }

    /// The results of a projection of groups. Where each group has as much of all three, the rows of the weight are put in
    /// their order, so that results are side by side.
    fn grouped(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        groups: Size,
        all: Size,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let s = self.s;
        if s.heads.queries.value != s.heads.keys.value {
            return b.projection(x, module, [all, s.hidden], s.input_bias);
        }
        let at = |name: &str| format!("{module}.{name}");
        let size = Size::derived(all.value / 3 / groups.value, all.key);
        let rows = [groups, Size::derived(3, "queries, keys and values"), size].map(|rows| rows.signed().into());
        let weight = b.weight(&[&at("weight")], &[all, s.hidden])?;
        let weight = by_kind(b, weight, &rows, &[all, s.hidden], &at("weight"))?;
        let mut bias = None;
        if s.input_bias {
            let stored = b.weight(&[&at("bias")], &[all])?;
            bias = Some(by_kind(b, stored, &rows, &[all], &at("bias"))?);
        }
        b.emit(Linear::new(x, weight, bias), module)
    }

    /// Queries, keys and values of groups that are side by side, [batch_size, sequence_length, features].
    fn apart(&self, b: &mut Builder<'_>, x: ValueId, groups: Size, module: &str) -> Result<[ValueId; 3], ModelError> {
        let heads = self.s.heads;
        let parts = [heads.queries, heads.keys, heads.keys];
        let parts = parts.map(|count| features(heads, count, KEY_FEATURES).value / groups.value);
        if groups.value == 1 {
            return split(b, x, parts, module);
        }
        let at = |name: &str| format!("{module}.{name}");
        let texts = b.texts();
        let shape = |last: &[usize]| {
            let last = last.iter().map(|size| Size::derived(*size, KEY_FEATURES).signed().into());
            [texts.clone(), Dim::symbol(SEQUENCE)].into_iter().chain(last).collect::<Vec<_>>()
        };
        let by_group = b.reshape(x, shape(&[groups.value, parts.iter().sum()]), &at("by_group"))?;
        let mut results = [x; 3];
        let split = Split { x: by_group, axis: 3, sizes: parts.to_vec() };
        for ((result, part), (size, name)) in
            results.iter_mut().zip(b.emit_all(split, module)?).zip(parts.into_iter().zip(["q", "k", "v"]))
        {
            *result = b.reshape(part, shape(&[groups.value * size]), &at(name))?;
        }
        Ok(results)
    }

    /// Normalization of the heads of queries, or of as many others, that are side by side.
    fn head_norm(&self, b: &mut Builder<'_>, x: ValueId, heads: Heads, module: &str) -> Result<ValueId, ModelError> {
        let (s, Heads { queries, size, .. }) = (self.s, heads);
        match s.head_norms {
            HeadNorms::None => Ok(x),
            HeadNorms::Whole => s.norm.apply(b, x, module, features(heads, queries, QUERY_FEATURES), s.eps),
            HeadNorms::OfRotated => {
                by_head(b, x, queries, size, module, |b, x| Norm::RmsPlain.apply(b, x, module, size, s.eps))
            }
            HeadNorms::Each => by_head(b, x, queries, size, module, |b, x| s.norm.apply(b, x, module, size, s.eps)),
            HeadNorms::Apart(stored) => by_head(b, x, queries, size, module, |b, x| {
                let weight = b.ones(&format!("{module}.ones"), size);
                let norm = LayerNorm { x, weight, bias: None, eps: Real(s.eps) };
                let normal = b.emit(norm, &format!("{module}.normal"))?;
                let weights = head_weights(b, queries, size, stored, module)?;
                b.binary(BinaryKind::Mul, [normal, weights], module)
            }),
        }
    }
}

/// The features of some heads side by side.
fn features(heads: Heads, count: Size, key: &'static str) -> Size {
    Size::derived(count.value * heads.size.value, key)
}

/// Heads that are side by side, with what an operation makes of them apart: [.., heads, size].
fn by_head(
    b: &mut Builder<'_>,
    x: ValueId,
    heads: Size,
    size: Size,
    module: &str,
    operation: impl FnOnce(&mut Builder<'_>, ValueId) -> Result<ValueId, ModelError>,
) -> Result<ValueId, ModelError> {
    let whole = b.graph.ty(x).shape.clone();
    let tokens = [b.texts(), Dim::symbol(SEQUENCE)].into_iter();
    let apart = tokens.chain([heads, size].map(|size| Dim::constant(size.signed())));
    let apart = b.reshape(x, apart, &format!("{module}.split"))?;
    let result = operation(b, apart)?;
    b.reshape(result, whole.iter().cloned(), &format!("{module}.merge"))
}

/// The weights of the norms of some heads, [heads, size].
fn head_weights(
    b: &mut Builder<'_>,
    heads: Size,
    size: Size,
    stored: HeadWeights,
    module: &str,
) -> Result<ValueId, ModelError> {
    match stored {
        HeadWeights::Together => b.weight(&[&format!("{module}.weight")], &[heads, size]),
        HeadWeights::Listed => {
            let one = |head| b.weight(&[&format!("{module}.norms.{head}.weight")], &[size]);
            let parts = (0..heads.value).map(one).collect::<Result<Vec<_>, _>>()?;
            let all = b.emit(Concat { parts, axis: 0 }, &format!("{module}.norms"))?;
            b.reshape(all, [heads, size].map(|size| Dim::constant(size.signed())), &format!("{module}.by_head"))
        }
    }
}

/// Keys or values of all heads of queries, of those of the heads that these share.
fn repeated(b: &mut Builder<'_>, x: ValueId, heads: Heads, module: &str) -> Result<ValueId, ModelError> {
    let [keys, size] = [heads.keys, heads.size].map(|size| Dim::from(size.signed()));
    let times = Size::derived(heads.queries.value / heads.keys.value, "heads of queries that share keys");
    let (texts, tokens) = (b.texts(), Dim::symbol(SEQUENCE));
    let apart = [texts.clone(), tokens.clone(), keys.clone(), Dim::constant(1), size.clone()];
    let apart = b.reshape(x, apart, &format!("{module}.apart"))?;
    let shape = Shape::new([texts.clone(), tokens.clone(), keys, times.signed().into(), size]);
    let all = b.emit(Expand { x: apart, shape }, &format!("{module}.all"))?;
    let features = features(heads, heads.queries, QUERY_FEATURES);
    b.reshape(all, [texts, tokens, features.signed().into()], module)
}

/// Three parts of features that are side by side.
fn split(b: &mut Builder<'_>, x: ValueId, sizes: [usize; 3], module: &str) -> Result<[ValueId; 3], ModelError> {
    match b.emit_all(Split { x, axis: 2, sizes: sizes.to_vec() }, module)?[..] {
        [q, k, v] => Ok([q, k, v]),
        _ => unreachable!("a split has as many results as sizes"),
    }
}

impl Growth {
    /// The factors of queries at positions: i64[batch_size or 1, sequence_length] to [batch_size or 1, sequence_length, 1].
    pub(super) fn factors(self, b: &mut Builder<'_>, position_ids: ValueId) -> Result<ValueId, ModelError> {
        const KEY: &str = "rope_parameters";
        let at = |name: &str| format!("query_growth.{name}");
        let x = b.emit(Cast { x: position_ids, to: DType::F32 }, &at("positions"))?;
        let x = match self.first {
            0.0 => x,
            first => b.with_number(BinaryKind::Add, x, first, &at("first"), KEY)?,
        };
        let x = b.with_number(BinaryKind::Div, x, self.length, &at("div"), KEY)?;
        let x = b.emit(Unary { kind: UnaryKind::Floor, x }, &at("floor"))?;
        let x = b.with_number(BinaryKind::Add, x, 1.0, &at("add"), KEY)?;
        let x = b.emit(Unary { kind: UnaryKind::Log, x }, &at("log"))?;
        let x = b.with_number(BinaryKind::Mul, x, self.beta, &at("mul"), KEY)?;
        let x = b.with_number(BinaryKind::Add, x, 1.0, &at("factors"), KEY)?;
        let rows = b.graph.ty(position_ids).shape[0].clone();
        b.reshape(x, [rows, Dim::symbol(SEQUENCE), Dim::constant(1)], "query_growth")
    }
}
