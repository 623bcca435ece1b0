//! Swin (Liu et al. 2021, arXiv:2103.14030), as `transformers/models/swin` has it: stages of transformers whose attention is
//! within windows, shifted in every second layer; between stages four tokens become one. [`super::swinv2`] has other layers.

use planish_ir::ops::{Attention, Concat, Expand, Real};
use planish_ir::{DType, Dim, Origin, Shape, ValueId};

use super::vit;
use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{MAX_SIZE, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::heads;
use crate::layers::patches::{self, Images, Positions, dim};
use crate::layers::resample::Filter;
use crate::layers::shifted::{self, Windows};
use crate::names;
use crate::{ModelError, Task};

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
}

const FIRST: Version = Version {
    windows,
    outside: -100.0,
    bias,
    products: |_, layer, operands, _| Ok((operands, 1.0 / (layer.head_size() as f64).sqrt())),
    norms_first: true,
    key_bias: true,
    positions: true,
    last_norm: true,
};

/// As `DonutSwinModel` has it.
const DONUT_VERSION: Version = Version { positions: false, last_norm: false, ..FIRST };

/// The configuration in `config.json`.
pub(super) struct Settings {
    images: Images,
    embedded: Size,
    depths: Vec<Size>,
    heads: Vec<Size>,
    pub(super) window: Size,
    ratio: f64,
    activation: Activation,
    eps: f64,
    qkv_bias: bool,
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
        let heads = config.as_many_sizes("num_heads", &[3, 6, 12, 24], &depths)?;
        let embedded = config.size("embed_dim", 96)?;
        let ratio = config.positive("mlp_ratio", 4.0)?;
        // Of the last stage.
        let widest = u32::try_from(depths.len() - 1).ok().and_then(|stages| 2usize.checked_pow(stages));
        let widest = widest.and_then(|times| times.checked_mul(embedded.value)).filter(|widest| *widest <= MAX_SIZE);
        let Some(widest) = widest.filter(|widest| *widest as f64 * ratio <= MAX_SIZE as f64) else {
            return Err(config.error(format!(
                "{embedded}, `mlp_ratio` = {ratio} and {} stages (`depths`) give more than {MAX_SIZE} features",
                depths.len()
            )));
        };
        let s = Self {
            images: Images::following(config, 224, 4)?,
            embedded,
            window: config.size("window_size", 7)?,
            ratio,
            activation: Activation::read(config, "hidden_act", "gelu")?,
            eps: config.positive("layer_norm_eps", EPS)?,
            qkv_bias: config.boolean("qkv_bias", true)?,
            depths,
            heads,
        };
        if (embedded.value as f64 * ratio) < 1.0 {
            return Err(config.error(format!("`mlp_ratio` gives no feature of {embedded}, at most {widest}")));
        }
        for (stage, heads) in s.heads.iter().enumerate() {
            let hidden = s.hidden(stage);
            if !hidden.value.is_multiple_of(heads.value) {
                return Err(config.error(format!("{hidden} of stage {stage} is not divisible by {heads}")));
            }
        }
        Ok(s)
    }

    /// The features of a stage.
    fn hidden(&self, stage: usize) -> Size {
        Size::derived(self.embedded.value << stage, "embed_dim * 2^stage")
    }
}

