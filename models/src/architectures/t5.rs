//! T5 (Raffel et al. 2019, arXiv:1910.10683), as `transformers/models/t5` has it: norms before
//! attention and feed-forward, and biases of attention by relative position in place of positions.

use planish_ir::ops::{Attention, Binary, BinaryKind, Embedding, Real};
use planish_ir::{DType, Dim, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::relative::{self, Buckets};
use crate::layers::seq2seq::{self, CACHED, DECODER_SEQUENCE, Decoder, ENCODER_SEQUENCE, Encoder, Heads, Shared};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "t5",
    class_prefix: "T5",
    base: "transformer",
    other_bases: &[],
    renamed: &[],
    tasks: seq2seq::TASKS,
    keys: &[&[
        "d_ff",
        "d_kv",
        "d_model",
        "dense_act_fn",
        "feed_forward_proj",
        "hidden_size",
        "is_gated_act",
        "layer_norm_epsilon",
        "num_attention_heads",
        "num_decoder_layers",
        "num_heads",
        "num_hidden_layers",
        "num_layers",
        "pad_token_id",
        "relative_attention_max_distance",
        "relative_attention_num_buckets",
        "scale_decoder_outputs",
        "tie_word_embeddings",
        "vocab_size",
    ]],
    older_keys: &[],
    only: &[],
    irrelevant_keys: &[
        // Training.
        "dropout_rate",
        "initializer_factor",
        // The length of sequences in training: nothing depends on it.
        "n_positions",
    ],
    // Biases by position between decoder and encoder, which old checkpoints store and nothing uses.
    unused_tensors: &["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias."],
    pad_token_id: None,
    gguf: None,
    build,
};

const EMBEDDINGS: &[&str] = &["shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"];
const HEAD: &str = "lm_head.weight";

/// The configuration in `config.json`.
struct Settings {
    vocabulary: Size,
    hidden: Size,
    /// Features of all heads side by side.
    inner: Size,
    intermediate: Size,
    /// Layers of encoder and decoder.
    layers: [Size; 2],
    heads: Heads,
    buckets: Size,
    max_distance: Size,
    activation: Activation,
    /// Whether the feed-forward is gated.
    gated: bool,
    /// Added to the mean square in norms.
    eps: f64,
}

impl Settings {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let size = config.size("d_kv", 64)?;
        let count = config.size_alias(&["num_heads", "num_attention_heads"], 8)?;
        let layers = config.size_alias(&["num_layers", "num_hidden_layers"], 6)?;
        let (activation, gated) = feed_forward_form(config)?;
        Ok(Self {
            vocabulary: config.size("vocab_size", 32128)?,
            hidden: config.size_alias(&["d_model", "hidden_size"], 512)?,
            inner: Size::derived(count.value * size.value, "num_heads * d_kv"),
            intermediate: config.size("d_ff", 2048)?,
            layers: [layers, config.size_or("num_decoder_layers", layers)?],
            heads: Heads { count, size, scale: 1.0 },
            buckets: config.size("relative_attention_num_buckets", 32)?,
            max_distance: config.size("relative_attention_max_distance", 128)?,
            activation,
            gated,
            eps: config.positive("layer_norm_epsilon", 1e-6)?,
        })
    }
}

