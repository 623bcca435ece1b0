//! The heads of encoders of speech.

use planish_ir::ops::{BinaryKind, Cast, Reduce, ReduceKind, Sizes, Unary, UnaryKind};
use planish_ir::{DType, Dim, Shape, ValueId};

use super::masks::Mask;
use super::settings::{Adapter, Head, XVector};
use super::time::{self, Window};
use super::{FRAMES, States, join};
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::heads::{NO_HEAD, classify};
use crate::layers::weighted_sum::weighted_sum;
use crate::names;
use crate::{ModelError, Task};

impl Head {
    /// Refuses convolutions after the transformer where the classes of the transformers library do.
    pub(crate) fn check(&self, config: &Config<'_>, adapter: Option<&Adapter>, task: Task) -> Result<(), ModelError> {
        match (adapter, task) {
            (Some(_), Task::AudioClassification | Task::AudioFrameClassification) => Err(config.error(format!(
                "`add_adapter` is true: no class of the transformers library for {task} has these convolutions"
            ))),
            (Some(adapter), Task::AudioXVector) if !self.sums_layers && adapter.features.value != self.hidden.value => {
                Err(config.error(format!("{task} takes what has {}, but there are {}", self.hidden, adapter.features)))
            }
            _ => Ok(()),
        }
    }

    /// Adds the outputs of a task. Of rows that are filled up, `mask` says which frames of the last states are there.
    pub(crate) fn finish(
        &self,
        b: &mut Builder<'_>,
        states: &States,
        mask: Option<Mask>,
        task: Task,
    ) -> Result<(), ModelError> {
        match task {
            Task::FeatureExtraction => {
                b.give(names::HIDDEN, states.last);
                Ok(())
            }
            Task::AutomaticSpeechRecognition => {
                let logits = b.linear(states.last, "lm_head", self.vocabulary, self.features)?;
                b.give(names::LOGITS, logits);
                Ok(())
            }
            Task::AudioClassification => {
                let x = self.summed(b, states)?;
                // The mean of projections is the projection of the mean.
                let mean = mean(b, x, mask)?;
                let projected = b.linear(mean, "projector", self.projected, self.hidden)?;
                classify(b, self.projected, projected, "classifier")
            }
            Task::AudioFrameClassification => {
                let x = self.summed(b, states)?;
                classify(b, self.hidden, x, "classifier")
            }
            Task::AudioXVector => {
                let Some(head) = &self.xvector else { unreachable!("{}", NO_HEAD) };
                let x = self.summed(b, states)?;
                head.finish(b, x, self.hidden, mask)
            }
            _ => unreachable!("{}", NO_HEAD),
        }
    }

    /// What classifiers take: what the encoder gives, or the weighted sum of what all layers take and give. Norms after the last
    /// layer are not in the latter, as transformers 5 has it.
    fn summed(&self, b: &mut Builder<'_>, states: &States) -> Result<ValueId, ModelError> {
        if self.sums_layers { weighted_sum(b, &states.layers) } else { Ok(states.last) }
    }
}

/// The mean over frames that are there: [batch_size, frames, features] to [batch_size, features].
fn mean(b: &mut Builder<'_>, x: ValueId, mask: Option<Mask>) -> Result<ValueId, ModelError> {
    const MODULE: &str = "projector.mean";
    let at = |name: &str| format!("{MODULE}.{name}");
    let reduce = |kind, x| Reduce { kind, x, axes: vec![1], keep: false };
    let Some(mask) = mask else { return b.emit(reduce(ReduceKind::Mean, x), MODULE) };
    let kept = mask.clear(b, x, &at("kept"))?;
    let total = b.emit(reduce(ReduceKind::Sum, kept), &at("total"))?;
    let count = b.emit(reduce(ReduceKind::Sum, mask.column()), &at("count"))?;
    b.binary(BinaryKind::Div, [total, count], MODULE)
}

