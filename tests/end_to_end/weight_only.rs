//! Compiling with --int4 and --int8-weights: weights are codes with a scale for each block, and activations stay floats.

use std::fs;
use std::path::{Path, PathBuf};

use planish::artifact::evaluation::{Evaluation, Figure};
use planish::artifact::manifest::{Manifest, PartManifest};
use planish_ir::DType;
use planish_passes::quantize::{PlannedWeight, WeightForm, WeightMethod};
use safetensors::tensor::Dtype;
use serde_json::Value;

use crate::calibrate::with_tokenizer;
use crate::determinism::same_bytes;
use crate::generate::{artifact, ids};
use crate::support::{Draft, Stored, golden, planish, planish_compile, scratch, text};

fn weights(folder: &Path) -> Vec<PlannedWeight> {
    let manifest = Manifest::read(folder).unwrap();
    let plan = |part: &PartManifest| part.weights.clone().unwrap().weights;
    manifest.parts.iter().flat_map(plan).collect()
}

fn codes(of: &[PlannedWeight], name: &str) -> Option<DType> {
    of.iter().find(|planned| planned.weight.contains(name)).unwrap_or_else(|| panic!("{name}")).form.codes()
}

/// Decoders, encoders and encoder-decoders, with blocks of every kind, against the reference interpreter.
#[test]
fn artifacts_verify_on_each_target() {
    for (name, target, more) in [
        ("llama", "ort", &["--int4", "--recipe", "block-size=16"][..]),
        ("llama", "onnx", &["--int4", "--recipe", "block-size=16"]),
        ("llama", "ort", &["--int4", "--recipe", "block-size=16", "--fp16"]),
        ("llama", "onnx", &["--int4", "--recipe=zero-points=true", "--recipe", "block-size=16", "--opset", "21"]),
        ("qwen2", "ort", &["--int8-weights", "--recipe", "accuracy-level=float"]),
        ("qwen2", "ort", &["--int4", "--recipe=zero-points=true", "--recipe", "weight-method=hqq"]),
        ("gpt2", "ort", &["--int8-weights", "--recipe", "block-size=row"]),
        ("gpt2", "ort", &["--int8-weights", "--recipe=zero-points=true", "--recipe", "block-size=128"]),
        ("bert", "ort", &["--int8-weights"]),
        // Codes of experts need a later opset than those of layers.
        ("gpt-oss", "ort", &["--int4", "--recipe", "block-size=16"]),
        ("t5", "ort", &["--int8-weights", "--recipe", "weight-method=nearest"]),
    ] {
        let folder = scratch();
        let out = folder.path().join("out");
        let more = [&["--target", target, "--verify"], more].concat();
        planish_compile(&golden(name), &out, &more).exits(0, &[]);
        assert!(weights(&out).iter().any(|planned| planned.form.codes().is_some()), "{name} {more:?}");
        planish(["verify", text(&out)]).exits(0, &[]);
    }
}

/// The reference interpreter computes what ONNX Runtime computes, up to the rounding of floats.
#[test]
fn the_interpreter_computes_the_operators_too() {
    for more in [
        &["--int4", "--recipe", "block-size=16"][..],
        &["--int4", "--recipe=zero-points=true", "--recipe", "block-size=16"],
        &["--int8-weights"],
    ] {
        let folder = scratch();
        let out = folder.path().join("out");
        planish_compile(&golden("llama"), &out, &[more, &["--recipe", "accuracy-level=float"]].concat()).exits(0, &[]);
        let (model, again) = (out.join("model.onnx"), folder.path().join("again"));
        // The graph is compiled as it is, and held against itself on the interpreter.
        planish_compile(&model, &again, &["--verify"]).exits(0, &[]);
    }
}

