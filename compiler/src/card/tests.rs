use std::fs;
use std::path::{Path, PathBuf};

use planish_artifact::backend::LOCAL;
use planish_artifact::package::RuntimePackage;

use super::*;
use crate::compile::{CompileOptions, compile};
use crate::request::Silent;
use crate::source::SourceModel;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/goldens").join(name)
}

/// An artifact of a golden, in a folder of its own.
fn compiled(model: &Path, to: &Path, change: impl FnOnce(CompileOptions) -> CompileOptions) -> Artifact {
    let model = SourceModel::open(model).unwrap();
    let options = CompileOptions { card: true, ..CompileOptions::new(LOCAL, model.default_opset()) };
    let compiled = compile(&model, to, &change(options), &Silent).unwrap();
    Artifact::open(&compiled.publish().unwrap().folder).unwrap()
}

fn card(artifact: &Artifact) -> String {
    fs::read_to_string(artifact.folder.join(CARD)).unwrap()
}

/// A copy of a golden with more files.
fn copied(name: &str, to: &Path, files: &[(&str, &str)]) -> PathBuf {
    fs::create_dir_all(to).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden(name).join(file), to.join(file)).unwrap();
    }
    files.iter().for_each(|(name, text)| fs::write(to.join(name), text).unwrap());
    to.to_owned()
}

#[test]
fn the_front_is_what_the_source_and_the_artifact_say() {
    let folder = tempfile::tempdir().unwrap();
    let of_source = "---\nlicense: mit\nlicense_link: LICENSE\nlanguage: no\nbase_model: a/b\npipeline_tag: text-ranking\ntags: [x]\n---\n# Other\n";
    let source = copied("bert-classify", &folder.path().join("model"), &[("README.md", of_source)]);
    let artifact = compiled(&source, &folder.path().join("out"), |options| options);
    let text = card(&artifact);
    let front = "---\nlicense: mit\nlanguage: \"no\"\nbase_model: a/b\nlibrary_name: onnxruntime\npipeline_tag: text-ranking\ntags:\n- onnx\n- planish\n- bert\n- f32\n---\n\n# model\n";
    assert!(text.starts_with(front), "{text}");
    assert!(!text.contains("Other"), "{text}");
    // The task that is asked for is another head than that of the source's card, and an artifact is a source with a card.
    let other = compiled(&artifact.folder, &folder.path().join("other"), |options| CompileOptions {
        task: artifact.manifest.task,
        ..options
    });
    assert_eq!(other.manifest.source.card.as_ref().unwrap().license.as_deref(), Some("mit"));
    assert!(card(&other).contains("\npipeline_tag: text-classification\n"), "{}", card(&other));
}

#[test]
fn a_source_of_the_hub_is_the_base() {
    let folder = tempfile::tempdir().unwrap();
    let source = copied(
        "bert",
        &folder.path().join("model"),
        &[("README.md", "---\nlicense: other\nlicense_link: LICENSE\n---\n")],
    );
    let mut artifact = compiled(&source, &folder.path().join("out"), |options| options);
    artifact.manifest.source.hub = Some(HubSource { name: "org/model".to_owned(), commit: "0a".to_owned() });
    let text = text(&artifact).unwrap();
    for line in [
        "\nlicense_link: \"https://huggingface.co/org/model/blob/0a/LICENSE\"\n",
        "\nbase_model: org/model\n",
        "\n[org/model](https://huggingface.co/org/model), compiled by planish",
        "\n| Commit of the source | `0a` |\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("base_model_relation"), "{text}");
    // Both are in links: a name or a commit of another form is not of the hub.
    for (name, commit) in [("a)[b](https://c", "0a"), ("org/model", "main](x"), ("", "0a"), ("org/model", "")] {
        artifact.manifest.source.hub = Some(HubSource { name: name.to_owned(), commit: commit.to_owned() });
        assert!(hub(&artifact.manifest.source).is_none(), "{name} {commit}");
    }
}

#[test]
fn code_is_for_what_fits() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, package: RuntimePackage| {
        let to = folder.path().join(format!("{name}-{package:?}"));
        card(&compiled(&golden(name), &to, |options| CompileOptions { package, ..options }))
    };
    let optimum = of("bert", RuntimePackage::Optimum);
    assert!(optimum.contains("ORTModelForFeatureExtraction.from_pretrained(\".\")"), "{optimum}");
    assert!(optimum.contains("\"input_ids\": np.zeros((1, 8), np.int64),"), "{optimum}");
    assert!(!optimum.contains("sentence_transformers"), "{optimum}");
    // Optimum makes a cache with as many heads of keys as of queries for this type.
    assert!(!of("phi3", RuntimePackage::Optimum).contains("from optimum"));
    assert!(of("llama", RuntimePackage::Optimum).contains("ORTModelForCausalLM"));
    let genai = of("gpt2", RuntimePackage::Genai);
    assert!(
        genai.contains("onnxruntime_genai.Model(\".\")") && genai.contains("library_name: onnxruntime-genai"),
        "{genai}"
    );
    assert!(of("bert", RuntimePackage::Triton).contains("`--model-repository`"));
}

#[test]
fn a_card_that_somebody_changed_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mut artifact = compiled(&golden("bert"), &folder.path().join("out"), |options| options);
    assert!(is_as_written(&artifact));
    fs::write(artifact.folder.join(CARD), "mine").unwrap();
    assert!(!is_as_written(&artifact));
    write(&mut artifact).unwrap();
    assert_eq!(card(&artifact), "mine");
    artifact.manifest.companions.retain(|name| name != CARD);
    fs::remove_file(artifact.folder.join(CARD)).unwrap();
    write(&mut artifact).unwrap();
    assert!(!artifact.folder.join(CARD).exists() && !is_as_written(&artifact));
}

#[test]
fn names_from_elsewhere_are_texts() {
    assert_eq!(plain("a|b<c>`*_\n"), "a\\|b\\<c\\>\\`\\*\\_\u{fffd}");
    assert_eq!((code("a|b").as_str(), code("a_b").as_str()), ("a\\|b", "`a_b`"));
    assert_eq!(values::quoted("a\"b\\\n"), "\"a\\\"b\\\\\\n\"");
    assert_eq!(markdown("one\n\n| a |\n|---|\n| 1 |\ntwo"), "- one\n\n| a |\n|---|\n| 1 |\n\n- two");
}
