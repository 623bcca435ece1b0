//! The tensors that heads of encoders have, and what they give.

use planish_models::{ModelError, Task};

use crate::support::{Draft, Stored, task};

/// Adds what a golden lacks for a task; returns the names of the modules and what the outputs are.
fn completed(name: &str, of: Task) -> (Vec<String>, Vec<String>) {
    let mut draft = Draft::of(name);
    let mut added = Vec::new();
    loop {
        match draft.load(task(of)) {
            Ok(mut model) => {
                let graph = model.parts.remove(0).graph;
                let outputs = graph.outputs().iter().map(|o| format!("{}: {}", o.name, graph.ty(o.value)));
                let outputs = outputs.collect();
                added.dedup();
                return (added, outputs);
            }
            Err(ModelError::MissingTensor { name, .. }) => {
                let module = name.strip_suffix(".weight").or_else(|| name.strip_suffix(".bias"));
                added.push(module.unwrap_or(&name).to_owned());
                draft = draft.tensor(&name, Stored::ramp(&[]));
            }
            Err(ModelError::Tensor { name, message, .. }) => {
                let expected = message.split("expected [").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
                let shape: Vec<usize> = expected.split(", ").map(|size| size.parse().unwrap()).collect();
                draft = draft.tensor(&name, Stored::ramp(&shape));
            }
            Err(error) => panic!("{name} {of}: {error}"),
        }
    }
}

const BERT: &[(Task, &[&str])] = &[
    (Task::TextClassification, &["classifier"]),
    (Task::TokenClassification, &["classifier"]),
    (Task::QuestionAnswering, &["qa_outputs"]),
    (Task::FillMask, &["cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions"]),
];

const ROBERTA: &[(Task, &[&str])] = &[
    (Task::TextClassification, &["classifier.dense", "classifier.out_proj"]),
    (Task::TokenClassification, &["classifier"]),
    (Task::QuestionAnswering, &["qa_outputs"]),
    (Task::FillMask, &["lm_head.dense", "lm_head.layer_norm", "lm_head"]),
];

#[test]
fn heads_have_the_modules_that_the_transformers_library_has() {
    let with = |of: Task, modules: &'static [&'static str], others: &'static [(Task, &'static [&'static str])]| {
        let kept = others.iter().copied().filter(|(task, _)| *task != of);
        kept.chain([(of, modules)]).collect::<Vec<_>>()
    };
    let pooled: &[&str] = &["pooler.dense", "classifier"];
    let own: &[&str] = &["classifier.dense", "classifier.out_proj"];
    let electra: &[&str] = &["generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head"];
    let rembert: &[&str] = &["cls.predictions.dense", "cls.predictions.LayerNorm", "cls.predictions.decoder"];
    let nomic: &[&str] =
        &["cls.predictions.transform.dense", "cls.predictions.transform.layer_norm", "cls.predictions"];
    let mobile: &[&str] = &[
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.dense",
        "cls.predictions",
    ];
    let without_answers = |mut heads: Vec<(Task, &'static [&'static str])>| {
        heads.retain(|(task, _)| *task != Task::QuestionAnswering);
        heads
    };
    for (name, heads) in [
        ("layoutlm", BERT.to_vec()),
        ("squeezebert", BERT.to_vec()),
        ("rembert", with(Task::FillMask, rembert, BERT)),
        ("mobilebert", with(Task::FillMask, mobile, BERT)),
        ("roformer", with(Task::TextClassification, own, BERT)),
        ("deberta", with(Task::TextClassification, pooled, BERT)),
        ("deberta-v2", with(Task::TextClassification, pooled, BERT)),
        ("convbert", with(Task::FillMask, electra, ROBERTA)),
        ("xlm-roberta-xl", ROBERTA.to_vec()),
        ("jina-v3", ROBERTA.to_vec()),
        ("esm", without_answers(with(Task::FillMask, &[], ROBERTA))),
        (
            "gte",
            without_answers(vec![
                (Task::TextClassification, pooled),
                (Task::TokenClassification, &["classifier"]),
                (Task::FillMask, &["lm_head.dense", "lm_head.layer_norm", "lm_head.decoder"]),
            ]),
        ),
        (
            "nomic-bert",
            without_answers(vec![
                (Task::TextClassification, pooled),
                (Task::TokenClassification, &["classifier"]),
                (Task::FillMask, nomic),
            ]),
        ),
    ] {
        for (of, modules) in heads {
            let (added, outputs) = completed(name, of);
            assert_eq!(added, modules, "{name} {of}");
            let expected: &[&str] = match of {
                Task::FillMask => &["logits: f32[batch_size, sequence_length, 131]"],
                Task::TextClassification => &["logits: f32[batch_size, 2]"],
                Task::TokenClassification => &["logits: f32[batch_size, sequence_length, 2]"],
                _ => {
                    &["start_logits: f32[batch_size, sequence_length]", "end_logits: f32[batch_size, sequence_length]"]
                }
            };
            assert_eq!(outputs, expected, "{name} {of}");
        }
    }
}

/// The head of the original code of DeBERTa.
#[test]
fn deberta_may_have_another_head() {
    for name in ["deberta", "deberta-v2"] {
        let draft = Draft::of(name).with("legacy", false.into());
        let message = draft.error(task(Task::FillMask));
        assert!(message.contains("`lm_predictions.lm_head.dense.weight` is missing"), "{message}");
        let head = [("dense.weight", vec![48, 48]), ("dense.bias", vec![48]), ("LayerNorm.weight", vec![48])]
            .into_iter()
            .chain([("LayerNorm.bias", vec![48]), ("bias", vec![131])]);
        let draft = head.fold(draft, |draft, (tensor, shape)| {
            draft.tensor(&format!("lm_predictions.lm_head.{tensor}"), Stored::ramp(&shape))
        });
        assert!(draft.load(task(Task::FillMask)).is_ok());
    }
}
