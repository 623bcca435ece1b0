//! Graphs of other exporters, raised: what they hold then, what they compute, and that it is what the
//! checkpoint itself gives.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use planish_eval::{Tensor, evaluate};
use planish_ir::{Graph, Op};
use planish_models::{Checkpoint, LoadOptions, load};
use planish_passes::raise::{misses, raised};
use planish_passes::{ONNX, Options, Pipeline, RAISING, TARGETS};
use serde_json::Value;

use crate::goldens::{TOLERANCE, worst_error};
use crate::support::{golden, numbered, planish_compile, repository, scratch};
use planish_testing::{Numbering, same_up_to_names};

fn options() -> Options {
    Options::new(&ONNX, 20)
}

pub(crate) fn file(name: &str) -> PathBuf {
    repository().join("fixtures/graphs").join(name)
}

/// Imports a graph and raises it.
#[track_caller]
pub(crate) fn imported(name: &str) -> Graph {
    let mut graph = planish_onnx::import(&file(name)).unwrap().graph;
    let mut pipeline = Pipeline::new(options());
    pipeline.verify = true;
    pipeline.raise(&mut graph, &mut Vec::new(), &mut |_, _| {}).unwrap();
    graph
}

/// Checks how many operators were found, as `NAME COUNT` each, and that nothing was missed.
#[track_caller]
pub(crate) fn holds(graph: &Graph, expected: &str) {
    let found: Vec<String> = raised(graph).into_iter().map(|(name, count)| format!("{name} {count}")).collect();
    assert_eq!(found.join(", "), expected);
    assert_eq!(misses(graph).unwrap(), []);
    let left = |op: &Op| matches!(op, Op::Softmax(_) | Op::MatMul(_) | Op::Reduce(_) | Op::Foreign(_));
    assert_eq!(graph.nodes().filter(|(_, node)| left(&node.op)).count(), 0, "{graph}");
}

type Named = Vec<(String, Tensor)>;

/// Evaluates a graph, compares what is expected of its outputs, and returns all of them. What the graph
/// does not take is left out of the inputs; a cache is empty where none is given.
#[track_caller]
fn computes(graph: &Graph, given: &Named, expected: &Named) -> Named {
    let batch = given[0].1.shape()[0];
    let input = |value: &planish_ir::ValueId| {
        let name = graph.value(*value).name.clone();
        let found = given.iter().find(|(n, _)| *n == name).map(|(_, tensor)| tensor.clone());
        let tensor = found.unwrap_or_else(|| {
            assert!(name.starts_with("past_key_values."), "{name} is not given");
            let size = |axis: usize| usize::try_from(graph.ty(*value).shape[axis].as_constant().unwrap()).unwrap();
            Tensor::new(vec![batch, size(1), 0, size(3)], Vec::<f32>::new()).unwrap()
        });
        (name, tensor)
    };
    let inputs: Named = graph.inputs().iter().map(input).collect();
    let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let actual = evaluate(graph, &inputs).unwrap();
    let mask = inputs.iter().find(|(name, _)| *name == "attention_mask").map(|(_, mask)| mask);
    let mut compared = 0;
    let computed = expected.iter().filter_map(|(name, e)| Some((name, e, &actual.iter().find(|(n, _)| n == name)?.1)));
    for (name, expected, actual) in computed {
        let error = worst_error(
            name,
            expected,
            actual,
            mask.map(|mask| (mask, if name.starts_with("present.") { 2 } else { 1 })),
        );
        assert!(error <= TOLERANCE, "{name}: error {error:.1e}");
        compared += 1;
    }
    // An export may lack an output of the golden, such as the pooler's; what it gives besides is a cache.
    let others = actual.iter().filter(|(name, _)| !expected.iter().any(|(n, _)| n == name));
    let others: Vec<&str> = others.map(|(name, _)| name.as_str()).collect();
    assert!(others.iter().all(|name| name.starts_with("present.")), "{others:?} are not compared");
    assert_eq!(compared, actual.len() - others.len());
    assert!(compared > 0, "nothing is compared");
    actual
}

/// The same from the file of a golden.
#[track_caller]
fn agrees(graph: &Graph, name: &str) -> Named {
    let io = golden(name).join("io.safetensors");
    computes(graph, &numbered(&io, "in."), &numbered(&io, "out."))
}

/// What a decoder computes of one more token with the cache that it gave.
#[track_caller]
fn agrees_with_cache(graph: &Graph, name: &str) {
    let past = cache(agrees(graph, name));
    let io = golden(name).join("io.safetensors");
    let step: Named = numbered(&io, "in.step.").into_iter().chain(past).collect();
    computes(graph, &step, &numbered(&io, "out.step."));
}

