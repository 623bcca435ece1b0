//! The layers that Llama and related models share: attention with rotary embedding over projections to queries, keys and
//! values, and a feed-forward, with norms around them. Decoders and encoders have the same.

mod alternating;
mod attention;
pub(crate) mod feed_forward;
mod forms;
mod layer_inputs;
mod mixed;
mod settings;

use planish_ir::ops::{Binary, BinaryKind, Embedding, Unary, UnaryKind};
use planish_ir::{DType, Origin, ValueId};

pub(crate) use self::alternating::Alternating;
pub(crate) use self::forms::{
    Around, EmbeddingScale, Factor, FeedForward, Growth, HeadNorms, HeadWeights, LayerInputs, OutputGate, Places,
    Projections,
};
pub(crate) use self::settings::{Defaults, KEYS, KEYS_WITHOUT_LENGTH, Mixer, Settings};
use crate::architecture::Properties;
use crate::checkpoint::config::Size;
use crate::layers::attention::{Heads, Text};
use crate::layers::builder::Builder;
use crate::layers::decoder::Decoder;
use crate::layers::encoder::{self, TextEncoder};
use crate::layers::rope::{self, Angles, Rope};
use crate::layers::{sight, sinusoidal};
use crate::{ModelError, Task};

/// A whole decoder, with the outputs of a task.
pub(crate) fn decoder(b: &mut Builder<'_>, s: &Settings, task: Task) -> Result<Properties, ModelError> {
    let decoded = decode(b, s, task)?;
    let tied = |decoder: &Decoder, b: &mut Builder<'_>, x| {
        let embeddings = format!("{}.weight", s.names.embeddings);
        let logits = decoder.logits(b, x, s.hidden, &embeddings, s.tied, s.logit_bias)?;
        let logits = scaled(b, logits, s.logit_factor, "lm_head")?;
        s.logit_cap.map_or(Ok(logits), |(cap, key)| capped(b, logits, cap, key))
    };
    decoded.finish(b, s, tied)
}

/// The layers of a decoder, and what they give.
pub(crate) struct Decoded {
    pub(crate) decoder: Decoder,
    /// [batch_size, sequence_length, hidden].
    pub(crate) hidden: ValueId,
    recompute_at: Option<usize>,
    frequencies_change_at: Option<usize>,
}

