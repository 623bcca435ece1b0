//! The layers that Llama and related models share: attention with rotary embedding over projections to queries, keys and
//! values, and a feed-forward, with norms around them. Decoders and encoders have the same.

pub(crate) mod feed_forward;
mod settings;

use planish_ir::ops::{Binary, BinaryKind, Concat, LayerNorm, Real, Split, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};

pub(crate) use self::settings::{
    Around, Defaults, EmbeddingScale, Factor, FeedForward, HeadNorms, HeadWeights, KEYS, Projections, Settings,
};
use crate::architecture::Properties;
use crate::checkpoint::config::Size;
use crate::layers::attention::{Scores, Text};
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::decoder::{Classifier, Decoder};
use crate::layers::encoder::{self, TextEncoder};
use crate::layers::rope::{self, Angles, Rope};
use crate::{ModelError, Task};

const QUERY_FEATURES: &str = "num_attention_heads * head_dim";
const KEY_FEATURES: &str = "num_key_value_heads * head_dim";

/// A whole decoder, with the outputs of a task.
pub(crate) fn decoder(b: &mut Builder<'_>, s: &Settings, task: Task) -> Result<Properties, ModelError> {
    let ropes = Ropes::read(b, s)?;
    let mut decoder = Decoder::new(b, task, s.vocabulary, ropes.longest(), s.position_source, s.heads)?;
    if let Some(key) = s.both_sides {
        decoder.sees_both_sides(b, key)?;
    }
    let positions = decoder.position_ids;
    let mut blocks = Blocks { s, angles: ropes.angles(b, positions)?, text: decoder };
    let x = embed(b, s, blocks.text.input_ids)?;
    let x = blocks.layers(b, x)?;
    let properties = blocks.text.finish(b, x, s.hidden, Classifier::Generic, |decoder, b, x| {
        let embeddings = format!("{}.weight", s.names.embeddings);
        let logits = decoder.logits(b, x, s.hidden, &embeddings, s.tied, s.logit_bias)?;
        let logits = scaled(b, logits, s.logit_factor, "lm_head")?;
        s.logit_cap.map_or(Ok(logits), |(cap, key)| capped(b, logits, cap, key))
    })?;
    let recomputes = s.rope.recomputes && task == Task::TextGeneration;
    Ok(Properties {
        recompute_at: ropes.global.outgrown().filter(|_| recomputes),
        frequencies_change_at: ropes.frequencies_change_at(),
        ..properties
    })
}

/// What the layers of an encoder give.
pub(crate) struct Encoded {
    /// [batch_size, sequence_length, hidden].
    pub(crate) hidden: ValueId,
    /// Which tokens there are: bool[batch_size, sequence_length].
    pub(crate) mask: ValueId,
    pub(crate) properties: Properties,
}

