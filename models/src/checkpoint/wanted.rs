//! Which files of a checkpoint elsewhere are needed, by the names of its files and what of them is here already.

use std::collections::BTreeSet;
use std::path::Path;

use planish_files::Kind;
use serde_json::Value;

use super::companions::{is_companion, named as companion_names};
use super::refusals::{ADAPTER, CONVERT, OTHER_FORMATS};
use super::{CONFIG, Checkpoint, INDEX, INDEX_SUFFIX, SINGLE, files, gguf, is_plain_name};
use crate::{CARD, ModelError, sentence};

/// The weights of an adapter.
const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";

const GRAPH: &str = ".onnx";

/// How many files an error names.
const MOST_NAMED: usize = 12;

/// The files of a checkpoint that a model is made from, of those in a repository or a folder elsewhere, the small ones first:
/// weights as safetensors, and what belongs beside them. Files that name others count as soon as they are in `here`, where files
/// are put by the same names: so ask again after the result is there, until it does not change.
///
/// # Errors
/// When there are no weights that are read, and when a file in `here` is malformed.
pub fn wanted(all: &[String], here: &Path) -> Result<Vec<String>, ModelError> {
    let root = folder_files(all, "");
    let mut found: Vec<String> = root.iter().filter(|name| is_companion(name)).map(|name| (*name).to_owned()).collect();
    if root.contains(ADAPTER) && !root.contains(CONFIG) {
        found.extend([ADAPTER, ADAPTER_WEIGHTS].map(str::to_owned));
        return Ok(found);
    }
    found.extend(card(all));
    // Before this, nobody knows where the model is.
    let listed = root.contains(sentence::MODULES);
    if listed && !here.join(sentence::MODULES).exists() {
        return Ok(found);
    }
    let entries = sentence::module_entries(here)?;
    let own = entries.first().map(|entry| entry.path.as_str()).filter(|path| !path.is_empty());
    // The model has a folder of its own if its configuration or its weights are there.
    let own = own
        .filter(|path| folder_files(all, path).iter().any(|name| *name == CONFIG || *name == SINGLE || *name == INDEX));
    for path in entries.iter().skip(1).map(|entry| entry.path.as_str()).chain(own).filter(|path| !path.is_empty()) {
        let files = folder_files(all, path);
        found.extend(files.iter().filter(|name| is_companion(name)).map(|name| format!("{path}/{name}")));
        if files.contains(SINGLE) && Some(path) != own {
            found.push(format!("{path}/{SINGLE}"));
        }
    }
    found.extend(sentence::heads_among(&root).into_iter().flatten());
    found.extend(weights(all, own.unwrap_or_default(), here)?);
    Ok(found)
}

/// The files that belong to one file of a repository or a folder elsewhere: the parts of a GGUF file, the weights of an ONNX
/// graph, the configuration beside weights.
///
/// # Errors
/// When there is no such file, and when a file in `here` is malformed.
pub fn wanted_with(file: &str, all: &[String], here: &Path) -> Result<Vec<String>, ModelError> {
    if !all.iter().any(|name| name == file) {
        let message = format!("there is no file {file}; there are {}", named(all.iter().map(String::as_str)));
        return Err(ModelError::File { path: here.to_owned(), message });
    }
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    let at = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
    let beside = folder_files(all, folder);
    if Checkpoint::is_gguf(Path::new(name)) {
        let stem = |name: &str| Path::new(name).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let parts = |name: &str| {
            stem(name).and_then(|stem| gguf::split::part(&stem).map(|(base, _, count)| (base.to_owned(), count)))
        };
        let of_model: Vec<String> = match parts(name) {
            Some(own) => {
                beside.iter().filter(|other| parts(other).as_ref() == Some(&own)).map(|name| at(name)).collect()
            }
            None => vec![file.to_owned()],
        };
        return Ok(card(all).into_iter().chain(of_model).collect());
    }
    let mut found: Vec<String> = beside.iter().filter(|name| is_companion(name)).map(|name| at(name)).collect();
    found.extend(card(all));
    if name.to_ascii_lowercase().ends_with(GRAPH) {
        let is_data = |other: &&&str| other.strip_prefix(name).is_some_and(|rest| rest.contains("data"));
        found.extend(beside.iter().filter(is_data).map(|name| at(name)));
    }
    found.push(file.to_owned());
    if name.ends_with(INDEX_SUFFIX) {
        found.extend(shards(here, file)?.into_iter().map(|name| at(&name)));
    }
    Ok(found)
}

/// The model card, where there is one.
fn card(all: &[String]) -> Option<String> {
    all.iter().find(|name| *name == CARD).cloned()
}

