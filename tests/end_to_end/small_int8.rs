//! What --int8 does beside linear layers: tables of tokens, recurrent layers, convolutions, and what it leaves.

use std::fs;
use std::path::{Path, PathBuf};

use planish::artifact::coverage::Extent;
use planish::artifact::manifest::Manifest;
use planish_ir::{DType, Graph, Op};
use planish_onnx::proto::{DataType, GraphProto, TensorProto};
use planish_passes::quantize::WeightForm;
use planish_testing::onnx::{f32, floats, graph, int, ints, model, node, text as attribute_text, typed};
use prost::Message;

use crate::support::{
    Done, command, golden, planish, planish_compile, repository, scratch, tensors, text, write_tensors,
};

/// INT8 by codes whose sums of products saturate on no processor, so that artifacts can be verified on each.
const INT8: [&str; 3] = ["--int8", "--recipe", "weight-scales=reduced"];

/// Numbers around 0, the same for each seed.
fn weight(name: &str, dims: &[i64], seed: u32) -> TensorProto {
    let count: i64 = dims.iter().product();
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let numbers = (0..count).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (f64::from(state) / f64::from(u32::MAX) - 0.5) as f32 * 0.4
    });
    floats(name, dims, &numbers.collect::<Vec<f32>>())
}

fn written(folder: &Path, name: &str, graph: GraphProto) -> PathBuf {
    let path = folder.join(format!("{name}.onnx"));
    fs::write(&path, model(17, graph).encode_to_vec()).unwrap();
    path
}

fn imported(artifact: &Path, name: &str) -> Graph {
    planish_onnx::import(&artifact.join(name)).unwrap().graph
}

fn operators(graph: &Graph) -> Vec<String> {
    let foreign = |op: &Op| match op {
        Op::Foreign(foreign) => foreign.op.0.clone(),
        op => op.mnemonic().to_owned(),
    };
    graph.nodes().map(|(_, node)| foreign(&node.op)).collect()
}

/// Compiles without -o in a folder.
fn compile_in(folder: &Path, model: &Path, more: &[&str]) -> Done {
    let arguments = [&["compile", text(model)], more].concat();
    command(arguments).current_dir(folder).output().unwrap().into()
}

#[test]
fn tables_of_tokens_become_codes() {
    for (name, parts) in [("bert", 1), ("gpt2", 1), ("t5", 3), ("llama", 1)] {
        let folder = scratch();
        let out = folder.path().join("out");
        planish_compile(&golden(name), &out, &[&INT8[..], &["--verify", "--debug=verify"]].concat()).exits(0, &[]);
        let manifest = Manifest::read(&out).unwrap();
        assert_eq!(manifest.parts.len(), parts);
        for part in &manifest.parts {
            let weights = &part.quantization.as_ref().unwrap().weights;
            let rows = WeightForm::Rows { codes: DType::I8, integers: false };
            assert!(weights.len() == 1 && weights[0].form == rows, "{name}: {weights:?}");
            assert_eq!(part.coverage.as_ref().unwrap().extent(), Extent::Most, "{name}");
        }
        planish_compile(&golden(name), &out, &["--int8", "--force", "--keep", "@table=float"]).exits(0, &[]);
        let kept = Manifest::read(&out).unwrap();
        let form = &kept.parts[0].quantization.as_ref().unwrap().weights[0].form;
        assert!(form.to_string().contains("keep @table says so"), "{form}");
    }
    let folder = scratch();
    let refused = |more: &[&str], part: &str| {
        planish_compile(&golden("bert"), &folder.path().join("out"), more).exits(2, &[part]);
    };
    refused(&["--int8", "--keep", "@table=int4"], "with --int8 write =int8 or =float");
}

/// A table that scores tokens too: its codes are in the file once.
#[test]
fn a_table_that_a_layer_shares_is_stored_once() {
    let folder = scratch();
    let nodes = vec![
        node("e = Gather(t, input_ids)", vec![]),
        node("h = MatMul(e, w)", vec![]),
        node("n = LayerNormalization(h, s, b)", vec![]),
        node("tt = Transpose(t)", vec![ints("perm", &[1, 0])]),
        node("logits = MatMul(n, tt)", vec![]),
    ];
    let constants = vec![
        weight("t", &[1000, 128], 1),
        weight("w", &[128, 128], 2),
        floats("s", &[128], &[1.0; 128]),
        floats("b", &[128], &[0.1; 128]),
    ];
    let path = written(
        folder.path(),
        "tied",
        graph(vec![typed("input_ids", DataType::Int64, "batch, tokens")], constants, nodes, &["logits"]),
    );
    let plan = folder.path().join("plan.json");
    let out = folder.path().join("out");
    for more in [&["--verify"][..], &["--verify", "--no-fusion"]] {
        planish_compile(&path, &out, &[&["--force"], &INT8[..], more].concat()).exits(0, &[]);
        let bytes = fs::metadata(out.join("model.onnx")).unwrap().len();
        // Two copies would be 256,000 bytes.
        assert!((144_384..230_000).contains(&bytes), "{more:?}: {bytes}");
    }
    planish_compile(&path, &out, &["--force", "--int8"]).exits(0, &[]);
    fs::copy(out.join("planish.json"), &plan).unwrap();
    let applied = format!("plan={}", plan.display());
    let again = ["--force", "--int8", "--recipe", &applied];
    planish_compile(&path, &out, &again).exits(0, &[]);
    let edited = fs::read_to_string(&plan).unwrap().replace("\"weight\": \"t\"", "\"weight\": \"x\"");
    fs::write(&plan, edited).unwrap();
    planish_compile(&path, &out, &again)
        .exits(1, &["no table and no weight of a recurrent layer or a convolution `x`"]);
}

