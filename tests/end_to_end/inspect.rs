//! `planish inspect`.

use std::fs;

use serde_json::{Value, json};

use crate::support::{artifact, golden, planish, repository, scratch, text};

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
