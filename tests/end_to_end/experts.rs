//! Forms of mixtures of experts.

use serde_json::json;

use crate::engine::read;
use crate::support::{golden, planish_compile, scratch, text};

const FORMS: [&str; 3] = ["grouped", "gathered", "all"];

#[test]
fn every_form_gives_what_the_model_does_and_the_manifest_names_it() {
    let folder = scratch();
    let out = folder.path().join("out");
    for (name, target, forms) in
        [("gpt-oss", "ort", &FORMS[..]), ("mixtral", "ort", &FORMS), ("mixtral", "onnx", &FORMS)]
    {
        for form in forms {
            let recipe = format!("--recipe=experts={form}");
            planish_compile(&golden(name), &out, &["--target", target, &recipe, "--verify"]).exits(0, &[]);
            let manifest = read(&out.join("planish.json"));
            assert_eq!(
                (&manifest["experts"], &manifest["recipe"]["experts"]),
                (&json!(form), &json!(form)),
                "{name} {target}"
            );
        }
        // The form that was measured to be fastest, and the same again from what it was made with.
        planish_compile(&golden(name), &out, &["--target", target]).exits(0, &[]);
        let manifest = read(&out.join("planish.json"));
        assert_eq!(
            (&manifest["experts"], manifest["recipe"].get("experts")),
            (&json!("grouped"), None),
            "{name} {target}"
        );
    }
    planish_compile(&golden("bert"), &out, &["--force"]).exits(0, &[]);
    assert_eq!(read(&out.join("planish.json")).get("experts"), None);
}

#[test]
fn forms_that_are_not_there_are_refused() {
    let folder = scratch();
    let out = folder.path().join("out");
    for (name, target, form, says) in [
        ("mixtral", "trt", "grouped", &["experts=grouped is not for target trt; there are gathered, all"][..]),
        ("mixtral", "cuda", "all", &["target cuda, which has no mixtures of experts"]),
        ("mixtral", "ort", "some", &["experts"]),
    ] {
        let recipe = format!("--recipe=experts={form}");
        planish_compile(&golden(name), &out, &["--target", target, &recipe]).exits(2, says);
    }
    let done = planish_compile(&golden("bert"), &out, &["--recipe=experts=all"]);
    done.exits(1, &["--recipe experts=all: the model has no mixtures of experts; leave it out"]);
    assert!(!out.exists(), "{}", text(&out));
}
