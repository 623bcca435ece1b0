//! ResNet (He et al. 2015, arXiv:1512.03385), as `transformers/models/resnet` has it: stages of residual layers of
//! convolutions, each with a batch norm. It is the backbone of detectors too.

use planish_ir::ValueId;

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::convolution::{self, Window};
use crate::layers::heads;
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "resnet",
    class_prefix: "ResNet",
    base: "resnet",
    other_bases: &[],
    renamed: &[],
    tasks: &[Task::FeatureExtraction, Task::ImageClassification],
    keys: &[&[
        "depths",
        "downsample_in_bottleneck",
        "downsample_in_first_stage",
        "embedding_size",
        "hidden_act",
        "hidden_sizes",
        "layer_type",
        "num_channels",
    ]],
    older_keys: &[],
    only: &[Only::Off("use_timm_backbone")],
    // What a backbone gives, and the size of images in training.
    irrelevant_keys: &["image_size", "out_features", "out_indices", "stage_names"],
    // The count of batches in training, then the head of another task.
    unused_tensors: &[".num_batches_tracked", "classifier."],
    pad_token_id: None,
    gguf: None,
    build,
};

/// What modules are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    /// As in the transformers library.
    Own,
    /// As in the timm library.
    Timm,
}

impl Names {
    /// The first convolution and its norm.
    fn stem(self) -> [String; 2] {
        match self {
            Self::Own => of_layer("embedder.embedder"),
            Self::Timm => ["conv1", "bn1"].map(str::to_owned),
        }
    }

    /// Convolution `at` of a residual layer of a stage, and its norm.
    fn inner(self, [stage, layer, at]: [usize; 3]) -> [String; 2] {
        match self {
            Self::Own => of_layer(&format!("encoder.stages.{stage}.layers.{layer}.layer.{at}")),
            Self::Timm => ["conv", "bn"].map(|name| format!("layer{}.{layer}.{name}{}", stage + 1, at + 1)),
        }
    }

    /// The convolution of a residual layer's operand, and its norm.
    fn shortcut(self, [stage, layer]: [usize; 2]) -> [String; 2] {
        match self {
            Self::Own => of_layer(&format!("encoder.stages.{stage}.layers.{layer}.shortcut")),
            Self::Timm => [0, 1].map(|at| format!("layer{}.{layer}.downsample.{at}", stage + 1)),
        }
    }
}

/// A convolution and its norm, by the name of what has both.
fn of_layer(path: &str) -> [String; 2] {
    ["convolution", "normalization"].map(|name| format!("{path}.{name}"))
}

/// The backbone of RT-DETR, which is no model by itself (He et al. 2018, arXiv:1812.01187: ResNet-D).
pub(crate) const DEEP: Architecture =
    Architecture { model_type: "rt_detr_resnet", class_prefix: "RTDetrResNet", ..ARCHITECTURE };

/// How much narrower the convolutions in a bottleneck are.
const REDUCTION: usize = 4;

/// The networks of timm: name, whether their layers are bottlenecks, and the numbers of these.
const TIMM: [(&str, bool, [usize; 4]); 5] = [
    ("resnet18", false, [2, 2, 2, 2]),
    ("resnet34", false, [3, 4, 6, 3]),
    ("resnet50", true, [3, 4, 6, 3]),
    ("resnet101", true, [3, 4, 23, 3]),
    ("resnet152", true, [3, 8, 36, 3]),
];

/// The configuration in `config.json`.
pub(crate) struct Settings {
    names: Names,
    pub(crate) channels: Size,
    embedding: Size,
    /// The channels of each stage.
    pub(crate) hidden: Vec<Size>,
    depths: Vec<Size>,
    bottleneck: bool,
    activation: Activation,
    /// Whether the first stage halves height and width.
    downsample_first: bool,
    /// Whether the first convolution of a bottleneck has the stride, not the second.
    downsample_in_bottleneck: bool,
    /// Whether the first convolution is three smaller ones, and what is halved beside a layer is a mean.
    deep: bool,
    /// Whether the last stage takes each second element in place of halving height and width.
    dilates: bool,
}

