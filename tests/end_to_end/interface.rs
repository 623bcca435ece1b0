//! What the tensors of a model are: as models state it, as the import infers it, and as manifests keep it.

use std::fs;

use planish::artifact::manifest::Manifest;
use planish_ir::Interface;
use planish_models::{Checkpoint, LoadOptions, load, names};
use planish_onnx::interface::{of_graph, part_role};
use serde_json::Value;

use crate::support::{golden, planish_compile, repository, scratch};

/// The inputs and outputs of a part, and the symbols, each with its role.
fn written(interface: &Interface) -> Vec<String> {
    let part = |(name, part): &(String, planish_ir::PartInterface)| {
        let inputs = part.inputs.iter().map(|(input, role)| format!("{input}: {role}"));
        let outputs = part.outputs.iter().map(|(output, role)| format!("{output}: {role}"));
        let symbols = part.symbols.iter().map(|(symbol, role)| format!("{symbol}: {role}"));
        let all = inputs.chain(outputs).chain(symbols).collect::<Vec<_>>().join(", ");
        format!("{name} ({}): {all}", part.role)
    };
    interface.parts.iter().map(part).collect()
}

#[test]
fn models_state_what_the_import_infers_from_their_names() {
    let mut count = 0;
    for entry in fs::read_dir(repository().join("fixtures/goldens")).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let model = load(&checkpoint, LoadOptions::default()).unwrap();
        for part in &model.parts {
            assert_eq!(
                part.graph.interface,
                of_graph(&part.graph, part_role(part.name)),
                "{} of {folder:?}",
                part.name
            );
        }
        count += 1;
    }
    assert!(count > 20, "{count}");
}

/// Manifests of version 4 and before do not say what tensors are: their names do.
#[test]
fn older_manifests_have_the_roles_of_their_names() {
    let folder = scratch();
    for name in ["t5", "gpt2", "bert", "distilbert-qa", "vit"] {
        let out = folder.path().join(name);
        planish_compile(&golden(name), &out, &[]).exits(0, &[]);
        let stated = Manifest::read(&out).unwrap().interface();
        let path = out.join("planish.json");
        let mut document: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        for schema in [2, 3, 4] {
            document["schema"] = schema.into();
            for part in document["parts"].as_array_mut().unwrap() {
                let part = part.as_object_mut().unwrap();
                part.remove("role");
                part.remove("symbols");
                for values in ["inputs", "outputs"] {
                    part[values].as_array_mut().unwrap().iter_mut().for_each(|value| {
                        value.as_object_mut().unwrap().remove("role");
                    });
                }
            }
            fs::write(&path, document.to_string()).unwrap();
            assert_eq!(
                written(&Manifest::read(&out).unwrap().interface()),
                written(&stated),
                "{name}, version {schema}"
            );
        }
    }
}

/// A manifest as version 4 wrote it, of an encoder-decoder.
#[test]
fn a_manifest_of_version_4_is_read() {
    let folder = scratch();
    fs::copy(repository().join("tests/end_to_end/data/planish-4.json"), folder.path().join("planish.json")).unwrap();
    let interface = Manifest::read(folder.path()).unwrap().interface();
    let feeds: Vec<String> = interface
        .feeds()
        .iter()
        .filter(|feed| feed.to.1.contains("hidden") || feed.to.1.contains(".0.") && feed.to.1.ends_with("key"))
        .map(|feed| format!("{}.{} -> {}.{}", feed.from.0, feed.from.1, feed.to.0, feed.to.1))
        .collect();
    assert_eq!(
        feeds,
        [
            "encoder_model.last_hidden_state -> decoder_model.encoder_hidden_states",
            "decoder_model.present.0.decoder.key -> decoder_with_past_model.past_key_values.0.decoder.key",
            "decoder_model.present.0.encoder.key -> decoder_with_past_model.past_key_values.0.encoder.key",
        ]
    );
    let name = |part: &str, input: &str| names::input_in_model(&interface, part, input).into_owned();
    assert_eq!(name("encoder_model", "input_ids"), "input_ids");
    assert_eq!(name("decoder_model", "input_ids"), "decoder_input_ids");
    assert_eq!(name("decoder_with_past_model", "input_ids"), "decoder_input_ids");
    assert_eq!(name("decoder_with_past_model", "encoder_attention_mask"), "attention_mask");
    assert_eq!(name("decoder_model", "encoder_hidden_states"), "encoder_last_hidden_state");
    assert_eq!(name("decoder_with_past_model", "past_key_values.1.encoder.value"), "present.1.encoder.value");
}
