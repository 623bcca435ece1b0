//! The names that exporters give to parts, inputs and outputs.

use planish_ir::{InputRole, OutputRole, PartRole};

/// Parts by the names of their files without endings: Optimum's and Transformers.js', then those of onnxruntime-genai.
pub(super) const PARTS: &[(&str, PartRole)] = &[
    ("model", PartRole::Model),
    ("encoder_model", PartRole::Encoder),
    ("decoder_model", PartRole::FirstStep),
    ("decoder_with_past_model", PartRole::NextStep),
    ("embed_tokens", PartRole::Embedder),
    ("vision_encoder", PartRole::VisionEncoder),
    ("prompt_encoder_mask_decoder", PartRole::MaskDecoder),
    ("audio_encoder", PartRole::AudioEncoder),
    ("encoder", PartRole::Encoder),
    ("embedding", PartRole::Embedder),
    ("vision", PartRole::VisionEncoder),
    ("speech", PartRole::AudioEncoder),
];

/// Inputs by their names, caches apart.
pub(super) const INPUTS: &[(&str, InputRole)] = &[
    ("input_ids", InputRole::TokenIds),
    ("decoder_input_ids", InputRole::DecoderTokenIds),
    ("attention_mask", InputRole::Mask),
    ("encoder_attention_mask", InputRole::EncoderMask),
    ("token_type_ids", InputRole::TokenTypes),
    ("position_ids", InputRole::Positions),
    ("bbox", InputRole::Boxes),
    ("image", InputRole::Image),
    ("pixel_values", InputRole::Pixels),
    ("pixel_mask", InputRole::PixelMask),
    ("pixel_attention_mask", InputRole::PixelMask),
    ("spatial_shapes", InputRole::PatchGrid),
    ("grid_thw", InputRole::PatchGrid),
    ("image_grid_thw", InputRole::PatchGrid),
    ("audio", InputRole::Recording),
    ("audio_mask", InputRole::RecordingMask),
    ("input_values", InputRole::Waveform),
    ("input_features", InputRole::Features),
    ("audio_features", InputRole::Features),
    ("is_longer", InputRole::IsLonger),
    ("inputs_embeds", InputRole::Embeddings),
    ("encoder_hidden_states", InputRole::EncoderStates),
    ("input_points", InputRole::Points),
    ("input_labels", InputRole::PointLabels),
    ("image_embeddings", InputRole::ImageStates),
    ("image_positional_embeddings", InputRole::ImagePositions),
    ("use_cache_branch", InputRole::UseCache),
];

/// Inputs by what their names end with.
pub(super) const INPUT_ENDINGS: &[(&str, InputRole)] =
    &[("input_ids", InputRole::TokenIds), ("attention_mask", InputRole::OtherMask)];

/// Outputs by their names, caches apart.
pub(super) const OUTPUTS: &[(&str, OutputRole)] = &[
    ("logits", OutputRole::Logits),
    ("start_logits", OutputRole::StartLogits),
    ("end_logits", OutputRole::EndLogits),
    ("last_hidden_state", OutputRole::HiddenStates),
    ("hidden_states", OutputRole::HiddenStates),
    ("pooler_output", OutputRole::Pooled),
    ("token_embeddings", OutputRole::TokenEmbeddings),
    ("dense_vecs", OutputRole::SentenceEmbedding),
    ("sparse_vecs", OutputRole::TokenWeights),
    ("colbert_vecs", OutputRole::TokenEmbeddings),
    ("sentence_embedding", OutputRole::SentenceEmbedding),
    ("inputs_embeds", OutputRole::Embeddings),
    ("image_features", OutputRole::Embeddings),
    ("audio_features", OutputRole::Embeddings),
    ("predicted_depth", OutputRole::Depth),
    ("heatmaps", OutputRole::Heatmaps),
    ("scores", OutputRole::Scores),
    ("pred_boxes", OutputRole::Boxes),
    ("pred_masks", OutputRole::Masks),
    ("iou_scores", OutputRole::MaskScores),
    ("image_embeddings", OutputRole::ImageStates),
    ("image_positional_embeddings", OutputRole::ImagePositions),
    ("logits_per_image", OutputRole::LogitsPerImage),
    ("logits_per_text", OutputRole::LogitsPerText),
    ("text_embeds", OutputRole::TextEmbedding),
    ("image_embeds", OutputRole::ImageEmbedding),
    ("logits_per_audio", OutputRole::LogitsPerImage),
    ("audio_embeds", OutputRole::ImageEmbedding),
];
