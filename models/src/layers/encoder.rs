//! The transformer encoder that BERT and related models share (Vaswani et al. 2017, arXiv:1706.03762):
//! layers of self-attention and feed-forward, each with a residual connection and layer
//! normalization after it, or before it.

use planish_ir::ops::{Attention, Cast, Iota, Reshape, Slice};
use planish_ir::{DType, Dim, Shape, ValueId};

use crate::architecture::Properties;
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::attention::{Heads, Scores, Text, attention};
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::decoder::Decoder;
use crate::layers::dense::Forms;
use crate::layers::heads::HeadSizes;
use crate::layers::rope::Angles;
use crate::names;
use crate::{ModelError, Task};

/// The tasks of an encoder of text.
pub(crate) const TASKS: &[Task] = &[
    Task::FeatureExtraction,
    Task::FillMask,
    Task::TextClassification,
    Task::TokenClassification,
    Task::QuestionAnswering,
    Task::MultipleChoice,
];

/// The tasks of encoders of text for which the transformers library has no class of multiple choice.
pub(crate) const WITHOUT_CHOICES: &[Task] = TASKS.split_at(5).0;

/// An encoder is not a decoder.
pub(crate) const NO_DECODER: Only = Only::Off("is_decoder");

/// The configuration of an encoder in `config.json`.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) vocabulary: Size,
    /// Rows of the position table.
    pub(crate) positions: Size,
    pub(crate) hidden: Size,
    /// Features of embeddings.
    pub(crate) embedded: Size,
    pub(crate) intermediate: Size,
    pub(crate) heads: Size,
    pub(crate) layers: Size,
    pub(crate) activation: Activation,
    /// Added to the variance in layer normalization.
    pub(crate) eps: f64,
    pub(crate) pad_token_id: Option<i64>,
}

impl Settings {
    /// Checks what no tensor's shape shows.
    pub(crate) fn check(self, config: &Config<'_>) -> Result<Self, ModelError> {
        if !self.hidden.value.is_multiple_of(self.heads.value) {
            return Err(config.error(format!("{} is not divisible by {}", self.hidden, self.heads)));
        }
        Ok(self)
    }

    /// The heads of attention.
    pub(crate) fn attention_heads(&self) -> Heads {
        let size = Size::derived(self.hidden.value / self.heads.value, "hidden_size / num_attention_heads");
        Heads { queries: self.heads, keys: self.heads, size }
    }

    /// Scores divided by the square root of the size of a head.
    pub(crate) fn scores(&self) -> Scores {
        Scores::scaled(1.0 / (self.attention_heads().size.value as f64).sqrt())
    }

    /// The sizes that heads of tasks have.
    pub(crate) fn head_sizes(&self) -> HeadSizes {
        HeadSizes { vocabulary: self.vocabulary, hidden: self.hidden, embedded: self.embedded, eps: self.eps }
    }

    /// The properties that callers need of a model that takes so many tokens.
    pub(crate) fn properties(&self, max_positions: usize) -> Properties {
        Properties {
            max_positions: Some(max_positions),
            vocab_size: Some(self.vocabulary.value),
            pad_token_id: self.pad_token_id,
            ..Properties::default()
        }
    }
}

/// The names of the modules of a layer.
#[derive(Clone, Copy)]
pub(crate) struct LayerNames {
    /// The list of layers.
    pub(crate) layers: &'static str,
    pub(crate) query: &'static str,
    pub(crate) key: &'static str,
    pub(crate) value: &'static str,
    /// The projection of what attention gives.
    pub(crate) output: &'static str,
    pub(crate) attention_norm: &'static str,
    /// The two layers of the feed-forward.
    pub(crate) up: &'static str,
    pub(crate) down: &'static str,
    pub(crate) output_norm: &'static str,
    /// The norm of what the last layer gives. Where there is one, the norms of a layer stand before attention and before the
    /// feed-forward, else after the sums.
    pub(crate) final_norm: Option<&'static str>,
}

/// The attention mask as attention takes it: which tokens take part, bool[batch_size, sequence_length].
pub(crate) fn mask(b: &mut Builder<'_>, attention_mask: ValueId) -> Result<ValueId, ModelError> {
    b.emit(Cast { x: attention_mask, to: DType::Bool }, "attention_mask.bool")
}