impl Settings {
    /// A network of the timm library by its name; `dilates` is [`Self::dilates`].
    pub(crate) fn timm(config: &Config<'_>, name: &str, channels: Size, dilates: bool) -> Result<Self, ModelError> {
        // What is after a dot says which training the weights come from.
        let kind = name.split('.').next().unwrap_or_default();
        let Some((_, bottleneck, depths)) = TIMM.iter().find(|(known, ..)| *known == kind) else {
            let known = TIMM.map(|(known, ..)| known).join(", ");
            return Err(
                config.error(format!("`backbone` is \"{name}\": of the networks of timm {known} are supported"))
            );
        };
        let size = |value: usize| Size::derived(value, "`backbone`");
        let widest = if *bottleneck { REDUCTION } else { 1 };
        Ok(Self {
            names: Names::Timm,
            deep: false,
            channels,
            embedding: size(64),
            hidden: [64, 128, 256, 512].map(|width| size(width * widest)).to_vec(),
            depths: depths.map(size).to_vec(),
            bottleneck: *bottleneck,
            activation: Activation::RELU,
            downsample_first: false,
            downsample_in_bottleneck: false,
            dilates,
        })
    }

    /// The configuration of [`DEEP`].
    pub(crate) fn read_deep(config: &Config<'_>) -> Result<Self, ModelError> {
        let s = Self { deep: true, ..Self::read(config)? };
        match s.embedding.value.is_multiple_of(2) {
            true => Ok(s),
            false => Err(config.error(format!("{} is odd, and two of its convolutions have half of it", s.embedding))),
        }
    }

    pub(crate) fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let hidden = config.sizes("hidden_sizes", &[256, 512, 1024, 2048])?;
        let bottleneck = match config.text("layer_type", "bottleneck")? {
            "bottleneck" => true,
            "basic" => false,
            other => {
                let expected = "\"basic\" or \"bottleneck\"";
                return Err(config.error(format!("`layer_type` is \"{other}\", expected {expected}")));
            }
        };
        let narrow = |size: &&Size| bottleneck && size.value < REDUCTION;
        if let Some(size) = hidden.iter().find(narrow) {
            return Err(config.error(format!("an entry of {size}: bottlenecks have {REDUCTION} channels at least")));
        }
        Ok(Self {
            names: Names::Own,
            deep: false,
            dilates: false,
            channels: config.size("num_channels", 3)?,
            embedding: config.size("embedding_size", 64)?,
            depths: config.as_many_sizes("depths", &[3, 4, 6, 3], &hidden)?,
            hidden,
            bottleneck,
            activation: Activation::read(config, "hidden_act", "relu")?,
            downsample_first: config.boolean("downsample_in_first_stage", false)?,
            downsample_in_bottleneck: config.boolean("downsample_in_bottleneck", false)?,
        })
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config)?;
    let pixels = convolution::pixels(b, s.channels)?;
    let maps = maps(b, &s, pixels, "")?;
    let Some((last, size)) = maps.last().copied().zip(s.hidden.last().copied()) else {
        unreachable!("lists of sizes have an entry at least")
    };
    match task {
        Task::ImageClassification => {
            let pooled = convolution::mean(b, last, false, "pooler")?;
            heads::classify(b, size, pooled, "classifier.1")?;
        }
        _ => {
            b.give(names::HIDDEN, last);
            let pooled = convolution::mean(b, last, true, "pooler")?;
            b.give(names::POOLED, pooled);
        }
    }
    Ok(Properties::default())
}

/// What each stage gives, [batch_size, channels, height, width], of pixels of the same form. `path` is before the names of
/// modules.
pub(crate) fn maps(b: &mut Builder<'_>, s: &Settings, pixels: ValueId, path: &str) -> Result<Vec<ValueId>, ModelError> {
    let half = Size::derived(s.embedding.value / 2, "embedding_size / 2");
    let stem = match s.deep {
        true => vec![
            (of_layer("embedder.embedder.0"), [half, s.channels], Window::centred(3, 2)),
            (of_layer("embedder.embedder.1"), [half, half], Window::centred(3, 1)),
            (of_layer("embedder.embedder.2"), [s.embedding, half], Window::centred(3, 1)),
        ],
        false => vec![(s.names.stem(), [s.embedding, s.channels], Window::centred(7, 2))],
    };
    let mut x = pixels;
    for (modules, channels, window) in &stem {
        x = layer(b, x, path, modules, *channels, *window)?;
        x = s.activation.apply(b, x, &format!("{path}{}.activation", modules[0]))?;
    }
    x = convolution::max_pool(b, x, Window::centred(3, 2), &format!("{path}pooler"))?;
    let mut inner = s.embedding;
    let mut maps = Vec::new();
    for (stage, (&out, depth)) in s.hidden.iter().zip(&s.depths).enumerate() {
        let halves = stage > 0 || s.downsample_first;
        let dilates = s.dilates && stage + 1 == s.hidden.len();
        for at in 0..depth.value {
            let stride = if at == 0 && halves && !dilates { 2 } else { 1 };
            // The first layer still takes elements side by side: it takes the map that is not thinned out.
            let middle = if dilates && at > 0 { Window::dilated(3, 2) } else { Window::centred(3, 1) };
            let second = if dilates { Window::dilated(3, 2) } else { Window::centred(3, 1) };
            x = residual(b, s, x, path, [stage, at], [out, inner], stride, [middle, second])?;
            inner = out;
        }
        maps.push(x);
    }
    Ok(maps)
}

