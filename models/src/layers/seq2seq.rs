//! The parts that encoder-decoders share: their three graphs, the decoder's attention to itself and to the
//! encoder over caches of keys and values, and the head that scores the next token. Parts, inputs
//! and outputs are named as Optimum names them. An encoder reads tokens ([`Encoder`]), or something else, such as features of
//! sound or pixels, whose input its architecture adds ([`finish_encoder`], [`Decoder::of_whole`]).

use planish_ir::ops::{Attention, BinaryKind, Concat, Expand, Flag, Linear, Real, Slice};
use planish_ir::{DType, Dim, OutputRole, PartRole, Shape, ValueId};

use crate::architecture::Properties;
use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::builder::{BATCH, Builder};
use crate::layers::encoder::mask;
use crate::layers::{heads, pooling};
use crate::names;
use crate::names::CacheOf;
use crate::names::DECODER_PAST as PAST;
use crate::{ModelError, Task};

/// The task of an encoder-decoder.
pub(crate) const TASKS: &[Task] = &[Task::Text2TextGeneration];

pub(crate) use crate::names::{DECODER_SEQUENCE, ENCODER_SEQUENCE};

/// The inputs of the encoder.
pub(crate) struct Encoder {
    /// i64[batch_size, encoder_sequence_length].
    pub(crate) input_ids: ValueId,
    /// bool[batch_size, encoder_sequence_length].
    pub(crate) mask: ValueId,
}

impl Encoder {
    /// Adds the inputs. `length` is the symbol of the number of tokens.
    pub(crate) fn new(b: &mut Builder<'_>, vocabulary: Size, length: &str) -> Result<Self, ModelError> {
        let dims = [BATCH, length].map(Dim::symbol);
        let input_ids = b.ids(names::INPUT_IDS, dims.clone(), vocabulary.signed());
        let attention_mask = b.ids(names::ATTENTION_MASK, dims, 2);
        Ok(Self { input_ids, mask: mask(b, attention_mask)? })
    }

    /// Adds the output and ends the part.
    pub(crate) fn finish(self, b: &mut Builder<'_>, hidden: ValueId) {
        finish_encoder(b, hidden);
    }
}

/// Adds the output of an encoder, [batch_size, places, features], and ends the part.
pub(crate) fn finish_encoder(b: &mut Builder<'_>, hidden: ValueId) {
    b.give(names::HIDDEN, hidden);
    b.finish(PartRole::Encoder);
}

/// Adds keys and values of a layer of the decoder, each [batch_size, places, features], to the outputs of the encoder, as the
/// decoder's cache has them.
pub(crate) fn give_keys(b: &mut Builder<'_>, layer: usize, heads: Heads, both: [ValueId; 2]) -> Result<(), ModelError> {
    for (value, (name, role)) in both.into_iter().zip(CacheOf::Encoder.present(layer)) {
        let mut dims = b.graph.ty(value).shape.to_vec();
        dims.truncate(2);
        dims.extend([heads.count, heads.size].map(|size| size.signed().into()));
        let split = b.reshape(value, dims, &format!("{name}.heads"))?;
        let turned = b.transpose(split, &[0, 2, 1, 3], &name)?;
        b.output(&name, role, turned);
    }
    Ok(())
}

/// The heads of a decoder's attention.
#[derive(Clone, Copy)]
pub(crate) struct Heads {
    pub(crate) count: Size,
    /// Features of a head.
    pub(crate) size: Size,
    /// The factor of the scores.
    pub(crate) scale: f64,
}

/// A decoder that is being built: the one of the first tokens, the one that continues from a cache, or the one in the graph of
/// its encoder.
pub(crate) struct Decoder {
    /// i64[batch_size, decoder_sequence_length].
    pub(crate) input_ids: ValueId,
    heads: Heads,
    /// bool[batch_size, encoder_sequence_length]; absent where the decoder attends to all that the encoder gives.
    pub(crate) mask: Option<ValueId>,
    /// The output of the encoder; absent if its keys and values are cached.
    encoder: Option<ValueId>,
    /// The number of layers that have attended to themselves.
    layers: usize,
    /// Keys and values with the names and the roles of their outputs, where they are outputs.
    present: Option<Vec<(String, OutputRole, ValueId)>>,
}

