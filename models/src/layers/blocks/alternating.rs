//! Alternating updates (Baykal et al. 2023, arXiv:2301.13310), as `transformers/models/gemma3n` has them: each token has several
//! vectors, of which a layer computes one and predicts the others. Layers have a low-rank residual beside attention too, and
//! feed-forwards that keep the largest gates only.

use planish_ir::ops::{BinaryKind, Concat, MatMul, Reduce, ReduceKind, Slice, Unary, UnaryKind};
use planish_ir::{Dim, ValueId};

use super::Blocks;
use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::attention::Text;
use crate::layers::builder::{Builder, SEQUENCE};

/// What the least mean square of a vector is where another takes its magnitude.
const LEAST: f64 = 1e-5;
/// The key that says how many vectors there are, which is the reason for numbers of this form.
const KEY: &str = "altup_num_inputs";

/// The alternating updates of a model.
pub(crate) struct Alternating {
    /// The vectors of a token.
    pub(crate) count: Size,
    /// That which a layer computes.
    pub(crate) active: usize,
    /// Whether the vector that vectors of layers are mixed with is scaled by a weight.
    pub(crate) scales: bool,
    /// The features of the low-rank residual.
    pub(crate) rank: Size,
    /// Of each layer, the features inside its feed-forward.
    pub(crate) inner: Vec<Size>,
    /// Of each layer, how many deviations above the mean a gate is that is kept; all are where absent.
    pub(crate) cutoffs: Vec<Option<f64>>,
}

