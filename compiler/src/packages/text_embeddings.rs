//! What Text Embeddings Inference reads beside a graph. Its backend of ONNX Runtime takes ids, a mask, token types and positions, and
//! gives `sentence_embedding` on as it is, so the server pools nothing; but it does not start without a pooling that it has. The
//! keys are those that its router and that backend parse.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use planish_artifact::Artifact;
use planish_artifact::files::{create_folders_within, write_within};
use planish_artifact::manifest::{Manifest, PartManifest};
use planish_artifact::value::ValueInfo;
use planish_files::Kind;
use planish_ir::{DType, InputRole, OutputRole};
use planish_models::{Task, module_entries, pooling_modes};
use serde_json::{Map, Value, json};

/// The keys of config.json without which the server does not start, each with the names that it takes in its place, and with
/// those under which configurations of the transformers library have the same.
const KEYS: &[(&str, &[&str], &[&str])] = &[
    ("architectures", &[], &[]),
    ("model_type", &[], &[]),
    ("max_position_embeddings", &["n_positions"], &["max_sequence_length"]),
    ("hidden_size", &["n_embd"], &["dim", "d_model"]),
    ("num_hidden_layers", &["n_layer"], &["n_layers", "num_layers"]),
];

/// The poolings that the server has, by their names in new configurations, and their keys in old ones, which all of its versions
/// read.
const POOLINGS: [(&str, &str); 3] =
    [("cls", "pooling_mode_cls_token"), ("mean", "pooling_mode_mean_tokens"), ("lasttoken", "pooling_mode_lasttoken")];

/// Where the server looks for them.
const POOLING: &str = "1_Pooling/config.json";
const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";

/// The classes that the server takes for classifiers, by the ending of their names.
const CLASSIFIER: &str = "Classification";

/// Checks that the server feeds the inputs of a graph, and reads what it gives.
///
/// # Errors
/// When it does not.
pub(super) fn check_parts(parts: &[PartManifest]) -> Result<()> {
    let refuse = "leave out --package text-embeddings-inference";
    let [part] = parts else { bail!("Text Embeddings Inference loads models of one graph; {refuse}") };
    for input in &part.inputs {
        let is_fed =
            [InputRole::TokenIds, InputRole::Mask, InputRole::TokenTypes, InputRole::Positions].contains(&input.role);
        ensure!(is_fed, "Text Embeddings Inference does not feed an input such as `{}`; {refuse}", input.value.name);
        of_type(&input.value, DType::I64, refuse)?;
    }
    for role in [InputRole::TokenIds, InputRole::Mask] {
        ensure!(
            part.input_of(role).is_some(),
            "Text Embeddings Inference feeds the {role}, which the graph does not take; {refuse}"
        );
    }
    let read = [OutputRole::SentenceEmbedding, OutputRole::Logits];
    let Some(output) = part.outputs.iter().find(|output| read.contains(&output.role)) else {
        bail!(
            "Text Embeddings Inference reads the vector of a text or its scores, and the graph gives neither; {refuse}"
        )
    };
    of_type(&output.value, DType::F32, "leave out --recipe io=half")
}

/// Refuses a tensor of another type.
fn of_type(value: &ValueInfo, dtype: DType, advice: &str) -> Result<()> {
    ensure!(
        value.dtype() == Some(dtype),
        "Text Embeddings Inference takes `{}` of type {dtype}, and the graph has {}; {advice}",
        value.name,
        value.ty
    );
    Ok(())
}

