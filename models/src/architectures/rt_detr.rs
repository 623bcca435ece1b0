//! RT-DETR (Zhao et al. 2023, arXiv:2304.08069; v2: Lv et al. 2024, arXiv:2407.17140), as `transformers/models/{rt_detr,rt_detr_v2}`
//! have them: maps of several sizes that a transformer and convolutions mix, the places of them that score best as queries, and a
//! decoder that takes samples of the maps at places that it computes. D-FINE is a form of it ([`fine`]). The graph takes images without padding; height and width
//! are multiples of the largest stride.

mod backbone;
mod decoder;
mod encoder;
mod fine;

pub(crate) use fine::ARCHITECTURE as D_FINE;
use fine::Fine;
use planish_ir::ValueId;
use planish_ir::ops::Attention;
use planish_ir::ops::Real;

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "rt_detr",
    class_prefix: "RTDetrFor",
    base: "model",
    other_bases: &[],
    renamed: &[
        ("out_proj", "o_proj"),
        (".fc1", ".mlp.fc1"),
        (".fc2", ".mlp.fc2"),
        ("encoder.encoder.", "encoder.aifi."),
    ],
    tasks: &[Task::ObjectDetection],
    keys: &[KEYS],
    older_keys: OLDER_KEYS,
    only: ONLY,
    irrelevant_keys: IRRELEVANT,
    unused_tensors: UNUSED,
    pad_token_id: None,
    gguf: None,
    build,
};

pub(crate) const V2: Architecture = Architecture {
    model_type: "rt_detr_v2",
    class_prefix: "RTDetrV2For",
    keys: &[KEYS, &["decoder_n_levels", "decoder_offset_scale"]],
    // The other one takes the nearest place in a way of its own.
    only: &[LEARNED, OF_TIMM[0], OF_TIMM[1], OF_TIMM[2], Only::Text("decoder_method", "default")],
    build: build_v2,
    ..ARCHITECTURE
};

const ONLY: &[Only] = &[LEARNED, OF_TIMM[0], OF_TIMM[1], OF_TIMM[2]];

/// The transformers library runs no model with it.
const LEARNED: Only = Only::Off("learn_initial_query");

/// A backbone of timm.
const OF_TIMM: [Only; 3] = [Only::Off("backbone"), Only::Off("backbone_kwargs"), Only::Off("use_timm_backbone")];

const KEYS: &[&str] = &[
    "activation_function",
    "backbone_config",
    "batch_norm_eps",
    "d_model",
    "decoder_activation_function",
    "decoder_attention_heads",
    "decoder_ffn_dim",
    "decoder_in_channels",
    "decoder_layers",
    "decoder_n_points",
    "encode_proj_layers",
    "encoder_activation_function",
    "encoder_attention_heads",
    "encoder_ffn_dim",
    "encoder_hidden_dim",
    "encoder_in_channels",
    "encoder_layers",
    "eval_size",
    "hidden_expansion",
    "layer_norm_eps",
    "normalize_before",
    "num_feature_levels",
    "num_queries",
    "positional_encoding_temperature",
];

const OLDER_KEYS: &[(&str, &str)] = &[("hidden_size", "d_model"), ("num_attention_heads", "encoder_attention_heads")];

/// What the model is anyway, how its code runs, and training. Places are the same whether their size is said or not.
const IRRELEVANT: &[&str] = &[
    "is_encoder_decoder",
    "activation_dropout",
    "anchor_image_size",
    "auxiliary_loss",
    "box_noise_scale",
    "disable_custom_kernels",
    "eos_coefficient",
    "feat_strides",
    "focal_loss_alpha",
    "focal_loss_gamma",
    "freeze_backbone_batch_norms",
    "initializer_bias_prior_prob",
    "label_noise_ratio",
    "matcher_alpha",
    "matcher_bbox_cost",
    "matcher_class_cost",
    "matcher_gamma",
    "matcher_giou_cost",
    // That of the backbone counts.
    "num_channels",
    "num_denoising",
    "use_focal_loss",
    "use_pretrained_backbone",
    "weight_loss_bbox",
    "weight_loss_giou",
    "weight_loss_vfl",
    "with_box_refine",
];