/// The layers of an encoder. `embed` makes what goes into the first layer of token ids.
pub(crate) fn encoder(
    b: &mut Builder<'_>,
    s: &Settings,
    embed: impl FnOnce(&mut Builder<'_>, ValueId) -> Result<ValueId, ModelError>,
) -> Result<Encoded, ModelError> {
    let ropes = Ropes::read(b, s)?;
    let text = TextEncoder::new(b, s.vocabulary, s.heads)?;
    let positions = encoder::positions(b)?;
    let mut blocks = Blocks { s, angles: ropes.angles(b, positions)?, text };
    let x = embed(b, blocks.text.input_ids)?;
    let hidden = blocks.layers(b, x)?;
    let properties = Properties {
        max_positions: Some(ropes.longest().value),
        vocab_size: Some(s.vocabulary.value),
        pad_token_id: b.config.any_token("pad_token_id", s.vocabulary),
        frequencies_change_at: ropes.frequencies_change_at(),
        ..Properties::default()
    };
    Ok(Encoded { hidden, mask: blocks.text.mask, properties })
}

/// The rotary embeddings of a model.
struct Ropes {
    global: Rope,
    /// That of layers with windows, where they have one of their own.
    local: Option<Rope>,
}

impl Ropes {
    fn read(b: &Builder<'_>, s: &Settings) -> Result<Self, ModelError> {
        let read = |defaults| Rope::read(b.config, s.heads.size, s.positions, defaults);
        Ok(Self { global: read(s.rope)?, local: s.local_rope.map(read).transpose()? })
    }

    fn longest(&self) -> Size {
        self.global.longest
    }

    fn frequencies_change_at(&self) -> Option<usize> {
        let all = [Some(&self.global), self.local.as_ref()];
        all.into_iter().flatten().filter_map(Rope::frequencies_change_at).min()
    }

    /// The angles of positions, for layers without windows and with.
    fn angles(&self, b: &mut Builder<'_>, positions: ValueId) -> Result<[Angles; 2], ModelError> {
        let global = self.global.angles(b, positions, rope::MODULE)?;
        let local = match &self.local {
            Some(local) => local.angles(b, positions, "rotary_emb_local")?,
            None => global,
        };
        Ok([global, local])
    }
}

/// The embeddings of the tokens of a vocabulary, scaled.
pub(crate) fn embed(b: &mut Builder<'_>, s: &Settings, input_ids: ValueId) -> Result<ValueId, ModelError> {
    let module = s.names.embeddings;
    let at = |name: &str| format!("{module}.{name}");
    let x = b.embedding(input_ids, module, s.vocabulary, s.hidden)?;
    let scale = match s.embedding_scale {
        EmbeddingScale::None | EmbeddingScale::Number(1.0, _) => return Ok(x),
        EmbeddingScale::Root => {
            let stored = b.tensors.dtype(&at("weight")).unwrap_or(DType::F32);
            let root = Weight::numbers(stored, Vec::new(), &[(s.hidden.value as f64).sqrt()]);
            let root = root.and_then(|root| root.cast(DType::F32));
            let root = root.unwrap_or_else(|| unreachable!("a scalar is one number"));
            b.graph.add_weight(&at("embed_scale"), root, Origin::Config("hidden_size".into()))
        }
        EmbeddingScale::Number(number, key) => b.number(number, &at("embed_scale"), key),
    };
    b.emit(Binary { kind: BinaryKind::Mul, a: x, b: scale }, &at("mul"))
}

/// A model that is being built: its parts add themselves to the graph in the order of the calls.
struct Blocks<'s, T> {
    s: &'s Settings,
    text: T,
    angles: [Angles; 2],
}

