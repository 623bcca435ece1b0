//! CLIP (Radford et al. 2021, arXiv:2103.00020) and MetaCLIP 2 (Chuang et al. 2025, arXiv:2507.22062), as
//! `transformers/models/clip` and `metaclip_2` have them: a tower of images and one of texts, whose vectors are compared. Each tower
//! is a model of its own too, with or without the projection of its vector.

use planish_ir::{PartRole, ValueId};

use crate::Towers::Apart;
use crate::accept::{end_section, section};
use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::layers::builder::{BATCH, Builder};
use crate::layers::heads;
use crate::layers::patches::{self, Images};
use crate::layers::pooling;
use crate::layers::towers::{self, IMAGE_LAYERS, OLDER_SECTIONS, SECTIONS, TEXT_KEYS, Text};
use crate::layers::vision::{self, Context, Defaults, Layers};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "clip",
    class_prefix: "CLIP",
    base: "clip",
    other_bases: &[],
    renamed: &[],
    tasks: &[Task::ZeroShotImageClassification, Task::FeatureExtraction, Task::ImageClassification],
    keys: &[SECTIONS, OLDER_SECTIONS, PROJECTION],
    older_keys: &[],
    only: &[],
    irrelevant_keys: IRRELEVANT,
    // Buffers, then the tower and the heads that another task has.
    unused_tensors: &[
        "text_model.embeddings.position_ids",
        "vision_model.embeddings.position_ids",
        "text_model.",
        "vision_model.post_layernorm.",
        "text_projection.",
        "visual_projection.",
        "logit_scale",
        "classifier.",
    ],
    pad_token_id: None,
    gguf: None,
    build: |b, task| build(b, task, &Towers { text: &TEXT, image: &IMAGE, end: End::OfConfig }),
};

/// The tower of images.
pub(crate) const IMAGE: Architecture = Architecture {
    model_type: "clip_vision_model",
    class_prefix: "CLIPVision",
    base: "clip",
    // In-memory names of a tower that is saved alone.
    renamed: &[("vision_model.", "")],
    tasks: &[Task::FeatureExtraction],
    keys: &[vision::KEYS, patches::KEYS, PROJECTION],
    unused_tensors: &["vision_model.embeddings.position_ids", "embeddings.position_ids"],
    build: |b, _| build_image(b),
    ..ARCHITECTURE
};

/// The tower of texts.
pub(crate) const TEXT: Architecture = Architecture {
    model_type: "clip_text_model",
    class_prefix: "CLIPText",
    renamed: &[("text_model.", "")],
    tasks: &[Task::FeatureExtraction],
    keys: &[vision::KEYS, TEXT_KEYS, PROJECTION, END],
    unused_tensors: &["text_model.embeddings.position_ids", "embeddings.position_ids"],
    build: |b, _| build_text(b, End::OfConfig),
    ..ARCHITECTURE
};

pub(crate) const METACLIP_2: Architecture = Architecture {
    model_type: "metaclip_2",
    class_prefix: "MetaClip2",
    base: "metaclip_2",
    build: |b, task| build(b, task, &Towers { text: &METACLIP_2_TEXT, image: &METACLIP_2_IMAGE, end: End::Token }),
    ..ARCHITECTURE
};

pub(crate) const METACLIP_2_IMAGE: Architecture =
    Architecture { model_type: "metaclip_2_vision_model", class_prefix: "MetaClip2Vision", ..IMAGE };

pub(crate) const METACLIP_2_TEXT: Architecture = Architecture {
    model_type: "metaclip_2_text_model",
    class_prefix: "MetaClip2Text",
    build: |b, _| build_text(b, End::Token),
    ..TEXT
};

/// The features of the vectors that are compared.
pub(crate) const PROJECTION: &[&str] = &["projection_dim"];

/// The id of the token that ends a text.
const END: &[&str] = &["eos_token_id"];

/// What weights begin with in training.
pub(crate) const IRRELEVANT: &[&str] = &["initializer_factor", "logit_scale_init_value"];

