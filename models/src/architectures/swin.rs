//! Swin (Liu et al. 2021, arXiv:2103.14030), as `transformers/models/swin` has it: stages of transformers whose attention is
//! within windows, shifted in every second layer; between stages four tokens become one. [`super::swinv2`] has other layers.

pub(super) mod stages;

use planish_ir::ops::{Concat, Expand};
use planish_ir::{DType, Dim, Shape, ValueId};

use super::vit;
use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, MAX_SIZE, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::heads;
use crate::layers::patches::{self, Images, Positions, dim};
use crate::layers::resample::Filter;
use crate::layers::shifted::Windows;
use crate::names;
use crate::{ModelError, Task};
use stages::{bias, stages, windows};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "swin",
    class_prefix: "Swin",
    base: "swin",
    other_bases: &[],
    renamed: &[
        ("attention.self.query", "attention.q_proj"),
        ("attention.self.key", "attention.k_proj"),
        ("attention.self.value", "attention.v_proj"),
        (TABLE, "attention.relative_position_bias.relative_position_bias_table"),
        ("attention.output.dense", "attention.o_proj"),
        ("intermediate.dense", "mlp.fc1"),
        ("output.dense", "mlp.fc2"),
    ],
    tasks: vit::TASKS,
    keys: &[KEYS, patches::KEYS, &["use_absolute_embeddings"]],
    older_keys: OLDER_KEYS,
    only: &[],
    irrelevant_keys: IRRELEVANT,
    unused_tensors: UNUSED,
    pad_token_id: None,
    gguf: None,
    build: |b, task| build(b, task, &FIRST),
};

/// The encoder of Donut (Kim et al. 2021, arXiv:2111.15664), as `transformers/models/donut` has it: the same without a norm after
/// the last stage. Its absolute positions have one more than there are patches, which that library cannot add.
pub(crate) const DONUT: Architecture = Architecture {
    model_type: "donut-swin",
    class_prefix: "DonutSwin",
    base: "donut",
    renamed: &[],
    keys: &[KEYS, patches::KEYS],
    only: &[Only::Off("use_absolute_embeddings")],
    build: |b, task| build(b, task, &DONUT_VERSION),
    ..ARCHITECTURE
};

/// Keys that both versions read.
pub(super) const KEYS: &[&str] =
    &["depths", "embed_dim", "hidden_act", "layer_norm_eps", "mlp_ratio", "num_heads", "qkv_bias", "window_size"];

pub(super) const OLDER_KEYS: &[(&str, &str)] = &[("num_attention_heads", "num_heads")];

/// What follows from other keys, training, and what a backbone gives.
pub(super) const IRRELEVANT: &[&str] = &[
    "drop_path_rate",
    "encoder_stride",
    "hidden_size",
    "num_hidden_layers",
    "num_layers",
    "out_features",
    "out_indices",
    "path_norm",
    "stage_names",
];

/// Buffers that older files have, what masked patches are replaced by in training, and heads of other tasks.
pub(super) const UNUSED: &[&str] = &[
    ".relative_position_index",
    ".relative_coords_table",
    ".attn_mask",
    "embeddings.mask_token",
    "classifier.",
    "decoder.",
];

const TABLE: &str = "attention.self.relative_position_bias_table";

/// What `torch.nn.LayerNorm` adds to the variance: in the norms of patches, whatever `layer_norm_eps` says.
pub(super) const EPS: f64 = 1e-5;

/// Queries and keys, and what their products are multiplied with.
pub(super) type Operands = ([ValueId; 2], f64);

