//! `planish.json` is what docs/manifest.schema.json says.

use std::fs;
use std::path::Path;

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::calibrate::stored_inputs;
use crate::support::{golden, planish_compile, repository, scratch, text};

fn schema() -> Validator {
    schema_in("manifest.schema.json")
}

/// A schema in docs/.
pub(crate) fn schema_in(name: &str) -> Validator {
    let text = fs::read_to_string(repository().join("docs").join(name)).unwrap();
    jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap()
}

/// What a document has that it should not have, and the other way round.
pub(crate) fn problems(schema: &Validator, manifest: &Value) -> Vec<String> {
    schema.iter_errors(manifest).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn compiled(model: &Path, more: &[&str]) -> Value {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(model, &out, more).exits(0, &[]);
    serde_json::from_slice(&fs::read(out.join("planish.json")).unwrap()).unwrap()
}

#[test]
fn artifacts_have_the_manifest_that_the_schema_describes() {
    let schema = schema();
    let folder = scratch();
    let data = stored_inputs("vit", &["pixel_values"], folder.path());
    let graph = |name: &str| repository().join("fixtures/graphs").join(name).join("model.onnx");
    let cases: &[(&Path, &[&str])] = &[
        (&golden("bert"), &["--verify"]),
        (&golden("vit"), &["--target", "ort-cuda", "--fp16"]),
        (&golden("t5"), &["--verify", "--target", "onnx", "--no-fusion"]),
        (
            &golden("gpt2"),
            &["--target", "onnx", "--fp16", "--verify", "--recipe", "pad-vocab=64", "--recipe", "logits=padded"],
        ),
        (&golden("gpt2"), &["--package", "genai", "--bf16"]),
        (&golden("phi3-longrope"), &["--recipe", "logits=last"]),
        (&golden("llama"), &["--weights", "link"]),
        (&golden("llama"), &["--int4", "--recipe", "block-size=16", "--keep", "down_proj=int8", "--keep", "o_proj"]),
        (&golden("llama"), &["--int8-weights", "--recipe", "block-size=row", "--recipe=zero-points=true"]),
        // Sums of products of reduced codes saturate on no processor.
        (
            &golden("vit"),
            &[
                "--int8",
                "--recipe",
                "weight-scales=reduced",
                "--calibrate",
                text(&data),
                "--evaluate",
                text(&data),
                "--verify",
            ],
        ),
        (&golden("t5"), &["--package", "triton", "--weights", "link", "--verify"]),
        (
            &golden("t5"),
            &[
                "--package",
                "transformers-js",
                "--variants",
                "fp32,q8,q4",
                "--recipe",
                "block-size=16",
                "--recipe=cache=copy",
                "--verify",
            ],
        ),
        (&graph("optimum-bert"), &["--verify", "--shapes", "input_ids=1x7"]),
        (&graph("torch-bert"), &["--verify"]),
        #[cfg(all(feature = "tensorrt-rtx", not(feature = "tensorrt")))]
        (&golden("t5"), &["--target", "trt", "--recipe=engine.gpu=sm89", "--recipe=engine.keep-onnx=true"]),
    ];
    for (model, more) in cases {
        let manifest = compiled(model, more);
        assert_eq!(problems(&schema, &manifest), Vec::<String>::new(), "{} {more:?}", model.display());
    }
}

#[test]
fn other_manifests_do_not_fit_the_schema() {
    let schema = schema();
    let manifest = compiled(&golden("bert"), &[]);
    let changes: &[(&str, Value)] = &[
        ("/schema", json!(3)),
        ("/task", json!("telepathy")),
        ("/precision", json!("f64")),
        ("/parts/0/files", json!([])),
        ("/parts/0/inputs/0/shape/0", json!(-1)),
        ("/parts/0/inputs/0/end", json!("many")),
        ("/source/files/0/blake3", json!("none")),
        ("/files/0/bytes", json!(1.5)),
        ("/runtime_package", json!("other")),
    ];
    for (path, value) in changes {
        let mut changed = manifest.clone();
        *changed.pointer_mut(path).unwrap() = value.clone();
        let problems = problems(&schema, &changed);
        assert!(problems.iter().any(|problem| problem.starts_with(path)), "{path}: {problems:?}");
    }
    let mut more = manifest;
    more["surplus"] = json!(true);
    assert_eq!(problems(&schema, &more).len(), 1);
}