/// The towers of a model.
struct Towers {
    text: &'static Architecture,
    image: &'static Architecture,
    end: End,
}

/// Which token stands for a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The first that ends a text; where its id is 2 by the configuration, which was wrong in the first ones, the first with the
    /// largest id.
    OfConfig,
    /// The first that ends a text.
    Token,
}

const OF_TEXT: Defaults =
    Defaults { hidden: 512, intermediate: 2048, heads: 8, layers: 12, activation: "quick_gelu", eps: 1e-5 };

const OF_IMAGES: Defaults = Defaults { activation: "quick_gelu", eps: 1e-5, ..Defaults::VIT };

fn build(b: &mut Builder<'_>, task: Task, towers: &Towers) -> Result<Properties, ModelError> {
    let features = b.config.size("projection_dim", 512)?;
    let text_config = section(b.config, &["text_config_dict", "text_config"], towers.text)?;
    let image_config = section(b.config, &["vision_config_dict", "vision_config"], towers.image)?;
    let (text, end) = read_text(&text_config)?;
    let image = Image::read(&image_config)?;
    end_section(b.config, &text_config, towers.text);
    end_section(b.config, &image_config, towers.image);
    if task == Task::ImageClassification {
        let hidden = image.encode(b)?;
        let patches = patches::between(b, hidden, [1, 1 + image.images.patches()], "classifier.patches")?;
        let mean = patches::mean(b, patches, "classifier.mean")?;
        heads::classify(b, image.layers.hidden, mean, "classifier")?;
        return Ok(Properties::default());
    }
    if b.towers == Some(Apart) && task == Task::FeatureExtraction {
        image.give(b, features)?;
        b.finish_as(names::IMAGE_TOWER, PartRole::Model);
        give_text(b, &text, end, towers.end, features)?;
        b.finish_as(names::TEXT_TOWER, PartRole::Model);
        b.tensors.leave("logit_scale");
        return Ok(text.properties());
    }
    let ids = towers::ids(b, names::TEXTS, text.vocabulary);
    // The order of the inputs is Optimum's.
    let hidden = image.encode(b)?;
    let pooled = image.pool(b, hidden)?;
    let image = towers::project(b, pooled, "visual_projection", [features, image.layers.hidden])?;
    let mask = towers::mask(b, names::TEXTS)?;
    let hidden = text.encode(b, ids, Some(mask), true)?;
    let pooled = pool_text(b, hidden, ids, end, towers.end)?;
    let embedded = towers::project(b, pooled, "text_projection", [features, text.layers.hidden])?;
    towers::compare(b, embedded, image, &[], false)?;
    Ok(text.properties())
}

/// The tower of texts and the id that ends a text.
fn read_text(config: &Config<'_>) -> Result<(Text, i64), ModelError> {
    const KEY: &str = "eos_token_id";
    const DEFAULT: i64 = 49407;
    // Read by models that are a tower alone.
    config.size("projection_dim", 512)?;
    let end = match config.get(KEY) {
        None if config.is_null(KEY) => {
            return Err(config.error(format!("`{KEY}` is null: the token of this id stands for a text")));
        }
        None => DEFAULT,
        // Small vocabularies may be without it.
        Some(value) => value.as_i64().ok_or_else(|| config.unexpected(KEY, value, "a token id"))?,
    };
    Ok((Text::read(config, &OF_TEXT, 49408, 77)?, end))
}

fn build_text(b: &mut Builder<'_>, rule: End) -> Result<Properties, ModelError> {
    let features = b.config.size("projection_dim", 512)?;
    let (text, end) = read_text(b.config)?;
    give_text(b, &text, end, rule, features)?;
    Ok(text.properties())
}

