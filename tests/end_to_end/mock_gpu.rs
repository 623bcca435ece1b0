//! The runtime `cuda` from end to end on a mocked GPU: the driver, NVRTC and cublasLt are the mock's, all else is what runs on
//! a GPU.

use std::fs;
use std::path::Path;

use planish_testing::mock_cuda;
use serde_json::Value;

use crate::support::{Done, golden, planish, planish_compile, scratch, text};

fn on_gpu(arguments: &[&str]) -> Done {
    mock_cuda::command(Path::new(env!("CARGO_BIN_EXE_planish"))).args(arguments).output().unwrap().into()
}

#[test]
fn a_decoder_is_verified_and_generates_and_is_measured() {
    let folder = scratch();
    let out = folder.path().join("gpt2");
    planish_compile(&golden("gpt2"), &out, &["--target", "cuda", "--fp16"]).succeeds();
    let found = on_gpu(&["runtimes"]).exits(0, &[]);
    let of_gpu =
        |line: &&str| line.starts_with("cuda ") && line.contains("on mocked GPU") && line.contains("libcublasLt");
    assert_eq!(found.stdout.lines().filter(of_gpu).count(), 1, "{}", found.stdout);
    let model = golden("gpt2");
    let verify = ["verify", text(&out), "--reference", text(&model), "--runtime", "cuda", "--max-length", "9"];
    on_gpu(&verify).exits(0, &[]);
    let of =
        ["generate", text(&out), "--ids", "5,9,7", "--ids", "4", "--max-new-tokens", "4", "--set=ignore_eos", "--json"];
    let ids = |done: Done| {
        let document: Value = serde_json::from_str(&done.exits(0, &[]).stdout).unwrap();
        document["ids"].clone()
    };
    let [gpu, interpreter] = [
        ids(on_gpu(&[&of[..], &["--runtime", "cuda"]].concat())),
        ids(planish([&of[..], &["--runtime", "reference"]].concat())),
    ];
    assert_eq!(gpu, interpreter);
    let json = folder.path().join("figures.json");
    let quick = ["--set", "peaks=false,warmup=0,time=0,iterations=3", "--seq", "4", "--set=transfers"];
    let bench = [&["bench", text(&out), "--runtime", "cuda", "--json", text(&json)], &quick[..]].concat();
    let counts = folder.path().join("counts");
    let mut command = mock_cuda::command(Path::new(env!("CARGO_BIN_EXE_planish")));
    Done::from(command.env("MOCK_CUDA_COUNTS", &counts).args(bench).output().unwrap()).exits(0, &[]);
    let document: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let cells = document["cells"].as_array().unwrap();
    assert!(!cells.is_empty());
    // The clock of the mocked GPU: a kernel takes 10 us.
    let compute = cells.iter().map(|cell| cell["device"]["gpu_compute"]["min"].as_f64());
    assert!(compute.clone().all(|ms| ms.is_some_and(|ms| ms > 0.05)), "{:?}", cells[0]["device"]);
    // Runs are replayed, and the GPU is busy while the host gives copies and a run.
    let counts = fs::read_to_string(&counts).unwrap();
    for name in ["cuGraphLaunch ", "kernel spin "] {
        assert!(counts.lines().any(|line| line.starts_with(name)), "{name}is not in {counts}");
    }
}
