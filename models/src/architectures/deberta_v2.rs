//! DeBERTa v2 and v3 (He et al. 2021, arXiv:2111.09543), as `transformers/models/deberta_v2` has them: BERT with disentangled
//! attention, whose far distances share buckets, and with a convolution beside the first layer where the configuration says so.

use planish_ir::ops::{Attention, BinaryKind, Cast, Conv, Linear};
use planish_ir::{DType, Dim, Shape, ValueId};
use serde_json::Value;

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults, LAYER};
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::attention::{Scores, attention};
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::dense::Forms;
use crate::layers::disentangled::{Distances, Pairs};
use crate::layers::encoder::{self, LayerNames, Settings};
use crate::layers::heads::{DecoderBias, MaskedLm, Pooling, TextHeads, Tied};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "deberta-v2",
    class_prefix: "DebertaV2",
    base: "deberta",
    keys: &[bert::KEYS, KEYS, &[BUCKETS, CONV, "conv_act", "conv_groups", "norm_rel_ebd", "share_att_key"]],
    only: &[encoder::NO_DECODER],
    irrelevant_keys: IRRELEVANT_KEYS,
    unused_tensors: UNUSED_TENSORS,
    build,
    ..bert::ARCHITECTURE
};

/// The configuration keys of DeBERTa too.
pub(crate) const KEYS: &[&str] =
    &["embedding_size", "legacy", MOST, "pooler_hidden_act", KINDS, "position_biased_input", "relative_attention"];

/// Dropout, and the size of the pooler, which its weight has.
pub(crate) const IRRELEVANT_KEYS: &[&str] =
    &["attention_head_size", "cls_dropout", "pooler_dropout", "pooler_hidden_size"];

/// Buffers, then what is there whatever the configuration says, then heads of other tasks.
pub(crate) const UNUSED_TENSORS: &[&str] = &[
    "embeddings.position_ids",
    "embeddings.position_embeddings.",
    "encoder.LayerNorm.",
    "pooler.",
    "cls.",
    "lm_predictions.",
    "mask_predictions.",
    "classifier.",
    "qa_outputs.",
];

const BUCKETS: &str = "position_buckets";
const CONV: &str = "conv_kernel_size";
const KINDS: &str = "pos_att_type";
const MOST: &str = "max_relative_positions";
const DISTANCES: &str = "encoder.rel_embeddings.weight";

const NAMES: LayerNames = LayerNames {
    query: "attention.self.query_proj",
    key: "attention.self.key_proj",
    value: "attention.self.value_proj",
    ..LAYER
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = settings(b, 128_100, 1536, 24, 24, 6144)?;
    let buckets = whole(b.config, BUCKETS)?;
    let shared = b.config.boolean("share_att_key", false)?;
    let convolution = Convolution::read(b.config)?;
    let (embedded, mask) = embeddings(b, &s)?;
    let mut attention = Disentangled::read(b, &s, mask, buckets)?;
    if b.config.text("norm_rel_ebd", "none")?.to_lowercase().split('|').any(|norm| norm.trim() == "layer_norm") {
        attention.normalize(b, &s)?;
    }
    let mut x = embedded;
    for layer in 0..s.layers.value {
        let path = format!("{}.{layer}", NAMES.layers);
        let before = x;
        x = encoder::layer_with(b, &s, &NAMES, &Forms::LINEAR, &path, x, |b, x| {
            let at = |name: &str| format!("{path}.{name}");
            let q = b.linear(x, &at(NAMES.query), s.hidden, s.hidden)?;
            let k = b.linear(x, &at(NAMES.key), s.hidden, s.hidden)?;
            let v = b.linear(x, &at(NAMES.value), s.hidden, s.hidden)?;
            attention.attend(b, &s, [q, k, v], &path, |b, distances, of| {
                // The projections of tokens, or others.
                let (module, name) = match (of, shared) {
                    (Positions::AsKeys, true) => (at(NAMES.key), "distances.key"),
                    (Positions::AsKeys, false) => (at("attention.self.pos_key_proj"), "distances.key"),
                    (Positions::AsQueries, true) => (at(NAMES.query), "distances.query"),
                    (Positions::AsQueries, false) => (at("attention.self.pos_query_proj"), "distances.query"),
                };
                let weight = b.weight(&[&format!("{module}.weight")], &[s.hidden, s.hidden])?;
                let bias = Some(b.weight(&[&format!("{module}.bias")], &[s.hidden])?);
                b.emit(Linear::new(distances, weight, bias), &at(name))
            })
        })?;
        if let (0, Some(convolution)) = (layer, &convolution) {
            x = convolution.apply(b, &s, [before, x], mask)?;
        }
    }
    finish(b, &s, x, task)
}

/// Reads the configuration, of DeBERTa too.
pub(crate) fn settings(
    b: &Builder<'_>,
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
) -> Result<Settings, ModelError> {
    let sizes = Defaults { vocab_size, hidden_size, num_hidden_layers, num_attention_heads, ..Defaults::BERT };
    let defaults = Defaults { intermediate_size, layer_norm_eps: 1e-7, ..sizes };
    let mut s = bert::settings(b.config, &defaults)?;
    s.embedded = b.config.size_or("embedding_size", s.hidden)?;
    Ok(s)
}

