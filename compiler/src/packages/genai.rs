//! `genai_config.json`, which tells onnxruntime-genai how to run a decoder or a Whisper. Its keys are those
//! that version 0.18 of that library reads.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use planish_artifact::manifest::Manifest;
use planish_data::tokenizer::{end_tokens, token};
use planish_files::Kind;
use planish_ir::interface::{CacheEntry, CacheKind, CacheTensor};
use planish_ir::ops::Op;
use planish_ir::{Dim, Graph, ValueId};
use planish_models::Loaded;
use serde_json::{Map, Value, json};

use super::speech;

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
    "decoder_start_token_id",
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

/// Writes the file, and of a Whisper the one about its features, into the folder of an artifact with the
/// configuration files of its source; `scored` is how wide logits are, if not as in the source. Returns the names of the files, and
/// what the library will not do that those of the source say.
///
/// # Errors
/// When the model is neither, a configuration file does not say what it should, or the file
/// cannot be written.
pub(crate) fn write(
    model: &Loaded,
    scored: Option<usize>,
    manifest: &Manifest,
    folder: &Path,
) -> Result<(Vec<String>, Option<String>)> {
    let heard = speech::parts(model);
    let mut document = match heard {
        Some(parts) => speech::document(model, parts, manifest)?,
        None => {
            let file = manifest.parts.first().and_then(|part| part.files.first());
            document(model, file.context("the decoder has no file")?, manifest.cache_in_place)?
        }
    };
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
    if heard.is_some()
        && let Some(id) = token("decoder_start_token_id")?
    {
        ids["decoder_start_token_id"] = id.into();
    }
    // The library takes logits of as many columns, and finds none of the padded ones to be the best.
    if let Some(scored) = scored {
        ids["vocab_size"] = scored.into();
    }
    let dropped = search_settings(folder, &mut document["search"])?;
    if document["search"]["num_beams"].as_i64().is_some_and(|beams| beams > 1) && kinds(model).any(is_recurrent) {
        bail!(
            "`num_beams` of {} is {}, and {BEAMS}; set it to 1",
            folder.join("generation_config.json").display(),
            document["search"]["num_beams"]
        )
    }
    let mut names = vec![write_document(folder, CONFIG, &document)?];
    let mut warnings = Vec::new();
    if heard.is_some() {
        match speech::processor(folder)? {
            Some(processor) => names.push(write_document(folder, speech::PROCESSOR, &processor)?),
            None => warnings.push(format!(
                "no preprocessor_config.json says how features are made: there is no {}, and onnxruntime-genai takes features only",
                speech::PROCESSOR
            )),
        }
    }
    if !dropped.is_empty() {
        warnings.push(format!("onnxruntime-genai has no {}, which generation_config.json sets", dropped.join(", ")));
    }
    Ok((names, (!warnings.is_empty()).then(|| warnings.join("; "))))
}

