//! What is no checkpoint, and what to do with it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use super::{CONFIG, Checkpoint, INDEX, SINGLE, gguf};
use crate::ModelError;

/// Endings of weight files in formats that are not read.
pub(super) const OTHER_FORMATS: &[&str] = &[".bin", ".pt", ".pth", ".h5", ".msgpack", ".ckpt"];

/// What to do with them.
pub(super) const CONVERT: &str = "only safetensors and GGUF are read; convert once where transformers is installed: \
                       AutoModel.from_pretrained(\"...\").save_pretrained(\"DIR\", safe_serialization=True), \
                       with the class that config.json names instead of AutoModel";

/// The files that say what a folder is which is no checkpoint.
pub(super) const ADAPTER: &str = "adapter_config.json";
const PIPELINE: &str = "model_index.json";

/// The error for a path where nothing is: how a model of the hub comes here.
pub(super) fn not_there(path: &Path, source: io::Error) -> ModelError {
    let text = path.to_string_lossy();
    if let Some((_, place)) = text.split_once("://") {
        // The host, the owner and the name.
        let parts: Vec<&str> = place.split('/').filter(|part| !part.is_empty()).collect();
        let message = match parts.as_slice() {
            ["huggingface.co" | "hf.co" | "www.huggingface.co", owner, name, ..] if *owner != "datasets" => {
                format!("a model of the Hugging Face hub is named OWNER/NAME: {owner}/{name}")
            }
            _ => "planish does not download from there; get the model first, and name its folder or file".to_owned(),
        };
        return ModelError::File { path: path.to_owned(), message };
    }
    if source.kind() == ErrorKind::NotFound && may_be_hub_name(path) {
        let message = "there is no such file or folder here; a model of the Hugging Face hub is named OWNER/NAME, such as \
                       openai-community/gpt2";
        return ModelError::File { path: path.to_owned(), message: message.to_owned() };
    }
    ModelError::Read { path: path.to_owned(), source }
}

/// The message for a file that is no weight file.
pub(super) fn other_file(name: &str) -> String {
    let is_other = OTHER_FORMATS.iter().any(|ending| name.ends_with(ending));
    let advice = match is_other {
        true => CONVERT,
        false => {
            "expected a checkpoint folder, a .safetensors file, a .safetensors.index.json, a .gguf file or an .onnx file"
        }
    };
    advice.to_owned()
}

/// The message for a folder of something that is no model by itself, by the names of its files.
fn other_folder(names: &[String]) -> Option<String> {
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if has(ADAPTER) {
        return Some(format!(
            "this is an adapter of the peft library, such as LoRA ({ADAPTER}), and not a model; compile the model that it was \
             trained for with --adapter and this folder"
        ));
    }
    has(PIPELINE).then(|| {
        format!(
            "this is a pipeline of the diffusers library ({PIPELINE}) of several models in folders of their own, which planish does \
             not compile from checkpoints; export it with Optimum, `optimum-cli export onnx --model ... DIR`, and compile each \
             .onnx file of DIR, such as DIR/unet/model.onnx"
        )
    })
}

/// Whether a path is written as the names of models on the Hugging Face hub are: `NAME` or
/// `OWNER/NAME`.
fn may_be_hub_name(path: &Path) -> bool {
    let name = path.to_string_lossy();
    let endings = [".safetensors", ".json", ".onnx", gguf::ENDING];
    let file = endings.iter().chain(OTHER_FORMATS).any(|ending| name.ends_with(ending));
    !file && path.components().count() <= 2 && path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// The message for a folder without a configuration. If the user gave the folder, it names the ONNX files there.
pub(super) fn no_config(folder: &Path, is_given: bool) -> String {
    let mut graphs = if is_given { file_names(folder).unwrap_or_default() } else { Vec::new() };
    if let Some(other) = other_folder(&graphs) {
        return other;
    }
    if let Some(file) = graphs.iter().find(|name| Checkpoint::is_gguf(Path::new(name))) {
        return format!("there is no {CONFIG}; to compile a GGUF file, pass the file: {file}");
    }
    let weights = graphs.iter().find(|name| OTHER_FORMATS.iter().any(|ending| name.ends_with(ending))).cloned();
    graphs.retain(|name| Path::new(name).extension().is_some_and(|ending| ending.eq_ignore_ascii_case("onnx")));
    match &graphs[..] {
        [] if weights.is_some() => format!("there is no {CONFIG}, but {}: {CONVERT}", weights.unwrap_or_default()),
        [] => format!("there is no {CONFIG}; a checkpoint folder has it beside the weights"),
        [graph] => format!("there is no {CONFIG}; to compile the ONNX graph, pass the file: {graph}"),
        [_, ..] => {
            let named = graphs.len().min(MOST_NAMED);
            let more = graphs.len() - named;
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let graphs = graphs[..named].join(", ");
            format!("there is no {CONFIG}; to compile an ONNX graph, pass one of the .onnx files: {graphs}{more}")
        }
    }
}

/// How many files an error names.
const MOST_NAMED: usize = 4;

/// The names of the files and folders in a folder, sorted.
fn file_names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?;
    let mut names: Vec<String> =
        entries.filter_map(|e| Some(e.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort();
    Ok(names)
}

/// The weight file of a folder, or its index of shards.
pub(super) fn find_weights(folder: &Path) -> Result<PathBuf, ModelError> {
    for name in [SINGLE, INDEX] {
        let path = folder.join(name);
        if path.exists() {
            return Ok(path);
        }
    }
    let names = file_names(folder).map_err(|source| ModelError::Read { path: folder.to_owned(), source })?;
    if let Some(message) = other_folder(&names) {
        return Err(ModelError::File { path: folder.to_owned(), message });
    }
    let ending = |endings: &[&str]| {
        let found: Vec<&str> =
            names.iter().map(String::as_str).filter(|n| endings.iter().any(|e| n.ends_with(e))).collect();
        (!found.is_empty()).then(|| found.join(", "))
    };
    let message = if let Some(found) = ending(&[gguf::ENDING]) {
        format!("there is no {SINGLE} and no {INDEX}; a GGUF file is named itself: {found}")
    } else if let Some(found) = ending(&[".safetensors"]) {
        format!("there is no {SINGLE} and no {INDEX}; give one of these files instead of the folder: {found}")
    } else if let Some(found) = ending(OTHER_FORMATS) {
        format!("there is no {SINGLE}, but {found}: {CONVERT}")
    } else if let Some(found) = ending(&[".onnx"]) {
        format!("there are no weights: neither {SINGLE} nor {INDEX}; an ONNX graph is named by its file: {found}")
    } else {
        format!("there are no weights: neither {SINGLE} nor {INDEX}")
    };
    Err(ModelError::File { path: folder.to_owned(), message })
}

/// What to do with a checkpoint of another architecture, one of those `known` perhaps in other words.
pub(crate) fn other_architecture(name: &str, known: &[&str]) -> String {
    /// How alike two names are at least of which one may stand for the other.
    const ALIKE: f64 = 0.85;
    let likeness = |other: &&&str| strsim::jaro_winkler(name, other);
    let nearest =
        known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b))).filter(|near| likeness(near) >= ALIKE);
    let nearest = nearest.map_or_else(String::new, |near| format!("the nearest name is {near}; "));
    format!(
        "{nearest}export the model with PyTorch (torch.onnx.export) or with Optimum (optimum-cli export onnx --model ... DIR), and \
         compile the graph: `planish compile DIR/model.onnx`"
    )
}
