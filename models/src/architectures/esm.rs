//! ESM-1b and ESM-2 (Lin et al. 2022, bioRxiv 2022.07.20.500902), as `transformers/models/esm` has them: RoBERTa with norms
//! before attention and feed-forward, of the letters of proteins, with rotary embedding or positions.

use planish_ir::ops::{BinaryKind, Cast, Reduce, ReduceKind, Select};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, LAYER};
use crate::architectures::roberta;
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::builder::{BATCH, Builder, SEQUENCE};
use crate::layers::encoder::{self, Context, LayerNames, Rotation, Settings};
use crate::layers::heads::{DecoderBias, TextHeads};
use crate::layers::rope::{MODULE, Rope};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "esm",
    class_prefix: "Esm",
    base: "esm",
    tasks: &[Task::FeatureExtraction, Task::FillMask, Task::TextClassification, Task::TokenClassification],
    keys: &[&[
        "emb_layer_norm_before",
        "hidden_size",
        "intermediate_size",
        "layer_norm_eps",
        "mask_token_id",
        "max_position_embeddings",
        "num_attention_heads",
        "num_hidden_layers",
        "pad_token_id",
        POSITIONS,
        "rope_theta",
        "token_dropout",
        "vocab_size",
    ]],
    only: &[encoder::NO_DECODER, Only::False("is_folding_model")],
    irrelevant_keys: &[
        // The activation is always gelu.
        "hidden_act",
        // Of the model that folds.
        "esmfold_config",
        "vocab_list",
    ],
    // Buffers, then heads of other tasks.
    unused_tensors: &[
        "embeddings.position_ids",
        "embeddings.position_embeddings.",
        "pooler.",
        "contact_head.",
        "lm_head.",
        "classifier.",
    ],
    build,
    ..bert::ARCHITECTURE
};

const POSITIONS: &str = "position_embedding_type";

const PRE_NORM_LAYER: LayerNames = LayerNames {
    attention_norm: "attention.LayerNorm",
    output_norm: "LayerNorm",
    final_norm: Some("encoder.emb_layer_norm_after"),
    ..LAYER
};

fn settings(config: &Config<'_>) -> Result<Settings, ModelError> {
    let vocabulary = config.size("vocab_size", 33)?;
    let hidden = config.size("hidden_size", 768)?;
    let settings = Settings {
        vocabulary,
        positions: config.size("max_position_embeddings", 1026)?,
        hidden,
        embedded: hidden,
        intermediate: config.size("intermediate_size", 3072)?,
        heads: config.size("num_attention_heads", 12)?,
        layers: config.size("num_hidden_layers", 12)?,
        activation: Activation::GELU,
        eps: config.positive("layer_norm_eps", 1e-12)?,
        pad_token_id: config.token("pad_token_id", 1, vocabulary)?,
    };
    settings.check(config)
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = settings(b.config)?;
    let theta = b.config.positive("rope_theta", 10_000.0)?;
    let rotary = match b.config.text(POSITIONS, "absolute")? {
        "rotary" => true,
        "absolute" => false,
        other => {
            return Err(b.config.error(format!("`{POSITIONS}` is \"{other}\", expected \"absolute\" or \"rotary\"")));
        }
    };
    let input_ids = b.input(names::INPUT_IDS, s.vocabulary.signed())?;
    let attention_mask = b.input(names::ATTENTION_MASK, 2)?;
    let mask = encoder::mask(b, attention_mask)?;
    let kept = b.emit(Cast { x: attention_mask, to: DType::F32 }, "attention_mask.kept")?;

    let mut x = b.embedding(input_ids, "embeddings.word_embeddings", s.vocabulary, s.hidden)?;
    if b.config.boolean("token_dropout", false)? {
        x = without_masked(b, &s, x, input_ids, kept)?;
    }
    let mut max_positions = None;
    if !rotary {
        let pad = roberta::padding(b, &s)?;
        let before = usize::try_from(pad).unwrap_or(usize::MAX).saturating_add(1);
        max_positions = Some(s.positions.value.saturating_sub(before));
        let ids = roberta::position_ids(b, input_ids, pad, &Dim::constant(0))?;
        let positions = b.embedding(ids, "embeddings.position_embeddings", s.positions, s.hidden)?;
        x = b.add(x, positions, "embeddings.add")?;
    }
    if b.config.boolean("emb_layer_norm_before", false)? {
        x = b.layer_norm(x, "embeddings.layer_norm", s.hidden, s.eps)?;
    }
    let column = [Dim::symbol(BATCH), Dim::symbol(SEQUENCE), Dim::constant(1)];
    let kept = b.reshape(kept, column, "embeddings.kept")?;
    x = b.binary(BinaryKind::Mul, [x, kept], "embeddings.mul")?;

    let rotation = match rotary {
        true => {
            let positions = encoder::positions(b)?;
            let rope = match frequencies(b, &s)? {
                Some(stored) => Rope::stored(stored, s.positions),
                None => Rope::plain(s.attention_heads().size, s.positions, theta),
            };
            Some(Rotation { angles: rope.angles(b, positions, MODULE)?, interleaved: false, values: false })
        }
        false => None,
    };
    let hidden = encoder::layers(b, &s, &PRE_NORM_LAYER, x, Context { rotation, ..Context::of_mask(mask) })?;
    let mut heads = TextHeads::roberta();
    heads.masked.bias = DecoderBias::Apart("lm_head.bias");
    heads.finish(b, &s.head_sizes(), hidden, task)?;
    Ok(Properties { max_positions, ..s.properties(s.positions.value) })
}

