//! The names of parts, inputs, outputs and sizes, with what each is. Names are those of Optimum; the tensors of a model of
//! several parts as a whole are named as the transformers library names them.

use std::borrow::Cow;

use planish_ir::interface::{CacheEntry, CacheKind, CacheTensor, Interface};
use planish_ir::{Graph, InputRole, OutputRole, PartRole, SymbolRole};

/// A name and what it is the name of.
pub(crate) type Named<R> = (&'static str, R);

/// The parts that models here have, by the names of their files without endings.
const PARTS: &[Named<PartRole>] = &[
    ("model", PartRole::Model),
    ("encoder_model", PartRole::Encoder),
    ("decoder_model", PartRole::FirstStep),
    ("decoder_with_past_model", PartRole::NextStep),
    ("vision_encoder", PartRole::VisionEncoder),
    ("embed_tokens", PartRole::Embedder),
    ("prompt_encoder_mask_decoder", PartRole::MaskDecoder),
];

/// The name of a part's file without the ending; absent where no model here has such a part.
#[must_use]
pub fn part(role: PartRole) -> Option<&'static str> {
    PARTS.iter().find(|(_, other)| *other == role).map(|(name, _)| *name)
}

/// The decoder of a model that sees, which is the model but for what comes before it. Transformers.js names it so, with or without a
/// switch between two graphs.
pub(crate) const DECODER_OF_VECTORS: &str = "decoder_model_merged";

/// The towers of a model of images and texts, each of which is a model.
pub(crate) const IMAGE_TOWER: &str = "vision_model";
pub(crate) const TEXT_TOWER: &str = "text_model";
/// The tower of recordings of a model of recordings and texts.
pub(crate) const AUDIO_TOWER: &str = "audio_model";

/// The name of a part as the architectures have it; absent where none has such a part.
#[must_use]
pub fn known_part(name: &str) -> Option<&'static str> {
    let known = PARTS.iter().map(|(known, _)| *known).chain([DECODER_OF_VECTORS, IMAGE_TOWER, TEXT_TOWER, AUDIO_TOWER]);
    known.into_iter().find(|known| *known == name)
}

pub(crate) const INPUT_IDS: Named<InputRole> = ("input_ids", InputRole::TokenIds);
pub(crate) const DECODER_IDS: Named<InputRole> = ("input_ids", InputRole::DecoderTokenIds);
pub(crate) const ATTENTION_MASK: Named<InputRole> = ("attention_mask", InputRole::Mask);
pub(crate) const ENCODER_MASK: Named<InputRole> = ("encoder_attention_mask", InputRole::EncoderMask);
pub(crate) const ENCODER_STATES: Named<InputRole> = ("encoder_hidden_states", InputRole::EncoderStates);
pub(crate) const TOKEN_TYPES: Named<InputRole> = ("token_type_ids", InputRole::TokenTypes);
pub(crate) const POSITION_IDS: Named<InputRole> = ("position_ids", InputRole::Positions);
pub(crate) const BOXES: Named<InputRole> = ("bbox", InputRole::Boxes);
/// Pictures before they are processed.
pub(crate) const IMAGE: Named<InputRole> = ("image", InputRole::Image);
pub(crate) const PIXELS: Named<InputRole> = ("pixel_values", InputRole::Pixels);
/// Which patches an image has, where images have any shape, and their rows and columns.
pub(crate) const PIXEL_MASK: Named<InputRole> = ("pixel_attention_mask", InputRole::PixelMask);
pub(crate) const PATCH_GRID: Named<InputRole> = ("spatial_shapes", InputRole::PatchGrid);
/// Frames, rows and columns of the patches of each image, as Transformers.js names them for Qwen2-VL and for later models.
pub(crate) const GRID_OF_QWEN2_VL: Named<InputRole> = ("grid_thw", InputRole::PatchGrid);
pub(crate) const IMAGE_GRID: Named<InputRole> = ("image_grid_thw", InputRole::PatchGrid);
pub(crate) const FEATURES: Named<InputRole> = ("input_features", InputRole::Features);
/// Whether a recording is longer than the features that a model takes.
pub(crate) const IS_LONGER: Named<InputRole> = ("is_longer", InputRole::IsLonger);
/// As the audio processor of onnxruntime-genai gives them.
pub(crate) const GENAI_FEATURES: Named<InputRole> = ("audio_features", InputRole::Features);

