//! SegFormer (Xie et al. 2021, arXiv:2105.15203), as `transformers/models/segformer` has it: stages of transformers over
//! patches that overlap, whose keys and values are of fewer places, and a head that joins the maps of all stages.

use planish_ir::ops::{Attention, Concat, Real};
use planish_ir::{Dim, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::convolution::{self, Window};
use crate::layers::heads;
use crate::layers::resize::{Interpolation, resize};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "segformer",
    class_prefix: "Segformer",
    base: "segformer",
    other_bases: &[],
    renamed: &[
        ("attention.self.query", "attention.q_proj"),
        ("attention.self.key", "attention.k_proj"),
        ("attention.self.value", "attention.v_proj"),
        ("attention.self.sr", "attention.sequence_reduction.sequence_reduction"),
        ("attention.self.layer_norm", "attention.sequence_reduction.layer_norm"),
        ("attention.output.dense", "attention.o_proj"),
        ("mlp.dense1", "mlp.fc1"),
        ("mlp.dense2", "mlp.fc2"),
        ("layer_norm_1", "layernorm_before"),
        ("layer_norm_2", "layernorm_after"),
        ("decode_head.linear_c", "decode_head.linear_projections"),
    ],
    tasks: &[Task::FeatureExtraction, Task::ImageClassification, Task::SemanticSegmentation],
    keys: &[&[
        "decoder_hidden_size",
        "depths",
        "hidden_act",
        "hidden_sizes",
        "mlp_ratios",
        "num_attention_heads",
        "num_channels",
        "num_encoder_blocks",
        "patch_sizes",
        "sr_ratios",
        "strides",
    ]],
    older_keys: &[("num_hidden_layers", "num_encoder_blocks")],
    only: &[Only::On("reshape_last_stage")],
    // Training and the size of images in it. Norms have the epsilon of `torch.nn.LayerNorm`, whatever `layer_norm_eps` says.
    irrelevant_keys: &[
        "classifier_dropout_prob",
        "downsampling_rates",
        "drop_path_rate",
        "image_size",
        "layer_norm_eps",
        "semantic_loss_ignore_index",
    ],
    unused_tensors: &[".num_batches_tracked", "classifier.", "decode_head."],
    pad_token_id: None,
    gguf: None,
    build,
};

/// What `torch.nn.LayerNorm` adds to the variance.
const EPS: f64 = 1e-5;

/// The configuration of a stage.
struct Stage {
    hidden: Size,
    depth: Size,
    heads: Size,
    /// How much wider the feed-forward is.
    ratio: Size,
    /// How many places of queries there are for one of keys, along each side.
    reduction: Size,
    patches: Window,
}

/// The configuration in `config.json`.
struct Settings {
    channels: Size,
    stages: Vec<Stage>,
    activation: Activation,
}

impl Settings {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let hidden = config.sizes("hidden_sizes", &[32, 64, 160, 256])?;
        let list = |key, default: &[usize]| config.as_many_sizes(key, default, &hidden);
        let (depths, heads) = (list("depths", &[2; 4])?, list("num_attention_heads", &[1, 2, 5, 8])?);
        let (ratios, reductions) = (list("mlp_ratios", &[4; 4])?, list("sr_ratios", &[8, 4, 2, 1])?);
        let (kernels, strides) = (list("patch_sizes", &[7, 3, 3, 3])?, list("strides", &[4, 2, 2, 2])?);
        if let Some(count) = config.given_size(&["num_encoder_blocks"])?.filter(|count| count.value != hidden.len()) {
            return Err(config.error(format!("{count}, but `hidden_sizes` has {} entries", hidden.len())));
        }
        let stage = |(i, &hidden): (usize, &Size)| match hidden.value.is_multiple_of(heads[i].value) {
            true => Ok(Stage {
                hidden,
                depth: depths[i],
                heads: heads[i],
                ratio: ratios[i],
                reduction: reductions[i],
                patches: Window::centred(kernels[i].value, strides[i].value),
            }),
            false => Err(config.error(format!("an entry of {hidden} is not divisible by {}", heads[i]))),
        };
        Ok(Self {
            channels: config.size("num_channels", 3)?,
            stages: hidden.iter().enumerate().map(stage).collect::<Result<_, _>>()?,
            activation: Activation::read(config, "hidden_act", "gelu")?,
        })
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config)?;
    let mut x = convolution::pixels(b, s.channels)?;
    let mut inner = s.channels;
    let mut maps = Vec::new();
    for (at, stage) in s.stages.iter().enumerate() {
        x = transformer(b, &s, stage, x, at, inner)?;
        inner = stage.hidden;
        maps.push(x);
    }
    match task {
        Task::ImageClassification => {
            let mean = convolution::mean(b, x, false, "mean")?;
            heads::classify(b, inner, mean, "classifier")?;
        }
        Task::SemanticSegmentation => segment(b, &s, &maps)?,
        _ => b.give(names::HIDDEN, x),
    }
    Ok(Properties::default())
}

/// The patches, the list of blocks and the norm of a stage. transformers 5 has a module for each stage
/// (`save_original_format=False`).
fn modules(b: &Builder<'_>, stage: usize) -> [String; 3] {
    let own = ["patch_embeddings", "blocks", "layer_norm"].map(|name| format!("stages.{stage}.{name}"));
    match b.tensors.contains(&format!("{}.proj.weight", own[0])) {
        true => own,
        false => ["patch_embeddings", "block", "layer_norm"].map(|name| format!("encoder.{name}.{stage}")),
    }
}

