//! Artifacts for Transformers.js. That the library runs them is a matter of tests/compat.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{golden, names, planish, planish_compile, repository, scratch, text};

const PACKAGE: &[&str] = &["--package", "transformers-js"];

#[test]
fn both_decoders_are_in_one_graph_too() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("t5"), &out, &[PACKAGE, &["--verify"]].concat()).succeeds();
    let graphs =
        ["decoder_model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx", "encoder_model.onnx"];
    assert_eq!(names(&out.join("onnx")), graphs);
    let manifest: Value = serde_json::from_slice(&fs::read(out.join("planish.json")).unwrap()).unwrap();
    assert_eq!(manifest["runtime_package"], "transformers-js");
    assert_eq!(manifest["merged"], "onnx/decoder_model_merged.onnx");
    let files = manifest["files"].as_array().unwrap();
    let recorded = files.iter().find(|file| file["name"] == manifest["merged"]).unwrap();
    assert_eq!(recorded["bytes"], fs::metadata(out.join("onnx").join(graphs[1])).unwrap().len());
    // Both of its branches are compared with the source.
    let cases = manifest["verification"]["cases"].as_array().unwrap();
    let merged = cases.iter().filter(|case| case["label"].as_str().unwrap().contains("in the graph of both decoders"));
    let labels: Vec<&str> = merged.filter_map(|case| case["label"].as_str()?.split(',').next()).collect();
    assert!(labels.contains(&"decoder_model") && labels.contains(&"decoder_with_past_model"), "{labels:?}");
    let bytes = |name: &str| fs::metadata(out.join("onnx").join(name)).unwrap().len();
    // Weights of both are stored once.
    assert!(bytes(graphs[1]) < bytes(graphs[0]) + bytes(graphs[2]) / 2);
    // Weights of 4 bits are in files beside the decoders, and within the graph of both.
    let rounded = folder.path().join("rounded");
    planish_compile(
        &golden("t5"),
        &rounded,
        &[PACKAGE, &["--target", "ort", "--int4", "--recipe", "block-size=16"]].concat(),
    )
    .succeeds();
    assert!(names(&rounded.join("onnx")).iter().any(|name| name == graphs[1]));
    // Each branch has the blocks that ONNX Runtime multiplies by one operator, and the reference runs both too.
    for precision in [&["--int4", "--recipe", "block-size=16"][..], &["--fp16"]] {
        let more = [PACKAGE, &["--target", "onnx", "--verify"], precision].concat();
        planish_compile(&golden("t5"), &folder.path().join("onnx"), &more).exits(0, &[]);
    }
}

#[test]
fn a_model_of_one_graph_is_in_the_folder_that_the_library_looks_into() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("bert"), &out, PACKAGE).succeeds();
    assert_eq!(names(&out.join("onnx")), ["model.onnx"]);
    assert!(names(&out).contains(&"config.json".to_owned()));
    planish_compile(&golden("bert"), &out, &[PACKAGE, &["--target", "trt"]].concat())
        .exits(2, &["--package transformers-js: Transformers.js loads ONNX files"]);
}

/// The manifest of an artifact, and the member of config.json that the library reads.
fn documents(out: &Path) -> (Value, Value) {
    let read = |name: &str| -> Value { serde_json::from_slice(&fs::read(out.join(name)).unwrap()).unwrap() };
    (read("planish.json"), read("config.json")["transformers.js_config"].clone())
}

