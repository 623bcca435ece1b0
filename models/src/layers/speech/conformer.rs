//! Conformers (Gulati et al. 2020, arXiv:2005.08100): layers of attention and of a convolution over time, between two
//! feed-forwards of which half is added.

use planish_ir::ops::{
    Attention, BinaryKind, Cast, Concat, Iota, Linear, MatMul, Real, Sizes, Slice, Split, Unary, UnaryKind,
};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};

use super::settings::Settings;
use super::time::{self, Window};
use super::{EPS, FRAMES, States};
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
enum Kind {
    /// Sinusoids of distances take part in scores (Dai et al. 2019, arXiv:1901.02860).
    Relative,
    /// What queries and keys are projected of turns, by a base.
    Rotary(f64),
    None,
}

/// What layers take besides frames.
enum Positions {
    /// Sinusoids of the distances from the number of frames less 1 down: [2 * frames, hidden].
    Relative(ValueId),
    Rotary(Angles),
    None,
}

/// A conformer.
pub(crate) struct Conformer {
    kind: Kind,
    /// The frames that the convolution covers.
    kernel: Size,
}

impl Conformer {
    pub(crate) fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        const KEY: &str = "position_embeddings_type";
        let kernel = config.size("conv_depthwise_kernel_size", 31)?;
        if kernel.value.is_multiple_of(2) {
            return Err(config.error(format!("{kernel}, expected an odd number of frames")));
        }
        let base = config.positive("rotary_embedding_base", 10_000.0)?;
        let kind = match config.text(KEY, "relative")? {
            _ if config.is_null(KEY) => Kind::None,
            "relative" => Kind::Relative,
            "rotary" => Kind::Rotary(base),
            other => {
                return Err(config.error(format!("`{KEY}` is \"{other}\", expected \"relative\", \"rotary\" or null")));
            }
        };
        Ok(Self { kind, kernel })
    }

    /// All layers: [batch_size, frames, hidden].
    pub(crate) fn encode(&self, b: &mut Builder<'_>, s: &Settings, x: ValueId) -> Result<States, ModelError> {
        let size = s.hidden.value / s.heads.value;
        let (sides, of) = match self.kind {
            Kind::Relative => (s.hidden.value, s.hidden.to_string()),
            Kind::Rotary(_) => (size, "hidden_size / num_attention_heads".to_owned()),
            Kind::None => (0, String::new()),
        };
        if !sides.is_multiple_of(2) {
            return Err(b.config.error(format!("{of} is not even, as sines and cosines of positions are")));
        }
        let frames = b.graph.ty(x).shape[1].clone();
        let positions = match self.kind {
            Kind::Relative => Positions::Relative(distances(b, &frames, s.hidden)?),
            Kind::Rotary(base) => Positions::Rotary(angles(b, &frames, size, base)?),
            Kind::None => Positions::None,
        };
        let (mut x, mut layers) = (x, vec![x]);
        for i in 0..s.layers.value {
            x = self.layer(b, s, x, &format!("encoder.layers.{i}"), &positions)?;
            layers.push(x);
        }
        let x = b.layer_norm(x, "encoder.layer_norm", s.hidden, s.eps)?;
        let last = match &s.adapter {
            Some(adapter) => adapter.apply(b, x, s.hidden)?,
            None => x,
        };
        Ok(States { layers, last })
    }

    fn layer(
        &self,
        b: &mut Builder<'_>,
        s: &Settings,
        x: ValueId,
        path: &str,
        positions: &Positions,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.{name}");
        let x = half(b, s, x, path, "ffn1")?;
        let normal = b.layer_norm(x, &at("self_attn_layer_norm"), s.hidden, EPS)?;
        let attended = attend(b, s, normal, &at("self_attn"), positions)?;
        let x = b.add(attended, x, &at("self_attn.add"))?;
        let convolved = self.convolve(b, s, x, &at("conv_module"))?;
        let x = b.add(convolved, x, &at("conv_module.add"))?;
        let x = half(b, s, x, path, "ffn2")?;
        b.layer_norm(x, &at("final_layer_norm"), s.hidden, EPS)
    }

    /// The convolution of a layer: each channel by itself, between two projections.
    fn convolve(&self, b: &mut Builder<'_>, s: &Settings, x: ValueId, path: &str) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.{name}");
        let size = s.hidden;
        let normal = b.layer_norm(x, &at("layer_norm"), size, EPS)?;
        let both = Size::derived(2 * size.value, "2 * hidden_size");
        let wide = pointwise(b, normal, &at("pointwise_conv1"), [both, size])?;
        let gated = gated(b, wide, size, 2, &at("glu"))?;
        let channels = time::turned(b, gated, &at("channels"))?;
        let (module, norm) = (at("depthwise_conv"), at("batch_norm"));
        let window = Window { groups: size.value, ..Window::around(self.kernel, 1, size.value) };
        let (weight, origin) = b.tensors.take(&[&format!("{module}.weight")], &window.filters([size, size]))?;
        let [factors, shifts] = convolution::affine(b, None, &norm, size)?;
        let numbers = |values: &[f64]| Weight::numbers(DType::F32, vec![size.value], values);
        let scaled = numbers(&factors).and_then(|factors| weight.scale(0, &factors)).zip(numbers(&shifts));
        let Some((weight, shifts)) = scaled else { unreachable!("there is a number for each filter") };
        let weight = b.graph.add_weight(&format!("{module}.weight"), weight, origin);
        let bias = b.graph.add_weight(&format!("{norm}.bias"), shifts, Origin::Module(norm.as_str().into()));
        let convolved = time::emit(b, channels, [Some(weight), Some(bias)], window, FRAMES, &module)?;
        let active = s.activation.apply(b, convolved, &at("activation"))?;
        let frames = time::turned(b, active, &at("frames"))?;
        pointwise(b, frames, &at("pointwise_conv2"), [size, size])
    }
}