#[test]
fn each_weight_has_the_bits_that_are_asked_for() {
    let folder = scratch();
    let compile = |more: &[&str]| {
        let out = folder.path().join("out");
        planish_compile(&golden("llama"), &out, &[&["--force", "--recipe", "block-size=16"], more].concat())
            .exits(0, &[]);
        weights(&out)
    };
    let usual = compile(&["--int4"]);
    assert_eq!(codes(&usual, "layers.0.mlp.down_proj"), Some(DType::I4));
    assert_eq!(codes(&usual, "lm_head"), Some(DType::I8));
    assert_eq!(codes(&usual, "embed_tokens"), Some(DType::I8));
    let other = compile(&["--int4", "--keep", "@head=int4", "--keep", "@table=float", "--keep", "down_proj=int8"]);
    assert_eq!(codes(&other, "layers.0.mlp.down_proj"), Some(DType::I8));
    assert_eq!(codes(&other, "layers.0.mlp.up_proj"), Some(DType::I4));
    assert_eq!((codes(&other, "lm_head"), codes(&other, "embed_tokens")), (Some(DType::I4), None));
    let kept = compile(&["--int8-weights", "--recipe=zero-points=true", "--keep", "mlp", "--keep", "o_proj=float"]);
    assert_eq!(codes(&kept, "q_proj"), Some(DType::U8));
    assert_eq!((codes(&kept, "mlp.up_proj"), codes(&kept, "o_proj")), (None, None));
    let reason = |name: &str| match &kept.iter().find(|w| w.weight.contains(name)).unwrap().form {
        WeightForm::Float { reason } => reason.clone(),
        form => panic!("{form}"),
    };
    assert_eq!(reason("mlp.up_proj"), "`mlp` of keep matches");
    assert_eq!(reason("o_proj"), "`o_proj` of keep matches");
    // A tied table is the head.
    let tied = folder.path().join("tied");
    planish_compile(&golden("gpt2"), &tied, &["--int4", "--recipe", "block-size=16"]).exits(0, &[]);
    assert_eq!(codes(&weights(&tied), "wte"), Some(DType::I8));
}

/// GPT-2's weights are [in, out].
#[test]
fn blocks_are_along_the_inputs_of_a_layer() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("gpt2"), &out, &["--int4", "--recipe", "block-size=256"]).succeeds();
    let weights = weights(&out);
    let block = |name: &str| {
        let weight = weights.iter().find(|weight| weight.weight.ends_with(name)).unwrap();
        let WeightForm::Blocks { block, .. } = &weight.form else { panic!("{name} is a float") };
        *block
    };
    // 48 and 192 inputs, filled up to powers of two.
    assert_eq!(
        ["attn.c_attn.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"].map(block),
        [Some(64), Some(64), Some(256)]
    );
}

/// The head and the table of tokens have a tensor each, and both point at the same bytes.
#[test]
fn a_tied_table_is_written_once() {
    let (folder, mut draft) = (scratch(), Draft::of("gpt2"));
    let (vocabulary, hidden) = (30_000, 48);
    let element = |at: usize| ((at * 7919 % 1000) as f32 / 500.0 - 1.0).to_le_bytes();
    let bytes = (0..vocabulary * hidden).flat_map(element).collect();
    let table = Stored { dtype: Dtype::F32, shape: vec![vocabulary, hidden], bytes };
    draft.tensors.insert("transformer.wte.weight".to_owned(), table);
    draft.config["vocab_size"] = vocabulary.into();
    let model = draft.write(folder.path().join("model"));
    let out = folder.path().join("out");
    planish_compile(&model, &out, &["--int8-weights", "--recipe", "block-size=16", "--verify"]).exits(0, &[]);
    let bytes = fs::metadata(out.join("model.onnx_data")).unwrap().len() as usize;
    let scales = vocabulary * hidden / 16 * 4;
    assert!((vocabulary * hidden + scales..3 * vocabulary * hidden / 2).contains(&bytes), "{bytes}");
    // A graph with such tensors is read as well.
    planish_compile(&out.join("model.onnx"), &folder.path().join("again"), &["--verify"]).exits(0, &[]);
}

