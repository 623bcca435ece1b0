//! Layers of several kinds in one model, and settings of them that are not followed.

use planish_models::Task;
use serde_json::json;

use crate::support::{Draft, LENIENT, STRICT, Stored, assert_refused, assert_says, golden, load_path, task, text};

/// The lines of a golden's graph that have a text.
fn lines(name: &str, has: &str) -> Vec<String> {
    let text = text(&load_path(&golden(name), STRICT).unwrap(), "model");
    text.lines().filter(|line| line.contains(has)).map(str::to_owned).collect()
}

#[test]
fn angles_and_windows_go_by_the_kind_of_layer() {
    for (name, window, is_causal, slides) in [
        ("gemma3", "window = 4", true, &[true, false][..]),
        ("cohere2", "window = 4", true, &[true, false]),
        ("olmo3", "window = 4", true, &[true, false]),
        ("exaone4", "window = 4", true, &[true, false]),
        ("modernbert", "window = 5", false, &[false, true, false]),
    ] {
        let attention = lines(name, "= attention(");
        let found: Vec<bool> = attention.iter().map(|line| line.contains(window)).collect();
        assert_eq!(found, slides, "{name}");
        assert!(attention.iter().all(|line| line.contains("causal = true") == is_causal), "{name}");
    }
    // Two embeddings, one, and none in some layers: queries and keys turn in each layer that has one.
    for (name, frequencies, turned) in [("gemma3", 2, 4), ("modernbert", 2, 6), ("cohere2", 1, 2), ("smollm3", 1, 2)] {
        assert_eq!(lines(name, "inv_freq = ").len(), frequencies, "{name}");
        assert_eq!(lines(name, "= rotary(").len(), turned, "{name}");
    }
}

#[test]
fn parameters_of_all_layers_are_those_of_layers_without_windows() {
    let scaled = |golden: &str| {
        let factor = json!({"rope_type": "linear", "factor": 8.0, "rope_theta": 10_000.0});
        let model = Draft::of(golden).with("rope_parameters", factor).load(STRICT).unwrap();
        let weights = |name: &str| {
            let (_, _, weight) = model.parts[0].graph.weights().find(|(_, value, _)| value.name == name).unwrap();
            weight.read_numbers().unwrap()[0]
        };
        [weights("rotary_emb.inv_freq"), weights("rotary_emb_local.inv_freq")]
    };
    assert_eq!(scaled("gemma3"), [0.125, 1.0]);
    assert_eq!(scaled("olmo3"), [0.125, 1.0]);
    assert_eq!(scaled("modernbert"), [0.125, 0.125]);
}

#[test]
fn what_is_not_followed_is_refused() {
    assert_refused("modernbert", "classifier_pooling", json!("max"), &["expected \"cls\" or \"mean\""]);
    assert_refused("smollm3", "no_rope_layers", json!([1]), &["a list of 0 and 1 for each of num_hidden_layers = 2"]);
    assert_refused("albert", "num_hidden_groups", json!(9), &["is more than num_hidden_layers = 3"]);
    assert_refused("granite", "logits_scaling", json!(0), &["a positive number"]);
}

#[test]
fn heads_of_modernbert() {
    let classifier = || {
        Draft::of("modernbert")
            .tensor("classifier.weight", Stored::ramp(&[2, 48]))
            .tensor("classifier.bias", Stored::ramp(&[2]))
    };
    for (pooling, pools) in [("cls", "first_token"), ("mean", "pooled.count")] {
        let draft = classifier().with("classifier_pooling", json!(pooling));
        let graph = text(&draft.load(task(Task::TextClassification)).unwrap(), "model");
        assert_says(&graph, &[pools, "f32[batch_size, 2]"]);
    }
    let graph = text(&classifier().load(task(Task::QuestionAnswering)).unwrap(), "model");
    assert_says(&graph, &["start_logits", "end_logits"]);
    let message = Draft::of("modernbert").load(task(Task::TokenClassification)).map(|_| ()).unwrap_err().to_string();
    assert_says(&message, &["tensor `classifier.weight` is missing"]);
    assert!(Draft::of("modernbert").load(LENIENT).is_ok());
}