/// The two decoders: without and with a cache.
pub(crate) const CACHED: [bool; 2] = [false, true];

/// The decoder that goes on from a cache alone, where the encoder gives the keys and values that it attends to.
pub(crate) const AFTER_KEYS: [bool; 1] = [true];

impl Decoder {
    /// Adds the inputs, but those of the cache: each layer adds its own. `hidden` are the features that the encoder gives.
    pub(crate) fn new(b: &mut Builder<'_>, sizes: [Size; 2], heads: Heads, cached: bool) -> Result<Self, ModelError> {
        let attention_mask = b.ids(names::ENCODER_MASK, [BATCH, ENCODER_SEQUENCE].map(Dim::symbol), 2);
        let whole = Self::of_whole(b, sizes, heads, cached);
        Ok(Self { mask: Some(mask(b, attention_mask)?), ..whole })
    }

    /// The same without a mask: it attends to all that the encoder gives.
    pub(crate) fn of_whole(b: &mut Builder<'_>, [vocabulary, hidden]: [Size; 2], heads: Heads, cached: bool) -> Self {
        let input_ids = b.ids(names::DECODER_IDS, [BATCH, DECODER_SEQUENCE].map(Dim::symbol), vocabulary.signed());
        let states = || [BATCH, ENCODER_SEQUENCE].map(Dim::symbol).into_iter().chain([hidden.signed().into()]);
        let encoder = (!cached).then(|| b.floats(names::ENCODER_STATES.0, names::ENCODER_STATES.1, states()));
        Self { input_ids, heads, mask: None, encoder, layers: 0, present: Some(Vec::new()) }
    }

    /// A decoder after its encoder in one graph, which gives `states` and has as many tokens: those of the encoder, one place
    /// later, after a token that texts begin with.
    pub(crate) fn after(
        b: &mut Builder<'_>,
        encoder: &Encoder,
        states: ValueId,
        heads: Heads,
        start: i64,
    ) -> Result<Self, ModelError> {
        const MODULE: &str = names::DECODER_INPUT_IDS;
        let at = |name: &str| format!("{MODULE}.{name}");
        let dims = b.graph.ty(encoder.input_ids).shape.to_vec();
        let [batch, length] = &dims[..] else { unreachable!("ids have two dimensions") };
        let start = b.graph.add_scalar(&at("start"), DType::I64, start as f64);
        let shape = Shape::new([batch.clone(), Dim::constant(1)]);
        let start = b.emit(Expand { x: start, shape }, &at("first"))?;
        let longer = b.emit(Concat { parts: vec![start, encoder.input_ids], axis: 1 }, &at("longer"))?;
        let slice = Slice { x: longer, axis: 1, start: Dim::constant(0), end: length.clone() };
        let input_ids = b.emit(slice, MODULE)?;
        Ok(Self { input_ids, heads, mask: Some(encoder.mask), encoder: Some(states), layers: 0, present: None })
    }

