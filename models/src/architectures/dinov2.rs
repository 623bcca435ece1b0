//! DINOv2 (Oquab et al. 2023, arXiv:2304.07193) and the same with registers (Darcet et al. 2023, arXiv:2309.16588), as
//! `transformers/models/{dinov2,dinov2_with_registers}` have them: ViT with factors of what attention and feed-forward give.
//! Registers are tokens without a position.

use planish_ir::ops::Concat;
use planish_ir::{Dim, ValueId};

use super::vit;
use crate::accept::{end_section, section};
use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, MAX_SIZE, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::convolution::{self, Window};
use crate::layers::fusion;
use crate::layers::heads;
use crate::layers::patches::{self, Images, Positions};
use crate::layers::resample::Filter;
use crate::layers::resize::{Interpolation, resize};
use crate::layers::vision::{self, Context, Defaults, Gate, Layers, Names};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "dinov2",
    class_prefix: "Dinov2",
    base: "dinov2",
    other_bases: &[],
    renamed: RENAMED,
    tasks: vit::TASKS,
    keys: &[vision::KEYS_OF_RATIO, patches::KEYS, KEYS],
    older_keys: &[],
    only: &[],
    irrelevant_keys: IRRELEVANT,
    // What masked patches are replaced by in training, then the head of another task.
    unused_tensors: &["embeddings.mask_token", "classifier."],
    pad_token_id: None,
    gguf: None,
    build: |b, task| build(b, task, 14, false),
};

pub(crate) const WITH_REGISTERS: Architecture = Architecture {
    model_type: "dinov2_with_registers",
    class_prefix: "Dinov2WithRegisters",
    base: "dinov2_with_registers",
    keys: &[vision::KEYS_OF_RATIO, patches::KEYS, KEYS, &["num_register_tokens"]],
    build: |b, task| build(b, task, 16, true),
    ..ARCHITECTURE
};

const KEYS: &[&str] = &["mlp_ratio", "qkv_bias", "use_swiglu_ffn"];

/// What training and uses as a part of other models read.
const IRRELEVANT: &[&str] = &[
    "apply_layernorm",
    "drop_path_rate",
    "layerscale_value",
    "out_features",
    "out_indices",
    "reshape_hidden_states",
    "stage_names",
    "use_mask_token",
];

/// What transformers 5 calls the modules of a layer.
pub(crate) const RENAMED: &[(&str, &str)] = &[
    ("attention.attention.query", "attention.q_proj"),
    ("attention.attention.key", "attention.k_proj"),
    ("attention.attention.value", "attention.v_proj"),
    ("attention.output.dense", "attention.o_proj"),
    ("mlp.weights_in", "mlp.{gate_proj,up_proj}"),
    ("mlp.weights_out", "mlp.down_proj"),
];

const PLAIN: Names = Names {
    attention_norm: "norm1",
    output_norm: "norm2",
    up: "mlp.fc1",
    down: "mlp.fc2",
    factors: Some(["layer_scale1.lambda1", "layer_scale2.lambda1"]),
    ..Names::VIT
};

const GATED: Names = Names { up: "mlp.weights_in", down: "mlp.weights_out", ..PLAIN };

fn read(config: &Config<'_>) -> Result<Layers, ModelError> {
    const DEFAULTS: Defaults = Defaults { eps: 1e-6, ..Defaults::VIT };
    let hidden = config.size("hidden_size", DEFAULTS.hidden)?;
    let whole = hidden.value as f64 * config.positive("mlp_ratio", 4.0)?;
    let gated = config.boolean("use_swiglu_ffn", false)?;
    // Python's int() cuts fractions off; two thirds are rounded up to a multiple of 8.
    let features = if gated { ((whole.floor() * 2.0 / 3.0).floor() / 8.0).ceil() * 8.0 } else { whole.floor() };
    if !(1.0..=MAX_SIZE as f64).contains(&features) {
        return Err(config.error(format!("`mlp_ratio` gives {features} features of {hidden}: at most {MAX_SIZE}")));
    }
    let intermediate = Size::derived(features as usize, "hidden_size * mlp_ratio");
    let mut s = Layers::of(config, &DEFAULTS, if gated { &GATED } else { &PLAIN }, intermediate)?;
    s.qkv_bias = [config.boolean("qkv_bias", true)?; 3];
    if gated {
        // Whatever `hidden_act` says.
        (s.gate, s.activation) = (Gate::Packed, Activation::SILU);
    }
    Ok(s)
}