fn cache(outputs: Named) -> impl Iterator<Item = (String, Tensor)> {
    let past = |name: String| Some(format!("past_key_values.{}", name.strip_prefix("present.")?));
    outputs.into_iter().filter_map(move |(name, tensor)| Some((past(name)?, tensor)))
}

/// The graph that a checkpoint gives.
fn of_checkpoint(name: &str) -> Graph {
    let loaded = load(&Checkpoint::open(&golden(name)).unwrap(), LoadOptions::default()).unwrap();
    loaded.parts.into_iter().next().unwrap().graph
}

/// Checks that a graph is what the checkpoint gives, but for names, in the outputs that it has, and that
/// what the checkpoint ties is one weight.
#[track_caller]
fn is_the_checkpoints(graph: &Graph, name: &str) {
    let mut numbering = Numbering::default();
    let expected = of_checkpoint(name);
    let all = numbering.outputs(&expected);
    for (output, number) in numbering.outputs(graph) {
        assert_eq!(all.get(&output), Some(&number), "`{output}` of\n{graph}\nwhere the checkpoint gives\n{expected}");
    }
    let matrices = |graph: &Graph| graph.weights().filter(|(_, _, weight)| weight.shape().len() > 1).count();
    if all.len() == graph.outputs().len() {
        assert_eq!(matrices(graph), matrices(&expected), "{name}");
    }
}

#[test]
fn bert_by_optimum() {
    let graph = imported("optimum-bert/model.onnx");
    holds(&graph, "attention 2, embedding 2, gelu 2, layer_norm 5, linear 12");
    agrees(&graph, "bert");
    is_the_checkpoints(&graph, "bert");
}

#[test]
fn gpt2_by_optimum() {
    let graph = imported("optimum-gpt2/model.onnx");
    holds(&graph, "attention 2, embedding 2, gelu 2, layer_norm 5, linear 9");
    agrees_with_cache(&graph, "gpt2");
    is_the_checkpoints(&graph, "gpt2");
}

#[test]
fn llama_by_optimum() {
    let graph = imported("optimum-llama/model.onnx");
    holds(&graph, "attention 2, embedding 1, linear 15, rms_norm 5, rotary 4, silu 2");
    agrees_with_cache(&graph, "llama");
    is_the_checkpoints(&graph, "llama");
}

#[test]
fn t5_by_optimum() {
    let io = golden("t5").join("io.safetensors");
    let (given, expected) = (numbered(&io, "in."), numbered(&io, "out."));
    let find = |named: &Named, name: &str| named.iter().find(|(n, _)| n == name).unwrap().1.clone();

    let encoder = imported("optimum-t5/encoder_model.onnx");
    holds(&encoder, "attention 2, embedding 2, linear 12, rms_norm 5");
    let hidden = find(&expected, "encoder_last_hidden_state");
    computes(&encoder, &given, &vec![("last_hidden_state".to_owned(), hidden.clone())]);

    // Columns of the decoder's tokens, and the logits of each.
    let (tokens, scores) = (find(&given, "decoder_input_ids"), find(&expected, "logits"));
    let (rows, width, size) = (tokens.shape()[0], tokens.shape()[1], scores.shape()[2]);
    let ids = |range: Range<usize>| {
        let all = tokens.as_i64().unwrap();
        let ids: Vec<i64> = (0..rows).flat_map(|row| &all[row * width..][range.clone()]).copied().collect();
        ("input_ids".to_owned(), Tensor::new(vec![rows, range.len()], ids).unwrap())
    };
    let logits = |range: Range<usize>| {
        let all = scores.as_f32().unwrap();
        let part = (0..rows).flat_map(|row| &all[row * width * size..][range.start * size..range.end * size]);
        let part: Vec<f32> = part.copied().collect();
        vec![("logits".to_owned(), Tensor::new(vec![rows, range.len(), size], part).unwrap())]
    };
    let mask = ("encoder_attention_mask".to_owned(), find(&given, "attention_mask"));
    let states = ("encoder_hidden_states".to_owned(), hidden);

    let decoder = imported("optimum-t5/decoder_model.onnx");
    holds(&decoder, "attention 4, embedding 2, linear 21, rms_norm 7");
    computes(&decoder, &vec![mask.clone(), ids(0..width), states.clone()], &logits(0..width));
    let last = width - 1;
    let first = computes(&decoder, &vec![mask.clone(), ids(0..last), states], &logits(0..last));

    let continued = imported("optimum-t5/decoder_with_past_model.onnx");
    holds(&continued, "attention 4, embedding 2, linear 17, rms_norm 7");
    let step = [mask, ids(last..width)].into_iter().chain(cache(first)).collect();
    computes(&continued, &step, &logits(last..width));
}

