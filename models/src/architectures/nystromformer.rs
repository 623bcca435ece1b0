//! Nyströmformer (Xiong et al. 2021, arXiv:2102.03902), as `transformers/models/nystromformer` has it where there are as many
//! landmarks as tokens of a segment: BERT with attention to all tokens, and a convolution of the values beside it.

use planish_ir::ops::{Conv, Slice, UnaryKind};
use planish_ir::{Dim, Shape, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults, LAYER};
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::attention::attention;
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::dense::Forms;
use crate::layers::encoder::{self, Settings};
use crate::layers::heads::{Pooling, TextHeads};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "nystromformer",
    class_prefix: "Nystromformer",
    base: "nystromformer",
    keys: &[bert::KEYS, &[KERNEL, LANDMARKS, SEGMENT]],
    // How an inverse begins, which attention by landmarks has.
    only: &[encoder::NO_DECODER, Only::Off("inv_coeff_init_option")],
    irrelevant_keys: &[],
    // Buffers, then heads of other tasks.
    unused_tensors: &[
        "embeddings.position_ids",
        "embeddings.token_type_ids",
        "cls.",
        "pre_classifier.",
        "classifier.",
        "qa_outputs.",
    ],
    build,
    ..bert::ARCHITECTURE
};

const KERNEL: &str = "conv_kernel_size";
const LANDMARKS: &str = "num_landmarks";
const SEGMENT: &str = "segment_means_seq_len";
/// The position of the first token.
const FIRST: usize = 2;

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults {
        vocab_size: 30000,
        pad_token_id: 1,
        max_position_embeddings: 510,
        hidden_act: "gelu_new",
        layer_norm_eps: 1e-5,
        ..Defaults::BERT
    };
    let s = bert::settings(b.config, &defaults)?;
    let (landmarks, segment) = (b.config.size(LANDMARKS, 64)?, b.config.size(SEGMENT, 64)?);
    if landmarks.value != segment.value {
        return Err(b.config.error(format!(
            "{landmarks}, but {segment}: attention by landmarks takes texts of one length only, and is not supported; where \
             both are equal, attention is to all tokens"
        )));
    }
    let kernel = kernel(b.config)?;
    let types = bert::token_types(b)?;
    let input_ids = b.input(names::INPUT_IDS, s.vocabulary.signed())?;
    let attention_mask = b.input(names::ATTENTION_MASK, 2)?;
    let token_type_ids = b.input(names::TOKEN_TYPES, types.signed())?;
    let mask = encoder::mask(b, attention_mask)?;
    let words = b.embedding(input_ids, "embeddings.word_embeddings", s.vocabulary, s.hidden)?;
    let types = b.embedding(token_type_ids, "embeddings.token_type_embeddings", types, s.hidden)?;
    let positions = positions(b, &s)?;
    let mut x = encoder::embeddings(b, &s, words, &[types, positions])?;
    for layer in 0..s.layers.value {
        let path = format!("{}.{layer}", LAYER.layers);
        x = encoder::layer_with(b, &s, &LAYER, &Forms::LINEAR, &path, x, |b, x| attend(b, &s, x, mask, kernel, &path))?;
    }
    let classifier = Pooling::Dense("classifier.dense", s.activation);
    let bert = TextHeads::bert(s.activation);
    let choice = Some(Pooling::Dense("pre_classifier", Activation::Unary(UnaryKind::Relu)));
    let heads = TextHeads { pooler: None, sequence: (classifier, "classifier.out_proj"), choice, ..bert };
    heads.finish(b, &s.head_sizes(), x, task)?;
    Ok(s.properties(s.positions.value))
}

/// How many neighbours the convolution sees, the token itself included, where there is one.
fn kernel(config: &Config<'_>) -> Result<Option<Size>, ModelError> {
    let kernel = config.optional_size(KERNEL, Some(65))?.map(|size| Size::derived(size, KERNEL));
    match kernel {
        Some(kernel) if kernel.value.is_multiple_of(2) => {
            Err(config.error(format!("{kernel} is even: the convolution would give another number of tokens")))
        }
        kernel => Ok(kernel),
    }
}

/// The embeddings of positions: [sequence_length, hidden].
fn positions(b: &mut Builder<'_>, s: &Settings) -> Result<ValueId, ModelError> {
    let rows = Size::derived(s.positions.value + FIRST, "max_position_embeddings + 2");
    let x = b.weight(&["embeddings.position_embeddings.weight"], &[rows, s.hidden])?;
    let start = Dim::from(Size::derived(FIRST, "2").signed());
    let end = Dim::symbol(SEQUENCE).checked_add(&start).unwrap_or_default();
    b.emit(Slice { x, axis: 0, start, end }, "embeddings.position_embeddings")
}

/// Attention, and the convolution of the values of each head: [batch_size, sequence_length, hidden] to the same.
fn attend(
    b: &mut Builder<'_>,
    s: &Settings,
    x: ValueId,
    mask: ValueId,
    kernel: Option<Size>,
    path: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.attention.self.{name}");
    let [q, k, v] = ["query", "key", "value"].map(|name| b.linear(x, &at(name), s.hidden, s.hidden));
    let v = v?;
    let heads = s.attention_heads();
    let attended = b.emit(attention([q?, k?, v], heads, s.scores(), mask), &format!("{path}.attention"))?;
    let Some(kernel) = kernel else { return Ok(attended) };
    let (batch, length) = (b.texts(), Dim::symbol(SEQUENCE));
    let [count, size] = [heads.queries, heads.size].map(|d| Dim::from(d.signed()));
    let apart = b.reshape(v, [batch.clone(), length.clone(), count, size.clone()], &at("values"))?;
    let by_head = b.transpose(apart, &[0, 2, 1, 3], &at("values.by_head"))?;
    let one = Size::derived(1, "one feature");
    let margin = kernel.value / 2;
    let conv = Conv {
        x: by_head,
        weight: b.weight(&[&at("conv.weight")], &[heads.queries, one, kernel, one])?,
        bias: None,
        strides: vec![1; 2],
        dilations: vec![1; 2],
        pads: vec![margin, 0, margin, 0],
        groups: heads.queries.value,
        sizes: Shape::new([length.clone(), size]),
    };
    let near = b.emit(conv, &at("conv"))?;
    let near = b.transpose(near, &[0, 2, 1, 3], &at("conv.by_token"))?;
    let near = b.reshape(near, [batch, length, s.hidden.signed().into()], &at("conv.merge"))?;
    b.add(attended, near, &at("add"))
}
