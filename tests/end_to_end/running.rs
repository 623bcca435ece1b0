//! `planish run` and `planish verify`: artifacts that are right, changed, cut off or another's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use planish::artifact::{Artifact, RunOptions, Running};
use planish_eval::Tensor;
use planish_onnx::proto::{DimensionValue, ModelProto};
use prost::Message;
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use crate::support::{
    Done, Draft, Stored, artifact, command, golden, names, planish, planish_compile, repository, scratch, tensors,
    text, write_tensors,
};

/// The inputs of a golden in a file as `run` takes it.
fn inputs(name: &str, folder: &Path) -> PathBuf {
    let all = tensors(&golden(name).join("io.safetensors")).into_iter();
    let inputs = all.filter_map(|(name, t)| Some((name.strip_prefix("in.")?.to_owned(), t))).collect();
    let path = folder.join("inputs.safetensors");
    write_tensors(&path, &inputs);
    path
}

#[test]
fn run_takes_and_gives_safetensors() {
    let (folder, out) = artifact("bert-classify");
    let inputs = inputs("bert-classify", folder.path());
    let outputs = folder.path().join("outputs.safetensors");
    let done = planish(["run", text(&out), "--inputs", text(&inputs), "--outputs", text(&outputs)]).succeeds();
    assert_eq!(done.stdout, "");
    let got = tensors(&outputs);
    assert!(got.keys().eq(["logits"]));
    let numbers = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect::<Vec<_>>();
    let want = &tensors(&golden("bert-classify").join("io.safetensors"))["out.logits"];
    assert_eq!((got["logits"].dtype, &got["logits"].shape), (want.dtype, &want.shape));
    let (got, want) = (numbers(&got["logits"].bytes), numbers(&want.bytes));
    assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() <= 1e-5), "{got:?} is not {want:?}");

    assert_eq!(names(folder.path()), ["inputs.safetensors", "out", "outputs.safetensors"]);
    let archive = folder.path().join("outputs.npz");
    planish(["run", text(&out), "--inputs", text(&inputs), "--outputs", text(&archive)])
        .exits(2, &["tensors are written as safetensors"]);
    assert!(!archive.exists());
    let shown = planish(["run", text(&out), "--inputs", text(&inputs)]).succeeds().stdout;
    assert!(shown.starts_with("logits: f32[3, 3], from ") && shown.lines().count() == 1, "{shown}");
}

#[test]
fn run_says_which_inputs_it_wants() {
    let (folder, out) = artifact("bert");
    let inputs = inputs("distilbert-qa", folder.path());
    let run = |inputs: &Path| planish(["run", text(&out), "--inputs", text(inputs)]);
    let none = folder.path().join("none.safetensors");
    write_tensors(&none, &BTreeMap::new());
    let missing = "the inputs `input_ids`, `attention_mask`, `token_type_ids` are missing";
    run(&none).exits(1, &["none.safetensors", missing, "input_ids: i64[batch_size, sequence_length]"]);
    let done = run(&inputs).exits(0, &[]);
    assert_eq!(done.stderr, "note: inputs that were not given: token_type_ids is all zeros\n");
    run(&golden("bert").join("io.safetensors")).exits(1, &["no input `in.attention_mask`"]);
    run(&golden("bert").join("config.json")).exits(1, &["config.json is not a safetensors file"]);
    run(&folder.path().join("nowhere")).exits(1, &["cannot read", "nowhere"]);
    planish(["run", text(&golden("bert")), "--inputs", text(&inputs)])
        .exits(1, &["planish.json", "is not an artifact", "planish compile"]);
}