/// Each of an encoder-decoder's graphs is a model of its own to whoever has no other.
#[test]
fn parts_of_t5_are_verified_alone() {
    for part in ["encoder_model", "decoder_model", "decoder_with_past_model"] {
        let folder = scratch();
        let graph = file(&format!("optimum-t5/{part}.onnx"));
        let done = planish_compile(&graph, &folder.path().join("out"), &["--verify"]).succeeds();
        assert!(done.stdout.contains("  verified: "), "{part}: {}", done.stdout);
    }
}

/// What was raised and what was not, as text and as part of the one document of `--json`.
#[test]
fn fusion_is_explained() {
    let folder = scratch();
    let out = folder.path().join("out");
    let compile = |more: &[&str]| planish_compile(&file("optimum-vit/model.onnx"), &out, more).exits(0, &[]);
    let text = compile(&["--explain=fusion"]).stderr;
    assert!(text.contains("model: 2 attention, 2 gelu, 5 layer_norm, 13 linear\n"), "{text}");
    let missed = "  not patches at `";
    assert_eq!(text.matches(missed).count(), 1, "{text}");

    let done = compile(&["--explain=fusion", "--json"]);
    assert_eq!(done.stderr, "");
    let document: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let [part] = document["fusion"].as_array().unwrap().as_slice() else { panic!("{document}") };
    assert_eq!((&part["part"], &part["missed"]), (&"model".into(), &serde_json::json!({"patches": 1})));
    assert_eq!(part["raised"], document["manifest"]["parts"][0]["raised"]);
    let matches = part["matches"].as_array().unwrap();
    let attention: Vec<_> = matches.iter().filter(|m| m["operator"] == "attention").collect();
    assert_eq!(attention.len(), 2);
    for found in attention {
        let (at, origin) = (found["at"].as_str().unwrap(), found["origin"].as_str().unwrap());
        assert!(
            at.contains("attention") && origin.starts_with("node `") && origin.contains(" of model.onnx"),
            "{found}"
        );
    }
    let miss = &part["misses"][0];
    assert!(text.contains(&format!(
        "  not {} at `{}` ({}): {}\n",
        miss["rule"].as_str().unwrap(),
        miss["at"].as_str().unwrap(),
        miss["origin"].as_str().unwrap(),
        miss["reason"].as_str().unwrap()
    )));
    let plain: serde_json::Value = serde_json::from_str(&compile(&["--json"]).stdout).unwrap();
    assert_eq!(plain["fusion"], serde_json::Value::Null);
}

#[test]
fn vit_by_optimum() {
    let graph = imported("optimum-vit/model.onnx");
    let found = raised(&graph);
    assert_eq!((found["attention"], found["layer_norm"], found["gelu"], found["linear"]), (2, 5, 2, 13));
    // The exporter leaves the size of images open, so its convolution stays one.
    let missed: Vec<String> = misses(&graph).unwrap().into_iter().map(|miss| miss.reason).collect();
    let [reason] = &missed[..] else { panic!("{missed:?}") };
    assert!(reason.starts_with("the size of the images"), "{reason}");
    agrees(&graph, "vit");
}

#[test]
fn bert_by_torch() {
    let graph = imported("torch-bert/model.onnx");
    holds(&graph, "attention 2, embedding 2, gelu 2, layer_norm 5, linear 12");
    agrees(&graph, "bert");
}

#[test]
fn gpt2_by_torch() {
    let graph = imported("torch-gpt2/model.onnx");
    holds(&graph, "attention 2, embedding 2, gelu 2, layer_norm 5, linear 9");
    agrees(&graph, "gpt2");
}

#[test]
fn vit_by_torch() {
    let graph = imported("torch-vit/model.onnx");
    holds(&graph, "attention 2, gelu 2, layer_norm 5, linear 14");
    agrees(&graph, "vit");
}

