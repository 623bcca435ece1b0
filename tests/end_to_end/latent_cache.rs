//! What the cache of latent attention has, from the command line to the artifact.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{golden, planish, planish_compile, scratch, text};

/// The manifest of an artifact.
fn manifest(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("planish.json")).unwrap()).unwrap()
}

/// Heads and features of the keys and values of the first layer that an artifact takes.
fn cached(folder: &Path) -> [[u64; 2]; 2] {
    let manifest = manifest(folder);
    let inputs = manifest["parts"][0]["inputs"].as_array().unwrap().clone();
    ["key", "value"].map(|what| {
        let name = format!("past_key_values.0.{what}");
        let input = inputs.iter().find(|input| input["name"] == name.as_str()).unwrap();
        [1, 3].map(|axis: usize| input["shape"][axis].as_u64().unwrap())
    })
}

#[test]
fn it_has_latents_or_keys_and_values_of_heads() {
    let folder = scratch();
    for (name, latent, expanded) in [
        ("deepseek-v2", [[1, 16], [1, 8]], [[4, 24], [4, 16]]),
        ("deepseek-v3", [[1, 16], [1, 8]], [[4, 24], [4, 16]]),
        ("minicpm3", [[1, 16], [1, 8]], [[4, 24], [4, 16]]),
    ] {
        let mut all = Vec::new();
        for (more, shapes, recorded) in [
            (&[][..], latent, Value::Null),
            (&["--recipe", "latent-cache=latent"], latent, json!("latent")),
            (&["--recipe", "latent-cache=expanded"], expanded, json!("expanded")),
        ] {
            let out = folder.path().join(format!("{name}-{}", all.len()));
            planish_compile(&golden(name), &out, &[&["--verify"], more].concat()).exits(0, &[]);
            assert_eq!(cached(&out), shapes, "{name} {more:?}");
            assert_eq!(manifest(&out)["recipe"]["latent_cache"], recorded, "{name} {more:?}");
            // The model is loaded as the artifact was.
            planish(["verify", text(&out)]).exits(0, &[]);
            let generated = planish(["generate", text(&out), "--ids", "5,6,7,8", "--max-new-tokens", "9", "--json"]);
            all.push(serde_json::from_str::<Value>(&generated.succeeds().stdout).unwrap()["ids"].clone());
        }
        assert!(all.iter().all(|ids| *ids == all[0]), "{name}: {all:?}");
    }
    // A recipe is that of another artifact.
    let (recipe, out) = (folder.path().join("minicpm3-2/planish.json"), folder.path().join("again"));
    planish_compile(&golden("minicpm3"), &out, &["--recipe", text(&recipe)]).exits(0, &[]);
    assert_eq!(cached(&out), [[4, 24], [4, 16]]);
}

#[test]
fn where_it_cannot_be_followed_it_is_refused() {
    let folder = scratch();
    let out = folder.path().join("out");
    let refused = |model: &Path, more: &[&str], code: i32, parts: &[&str]| {
        planish_compile(model, &out, more).exits(code, parts);
        assert!(!out.exists(), "nothing was written");
    };
    let expanded = ["--recipe", "latent-cache=expanded"];
    let no_latents =
        ["`latent_cache` is expanded", "mixtral for text-generation has no cache of latents", "leave it out"];
    refused(&golden("mixtral"), &expanded, 1, &no_latents);
    let task = [&["--task", "feature-extraction"], &expanded[..]].concat();
    refused(&golden("minicpm3"), &task, 1, &["minicpm3 for feature-extraction has no cache of latents"]);
    refused(&golden("minicpm3"), &["--recipe", "latent-cache=none"], 2, &["`latent_cache`", "`latent` or `expanded`"]);
    for more in [&[][..], &expanded] {
        let package = [&["--package", "genai"], more].concat();
        refused(&golden("minicpm3"), &package, 1, &["features of a key", "onnxruntime-genai has one size for both"]);
        let in_place = [&["--recipe", "cache=in-place"], more].concat();
        refused(&golden("minicpm3"), &in_place, 1, &["use --recipe cache=copy"]);
    }
    let graph = folder.path().join("graph");
    planish_compile(&golden("minicpm3"), &graph, &["--target", "onnx"]).exits(0, &[]);
    let of_graph = ["--recipe latent-cache=expanded is for checkpoints", "keeps the cache of its graph"];
    refused(&graph.join("model.onnx"), &expanded, 1, &of_graph);
}
