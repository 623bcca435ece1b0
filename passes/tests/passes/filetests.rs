//! Files in `tests/filetests/PASS/NAME.ir`: what to run, a graph, and the graph after.
//!
//! ```text
//! ; pass: identities          or `; pipeline: onnx`
//! ; target: ort               with `pass`; onnx where absent
//! ; opset: 17                 20 where absent
//! ; fusion: off               on where absent
//! ; cache: in-place            attention appends to its cache in place; the cache is copied where absent
//! ; attention: fp32           products of attention in float32; in its own type where absent
//! ; experts: all              or gathered, grouped; what the target has first where absent
//! ; precision: fp16           or bf16; the graph's own where absent. With it:
//! ; keep-fp32: PATTERN        what stays in float32
//! ; max-abs: 100              the limit of activations
//! ; observed: %y 1e5, %z 3    the largest magnitudes of values
//! ; io: half                  inputs and outputs in half precision
//! ; pad-vocab: 8              what vocabularies are padded to a multiple of; they stay where absent
//! ; logits: padded            sliced where absent
//! ; last-logits: on          logits of the last token only; of all tokens where absent
//! ; pad-features: 8           what features of linear layers are padded to a multiple of; as the target
//!                             wants them where absent
//! ; quantize: {"inputs": [..]}  how linear layers are quantized, as a plan of the quantization in JSON; they stay
//!                             where absent. With it:
//! ; weight-scales: mse        minmax where absent
//! ; quantize-weights: {"weights": [..]}  how weights alone are quantized, as a plan of the weights in JSON
//! ; error: no kernel for f16  the pass fails with this in its message, and no graph follows
//! graph "before" { ... }
//! ; ---
//! graph "after" { ... }
//! ```
//!
//! The text after must match exactly; `BLESS=1` in the environment rewrites it. Both graphs are
//! verified and evaluated on seeded inputs, and a second run of the pass must change nothing and say so,
//! of the pipeline nothing but names.

#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use planish_eval::Tensor;
use planish_ir::{DType, Graph, text, verify};
use planish_passes::legalize::LOWER_ATTENTION;
use planish_passes::quantize::{QUANTIZE, QUANTIZE_WEIGHTS, Quantization, WeightQuantization, WeightScales};
use planish_passes::{
    CacheForm, Exception, ExpertsForm, Half, HalfPrecision, KeptType, Logits, Named, Options, PASSES, Padding, Pass,
    PassError, Pipeline, Target, UnknownLogits,
};
use planish_testing::evaluation::{allowed, difference, inputs, tolerance};
use planish_testing::{same_up_to_names, unified_diff};

use crate::padded::of_tokens;
use crate::support::outputs;

const SEPARATOR: &str = "; ---";

/// The folder of files that run whole pipelines.
const PIPELINE: &str = "pipeline";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/filetests")
}

/// What a file runs.
enum Subject {
    Pass(&'static Pass),
    Pipeline,
}

impl Subject {
    fn name(&self) -> &'static str {
        match self {
            Subject::Pass(pass) => pass.name,
            Subject::Pipeline => PIPELINE,
        }
    }

    /// Returns how many places were changed.
    fn run(&self, graph: &mut Graph, options: &Options) -> Result<usize, PassError> {
        match self {
            Subject::Pass(pass) => Ok(pass.apply(graph, options)?.changed),
            Subject::Pipeline => {
                let mut pipeline = Pipeline::new(options.clone());
                pipeline.verify = true;
                let stages = pipeline.run(graph, &mut |_, _| {})?;
                Ok(stages.iter().map(|stage| stage.changed).sum())
            }
        }
    }
}

struct Filetest {
    subject: Subject,
    options: Options,
    error: Option<String>,
    /// Headers and the graph before, as they are in the file.
    given: String,
    before: String,
    after: Option<String>,
}