impl Decoded {
    /// Adds the outputs of the task. `score` makes scores of the vocabulary of what the layers give.
    pub(crate) fn finish(
        self,
        b: &mut Builder<'_>,
        s: &Settings,
        score: impl FnOnce(&Decoder, &mut Builder<'_>, ValueId) -> Result<ValueId, ModelError>,
    ) -> Result<Properties, ModelError> {
        let Self { decoder, hidden, recompute_at, frequencies_change_at } = self;
        let properties = decoder.finish(b, hidden, s.hidden, s.token_classifier, score)?;
        Ok(Properties { recompute_at, frequencies_change_at, ..properties })
    }

    /// The properties that callers need.
    pub(crate) fn properties(&self) -> Properties {
        let (recompute_at, frequencies_change_at) = (self.recompute_at, self.frequencies_change_at);
        Properties { recompute_at, frequencies_change_at, ..self.decoder.properties() }
    }
}

/// A decoder without the outputs of its task.
pub(crate) fn decode(b: &mut Builder<'_>, s: &Settings, task: Task) -> Result<Decoded, ModelError> {
    let vectors = sight::embedder(b, s)?;
    let ropes = if s.turns() { Ropes::read(b, s)? } else { None };
    let longest = ropes.as_ref().map(Ropes::longest).or(s.positions);
    let mut decoder = Decoder::reading(b, task, s.vocabulary, longest, s.position_source, vectors)?;
    if let Some(key) = s.both_sides {
        decoder.sees_both_sides(b, key)?;
    }
    let positions = decoder.position_ids;
    let by_coordinates = b.sight.is_some_and(|sight| sight.has_coordinates());
    let mut angles = match &ropes {
        Some(ropes) if by_coordinates => {
            let coordinates = Rope::coordinates(b.config, s.heads.size, s.rope)?;
            Some([ropes.global.angles_by_coordinates(b, positions, &coordinates)?; 2])
        }
        Some(ropes) => Some(ropes.angles(b, positions)?),
        None => None,
    };
    if s.turns_backwards {
        for angles in angles.iter_mut().flatten() {
            *angles = angles.backwards(b)?;
        }
    }
    let bias = match s.places {
        Places::Alibi(alibi) => Some(alibi.bias(b, decoder.attention_mask, s.heads.queries)?),
        _ => s.chunks.as_ref().map(|chunks| chunks.bias(b, decoder.attention_mask)).transpose()?,
    };
    let growth = s.growth.map(|growth| growth.factors(b, positions)).transpose()?;
    let (mut x, deep) = match vectors {
        Some(_) => sight::vectors(b, decoder.input_ids, s.hidden)?,
        None => (embed(b, s, decoder.input_ids)?, Vec::new()),
    };
    let layer_inputs = match s.layer_inputs {
        Some(inputs) => inputs.all(b, s, decoder.input_ids, x)?,
        None => Vec::new(),
    };
    let mut blocks = Blocks { s, angles, bias, growth, layer_inputs, deep, text: decoder };
    if let Some(places) = vectors_of_places(b, s, positions)? {
        x = b.add(x, places, "embeddings.add")?;
    }
    if let Some(norm) = s.names.embedding_norm {
        x = blocks.norm(b, x, norm)?;
    }
    let hidden = blocks.layers(b, x)?;
    let recomputes = s.rope.recomputes && task == Task::TextGeneration;
    Ok(Decoded {
        decoder: blocks.text,
        hidden,
        recompute_at: ropes.as_ref().and_then(|ropes| ropes.global.outgrown()).filter(|_| recomputes),
        frequencies_change_at: ropes.as_ref().and_then(Ropes::frequencies_change_at),
    })
}

/// The vectors of tables that are added to the embeddings of tokens, where there are some: [batch_size or 1, sequence_length,
/// hidden].
fn vectors_of_places(b: &mut Builder<'_>, s: &Settings, position_ids: ValueId) -> Result<Option<ValueId>, ModelError> {
    let (first, module) = match s.places {
        Places::Table { module, first } | Places::Sinusoidal { module, first, .. } => (first, module),
        Places::Rotary | Places::PlainRotary(_) | Places::Alibi(_) => return Ok(None),
    };
    let positions = s.positions.map_or(0, |size| size.value);
    let rows = Size::derived(positions + first, "max_position_embeddings and the rows before");
    let at = |name: &str| format!("{module}.{name}");
    let ids = match first {
        0 => position_ids,
        first => {
            let first = b.graph.add_scalar(&at("first"), DType::I64, first as f64);
            b.add(position_ids, first, &at("rows"))?
        }
    };
    if let Places::Sinusoidal { zero, .. } = s.places {
        let table = sinusoidal::table_between(b.config, rows, s.hidden, zero)?;
        let weight = b.graph.add_weight(&at("weight"), table, Origin::Unknown);
        return b.emit(Embedding { weight, ids }, module).map(Some);
    }
    b.embedding(ids, module, rows, s.hidden).map(Some)
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
    let text = TextEncoder::new(b, s.vocabulary)?;
    let positions = encoder::positions(b)?;
    let angles = ropes.as_ref().map(|ropes| ropes.angles(b, positions)).transpose()?;
    let mut blocks = Blocks { s, angles, bias: None, growth: None, layer_inputs: Vec::new(), deep: Vec::new(), text };
    let x = embed(b, blocks.text.input_ids)?;
    let hidden = blocks.layers(b, x)?;
    let properties = Properties {
        max_positions: ropes.as_ref().map(Ropes::longest).or(s.positions).map(|size| size.value),
        vocab_size: Some(s.vocabulary.value),
        pad_token_id: b.config.any_token("pad_token_id", s.vocabulary),
        frequencies_change_at: ropes.as_ref().and_then(Ropes::frequencies_change_at),
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
    /// Absent where the model has none.
    fn read(b: &Builder<'_>, s: &Settings) -> Result<Option<Self>, ModelError> {
        let Some(positions) = s.positions else { return Ok(None) };
        match s.places {
            Places::Rotary => {}
            Places::PlainRotary(size) => {
                return Ok(Some(Self { global: Rope::plain(size, positions, 10_000.0), local: None }));
            }
            _ => return Ok(None),
        }
        let read = |defaults, heads: Heads| Rope::read(b.config, heads.size, positions, defaults);
        let global = read(s.rope, s.global_heads.unwrap_or(s.heads))?;
        Ok(Some(Self { global, local: s.local_rope.map(|local| read(local, s.heads)).transpose()? }))
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
        EmbeddingScale::Root => layer_inputs::root(b, s.hidden, &at("weight"), &at("embed_scale")),
        EmbeddingScale::Number(number, key) => b.number(number, &at("embed_scale"), key),
    };
    b.emit(Binary { kind: BinaryKind::Mul, a: x, b: scale }, &at("mul"))
}

/// A model that is being built: its parts add themselves to the graph in the order of the calls.
struct Blocks<'s, T> {
    s: &'s Settings,
    text: T,
    /// For layers without windows and with, where queries and keys turn.
    angles: Option<[Angles; 2]>,
    /// What is added to the scores of all layers.
    bias: Option<ValueId>,
    /// What queries are multiplied with, [batch_size or 1, sequence_length, 1].
    growth: Option<ValueId>,
    /// The vectors of tokens for each layer, [batch_size, sequence_length, size], where there are some.
    layer_inputs: Vec<ValueId>,
    /// What is added to what the first layers give, [batch_size, sequence_length, hidden] for each, where there is something.
    deep: Vec<ValueId>,
}

impl<T: Text> Blocks<'_, T> {
    /// All layers, and the last norm.
    fn layers(&mut self, b: &mut Builder<'_>, mut x: ValueId) -> Result<ValueId, ModelError> {
        match &self.s.alternating {
            Some(alternating) => x = self.alternating_layers(b, x, alternating)?,
            None => {
                for layer in 0..self.s.layers.value {
                    x = self.layer(b, x, layer)?;
                    if let Some(deep) = self.deep.get(layer) {
                        x = b.add(x, *deep, &format!("{}.{layer}.deep", self.s.names.layers))?;
                    }
                }
            }
        }
        self.s.names.final_norm.map_or(Ok(x), |norm| self.norm(b, x, norm))
    }