/// A stage: [batch_size, inner, height, width] to fewer places of `stage.hidden` channels.
fn transformer(
    b: &mut Builder<'_>,
    s: &Settings,
    stage: &Stage,
    x: ValueId,
    at: usize,
    inner: Size,
) -> Result<ValueId, ModelError> {
    let [path, blocks, norm] = modules(b, at);
    let x = convolution::conv(b, x, &format!("{path}.proj"), [stage.hidden, inner], stage.patches, true)?;
    let [_, _, height, width] = convolution::dims(b, x)?;
    let sides = [height, width];
    let x = convolution::tokens(b, x, &path)?;
    let mut x = b.layer_norm(x, &format!("{path}.layer_norm"), stage.hidden, EPS)?;
    for layer in 0..stage.depth.value {
        x = block(b, s, stage, x, &sides, &format!("{blocks}.{layer}"))?;
    }
    let x = b.layer_norm(x, &norm, stage.hidden, EPS)?;
    convolution::map(b, x, sides, stage.hidden, &format!("{norm}.map"))
}

fn block(
    b: &mut Builder<'_>,
    s: &Settings,
    stage: &Stage,
    x: ValueId,
    sides: &[Dim; 2],
    path: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let hidden = stage.hidden;
    let normal = b.layer_norm(x, &at("layer_norm_1"), hidden, EPS)?;
    let mut keys = normal;
    if stage.reduction.value > 1 {
        let map = convolution::map(b, normal, sides.clone(), hidden, &at("attention.self.map"))?;
        let window = Window::patches(stage.reduction.value);
        let fewer = convolution::conv(b, map, &at("attention.self.sr"), [hidden; 2], window, true)?;
        let fewer = convolution::tokens(b, fewer, &at("attention.self.sr"))?;
        keys = b.layer_norm(fewer, &at("attention.self.layer_norm"), hidden, EPS)?;
    }
    let q = b.linear(normal, &at("attention.self.query"), hidden, hidden)?;
    let k = b.linear(keys, &at("attention.self.key"), hidden, hidden)?;
    let v = b.linear(keys, &at("attention.self.value"), hidden, hidden)?;
    let size = (hidden.value / stage.heads.value) as f64;
    let attention = Attention::new(q, k, v, stage.heads.value, Real(1.0 / size.sqrt()));
    let attended = b.emit(attention, &at("attention.self"))?;
    let projected = b.linear(attended, &at("attention.output.dense"), hidden, hidden)?;
    let x = b.add(projected, x, &at("attention.add"))?;

    let wide = Size::derived(hidden.value * stage.ratio.value, "hidden_sizes * mlp_ratios");
    let normal = b.layer_norm(x, &at("layer_norm_2"), hidden, EPS)?;
    let up = b.linear(normal, &at("mlp.dense1"), wide, hidden)?;
    let map = convolution::map(b, up, sides.clone(), wide, &at("mlp.map"))?;
    let mixed = convolution::depthwise(b, map, &at("mlp.dwconv.dwconv"), wide, Window::centred(3, 1))?;
    let mixed = convolution::tokens(b, mixed, &at("mlp.dwconv"))?;
    let active = s.activation.apply(b, mixed, &at("mlp.activation"))?;
    let down = b.linear(active, &at("mlp.dense2"), hidden, wide)?;
    b.add(down, x, &at("add"))
}

/// `logits` of the labels of each place of the first map.
fn segment(b: &mut Builder<'_>, s: &Settings, maps: &[ValueId]) -> Result<(), ModelError> {
    let size = b.config.size("decoder_hidden_size", 256)?;
    let Some(first) = maps.first() else { unreachable!("lists of sizes have an entry at least") };
    let [_, _, height, width] = convolution::dims(b, *first)?;
    let mut parts = Vec::new();
    for (at, (map, stage)) in maps.iter().zip(&s.stages).enumerate().rev() {
        let module = format!("decode_head.linear_c.{at}");
        let [_, _, own_height, own_width] = convolution::dims(b, *map)?;
        let tokens = convolution::tokens(b, *map, &module)?;
        let projected = b.linear(tokens, &format!("{module}.proj"), size, stage.hidden)?;
        let map = convolution::map(b, projected, [own_height, own_width], size, &format!("{module}.map"))?;
        parts.push(resize(
            b,
            map,
            [height.clone(), width.clone()],
            Interpolation::Linear,
            &format!("{module}.resize"),
        )?);
    }
    let all = Size::derived(size.value * parts.len(), "decoder_hidden_size * stages");
    let joined = b.emit(Concat { parts, axis: 1 }, "decode_head.concat")?;
    let modules = ["decode_head.linear_fuse", "decode_head.batch_norm"];
    let fused = convolution::normalized(b, joined, modules, [size, all], Window::centred(1, 1))?;
    let active = Activation::RELU.apply(b, fused, "decode_head.activation")?;
    let labels = b.config.labels()?;
    let channels = [labels, size];
    let logits = convolution::conv(b, active, "decode_head.classifier", channels, Window::centred(1, 1), true)?;
    b.give(names::LOGITS, logits);
    Ok(())
}
