//! Wav2Vec2-BERT (Seamless Communication 2023, arXiv:2312.05187), as `transformers/models/wav2vec2_bert` has it: the layers of a
//! conformer with causal convolutions on features of recordings, and layers of attention with fewer frames after it.

use planish_ir::ValueId;
use planish_ir::ops::{Attention, BinaryKind, Real};

use crate::architecture::{Architecture, Properties};
use crate::architectures::wav2vec2;
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::speech::States;
use crate::layers::speech::conformer::{self, Conformer, Norm};
use crate::layers::speech::masks::{self, Mask};
use crate::layers::speech::settings::{ADAPTER_KEYS, Adapter, Head, XVECTOR_KEYS, adapter};
use crate::layers::speech::time::{self, Window};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "wav2vec2-bert",
    class_prefix: "Wav2Vec2Bert",
    base: "wav2vec2_bert",
    keys: &[
        ADAPTER_KEYS,
        XVECTOR_KEYS,
        conformer::KEYS,
        &[
            "adapter_act",
            "classifier_proj_size",
            "feature_projection_input_dim",
            "hidden_act",
            "hidden_size",
            "intermediate_size",
            "layer_norm_eps",
            "left_max_position_embeddings",
            "num_attention_heads",
            "num_hidden_layers",
            "right_max_position_embeddings",
            "use_intermediate_ffn_before_adapter",
            "use_weighted_layer_sum",
            "vocab_size",
        ],
    ],
    build,
    ..wav2vec2::ARCHITECTURE
};

/// The configuration in `config.json`.
struct Settings {
    features: Size,
    conformer: Conformer,
    /// Whether a feed-forward stands before the layers after the encoder.
    has_feed_forward: bool,
    adapter: Option<Adapter>,
    adapter_activation: Activation,
    head: Head,
}