pub(super) fn build(b: &mut Builder<'_>, task: Task, version: &Version) -> Result<Properties, ModelError> {
    let s = Settings::read(b)?;
    let (mut x, mut grid) = embed(b, &s, version)?;
    let whole = s.images.trained_grid();
    for (stage, depth) in s.depths.iter().enumerate() {
        let (hidden, heads) = (s.hidden(stage), s.heads[stage]);
        for index in 0..depth.value {
            let layer = Layer { stage, index, grid, whole: whole.map(|side| side >> stage), hidden, heads };
            x = block(b, &s, version, x, layer)?;
        }
        if stage + 1 < s.depths.len() {
            (x, grid) = join(b, version, x, grid, hidden, &format!("encoder.layers.{stage}.downsample"))?;
        }
    }
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
fn embed(b: &mut Builder<'_>, s: &Settings, version: &Version) -> Result<(ValueId, [usize; 2]), ModelError> {
    const MODULE: &str = "embeddings.patch_embeddings";
    let mut images = s.images;
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
        if images.image != s.images.image {
            let ([height, width], [tall, wide]) = (s.images.image, images.patch);
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

/// Four tokens, of two rows and columns, as one of twice the features. There are zeros after odd rows and columns.
fn join(
    b: &mut Builder<'_>,
    version: &Version,
    x: ValueId,
    grid: [usize; 2],
    hidden: Size,
    path: &str,
) -> Result<(ValueId, [usize; 2]), ModelError> {
    let ([height, width], [rows, columns]) = (grid, grid.map(|side| side.div_ceil(2)));
    let quarters = [[0, 0], [1, 0], [0, 1], [1, 1]];
    let places: shifted::Places = (0..rows * columns)
        .flat_map(|at| quarters.map(|[row, column]| [at / columns * 2 + row, at % columns * 2 + column]))
        .map(|[row, column]| (row < height && column < width).then_some(row * width + column))
        .collect();
    let x = shifted::order(b, x, &places, hidden, &format!("{path}.quarters"))?;
    let [both, four] = [2, 4].map(|times| Size::derived(times * hidden.value, "features of joined tokens"));
    let mut x =
        b.reshape(x, [Dim::symbol(b.images), dim(rows * columns), dim(four.value)], &format!("{path}.joined"))?;
    let norm = format!("{path}.norm");
    if version.norms_first {
        x = b.layer_norm(x, &norm, four, EPS)?;
    }
    x = b.projection(x, &format!("{path}.reduction"), [both, four], false)?;
    if !version.norms_first {
        x = b.layer_norm(x, &norm, both, EPS)?;
    }
    Ok((x, [rows, columns]))
}

fn block(
    b: &mut Builder<'_>,
    s: &Settings,
    version: &Version,
    x: ValueId,
    layer: Layer,
) -> Result<ValueId, ModelError> {
    let path = format!("encoder.layers.{}.blocks.{}", layer.stage, layer.index);
    let at = |name: &str| format!("{path}.{name}");
    let hidden = layer.hidden;
    let norm = |b: &mut Builder<'_>, x, name: &str, here: bool| match here {
        true => b.layer_norm(x, &at(name), hidden, s.eps),
        false => Ok(x),
    };
    let normal = norm(b, x, "layernorm_before", version.norms_first)?;
    let attended = attention(b, s, version, normal, layer, &path)?;
    let attended = norm(b, attended, "layernorm_before", !version.norms_first)?;
    let x = b.add(attended, x, &at("attention.add"))?;

    let normal = norm(b, x, "layernorm_after", version.norms_first)?;
    let wide = Size::derived((hidden.value as f64 * s.ratio) as usize, "embed_dim * 2^stage * mlp_ratio");
    let up = b.linear(normal, &at("intermediate.dense"), wide, hidden)?;
    let active = s.activation.apply(b, up, &at("activation"))?;
    let down = b.linear(active, &at("output.dense"), hidden, wide)?;
    let down = norm(b, down, "layernorm_after", !version.norms_first)?;
    b.add(down, x, &at("add"))
}

/// Attention of each token to those of its window. Windows without a shift are rows of a batch. Shifted ones, of which each has
/// a mask of its own, are heads, so that masks and biases of all of them are one weight.
fn attention(
    b: &mut Builder<'_>,
    s: &Settings,
    version: &Version,
    x: ValueId,
    layer: Layer,
    path: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.attention.{name}");
    let windows = (version.windows)(b, s, layer)?;
    shifted::check_pairs(b, windows.count() * windows.tokens(), windows.tokens())?;
    shifted::check_pairs(b, windows.tokens(), windows.tokens())?;
    let (hidden, batch) = (layer.hidden, Dim::symbol(b.images));
    let (count, tokens) = (windows.count(), windows.tokens());
    let x = shifted::order(b, x, &windows.partition(), hidden, &at("windows"))?;
    let linear = |b: &mut Builder<'_>, name: &str, bias| b.projection(x, &at(name), [hidden; 2], bias);
    let q = linear(b, "self.query", s.qkv_bias)?;
    let k = linear(b, "self.key", s.qkv_bias && version.key_bias)?;
    let v = linear(b, "self.value", s.qkv_bias)?;
    let ([q, k], scale) = (version.products)(b, layer, [q, k], &at("self"))?;
    let mut bias = (version.bias)(b, layer, windows, &at("self"))?;
    let (shape, heads) = if windows.shift == 0 {
        let Some(rows) = batch.checked_mul(&dim(count)) else {
            return Err(b.config.error("there are too many windows"));
        };
        ([rows, dim(tokens), dim(hidden.value)], layer.heads.value)
    } else {
        let heads = count * layer.heads.value;
        let Some(mask) = windows.mask(version.outside) else { unreachable!("pairs are as many as the shape says") };
        let mask = b.graph.add_weight(&at("self.mask"), mask, Origin::Config("window_size".into()));
        bias = b.add(bias, mask, &at("self.masked"))?;
        bias = b.reshape(bias, [dim(heads), dim(tokens), dim(tokens)], &at("self.bias"))?;
        ([batch.clone(), dim(tokens), dim(count * hidden.value)], heads)
    };
    let mut split = |x, name: &str| b.reshape(x, shape.clone(), &at(&format!("self.{name}.windows")));
    let (q, k, v) = (split(q, "query")?, split(k, "key")?, split(v, "value")?);
    let attention = Attention { bias: Some(bias), ..Attention::new(q, k, v, heads, Real(scale)) };
    let attended = b.emit(attention, &at("self"))?;
    let attended = b.reshape(attended, [batch, dim(count * tokens), dim(hidden.value)], &at("self.tokens"))?;
    let projected = b.linear(attended, &at("output.dense"), hidden, hidden)?;
    shifted::order(b, projected, &windows.merge(), hidden, &at("merged"))
}

/// Windows as the configuration has them, with no shift where one window has all rows or columns.
fn windows(b: &Builder<'_>, s: &Settings, layer: Layer) -> Result<Windows, ModelError> {
    let (size, [rows, columns]) = (s.window.value, layer.grid);
    match rows.min(columns) {
        least if least < size => Err(b.config.error(format!(
            "stage {} has {rows} x {columns} tokens, fewer than a window of {}, for which transformers has no relative \
             positions; take a larger `image_size`",
            layer.stage, s.window
        ))),
        least if least == size => Ok(Windows { grid: layer.grid, size, shift: 0 }),
        _ => Ok(Windows { grid: layer.grid, size, shift: layer.shift(size) }),
    }
}

/// A learned number for each distance in a window and head.
fn bias(b: &mut Builder<'_>, layer: Layer, windows: Windows, path: &str) -> Result<ValueId, ModelError> {
    let side = 2 * windows.size - 1;
    let distances = Size::derived(side * side, "(2 * window_size - 1)^2");
    let table = format!("{path}.relative_position_bias_table");
    let table = b.weight(&[&table], &[distances, layer.heads])?;
    shifted::of_pairs(b, table, &shifted::pairs([windows.size; 2]), &format!("{path}.relative_position_bias"))
}