/// The tokens of an encoder, as the layers attend to them that it shares with decoders.
pub(crate) struct TextEncoder {
    /// i64[batch_size, sequence_length].
    pub(crate) input_ids: ValueId,
    /// bool[batch_size, sequence_length].
    pub(crate) mask: ValueId,
    /// Keys and values of each layer so far.
    keys: Vec<[ValueId; 2]>,
}

impl TextEncoder {
    /// Adds the inputs `input_ids` and `attention_mask`.
    pub(crate) fn new(b: &mut Builder<'_>, vocabulary: Size) -> Result<Self, ModelError> {
        let input_ids = b.input(names::INPUT_IDS, vocabulary.signed())?;
        let attention_mask = b.input(names::ATTENTION_MASK, 2)?;
        Ok(Self { input_ids, mask: mask(b, attention_mask)?, keys: Vec::new() })
    }
}

impl Text for TextEncoder {
    fn attend(
        &mut self,
        b: &mut Builder<'_>,
        qkv: [ValueId; 3],
        heads: Heads,
        scores: Scores,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        self.keys.push([qkv[1], qkv[2]]);
        b.emit(attention(qkv, heads, scores, self.mask), module)
    }

    fn attend_to_layer(
        &mut self,
        b: &mut Builder<'_>,
        q: ValueId,
        layer: usize,
        heads: Heads,
        scores: Scores,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let [k, v] = self.keys[layer];
        b.emit(attention([q, k, v], heads, scores, self.mask), module)
    }

    fn decoder(&mut self) -> Option<&mut Decoder> {
        None
    }

    fn caches_latents(&self, _: &mut Builder<'_>) -> bool {
        false
    }

    fn extend(&mut self, _: &mut Builder<'_>, new: [ValueId; 2], _: &str) -> Result<[ValueId; 2], ModelError> {
        Ok(new)
    }

    fn attend_all(
        &self,
        b: &mut Builder<'_>,
        qkv: [ValueId; 3],
        heads: Heads,
        scores: Scores,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        b.emit(attention(qkv, heads, scores, self.mask), module)
    }
}

/// The positions 0, 1, 2 ... of tokens: i64[1, sequence_length].
pub(crate) fn positions(b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
    let length = Dim::symbol(SEQUENCE);
    let positions = b.emit(Iota { dtype: DType::I64, length: length.clone() }, "position_ids.range")?;
    b.emit(Reshape { x: positions, shape: Shape::new([Dim::constant(1), length]) }, "position_ids")
}

/// The rows of the table `embeddings.position_embeddings` for positions 0, 1, 2 ...:
/// [sequence_length, embedded].
pub(crate) fn absolute_positions(b: &mut Builder<'_>, s: &Settings) -> Result<ValueId, ModelError> {
    let table = b.weight(&["embeddings.position_embeddings.weight"], &[s.positions, s.embedded])?;
    let slice = Slice { x: table, axis: 0, start: Dim::constant(0), end: Dim::symbol(SEQUENCE) };
    b.emit(slice, "embeddings.position_embeddings")
}

/// Sums embeddings in order: [batch_size, sequence_length, embedded].
pub(crate) fn sum(b: &mut Builder<'_>, first: ValueId, others: &[ValueId]) -> Result<ValueId, ModelError> {
    others.iter().try_fold(first, |sum, other| b.add(sum, *other, "embeddings.add"))
}

/// Sums embeddings in order and normalizes: [batch_size, sequence_length, embedded].
pub(crate) fn embeddings(
    b: &mut Builder<'_>,
    s: &Settings,
    first: ValueId,
    others: &[ValueId],
) -> Result<ValueId, ModelError> {
    let sum = sum(b, first, others)?;
    b.layer_norm(sum, "embeddings.LayerNorm", s.embedded, s.eps)
}

/// How queries and keys of encoders turn with their positions.
#[derive(Clone, Copy)]
pub(crate) struct Rotation {
    pub(crate) angles: Angles,
    /// Whether the pairs that turn are neighbours, not halves of a head.
    pub(crate) interleaved: bool,
    /// Whether values turn too.
    pub(crate) values: bool,
}

/// What attention takes besides queries, keys and values.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    /// bool[batch_size, sequence_length].
    pub(crate) mask: ValueId,
    /// What is added to scores.
    pub(crate) bias: Option<ValueId>,
    pub(crate) rotation: Option<Rotation>,
}

impl Context {
    pub(crate) fn of_mask(mask: ValueId) -> Self {
        Self { mask, bias: None, rotation: None }
    }
}