/// Twenty texts of twelve words.
fn texts(folder: &Path) -> PathBuf {
    let data = folder.join("data.txt");
    let line = |at: usize| (0..12).map(|i| format!("w{}", 2 + (at * 31 + i * 17) % 128)).collect::<Vec<_>>().join(" ");
    fs::write(&data, (0..20).map(|at| line(at) + "\n").collect::<String>()).unwrap();
    data
}

#[test]
fn data_chooses_codes() {
    let folder = scratch();
    let model = with_tokenizer("llama", 131, folder.path());
    let data = texts(folder.path());
    let loss = |method: &str| {
        let out = folder.path().join(method);
        let calibrate: &[&str] = if method == "nearest" { &[] } else { &["--calibrate", text(&data)] };
        let method_recipe = format!("weight-method={method}");
        let more = [&["--int4", "--recipe", &method_recipe, "--keep", "@head=float"], calibrate].concat();
        planish_compile(&model, &out, &more).exits(0, &[]);
        let planned = weights(&out);
        let methods = planned.iter().filter_map(|w| match &w.form {
            WeightForm::Blocks { method, .. } => Some(*method),
            WeightForm::Float { .. } | WeightForm::Rows { .. } => None,
        });
        // Data says nothing of a table of tokens alone.
        let wanted = if method == "gptq" { WeightMethod::Gptq } else { WeightMethod::Awq };
        assert_eq!(methods.filter(|found| *found == wanted).count() > 0, method != "nearest", "{method}");
        let report = planish(["evaluate", text(&out), "--data", text(&data), "--lines", "--json"]).exits(0, &[]);
        let report: Evaluation = serde_json::from_str(&report.stdout).unwrap();
        report.figure(Figure::Divergence).unwrap()
    };
    let [nearest, gptq, awq] = ["nearest", "gptq", "awq"].map(loss);
    assert!(gptq < nearest / 2.0 && awq > 0.0, "{gptq} {awq} {nearest}");
}

