//! ViT (Dosovitskiy et al. 2020, arXiv:2010.11929), as `transformers/models/vit` has it: a
//! transformer over patches of an image, with norms before attention and feed-forward.

use planish_ir::ops::{Attention, Concat, Expand, Linear, Real, Reshape, Transpose};
use planish_ir::{Dim, Shape, ValueId};
use serde_json::Value;

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::{BATCH, Builder};
use crate::layers::heads;
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "vit",
    class_prefix: "ViT",
    base: "vit",
    other_bases: &[],
    renamed: RENAMED,
    tasks: &[Task::FeatureExtraction, Task::ImageClassification],
    keys: &[&[
        "hidden_act",
        "hidden_size",
        "image_size",
        "intermediate_size",
        "layer_norm_eps",
        "num_attention_heads",
        "num_channels",
        "num_hidden_layers",
        "patch_size",
        // Of the pooler, which a classifier does without.
        "pooler_act",
        "pooler_output_size",
        "qkv_bias",
    ]],
    older_keys: &[],
    only: &[],
    // Of the head that reconstructs images.
    irrelevant_keys: &["encoder_stride"],
    // What masked patches are replaced by in training, then heads of other tasks.
    unused_tensors: &["embeddings.mask_token", "pooler.", "classifier.", "decoder."],
    pad_token_id: None,
    gguf: None,
    build,
};

/// What transformers 5 calls the modules of a layer.
const RENAMED: &[(&str, &str)] = &[
    ("encoder.layer.", "layers."),
    ("attention.attention.query", "attention.q_proj"),
    ("attention.attention.key", "attention.k_proj"),
    ("attention.attention.value", "attention.v_proj"),
    ("attention.output.dense", "attention.o_proj"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
];

/// The configuration in `config.json`.
struct Settings {
    channels: Size,
    /// Height and width of images, and of patches.
    image: [usize; 2],
    patch: [usize; 2],
    hidden: Size,
    intermediate: Size,
    heads: Size,
    layers: Size,
    activation: Activation,
    eps: f64,
    bias: bool,
}

impl Settings {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let s = Self {
            channels: config.size("num_channels", 3)?,
            image: height_and_width(config, "image_size")?,
            patch: height_and_width(config, "patch_size")?,
            hidden: config.size("hidden_size", 768)?,
            intermediate: config.size("intermediate_size", 3072)?,
            heads: config.size("num_attention_heads", 12)?,
            layers: config.size("num_hidden_layers", 12)?,
            activation: Activation::read(config, "hidden_act", "gelu")?,
            eps: config.positive("layer_norm_eps", 1e-12)?,
            bias: config.boolean("qkv_bias", true)?,
        };
        if !s.hidden.value.is_multiple_of(s.heads.value) {
            return Err(config.error(format!("{} is not divisible by {}", s.hidden, s.heads)));
        }
        if (0..2).any(|i| s.patch[i] > s.image[i] || !s.image[i].is_multiple_of(s.patch[i])) {
            let [image, patch] = [s.image, s.patch].map(|[height, width]| format!("{height} x {width}"));
            return Err(config.error(format!("images of {image} (`image_size`) are not made of patches of {patch}")));
        }
        Ok(s)
    }
}

/// The largest side of an image: with it, sizes of tensors stay in range.
const MAX_SIDE: u64 = 1 << 14;

/// A key that is one number, or a list of height and width.
fn height_and_width(config: &Config<'_>, key: &'static str) -> Result<[usize; 2], ModelError> {
    let value = config.get(key).ok_or_else(|| config.error(format!("`{key}` is missing")))?;
    let side = |v: &Value| v.as_u64().filter(|n| (1..=MAX_SIDE).contains(n)).and_then(|n| usize::try_from(n).ok());
    let sides = match value {
        Value::Array(sides) => sides.iter().map(side).collect::<Option<Vec<usize>>>(),
        one => side(one).map(|side| vec![side; 2]),
    };
    match sides.as_deref() {
        Some(&[height, width]) => Ok([height, width]),
        _ => Err(config.unexpected(key, value, &format!("a size from 1 to {MAX_SIDE}, or height and width"))),
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config)?;
    let mut x = embeddings(b, &s)?;
    for layer in 0..s.layers.value {
        x = block(b, &s, x, &format!("encoder.layer.{layer}"))?;
    }
    let hidden = b.layer_norm(x, "layernorm", s.hidden, s.eps)?;
    match task {
        Task::ImageClassification => {
            let first = heads::first_token(b, hidden, "classifier")?;
            heads::classify(b, s.hidden, first, "classifier")?;
        }
        _ => features(b, &s, hidden)?,
    }
    Ok(Properties::default())
}