/// The vectors of tokens, which the embedder gives, and the decoder of a model that sees takes.
pub(crate) const VECTORS: (Named<InputRole>, Named<OutputRole>) =
    (("inputs_embeds", InputRole::Embeddings), ("inputs_embeds", OutputRole::Embeddings));
/// The vectors of images that take the places of those of tokens.
pub(crate) const IMAGE_FEATURES: Named<OutputRole> = ("image_features", OutputRole::Embeddings);

/// Recordings before they are processed, and where they are in what fills them up.
pub(crate) const AUDIO: Named<InputRole> = ("audio", InputRole::Recording);
pub(crate) const AUDIO_MASK: Named<InputRole> = ("audio_mask", InputRole::RecordingMask);
/// Recordings, and features of them in the models whose inputs have this name too.
pub(crate) const WAVEFORM: Named<InputRole> = ("input_values", InputRole::Waveform);

pub(crate) const POINT_PLACES: Named<InputRole> = ("input_points", InputRole::Points);
pub(crate) const POINT_LABELS: Named<InputRole> = ("input_labels", InputRole::PointLabels);

/// What the vision encoder gives, and the mask decoder takes.
pub(crate) const IMAGE_STATES: (Named<InputRole>, Named<OutputRole>) =
    (("image_embeddings", InputRole::ImageStates), ("image_embeddings", OutputRole::ImageStates));
pub(crate) const IMAGE_POSITIONS: (Named<InputRole>, Named<OutputRole>) = (
    ("image_positional_embeddings", InputRole::ImagePositions),
    ("image_positional_embeddings", OutputRole::ImagePositions),
);

pub(crate) const LOGITS: Named<OutputRole> = ("logits", OutputRole::Logits);
pub(crate) const START_LOGITS: Named<OutputRole> = ("start_logits", OutputRole::StartLogits);
pub(crate) const END_LOGITS: Named<OutputRole> = ("end_logits", OutputRole::EndLogits);
pub(crate) const HIDDEN: Named<OutputRole> = ("last_hidden_state", OutputRole::HiddenStates);
pub(crate) const POOLED: Named<OutputRole> = ("pooler_output", OutputRole::Pooled);
pub(crate) const PRED_BOXES: Named<OutputRole> = ("pred_boxes", OutputRole::Boxes);
pub(crate) const PRED_MASKS: Named<OutputRole> = ("pred_masks", OutputRole::Masks);
pub(crate) const IOU_SCORES: Named<OutputRole> = ("iou_scores", OutputRole::MaskScores);
pub(crate) const DEPTH: Named<OutputRole> = ("predicted_depth", OutputRole::Depth);
pub(crate) const HEATMAPS: Named<OutputRole> = ("heatmaps", OutputRole::Heatmaps);
pub(crate) const XVECTOR: Named<OutputRole> = ("embeddings", OutputRole::XVector);
pub(crate) const TOKENS: Named<OutputRole> = ("token_embeddings", OutputRole::TokenEmbeddings);
/// As FlagEmbedding names what BGE-M3 gives.
pub(crate) const SPARSE: Named<OutputRole> = ("sparse_vecs", OutputRole::TokenWeights);
pub(crate) const MULTI_VECTOR: Named<OutputRole> = ("colbert_vecs", OutputRole::TokenEmbeddings);
pub(crate) const SENTENCE: Named<OutputRole> = ("sentence_embedding", OutputRole::SentenceEmbedding);

