//! `logits=last` of recipes: logits of the last token of each row, which is all that generation reads.

use std::fs;
use std::path::Path;

use planish::artifact::manifest::Manifest;
use planish_ir::Dim;

use crate::generate::{DECODERS, ENCODER_DECODERS, artifact, ids, list, stored};
use crate::support::{golden, planish, planish_compile, repository, scratch, text};

/// The number of tokens that `logits` of each part have, where it is known.
fn tokens(artifact: &Path) -> Vec<Option<i64>> {
    let parts = Manifest::read(artifact).unwrap().parts;
    let logits = parts.iter().filter_map(|part| {
        let logits = &part.outputs.iter().find(|output| output.value.name == "logits")?.value;
        assert_eq!(part.last_logits, logits.dims()[1] == Dim::constant(1));
        Some(logits.dims()[1].as_constant())
    });
    logits.collect()
}

#[test]
fn the_ids_are_those_of_all_logits_and_the_artifact_verifies() {
    for name in DECODERS.into_iter().chain(ENCODER_DECODERS) {
        let prompt = stored(name, "in.prompt");
        let prompts = [list(&prompt), list(&prompt[..3])];
        let common = ["--max-new-tokens", "12", "--set=ignore_eos", "--ids", &prompts[0], "--ids", &prompts[1]];
        let (_folder, all) = artifact(&golden(name), &[]);
        assert!(tokens(&all).iter().all(Option::is_none), "{name}");
        for target in ["ort", "onnx"] {
            let (_folder, last) = artifact(&golden(name), &["--target", target, "--recipe", "logits=last", "--verify"]);
            assert!(tokens(&last).iter().all(|tokens| *tokens == Some(1)), "{name}");
            for more in [&[][..], &["--set=use_cache=false"], &["--set", "num_beams=3"]] {
                let common = [&common[..], more].concat();
                // Without a cache other frequencies count.
                if name != "llama-dynamic" || more.is_empty() {
                    assert_eq!(ids(&last, &common), ids(&all, &common), "{name} {target} {more:?}");
                }
            }
        }
    }
}

#[test]
fn other_forms_of_the_graph_have_last_logits_too() {
    let forms: [(&str, &[&str]); 5] = [
        ("gemma2", &["--recipe", "logits=last,padded", "--recipe", "pad-vocab=64"]),
        ("llama", &["--recipe", "logits=last", "--recipe", "cache=in-place"]),
        ("llama", &["--recipe", "logits=last", "--no-fusion"]),
        ("gpt2", &["--recipe", "logits=last,sliced", "--fp16"]),
        ("llama", &["--recipe", "logits=last", "--int4"]),
    ];
    for (name, more) in forms {
        let (_folder, out) = artifact(&golden(name), more);
        assert_eq!(tokens(&out), [Some(1)], "{name} {more:?}");
        planish(["verify", text(&out), "--reference", text(&golden(name))]).succeeds();
    }
    let more = ["--recipe", "logits=last", "--package", "genai", "--force"];
    let out = scratch();
    let genai = planish_compile(&golden("llama"), &out.path().join("out"), &more);
    genai.exits(0, &["give it prompts of one length"]);
    let graph = repository().join("fixtures/graphs/optimum-gpt2/model.onnx");
    let (_folder, out) = artifact(&graph, &["--recipe", "logits=last", "--verify"]);
    assert_eq!(tokens(&out), [Some(1)]);
}

/// Nothing is left out of what was verified: the same graph without the mark misses.
#[test]
fn verification_knows_of_it_from_the_manifest() {
    let (_folder, out) = artifact(&golden("gpt2"), &["--recipe", "logits=last"]);
    let path = out.join("planish.json");
    let manifest = fs::read_to_string(&path).unwrap();
    fs::write(&path, manifest.replace("\"last_logits\": true", "\"last_logits\": false")).unwrap();
    planish(["verify", text(&out), "--reference", text(&golden("gpt2"))]).exits(3, &["the reference has"]);
}

#[test]
fn what_needs_all_logits_is_refused() {
    let folder = scratch();
    let out = folder.path().join("out");
    let data = folder.path().join("data.txt");
    fs::write(&data, "w1 w2 w3\n").unwrap();
    let compile = |name: &str, more: &[&str]| planish_compile(&golden(name), &out, &[more, &["--force"]].concat());
    compile("gpt2", &["--recipe", "logits=last,all"]).exits(2, &["--recipe logits takes one of all and last"]);
    compile("gpt2", &["--recipe", "logits=padded,sliced"])
        .exits(2, &["--recipe logits takes one of sliced and padded"]);
    compile("gpt2", &["--recipe", "logits=last", "--evaluate", text(&data)])
        .exits(2, &["--evaluate evaluates the artifact", "leave one of them out"]);
    compile("bert-mlm", &["--recipe", "logits=last"]).exits(1, &["this one is for fill-mask", "leave it out"]);
    compile("gpt2", &["--recipe", "logits=last"]).succeeds();
    let source = golden("gpt2");
    let evaluate = ["evaluate", text(&out), "--data", text(&data), "--reference", text(&source)];
    planish(evaluate).exits(1, &["logits of the last token of each row only", "without --recipe logits=last"]);
    // A graph says by its sizes that other logits are missing.
    let again = folder.path().join("again");
    planish_compile(&out.join("model.onnx"), &again, &[]).exits(0, &[]);
    let graph = out.join("model.onnx");
    let evaluate = ["evaluate", text(&again), "--data", text(&data), "--reference", text(&graph)];
    planish(evaluate).exits(1, &["logits of the last token of each row only"]);
    planish(["bench", text(&out), "--batch", "2", "--seq", "5", "--reference", text(&source), "--set", "time=0.1"])
        .exits(0, &[]);
}