fn build(b: &mut Builder<'_>, task: Task, patch: usize, has_registers: bool) -> Result<Properties, ModelError> {
    let images = Images::resizable(b.config, 224, patch, true)?;
    let s = read(b.config)?;
    let registers = if has_registers { b.config.whole("num_register_tokens", 4)? } else { 0 };
    let filter = if has_registers { Filter::SmoothCubic } else { Filter::Cubic };
    let x = embeddings(b, &images, &s, registers, filter)?;
    let x = s.apply(b, x, Context::default())?;
    let hidden = b.layer_norm(x, "layernorm", s.hidden, s.eps)?;
    let before = 1 + registers;
    finish(b, s.hidden, hidden, [before, before + images.patches()], task)?;
    Ok(Properties::default())
}

/// The token of the class and of each patch with their positions, with registers between them:
/// [batch_size, 1 + registers + patches, hidden].
fn embeddings(
    b: &mut Builder<'_>,
    images: &Images,
    s: &Layers,
    registers: usize,
    filter: Filter,
) -> Result<ValueId, ModelError> {
    const PATCHES: &str = "embeddings.patch_embeddings";
    let patches = images.embed(b, PATCHES, &format!("{PATCHES}.projection"), s.hidden, true)?;
    let class = patches::tokens(b, "embeddings.cls_token", 1, s.hidden)?;
    let tokens = patches::join(b, vec![class, patches], "embeddings.tokens")?;
    let count = 1 + images.patches();
    let positions = Positions { before: 1, filter, is_square: true };
    let placed = patches::add_resampled_positions(b, tokens, vit::POSITIONS, images, s.hidden, positions)?;
    if registers == 0 {
        return Ok(placed);
    }
    let class = patches::between(b, placed, [0, 1], "embeddings.class")?;
    let registers = patches::tokens(b, "embeddings.register_tokens", registers, s.hidden)?;
    let patches = patches::between(b, placed, [1, count], "embeddings.patches")?;
    patches::join(b, vec![class, registers, patches], "embeddings.with_registers")
}

/// DINOv2 as a part of another model.
const BACKBONE: Architecture = Architecture {
    keys: &[vision::KEYS_OF_RATIO, patches::KEYS, KEYS, OF_PART],
    irrelevant_keys: &["drop_path_rate", "layerscale_value", "stage_names", "use_mask_token"],
    ..ARCHITECTURE
};

const OF_PART: &[&str] = &["apply_layernorm", "out_features", "out_indices", "reshape_hidden_states"];

/// Tokens in some layers of a backbone.
pub(crate) struct Stages {
    /// [batch_size, 1 + rows * columns, hidden] of each layer that is taken.
    pub(crate) layers: Vec<ValueId>,
    /// Rows and columns of patches.
    pub(crate) sides: [Dim; 2],
    pub(crate) hidden: Size,
}