/// Of models of images and texts.
pub(crate) const LOGITS_PER_IMAGE: Named<OutputRole> = ("logits_per_image", OutputRole::LogitsPerImage);
pub(crate) const LOGITS_PER_TEXT: Named<OutputRole> = ("logits_per_text", OutputRole::LogitsPerText);
pub(crate) const TEXT_EMBEDDING: Named<OutputRole> = ("text_embeds", OutputRole::TextEmbedding);
pub(crate) const IMAGE_EMBEDDING: Named<OutputRole> = ("image_embeds", OutputRole::ImageEmbedding);
/// The same of recordings.
pub(crate) const LOGITS_PER_AUDIO: Named<OutputRole> = ("logits_per_audio", OutputRole::LogitsPerImage);
pub(crate) const AUDIO_EMBEDDING: Named<OutputRole> = ("audio_embeds", OutputRole::ImageEmbedding);

/// The symbols of sizes.
pub(crate) const BATCH: &str = "batch_size";
/// The texts and the images of a model that compares all of them, which has no rows of both.
pub(crate) const TEXTS: &str = "text_batch_size";
pub(crate) const IMAGES: &str = "image_batch_size";
/// The images of a row.
pub(crate) const IMAGES_OF_ROW: &str = "num_images";
pub(crate) const SEQUENCE: &str = "sequence_length";
/// The patches of an image of any shape.
pub(crate) const PATCHES: &str = "num_patches";
/// The places of all images that take those of tokens.
pub(crate) const PLACES: &str = "num_places";
/// Rows and columns of pixels.
pub(crate) const HEIGHT: &str = "height";
pub(crate) const WIDTH: &str = "width";
/// Texts of which one is chosen.
pub(crate) const CHOICES: &str = "num_choices";
/// Prompts for each image, and the points of a prompt.
pub(crate) const PROMPTS: &str = "point_batch_size";
pub(crate) const POINTS: &str = "nb_points_per_image";
/// Positions of a cache.
pub(crate) const PAST: &str = "past_sequence_length";
/// Positions of a cache and the new ones, where no input has those of the cache alone.
pub(crate) const TOTAL: &str = "total_sequence_length";
/// The encoder's tokens.
pub(crate) const ENCODER_SEQUENCE: &str = "encoder_sequence_length";
/// The new tokens of a decoder after an encoder, and those in its cache.
pub(crate) const DECODER_SEQUENCE: &str = "decoder_sequence_length";
pub(crate) const DECODER_PAST: &str = "past_decoder_sequence_length";

const SYMBOLS: &[Named<SymbolRole>] = &[
    (BATCH, SymbolRole::Rows),
    (TEXTS, SymbolRole::Rows),
    (IMAGES, SymbolRole::Rows),
    (IMAGES_OF_ROW, SymbolRole::Rows),
    (SEQUENCE, SymbolRole::Tokens),
    (PATCHES, SymbolRole::Tokens),
    (PLACES, SymbolRole::Tokens),
    (HEIGHT, SymbolRole::Height),
    (WIDTH, SymbolRole::Width),
    (CHOICES, SymbolRole::Choices),
    (PROMPTS, SymbolRole::Prompts),
    (POINTS, SymbolRole::Points),
    (PAST, SymbolRole::Past),
    (TOTAL, SymbolRole::PastAndTokens),
    (ENCODER_SEQUENCE, SymbolRole::EncoderTokens),
    (DECODER_SEQUENCE, SymbolRole::Tokens),
    (DECODER_PAST, SymbolRole::Past),
];

/// Whether the models here have a size of this name. A graph of others may take sequences of no token.
#[must_use]
pub fn has_symbol(symbol: &str) -> bool {
    SYMBOLS.iter().any(|(known, _)| *known == symbol)
}

/// What a symbol of the models here counts.
pub(crate) fn symbol(symbol: &str) -> SymbolRole {
    SYMBOLS.iter().find(|(known, _)| *known == symbol).map(|(_, role)| *role).unwrap_or_default()
}

/// The axis along which keys and values grow, of [rows, heads, tokens, size].
const TOKEN_AXIS: usize = 2;

/// Whose attention a cache is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheOf {
    /// The attention of a model without an encoder.
    Model,
    /// The attention of a decoder after an encoder to its own tokens.
    Decoder,
    /// The attention of a decoder to the encoder's tokens.
    Encoder,
}

