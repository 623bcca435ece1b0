//! Compiling with --int8 and --fp8: refusals, plans, evaluation on data that was held out, and inputs that stay in float.

use std::fs;
use std::path::{Path, PathBuf};

use planish::artifact::evaluation::{Evaluation, Figure};
use planish::artifact::manifest::Manifest;
use planish::artifact::split::Split;
use planish_ir::DType;
use planish_passes::quantize::{Activation, PlannedInput};
use serde_json::{Value, json};

use crate::calibrate::{planish_calibrate, stored_inputs, with_tokenizer};
use crate::determinism::same_bytes;
use crate::support::{Done, golden, planish_compile, scratch, text};

/// So many texts of four words each.
fn lines(count: usize) -> String {
    let word = |line: usize, place: usize| format!("w{}", 2 + (line * 31 + place * 17) % 128);
    (0..count).map(|line| (0..4).map(|place| word(line, place)).collect::<Vec<_>>().join(" ") + "\n").collect()
}

/// A small BERT with data of ten texts to calibrate on, and others to evaluate on.
struct Bert {
    folder: tempfile::TempDir,
    model: PathBuf,
}

impl Bert {
    fn new() -> Self {
        let folder = scratch();
        let model = with_tokenizer("bert", 131, folder.path());
        fs::write(folder.path().join("ten.txt"), lines(10)).unwrap();
        fs::write(folder.path().join("others.txt"), lines(17).split_at(lines(10).len()).1).unwrap();
        Self { folder, model }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn compile(&self, out: &str, more: &[&str]) -> Done {
        planish_compile(&self.model, &self.path(out), more)
    }

    /// With --int8, calibrated on the ten texts.
    fn int8(&self, out: &str, more: &[&str]) -> Done {
        let ten = self.path("ten.txt");
        self.compile(out, &[&["--int8", "--calibrate", text(&ten)], more].concat())
    }

    fn manifest(&self, out: &str) -> Manifest {
        Manifest::read(&self.path(out)).unwrap()
    }
}

fn inputs(manifest: &Manifest) -> &[PlannedInput] {
    &manifest.parts[0].quantization.as_ref().unwrap().inputs
}

fn cosine(evaluation: &Evaluation) -> f64 {
    evaluation.figure(Figure::Cosine).unwrap()
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let bert = Bert::new();
    let ten = bert.path("ten.txt");
    let plan = bert.path("plan.json");
    let refused = |more: &[&str], parts: &[&str]| {
        bert.compile("out", more).exits(2, parts);
        assert!(!bert.path("out").exists());
    };
    refused(
        &["--int8", "--target", "onnx"],
        &["--int8 for target onnx needs data", "--calibrate FILE", "--target ort"],
    );
    refused(&["--fp8", "--target", "onnx"], &["--calibrate"]);
    refused(&["--int8", "--fp8"], &["--precision takes one of int8 and fp8"]);
    refused(
        &["--int8", "--calibrate", text(&ten), "--recipe", "smooth=2"],
        &["expected off, auto, or a number from 0 to 1"],
    );
    let applied = format!("plan={}", plan.display());
    let apply = ["--int8", "--recipe", &applied, "--recipe", "split-columns=4"];
    refused(&apply, &["--recipe plan says", "leave --recipe split-columns out"]);
    refused(&["--int8", "--calibrate", text(&ten), "--keep", "("], &["--keep", "unclosed group"]);

    let (done, table) = planish_calibrate(&bert.model, &ten, &["--measure", "inputs"]);
    done.exits(0, &[]);
    let of_table = ["--int8", "--calibrate", text(&table)];
    let refused_too = |more: &[&str], parts: &[&str]| refused(&[&of_table, more].concat(), parts);
    refused_too(
        &["--recipe", "weight-method=gptq"],
        &["--recipe weight-method=gptq runs the calibration data", "is a table"],
    );
    refused_too(&["--max-loss", "cos=0.9"], &["--max-loss needs data that was held out", "--evaluate FILE"]);
    refused_too(&["--max-loss", "cosine=0.9"], &["there is no figure `cosine`"]);
    refused_too(&["--max-loss", "cos"], &["expected NAME=VALUE"]);
    refused_too(&["--max-loss", "kl=1", "--evaluate", text(&ten)], &["this evaluation has no `kl`; it has cos"]);
    refused(&["--int8", "--max-loss", "cos=0.9"], &["--max-loss needs data"]);
    refused(&["--max-loss", "cos=0.9"], &["--int8, --fp8"]);
    refused(&["--int8", "--field", "body"], &["--field body is for data"]);
}

#[test]
fn a_report_comes_with_the_artifact() {
    let bert = Bert::new();
    let others = bert.path("others.txt");
    let done = bert.int8("out", &["--evaluate", text(&others)]).succeeds();
    for part in
        ["calibrated on 10 samples of ten.txt\n", "evaluated on 7 samples of others.txt (BLAKE3 ", "cosine 0.99"]
    {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
    let manifest = bert.manifest("out");
    let evaluation = manifest.evaluation.unwrap();
    assert_eq!((evaluation.samples, evaluation.split, evaluation.tokens), (7, Split::All, Some(35)));
    assert!(cosine(&evaluation) < 1.0 - 1e-7, "quantization shows: {evaluation}");
    assert_eq!(manifest.calibration.unwrap().split, Split::All);

    // Any artifact can be evaluated, and without data nothing is.
    bert.compile("float", &["--evaluate", text(&others)]).succeeds();
    assert!(cosine(&bert.manifest("float").evaluation.unwrap()) > 0.999_999);
    bert.int8("plain", &[]).succeeds();
    assert!(bert.manifest("plain").evaluation.is_none());
    fs::write(bert.path("named.jsonl"), "{\"body\": \"w4 w5\"}\n").unwrap();
    let jsonl = bert.path("named.jsonl");
    let named = ["--int8", "--evaluate", text(&jsonl), "--field", "body"];
    bert.compile("named", &named).succeeds();
    bert.int8("named", &named[1..]).exits(1, &["--field is for .jsonl, .csv and .parquet files; "]);
    bert.int8("none", &["--evaluate", "/nowhere.txt"]).exits(1, &["cannot read /nowhere.txt"]);
    assert!(!bert.path("none").exists());
}

/// With codes whose sums of products saturate on no processor.
#[test]
fn verification_holds_data_out() {
    let bert = Bert::new();
    let done = bert.int8("out", &["--verify", "--recipe", "weight-scales=reduced"]).succeeds();
    assert!(done.stdout.contains("calibrated on 8 samples of ten.txt without every fifth sample\n"), "{}", done.stdout);
    assert!(done.stdout.contains("evaluated on 2 samples of ten.txt, every fifth sample (BLAKE3 "), "{}", done.stdout);
    let manifest = bert.manifest("out");
    assert_eq!(manifest.calibration.unwrap().split, Split::Rest);
    assert_eq!(manifest.evaluation.unwrap().split, Split::HeldOut);
    assert!(manifest.verification.is_some());

    // A plan that makes the scales far too large.
    let plan = bert.path("plan.json");
    bert.int8("out", &[]).succeeds();
    fs::copy(bert.path("out").join("planish.json"), &plan).unwrap();
    let mut coarse: Value = serde_json::from_slice(&fs::read(&plan).unwrap()).unwrap();
    for input in coarse["parts"][0]["quantization"]["inputs"].as_array_mut().unwrap() {
        input["scale"] = json!(200.0 * input["scale"].as_f64().unwrap());
    }
    fs::write(&plan, coarse.to_string()).unwrap();
    let applied = format!("plan={}", plan.display());
    let coarse = ["--verify", "--recipe", &applied];
    let done = bert.int8("coarse", &coarse).exits(3, &["nothing was written", "cos is 0.", "at least 0.99 required"]);
    assert!(done.stdout.contains("2 samples of ten.txt, every fifth sample"), "{}", done.stdout);
    let done = bert.int8("coarse", &[&coarse[..], &["--json"]].concat()).exits(3, &[]);
    let printed: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&printed["artifact"], &printed["manifest"]["evaluation"]["samples"]), (&Value::Null, &json!(2)));
    assert!(!bert.path("coarse").exists());

