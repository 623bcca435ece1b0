//! What onnxruntime-genai is told of a Whisper: an encoder that gives the keys and values that its decoder attends to, a decoder
//! that goes on from a cache, and how features are made of recordings.

use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_artifact::manifest::Manifest;
use planish_ir::interface::{CacheEntry, CacheKind, CacheTensor};
use planish_ir::ops::Op;
use planish_ir::{Graph, InputRole, OutputRole};
use planish_models::{Loaded, Part};
use planish_sounds::Processor;
use serde_json::{Map, Value, json};

/// The model class of onnxruntime-genai.
const TYPE: &str = "whisper";

/// The name of the file that says how features are made.
pub(super) const PROCESSOR: &str = "audio_processor_config.json";

/// The encoder and the decoder, where the library loads such a model.
pub(super) fn parts(model: &Loaded) -> Option<[&Part; 2]> {
    let [encoder, decoder] = model.parts.as_slice() else { return None };
    let interface = &encoder.graph.interface;
    let is_encoder = interface.input_of(InputRole::Features).is_some();
    let gives_keys = interface.outputs.values().any(|role| role.cache().is_some());
    (is_encoder && gives_keys && decoder.graph.interface.has_cache()).then_some([encoder, decoder])
}

/// The rate of recordings in Hz.
const RATE: u32 = 16_000;

/// The frames of a window, of which the library takes no other number.
const FRAMES: usize = 3000;

/// Checks that the library takes the windows of a model.
///
/// # Errors
/// When it does not.
pub(super) fn check([encoder, _]: [&Part; 2]) -> Result<()> {
    match frames(encoder) {
        Some(FRAMES) => Ok(()),
        other => bail!(
            "onnxruntime-genai takes windows of {FRAMES} frames, and the encoder takes {} (twice `max_source_positions`); leave out \
             --package genai",
            other.map_or_else(|| "another number".to_owned(), |frames| frames.to_string())
        ),
    }
}

/// The settings that follow from the graphs.
///
/// # Errors
/// When the graphs are not those of such a model.
pub(super) fn document(model: &Loaded, [encoder, decoder]: [&Part; 2], manifest: &Manifest) -> Result<Value> {
    let file = |part: &Part| -> Result<&str> {
        let files = manifest.parts.iter().find(|other| other.name == part.name).map(|part| &part.files);
        files.and_then(|files| files.first()).map(String::as_str).with_context(|| format!("{} has no file", part.name))
    };
    let context = model.max_positions.context("the model has no longest text")?;
    let own = &decoder.graph.interface;
    let ids = own.input_of(InputRole::DecoderTokenIds).context("the decoder reads no ids")?;
    let logits = own.output_of(OutputRole::Logits).context("the decoder gives no logits")?;
    let vocabulary = decoder.graph.outputs().iter().find(|output| output.name == logits);
    let vocabulary = vocabulary.and_then(|output| decoder.graph.ty(output.value).shape.last()?.as_constant());
    let mut inputs = Map::new();
    inputs.insert("input_ids".to_owned(), ids.into());
    let taken = own.inputs.iter().filter_map(|(name, role)| Some((name, role.cache()?)));
    cache_names(&mut inputs, "past", taken)?;
    let mut outputs = Map::new();
    outputs.insert("logits".to_owned(), logits.into());
    let given = own.outputs.iter().filter_map(|(name, role)| Some((name, role.cache()?)));
    cache_names(&mut outputs, "present", given)?;

    let of_encoder = &encoder.graph.interface;
    let features = of_encoder.input_of(InputRole::Features).context("the encoder takes no features")?;
    let states = of_encoder.output_of(OutputRole::HiddenStates).context("the encoder gives no states")?;
    let mut from_encoder = Map::new();
    from_encoder.insert("encoder_hidden_states".to_owned(), states.into());
    let given = of_encoder.outputs.iter().filter_map(|(name, role)| Some((name, role.cache()?)));
    cache_names(&mut from_encoder, "present", given)?;

    let mut document = json!({
        "model": {
            "type": TYPE,
            "context_length": context,
            "vocab_size": vocabulary.context("the number of scores is not known")?,
            "decoder": {"filename": file(decoder)?, "inputs": inputs, "outputs": outputs},
            "encoder": {
                "filename": file(encoder)?,
                "inputs": {"audio_features": features},
                "outputs": from_encoder,
            },
        },
        // Defaults of the library that are not those of transformers are stated.
        "search": {
            "early_stopping": false,
            "max_length": context,
            "past_present_share_buffer": false,
            "top_k": 50,
        },
    });
    for (key, graph) in [("decoder", &decoder.graph), ("encoder", &encoder.graph)] {
        let section = document["model"][key].as_object_mut().context("a section of the document is an object")?;
        section.insert("session_options".to_owned(), json!({"provider_options": []}));
        section.extend(sizes(graph)?);
    }
    Ok(document)
}