fn dim(size: usize) -> Dim {
    // Sizes are bounded where they are read.
    Dim::constant(i64::try_from(size).unwrap_or(i64::MAX))
}

/// A token of the class and one of each patch, with their positions: [batch_size, 1 + patches, hidden].
fn embeddings(b: &mut Builder<'_>, s: &Settings) -> Result<ValueId, ModelError> {
    const PATCHES: &str = "embeddings.patch_embeddings";
    let at = |name: &str| format!("{PATCHES}.{name}");
    let batch = Dim::symbol(BATCH);
    let ([height, width], [tall, wide]) = (s.image, s.patch);
    let (rows, columns) = (height / tall, width / wide);
    let pixels =
        b.floats(names::PIXELS.0, names::PIXELS.1, [batch.clone(), dim(s.channels.value), dim(height), dim(width)]);

    // The patches do not overlap, so their convolution is a linear layer of their pixels.
    let parts = [dim(s.channels.value), dim(rows), dim(tall), dim(columns), dim(wide)];
    let shape = Shape::new(std::iter::once(batch.clone()).chain(parts));
    let parts = b.emit(Reshape { x: pixels, shape }, &at("parts"))?;
    let parts = b.emit(Transpose { x: parts, perm: vec![0, 2, 4, 1, 3, 5] }, &at("by_patch"))?;
    let pixels = s.channels.value * tall * wide;
    let shape = Shape::new([batch.clone(), dim(rows * columns), dim(pixels)]);
    let patches = b.emit(Reshape { x: parts, shape }, &at("patches"))?;
    let (tall, wide) = (Size::derived(tall, "patch_size"), Size::derived(wide, "patch_size"));
    let weight = b.weight(&[&at("projection.weight")], &[s.hidden, s.channels, tall, wide])?;
    let shape = Shape::new([dim(s.hidden.value), dim(pixels)]);
    let weight = b.emit(Reshape { x: weight, shape }, &at("projection.matrix"))?;
    let bias = Some(b.weight(&[&at("projection.bias")], &[s.hidden])?);
    let patches = b.emit(Linear::new(patches, weight, bias), &at("projection"))?;

    let one = Size::derived(1, "one image");
    let class = b.weight(&["embeddings.cls_token"], &[one, one, s.hidden])?;
    let shape = Shape::new([batch, Dim::constant(1), dim(s.hidden.value)]);
    let class = b.emit(Expand { x: class, shape }, "embeddings.cls_token.expand")?;
    let tokens = b.emit(Concat { parts: vec![class, patches], axis: 1 }, "embeddings.tokens")?;
    let count = Size::derived(rows * columns + 1, "patches and the class");
    let positions = b.weight(&["embeddings.position_embeddings"], &[one, count, s.hidden])?;
    b.add(tokens, positions, "embeddings.add")
}

fn block(b: &mut Builder<'_>, s: &Settings, x: ValueId, path: &str) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let square = [s.hidden, s.hidden];
    let normal = b.layer_norm(x, &at("layernorm_before"), s.hidden, s.eps)?;
    let q = b.projection(normal, &at("attention.attention.query"), square, s.bias)?;
    let k = b.projection(normal, &at("attention.attention.key"), square, s.bias)?;
    let v = b.projection(normal, &at("attention.attention.value"), square, s.bias)?;
    let size = (s.hidden.value / s.heads.value) as f64;
    let attention = Attention::new(q, k, v, s.heads.value, Real(1.0 / size.sqrt()));
    let attended = b.emit(attention, &at("attention.attention"))?;
    let projected = b.linear(attended, &at("attention.output.dense"), s.hidden, s.hidden)?;
    let x = b.add(projected, x, &at("attention.add"))?;

    let normal = b.layer_norm(x, &at("layernorm_after"), s.hidden, s.eps)?;
    let up = b.linear(normal, &at("intermediate.dense"), s.intermediate, s.hidden)?;
    let active = s.activation.apply(b, up, &at("activation"))?;
    let down = b.linear(active, &at("output.dense"), s.hidden, s.intermediate)?;
    b.add(down, x, &at("add"))
}

/// `last_hidden_state`, and `pooler_output` where the checkpoint has a pooler.
fn features(b: &mut Builder<'_>, s: &Settings, hidden: ValueId) -> Result<(), ModelError> {
    b.give(names::HIDDEN, hidden);
    let activation = Activation::read(b.config, "pooler_act", "tanh")?;
    let size = b.config.size_or("pooler_output_size", s.hidden)?;
    if b.tensors.contains("pooler.dense.weight") {
        let first = heads::first_token(b, hidden, "pooler.dense")?;
        let pooled = b.linear(first, "pooler.dense", size, s.hidden)?;
        let active = activation.apply(b, pooled, "pooler.dense.activation")?;
        b.give(names::POOLED, active);
    }
    Ok(())
}
