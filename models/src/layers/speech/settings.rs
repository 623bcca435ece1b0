//! The configuration of encoders of speech.

use crate::ModelError;
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::relative::Buckets;

/// Keys of the convolutions of a waveform.
pub(crate) const FRONT_KEYS: &[&str] =
    &["conv_bias", "conv_dim", "conv_kernel", "conv_stride", "feat_extract_activation"];

/// Keys of the transformer and of the heads that all types have.
pub(crate) const ENCODER_KEYS: &[&str] = &[
    "classifier_proj_size",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "layer_norm_eps",
    "num_attention_heads",
    "num_hidden_layers",
    "use_weighted_layer_sum",
    "vocab_size",
];

/// Keys of the convolution that tells positions.
pub(crate) const POSITION_KEYS: &[&str] = &["num_conv_pos_embedding_groups", "num_conv_pos_embeddings"];

/// The keys of norms that some types read.
pub(crate) const NORM_KEYS: &[&str] = &["do_stable_layer_norm", "feat_extract_norm"];

/// Keys of the convolutions after the transformer.
pub(crate) const ADAPTER_KEYS: &[&str] =
    &["adapter_kernel_size", "adapter_stride", "add_adapter", "num_adapter_layers", "output_hidden_size"];

/// Keys of the layers of each language in the checkpoints of MMS.
pub(crate) const ATTENTION_ADAPTER_KEYS: &[&str] = &["adapter_attn_dim"];

/// Keys of the head of vectors of voices.
pub(crate) const XVECTOR_KEYS: &[&str] = &["tdnn_dilation", "tdnn_dim", "tdnn_kernel", "xvector_output_dim"];

/// Keys of training, and one that follows from the list of convolutions.
pub(crate) const IRRELEVANT: &[&str] = &[
    "activation_dropout",
    "apply_spec_augment",
    "codevector_dim",
    "conformer_conv_dropout",
    "contrastive_logits_temperature",
    "ctc_loss_reduction",
    "ctc_zero_infinity",
    "diversity_loss_weight",
    "feat_extract_dropout",
    "feat_proj_dropout",
    "feat_quantizer_dropout",
    "final_dropout",
    "freeze_feat_extract_train",
    "hidden_dropout",
    "layerdrop",
    "mask_channel_length",
    "mask_channel_min_space",
    "mask_channel_other",
    "mask_channel_prob",
    "mask_channel_selection",
    "mask_feature_length",
    "mask_feature_min_masks",
    "mask_feature_prob",
    "mask_time_length",
    "mask_time_min_masks",
    "mask_time_min_space",
    "mask_time_other",
    "mask_time_prob",
    "mask_time_selection",
    // Positions of conformers are computed for recordings of any length.
    "max_source_positions",
    "no_mask_channel_overlap",
    "no_mask_time_overlap",
    "num_clusters",
    "num_codevector_groups",
    "num_codevectors_per_group",
    "num_ctc_classes",
    "num_feat_extract_layers",
    "num_negatives",
    // The blank.
    "pad_token_id",
    "proj_codevector_dim",
    "replace_prob",
];

/// Tensors of training, and of heads of other tasks.
pub(crate) const UNUSED: &[&str] = &[
    "masked_spec_embed",
    ".num_batches_tracked",
    // Conformers do not take it.
    "encoder.pos_conv_embed.",
    "quantizer.",
    "project_hid.",
    "project_q.",
    "ctc_proj.",
    "speaker_proj.",
    "label_embeddings_concat",
    "lm_head.",
    "projector.",
    "layer_weights",
    "classifier.",
    "tdnn.",
    "feature_extractor.weight",
    "feature_extractor.bias",
    "objective.",
];

/// What types of one family do differently.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    /// Whether the configuration says which norms there are (`feat_extract_norm`, `do_stable_layer_norm`); else each convolution
    /// has one, and norms stand after sums.
    pub(crate) chooses_norms: bool,
    pub(crate) positions: Positions,
    /// Whether the configuration says if the projection of features has a norm (`feat_proj_layer_norm`).
    pub(crate) chooses_projection_norm: bool,
    /// Whether convolutions may stand after the transformer (`add_adapter`).
    pub(crate) has_adapter: bool,
    /// Whether layers may have two projections for a language (`adapter_attn_dim`).
    pub(crate) has_attention_adapter: bool,
    /// Whether scores have an addend of relative positions that depends on the query.
    pub(crate) is_gated: bool,
    /// Whether layers are those of a conformer.
    pub(crate) is_conformer: bool,
    /// Whether there are heads of frames and of vectors of voices.
    pub(crate) has_xvectors: bool,
}

