//! Models that `compile --pipeline` cuts into stages: they compute what the whole model computes.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{golden, names, planish, planish_compile, scratch, tensors, text, write_tensors};

fn manifest(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("planish.json")).unwrap()).unwrap()
}

/// The names of the inputs or outputs of a part or a stage.
fn names_of<'a>(stage: &'a Value, what: &str) -> Vec<&'a str> {
    stage[what].as_array().unwrap().iter().map(|value| value["name"].as_str().unwrap()).collect()
}

/// Each model in as many stages, and options beside.
const MODELS: [(&str, &str, &[&str]); 10] = [
    ("gpt2", "2", &[]),
    ("gpt2", "4", &["--target", "onnx"]),
    ("llama", "2", &["--target", "onnx"]),
    ("llama", "3", &["--int4"]),
    ("bert", "2", &["--int8"]),
    ("bert", "4", &[]),
    ("mixtral", "2", &[]),
    ("t5", "2", &[]),
    ("llama", "6", &["--fp16"]),
    ("bamba", "2", &["--fp16"]),
];

#[test]
fn stages_in_turn_are_verified_as_the_whole_model_is() {
    let folder = scratch();
    for (at, (model, count, more)) in MODELS.into_iter().enumerate() {
        let out = folder.path().join(format!("{model}-{at}"));
        planish_compile(&golden(model), &out, &[&["--pipeline", count, "--verify"], more].concat()).exits(0, &[]);
        for part in manifest(&out)["parts"].as_array().unwrap() {
            let stages = part["stages"].as_array().unwrap();
            assert_eq!(
                (stages.len().to_string().as_str(), part["files"].as_array().unwrap().len()),
                (count, 0),
                "{model}"
            );
            for (number, pair) in stages.windows(2).enumerate() {
                let (sends, takes) = (names_of(&pair[0], "outputs"), names_of(&pair[1], "inputs"));
                let of_part = names_of(part, "inputs");
                // One value goes on, and everything else is an input of the model.
                let sent: Vec<&&str> = takes.iter().filter(|name| !of_part.contains(name)).collect();
                assert!(matches!(sent[..], [one] if sends.contains(one)), "{model} {number}: {sends:?} {takes:?}");
                assert!(pair[0]["sent_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{model}");
            }
            let caches =
                |stage: &Value| names_of(stage, "inputs").iter().filter(|name| name.starts_with("past")).count();
            assert_eq!(stages.iter().map(caches).sum::<usize>(), caches(part), "{model}");
        }
        planish(["verify", text(&out)]).exits(0, &[]);
    }
}

#[test]
fn stages_are_files_that_run_and_generate_as_the_whole() {
    let folder = scratch();
    let [whole, staged, inputs] = ["whole", "staged", "in.safetensors"].map(|name| folder.path().join(name));
    planish_compile(&golden("gpt2"), &whole, &["--recipe", "card=false"]).succeeds();
    planish_compile(&golden("gpt2"), &staged, &["--pipeline", "2", "--recipe", "card=false"]).succeeds();
    let files = names(&staged);
    assert!(
        files.contains(&"model_stage0.onnx".to_owned()) && files.contains(&"model_stage1.onnx".to_owned()),
        "{files:?}"
    );
    assert!(!files.contains(&"model.onnx".to_owned()), "{files:?}");
    let given = tensors(&golden("gpt2").join("io.safetensors"));
    let given = given.into_iter().filter_map(|(name, tensor)| Some((name.strip_prefix("in.")?.to_owned(), tensor)));
    write_tensors(&inputs, &given.filter(|(name, _)| name == "input_ids").collect());
    let outputs = |artifact: &Path| {
        let to = folder.path().join("out.safetensors");
        planish(["run", text(artifact), "--inputs", text(&inputs), "--outputs", text(&to)]).exits(0, &[]);
        tensors(&to).into_iter().map(|(name, tensor)| (name, tensor.bytes)).collect::<Vec<_>>()
    };
    assert!(outputs(&whole) == outputs(&staged));
    let generated = |artifact: &Path| {
        let ids = ["generate", text(artifact), "--ids", "1,2,3", "--max-new-tokens", "8", "--set=ignore_eos"];
        planish(ids).exits(0, &[]).stdout
    };
    assert_eq!(generated(&whole), generated(&staged));
    let json = folder.path().join("bench.json");
    let quick =
        ["--set", "peaks=false,warmup=0,time=0,iterations=2", "--threads", "1", "--seq", "4", "--json", text(&json)];
    let reference = golden("gpt2");
    planish([&["bench", text(&staged), "--reference", text(&reference)], &quick[..]].concat()).exits(0, &[]);
    planish(["profile", text(&staged)]).exits(2, &["is cut into stages, which are not profiled"]);
    let shown = planish(["inspect", text(&staged)]).exits(0, &[]).stdout;
    assert!(shown.contains("\nmodel_stage0\n") && shown.contains("\nmodel_stage1\n"), "{shown}");
    let again = folder.path().join("again");
    planish_compile(&staged, &again, &[]).exits(1, &["has model in 2 stages", "compile it without --pipeline"]);
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let folder = scratch();
    let out = folder.path().join("out");
    for count in ["0", "1"] {
        planish_compile(&golden("bert"), &out, &["--pipeline", count]).exits(2, &["--pipeline"]);
    }
    planish_compile(&golden("bert"), &out, &["--pipeline", "500"])
        .exits(1, &["--pipeline 500: model can be cut into", "stages at most; give --pipeline 2 to"]);
    planish_compile(&golden("bert"), &out, &["--pipeline", "2", "--target", "cuda"])
        .exits(2, &["target cuda has no stages; choose one of the targets onnx, ort, openvino, ort-cuda"]);
    planish_compile(&golden("llama"), &out, &["--pipeline", "2", "--recipe", "cache=in-place"])
        .exits(2, &["use --recipe cache=copy"]);
    planish_compile(&golden("bert"), &out, &["--pipeline", "2", "--package", "transformers-js"])
        .exits(2, &["loads a part from one file"]);
    let embed = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/onnx/embed.onnx"));
    planish_compile(embed, &out, &["--pipeline", "2"])
        .exits(1, &["at no place of model one value alone goes on; leave --pipeline out"]);
}
