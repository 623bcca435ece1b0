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

/// How much narrower the convolutions in a bottleneck are.
const REDUCTION: usize = 4;

/// The configuration in `config.json`.
struct Settings {
    channels: Size,
    embedding: Size,
    hidden: Vec<Size>,
    depths: Vec<Size>,
    bottleneck: bool,
    activation: Activation,
    /// Whether the first stage halves height and width.
    downsample_first: bool,
    /// Whether the first convolution of a bottleneck has the stride, not the second.
    downsample_in_bottleneck: bool,
}

impl Settings {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
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
    let pixels = convolution::pixels(b, s.channels);
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
fn maps(b: &mut Builder<'_>, s: &Settings, pixels: ValueId, path: &str) -> Result<Vec<ValueId>, ModelError> {
    let stem = format!("{path}embedder");
    let mut x = layer(b, pixels, &format!("{stem}.embedder"), [s.embedding, s.channels], Window::centred(7, 2))?;
    x = s.activation.apply(b, x, &format!("{stem}.activation"))?;
    x = convolution::max_pool(b, x, Window::centred(3, 2), &format!("{stem}.pooler"))?;
    let mut inner = s.embedding;
    let mut maps = Vec::new();
    for (stage, (&out, depth)) in s.hidden.iter().zip(&s.depths).enumerate() {
        for at in 0..depth.value {
            let stride = if at == 0 && (stage > 0 || s.downsample_first) { 2 } else { 1 };
            let path = format!("{path}encoder.stages.{stage}.layers.{at}");
            x = residual(b, s, x, &path, [out, inner], stride)?;
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
    channels: [Size; 2],
    window: Window,
) -> Result<ValueId, ModelError> {
    let modules = [format!("{path}.convolution"), format!("{path}.normalization")];
    convolution::normalized(b, x, [&modules[0], &modules[1]], channels, window)
}

fn residual(
    b: &mut Builder<'_>,
    s: &Settings,
    x: ValueId,
    path: &str,
    [out, inner]: [Size; 2],
    stride: usize,
) -> Result<ValueId, ModelError> {
    let narrow = Size::derived(out.value / REDUCTION, "an entry of hidden_sizes / 4");
    let (first, second) = if s.downsample_in_bottleneck { (stride, 1) } else { (1, stride) };
    let layers = match s.bottleneck {
        true => vec![
            ([narrow, inner], Window::centred(1, first)),
            ([narrow, narrow], Window::centred(3, second)),
            ([out, narrow], Window::centred(1, 1)),
        ],
        false => vec![([out, inner], Window::centred(3, stride)), ([out, out], Window::centred(3, 1))],
    };
    let mut y = x;
    for (at, (channels, window)) in layers.iter().enumerate() {
        let module = format!("{path}.layer.{at}");
        y = layer(b, y, &module, *channels, *window)?;
        // The last one has its activation after the sum.
        if at + 1 < layers.len() {
            // Whatever `hidden_act` says: the transformers library gives it to no convolution in a layer.
            y = Activation::RELU.apply(b, y, &format!("{module}.activation"))?;
        }
    }
    let shortcut = match inner.value != out.value || stride != 1 {
        true => layer(b, x, &format!("{path}.shortcut"), [out, inner], Window::centred(1, stride))?,
        false => x,
    };
    let sum = b.add(y, shortcut, &format!("{path}.add"))?;
    s.activation.apply(b, sum, &format!("{path}.activation"))
}