/// What the two versions have apart from each other.
pub(super) struct Version {
    /// The windows of a layer of a grid of tokens.
    pub(super) windows: fn(&Builder<'_>, &Settings, Layer) -> Result<Windows, ModelError>,
    /// What is added to the scores of tokens that shifting brought together.
    pub(super) outside: f64,
    /// What is added to the scores of the tokens of a window, [heads, tokens, tokens]; of the attention of a path.
    pub(super) bias: fn(&mut Builder<'_>, Layer, Windows, &str) -> Result<ValueId, ModelError>,
    /// Queries and keys as attention takes them, of those that layers give.
    pub(super) products: fn(&mut Builder<'_>, Layer, [ValueId; 2], &str) -> Result<Operands, ModelError>,
    /// Whether the norms are before attention and feed-forward, and before tokens are joined; else they are after them.
    pub(super) norms_first: bool,
    pub(super) key_bias: bool,
    pub(super) positions: bool,
    /// Whether there is a norm after the last stage.
    pub(super) last_norm: bool,
    /// The list of stages.
    pub(super) layers: &'static str,
}

pub(super) const FIRST: Version = Version {
    windows,
    outside: -100.0,
    bias,
    products: |_, layer, operands, _| Ok((operands, 1.0 / (layer.head_size() as f64).sqrt())),
    norms_first: true,
    key_bias: true,
    positions: true,
    last_norm: true,
    layers: "encoder.layers",
};

/// As `DonutSwinModel` has it.
const DONUT_VERSION: Version = Version { positions: false, last_norm: false, ..FIRST };

/// The configuration in `config.json`.
pub(super) struct Settings {
    pub(super) embedded: Size,
    pub(super) depths: Vec<Size>,
    pub(super) heads: Vec<Size>,
    pub(super) window: Size,
    pub(super) ratio: f64,
    pub(super) activation: Activation,
    pub(super) eps: f64,
    pub(super) qkv_bias: bool,
}

/// A layer of a stage.
#[derive(Clone, Copy)]
pub(super) struct Layer {
    pub(super) stage: usize,
    /// Its number in the stage.
    pub(super) index: usize,
    /// Rows and columns of tokens.
    pub(super) grid: [usize; 2],
    /// Rows and columns of tokens by `image_size`, where those that patches and stages do not fill are left out.
    pub(super) whole: [usize; 2],
    pub(super) hidden: Size,
    pub(super) heads: Size,
}

impl Layer {
    pub(super) fn head_size(self) -> usize {
        self.hidden.value / self.heads.value
    }

    /// Whether windows of a size are shifted where there is more than one.
    pub(super) fn shift(self, window: usize) -> usize {
        if self.index.is_multiple_of(2) { 0 } else { window / 2 }
    }
}

impl Settings {
    fn read(b: &Builder<'_>) -> Result<Self, ModelError> {
        let config = b.config;
        let depths = config.sizes("depths", &[2, 2, 6, 2])?;
        let s = Self {
            embedded: config.size("embed_dim", 96)?,
            window: config.size("window_size", 7)?,
            ratio: config.positive("mlp_ratio", 4.0)?,
            activation: Activation::read(config, "hidden_act", "gelu")?,
            eps: config.positive("layer_norm_eps", EPS)?,
            qkv_bias: config.boolean("qkv_bias", true)?,
            heads: config.as_many_sizes("num_heads", &[3, 6, 12, 24], &depths)?,
            depths,
        };
        s.check(config)?;
        Ok(s)
    }

    /// Checks what no tensor's shape shows.
    pub(super) fn check(&self, config: &Config<'_>) -> Result<(), ModelError> {
        let Self { embedded, ratio, .. } = *self;
        // Of the last stage.
        let widest = u32::try_from(self.depths.len() - 1).ok().and_then(|stages| 2usize.checked_pow(stages));
        let widest = widest.and_then(|times| times.checked_mul(embedded.value)).filter(|widest| *widest <= MAX_SIZE);
        let Some(widest) = widest.filter(|widest| *widest as f64 * ratio <= MAX_SIZE as f64) else {
            return Err(config.error(format!(
                "{embedded}, `mlp_ratio` = {ratio} and {} stages (`depths`) give more than {MAX_SIZE} features",
                self.depths.len()
            )));
        };
        if (embedded.value as f64 * ratio) < 1.0 {
            return Err(config.error(format!("`mlp_ratio` gives no feature of {embedded}, at most {widest}")));
        }
        for (stage, heads) in self.heads.iter().enumerate() {
            let hidden = self.hidden(stage);
            if !hidden.value.is_multiple_of(heads.value) {
                return Err(config.error(format!("{hidden} of stage {stage} is not divisible by {heads}")));
            }
        }
        Ok(())
    }

    /// The features of a stage.
    pub(super) fn hidden(&self, stage: usize) -> Size {
        Size::derived(self.embedded.value << stage, "embed_dim * 2^stage")
    }
}

pub(super) fn build(b: &mut Builder<'_>, task: Task, version: &Version) -> Result<Properties, ModelError> {
    let s = Settings::read(b)?;
    let images = Images::following(b.config, 224, 4)?;
    let (x, grid) = embed(b, &s, images, version)?;
    let mut x = stages(b, &s, version, x, [grid, images.trained_grid()])?;
    let hidden = s.hidden(s.depths.len() - 1);
    if version.last_norm {
        x = b.layer_norm(x, "layernorm", hidden, s.eps)?;
    }
    let pooled = patches::mean(b, x, "pooler")?;
    match task {
        Task::ImageClassification => heads::classify(b, hidden, pooled, "classifier")?,
        _ => {
            b.give(names::HIDDEN, x);
            b.give(names::POOLED, pooled);
        }
    }
    Ok(Properties::default())
}

/// The patches of an image, normalized: [batch_size, patches, embed_dim]. There are zeros after its pixels where patches do
/// not divide its sides.
fn embed(
    b: &mut Builder<'_>,
    s: &Settings,
    given: Images,
    version: &Version,
) -> Result<(ValueId, [usize; 2]), ModelError> {
    const MODULE: &str = "embeddings.patch_embeddings";
    let mut images = given;
    let mut pixels = images.pixels(b)?;
    for side in 0..2 {
        let more = images.image[side].next_multiple_of(images.patch[side]) - images.image[side];
        if more > 0 {
            let mut dims = images.image.map(dim);
            dims[side] = dim(more);
            let zero = b.graph.add_scalar(&format!("{MODULE}.zero.{side}"), DType::F32, 0.0);
            let dims = [Dim::symbol(b.images), dim(images.channels.value)].into_iter().chain(dims);
            let zeros = b.emit(Expand { x: zero, shape: Shape::new(dims) }, &format!("{MODULE}.zeros.{side}"))?;
            let padded = Concat { parts: vec![pixels, zeros], axis: 2 + side };
            pixels = b.emit(padded, &format!("{MODULE}.padded.{side}"))?;
            images.image[side] += more;
        }
    }
    let modules = [MODULE, &format!("{MODULE}.projection")];
    let x = images.project(b, pixels, modules, s.embedded, true)?;
    let mut x = b.layer_norm(x, "embeddings.norm", s.embedded, EPS)?;
    if version.positions && b.config.boolean("use_absolute_embeddings", false)? {
        if images.image != given.image {
            let ([height, width], [tall, wide]) = (given.image, images.patch);
            return Err(b.config.error(format!(
                "patches of {tall} x {wide} do not divide images of {height} x {width}, for which transformers has no \
                 absolute positions (`use_absolute_embeddings`)"
            )));
        }
        let positions = Positions { before: 0, filter: Filter::Cubic, is_square: false };
        x = patches::add_resampled_positions(b, x, vit::POSITIONS, &images, s.embedded, positions)?;
    }
    Ok((x, images.grid()))
}