/// A convolution and its norm.
fn layer(
    b: &mut Builder<'_>,
    x: ValueId,
    path: &str,
    modules: &[String; 2],
    channels: [Size; 2],
    window: Window,
) -> Result<ValueId, ModelError> {
    let [convolution, norm] = modules.each_ref().map(|module| format!("{path}{module}"));
    convolution::normalized(b, x, [&convolution, &norm], channels, window)
}

/// A residual layer, by stage and number. Its convolutions of windows have these, the first one of two with the stride.
#[allow(clippy::too_many_arguments, reason = "the layer's place, sizes and windows")]
fn residual(
    b: &mut Builder<'_>,
    s: &Settings,
    x: ValueId,
    path: &str,
    [stage, number]: [usize; 2],
    [out, inner]: [Size; 2],
    stride: usize,
    [middle, second]: [Window; 2],
) -> Result<ValueId, ModelError> {
    let narrow = Size::derived(out.value / REDUCTION, "an entry of hidden_sizes / 4");
    let (before, within) = if s.downsample_in_bottleneck { (stride, 1) } else { (1, stride) };
    let layers = match s.bottleneck {
        true => vec![
            ([narrow, inner], Window::centred(1, before)),
            ([narrow, narrow], Window { stride: within, ..middle }),
            ([out, narrow], Window::centred(1, 1)),
        ],
        false => vec![([out, inner], Window { stride, ..middle }), ([out, out], second)],
    };
    let mut y = x;
    for (at, (channels, window)) in layers.iter().enumerate() {
        let modules = s.names.inner([stage, number, at]);
        y = layer(b, y, path, &modules, *channels, *window)?;
        // The last one has its activation after the sum.
        if at + 1 < layers.len() {
            // Whatever `hidden_act` says: the transformers library gives it to no convolution in a layer.
            y = Activation::RELU.apply(b, y, &format!("{path}{}.activation", modules[0]))?;
        }
    }
    let shortcut = if s.deep {
        deep_shortcut(b, s, x, path, [stage, number], [out, inner], stride)?
    } else {
        plain_shortcut(b, s, x, path, [stage, number], [out, inner], stride)?
    };
    let place = format!("{path}stages.{stage}.{number}");
    let sum = b.add(y, shortcut, &format!("{place}.add"))?;
    s.activation.apply(b, sum, &format!("{place}.activation"))
}

/// What is added to a layer: its operand, or a convolution of it.
fn plain_shortcut(
    b: &mut Builder<'_>,
    s: &Settings,
    x: ValueId,
    path: &str,
    place: [usize; 2],
    [out, inner]: [Size; 2],
    stride: usize,
) -> Result<ValueId, ModelError> {
    match inner.value != out.value || stride != 1 {
        true => layer(b, x, path, &s.names.shortcut(place), [out, inner], Window::centred(1, stride)),
        false => Ok(x),
    }
}

/// The same of [`DEEP`], whose convolutions take a mean where the layer halves the map. The first one of two windows in a stage
/// always has a convolution.
fn deep_shortcut(
    b: &mut Builder<'_>,
    s: &Settings,
    x: ValueId,
    path: &str,
    [stage, number]: [usize; 2],
    channels: [Size; 2],
    stride: usize,
) -> Result<ValueId, ModelError> {
    let [out, inner] = channels.map(|size| size.value);
    let name = format!("encoder.stages.{stage}.layers.{number}.shortcut");
    let means = if s.bottleneck { stride == 2 } else { out != inner };
    if means {
        if stride == 1 {
            return Err(b.config.error(format!(
                "stage {} keeps the size of maps and changes their channels from {inner} to {out}, which layers of type \"basic\" \
                 cannot; set `embedding_size` to {out} or `downsample_in_first_stage` to true",
                stage + 1
            )));
        }
        let halved = convolution::average_pool(b, x, &format!("{path}{name}.0"))?;
        return layer(b, halved, path, &of_layer(&format!("{name}.1")), channels, Window::centred(1, 1));
    }
    match if s.bottleneck { out != inner } else { number == 0 } {
        true => layer(b, x, path, &of_layer(&name), channels, Window::centred(1, stride)),
        false => Ok(x),
    }
}