/// Half of a feed-forward is added.
fn half(b: &mut Builder<'_>, s: &Settings, x: ValueId, path: &str, name: &str) -> Result<ValueId, ModelError> {
    let at = |part: &str| format!("{path}.{name}.{part}");
    let normal = b.layer_norm(x, &format!("{path}.{name}_layer_norm"), s.hidden, EPS)?;
    let up = b.linear(normal, &at("intermediate_dense"), s.intermediate, s.hidden)?;
    let active = s.activation.apply(b, up, &at("activation"))?;
    let down = b.linear(active, &at("output_dense"), s.hidden, s.intermediate)?;
    let halved = b.with_number(BinaryKind::Mul, down, 0.5, &at("half"), "model_type")?;
    b.add(halved, x, &at("add"))
}

/// `torch.nn.Conv1d` of one frame, without a bias, as the projection that it is.
fn pointwise(b: &mut Builder<'_>, x: ValueId, module: &str, [out, inner]: [Size; 2]) -> Result<ValueId, ModelError> {
    let name = format!("{module}.weight");
    let one = Size::derived(1, "the kernel of a projection");
    let (weight, origin) = b.tensors.take(&[&name], &[out, inner, one])?;
    let weight = weight.reshape(&[out.value, inner.value]);
    let weight = weight.unwrap_or_else(|| unreachable!("the shape was checked"));
    let weight = b.graph.add_weight(&name, weight, origin);
    b.emit(Linear::new(x, weight, None), module)
}

/// The first half of the features of an axis times the sigmoid of the second.
pub(super) fn gated(
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

fn attend(
    b: &mut Builder<'_>,
    s: &Settings,
    x: ValueId,
    path: &str,
    positions: &Positions,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let turned = match positions {
        Positions::Rotary(angles) => angles.rotate(b, x, s.heads, false, &at("rotary"))?,
        Positions::Relative(_) | Positions::None => x,
    };
    let mut q = b.linear(turned, &at("linear_q"), s.hidden, s.hidden)?;
    let k = b.linear(turned, &at("linear_k"), s.hidden, s.hidden)?;
    let v = b.linear(x, &at("linear_v"), s.hidden, s.hidden)?;
    let inner = Size::derived(s.hidden.value / s.heads.value, "hidden_size / num_attention_heads");
    let scale = 1.0 / (inner.value as f64).sqrt();
    let mut bias = None;
    if let Positions::Relative(distances) = positions {
        let addend = |b: &mut Builder<'_>, name: &str| {
            let weight = b.weight(&[&at(name)], &[s.heads, inner])?;
            let row = b.reshape(weight, [Dim::constant(s.hidden.signed())], &at(&format!("{name}.row")))?;
            b.add(q, row, &at(&format!("{name}.add")))
        };
        let (for_keys, for_distances) = (addend(b, "pos_bias_u")?, addend(b, "pos_bias_v")?);
        bias = Some(distance_scores(b, s, for_distances, *distances, inner, scale, path)?);
        q = for_keys;
    }
    let attention = Attention { bias, ..Attention::new(q, k, v, s.heads.value, Real(scale)) };
    let attended = b.emit(attention, path)?;
    b.linear(attended, &at("linear_out"), s.hidden, s.hidden)
}