fn read(content: &str) -> Result<Filetest, String> {
    let (given, after) = match content.split_once(&format!("{SEPARATOR}\n")) {
        Some((given, after)) => (given, Some(after.to_owned())),
        None => (content, None),
    };
    let mut headers: BTreeMap<&str, &str> = BTreeMap::new();
    let mut before = String::new();
    for line in given.lines() {
        let Some(header) = line.strip_prefix(';') else {
            before += &format!("{line}\n");
            continue;
        };
        let (key, value) = header.split_once(':').ok_or_else(|| format!("`{line}` is not a header `; key: value`"))?;
        if headers.insert(key.trim(), value.trim()).is_some() {
            return Err(format!("the header `{}` is given twice", key.trim()));
        }
    }
    let (subject, target) = match (headers.remove("pass"), headers.remove("pipeline")) {
        (Some(name), None) => {
            let pass = PASSES.iter().find(|p| p.name == name).ok_or_else(|| format!("there is no pass `{name}`"))?;
            (Subject::Pass(pass), headers.remove("target").unwrap_or("onnx"))
        }
        (None, Some(target)) => (Subject::Pipeline, target),
        _ => return Err("one header of `pass` and `pipeline` is needed".to_owned()),
    };
    let opset = headers.remove("opset").unwrap_or("20");
    let target = Target::find(target).map_err(|e| e.to_string())?;
    let mut options = Options::new(target, opset.parse().map_err(|e| format!("opset `{opset}`: {e}"))?);
    options.fusion = match headers.remove("fusion") {
        None | Some("on") => true,
        Some("off") => false,
        Some(other) => return Err(format!("fusion is on or off, not `{other}`")),
    };
    options.attention_fp32 = match headers.remove("attention") {
        None => false,
        Some("fp32") => true,
        Some(other) => return Err(format!("attention is fp32, not `{other}`")),
    };
    options.experts = match headers.remove("experts") {
        None => options.experts,
        Some("grouped") => ExpertsForm::Grouped,
        Some("gathered") => ExpertsForm::Gathered,
        Some("all") => ExpertsForm::All,
        Some(other) => return Err(format!("experts are grouped, gathered or all, not `{other}`")),
    };
    options.cache = match headers.remove("cache") {
        None => CacheForm::Copy,
        Some("in-place") => CacheForm::InPlace,
        Some(other) => return Err(format!("cache is in-place, not `{other}`")),
    };
    options.last_logits = match headers.remove("last-logits") {
        None => false,
        Some("on") => true,
        Some(other) => return Err(format!("last-logits is on, not `{other}`")),
    };
    options.precision = precision(&mut headers)?.map(Into::into);
    let number = |text: &str| text.parse::<usize>().map_err(|e| format!("`{text}`: {e}"));
    options.padding = Padding {
        vocabulary: headers.remove("pad-vocab").map(number).transpose()?,
        logits: headers.remove("logits").unwrap_or("sliced").parse().map_err(|e: UnknownLogits| e.to_string())?,
        features: headers.remove("pad-features").map(number).transpose()?,
    };
    options.quantization = quantization(&mut headers)?.map(Into::into);
    options.weight_quantization = match headers.remove("quantize-weights") {
        None => None,
        Some(plan) => {
            let plan = serde_json::from_str(plan).map_err(|e| format!("quantize-weights: {e}"))?;
            Some(WeightQuantization { plan, ..WeightQuantization::default() }.into())
        }
    };
    let error = headers.remove("error").map(str::to_owned);
    match headers.keys().next() {
        Some(key) => Err(format!("unknown header `{key}`")),
        None => Ok(Filetest { subject, options, error, given: given.to_owned(), before, after }),
    }
}

/// The headers that say how to halve a graph.
fn precision(headers: &mut BTreeMap<&str, &str>) -> Result<Option<HalfPrecision>, String> {
    let half = match headers.remove("precision") {
        None => return Ok(None),
        Some("fp16") => Half::F16,
        Some("bf16") => Half::Bf16,
        Some(other) => return Err(format!("precision is fp16 or bf16, not `{other}`")),
    };
    let number = |text: &str| text.parse::<f64>().map_err(|e| format!("`{text}`: {e}"));
    let mut precision = HalfPrecision::new(half);
    if let Some(pattern) = headers.remove("keep-fp32") {
        let of = Named::Names(pattern.parse().map_err(|e| format!("{e}"))?);
        precision.keep.0.push(Exception { of, ty: KeptType::Single, reason: String::new() });
    }
    if let Some(limit) = headers.remove("max-abs") {
        precision.max_abs = number(limit)?;
    }
    precision.half_io = match headers.remove("io") {
        None => false,
        Some("half") => true,
        Some(other) => return Err(format!("io is half, not `{other}`")),
    };
    for item in headers.remove("observed").into_iter().flat_map(|items| items.split(", ")) {
        let (name, magnitude) = item.split_once(' ').ok_or_else(|| format!("`{item}` is not a name and number"))?;
        precision.observed.insert(name.trim_start_matches('%').to_owned(), number(magnitude)?);
    }
    Ok(Some(precision))
}

/// The headers that say how to quantize a graph.
fn quantization(headers: &mut BTreeMap<&str, &str>) -> Result<Option<Quantization>, String> {
    let Some(plan) = headers.remove("quantize") else { return Ok(None) };
    let plan = serde_json::from_str(plan).map_err(|e| format!("quantize: {e}"))?;
    let weight_scales = match headers.remove("weight-scales") {
        None => WeightScales::MinMax,
        Some("mse") => WeightScales::Mse,
        Some(other) => return Err(format!("weight-scales is mse, not `{other}`")),
    };
    Ok(Some(Quantization { plan, weight_scales, ..Quantization::default() }))
}

