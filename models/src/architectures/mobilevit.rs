//! MobileViT (Mehta and Rastegari 2021, arXiv:2110.02178), as `transformers/models/mobilevit` has it: inverted residuals of
//! convolutions (Sandler et al. 2018, arXiv:1801.04381), and in three stages transformers over the pixels that have one place
//! in all patches; a head of spread convolutions (DeepLabV3, Chen et al. 2017, arXiv:1706.05587) segments.

use planish_ir::ops::{Concat, Expand};
use planish_ir::{Dim, Shape, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{MAX_SIZE, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::{BATCH, Builder};
use crate::layers::convolution::{self, Window};
use crate::layers::heads;
use crate::layers::patches::{self, Images};
use crate::layers::resize::{Interpolation, resize};
use crate::layers::vision::{Context, Gate, Layers, Names};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "mobilevit",
    class_prefix: "MobileViT",
    base: "mobilevit",
    other_bases: &[],
    renamed: &[],
    tasks: &[Task::FeatureExtraction, Task::ImageClassification, Task::SemanticSegmentation],
    keys: &[
        patches::KEYS,
        &[
            "aspp_out_channels",
            "atrous_rates",
            "conv_kernel_size",
            "expand_ratio",
            "hidden_act",
            "hidden_sizes",
            "layer_norm_eps",
            "mlp_ratio",
            "neck_hidden_sizes",
            "num_attention_heads",
            "output_stride",
            "qkv_bias",
        ],
    ],
    older_keys: &[],
    only: &[],
    // Training.
    irrelevant_keys: &["aspp_dropout_prob", "classifier_dropout_prob", "semantic_loss_ignore_index"],
    // Heads of other tasks.
    unused_tensors: &[".num_batches_tracked", "classifier.", "conv_1x1_exp.", "segmentation_head."],
    pad_token_id: None,
    gguf: None,
    build,
};

/// The layers of the transformers of three stages, with the names of ViT.
const NAMES: [Names; 3] = [
    Names { layers: "encoder.layer.2.transformer.layer", ..Names::VIT },
    Names { layers: "encoder.layer.3.transformer.layer", ..Names::VIT },
    Names { layers: "encoder.layer.4.transformer.layer", ..Names::VIT },
];

/// How many layers each has.
const DEPTHS: [usize; 3] = [2, 4, 3];

/// The configuration in `config.json`.
struct Settings {
    images: Images,
    /// Channels between stages: of the stem, of the five stages, and of features.
    necks: [Size; 7],
    /// Features of transformers.
    hidden: [Size; 3],
    heads: Size,
    ratio: f64,
    expansion: f64,
    kernel: Size,
    activation: Activation,
    eps: f64,
    qkv_bias: bool,
    /// The windows before transformers. Where the output has more places than usual, the last ones keep them all.
    windows: [Window; 3],
    /// Channels of the head of labels of places.
    pooled: Size,
    /// The dilations of its windows.
    rates: [Size; 3],
}

impl Settings {
    fn read(b: &Builder<'_>) -> Result<Self, ModelError> {
        let config = b.config;
        let necks = config.sizes("neck_hidden_sizes", &[16, 32, 64, 96, 128, 160, 640])?;
        let hidden = config.sizes("hidden_sizes", &[144, 192, 240])?;
        let (Ok(necks), Ok(hidden)) = (<[Size; 7]>::try_from(necks), <[Size; 3]>::try_from(hidden)) else {
            return Err(config.error("`neck_hidden_sizes` has to have 7 entries, and `hidden_sizes` 3"));
        };
        let half = Window::centred(3, 2);
        let rates = config.sizes("atrous_rates", &[6, 12, 18])?;
        let Ok(rates) = <[Size; 3]>::try_from(rates) else {
            return Err(config.error("`atrous_rates` has to have 3 entries"));
        };
        let s = Self {
            pooled: config.size("aspp_out_channels", 256)?,
            rates,
            images: images(b)?,
            necks,
            hidden,
            heads: config.size("num_attention_heads", 4)?,
            ratio: config.positive("mlp_ratio", 2.0)?,
            expansion: config.positive("expand_ratio", 4.0)?,
            kernel: config.size("conv_kernel_size", 3)?,
            activation: Activation::read(config, "hidden_act", "silu")?,
            eps: config.positive("layer_norm_eps", 1e-5)?,
            qkv_bias: config.boolean("qkv_bias", true)?,
            windows: match config.size("output_stride", 32)?.value {
                8 => [half, Window::dilated(3, 1), Window::dilated(3, 2)],
                16 => [half, half, Window::dilated(3, 1)],
                _ => [half; 3],
            },
        };
        if let Some(hidden) = s.hidden.iter().find(|hidden| !hidden.value.is_multiple_of(s.heads.value)) {
            return Err(config.error(format!("an entry of {hidden} is not divisible by {}", s.heads)));
        }
        // What it takes of a map has the sides of the map.
        if s.kernel.value.is_multiple_of(2) || s.kernel.value > 1 << 10 {
            return Err(config.error(format!("{}, and an odd size up to 1023 was expected", s.kernel)));
        }
        let widest = |sizes: &[Size], times: f64| sizes.iter().all(|size| size.value as f64 * times < MAX_SIZE as f64);
        match widest(&s.necks, s.expansion) && widest(&s.hidden, s.ratio) {
            true => Ok(s),
            false => Err(config.error(format!("`expand_ratio` or `mlp_ratio` makes more than {MAX_SIZE} features"))),
        }
    }

    /// The channels within an inverted residual: a multiple of 8 that is not much smaller than the expansion.
    fn expanded(&self, channels: Size) -> Size {
        let wanted = (channels.value as f64 * self.expansion).round_ties_even();
        let rounded = (((wanted + 4.0) / 8.0).floor() * 8.0).max(8.0);
        let more = if rounded < 0.9 * wanted { 8.0 } else { 0.0 };
        Size::derived((rounded + more) as usize, "neck_hidden_sizes * expand_ratio")
    }
}

/// Images of any size, whose patches are squares.
fn images(b: &Builder<'_>) -> Result<Images, ModelError> {
    let s = Images::following(b.config, 256, 2)?;
    match s.patch[0] == s.patch[1] {
        true => Ok(s),
        false => Err(b.config.error("`patch_size` has two sides, and transformers takes one number")),
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b)?;
    let pixels = s.images.pixels(b)?;
    let stem = [s.necks[0], s.images.channels];
    let mut x = normalized(b, pixels, "conv_stem", stem, Window::centred(3, 2), Some(s.activation))?;
    for stage in 0..5 {
        let path = format!("encoder.layer.{stage}");
        let (inner, out) = (s.necks[stage], s.necks[stage + 1]);
        if let Some(transformer) = stage.checked_sub(2) {
            let window = s.windows[transformer];
            x = residual(b, &s, x, &format!("{path}.downsampling_layer"), [out, inner], window)?;
            x = block(b, &s, x, &path, out, transformer)?;
        } else {
            for index in 0..[1, 3][stage] {
                let inner = if index == 0 { inner } else { out };
                let stride = if stage == 1 && index == 0 { 2 } else { 1 };
                let window = Window::centred(3, stride);
                x = residual(b, &s, x, &format!("{path}.layer.{index}"), [out, inner], window)?;
            }
        }
    }
    finish(b, &s, x, task)?;
    Ok(Properties::default())
}

/// A convolution with its norm, and perhaps an activation: of [out, in] channels.
fn normalized(
    b: &mut Builder<'_>,
    x: ValueId,
    path: &str,
    channels: [Size; 2],
    window: Window,
    activation: Option<Activation>,
) -> Result<ValueId, ModelError> {
    let modules = [&*format!("{path}.convolution"), &*format!("{path}.normalization")];
    let x = convolution::normalized(b, x, modules, channels, window)?;
    activation.map_or(Ok(x), |activation| activation.apply(b, x, &format!("{path}.activation")))
}

/// An inverted residual of [out, in] channels: to more channels, a filter for each of them, and to those of the result.
fn residual(
    b: &mut Builder<'_>,
    s: &Settings,
    x: ValueId,
    path: &str,
    [out, inner]: [Size; 2],
    window: Window,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let (wide, point) = (s.expanded(inner), Window::centred(1, 1));
    let expanded = normalized(b, x, &at("expand_1x1"), [wide, inner], point, Some(s.activation))?;
    let modules = [&*at("conv_3x3.convolution"), &*at("conv_3x3.normalization")];
    let mixed = convolution::normalized_depthwise(b, expanded, modules, wide, window)?;
    let mixed = s.activation.apply(b, mixed, &at("conv_3x3.activation"))?;
    let reduced = normalized(b, mixed, &at("reduce_1x1"), [out, wide], point, None)?;
    match window.stride == 1 && out.value == inner.value {
        true => b.add(x, reduced, &at("add")),
        false => Ok(reduced),
    }
}

/// A transformer over the patches of a map, between convolutions.
fn block(
    b: &mut Builder<'_>,
    s: &Settings,
    x: ValueId,
    path: &str,
    channels: Size,
    transformer: usize,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let (hidden, window, point) = (s.hidden[transformer], Window::centred(s.kernel.value, 1), Window::centred(1, 1));
    let local = normalized(b, x, &at("conv_kxk"), [channels; 2], window, Some(s.activation))?;
    let local = convolution::conv(b, local, &at("conv_1x1.convolution"), [hidden, channels], point, false)?;

    // One number of patches along each side for each token of a patch.
    let [_, _, height, width] = convolution::dims(b, local)?;
    let patch = s.images.patch[0];
    let known = |side: &Dim| side.as_constant().and_then(|side| usize::try_from(side).ok()).unwrap_or_default();
    let [rows, columns] = [&height, &width].map(|side| known(side).div_ceil(patch));
    let sides = [rows * patch, columns * patch].map(patches::dim);
    let resized = resize(b, local, sides.clone(), Interpolation::Linear, &at("resized"))?;
    let (batch, features) = (Dim::symbol(BATCH), convolution::dim(hidden));
    let [tall, wide, side] = [rows, columns, patch].map(patches::dim);
    let split = [batch.clone(), features.clone(), tall.clone(), side.clone(), wide.clone(), side.clone()];
    let split = b.reshape(resized, split, &at("patches"))?;
    let by_place = b.transpose(split, &[0, 3, 5, 2, 4, 1], &at("by_place"))?;
    let Some(texts) = batch.checked_mul(&patches::dim(patch * patch)) else {
        return Err(b.config.error("patches have too many pixels"));
    };
    let tokens = b.reshape(by_place, [texts, patches::dim(rows * columns), features.clone()], &at("tokens"))?;

    let wider = Size::derived((hidden.value as f64 * s.ratio) as usize, "hidden_sizes * mlp_ratio");
    let layers = Layers {
        hidden,
        intermediate: wider,
        heads: s.heads,
        count: Size::derived(DEPTHS[transformer], "layers of a stage"),
        activation: s.activation,
        eps: s.eps,
        qkv_bias: [s.qkv_bias; 3],
        output_bias: true,
        feed_forward_bias: true,
        gate: Gate::None,
        names: &NAMES[transformer],
    };
    let tokens = layers.apply(b, tokens, Context::default())?;
    let tokens = b.layer_norm(tokens, &at("layernorm"), hidden, s.eps)?;

    let split = [batch.clone(), side.clone(), side, tall, wide, features.clone()];
    let by_place = b.reshape(tokens, split, &at("by_place.reverse"))?;
    let split = b.transpose(by_place, &[0, 5, 3, 1, 4, 2], &at("patches.reverse"))?;
    let [rows, columns] = sides;
    let map = b.reshape(split, [batch, features, rows, columns], &at("map"))?;
    let map = resize(b, map, [height, width], Interpolation::Linear, &at("resized.reverse"))?;
    let global = normalized(b, map, &at("conv_projection"), [channels, hidden], point, Some(s.activation))?;
    let both = b.emit(Concat { parts: vec![x, global], axis: 1 }, &at("concat"))?;
    let twice = Size::derived(2 * channels.value, "2 * neck_hidden_sizes");
    normalized(b, both, &at("fusion"), [channels, twice], window, Some(s.activation))
}

/// Adds the outputs of a task.
fn finish(b: &mut Builder<'_>, s: &Settings, x: ValueId, task: Task) -> Result<(), ModelError> {
    if task == Task::SemanticSegmentation {
        return segment(b, s, x);
    }
    let [.., last, features] = s.necks;
    let x = normalized(b, x, "conv_1x1_exp", [features, last], Window::centred(1, 1), Some(s.activation))?;
    let pooled = convolution::mean(b, x, false, "pooler")?;
    if task == Task::ImageClassification {
        return heads::classify(b, features, pooled, "classifier");
    }
    b.give(names::HIDDEN, x);
    b.give(names::POOLED, pooled);
    Ok(())
}

/// `logits` of the labels of each place: of windows of several dilations, and of the mean of all places.
fn segment(b: &mut Builder<'_>, s: &Settings, x: ValueId) -> Result<(), ModelError> {
    const HEAD: &str = "segmentation_head.aspp";
    let (point, relu) = (Window::centred(1, 1), Some(Activation::RELU));
    let [.., inner, _] = s.necks;
    let out = s.pooled;
    let windows = std::iter::once(point).chain(s.rates.iter().map(|rate| Window::dilated(3, rate.value)));
    let mut parts = Vec::new();
    for (at, window) in windows.enumerate() {
        parts.push(normalized(b, x, &format!("{HEAD}.convs.{at}"), [out, inner], window, relu)?);
    }
    let pool = format!("{HEAD}.convs.4");
    let mean = convolution::mean(b, x, true, &format!("{pool}.global_pool"))?;
    let mean = normalized(b, mean, &format!("{pool}.conv_1x1"), [out, inner], point, relu)?;
    let [batch, _, height, width] = convolution::dims(b, x)?;
    let shape = Shape::new([batch, convolution::dim(out), height, width]);
    parts.push(b.emit(Expand { x: mean, shape }, &format!("{pool}.expand"))?);
    let joined = b.emit(Concat { parts, axis: 1 }, &format!("{HEAD}.concat"))?;
    let all = Size::derived(5 * out.value, "5 * aspp_out_channels");
    let x = normalized(b, joined, &format!("{HEAD}.project"), [out, all], point, relu)?;
    let labels = b.config.labels()?;
    let module = "segmentation_head.classifier.convolution";
    let logits = convolution::conv(b, x, module, [labels, out], point, true)?;
    b.give(names::LOGITS, logits);
    Ok(())
}