impl CacheOf {
    /// What keys and values of a layer are, and how names end with them.
    fn entries(self, layer: usize) -> [(CacheEntry, String); 2] {
        let (kind, of) = match self {
            Self::Model => (CacheKind::Growing { axis: TOKEN_AXIS }, ""),
            Self::Decoder => (CacheKind::Growing { axis: TOKEN_AXIS }, "decoder."),
            Self::Encoder => (CacheKind::Encoder, "encoder."),
        };
        [(CacheTensor::Key, "key"), (CacheTensor::Value, "value")]
            .map(|(tensor, what)| (CacheEntry { layer, kind, tensor }, format!("{layer}.{of}{what}")))
    }

    /// The inputs of keys and values of a layer.
    pub(crate) fn past(self, layer: usize) -> [(String, InputRole); 2] {
        self.entries(layer).map(|(entry, name)| (format!("past_key_values.{name}"), InputRole::Cache(entry)))
    }

    /// The outputs of keys and values of a layer.
    pub(crate) fn present(self, layer: usize) -> [(String, OutputRole); 2] {
        self.entries(layer).map(|(entry, name)| (format!("present.{name}"), OutputRole::Cache(entry)))
    }
}

/// States of layers that have a fixed size, which a step leaves for the next one, as Transformers.js names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateOf {
    /// The last inputs of a convolution.
    Convolution,
    /// Linear attention.
    Attention,
    /// A state space.
    Space,
}

impl StateOf {
    /// What the state of a layer is, and how names end with it.
    fn entry(self, layer: usize) -> (CacheEntry, String) {
        let (kind, of) = match self {
            Self::Convolution => (CacheKind::Convolution, "conv"),
            Self::Attention => (CacheKind::Recurrent, "recurrent"),
            Self::Space => (CacheKind::Recurrent, "ssm"),
        };
        (CacheEntry { layer, kind, tensor: CacheTensor::State }, format!("{of}.{layer}"))
    }

    /// The input of the state of a layer.
    pub(crate) fn past(self, layer: usize) -> (String, InputRole) {
        let (entry, name) = self.entry(layer);
        (format!("past_{name}"), InputRole::Cache(entry))
    }

    /// The output of the state of a layer.
    pub(crate) fn present(self, layer: usize) -> (String, OutputRole) {
        let (entry, name) = self.entry(layer);
        (format!("present_{name}"), OutputRole::Cache(entry))
    }
}

/// How a library names the entries of a kind in a cache; `%d` stands for the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryNames {
    /// The kind.
    pub kind: CacheKind,
    /// The name of an input.
    pub past: &'static str,
    /// The name of an output.
    pub present: &'static str,
}

/// Gives the entries of the cache of a graph the names of a library. Entries of kinds that it does not name keep theirs.
pub fn name_entries(graph: &mut Graph, names: &[EntryNames]) {
    let name = |entry: CacheEntry, of: fn(&EntryNames) -> &'static str| {
        let names = names.iter().find(|names| names.kind == entry.kind)?;
        Some(of(names).replace("%d", &entry.layer.to_string()))
    };
    for input in graph.inputs().to_vec() {
        let old = graph.value(input).name.clone();
        let role = graph.interface.input(&old);
        if let Some(new) = role.cache().and_then(|entry| name(entry, |names| names.past)) {
            graph.rename(input, &new);
            graph.interface.inputs.remove(&old);
            graph.interface.inputs.insert(new, role);
        }
    }
    for output in graph.take_outputs() {
        let role = graph.interface.output(&output.name);
        match role.cache().and_then(|entry| name(entry, |names| names.present)) {
            Some(new) => {
                graph.interface.outputs.remove(&output.name);
                graph.interface.outputs.insert(new.clone(), role);
                graph.add_output(&new, output.value);
            }
            None => graph.add_output(&output.name, output.value),
        }
    }
}

