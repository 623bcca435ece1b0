//! ConvNeXt (Liu et al. 2022, arXiv:2201.03545) and ConvNeXt V2 (Woo et al. 2023, arXiv:2301.00808), as
//! `transformers/models/convnext` and `convnextv2` have them: stages of depthwise convolutions, each with a feed-forward of
//! the channels of each place. V2 normalizes the response of all places in the feed-forward, where the first one scales
//! what the feed-forward gives.

use planish_ir::ValueId;
use planish_ir::ops::{BinaryKind, Reduce, ReduceKind, Unary, UnaryKind};

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::convolution::{self, Window};
use crate::layers::heads;
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "convnext",
    class_prefix: "ConvNext",
    base: "convnext",
    other_bases: &[],
    renamed: &[],
    tasks: &[Task::FeatureExtraction, Task::ImageClassification],
    keys: &[KEYS, &["layer_scale_init_value"]],
    older_keys: &[("num_hidden_layers", "num_stages")],
    only: &[],
    // Training, the size of images in it, and what a backbone gives.
    irrelevant_keys: &["drop_path_rate", "image_size", "out_features", "out_indices", "stage_names"],
    unused_tensors: &["classifier."],
    pad_token_id: None,
    gguf: None,
    build: |b, task| build(b, task, false),
};

pub(crate) const V2: Architecture = Architecture {
    model_type: "convnextv2",
    class_prefix: "ConvNextV2",
    base: "convnextv2",
    keys: &[KEYS],
    build: |b, task| build(b, task, true),
    ..ARCHITECTURE
};

const KEYS: &[&str] =
    &["depths", "hidden_act", "hidden_sizes", "layer_norm_eps", "num_channels", "num_stages", "patch_size"];

/// Added to the variance in each norm but the last, and to the mean of responses.
const EPS: f64 = 1e-6;

/// How much wider the feed-forward is.
const EXPANSION: usize = 4;

/// The configuration in `config.json`.
struct Settings {
    channels: Size,
    patch: Size,
    hidden: Vec<Size>,
    depths: Vec<Size>,
    activation: Activation,
    /// Added to the variance in the last norm.
    eps: f64,
    /// Whether layers scale what they add.
    scales: bool,
    /// Whether they normalize responses.
    normalizes: bool,
}

impl Settings {
    fn read(config: &Config<'_>, v2: bool) -> Result<Self, ModelError> {
        let hidden = config.sizes("hidden_sizes", &[96, 192, 384, 768])?;
        let stages = config.given_size(&["num_stages"])?;
        let s = Self {
            channels: config.size("num_channels", 3)?,
            patch: config.size("patch_size", 4)?,
            depths: config.as_many_sizes("depths", &[3, 3, 9, 3], &hidden)?,
            hidden,
            activation: Activation::read(config, "hidden_act", "gelu")?,
            eps: config.positive("layer_norm_eps", 1e-12)?,
            scales: !v2 && config.number("layer_scale_init_value", 1e-6)? > 0.0,
            normalizes: v2,
        };
        match stages.filter(|stages| stages.value != s.hidden.len()) {
            Some(stages) => Err(config.error(format!("{stages}, but `hidden_sizes` has {} entries", s.hidden.len()))),
            None => Ok(s),
        }
    }
}

