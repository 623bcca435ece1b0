//! Decoders with states of a fixed size: what is generated from states is what the transformers library finds by whole texts.

use std::fs;
use std::path::Path;

use crate::generate::{artifact, generate, ids, list, stored};
use crate::support::{golden, planish_compile, scratch};

/// The goldens with such states.
const NAMES: [&str; 13] = [
    "bamba",
    "falcon-h1",
    "falcon-mamba",
    "granitemoehybrid",
    "jamba",
    "lfm2",
    "lfm2-moe",
    "mamba",
    "mamba2",
    "nemotron-h",
    "qwen3-5",
    "qwen3-5-moe",
    "qwen3-next",
];

/// What follows ids, with settings.
fn following(out: &Path, ids_of: &[&[i64]], count: usize, more: &[&str]) -> Vec<Vec<i64>> {
    let (prompts, count) = (ids_of.iter().map(|ids| list(ids)).collect::<Vec<_>>(), count.to_string());
    let mut arguments = vec!["--max-new-tokens", count.as_str(), "--set=ignore_eos"];
    prompts.iter().for_each(|prompt| arguments.extend(["--ids", prompt.as_str()]));
    arguments.extend(more);
    let found = ids(out, &arguments);
    let rows = found.as_array().unwrap();
    let row = |row: &serde_json::Value| row.as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect();
    match ids_of {
        [_] => vec![row(&found)],
        _ => rows.iter().map(row).collect(),
    }
}

#[test]
fn steps_go_on_from_states() {
    for name in NAMES {
        println!("golden {name}");
        let (prompt, greedy) = (stored(name, "in.prompt"), stored(name, "out.greedy"));
        let expected = greedy[prompt.len()..].to_vec();
        for target in ["onnx", "ort"] {
            let (_folder, out) = artifact(&golden(name), &["--target", target]);
            let alone = |more: &[&str]| following(&out, &[&prompt], expected.len(), more).remove(0);
            assert_eq!(alone(&[]), expected, "{name} for {target}");
            assert_eq!(alone(&["--set", "prefill_chunk_size=4"]), expected, "{name} for {target}, in chunks");
            // The shorter prompt has padding before it, which changes no state.
            let shorter = &prompt[4..];
            let both = following(&out, &[&prompt, shorter], expected.len(), &[]);
            assert_eq!(both[0], expected, "{name} for {target}, beside another");
            let of_shorter = following(&out, &[shorter], expected.len(), &[]).remove(0);
            assert_eq!(both[1], of_shorter, "{name} for {target}, after padding");
        }
    }
}

/// Each library has its own names of states, and commands find states by what they are.
#[test]
fn states_have_the_names_of_the_library() {
    let of_js = ["past_conv.0", "past_recurrent.0", "past_ssm.0"];
    let of_genai = ["past.0.conv", "past.0.recurrent", "past.0.recurrent"];
    for (name, has) in [("lfm2", &[0][..]), ("qwen3-5", &[0, 1]), ("falcon-h1", &[0, 2]), ("mamba2", &[0, 2])] {
        let (prompt, greedy) = (stored(name, "in.prompt"), stored(name, "out.greedy"));
        for (package, expected) in [("optimum", of_js), ("transformers-js", of_js), ("genai", of_genai)] {
            let folder = scratch();
            let out = folder.path().join("out");
            planish_compile(&golden(name), &out, &["--package", package, "--verify"]).exits(0, &[]);
            let manifest: serde_json::Value =
                serde_json::from_slice(&fs::read(out.join("planish.json")).unwrap()).unwrap();
            let part = &manifest["parts"][0];
            let named = |side: &str, name: &str| part[side].as_array().unwrap().iter().any(|port| port["name"] == name);
            for at in has {
                assert!(named("inputs", expected[*at]), "{name} for {package}: {}", expected[*at]);
                let present = expected[*at].replacen("past", "present", 1);
                assert!(named("outputs", &present), "{name} for {package}: {present}");
            }
            let found = following(&out, &[&prompt], greedy.len() - prompt.len(), &[]);
            assert_eq!(found[0], greedy[prompt.len()..], "{name} for {package}");
        }
    }
}

/// Beams change places, and their states with them.
#[test]
fn beams_take_their_states_along() {
    for name in ["lfm2", "mamba", "qwen3-5"] {
        let prompt = stored(name, "in.prompt");
        let (_folder, out) = artifact(&golden(name), &["--target", "ort"]);
        let beams = |more: &[&str]| following(&out, &[&prompt], 12, &[&["--set", "num_beams=4"], more].concat());
        assert_eq!(beams(&[]), beams(&["--set", "use_cache=false"]), "{name}");
    }
}

#[test]
fn what_shortens_a_cache_is_refused_by_name() {
    let (_folder, out) = artifact(&golden("mamba2"), &["--target", "ort"]);
    let more = ["--ids", "5,6,7", "--set", "prompt_lookup_num_tokens=3"];
    generate(&out, &more).exits(1, &["prompt_lookup_num_tokens", "states of convolutions or recurrences"]);
}

/// Attention appends to its cache in place; states are given back whole.
#[test]
fn a_cache_that_is_appended_to_in_place_is_beside_states() {
    for name in ["lfm2", "bamba"] {
        let (prompt, greedy) = (stored(name, "in.prompt"), stored(name, "out.greedy"));
        let (_folder, out) = artifact(&golden(name), &["--target", "ort", "--recipe", "cache=in-place"]);
        let expected = greedy[prompt.len()..].to_vec();
        assert_eq!(following(&out, &[&prompt], expected.len(), &[]), [expected], "{name}");
    }
}

/// What is compiled for ONNX Runtime has its operators, which are read as what they mean: an artifact is a source for any target.
#[test]
fn an_artifact_with_states_is_compiled_again() {
    for name in ["lfm2", "mamba", "mamba2", "qwen3-5"] {
        let (prompt, greedy) = (stored(name, "in.prompt"), stored(name, "out.greedy"));
        let expected = greedy[prompt.len()..].to_vec();
        for (first, second) in [("ort", "onnx"), ("ort", "ort"), ("onnx", "ort")] {
            let (_first, of_first) = artifact(&golden(name), &["--target", first]);
            let (_second, of_second) = artifact(&of_first, &["--target", second, "--verify"]);
            let found = following(&of_second, &[&prompt], expected.len(), &[]).remove(0);
            assert_eq!(found, expected, "{name} for {first}, then for {second}");
        }
    }
}
