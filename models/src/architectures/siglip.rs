//! SigLIP (Zhai et al. 2023, arXiv:2303.15343) and the SigLIP 2 (Tschannen et al. 2025, arXiv:2502.14786) of one size of images, as
//! `transformers/models/siglip` has them: CLIP with a tower of texts that are padded to one length and read in both directions, an
//! attention that makes one vector of all patches, and a bias of the scores. Each tower is a model of its own too.

use planish_ir::ops::{Attention, Gather, Linear, Real};
use planish_ir::{DType, PartRole, ValueId, Weight};

use crate::Towers::Apart;
use crate::accept::{end_section, section};
use crate::architecture::{Architecture, Properties};
use crate::architectures::clip;
use crate::checkpoint::config::{Config, Size};
use crate::layers::builder::{BATCH, Builder};
use crate::layers::heads;
use crate::layers::patches::{self, Images};
use crate::layers::towers::{self, IMAGE_LAYERS, SECTIONS, TEXT_KEYS, Text};
use crate::layers::vision::{self, Context, Defaults, Layers};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "siglip",
    class_prefix: "Siglip",
    base: "siglip",
    keys: &[SECTIONS],
    irrelevant_keys: &["initializer_factor"],
    // Buffers, then the tower and the head that another task has.
    unused_tensors: &[
        "text_model.embeddings.position_ids",
        "vision_model.embeddings.position_ids",
        "text_model.",
        "vision_model.head.",
        "logit_scale",
        "logit_bias",
        "classifier.",
    ],
    build,
    ..clip::ARCHITECTURE
};

/// The tower of images.
pub(crate) const IMAGE: Architecture = Architecture {
    model_type: "siglip_vision_model",
    class_prefix: "SiglipVision",
    renamed: &[("vision_model.", "")],
    tasks: &[Task::FeatureExtraction],
    keys: &[vision::KEYS, patches::KEYS, &["vision_use_head"]],
    unused_tensors: &["vision_model.embeddings.position_ids", "embeddings.position_ids"],
    build: |b, _| build_image(b),
    ..ARCHITECTURE
};

/// The tower of texts.
pub(crate) const TEXT: Architecture = Architecture {
    model_type: "siglip_text_model",
    class_prefix: "SiglipText",
    renamed: &[("text_model.", "")],
    tasks: &[Task::FeatureExtraction],
    keys: &[vision::KEYS, TEXT_KEYS, &["projection_size"]],
    unused_tensors: &["text_model.embeddings.position_ids", "embeddings.position_ids"],
    build: |b, _| build_text(b),
    ..ARCHITECTURE
};

pub(crate) const DEFAULTS: Defaults = Defaults { activation: "gelu_pytorch_tanh", eps: 1e-6, ..Defaults::VIT };

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let text_config = section(b.config, &["text_config"], &TEXT)?;
    let image_config = section(b.config, &["vision_config"], &IMAGE)?;
    let text = read_text(&text_config)?;
    let image = Image::read(&image_config)?;
    end_section(b.config, &text_config, &TEXT);
    end_section(b.config, &image_config, &IMAGE);
    b.images = names::IMAGES;
    if task == Task::ImageClassification {
        b.images = BATCH;
        let hidden = image.encode(b)?;
        let mean = patches::mean(b, hidden, "classifier.mean")?;
        heads::classify(b, image.layers.hidden, mean, "classifier")?;
        return Ok(Properties::default());
    }
    check_heads(&image_config, image.has_head)?;
    if b.towers == Some(Apart) && task == Task::FeatureExtraction {
        b.images = BATCH;
        image.give(b)?;
        b.finish_as(names::IMAGE_TOWER, PartRole::Model);
        return finish_text(b, &text);
    }
    let ids = towers::ids(b, names::TEXTS, text.vocabulary());
    let hidden = image.encode(b)?;
    let pooled = pool(b, &image.layers, hidden, None)?;
    compare(b, &text, ids, pooled, image.layers.hidden)
}

