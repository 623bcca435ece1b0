//! HGNetV2 (of PaddlePaddle's image classification), as `transformers/models/hgnet_v2` has it: stages of blocks, each of which joins
//! what all of its convolutions give. It is the backbone of D-FINE too.

use planish_ir::ops::{BinaryKind, Concat};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};
use serde_json::Value;

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::convolution::{self, Window};
use crate::layers::heads;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "hgnet_v2",
    class_prefix: "HGNetV2",
    base: "hgnetv2",
    other_bases: &[],
    renamed: &[],
    tasks: &[Task::ImageClassification],
    keys: &[&[
        "hidden_act",
        "num_channels",
        "stage_downsample",
        "stage_downsample_strides",
        "stage_in_channels",
        "stage_kernel_size",
        "stage_light_block",
        "stage_mid_channels",
        "stage_num_blocks",
        "stage_numb_of_layers",
        "stage_out_channels",
        "stem_channels",
        "stem_strides",
        "use_learnable_affine_block",
    ]],
    older_keys: &[],
    only: &[],
    // The sizes of layers that the keys of stages say again, and what a backbone gives.
    irrelevant_keys: &["depths", "embedding_size", "hidden_sizes", "out_features", "out_indices", "stage_names"],
    unused_tensors: &[".num_batches_tracked"],
    pad_token_id: None,
    gguf: None,
    build,
};

/// One stage.
struct Stage {
    inner: Size,
    middle: Size,
    out: Size,
    blocks: usize,
    layers: usize,
    kernel: usize,
    /// The stride of the convolution before its blocks, where there is one.
    stride: Option<usize>,
    /// Whether its layers are a convolution of one place and one of each channel.
    light: bool,
}

/// The configuration in `config.json`.
pub(crate) struct Settings {
    pub(crate) channels: Size,
    /// The channels within the stem, and those that it gives.
    stem: [Size; 2],
    /// The strides of the convolutions 1, 3 and 4 of the stem.
    strides: [usize; 3],
    stages: Vec<Stage>,
    activation: Activation,
    /// Whether activations are multiplied by a number, and another one is added.
    affine: bool,
}

impl Settings {
    pub(crate) fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let channels = config.size("num_channels", 3)?;
        let stem = config.sizes("stem_channels", &[3, 32, 48])?;
        let [first, middle, last] = stem[..] else {
            return Err(config.error(format!("`stem_channels` has {} entries, not 3", stem.len())));
        };
        if first.value != channels.value {
            return Err(config.error(format!("the first entry of {first}, but {channels}")));
        }
        if middle.value < 2 {
            return Err(config.error("the second entry of `stem_channels` is 1, and a convolution has half of it"));
        }
        let strides = config.sizes("stem_strides", &[2, 1, 1, 2, 1])?;
        let [of_first, 1, 1, of_third, of_fourth] = strides.iter().map(|stride| stride.value).collect::<Vec<_>>()[..]
        else {
            let why = "the second and the third one do not change the size of maps, which are joined with others";
            return Err(
                config.error(format!("`stem_strides` has to be five strides of the form [a, 1, 1, b, c]: {why}"))
            );
        };
        Ok(Self {
            channels,
            stem: [middle, last],
            strides: [of_first, of_third, of_fourth],
            stages: stages(config, last)?,
            activation: Activation::read(config, "hidden_act", "relu")?,
            affine: config.boolean("use_learnable_affine_block", false)?,
        })
    }

    /// The channels of what each stage gives.
    pub(crate) fn outs(&self) -> impl ExactSizeIterator<Item = Size> {
        self.stages.iter().map(|stage| stage.out)
    }

    /// How many times smaller the maps of a stage are than those of one before it, both by numbers from 1 on.
    pub(crate) fn ratio(&self, [before, stage]: [usize; 2]) -> usize {
        let between = self.stages.get(before..stage).unwrap_or_default();
        between.iter().filter_map(|stage| stage.stride).fold(1, usize::saturating_mul)
    }
}