/// The activation of the feed-forward and whether it is gated. `feed_forward_proj` says both; what
/// the library derives from it may be stored too.
fn feed_forward_form(config: &Config<'_>) -> Result<(Activation, bool), ModelError> {
    const FORM: &str = "feed_forward_proj";
    const STORED: &str = "dense_act_fn";
    let form = Activation::name(config, FORM, "relu")?;
    let (name, gated) = match form.strip_prefix("gated-") {
        // The only name that means another function than elsewhere.
        Some("gelu") => ("gelu_new", true),
        Some(name) => (name, true),
        None => (form, false),
    };
    let activation = Activation::named(config, FORM, name)?;
    let stored = match config.get(STORED) {
        None if !config.is_null(STORED) => activation,
        _ => Activation::read(config, STORED, "")?,
    };
    if stored != activation || config.boolean("is_gated_act", gated)? != gated {
        return Err(config.error(format!(
            "`{FORM}` is \"{form}\", but `{STORED}` or `is_gated_act` says otherwise: they come from it"
        )));
    }
    Ok((activation, gated))
}

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config)?;
    let tied = b.config.boolean("tie_word_embeddings", true)?;
    let scaled = b.config.boolean("scale_decoder_outputs", tied)?;
    // Transformers 5 writes of all models that they are tied, also of those with a head of their own,
    // which are not scaled.
    let tied = tied && (scaled || !has_own_head(b)?);
    let shape = [s.vocabulary, s.hidden];
    let shared = Shared::find(b, EMBEDDINGS, HEAD, tied, shape)?;
    encoder(b, &s, &shared)?;
    for cached in CACHED {
        let mut decoder = Decoder::new(b, shape, s.heads, cached)?;
        let mut x = decoder_layers(b, &s, &shared, &mut decoder)?;
        if scaled {
            let scale = b.graph.add_scalar("lm_head.scale", DType::F32, (s.hidden.value as f64).powf(-0.5));
            x = b.emit(Binary { kind: BinaryKind::Mul, a: x, b: scale }, "lm_head.scaled")?;
        }
        let weight = if tied { shared.weight(b)? } else { b.weight(&[HEAD], &shape)? };
        decoder.finish(b, x, weight, None)?;
    }
    Ok(seq2seq::properties(b, s.vocabulary, None))
}

/// Whether the projection to the vocabulary is stored and is none of the embeddings.
fn has_own_head(b: &mut Builder<'_>) -> Result<bool, ModelError> {
    EMBEDDINGS.iter().try_fold(false, |own, name| Ok(own || b.tensors.differs(name, HEAD)?))
}

fn encoder(b: &mut Builder<'_>, s: &Settings, shared: &Shared) -> Result<(), ModelError> {
    let encoder = Encoder::new(b, s.vocabulary, ENCODER_SEQUENCE)?;
    let length = Dim::symbol(ENCODER_SEQUENCE);
    let bias = position_bias(b, s, "encoder", true, &Dim::constant(0), &length)?;
    let mut x = embed(b, shared, encoder.input_ids, "encoder")?;
    for i in 0..s.layers[0].value {
        let at = |name: &str| format!("encoder.block.{i}.layer.{name}");
        let normal = b.rms_norm(x, &at("0.layer_norm"), s.hidden, s.eps)?;
        let [q, k, v] = project(b, s, [normal; 3], &at("0.SelfAttention"))?;
        let attention = Attention {
            mask: Some(encoder.mask),
            bias: Some(bias),
            ..Attention::new(q, k, v, s.heads.count.value, Real(s.heads.scale))
        };
        let attended = b.emit(attention, &at("0.SelfAttention"))?;
        let projected = b.projection(attended, &at("0.SelfAttention.o"), [s.hidden, s.inner], false)?;
        x = b.add(projected, x, &at("0.add"))?;
        x = feed_forward(b, s, x, &at("1"))?;
    }
    let x = b.rms_norm(x, "encoder.final_layer_norm", s.hidden, s.eps)?;
    encoder.finish(b, x);
    Ok(())
}

