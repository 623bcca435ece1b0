//! Moonshine (Jeffries et al. 2024, arXiv:2410.15608), as `transformers/models/moonshine` has it: three convolutions over a recording
//! and an encoder, then a decoder with a gated feed-forward. Queries and keys of tokens, and of frames among each other, turn with
//! their positions. Masks are of samples; a frame takes part where the sample that it begins at does.

use planish_ir::ops::{Attention, BinaryKind, Cast, Embedding, Gather, Iota, Real, Reshape, Slice, Split};
use planish_ir::{DType, Dim, Shape, Symbol, SymbolRole, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::{BATCH, Builder, SEQUENCE};
use crate::layers::convolution::{self, dim};
use crate::layers::rope::{self, Angles, Rope};
use crate::layers::seq2seq::{self, CACHED, DECODER_SEQUENCE, Decoder, ENCODER_SEQUENCE, Heads, Shared};
use crate::layers::speech;
use crate::layers::speech::time::{self, Window};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "moonshine",
    class_prefix: "Moonshine",
    base: "model",
    other_bases: &[],
    renamed: &[],
    tasks: &[Task::AutomaticSpeechRecognition],
    keys: &[
        rope::KEYS,
        &[
            "attention_bias",
            "decoder_hidden_act",
            "decoder_num_attention_heads",
            "decoder_num_hidden_layers",
            "decoder_num_key_value_heads",
            "encoder_hidden_act",
            "encoder_num_attention_heads",
            "encoder_num_hidden_layers",
            "encoder_num_key_value_heads",
            "head_dim",
            "hidden_size",
            "intermediate_size",
            "max_position_embeddings",
            "num_attention_heads",
            "num_hidden_layers",
            "num_key_value_heads",
            "pad_token_id",
            "tie_word_embeddings",
            "vocab_size",
        ],
    ],
    older_keys: &[],
    only: &[],
    // Zeros at the end of heads, for some implementations of attention.
    irrelevant_keys: &["pad_head_dim_to_multiple_of"],
    unused_tensors: &[],
    pad_token_id: None,
    gguf: None,
    build,
};

const EMBEDDINGS: &[&str] = &["decoder.embed_tokens.weight"];
const HEAD: &str = "proj_out.weight";

/// Added to the variance in layer normalization.
const EPS: f64 = 1e-5;

/// The convolutions: samples or frames that each covers, and from one of its results to the next.
const KERNELS: [[usize; 2]; 3] = [[127, 64], [7, 3], [3, 2]];

/// Samples from one frame of the encoder to the next.
const STRIDE: i64 = 64 * 3 * 2;

/// The part of a head that turns.
const PART: f64 = 0.9;

/// The configuration in `config.json`.
struct Settings {
    vocabulary: Size,
    hidden: Size,
    intermediate: Size,
    heads: Heads,
    /// Features of all heads side by side.
    inner: Size,
    /// Layers of the encoder and of the decoder.
    layers: [Size; 2],
    activations: [Activation; 2],
    bias: bool,
    longest: Size,
    rope: Rope,
}

impl Settings {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let hidden = config.size("hidden_size", 288)?;
        let count = config.size("encoder_num_attention_heads", 8)?;
        let others = ["decoder_num_attention_heads", "num_attention_heads"];
        // The class of the library makes the decoder with the heads of the encoder, and queries with the heads of keys.
        let same = |found: Size| match found.value == count.value {
            true => Ok(()),
            false => Err(config.error(format!("{found}, but {count}: all heads are as many in this architecture"))),
        };
        same(config.size_alias(&others, 8)?)?;
        same(config.size_or("encoder_num_key_value_heads", count)?)?;
        same(config.size_or("decoder_num_key_value_heads", count)?)?;
        same(config.size_or("num_key_value_heads", count)?)?;
        let share = Size::derived(hidden.value / count.value, "hidden_size / encoder_num_attention_heads");
        let size = config.size_or("head_dim", share)?;
        let heads = Heads { count, size, scale: 1.0 / (size.value as f64).sqrt() };
        let longest = config.size("max_position_embeddings", 512)?;
        let defaults = rope::Defaults { part: Some(PART), ..rope::Defaults::default() };
        Ok(Self {
            vocabulary: config.size("vocab_size", 32768)?,
            hidden,
            intermediate: config.size("intermediate_size", 1152)?,
            heads,
            inner: Size::derived(count.value * size.value, "heads * head_dim"),
            layers: [
                config.size("encoder_num_hidden_layers", 6)?,
                config.size_alias(&["decoder_num_hidden_layers", "num_hidden_layers"], 6)?,
            ],
            activations: [
                Activation::read(config, "encoder_hidden_act", "gelu")?,
                Activation::read(config, "decoder_hidden_act", "silu")?,
            ],
            bias: config.boolean("attention_bias", false)?,
            longest,
            rope: Rope::read(config, size, longest, defaults)?,
        })
    }

    /// The projections of queries, keys and values of a module.
    fn project(&self, b: &mut Builder<'_>, x: ValueId, module: &str, name: &str) -> Result<ValueId, ModelError> {
        b.projection(x, &format!("{module}.{name}_proj"), [self.inner, self.hidden], self.bias)
    }

    fn norm(&self, b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
        b.layer_norm_without_bias(x, module, self.hidden, EPS)
    }

    /// The projection of what attention gives, added to its input.
    fn add(&self, b: &mut Builder<'_>, attended: ValueId, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
        let projected = b.projection(attended, &format!("{module}.o_proj"), [self.hidden, self.inner], false)?;
        b.add(projected, x, &format!("{module}.add"))
    }
}

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config)?;
    let tied = b.config.boolean("tie_word_embeddings", true)?;
    let properties = seq2seq::properties(b, s.vocabulary, Some(s.longest.value));
    let shape = [s.vocabulary, s.hidden];
    let embeddings = Shared::find(b, EMBEDDINGS, HEAD, tied, shape)?;
    let states = encoder(b, &s)?;
    seq2seq::finish_encoder(b, states);
    for cached in CACHED {
        let samples = b.ids(names::ENCODER_MASK, samples(), 2);
        b.graph.interface.symbols.insert(Symbol::new(SEQUENCE), SymbolRole::Samples);
        let mut decoder = Decoder::of_whole(b, shape, s.heads, cached);
        decoder.mask = Some(mask(b, samples, Dim::symbol(ENCODER_SEQUENCE))?);
        let x = decoder_layers(b, &s, &embeddings, &mut decoder)?;
        let weight = if tied { embeddings.weight(b)? } else { b.weight(&[HEAD], &shape)? };
        decoder.finish(b, x, weight, None)?;
    }
    Ok(properties)
}