/// Refuses to compare the vectors of images of a tower that makes none.
pub(crate) fn check_heads(config: &Config<'_>, has_head: bool) -> Result<(), ModelError> {
    match has_head {
        true => Ok(()),
        false => Err(config.error("`vision_use_head` is false: then there is no vector of an image to compare")),
    }
}

/// Compares vectors of images, [images, hidden], with those of texts, and adds the outputs.
pub(crate) fn compare(
    b: &mut Builder<'_>,
    text: &Captions,
    ids: ValueId,
    images: ValueId,
    hidden: Size,
) -> Result<Properties, ModelError> {
    let (_, texts) = text.encode(b, ids)?;
    let features = text.features;
    if features.value != hidden.value {
        return Err(b
            .config
            .error(format!("texts have {features} and images {hidden}: such vectors cannot be compared")));
    }
    let one = Size::derived(1, "one number");
    towers::compare(b, texts, images, &[one], true)?;
    Ok(text.tower.properties())
}

/// A tower of texts.
pub(crate) struct Captions {
    tower: Text,
    /// The features of the vector of a text.
    features: Size,
}

/// Reads the configuration of a tower of texts.
pub(crate) fn read_text(config: &Config<'_>) -> Result<Captions, ModelError> {
    let tower = Text::read(config, &DEFAULTS, 32000, 64)?;
    let features = config.size_or("projection_size", tower.layers.hidden)?;
    Ok(Captions { tower, features })
}

fn build_text(b: &mut Builder<'_>) -> Result<Properties, ModelError> {
    let text = read_text(b.config)?;
    text.give(b)?;
    Ok(text.tower.properties())
}

/// The part of a tower of texts beside one of images: nothing compares the two.
pub(crate) fn finish_text(b: &mut Builder<'_>, text: &Captions) -> Result<Properties, ModelError> {
    text.give(b)?;
    b.finish_as(names::TEXT_TOWER, PartRole::Model);
    ["logit_scale", "logit_bias"].iter().for_each(|unused| b.tensors.leave(unused));
    Ok(text.tower.properties())
}

impl Captions {
    pub(crate) fn vocabulary(&self) -> Size {
        self.tower.vocabulary
    }

    /// The input and the outputs of this tower alone.
    fn give(&self, b: &mut Builder<'_>) -> Result<(), ModelError> {
        let ids = towers::ids(b, BATCH, self.vocabulary());
        let (hidden, pooled) = self.encode(b, ids)?;
        b.give(names::HIDDEN, hidden);
        b.give(names::POOLED, pooled);
        Ok(())
    }

    /// The vectors of all tokens, [texts, tokens, hidden], and a projection of the last one, which is padding in most texts: [texts,
    /// features].
    fn encode(&self, b: &mut Builder<'_>, ids: ValueId) -> Result<(ValueId, ValueId), ModelError> {
        let hidden = self.tower.encode(b, ids, None, false)?;
        let last = b.graph.add_scalar("text_model.head.last", DType::I64, -1.0);
        let last = b.emit(Gather { x: hidden, indices: last, axis: 1 }, "text_model.head.last_token")?;
        let pooled = b.linear(last, "text_model.head", self.features, self.tower.layers.hidden)?;
        Ok((hidden, pooled))
    }
}

/// A tower of images.
pub(crate) struct Image {
    pub(crate) images: Images,
    pub(crate) layers: Layers,
    /// Whether an attention makes one vector of all patches.
    has_head: bool,
}

