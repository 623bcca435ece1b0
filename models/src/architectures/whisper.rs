//! Whisper (Radford et al. 2022, arXiv:2212.04356), as `transformers/models/whisper` has it: an encoder of log-mel features, whose
//! frames two convolutions halve, and a decoder with learned positions. Norms stand before attention and feed-forward. The
//! positions of the encoder are stored, as the sinusoids that they are or as learned ones.

use planish_ir::ops::{Attention, Embedding, Real, Reduce, ReduceKind, Slice};
use planish_ir::{Dim, PartRole, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::convolution::dim;
use crate::layers::heads;
use crate::layers::seq2seq::{self, AFTER_KEYS, CACHED, DECODER_SEQUENCE, Decoder, Heads, Shared};
use crate::layers::sounds;
use crate::layers::speech::time::{self, Window};
use crate::layers::weighted_sum::weighted_sum;
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "whisper",
    class_prefix: "Whisper",
    base: "model",
    other_bases: &[],
    renamed: &[],
    tasks: &[Task::AutomaticSpeechRecognition, Task::AudioClassification],
    keys: &[&[
        "activation_function",
        "classifier_proj_size",
        "d_model",
        "decoder_attention_heads",
        "decoder_ffn_dim",
        "decoder_layers",
        "encoder_attention_heads",
        "encoder_ffn_dim",
        "encoder_layers",
        "hidden_size",
        "max_source_positions",
        "max_target_positions",
        "num_attention_heads",
        "num_hidden_layers",
        "num_mel_bins",
        "pad_token_id",
        "tie_word_embeddings",
        "use_weighted_layer_sum",
        "vocab_size",
    ]],
    older_keys: &[],
    only: &[],
    irrelevant_keys: &[
        // Training.
        "activation_dropout",
        "apply_spec_augment",
        "decoder_layerdrop",
        "encoder_layerdrop",
        "init_std",
        "mask_feature_length",
        "mask_feature_min_masks",
        "mask_feature_prob",
        "mask_time_length",
        "mask_time_min_masks",
        "mask_time_prob",
        // The class of the transformers library reads it and has no use for it.
        "scale_embedding",
        // Settings of text generation.
        "forced_decoder_ids",
        "median_filter_width",
    ],
    // Heads of other tasks; a classifier has no decoder.
    unused_tensors: &["projector.", "classifier.", "layer_weights"],
    pad_token_id: None,
    gguf: None,
    build,
};

const EMBEDDINGS: &[&str] = &["decoder.embed_tokens.weight"];
const HEAD: &str = "proj_out.weight";

/// Added to the variance in layer normalization.
const EPS: f64 = 1e-5;

/// The frames that one place of the encoder stands for.
const FRAMES: usize = 2;

/// The encoder or the decoder.
struct Stack {
    name: &'static str,
    layers: Size,
    heads: Heads,
    intermediate: Size,
}

