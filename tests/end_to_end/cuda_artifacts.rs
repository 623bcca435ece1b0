//! Artifacts for target `cuda`: graphs of planish with weights beside them. Their kernels run on the processor here.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use planish::artifact::Artifact;
use planish::artifact::verification::ReferenceKind;
use planish::backend::{RuntimeSettings, runtime_named};
use planish::verify::{VerifyOptions, verify_compiled};
use planish_eval::Tensor;
use planish_ir::Graph;
use planish_onnx::Placement;
use planish_passes::{CUDA, Half, HalfPrecision};
use planish_runtimes::{Format, Libraries, Model, SessionOptions, graph_file};
use serde_json::Value;

use crate::support::{
    compiled, contents, golden, names, options, planish, planish_compile, repository, scratch, skipped, text,
    write_tokenizer,
};

/// The golden whose scores bfloat16 does not tell apart, on any target.
const LARGE_SCORES: &str = "t5-gated-untied";

/// Goldens whose graphs have the operators of others, with other sizes: compiling their kernels for the processor takes minutes.
/// `convbert`, `nystromformer`, networks of convolutions and mixtures of experts have some that the target refuses. So have some
/// of those with states of a fixed size; in the others, activations stay beside the sums that convolutions become.
const ALIKE: &str = "albert ast bamba beit blip clap clip codegen cohere convbert convnext deberta deberta-v2 deepseek-v2 deepseek-v3 deit \
    depth-anything detr dinov2 dinov2-registers dinov3 dots1 dpt electra ernie4-5 ernie4-5-moe esm eurobert \
    exaone4 falcon falcon-h1 falcon-mamba flex-olmo gemma4 glm4 glm4-moe gpt-bigcode gpt-neo gpt-oss gptj granite \
    granitemoe granitemoehybrid gte helium hubert hunyuan-moe jamba jina-v3 layoutlm lfm2 lfm2-moe llama4 longt5 mamba \
    mamba2 mixtral mobilebert mpt mt5 nemotron nemotron-h nomic-bert nystromformer olmo2 olmo3 olmoe parakeet phi phimoe \
    qwen2-moe qwen3-5 qwen3-5-moe qwen3-embedding qwen3-moe qwen3-next qwen3-tokens rembert resnet roformer \
    segformer siglip siglip2 smollm3 squeezebert stablelm starcoder2 swin swinv2 t5-classify t5-encoder t5-tokens trocr \
    umt5 vitpose wav2vec2 wav2vec2-bert wavlm whisper xlm-roberta-xl yolos";

fn goldens() -> Vec<String> {
    let mut all = names(&repository().join("fixtures/goldens"));
    all.retain(|name| golden(name).is_dir() && !ALIKE.split(' ').any(|alike| alike == name));
    assert_eq!(all.len(), 36);
    all
}

/// How often a graph has an operator.
fn count(graph: &Graph, mnemonic: &str) -> usize {
    graph.nodes().filter(|(_, node)| node.op.mnemonic() == mnemonic).count()
}

/// Compiles a golden and verifies it; returns the graphs of the files.
fn holds(name: &str, half: Option<Half>, fusion: bool) -> Vec<Graph> {
    let folder = scratch();
    let mut options = options(&CUDA);
    options.passes.precision = half.map(|half| HalfPrecision::new(half).into());
    options.passes.fusion = fusion;
    let compiled = compiled(&golden(name), &folder.path().join("out"), &options);
    // Fused operators by the kernels, on the processor; what they are made of by the interpreter.
    let runtime = runtime_named(if fusion { "cuda-emulator" } else { "reference" }).unwrap();
    let settings = RuntimeSettings { runtime: Some(runtime), ..RuntimeSettings::default() };
    // In half precision what is recorded is replayed.
    let replay = half.is_some();
    let verify = VerifyOptions { max_length: Some(9), replay, settings, ..VerifyOptions::default() };
    let model = planish::source::SourceModel::open(&golden(name)).unwrap();
    let mut note = |text: &str| panic!("{text}");
    let report = verify_compiled(&compiled.artifact, &model, &compiled.source, &verify, &mut note).unwrap();
    assert!(report.passed() && report.reference == ReferenceKind::Interpreter, "{name} {half:?}: {report}");
    let parts = &compiled.artifact.manifest.parts;
    let graph = |file: &str| graph_file::load(&compiled.draft.folder().join(file)).unwrap();
    parts.iter().map(|part| graph(&part.files[0])).collect()
}