impl<T: Text> Blocks<'_, T> {
    /// All layers: [batch_size, sequence_length, hidden] to the same, without the last norm.
    pub(super) fn alternating_layers(
        &mut self,
        b: &mut Builder<'_>,
        x: ValueId,
        of: &Alternating,
    ) -> Result<ValueId, ModelError> {
        let hidden = self.s.hidden;
        let mut vectors = vec![self.as_vector(b, x, "altup.first")?];
        let magnitude = mean_square(b, x, "altup.magnitude")?;
        let magnitude = b.emit(Unary { kind: UnaryKind::Sqrt, x: magnitude }, "altup.magnitude")?;
        for other in 0..of.count.value - 1 {
            let module = format!("altup_projections.{other}");
            let projected = b.projection(x, &module, [hidden, hidden], false)?;
            let projected = with_magnitude(b, projected, magnitude, &module)?;
            vectors.push(self.as_vector(b, projected, &format!("{module}.vector"))?);
        }
        let mut all = b.emit(Concat { parts: vectors, axis: 2 }, "altup.vectors")?;
        for layer in 0..self.s.layers.value {
            all = self.alternating_layer(b, all, layer, of)?;
        }
        let first = self.vector(b, all, 0, "altup.last")?;
        let magnitude = mean_square(b, first, "altup.last_magnitude")?;
        let magnitude = b.emit(Unary { kind: UnaryKind::Sqrt, x: magnitude }, "altup.last_magnitude")?;
        let mut sum = first;
        for other in 0..of.count.value - 1 {
            let module = format!("altup_unembed_projections.{other}");
            let vector = self.vector(b, all, other + 1, &format!("{module}.vector"))?;
            let projected = b.projection(vector, &module, [hidden, hidden], false)?;
            let projected = with_magnitude(b, projected, magnitude, &module)?;
            sum = b.add(sum, projected, &format!("{module}.add"))?;
        }
        b.with_number(BinaryKind::Div, sum, of.count.value as f64, "altup.mean", KEY)
    }

    /// A layer: [batch_size, sequence_length, vectors, hidden] to the same.
    fn alternating_layer(
        &mut self,
        b: &mut Builder<'_>,
        all: ValueId,
        layer: usize,
        of: &Alternating,
    ) -> Result<ValueId, ModelError> {
        let s = self.s;
        let path = format!("{}.{layer}", s.names.layers);
        let at = |name: &str| format!("{path}.{name}");
        let (count, one) = (Dim::from(of.count.signed()), Dim::constant(1));
        let texts = b.texts();
        let tokens = || [texts.clone(), Dim::symbol(SEQUENCE)].into_iter();
        let (square, column) = (
            tokens().chain([count.clone(), count.clone()]).collect::<Vec<_>>(),
            tokens().chain([count.clone(), one]).collect::<Vec<_>>(),
        );
        let active = self.vector(b, all, of.active, &at("altup.active"))?;
        let modes = self.modes(b, active, of, &at("altup"))?;
        let squared = Size::derived(of.count.value * of.count.value, "altup_num_inputs * altup_num_inputs");
        let factors = b.projection(modes, &at("altup.prediction_coefs"), [squared, of.count], false)?;
        let factors = b.reshape(factors, square, &at("altup.prediction_factors"))?;
        let mixed = b.emit(MatMul { a: factors, b: all }, &at("altup.mixed"))?;
        let predicted = b.add(mixed, all, &at("altup.predicted"))?;

        let x = self.vector(b, predicted, of.active, &at("altup.prediction"))?;
        let normal = self.norm(b, x, &at("input_layernorm"))?;
        let low = b.projection(normal, &at("laurel.linear_left"), [of.rank, s.hidden], false)?;
        let low = b.projection(low, &at("laurel.linear_right"), [s.hidden, of.rank], false)?;
        let low = self.norm(b, low, &at("laurel.post_laurel_norm"))?;
        let low = b.add(normal, low, &at("laurel.add"))?;
        let attended = self.attention(b, normal, layer, &at(s.names.attention))?;
        let attended = self.norm(b, attended, &at("post_attention_layernorm"))?;
        let sum = b.add(x, attended, &at("self_attn.add"))?;
        let sum = b.add(sum, low, &at("laurel.sum"))?;
        let x = b.with_number(BinaryKind::Mul, sum, 0.5f64.sqrt(), &at("laurel.scaled"), "laurel_rank")?;
        let normal = self.norm(b, x, &at("pre_feedforward_layernorm"))?;
        let forward = self.sparse_feed_forward(b, normal, layer, of, &at("mlp"))?;
        let forward = self.norm(b, forward, &at("post_feedforward_layernorm"))?;
        let activated = b.add(x, forward, &at("mlp.add"))?;

        let modes = self.modes(b, activated, of, &at("altup.corrected"))?;
        let factors = b.projection(modes, &at("altup.correction_coefs"), [of.count, of.count], false)?;
        let factors = b.with_number(BinaryKind::Add, factors, 1.0, &at("altup.correction_factors"), KEY)?;
        let factors = b.reshape(factors, column, &at("altup.correction_column"))?;
        let before = self.vector(b, predicted, of.active, &at("altup.before"))?;
        let change = b.binary(BinaryKind::Sub, [activated, before], &at("altup.change"))?;
        let change = self.as_vector(b, change, &at("altup.change.vector"))?;
        let change = b.binary(BinaryKind::Mul, [factors, change], &at("altup.changes"))?;
        let corrected = b.add(change, predicted, &at("altup.correct"))?;
        self.with_layer_input(b, corrected, layer, of, &path)
    }

    /// The vectors of tokens, to all of which but the first is added what the layer makes of its own vector.
    fn with_layer_input(
        &self,
        b: &mut Builder<'_>,
        corrected: ValueId,
        layer: usize,
        of: &Alternating,
        path: &str,
    ) -> Result<ValueId, ModelError> {
        let s = self.s;
        let at = |name: &str| format!("{path}.{name}");
        let (Some(input), Some(inputs)) = (self.layer_inputs.get(layer).copied(), s.layer_inputs) else {
            return Ok(corrected);
        };
        let mut x = self.vector(b, corrected, of.active, &at("altup.corrected.active"))?;
        if of.scales {
            let scale = b.weight(&[&at("altup.correct_output_scale")], &[s.hidden])?;
            x = b.binary(BinaryKind::Mul, [x, scale], &at("altup.scaled"))?;
        }
        let gate = b.projection(x, &at("per_layer_input_gate"), [inputs.size, s.hidden], false)?;
        let gate = s.activation.apply(b, gate, &at("per_layer_input_gate.act_fn"))?;
        let product = b.binary(BinaryKind::Mul, [gate, input], &at("per_layer_input.mul"))?;
        let projected = b.projection(product, &at("per_layer_projection"), [s.hidden, inputs.size], false)?;
        let normal = self.norm(b, projected, &at("post_per_layer_input_norm"))?;
        let normal = self.as_vector(b, normal, &at("per_layer_input.vector"))?;
        let mut part = |start: i64, end: i64, name: &str| {
            let slice = Slice { x: corrected, axis: 2, start: start.into(), end: end.into() };
            b.emit(slice, &at(name))
        };
        let (first, others) = (part(0, 1, "altup.kept")?, part(1, of.count.signed(), "altup.others")?);
        let others = b.add(others, normal, &at("altup.others.add"))?;
        b.emit(Concat { parts: vec![first, others], axis: 2 }, &at("altup.all"))
    }

    /// How a token mixes its vectors: [batch_size, sequence_length, vectors].
    fn modes(&self, b: &mut Builder<'_>, x: ValueId, of: &Alternating, name: &str) -> Result<ValueId, ModelError> {
        let hidden = self.s.hidden;
        // The router is the same for predictions and corrections.
        let module = name.trim_end_matches(".corrected");
        let normal = self.norm(b, x, &format!("{module}.router_norm"))?;
        let at = |part: &str| format!("{name}.{part}");
        let scaled =
            b.with_number(BinaryKind::Mul, normal, 1.0 / hidden.value as f64, &at("router_input"), hidden.key)?;
        let routed = b.projection(scaled, &format!("{module}.modality_router"), [of.count, hidden], false)?;
        b.emit(Unary { kind: UnaryKind::Tanh, x: routed }, &at("modes"))
    }

    /// A feed-forward whose gates are 0 unless they are so many deviations above their mean.
    fn sparse_feed_forward(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        layer: usize,
        of: &Alternating,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        const SPARSE: &str = "activation_sparsity_pattern";
        let s = self.s;
        let at = |name: &str| format!("{module}.{name}");
        let inner = of.inner.get(layer).copied().unwrap_or(s.intermediate);
        let mut gate = b.projection(x, &at("gate_proj"), [inner, s.hidden], false)?;
        if let Some(deviations) = of.cutoffs.get(layer).copied().flatten() {
            let mean = |b: &mut Builder<'_>, x, name: &str| {
                b.emit(Reduce { kind: ReduceKind::Mean, x, axes: vec![2], keep: true }, &at(name))
            };
            let middle = mean(b, gate, "gate.mean")?;
            let centered = b.binary(BinaryKind::Sub, [gate, middle], &at("gate.centered"))?;
            let variance = mean_square(b, centered, &at("gate.variance"))?;
            let deviation = b.emit(Unary { kind: UnaryKind::Sqrt, x: variance }, &at("gate.deviation"))?;
            let above = b.with_number(BinaryKind::Mul, deviation, deviations, &at("gate.above"), SPARSE)?;
            let kept = b.binary(BinaryKind::Sub, [centered, above], &at("gate.over"))?;
            gate = b.emit(Unary { kind: UnaryKind::Relu, x: kept }, &at("gate.kept"))?;
        }
        let gate = s.activation.apply(b, gate, &at("act_fn"))?;
        let up = b.projection(x, &at("up_proj"), [inner, s.hidden], false)?;
        let product = b.binary(BinaryKind::Mul, [gate, up], &at("mul"))?;
        b.projection(product, &at("down_proj"), [s.hidden, inner], false)
    }

    /// A vector of each token, of [batch_size, sequence_length, vectors, hidden].
    fn vector(&self, b: &mut Builder<'_>, all: ValueId, at: usize, name: &str) -> Result<ValueId, ModelError> {
        let start = Dim::from(Size::derived(at, KEY).signed());
        let end = start.checked_add(&Dim::constant(1)).unwrap_or_default();
        let slice = b.emit(Slice { x: all, axis: 2, start, end }, &format!("{name}.slice"))?;
        let shape = [b.texts(), Dim::symbol(SEQUENCE), self.s.hidden.signed().into()];
        b.reshape(slice, shape, name)
    }

    /// A vector of each token as one of several: [batch_size, sequence_length, 1, hidden].
    fn as_vector(&self, b: &mut Builder<'_>, x: ValueId, name: &str) -> Result<ValueId, ModelError> {
        let shape = [b.texts(), Dim::symbol(SEQUENCE), Dim::constant(1), self.s.hidden.signed().into()];
        b.reshape(x, shape, name)
    }
}

/// The mean of squares of the last axis, of three, which stays: [.., 1].
fn mean_square(b: &mut Builder<'_>, x: ValueId, name: &str) -> Result<ValueId, ModelError> {
    let square = b.binary(BinaryKind::Mul, [x, x], &format!("{name}.square"))?;
    b.emit(Reduce { kind: ReduceKind::Mean, x: square, axes: vec![2], keep: true }, &format!("{name}.mean"))
}

/// A vector with another root of the mean of squares.
fn with_magnitude(b: &mut Builder<'_>, x: ValueId, magnitude: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let own = mean_square(b, x, &at("magnitude"))?;
    let own = b.with_number(BinaryKind::Max, own, LEAST, &at("magnitude.least"), KEY)?;
    let own = b.emit(Unary { kind: UnaryKind::Sqrt, x: own }, &at("magnitude"))?;
    let scaled = b.binary(BinaryKind::Mul, [x, magnitude], &at("mul"))?;
    b.binary(BinaryKind::Div, [scaled, own], &at("scaled"))
}
