//! Parakeet with a head of connectionist temporal classification, and its encoder alone, a FastConformer (Rekesh et al. 2023,
//! arXiv:2305.05084), as `transformers/models/parakeet` has them: convolutions over features of recordings, which leave one frame of
//! some, and a conformer.

use planish_ir::ops::BinaryKind;
use planish_ir::{Dim, ValueId};

use crate::accept::{end_section, section};
use crate::architecture::{Architecture, Properties};
use crate::architectures::wav2vec2;
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::{BATCH, Builder};
use crate::layers::convolution;
use crate::layers::speech::States;
use crate::layers::speech::conformer::{self, Conformer, Kind, Norm};
use crate::layers::speech::masks::{self, Mask};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "parakeet_ctc",
    class_prefix: "Parakeet",
    base: "encoder",
    tasks: &[Task::AutomaticSpeechRecognition],
    keys: &[&["encoder_config", "vocab_size"]],
    // Keys of training, and the blank.
    irrelevant_keys: &["ctc_loss_reduction", "ctc_zero_infinity", "pad_token_id"],
    unused_tensors: &[".num_batches_tracked"],
    build: |b, _| build(b),
    ..wav2vec2::ARCHITECTURE
};

/// The encoder alone.
pub(crate) const ENCODER: Architecture = Architecture {
    model_type: "parakeet_encoder",
    class_prefix: "ParakeetEncoder",
    tasks: &[Task::FeatureExtraction],
    keys: &[&[
        "attention_bias",
        "conv_kernel_size",
        "convolution_bias",
        "hidden_act",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_hidden_layers",
        "num_mel_bins",
        "scale_input",
        "subsampling_conv_channels",
        "subsampling_conv_kernel_size",
        "subsampling_conv_stride",
        "subsampling_factor",
    ]],
    irrelevant_keys: &[
        "activation_dropout",
        "dropout",
        "dropout_positions",
        "layerdrop",
        // Positions are computed for recordings of any length.
        "max_position_embeddings",
        // The library sets it to the number of heads.
        "num_key_value_heads",
    ],
    unused_tensors: &[".num_batches_tracked", "ctc_head."],
    build: |b, _| build_encoder(b),
    ..ARCHITECTURE
};

/// The names of the modules of a layer.
const NAMES: conformer::Names = conformer::Names {
    halves: [["norm_feed_forward1", "feed_forward1"], ["norm_feed_forward2", "feed_forward2"]],
    feed_forward: ["linear1", "linear2"],
    attention_norm: "norm_self_att",
    attention: ["q_proj", "k_proj", "v_proj", "o_proj", "relative_k_proj", "bias_u", "bias_v"],
    convolution: "conv",
    convolution_norm: "norm_conv",
    inner_norm: "norm",
    last_norm: "norm_out",
};

/// Added to the variance in layer normalization.
const EPS: f64 = 1e-5;

/// The configuration of an encoder.
struct Encoder {
    bands: Size,
    channels: Size,
    /// The convolutions over features, each of which leaves one place of `stride`.
    layers: usize,
    kernel: Size,
    stride: Size,
    /// Whether frames are multiplied by the square root of their features.
    is_scaled: bool,
    conformer: Conformer,
}

