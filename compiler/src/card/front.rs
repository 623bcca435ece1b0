//! The YAML in front of a card, which the hub reads.

use planish_artifact::manifest::Manifest;
use planish_artifact::package::RuntimePackage;
use planish_ir::{InputRole, OutputRole};
use planish_models::{ModelCard, Task};
use planish_runtimes::Format;

use super::hub;
use planish_artifact::backend::{BACKENDS, find};

/// Words that YAML 1.1 reads as something else than a text.
const WORDS: [&str; 10] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"];

/// What is said of an artifact.
pub(super) fn text(manifest: &Manifest) -> String {
    let empty = ModelCard::default();
    let card = manifest.source.card.as_ref().unwrap_or(&empty);
    let hub = hub(&manifest.source);
    let variants: Vec<Manifest> = manifest.variants.iter().map(|variant| variant.alone(manifest)).collect();
    let forms = || std::iter::once(manifest).chain(&variants);
    let mut text = String::new();
    let mut list = |key: &str, values: &[String]| match values {
        [] => {}
        [one] if key != "tags" => text += &format!("{key}: {}\n", scalar(one)),
        several => {
            text += &format!("{key}:\n");
            several.iter().for_each(|value| text += &format!("- {}\n", scalar(value)));
        }
    };
    let one = |value: Option<String>| value.into_iter().collect::<Vec<String>>();
    list("license", &one(card.license.clone()));
    list("license_name", &one(card.license_name.clone()));
    let link = card
        .license_link
        .as_deref()
        .and_then(|link| address(link, hub.map(|hub| (hub.name.as_str(), hub.commit.as_str()))));
    list("license_link", &one(link));
    list("language", &card.language);
    match hub {
        Some(hub) => {
            list("base_model", std::slice::from_ref(&hub.name));
            list("base_model_relation", &one(forms().any(Manifest::is_quantized).then(|| "quantized".to_owned())));
        }
        None => {
            list("base_model", &card.base_model);
            list("base_model_relation", &one(card.base_model_relation.clone().filter(|_| !card.base_model.is_empty())));
        }
    }
    list("library_name", &one(Some(library(manifest).to_owned())));
    let tag =
        card.pipeline_tag.clone().or_else(|| manifest.task.and_then(|task| tag(task, manifest)).map(str::to_owned));
    list("pipeline_tag", &one(tag));
    let onnx = (format(manifest) == Format::ONNX).then_some("onnx");
    let own = ["planish", &manifest.architecture].map(str::to_owned);
    let mut tags: Vec<String> = Vec::new();
    for tag in onnx.map(str::to_owned).into_iter().chain(own).chain(forms().map(Manifest::precision_name)) {
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    list("tags", &tags);
    text
}

/// The format of the files of a target.
fn format(manifest: &Manifest) -> Format {
    find(&manifest.target, BACKENDS).map_or(Format::ONNX, |backend| match manifest.has_engines() {
        true => Format::ENGINE,
        false => backend.emitter.format(),
    })
}

/// The library that loads the artifact, by the hub's name where the hub has one.
fn library(manifest: &Manifest) -> &'static str {
    let format = format(manifest);
    match manifest.runtime_package {
        _ if format == Format::GRAPH => "planish",
        _ if format == Format::ENGINE || manifest.tensor_parallel.is_some() => "tensorrt",
        RuntimePackage::Genai => "onnxruntime-genai",
        RuntimePackage::TransformersJs => "transformers.js",
        RuntimePackage::SentenceTransformers => "sentence-transformers",
        RuntimePackage::Optimum | RuntimePackage::TextEmbeddingsInference
            if manifest.task == Some(Task::SentenceSimilarity) =>
        {
            "sentence-transformers"
        }
        RuntimePackage::Optimum | RuntimePackage::TextEmbeddingsInference | RuntimePackage::Triton => "onnxruntime",
    }
}

/// The hub's name of a task; none where it has none.
fn tag(task: Task, manifest: &Manifest) -> Option<&'static str> {
    let inputs = || manifest.parts.iter().flat_map(|part| &part.inputs).map(|input| input.role);
    let reads = |role: InputRole| inputs().any(|own| own == role);
    let scores_pairs = || {
        let outputs = manifest.parts.iter().flat_map(|part| &part.outputs);
        let mut logits = outputs.filter(|output| output.role == OutputRole::Logits);
        logits.any(|output| output.value.dims().last().and_then(planish_ir::Dim::as_constant) == Some(1))
    };
    match task {
        Task::FeatureExtraction
            if !inputs().any(InputRole::is_token_ids) && (reads(InputRole::Pixels) || reads(InputRole::Image)) =>
        {
            Some("image-feature-extraction")
        }
        Task::TextClassification if scores_pairs() => Some("text-ranking"),
        Task::SemanticSegmentation => Some("image-segmentation"),
        Task::AudioFrameClassification | Task::AudioXVector => Some("audio-classification"),
        Task::ZeroShotAudioClassification => None,
        other => Some(other.name()),
    }
}

/// The address of a license: a file beside the card of a model of the hub is there.
fn address(link: &str, hub: Option<(&str, &str)>) -> Option<String> {
    match hub {
        _ if link.contains("://") => Some(link.to_owned()),
        Some((name, commit)) => Some(format!("https://huggingface.co/{name}/blob/{commit}/{link}")),
        // The file is not in the artifact.
        None => None,
    }
}

/// A text as YAML.
fn scalar(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./+".contains(c);
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic());
    match starts && text.chars().all(is_plain) && !WORDS.contains(&text.to_ascii_lowercase().as_str()) {
        true => text.to_owned(),
        // A string of JSON is one of YAML.
        false => serde_json::Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_texts() {
        for text in ["en", "apache-2.0", "a/b-c.d", "https"] {
            assert_eq!(scalar(text), text);
        }
        for (text, written) in [
            ("no", "\"no\""),
            ("1.0", "\"1.0\""),
            ("a: b", "\"a: b\""),
            ("- a", "\"- a\""),
            ("a\"b", "\"a\\\"b\""),
            ("", "\"\""),
        ] {
            assert_eq!(scalar(text), written);
        }
    }

    #[test]
    fn a_license_is_where_it_was() {
        let hub = Some(("org/model", "c0"));
        assert_eq!(address("https://a/b", hub).as_deref(), Some("https://a/b"));
        assert_eq!(address("LICENSE", hub).as_deref(), Some("https://huggingface.co/org/model/blob/c0/LICENSE"));
        assert_eq!(address("LICENSE", None), None);
    }
}
