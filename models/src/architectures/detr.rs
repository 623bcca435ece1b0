//! DETR (Carion et al. 2020, arXiv:2005.12872) and the Table Transformer (Smock et al. 2021, arXiv:2110.00061), as
//! `transformers/models/{detr,table_transformer}` have them: a transformer over the places of the last map of a ResNet, and one
//! over the queries for objects, which attends to them. The graph takes images without padding, of any size.

pub(super) mod backbone;
mod masks;
mod transformer;

use planish_ir::ops::Expand;
use planish_ir::{Dim, Shape, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::builder::{BATCH, Builder};
use crate::layers::convolution::{self, Window};
use crate::layers::detection;
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "detr",
    class_prefix: "Detr",
    base: "model",
    // Of a model of segments, around the model and around its heads.
    other_bases: &["detr.model", "detr"],
    renamed: RENAMED,
    tasks: &[Task::ObjectDetection, Task::FeatureExtraction, Task::ImageSegmentation],
    keys: &[KEYS, backbone::KEYS],
    older_keys: OLDER_KEYS,
    only: ONLY,
    irrelevant_keys: IRRELEVANT,
    unused_tensors: UNUSED,
    pad_token_id: None,
    gguf: None,
    build,
};

pub(crate) const TABLE: Architecture = Architecture {
    model_type: "table-transformer",
    class_prefix: "TableTransformer",
    base: "model",
    other_bases: &[],
    renamed: &[],
    tasks: &[Task::ObjectDetection, Task::FeatureExtraction],
    keys: &[KEYS, backbone::KEYS],
    older_keys: OLDER_KEYS,
    only: ONLY,
    irrelevant_keys: IRRELEVANT,
    unused_tensors: UNUSED,
    pad_token_id: None,
    gguf: None,
    build: build_table,
};

const KEYS: &[&str] = &[
    "activation_function",
    "auxiliary_loss",
    "d_model",
    "decoder_attention_heads",
    "decoder_ffn_dim",
    "decoder_layers",
    "encoder_attention_heads",
    "encoder_ffn_dim",
    "encoder_layers",
    "num_queries",
    "position_embedding_type",
];

const OLDER_KEYS: &[(&str, &str)] = &[
    ("hidden_size", "d_model"),
    ("num_attention_heads", "encoder_attention_heads"),
    ("num_hidden_layers", "encoder_layers"),
];

const ONLY: &[Only] = &[];

/// What the models are anyway, then training, its losses, and what was said twice.
const IRRELEVANT: &[&str] = &[
    "is_encoder_decoder",
    "activation_dropout",
    "backbone_dropout",
    "bbox_cost",
    "bbox_loss_coefficient",
    "class_cost",
    "decoder_layerdrop",
    "dice_loss_coefficient",
    "encoder_layerdrop",
    "eos_coefficient",
    "giou_cost",
    "giou_loss_coefficient",
    "init_std",
    "init_xavier_std",
    "mask_loss_coefficient",
    "max_position_embeddings",
    "scale_embedding",
    "use_pretrained_backbone",
];

/// The count of batches in training, then heads of other tasks.
const UNUSED: &[&str] =
    &[".num_batches_tracked", "class_labels_classifier.", "bbox_predictor.", "mask_head.", "bbox_attention."];

/// What transformers 5 calls the modules.
const RENAMED: &[(&str, &str)] = &[
    ("backbone.conv_encoder", "backbone"),
    ("out_proj", "o_proj"),
    (".fc1", ".mlp.fc1"),
    (".fc2", ".mlp.fc2"),
    ("bbox_attention.q_linear", "bbox_attention.q_proj"),
    ("bbox_attention.k_linear", "bbox_attention.k_proj"),
    ("mask_head.lay1", "mask_head.conv1.conv"),
    ("mask_head.gn1", "mask_head.conv1.norm"),
    ("mask_head.lay2", "mask_head.conv2.conv"),
    ("mask_head.gn2", "mask_head.conv2.norm"),
    ("mask_head.adapter1", "mask_head.fpn_stages.0.fpn_adapter"),
    ("mask_head.lay3", "mask_head.fpn_stages.0.refine.conv"),
    ("mask_head.gn3", "mask_head.fpn_stages.0.refine.norm"),
    ("mask_head.adapter2", "mask_head.fpn_stages.1.fpn_adapter"),
    ("mask_head.lay4", "mask_head.fpn_stages.1.refine.conv"),
    ("mask_head.gn4", "mask_head.fpn_stages.1.refine.norm"),
    ("mask_head.adapter3", "mask_head.fpn_stages.2.fpn_adapter"),
    ("mask_head.lay5", "mask_head.fpn_stages.2.refine.conv"),
    ("mask_head.gn5", "mask_head.fpn_stages.2.refine.norm"),
    ("mask_head.out_lay", "mask_head.output_conv"),
];