fn each_golden_holds(half: Option<Half>) {
    for name in goldens().iter().filter(|name| half != Some(Half::Bf16) || *name != LARGE_SCORES) {
        for graph in holds(name, half, true) {
            // Of all the sums and norms of a layer, none is left; queries, keys and values are one product.
            assert!(count(&graph, "add_norm") > 0, "{name}");
            assert_eq!(count(&graph, "gelu") + count(&graph, "silu"), 0, "{name}\n{graph}");
            // Rotary embedding is part of the append to a cache, and these have none, or one of latents.
            let without_append =
                name.starts_with("modernbert") || ["minicpm3", "qwen2-rerank"].contains(&name.as_str());
            assert_eq!(count(&graph, "rotary") > 0, without_append, "{name}\n{graph}");
            let fused = graph.nodes().filter(|(_, node)| node.op.is_fused()).count();
            assert!(fused >= 6, "{name} has {fused} fused operators\n{graph}");
        }
    }
}

#[test]
fn goldens_hold() {
    each_golden_holds(None);
}

#[test]
fn goldens_hold_in_float16() {
    each_golden_holds(Some(Half::F16));
}

#[test]
fn goldens_hold_in_bfloat16() {
    each_golden_holds(Some(Half::Bf16));
}

#[test]
fn without_fusion_there_is_plain_arithmetic() {
    for name in ["bert", "llama", "t5"] {
        for graph in holds(name, None, false) {
            for mnemonic in ["linear", "attention", "layer_norm", "rms_norm", "gelu", "silu", "rotary", "add_norm"] {
                assert_eq!(count(&graph, mnemonic), 0, "{name} has {mnemonic}");
            }
        }
    }
}

#[test]
fn what_layers_become() {
    let counts = |name: &str, part: usize| {
        let graph = holds(name, None, true).remove(part);
        ["linear", "fused_linear", "gated", "add_norm", "embedding_norm", "rotary_append", "attention"]
            .map(|mnemonic| count(&graph, mnemonic))
    };
    // Two layers each: queries, keys and values; their mixture; up and down. Then the pooler.
    assert_eq!(counts("bert", 0), [7, 2, 0, 4, 1, 0, 2]);
    assert_eq!(counts("llama", 0), [9, 0, 2, 4, 1, 2, 2]);
    // The keys and values of the encoder's states in one product.
    assert_eq!(counts("t5", 1), [12, 2, 0, 6, 1, 0, 4]);
}

#[test]
fn the_files_are_a_text_and_aligned_weights() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("gpt2"), &out, &["--target", "cuda"]).succeeds();
    assert_eq!(
        names(&out),
        ["README.md", "config.json", "generation_config.json", "model.graph", "model.weights", "planish.json"]
    );
    let graph = graph_file::load(&out.join("model.graph")).unwrap();
    let mut end = 0;
    for (_, value, weight) in graph.weights() {
        let Some(range) = weight.as_stored() else {
            assert!(weight.elements() <= 64, "{}", value.name);
            continue;
        };
        assert!(weight.elements() > 64 && range.offset.is_multiple_of(256), "{}", value.name);
        assert_eq!(range.offset, u64::next_multiple_of(end, 256), "{} is where the last one ends", value.name);
        end = range.offset + weight.bytes();
    }
    assert_eq!(fs::metadata(out.join("model.weights")).unwrap().len(), end);
    // The same input gives the same bytes, and what is tied is there once: no file is as large as the checkpoint.
    let again = folder.path().join("again");
    planish_compile(&golden("gpt2"), &again, &["--target", "cuda", "--threads", "1"]).succeeds();
    assert_eq!(contents(&out), contents(&again));
}