/// The token of the class and those of the patches of images of any size in some layers, by `backbone_config`, as
/// `Dinov2Backbone` of the transformers library gives them to a model that takes patches of a size.
pub(crate) fn backbone(b: &mut Builder<'_>, patch: Option<Size>) -> Result<Stages, ModelError> {
    let config = section(b.config, &["backbone_config"], &BACKBONE)?;
    if config.boolean("reshape_hidden_states", true)? {
        return Err(config.error("`reshape_hidden_states` is true or missing, expected false: the neck takes tokens"));
    }
    let (images, s) = (Images::read(&config, 224, 14)?, read(&config)?);
    let ([rows, columns], [tall, wide]) = (images.grid(), images.patch);
    if rows != columns || tall != wide {
        return Err(config.error(format!(
            "`patch_size` is {tall} x {wide} and there are {rows} x {columns} patches by `image_size`: expected squares"
        )));
    }
    if let Some(patch) = patch.filter(|patch| patch.value != tall) {
        return Err(config.error(format!("`patch_size` is {tall}, but {patch} of the whole model")));
    }
    let taken = config.stages(s.count.value)?;
    let is_normal = config.boolean("apply_layernorm", true)?;
    end_section(b.config, &config, &BACKBONE);
    let (x, sides) = any_size(b, &images, &s)?;
    let states = s.states(b, x, taken.last().copied().unwrap_or(0))?;
    let mut layers = Vec::new();
    for stage in taken {
        let state = states[stage];
        layers.push(if is_normal { b.layer_norm(state, "layernorm", s.hidden, s.eps)? } else { state });
    }
    Ok(Stages { layers, sides, hidden: s.hidden })
}

/// The token of the class and of each patch of images of any size, with positions interpolated, and the rows and columns of
/// patches.
fn any_size(b: &mut Builder<'_>, images: &Images, s: &Layers) -> Result<(ValueId, [Dim; 2]), ModelError> {
    const POSITIONS: &str = "embeddings.position_embeddings";
    let pixels = convolution::pixels(b, images.channels)?;
    let window = Window::patches(images.patch[0]);
    let channels = [s.hidden, images.channels];
    let map = convolution::conv(b, pixels, "embeddings.patch_embeddings.projection", channels, window, true)?;
    let sides = fusion::sides(b, map)?;
    let patches = convolution::tokens(b, map, "embeddings.patch_embeddings")?;
    let class = patches::tokens(b, "embeddings.cls_token", 1, s.hidden)?;
    let tokens = patches::join(b, vec![class, patches], "embeddings.tokens")?;

    let (one, count) = (Size::derived(1, "one image"), 1 + images.patches());
    let stored =
        b.weight(&[POSITIONS], &[one, Size::derived(count, "tokens by `image_size` and `patch_size`"), s.hidden])?;
    let of_class = patches::between(b, stored, [0, 1], "embeddings.position_of_class")?;
    let of_patches = patches::between(b, stored, [1, count], "embeddings.positions_of_patches")?;
    let [rows, columns] = images.grid().map(patches::dim);
    let features = convolution::dim(s.hidden);
    let map = b.reshape(of_patches, [Dim::constant(1), rows, columns, features], &format!("{POSITIONS}.map"))?;
    let map = b.transpose(map, &[0, 3, 1, 2], &format!("{POSITIONS}.channels_first"))?;
    let map = resize(b, map, sides.clone(), Interpolation::Cubic, &format!("{POSITIONS}.resize"))?;
    let of_patches = convolution::tokens(b, map, &format!("{POSITIONS}.tokens"))?;
    let positions = patches::join(b, vec![of_class, of_patches], &format!("{POSITIONS}.all"))?;
    Ok((b.add(tokens, positions, "embeddings.add")?, sides))
}

/// Adds the outputs of a task; patches are the tokens of `range`.
fn finish(b: &mut Builder<'_>, size: Size, hidden: ValueId, range: [usize; 2], task: Task) -> Result<(), ModelError> {
    let first = heads::first_token(b, hidden, "pooler")?;
    if task == Task::FeatureExtraction {
        b.give(names::HIDDEN, hidden);
        b.give(names::POOLED, first);
        return Ok(());
    }
    let patches = patches::between(b, hidden, range, "classifier.patches")?;
    let mean = patches::mean(b, patches, "classifier.mean")?;
    let both = b.emit(Concat { parts: vec![first, mean], axis: 1 }, "classifier.features")?;
    heads::classify(b, Size::derived(2 * size.value, "2 * hidden_size"), both, "classifier")
}