/// The files that [`wanted`] may ask for, or [`wanted_with`] beside a file, by their names and by what is in `here`: a server that lists
/// no files is asked for each.
///
/// # Errors
/// When a file in `here` is malformed.
pub fn candidates(file: Option<&str>, here: Option<&Path>) -> Result<Vec<String>, ModelError> {
    if let Some(file) = file {
        return Ok(candidates_with(file));
    }
    let entries = here.map(sentence::module_entries).transpose()?.unwrap_or_default();
    let folders = entries.iter().map(|entry| entry.path.as_str()).filter(|path| !path.is_empty());
    let of_folder = |folder: &str| {
        companion_names().chain([SINGLE, INDEX]).map(|name| format!("{folder}/{name}")).collect::<Vec<String>>()
    };
    let root = companion_names().chain([SINGLE, INDEX, ADAPTER, ADAPTER_WEIGHTS, CARD]).map(str::to_owned);
    Ok(root.chain(sentence::head_files().into_iter().flatten()).chain(folders.flat_map(of_folder)).collect())
}

fn candidates_with(file: &str) -> Vec<String> {
    let (folder, name) = file.rsplit_once('/').map_or(("", file), |(folder, name)| (folder, name));
    let names: Vec<String> = if Checkpoint::is_gguf(Path::new(name)) {
        let stem = name.get(..name.len() - gguf::ENDING.len()).unwrap_or_default();
        match gguf::split::part(stem) {
            Some((base, _, count)) => {
                (1..=count).map(|part| format!("{base}-{part:05}-of-{count:05}{}", gguf::ENDING)).collect()
            }
            None => vec![name.to_owned()],
        }
    } else {
        let data = name.to_ascii_lowercase().ends_with(GRAPH).then(|| [format!("{name}_data"), format!("{name}.data")]);
        let own = companion_names().map(str::to_owned).chain(std::iter::once(name.to_owned()));
        own.chain(data.into_iter().flatten()).collect()
    };
    names.into_iter().map(|name| if folder.is_empty() { name } else { format!("{folder}/{name}") }).collect()
}

/// The weights of the model in a folder, or what to do where there are none.
fn weights(all: &[String], folder: &str, here: &Path) -> Result<Vec<String>, ModelError> {
    let at = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
    let files = folder_files(all, folder);
    if files.contains(SINGLE) {
        return Ok(vec![at(SINGLE)]);
    }
    if files.contains(INDEX) {
        let shards = shards(here, &at(INDEX))?.into_iter().map(|name| at(&name));
        return Ok(std::iter::once(at(INDEX)).chain(shards).collect());
    }
    let ending = |endings: &[&str]| {
        all.iter().map(String::as_str).filter(|name| endings.iter().any(|e| name.ends_with(e))).collect()
    };
    let (models, graphs, others): (Vec<&str>, Vec<&str>, Vec<&str>) =
        (ending(&[".safetensors", gguf::ENDING]), ending(&[GRAPH]), ending(OTHER_FORMATS));
    let message = match (models.is_empty(), graphs.is_empty(), others.is_empty()) {
        (false, ..) => format!("add one of its files to the name: {}", named(models.into_iter())),
        (true, false, _) => format!("add one of its graphs to the name: {}", named(graphs.into_iter())),
        (true, true, false) => format!("it has {}: {CONVERT}", named(others.into_iter())),
        (true, true, true) => "it has no weights".to_owned(),
    };
    let message = format!("there is no {SINGLE} and no {INDEX}; {message}");
    Err(ModelError::File { path: here.to_owned(), message })
}

/// The shards that an index names; none where it is not there yet.
fn shards(here: &Path, index: &str) -> Result<BTreeSet<String>, ModelError> {
    let path = here.join(index);
    if !path.exists() {
        return Ok(BTreeSet::new());
    }
    let object = files::read_object(&path, &Kind::INDEX)?;
    let names = object.get("weight_map").and_then(Value::as_object).into_iter().flat_map(|map| map.values());
    Ok(names.filter_map(Value::as_str).filter(|name| is_plain_name(name)).map(str::to_owned).collect())
}

/// The names of the files in a folder, without those of its folders.
fn folder_files<'a>(all: &'a [String], folder: &str) -> BTreeSet<&'a str> {
    let below = |name: &'a String| match folder {
        "" => Some(name.as_str()),
        folder => name.strip_prefix(folder)?.strip_prefix('/'),
    };
    all.iter().filter_map(below).filter(|name| !name.contains('/')).collect()
}