/// What codes of 8 bits may change, relative to the largest number of a tensor. A wrong code, column or scale changes
/// more.
const QUANTIZED: f64 = 5e-2;

/// What codes of 4 bits may change, likewise.
const NIBBLES: f64 = 2e-1;

fn parse(text: &str) -> Result<Graph, String> {
    let mut graph = text::parse(text, &text::no_files).map_err(|e| e.to_string())?;
    planish_onnx::interface::state(&mut graph);
    verify(&graph).map_err(|e| e.to_string())?;
    Ok(graph)
}

/// Runs a file; the error says what does not hold.
fn check(path: &Path, bless: bool) -> Result<(), String> {
    let test = read(&fs::read_to_string(path).map_err(|e| e.to_string())?)?;
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
    if folder != test.subject.name() {
        return Err(format!("it belongs in the folder `{}`", test.subject.name()));
    }
    let before = parse(&test.before)?;
    let mut after = before.clone();
    match (test.subject.run(&mut after, &test.options), &test.error) {
        (Err(error), Some(expected)) if error.to_string().contains(expected) && test.after.is_none() => return Ok(()),
        (Err(error), Some(expected)) => {
            return Err(format!("no graph and `{expected}` are expected, the error is {error}"));
        }
        (Err(error), None) => return Err(error.to_string()),
        (Ok(_), Some(expected)) => return Err(format!("the error `{expected}` is expected, there is none:\n{after}")),
        (Ok(_), None) => {}
    }
    verify(&after).map_err(|e| format!("afterwards: {e}\n{after}"))?;
    let mut again = after.clone();
    let changed = test.subject.run(&mut again, &test.options).map_err(|e| format!("run again: {e}"))?;
    let same = match test.subject {
        Subject::Pass(_) => changed == 0 && again.to_string() == after.to_string(),
        // What was lowered is raised and lowered again.
        Subject::Pipeline => same_up_to_names(&again, &after),
    };
    if !same {
        return Err(format!("run again, it reports {changed} changes of\n{after}to\n{again}"));
    }
    let expected_graph = match test.subject {
        // What codes of 8 bits change is compared where the pass `quantize` is run alone.
        Subject::Pipeline => quantized_before(&before, &test.options).map_err(|e| e.to_string())?,
        Subject::Pass(_) => before.clone(),
    };
    for seed in [0b1, 0b1000_0010, 0b1_0110_1101] {
        let inputs = inputs(&before, seed);
        let mut expected = outputs(&expected_graph, &inputs)?;
        let mut given = outputs(&after, &typed_as(&after, inputs))?;
        let precision = test.options.precision.as_deref();
        if precision.is_some_and(|precision| precision.half_io) {
            given = typed_alike(given, &expected);
        }
        if test.options.last_logits {
            expected = of_last_tokens(expected);
        }
        if test.options.padding.logits == Logits::Padded {
            given = of_tokens(&expected, given)?;
        }
        let shortest = precision.map(|p| p.half.dtype());
        // The probabilities of attention become codes where it is lowered.
        let rounds =
            matches!(&test.subject, Subject::Pass(pass) if [QUANTIZE.name, LOWER_ATTENTION.name].contains(&pass.name));
        let rounds_weights = matches!(&test.subject, Subject::Pass(pass) if pass.name == QUANTIZE_WEIGHTS.name);
        let quantized = match rounds && test.options.quantization.is_some() {
            true => QUANTIZED,
            false if rounds_weights && test.options.weight_quantization.is_some() => NIBBLES,
            false => 0.0,
        };
        let tolerance = shortest.map_or(0.0, allowed).max(tolerance(&before)).max(quantized);
        if let Some(difference) = difference(tolerance, 0.0, &expected, &given) {
            return Err(format!("it changes the meaning: {difference}\n{after}"));
        }
    }
    let found = after.to_string();
    if test.after.as_ref() == Some(&found) {
        return Ok(());
    }
    if bless {
        return fs::write(path, format!("{}{SEPARATOR}\n{found}", test.given)).map_err(|e| e.to_string());
    }
    match test.after {
        Some(expected) => Err(format!("{}BLESS=1 takes over what was found", unified_diff(&expected, &found))),
        None => Err("the graph after is missing; BLESS=1 adds it".to_owned()),
    }
}