/// Writes the configurations of an artifact as the server reads them; returns their names, and what a user must know.
///
/// # Errors
/// When a file or a setting that it needs is missing, and when a file cannot be read or written.
pub(super) fn write(artifact: &Artifact) -> Result<(Vec<String>, Option<String>)> {
    let Artifact { folder, manifest, .. } = artifact;
    ensure!(
        folder.join(TOKENIZER).is_file(),
        "--package text-embeddings-inference: there is no {TOKENIZER} beside the model, and the server reads no other tokenizer; save \
         it with tokenizers or transformers"
    );
    let config = config(manifest, object(folder, CONFIG)?.unwrap_or_default())?;
    let mut written = vec![save(folder, CONFIG, config)?];
    if manifest.task != Some(Task::SentenceSimilarity) {
        return Ok((written, None));
    }
    if module_entries(folder)?.iter().any(|entry| entry.class == "SpladePooling") {
        bail!(
            "--package text-embeddings-inference: the server runs SPLADE on its own backend (candle) and refuses it on ONNX Runtime; start it \
             with the checkpoint, or leave out --package"
        );
    }
    let modes = pooling_modes(folder)?.unwrap_or_default();
    let own = known_pooling(&modes);
    if own.is_none() {
        let modes = if modes.is_empty() { "none".to_owned() } else { modes.join(", ") };
        let warning = format!(
            "Text Embeddings Inference has not the pooling of this model ({modes}): start it with `--pooling mean`, of which it makes no use, \
             because the graph gives the vectors of texts"
        );
        return Ok((written, Some(warning)));
    }
    let mut pooling = object(folder, POOLING)?.unwrap_or_default();
    pooling.extend(POOLINGS.iter().map(|known| (known.1.to_owned(), json!(Some(known) == own))));
    written.push(save(folder, POOLING, pooling)?);
    Ok((written, None))
}

/// The pooling of the server that a model with these modes has; none where the server lacks it.
fn known_pooling(modes: &[&str]) -> Option<&'static (&'static str, &'static str)> {
    POOLINGS.iter().find(|(mode, _)| modes == [*mode])
}

/// Whether the server starts with an artifact only where its command names a pooling, because it lacks that of the model.
///
/// # Errors
/// When the pooling of the artifact cannot be read.
pub(crate) fn lacks_pooling(artifact: &Artifact) -> Result<bool> {
    if artifact.manifest.task != Some(Task::SentenceSimilarity) {
        return Ok(false);
    }
    Ok(known_pooling(&pooling_modes(&artifact.folder)?.unwrap_or_default()).is_none())
}

/// The configuration of a model with all keys that the server needs.
fn config(manifest: &Manifest, mut config: Map<String, Value>) -> Result<Map<String, Value>> {
    let longest = manifest.max_sequence_length;
    for (key, taken, others) in KEYS {
        if std::iter::once(key).chain(*taken).any(|key| config.get(*key).is_some_and(|value| !value.is_null())) {
            continue;
        }
        let found = others.iter().find_map(|other| config.get(*other)).cloned();
        let found = found.or_else(|| longest.filter(|_| *key == "max_position_embeddings").map(Value::from));
        let found = found.with_context(|| {
            format!("--package text-embeddings-inference: the server does not start without `{key}` in {CONFIG}; add it there")
        })?;
        config.insert((*key).to_owned(), found);
    }
    let classes = config["architectures"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let is_classifier = classes.clone().any(|class| class.ends_with(CLASSIFIER));
    let wanted = manifest.task == Some(Task::TextClassification);
    ensure!(
        is_classifier == wanted,
        "--package text-embeddings-inference: the server takes models whose class ends with {CLASSIFIER} for classifiers, and \
         `architectures` of {CONFIG} is {}, of a model for {}; name the class there that the model is for, or another --task",
        config["architectures"],
        manifest.task.map_or("what is not known", Task::name)
    );
    Ok(config)
}

/// A JSON object of an artifact; absent where there is no such file.
fn object(folder: &Path, name: &str) -> Result<Option<Map<String, Value>>> {
    let path = folder.join(name);
    let Some(text) = planish_files::read_if_there(&path, &Kind::SETTINGS)? else { return Ok(None) };
    Ok(Some(serde_json::from_str(&text).with_context(|| format!("{} is not a JSON object", path.display()))?))
}

/// Writes an object into an artifact, and returns the name of its file.
fn save(folder: &Path, name: &str, object: Map<String, Value>) -> Result<String> {
    create_folders_within(folder, Path::new(name).parent().unwrap_or(Path::new("")))?;
    write_within(&folder.join(name), format!("{:#}\n", Value::Object(object)).as_bytes())?;
    Ok(name.to_owned())
}