/// Half of a transformer.
struct Half {
    layers: Size,
    heads: Size,
    feed_forward: Size,
}

/// The configuration in `config.json`.
struct Settings {
    hidden: Size,
    encoder: Half,
    decoder: Half,
    queries: Size,
    activation: Activation,
    /// Whether norms come before attention and feed-forward, and the encoder ends with one.
    norms_first: bool,
    /// Whether the last norm of the decoder is that of what each layer gives too.
    norms_each: bool,
    /// Whether positions are learned, and not waves.
    learns_positions: bool,
}

impl Settings {
    fn read(config: &Config<'_>, norms_first: bool) -> Result<Self, ModelError> {
        let hidden = config.size("d_model", 256)?;
        let half = |[layers, heads, feed_forward]: [&'static str; 3]| -> Result<Half, ModelError> {
            let heads = config.size(heads, 8)?;
            match hidden.value.is_multiple_of(heads.value) {
                true => {
                    Ok(Half { layers: config.size(layers, 6)?, heads, feed_forward: config.size(feed_forward, 2048)? })
                }
                false => Err(config.error(format!("{hidden} is not divisible by {heads}"))),
            }
        };
        let learns_positions = match config.text("position_embedding_type", "sine")? {
            "sine" => false,
            "learned" => true,
            other => {
                let expected = "\"sine\" or \"learned\"";
                return Err(config.error(format!("`position_embedding_type` is \"{other}\", expected {expected}")));
            }
        };
        // Half of the features are of rows and half of columns, and waves come in pairs.
        let parts = if learns_positions { 2 } else { 4 };
        if !hidden.value.is_multiple_of(parts) {
            return Err(
                config.error(format!("{hidden} is not divisible by {parts}, as positions of rows and columns are"))
            );
        }
        Ok(Self {
            hidden,
            encoder: half(["encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"])?,
            decoder: half(["decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"])?,
            queries: config.size("num_queries", 100)?,
            activation: Activation::read(config, "activation_function", "relu")?,
            norms_first,
            norms_each: config.boolean("auxiliary_loss", false)?,
            learns_positions,
        })
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config, false)?;
    build_with(b, &s, task)
}

fn build_table(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config, true)?;
    build_with(b, &s, task)
}

fn build_with(b: &mut Builder<'_>, s: &Settings, task: Task) -> Result<Properties, ModelError> {
    let maps = backbone::maps(b)?;
    let Some(&(last, channels)) = maps.last() else { unreachable!("a backbone gives a map at least") };
    let projected = convolution::conv(b, last, "input_projection", [s.hidden, channels], Window::patches(1), true)?;
    let [_, _, height, width] = convolution::dims(b, projected)?;
    let sides = [height, width];
    let places = convolution::tokens(b, projected, "input_projection")?;
    let positions = transformer::positions(b, s, &sides)?;
    let memory = s.encode(b, places, positions)?;
    let found = s.decode(b, memory, positions)?;
    if task == Task::FeatureExtraction {
        b.give(names::HIDDEN, found);
        return Ok(Properties::default());
    }
    let labels = b.config.labels()?;
    let logits =
        b.linear(found, "class_labels_classifier", Size::derived(labels.value + 1, "labels and no object"), s.hidden)?;
    b.give(names::LOGITS, logits);
    detection::boxes(b, found, "bbox_predictor", s.hidden)?;
    if task == Task::ImageSegmentation {
        masks::masks(b, s, &maps, [projected, memory, found], &sides)?;
    }
    Ok(Properties::default())
}

/// A value for each image.
fn for_each(b: &mut Builder<'_>, x: ValueId, dims: [Dim; 2], module: &str) -> Result<ValueId, ModelError> {
    let shape = Shape::new([Dim::symbol(BATCH)].into_iter().chain(dims));
    b.emit(Expand { x, shape }, &format!("{module}.expand"))
}