/// The dimensions of a mask of samples.
fn samples() -> [Dim; 2] {
    [BATCH, SEQUENCE].map(Dim::symbol)
}

/// Which frames take part: bool[batch_size, frames], of a mask of samples.
fn mask(b: &mut Builder<'_>, samples: ValueId, frames: Dim) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("attention_mask.{name}");
    let frames = b.emit(Iota { dtype: DType::I64, length: frames }, &at("frames"))?;
    let stride = b.graph.add_scalar(&at("stride"), DType::I64, STRIDE as f64);
    let indices = b.binary(BinaryKind::Mul, [frames, stride], &at("samples"))?;
    let kept = b.emit(Gather { x: samples, indices, axis: 1 }, &at("of_frames"))?;
    b.emit(Cast { x: kept, to: DType::Bool }, &at("bool"))
}

/// Angles of positions from `past` on, up to `end`.
fn angles(b: &mut Builder<'_>, s: &Settings, [past, end]: [Dim; 2]) -> Result<Angles, ModelError> {
    let length = end.checked_sub(&past).unwrap_or_default();
    let all = b.emit(Iota { dtype: DType::I64, length: end.clone() }, "position_ids.range")?;
    let positions = match past.as_constant() {
        Some(0) => all,
        _ => b.emit(Slice { x: all, axis: 0, start: past, end }, "position_ids.slice")?,
    };
    let shape = Shape::new([Dim::constant(1), length]);
    let positions = b.emit(Reshape { x: positions, shape }, "position_ids")?;
    s.rope.angles(b, positions, rope::MODULE)
}