#[test]
fn linked_weights_stay_expressions_of_the_checkpoint() {
    let folder = scratch();
    let (model, out) = (folder.path().join("model"), folder.path().join("out"));
    fs::create_dir(&model).unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(golden("llama").join(name), model.join(name)).unwrap();
    }
    let more = ["--weights", "link", "--target", "cuda", "--fp16", "--debug=strict"];
    planish_compile(&model, &out, &more).succeeds();
    planish(["verify", text(&out), "--runtime", "cuda-emulator"]).succeeds();
    assert_eq!(names(&out), ["README.md", "config.json", "model.graph", "model.safetensors", "planish.json"]);
    let inode = |folder: &Path| fs::metadata(folder.join("model.safetensors")).unwrap().ino();
    assert_eq!(inode(&out), inode(&model), "not a copy");
    let text = fs::read_to_string(out.join("model.graph")).unwrap();
    assert!(text.contains("= concat([cast(stored(\"model.safetensors\", "), "{text}");
    let manifest: Value = serde_json::from_slice(&fs::read(out.join("planish.json")).unwrap()).unwrap();
    assert_eq!(manifest["linked"], serde_json::json!(["model.safetensors"]));

    // What is computed when it is read is what a copy has.
    let copied = folder.path().join("copied");
    planish_compile(&model, &copied, &["--target", "cuda", "--fp16"]).succeeds();
    let values = |folder: &Path| {
        let graph = graph_file::load(&folder.join("model.graph")).unwrap();
        let values = graph.weights().map(|(_, value, weight)| (value.name.clone(), weight.read().unwrap()));
        values.collect::<Vec<_>>()
    };
    assert_eq!(values(&out), values(&copied));
}

#[test]
fn files_of_one_name_are_linked_under_names_of_their_own() {
    let folder = scratch();
    let mut options = options(&CUDA);
    options.placement = Placement::Link;
    let model = repository().join("fixtures/graphs/optimum-bert/model.onnx");
    let compiled = compiled(&model, &folder.path().join("out"), &options);
    let linked = compiled.artifact.manifest.linked.clone();
    assert_eq!(linked, ["source-model.onnx"]);
    let graph = graph_file::load(&compiled.draft.folder().join("model.graph")).unwrap();
    assert!(graph.weights().any(|(_, _, weight)| weight.as_stored().is_some()));
}

#[test]
fn commands_take_such_artifacts() {
    let folder = scratch();
    let model = folder.path().join("model");
    fs::create_dir(&model).unwrap();
    for name in names(&golden("gpt2")) {
        if fs::metadata(golden("gpt2").join(&name)).unwrap().is_file() {
            fs::copy(golden("gpt2").join(&name), model.join(&name)).unwrap();
        }
    }
    write_tokenizer(&model, 100);
    let out = folder.path().join("out");
    planish_compile(&model, &out, &["--target", "cuda"]).succeeds();
    let mut written = Vec::new();
    for runtime in ["cuda-emulator", "reference"] {
        planish(["verify", text(&out), "--max-length", "5", "--runtime", runtime]).succeeds();
        for more in [&[][..], &["--set", "num_beams=3"]] {
            let ids = ["generate", text(&out), "--ids", "1,2,3", "--max-new-tokens", "9", "--runtime", runtime];
            written.push(planish([&ids, more].concat()).exits(0, &[]).stdout);
        }
    }
    // The interpreter copies the cache in each step, the kernels append to it.
    assert!(!written[0].is_empty() && written[..2] == written[2..], "{written:?}");
    let shown = planish(["inspect", text(&out)]).succeeds().stdout;
    assert!(shown.contains("4 add_norm") && shown.contains("1 embedding_norm"), "{shown}");
    planish(["inspect", text(&out), "--outputs", "logits"]).exits(1, &["take parts of ONNX graphs only"]);
    let other = "file of format graph of planish, and the runtime takes";
    planish(["verify", text(&out), "--runtime", "ort"]).exits(1, &[other]);
    let artifact = Artifact::open(&out).unwrap();
    assert_eq!(artifact.backend.emitter.format(), Format::GRAPH);
}

#[test]
fn without_a_gpu_the_native_runtimes_say_what_to_do() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("bert"), &out, &["--target", "cuda"]).succeeds();
    if planish(["runtimes"]).succeeds().stdout.contains("CUDA 1") {
        return skipped("a GPU is there");
    }
    for runtime in ["cuda", "cuda-baseline"] {
        let why = format!("the runtime `{runtime}` is unavailable: there is no CUDA driver: libcuda.so is not there");
        let instead = "take --runtime cuda-emulator, which runs the same kernels on the processor";
        planish(["bench", text(&out), "--runtime", runtime]).exits(4, &[&why, instead]);
        planish(["verify", text(&out), "--runtime", runtime]).exits(4, &[&why, instead]);
        planish(["runtimes", "--test-kernels", runtime]).exits(4, &[&why, instead]);
    }
    planish(["verify", text(&out)]).exits(4, &["the runtime `cuda` is unavailable"]);
    planish_compile(&golden("bert"), &folder.path().join("verified"), &["--target", "cuda", "--verify"])
        .exits(4, &["the runtime `cuda` is unavailable"]);
    planish(["runtimes", "--test-kernels", "ort"]).exits(2, &["`ort` is no runtime with kernels of planish"]);
}