    fs::write(bert.path("ten.txt"), lines(4)).unwrap();
    bert.int8("few", &["--verify"]).exits(1, &["ten.txt has fewer than 5 samples", "--evaluate"]);
    bert.compile("dynamic", &["--int8", "--verify", "--recipe", "weight-scales=reduced"])
        .exits(0, &["no data is held out; add --evaluate FILE"]);
}

#[test]
fn reduced_scales_have_codes_of_7_bits() {
    let bert = Bert::new();
    let largest = |more: &[&str]| {
        bert.int8("out", &[&["--force"], more].concat()).succeeds();
        let graph = planish_onnx::import(&bert.path("out").join("model.onnx")).unwrap().graph;
        // Nothing is added up of products with the table of tokens.
        let matrices = graph.weights().filter(|(_, value, weight)| {
            weight.dtype() == DType::I8 && weight.shape().len() == 2 && !value.name.contains("word_embeddings")
        });
        matrices.flat_map(|(_, _, weight)| weight.read_numbers().unwrap()).fold(0.0, |most, code| code.abs().max(most))
    };
    assert_eq!(largest(&[]), 127.0);
    assert_eq!(largest(&["--recipe", "weight-scales=reduced"]), 64.0);
    assert_eq!(largest(&["--recipe", "weight-scales=reduced", "--recipe", "weight-method=gptq"]), 64.0);
}

