//! What architectures declare of a configuration, against what they read.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::layers::builder::Builder;

/// The folders of the goldens.
fn goldens() -> Vec<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/goldens");
    #[allow(clippy::disallowed_methods, reason = "this is a test")]
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.join("config.json").is_file()).collect()
}

/// The golden of BERT as one of an architecture that has none.
fn stand_in(architecture: &Architecture) -> TempDir {
    let folder = planish_testing::scratch();
    let bert = goldens().into_iter().find(|path| path.ends_with("bert")).unwrap();
    #[allow(clippy::disallowed_methods, reason = "this is a test")]
    let read = |name: &str| std::fs::read(bert.join(name)).unwrap();
    let mut config: Value = serde_json::from_slice(&read("config.json")).unwrap();
    config["model_type"] = architecture.model_type.into();
    // Decoders have other numbers of these by default, which need not divide those of BERT; with latents there are as many.
    config["num_key_value_heads"] = config["num_attention_heads"].clone();
    // Gemma 3n has more of these by default than BERT has layers.
    config["num_kv_shared_layers"] = 0.into();
    // CLIP's texts end with this token.
    config["eos_token_id"] = 2.into();
    // ERNIE reads how many tasks there are where this is true.
    config["use_task_id"] = true.into();
    // Moonshine's encoder has others by default.
    config["encoder_num_attention_heads"] = config["num_attention_heads"].clone();
    // Swin has a list of these, one for each stage, and so has the tower of recordings of CLAP.
    let is_of_stages = |(older, newer): &(&str, &str)| (*older, *newer) == ("num_attention_heads", "num_heads");
    if architecture.older_keys.iter().any(is_of_stages) || architecture.model_type == "clap_audio_model" {
        config.as_object_mut().unwrap().remove("num_attention_heads");
    }
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), read("model.safetensors")).unwrap();
    folder
}

/// The keys that an architecture asks for with the configuration of a folder, by any task, if it has the keys of another. A
/// golden has the tensors of one task: the others fail, but not before they have read the configuration.
fn asked_of(architecture: &Architecture, path: &Path) -> Option<BTreeSet<&'static str>> {
    let checkpoint = Checkpoint::open(path).unwrap();
    // Kin without a golden of its own is built by the function of its family.
    // The class of the stand-in is of a task that some do not have.
    let own_task = || accept(&checkpoint, architecture.tasks.first().copied());
    // A stand-in has no tower.
    let accepted = if architecture.sees() { own_task() } else { accept(&checkpoint, None).or_else(|_| own_task()) };
    let accepted = accepted.unwrap();
    let only = |architecture: &Architecture| architecture.only.iter().map(Only::key).collect::<Vec<_>>();
    if accepted.architecture.keys != architecture.keys || only(accepted.architecture) != only(architecture) {
        return None;
    }
    let tasks: Vec<&Task> =
        architecture.tasks.iter().filter(|task| accepted.architecture.tasks.contains(task)).collect();
    if tasks.is_empty() {
        return None;
    }
    let mut asked = BTreeSet::new();
    for task in tasks {
        let Accepted { config, architecture, text, .. } = accept(&checkpoint, Some(*task)).unwrap();
        let mut builder = Builder::new(&checkpoint, &config, architecture, None);
        builder.text = text.as_ref().map(|(config, architecture)| (config, *architecture));
        let _: Result<_, ModelError> = (architecture.build)(&mut builder, *task);
        assert_eq!(undeclared(&config, architecture), [""; 0], "{} of {}", architecture.model_type, path.display());
        asked.extend(config.asked());
    }
    Some(asked)
}

/// The keys that an architecture asks for.
fn asked(architecture: &Architecture) -> BTreeSet<&'static str> {
    let known = if architecture.sees() { Vec::new() } else { goldens() };
    let all: Vec<_> = known.iter().filter_map(|path| asked_of(architecture, path)).collect();
    match all.is_empty() {
        true => asked_of(architecture, stand_in(architecture).path()).unwrap(),
        false => all.into_iter().flatten().collect(),
    }
}

#[test]
fn each_declared_key_is_read() {
    for architecture in ARCHITECTURES {
        let asked = asked(architecture);
        let declared = architecture.keys.iter().flat_map(|keys| keys.iter().copied());
        let unread: Vec<&str> =
            declared.chain(architecture.only.iter().map(Only::key)).filter(|k| !asked.contains(k)).collect();
        assert!(unread.is_empty(), "{} does not read {unread:?}", architecture.model_type);
    }
}

#[test]
fn each_key_is_declared_once() {
    for architecture in ARCHITECTURES {
        let lists = architecture.keys.iter().chain([&architecture.irrelevant_keys]);
        let only = ONLY.iter().chain(architecture.only).map(Only::key);
        let mut seen = BTreeSet::new();
        for key in lists.flat_map(|keys| keys.iter().copied()).chain(only) {
            assert!(seen.insert(key), "{} declares `{key}` twice", architecture.model_type);
        }
    }
}