/// A whole number, where it is positive.
fn whole(config: &Config<'_>, key: &'static str) -> Result<Option<Size>, ModelError> {
    match config.get(key) {
        Some(value) if value.as_i64().is_some_and(|number| number < 1) => Ok(None),
        Some(_) => config.given_size(&[key]),
        None => Ok(None),
    }
}

/// Adds the inputs: the embeddings of tokens, [batch_size, sequence_length, hidden], 0 for padding, and the mask.
pub(crate) fn embeddings(b: &mut Builder<'_>, s: &Settings) -> Result<(ValueId, ValueId), ModelError> {
    let types = bert::any_token_types(b, 0)?;
    let input_ids = b.input(names::INPUT_IDS, s.vocabulary.signed())?;
    let attention_mask = b.input(names::ATTENTION_MASK, 2)?;
    let token_type_ids = types.map(|types| b.input(names::TOKEN_TYPES, types.signed())).transpose()?;
    let mask = encoder::mask(b, attention_mask)?;
    let mut x = b.embedding(input_ids, "embeddings.word_embeddings", s.vocabulary, s.embedded)?;
    if b.config.boolean("position_biased_input", true)? {
        let positions = encoder::absolute_positions(b, s)?;
        x = b.add(x, positions, "embeddings.add")?;
    }
    if let (Some(types), Some(ids)) = (types, token_type_ids) {
        let types = b.embedding(ids, "embeddings.token_type_embeddings", types, s.embedded)?;
        x = b.add(x, types, "embeddings.add")?;
    }
    if s.embedded.value != s.hidden.value {
        x = b.projection(x, "embeddings.embed_proj", [s.hidden, s.embedded], false)?;
    }
    let x = b.layer_norm(x, "embeddings.LayerNorm", s.hidden, s.eps)?;
    Ok((kept(b, x, mask, "embeddings")?, mask))
}

/// What tokens have, 0 for padding.
fn kept(b: &mut Builder<'_>, x: ValueId, mask: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let kept = b.emit(Cast { x: mask, to: DType::F32 }, &at("kept"))?;
    let kept = b.reshape(kept, [b.texts(), Dim::symbol(SEQUENCE), Dim::constant(1)], &at("column"))?;
    b.binary(BinaryKind::Mul, [x, kept], &at("mul"))
}

/// What embeddings of distances become.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Positions {
    AsKeys,
    AsQueries,
}

/// The attention of all layers.
pub(crate) struct Disentangled {
    mask: ValueId,
    kinds: Vec<Positions>,
    /// The factor of products.
    scale: f64,
    /// The embeddings of distances, [rows, hidden], and which pairs of tokens have.
    distances: Option<(ValueId, Pairs)>,
}

impl Disentangled {
    /// Reads the configuration; with `buckets` far distances share.
    pub(crate) fn read(
        b: &mut Builder<'_>,
        s: &Settings,
        mask: ValueId,
        buckets: Option<Size>,
    ) -> Result<Self, ModelError> {
        let kinds = kinds(b.config)?;
        let size = s.attention_heads().size.value;
        let scale = 1.0 / ((size * (1 + kinds.len())) as f64).sqrt();
        let most = whole(b.config, MOST)?.unwrap_or(s.positions);
        let distances = match b.config.boolean("relative_attention", false)? {
            true => {
                let distances = Distances::new(b.config, most, buckets)?;
                let rows = Size::derived(distances.rows(), "2 * position_buckets or max_relative_positions");
                let table = b.weight(&[DISTANCES], &[rows, s.hidden])?;
                Some((table, distances.of_pairs(b, "encoder.distances")?))
            }
            false => None,
        };
        Ok(Self { mask, kinds, scale, distances })
    }

    /// Normalizes the embeddings of distances.
    fn normalize(&mut self, b: &mut Builder<'_>, s: &Settings) -> Result<(), ModelError> {
        if let Some((table, _)) = &mut self.distances {
            *table = b.layer_norm(*table, "encoder.LayerNorm", s.hidden, s.eps)?;
        }
        Ok(())
    }

