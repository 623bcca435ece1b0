//! An encoder of images and a decoder of texts (Li et al. 2021, arXiv:2109.10282), as `transformers/models/vision_encoder_decoder` has
//! them: TrOCR, Donut and captioners. Each is an architecture of its own, with its own configuration; the decoder attends to what
//! the encoder gives, which a projection fits to it where their features differ.

mod bart;
mod bert;
mod gpt2;

pub(crate) use self::bert::BLIP_TEXT;

use planish_ir::{DType, InputRole, OutputRole, PartRole, ValueId};

use crate::accept::{end_section, section};
use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::layers::builder::Builder;
use crate::layers::seq2seq::{CACHED, Decoder, Heads};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "vision-encoder-decoder",
    class_prefix: "VisionEncoderDecoder",
    base: "vision_encoder_decoder",
    other_bases: &[],
    renamed: &[],
    tasks: &[Task::ImageToText],
    keys: &[&[ENCODER, DECODER], &["pad_token_id"]],
    older_keys: &[],
    only: &[],
    // What trainers copy from the decoder, and the processor of images and texts.
    irrelevant_keys: &["vocab_size", "processor_class"],
    unused_tensors: &[],
    pad_token_id: None,
    gguf: None,
    build,
};

const ENCODER: &str = "encoder";
const DECODER: &str = "decoder";

/// The projection of what the encoder gives, where the decoder has other features.
const PROJECTION: &str = "enc_to_dec_proj";

/// A decoder that attends to what an encoder gives.
pub(crate) struct TextDecoder {
    /// How its configuration and its tensors are read.
    pub(crate) architecture: Architecture,
    /// Reads its configuration.
    read: fn(&Builder<'_>) -> Result<Box<dyn Layers>, ModelError>,
}

/// The decoders, in the order of their names.
const DECODERS: &[TextDecoder] =
    &[bart::BART, bert::BERT, bert::CAMEMBERT, gpt2::GPT2, bart::MBART, bert::ROBERTA, bart::TROCR, bert::XLM_ROBERTA];

/// What a decoder computes between its tokens and the scores of the next one.
pub(crate) trait Layers {
    fn vocabulary(&self) -> Size;

    fn hidden(&self) -> Size;

    fn heads(&self) -> Heads;

    /// The features that its attention takes of an encoder that gives so many: its own unless it has others.
    fn memory(&self, _: Size) -> Size {
        self.hidden()
    }

    /// Told what [`memory`](Self::memory) came to.
    fn attend_to(&mut self, _: Size) {}

    /// Whether a projection fits what the encoder gives to it.
    fn has_projection(&self) -> bool {
        true
    }

    /// Adds `logits`: [batch_size, decoder_sequence_length, vocabulary].
    fn logits(&self, b: &mut Builder<'_>, decoder: &mut Decoder) -> Result<ValueId, ModelError>;

    fn properties(&self, b: &Builder<'_>) -> Properties;
}

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    let encoder = named(b.config, ENCODER, "vit", Architecture::find, || {
        "an architecture of images that planish compiles by itself".to_owned()
    })?;
    let find = |name: &str| DECODERS.iter().find(|decoder| decoder.architecture.model_type == name);
    let decoder = named(b.config, DECODER, "bert", find, || {
        DECODERS.iter().map(|decoder| decoder.architecture.model_type).collect::<Vec<_>>().join(", ")
    })?;
    let pad_token = b.config.get("pad_token_id").and_then(serde_json::Value::as_i64);
    let encoder_config = section(b.config, &[ENCODER], encoder)?;
    let decoder_config = section(b.config, &[DECODER], &decoder.architecture)?;
    let given = b.of_model(&encoder_config, encoder, ENCODER, |b| encode(b, encoder))?;
    let properties = b.of_model(&decoder_config, &decoder.architecture, DECODER, |b| decode(b, decoder, given))?;
    end_section(b.config, &encoder_config, encoder);
    end_section(b.config, &decoder_config, &decoder.architecture);
    Ok(Properties { pad_token_id: pad_token.or(properties.pad_token_id), ..properties })
}

/// The architecture that the configuration of a part names.
fn named<T: Copy>(
    config: &Config<'_>,
    key: &'static str,
    default: &'static str,
    find: impl FnOnce(&str) -> Option<T>,
    known: impl FnOnce() -> String,
) -> Result<T, ModelError> {
    let part = config.section(&[key])?;
    let name = part.text("model_type", default)?;
    find(name).ok_or_else(|| {
        part.error(format!("`model_type` \"{name}\" is not supported in this type of model; it may be {}", known()))
    })
}

/// Builds the encoder. Returns how many features it gives.
pub(crate) fn encode(b: &mut Builder<'_>, architecture: &Architecture) -> Result<Size, ModelError> {
    let unfit = |b: &Builder<'_>, what: &str| {
        let name = architecture.model_type;
        Err(b.config.error(format!("`model_type` is \"{name}\", which {what}: it is no encoder for a decoder")))
    };
    if !architecture.tasks.contains(&Task::FeatureExtraction) {
        return unfit(b, "gives no features");
    }
    (architecture.build)(b, Task::FeatureExtraction)?;
    let reads_images =
        b.graph.interface.inputs.values().any(|role| *role == InputRole::Pixels || *role == InputRole::Image);
    if !reads_images {
        return unfit(b, "reads no images");
    }
    // What it pools of these is no output of the encoder.
    let outputs = b.graph.take_outputs();
    let roles = std::mem::take(&mut b.graph.interface.outputs);
    let is_hidden = |name: &str| roles.get(name) == Some(&OutputRole::HiddenStates);
    let hidden = outputs.into_iter().find(|output| is_hidden(&output.name));
    let Some(hidden) = hidden else { return unfit(b, "gives no vectors of patches") };
    let features = match b.graph.ty(hidden.value).shape.to_vec().as_slice() {
        [_, _, features] => features.as_constant().and_then(|features| usize::try_from(features).ok()),
        _ => None,
    };
    let Some(features) = features else { return unfit(b, "gives maps of features and no vectors of patches") };
    b.give(names::HIDDEN, hidden.value);
    b.finish(PartRole::Encoder);
    Ok(Size::derived(features, "features of the encoder"))
}

/// Builds both graphs of the decoder, for an encoder that gives so many features.
pub(crate) fn decode(b: &mut Builder<'_>, decoder: &TextDecoder, given: Size) -> Result<Properties, ModelError> {
    let mut layers = (decoder.read)(b)?;
    let own = layers.hidden();
    let memory = layers.memory(given);
    let is_projected = given.value != memory.value;
    if is_projected && !layers.has_projection() {
        return Err(b.config.error(format!("{memory}, but the encoder gives {} features", given.value)));
    }
    layers.attend_to(memory);
    for cached in CACHED {
        let mut text = Decoder::of_whole(b, [layers.vocabulary(), given], layers.heads(), cached);
        if is_projected {
            text.project_states(b, |b, states| b.linear(states, PROJECTION, own, given))?;
        }
        let logits = layers.logits(b, &mut text)?;
        debug_assert_eq!(b.graph.ty(logits).dtype, DType::F32);
        b.give(names::LOGITS, logits);
        text.finish_scored(b);
    }
    Ok(layers.properties(b))
}