/// Writes a file, and returns its name.
fn write_document(folder: &Path, name: &str, document: &Value) -> Result<String> {
    let path = folder.join(name);
    let text = serde_json::to_string_pretty(document)? + "\n";
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(name.to_owned())
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
    let beams = kinds(model).any(is_recurrent).then(|| format!("{BEAMS}; search with one beam"));
    let padded_states = kinds(model).any(CacheKind::is_state).then(|| {
        "onnxruntime-genai pads the shorter prompts of a batch after their last token, where this model's convolutions go on from \
         padding; give it prompts of one length, or one at a time"
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
    padding.into_iter().chain(padded_states).chain(beams).chain(last).chain(crossing).collect()
}

/// What the library does not do for recurrences.
const BEAMS: &str = "onnxruntime-genai leaves the states of recurrences where they are when beams change places, so that it generates \
                     other texts";

fn is_recurrent(kind: CacheKind) -> bool {
    kind == CacheKind::Recurrent
}

/// The kinds of a model's caches.
fn kinds(model: &Loaded) -> impl Iterator<Item = CacheKind> {
    let inputs = model.parts.iter().flat_map(|part| part.graph.interface.inputs.values());
    inputs.filter_map(|role| role.cache()).map(|entry| entry.kind)
}

/// The settings that follow from the graph.
fn document(model: &Loaded, file: &str, in_place: bool) -> Result<Value> {
    let no_decoder =
        || anyhow!("{} is not a decoder with a cache, and onnxruntime-genai takes no other", model.architecture);
    let [part] = model.parts.as_slice() else { return Err(no_decoder()) };
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
    let context = match model.max_positions {
        Some(context) => context,
        None if shape.kinds.iter().all(|kind| kind.is_state()) => LONGEST,
        None => bail!(
            "{} has no longest text, and onnxruntime-genai needs one; leave out --package genai",
            model.architecture
        ),
    };
    let (inputs, outputs) = names(&part.graph, model.architecture)?;
    let mut document = json!({
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
    });
    // The library finds states by itself where a layer has one of a recurrence.
    if !shape.kinds.contains(&CacheKind::Recurrent) && shape.kinds.contains(&CacheKind::Convolution) {
        let is_convolution = |layer: &usize| shape.convolutions.contains(layer);
        let types = (0..shape.layers).map(|layer| if is_convolution(&layer) { "conv" } else { "full_attention" });
        document["model"]["decoder"]["layer_types"] = types.collect();
    }
    Ok(document)
}

/// What the library calls the names of caches: what they are, and the keys of inputs and of outputs.
const CACHES: &[(CacheKind, CacheTensor, &str)] = &[
    (KEYS, CacheTensor::Key, "key"),
    (KEYS, CacheTensor::Value, "value"),
    (CacheKind::Convolution, CacheTensor::State, "conv"),
    (CacheKind::Recurrent, CacheTensor::State, "recurrent"),
];

/// Keys and values, [rows, heads, tokens, size].
const KEYS: CacheKind = CacheKind::Growing { axis: 2 };

/// The tokens of a text of a model without keys and values, which has no longest one: the library allocates as many ids.
const LONGEST: usize = 131_072;

/// The names of inputs and of outputs. Those of caches have `%d` in place of the layer.
fn names(graph: &Graph, architecture: &str) -> Result<(Map<String, Value>, Map<String, Value>)> {
    let (mut inputs, mut outputs) = (Map::new(), Map::new());
    outputs.insert("logits".to_owned(), "logits".into());
    let add = |to: &mut Map<String, Value>, entry: &CacheEntry, time: &str, name: &str| {
        let known = CACHES.iter().find(|(kind, tensor, _)| (*kind, *tensor) == (entry.kind, entry.tensor));
        let Some((_, _, what)) = known else {
            bail!("onnxruntime-genai has no cache such as `{name}` of {architecture}; leave out --package genai")
        };
        let pattern = Value::from(name.replacen(&format!(".{}", entry.layer), ".%d", 1));
        match to.insert(format!("{time}_{what}_names"), pattern.clone()) {
            Some(other) if other != pattern => {
                bail!("the names of {architecture}'s caches differ, `{name}` from {other}; leave out --package genai")
            }
            _ => Ok(()),
        }
    };
    for &input in graph.inputs() {
        let name = &graph.value(input).name;
        match graph.interface.inputs.get(name).and_then(|role| role.cache()) {
            Some(entry) => add(&mut inputs, &entry, "past", name)?,
            None => {
                inputs.insert(name.clone(), name.as_str().into());
            }
        }
    }
    for output in graph.outputs() {
        if let Some(entry) = graph.interface.outputs.get(&output.name).and_then(|role| role.cache()) {
            add(&mut outputs, &entry, "present", &output.name)?;
        }
    }
    Ok((inputs, outputs))
}

/// The sizes of a decoder, and what its caches are.
struct Shape {
    vocabulary: i64,
    hidden: i64,
    layers: usize,
    heads: usize,
    /// 1 where no layer has keys, and so are the sizes.
    key_heads: i64,
    key_size: i64,
    value_size: i64,
    /// Whether the caches of all layers have heads of the same number and size.
    alike: bool,
    /// The kinds of all caches.
    kinds: Vec<CacheKind>,
    /// The layers with the state of a convolution.
    convolutions: Vec<usize>,
}

impl Shape {
    /// Absent where the graph is not a decoder's.
    fn of(graph: &Graph) -> Option<Self> {
        let name = |id: ValueId| graph.value(id).name.as_str();
        let size = |id: ValueId, axis: usize| graph.ty(id).shape.get(axis).and_then(Dim::as_constant);
        let entry = |id: ValueId| graph.interface.inputs.get(name(id)).and_then(|role| role.cache());
        let caches: Vec<_> = graph.inputs().iter().filter_map(|&input| Some((input, entry(input)?))).collect();
        let of = |tensor: CacheTensor| {
            let caches = caches.iter().filter(move |(_, entry)| (entry.kind, entry.tensor) == (KEYS, tensor));
            caches.map(|(input, _)| *input).collect::<Vec<_>>()
        };
        let (keys, values) = (of(CacheTensor::Key), of(CacheTensor::Value));
        let first = |all: &[ValueId], axis: usize| all.first().map_or(Some(1), |first| size(*first, axis));
        let alike = |all: &[ValueId]| {
            let sizes = |cache: ValueId| [1, 3].map(|axis| size(cache, axis));
            all.windows(2).all(|two| sizes(two[0]) == sizes(two[1]))
        };
        let logits = graph.outputs().iter().find(|output| output.name == "logits")?.value;
        let heads = graph.nodes().find_map(|(_, node)| match &node.op {
            Op::Attention(attention) => Some(attention.heads),
            _ => None,
        });
        let hidden = graph.nodes().find_map(|(_, node)| match &node.op {
            Op::Embedding(embedding) if name(embedding.ids) == "input_ids" => size(embedding.weight, 1),
            _ => None,
        });
        let convolutions = caches.iter().filter(|(_, entry)| entry.kind == CacheKind::Convolution);
        Some(Self {
            vocabulary: size(logits, 2)?,
            hidden: hidden?,
            layers: caches.iter().map(|(_, entry)| entry.layer + 1).max()?,
            heads: heads.unwrap_or(1),
            key_heads: first(&keys, 1)?,
            key_size: first(&keys, 3)?,
            value_size: first(&values, 3)?,
            alike: alike(&keys) && alike(&values),
            convolutions: convolutions.map(|(_, entry)| entry.layer).collect(),
            kinds: caches.iter().map(|(_, entry)| entry.kind).collect(),
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