fn recurrent(operator: &str, gates: i64) -> GraphProto {
    let call = format!("y = {operator}(e, w, r, b)");
    let settings = vec![int("hidden_size", 32), attribute_text("direction", "bidirectional")];
    let nodes = vec![
        node("e = Gather(t, tokens)", vec![]),
        node(&call, settings),
        node("q = Transpose(y)", vec![ints("perm", &[0, 2, 1, 3])]),
    ];
    let constants = vec![
        weight("t", &[40, 48], 1),
        weight("w", &[2, gates * 32, 48], 2),
        weight("r", &[2, gates * 32, 32], 3),
        weight("b", &[2, 2 * gates * 32], 4),
    ];
    graph(vec![typed("tokens", DataType::Int64, "time, batch")], constants, nodes, &["q"])
}

#[test]
fn recurrent_layers_take_codes() {
    for (operator, gates, expected) in
        [("LSTM", 4, "DynamicQuantizeLSTM"), ("GRU", 3, "DequantizeLinear"), ("RNN", 1, "DequantizeLinear")]
    {
        let folder = scratch();
        let path = written(folder.path(), "recurrent", recurrent(operator, gates));
        let out = folder.path().join("out");
        let done = planish_compile(&path, &out, &["--int8", "--verify", "--debug=verify"]).exits(0, &[]);
        assert!(done.stdout.contains("verified"), "{}", done.stdout);
        let names = operators(&imported(&out, "model.onnx"));
        assert!(names.iter().any(|name| name == expected), "{operator}: {names:?}");
        let weights = Manifest::read(&out).unwrap().parts[0].quantization.clone().unwrap().weights;
        assert_eq!(weights.len(), 2, "{weights:?}");
        let integers = operator == "LSTM";
        assert!(weights.iter().all(|w| w.form == WeightForm::Rows { codes: DType::I8, integers }), "{weights:?}");
        planish_compile(&path, &out, &["--int8", "--force", "--keep", "^w$"]).exits(0, &[]);
        let names = operators(&imported(&out, "model.onnx"));
        assert!(names.iter().any(|name| name == operator), "{operator}: {names:?}");
    }
}

#[test]
fn convolutions_take_codes() {
    for name in ["resnet", "convnext", "segformer"] {
        let folder = scratch();
        let (out, data) = (folder.path().join("out"), folder.path().join("images.safetensors"));
        // So many images that some are held out.
        let mut images = tensors(&golden(name).join("io.safetensors")).remove("in.pixel_values").unwrap();
        (images.bytes, images.shape[0]) = (images.bytes.repeat(8), images.shape[0] * 8);
        write_tensors(&data, &[("pixel_values".to_owned(), images)].into());
        let floats = [&INT8[..], &["--verify", "--debug=verify"]].concat();
        planish_compile(&golden(name), &out, &floats).exits(0, &[]);
        let graph = imported(&out, "model.onnx");
        assert!(graph.nodes().any(|(_, node)| matches!(node.op, Op::Conv(_))), "{name}");
        let weights = Manifest::read(&out).unwrap().parts[0].quantization.clone().unwrap().weights;
        assert!(weights.iter().any(|w| w.form.codes() == Some(DType::I8)), "{name}: {weights:?}");
        // Half precision measures ranges of values too.
        for target in [&["--target", "ort"][..], &["--target", "onnx", "--fp16"], &["--target", "onnx"]] {
            let fixed = ["--debug=verify", "--force", "--calibrate", text(&data), "--max-loss=cos=0.98"];
            planish_compile(&golden(name), &out, &[&INT8[..], &fixed, target].concat()).exits(0, &[]);
            let maps = Manifest::read(&out).unwrap().parts[0].quantization.clone().unwrap().maps;
            let codes = maps.iter().all(|map| map.activation.codes() == Some(DType::U8));
            assert!(codes && maps.iter().any(|map| !map.layers.is_empty()), "{name}: {maps:?}");
        }
        // The plan alone gives the same, and a convolution that is kept takes floats.
        let plan = format!("plan={}", text(&out.join("planish.json")));
        let again = folder.path().join("again");
        let planned = [&INT8[..], &["--target", "onnx", "--recipe", &plan]].concat();
        planish_compile(&golden(name), &again, &planned).exits(0, &[]);
        let maps = |out: &Path| Manifest::read(out).unwrap().parts[0].quantization.clone().unwrap().maps;
        let kinds = |out: &Path| maps(out).into_iter().map(|map| map.activation).collect::<Vec<_>>();
        assert_eq!(kinds(&out), kinds(&again), "{name}");
        let kept = [&floats[..], &["--force", "--calibrate", text(&data), "--keep", "."]].concat();
        planish_compile(&golden(name), &out, &kept).exits(0, &["quantized nothing"]);
        assert!(maps(&out).iter().all(|map| map.activation.codes().is_none()), "{name}");
    }
}

