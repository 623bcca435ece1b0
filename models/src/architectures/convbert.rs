//! ConvBERT (Jiang et al. 2020, arXiv:2008.02496), as `transformers/models/convbert` has it: ELECTRA, half of whose attention is a
//! convolution over neighbours with kernels that each token computes.

use planish_ir::ops::{BinaryKind, Concat, Conv, Expand, Linear, MatMul, Slice, Softmax};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults, LAYER};
use crate::checkpoint::config::Size;
use crate::layers::attention::{Heads, Scores, attention};
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::dense::{Form, Forms};
use crate::layers::encoder::{self, Settings};
use crate::layers::heads::TextHeads;
use crate::layers::pooling;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "convbert",
    class_prefix: "ConvBert",
    base: "convbert",
    keys: &[bert::KEYS, pooling::SUMMARY_KEYS, &[KERNEL, "embedding_size", "head_ratio", "num_groups"]],
    only: &[encoder::NO_DECODER],
    irrelevant_keys: pooling::SUMMARY_DROPOUT,
    // Buffers, then heads of other tasks.
    unused_tensors: &[
        "embeddings.position_ids",
        "generator_predictions.",
        "generator_lm_head.",
        "sequence_summary.",
        "classifier.",
        "qa_outputs.",
    ],
    build,
    ..bert::ARCHITECTURE
};

const KERNEL: &str = "conv_kernel_size";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = bert::settings(b.config, &Defaults { pad_token_id: 1, ..Defaults::BERT })?;
    s.embedded = b.config.size("embedding_size", 768)?;
    let mixed = Mixed::read(b, &s)?;
    let groups = b.config.size_or("num_groups", Size::derived(1, "num_groups"))?;
    let form = if groups.value == 1 { Form::Linear } else { Form::Grouped(groups) };
    let forms = Forms { up: form, down: form, ..Forms::LINEAR };
    let ([words, types, positions], mask) = bert::sums(b, &s)?;
    let mut x = encoder::embeddings(b, &s, words, &[positions, types])?;
    if s.embedded.value != s.hidden.value {
        x = b.linear(x, "embeddings_project", s.hidden, s.embedded)?;
    }
    for layer in 0..s.layers.value {
        let path = format!("{}.{layer}", LAYER.layers);
        x = encoder::layer_with(b, &s, &LAYER, &forms, &path, x, |b, x| mixed.attend(b, &s, x, mask, &path))?;
    }
    TextHeads::electra(s.activation).finish(b, &s.head_sizes(), x, task)?;
    Ok(s.properties(s.positions.value))
}

/// Attention and convolution side by side.
struct Mixed {
    heads: Heads,
    /// The features of all heads.
    features: Size,
    /// How many neighbours a token sees, itself included.
    kernel: Size,
}

impl Mixed {
    fn read(b: &Builder<'_>, s: &Settings) -> Result<Self, ModelError> {
        let ratio = b.config.size_or("head_ratio", Size::derived(2, "head_ratio"))?;
        let kernel = b.config.size_or(KERNEL, Size::derived(9, KERNEL))?;
        let count = Size::derived((s.heads.value / ratio.value).max(1), "num_attention_heads / head_ratio");
        let size = Size::derived(s.hidden.value / count.value / 2, "half of hidden_size / heads");
        if 2 * count.value * size.value != s.hidden.value {
            return Err(b.config.error(format!("{} is not divisible by 2 and by {count}", s.hidden)));
        }
        if kernel.value.is_multiple_of(2) {
            return Err(b
                .config
                .error(format!("{kernel} is even: the convolution would give another number of tokens")));
        }
        let features = Size::derived(count.value * size.value, "half of hidden_size");
        Ok(Self { heads: Heads { queries: count, keys: count, size }, features, kernel })
    }

    /// [batch_size, sequence_length, hidden] to the same: what attention gives, then what convolution gives.
    fn attend(
        &self,
        b: &mut Builder<'_>,
        s: &Settings,
        x: ValueId,
        mask: ValueId,
        path: &str,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.attention.self.{name}");
        let k = b.linear(x, &at("key"), self.features, s.hidden)?;
        let v = b.linear(x, &at("value"), self.features, s.hidden)?;
        let q = b.linear(x, &at("query"), self.features, s.hidden)?;
        let near = self.near(b, s, x, &at("key_conv_attn_layer"))?;
        let product = b.binary(BinaryKind::Mul, [near, q], &at("conv_attn"))?;
        let convolved = self.convolve(b, s, [x, product], path)?;
        let scale = 1.0 / (self.heads.size.value as f64).sqrt();
        let attention = attention([q, k, v], self.heads, Scores::scaled(scale), mask);
        let attended = b.emit(attention, &format!("{path}.attention"))?;
        b.emit(Concat { parts: vec![attended, convolved], axis: 2 }, &at("both"))
    }