    fn layer(&mut self, b: &mut Builder<'_>, x: ValueId, layer: usize) -> Result<ValueId, ModelError> {
        let s = self.s;
        let path = format!("{}.{layer}", s.names.layers);
        let at = |name: &str| if name.is_empty() { path.clone() } else { format!("{path}.{name}") };
        // An encoder whose embeddings are normalized may have no norm before its first attention.
        let before = s.attention_norms.before.filter(|_| layer > 0 || !s.first_is_normal);
        let normal = self.norm_of(b, x, before, &at)?;
        let mixer = s.mixers.get(layer).copied().flatten();
        let module = at(mixer.map_or(s.names.attention, |mixer| mixer.module));
        let attended = match mixer {
            None => self.attention_and_beside(b, normal, layer, &at)?,
            Some(mixer) => {
                let decoder = self.text.decoder();
                let decoder = decoder.unwrap_or_else(|| unreachable!("layers of encoders have attention"));
                let mixed = (mixer.apply)(b, s, decoder, normal, &module)?;
                decoder.end_layer();
                mixed
            }
        };
        let attended = self.norm_of(b, attended, s.attention_norms.after, &at)?;
        let residual = if s.residual_is_normal { normal } else { x };
        let sum = self.added(b, attended, residual, &module)?;
        let sum = self.norm_of(b, sum, s.attention_norms.sum, &at)?;
        if matches!(s.feed_forward, FeedForward::None) {
            return Ok(sum);
        }

        let input = if s.parallel { x } else { sum };
        let input = match s.feed_forward_norms.before {
            None if s.parallel => normal,
            before => self.norm_of(b, input, before, &at)?,
        };
        let forward = feed_forward::apply(b, s, input, layer, &at(s.names.feed_forward))?;
        let forward = scaled(b, forward, s.feed_forward_factor, &at(s.names.feed_forward))?;
        let forward = self.norm_of(b, forward, s.feed_forward_norms.after, &at)?;
        let residual = if s.residual_is_normal { input } else { sum };
        let sum = self.added(b, forward, residual, &at(s.names.feed_forward))?;
        let mut sum = self.norm_of(b, sum, s.feed_forward_norms.sum, &at)?;
        if let Some(input) = self.layer_inputs.get(layer) {
            sum = layer_inputs::add(b, s, sum, *input, &path)?;
        }
        // Without a weight, it is 1.
        match s.layer_factor.map(at).filter(|name| b.tensors.contains(name)) {
            Some(name) => {
                let factor = b.weight(&[&name], &[Size::derived(1, "a factor")])?;
                b.binary(BinaryKind::Mul, [sum, factor], &format!("{path}.scaled"))
            }
            None => Ok(sum),
        }
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
}

/// A value times a factor, where there is one other than 1.
pub(crate) fn scaled(b: &mut Builder<'_>, x: ValueId, factor: Factor, module: &str) -> Result<ValueId, ModelError> {
    let Some((factor, key)) = factor.filter(|(factor, _)| *factor != 1.0) else { return Ok(x) };
    let factor = b.number(factor, &format!("{module}.factor"), key);
    b.emit(Binary { kind: BinaryKind::Mul, a: x, b: factor }, &format!("{module}.scaled"))
}

/// `cap * tanh(logits / cap)`.
fn capped(b: &mut Builder<'_>, logits: ValueId, cap: f64, key: &str) -> Result<ValueId, ModelError> {
    let cap = b.number(cap, "lm_head.softcap", key);
    let part = b.emit(Binary { kind: BinaryKind::Div, a: logits, b: cap }, "lm_head.div")?;
    let bounded = b.emit(Unary { kind: UnaryKind::Tanh, x: part }, "lm_head.tanh")?;
    b.emit(Binary { kind: BinaryKind::Mul, a: bounded, b: cap }, "lm_head.mul")
}
