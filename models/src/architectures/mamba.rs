//! Mamba (Gu and Dao 2023, arXiv:2312.00752), as `transformers/models/mamba` has it.

use planish_ir::ValueId;

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Classifier, Decoder};
use crate::layers::norm::Norm;
use crate::layers::selective::Selective;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "mamba",
    class_prefix: "Mamba",
    base: "backbone",
    other_bases: &[],
    // The first checkpoints.
    renamed: &[("embedding.", "embeddings.")],
    tasks: decoder::WITHOUT_LABELS,
    keys: &[&["pad_token_id", "tie_word_embeddings"], KEYS, OWN_KEYS],
    older_keys: OLDER_KEYS,
    irrelevant_keys: IRRELEVANT,
    pad_token_id: Some(0),
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

/// The keys that Mamba and Falcon Mamba read besides those.
pub(super) const OWN_KEYS: &[&str] = &[RANK, "expand", "intermediate_size"];

/// The keys that Mamba and Mamba-2 read.
pub(crate) const KEYS: &[&str] = &[
    "conv_kernel",
    "hidden_act",
    "hidden_size",
    "layer_norm_epsilon",
    "num_hidden_layers",
    "state_size",
    "use_bias",
    "use_conv_bias",
    "vocab_size",
];

pub(crate) const OLDER_KEYS: &[(&str, &str)] = &[("d_model", "hidden_size"), ("n_layer", "num_hidden_layers")];

/// What both say of training, and of how results are computed.
pub(crate) const IRRELEVANT: &[&str] = &[
    "d_inner",
    "fused_add_norm",
    "pad_vocab_size_multiple",
    "rescale_prenorm_residual",
    "residual_in_fp32",
    "rms_norm",
    "ssm_cfg",
    "time_step_floor",
    "time_step_init_scheme",
    "time_step_max",
    "time_step_min",
    "time_step_scale",
    "use_associative_scan",
    "use_falcon_mambapy",
    "use_mambapy",
];

const RANK: &str = "time_step_rank";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    decoder(b, task, None)
}

/// A whole model, with or without norms in its mixers.
pub(super) fn decoder(b: &mut Builder<'_>, task: Task, norms: Option<(Norm, f64)>) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config, [50280, 768, 32])?;
    let inner = inner(b.config, s.hidden)?;
    let mixer = Selective {
        hidden: s.hidden,
        inner,
        state: b.config.size("state_size", 16)?,
        rank: rank(b.config, RANK, s.hidden)?,
        taps: b.config.size("conv_kernel", 4)?,
        bias: b.config.boolean("use_bias", false)?,
        convolution_bias: b.config.boolean("use_conv_bias", true)?,
        activation: Activation::read(b.config, "hidden_act", "silu")?,
        gate: Activation::SILU,
        norms,
    };
    s.decoder(b, task, true, |b, decoder, x, module| mixer.apply(b, decoder, x, module))
}

/// The channels of state spaces: `expand` times `hidden_size`, whatever `intermediate_size` says.
fn inner(config: &Config<'_>, hidden: Size) -> Result<Size, ModelError> {
    const KEY: &str = "intermediate_size";
    let expand = config.size("expand", 2)?;
    let inner = Size::derived(expand.value * hidden.value, "expand * hidden_size");
    match config.given_size(&[KEY])?.filter(|given| given.value != inner.value) {
        Some(given) => Err(config.error(format!("{given}, but {inner}: both name the same size"))),
        None => Ok(inner),
    }
}

/// The features that time steps are made of: a number, or "auto".
pub(crate) fn rank(config: &Config<'_>, key: &'static str, hidden: Size) -> Result<Size, ModelError> {
    match config.get(key).is_none_or(|value| value.as_str() == Some("auto")) {
        true => Ok(Size::derived(hidden.value.div_ceil(16), "hidden_size / 16")),
        false => config.size(key, 1),
    }
}

/// A model whose layers are norms and mixers.
pub(crate) struct Settings {
    vocabulary: Size,
    pub(crate) hidden: Size,
    layers: Size,
    pub(crate) eps: f64,
}

impl Settings {
    /// Reads them, with the defaults of the vocabulary, the hidden size and the layers.
    pub(crate) fn read(config: &Config<'_>, [vocabulary, hidden, layers]: [usize; 3]) -> Result<Self, ModelError> {
        Ok(Self {
            vocabulary: config.size("vocab_size", vocabulary)?,
            hidden: config.size("hidden_size", hidden)?,
            layers: config.size("num_hidden_layers", layers)?,
            eps: config.positive("layer_norm_epsilon", 1e-5)?,
        })
    }

    /// The whole decoder. `tied` says whether the projection to the vocabulary has the weight of the embeddings where the
    /// configuration does not say.
    pub(crate) fn decoder(
        &self,
        b: &mut Builder<'_>,
        task: Task,
        tied: bool,
        mix: impl Fn(&mut Builder<'_>, &mut Decoder, ValueId, &str) -> Result<ValueId, ModelError>,
    ) -> Result<Properties, ModelError> {
        let mut decoder = Decoder::recurrent(b, task, self.vocabulary)?;
        let mut x = b.embedding(decoder.input_ids, "embeddings", self.vocabulary, self.hidden)?;
        for layer in 0..self.layers.value {
            let at = |name: &str| format!("layers.{layer}.{name}");
            let normal = b.rms_norm(x, &at("norm"), self.hidden, self.eps)?;
            let mixed = mix(b, &mut decoder, normal, &at("mixer"))?;
            decoder.end_layer();
            x = b.add(mixed, x, &at("add"))?;
        }
        let x = b.rms_norm(x, "norm_f", self.hidden, self.eps)?;
        decoder.finish(b, x, self.hidden, Classifier::Generic, |decoder, b, x| {
            decoder.logits(b, x, self.hidden, "embeddings.weight", tied, false)
        })
    }
}
