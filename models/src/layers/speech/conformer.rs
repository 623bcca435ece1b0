//! Conformers (Gulati et al. 2020, arXiv:2005.08100): layers of attention and of a convolution over time, between two
//! feed-forwards of which half is added.

use planish_ir::ops::{Attention, BinaryKind, Linear, Real, Split};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};

use super::masks::Mask;
use super::settings::Settings;
use super::time::{self, Window};
use super::{EPS, FRAMES, States, distances};
use crate::ModelError;
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::convolution;
use crate::layers::rope::Angles;

/// The keys of conformers, besides those of all encoders.
pub(crate) const KEYS: &[&str] = &["conv_depthwise_kernel_size", "position_embeddings_type", "rotary_embedding_base"];

/// How attention knows positions.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Sinusoids of distances take part in scores (Dai et al. 2019, arXiv:1901.02860).
    Relative,
    /// The vectors of a table do, of distances up to so many frames before and after.
    Table([usize; 2]),
    /// What queries and keys are projected of turns, by a base.
    Rotary(f64),
    None,
}

/// What layers take besides frames.
#[derive(Clone, Copy)]
enum Positions {
    /// Sinusoids of the distances from the number of frames less 1 down: [2 * frames, hidden].
    Relative(ValueId),
    /// Rows of a table of so many distances: i64[2 * frames].
    Table(ValueId, Size),
    Rotary(Angles),
    None,
}

/// The norm after the convolution of a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Norm {
    Batch,
    Layer,
}