fn named<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(MOST_NAMED);
    let text = names.take(MOST_NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{text} and {more} more") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn safetensors_come_before_other_forms_and_variants() {
        let names = all(&[
            "README.md",
            "config.json",
            "model.fp16.safetensors",
            "model.safetensors",
            "onnx/model.onnx",
            "pytorch_model.bin",
            "tf_model.h5",
            "tokenizer.json",
            "original/config.json",
            "vocab.txt",
        ]);
        let here = tempfile::tempdir().unwrap();
        let found = wanted(&names, here.path()).unwrap();
        assert_eq!(found, ["config.json", "tokenizer.json", "vocab.txt", "README.md", "model.safetensors"]);
    }

    #[test]
    fn shards_are_those_of_the_index() {
        let index = "model.safetensors.index.json";
        let names =
            all(&["config.json", index, "model-1-of-2.safetensors", "model-2-of-2.safetensors", "model-x.safetensors"]);
        let here = tempfile::tempdir().unwrap();
        assert_eq!(wanted(&names, here.path()).unwrap(), ["config.json", index]);
        let map = r#"{"weight_map": {"a": "model-2-of-2.safetensors", "b": "model-1-of-2.safetensors", "c": "../x"}}"#;
        std::fs::write(here.path().join(index), map).unwrap();
        let found = wanted(&names, here.path()).unwrap();
        assert_eq!(found, ["config.json", index, "model-1-of-2.safetensors", "model-2-of-2.safetensors"]);
    }

    #[test]
    fn modules_have_files_of_their_own() {
        let names = all(&[
            "modules.json",
            "config_sentence_transformers.json",
            "0_Transformer/config.json",
            "0_Transformer/model.safetensors",
            "0_Transformer/tokenizer.json",
            "1_Pooling/config.json",
            "2_Dense/config.json",
            "2_Dense/model.safetensors",
            "2_Dense/pytorch_model.bin",
            "3_Other/config.json",
        ]);
        let here = tempfile::tempdir().unwrap();
        let mut first = wanted(&names, here.path()).unwrap();
        first.sort();
        assert_eq!(first, ["config_sentence_transformers.json", "modules.json"]);
        let class = |at: usize, path: &str, class: &str| serde_json::json!({"idx": at, "name": at.to_string(), "path": path, "type": format!("sentence_transformers.models.{class}")});
        let entries =
            [class(0, "0_Transformer", "Transformer"), class(1, "1_Pooling", "Pooling"), class(2, "2_Dense", "Dense")];
        std::fs::write(here.path().join("modules.json"), serde_json::Value::from(entries.to_vec()).to_string())
            .unwrap();
        let mut found = wanted(&names, here.path()).unwrap();
        let candidates = candidates(None, Some(here.path())).unwrap();
        assert!(found.iter().all(|name| candidates.contains(name)), "{candidates:?}");
        found.sort();
        let expected = [
            "0_Transformer/config.json",
            "0_Transformer/model.safetensors",
            "0_Transformer/tokenizer.json",
            "1_Pooling/config.json",
            "2_Dense/config.json",
            "2_Dense/model.safetensors",
            "config_sentence_transformers.json",
            "modules.json",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn one_file_brings_what_belongs_to_it() {
        let names = all(&[
            "README.md",
            "m-q8-00001-of-00002.gguf",
            "m-q8-00002-of-00002.gguf",
            "m-q4-00001-of-00002.gguf",
            "onnx/model.onnx",
            "onnx/model.onnx_data",
            "onnx/model.onnx_data_1",
            "onnx/model_int8.onnx",
            "onnx/config.json",
        ]);
        let here = tempfile::tempdir().unwrap();
        let of = |file: &str| wanted_with(file, &names, here.path());
        assert_eq!(
            of("m-q8-00001-of-00002.gguf").unwrap(),
            ["README.md", "m-q8-00001-of-00002.gguf", "m-q8-00002-of-00002.gguf"]
        );
        let graph =
            ["onnx/config.json", "README.md", "onnx/model.onnx_data", "onnx/model.onnx_data_1", "onnx/model.onnx"];
        assert_eq!(of("onnx/model.onnx").unwrap(), graph);
        let parts = ["m-q8-00001-of-00002.gguf", "m-q8-00002-of-00002.gguf"];
        assert_eq!(candidates(Some(parts[1]), None).unwrap(), parts);
        let beside = candidates(Some("onnx/model.onnx"), None).unwrap();
        let asked = ["onnx/config.json", "onnx/model.onnx", "onnx/model.onnx_data"];
        assert!(asked.iter().all(|name| beside.iter().any(|other| other == name)), "{beside:?}");
        assert!(
            of("none.gguf")
                .unwrap_err()
                .to_string()
                .contains("there is no file none.gguf; there are README.md, m-q8-00001-of")
        );
    }

    #[test]
    fn what_has_no_weights_says_what_to_name() {
        let here = tempfile::tempdir().unwrap();
        let why = |names: &[&str]| wanted(&all(names), here.path()).unwrap_err().to_string();
        assert!(
            why(&["a-Q8_0.gguf", "b-Q4_0.gguf"]).contains("add one of its files to the name: a-Q8_0.gguf, b-Q4_0.gguf")
        );
        assert!(
            why(&["config.json", "onnx/model.onnx"]).contains("add one of its graphs to the name: onnx/model.onnx")
        );
        assert!(why(&["config.json", "pytorch_model.bin"]).contains("it has pytorch_model.bin: only safetensors"));
        let adapter =
            wanted(&all(&["adapter_config.json", "adapter_model.safetensors", "README.md"]), here.path()).unwrap();
        assert_eq!(adapter, ["adapter_config.json", "adapter_model.safetensors"]);
    }
}