#[test]
fn inputs_stay_in_float_until_the_limit_is_met() {
    let bert = Bert::new();
    let others = bert.path("others.txt");
    let evaluate = ["--evaluate", text(&others)];
    bert.int8("all", &evaluate).succeeds();
    let all = bert.manifest("all");
    let before = cosine(all.evaluation.as_ref().unwrap());
    let limit = 1.0 - (1.0 - before) / 2.0;
    let done = bert.int8("half", &[&evaluate[..], &["--max-loss", &format!("cos={limit}")]].concat()).succeeds();
    let half = bert.manifest("half");
    assert!(cosine(half.evaluation.as_ref().unwrap()) >= limit);
    let is_float = |input: &&PlannedInput| matches!(input.activation, Activation::Float { .. });
    let kept: Vec<&PlannedInput> = inputs(&half).iter().filter(is_float).collect();
    assert!((1..inputs(&all).len()).contains(&kept.len()), "{kept:?}");
    let change = format!("float: chosen by --max-loss: cos {before:.6} -> ");
    assert!(kept.iter().any(|input| input.activation.to_string().starts_with(&change)), "{kept:?}");
    for input in kept {
        let Activation::Float { reason } = &input.activation else { continue };
        assert!(reason.starts_with("chosen by --max-loss: cos 0."), "{reason}");
        assert!(done.stdout.contains(&input.value) && done.stdout.contains(reason), "{}", done.stdout);
    }

    // What is met at once changes nothing, and what cannot be met writes nothing.
    bert.int8("loose", &[&evaluate[..], &["--max-loss", "cos=0.5"]].concat()).succeeds();
    assert_eq!(inputs(&bert.manifest("loose")), inputs(&all));
    let done = bert.int8("never", &[&evaluate[..], &["--max-loss", "error=-1"]].concat());
    // The scores of an attention count as one input, and so does the table of tokens.
    let plan = all.parts[0].quantization.as_ref().unwrap();
    let count = inputs(&all).len() + plan.attention.len() + plan.weights.len();
    let best = format!("even with all {count} in float, error is 0.000000, at most -1 required");
    done.exits(3, &["nothing was written", "no set of inputs in float meets --max-loss", &best]);
    assert!(!bert.path("never").exists());

    // Every fifth text of the calibration data serves too, and so do scales of each run.
    bert.int8("split", &["--max-loss", &format!("cos={limit}")]).succeeds();
    let split = bert.manifest("split");
    let (calibration, evaluation) = (split.calibration.unwrap(), split.evaluation.unwrap());
    assert_eq!((calibration.samples, evaluation.samples), (8, 2));
    assert!(cosine(&evaluation) >= limit);
    let dynamic = [&["--int8", "--max-loss", "error=1e-4"], &evaluate[..]].concat();
    bert.compile("dynamic", &dynamic).exits(0, &["--int8 quantized nothing", "): chosen by --max-loss"]);
    assert!(bert.manifest("dynamic").evaluation.unwrap().figure(Figure::Error).unwrap() <= 1e-4);
}

