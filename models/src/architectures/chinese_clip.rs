//! Chinese CLIP (Yang et al. 2022, arXiv:2211.01335), as `transformers/models/chinese_clip` has it: CLIP with BERT as the tower of
//! texts.

use planish_ir::ValueId;

use crate::accept::{end_section, section};
use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, LAYER};
use crate::architectures::clip::{self, Image};
use crate::architectures::roberta::type_of_all;
use crate::layers::builder::Builder;
use crate::layers::encoder::{self, Context, Settings};
use crate::layers::heads;
use crate::layers::towers;
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "chinese_clip",
    class_prefix: "ChineseCLIP",
    base: "chinese_clip",
    // Of the tower of texts, whose modules have the names of BERT.
    other_bases: &["text_model"],
    tasks: &[Task::ZeroShotImageClassification, Task::FeatureExtraction],
    // Buffers, and a pooler that is not read.
    unused_tensors: &["embeddings.position_ids", "vision_model.embeddings.position_ids", "pooler."],
    build,
    ..clip::ARCHITECTURE
};

/// The tower of images.
pub(crate) const IMAGE: Architecture =
    Architecture { model_type: "chinese_clip_vision_model", class_prefix: "ChineseCLIPVision", ..clip::IMAGE };

/// The tower of texts.
pub(crate) const TEXT: Architecture = Architecture {
    model_type: "chinese_clip_text_model",
    class_prefix: "ChineseCLIPText",
    base: "text_model",
    tasks: &[Task::FeatureExtraction],
    irrelevant_keys: IRRELEVANT_OF_TEXT,
    ..bert::ARCHITECTURE
};

/// What files converted from BERT say of its pooler, and what weights begin with in training.
const IRRELEVANT_OF_TEXT: &[&str] = &[
    "directionality",
    "initializer_factor",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
];

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    let features = b.config.size("projection_dim", 512)?;
    let text_config = section(b.config, &["text_config_dict", "text_config"], &TEXT)?;
    let image_config = section(b.config, &["vision_config_dict", "vision_config"], &IMAGE)?;
    let text = bert::settings(&text_config, &bert::Defaults::BERT)?;
    let types = text_config.size("type_vocab_size", 2)?;
    let image = Image::read(&image_config)?;
    end_section(b.config, &text_config, &TEXT);
    end_section(b.config, &image_config, &IMAGE);

    let ids = towers::ids(b, names::TEXTS, text.vocabulary);
    let hidden = image.encode(b)?;
    let pooled = image.pool(b, hidden)?;
    let embedded_image = towers::project(b, pooled, "visual_projection", [features, image.layers.hidden])?;
    let mask = towers::mask(b, names::TEXTS)?;
    let types = type_of_all(b, types, text.hidden)?;
    let hidden = encode(b, &text, ids, types, mask)?;
    let first = heads::first_token(b, hidden, "text_projection")?;
    let embedded_text = towers::project(b, first, "text_projection", [features, text.hidden])?;
    towers::compare(b, embedded_text, embedded_image, &[], false)?;
    Ok(text.properties(text.positions.value))
}

/// The vectors of all tokens: [texts, tokens, hidden]. All are of the first type.
fn encode(
    b: &mut Builder<'_>,
    s: &Settings,
    ids: ValueId,
    types: ValueId,
    mask: ValueId,
) -> Result<ValueId, ModelError> {
    let words = b.embedding(ids, "embeddings.word_embeddings", s.vocabulary, s.embedded)?;
    let positions = encoder::absolute_positions(b, s)?;
    let x = encoder::embeddings(b, s, words, &[types, positions])?;
    encoder::layers(b, s, &LAYER, x, Context::of_mask(mask))
}