/// Training, then heads of layers but the last one, and what tensors that are shared are called too.
const UNUSED: &[&str] = &[
    ".num_batches_tracked",
    "denoising_class_embed.",
    "decoder.class_embed.",
    "class_embed.",
    "bbox_embed.",
    "anchors",
    "valid_mask",
];

/// The epsilon of norms of batches that convolutions have.
const BATCH_NORM_EPS: f64 = 1e-5;

/// The most maps of the decoder: from the sixth one on, all boxes around places are larger than the image.
const MOST_LEVELS: usize = 64;

/// How many blocks of two convolutions side by side are in a row in RT-DETR.
const BLOCKS: usize = 3;

/// Half of a transformer.
struct Half {
    hidden: Size,
    layers: usize,
    heads: Size,
    feed_forward: Size,
    activation: Activation,
}

/// The configuration in `config.json`.
struct Settings {
    encoder: Half,
    decoder: Half,
    /// Of the convolutions of the encoder.
    activation: Activation,
    norms_first: bool,
    eps: f64,
    /// The maps that the transformer of the encoder takes.
    attended: Vec<usize>,
    has_positions: bool,
    temperature: f64,
    /// The channels of the blocks of convolutions, and how many blocks of two convolutions side by side are in a row.
    narrow: Size,
    blocks: usize,
    queries: Size,
    /// Whether all layers may have the heads of the first one.
    shares_heads: bool,
    /// The channels of the encoder's maps, and how many maps the decoder takes.
    maps: Vec<Size>,
    levels: Size,
    /// How many samples each head takes of each map of the decoder.
    points: Vec<usize>,
    /// What the distance of a place from a query is multiplied by.
    offset_scale: f64,
    /// What D-FINE has besides.
    fine: Option<Fine>,
}

impl Settings {
    fn read(config: &Config<'_>, is_fine: bool) -> Result<Self, ModelError> {
        let half = |hidden: Size,
                    [layers, heads, feed_forward, activation]: [&'static str; 4],
                    default: [usize; 2],
                    function| {
            let heads = config.size(heads, 8)?;
            if !hidden.value.is_multiple_of(heads.value) {
                return Err(config.error(format!("{hidden} is not divisible by {heads}")));
            }
            let activation = Activation::read(config, activation, function)?;
            let [layers, wide] = [config.whole(layers, default[0])?, config.size(feed_forward, default[1])?.value];
            Ok(Half { hidden, layers, heads, feed_forward: Size::derived(wide, feed_forward), activation })
        };
        let encoded = config.size("encoder_hidden_dim", 256)?;
        let encoder = ["encoder_layers", "encoder_attention_heads", "encoder_ffn_dim", "encoder_activation_function"];
        let decoder = ["decoder_layers", "decoder_attention_heads", "decoder_ffn_dim", "decoder_activation_function"];
        let encoder = half(encoded, encoder, [1, 1024], "gelu")?;
        let decoder = half(config.size("d_model", 256)?, decoder, [6, 1024], "relu")?;
        if decoder.layers == 0 {
            return Err(config.error("`decoder_layers` is 0, and the last layer gives the boxes"));
        }
        let has_positions = config.get("eval_size").is_none();
        if has_positions && !encoded.value.is_multiple_of(4) {
            return Err(config.error(format!("{encoded} is not divisible by 4, as positions of rows and columns are")));
        }
        if config.positive("batch_norm_eps", BATCH_NORM_EPS)? != BATCH_NORM_EPS {
            return Err(config.error(format!("`batch_norm_eps` is supported as {BATCH_NORM_EPS} only")));
        }
        let maps = config.sizes("encoder_in_channels", &[512, 1024, 2048])?;
        let taken = config.as_many_sizes("decoder_in_channels", &vec![encoded.value; maps.len()], &maps)?;
        if let Some(other) = taken.iter().find(|size| size.value != encoded.value) {
            return Err(config.error(format!("an entry of {other}, but the encoder gives maps of {encoded}")));
        }
        let attended = config.layer_numbers("encode_proj_layers")?.unwrap_or_else(|| vec![2]);
        if let Some(number) = attended.iter().find(|number| **number >= maps.len()) {
            return Err(config.error(format!("`encode_proj_layers` names map {number}, and there are {}", maps.len())));
        }
        let levels = config.size("num_feature_levels", 3)?;
        if levels.value < maps.len() {
            return Err(config.error(format!("{levels}, but `encoder_in_channels` has {} entries", maps.len())));
        }
        if levels.value > MOST_LEVELS {
            return Err(config.error(format!("{levels}: {MOST_LEVELS} maps are supported at most")));
        }
        let points = if is_fine { fine::points(config, levels)? } else { same_points(config, levels)? };
        let expansion = config.positive("hidden_expansion", 1.0)?;
        let wide = encoded.value as f64 * expansion;
        let narrow = if is_fine { (wide / 2.0).floor() } else { wide } as usize;
        if !(1..=1 << 20).contains(&narrow) {
            return Err(config.error(format!("`hidden_expansion` is {expansion}: blocks would have {narrow} channels")));
        }
        Ok(Self {
            encoder,
            decoder,
            activation: Activation::read(config, "activation_function", "silu")?,
            norms_first: config.boolean("normalize_before", false)?,
            eps: config.positive("layer_norm_eps", 1e-5)?,
            attended,
            has_positions,
            temperature: config.positive("positional_encoding_temperature", 10_000.0)?,
            narrow: Size::derived(narrow, "encoder_hidden_dim * hidden_expansion"),
            blocks: BLOCKS,
            queries: config.size("num_queries", 300)?,
            shares_heads: false,
            maps,
            levels,
            points,
            offset_scale: 0.5,
            fine: None,
        })
    }
}

/// As many samples of each map.
fn same_points(config: &Config<'_>, levels: Size) -> Result<Vec<usize>, ModelError> {
    Ok(vec![config.size("decoder_n_points", 4)?.value; levels.value])
}

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config, false)?;
    build_with(b, &s)
}