/// What is left out is what the golden has: full rows that nothing precedes.
#[test]
fn a_decoder_runs_on_ids_alone() {
    for name in ["gpt2", "llama", "opt"] {
        let (folder, out) = artifact(name);
        let outputs = folder.path().join("outputs.safetensors");
        let run = |inputs: &BTreeMap<String, Stored>| {
            let path = folder.path().join("inputs.safetensors");
            write_tensors(&path, inputs);
            planish(["run", text(&out), "--inputs", text(&path), "--outputs", text(&outputs)])
        };
        let ids = || Stored {
            dtype: Dtype::I64,
            shape: vec![2, 3],
            bytes: [5i64, 6, 7, 8, 9, 10].map(i64::to_le_bytes).concat(),
        };
        let input = |name: &str, tensor: Stored| (name.to_owned(), tensor);
        let numbers = |numbers: [i64; 6]| Stored { bytes: numbers.map(i64::to_le_bytes).concat(), ..ids() };
        let alone = run(&[input("input_ids", ids())].into())
            .exits(0, &["past_key_values.* are empty", "attention_mask is all ones"]);
        assert_eq!(alone.stderr.lines().count(), 1, "{}", alone.stderr);
        let got = fs::read(&outputs).unwrap();
        run(&[input("input_ids", ids()), input("attention_mask", numbers([1; 6]))].into()).exits(0, &["are empty"]);
        assert_eq!(fs::read(&outputs).unwrap(), got);
        let mask = || input("attention_mask", numbers([1, 1, 1, 0, 1, 1]));
        run(&[input("input_ids", ids()), mask()].into())
            .exits(0, &["position_ids counts the tokens of attention_mask"]);
        let padded = fs::read(&outputs).unwrap();
        assert_ne!(padded, got, "the mask counts");
        let positions = input("position_ids", numbers([0, 1, 2, 0, 0, 1]));
        run(&[input("input_ids", ids()), mask(), positions].into()).exits(0, &["are empty"]);
        assert_eq!(fs::read(&outputs).unwrap(), padded);

        // A cache that is given counts: with its length the mask is longer than the ids.
        let mut given = tensors(&outputs);
        given.remove("logits");
        let past = |(name, tensor): (String, Stored)| (name.replace("present.", "past_key_values."), tensor);
        let mut next: BTreeMap<String, Stored> = given.into_iter().map(past).collect();
        next.insert("input_ids".to_owned(), Stored { dtype: Dtype::I64, shape: vec![2, 1], bytes: vec![0; 16] });
        run(&next).exits(0, &["attention_mask is all ones, position_ids counts"]);
        assert_eq!(tensors(&outputs)["present.0.key"].shape[2], 4);
        // Some keys and values without the others are a mistake.
        next.remove("past_key_values.1.key");
        next.remove("past_key_values.0.value");
        run(&next).exits(1, &["`past_key_values.0.value`, `past_key_values.1.key` are missing"]);
    }
}

/// A graph whose dimensions do not say that they are tokens: the runtime is the first that could refuse.
/// Also where it has several parts, and run after run.
#[test]
fn an_artifact_that_stays_loaded_gives_what_single_runs_give() {
    let (_folder, out) = artifact("t5");
    let single = Artifact::open(&out).unwrap();
    let mut running = Running::start(single.clone(), RunOptions::default(), &mut |_| {}).unwrap();
    let wanted: Vec<String> = running.chain().unwrap().outputs().into_iter().map(|(name, _)| name.into()).collect();
    for ids in [[2i64, 3, 4], [4, 3, 1]] {
        let named = |name: &str, ids: &[i64]| (name.to_owned(), Tensor::new(vec![1, ids.len()], ids.to_vec()).unwrap());
        let inputs = vec![named("input_ids", &ids), named("decoder_input_ids", &ids[..2])];
        let outputs = running.run(inputs.clone(), &mut |_| {}).unwrap();
        assert_eq!(outputs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), wanted);
        assert_eq!(outputs, single.run(inputs, &RunOptions::default(), &mut |_| {}).unwrap());
    }
    let unknown = running.run(vec![], &mut |_| {}).unwrap_err().to_string();
    assert!(unknown.starts_with("the inputs `input_ids`, "), "{unknown}");
    let part = RunOptions { part: Some("nothing".to_owned()), ..RunOptions::default() };
    let Err(error) = Running::start(single, part, &mut |_| {}) else { panic!("there is no such part") };
    assert!(error.to_string().contains("has no part `nothing`; it has encoder_model, "), "{error}");
}

