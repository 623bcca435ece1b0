//! Encoders of speech that read waveforms (Baevski et al. 2020, arXiv:2006.11477): convolutions make frames of a waveform, and a
//! transformer attends to these.

pub(crate) mod conformer;
mod distances;
pub(crate) mod heads;
pub(crate) mod masks;
mod positions;
pub(crate) mod settings;
pub(crate) mod time;

use planish_ir::ops::{Attention, BinaryKind, Concat, Real, Reduce, ReduceKind, Split, Unary, UnaryKind};
use planish_ir::{Dim, ValueId};

use crate::architecture::Properties;
use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::builder::{BATCH, Builder, SEQUENCE};
use crate::layers::{relative, sounds};
use crate::{ModelError, Task};

use conformer::Conformer;
use settings::{Adapter, Front, FrontNorm};
pub(crate) use settings::{Family, Settings};
use time::Window;

/// What `torch.nn.LayerNorm` adds to the variance.
const EPS: f64 = 1e-5;

/// The tasks of encoders of speech.
pub(crate) const TASKS: &[Task] = &[
    Task::FeatureExtraction,
    Task::AutomaticSpeechRecognition,
    Task::AudioClassification,
    Task::AudioFrameClassification,
    Task::AudioXVector,
];

/// The tasks of types whose library classes have no heads of frames and of voices.
pub(crate) const TASKS_OF_TEXT: &[Task] = TASKS.split_at(3).0;

/// The number of frames of the encoder.
const FRAMES: &str = "frames";

/// Builds the graph of a type.
pub(crate) fn build(b: &mut Builder<'_>, task: Task, family: Family) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config, family)?;
    let conformer = if family.is_conformer { Some(Conformer::read(b.config, &s)?) } else { None };
    s.head.check(b.config, s.adapter.as_ref(), task)?;
    let x = waveform(b)?;
    let x = s.front.apply(b, x)?;
    let x = s.project(b, x)?;
    let states = match &conformer {
        Some(conformer) => {
            let States { layers, last } = conformer.encode(b, x, "encoder.layers", None)?;
            let last = b.layer_norm(last, "encoder.layer_norm", s.hidden, s.eps)?;
            States { layers, last: s.adapt_all(b, last)? }
        }
        None => s.encode(b, x)?,
    };
    s.head.finish(b, &states, None, task)?;
    Ok(Properties::default())
}

/// Adds the input of samples: f32[batch_size, sequence_length], to [batch_size, 1, sequence_length].
pub(crate) fn waveform(b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
    let [rows, samples] = [BATCH, SEQUENCE].map(Dim::symbol);
    let x = sounds::samples(b)?;
    b.reshape(x, [rows, Dim::constant(1), samples], "feature_extractor.channel")
}