#[test]
fn one_call_makes_all_variants() {
    let folder = scratch();
    let (out, q8, q4) = (folder.path().join("out"), folder.path().join("q8"), folder.path().join("q4"));
    let variants =
        [PACKAGE, &["--variants", "fp32,fp16,q8,q4,q4f16", "--recipe", "block-size=16", "--verify"]].concat();
    planish_compile(&golden("llama"), &out, &variants).exits(0, &[]);
    let graphs = ["model.onnx", "model_fp16.onnx", "model_q4.onnx", "model_q4f16.onnx", "model_quantized.onnx"];
    let found: Vec<String> = names(&out.join("onnx")).into_iter().filter(|name| name.ends_with(".onnx")).collect();
    assert_eq!(found, graphs);
    let (manifest, config) = documents(&out);
    assert_eq!(manifest["variant"], "fp32");
    let beside = manifest["variants"].as_array().unwrap();
    let member = |key: &str| beside.iter().map(|variant| variant[key].clone()).collect::<Vec<Value>>();
    assert_eq!(member("name"), ["fp16", "q8", "q4", "q4f16"]);
    assert_eq!(member("precision"), ["fp16", "f32", "f32", "fp16"]);
    assert!(member("verification").iter().all(|report| !report["cases"].as_array().unwrap().is_empty()));
    // Both defaults of the library are there, so config.json names none.
    assert!(config.get("dtype").is_none(), "{config}");
    let data: Vec<String> = names(&out.join("onnx")).into_iter().filter(|name| name.ends_with("_data")).collect();
    let declared = config["use_external_data_format"].as_object().map_or_else(Vec::new, |files| files.keys().collect());
    assert_eq!(data, declared.iter().map(|graph| format!("{graph}_data")).collect::<Vec<String>>());
    // A variant is what a call for its precision makes.
    for (one, options, file) in [
        (&q8, &["--int8"][..], "model_quantized.onnx"),
        (&q4, &["--int4", "--recipe", "block-size=16"], "model_q4.onnx"),
    ] {
        planish_compile(&golden("llama"), one, &[PACKAGE, options].concat()).exits(0, &[]);
        let bytes = |path: &Path| fs::metadata(path).unwrap().len();
        let (alone, among) = (bytes(&one.join("onnx/model.onnx")), bytes(&out.join("onnx").join(file)));
        // Names of files of weights differ.
        assert!(alone.abs_diff(among) < 256, "{file}: {alone} and {among} bytes");
    }
    let verified = planish(["verify", text(&out)]).exits(0, &[]).stdout;
    for variant in ["fp16", "q8", "q4", "q4f16"] {
        assert!(verified.contains(&format!("variant {variant}:")), "{verified}");
    }
    let lines = planish(["verify", text(&out), "--json", "--max-length", "4"]).exits(0, &[]).stdout;
    let lines: Vec<Value> = serde_json::Deserializer::from_str(&lines).into_iter().map(Result::unwrap).collect();
    assert_eq!(
        lines.iter().map(|line| line["variant"].clone()).collect::<Vec<_>>(),
        [json!(null), json!("fp16"), json!("q8"), json!("q4"), json!("q4f16")]
    );
    let page = folder.path().join("page.html");
    planish(["inspect", text(&out), "--html", text(&page)]).exits(0, &[]);
    let page = fs::read_to_string(page).unwrap();
    let section = page.split_once("id=\"variants\"").unwrap().1;
    assert!(graphs.iter().all(|graph| section.contains(&format!("{graph} ("))), "{section}");
    let card = fs::read_to_string(out.join("README.md")).unwrap();
    for tag in ["f32", "fp16", "int8", "int4"] {
        assert_eq!(card.matches(&format!("\n- {tag}\n")).count(), 1, "{card}");
    }
}

/// Each variant is verified, whatever the others came to.
#[test]
fn a_variant_that_differs_hides_no_other() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("bert"), &out, &[PACKAGE, &["--variants", "fp32,fp16"]].concat()).exits(0, &[]);
    fs::write(out.join("onnx/model.onnx"), "cut off").unwrap();
    let done = planish(["verify", text(&out), "--max-length", "4"]).exits(1, &["variant fp32: ", "has 7 bytes"]);
    assert!(done.stdout.contains("variant fp16:") && done.stdout.contains("verified against"), "{}", done.stdout);
}