impl XVector {
    /// Vectors of voices (Snyder et al. 2018): time-delay layers, then mean and deviation of all frames.
    fn finish(&self, b: &mut Builder<'_>, x: ValueId, hidden: Size, mask: Option<Mask>) -> Result<(), ModelError> {
        let Some([first, ..]) = self.layers.first().copied() else { unreachable!("lists of sizes have an entry") };
        let projected = b.linear(x, "projector", first, hidden)?;
        let mut x = time::turned(b, projected, "tdnn.channels")?;
        let mut before = first;
        for (i, &[channels, kernel, dilation]) in self.layers.iter().enumerate() {
            x = delay(b, x, &format!("tdnn.{i}"), [channels, before], kernel, dilation)?;
            before = channels;
        }
        let mask = match mask {
            Some(mask) => {
                // The class of the library counts the frames that kernels take, and not what dilations take besides.
                let taken: usize = self.layers.iter().map(|[_, kernel, _]| kernel.value - 1).sum();
                let places = b.graph.ty(x).shape[2].clone();
                Some(mask.moved(b, places, 1, i64::try_from(taken).unwrap_or(i64::MAX), "tdnn.mask")?)
            }
            None => None,
        };
        let pooled = statistics(b, x, mask)?;
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

/// The mean of each channel over the frames that are there, then its deviation, as of a sample: [batch_size, channels, frames] to [batch_size, 2 *
/// channels].
fn statistics(b: &mut Builder<'_>, x: ValueId, mask: Option<Mask>) -> Result<ValueId, ModelError> {
    const MODULE: &str = "tdnn.statistics";
    let at = |name: &str| format!("{MODULE}.{name}");
    let shape = b.graph.ty(x).shape.clone();
    let sum = |x, keep| Reduce { kind: ReduceKind::Sum, x, axes: vec![2], keep };
    // 1 for each frame that is there, as [batch_size, 1, frames], and how many these are, as [batch_size, 1].
    let kept = match mask {
        Some(mask) => {
            let row = time::turned(b, mask.column(), &at("kept"))?;
            let count = b.emit(sum(row, false), &at("count"))?;
            Some((row, count))
        }
        None => None,
    };
    let mean = match kept {
        Some((row, count)) => {
            let x = b.binary(BinaryKind::Mul, [x, row], &at("there"))?;
            let total = b.emit(sum(x, true), &at("total"))?;
            let count = b.reshape(count, [shape[0].clone(), Dim::constant(1), Dim::constant(1)], &at("count.map"))?;
            b.binary(BinaryKind::Div, [total, count], &at("mean"))?
        }
        None => b.emit(Reduce { kind: ReduceKind::Mean, x, axes: vec![2], keep: true }, &at("mean"))?,
    };
    let rest = b.binary(BinaryKind::Sub, [x, mean], &at("rest"))?;
    let mut square = b.binary(BinaryKind::Mul, [rest, rest], &at("square"))?;
    let others = match kept {
        Some((row, count)) => {
            square = b.binary(BinaryKind::Mul, [square, row], &at("square.there"))?;
            b.with_number(BinaryKind::Sub, count, 1.0, &at("others"), "model_type")?
        }
        None => {
            let Some(others) = shape[2].checked_add(&Dim::constant(-1)) else {
                return Err(b.config.error("recordings have more frames than 64 bits count"));
            };
            let others = b.emit(Sizes { of: Shape::new([others]) }, &at("others"))?;
            b.emit(Cast { x: others, to: DType::F32 }, &at("others.number"))?
        }
    };
    let squares = b.emit(sum(square, false), &at("squares"))?;
    let variance = b.binary(BinaryKind::Div, [squares, others], &at("variance"))?;
    let deviation = b.emit(Unary { kind: UnaryKind::Sqrt, x: variance }, &at("deviation"))?;
    let mean = b.reshape(mean, [shape[0].clone(), shape[1].clone()], &at("mean.row"))?;
    join(b, vec![mean, deviation], 1, MODULE)
}