/// Weights get 8 bits, or stay floats, until limits are met on other data.
#[test]
fn limits_choose_the_bits_of_weights() {
    let folder = scratch();
    let model = with_tokenizer("llama", 131, folder.path());
    let data = texts(folder.path());
    let compile_with = |bits: &str, limit: &str, more: &[&str]| {
        let out = folder.path().join("out");
        let usual = [bits, "--force", "--evaluate", text(&data), "--max-loss", limit];
        (planish_compile(&model, &out, &[&usual, more].concat()), out)
    };
    let compile = |bits: &str, limit: &str| compile_with(bits, limit, &[]);
    let (done, out) = compile("--int4", "kl=1");
    done.exits(0, &[]);
    let narrow = weights(&out).iter().filter(|planned| planned.form.codes() == Some(DType::I4)).count();
    let report = Manifest::read(&out).unwrap().evaluation.unwrap();
    let half = format!("kl={}", report.figure(Figure::Divergence).unwrap() / 2.0);
    let (done, out) = compile("--int4", &half);
    done.exits(0, &[]);
    let planned = weights(&out);
    let kept = planned.iter().filter(|planned| planned.form.to_string().contains("chosen by --max-loss: kl ")).count();
    let left = planned.iter().filter(|planned| planned.form.codes() == Some(DType::I4)).count();
    assert!(kept > 0 && left > 0 && kept + left == narrow, "{kept} {left} {narrow}");
    planish(["verify", text(&out)]).exits(0, &[]);

    let (done, out) = compile("--int8-weights", "kl=1e-9");
    done.exits(0, &[]);
    assert!(weights(&out).iter().any(|planned| planned.form.to_string().starts_with("float: chosen by --max-loss")));
    let (done, _) = compile("--int4", "kl=-1");
    done.exits(
        3,
        &["no set of weights of 8 bits meets --max-loss", &format!("even with all {narrow} of 8 bits, kl is")],
    );
    // What 4 bits become does not depend on how many weights have them.
    let others = ["--keep", "[qkvo]_proj|gate_proj=int8"];
    let (done, out) = compile_with("--int4", &half, &others);
    done.exits(0, &[]);
    assert!(weights(&out).iter().all(|planned| !planned.form.to_string().starts_with("float: chosen")));
    let (done, _) = compile_with("--int4", "kl=-1", &[&others[..], &["--json"]].concat());
    let done = done.exits(3, &["no set of weights of 8 bits meets --max-loss"]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let figures = &document["manifest"]["evaluation"]["predictions"];
    assert!(document["artifact"].is_null() && figures["mean_divergence"].is_number(), "{}", done.stdout);
}

#[test]
fn the_bytes_do_not_depend_on_threads() {
    same_bytes(&golden("qwen2"), &["--int4"]);
}

/// A cache that is appended to in place, and weights of 4 bits.
#[test]
fn generation_gives_the_same_ids_with_both_forms_of_the_cache() {
    let (_a, copying) = artifact(&golden("llama"), &["--int4", "--recipe", "block-size=16"]);
    let (_b, in_place) =
        artifact(&golden("llama"), &["--int4", "--recipe", "block-size=16", "--recipe", "cache=in-place"]);
    let more = ["--ids", "5,6,7,8,9", "--max-new-tokens", "20", "--set=ignore_eos"];
    assert_eq!(ids(&copying, &more), ids(&in_place, &more));
    assert_eq!([&copying, &in_place].map(|folder| Manifest::read(folder).unwrap().opset), [20, 23]);
}

/// What an option leaves as it is gets a warning.
#[test]
fn options_that_change_nothing_say_so() {
    let folder = scratch();
    let out = folder.path().join("out");
    let warned = |model: &Path, more: &[&str], parts: &[&str]| {
        let done = planish_compile(model, &out, &[&["--force"], more].concat());
        done.exits(0, parts);
    };
    let llama = golden("llama");
    warned(&llama, &["--int4", "--keep", "@head=int8", "--keep", "."], &["--keep @head changed nothing"]);
    warned(&llama, &["--int4", "--keep", "."], &["--int4 quantized nothing", "of keep matches"]);
    assert!(weights(&out).iter().all(|planned| planned.form.codes().is_none()));
}

/// A pattern that names nothing is an error, with names that are like it.
#[test]
fn what_is_kept_has_to_be_there() {
    let folder = scratch();
    let refused = |model: &str, more: &[&str], parts: &[&str]| {
        planish_compile(&golden(model), &folder.path().join("out"), more).exits(1, parts);
    };
    let misspelt = ["--keep `dwon_proj`: nothing is named so", "like it are `", "down_proj"];
    refused("llama", &["--int4", "--keep", "dwon_proj=int8"], &misspelt);
    refused("bert", &["--int4", "--keep", "@head=int4"], &["--keep @head: planish found no layer that scores tokens"]);
}

/// Of the entries of --keep that name a weight the last one counts, whether it is a pattern or the head.
#[test]
fn the_last_entry_that_names_a_weight_counts() {
    let bits = |keep: &[&str]| {
        let keep: Vec<String> = keep.iter().map(|keep| format!("--keep={keep}")).collect();
        let words: Vec<&str> = ["--int4"].into_iter().chain(keep.iter().map(String::as_str)).collect();
        let folder = scratch();
        let out = folder.path().join("out");
        planish_compile(&golden("llama"), &out, &words).exits(0, &[]);
        let of = |name: &str| {
            let weights = weights(&out);
            let planned = weights.iter().find(|planned| planned.weight.contains(name)).unwrap();
            planned.form.codes().map(|codes| codes.bits())
        };
        [of("lm_head"), of("layers.0.mlp.down_proj")]
    };
    assert_eq!(bits(&["@head=int4", "lm_head=float"]), [None, Some(4)]);
    assert_eq!(bits(&["lm_head=float", "@head=int4"]), [Some(4), Some(4)]);
    assert_eq!(bits(&[".=float", "down_proj=int8", "@head=int8"]), [Some(8), Some(8)]);
}

/// Data of --calibrate that is held out judges the artifact, also where no method takes the rest.
#[test]
fn weights_are_judged_on_data_that_is_held_out() {
    let folder = scratch();
    let model = with_tokenizer("llama", 131, folder.path());
    let data = texts(folder.path());
    let out = folder.path().join("out");
    for more in [&["--verify"][..], &["--max-loss", "cos=0.9"], &["--verify", "--recipe", "weight-method=gptq"]] {
        let more = [&["--int4", "--force", "--calibrate", text(&data)], more].concat();
        planish_compile(&model, &out, &more).exits(0, &[]);
        let evaluation = Manifest::read(&out).unwrap().evaluation.unwrap();
        assert_eq!(evaluation.samples, 4);
        assert!(evaluation.figure(Figure::Cosine).unwrap() > 0.9);
    }
    planish_compile(&model, &folder.path().join("no"), &["--int4", "--calibrate", text(&data)])
        .exits(2, &["--calibrate gives data to"]);
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let folder = scratch();
    let out = folder.path().join("out");
    let refused = |more: &[&str], parts: &[&str]| {
        planish_compile(&golden("llama"), &out, more).exits(2, parts);
        assert!(!out.exists());
    };
    refused(&["--int4", "--int8"], &["--precision takes one of int8 and int4"]);
    refused(&["--recipe", "block-size=32"], &["int4"]);
    refused(&["--int4", "--recipe", "block-size=48"], &["expected 16, 32, 64, 128, 256 or row"]);
    refused(&["--int4", "--keep", "down_proj=int3"], &["`int3` is none of the types fp32, float, int8, int4"]);
    refused(
        &["--int4", "--recipe", "weight-method=gptq"],
        &["--recipe weight-method=gptq needs data", "--calibrate FILE"],
    );
    refused(
        &["--int4", "--recipe=zero-points=true", "--target", "trt"],
        &["--recipe zero-points is not for target trt"],
    );
    refused(&["--int4", "--keep", "@table=int8", "--target", "onnx"], &["--keep @table=int8 is not for target onnx"]);
    refused(&["--int4", "--recipe", "split-columns=4"], &["--recipe split-columns is for --precision int8;"]);
    refused(&["--int4", "--max-loss", "cos=0.99"], &["--max-loss needs data that was held out"]);
    refused(
        &["--int4", "--target", "cuda"],
        &["target cuda has no products with weights of 4 or 8 bits", "choose another target"],
    );
    refused(
        &["--int4", "--recipe", "accuracy-level=float", "--target", "onnx"],
        &["--recipe accuracy-level is not for target onnx"],
    );
    // DequantizeLinear has blocks from opset 21 on.
    planish_compile(&golden("llama"), &out, &["--int4", "--target", "onnx", "--opset", "20"])
        .exits(1, &["needs opset 21", "--opset"]);
}

/// ONNX Runtime runs MatMulNBits at any opset.
#[test]
fn operators_of_opset_28_that_onnx_runtime_has_no_kernels_for_are_named() {
    let folder = scratch();
    let warning = "no kernels for the QuantizeLinear and DequantizeLinear of opset 28; it runs those of opset 27";
    for (target, opset, is_warned) in [("onnx", "28", true), ("onnx", "27", false), ("ort", "28", false)] {
        let out = folder.path().join(format!("{target}-{opset}"));
        let done = planish_compile(&golden("llama"), &out, &["--int4", "--target", target, "--opset", opset]);
        assert_eq!(done.exits(0, &[]).stderr.contains(warning), is_warned, "{target} {opset}");
    }
}
