//! The heads of encoders of speech.

use planish_ir::ops::{BinaryKind, Cast, Reduce, ReduceKind, Sizes, Unary, UnaryKind};
use planish_ir::{DType, Dim, Shape, ValueId};

use super::settings::{Settings, XVector};
use super::time::{self, Window};
use super::{FRAMES, States, join};
use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::heads::{NO_HEAD, classify};
use crate::layers::weighted_sum::weighted_sum;
use crate::names;
use crate::{ModelError, Task};

/// Refuses convolutions after the transformer where the classes of the transformers library do.
pub(super) fn check(b: &Builder<'_>, s: &Settings, task: Task) -> Result<(), ModelError> {
    match (&s.adapter, task) {
        (Some(_), Task::AudioClassification | Task::AudioFrameClassification) => Err(b.config.error(format!(
            "`add_adapter` is true: no class of the transformers library for {task} has these convolutions"
        ))),
        (Some(adapter), Task::AudioXVector) if !s.sums_layers && adapter.features.value != s.hidden.value => {
            Err(b.config.error(format!("{task} takes what has {}, but there are {}", s.hidden, adapter.features)))
        }
        _ => Ok(()),
    }
}

/// Adds the outputs of a task.
pub(super) fn finish(b: &mut Builder<'_>, s: &Settings, states: &States, task: Task) -> Result<(), ModelError> {
    match task {
        Task::FeatureExtraction => {
            b.give(names::HIDDEN, states.last);
            Ok(())
        }
        Task::AutomaticSpeechRecognition => {
            let logits = b.linear(states.last, "lm_head", s.vocabulary, s.features())?;
            b.give(names::LOGITS, logits);
            Ok(())
        }
        Task::AudioClassification => {
            let x = s.summed(b, states)?;
            // The mean of projections is the projection of the mean.
            let mean = b.emit(Reduce { kind: ReduceKind::Mean, x, axes: vec![1], keep: false }, "projector.mean")?;
            let projected = b.linear(mean, "projector", s.projected, s.hidden)?;
            classify(b, s.projected, projected, "classifier")
        }
        Task::AudioFrameClassification => {
            let x = s.summed(b, states)?;
            classify(b, s.hidden, x, "classifier")
        }
        Task::AudioXVector => {
            let Some(head) = &s.xvector else { unreachable!("{}", NO_HEAD) };
            let x = s.summed(b, states)?;
            head.finish(b, x, s.hidden)
        }
        _ => unreachable!("{}", NO_HEAD),
    }
}

impl Settings {
    /// What classifiers take: what the encoder gives, or the weighted sum of what all layers take and give. Norms after the last
    /// layer are not in the latter, as transformers 5 has it.
    fn summed(&self, b: &mut Builder<'_>, states: &States) -> Result<ValueId, ModelError> {
        if self.sums_layers { weighted_sum(b, &states.layers) } else { Ok(states.last) }
    }
}

impl XVector {
    /// Vectors of voices (Snyder et al. 2018): time-delay layers, then mean and deviation of all frames.
    fn finish(&self, b: &mut Builder<'_>, x: ValueId, hidden: Size) -> Result<(), ModelError> {
        let Some([first, ..]) = self.layers.first().copied() else { unreachable!("lists of sizes have an entry") };
        let projected = b.linear(x, "projector", first, hidden)?;
        let mut x = time::turned(b, projected, "tdnn.channels")?;
        let mut before = first;
        for (i, &[channels, kernel, dilation]) in self.layers.iter().enumerate() {
            x = delay(b, x, &format!("tdnn.{i}"), [channels, before], kernel, dilation)?;
            before = channels;
        }
        let pooled = statistics(b, x)?;
        let both = Size::derived(2 * before.value, "mean and deviation of tdnn_dim");
        let embedded = b.linear(pooled, "feature_extractor", self.features, both)?;
        let logits = b.linear(embedded, "classifier", self.features, self.features)?;
        b.give(names::LOGITS, logits);
        b.give(names::XVECTOR, embedded);
        Ok(())
    }
}

/// A time-delay layer: a convolution whose filters are stored as [out, kernel * in].
fn delay(
    b: &mut Builder<'_>,
    x: ValueId,
    path: &str,
    [out, inner]: [Size; 2],
    kernel: Size,
    dilation: Size,
) -> Result<ValueId, ModelError> {
    let module = format!("{path}.kernel");
    let columns = Size::derived(kernel.value * inner.value, "tdnn_kernel * tdnn_dim");
    let name = format!("{module}.weight");
    let (stored, origin) = b.tensors.take(&[&name], &[out, columns])?;
    let filters = stored.reshape(&[out.value, kernel.value, inner.value]).and_then(|w| w.transpose(&[0, 2, 1]));
    let Some(filters) = filters else { unreachable!("the shape was checked") };
    let weight = b.graph.add_weight(&name, filters, origin);
    let bias = b.weight(&[&format!("{module}.bias")], &[out])?;
    let window = Window { dilation: dilation.value, ..Window::new(kernel, 1) };
    let x = time::emit(b, x, [Some(weight), Some(bias)], window, FRAMES, &module)?;
    Activation::RELU.apply(b, x, &format!("{path}.activation"))
}

/// The mean of each channel over time, then its deviation, as of a sample: [batch_size, channels, frames] to [batch_size, 2 *
/// channels].
fn statistics(b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, ModelError> {
    const MODULE: &str = "tdnn.statistics";
    let at = |name: &str| format!("{MODULE}.{name}");
    let shape = b.graph.ty(x).shape.clone();
    let Some(others) = shape[2].checked_add(&Dim::constant(-1)) else {
        return Err(b.config.error("recordings have more frames than 64 bits count"));
    };
    let mean = b.emit(Reduce { kind: ReduceKind::Mean, x, axes: vec![2], keep: true }, &at("mean"))?;
    let rest = b.binary(BinaryKind::Sub, [x, mean], &at("rest"))?;
    let square = b.binary(BinaryKind::Mul, [rest, rest], &at("square"))?;
    let squares = b.emit(Reduce { kind: ReduceKind::Sum, x: square, axes: vec![2], keep: false }, &at("squares"))?;
    let others = b.emit(Sizes { of: Shape::new([others]) }, &at("others"))?;
    let others = b.emit(Cast { x: others, to: DType::F32 }, &at("others.number"))?;
    let variance = b.binary(BinaryKind::Div, [squares, others], &at("variance"))?;
    let deviation = b.emit(Unary { kind: UnaryKind::Sqrt, x: variance }, &at("deviation"))?;
    let mean = b.reshape(mean, [shape[0].clone(), shape[1].clone()], &at("mean.row"))?;
    join(b, vec![mean, deviation], 1, MODULE)
}