impl Stack {
    fn read(
        config: &Config<'_>,
        name: &'static str,
        hidden: Size,
        [layers, heads, intermediate]: [&[&'static str]; 3],
    ) -> Result<Self, ModelError> {
        let count = config.size_alias(heads, 6)?;
        if !hidden.value.is_multiple_of(count.value) {
            return Err(config.error(format!("{hidden} is not divisible by {count}")));
        }
        let size = Size::derived(hidden.value / count.value, "d_model / heads");
        let heads = Heads { count, size, scale: 1.0 / (size.value as f64).sqrt() };
        let (layers, intermediate) = (config.size_alias(layers, 4)?, config.size_alias(intermediate, 1536)?);
        Ok(Self { name, layers, heads, intermediate })
    }
}

/// The configuration in `config.json`.
struct Settings {
    vocabulary: Size,
    hidden: Size,
    bands: Size,
    /// Places of the encoder, and of the decoder.
    positions: [Size; 2],
    activation: Activation,
    encoder: Stack,
}

impl Settings {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let hidden = config.size_alias(&["d_model", "hidden_size"], 384)?;
        // The shorter names are those of the encoder, also of models whose decoder has fewer layers.
        let encoder: [&[&'static str]; 3] = [
            &["encoder_layers", "num_hidden_layers"],
            &["encoder_attention_heads", "num_attention_heads"],
            &["encoder_ffn_dim"],
        ];
        Ok(Self {
            vocabulary: config.size("vocab_size", 51865)?,
            hidden,
            bands: config.size("num_mel_bins", 80)?,
            positions: [config.size("max_source_positions", 1500)?, config.size("max_target_positions", 448)?],
            activation: Activation::read(config, "activation_function", "gelu")?,
            encoder: Stack::read(config, "encoder", hidden, encoder)?,
        })
    }

    fn decoder(&self, config: &Config<'_>) -> Result<Stack, ModelError> {
        let keys: [&[&'static str]; 3] = [&["decoder_layers"], &["decoder_attention_heads"], &["decoder_ffn_dim"]];
        Stack::read(config, "decoder", self.hidden, keys)
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config)?;
    if task == Task::AudioClassification {
        return classifier(b, &s);
    }
    let stack = s.decoder(b.config)?;
    let tied = b.config.boolean("tie_word_embeddings", true)?;
    let properties = seq2seq::properties(b, s.vocabulary, Some(s.positions[1].value));
    let shape = [s.vocabulary, s.hidden];
    let embeddings = Shared::find(b, EMBEDDINGS, HEAD, tied, shape)?;

    let states = encoder(b, &s)?;
    let last = states.last().copied().unwrap_or_else(|| unreachable!("the encoder has an output"));
    if b.encoder_gives_keys {
        b.give(names::HIDDEN, last);
        for layer in 0..stack.layers.value {
            let both = keys_and_values(b, &s, last, &format!("{}.layers.{layer}.encoder_attn", stack.name))?;
            seq2seq::give_keys(b, layer, stack.heads, both)?;
        }
        b.finish(PartRole::Encoder);
    } else {
        seq2seq::finish_encoder(b, last);
    }
    let decoders: &[bool] = if b.encoder_gives_keys { &AFTER_KEYS } else { &CACHED };
    for &cached in decoders {
        let mut decoder = Decoder::of_whole(b, shape, stack.heads, cached);
        let x = decoder_layers(b, &s, &stack, &embeddings, &mut decoder)?;
        let weight = if tied { embeddings.weight(b)? } else { b.weight(&[HEAD], &shape)? };
        decoder.finish(b, x, weight, None)?;
    }
    Ok(properties)
}

/// The embeddings of the encoder's places, and what each of its layers gives, the last one normalized: each [batch_size,
/// max_source_positions, hidden].
fn encoder(b: &mut Builder<'_>, s: &Settings) -> Result<Vec<ValueId>, ModelError> {
    let stack = &s.encoder;
    let at = |name: &str| format!("{}.{name}", stack.name);
    let [places, _] = s.positions;
    let frames = Size::derived(places.value * FRAMES, "2 * max_source_positions");
    let (name, _) = if b.encoder_gives_keys { names::GENAI_FEATURES } else { names::FEATURES };
    let mut x = sounds::features(b, name, [dim(s.bands), dim(frames)])?;
    let kernel = Size::derived(3, "the size of a kernel");
    for (module, inner, stride) in [("conv1", s.bands, 1), ("conv2", s.hidden, FRAMES)] {
        let window = Window::around(kernel, stride, 1);
        x = time::conv(b, x, &at(module), [s.hidden, inner], window, true, "frames")?;
        x = Activation::GELU.apply(b, x, &at(&format!("{module}.gelu")))?;
    }
    x = b.transpose(x, &[0, 2, 1], &at("places"))?;
    let positions = b.weight(&[&at("embed_positions.weight")], &[places, s.hidden])?;
    x = b.add(x, positions, &at("embeddings.add"))?;
    let mut states = vec![x];
    for i in 0..stack.layers.value {
        let at = |name: &str| format!("{}.layers.{i}.{name}", stack.name);
        let module = at("self_attn");
        let normal = b.layer_norm(x, &at("self_attn_layer_norm"), s.hidden, EPS)?;
        let q = b.linear(normal, &format!("{module}.q_proj"), s.hidden, s.hidden)?;
        let [k, v] = keys_and_values(b, s, normal, &module)?;
        let attention = Attention::new(q, k, v, stack.heads.count.value, Real(stack.heads.scale));
        let attended = b.emit(attention, &module)?;
        x = project_and_add(b, s, attended, x, &module)?;
        x = feed_forward(b, s, stack, x, i)?;
        states.push(x);
    }
    let last = b.layer_norm(x, &at("layer_norm"), s.hidden, EPS)?;
    states.pop();
    states.push(last);
    Ok(states)
}

/// The normalized output of the decoder's layers: [batch_size, decoder_sequence_length, hidden].
fn decoder_layers(
    b: &mut Builder<'_>,
    s: &Settings,
    stack: &Stack,
    embeddings: &Shared,
    decoder: &mut Decoder,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{}.{name}", stack.name);
    let weight = embeddings.weight(b)?;
    let words = b.emit(Embedding { weight, ids: decoder.input_ids }, &at("embed_tokens"))?;
    let table = b.weight(&[&at("embed_positions.weight")], &[s.positions[1], s.hidden])?;
    let start = decoder.past();
    let end = start.checked_add(&Dim::symbol(DECODER_SEQUENCE)).unwrap_or_default();
    let places = b.emit(Slice { x: table, axis: 0, start, end }, &at("embed_positions"))?;
    let mut x = b.add(words, places, &at("embeddings.add"))?;
    for i in 0..stack.layers.value {
        let at = |name: &str| format!("{}.layers.{i}.{name}", stack.name);
        let module = at("self_attn");
        let normal = b.layer_norm(x, &at("self_attn_layer_norm"), s.hidden, EPS)?;
        let q = b.linear(normal, &format!("{module}.q_proj"), s.hidden, s.hidden)?;
        let [k, v] = keys_and_values(b, s, normal, &module)?;
        let attended = decoder.attend(b, [q, k, v], None, &module)?;
        x = project_and_add(b, s, attended, x, &module)?;

        let module = at("encoder_attn");
        let normal = b.layer_norm(x, &at("encoder_attn_layer_norm"), s.hidden, EPS)?;
        let q = b.linear(normal, &format!("{module}.q_proj"), s.hidden, s.hidden)?;
        let project = |b: &mut Builder<'_>, states| keys_and_values(b, s, states, &module);
        let attended = decoder.attend_to_encoder(b, q, project, &module)?;
        x = project_and_add(b, s, attended, x, &module)?;
        x = feed_forward(b, s, stack, x, i)?;
    }
    b.layer_norm(x, &at("layer_norm"), s.hidden, EPS)
}

/// Keys have no bias.
fn keys_and_values(b: &mut Builder<'_>, s: &Settings, x: ValueId, module: &str) -> Result<[ValueId; 2], ModelError> {
    let k = b.projection(x, &format!("{module}.k_proj"), [s.hidden, s.hidden], false)?;
    Ok([k, b.linear(x, &format!("{module}.v_proj"), s.hidden, s.hidden)?])
}

/// The projection of what attention gives, added to its input.
fn project_and_add(
    b: &mut Builder<'_>,
    s: &Settings,
    attended: ValueId,
    x: ValueId,
    module: &str,
) -> Result<ValueId, ModelError> {
    let projected = b.linear(attended, &format!("{module}.out_proj"), s.hidden, s.hidden)?;
    b.add(projected, x, &format!("{module}.add"))
}

fn feed_forward(
    b: &mut Builder<'_>,
    s: &Settings,
    stack: &Stack,
    x: ValueId,
    layer: usize,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{}.layers.{layer}.{name}", stack.name);
    let normal = b.layer_norm(x, &at("final_layer_norm"), s.hidden, EPS)?;
    let up = b.linear(normal, &at("fc1"), stack.intermediate, s.hidden)?;
    let active = s.activation.apply(b, up, &at("activation"))?;
    let down = b.linear(active, &at("fc2"), s.hidden, stack.intermediate)?;
    b.add(down, x, &at("add"))
}

/// `logits` of labels of a recording, as `WhisperForAudioClassification` of the transformers library: of the last layer of the
/// encoder, or of the weighted sum of all layers.
fn classifier(b: &mut Builder<'_>, s: &Settings) -> Result<Properties, ModelError> {
    let size = b.config.size("classifier_proj_size", 256)?;
    let weighted = b.config.boolean("use_weighted_layer_sum", false)?;
    let states = encoder(b, s)?;
    let x = match weighted {
        true => weighted_sum(b, &states)?,
        false => states.last().copied().unwrap_or_else(|| unreachable!("the encoder has an output")),
    };
    let projected = b.linear(x, "projector", size, s.hidden)?;
    let mean = Reduce { kind: ReduceKind::Mean, x: projected, axes: vec![1], keep: false };
    let mean = b.emit(mean, "projector.mean")?;
    heads::classify(b, size, mean, "classifier")?;
    b.tensors.leave("decoder");
    Ok(Properties::default())
}