/// The input and the outputs of a tower of texts alone.
fn give_text(b: &mut Builder<'_>, text: &Text, end: i64, rule: End, features: Size) -> Result<(), ModelError> {
    let ids = towers::ids(b, BATCH, text.vocabulary);
    let mask = towers::mask(b, BATCH)?;
    let hidden = text.encode(b, ids, Some(mask), true)?;
    let pooled = pool_text(b, hidden, ids, end, rule)?;
    if b.tensors.contains("text_projection.weight") {
        let projected = towers::project(b, pooled, "text_projection", [features, text.layers.hidden])?;
        b.give(names::TEXT_EMBEDDING, projected);
        b.give(names::HIDDEN, hidden);
    } else {
        b.give(names::HIDDEN, hidden);
        b.give(names::POOLED, pooled);
    }
    Ok(())
}

fn pool_text(b: &mut Builder<'_>, x: ValueId, ids: ValueId, end: i64, rule: End) -> Result<ValueId, ModelError> {
    match (rule, end) {
        (End::OfConfig, 2) => pooling::first_largest(b, x, ids, "text_model.end"),
        _ => towers::first_of_id(b, x, ids, end),
    }
}

/// A tower of images.
pub(crate) struct Image {
    pub(crate) images: Images,
    pub(crate) layers: Layers,
}

impl Image {
    /// Reads the configuration.
    pub(crate) fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        // Read by models that are a tower alone.
        config.size("projection_dim", 512)?;
        let layers = Layers::read(config, &OF_IMAGES, &IMAGE_LAYERS)?;
        Ok(Self { images: Images::read_any(config, 224, 32)?, layers })
    }

    /// Adds the input of pixels: the vectors of a token of the whole image and of its patches, [images, 1 + patches, hidden].
    pub(crate) fn encode(&self, b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
        let x = self.embed(b)?;
        self.layers.apply(b, x, Context::default())
    }

    /// The same before the first layer.
    pub(crate) fn embed(&self, b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
        const MODULE: &str = "vision_model.embeddings";
        let (s, size) = (&self.layers, self.layers.hidden);
        let projection = "vision_model.embeddings.patch_embedding";
        let patches = self.images.embed(b, MODULE, projection, size, false)?;
        let class = b.weight(&["vision_model.embeddings.class_embedding"], &[size])?;
        let class = patches::for_each(b, class, 1, size, "vision_model.embeddings.class_embedding")?;
        let tokens = patches::join(b, vec![class, patches], "vision_model.embeddings.tokens")?;
        let count = Size::derived(1 + self.images.patches(), "tokens by `image_size` and `patch_size`");
        let positions = b.weight(&["vision_model.embeddings.position_embedding.weight"], &[count, size])?;
        let x = b.add(tokens, positions, "vision_model.embeddings.add")?;
        b.layer_norm(x, "vision_model.pre_layrnorm", size, s.eps)
    }

    /// The vector of the whole image: [images, 1 + patches, hidden] to [images, hidden].
    pub(crate) fn pool(&self, b: &mut Builder<'_>, hidden: ValueId) -> Result<ValueId, ModelError> {
        let first = heads::first_token(b, hidden, "vision_model.pooler")?;
        b.layer_norm(first, "vision_model.post_layernorm", self.layers.hidden, self.layers.eps)
    }

    /// The input and the outputs of this tower alone.
    pub(crate) fn give(&self, b: &mut Builder<'_>, features: Size) -> Result<(), ModelError> {
        let hidden = self.encode(b)?;
        let pooled = self.pool(b, hidden)?;
        if b.tensors.contains("visual_projection.weight") {
            let projected = towers::project(b, pooled, "visual_projection", [features, self.layers.hidden])?;
            b.give(names::IMAGE_EMBEDDING, projected);
            b.give(names::HIDDEN, hidden);
        } else {
            b.give(names::HIDDEN, hidden);
            b.give(names::POOLED, pooled);
        }
        Ok(())
    }
}

/// A tower of images alone.
pub(crate) fn build_image(b: &mut Builder<'_>) -> Result<Properties, ModelError> {
    let features = b.config.size("projection_dim", 512)?;
    Image::read(b.config)?.give(b, features)?;
    Ok(Properties::default())
}