#[test]
fn a_failed_run_names_a_sequence_of_0() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    planish_compile(&golden("bert"), &path("onnx"), &["--target", "onnx"]).exits(0, &[]);
    let file = path("onnx/model.onnx");
    let mut model = ModelProto::decode(&fs::read(&file).unwrap()[..]).unwrap();
    let graph = model.graph.as_mut().unwrap();
    let values = graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info);
    let shapes = values.filter_map(|value| value.r#type.as_mut()?.tensor_type.as_mut()?.shape.as_mut());
    for dim in shapes.flat_map(|shape| &mut shape.dim) {
        if let Some(DimensionValue::DimParam(name)) = &mut dim.value {
            *name = name.replace("sequence_length", "words");
        }
    }
    fs::write(path("words.onnx"), model.encode_to_vec()).unwrap();
    planish_compile(&path("words.onnx"), &path("ort"), &["--target", "ort"]).exits(0, &[]);
    let run = |tokens: usize| {
        let ids = || Stored { dtype: Dtype::I64, shape: vec![1, tokens], bytes: vec![0; 8 * tokens] };
        let inputs = ["input_ids", "attention_mask", "token_type_ids"].map(|name| (name.to_owned(), ids()));
        write_tensors(&path("inputs.safetensors"), &inputs.into());
        planish(["run", text(&path("ort")), "--inputs", text(&path("inputs.safetensors"))])
    };
    run(2).exits(0, &[]);
    let hint = "target ort computes attention for one token or more; target onnx also takes a sequence of 0";
    run(0).exits(1, &["Reshape", "` has no tokens: ", hint]);
}

#[test]
fn run_refuses_inputs_beyond_what_the_model_takes() {
    let (folder, out) = artifact("bert");
    let path = folder.path().join("inputs.safetensors");
    let run = |shape: [usize; 2], change: (&str, usize, i64)| {
        let input = |name: &str| {
            let mut numbers = vec![i64::from(name != "token_type_ids"); shape[0] * shape[1]];
            if name == change.0 {
                numbers[change.1] = change.2;
            }
            let bytes = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
            (name.to_owned(), Stored { dtype: Dtype::I64, shape: shape.to_vec(), bytes })
        };
        write_tensors(&path, &["input_ids", "attention_mask", "token_type_ids"].map(input).into());
        planish(["run", text(&out), "--inputs", text(&path)])
    };
    run([2, 4], ("input_ids", 7, 130)).succeeds();
    run([2, 4], ("input_ids", 7, 131)).exits(1, &["inputs.safetensors", "`input_ids` is 131 at [1, 3]", "0 to 130"]);
    run([2, 4], ("input_ids", 4, -1)).exits(1, &["`input_ids` is -1 at [1, 0]"]);
    run([2, 4], ("input_ids", 0, i64::MIN)).exits(1, &["`input_ids`", "at [0, 0]"]);
    run([2, 4], ("token_type_ids", 1, 2)).exits(1, &["`token_type_ids` is 2 at [0, 1]", "0 to 1"]);
    run([2, 4], ("attention_mask", 1, 2)).exits(1, &["`attention_mask` is 2 at [0, 1]"]);
    run([1, 32], ("", 0, 0)).succeeds();
    run([1, 33], ("", 0, 0)).exits(1, &["`attention_mask` has the shape [1, 33]", "at most 32 tokens"]);
    let empty = run([0, 4], ("", 0, 0)).succeeds().stdout;
    assert_eq!(empty, "last_hidden_state: f32[0, 4, 48]\npooler_output: f32[0, 48]\n");
}

#[test]
fn verify_passes_for_what_was_compiled() {
    let (_folder, out) = artifact("bert-mlm");
    let verify = |more: &[&str]| {
        let reference = golden("bert-mlm");
        planish([&["verify", text(&out), "--reference", text(&reference)], more].concat()).succeeds().stdout
    };
    let table = verify(&[]);
    assert!(table.contains("| logits") && table.contains("verified against"), "{table}");
    assert_eq!(table, verify(&["--seed", "0"]), "the seed is 0 unless told otherwise");
    let report: Value = serde_json::from_str(&verify(&["--json", "--seed", "1"])).unwrap();
    let labels: Vec<&str> = report["cases"].as_array().unwrap().iter().map(|c| c["label"].as_str().unwrap()).collect();
    assert_eq!(labels.first(), Some(&"1 x 1"));
    assert!(labels.contains(&"3 x 8, padded") && labels.contains(&"1 x 32"), "{labels:?}");
}