/// What `--explain fusion` counts, and the misses of attention and masks: every softmax of attention is raised.
#[test]
fn attentions_by_dynamo() {
    let glm = imported("dynamo/glm4.onnx");
    holds(&glm, "attention 2, embedding 1, linear 13, rms_norm 5, rotary 4, silu 2");
    let whole = |op: &Op| matches!(op, Op::Attention(p) if p.kv_heads == Some(2) && p.causal.0 && p.mask.is_some() && p.bias.is_none());
    assert_eq!(glm.nodes().filter(|(_, node)| whole(&node.op)).count(), 2, "{glm}");

    let bloom = imported("dynamo/bloom.onnx");
    holds(&bloom, "attention 2, embedding 1, gelu 2, layer_norm 6, linear 9");
    let biased = |op: &Op| matches!(op, Op::Attention(p) if p.causal.0 && p.mask.is_some() && p.bias.is_some());
    assert_eq!(bloom.nodes().filter(|(_, node)| biased(&node.op)).count(), 2, "{bloom}");

    for (name, why) in [
        ("debertav2", "leaves out keys by `attention_mask` at [batch, query], and a mask of keys has [batch, key]"),
        ("falcon", "is added to the scores, and it is not made of numbers that conditions choose"),
    ] {
        let graph = imported(&format!("dynamo/{name}.onnx"));
        assert_eq!(raised(&graph)["attention"], 2, "{name}");
        assert!(!graph.nodes().any(|(_, node)| matches!(node.op, Op::Softmax(_))), "{graph}");
        let missed = misses(&graph).unwrap();
        assert!(
            !missed.is_empty() && missed.iter().all(|miss| miss.rule == "mask" && miss.reason.contains(why)),
            "{missed:?}"
        );
    }
}

/// Their values are those of the graph that was given.
#[test]
fn graphs_by_dynamo_are_verified() {
    for name in ["bloom", "debertav2", "glm4"] {
        for target in ["onnx", "ort"] {
            let folder = scratch();
            let graph = file(&format!("dynamo/{name}.onnx"));
            let done =
                planish_compile(&graph, &folder.path().join("out"), &["--verify", "--target", target]).exits(0, &[]);
            assert!(done.stdout.contains("  verified: "), "{name}: {}", done.stdout);
        }
    }
}

/// Slopes in bfloat16 do not keep the rest from being halved.
#[test]
fn one_part_in_another_half_type() {
    let folder = scratch();
    let half = |target: &str| {
        let more = ["--fp16", "--target", target, "--verify"];
        let out = folder.path().join(target);
        let text = planish_compile(&file("dynamo/falcon.onnx"), &out, &more).exits(0, &[]).stdout;
        // Nor do they loosen what is asked of it.
        let manifest: Value = serde_json::from_slice(&fs::read(out.join("planish.json")).unwrap()).unwrap();
        assert_eq!(manifest["verification"]["tolerances"]["basis"], "float16");
        text
    };
    let text = half("onnx");
    assert!(text.contains("  fp16: 100.0 % of the operations of products"), "{text}");
    assert!(text.contains("mul `mul_7`: the graph computes it in bf16, which is not the requested type"), "{text}");
    assert!(text.contains("  verified: "), "{text}");
    assert!(half("ort").contains("  verified: "));
}

#[test]
fn what_targets_get_computes_the_same() {
    let graphs = [
        ("optimum-bert", "bert"),
        ("optimum-gpt2", "gpt2"),
        ("optimum-llama", "llama"),
        ("torch-bert", "bert"),
        ("torch-gpt2", "gpt2"),
        ("torch-vit", "vit"),
    ];
    for (folder, name) in graphs {
        let graph = planish_onnx::import(&file(folder).join("model.onnx")).unwrap().graph;
        for &target in TARGETS {
            for fusion in [true, false] {
                let mut pipeline = Pipeline::new(Options { fusion, ..Options::new(target, 20) });
                pipeline.verify = true;
                let mut lowered = graph.clone();
                pipeline.run(&mut lowered, &mut |_, _| {}).unwrap();
                agrees(&lowered, name);
            }
        }
    }
}

#[test]
fn graphs_of_checkpoints_are_raised_already() {
    for name in
        ["bart", "bert", "distilbert-qa", "gpt2", "llama", "mistral", "phi3", "qwen2", "roberta-mlm", "t5", "vit"]
    {
        for part in load(&Checkpoint::open(&golden(name)).unwrap(), LoadOptions::default()).unwrap().parts {
            for pass in RAISING.iter().filter(|pass| pass.name.starts_with("raise-")) {
                let mut graph = part.graph.clone();
                pass.apply(&mut graph, &options()).unwrap();
                assert!(same_up_to_names(&graph, &part.graph), "{name}: `{}` makes it\n{graph}", pass.name);
            }
            assert_eq!(misses(&part.graph).unwrap(), [], "{name}");
        }
    }
}