#[test]
fn plans_have_the_loss_of_each_input() {
    let bert = Bert::new();
    let plan = bert.path("plan.json");
    let done = bert.int8("out", &["--explain=quantization"]).exits(0, &[]);
    let manifest = bert.manifest("out");
    for input in inputs(&manifest) {
        let loss = input.layer_loss.unwrap();
        assert!(loss > 0.0 && loss < 0.01, "{input:?}");
        let shown = format!("| {loss:.2e} |");
        let row = done.stderr.lines().find(|line| line.starts_with(&format!("| {} ", input.value))).unwrap();
        assert!(row.replace("  ", " ").replace("  ", " ").contains(&shown), "{row}: {shown}");
    }
    let mut edited: Value = serde_json::from_slice(&fs::read(bert.path("out").join("planish.json")).unwrap()).unwrap();
    edited["parts"][0]["quantization"]["inputs"][0]["layer_loss"] = json!(7.0);
    fs::write(&plan, edited.to_string()).unwrap();
    bert.int8("given", &["--recipe", &format!("plan={}", plan.display())]).succeeds();
    assert_eq!(inputs(&bert.manifest("given")), inputs(&manifest), "losses of a given plan are ignored");

    let done = bert.compile("dynamic", &["--int8", "--explain=quantization"]).exits(0, &["| loss |"]);
    assert!(done.stderr.contains("| -    |"), "{}", done.stderr);
    assert!(inputs(&bert.manifest("dynamic")).iter().all(|input| input.layer_loss.is_none()));
    bert.compile("fp8", &["--fp8", "--target", "onnx", "--calibrate", text(&bert.path("ten.txt"))]).succeeds();
    let manifest = bert.manifest("fp8");
    assert!(inputs(&manifest).iter().all(|input| input.layer_loss.is_some_and(|loss| loss > 1e-5 && loss < 0.01)));
}

#[test]
fn quantized_files_are_the_same_on_any_number_of_threads() {
    let bert = Bert::new();
    let ten = bert.path("ten.txt");
    same_bytes(&bert.model, &["--int8"]);
    same_bytes(&bert.model, &["--int8", "--calibrate", text(&ten), "--recipe", "weight-method=gptq"]);
    let folder = scratch();
    let pixels = stored_inputs("vit", &["pixel_values"], folder.path());
    let vit: &Path = &golden("vit");
    same_bytes(vit, &["--int8", "--target", "onnx", "--calibrate", text(&pixels), "--recipe", "max-layer-loss=0"]);
    same_bytes(vit, &["--fp8", "--target", "onnx", "--calibrate", text(&pixels)]);
}

#[test]
fn a_plan_that_does_not_fit_is_refused() {
    let bert = Bert::new();
    let (plan, other) = (bert.path("plan.json"), bert.path("other.json"));
    bert.int8("out", &[]).succeeds();
    fs::copy(bert.path("out").join("planish.json"), &plan).unwrap();
    let applied = format!("plan={}", other.display());
    let apply = |change: &dyn Fn(&mut Value), more: &[&str]| {
        let mut document: Value = serde_json::from_slice(&fs::read(&plan).unwrap()).unwrap();
        change(&mut document);
        fs::write(&other, document.to_string()).unwrap();
        bert.compile("other", &[&["--int8", "--recipe", &applied], more].concat())
    };
    let first = "/parts/0/quantization/inputs/0";
    let renamed = |plan: &mut Value| plan.pointer_mut(first).unwrap()["value"] = json!("elsewhere");
    apply(&renamed, &[]).exits(1, &["does not fit", "no input of linear layers `elsewhere`"]);
    let split = |plan: &mut Value| plan.pointer_mut(first).unwrap()["split"] = json!([99_999]);
    apply(&split, &[]).exits(1, &["does not fit", "`split` has columns"]);
    apply(&|_| (), &["--target", "onnx"]).exits(1, &["does not fit", "codes of u8", "take i8"]);
    let part = |plan: &mut Value| plan["parts"][0]["name"] = json!("decoder");
    apply(&part, &[]).exits(1, &["no part `model`; it has decoder"]);
    let shorter = |plan: &mut Value| {
        plan["parts"][0]["quantization"]["inputs"].as_array_mut().unwrap().pop();
    };
    apply(&shorter, &[]).succeeds();
    let last = inputs(&bert.manifest("other")).last().unwrap().activation.to_string();
    assert_eq!(last, "float: the plan does not have it");
    bert.int8("kept", &["--keep", "nowhere"]).exits(1, &["--keep `nowhere`: nothing is named so"]);
    // A later entry of codes is an exception among floats.
    let keep = ["--keep", r"layer\.", "--keep", r"layer\.0\.output\.dense=int8"];
    bert.int8("kept", &keep).exits(0, &["--int8 left most of the model in float"]);
    let kept = bert.manifest("kept");
    let quantized: Vec<_> = inputs(&kept).iter().filter(|input| input.activation.codes().is_some()).collect();
    assert!(quantized.iter().any(|input| input.layers.iter().any(|name| name.contains("layer.0.output.dense"))));
    assert!(quantized.iter().all(|input| !input.layers.iter().any(|name| name.contains("layer.1."))));
}