#[test]
fn decoders_and_image_models_verify() {
    for (golden_name, line) in [("llama", "3 x 9, padded, 5 of them cached | present."), ("vit", "batch of 3 | logits")]
    {
        let (_folder, out) = artifact(golden_name);
        let reference = golden(golden_name);
        let table = planish(["verify", text(&out), "--reference", text(&reference)]).succeeds().stdout;
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&table).contains(line), "{table}");
    }
}

#[test]
fn compile_records_what_it_verified() {
    let folder = scratch();
    let out = folder.path().join("out");
    let done = planish_compile(&golden("roberta-mlm"), &out, &["--verify"]).succeeds();
    assert!(done.stdout.contains("verified: "), "{}", done.stdout);
    let manifest: Value = serde_json::from_slice(&fs::read(out.join("planish.json")).unwrap()).unwrap();
    let figures = &manifest["verification"]["cases"][0]["outputs"][0]["figures"];
    assert!(figures["max_rel"].as_f64().unwrap() <= 1e-5, "{figures}");
}

#[test]
fn verify_finds_the_reference_by_its_name() {
    let folder = scratch();
    let model = Draft::of("bert").write(folder.path().join("my-model"));
    let out = folder.path().join("out");
    planish_compile(&model, &out, &[]).succeeds();
    let done = planish(["verify", text(&out)]).succeeds();
    assert!(done.stdout.contains("my-model"), "{}", done.stdout);
    fs::rename(&model, folder.path().join("moved")).unwrap();
    planish(["verify", text(&out)]).exits(1, &["`my-model`", "--reference"]);
}

/// A checkpoint of another kind beside the artifact hides the right one no more than none does.
#[test]
fn verify_takes_the_checkpoint_that_is_the_source() {
    let folder = scratch();
    let place = Draft::of("bert-mlm").write(folder.path().join("place"));
    let model = Draft::of("bert").write(place.join("model"));
    let out = place.join("out");
    planish_compile(&model, &out, &[]).succeeds();
    let done = planish(["verify", text(&out)]).succeeds();
    assert!(done.stdout.contains("place/model: "), "{}", done.stdout);
    fs::remove_dir_all(&model).unwrap();
    let different = format!("{} is not what the artifact was compiled from", text(&place.join("config.json")));
    planish(["verify", text(&out)]).exits(1, &["`model`", "--reference", &different]);
}