/// The graph raised and quantized, where that is asked for: what a pipeline then has to give but for the rounding of
/// floats.
fn quantized_before(graph: &Graph, options: &Options) -> Result<Graph, PassError> {
    let mut graph = graph.clone();
    if options.quantization.is_some() {
        Pipeline::new(options.clone()).raise(&mut graph, &mut Vec::new(), &mut |_, _| {})?;
        (QUANTIZE.run)(&mut graph, options)?;
    }
    if options.weight_quantization.is_some() {
        Pipeline::new(options.clone()).raise(&mut graph, &mut Vec::new(), &mut |_, _| {})?;
        (QUANTIZE_WEIGHTS.run)(&mut graph, options)?;
    }
    Ok(graph)
}

/// Outputs of which `logits` [batch, tokens, features] are those of the last tokens.
fn of_last_tokens(outputs: Vec<(String, Tensor)>) -> Vec<(String, Tensor)> {
    let last = |(name, tensor): (String, Tensor)| match (name.as_str(), tensor.shape()) {
        ("logits", &[batch, tokens, features]) => {
            let all = tensor.to_f64();
            let rows = all.chunks(tokens * features).flat_map(|row| &row[(tokens - 1) * features..]);
            let rows: Vec<f64> = rows.copied().collect();
            (name, Tensor::from_f64(tensor.dtype(), vec![batch, 1, features], &rows).unwrap())
        }
        _ => (name, tensor),
    };
    outputs.into_iter().map(last).collect()
}

/// Inputs in the types that a graph takes.
fn typed_as(graph: &Graph, inputs: BTreeMap<String, Tensor>) -> BTreeMap<String, Tensor> {
    let dtype = |name: &str| {
        let input = graph.inputs().iter().find(|input| graph.value(**input).name == name);
        input.map(|input| graph.ty(*input).dtype)
    };
    inputs.into_iter().map(|(name, tensor)| (name.clone(), cast(&tensor, dtype(&name)))).collect()
}

/// Outputs in the types of others.
fn typed_alike(outputs: Vec<(String, Tensor)>, others: &[(String, Tensor)]) -> Vec<(String, Tensor)> {
    let of = |((name, tensor), (_, other)): ((String, Tensor), &(String, Tensor))| {
        (name, cast(&tensor, Some(other.dtype())))
    };
    outputs.into_iter().zip(others).map(of).collect()
}

fn cast(tensor: &Tensor, dtype: Option<DType>) -> Tensor {
    let dtype = dtype.unwrap_or(tensor.dtype());
    Tensor::from_f64(dtype, tensor.shape().to_vec(), &tensor.to_f64()).unwrap()
}

/// What a folder contains, in order.
fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Every file, in order.
fn files() -> Vec<PathBuf> {
    list(&root()).iter().flat_map(|folder| list(folder)).collect()
}

#[test]
fn every_file_gives_what_it_says() {
    let bless = std::env::var_os("BLESS").is_some_and(|v| v == "1");
    let failures: Vec<String> = files()
        .iter()
        .filter_map(|path| {
            let name = path.strip_prefix(root()).unwrap_or(path).display().to_string();
            check(path, bless).err().map(|message| format!("{name}: {message}\n"))
        })
        .collect();
    assert!(failures.is_empty(), "{} files fail\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_pass_has_a_file_that_it_changes_and_one_that_it_leaves() {
    let seen = |name: &str| {
        let mut seen = [false; 2];
        for path in list(&root().join(name)) {
            let test = read(&fs::read_to_string(&path).unwrap()).unwrap();
            let unchanged = test.error.is_none() && test.after == parse(&test.before).ok().map(|g| g.to_string());
            seen[usize::from(unchanged)] = true;
        }
        seen
    };
    let missing: Vec<String> = PASSES
        .iter()
        .map(|pass| (pass.name, seen(pass.name)))
        .filter(|(_, seen)| *seen != [true; 2])
        .map(|(name, seen)| format!("{name}: changed {}, left {}", seen[0], seen[1]))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn wrong_headers_fail() {
    let message = |content: &str| read(content).map(|_| ()).expect_err("a wrong header");
    assert_eq!(message("; pass: fold\n; opsets: 17\n"), "unknown header `opsets`");
    assert_eq!(message("; pass: folds\n"), "there is no pass `folds`");
    assert_eq!(message("; pass: fold\n; pass: fold\n"), "the header `pass` is given twice");
    assert_eq!(message("; pass: fold\n; pipeline: onnx\n"), "one header of `pass` and `pipeline` is needed");
    assert_eq!(message("; pipeline: onnx\n; target: onnx\n"), "unknown header `target`");
    assert_eq!(message("; pass: fold\n; fusion: none\n"), "fusion is on or off, not `none`");
    assert_eq!(message("; a comment\n"), "`; a comment` is not a header `; key: value`");
    assert!(message("; pass: fold\n; target: abacus\n").contains("`abacus` is not a target"));
    assert!(message("; pass: fold\n; opset: high\n").contains("opset `high`"));
}