impl Settings {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        const FEED_FORWARD: &str = "use_intermediate_ffn_before_adapter";
        let hidden = config.size("hidden_size", 1024)?;
        let sides =
            [config.whole("left_max_position_embeddings", 64)?, config.whole("right_max_position_embeddings", 8)?];
        let conformer = Conformer {
            names: conformer::Names { inner_norm: "depthwise_layer_norm", ..conformer::WAV2VEC2 },
            hidden,
            intermediate: config.size("intermediate_size", 4096)?,
            heads: config.size("num_attention_heads", 16)?,
            layers: config.size("num_hidden_layers", 24)?,
            activation: Activation::read(config, "hidden_act", "swish")?,
            eps: config.positive("layer_norm_eps", 1e-5)?,
            bias: true,
            kind: conformer::kind(config, "relative_key", Some(sides))?,
            kernel: conformer::kernel(config)?,
            is_causal: true,
            convolution_bias: false,
            norm: Norm::Layer,
        };
        conformer.check(config)?;
        let adapter = adapter(config, hidden, 1)?;
        let has_feed_forward = config.boolean(FEED_FORWARD, false)?;
        if has_feed_forward && adapter.is_none() {
            return Err(config.error(format!("`{FEED_FORWARD}` is true, but `add_adapter` is not")));
        }
        if let Some(adapter) = adapter.as_ref().filter(|a| !a.features.value.is_multiple_of(conformer.heads.value)) {
            return Err(config.error(format!("{} is not divisible by {}", adapter.features, conformer.heads)));
        }
        let head = Head::read(config, hidden, adapter.as_ref(), 768, true)?;
        Ok(Self {
            features: config.size("feature_projection_input_dim", 160)?,
            conformer,
            has_feed_forward,
            adapter,
            adapter_activation: Activation::read(config, "adapter_act", "relu")?,
            head,
        })
    }

    /// A feed-forward of a module of so many features.
    fn feed_forward(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        module: &str,
        features: Size,
        activation: Activation,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let up = b.linear(x, &at("intermediate_dense"), self.conformer.intermediate, features)?;
        let active = activation.apply(b, up, &at("activation"))?;
        b.linear(active, &at("output_dense"), features, self.conformer.intermediate)
    }

    /// The layers after the encoder: [batch_size, frames, hidden] to [batch_size, fewer frames, features].
    fn adapt(
        &self,
        b: &mut Builder<'_>,
        adapter: &Adapter,
        x: ValueId,
        mask: Mask,
    ) -> Result<(ValueId, Mask), ModelError> {
        let (size, eps) = (adapter.features, self.conformer.eps);
        let (mut x, mut mask) = (x, mask);
        if size.value != self.conformer.hidden.value {
            x = b.linear(x, "adapter.proj", size, self.conformer.hidden)?;
            x = b.layer_norm(x, "adapter.proj_layer_norm", size, eps)?;
        }
        for i in 0..adapter.layers {
            let at = |name: &str| format!("adapter.layers.{i}.{name}");
            let shrink = |b: &mut Builder<'_>, name: &str| {
                let normal = b.layer_norm(x, &at(&format!("{name}_layer_norm")), size, eps)?;
                self.shrink(b, adapter, normal, &at(&format!("{name}_conv")), i)
            };
            let (rest, shrunk) = (shrink(b, "residual")?, shrink(b, "self_attn")?);
            // The library fills up by half a kernel where it counts frames, and by half a stride where it computes them.
            let kernel = adapter.kernel.value;
            let offset = if kernel.is_multiple_of(2) { -1 } else { 0 };
            let frames = b.graph.ty(shrunk).shape[1].clone();
            mask = mask.moved(b, frames, adapter.stride.value, offset, &at("mask"))?;
            let module = at("self_attn");
            let attended = self.attend(b, shrunk, &module, size, mask)?;
            x = b.add(attended, rest, &format!("{module}.add"))?;
            let normal = b.layer_norm(x, &at("ffn_layer_norm"), size, eps)?;
            let down = self.feed_forward(b, normal, &at("ffn"), size, self.adapter_activation)?;
            x = b.add(down, x, &at("ffn.add"))?;
        }
        Ok((x, mask))
    }

    /// A gated convolution with fewer frames.
    fn shrink(
        &self,
        b: &mut Builder<'_>,
        adapter: &Adapter,
        x: ValueId,
        module: &str,
        layer: usize,
    ) -> Result<ValueId, ModelError> {
        let size = adapter.features;
        let both = Size::derived(2 * size.value, "2 * output_hidden_size");
        let stride = adapter.stride.value;
        let window = Window { padding: [stride / 2; 2], ..Window::new(adapter.kernel, stride) };
        let channels = time::turned(b, x, &format!("{module}.channels"))?;
        let wide = time::conv(b, channels, module, [both, size], window, true, &format!("adapted_frames_{layer}"))?;
        let gated = conformer::gated(b, wide, size, 1, &format!("{module}.glu"))?;
        time::turned(b, gated, &format!("{module}.frames"))
    }

    /// Attention without positions.
    fn attend(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        module: &str,
        size: Size,
        mask: Mask,
    ) -> Result<ValueId, ModelError> {
        let mut qkv = [x; 3];
        for (value, name) in qkv.iter_mut().zip(["linear_q", "linear_k", "linear_v"]) {
            *value = b.linear(x, &format!("{module}.{name}"), size, size)?;
        }
        let [q, k, v] = qkv;
        let heads = self.conformer.heads.value;
        let scale = Real(1.0 / ((size.value / heads) as f64).sqrt());
        let attention = Attention { mask: Some(mask.kept), ..Attention::new(q, k, v, heads, scale) };
        let attended = b.emit(attention, module)?;
        b.linear(attended, &format!("{module}.linear_out"), size, size)
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config)?;
    s.head.check(b.config, s.adapter.as_ref(), task)?;
    if task == Task::AudioXVector && s.adapter.is_some() && s.head.sums_layers {
        return Err(b.config.error(
            "`add_adapter` and `use_weighted_layer_sum` are true: the class of the transformers library counts other frames than those \
             that it sums up",
        ));
    }
    let (hidden, eps) = (s.conformer.hidden, s.conformer.eps);
    let (x, mask) = masks::features(b, s.features)?;
    let normal = b.layer_norm(x, "feature_projection.layer_norm", s.features, eps)?;
    let x = b.linear(normal, "feature_projection.projection", hidden, s.features)?;
    let x = mask.clear(b, x, "encoder.masked")?;
    let States { layers, mut last } = s.conformer.encode(b, x, "encoder.layers", Some(mask))?;
    let mut after = mask;
    if s.has_feed_forward {
        let added = s.feed_forward(b, last, "intermediate_ffn", hidden, Activation::RELU)?;
        let halved = b.with_number(BinaryKind::Mul, added, 0.5, "intermediate_ffn.half", "model_type")?;
        last = b.add(last, halved, "intermediate_ffn.add")?;
    }
    if let Some(adapter) = &s.adapter {
        (last, after) = s.adapt(b, adapter, last, mask)?;
    }
    s.head.finish(b, &States { layers, last }, Some(after), task)?;
    Ok(Properties::default())
}
