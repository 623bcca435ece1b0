//! `genai_config.json`, which tells onnxruntime-genai how to run a decoder. Its keys are those
//! that version 0.18 of that library reads.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use planish_artifact::manifest::Manifest;
use planish_data::tokenizer::{end_tokens, token};
use planish_files::Kind;
use planish_ir::ops::Op;
use planish_ir::{Dim, Graph, ValueId};
use planish_models::Loaded;
use serde_json::{Map, Value, json};

/// The name of the file.
pub(crate) const CONFIG: &str = "genai_config.json";

/// The model class of onnxruntime-genai for any decoder with a key and a value for each layer.
/// Classes that it has for architectures want more: `gpt2` a cache in which each layer's key and
/// value are one tensor; `phi3` reads the text again at 4097 tokens, for graphs that rotate
/// otherwise from there on.
const TYPE: &str = "decoder";

/// The settings of generation_config.json that onnxruntime-genai has under the same names.
const SEARCH: &[&str] = &[
    "do_sample",
    "early_stopping",
    "length_penalty",
    "min_length",
    "no_repeat_ngram_size",
    "num_beams",
    "repetition_penalty",
    "temperature",
    "top_k",
    "top_p",
];

/// The keys whose values are booleans.
const SWITCHES: &[&str] = &["do_sample", "early_stopping"];

/// The other keys of generation_config.json that do not change which tokens are chosen, or that are written elsewhere.
const WITHOUT_EFFECT: &[&str] = &[
    "bos_token_id",
    "cache_implementation",
    "eos_token_id",
    "max_length",
    "max_new_tokens",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "return_dict_in_generate",
    "transformers_version",
    "use_cache",
];

/// Writes the file into the folder of an artifact with one model, a decoder, and with the
/// configuration files of its source; `scored` is how wide logits are, if not as in the source. Returns what
/// the library will not do that those files say.
///
/// # Errors
/// When the model is not a decoder, a configuration file does not say what it should, or the file
/// cannot be written.
pub(crate) fn write(
    model: &Loaded,
    scored: Option<usize>,
    manifest: &Manifest,
    folder: &Path,
) -> Result<Option<String>> {
    let file = manifest.parts.first().and_then(|part| part.files.first());
    let file = file.context("the decoder has no file")?;
    let mut document = document(model, file, manifest.cache_in_place)?;
    let ids = &mut document["model"];
    // The library refuses ids that are in no vocabulary; configurations say by them that there is none.
    let vocabulary = ids["vocab_size"].as_i64().unwrap_or(0);
    let token = |key: &str| token(folder, key).map(|id| id.filter(|id| (0..vocabulary).contains(id)));
    let mut ends = end_tokens(folder)?;
    ends.retain(|id| (0..vocabulary).contains(id));
    if let Some(id) = token("bos_token_id")? {
        ids["bos_token_id"] = id.into();
    }
    match ends.as_slice() {
        [] => {}
        [id] => ids["eos_token_id"] = (*id).into(),
        several => ids["eos_token_id"] = several.into(),
    }
    // Where no token is for padding, the first that ends a text is, as in the transformers library.
    if let Some(id) = token("pad_token_id")?.or(ends.first().copied()) {
        ids["pad_token_id"] = id.into();
    }
    // The library takes logits of as many columns, and finds none of the padded ones to be the best.
    if let Some(scored) = scored {
        ids["vocab_size"] = scored.into();
    }
    let dropped = search_settings(folder, &mut document["search"])?;
    let path = folder.join(CONFIG);
    let text = serde_json::to_string_pretty(&document)? + "\n";
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    let warning = || format!("onnxruntime-genai has no {}, which generation_config.json sets", dropped.join(", "));
    Ok((!dropped.is_empty()).then(warning))
}

/// The differences of the library from the model: it pads on the right, where `last_logits` are not those of a token, and it
/// never computes a text again.
pub(crate) fn warnings(model: &Loaded, last_logits: bool) -> Vec<String> {
    let mut nodes = model.parts.iter().flat_map(|part| part.graph.nodes());
    let windowed = nodes.any(|(_, node)| matches!(&node.op, Op::Attention(attention) if attention.window.is_some()));
    let padding = windowed.then(|| {
        "onnxruntime-genai pads the shorter prompts of a batch after their last token, where padding takes up a part of \
         this model's sliding window; give it prompts of one length, or one at a time"
            .to_owned()
    });
    let crossing = model.recompute_at.map(|length| {
        format!(
            "onnxruntime-genai keeps the cache of a text that reaches {length} tokens, where the transformers library \
             computes this model's anew: what it generates from there on is another text; let texts begin with more \
             tokens or end with fewer, or use `planish generate`"
        )
    });
    let last = last_logits.then(|| {
        "onnxruntime-genai pads the shorter prompts of a batch after their last token, and with --recipe logits=last the graph gives \
         no logits of that token; give it prompts of one length, or one at a time"
            .to_owned()
    });
    padding.into_iter().chain(last).chain(crossing).collect()
}

