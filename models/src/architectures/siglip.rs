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
    let (text, features) = read_text(&text_config)?;
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
    if !image.has_head {
        return Err(image_config.error("`vision_use_head` is false: then there is no vector of an image to compare"));
    }
    if b.towers == Some(Apart) && task == Task::FeatureExtraction {
        b.images = BATCH;
        image.give(b)?;
        b.finish_as(names::IMAGE_TOWER, PartRole::Model);
        give_text(b, &text, features)?;
        b.finish_as(names::TEXT_TOWER, PartRole::Model);
        ["logit_scale", "logit_bias"].iter().for_each(|unused| b.tensors.leave(unused));
        return Ok(text.properties());
    }
    let ids = towers::ids(b, names::TEXTS, text.vocabulary);
    let hidden = image.encode(b)?;
    let embedded_image = image.pool(b, hidden)?;
    let hidden = text.encode(b, ids, None, false)?;
    let embedded_text = pool_text(b, &text, hidden, features)?;
    if features.value != image.layers.hidden.value {
        let hidden = image.layers.hidden;
        return Err(b
            .config
            .error(format!("texts have {features} and images {hidden}: such vectors cannot be compared")));
    }
    let one = Size::derived(1, "one number");
    towers::compare(b, embedded_text, embedded_image, &[one], true)?;
    Ok(text.properties())
}

/// The tower of texts and the features of its vector.
fn read_text(config: &Config<'_>) -> Result<(Text, Size), ModelError> {
    let text = Text::read(config, &DEFAULTS, 32000, 64)?;
    let features = config.size_or("projection_size", text.layers.hidden)?;
    Ok((text, features))
}

fn build_text(b: &mut Builder<'_>) -> Result<Properties, ModelError> {
    let (text, features) = read_text(b.config)?;
    give_text(b, &text, features)?;
    Ok(text.properties())
}

/// The input and the outputs of a tower of texts alone.
fn give_text(b: &mut Builder<'_>, text: &Text, features: Size) -> Result<(), ModelError> {
    let ids = towers::ids(b, BATCH, text.vocabulary);
    let hidden = text.encode(b, ids, None, false)?;
    let pooled = pool_text(b, text, hidden, features)?;
    b.give(names::HIDDEN, hidden);
    b.give(names::POOLED, pooled);
    Ok(())
}

/// A projection of the last token, which is padding in most texts: [texts, tokens, hidden] to [texts, features].
fn pool_text(b: &mut Builder<'_>, text: &Text, x: ValueId, features: Size) -> Result<ValueId, ModelError> {
    let last = b.graph.add_scalar("text_model.head.last", DType::I64, -1.0);
    let last = b.emit(Gather { x, indices: last, axis: 1 }, "text_model.head.last_token")?;
    b.linear(last, "text_model.head", features, text.layers.hidden)
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

    /// What the attention of a learned query to all patches gives, after a feed-forward: [images, patches, hidden] to
    /// [images, hidden].
    fn pool(&self, b: &mut Builder<'_>, hidden: ValueId) -> Result<ValueId, ModelError> {
        const MODULE: &str = "vision_model.head";
        let (s, size) = (&self.layers, self.layers.hidden);
        let at = |name: &str| format!("{MODULE}.{name}");
        let one = Size::derived(1, "one query");
        let probe = b.weight(&[&at("probe")], &[one, one, size])?;
        let [q, k, v] = self.projections(b, [probe, hidden, hidden])?;
        let q = patches::for_each(b, q, 1, size, &at("attention.query"))?;
        let scale = Real(1.0 / (s.head_size() as f64).sqrt());
        let attended = b.emit(Attention::new(q, k, v, s.heads.value, scale), &at("attention"))?;
        let attended = b.linear(attended, &at("attention.out_proj"), size, size)?;
        let normal = b.layer_norm(attended, &at("layernorm"), size, s.eps)?;
        let up = b.linear(normal, &at("mlp.fc1"), s.intermediate, size)?;
        let active = s.activation.apply(b, up, &at("mlp.activation"))?;
        let down = b.linear(active, &at("mlp.fc2"), size, s.intermediate)?;
        let sum = b.add(attended, down, &at("add"))?;
        heads::first_token(b, sum, MODULE)
    }

    /// The input and the outputs of this tower alone.
    fn give(&self, b: &mut Builder<'_>) -> Result<(), ModelError> {
        let hidden = self.encode(b)?;
        b.give(names::HIDDEN, hidden);
        if self.has_head {
            let pooled = self.pool(b, hidden)?;
            b.give(names::POOLED, pooled);
        }
        Ok(())
    }

    /// Queries, keys and values, whose weights are the thirds of the rows of one, as `torch.nn.MultiheadAttention` has them.
    fn projections(&self, b: &mut Builder<'_>, of: [ValueId; 3]) -> Result<[ValueId; 3], ModelError> {
        const MODULE: &str = "vision_model.head.attention";
        let size = self.layers.hidden;
        let all = Size::derived(3 * size.value, "3 * hidden_size");
        let (weight, weight_origin) = b.tensors.take(&[&format!("{MODULE}.in_proj_weight")], &[all, size])?;
        let (bias, bias_origin) = b.tensors.take(&[&format!("{MODULE}.in_proj_bias")], &[all])?;
        let mut projected = of;
        for ((i, value), name) in projected.iter_mut().enumerate().zip(["query", "key", "value"]) {
            let rows = i * size.value..(i + 1) * size.value;
            let part = |weight: &Weight| {
                weight.rows(rows.clone()).unwrap_or_else(|| unreachable!("a third of the rows is there"))
            };
            let path = format!("{MODULE}.{name}");
            let weight = b.graph.add_weight(&format!("{path}.weight"), part(&weight), weight_origin.clone());
            let bias = b.graph.add_weight(&format!("{path}.bias"), part(&bias), bias_origin.clone());
            *value = b.emit(Linear::new(*value, weight, Some(bias)), &path)?;
        }
        Ok(projected)
    }
}

/// A tower of images alone.
fn build_image(b: &mut Builder<'_>) -> Result<Properties, ModelError> {
    Image::read(b.config)?.give(b)?;
    Ok(Properties::default())
}