#[test]
fn what_is_left_is_said_and_names_the_folder() {
    let folder = scratch();
    let convolutions = |classes: i64| {
        let nodes = vec![
            node("c = ConvTranspose(image, k)", vec![ints("kernel_shape", &[3, 3])]),
            node("p = GlobalAveragePool(c)", vec![]),
            node("f = Flatten(p)", vec![]),
            node("scores = MatMul(f, w)", vec![]),
        ];
        let constants = vec![weight("k", &[16, 64, 3, 3], 1), weight("w", &[64, classes], 2)];
        graph(vec![f32("image", "batch, 16, 8, 8")], constants, nodes, &["scores"])
    };
    let nothing = written(folder.path(), "plain", convolutions(4));
    let done = compile_in(folder.path(), &nothing, &["--int8"]);
    done.exits(
        0,
        &["--int8 quantized nothing", "1 weight of ConvTranspose", "does not quantize transposed convolutions"],
    );
    assert!(folder.path().join("plain-ort/planish.json").is_file());
    assert!(!folder.path().join("plain-ort-int8").exists());

    let head = written(folder.path(), "head", convolutions(40));
    let done = compile_in(folder.path(), &head, &INT8);
    let done =
        done.exits(0, &["--int8 left most of the model in float", "; 1 weight of ConvTranspose (9.2k elements)"]);
    assert!(done.stdout.contains("head-ort-partly-int8: "), "{}", done.stdout);
    planish(["verify", text(&folder.path().join("head-ort-partly-int8"))]).exits(0, &[]);

    // A name that was asked for stays.
    compile_in(folder.path(), &nothing, &["--int8", "-o", "mine"]).exits(0, &["quantized nothing"]);
    assert!(folder.path().join("mine/planish.json").is_file());
    let json = compile_in(folder.path(), &nothing, &["--int8", "--json", "--force"]).exits(0, &["quantized nothing"]);
    let document: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let left = &document["manifest"]["parts"][0]["coverage"]["left"];
    assert_eq!((&left[0]["operator"], &left[0]["elements"]), (&"ConvTranspose".into(), &9216.into()));
}

/// Codes of a checkpoint stay as they are, and are rounded anew where that is asked for.
#[test]
fn codes_of_the_source_stay_unless_they_are_to_be_quantized_anew() {
    let source = repository().join("fixtures/quantized/gptq");
    let folder = scratch();
    let out = folder.path().join("out");
    for option in ["--int4", "--int8-weights", "--int8"] {
        let done = planish_compile(&source, &out, &["--force", option]);
        done.exits(0, &["weights have codes already, and stay as they are; --recipe requantize=true"]);
        let kept = Manifest::read(&out).unwrap().parts[0].coverage.clone().unwrap();
        assert!(kept.kept > 0);
        let more = if option == "--int8" { &INT8[1..] } else { &["--recipe", "block-size=32"] };
        let done = planish_compile(&source, &out, &[&["--force", option, "--recipe=requantize=true"], more].concat())
            .exits(0, &[]);
        assert!(!done.stderr.contains("have codes already"), "{}", done.stderr);
        let coverage = Manifest::read(&out).unwrap().parts[0].coverage.clone().unwrap();
        assert_eq!((coverage.kept, coverage.quantized), (0, kept.kept + kept.quantized));
        planish(["verify", text(&out)]).exits(0, &[]);
    }
    planish_compile(&golden("llama"), &out, &["--force", "--int4", "--recipe=requantize=true"])
        .exits(0, &["--recipe requantize changed nothing"]);
    planish_compile(&source, &out, &["--force", "--recipe=requantize=true"]).exits(2, &["--recipe requantize is for"]);
}
