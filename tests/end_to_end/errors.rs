//! Messages of failures of the system: each names its file, and its cause once.

use std::fs;
use std::path::Path;

use crate::support::{Done, golden, planish, planish_compile, scratch};

/// Asserts a failure whose message ends in the system's words, said once.
#[track_caller]
fn says_once(done: Done, cause: &str) {
    let done = done.exits(1, &[]);
    assert_eq!(done.stderr.matches(cause).count(), 1, "{}", done.stderr);
    assert_eq!(done.stderr.matches("os error").count(), 1, "{}", done.stderr);
}

#[test]
fn no_message_repeats_its_cause() {
    let folder = scratch();
    let place = |name: &str| folder.path().join(name);
    let missing = "No such file or directory";
    says_once(planish_compile(&place("nowhere"), &place("out"), &[]), missing);
    says_once(planish_compile(&place("nowhere.safetensors"), &place("out"), &[]), missing);
    says_once(planish_compile(&golden("bert"), Path::new("/proc/planish-test"), &[]), missing);
    let out = place("out");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (artifact, nowhere) = (text(&out), text(&place("nowhere")));
    let outputs = text(&place("nowhere/outputs"));
    planish_compile(&golden("bert"), &out, &[]).succeeds();
    planish(["run", &nowhere, "--inputs", "x"]).exits(1, &[&format!("error: there is no folder {nowhere};")]);
    says_once(planish(["run", &text(&golden("bert")), "--inputs", "x"]), missing);
    says_once(planish(["run", &artifact, "--inputs", &nowhere]), missing);
    says_once(planish(["verify", &artifact, "--reference", &nowhere]), missing);
    planish(["verify", &nowhere]).exits(1, &["there is no folder"]);
    planish(["bench", &nowhere]).exits(1, &[&format!("error: there is no {nowhere};")]);

    let inputs = text(&place("inputs.safetensors"));
    let all = crate::support::tensors(&golden("bert").join("io.safetensors")).into_iter();
    let inputs_only = all.filter_map(|(name, t)| Some((name.strip_prefix("in.")?.to_owned(), t))).collect();
    crate::support::write_tensors(Path::new(&inputs), &inputs_only);
    says_once(planish(["run", &artifact, "--inputs", &inputs, "--outputs", &outputs]), missing);

    fs::remove_file(out.join("model.onnx")).unwrap();
    says_once(planish(["run", &artifact, "--inputs", &inputs]), missing);
}

#[test]
fn nor_does_that_of_a_link_across_filesystems() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let done = planish_compile(&golden("bert"), &folder.path().join("out"), &["--weights", "link"]);
    says_once(done, "cross-device link");
}