    /// The attention of a layer. `project` makes keys or queries of the embeddings of distances.
    pub(crate) fn attend(
        &self,
        b: &mut Builder<'_>,
        s: &Settings,
        [q, k, v]: [ValueId; 3],
        path: &str,
        project: impl Fn(&mut Builder<'_>, ValueId, Positions) -> Result<ValueId, ModelError>,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.attention.{name}");
        let heads = s.attention_heads();
        let mut bias = None;
        for &kind in self.kinds.iter().filter(|_| self.distances.is_some()) {
            let Some((table, pairs)) = self.distances else { continue };
            let distances = project(b, table, kind)?;
            let scores = match kind {
                Positions::AsKeys => pairs.of_queries(b, [q, distances], heads, &at("content_to_position"))?,
                Positions::AsQueries => pairs.of_keys(b, [k, distances], heads, &at("position_to_content"))?,
            };
            bias = Some(bias.map_or(Ok(scores), |sum| b.add(sum, scores, &at("positions.add")))?);
        }
        let scaled = |bias| b.with_number(BinaryKind::Mul, bias, self.scale, &at("positions"), "hidden_size");
        let bias = bias.map(scaled).transpose()?;
        let attention = attention([q, k, v], heads, Scores::scaled(self.scale), self.mask);
        b.emit(Attention { bias, ..attention }, &format!("{path}.attention"))
    }
}

/// The addends of scores: a list of "c2p" and "p2c", or a text that separates them by `|`.
fn kinds(config: &Config<'_>) -> Result<Vec<Positions>, ModelError> {
    let Some(value) = config.get(KINDS) else { return Ok(Vec::new()) };
    let wrong = || config.unexpected(KINDS, value, "a list of \"c2p\" and \"p2c\"");
    let names: Vec<String> = match value {
        Value::String(text) => text.to_lowercase().split('|').map(|name| name.trim().to_owned()).collect(),
        Value::Array(list) => {
            list.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<_>>().ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    };
    let has = |name: &str| names.iter().filter(|other| *other == name).count();
    let known = [("c2p", Positions::AsKeys), ("p2c", Positions::AsQueries)];
    let found: Vec<Positions> = known.into_iter().filter(|(name, _)| has(name) == 1).map(|(_, kind)| kind).collect();
    if found.len() == names.len() { Ok(found) } else { Err(wrong()) }
}

/// A convolution of the embeddings, which is added to what the first layer gives.
struct Convolution {
    kernel: usize,
    groups: usize,
    activation: Activation,
}

impl Convolution {
    fn read(config: &Config<'_>) -> Result<Option<Self>, ModelError> {
        let (kernel, groups) = (whole(config, CONV)?, whole(config, "conv_groups")?);
        let activation = Activation::read(config, "conv_act", "tanh")?;
        match kernel {
            Some(kernel) if kernel.value.is_multiple_of(2) => {
                Err(config.error(format!("{kernel} is even: the convolution would give another number of tokens")))
            }
            kernel => Ok(kernel.map(|kernel| Self {
                kernel: kernel.value,
                groups: groups.map_or(1, |groups| groups.value),
                activation,
            })),
        }
    }

    fn apply(
        &self,
        b: &mut Builder<'_>,
        s: &Settings,
        [embedded, x]: [ValueId; 2],
        mask: ValueId,
    ) -> Result<ValueId, ModelError> {
        const MODULE: &str = "encoder.conv";
        let at = |name: &str| format!("{MODULE}.{name}");
        if !s.hidden.value.is_multiple_of(self.groups) {
            return Err(b.config.error(format!("{} is not divisible by conv_groups = {}", s.hidden, self.groups)));
        }
        let inner = Size::derived(s.hidden.value / self.groups, "hidden_size / conv_groups");
        let weight = b.weight(&[&at("conv.weight")], &[s.hidden, inner, Size::derived(self.kernel, CONV)])?;
        let bias = Some(b.weight(&[&at("conv.bias")], &[s.hidden])?);
        let channels = b.transpose(embedded, &[0, 2, 1], &at("channels"))?;
        let conv = Conv {
            x: channels,
            weight,
            bias,
            strides: vec![1],
            dilations: vec![1],
            pads: vec![self.kernel / 2; 2],
            groups: self.groups,
            sizes: Shape::new([Dim::symbol(SEQUENCE)]),
        };
        let out = b.emit(conv, &at("conv"))?;
        let out = b.transpose(out, &[0, 2, 1], &at("tokens"))?;
        let out = kept(b, out, mask, &at("out"))?;
        let out = self.activation.apply(b, out, &at("act"))?;
        let sum = b.add(x, out, &at("add"))?;
        let normal = b.layer_norm(sum, &at("LayerNorm"), s.hidden, s.eps)?;
        kept(b, normal, mask, MODULE)
    }
}

/// Adds the outputs of a task, of DeBERTa too.
pub(crate) fn finish(b: &mut Builder<'_>, s: &Settings, x: ValueId, task: Task) -> Result<Properties, ModelError> {
    let pooling = Pooling::Dense("pooler.dense", Activation::read(b.config, "pooler_hidden_act", "gelu")?);
    let mut sizes = s.head_sizes();
    let masked = match b.config.boolean("legacy", true)? {
        true => TextHeads::bert(s.activation).masked,
        false => {
            sizes.embedded = s.hidden;
            MaskedLm {
                transform: "lm_predictions.lm_head.dense",
                norm: "lm_predictions.lm_head.LayerNorm",
                decoder: "lm_predictions.lm_head.decoder",
                bias: DecoderBias::Apart("lm_predictions.lm_head.bias"),
                activation: s.activation,
                tied: Tied::Always,
            }
        }
    };
    let heads = TextHeads { pooler: None, masked, sequence: (pooling, "classifier"), choice: Some(pooling) };
    heads.finish(b, &sizes, x, task)?;
    // Without embeddings of positions there are only distances, and the far ones share the last embedding.
    let most = b.config.boolean("position_biased_input", true)?.then_some(s.positions.value);
    Ok(Properties { max_positions: most, ..s.properties(s.positions.value) })
}