/// The settings that follow from the graph.
fn document(model: &Loaded, file: &str, in_place: bool) -> Result<Value> {
    let no_decoder =
        || anyhow!("{} is not a decoder with a cache, and onnxruntime-genai takes no other", model.architecture);
    let [part] = model.parts.as_slice() else { return Err(no_decoder()) };
    let interface = &part.graph.interface;
    if interface.inputs.values().filter_map(|role| role.cache()).any(|entry| entry.kind.is_state()) {
        bail!(
            "{} has states of convolutions or recurrences, which the model type that planish writes for onnxruntime-genai does not \
             have; leave out --package genai",
            model.architecture
        )
    }
    let shape = Shape::of(&part.graph).ok_or_else(no_decoder)?;
    if shape.key_size != shape.value_size {
        bail!(
            "{} has a cache with {} features of a key and {} of a value, and onnxruntime-genai has one size for both; leave out \
             --package genai",
            model.architecture,
            shape.key_size,
            shape.value_size
        )
    }
    if !shape.alike {
        bail!(
            "layers of {} differ in the size or number of heads, and onnxruntime-genai takes one for all; leave out --package genai",
            model.architecture
        );
    }
    let Some(context) = model.max_positions else {
        bail!("{} has no longest text, and onnxruntime-genai needs one; leave out --package genai", model.architecture)
    };
    let named = |of: &[&str]| of.iter().map(|name| ((*name).to_owned(), (*name).into())).collect::<Map<_, _>>();
    let inputs: Vec<&str> = part.graph.inputs().iter().map(|&input| part.graph.value(input).name.as_str()).collect();
    let mut inputs = named(&inputs.into_iter().filter(|name| !name.starts_with(PAST)).collect::<Vec<_>>());
    let mut outputs = named(&["logits"]);
    for what in ["key", "value"] {
        inputs.insert(format!("past_{what}_names"), format!("{PAST}%d.{what}").into());
        outputs.insert(format!("present_{what}_names"), format!("present.%d.{what}").into());
    }
    Ok(json!({
        "model": {
            "type": TYPE,
            "context_length": context,
            "vocab_size": shape.vocabulary,
            "decoder": {
                "filename": file,
                "session_options": {"provider_options": []},
                "head_size": shape.key_size,
                "hidden_size": shape.hidden,
                "num_attention_heads": shape.heads,
                "num_hidden_layers": shape.layers,
                "num_key_value_heads": shape.key_heads,
                "inputs": inputs,
                "outputs": outputs,
            },
        },
        // Defaults of the library that are not those of transformers are stated.
        "search": {
            "early_stopping": false,
            "max_length": context,
            // One buffer for the past and the result, where attention writes into it.
            "past_present_share_buffer": in_place,
            "top_k": 50,
        },
    }))
}

const PAST: &str = "past_key_values.";

/// The sizes of a decoder.
struct Shape {
    vocabulary: i64,
    hidden: i64,
    layers: usize,
    heads: usize,
    key_heads: i64,
    key_size: i64,
    value_size: i64,
    /// Whether the caches of all layers have heads of the same number and size.
    alike: bool,
}

impl Shape {
    /// Absent where the graph is not a decoder's.
    fn of(graph: &Graph) -> Option<Self> {
        let name = |id: ValueId| graph.value(id).name.as_str();
        let size = |id: ValueId, axis: usize| graph.ty(id).shape.get(axis).and_then(Dim::as_constant);
        let cached = |what: &'static str| {
            let inputs = graph.inputs().iter().copied();
            inputs.filter(move |&input| name(input).starts_with(PAST) && name(input).ends_with(what))
        };
        let (first, value) = (cached(".key").next()?, cached(".value").next()?);
        let logits = graph.outputs().iter().find(|output| output.name == "logits")?.value;
        let heads = graph.nodes().find_map(|(_, node)| match &node.op {
            Op::Attention(attention) => Some(attention.heads),
            _ => None,
        });
        let hidden = graph.nodes().find_map(|(_, node)| match &node.op {
            Op::Embedding(embedding) if name(embedding.ids) == "input_ids" => size(embedding.weight, 1),
            _ => None,
        });
        Some(Self {
            vocabulary: size(logits, 2)?,
            hidden: hidden?,
            layers: cached(".key").count(),
            heads: heads?,
            key_heads: size(first, 1)?,
            key_size: size(first, 3)?,
            value_size: size(value, 3)?,
            alike: [(".key", first), (".value", value)].into_iter().all(|(what, first)| {
                cached(what).all(|cache| [1, 3].map(|axis| size(cache, axis)) == [1, 3].map(|axis| size(first, axis)))
            }),
        })
    }
}

/// Adds what generation_config.json says of the search; returns the settings that the library does not have.
fn search_settings(folder: &Path, search: &mut Value) -> Result<Vec<String>> {
    let path = folder.join("generation_config.json");
    let Some(text) = planish_files::read_if_there(&path, &Kind::SETTINGS)? else { return Ok(Vec::new()) };
    let document: Value =
        serde_json::from_str(&text).with_context(|| format!("{} is not a JSON document", path.display()))?;
    for key in SEARCH {
        match document.get(key) {
            None | Some(Value::Null) => {}
            Some(value) if if SWITCHES.contains(key) { value.is_boolean() } else { value.is_number() } => {
                search[*key] = value.clone();
            }
            Some(value) => bail!("`{key}` of {} is {value}, which onnxruntime-genai does not support", path.display()),
        }
    }
    let off = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(items) => items.is_empty(),
        _ => false,
    };
    let heeded = |key: &str| key.starts_with('_') || [SEARCH, WITHOUT_EFFECT].concat().contains(&key);
    let entries = document.as_object().into_iter().flatten();
    Ok(entries.filter(|(key, value)| !off(value) && !heeded(key)).map(|(key, _)| key.clone()).collect())
}