/// The names of the modules of a layer.
pub(crate) struct Names {
    /// The norm of each feed-forward, its module, and the first and the last projection in it.
    pub(crate) halves: [[&'static str; 2]; 2],
    pub(crate) feed_forward: [&'static str; 2],
    pub(crate) attention_norm: &'static str,
    /// Queries, keys, values and what becomes of them, and the keys and addends of distances.
    pub(crate) attention: [&'static str; 7],
    pub(crate) convolution: &'static str,
    pub(crate) convolution_norm: &'static str,
    /// The norm after the convolution over time.
    pub(crate) inner_norm: &'static str,
    pub(crate) last_norm: &'static str,
}

/// Those of wav2vec 2.0.
pub(crate) const WAV2VEC2: Names = Names {
    halves: [["ffn1_layer_norm", "ffn1"], ["ffn2_layer_norm", "ffn2"]],
    feed_forward: ["intermediate_dense", "output_dense"],
    attention_norm: "self_attn_layer_norm",
    attention: ["linear_q", "linear_k", "linear_v", "linear_out", "linear_pos", "pos_bias_u", "pos_bias_v"],
    convolution: "conv_module",
    convolution_norm: "conv_module.layer_norm",
    inner_norm: "batch_norm",
    last_norm: "final_layer_norm",
};

/// The table of the distances of a layer, in its attention.
const DISTANCES: &str = "distance_embedding";

/// A conformer.
pub(crate) struct Conformer {
    pub(crate) names: Names,
    pub(crate) hidden: Size,
    pub(crate) intermediate: Size,
    pub(crate) heads: Size,
    pub(crate) layers: Size,
    pub(crate) activation: Activation,
    /// Added to variances in the norms of layers.
    pub(crate) eps: f64,
    /// Whether projections have a bias, but those of convolutions.
    pub(crate) bias: bool,
    pub(crate) kind: Kind,
    /// The frames that the convolution covers: around each, or that one and those before it.
    pub(crate) kernel: Size,
    pub(crate) is_causal: bool,
    /// Whether convolutions have a bias.
    pub(crate) convolution_bias: bool,
    pub(crate) norm: Norm,
}

impl Conformer {
    /// Reads the keys of the conformer of wav2vec 2.0.
    pub(crate) fn read(config: &Config<'_>, s: &Settings) -> Result<Self, ModelError> {
        let conformer = Self {
            names: WAV2VEC2,
            hidden: s.hidden,
            intermediate: s.intermediate,
            heads: s.heads,
            layers: s.layers,
            activation: s.activation,
            eps: EPS,
            bias: true,
            kind: kind(config, "relative", None)?,
            kernel: kernel(config)?,
            is_causal: false,
            convolution_bias: false,
            norm: Norm::Batch,
        };
        conformer.check(config)?;
        Ok(conformer)
    }

    /// Checks what no tensor's shape shows.
    pub(crate) fn check(&self, config: &Config<'_>) -> Result<(), ModelError> {
        if !self.hidden.value.is_multiple_of(self.heads.value) {
            return Err(config.error(format!("{} is not divisible by {}", self.hidden, self.heads)));
        }
        let (sides, of) = match self.kind {
            Kind::Relative => (self.hidden.value, self.hidden.to_string()),
            Kind::Rotary(_) => (self.size().value, "hidden_size / num_attention_heads".to_owned()),
            Kind::Table(_) | Kind::None => return Ok(()),
        };
        match sides.is_multiple_of(2) {
            true => Ok(()),
            false => Err(config.error(format!("{of} is not even, as sines and cosines of positions are"))),
        }
    }

    /// The features of a head.
    fn size(&self) -> Size {
        Size::derived(self.hidden.value / self.heads.value, "hidden_size / num_attention_heads")
    }

    /// All layers, `prefix` with a number each: [batch_size, frames, hidden].
    pub(crate) fn encode(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        prefix: &str,
        mask: Option<Mask>,
    ) -> Result<States, ModelError> {
        let frames = b.graph.ty(x).shape[1].clone();
        let positions = match self.kind {
            Kind::Relative => Positions::Relative(distances::sinusoids(b, &frames, self.hidden)?),
            Kind::Rotary(base) => Positions::Rotary(distances::angles(b, &frames, self.size().value, base)?),
            Kind::Table(sides) => {
                let count = Size::derived(sides[0] + sides[1] + 1, "distances of frames");
                Positions::Table(distances::rows(b, &frames, sides)?, count)
            }
            Kind::None => Positions::None,
        };
        let (mut x, mut layers) = (x, vec![x]);
        for i in 0..self.layers.value {
            x = self.layer(b, x, &format!("{prefix}.{i}"), positions, mask)?;
            layers.push(x);
        }
        Ok(States { layers, last: x })
    }

    fn layer(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        path: &str,
        positions: Positions,
        mask: Option<Mask>,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.{name}");
        let [first, second] = self.names.halves;
        let x = self.half(b, x, path, first)?;
        let normal = b.layer_norm(x, &at(self.names.attention_norm), self.hidden, self.eps)?;
        let attended = self.attend(b, normal, &at("self_attn"), positions, mask)?;
        let x = b.add(attended, x, &at("self_attn.add"))?;
        let module = at(self.names.convolution);
        let normal = b.layer_norm(x, &at(self.names.convolution_norm), self.hidden, self.eps)?;
        let convolved = self.convolve(b, normal, &module, mask)?;
        let x = b.add(convolved, x, &format!("{module}.add"))?;
        let x = self.half(b, x, path, second)?;
        b.layer_norm(x, &at(self.names.last_norm), self.hidden, self.eps)
    }

    /// Half of a feed-forward is added.
    fn half(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        path: &str,
        [norm, module]: [&str; 2],
    ) -> Result<ValueId, ModelError> {
        let at = |part: &str| format!("{path}.{module}.{part}");
        let [up, down] = self.names.feed_forward;
        let normal = b.layer_norm(x, &format!("{path}.{norm}"), self.hidden, self.eps)?;
        let up = b.projection(normal, &at(up), [self.intermediate, self.hidden], self.bias)?;
        let active = self.activation.apply(b, up, &at("activation"))?;
        let down = b.projection(active, &at(down), [self.hidden, self.intermediate], self.bias)?;
        let halved = b.with_number(BinaryKind::Mul, down, 0.5, &at("half"), "model_type")?;
        b.add(halved, x, &at("add"))
    }

    /// The convolution of a layer: each channel by itself, between two projections.
    fn convolve(&self, b: &mut Builder<'_>, x: ValueId, path: &str, mask: Option<Mask>) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.{name}");
        let size = self.hidden;
        let both = Size::derived(2 * size.value, "2 * hidden_size");
        let wide = pointwise(b, x, &at("pointwise_conv1"), [both, size], self.convolution_bias)?;
        let gated = gated(b, wide, size, 2, &at("glu"))?;
        let gated = match mask {
            Some(mask) => mask.clear(b, gated, &at("masked"))?,
            None => gated,
        };
        let channels = time::turned(b, gated, &at("channels"))?;
        let (module, norm) = (at("depthwise_conv"), at(self.names.inner_norm));
        let window = match self.is_causal {
            true => Window { padding: [self.kernel.value - 1, 0], groups: size.value, ..Window::new(self.kernel, 1) },
            false => Window::around(self.kernel, 1, size.value),
        };
        let name = format!("{module}.weight");
        let (weight, origin) = b.tensors.take(&[&name], &window.filters([size, size]))?;
        let frames = match self.norm {
            Norm::Batch => {
                let own = self.convolution_bias.then_some(module.as_str());
                let [factors, shifts] = convolution::affine(b, own, &norm, size)?;
                let numbers = |values: &[f64]| Weight::numbers(DType::F32, vec![size.value], values);
                let scaled = numbers(&factors).and_then(|factors| weight.scale(0, &factors)).zip(numbers(&shifts));
                let Some((weight, shifts)) = scaled else { unreachable!("there is a number for each filter") };
                let weight = b.graph.add_weight(&name, weight, origin);
                let origin = Origin::Module(norm.as_str().into());
                let shifts = b.graph.add_weight(&format!("{norm}.bias"), shifts, origin);
                let convolved = time::emit(b, channels, [Some(weight), Some(shifts)], window, FRAMES, &module)?;
                let active = self.activation.apply(b, convolved, &at("activation"))?;
                time::turned(b, active, &at("frames"))?
            }
            Norm::Layer => {
                let weight = b.graph.add_weight(&name, weight, origin);
                let bias = match self.convolution_bias {
                    true => Some(b.weight(&[&format!("{module}.bias")], &[size])?),
                    false => None,
                };
                let convolved = time::emit(b, channels, [Some(weight), bias], window, FRAMES, &module)?;
                let frames = time::turned(b, convolved, &at("frames"))?;
                let normal = b.layer_norm(frames, &norm, size, self.eps)?;
                self.activation.apply(b, normal, &at("activation"))?
            }
        };
        pointwise(b, frames, &at("pointwise_conv2"), [size, size], self.convolution_bias)
    }

    fn attend(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        path: &str,
        positions: Positions,
        mask: Option<Mask>,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.{name}");
        let (s, size) = (self, self.size());
        let [query, key, value, output, of_distances, for_keys, for_distances] = self.names.attention;
        let turned = match positions {
            Positions::Rotary(angles) => angles.rotate(b, x, s.heads, false, &at("rotary"))?,
            Positions::Relative(_) | Positions::Table(..) | Positions::None => x,
        };
        let square = [s.hidden; 2];
        let mut q = b.projection(turned, &at(query), square, s.bias)?;
        let k = b.projection(turned, &at(key), square, s.bias)?;
        let v = b.projection(x, &at(value), square, s.bias)?;
        let bias = match positions {
            Positions::Relative(sinusoids) => {
                let addend = |b: &mut Builder<'_>, name: &str| {
                    let weight = b.weight(&[&at(name)], &[s.heads, size])?;
                    let row = b.reshape(weight, [Dim::constant(s.hidden.signed())], &at(&format!("{name}.row")))?;
                    b.add(q, row, &at(&format!("{name}.add")))
                };
                let (with_keys, with_distances) = (addend(b, for_keys)?, addend(b, for_distances)?);
                let module = at(of_distances);
                let keys = distances::keys_of_sinusoids(b, sinusoids, &module, [s.hidden, s.heads, size])?;
                q = with_keys;
                Some(distances::scores(b, [with_distances, keys], [s.heads, size], &module)?)
            }
            Positions::Table(rows, count) => {
                let module = at(DISTANCES);
                let keys = distances::keys_of_table(b, rows, &module, [count, size])?;
                Some(distances::scores(b, [q, keys], [s.heads, size], &module)?)
            }
            Positions::Rotary(_) | Positions::None => None,
        };
        let scale = Real(1.0 / (size.value as f64).sqrt());
        let mask = mask.map(|mask| mask.kept);
        let attention = Attention { bias, mask, ..Attention::new(q, k, v, s.heads.value, scale) };
        let attended = b.emit(attention, path)?;
        b.projection(attended, &at(output), square, s.bias)
    }
}

/// How attention knows positions, where the configuration has one of the names of wav2vec 2.0. With `sides`, these may be the
/// distances of a table.
pub(crate) fn kind(config: &Config<'_>, default: &'static str, sides: Option<[usize; 2]>) -> Result<Kind, ModelError> {
    const KEY: &str = "position_embeddings_type";
    let base = config.positive("rotary_embedding_base", 10_000.0)?;
    match (config.text(KEY, default)?, sides) {
        _ if config.is_null(KEY) => Ok(Kind::None),
        ("relative", _) => Ok(Kind::Relative),
        ("rotary", _) => Ok(Kind::Rotary(base)),
        ("relative_key", Some(sides)) => Ok(Kind::Table(sides)),
        (other, _) => {
            let known = if sides.is_some() { "\"relative_key\", " } else { "" };
            let expected = format!("expected {known}\"relative\", \"rotary\" or null");
            Err(config.error(format!("`{KEY}` is \"{other}\", {expected}")))
        }
    }
}

/// The frames that the convolution of a layer covers.
pub(crate) fn kernel(config: &Config<'_>) -> Result<Size, ModelError> {
    let kernel = config.size("conv_depthwise_kernel_size", 31)?;
    match kernel.value.is_multiple_of(2) {
        true => Err(config.error(format!("{kernel}, expected an odd number of frames"))),
        false => Ok(kernel),
    }
}

/// `torch.nn.Conv1d` of one frame as the projection that it is, [out, in] features.
pub(crate) fn pointwise(
    b: &mut Builder<'_>,
    x: ValueId,
    module: &str,
    [out, inner]: [Size; 2],
    bias: bool,
) -> Result<ValueId, ModelError> {
    let name = format!("{module}.weight");
    let one = Size::derived(1, "the kernel of a projection");
    let (weight, origin) = b.tensors.take(&[&name], &[out, inner, one])?;
    let weight = weight.reshape(&[out.value, inner.value]);
    let weight = weight.unwrap_or_else(|| unreachable!("the shape was checked"));
    let weight = b.graph.add_weight(&name, weight, origin);
    let bias = if bias { Some(b.weight(&[&format!("{module}.bias")], &[out])?) } else { None };
    b.emit(Linear::new(x, weight, bias), module)
}

/// The first half of the features of an axis times the sigmoid of the second.
pub(crate) fn gated(
    b: &mut Builder<'_>,
    x: ValueId,
    size: Size,
    axis: usize,
    module: &str,
) -> Result<ValueId, ModelError> {
    let [value, gate] = b.emit_all(Split { x, axis, sizes: vec![size.value; 2] }, &format!("{module}.halves"))?[..]
    else {
        unreachable!("a split has as many results as sizes")
    };
    let gate = Activation::SIGMOID.apply(b, gate, &format!("{module}.gate"))?;
    b.binary(BinaryKind::Mul, [value, gate], module)
}
