//! A GPU that TensorRT-RTX has no engines for: every command says so, and what runs there.

#![cfg(all(feature = "tensorrt-rtx", not(feature = "tensorrt")))]

use std::path::Path;

use planish_testing::fake;

use crate::support::{Done, command, golden, scratch};

/// Runs the binary on a machine whose GPU has compute capability 9.0.
fn on_hopper(driver: &Path, arguments: &[&str]) -> Done {
    let mut command = command(arguments);
    command.env("LD_LIBRARY_PATH", driver).env("FAKE_GPU_CAPABILITY", "90").output().unwrap().into()
}

#[test]
fn commands_say_what_runs_on_a_gpu_without_engines() {
    let (driver, folder) = (scratch(), scratch());
    let _ = fake::gpu(driver.path());
    let (model, artifact) = (golden("gpt2"), folder.path().join("gpt2-trt"));
    let (model, artifact) = (model.to_str().unwrap(), artifact.to_str().unwrap());
    let on_hopper = |arguments: &[&str]| on_hopper(driver.path(), arguments);
    on_hopper(&["compile", model, "-o", artifact, "--target", "trt", "--fp16"]).exits(
        0,
        &["no engines for the GPU of this machine, A fake GPU (sm90)", "targets `cuda` and `ort-cuda` run on it"],
    );
    let reason = "TensorRT-RTX does not support compute capability 9.0, that of A fake GPU";
    let listed = on_hopper(&["runtimes"]).exits(0, &[]);
    let line = listed.stdout.lines().find(|line| line.contains(reason)).unwrap_or_else(|| panic!("{}", listed.stdout));
    assert!(line.contains("the runtime `trt` is unavailable"), "{line}");
    let parts = [reason, "this GPU needs TensorRT, and a planish that is built for it", "`cuda` and `ort-cuda`"];
    on_hopper(&["verify", artifact, "--reference", model]).exits(4, &parts);
    on_hopper(&["generate", artifact, "--ids", "1,2,3", "--max-new-tokens", "2"]).exits(4, &parts);
    on_hopper(&["bench", artifact, "--reference", model, "--batch", "1", "--seq", "8", "--set=peaks=false"])
        .exits(4, &[reason]);
}
