//! `transformers.js_config` of config.json: which files have weights beside them, and which variant is loaded where a page names
//! none. The rest of config.json keeps its bytes.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use planish_artifact::files::write_within;
use planish_artifact::layout::base_name;
use planish_artifact::manifest::Manifest;
use planish_artifact::variants::VariantName;
use planish_files::Kind;
use serde_json::{Deserializer, Map, Value};

/// The file, and its member.
const FILE: &str = "config.json";
const KEY: &str = "transformers.js_config";

/// What follows the name of a graph in the name of the file of its weights.
const DATA: &str = "_data";

/// The variants that the library loads where nothing says one: the first in browsers, the second elsewhere.
const USUAL: [VariantName; 2] = [VariantName::Q8, VariantName::Fp32];

/// Makes config.json of an artifact say how its files are loaded; one without that file stays without.
///
/// # Errors
/// When it cannot be read or written.
pub(in crate::packages) fn write(folder: &Path, manifest: &Manifest) -> Result<()> {
    let path = folder.join(FILE);
    if !fs::exists(&path)? {
        return Ok(());
    }
    let text = planish_files::read_text(&path, &Kind::SETTINGS)?;
    let with = with(&text, manifest).with_context(|| format!("cannot add {KEY} to {}", path.display()))?;
    if with == text { Ok(()) } else { write_within(&path, with.as_bytes()) }
}

/// The text of config.json with what the manifest says.
fn with(text: &str, manifest: &Manifest) -> Result<String> {
    let config: Map<String, Value> = serde_json::from_str(text)?;
    let known = config.get(KEY).map(|known| known.as_object().cloned().unwrap_or_default());
    let Some(at) = text.find(&format!("\"{KEY}\"")).filter(|_| known.is_some()) else {
        return Ok(appended(text, said(Map::new(), manifest), config.is_empty()));
    };
    let after = text[at..].find(':').map_or(text.len(), |colon| at + colon + 1);
    let mut values = Deserializer::from_str(&text[after..]).into_iter::<Value>();
    values.next().context("it has no value")??;
    let (end, value) = (after + values.byte_offset(), said(known.unwrap_or_default(), manifest));
    Ok(format!("{} {}{}", &text[..after], indented(&value), &text[end..]))
}

/// The text with the member at its end.
fn appended(text: &str, value: Map<String, Value>, is_first: bool) -> String {
    let Some((before, after)) = text.rsplit_once('}').filter(|_| !value.is_empty()) else { return text.to_owned() };
    let comma = if is_first { "" } else { "," };
    format!("{}{comma}\n  \"{KEY}\": {}\n}}{after}", before.trim_end(), indented(&value))
}

/// A value as text, as a member of an object.
fn indented(value: &Map<String, Value>) -> String {
    format!("{:#}", Value::Object(value.clone())).replace('\n', "\n  ")
}

/// The member: what the source says, but for what its files do not have.
fn said(known: Map<String, Value>, manifest: &Manifest) -> Map<String, Value> {
    let mut said = corrected(known, manifest);
    if let Some(Value::Object(devices)) = said.get_mut("device_config") {
        for device in devices.values_mut().filter_map(Value::as_object_mut) {
            *device = corrected(std::mem::take(device), manifest);
        }
    }
    let own = manifest.variant.unwrap_or(VariantName::Fp32);
    if !said.contains_key("dtype") && !USUAL.iter().all(|usual| has(manifest, usual.name())) {
        said.insert("dtype".to_owned(), own.name().into());
    }
    let names = manifest.files.iter().chain(manifest.variants.iter().flat_map(|variant| &variant.files));
    let graphs = names.filter_map(|file| base_name(&file.name).strip_suffix(DATA));
    // A graph has one file of weights.
    let chunks: Map<String, Value> = graphs.map(|graph| (graph.to_owned(), 1.into())).collect();
    if !chunks.is_empty() {
        said.insert("use_external_data_format".to_owned(), chunks.into());
    }
    said
}

/// Without what names files that are not there.
fn corrected(mut known: Map<String, Value>, manifest: &Manifest) -> Map<String, Value> {
    known.shift_remove("use_external_data_format");
    let is_there = |dtype: &Value| dtype.as_str().is_some_and(|name| name == "auto" || has(manifest, name));
    let are_there = match known.get("dtype") {
        Some(Value::Object(by_file)) => by_file.values().all(is_there),
        Some(dtype) => is_there(dtype),
        None => true,
    };
    if !are_there {
        known.shift_remove("dtype");
    }
    known
}

/// Whether there is a variant of this name.
fn has(manifest: &Manifest, name: &str) -> bool {
    let own = manifest.variant.unwrap_or(VariantName::Fp32);
    std::iter::once(own).chain(manifest.variants.iter().map(|variant| variant.name)).any(|there| there.name() == name)
}

#[cfg(test)]
mod tests {
    use planish_artifact::manifest::File;

    use super::*;

    /// A manifest of one variant with files.
    fn manifest(variant: Option<&str>, files: &[&str]) -> Manifest {
        let files: Vec<Value> = files.iter().map(|name| serde_json::json!({"name": name, "bytes": 1})).collect();
        let text = serde_json::json!({
            "schema": 5, "producer": "planish", "source": {"name": "m", "files": []}, "architecture": "t5", "task": null,
            "target": "ort", "opset": 20, "precision": "f32", "fusion": true, "files": files, "companions": [], "parameters": 1,
            "pad_token_id": null, "parts": [], "variant": variant,
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn the_rest_of_the_file_keeps_its_bytes() {
        let text = "{\n  \"b\": 1e-05,\n  \"a\": [1, 2]\n}\n";
        let written = with(text, &manifest(None, &["onnx/model.onnx", "onnx/model.onnx_data"])).unwrap();
        let expected = "{\n  \"b\": 1e-05,\n  \"a\": [1, 2],\n  \"transformers.js_config\": {\n    \"dtype\": \"fp32\",\n    \
                        \"use_external_data_format\": {\n      \"model.onnx\": 1\n    }\n  }\n}\n";
        assert_eq!(written, expected);
        // Again, with another variant beside it that browsers take, and without weights beside graphs.
        let mut both = manifest(None, &["onnx/model.onnx"]);
        let q8 = manifest(Some("q8"), &["onnx/model_quantized.onnx"]);
        both.variants = vec![planish_artifact::variants::VariantManifest::of(VariantName::Q8, q8)];
        assert_eq!(with(text, &both).unwrap(), text);
    }

    #[test]
    fn what_the_source_says_of_other_files_goes() {
        let text = r#"{"transformers.js_config": {"kv": 1, "dtype": {"model": "q4"}, "use_external_data_format": true,
                       "device_config": {"webgpu": {"dtype": "q4f16", "x": 2}, "wasm": {"dtype": "q8"}}}, "last": 0}"#;
        let mut q8 = manifest(Some("q8"), &[]);
        q8.files = vec![File { name: "onnx/a_quantized.onnx_data".to_owned(), bytes: 1, blake3: None }];
        let written = with(text, &q8).unwrap();
        assert!(written.ends_with("}, \"last\": 0}"), "{written}");
        let config: Value = serde_json::from_str(&written).unwrap();
        let expected = serde_json::json!({
            "kv": 1, "dtype": "q8", "use_external_data_format": {"a_quantized.onnx": 1},
            "device_config": {"webgpu": {"x": 2}, "wasm": {"dtype": "q8"}},
        });
        assert_eq!(config[KEY], expected);
        assert_eq!(with("{}", &q8).unwrap().lines().count(), 8);
        assert!(with("[]", &q8).is_err());
    }
}