/// The convolutions that tell positions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Positions {
    /// One with weight norm.
    WeightNorm,
    /// The same, or with a batch norm before it (`conv_pos_batch_norm`).
    WeightOrBatchNorm,
    /// Several with norms after each (`conv_pos_kernel_size`).
    Several,
}

/// A convolution of the waveform.
#[derive(Clone, Copy)]
pub(crate) struct FrontLayer {
    pub(crate) channels: Size,
    pub(crate) kernel: Size,
    pub(crate) stride: Size,
}

/// Where the convolutions of the waveform have norms.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrontNorm {
    /// The first one, over time.
    Group,
    /// Each, over channels.
    Layer,
}

/// The convolutions of a waveform.
pub(crate) struct Front {
    pub(crate) layers: Vec<FrontLayer>,
    pub(crate) bias: bool,
    pub(crate) norm: FrontNorm,
    pub(crate) activation: Activation,
}

impl Front {
    pub(crate) fn read(config: &Config<'_>, chooses_norm: bool) -> Result<Self, ModelError> {
        let channels = config.sizes("conv_dim", &[512; 7])?;
        let kernels = config.sizes("conv_kernel", &[10, 3, 3, 3, 3, 2, 2])?;
        let strides = config.sizes("conv_stride", &[5, 2, 2, 2, 2, 2, 2])?;
        let counts = [&channels, &kernels, &strides].map(Vec::len);
        if counts != [channels.len(); 3] {
            let [channels, kernels, strides] = counts;
            return Err(config.error(format!(
                "`conv_dim` has {channels} entries, `conv_kernel` {kernels} and `conv_stride` {strides}: each has one for each \
                 convolution"
            )));
        }
        let norm = match chooses_norm {
            false => FrontNorm::Layer,
            true => match config.text("feat_extract_norm", "group")? {
                "group" => FrontNorm::Group,
                "layer" => FrontNorm::Layer,
                other => {
                    return Err(
                        config.error(format!("`feat_extract_norm` is \"{other}\", expected \"group\" or \"layer\""))
                    );
                }
            },
        };
        let layers = channels.into_iter().zip(kernels).zip(strides);
        let layers = layers.map(|((channels, kernel), stride)| FrontLayer { channels, kernel, stride });
        Ok(Self {
            layers: layers.collect(),
            bias: config.boolean("conv_bias", false)?,
            norm,
            activation: Activation::read(config, "feat_extract_activation", "gelu")?,
        })
    }

    /// The channels of the last convolution.
    pub(crate) fn features(&self) -> Size {
        self.layers.last().map_or(Size::derived(1, "a waveform"), |layer| layer.channels)
    }
}

/// The convolutions after the transformer.
pub(crate) struct Adapter {
    /// The features that they have.
    pub(crate) features: Size,
    pub(crate) kernel: Size,
    pub(crate) stride: Size,
    pub(crate) layers: usize,
}

/// The head of vectors of voices: time-delay layers, as channels, kernel and dilation.
pub(crate) struct XVector {
    pub(crate) layers: Vec<[Size; 3]>,
    pub(crate) features: Size,
}

/// An encoder of speech.
pub(crate) struct Settings {
    pub(crate) front: Front,
    /// Whether features have a norm before their projection.
    pub(crate) projection_norm: bool,
    pub(crate) hidden: Size,
    pub(crate) intermediate: Size,
    pub(crate) heads: Size,
    pub(crate) layers: Size,
    pub(crate) activation: Activation,
    pub(crate) eps: f64,
    /// Whether norms stand before attention and feed-forward.
    pub(crate) norms_first: bool,
    pub(crate) positions: Positions,
    /// The frames that a convolution of positions covers, how many convolutions there are, and the groups of channels.
    pub(crate) position_kernel: Size,
    pub(crate) position_layers: usize,
    pub(crate) position_groups: Size,
    /// Whether there is a batch norm before the convolution of positions.
    pub(crate) position_batch_norm: bool,
    pub(crate) adapter: Option<Adapter>,
    pub(crate) attention_adapter: Option<Size>,
    /// The buckets of relative positions, and how many there are.
    pub(crate) buckets: Option<(Buckets, Size)>,
    pub(crate) head: Head,
}

/// What heads are made of.
pub(crate) struct Head {
    pub(crate) vocabulary: Size,
    /// The features of the encoder's layers.
    pub(crate) hidden: Size,
    /// The features of what the whole encoder gives.
    pub(crate) features: Size,
    pub(crate) projected: Size,
    /// Whether heads take a weighted sum of what all layers give.
    pub(crate) sums_layers: bool,
    pub(crate) xvector: Option<XVector>,
}

