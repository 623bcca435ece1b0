//! The model card of an artifact.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Draft, contents, golden, names, planish_compile, scratch};

#[test]
fn an_artifact_has_a_card_unless_it_is_not_wanted() {
    let folder = scratch();
    let model = Draft::of("bert-mlm").write(folder.path().join("model"));
    fs::write(model.join("README.md"), "---\nlicense: mit\nlanguage: [en, de]\n---\n# The source's own words\n")
        .unwrap();
    let out = folder.path().join("out");
    planish_compile(&model, &out, &["--verify"]).succeeds();
    let card = fs::read_to_string(out.join("README.md")).unwrap();
    for says in [
        "---\nlicense: mit\nlanguage:\n- en\n- de\n",
        "pipeline_tag: fill-mask",
        "# model\n",
        "## Verification",
        "verdict",
    ] {
        assert!(card.contains(says), "{says}: {card}");
    }
    assert!(!card.contains("own words") && !card.contains("## Evaluation"), "{card}");
    let manifest: Value = serde_json::from_slice(&fs::read(out.join("planish.json")).unwrap()).unwrap();
    assert_eq!(manifest["source"]["card"], json!({"license": "mit", "language": ["en", "de"]}));
    // The folder is planish's own, and the same input gives the same bytes.
    let first = contents(&out);
    planish_compile(&model, &out, &["--verify"]).succeeds();
    assert!(contents(&out) == first);
    // A card that somebody changed is theirs.
    fs::write(out.join("README.md"), format!("{card}More words.\n")).unwrap();
    for more in [&[][..], &["--recipe", "card=false"]] {
        planish_compile(&model, &out, more).exits(1, &["README.md, which was changed; move it elsewhere", "--force"]);
    }
    planish_compile(&model, &out, &["--verify", "--force"]).succeeds();
    assert!(contents(&out) == first);
    planish_compile(&model, &out, &["--recipe", "card=false"]).succeeds();
    assert_eq!(names(&out), ["config.json", "model.onnx", "planish.json"]);
    // Now the card would be somebody else's.
    fs::write(out.join("README.md"), "mine").unwrap();
    planish_compile(&model, &out, &[]).exits(1, &["holds what was not written by planish: README.md"]);
}

#[test]
fn a_card_that_cannot_be_read_is_a_note() {
    let folder = scratch();
    let model = Draft::of("bert").write(folder.path().join("model"));
    fs::write(model.join("README.md"), [0xff, 0xfe, 0xff]).unwrap();
    let done = planish_compile(&model, &folder.path().join("out"), &["--debug", "strict"]).exits(0, &[]);
    assert!(
        done.stderr.contains("README.md") && done.stderr.contains("says nothing of its license"),
        "{}",
        done.stderr
    );
    planish_compile(&golden("bert"), &folder.path().join("other"), &[]).succeeds();
}