/// What an input of a part is called as an input of the model: an output of an earlier part by its name in the model, an input
/// that it shares with an earlier part by the name of that, and the ids that a decoder reads after an encoder apart from the
/// encoder's.
#[must_use]
pub fn input_in_model<'a>(interface: &'a Interface, part: &str, input: &'a str) -> Cow<'a, str> {
    if let Some((from, output)) = interface.feed(part, input) {
        return output_in_model(interface, from, output);
    }
    let (of, name) = interface.shared(part, input).unwrap_or((part, input));
    let of = interface.part(of).map(|part| (part.role, part.input(name)));
    match of {
        Some((PartRole::FirstStep | PartRole::NextStep, InputRole::DecoderTokenIds)) => DECODER_INPUT_IDS.into(),
        Some((PartRole::FirstStep | PartRole::NextStep, InputRole::EncoderMask)) => ATTENTION_MASK.0.into(),
        Some((PartRole::FirstStep | PartRole::NextStep, InputRole::EncoderStates)) => ENCODER_OUTPUT.into(),
        _ => name.into(),
    }
}

/// What the encoder gives, among the outputs of the model.
const ENCODER_OUTPUT: &str = "encoder_last_hidden_state";

/// What an output of a part is called as an output of the model.
#[must_use]
pub fn output_in_model<'a>(interface: &'a Interface, part: &str, output: &'a str) -> Cow<'a, str> {
    let of = interface.part(part).map(|part| (part.role, part.output(output)));
    match of {
        Some((PartRole::Encoder, OutputRole::HiddenStates)) => ENCODER_OUTPUT.into(),
        _ => output.into(),
    }
}

/// The ids that a decoder reads after an encoder, among the inputs of the model.
pub const DECODER_INPUT_IDS: &str = "decoder_input_ids";

/// What the output of a role is called; absent where no model here has one.
#[must_use]
pub fn output(role: OutputRole) -> Option<&'static str> {
    let all = [
        LOGITS,
        START_LOGITS,
        END_LOGITS,
        HIDDEN,
        POOLED,
        TOKENS,
        SENTENCE,
        SPARSE,
        VECTORS.1,
        PRED_BOXES,
        PRED_MASKS,
        IOU_SCORES,
        IMAGE_STATES.1,
        IMAGE_POSITIONS.1,
        DEPTH,
        HEATMAPS,
        XVECTOR,
    ];
    all.iter().find(|(_, other)| *other == role).map(|(name, _)| *name)
}

/// What the input of a role is called; absent where no model here has one.
#[must_use]
pub fn input(role: InputRole) -> Option<&'static str> {
    let all = [
        INPUT_IDS,
        ATTENTION_MASK,
        ENCODER_MASK,
        ENCODER_STATES,
        TOKEN_TYPES,
        POSITION_IDS,
        BOXES,
        PIXELS,
        PIXEL_MASK,
        PATCH_GRID,
        FEATURES,
        IS_LONGER,
        VECTORS.0,
        WAVEFORM,
        POINT_PLACES,
        POINT_LABELS,
        IMAGE_STATES.0,
        IMAGE_POSITIONS.0,
    ];
    all.iter().find(|(_, other)| *other == role).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_by_their_roles() {
        for (name, role) in PARTS {
            assert_eq!((part(*role), known_part(name)), (Some(*name), Some(*name)));
        }
        assert_eq!((part(PartRole::AudioEncoder), known_part("decoder")), (None, None));
    }

    #[test]
    fn caches_are_named_by_layer_and_attention() {
        let [(key, _), (value, role)] = CacheOf::Encoder.past(3);
        assert_eq!(
            (key.as_str(), value.as_str()),
            ("past_key_values.3.encoder.key", "past_key_values.3.encoder.value")
        );
        assert_eq!(role.to_string(), "cache.encoder.3.value");
        let [(key, role), _] = CacheOf::Model.present(0);
        assert_eq!((key.as_str(), role.to_string().as_str()), ("present.0.key", "cache.growing(2).0.key"));
        let (state, role) = StateOf::Space.past(2);
        assert_eq!((state.as_str(), role.to_string().as_str()), ("past_ssm.2", "cache.recurrent.2.state"));
        let (state, role) = StateOf::Convolution.present(0);
        assert_eq!((state.as_str(), role.to_string().as_str()), ("present_conv.0", "cache.convolution.0.state"));
    }
}