/// Another value in the middle of the largest weight: of the same length, and a number still.
#[test]
fn a_changed_weight_exits_3() {
    let (_folder, out) = artifact("bert");
    let path = out.join("model.onnx");
    let mut bytes = fs::read(&path).unwrap();
    let weight = &tensors(&golden("bert").join("model.safetensors"))["encoder.layer.1.attention.self.value.weight"];
    let at = bytes.windows(64).position(|window| *window == weight.bytes[..64]).expect("it is there as stored");
    bytes[at..at + 4].copy_from_slice(&5f32.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let verify = ["verify", text(&out), "--reference", text(&golden("bert"))].map(str::to_owned);
    let done = planish(&verify).exits(3, &["verification failed", "last_hidden_state: max relative error"]);
    assert!(
        done.stdout.contains("| last_hidden_state") && !done.stdout.contains("verified against"),
        "{}",
        done.stdout
    );
    let done = planish(verify.iter().map(String::as_str).chain(["--json"])).exits(3, &["verification failed"]);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(report["cases"][0]["outputs"][0]["miss"].is_string(), "{report}");
}

#[test]
fn a_model_file_that_was_cut_off_is_refused() {
    let (folder, out) = artifact("bert");
    let path = out.join("model.onnx");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let parts = ["model.onnx", "cut off", "compile it again"];
    planish(["verify", text(&out), "--reference", text(&golden("bert"))]).exits(1, &parts);
    planish(["run", text(&out), "--inputs", text(&inputs("bert", folder.path()))]).exits(1, &parts);
    // Of the right length, but no model.
    fs::write(&path, vec![0xFF; bytes.len()]).unwrap();
    planish(["verify", text(&out), "--reference", text(&golden("bert"))])
        .exits(1, &["ort could not load", "model.onnx"]);
    fs::remove_file(&path).unwrap();
    planish(["verify", text(&out), "--reference", text(&golden("bert"))])
        .exits(1, &["cannot open", "compile the model"]);
}

#[test]
fn manifests_that_cannot_be_read_are_named() {
    let (folder, out) = artifact("bert");
    let inputs = inputs("bert", folder.path());
    let manifest = fs::read_to_string(out.join("planish.json")).unwrap();
    for (changed, part) in [
        ("{}".to_owned(), "is not a manifest that this version reads"),
        (manifest[..manifest.len() / 2].to_owned(), "is not a manifest that this version reads"),
        (manifest.replacen("\"schema\": 5", "\"schema\": 1000", 1), "schema 1000"),
        (manifest.replacen("\"model.onnx\"", "\"lost.onnx\"", 1), "names no file of model"),
    ] {
        fs::write(out.join("planish.json"), changed).unwrap();
        planish(["run", text(&out), "--inputs", text(&inputs)]).exits(1, &[part, "compile the model again"]);
    }
}

/// Known sizes are numbers, and parts have their files. In version 2 all sizes are strings; versions 2 and 3 do not say
/// which files contain a part.
#[test]
fn older_manifests_are_read() {
    let (_folder, out) = artifact("vit");
    let path = out.join("planish.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!((&manifest["schema"], &manifest["parts"][0]["files"]), (&5.into(), &json!(["model.onnx"])));
    manifest["parts"][0].as_object_mut().unwrap().remove("files");
    let shape = &mut manifest["parts"][0]["inputs"][0]["shape"];
    assert_eq!(*shape, json!(["batch_size", 3, 16, 16]));
    *shape = json!(["batch_size", "3", "16", "16"]);
    for schema in [2, 3] {
        manifest["schema"] = schema.into();
        fs::write(&path, manifest.to_string()).unwrap();
        planish(["verify", text(&out), "--reference", text(&golden("vit"))]).succeeds();
    }
    planish_compile(&golden("vit"), &out, &[]).succeeds();
}

/// ONNX Runtime has a database and an identifier in the user's home unless it is kept from that.
#[test]
fn nothing_is_left_in_the_home() {
    let (folder, out) = artifact("bert");
    let (_decoder, decoder) = artifact("gpt2");
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    let (model, inputs) = (golden("bert"), inputs("bert", folder.path()));
    let again = folder.path().join("again");
    let commands: [&[&str]; 5] = [
        &["run", text(&out), "--inputs", text(&inputs)],
        &["verify", text(&out), "--reference", text(&model)],
        &["generate", text(&decoder), "--ids", "1,2", "--max-new-tokens", "3"],
        &["bench", text(&out), "--reference", text(&model), "--set", "time=0,iterations=1", "--seq", "4"],
        &["compile", text(&model), "-o", text(&again), "--verify"],
    ];
    for arguments in commands {
        let mut command = command(arguments);
        command.env("HOME", &home).env("TMPDIR", folder.path());
        for name in ["ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
            command.env_remove(name);
        }
        Done::from(command.output().unwrap()).exits(0, &[]);
        // A benchmark keeps what the reference gives, and what the machine can do at most.
        let caches = if arguments[0] == "bench" { &[".cache"][..] } else { &[] };
        assert_eq!(names(&home), caches, "{arguments:?}");
        if !caches.is_empty() {
            assert_eq!(names(&home.join(".cache/planish")), ["peaks.json", "reference"]);
            fs::remove_dir_all(home.join(".cache")).unwrap();
        }
    }
    assert_eq!(names(folder.path()), ["again", "home", "inputs.safetensors", "out"]);
}

#[test]
fn another_reference_is_refused() {
    let (folder, out) = artifact("bert");
    planish(["verify", text(&out), "--reference", text(&golden("bert-mlm"))])
        .exits(1, &["is not what the artifact", "out was compiled from", "--reference"]);
    // Fine-tuned, say: other numbers in files of the same sizes.
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::copy(golden("bert").join("config.json"), other.join("config.json")).unwrap();
    let mut weights = fs::read(golden("bert").join("model.safetensors")).unwrap();
    *weights.last_mut().unwrap() ^= 1;
    fs::write(other.join("model.safetensors"), weights).unwrap();
    planish(["verify", text(&out), "--reference", text(&other)])
        .exits(1, &["model.safetensors", "is not what the artifact", "out was compiled from"]);
}

#[test]
fn without_onnx_runtime_the_exit_code_is_4() {
    let (folder, out) = artifact("bert");
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let inputs = inputs("bert", folder.path());
    let reference = golden("bert");
    let run = ["run", text(&out), "--inputs", text(&inputs)];
    let verify = ["verify", text(&out), "--reference", text(&reference)];
    let unverified = folder.path().join("unverified");
    let compile = ["compile", text(&reference), "-o", text(&unverified), "--verify"];
    for arguments in [&run[..], &verify, &compile] {
        let missing = [arguments, &["--runtime-option", "ort-lib=/nonexistent"]].concat();
        planish(missing).exits(
            4,
            &["`ort` is unavailable", "looked at /nonexistent (--runtime-option ort-lib)", "PLANISH_ORT_LIB"],
        );
        let in_empty = format!("ort-lib={}", text(&empty));
        planish([arguments, &["--runtime-option", &in_empty]].concat())
            .exits(4, &["looked at", text(&empty), "no libonnxruntime.so"]);
        let config = reference.join("config.json");
        let no_library = format!("ort-lib={}", text(&config));
        planish([arguments, &["--runtime-option", &no_library]].concat()).exits(4, &["looked at", "config.json"]);
    }
    assert_eq!(names(folder.path()), ["empty", "inputs.safetensors", "out"]);
    // It is noticed before anything is read.
    let nowhere = ["compile", "/nowhere", "--verify", "--runtime-option", "ort-lib=/nonexistent"];
    planish(nowhere).exits(4, &["looked at /nonexistent"]);
    // Without being told where, every place is named.
    let mut command = crate::support::command(run);
    let done = command.env("PLANISH_ORT_LIB", "/nowhere/else").output().unwrap();
    crate::support::Done::from(done).exits(4, &["looked at /nowhere/else (PLANISH_ORT_LIB)"]);
}

#[test]
fn runtimes_are_listed_with_their_places() {
    let list = |library: &str| {
        let text = planish(["runtimes", "--json", "--runtime-option", &format!("ort-lib={library}")]).succeeds().stdout;
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let library = repository().join(".deps/onnxruntime");
    let found = list(text(&library));
    assert_eq!((&found[0]["name"], &found[0]["available"]), (&"reference".into(), &true.into()));
    assert_eq!((&found[1]["name"], &found[1]["available"]), (&"ort".into(), &true.into()));
    assert!(found[1]["location"].as_str().unwrap().contains("libonnxruntime.so"), "{found}");
    let lost = list("/nonexistent");
    assert_eq!(lost[1]["available"], Value::Bool(false));
    assert!(lost[1]["problem"].as_str().unwrap().contains("looked at /nonexistent"), "{lost}");
    let shown = planish(["runtimes", "--runtime-option", &format!("ort-lib={}", text(&library))]).succeeds().stdout;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("reference ") && lines[1].contains(".deps/onnxruntime"), "{shown}");
    // The library here is built for CPUs.
    assert!(lines[2].starts_with("ort-cuda ") && lines[2].contains("built without the CUDA provider"), "{shown}");
    assert!(lines[3].contains("onnxruntime-gpu"), "{shown}");
    assert!(lines[4].starts_with("openvino ") && lines[5].starts_with("trt "), "{shown}");
}