    /// What the encoder gives, as all layers see it: what `project` makes of it, where it is not cached.
    pub(crate) fn project_states(
        &mut self,
        b: &mut Builder<'_>,
        project: impl FnOnce(&mut Builder<'_>, ValueId) -> Result<ValueId, ModelError>,
    ) -> Result<(), ModelError> {
        if let Some(states) = self.encoder {
            self.encoder = Some(project(b, states)?);
        }
        Ok(())
    }

    /// The scale of the scores of the layers that follow.
    pub(crate) fn scale(&mut self, scale: f64) {
        self.heads.scale = scale;
    }

    /// The number of the decoder's tokens that are cached.
    pub(crate) fn past(&self) -> Dim {
        if self.encoder.is_some() { Dim::constant(0) } else { Dim::symbol(PAST) }
    }

    /// Keys and values of a layer as the cache holds them: [batch_size, heads, length, size].
    fn cache(&self, b: &mut Builder<'_>, layer: usize, of: CacheOf, length: &str) -> [ValueId; 2] {
        of.past(layer).map(|(name, role)| {
            let [count, size] = [self.heads.count, self.heads.size].map(|s| s.signed().into());
            let dims = [Dim::symbol(BATCH), count, Dim::symbol(length), size];
            b.floats(&name, role, dims)
        })
    }

    /// Causal attention of the next layer to the tokens so far, [batch_size,
    /// decoder_sequence_length, features].
    pub(crate) fn attend(
        &mut self,
        b: &mut Builder<'_>,
        [q, k, v]: [ValueId; 3],
        bias: Option<ValueId>,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let layer = self.layers;
        self.layers += 1;
        let past = match self.encoder {
            Some(_) => None,
            None => Some(self.cache(b, layer, CacheOf::Decoder, PAST)),
        };
        let attention = Attention {
            bias,
            past_key: past.map(|[key, _]| key),
            past_value: past.map(|[_, value]| value),
            causal: Flag(true),
            present: Flag(self.present.is_some()),
            ..Attention::new(q, k, v, self.heads.count.value, Real(self.heads.scale))
        };
        self.emit(b, attention, layer, CacheOf::Decoder, module)
    }

    /// Attention of the same layer to what the encoder gives, which `project` makes keys and values of.
    pub(crate) fn attend_to_encoder(
        &mut self,
        b: &mut Builder<'_>,
        q: ValueId,
        project: impl FnOnce(&mut Builder<'_>, ValueId) -> Result<[ValueId; 2], ModelError>,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let layer = self.layers.saturating_sub(1);
        let [k, v] = match self.encoder {
            Some(encoder) => project(b, encoder)?,
            None => self.cache(b, layer, CacheOf::Encoder, ENCODER_SEQUENCE),
        };
        let attention = Attention {
            mask: self.mask,
            present: Flag(self.encoder.is_some() && self.present.is_some()),
            ..Attention::new(q, k, v, self.heads.count.value, Real(self.heads.scale))
        };
        self.emit(b, attention, layer, CacheOf::Encoder, module)
    }

    /// Adds an attention and keeps its keys and values, where they are results.
    fn emit(
        &mut self,
        b: &mut Builder<'_>,
        attention: Attention,
        layer: usize,
        of: CacheOf,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let results = b.emit_all(attention, module)?;
        let present = results.iter().skip(1).zip(of.present(layer));
        let present = present.map(|(value, (name, role))| (name, role, *value));
        self.present.iter_mut().for_each(|all| all.extend(present.clone()));
        Ok(results.first().copied().unwrap_or_else(|| unreachable!("attention has a result")))
    }

    /// Adds the outputs, `logits` of the vocabulary for each token and the cache, and ends the part.
    pub(crate) fn finish(
        self,
        b: &mut Builder<'_>,
        x: ValueId,
        weight: ValueId,
        bias: Option<ValueId>,
    ) -> Result<(), ModelError> {
        let logits = b.emit(Linear::new(x, weight, bias), "lm_head")?;
        b.give(names::LOGITS, logits);
        self.finish_scored(b);
        Ok(())
    }

    /// Adds the outputs of the cache, after those of scores, and ends the part.
    pub(crate) fn finish_scored(self, b: &mut Builder<'_>) {
        for (name, role, value) in self.present.iter().flatten() {
            b.output(name, *role, *value);
        }
        b.finish(if self.encoder.is_some() { PartRole::FirstStep } else { PartRole::NextStep });
    }
}

/// The configuration keys of the token that a decoder's text begins with, and of the one that ends a text.
pub(crate) const TOKEN_KEYS: &[&str] = &[START, END];

const START: &str = "decoder_start_token_id";
const END: &str = "eos_token_id";

/// The token that a decoder's text begins with.
///
/// # Errors
/// When the configuration has none.
pub(crate) fn start(b: &Builder<'_>, task: Task, vocabulary: Size) -> Result<i64, ModelError> {
    token(b, START, task, vocabulary)
}

fn token(b: &Builder<'_>, key: &'static str, task: Task, vocabulary: Size) -> Result<i64, ModelError> {
    let missing = || b.config.error(format!("`{key}` is no token id: {task} by encoder and decoder needs it"));
    b.config.token(key, 2, vocabulary)?.ok_or_else(missing)
}

/// The head of a task on the last layer of a decoder that comes after its encoder in one graph, as the classes of the
/// transformers library have it. `labels` is the number of labels that the configuration does not name.
pub(crate) fn head(
    b: &mut Builder<'_>,
    encoder: &Encoder,
    x: ValueId,
    [vocabulary, hidden]: [Size; 2],
    labels: usize,
    task: Task,
) -> Result<(), ModelError> {
    const CLASSIFIER: &str = "classification_head";
    if task == Task::QuestionAnswering {
        return heads::span(b, hidden, x, "qa_outputs", Size::derived(2, "start and end"));
    }
    // Of the last end of each text; the library refuses texts with different numbers of ends.
    let end = token(b, END, task, vocabulary)?;
    let end = b.graph.add_scalar("end", DType::I64, end as f64);
    let ends = b.binary(BinaryKind::Equal, [encoder.input_ids, end], "ends")?;
    let last = pooling::last_kept(b, x, ends, "last_end")?;
    let dense = b.linear(last, &format!("{CLASSIFIER}.dense"), hidden, hidden)?;
    let active = Activation::TANH.apply(b, dense, &format!("{CLASSIFIER}.activation"))?;
    let labels = b.config.labels_or(labels)?;
    let logits = b.linear(active, &format!("{CLASSIFIER}.out_proj"), labels, hidden)?;
    b.give(names::LOGITS, logits);
    Ok(())
}

/// The weight of a decoder's projection to the vocabulary: that of its embeddings where the two are tied. A copy that is stored and
/// differs counts, as in transformers 5.
pub(crate) fn head_weight(
    b: &mut Builder<'_>,
    head: &str,
    embeddings: &str,
    tied: bool,
    shape: [Size; 2],
) -> Result<ValueId, ModelError> {
    if tied && !b.tensors.differs(embeddings, head)? {
        return b.weight(&[embeddings], &shape);
    }
    if tied {
        b.config.warn(format!(
            "`tie_word_embeddings` is true, but `{head}` is stored and differs from `{embeddings}`: taking both"
        ));
    }
    b.weight(&[head], &shape)
}

/// Embeddings that encoder and decoder may share: stored once, or under several names too.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    /// The first name under which they are stored.
    name: &'static str,
    shape: [Size; 2],
}

impl Shared {
    /// Finds them, and compares the copies. `names` are those of the embeddings, `head` that of the
    /// weight of the projection to the vocabulary, which is one of them where `tied`.
    pub(crate) fn find(
        b: &mut Builder<'_>,
        names: &'static [&'static str],
        head: &'static str,
        tied: bool,
        shape: [Size; 2],
    ) -> Result<Self, ModelError> {
        let all = || names.iter().chain(tied.then_some(&head)).copied();
        let name = all().find(|name| b.tensors.contains(name)).or(names.first().copied()).unwrap_or(head);
        for copy in all().filter(|copy| *copy != name) {
            if b.tensors.differs(name, copy)? {
                let advice = "encoder and decoder share one matrix, and so does the head where `tie_word_embeddings` \
                              is true; remove the copy that is not meant";
                return Err(b.tensors.contradiction(copy, name, advice));
            }
        }
        Ok(Self { name, shape })
    }

    /// [vocabulary, hidden].
    pub(crate) fn weight(&self, b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
        b.weight(&[self.name], &self.shape)
    }
}

/// The properties of the model that callers need.
pub(crate) fn properties(b: &Builder<'_>, vocabulary: Size, max_positions: Option<usize>) -> Properties {
    let pad_token_id = b.config.any_token("pad_token_id", vocabulary);
    Properties { max_positions, vocab_size: Some(vocabulary.value), pad_token_id, ..Properties::default() }
}