/// The stages of a configuration, the first one of which takes so many channels.
fn stages(config: &Config<'_>, stem: Size) -> Result<Vec<Stage>, ModelError> {
    let inner = config.sizes("stage_in_channels", &[48, 128, 512, 1024])?;
    let sizes = |key, default: [usize; 4]| config.as_many_sizes(key, &default, &inner);
    let middle = sizes("stage_mid_channels", [48, 96, 192, 384])?;
    let out = sizes("stage_out_channels", [128, 512, 1024, 2048])?;
    let blocks = sizes("stage_num_blocks", [1, 1, 3, 1])?;
    let layers = sizes("stage_numb_of_layers", [6; 4])?;
    let kernels = sizes("stage_kernel_size", [3, 3, 5, 5])?;
    let strides = sizes("stage_downsample_strides", [2; 4])?;
    let halves = flags(config, "stage_downsample", [false, true, true, true], inner.len())?;
    let light = flags(config, "stage_light_block", [false, false, true, true], inner.len())?;
    let mut given = stem;
    for (inner, out) in inner.iter().zip(&out) {
        if inner.value != given.value {
            return Err(config.error(format!("an entry of {inner}, but what is before that stage gives {given}")));
        }
        if out.value < 2 {
            return Err(config.error(format!("an entry of {out}, and a convolution has half of it")));
        }
        given = *out;
    }
    if let Some(even) = kernels.iter().find(|kernel| kernel.value.is_multiple_of(2)) {
        return Err(config.error(format!("an entry of {even}: windows with a centre are supported, of odd sizes")));
    }
    let stage = |at: usize| Stage {
        inner: inner[at],
        middle: middle[at],
        out: out[at],
        blocks: blocks[at].value,
        layers: layers[at].value,
        kernel: kernels[at].value,
        stride: halves[at].then_some(strides[at].value),
        light: light[at],
    };
    Ok((0..inner.len()).map(stage).collect())
}

/// A truth value for each stage.
fn flags(config: &Config<'_>, key: &'static str, default: [bool; 4], count: usize) -> Result<Vec<bool>, ModelError> {
    let Some(value) = config.get(key) else {
        let missing = || config.error(format!("`{key}` is missing, and there are {count} stages, not 4"));
        return (count == default.len()).then(|| default.to_vec()).ok_or_else(missing);
    };
    let flags = value.as_array().and_then(|list| list.iter().map(Value::as_bool).collect::<Option<Vec<_>>>());
    let expected = || config.unexpected(key, value, &format!("a list of {count} entries that are true or false"));
    flags.filter(|flags| flags.len() == count).ok_or_else(expected)
}

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config)?;
    let pixels = convolution::pixels(b, s.channels)?;
    let maps = maps(b, &s, pixels, "")?;
    let Some((last, size)) = maps.last().copied().zip(s.outs().last()) else {
        unreachable!("lists of sizes have an entry at least")
    };
    let pooled = convolution::mean(b, last, false, "avg_pool")?;
    heads::classify(b, size, pooled, "fc")?;
    Ok(Properties::default())
}

/// What each stage gives, [batch_size, channels, height, width], of pixels of the same form. `path` is before the names of
/// modules.
pub(crate) fn maps(b: &mut Builder<'_>, s: &Settings, pixels: ValueId, path: &str) -> Result<Vec<ValueId>, ModelError> {
    let mut x = s.stem(b, pixels, &format!("{path}embedder"))?;
    let mut maps = Vec::new();
    for (number, stage) in s.stages.iter().enumerate() {
        let path = format!("{path}encoder.stages.{number}");
        if let Some(stride) = stage.stride {
            let modules = modules(&format!("{path}.downsample"));
            let window = Window::centred(3, stride);
            x = convolution::normalized_depthwise(b, x, modules.each_ref().map(String::as_str), stage.inner, window)?;
        }
        for block in 0..stage.blocks {
            x = s.block(b, x, stage, block, &format!("{path}.blocks.{block}"))?;
        }
        maps.push(x);
    }
    Ok(maps)
}

/// A convolution and its norm, by the name of what has both.
fn modules(path: &str) -> [String; 2] {
    ["convolution", "normalization"].map(|name| format!("{path}.{name}"))
}

