//! DPT (Ranftl et al. 2021, arXiv:2103.13413), as `transformers/models/dpt` has it: the tokens of some layers of ViT or DINOv2,
//! fused from the coarsest feature map to the finest.

use planish_ir::ops::{Concat, Expand};
use planish_ir::{Dim, ValueId};

use super::{dinov2, vit};
use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::Size;
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::convolution::{self, Window};
use crate::layers::fusion::{self, Neck, Patches};
use crate::layers::patches::{self, Images, Positions};
use crate::layers::resample::Filter;
use crate::layers::resize::{Interpolation, resize};
use crate::layers::vision::{self, Context, Defaults, Layers, Names};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "dpt",
    class_prefix: "DPT",
    base: "dpt",
    other_bases: &["backbone"],
    renamed: dinov2::RENAMED,
    tasks: &[Task::FeatureExtraction, Task::DepthEstimation, Task::SemanticSegmentation],
    keys: &[vision::KEYS, patches::KEYS, fusion::KEYS, KEYS, &["qkv_bias", "pooler_act", "pooler_output_size"]],
    older_keys: &[],
    only: &[
        Only::Off("backbone"),
        Only::Off("backbone_kwargs"),
        Only::Off("use_timm_backbone"),
        Only::Off("is_hybrid"),
    ],
    // Of hybrids with a convolutional backbone, and of training.
    irrelevant_keys: &[
        "auxiliary_loss_weight",
        "backbone_featmap_shape",
        "neck_ignore_stages",
        "semantic_classifier_dropout",
        "semantic_loss_ignore_index",
        "use_auxiliary_head",
        "use_pretrained_backbone",
    ],
    // Of other tasks and of training. The first layer of the neck has nothing to add to, and it takes states before the last norm.
    unused_tensors: &[
        ".num_batches_tracked",
        "auxiliary_head.",
        "embeddings.mask_token",
        "head.",
        "layernorm.",
        "neck.",
        "pooler.",
    ],
    pad_token_id: None,
    gguf: None,
    build,
};

const KEYS: &[&str] = &[
    "add_projection",
    "backbone_config",
    "backbone_out_indices",
    "readout_type",
    "use_batch_norm_in_fusion_residual",
    "use_bias_in_fusion_residual",
];

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let has_backbone = b.config.get("backbone_config").is_some();
    if has_backbone && task != Task::DepthEstimation {
        return Err(b
            .config
            .error(format!("`backbone_config` is of depth estimation: with it, {task} is not supported")));
    }
    if task == Task::FeatureExtraction {
        let (images, s) = read(b)?;
        let x = vit::embed(b, &images, &s, CLASS, POSITIONS)?;
        let x = s.apply(b, x, Context::default())?;
        let hidden = b.layer_norm(x, "layernorm", s.hidden, s.eps)?;
        vit::features(b, &s, hidden)?;
        return Ok(Properties::default());
    }
    let mut neck = Neck::read(b.config, &[96, 192, 384, 768], 256)?;
    neck.norms = b.config.boolean("use_batch_norm_in_fusion_residual", false)?;
    neck.bias = b.config.boolean("use_bias_in_fusion_residual", !neck.norms)?;
    let (tokens, sides, hidden) = match has_backbone {
        true => {
            let states = dinov2::backbone(b, None)?;
            (states.layers, states.sides, states.hidden)
        }
        false => own(b)?,
    };
    let mut layers = Vec::new();
    for (at, x) in tokens.into_iter().enumerate() {
        layers.push(read_out(b, x, &sides, hidden, at)?);
    }
    let fused = neck.apply(b, &Patches { layers, sides, hidden })?;
    match task {
        Task::SemanticSegmentation => segment(b, &neck, fused)?,
        _ => estimate(b, &neck, fused)?,
    }
    Ok(Properties::default())
}

const CLASS: &[&str] = &["embeddings.cls_token"];

const POSITIONS: Positions = Positions { before: 1, filter: Filter::Linear, is_square: true };

/// The configuration of the model's own ViT.
fn read(b: &Builder<'_>) -> Result<(Images, Layers), ModelError> {
    let images = Images::resizable(b.config, 384, 16, true)?;
    let mut s = Layers::read(b.config, &Defaults::VIT, &Names::VIT)?;
    s.qkv_bias = [b.config.boolean("qkv_bias", true)?; 3];
    Ok((images, s))
}