impl Image {
    /// Reads the configuration.
    pub(crate) fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let layers = Layers::read(config, &DEFAULTS, &IMAGE_LAYERS)?;
        let has_head = config.boolean("vision_use_head", true)?;
        Ok(Self { images: Images::read_any(config, 224, 16)?, layers, has_head })
    }

    /// Adds the input of pixels: the vectors of all patches, [images, patches, hidden].
    pub(crate) fn encode(&self, b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
        let x = self.embed(b)?;
        let x = self.layers.apply(b, x, Context::default())?;
        b.layer_norm(x, "vision_model.post_layernorm", self.layers.hidden, self.layers.eps)
    }

    /// The same before the first layer.
    pub(crate) fn embed(&self, b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
        const MODULE: &str = "vision_model.embeddings";
        let size = self.layers.hidden;
        let patches = self.images.embed(b, MODULE, "vision_model.embeddings.patch_embedding", size, true)?;
        let count = Size::derived(self.images.patches(), "patches by `image_size` and `patch_size`");
        let positions = b.weight(&["vision_model.embeddings.position_embedding.weight"], &[count, size])?;
        b.add(patches, positions, "vision_model.embeddings.add")
    }

    /// The input and the outputs of this tower alone.
    fn give(&self, b: &mut Builder<'_>) -> Result<(), ModelError> {
        let hidden = self.encode(b)?;
        b.give(names::HIDDEN, hidden);
        if self.has_head {
            let pooled = pool(b, &self.layers, hidden, None)?;
            b.give(names::POOLED, pooled);
        }
        Ok(())
    }
}

/// What the attention of a learned query to all patches gives, after a feed-forward: [images, patches, hidden] to
/// [images, hidden]. `mask` says which patches an image has, bool[images, patches].
pub(crate) fn pool(
    b: &mut Builder<'_>,
    s: &Layers,
    hidden: ValueId,
    mask: Option<ValueId>,
) -> Result<ValueId, ModelError> {
    const MODULE: &str = "vision_model.head";
    let size = s.hidden;
    let at = |name: &str| format!("{MODULE}.{name}");
    let one = Size::derived(1, "one query");
    let probe = b.weight(&[&at("probe")], &[one, one, size])?;
    let [q, k, v] = projections(b, size, [probe, hidden, hidden])?;
    let q = patches::for_each(b, q, 1, size, &at("attention.query"))?;
    let scale = Real(1.0 / (s.head_size() as f64).sqrt());
    let attention = Attention { mask, ..Attention::new(q, k, v, s.heads.value, scale) };
    let attended = b.emit(attention, &at("attention"))?;
    let attended = b.linear(attended, &at("attention.out_proj"), size, size)?;
    let normal = b.layer_norm(attended, &at("layernorm"), size, s.eps)?;
    let up = b.linear(normal, &at("mlp.fc1"), s.intermediate, size)?;
    let active = s.activation.apply(b, up, &at("mlp.activation"))?;
    let down = b.linear(active, &at("mlp.fc2"), size, s.intermediate)?;
    let sum = b.add(attended, down, &at("add"))?;
    heads::first_token(b, sum, MODULE)
}

/// Queries, keys and values, whose weights are the thirds of the rows of one, as `torch.nn.MultiheadAttention` has them.
fn projections(b: &mut Builder<'_>, size: Size, of: [ValueId; 3]) -> Result<[ValueId; 3], ModelError> {
    const MODULE: &str = "vision_model.head.attention";
    let all = Size::derived(3 * size.value, "3 * hidden_size");
    let (weight, weight_origin) = b.tensors.take(&[&format!("{MODULE}.in_proj_weight")], &[all, size])?;
    let (bias, bias_origin) = b.tensors.take(&[&format!("{MODULE}.in_proj_bias")], &[all])?;
    let mut projected = of;
    for ((i, value), name) in projected.iter_mut().enumerate().zip(["query", "key", "value"]) {
        let rows = i * size.value..(i + 1) * size.value;
        let part =
            |weight: &Weight| weight.rows(rows.clone()).unwrap_or_else(|| unreachable!("a third of the rows is there"));
        let path = format!("{MODULE}.{name}");
        let weight = b.graph.add_weight(&format!("{path}.weight"), part(&weight), weight_origin.clone());
        let bias = b.graph.add_weight(&format!("{path}.bias"), part(&bias), bias_origin.clone());
        *value = b.emit(Linear::new(*value, weight, Some(bias)), &path)?;
    }
    Ok(projected)
}

/// A tower of images alone.
fn build_image(b: &mut Builder<'_>) -> Result<Properties, ModelError> {
    Image::read(b.config)?.give(b)?;
    Ok(Properties::default())
}