impl<T: Text> Blocks<'_, T> {
    /// All layers, and the last norm.
    fn layers(&mut self, b: &mut Builder<'_>, mut x: ValueId) -> Result<ValueId, ModelError> {
        for layer in 0..self.s.layers.value {
            x = self.layer(b, x, layer)?;
        }
        self.s.names.final_norm.map_or(Ok(x), |norm| self.norm(b, x, norm))
    }

    fn layer(&mut self, b: &mut Builder<'_>, x: ValueId, layer: usize) -> Result<ValueId, ModelError> {
        let s = self.s;
        let at = |name: &str| format!("{}.{layer}.{name}", s.names.layers);
        // An encoder whose embeddings are normalized may have no norm before its first attention.
        let before = s.attention_norms.before.filter(|_| layer > 0 || !s.first_is_normal);
        let normal = self.norm_of(b, x, before, &at)?;
        let attended = self.attention(b, normal, layer, &at(s.names.attention))?;
        let attended = self.norm_of(b, attended, s.attention_norms.after, &at)?;
        let sum = self.added(b, attended, x, &at(s.names.attention))?;
        let sum = self.norm_of(b, sum, s.attention_norms.sum, &at)?;

        let input = if s.parallel { x } else { sum };
        let input = match s.feed_forward_norms.before {
            None if s.parallel => normal,
            before => self.norm_of(b, input, before, &at)?,
        };
        let forward = feed_forward::apply(b, s, input, layer, &at(s.names.feed_forward))?;
        let forward = self.norm_of(b, forward, s.feed_forward_norms.after, &at)?;
        let sum = self.added(b, forward, sum, &at(s.names.feed_forward))?;
        self.norm_of(b, sum, s.feed_forward_norms.sum, &at)
    }

    /// The norm of a name, where there is one.
    fn norm_of(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        name: Option<&str>,
        at: &dyn Fn(&str) -> String,
    ) -> Result<ValueId, ModelError> {
        name.map_or(Ok(x), |name| self.norm(b, x, &at(name)))
    }

    fn norm(&self, b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
        self.s.norm.apply(b, x, module, self.s.hidden, self.s.eps)
    }

    /// A result and the input that it is added to.
    fn added(&self, b: &mut Builder<'_>, result: ValueId, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
        let result = scaled(b, result, self.s.residual_factor, module)?;
        b.add(result, x, &format!("{module}.add"))
    }

    fn attention(
        &mut self,
        b: &mut Builder<'_>,
        x: ValueId,
        layer: usize,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let s = self.s;
        let at = |name: &str| format!("{module}.{name}");
        let window = s.windows.of(layer);
        let angles = self.angles[usize::from(window.is_some())];
        if let Some(latent) = &s.latent {
            return latent.attend(b, s, &mut self.text, x, angles, module);
        }
        let [mut q, mut k, mut v] = self.projections(b, x, module)?;
        if !s.norms_rotated {
            [q, k] = self.head_norms(b, [q, k], module)?;
        }
        if let Some((most, key)) = s.clip {
            [q, k, v] = clipped(b, [q, k, v], most, key, module)?;
        }
        if !s.unrotated.get(layer).copied().unwrap_or(false) {
            q = angles.rotate(b, q, s.heads.queries, s.interleaved, &at("rotary_q"))?;
            k = angles.rotate(b, k, s.heads.keys, s.interleaved, &at("rotary_k"))?;
        }
        if s.norms_rotated {
            [q, k] = self.head_norms(b, [q, k], module)?;
        }
        let sinks = s.sinks.map(|name| b.weight(&[&at(name)], &[s.heads.queries])).transpose()?;
        let scores = Scores { scale: s.scale, window, softcap: s.softcap, sinks };
        let attended = self.text.attend(b, [q, k, v], scores, module)?;
        let shape = [s.hidden, self.features(s.heads.queries, QUERY_FEATURES)];
        b.projection(attended, &at(s.names.output), shape, s.output_bias)
    }

    /// The features of some heads side by side.
    fn features(&self, heads: Size, key: &'static str) -> Size {
        Size::derived(heads.value * self.s.heads.size.value, key)
    }

    /// Queries, keys and values.
    fn projections(&self, b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<[ValueId; 3], ModelError> {
        let s = self.s;
        let at = |name: &str| format!("{module}.{name}");
        let (queries, keys) =
            (self.features(s.heads.queries, QUERY_FEATURES), self.features(s.heads.keys, KEY_FEATURES));
        let Projections::Packed(name) = s.projections else {
            let q = b.projection(x, &at("q_proj"), [queries, s.hidden], s.input_bias)?;
            let k = b.projection(x, &at("k_proj"), [keys, s.hidden], s.input_bias)?;
            let v = b.projection(x, &at("v_proj"), [keys, s.hidden], s.input_bias)?;
            return Ok([q, k, v]);
        };
        let key = "(num_attention_heads + 2 * num_key_value_heads) * head_dim";
        let all = Size::derived(queries.value + 2 * keys.value, key);
        let packed = b.projection(x, &at(name), [all, s.hidden], s.input_bias)?;
        let split = Split { x: packed, axis: 2, sizes: vec![queries.value, keys.value, keys.value] };
        match b.emit_all(split, &at("split"))?[..] {
            [q, k, v] => Ok([q, k, v]),
            _ => unreachable!("a split has as many results as sizes"),
        }
    }

    /// Normalization of the heads of queries and keys.
    fn head_norms(&self, b: &mut Builder<'_>, [q, k]: [ValueId; 2], module: &str) -> Result<[ValueId; 2], ModelError> {
        let (s, at) = (self.s, |name: &str| format!("{module}.{name}"));
        let [query_norm, key_norm] = s.names.head_norms;
        let q = self.head_norm(b, q, s.heads.queries, &at(query_norm))?;
        Ok([q, self.head_norm(b, k, s.heads.keys, &at(key_norm))?])
    }

    /// Normalization of some heads that are side by side.
    fn head_norm(&self, b: &mut Builder<'_>, x: ValueId, heads: Size, module: &str) -> Result<ValueId, ModelError> {
        let (s, features) = (self.s, self.features(heads, QUERY_FEATURES));
        let at = |name: &str| format!("{module}.{name}");
        match s.head_norms {
            HeadNorms::None => return Ok(x),
            HeadNorms::Whole => return s.norm.apply(b, x, module, features, s.eps),
            HeadNorms::Each | HeadNorms::Apart(_) => {}
        }
        let tokens = [b.texts(), Dim::symbol(SEQUENCE)];
        let shape = |last: &[Size]| {
            let last: Vec<Dim> = last.iter().map(|size| Dim::constant(size.signed())).collect();
            tokens.clone().into_iter().chain(last)
        };
        let apart = b.reshape(x, shape(&[heads, s.heads.size]), &at("split"))?;
        let normal = match s.head_norms {
            HeadNorms::Apart(stored) => {
                let ones = Weight::numbers(DType::F32, vec![s.heads.size.value], &vec![1.0; s.heads.size.value]);
                let ones = ones.unwrap_or_else(|| unreachable!("there are as many numbers as the shape says"));
                let weight = b.graph.add_weight(&at("ones"), ones, Origin::Unknown);
                let normal = b.emit(LayerNorm { x: apart, weight, bias: None, eps: Real(s.eps) }, &at("normal"))?;
                let weights = self.head_weights(b, heads, stored, module)?;
                b.binary(BinaryKind::Mul, [normal, weights], module)?
            }
            _ => s.norm.apply(b, apart, module, s.heads.size, s.eps)?,
        };
        b.reshape(normal, shape(&[features]), &at("merge"))
    }

    /// The weights of the norms of some heads, [heads, size].
    fn head_weights(
        &self,
        b: &mut Builder<'_>,
        heads: Size,
        stored: HeadWeights,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let size = self.s.heads.size;
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
}

/// A value times a factor, where there is one other than 1.
fn scaled(b: &mut Builder<'_>, x: ValueId, factor: Factor, module: &str) -> Result<ValueId, ModelError> {
    let Some((factor, key)) = factor.filter(|(factor, _)| *factor != 1.0) else { return Ok(x) };
    let factor = b.number(factor, &format!("{module}.factor"), key);
    b.emit(Binary { kind: BinaryKind::Mul, a: x, b: factor }, &format!("{module}.scaled"))
}

/// Queries, keys and values limited to `-most` to `most`.
fn clipped(
    b: &mut Builder<'_>,
    qkv: [ValueId; 3],
    most: f64,
    key: &str,
    module: &str,
) -> Result<[ValueId; 3], ModelError> {
    let mut clip = |x, name: &str| {
        let below = b.with_number(BinaryKind::Min, x, most, &format!("{module}.{name}.min"), key)?;
        b.with_number(BinaryKind::Max, below, -most, &format!("{module}.{name}.clip"), key)
    };
    let [q, k, v] = qkv;
    Ok([clip(q, "q")?, clip(k, "k")?, clip(v, "v")?])
}

/// `cap * tanh(logits / cap)`.
fn capped(b: &mut Builder<'_>, logits: ValueId, cap: f64, key: &str) -> Result<ValueId, ModelError> {
    let cap = b.number(cap, "lm_head.softcap", key);
    let part = b.emit(Binary { kind: BinaryKind::Div, a: logits, b: cap }, "lm_head.div")?;
    let bounded = b.emit(Unary { kind: UnaryKind::Tanh, x: part }, "lm_head.tanh")?;
    b.emit(Binary { kind: BinaryKind::Mul, a: bounded, b: cap }, "lm_head.mul")
}