/// The scores of the distance between each query and each key: [batch_size, heads, frames, frames].
fn distance_scores(
    b: &mut Builder<'_>,
    s: &Settings,
    q: ValueId,
    distances: ValueId,
    inner: Size,
    scale: f64,
    path: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.linear_pos.{name}");
    let [heads, inner] = [s.heads, inner].map(|size| Dim::constant(size.signed()));
    let [rows, frames] = [0, 1].map(|axis| b.graph.ty(q).shape[axis].clone());
    let columns = b.graph.ty(distances).shape[0].clone();
    let keys = b.projection(distances, &format!("{path}.linear_pos"), [s.hidden, s.hidden], false)?;
    let keys = b.reshape(keys, [columns.clone(), heads.clone(), inner.clone()], &at("heads"))?;
    let keys = b.transpose(keys, &[1, 2, 0], &at("columns"))?;
    let q = b.reshape(q, [rows.clone(), frames.clone(), heads.clone(), inner], &at("query.heads"))?;
    let q = b.transpose(q, &[0, 2, 1, 3], &at("query.by_head"))?;
    let scores = b.emit(MatMul { a: q, b: keys }, &at("scores"))?;
    let scores = b.with_number(BinaryKind::Mul, scores, scale, &at("scaled"), "hidden_size")?;
    // The score of query q and key k is in column `frames - 1 - q + k` of row q. With rows that are shorter by one column it is
    // in column k, after the first `frames - 1` scores.
    let one = Dim::constant(1);
    let less = |dim: &Dim| dim.checked_add(&Dim::constant(-1));
    let all = frames.checked_mul(&columns);
    let short = less(&columns);
    let end =
        less(&frames).zip(short.clone()).and_then(|(first, short)| frames.checked_mul(&short)?.checked_add(&first));
    let (Some(all), Some(short), Some(first), Some(end)) = (all, short, less(&frames), end) else {
        return Err(b.config.error("recordings have more frames than 64 bits count"));
    };
    debug_assert_ne!(columns, one);
    let flat = b.reshape(scores, [rows.clone(), heads.clone(), all], &at("flat"))?;
    let flat = b.emit(Slice { x: flat, axis: 2, start: first, end }, &at("after_first"))?;
    let shifted = b.reshape(flat, [rows, heads, frames.clone(), short], &at("shifted"))?;
    b.emit(Slice { x: shifted, axis: 3, start: Dim::constant(0), end: frames }, &at("of_keys"))
}

/// The integers from `frames - 1` down, as many as twice the frames, times frequencies: angles [2 * frames, pairs].
fn distances(b: &mut Builder<'_>, frames: &Dim, hidden: Size) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("encoder.embed_positions.{name}");
    let pairs = hidden.value / 2;
    let twice = frames.checked_mul(&Dim::constant(2));
    let Some((twice, first)) = twice.zip(frames.checked_add(&Dim::constant(-1))) else {
        return Err(b.config.error("recordings have more frames than 64 bits count"));
    };
    let first = b.emit(Sizes { of: Shape::new([first]) }, &at("first"))?;
    let range = b.emit(Iota { dtype: DType::I64, length: twice.clone() }, &at("range"))?;
    let places = b.binary(BinaryKind::Sub, [first, range], &at("places"))?;
    let angles =
        products(b, places, &twice, pairs, |i| 10_000f64.powf(-(2.0 * i as f64) / hidden.value as f64), &at("angles"))?;
    let last = [twice.clone(), Dim::constant(i64::try_from(pairs).unwrap_or(i64::MAX)), Dim::constant(1)];
    let mut side = |kind, name: &str| {
        let x = b.emit(Unary { kind, x: angles }, &at(name))?;
        b.reshape(x, last.clone(), &at(&format!("{name}.column")))
    };
    let parts = vec![side(UnaryKind::Sin, "sin")?, side(UnaryKind::Cos, "cos")?];
    let pairs = b.emit(Concat { parts, axis: 2 }, &at("pairs"))?;
    b.reshape(pairs, [twice, Dim::constant(hidden.signed())], "encoder.embed_positions")
}

/// Cosines and sines of positions, [1, frames, pairs].
fn angles(b: &mut Builder<'_>, frames: &Dim, size: usize, base: f64) -> Result<Angles, ModelError> {
    let at = |name: &str| format!("encoder.embed_positions.{name}");
    let range = b.emit(Iota { dtype: DType::I64, length: frames.clone() }, &at("range"))?;
    let pairs = size / 2;
    let angles = products(b, range, frames, pairs, |i| base.powf(-(2.0 * i as f64) / size as f64), &at("angles"))?;
    let shape = [Dim::constant(1), frames.clone(), Dim::constant(i64::try_from(pairs).unwrap_or(i64::MAX))];
    let mut side = |kind, name: &str| {
        let x = b.emit(Unary { kind, x: angles }, &at(name))?;
        b.reshape(x, shape.clone(), &at(&format!("{name}.row")))
    };
    Ok(Angles::stored(side(UnaryKind::Cos, "cos")?, side(UnaryKind::Sin, "sin")?))
}

/// Integers times frequencies: [count] to [count, pairs].
fn products(
    b: &mut Builder<'_>,
    integers: ValueId,
    count: &Dim,
    pairs: usize,
    frequency: impl Fn(usize) -> f64,
    module: &str,
) -> Result<ValueId, ModelError> {
    let numbers = b.emit(Cast { x: integers, to: DType::F32 }, &format!("{module}.numbers"))?;
    let column = b.reshape(numbers, [count.clone(), Dim::constant(1)], &format!("{module}.column"))?;
    let frequencies: Vec<f64> = (0..pairs).map(frequency).collect();
    let weight = Weight::numbers(DType::F32, vec![pairs], &frequencies);
    let weight = weight.unwrap_or_else(|| unreachable!("there is a number for each pair"));
    let frequencies =
        b.graph.add_weight(&format!("{module}.frequencies"), weight, Origin::Config("hidden_size".into()));
    b.binary(BinaryKind::Mul, [column, frequencies], module)
}
