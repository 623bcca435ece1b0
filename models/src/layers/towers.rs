//! Towers of images and of texts (Radford et al. 2021, arXiv:2103.00020): each makes one vector, and models compare the two.

use planish_ir::ops::{BinaryKind, Cast, Embedding, MatMul, Slice, Unary, UnaryKind};
use planish_ir::{DType, Dim, ValueId};

use crate::ModelError;
use crate::architecture::Properties;
use crate::checkpoint::config::{Config, Size};
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::vision::{Context, Defaults, Layers, Names};
use crate::layers::{encoder, pooling};
use crate::names;
use crate::sentence::build::normalize;

/// The keys of the configurations of the two towers of a model.
pub(crate) const SECTIONS: &[&str] = &["text_config", "vision_config"];

/// The same in files of the first versions of CLIP, where these are the ones that count.
pub(crate) const OLDER_SECTIONS: &[&str] = &["text_config_dict", "vision_config_dict"];

/// The keys that [`Text::read`] reads, but those of layers.
pub(crate) const TEXT_KEYS: &[&str] = &["max_position_embeddings", "pad_token_id", "vocab_size"];

/// The names of the modules of a layer of CLIP, but that of the list of layers.
const LAYER: Names = Names {
    layers: "",
    attention_norm: "layer_norm1",
    qkv: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    output: "self_attn.out_proj",
    output_norm: "layer_norm2",
    up: "mlp.fc1",
    down: "mlp.fc2",
    factors: None,
};

/// The layers of the tower of texts, and those of the tower of images.
pub(crate) const TEXT_LAYERS: Names = Names { layers: "text_model.encoder.layers", ..LAYER };
pub(crate) const IMAGE_LAYERS: Names = Names { layers: "vision_model.encoder.layers", ..LAYER };

/// The table of the ids of a tower of texts.
const WORDS: &str = "text_model.embeddings.token_embedding.weight";

/// What a tower of texts is made of.
pub(crate) struct Text {
    pub(crate) layers: Layers,
    pub(crate) vocabulary: Size,
    /// Rows of the table of positions.
    positions: Size,
    pad_token_id: Option<i64>,
}

impl Text {
    /// Reads the configuration; `vocabulary` and `positions` are what one without them has.
    pub(crate) fn read(
        config: &Config<'_>,
        defaults: &Defaults,
        vocabulary: usize,
        positions: usize,
    ) -> Result<Self, ModelError> {
        let vocabulary = config.size("vocab_size", vocabulary)?;
        // A configuration may have an id of padding beyond a small vocabulary, which nothing reads.
        let padding = config.any_token("pad_token_id", vocabulary);
        Ok(Self {
            layers: Layers::read(config, defaults, &TEXT_LAYERS)?,
            vocabulary,
            positions: config.size("max_position_embeddings", positions)?,
            pad_token_id: padding.or(Some(1).filter(|_| config.get("pad_token_id").is_none())),
        })
    }

    /// What callers need to know.
    pub(crate) fn properties(&self) -> Properties {
        Properties {
            max_positions: Some(self.positions.value),
            vocab_size: Some(self.vocabulary.value),
            pad_token_id: self.pad_token_id,
            ..Properties::default()
        }
    }

    /// The vectors of all tokens of `ids`, i64[texts, tokens], after the last norm: [texts, tokens, hidden]. `mask` is
    /// bool[texts, tokens].
    pub(crate) fn encode(
        &self,
        b: &mut Builder<'_>,
        ids: ValueId,
        mask: Option<ValueId>,
        causal: bool,
    ) -> Result<ValueId, ModelError> {
        let (s, size) = (&self.layers, self.layers.hidden);
        let weight = b.weight(&[WORDS], &[self.vocabulary, size])?;
        let words = b.emit(Embedding { weight, ids }, "text_model.embeddings.token_embedding")?;
        let positions = b.weight(&["text_model.embeddings.position_embedding.weight"], &[self.positions, size])?;
        let first = Slice { x: positions, axis: 0, start: Dim::constant(0), end: Dim::symbol(SEQUENCE) };
        let positions = b.emit(first, "text_model.embeddings.position_embedding")?;
        let x = b.add(words, positions, "text_model.embeddings.add")?;
        let x = s.apply(b, x, Context { mask, causal, ..Context::default() })?;
        b.layer_norm(x, "text_model.final_layer_norm", size, s.eps)
    }
}

/// Adds the input of token ids: i64[`rows`, sequence_length].
pub(crate) fn ids(b: &mut Builder<'_>, rows: &str, vocabulary: Size) -> ValueId {
    b.ids(names::INPUT_IDS, [Dim::symbol(rows), Dim::symbol(SEQUENCE)], vocabulary.signed())
}

/// Adds the input of the mask, as attention takes it: bool[`rows`, sequence_length].
pub(crate) fn mask(b: &mut Builder<'_>, rows: &str) -> Result<ValueId, ModelError> {
    let mask = b.ids(names::ATTENTION_MASK, [Dim::symbol(rows), Dim::symbol(SEQUENCE)], 2);
    encoder::mask(b, mask)
}

/// A projection without a bias to the features that both towers share.
pub(crate) fn project(
    b: &mut Builder<'_>,
    x: ValueId,
    module: &str,
    [features, hidden]: [Size; 2],
) -> Result<ValueId, ModelError> {
    b.projection(x, module, [features, hidden], false)
}

/// Compares all texts with all images, [texts, features] and [images, features], and adds the outputs: the products of vectors
/// of length 1 times `e^logit_scale`, plus `logit_bias`, where `shape` is that of the two and `has_bias` says that there is one.
pub(crate) fn compare(
    b: &mut Builder<'_>,
    text: ValueId,
    image: ValueId,
    shape: &[Size],
    has_bias: bool,
) -> Result<(), ModelError> {
    let text = normalize(b, text, "text_embeds")?;
    let image = normalize(b, image, "image_embeds")?;
    let columns = b.transpose(image, &[1, 0], "image_embeds.columns")?;
    let cosines = b.emit(MatMul { a: text, b: columns }, "logits_per_text.cosines")?;
    let scale = b.weight(&["logit_scale"], shape)?;
    let scale = b.emit(Unary { kind: UnaryKind::Exp, x: scale }, "logit_scale.exp")?;
    let mut per_text = b.binary(BinaryKind::Mul, [cosines, scale], "logits_per_text.scaled")?;
    if has_bias {
        let bias = b.weight(&["logit_bias"], shape)?;
        per_text = b.add(per_text, bias, "logits_per_text.add")?;
    }
    let per_image = b.transpose(per_text, &[1, 0], "logits_per_image")?;
    b.give(names::LOGITS_PER_IMAGE, per_image);
    b.give(names::LOGITS_PER_TEXT, per_text);
    b.give(names::TEXT_EMBEDDING, text);
    b.give(names::IMAGE_EMBEDDING, image);
    Ok(())
}

/// The token that stands for a text: the first with the id `end`, or the first of all in a text without one.
/// [texts, tokens, hidden] to [texts, hidden].
pub(crate) fn first_of_id(b: &mut Builder<'_>, x: ValueId, ids: ValueId, end: i64) -> Result<ValueId, ModelError> {
    // Exact: ids are below 2^53.
    let end = b.graph.add_scalar("text_model.end.id", DType::I64, end as f64);
    let is_end = b.binary(BinaryKind::Equal, [ids, end], "text_model.end.is")?;
    let numbers = b.emit(Cast { x: is_end, to: DType::I64 }, "text_model.end.numbers")?;
    pooling::first_largest(b, x, numbers, "text_model.end")
}