impl Encoder {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let factor = config.size("subsampling_factor", 8)?;
        let kernel = config.size("subsampling_conv_kernel_size", 3)?;
        let stride = config.size("subsampling_conv_stride", 2)?;
        if factor.value < 2 {
            return Err(config.error(format!("{factor}, expected 2 at least")));
        }
        if stride.value == 1 && kernel.value.is_multiple_of(2) {
            return Err(
                config.error(format!("{kernel} and {stride}: the library counts other frames than it computes"))
            );
        }
        let conformer = Conformer {
            names: NAMES,
            hidden: config.size("hidden_size", 1024)?,
            intermediate: config.size("intermediate_size", 4096)?,
            heads: config.size("num_attention_heads", 8)?,
            layers: config.size("num_hidden_layers", 24)?,
            activation: Activation::read(config, "hidden_act", "silu")?,
            eps: EPS,
            bias: config.boolean("attention_bias", true)?,
            kind: Kind::Relative,
            kernel: config.size("conv_kernel_size", 9)?,
            is_causal: false,
            convolution_bias: config.boolean("convolution_bias", true)?,
            norm: Norm::Batch,
        };
        conformer.check(config)?;
        if conformer.kernel.value.is_multiple_of(2) {
            return Err(config.error(format!("{}, expected an odd number of frames", conformer.kernel)));
        }
        Ok(Self {
            bands: config.size("num_mel_bins", 80)?,
            channels: config.size("subsampling_conv_channels", 256)?,
            layers: factor.value.ilog2() as usize,
            kernel,
            stride,
            is_scaled: config.boolean("scale_input", true)?,
            conformer,
        })
    }

    /// Adds the inputs: [batch_size, frames, hidden].
    fn encode(&self, b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
        let (x, mask) = masks::features(b, self.bands)?;
        let (x, mask) = self.shrink(b, x, mask)?;
        let x = match self.is_scaled {
            true => {
                let scale = (self.conformer.hidden.value as f64).sqrt();
                b.with_number(BinaryKind::Mul, x, scale, "subsampling.scaled", "scale_input")?
            }
            false => x,
        };
        let States { last, .. } = self.conformer.encode(b, x, "layers", Some(mask))?;
        Ok(last)
    }

    /// The convolutions over features: [batch_size, sequence_length, bands] to [batch_size, frames, hidden].
    fn shrink(&self, b: &mut Builder<'_>, x: ValueId, mask: Mask) -> Result<(ValueId, Mask), ModelError> {
        let at = |name: &str| format!("subsampling.{name}");
        let padding = (self.kernel.value - 1) / 2;
        let window = convolution::Window { kernel: self.kernel.value, stride: self.stride.value, padding, dilation: 1 };
        let single = convolution::Window { kernel: 1, stride: 1, padding: 0, dilation: 1 };
        // The last feature that a place of a window covers less the zeros before the first.
        let offset = if self.kernel.value.is_multiple_of(2) { 1 } else { 0 };
        let square = [self.channels; 2];
        let mut frames = b.graph.ty(x).shape[1].clone();
        let one = Size::derived(1, "one channel");
        let dims = [Dim::symbol(BATCH), Dim::constant(1), frames.clone(), Dim::constant(self.bands.signed())];
        let (mut x, mut mask) = (b.reshape(x, dims, &at("map"))?, mask);
        for i in 0..self.layers {
            // After the first one, each has a filter for each channel, a projection and an activation.
            let number = if i == 0 { 0 } else { 3 * i - 1 };
            let module = at(&format!("layers.{number}"));
            if i == 0 {
                x = convolution::conv(b, x, &module, [self.channels, one], window, true)?;
            } else {
                let clear = mask.clear_map(b, x, &at(&format!("layers.{number}.masked")))?;
                x = convolution::depthwise(b, clear, &module, self.channels, window)?;
                x = convolution::conv(b, x, &at(&format!("layers.{}", number + 1)), square, single, true)?;
            }
            x = Activation::RELU.apply(b, x, &at(&format!("layers.{number}.activation")))?;
            frames = b.graph.ty(x).shape[2].clone();
            mask = mask.moved(b, frames.clone(), self.stride.value, offset, &at(&format!("layers.{number}.mask")))?;
        }
        let bands = b.graph.ty(x).shape[3].as_constant().and_then(|bands| usize::try_from(bands).ok()).unwrap_or(0);
        let expected = self.stride.value.checked_pow(u32::try_from(self.layers).unwrap_or(u32::MAX));
        let expected = expected.map_or(0, |power| self.bands.value / power);
        if bands == 0 || bands != expected {
            return Err(b.config.error(format!(
                "{}, {}, {} and {} convolutions by `subsampling_factor` leave {bands} bands, and the projection of the library takes \
                 {expected}",
                self.bands, self.kernel, self.stride, self.layers
            )));
        }
        let features = Size::derived(bands * self.channels.value, "bands * subsampling_conv_channels");
        let x = b.transpose(x, &[0, 2, 1, 3], &at("frames"))?;
        let x = b.reshape(x, [Dim::symbol(BATCH), frames, Dim::constant(features.signed())], &at("features"))?;
        Ok((b.linear(x, &at("linear"), self.conformer.hidden, features)?, mask))
    }
}

fn build_encoder(b: &mut Builder<'_>) -> Result<Properties, ModelError> {
    let hidden = Encoder::read(b.config)?.encode(b)?;
    b.give(names::HIDDEN, hidden);
    Ok(Properties::default())
}

fn build(b: &mut Builder<'_>) -> Result<Properties, ModelError> {
    let vocabulary = b.config.size("vocab_size", 1025)?;
    let encoder_config = section(b.config, &["encoder_config"], &ENCODER)?;
    let encoder = Encoder::read(&encoder_config)?;
    end_section(b.config, &encoder_config, &ENCODER);
    let hidden = encoder.encode(b)?;
    let logits = conformer::pointwise(b, hidden, "ctc_head", [vocabulary, encoder.conformer.hidden], true)?;
    b.give(names::LOGITS, logits);
    Ok(Properties::default())
}