/// All layers: [batch_size, sequence_length, hidden] to the same.
pub(crate) fn layers(
    b: &mut Builder<'_>,
    s: &Settings,
    names: &LayerNames,
    x: ValueId,
    context: Context,
) -> Result<ValueId, ModelError> {
    let mut x = x;
    for i in 0..s.layers.value {
        x = layer(b, s, names, &format!("{}.{i}", names.layers), x, context)?;
    }
    names.final_norm.map_or(Ok(x), |norm| b.layer_norm(x, norm, s.hidden, s.eps))
}

/// The layer of a path.
pub(crate) fn layer(
    b: &mut Builder<'_>,
    s: &Settings,
    names: &LayerNames,
    path: &str,
    x: ValueId,
    context: Context,
) -> Result<ValueId, ModelError> {
    layer_with(b, s, names, &Forms::LINEAR, path, x, |b, x| attend(b, s, names, &Forms::LINEAR, path, x, context))
}

/// The layer of a path with an attention of its own, which gives [batch_size, sequence_length, hidden].
pub(crate) fn layer_with(
    b: &mut Builder<'_>,
    s: &Settings,
    names: &LayerNames,
    forms: &Forms,
    path: &str,
    x: ValueId,
    attend: impl FnOnce(&mut Builder<'_>, ValueId) -> Result<ValueId, ModelError>,
) -> Result<ValueId, ModelError> {
    let x = attended(b, s, names, forms, path, x, attend)?;
    fed_forward(b, s, names, forms, path, x)
}

/// A norm of the layer of a path, where it applies.
fn norm(b: &mut Builder<'_>, s: &Settings, applies: bool, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    if applies { b.layer_norm(x, module, s.hidden, s.eps) } else { Ok(x) }
}

/// The first half of the layer of a path: an attention, its projection and its norm.
pub(crate) fn attended(
    b: &mut Builder<'_>,
    s: &Settings,
    names: &LayerNames,
    forms: &Forms,
    path: &str,
    x: ValueId,
    attend: impl FnOnce(&mut Builder<'_>, ValueId) -> Result<ValueId, ModelError>,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let norms_first = names.final_norm.is_some();
    let input = norm(b, s, norms_first, x, &at(names.attention_norm))?;
    let attended = attend(b, input)?;
    let projected = forms.output.apply(b, attended, &at(names.output), [s.hidden, s.hidden])?;
    let module = names.output.split('.').next().unwrap_or_default();
    let residual = b.add(projected, x, &at(&format!("{module}.add")))?;
    norm(b, s, !norms_first, residual, &at(names.attention_norm))
}

/// The second half of the layer of a path: the feed-forward and its norm.
pub(crate) fn fed_forward(
    b: &mut Builder<'_>,
    s: &Settings,
    names: &LayerNames,
    forms: &Forms,
    path: &str,
    x: ValueId,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let norms_first = names.final_norm.is_some();
    let input = norm(b, s, norms_first, x, &at(names.output_norm))?;
    let up = forms.up.apply(b, input, &at(names.up), [s.intermediate, s.hidden])?;
    let active = s.activation.apply(b, up, &at("activation"))?;
    let down = forms.down.apply(b, active, &at(names.down), [s.hidden, s.intermediate])?;
    let residual = b.add(down, x, &at("add"))?;
    norm(b, s, !norms_first, residual, &at(names.output_norm))
}

/// The attention of the layer of a path, before its projection.
pub(crate) fn attend(
    b: &mut Builder<'_>,
    s: &Settings,
    names: &LayerNames,
    forms: &Forms,
    path: &str,
    x: ValueId,
    Context { mask, bias, rotation }: Context,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let square = [s.hidden, s.hidden];
    let mut q = forms.query.apply(b, x, &at(names.query), square)?;
    let mut k = forms.key.apply(b, x, &at(names.key), square)?;
    let mut v = forms.value.apply(b, x, &at(names.value), square)?;
    if let Some(Rotation { angles, interleaved, values }) = rotation {
        q = angles.rotate(b, q, s.heads, interleaved, &at("rotary_q"))?;
        k = angles.rotate(b, k, s.heads, interleaved, &at("rotary_k"))?;
        if values {
            v = angles.rotate(b, v, s.heads, interleaved, &at("rotary_v"))?;
        }
    }
    let attention = Attention { bias, ..attention([q, k, v], s.attention_heads(), s.scores(), mask) };
    b.emit(attention, &at("attention"))
}