fn build_v2(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    let offset_scale = b.config.not_negative("decoder_offset_scale", 0.5)?;
    let s = Settings { offset_scale, shares_heads: true, ..Settings::read(b.config, false)? };
    let levels = b.config.size("decoder_n_levels", 3)?;
    if levels.value != s.levels.value {
        return Err(b.config.error(format!("{levels}, but {}", s.levels)));
    }
    build_with(b, &s)
}

fn build_with(b: &mut Builder<'_>, s: &Settings) -> Result<Properties, ModelError> {
    let maps = backbone::of_resnet(b, s)?;
    let maps = s.encode(b, maps)?;
    s.decode(b, &maps)?;
    Ok(Properties::default())
}

impl Half {
    /// Attention of states to themselves, with positions added to queries and keys.
    fn attention(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        positions: Option<ValueId>,
        path: &str,
    ) -> Result<ValueId, ModelError> {
        let at = match positions {
            Some(positions) => b.add(x, positions, &format!("{path}.positions"))?,
            None => x,
        };
        let mut project = |x: ValueId, name: &str| b.linear(x, &format!("{path}.{name}"), self.hidden, self.hidden);
        let (q, k, v) = (project(at, "q_proj")?, project(at, "k_proj")?, project(x, "v_proj")?);
        let size = (self.hidden.value / self.heads.value) as f64;
        let attended = b.emit(Attention::new(q, k, v, self.heads.value, Real(1.0 / size.sqrt())), path)?;
        b.linear(attended, &format!("{path}.out_proj"), self.hidden, self.hidden)
    }

    fn feed_forward(&self, b: &mut Builder<'_>, x: ValueId, path: &str) -> Result<ValueId, ModelError> {
        let up = b.linear(x, &format!("{path}.fc1"), self.feed_forward, self.hidden)?;
        let active = self.activation.apply(b, up, &format!("{path}.activation"))?;
        b.linear(active, &format!("{path}.fc2"), self.hidden, self.feed_forward)
    }
}