/// A map with a row and a column of zeros after its own.
fn pad(b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let [batch, channels, height, width] = convolution::dims(b, x)?;
    let more = |size: &Dim| size.checked_add(&Dim::constant(1));
    let Some((height, width)) = more(&height).zip(more(&width)) else {
        return Err(b.config.error("images have more places than 64 bits count"));
    };
    let pads = Weight::numbers(DType::I64, vec![8], &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
    let pads = pads.unwrap_or_else(|| unreachable!("there are as many numbers as the shape says"));
    let pads = b.graph.add_weight(&format!("{module}.pads"), pads, Origin::Config("model_type".into()));
    let shape = Shape::new([batch, channels, height, width]);
    convolution::foreign(b, "Pad", vec![Some(x), Some(pads)], &[], shape, module)
}

impl Settings {
    /// What is after a norm: an activation, and perhaps a factor and a summand of all channels.
    fn active(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        activation: Activation,
        path: &str,
    ) -> Result<ValueId, ModelError> {
        let x = activation.apply(b, x, &format!("{path}.activation"))?;
        if !self.affine {
            return Ok(x);
        }
        let one = Size::derived(1, "a number for all channels");
        let scale = b.weight(&[&format!("{path}.lab.scale")], &[one])?;
        let bias = b.weight(&[&format!("{path}.lab.bias")], &[one])?;
        let scaled = b.binary(BinaryKind::Mul, [x, scale], &format!("{path}.lab.scaled"))?;
        b.add(scaled, bias, &format!("{path}.lab"))
    }

    /// A convolution with its norm and an activation.
    fn layer(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        path: &str,
        channels: [Size; 2],
        window: Window,
        activation: Activation,
    ) -> Result<ValueId, ModelError> {
        let [convolution, norm] = modules(path);
        let x = convolution::normalized(b, x, [&convolution, &norm], channels, window)?;
        self.active(b, x, activation, path)
    }

    /// The stem: convolutions beside a pool.
    fn stem(&self, b: &mut Builder<'_>, pixels: ValueId, path: &str) -> Result<ValueId, ModelError> {
        let ([middle, out], [first, third, fourth]) = (self.stem, self.strides);
        let half = Size::derived(middle.value / 2, "half of the second entry of stem_channels");
        let both = Size::derived(2 * middle.value, "twice the second entry of stem_channels");
        let pair = Window { stride: 1, ..Window::patches(2) };
        let at = |name: &str| format!("{path}.{name}");
        let layer = |b: &mut Builder<'_>, x, name: &str, channels, window| {
            self.layer(b, x, &at(name), channels, window, self.activation)
        };
        let x = layer(b, pixels, "stem1", [middle, self.channels], Window::centred(3, first))?;
        let x = pad(b, x, &at("stem1.pad"))?;
        let narrow = layer(b, x, "stem2a", [half, middle], pair)?;
        let narrow = pad(b, narrow, &at("stem2a.pad"))?;
        let own = layer(b, narrow, "stem2b", [middle, half], pair)?;
        let pooled = convolution::max_pool(b, x, pair, &at("pool"))?;
        let x = b.emit(Concat { parts: vec![pooled, own], axis: 1 }, &at("concat"))?;
        let x = layer(b, x, "stem3", [middle, both], Window::centred(3, third))?;
        layer(b, x, "stem4", [out, middle], Window::centred(1, fourth))
    }

    /// A block of a stage: layers, what all of them give as one map, and the operand of all blocks but the first one. Whatever
    /// `hidden_act` says, its activations are ReLU: the transformers library gives it to the stem alone.
    fn block(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        stage: &Stage,
        number: usize,
        path: &str,
    ) -> Result<ValueId, ModelError> {
        let first = if number == 0 { stage.inner } else { stage.out };
        let (point, window) = (Window::centred(1, 1), Window::centred(stage.kernel, 1));
        let mut parts = vec![x];
        let mut last = (x, first);
        for layer in 0..stage.layers {
            let (path, channels) = (format!("{path}.layers.{layer}"), [stage.middle, last.1]);
            let y = if stage.light {
                let [conv, norm] = modules(&format!("{path}.conv1"));
                let y = convolution::normalized(b, last.0, [&conv, &norm], channels, point)?;
                let path = format!("{path}.conv2");
                let [conv, norm] = modules(&path);
                let y = convolution::normalized_depthwise(b, y, [&conv, &norm], stage.middle, window)?;
                self.active(b, y, Activation::RELU, &path)?
            } else {
                self.layer(b, last.0, &path, channels, window, Activation::RELU)?
            };
            parts.push(y);
            last = (y, stage.middle);
        }
        let all = first.value.saturating_add(stage.layers.saturating_mul(stage.middle.value));
        let all = Size::derived(all, "the channels of a block's operand and layers");
        let half = Size::derived(stage.out.value / 2, "half of an entry of stage_out_channels");
        let joined = b.emit(Concat { parts, axis: 1 }, &format!("{path}.concat"))?;
        let relu = Activation::RELU;
        let y = self.layer(b, joined, &format!("{path}.aggregation.0"), [half, all], point, relu)?;
        let y = self.layer(b, y, &format!("{path}.aggregation.1"), [stage.out, half], point, relu)?;
        if number == 0 { Ok(y) } else { b.add(y, x, &format!("{path}.add")) }
    }
}