impl Head {
    /// Reads the keys of heads after layers of `hidden` features; without its key the projection of a classifier has `projected`.
    pub(crate) fn read(
        config: &Config<'_>,
        hidden: Size,
        adapter: Option<&Adapter>,
        projected: usize,
        has_xvectors: bool,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            vocabulary: config.size("vocab_size", 32)?,
            hidden,
            features: adapter.map_or(hidden, |adapter| adapter.features),
            projected: config.size("classifier_proj_size", projected)?,
            sums_layers: config.boolean("use_weighted_layer_sum", false)?,
            xvector: if has_xvectors { Some(xvector(config)?) } else { None },
        })
    }
}

impl Settings {
    /// Reads the configuration of a type.
    pub(crate) fn read(config: &Config<'_>, family: Family) -> Result<Self, ModelError> {
        let hidden = config.size("hidden_size", 768)?;
        let (kernel, count) = match family.positions {
            Positions::Several => {
                (config.size("conv_pos_kernel_size", 19)?, config.size("num_conv_pos_embeddings", 5)?.value)
            }
            Positions::WeightNorm | Positions::WeightOrBatchNorm => (config.size("num_conv_pos_embeddings", 128)?, 1),
        };
        let batch_norm = family.positions == Positions::WeightOrBatchNorm;
        let adapter = if family.has_adapter { adapter(config, hidden, 3)? } else { None };
        let head = Head::read(config, hidden, adapter.as_ref(), 256, family.has_xvectors)?;
        let s = Self {
            front: Front::read(config, family.chooses_norms)?,
            projection_norm: !family.chooses_projection_norm || config.boolean("feat_proj_layer_norm", true)?,
            hidden,
            intermediate: config.size("intermediate_size", 3072)?,
            heads: config.size("num_attention_heads", 12)?,
            layers: config.size("num_hidden_layers", 12)?,
            activation: Activation::read(config, "hidden_act", "gelu")?,
            eps: config.positive("layer_norm_eps", 1e-5)?,
            norms_first: family.chooses_norms && config.boolean("do_stable_layer_norm", false)?,
            positions: family.positions,
            position_kernel: kernel,
            position_layers: count,
            position_groups: config.size("num_conv_pos_embedding_groups", 16)?,
            position_batch_norm: batch_norm && config.boolean("conv_pos_batch_norm", false)?,
            adapter,
            attention_adapter: match family.has_attention_adapter {
                true if config.get("adapter_attn_dim").is_some() => config.given_size(ATTENTION_ADAPTER_KEYS)?,
                true | false => None,
            },
            buckets: if family.is_gated { Some(buckets(config)?) } else { None },
            head,
        };
        s.check(config)?;
        Ok(s)
    }

    /// Checks what no tensor's shape shows.
    fn check(&self, config: &Config<'_>) -> Result<(), ModelError> {
        for divisor in [self.heads, self.position_groups] {
            if !self.hidden.value.is_multiple_of(divisor.value) {
                return Err(config.error(format!("{} is not divisible by {divisor}", self.hidden)));
            }
        }
        Ok(())
    }
}

/// The convolutions after the transformer, where there are some.
pub(crate) fn adapter(config: &Config<'_>, hidden: Size, layers: usize) -> Result<Option<Adapter>, ModelError> {
    let adapter = Adapter {
        features: config.size_or("output_hidden_size", hidden)?,
        kernel: config.size("adapter_kernel_size", 3)?,
        stride: config.size("adapter_stride", 2)?,
        layers: config.whole("num_adapter_layers", layers)?,
    };
    Ok(config.boolean("add_adapter", false)?.then_some(adapter))
}

fn buckets(config: &Config<'_>) -> Result<(Buckets, Size), ModelError> {
    let (count, distance) = (config.size("num_buckets", 320)?, config.size("max_bucket_distance", 800)?);
    Ok((Buckets::new(config, count, distance, true)?, count))
}

fn xvector(config: &Config<'_>) -> Result<XVector, ModelError> {
    let channels = config.sizes("tdnn_dim", &[512, 512, 512, 512, 1500])?;
    let kernels = config.sizes("tdnn_kernel", &[5, 3, 3, 1, 1])?;
    let dilations = config.sizes("tdnn_dilation", &[1, 2, 3, 1, 1])?;
    // The first list says how many layers there are.
    if kernels.len() < channels.len() || dilations.len() < channels.len() {
        return Err(config.error(format!(
            "`tdnn_dim` has {} entries, `tdnn_kernel` {} and `tdnn_dilation` {}: each has one for each layer",
            channels.len(),
            kernels.len(),
            dilations.len()
        )));
    }
    let layers = channels
        .into_iter()
        .zip(kernels)
        .zip(dilations)
        .map(|((channels, kernel), dilation)| [channels, kernel, dilation]);
    Ok(XVector { layers: layers.collect(), features: config.size("xvector_output_dim", 512)? })
}