/// The tokens of the model's own ViT after some layers, the rows and columns of patches, and the features of a token.
fn own(b: &mut Builder<'_>) -> Result<(Vec<ValueId>, [Dim; 2], Size), ModelError> {
    const TAKEN: &str = "backbone_out_indices";
    let (images, s) = read(b)?;
    let [rows, columns] = images.grid();
    if rows != columns {
        return Err(b.config.error(format!(
            "`image_size` and `patch_size` give {rows} x {columns} patches: the neck takes a square of them"
        )));
    }
    let mut taken = b.config.layer_numbers(TAKEN)?.unwrap_or_else(|| vec![2, 5, 8, 11]);
    taken.sort_unstable();
    taken.dedup();
    if let Some(at) = taken.iter().find(|at| **at >= s.count.value) {
        return Err(b.config.error(format!("`{TAKEN}` has {at}, but there are {}: the first is 0", s.count)));
    }
    let x = vit::embed(b, &images, &s, CLASS, POSITIONS)?;
    let states = s.states(b, x, taken.last().map_or(0, |last| last + 1))?;
    Ok((taken.iter().map(|at| states[at + 1]).collect(), [rows, columns].map(patches::dim), s.hidden))
}

/// The tokens of patches with what the token before them says: [batch_size, 1 + patches, hidden] to [batch_size, patches, hidden].
fn read_out(b: &mut Builder<'_>, x: ValueId, sides: &[Dim; 2], hidden: Size, at: usize) -> Result<ValueId, ModelError> {
    const KIND: &str = "readout_type";
    let path = format!("neck.reassemble_stage.readout_projects.{at}");
    let tokens = patches::after_first(b, x, sides, &format!("{path}.patches"))?;
    let kind = b.config.text(KIND, "project")?;
    if kind == "ignore" {
        return Ok(tokens);
    }
    let class = patches::between(b, x, [0, 1], &format!("{path}.class"))?;
    match kind {
        "add" => b.add(tokens, class, &format!("{path}.add")),
        "project" => {
            let activation = Activation::read(b.config, "hidden_act", "gelu")?;
            let shape = b.graph.ty(tokens).shape.clone();
            let class = b.emit(Expand { x: class, shape }, &format!("{path}.expand"))?;
            let both = b.emit(Concat { parts: vec![tokens, class], axis: 2 }, &format!("{path}.concat"))?;
            let twice = Size::derived(2 * hidden.value, "2 * hidden_size");
            let projected = b.linear(both, &format!("{path}.0"), hidden, twice)?;
            activation.apply(b, projected, &format!("{path}.1"))
        }
        _ => Err(b.config.error(format!("`{KIND}` is \"{kind}\", expected \"ignore\", \"add\" or \"project\""))),
    }
}

/// `predicted_depth`.
fn estimate(b: &mut Builder<'_>, neck: &Neck, x: ValueId) -> Result<(), ModelError> {
    // The channels that the transformers library has, whatever the configuration says.
    let projected = Size::derived(256, "channels of the projection before the head");
    let (inner, one) = (Size::derived(32, "channels of the head"), Size::derived(1, "one depth"));
    let half = fusion::half(neck.fused);
    let mut x = x;
    if b.config.boolean("add_projection", false)? {
        if neck.fused.value != projected.value {
            let [fused, wanted] = [neck.fused, projected];
            return Err(b.config.error(format!("`add_projection` is true, which needs {}, but {fused}", wanted.value)));
        }
        x = convolution::conv(b, x, "head.projection", [projected; 2], Window::centred(3, 1), true)?;
        x = Activation::RELU.apply(b, x, "head.projection.activation")?;
    }
    let x = convolution::conv(b, x, "head.head.0", [half, neck.fused], Window::centred(3, 1), true)?;
    let sides = fusion::multiplied(b, &fusion::sides(b, x)?, 2)?;
    let x = resize(b, x, sides, Interpolation::LinearCorners, "head.head.1")?;
    let x = convolution::conv(b, x, "head.head.2", [inner, half], Window::centred(3, 1), true)?;
    let x = Activation::RELU.apply(b, x, "head.head.3")?;
    let x = convolution::conv(b, x, "head.head.4", [one, inner], Window::centred(1, 1), true)?;
    let x = Activation::RELU.apply(b, x, "head.head.5")?;
    let depth = fusion::squeezed(b, x, "head.depth")?;
    b.give(names::DEPTH, depth);
    Ok(())
}

/// `logits` of labels.
fn segment(b: &mut Builder<'_>, neck: &Neck, x: ValueId) -> Result<(), ModelError> {
    let labels = b.config.labels()?;
    let modules = ["head.head.0", "head.head.1"];
    let x = convolution::normalized(b, x, modules, [neck.fused; 2], Window::centred(3, 1))?;
    let x = Activation::RELU.apply(b, x, "head.head.2")?;
    let x = convolution::conv(b, x, "head.head.4", [labels, neck.fused], Window::centred(1, 1), true)?;
    let sides = fusion::multiplied(b, &fusion::sides(b, x)?, 2)?;
    let logits = resize(b, x, sides, Interpolation::LinearCorners, "head.head.5")?;
    b.give(names::LOGITS, logits);
    Ok(())
}