impl Front {
    /// The frames of a waveform: [batch_size, 1, samples] to [batch_size, frames, channels].
    pub(crate) fn apply(&self, b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, ModelError> {
        let mut x = x;
        let mut before = Size::derived(1, "a waveform");
        for (i, layer) in self.layers.iter().enumerate() {
            let path = format!("feature_extractor.conv_layers.{i}");
            let at = |name: &str| format!("{path}.{name}");
            let frames = if i + 1 == self.layers.len() { FRAMES.to_owned() } else { format!("{FRAMES}_{i}") };
            let window = Window::new(layer.kernel, layer.stride.value);
            x = time::conv(b, x, &at("conv"), [layer.channels, before], window, self.bias, &frames)?;
            x = match self.norm {
                FrontNorm::Group if i == 0 => time::norm_over_time(b, x, &at("layer_norm"), layer.channels)?,
                FrontNorm::Group => x,
                FrontNorm::Layer => {
                    let rows = time::turned(b, x, &at("frames"))?;
                    let normal = b.layer_norm(rows, &at("layer_norm"), layer.channels, EPS)?;
                    time::turned(b, normal, &at("channels"))?
                }
            };
            x = self.activation.apply(b, x, &at("activation"))?;
            before = layer.channels;
        }
        time::turned(b, x, "feature_extractor.frames")
    }
}

/// What the layers of an encoder give.
pub(crate) struct States {
    /// What the first layer takes, and what each layer gives.
    pub(crate) layers: Vec<ValueId>,
    /// What the whole encoder gives.
    pub(crate) last: ValueId,
}

impl Settings {
    /// The projection of frames: [batch_size, frames, channels] to [batch_size, frames, hidden].
    fn project(&self, b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, ModelError> {
        let features = self.front.features();
        let x = match self.projection_norm {
            true => b.layer_norm(x, "feature_projection.layer_norm", features, self.eps)?,
            false => x,
        };
        b.linear(x, "feature_projection.projection", self.hidden, features)
    }

    /// The transformer.
    fn encode(&self, b: &mut Builder<'_>, x: ValueId) -> Result<States, ModelError> {
        const NORM: &str = "encoder.layer_norm";
        let s = self;
        let positions = s.positions(b, x)?;
        let mut x = b.add(x, positions, "encoder.pos_conv_embed.add")?;
        if !s.norms_first {
            x = b.layer_norm(x, NORM, s.hidden, s.eps)?;
        }
        let bias = s.relative_positions(b, x)?;
        let mut layers = vec![x];
        for i in 0..s.layers.value {
            x = s.layer(b, x, &format!("encoder.layers.{i}"), bias)?;
            layers.push(x);
        }
        if s.norms_first {
            x = b.layer_norm(x, NORM, s.hidden, s.eps)?;
        }
        Ok(States { layers, last: s.adapt_all(b, x)? })
    }

    /// The convolutions after the transformer, where there are some.
    fn adapt_all(&self, b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, ModelError> {
        match &self.adapter {
            Some(adapter) => adapter.apply(b, x, self.hidden),
            None => Ok(x),
        }
    }

    /// What WavLM adds to scores, before the gates of its layers: [heads, frames, frames].
    fn relative_positions(&self, b: &mut Builder<'_>, x: ValueId) -> Result<Option<ValueId>, ModelError> {
        let Some((buckets, count)) = &self.buckets else { return Ok(None) };
        let frames = b.graph.ty(x).shape[1].clone();
        let module = "encoder.layers.0.attention.rel_attn_embed";
        relative::bias(b, buckets, [*count, self.heads], &Dim::constant(0), &frames, module).map(Some)
    }

    /// The layer of a path.
    fn layer(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        path: &str,
        positions: Option<ValueId>,
    ) -> Result<ValueId, ModelError> {
        let s = self;
        let at = |name: &str| format!("{path}.{name}");
        let norm = |b: &mut Builder<'_>, applies: bool, x: ValueId, name: &str| match applies {
            true => b.layer_norm(x, &at(name), s.hidden, s.eps),
            false => Ok(x),
        };
        let input = norm(b, s.norms_first, x, "layer_norm")?;
        let attended = s.attend(b, input, &at("attention"), positions)?;
        let x = b.add(attended, x, &at("attention.add"))?;
        let x = norm(b, !s.norms_first, x, "layer_norm")?;
        let input = norm(b, s.norms_first, x, "final_layer_norm")?;
        let up = b.linear(input, &at("feed_forward.intermediate_dense"), s.intermediate, s.hidden)?;
        let active = s.activation.apply(b, up, &at("feed_forward.activation"))?;
        let down = b.linear(active, &at("feed_forward.output_dense"), s.hidden, s.intermediate)?;
        let x = b.add(down, x, &at("add"))?;
        let x = norm(b, !s.norms_first, x, "final_layer_norm")?;
        match s.attention_adapter.filter(|_| s.norms_first) {
            Some(features) => s.adapt(b, x, &at("adapter_layer"), features),
            None => Ok(x),
        }
    }

    /// What MMS adds after a layer for a language.
    fn adapt(&self, b: &mut Builder<'_>, x: ValueId, path: &str, features: Size) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.{name}");
        let normal = b.layer_norm(x, &at("norm"), self.hidden, EPS)?;
        let down = b.linear(normal, &at("linear_1"), features, self.hidden)?;
        let active = Activation::RELU.apply(b, down, &at("activation"))?;
        let up = b.linear(active, &at("linear_2"), self.hidden, features)?;
        b.add(up, x, &at("add"))
    }

    fn attend(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        path: &str,
        positions: Option<ValueId>,
    ) -> Result<ValueId, ModelError> {
        let s = self;
        let at = |name: &str| format!("{path}.{name}");
        let mut qkv = [x; 3];
        for (value, name) in qkv.iter_mut().zip(["q_proj", "k_proj", "v_proj"]) {
            *value = b.linear(x, &at(name), s.hidden, s.hidden)?;
        }
        let [q, k, v] = qkv;
        let bias = match positions {
            Some(positions) => Some(s.gate(b, x, positions, path)?),
            None => None,
        };
        let scale = 1.0 / ((s.hidden.value / s.heads.value) as f64).sqrt();
        let attention = Attention { bias, ..Attention::new(q, k, v, s.heads.value, Real(scale)) };
        let attended = b.emit(attention, path)?;
        b.linear(attended, &at("out_proj"), s.hidden, s.hidden)
    }

    /// Relative positions times a number for each head of each query (Chen et al. 2021, arXiv:2110.13900, section 3.1):
    /// [heads, frames, frames] to [batch_size, heads, frames, frames].
    fn gate(&self, b: &mut Builder<'_>, x: ValueId, positions: ValueId, path: &str) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.{name}");
        let (heads, inner) = (self.heads, self.hidden.value / self.heads.value);
        let [eight, two] = [8, 2].map(|n| Size::derived(n, "the rows of a gate"));
        let inner = Size::derived(inner, "hidden_size / num_attention_heads");
        let [rows, frames] = [0, 1].map(|axis| b.graph.ty(x).shape[axis].clone());
        let dim = |size: Size| Dim::constant(size.signed());
        // Four features are summed up for each of two: the rows of the projection are.
        let module = at("gru_rel_pos_linear");
        let weight = b.weight(&[&format!("{module}.weight")], &[eight, inner])?;
        let bias = b.weight(&[&format!("{module}.bias")], &[eight])?;
        let sum = |x, axis| Reduce { kind: ReduceKind::Sum, x, axes: vec![axis], keep: false };
        let weight = b.reshape(weight, [dim(two), Dim::constant(4), dim(inner)], &format!("{module}.weight.fours"))?;
        let weight = b.emit(sum(weight, 1), &format!("{module}.weight.sum"))?;
        let bias = b.reshape(bias, [dim(two), Dim::constant(4)], &format!("{module}.bias.fours"))?;
        let bias = b.emit(sum(bias, 1), &format!("{module}.bias.sum"))?;

        let x = b.reshape(x, [rows, frames, dim(heads), dim(inner)], &at("gate.heads"))?;
        let scores = b.emit(planish_ir::ops::Linear::new(x, weight, Some(bias)), &module)?;
        let gates = b.emit(Unary { kind: UnaryKind::Sigmoid, x: scores }, &at("gate.sigmoid"))?;
        let [first, second] = b.emit_all(Split { x: gates, axis: 3, sizes: vec![1, 1] }, &at("gate.split"))?[..] else {
            unreachable!("a split has as many results as sizes")
        };
        let one = Size::derived(1, "one number for each head");
        let factor = b.weight(&[&at("gru_rel_pos_const")], &[one, heads, one, one])?;
        let factor = b.reshape(factor, [dim(heads), Dim::constant(1)], &at("gru_rel_pos_const.column"))?;
        let scaled = b.binary(BinaryKind::Mul, [second, factor], &at("gate.scaled"))?;
        let less = b.with_number(BinaryKind::Sub, scaled, 1.0, &at("gate.less"), "model_type")?;
        let product = b.binary(BinaryKind::Mul, [first, less], &at("gate.product"))?;
        let gate = b.with_number(BinaryKind::Add, product, 2.0, &at("gate"), "model_type")?;
        let gate = b.transpose(gate, &[0, 2, 1, 3], &at("gate.by_head"))?;
        b.binary(BinaryKind::Mul, [gate, positions], &at("gate.positions"))
    }
}

impl Adapter {
    /// The convolutions after the transformer: [batch_size, frames, hidden] to [batch_size, fewer frames, features].
    pub(crate) fn apply(&self, b: &mut Builder<'_>, x: ValueId, hidden: Size) -> Result<ValueId, ModelError> {
        let mut x = x;
        if self.features.value != hidden.value {
            x = b.linear(x, "adapter.proj", self.features, hidden)?;
            x = b.layer_norm(x, "adapter.proj_layer_norm", self.features, EPS)?;
        }
        x = time::turned(b, x, "adapter.channels")?;
        for i in 0..self.layers {
            let module = format!("adapter.layers.{i}.conv");
            let both = Size::derived(2 * self.features.value, "2 * output_hidden_size");
            let window = Window { padding: [1; 2], ..Window::new(self.kernel, self.stride.value) };
            let frames = format!("adapted_{FRAMES}_{i}");
            x = time::conv(b, x, &module, [both, self.features], window, true, &frames)?;
            x = conformer::gated(b, x, self.features, 1, &format!("adapter.layers.{i}"))?;
        }
        time::turned(b, x, "adapter.frames")
    }
}

/// Values after each other along an axis.
fn join(b: &mut Builder<'_>, parts: Vec<ValueId>, axis: usize, module: &str) -> Result<ValueId, ModelError> {
    b.emit(Concat { parts, axis }, module)
}
