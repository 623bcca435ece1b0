//! ViTPose (Xu et al. 2022, arXiv:2204.12484), as `transformers/models/vitpose` and `vitpose_backbone` have it: ViT without a token
//! of the class, and a head that gives a heatmap of each key point.

use planish_ir::ValueId;

use crate::accept::{end_section, section};
use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{MAX_SIZE, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::convolution::{self, Window};
use crate::layers::fusion;
use crate::layers::patches::{self, Images};
use crate::layers::resize::{Interpolation, resize};
use crate::layers::transposed;
use crate::layers::vision::{self, Defaults, Layers, Names, RENAMED};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "vitpose",
    class_prefix: "VitPose",
    base: "backbone",
    other_bases: &[],
    renamed: RENAMED,
    tasks: &[Task::KeypointDetection],
    keys: &[&["backbone_config", "scale_factor", "use_simple_decoder"]],
    older_keys: &[],
    only: &[Only::Off("backbone"), Only::Off("backbone_kwargs"), Only::Off("use_timm_backbone")],
    irrelevant_keys: &["use_pretrained_backbone"],
    unused_tensors: &[".num_batches_tracked"],
    pad_token_id: None,
    gguf: None,
    build,
};

const BACKBONE: Architecture = Architecture {
    model_type: "vitpose_backbone",
    keys: &[
        vision::KEYS_OF_RATIO,
        patches::KEYS,
        &["mlp_ratio", "num_experts", "out_features", "out_indices", "qkv_bias"],
    ],
    // Of a mixture of experts.
    irrelevant_keys: &["part_features", "stage_names"],
    ..ARCHITECTURE
};

const NAMES: Names = Names { up: "mlp.fc1", down: "mlp.fc2", ..Names::VIT };

/// What is around images, in pixels, whatever the configuration says.
const PADDING: usize = 2;

/// The channels inside of the classic decoder, whatever the configuration says.
const INNER: usize = 256;

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    let (x, hidden) = backbone(b)?;
    let labels = b.config.labels()?;
    let heatmaps = match b.config.boolean("use_simple_decoder", true)? {
        true => {
            let factor = b.config.size("scale_factor", 4)?;
            let active = Activation::RELU.apply(b, x, "head.activation")?;
            let sides = fusion::multiplied(b, &fusion::sides(b, active)?, factor.value)?;
            let larger = resize(b, active, sides, Interpolation::Linear, "head.upsampling")?;
            convolution::conv(b, larger, "head.conv", [labels, hidden], Window::centred(3, 1), true)?
        }
        false => {
            let inner = Size::derived(INNER, "channels of the classic decoder");
            let (mut x, mut from) = (x, hidden);
            for i in [1, 2] {
                let modules = [format!("head.deconv{i}"), format!("head.batchnorm{i}")];
                let modules = [modules[0].as_str(), modules[1].as_str()];
                x = transposed::normalized_transpose(
                    b,
                    x,
                    modules,
                    [inner, from],
                    Window { kernel: 4, stride: 2, padding: 1, dilation: 1 },
                )?;
                x = Activation::RELU.apply(b, x, &format!("head.relu{i}"))?;
                from = inner;
            }
            convolution::conv(b, x, "head.conv", [labels, inner], Window::centred(1, 1), true)?
        }
    };
    b.give(names::HEATMAPS, heatmaps);
    Ok(Properties::default())
}

/// The feature map of the last stage that is taken: [batch_size, hidden, rows, columns].
fn backbone(b: &mut Builder<'_>) -> Result<(ValueId, Size), ModelError> {
    const DEFAULTS: Defaults = Defaults::VIT;
    const POSITIONS: &str = "embeddings.position_embeddings";
    let config = section(b.config, &["backbone_config"], &BACKBONE)?;
    if let Some(count) = config.given_size(&["num_experts"])?.filter(|count| count.value > 1) {
        return Err(config.error(format!(
            "{count}: a backbone with experts for each data set is not supported; take a ViTPose without them"
        )));
    }
    let mut images = Images::read(&config, 256, 16)?;
    if config.get("image_size").is_none() {
        images.image = [256, 192];
    }
    let [tall, wide] = images.patch;
    if tall != wide {
        return Err(config.error(format!("`patch_size` is {tall} x {wide}: only squares are supported")));
    }
    let hidden = config.size("hidden_size", DEFAULTS.hidden)?;
    let features = (hidden.value as f64 * config.positive("mlp_ratio", 4.0)?).floor();
    if !(1.0..=MAX_SIZE as f64).contains(&features) {
        return Err(config.error(format!("`mlp_ratio` gives {features} features of {hidden}: at most {MAX_SIZE}")));
    }
    let intermediate = Size::derived(features as usize, "hidden_size * mlp_ratio");
    let mut s = Layers::of(&config, &DEFAULTS, &NAMES, intermediate)?;
    s.qkv_bias = [config.boolean("qkv_bias", true)?; 3];
    let Some(stage) = config.stages(s.count.value)?.last().copied() else {
        unreachable!("there is one stage at least");
    };
    end_section(b.config, &config, &BACKBONE);

    let pixels = images.pixels(b)?;
    let window = Window { kernel: tall, stride: tall, padding: PADDING, dilation: 1 };
    let channels = [s.hidden, images.channels];
    let map = convolution::conv(b, pixels, "embeddings.patch_embeddings.projection", channels, window, true)?;
    let sides = fusion::sides(b, map)?;
    if sides != images.grid().map(patches::dim) {
        let [rows, columns] = images.grid();
        return Err(config.error(format!(
            "with {PADDING} pixels around them, images of `image_size` have {} x {} patches, but positions are of {rows} x {columns}",
            sides[0], sides[1]
        )));
    }
    let tokens = convolution::tokens(b, map, "embeddings.patch_embeddings")?;
    let (one, count) = (Size::derived(1, "one image"), 1 + images.patches());
    let counted = Size::derived(count, "tokens by `image_size` and `patch_size`");
    let stored = b.weight(&[POSITIONS], &[one, counted, s.hidden])?;
    let of_class = patches::between(b, stored, [0, 1], "embeddings.position_of_class")?;
    let of_patches = patches::between(b, stored, [1, count], "embeddings.positions_of_patches")?;
    let positions = b.add(of_patches, of_class, &format!("{POSITIONS}.add"))?;
    let x = b.add(tokens, positions, "embeddings.add")?;
    let states = s.states(b, x, stage)?;
    let normal = b.layer_norm(states[stage], "layernorm", s.hidden, s.eps)?;
    Ok((convolution::map(b, normal, sides, s.hidden, "feature_map")?, s.hidden))
}