/// The sizes of a stack of layers, by the heads of its attention to itself.
fn sizes(graph: &Graph) -> Result<Map<String, Value>> {
    let attentions = graph.nodes().filter_map(|(_, node)| match &node.op {
        Op::Attention(attention) => Some(attention),
        _ => None,
    });
    let attentions: Vec<_> = attentions.collect();
    let is_cached = |graph: &Graph| graph.interface.has_cache();
    // A decoder attends to itself and to the encoder.
    let layers = attentions.len() / if is_cached(graph) { 2 } else { 1 };
    let first = attentions.first().context("the graph has no attention")?;
    let hidden = graph.ty(first.q).shape.last().and_then(planish_ir::Dim::as_constant);
    let hidden = hidden.context("the number of features is not known")?;
    let heads = i64::try_from(first.heads)?;
    if heads == 0 || hidden % heads != 0 {
        bail!("{hidden} features are not divisible by {heads} heads");
    }
    let sizes = json!({
        "head_size": hidden / heads,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": heads,
    });
    Ok(sizes.as_object().cloned().unwrap_or_default())
}

/// Adds the names of caches, with `%d` in place of the layer.
fn cache_names<'a>(
    to: &mut Map<String, Value>,
    time: &str,
    caches: impl Iterator<Item = (&'a String, CacheEntry)>,
) -> Result<()> {
    for (name, entry) in caches {
        let cross = if entry.kind == CacheKind::Encoder { "cross_" } else { "" };
        let what = match entry.tensor {
            CacheTensor::Key => "key",
            CacheTensor::Value => "value",
            CacheTensor::KeyAndValue | CacheTensor::Query | CacheTensor::State => {
                bail!("onnxruntime-genai has no cache such as `{name}`; leave out --package genai")
            }
        };
        let pattern = name.replacen(&format!(".{}", entry.layer), ".%d", 1);
        to.insert(format!("{cross}{time}_{what}_names"), pattern.into());
    }
    Ok(())
}

/// How the features of a model are made, by the settings in the folder; absent where no file
/// there says it.
///
/// # Errors
/// When a setting is one that the library does not have.
pub(super) fn processor(folder: &Path) -> Result<Option<Value>> {
    let Some(processor) = Processor::open(folder)? else { return Ok(None) };
    let Some((mel, samples)) = processor.log_mel() else {
        bail!("onnxruntime-genai makes the features of WhisperFeatureExtractor only; leave out --package genai")
    };
    let (rate, fft, hop) = (processor.rate(), mel.length(), mel.hop());
    if rate != RATE || samples != FRAMES * hop || samples % RATE as usize != 0 {
        bail!(
            "onnxruntime-genai makes windows of {FRAMES} frames at {RATE} Hz, and preprocessor_config.json has {samples} samples at \
             {rate} Hz; leave out --package genai"
        );
    }
    Ok(Some(json!({
        "feature_extraction": {
            "sequence": [
                {"operation": {"name": "audio_decoder", "type": "AudioDecoder"}},
                {"operation": {
                    "name": "STFT",
                    "type": "STFTNorm",
                    "attrs": {"n_fft": fft, "frame_length": fft, "hop_length": hop},
                }},
                {"operation": {
                    "name": "log_mel_spectrogram",
                    "type": "LogMelSpectrum",
                    "attrs": {"chunk_size": samples / rate as usize, "hop_length": hop, "n_fft": fft, "n_mel": mel.bank().len()},
                }},
            ],
        },
    })))
}

/// The frames of a window.
fn frames(encoder: &Part) -> Option<usize> {
    let name = encoder.graph.interface.input_of(InputRole::Features)?;
    let input = encoder.graph.inputs().iter().find(|input| encoder.graph.value(**input).name == name)?;
    usize::try_from(encoder.graph.ty(*input).shape.last()?.as_constant()?).ok()
}
