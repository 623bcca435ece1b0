//! `planish inspect`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{artifact, golden, planish, planish_compile, repository, scratch, text};

#[track_caller]
fn inspected(arguments: &[&str]) -> Value {
    let done = planish([&["inspect", "--json"], arguments].concat()).succeeds();
    serde_json::from_str(&done.stdout).unwrap()
}

#[test]
fn graphs_are_inspected_as_they_stand_and_raised() {
    let model = repository().join("fixtures/graphs/optimum-bert/model.onnx");
    let plain = inspected(&[text(&model)]);
    assert_eq!((&plain["architecture"], &plain["opset"]), (&json!("onnx"), &json!(18)));
    let part = &plain["parts"][0];
    let input = json!({"name": "input_ids", "dtype": "i64", "shape": ["batch_size", "sequence_length"]});
    assert_eq!(part["inputs"][0], input);
    assert_eq!((&part["operators"]["softmax"], &part["operators"]["attention"]), (&json!(2), &Value::Null));
    let raised = inspected(&[text(&model), "--raised"]);
    assert_eq!(raised["parts"][0]["operators"]["attention"], 2);
    assert_eq!(raised["parts"][0]["largest"][0]["bytes"], part["largest"][0]["bytes"]);
}

#[test]
fn checkpoints_and_artifacts_are_inspected() {
    let checkpoint = inspected(&[text(&golden("t5"))]);
    let names: Vec<&Value> = checkpoint["parts"].as_array().unwrap().iter().map(|part| &part["name"]).collect();
    assert_eq!(names, ["encoder_model", "decoder_model", "decoder_with_past_model"]);
    assert_eq!(checkpoint["opset"], Value::Null);
    let (_folder, out) = artifact("bert");
    let done = planish(["inspect", text(&out)]).succeeds();
    for part in ["bert for feature-extraction, opset 20", "input      input_ids i64[batch_size, sequence_length]"] {
        assert!(done.stdout.contains(part), "`{part}` is not in: {}", done.stdout);
    }
    planish(["inspect", "/nowhere"]).exits(1, &["/nowhere"]);
}

/// Each box is there, and two runs give the same bytes.
#[test]
fn drawings_have_every_operator_and_do_not_change() {
    let (folder, model) = (scratch(), golden("bert"));
    let draw = |name: &str| {
        let (dot, svg) = (folder.path().join(format!("{name}.dot")), folder.path().join(format!("{name}.svg")));
        let shown = inspected(&[text(&model), "--dot", text(&dot), "--svg", text(&svg)]);
        (shown, fs::read_to_string(dot).unwrap(), fs::read_to_string(svg).unwrap())
    };
    let (shown, dot, svg) = draw("first");
    assert_eq!((shown.clone(), dot.clone(), svg.clone()), draw("second"));
    let part = &shown["parts"][0];
    let operators: u64 = part["operators"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    let ports = part["inputs"].as_array().unwrap().len() + part["outputs"].as_array().unwrap().len();
    let boxes = usize::try_from(operators).unwrap() + ports;
    assert_eq!(dot.matches(" [label=").count(), boxes);
    assert_eq!(svg.matches("<g>").count(), boxes);
    assert_eq!(dot.matches(" -> ").count(), svg.matches("<path").count());
    assert!(dot.contains("label=\"encoder.layer.0\"") && dot.contains("label=\"encoder.layer.1\""), "{dot}");
}

/// The graph that a page has for its script.
fn graph_of(page: &str) -> Value {
    let (_, data) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

/// The files stay in target/, where `make test-report` opens them in a browser.
#[test]
fn pages_are_one_file_with_the_graph() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let folder = scratch();
    let out = folder.path().join("gpt2-int4");
    let more = ["--int4", "--recipe", "block-size=16", "--verify"];
    planish_compile(&golden("gpt2"), &out, &more).exits(0, &[]);
    let page = |model: &str, name: &str, more: &[&str]| {
        let file = target.join(name);
        planish([&["inspect", model, "--html", text(&file)], more].concat()).succeeds();
        fs::read_to_string(file).unwrap()
    };
    let artifact = page(text(&out), "inspect-artifact.html", &["--batch", "2", "--seq", "8"]);
    for says in ["<h1>gpt2-int4</h1>", "2 rows, 8 tokens", "id=\"checks\"", ">input_ids<", "MatMulNBits"] {
        assert!(artifact.contains(says), "{says}");
    }
    assert_eq!(artifact.matches("<script").count(), 2, "{artifact}");
    for elsewhere in ["http://", "https://", "src=", "@import"] {
        assert!(!artifact.contains(elsewhere), "{elsewhere}");
    }
    let graph = graph_of(&artifact);
    let inspection = inspected(&[text(&out)]);
    let counts: u64 = inspection["parts"][0]["operators"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    let nodes = graph[0]["nodes"].as_array().unwrap();
    assert_eq!(nodes.len() as u64, counts);
    // Each operand is an input, a weight or the result of a node before.
    let mut known: Vec<u64> = graph[0]["inputs"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    let values = graph[0]["values"].as_array().unwrap();
    for node in nodes {
        for operand in node[3].as_array().unwrap().iter().filter_map(Value::as_u64) {
            let is_weight = values[usize::try_from(operand).unwrap()].as_array().unwrap().len() == 4;
            assert!(is_weight || known.contains(&operand), "{node}");
        }
        known.extend(node[4].as_array().unwrap().iter().filter_map(Value::as_u64));
    }
    let product = nodes.iter().find(|node| node[1] == "MatMulNBits").unwrap();
    assert!(product[5].as_str().unwrap().contains("block_size"), "{product}");
    let weight = values.iter().find(|value| value[0] == "wte.weight").unwrap();
    assert_eq!((&weight[2], &weight[3]), (&json!(6576), &json!("model.onnx")));

    let several = page(text(&golden("t5")), "inspect-checkpoint.html", &[]);
    assert_eq!(graph_of(&several).as_array().unwrap().len(), 3);
    let model = repository().join("fixtures/graphs/optimum-bert/model.onnx");
    let exported = page(text(&model), "inspect-graph.html", &[]);
    assert!(exported.contains("<strong>2</strong> attention"), "{exported}");
    planish(["inspect", text(&model), "--html", text(&model)]).exits(2, &["--html", "which this command reads"]);
    planish(["inspect", text(&model), "--html", "x", "--show", "cost"]).exits(2, &["--html"]);
}
