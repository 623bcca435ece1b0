//! Every task of every encoder of text: names and shapes of outputs.

use planish_models::{Architecture, LoadOptions, Task};
use serde_json::json;

use crate::support::{Draft, Stored};

/// A checkpoint of an architecture with all heads, which differ in names only.
fn all_heads(model_type: &str, task: Task) -> Draft {
    let labels = match task {
        Task::QuestionAnswering => 2,
        Task::MultipleChoice => 1,
        _ => 3,
    };
    let hidden = 48;
    let (base, golden) = match model_type {
        "bert" => ("bert", "bert-mlm"),
        "distilbert" => ("distilbert", "distilbert-qa"),
        _ => ("roberta", "roberta-mlm"),
    };
    let names: serde_json::Map<_, _> = (0..labels).map(|i| (i.to_string(), json!(format!("L{i}")))).collect();
    let mut draft = Draft::of(golden).with("model_type", json!(model_type)).with("id2label", json!(names));
    let linears = [
        (format!("{base}.pooler.dense"), hidden, true),
        ("qa_outputs".to_owned(), labels, true),
        ("classifier.dense".to_owned(), hidden, base == "roberta"),
        ("classifier.out_proj".to_owned(), labels, base == "roberta"),
        ("pre_classifier".to_owned(), hidden, base == "distilbert"),
        ("vocab_transform".to_owned(), hidden, base == "distilbert"),
        ("classifier".to_owned(), labels, true),
    ];
    for (name, out, _) in linears.iter().filter(|l| l.2) {
        draft = draft
            .tensor(&format!("{name}.weight"), Stored::ramp(&[*out, hidden]))
            .tensor(&format!("{name}.bias"), Stored::ramp(&[*out]));
    }
    if base == "distilbert" {
        // DistilBERT has no pooler.
        draft.tensors.retain(|name, _| !name.contains("pooler"));
        draft = draft
            .tensor("vocab_layer_norm.weight", Stored::ramp(&[hidden]))
            .tensor("vocab_layer_norm.bias", Stored::ramp(&[hidden]))
            .tensor("vocab_projector.bias", Stored::ramp(&[131]));
    }
    draft
}

#[test]
fn outputs_have_the_names_and_shapes_of_their_task() {
    for model_type in ["bert", "camembert", "distilbert", "roberta", "xlm-roberta"] {
        let architecture = Architecture::find(model_type).unwrap();
        for &task in architecture.tasks {
            let draft = all_heads(architecture.model_type, task);
            let model = draft.load(LoadOptions { task: Some(task), strict: true, ..LoadOptions::default() });
            let graph =
                model.unwrap_or_else(|e| panic!("{} {task}: {e}", architecture.model_type)).parts.remove(0).graph;
            let outputs: Vec<String> =
                graph.outputs().iter().map(|o| format!("{}: {}", o.name, graph.ty(o.value))).collect();
            let expected: &[&str] = match task {
                Task::FeatureExtraction if architecture.model_type == "distilbert" => {
                    &["last_hidden_state: f32[batch_size, sequence_length, 48]"]
                }
                Task::FeatureExtraction => {
                    &["last_hidden_state: f32[batch_size, sequence_length, 48]", "pooler_output: f32[batch_size, 48]"]
                }
                Task::FillMask => &["logits: f32[batch_size, sequence_length, 131]"],
                Task::TextClassification => &["logits: f32[batch_size, 3]"],
                Task::TokenClassification => &["logits: f32[batch_size, sequence_length, 3]"],
                Task::MultipleChoice => &["logits: f32[batch_size, num_choices]"],
                Task::QuestionAnswering => {
                    &["start_logits: f32[batch_size, sequence_length]", "end_logits: f32[batch_size, sequence_length]"]
                }
                _ => unreachable!("no task of an encoder of text"),
            };
            assert_eq!(outputs, expected, "{} {task}", architecture.model_type);
        }
    }
}

#[test]
fn activations_are_what_the_configuration_names() {
    let line = |name: &str| {
        let model = Draft::of("bert").with("hidden_act", json!(name)).load(LoadOptions::default()).unwrap();
        let text = model.parts[0].graph.to_string();
        text.lines().find(|l| l.contains("%encoder.layer.0.activation =")).unwrap().to_owned()
    };
    for (name, op) in [
        ("gelu", "= gelu(%encoder.layer.0.intermediate.dense) {form = erf}"),
        ("gelu_python", "{form = erf}"),
        ("gelu_new", "{form = tanh}"),
        ("gelu_fast", "{form = tanh}"),
        ("gelu_accurate", "{form = tanh}"),
        ("gelu_python_tanh", "{form = tanh}"),
        ("gelu_pytorch_tanh", "{form = tanh}"),
        ("relu", "= relu("),
        ("silu", "= silu("),
        ("swish", "= silu("),
        ("tanh", "= tanh("),
    ] {
        assert!(line(name).contains(op), "{name}: {}", line(name));
    }
}
