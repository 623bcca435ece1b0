//! The two halves of the transformer, and the positions of places.

use planish_ir::ops::{Attention, BinaryKind, Concat, Expand, Real, Slice, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};

use super::{Half, Settings, for_each};
use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;
use crate::layers::convolution;
use crate::layers::detection::{self, Along};
use crate::layers::patches;

/// What `torch.nn.LayerNorm` adds to the variance.
const EPS: f64 = 1e-5;

/// The longest wave of positions is so many times the shortest.
const TEMPERATURE: f64 = 10_000.0;

/// What is added to the last position before positions are divided by it.
const LAST_EPS: f64 = 1e-6;

/// The rows and columns that learned positions have.
const LEARNED: usize = 50;

/// What an attention takes: states, and those of them that positions are added to for queries and keys.
#[derive(Clone, Copy)]
struct Attended {
    queries: ValueId,
    keys: ValueId,
    values: ValueId,
}

impl Settings {
    /// The states of places: [batch_size, places, hidden].
    pub(super) fn encode(
        &self,
        b: &mut Builder<'_>,
        places: ValueId,
        positions: ValueId,
    ) -> Result<ValueId, ModelError> {
        let mut x = places;
        for layer in 0..self.encoder.layers.value {
            let path = format!("encoder.layers.{layer}");
            x = self.residual(b, x, &format!("{path}.self_attn_layer_norm"), |b, normal| {
                let at = b.add(normal, positions, &format!("{path}.self_attn.positions"))?;
                let attended = Attended { queries: at, keys: at, values: normal };
                self.attention(b, attended, &format!("{path}.self_attn"), &self.encoder)
            })?;
            x = self.feed_forward(b, x, &path, &self.encoder)?;
        }
        if self.norms_first { b.layer_norm(x, "encoder.layernorm", self.hidden, EPS) } else { Ok(x) }
    }

    /// The states of queries, which attend to places: [batch_size, queries, hidden].
    pub(super) fn decode(
        &self,
        b: &mut Builder<'_>,
        memory: ValueId,
        positions: ValueId,
    ) -> Result<ValueId, ModelError> {
        const QUERIES: &str = "query_position_embeddings";
        let [queries, hidden] = [self.queries, self.hidden].map(convolution::dim);
        let table = b.weight(&[&format!("{QUERIES}.weight")], &[self.queries, self.hidden])?;
        let of_queries =
            b.reshape(table, [Dim::constant(1), queries.clone(), hidden.clone()], &format!("{QUERIES}.row"))?;
        let zero = b.number(0.0, "queries.zero", "num_queries");
        let shape = Shape::new([Dim::constant(1), queries.clone(), hidden.clone()]);
        // Until queries attend to places they are the same for all images.
        let mut x = b.emit(Expand { x: zero, shape }, "queries")?;
        let keys = b.add(memory, positions, "decoder.places")?;
        for layer in 0..self.decoder.layers.value {
            let path = format!("decoder.layers.{layer}");
            x = self.residual(b, x, &format!("{path}.self_attn_layer_norm"), |b, normal| {
                let at = b.add(normal, of_queries, &format!("{path}.self_attn.positions"))?;
                let attended = Attended { queries: at, keys: at, values: normal };
                self.attention(b, attended, &format!("{path}.self_attn"), &self.decoder)
            })?;
            if layer == 0 {
                x = for_each(b, x, [queries.clone(), hidden.clone()], &path)?;
            }
            x = self.residual(b, x, &format!("{path}.encoder_attn_layer_norm"), |b, normal| {
                let at = b.add(normal, of_queries, &format!("{path}.encoder_attn.positions"))?;
                let attended = Attended { queries: at, keys, values: memory };
                self.attention(b, attended, &format!("{path}.encoder_attn"), &self.decoder)
            })?;
            x = self.feed_forward(b, x, &path, &self.decoder)?;
            if self.norms_each {
                x = b.layer_norm(x, "decoder.layernorm", self.hidden, EPS)?;
            }
        }
        b.layer_norm(x, "decoder.layernorm", self.hidden, EPS)
    }

    /// Adds what a layer makes of a value, with a norm before the layer or after the sum.
    fn residual<'a>(
        &self,
        b: &mut Builder<'a>,
        x: ValueId,
        norm: &str,
        layer: impl FnOnce(&mut Builder<'a>, ValueId) -> Result<ValueId, ModelError>,
    ) -> Result<ValueId, ModelError> {
        let add = format!("{norm}.add");
        if self.norms_first {
            let normal = b.layer_norm(x, norm, self.hidden, EPS)?;
            let made = layer(b, normal)?;
            return b.add(x, made, &add);
        }
        let made = layer(b, x)?;
        let sum = b.add(x, made, &add)?;
        b.layer_norm(sum, norm, self.hidden, EPS)
    }