fn build(b: &mut Builder<'_>, task: Task, v2: bool) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config, v2)?;
    let pixels = convolution::pixels(b, s.channels)?;
    let mut inner = s.hidden.first().copied().unwrap_or(s.channels);
    let patches = Window::patches(s.patch.value);
    let mut x = convolution::conv(b, pixels, "embeddings.patch_embeddings", [inner, s.channels], patches, true)?;
    x = norm(b, x, "embeddings.layernorm", inner)?;
    for (stage, (&out, depth)) in s.hidden.iter().zip(&s.depths).enumerate() {
        let path = format!("encoder.stages.{stage}");
        if stage > 0 {
            x = norm(b, x, &format!("{path}.downsampling_layer.0"), inner)?;
            let module = format!("{path}.downsampling_layer.1");
            x = convolution::conv(b, x, &module, [out, inner], Window::patches(2), true)?;
        }
        for at in 0..depth.value {
            x = layer(b, &s, x, &format!("{path}.layers.{at}"), out)?;
        }
        inner = out;
    }
    let mean = convolution::mean(b, x, false, "mean")?;
    let pooled = b.layer_norm(mean, "layernorm", inner, s.eps)?;
    match task {
        Task::ImageClassification => heads::classify(b, inner, pooled, "classifier")?,
        _ => {
            b.give(names::HIDDEN, x);
            b.give(names::POOLED, pooled);
        }
    }
    Ok(Properties::default())
}

/// A norm of the channels of each place: [batch_size, channels, height, width] to the same.
fn norm(b: &mut Builder<'_>, x: ValueId, module: &str, channels: Size) -> Result<ValueId, ModelError> {
    let last = b.transpose(x, &[0, 2, 3, 1], &format!("{module}.channels_last"))?;
    let normal = b.layer_norm(last, module, channels, EPS)?;
    b.transpose(normal, &[0, 3, 1, 2], &format!("{module}.channels_first"))
}

fn layer(b: &mut Builder<'_>, s: &Settings, x: ValueId, path: &str, size: Size) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let wide = Size::derived(size.value * EXPANSION, "4 times an entry of hidden_sizes");
    let y = convolution::depthwise(b, x, &at("dwconv"), size, Window::centred(7, 1))?;
    let y = b.transpose(y, &[0, 2, 3, 1], &at("channels_last"))?;
    let y = b.layer_norm(y, &at("layernorm"), size, EPS)?;
    let y = b.linear(y, &at("pwconv1"), wide, size)?;
    let mut y = s.activation.apply(b, y, &at("act"))?;
    if s.normalizes {
        y = response_norm(b, y, &at("grn"), wide)?;
    }
    y = b.linear(y, &at("pwconv2"), size, wide)?;
    if s.scales {
        let factors = b.weight(&[&at("layer_scale_parameter")], &[size])?;
        y = b.binary(BinaryKind::Mul, [y, factors], &at("scale"))?;
    }
    let y = b.transpose(y, &[0, 3, 1, 2], &at("channels_first"))?;
    b.add(x, y, &at("add"))
}

/// Global response normalization (`ConvNextV2GRN`): each channel times its length over all places, divided by the mean of
/// these lengths. [batch_size, height, width, channels] to the same.
fn response_norm(b: &mut Builder<'_>, x: ValueId, path: &str, size: Size) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let squares = b.binary(BinaryKind::Mul, [x, x], &at("squares"))?;
    let sum = b.emit(Reduce { kind: ReduceKind::Sum, x: squares, axes: vec![1, 2], keep: true }, &at("sum"))?;
    let lengths = b.emit(Unary { kind: UnaryKind::Sqrt, x: sum }, &at("lengths"))?;
    let mean = b.emit(Reduce { kind: ReduceKind::Mean, x: lengths, axes: vec![3], keep: true }, &at("mean"))?;
    let mean = b.with_number(BinaryKind::Add, mean, EPS, &at("mean.add"), "model_type")?;
    let factors = b.binary(BinaryKind::Div, [lengths, mean], &at("factors"))?;
    let scaled = b.binary(BinaryKind::Mul, [x, factors], &at("mul"))?;
    let one = Size::derived(1, "one place");
    let shape = [one, one, one, size];
    let weight = b.weight(&[&at("weight")], &shape)?;
    let bias = b.weight(&[&at("bias")], &shape)?;
    let scaled = b.binary(BinaryKind::Mul, [scaled, weight], &at("scale"))?;
    let shifted = b.add(scaled, bias, &at("shift"))?;
    b.add(shifted, x, &at("add"))
}