    /// Neighbours of each token, by a convolution of each feature and a projection: [batch_size, sequence_length, features].
    fn near(&self, b: &mut Builder<'_>, s: &Settings, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let one = Size::derived(1, "one feature");
        let channels = b.transpose(x, &[0, 2, 1], &at("channels"))?;
        let conv = Conv {
            x: channels,
            weight: b.weight(&[&at("depthwise.weight")], &[s.hidden, one, self.kernel])?,
            bias: None,
            strides: vec![1],
            dilations: vec![1],
            pads: vec![self.kernel.value / 2; 2],
            groups: s.hidden.value,
            sizes: Shape::new([Dim::symbol(SEQUENCE)]),
        };
        let near = b.emit(conv, &at("depthwise"))?;
        let near = b.transpose(near, &[0, 2, 1], &at("tokens"))?;
        let weight = b.weight(&[&at("pointwise.weight")], &[self.features, s.hidden, one])?;
        let weight =
            b.reshape(weight, [self.features, s.hidden].map(|d| d.signed().into()), &at("pointwise.matrix"))?;
        let bias = b.weight(&[&at("bias")], &[self.features, one])?;
        let bias = b.reshape(bias, [self.features.signed().into()], &at("pointwise.bias"))?;
        b.emit(Linear::new(near, weight, Some(bias)), module)
    }

    /// The convolution of each token's neighbours with a kernel for each head, which a projection of `product` gives:
    /// [batch_size, sequence_length, features].
    fn convolve(
        &self,
        b: &mut Builder<'_>,
        s: &Settings,
        [x, product]: [ValueId; 2],
        path: &str,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.attention.self.{name}");
        let (batch, length) = (b.texts(), Dim::symbol(SEQUENCE));
        let [count, size, kernel] = [self.heads.queries, self.heads.size, self.kernel].map(|d| Dim::from(d.signed()));
        let one = Dim::constant(1);
        let all = Size::derived(self.heads.queries.value * self.kernel.value, "heads * conv_kernel_size");
        let kernels = b.linear(product, &at("conv_kernel_layer"), all, self.features)?;
        let by_head = [batch.clone(), length.clone(), count.clone(), one.clone(), kernel];
        let kernels = b.reshape(kernels, by_head, &at("kernels"))?;
        let kernels = b.emit(Softmax { x: kernels }, &at("kernels.softmax"))?;

        let values = b.linear(x, &at("conv_out_layer"), self.features, s.hidden)?;
        let margin = self.kernel.value / 2;
        let features = Dim::from(self.features.signed());
        let zero = Weight::numbers(DType::F32, vec![1, 1, 1], &[0.0]);
        let zero = zero.unwrap_or_else(|| unreachable!("one number has this shape"));
        let zero = b.graph.add_weight(&at("zero"), zero, Origin::Unknown);
        let margin =
            Shape::new([batch.clone(), Dim::constant(i64::try_from(margin).unwrap_or(i64::MAX)), features.clone()]);
        let zeros = b.emit(Expand { x: zero, shape: margin }, &at("margin"))?;
        let padded = b.emit(Concat { parts: vec![zeros, values, zeros], axis: 1 }, &at("padded"))?;
        let mut windows = Vec::new();
        for offset in 0..self.kernel.signed() {
            let start = Dim::constant(offset);
            let end = length.checked_add(&start).unwrap_or_default();
            let part = b.emit(Slice { x: padded, axis: 1, start, end }, &at(&format!("window.{offset}")))?;
            let dims = [batch.clone(), length.clone(), count.clone(), one.clone(), size.clone()];
            windows.push(b.reshape(part, dims, &at(&format!("window.{offset}.by_head")))?);
        }
        let windows = b.emit(Concat { parts: windows, axis: 3 }, &at("windows"))?;
        let sum = b.emit(MatMul { a: kernels, b: windows }, &at("conv"))?;
        b.reshape(sum, [batch, length, features], &at("conv_out"))
    }
}