#[test]
fn memory_and_attention_are_planned_without_a_gpu() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("gpt2"), &out, &["--target", "cuda", "--fp16"]).succeeds();
    let plan = ["inspect", text(&out), "--show", "memory,attention", "--batch", "2", "--seq", "1", "--past", "99"];
    let shown = planish(plan).succeeds().stdout;
    assert!(shown.contains("2 x 1 tokens after 99 cached ones"), "{shown}");
    assert!(shown.contains("keys in 2 parts: 1 rows of queries share the keys of a head"), "{shown}");
    let json: Value = serde_json::from_str(&planish([&plan[..], &["--json"]].concat()).succeeds().stdout).unwrap();
    let part = &json["parts"][0];
    let number = |name: &str| part[name].as_u64().unwrap();
    assert!(number("floor") <= number("peak") && number("peak") < number("sum"));
    // Any graph has a plan; only the native runtime chooses between forms of attention.
    let model = golden("gpt2");
    let shown = planish(["inspect", text(&model), "--show", "memory"]).succeeds().stdout;
    assert!(shown.contains("1 x 128 tokens") && shown.contains("arena"), "{shown}");
    planish(["inspect", text(&model), "--show", "attention"]).exits(1, &["takes an artifact for target cuda"]);
    planish(["inspect", text(&model), "--batch", "2"]).exits(2, &["--batch is for --html and --show memory"]);
    planish(["inspect", text(&model), "--show", "memory", "--svg", "x.svg"]).exits(2, &["cannot be used with"]);
    let sizes = ["--batch", "1000000000", "--seq", "1000000000"];
    planish([&["inspect", text(&model), "--show", "memory"], &sizes[..]].concat()).exits(1, &["is too large"]);
    planish([&["inspect", text(&out), "--show", "memory"], &sizes[..]].concat()).exits(1, &["is too large"]);
}

/// The goldens whose encoders are computed without padding.
const ENCODERS: [&str; 11] = [
    "bart",
    "bert",
    "bert-classify",
    "bert-mlm",
    "distilbert-qa",
    "marian",
    "modernbert",
    "mpnet",
    "roberta-mlm",
    "t5",
    "t5-gated-untied",
];

/// The first part of a golden on rows of different lengths, the shortest of one token: tokens as the interpreter has them,
/// zeros for padding.
fn leaves_out_padding(name: &str, half: Option<Half>) {
    let folder = scratch();
    let mut options = options(&CUDA);
    options.passes.precision = half.map(|half| HalfPrecision::new(half).into());
    let compiled = compiled(&golden(name), &folder.path().join("out"), &options);
    let graph = graph_file::load(&compiled.draft.folder().join(&compiled.artifact.manifest.parts[0].files[0])).unwrap();
    let (lengths, sequence) = ([11usize, 1, 6, 11, 3], 11);
    let mask: Vec<i64> =
        lengths.iter().flat_map(|length| (0..sequence).map(move |at| i64::from(at < *length))).collect();
    let input = |name: &str| {
        let elements: Vec<i64> = match name {
            "attention_mask" => mask.clone(),
            "token_type_ids" => (0..mask.len()).map(|at| i64::from(at % 3 == 0)).collect(),
            _ => (0i64..).take(mask.len()).map(|at| 5 + at * 37 % 80).collect(),
        };
        Tensor::new(vec![lengths.len(), sequence], elements).unwrap()
    };
    let names: Vec<String> = graph.inputs().iter().map(|input| graph.value(*input).name.clone()).collect();
    let inputs: Vec<(&str, Tensor)> = names.iter().map(|name| (name.as_str(), input(name))).collect();
    let [expected, given] = ["reference", "cuda-emulator"].map(|runtime| {
        let runtime =
            planish_runtimes::runtimes(Libraries::default()).into_iter().find(|other| other.name() == runtime).unwrap();
        runtime.load(Model::Graph(&graph), SessionOptions::default()).unwrap().run(&inputs).unwrap()
    });
    let limit = if half.is_some() { 2e-2 } else { 1e-4 };
    for ((output, expected), (_, given)) in expected.iter().zip(&given) {
        assert_eq!(expected.shape(), given.shape());
        let per_token = expected.shape().starts_with(&[lengths.len(), sequence]);
        let (expected, given) = (expected.to_f64(), given.to_f64());
        let largest = expected.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
        for (at, given) in given.iter().enumerate() {
            let is_padding = per_token && mask[at / (expected.len() / mask.len())] == 0;
            let wanted = if is_padding { 0.0 } else { expected[at] };
            let near = if is_padding { *given == 0.0 } else { (given - wanted).abs() <= limit * largest };
            assert!(near, "{name} {half:?}: element {at} of {output} is {given}, and should be {wanted}");
        }
    }
}

