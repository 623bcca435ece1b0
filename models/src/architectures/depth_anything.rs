//! Depth Anything (Yang et al. 2024, arXiv:2401.10891 and arXiv:2406.09414), as `transformers/models/depth_anything` has it: the
//! tokens of some layers of DINOv2, fused by the neck of a dense prediction transformer.

use planish_ir::ops::BinaryKind;
use planish_ir::{Dim, ValueId};

use super::dinov2;
use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::Size;
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::convolution::{self, Window};
use crate::layers::fusion::{self, Neck, Patches};
use crate::layers::patches;
use crate::layers::resize::{Interpolation, resize};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "depth_anything",
    class_prefix: "DepthAnything",
    base: "backbone",
    other_bases: &[],
    renamed: dinov2::RENAMED,
    tasks: &[Task::DepthEstimation],
    keys: &[
        fusion::KEYS,
        &[
            "backbone_config",
            "depth_estimation_type",
            "head_hidden_size",
            "max_depth",
            "patch_size",
            "reassemble_hidden_size",
        ],
    ],
    older_keys: &[],
    only: &[Only::Off("backbone"), Only::Off("backbone_kwargs"), Only::Off("use_timm_backbone")],
    irrelevant_keys: &["use_pretrained_backbone"],
    // What masked patches are replaced by in training, and the norm of a backbone whose states are taken without it. The first layer
    // of the neck has nothing to add to.
    unused_tensors: &["embeddings.mask_token", "layernorm.", "neck.fusion_stage.layers.0.residual_layer1."],
    pad_token_id: None,
    gguf: None,
    build,
};

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    let neck = Neck { follows: true, ..Neck::read(b.config, &[48, 96, 192, 384], 64)? };
    let patch = b.config.size("patch_size", 14)?;
    let reassembled = b.config.size("reassemble_hidden_size", 384)?;
    let backbone = dinov2::backbone(b, Some(patch))?;
    if backbone.hidden.value != reassembled.value {
        return Err(b.config.error(format!("{reassembled}, but {} of the backbone", backbone.hidden)));
    }
    let (sides, hidden) = (backbone.sides, backbone.hidden);
    let mut layers = Vec::new();
    for (at, x) in backbone.layers.into_iter().enumerate() {
        layers.push(patches::after_first(b, x, &sides, &format!("neck.reassemble_stage.patches.{at}"))?);
    }
    let fused = neck.apply(b, &Patches { layers, sides: sides.clone(), hidden })?;
    let sides = fusion::multiplied(b, &sides, patch.value)?;
    let depth = head(b, &neck, fused, sides)?;
    b.give(names::DEPTH, depth);
    Ok(Properties::default())
}

/// The depth of each pixel: [batch_size, height, width].
fn head(b: &mut Builder<'_>, neck: &Neck, x: ValueId, sides: [Dim; 2]) -> Result<ValueId, ModelError> {
    const KIND: &str = "depth_estimation_type";
    let one = Size::derived(1, "one depth");
    let (half, inner) = (fusion::half(neck.fused), b.config.size("head_hidden_size", 32)?);
    let last = match b.config.text(KIND, "relative")? {
        "relative" => Activation::RELU,
        "metric" => Activation::SIGMOID,
        other => {
            return Err(b.config.error(format!("`{KIND}` is \"{other}\", expected \"relative\" or \"metric\"")));
        }
    };
    let most = b.config.positive("max_depth", 1.0)?;
    let x = convolution::conv(b, x, "head.conv1", [half, neck.fused], Window::centred(3, 1), true)?;
    let x = resize(b, x, sides, Interpolation::LinearCorners, "head.upsample")?;
    let x = convolution::conv(b, x, "head.conv2", [inner, half], Window::centred(3, 1), true)?;
    let x = Activation::RELU.apply(b, x, "head.activation1")?;
    let x = convolution::conv(b, x, "head.conv3", [one, inner], Window::centred(1, 1), true)?;
    let x = last.apply(b, x, "head.activation2")?;
    let x = match most {
        1.0 => x,
        // Of relative depths too, as the transformers library has it.
        most => b.with_number(BinaryKind::Mul, x, most, "head.max_depth", "max_depth")?,
    };
    fusion::squeezed(b, x, "head.depth")
}
