//! Files that have no end or are no files, wherever one is read.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{artifact, golden, planish, text, write_tokenizer};

const ENDLESS: &str = "this is not a regular file but a device; give a file";

/// A link to an endless file in place of what is at a path.
fn endless(path: &Path) {
    let _ = fs::remove_file(path);
    symlink("/dev/zero", path).unwrap();
}

#[test]
fn an_endless_file_of_an_artifact_is_refused() {
    for name in ["config.json", "generation_config.json", "planish.json", "tokenizer.json", "model.onnx"] {
        let (_folder, out) = artifact("gpt2");
        write_tokenizer(&out, 30);
        endless(&out.join(name));
        planish(["generate", text(&out), "--prompt", "w2", "--max-new-tokens", "1"]).exits(1, &[name]);
    }
}

#[test]
fn endless_inputs_are_refused() {
    let (folder, out) = artifact("bert");
    let place = |ending: &str| {
        let path = folder.path().join(format!("zero.{ending}"));
        endless(&path);
        text(&path).to_owned()
    };
    let (json, tensors, artifact, model) = (place("json"), place("safetensors"), text(&out), golden("bert"));
    let html = folder.path().join("x.html");
    planish(["bench", "diff", &json, &json]).exits(1, &["zero.json", ENDLESS]);
    planish(["bench", "report", &json, "--html", text(&html)]).exits(1, &["zero.json", ENDLESS]);
    planish(["bench", artifact, "--inputs", &tensors]).exits(1, &["zero.safetensors", ENDLESS]);
    planish(["run", artifact, "--inputs", &tensors]).exits(1, &["zero.safetensors", ENDLESS]);
    planish(["profile", artifact, "--inputs", &tensors]).exits(1, &["zero.safetensors", ENDLESS]);
    let table = folder.path().join("table.json");
    for ending in ["txt", "jsonl", "csv", "npz", "parquet", "safetensors"] {
        let data = place(ending);
        planish(["calibrate", text(&model), "--data", &data, "-o", text(&table)])
            .exits(1, &[&format!("zero.{ending}"), ENDLESS]);
    }
    let into = folder.path().join("int8");
    planish(["compile", text(&model), "-o", text(&into), "--int8", "--calibrate", &json])
        .exits(1, &["zero.json", ENDLESS]);
    assert!(!table.exists() && !html.exists() && !into.exists());
}

#[test]
fn a_file_that_is_too_large_says_its_limit() {
    let (_folder, out) = artifact("bert");
    // It has no content on the disk.
    let file = fs::File::options().write(true).truncate(true).open(out.join("planish.json")).unwrap();
    file.set_len(1 << 40).unwrap();
    let limit =
        "1099511627776 bytes are more than 67108864, the most that planish reads of the manifest of an artifact";
    planish(["verify", text(&out)]).exits(1, &["planish.json", limit, "compile the model again"]);
    let (folder, out) = artifact("bert");
    let inputs = folder.path().join("x.safetensors");
    let header = br#"{"x":{"dtype":"U8","shape":[1099511627776],"data_offsets":[0,1099511627776]}}"#;
    fs::write(&inputs, [&(header.len() as u64).to_le_bytes()[..], header].concat()).unwrap();
    let file = fs::File::options().write(true).open(&inputs).unwrap();
    file.set_len(8 + header.len() as u64 + (1 << 40)).unwrap();
    planish(["run", text(&out), "--inputs", text(&inputs)])
        .exits(1, &["x.safetensors have 1099511627776 bytes, and 17179869184 are the most that is read into memory"]);
}