/// The normalized output of the decoder's layers: [batch_size, decoder_sequence_length, hidden].
fn decoder_layers(
    b: &mut Builder<'_>,
    s: &Settings,
    shared: &Shared,
    decoder: &mut Decoder,
) -> Result<ValueId, ModelError> {
    let length = Dim::symbol(DECODER_SEQUENCE);
    let bias = position_bias(b, s, "decoder", false, &decoder.past(), &length)?;
    let mut x = embed(b, shared, decoder.input_ids, "decoder")?;
    for i in 0..s.layers[1].value {
        let at = |name: &str| format!("decoder.block.{i}.layer.{name}");
        let normal = b.rms_norm(x, &at("0.layer_norm"), s.hidden, s.eps)?;
        let qkv = project(b, s, [normal; 3], &at("0.SelfAttention"))?;
        let attended = decoder.attend(b, qkv, Some(bias), &at("0.SelfAttention"))?;
        let projected = b.projection(attended, &at("0.SelfAttention.o"), [s.hidden, s.inner], false)?;
        x = b.add(projected, x, &at("0.add"))?;

        let normal = b.rms_norm(x, &at("1.layer_norm"), s.hidden, s.eps)?;
        let module = at("1.EncDecAttention");
        let q = b.projection(normal, &format!("{module}.q"), [s.inner, s.hidden], false)?;
        let project = |b: &mut Builder<'_>, states| {
            let k = b.projection(states, &format!("{module}.k"), [s.inner, s.hidden], false)?;
            Ok([k, b.projection(states, &format!("{module}.v"), [s.inner, s.hidden], false)?])
        };
        let attended = decoder.attend_to_encoder(b, q, project, &module)?;
        let projected = b.projection(attended, &format!("{module}.o"), [s.hidden, s.inner], false)?;
        x = b.add(projected, x, &at("1.add"))?;
        x = feed_forward(b, s, x, &at("2"))?;
    }
    b.rms_norm(x, "decoder.final_layer_norm", s.hidden, s.eps)
}

fn embed(b: &mut Builder<'_>, shared: &Shared, ids: ValueId, stack: &str) -> Result<ValueId, ModelError> {
    let weight = shared.weight(b)?;
    b.emit(Embedding { weight, ids }, &format!("{stack}.embed_tokens"))
}

/// Queries, keys and values.
fn project(b: &mut Builder<'_>, s: &Settings, x: [ValueId; 3], module: &str) -> Result<[ValueId; 3], ModelError> {
    let [q, k, v] = x;
    let shape = [s.inner, s.hidden];
    let q = b.projection(q, &format!("{module}.q"), shape, false)?;
    let k = b.projection(k, &format!("{module}.k"), shape, false)?;
    Ok([q, k, b.projection(v, &format!("{module}.v"), shape, false)?])
}

/// `x + wo(activation(wi(norm(x))))`; gated, `wo(activation(wi_0(..)) * wi_1(..))`.
fn feed_forward(b: &mut Builder<'_>, s: &Settings, x: ValueId, path: &str) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let shape = [s.intermediate, s.hidden];
    let normal = b.rms_norm(x, &at("layer_norm"), s.hidden, s.eps)?;
    let first = if s.gated { "DenseReluDense.wi_0" } else { "DenseReluDense.wi" };
    let up = b.projection(normal, &at(first), shape, false)?;
    let mut active = s.activation.apply(b, up, &at("DenseReluDense.act"))?;
    if s.gated {
        let up = b.projection(normal, &at("DenseReluDense.wi_1"), shape, false)?;
        active = b.emit(Binary { kind: BinaryKind::Mul, a: active, b: up }, &at("DenseReluDense.mul"))?;
    }
    let down = b.projection(active, &at("DenseReluDense.wo"), [s.hidden, s.intermediate], false)?;
    b.add(down, x, &at("add"))
}

/// The addend of the scaled scores: [heads, queries, keys]. Of each head it depends on the distance
/// between key and query only, so one table of distances, which is known at compile time, has it all.
fn position_bias(
    b: &mut Builder<'_>,
    s: &Settings,
    stack: &str,
    both_sides: bool,
    past: &Dim,
    length: &Dim,
) -> Result<ValueId, ModelError> {
    let module = format!("{stack}.block.0.layer.0.SelfAttention.relative_attention_bias");
    let buckets = Buckets::new(b.config, s.buckets, s.max_distance, both_sides)?;
    relative::bias(b, &buckets, [s.buckets, s.heads.count], past, length, &module)
}