    fn attention(&self, b: &mut Builder<'_>, of: Attended, path: &str, half: &Half) -> Result<ValueId, ModelError> {
        let mut project = |x: ValueId, name: &str| b.linear(x, &format!("{path}.{name}"), self.hidden, self.hidden);
        let q = project(of.queries, "q_proj")?;
        let k = project(of.keys, "k_proj")?;
        let v = project(of.values, "v_proj")?;
        let size = (self.hidden.value / half.heads.value) as f64;
        let attended = b.emit(Attention::new(q, k, v, half.heads.value, Real(1.0 / size.sqrt())), path)?;
        b.linear(attended, &format!("{path}.out_proj"), self.hidden, self.hidden)
    }

    fn feed_forward(&self, b: &mut Builder<'_>, x: ValueId, path: &str, half: &Half) -> Result<ValueId, ModelError> {
        self.residual(b, x, &format!("{path}.final_layer_norm"), |b, x| {
            let up = b.linear(x, &format!("{path}.fc1"), half.feed_forward, self.hidden)?;
            let active = self.activation.apply(b, up, &format!("{path}.activation"))?;
            b.linear(active, &format!("{path}.fc2"), self.hidden, half.feed_forward)
        })
    }
}

/// The positions of the places of images without padding, row by row: [1, places, hidden].
pub(super) fn positions(b: &mut Builder<'_>, s: &Settings, sides: &[Dim; 2]) -> Result<ValueId, ModelError> {
    let half = Size::derived(s.hidden.value / 2, "d_model / 2");
    let rows = side(b, s, &sides[0], half, "row")?;
    let columns = side(b, s, &sides[1], half, "column")?;
    let parts = match s.learns_positions {
        true => [Along::Columns(columns), Along::Rows(rows)],
        false => [Along::Rows(rows), Along::Columns(columns)],
    };
    detection::positions(b, parts, sides, half, "position_embedding")
}

/// The positions along a side: [places, features].
fn side(b: &mut Builder<'_>, s: &Settings, count: &Dim, features: Size, name: &str) -> Result<ValueId, ModelError> {
    let at = |part: &str| format!("position_embedding.{name}.{part}");
    if s.learns_positions {
        let stored = format!("position_embedding.{name}_embeddings.weight");
        let table = b.weight(
            &[&stored, &format!("backbone.{stored}")],
            &[Size::derived(LEARNED, "learned positions"), features],
        )?;
        return b.emit(Slice { x: table, axis: 0, start: Dim::constant(0), end: count.clone() }, &at("slice"));
    }
    let places = detection::numbers(b, count, &at("side"))?;
    let places = b.with_number(BinaryKind::Add, places, 1.0, &at("from_one"), "position_embedding_type")?;
    let Some(start) = count.checked_sub(&Dim::constant(1)) else {
        return Err(b.config.error("images have more places than 64 bits count"));
    };
    let last = b.emit(Slice { x: places, axis: 0, start, end: count.clone() }, &at("last"))?;
    let last = b.with_number(BinaryKind::Add, last, LAST_EPS, &at("positive"), "position_embedding_type")?;
    let parts = b.binary(BinaryKind::Div, [places, last], &at("parts"))?;
    let turns =
        b.with_number(BinaryKind::Mul, parts, std::f64::consts::TAU, &at("turns"), "position_embedding_type")?;
    let turns = b.reshape(turns, [count.clone(), Dim::constant(1)], &at("column"))?;
    let pairs = features.value / 2;
    let lengths: Vec<f64> =
        (0..pairs).map(|pair| TEMPERATURE.powf(2.0 * pair as f64 / features.value as f64)).collect();
    let lengths = Weight::numbers(DType::F32, vec![pairs], &lengths);
    let lengths = lengths.unwrap_or_else(|| unreachable!("there are as many numbers as the shape says"));
    let lengths = b.graph.add_weight(&at("lengths"), lengths, Origin::Config("position_embedding_type".into()));
    let waves = b.binary(BinaryKind::Div, [turns, lengths], &at("waves"))?;
    let mut wave = |kind: UnaryKind, part: &str| {
        let wave = b.emit(Unary { kind, x: waves }, &at(part))?;
        b.reshape(wave, [count.clone(), patches::dim(pairs), Dim::constant(1)], &at(&format!("{part}.last")))
    };
    let parts = vec![wave(UnaryKind::Sin, "sin")?, wave(UnaryKind::Cos, "cos")?];
    let joined = b.emit(Concat { parts, axis: 2 }, &at("pairs"))?;
    b.reshape(joined, [count.clone(), convolution::dim(features)], &at("features"))
}