#[test]
fn the_first_variant_is_the_artifact() {
    let folder = scratch();
    let out = folder.path().join("out");
    let done =
        planish_compile(&golden("t5"), &out, &[PACKAGE, &["--variants", "q8,fp16", "--verify", "--json"]].concat())
            .exits(0, &[]);
    let printed: Value = serde_json::from_str(&done.stdout).unwrap();
    let (manifest, config) = documents(&out);
    assert_eq!(printed["manifest"], manifest);
    assert_eq!((&manifest["variant"], &config["dtype"]), (&json!("q8"), &json!("q8")));
    assert_eq!(manifest["merged"], "onnx/decoder_model_merged_quantized.onnx");
    assert_eq!(manifest["variants"][0]["merged"], "onnx/decoder_model_merged_fp16.onnx");
    let parts = ["decoder_model", "decoder_model_merged", "decoder_with_past_model", "encoder_model"];
    let expected: Vec<String> =
        parts.iter().flat_map(|part| ["fp16", "quantized"].map(|end| format!("{part}_{end}.onnx"))).collect();
    let mut found = names(&out.join("onnx"));
    found.retain(|name| name.ends_with(".onnx"));
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    assert_eq!(sorted(found), sorted(expected));
    // The rest of config.json keeps its bytes.
    let (source, written) = (golden("t5").join("config.json"), out.join("config.json"));
    let [source, written] = [source, written].map(|path| fs::read_to_string(path).unwrap());
    assert!(written.starts_with(source.trim_end().trim_end_matches('}').trim_end()), "{written}");
    planish(["verify", text(&out)]).exits(0, &[]);
}

#[test]
fn what_variants_cannot_be_is_refused() {
    let folder = scratch();
    let out = folder.path().join("out");
    let refused = |more: &[&str], parts: &[&str]| {
        planish_compile(&golden("bert"), &out, more).exits(2, parts);
        assert!(!out.exists());
    };
    refused(&["--variants", "fp32,q8"], &["add --package transformers-js"]);
    refused(
        &[PACKAGE, &["--variants", "bnb4"]].concat(),
        &["planish makes no bnb4; its variants are fp32, fp16, q8, q4, q4f16"],
    );
    refused(
        &[PACKAGE, &["--variants", "fp32,q8", "--int8"]].concat(),
        &["--variants says the precision of each form; leave out --int8"],
    );
    refused(&[PACKAGE, &["--variants", "q8", "--weights", "link"]].concat(), &["leave it out with --variants"]);
    refused(&[PACKAGE, &["--variants", "q8", "--debug", "stop=1"]].concat(), &["leave --variants out"]);
    refused(
        &[PACKAGE, &["--opset", "24"]].concat(),
        &["writes opset 23 or older", "and not opset 24; give --opset 23"],
    );
    refused(&["--cache", "copy"], &["--cache is now --recipe cache=copy or cache=in-place"]);
}

#[test]
fn a_quantized_artifact_has_no_variants() {
    let folder = scratch();
    let (codes, out) = (folder.path().join("codes"), folder.path().join("out"));
    planish_compile(&golden("bert"), &codes, &["--int8"]).exits(0, &[]);
    planish_compile(&codes, &out, &[PACKAGE, &["--variants", "fp32,q8"]].concat())
        .exits(2, &["is quantized already; compile the checkpoint"]);
    assert!(!out.exists());
}

/// onnxruntime-web has an operator for tables of blocks on GPUs only.
#[test]
fn tables_have_no_blocks() {
    let folder = scratch();
    let out = folder.path().join("out");
    let gguf = repository().join("fixtures/quantized/gguf-llama/model.gguf");
    let operator = "GatherBlockQuantized";
    let has_blocks = || {
        let graph = fs::read(out.join("onnx/model.onnx")).unwrap();
        graph.windows(operator.len()).any(|name| name == operator.as_bytes())
    };
    planish_compile(&gguf, &out, PACKAGE).exits(0, &["onnxruntime-web has no GatherBlockQuantized"]);
    assert!(has_blocks());
    planish_compile(&gguf, &out, &[PACKAGE, &["--int4", "--recipe", "requantize=true"]].concat()).exits(0, &[]);
    assert!(!has_blocks());
}

#[test]
fn a_variant_that_misses_leaves_nothing() {
    let folder = scratch();
    let out = folder.path().join("out");
    // Feature maps of this one leave the range of float16, which target onnx computes in.
    let more = ["--target", "onnx", "--variants", "fp32,fp16", "--verify"];
    let done = planish_compile(&golden("detr"), &out, &[PACKAGE, &more].concat());
    done.exits(3, &["variant fp16", "nothing was written"]);
    assert_eq!(names(folder.path()), [""; 0]);
}