#[test]
fn encoders_leave_out_padding() {
    for name in ENCODERS {
        leaves_out_padding(name, None);
        leaves_out_padding(name, Some(Half::F16));
    }
}

#[test]
fn what_becomes_of_padding_is_explained() {
    let folder = scratch();
    for name in goldens() {
        let out = folder.path().join(&name);
        planish_compile(&golden(&name), &out, &["--target", "cuda"]).succeeds();
        let shown = planish(["inspect", text(&out), "--show", "attention", "--seq", "9", "--json"]).succeeds().stdout;
        let json: Value = serde_json::from_str(&shown).unwrap();
        let padding = json["parts"][0]["padding"].as_str().unwrap();
        assert_eq!(padding.starts_with("not computed"), ENCODERS.contains(&name.as_str()), "{name}: {padding}");
        assert!(padding.starts_with("not computed") || padding.starts_with("computed: "), "{name}: {padding}");
    }
    let out = folder.path().join("plain");
    planish_compile(&golden("bert"), &out, &["--target", "cuda", "--no-fusion"]).succeeds();
    let shown = planish(["inspect", text(&out), "--show", "attention", "--seq", "9"]).succeeds().stdout;
    assert!(shown.contains("  padding    computed: `transpose` at "), "{shown}");
}

#[test]
fn changed_artifacts_are_refused() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("bert"), &out, &["--target", "cuda"]).succeeds();
    let (graph, weights) = (out.join("model.graph"), out.join("model.weights"));
    let (good_text, good_weights) = (fs::read_to_string(&graph).unwrap(), fs::read(&weights).unwrap());
    fs::write(&weights, &good_weights[..100]).unwrap();
    planish(["verify", text(&out), "--runtime", "reference"])
        .exits(1, &["model.weights has 100 bytes", "it was changed or cut off"]);
    fs::write(&weights, &good_weights).unwrap();
    // As long as it was, so that only its contents are wrong.
    let (changed, end) = (good_text.replacen("linear(", "linerr(", 1), good_text.len() - 2);
    fs::write(&graph, changed).unwrap();
    planish(["verify", text(&out), "--runtime", "reference"])
        .exits(1, &["is not a graph of planish", "unknown operator `linerr`"]);
    fs::write(&graph, format!("{}\n\n", &good_text[..end])).unwrap();
    planish(["verify", text(&out), "--runtime", "reference"]).exits(1, &["the graph is not closed"]);
    fs::write(&graph, good_text.replace("\"model.weights\"", "\"../el.weights\"")).unwrap();
    planish(["verify", text(&out), "--runtime", "reference"]).exits(1, &["is outside of the model's folder"]);
    fs::write(&graph, good_text.replacen("\"model.weights\", 0)", "\"model.weights\", 9)", 1)).unwrap();
    planish(["inspect", text(&out)]).exits(0, &[]);
    let far = good_text.replacen("\"model.weights\", 0)", "\"model.weights\",999999999999)", 1);
    fs::write(&graph, far).unwrap();
    planish(["inspect", text(&out)]).exits(1, &["model.graph has"]);
}

#[test]
fn what_the_target_does_not_do_is_a_usage_error() {
    let folder = scratch();
    let out = folder.path().join("out");
    for (more, message) in [
        (&["--opset", "20"][..], "--opset is for ONNX files, and target cuda has none"),
        (&["--package", "genai"], "onnxruntime-genai does not load a file of format graph of planish"),
        (&["--package", "triton"], "Triton Inference Server does not load a file of format graph of planish"),
    ] {
        planish_compile(&golden("gpt2"), &out, &[&["--target", "cuda"], more].concat()).exits(2, &[message]);
    }
    let graph = |name: &str| repository().join("fixtures/graphs-more").join(name);
    let message = "target cuda runs the operators of planish's graph only";
    planish_compile(&graph("qop-bert.onnx"), &out, &["--target", "cuda"]).exits(1, &[message]);
}