/// The encoder's normalized output: [batch_size, frames, hidden].
fn encoder(b: &mut Builder<'_>, s: &Settings) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("encoder.{name}");
    let x = speech::waveform(b)?;
    let attention_mask = b.ids(names::ATTENTION_MASK, samples(), 2);
    b.graph.interface.symbols.insert(Symbol::new(SEQUENCE), SymbolRole::Samples);
    let one = Dim::constant(1);
    let window = |n: usize| Window::new(Size::derived(KERNELS[n][0], "the size of a kernel"), KERNELS[n][1]);
    let double = Size::derived(2 * s.hidden.value, "2 * hidden_size");
    let mono = Size::derived(1, "one channel");

    let x = time::conv(b, x, &at("conv1"), [s.hidden, mono], window(0), false, "frames_0")?;
    let x = Activation::TANH.apply(b, x, &at("conv1.tanh"))?;
    let frames = b.graph.ty(x).shape[2].clone();
    let map = b.reshape(x, [Dim::symbol(BATCH), dim(s.hidden), one, frames.clone()], &at("groupnorm.map"))?;
    let normal = convolution::group_norm(b, map, &at("groupnorm"), s.hidden, 1)?;
    let x = b.reshape(normal, [Dim::symbol(BATCH), dim(s.hidden), frames], &at("groupnorm.frames"))?;
    let x = time::conv(b, x, &at("conv2"), [double, s.hidden], window(1), true, "frames_1")?;
    let x = Activation::GELU.apply(b, x, &at("conv2.gelu"))?;
    let x = time::conv(b, x, &at("conv3"), [s.hidden, double], window(2), true, "frames")?;
    let x = Activation::GELU.apply(b, x, &at("conv3.gelu"))?;
    let mut x = b.transpose(x, &[0, 2, 1], &at("frames"))?;

    let frames = b.graph.ty(x).shape[1].clone();
    let mask = mask(b, attention_mask, frames.clone())?;
    let angles = angles(b, s, [Dim::constant(0), frames])?;
    for i in 0..s.layers[0].value {
        let at = |name: &str| format!("encoder.layers.{i}.{name}");
        let module = at("self_attn");
        let normal = s.norm(b, x, &at("input_layernorm"))?;
        let [q, k, v] = turned(b, s, normal, &module, angles)?;
        let Heads { count, scale, .. } = s.heads;
        let attention = Attention { mask: Some(mask), ..Attention::new(q, k, v, count.value, Real(scale)) };
        let attended = b.emit(attention, &module)?;
        x = s.add(b, attended, x, &module)?;
        let normal = s.norm(b, x, &at("post_attention_layernorm"))?;
        let up = b.linear(normal, &at("mlp.fc1"), s.intermediate, s.hidden)?;
        let active = s.activations[0].apply(b, up, &at("mlp.activation"))?;
        let down = b.linear(active, &at("mlp.fc2"), s.hidden, s.intermediate)?;
        x = b.add(down, x, &at("mlp.add"))?;
    }
    s.norm(b, x, &at("layer_norm"))
}

/// Queries, keys and values, of which the first two turn.
fn turned(
    b: &mut Builder<'_>,
    s: &Settings,
    x: ValueId,
    module: &str,
    angles: Angles,
) -> Result<[ValueId; 3], ModelError> {
    let (q, k) = (s.project(b, x, module, "q")?, s.project(b, x, module, "k")?);
    let q = angles.rotate(b, q, s.heads.count, true, &format!("{module}.rotary_q"))?;
    let k = angles.rotate(b, k, s.heads.count, true, &format!("{module}.rotary_k"))?;
    Ok([q, k, s.project(b, x, module, "v")?])
}

/// The normalized output of the decoder's layers: [batch_size, decoder_sequence_length, hidden].
fn decoder_layers(
    b: &mut Builder<'_>,
    s: &Settings,
    embeddings: &Shared,
    decoder: &mut Decoder,
) -> Result<ValueId, ModelError> {
    let weight = embeddings.weight(b)?;
    let mut x = b.emit(Embedding { weight, ids: decoder.input_ids }, "decoder.embed_tokens")?;
    let past = decoder.past();
    let end = past.checked_add(&Dim::symbol(DECODER_SEQUENCE)).unwrap_or_default();
    let angles = angles(b, s, [past, end])?;
    let double = Size::derived(2 * s.intermediate.value, "2 * intermediate_size");
    for i in 0..s.layers[1].value {
        let at = |name: &str| format!("decoder.layers.{i}.{name}");
        let module = at("self_attn");
        let normal = s.norm(b, x, &at("input_layernorm"))?;
        let qkv = turned(b, s, normal, &module, angles)?;
        let attended = decoder.attend(b, qkv, None, &module)?;
        x = s.add(b, attended, x, &module)?;

        let module = at("encoder_attn");
        let normal = s.norm(b, x, &at("post_attention_layernorm"))?;
        let q = s.project(b, normal, &module, "q")?;
        let project = |b: &mut Builder<'_>, states| {
            Ok([s.project(b, states, &module, "k")?, s.project(b, states, &module, "v")?])
        };
        let attended = decoder.attend_to_encoder(b, q, project, &module)?;
        x = s.add(b, attended, x, &module)?;

        let normal = s.norm(b, x, &at("final_layernorm"))?;
        let [up, gate] = halves(b, normal, &at("mlp.fc1"), [double, s.hidden])?;
        let gate = s.activations[1].apply(b, gate, &at("mlp.activation"))?;
        let active = b.binary(BinaryKind::Mul, [gate, up], &at("mlp.mul"))?;
        let down = b.linear(active, &at("mlp.fc2"), s.hidden, s.intermediate)?;
        x = b.add(down, x, &at("mlp.add"))?;
    }
    s.norm(b, x, "decoder.norm")
}

/// The two halves of what a linear layer gives.
fn halves(b: &mut Builder<'_>, x: ValueId, module: &str, [out, inner]: [Size; 2]) -> Result<[ValueId; 2], ModelError> {
    let both = b.linear(x, module, out, inner)?;
    let sizes = vec![out.value / 2; 2];
    match b.emit_all(Split { x: both, axis: 2, sizes }, &format!("{module}.halves"))?[..] {
        [first, second] => Ok([first, second]),
        _ => unreachable!("a split has as many results as sizes"),
    }
}