/// The stored frequencies of rotary embedding, [pairs], where there are some: of the model or of each layer. They count
/// because they may be rounded to float16, as in training.
fn frequencies(b: &mut Builder<'_>, s: &Settings) -> Result<Option<ValueId>, ModelError> {
    const MODEL: &str = "rotary_embeddings.inv_freq";
    let of_layer = |layer: &str| format!("{}.{layer}.attention.self.{MODEL}", LAYER.layers);
    // transformers 5 saves those of the model under the name of a layer `*`.
    let names = [MODEL.to_owned(), of_layer("*")].into_iter();
    let names = names.chain((0..s.layers.value).map(|layer| of_layer(&layer.to_string())));
    let stored: Vec<String> = names.filter(|name| b.tensors.contains(name)).collect();
    let Some((first, copies)) = stored.split_first() else { return Ok(None) };
    for copy in copies {
        if b.tensors.differs(first, copy)? {
            let advice = "all layers have the same frequencies of rotary embedding";
            return Err(b.tensors.contradiction(copy, first, advice));
        }
    }
    let size = s.attention_heads().size;
    let pairs = Size::derived(size.value / 2, "hidden_size / num_attention_heads / 2");
    b.weight(&[MODEL, first], &[pairs]).map(Some)
}

/// Embeddings with zeros for masked tokens, scaled by the share of tokens that were not masked in training, in proportion to
/// that of the text: [batch_size, sequence_length, hidden].
fn without_masked(
    b: &mut Builder<'_>,
    s: &Settings,
    x: ValueId,
    input_ids: ValueId,
    kept: ValueId,
) -> Result<ValueId, ModelError> {
    const KEY: &str = "mask_token_id";
    /// Of the tokens in training, 15% were chosen, and 80% of these masked.
    const MASKED_IN_TRAINING: f64 = 0.15 * 0.8;
    let at = |name: &str| format!("embeddings.token_dropout.{name}");
    let Some(id) = b.config.token(KEY, -1, s.vocabulary)? else {
        return Err(b.config.error(format!("`{KEY}` is not an id, but `token_dropout` is true, which depends on it")));
    };
    // Exact: token ids are below 2^53.
    let id = b.graph.add_weight(&at("mask"), Weight::scalar(DType::I64, id as f64), Origin::Config(KEY.into()));
    let masked = b.binary(BinaryKind::Equal, [input_ids, id], &at("masked"))?;
    let column = [Dim::symbol(BATCH), Dim::symbol(SEQUENCE), Dim::constant(1)];
    let condition = b.reshape(masked, column, &at("column"))?;
    let zero = b.number(0.0, &at("zero"), KEY);
    let x = b.emit(Select { condition, a: zero, b: x }, &at("select"))?;

    let sum = |x| Reduce { kind: ReduceKind::Sum, x, axes: vec![1], keep: true };
    let masked = b.emit(Cast { x: masked, to: DType::F32 }, &at("masked.kept"))?;
    let (masked, length) = (b.emit(sum(masked), &at("masked.count"))?, b.emit(sum(kept), &at("length"))?);
    let share = b.binary(BinaryKind::Div, [masked, length], &at("share"))?;
    let one = b.number(1.0, &at("one"), KEY);
    let rest = b.binary(BinaryKind::Sub, [one, share], &at("rest"))?;
    let rest = b.reshape(rest, [Dim::symbol(BATCH), Dim::constant(1), Dim::constant(1)], &at("by_row"))?;
    let scaled = b.with_number(BinaryKind::Mul, x, 1.0 - MASKED_IN_TRAINING, &at("scaled"), "token_dropout")?;
    b.binary(BinaryKind::Div, [scaled, rest], "embeddings.token_dropout")
}
