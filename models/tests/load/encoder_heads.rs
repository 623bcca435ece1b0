//! The tensors that heads of encoders have, and what they give.

use planish_ir::Graph;
use planish_models::{ModelError, Task};
use serde_json::json;

use crate::support::{Draft, LENIENT, Stored, task};
use crate::values::values;

/// Adds what a checkpoint lacks for a task; returns it, the names of the modules that were added, and the graph.
fn completed(mut draft: Draft, of: Task) -> (Draft, Vec<String>, Graph) {
    let mut added = Vec::new();
    loop {
        match draft.load(task(of)) {
            Ok(mut model) => {
                added.dedup();
                return (draft, added, model.parts.remove(0).graph);
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
            Err(error) => panic!("{of}: {error}"),
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
    // Its projections may lack biases.
    let nomic: &[&str] = &["cls.predictions.transform.dense", "cls.predictions.transform.layer_norm"];
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
        ("nystromformer", with(Task::TextClassification, own, BERT)),
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
            let (_, added, graph) = completed(Draft::of(name), of);
            assert_eq!(added, modules, "{name} {of}");
            let expected: &[&str] = match of {
                Task::FillMask => &["logits: f32[batch_size, sequence_length, 131]"],
                Task::TextClassification => &["logits: f32[batch_size, 2]"],
                Task::TokenClassification => &["logits: f32[batch_size, sequence_length, 2]"],
                _ => {
                    &["start_logits: f32[batch_size, sequence_length]", "end_logits: f32[batch_size, sequence_length]"]
                }
            };
            let outputs = graph.outputs().iter().map(|o| format!("{}: {}", o.name, graph.ty(o.value)));
            assert_eq!(outputs.collect::<Vec<_>>(), expected, "{name} {of}");
        }
    }
}

/// Ids of choices have a dimension more, and each text has a score.
#[test]
fn one_of_several_texts_is_chosen() {
    let summary: &[&str] = &["sequence_summary.summary", "classifier"];
    let pooled: &[&str] = &["pooler.dense", "classifier"];
    for (name, modules) in [
        ("albert", &["classifier"][..]),
        ("convbert", &["classifier"]),
        ("deberta-v2", pooled),
        ("distilbert-qa", &["pre_classifier", "classifier"]),
        ("electra", summary),
        ("mobilebert", &["classifier"]),
        ("modernbert", &["head.dense", "head.norm", "classifier"]),
        ("mpnet", pooled),
        ("nystromformer", &["pre_classifier", "classifier"]),
        ("rembert", &["classifier"]),
        ("roberta-mlm", pooled),
        ("roformer", &["classifier"]),
        ("squeezebert", &["classifier"]),
        ("xlm-roberta-xl", pooled),
    ] {
        let (_, added, graph) = completed(Draft::of(name), Task::MultipleChoice);
        assert!(added.iter().all(|module| modules.contains(&module.as_str())), "{name}: {added:?}");
        assert_eq!(added.last().map(String::as_str), Some("classifier"), "{name}");
        let of = |value| graph.ty(value).to_string();
        assert!(graph.inputs().iter().all(|i| of(*i) == "i64[batch_size, num_choices, sequence_length]"), "{name}");
        assert_eq!(of(graph.outputs()[0].value), "f32[batch_size, num_choices]", "{name}");
    }
    for name in ["deberta", "esm", "eurobert", "gte", "jina-v3", "layoutlm", "nomic-bert"] {
        let message = Draft::of(name).error(task(Task::MultipleChoice));
        assert!(message.contains("has no task `multiple-choice`"), "{message}");
    }
    let electra = |key: &str, value: serde_json::Value| Draft::of("electra").with(key, value);
    let graph = |draft: Draft| completed(draft, Task::MultipleChoice).2.to_string();
    assert!(graph(electra("summary_use_proj", json!(false))).contains("= gelu(%sequence_summary.first_token)"));
    assert!(graph(electra("summary_activation", json!("tanh"))).contains("= tanh(%sequence_summary.summary)"));
    assert!(!graph(electra("summary_activation", json!(null))).contains("%sequence_summary.activation"));
    assert!(graph(electra("summary_type", json!("mean"))).contains("%sequence_summary = reduce_mean("));
    for (key, value) in [("summary_type", json!("attn")), ("summary_proj_to_labels", json!(true))] {
        let message = electra(key, value).error(task(Task::MultipleChoice));
        assert!(message.contains(&format!("`{key}` is ")), "{message}");
    }
}

/// The discriminator gives a score of each token where there is no classifier of tokens.
#[test]
fn the_discriminator_of_electra_classifies_tokens() {
    let dense = |name: &str, out: usize| {
        [("weight", vec![out, 48]), ("bias", vec![out])]
            .map(|(what, shape)| (format!("discriminator_predictions.{name}.{what}"), Stored::ramp(&shape)))
    };
    let mut draft = Draft::of("electra");
    draft.tensors.extend(dense("dense", 48).into_iter().chain(dense("dense_prediction", 1)));
    let load = |draft: &Draft| draft.load(task(Task::TokenClassification)).unwrap().parts.remove(0).graph;
    let graph = load(&draft);
    assert_eq!(graph.ty(graph.outputs()[0].value).to_string(), "f32[batch_size, sequence_length, 1]");
    let classified = draft.tensor("classifier.weight", Stored::ramp(&[2, 48]));
    let graph = load(&classified.tensor("classifier.bias", Stored::ramp(&[2])));
    assert_eq!(graph.ty(graph.outputs()[0].value).to_string(), "f32[batch_size, sequence_length, 2]");
}

/// The head of the original code of DeBERTa.
#[test]
fn deberta_may_have_another_head() {
    for name in ["deberta", "deberta-v2"] {
        let draft = Draft::of(name).with("legacy", json!(false));
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

/// What settings that no golden has add to a graph, and how often.
#[test]
fn settings_of_encoders_that_no_golden_has() {
    let count = |draft: Draft, what: &str| {
        let (_, _, graph) = completed(draft, Task::FeatureExtraction);
        graph.to_string().matches(what).count()
    };
    let mobile = |key: &str, value: serde_json::Value| Draft::of("mobilebert").with(key, value);
    assert_eq!(count(Draft::of("mobilebert"), "= layer_norm("), 0);
    // Of embeddings; and of each of 2 layers 4, and of each of its feed-forwards but the last.
    let forwards = Draft::of("mobilebert").config["num_feedforward_networks"].as_u64().unwrap() as usize;
    let norms = 1 + 2 * (5 + forwards - 1);
    assert_eq!(count(mobile("normalization_type", json!("layer_norm")), "= layer_norm("), norms);
    assert_eq!(count(mobile("classifier_activation", json!(false)), "= tanh("), 0);
    assert_eq!(count(mobile("trigram_input", json!(false)), "trigrams"), 0);
    assert_eq!(count(mobile("use_bottleneck_attention", json!(true)), "bottleneck.attention"), 0);
    assert_eq!(count(mobile("use_bottleneck", json!(false)), "bottleneck"), 0);
    let message = mobile("key_query_shared_bottleneck", json!(false)).error(LENIENT);
    assert!(message.contains("queries have no projection to intra_bottleneck_size = 24"), "{message}");

    let deberta = |key: &str, value: serde_json::Value| Draft::of("deberta-v2").with(key, value);
    let [content, position] = ["content_to_position = gather(", "position_to_content = gather("];
    for (kinds, expected) in [(json!("C2P|p2c"), [2, 2]), (json!(["p2c"]), [0, 2]), (json!(null), [0, 0])] {
        let counts = [content, position].map(|what| count(deberta("pos_att_type", kinds.clone()), what));
        assert_eq!(counts, expected, "{kinds}");
    }
    assert_eq!(count(deberta("relative_attention", json!(false)), "= gather("), 0);
    assert_eq!(count(deberta("share_att_key", json!(false)), "weight @encoder.layer.0.attention.self.pos_key_proj"), 2);
    assert_eq!(count(deberta("position_biased_input", json!(true)), "weight @embeddings.position_embeddings"), 1);
    assert_eq!(count(deberta("type_vocab_size", json!(2)), "input %token_type_ids"), 1);
    assert_eq!(count(deberta("embedding_size", json!(24)), "weight @embeddings.embed_proj"), 1);
    assert_eq!(count(deberta("position_buckets", json!(-1)), "f32[64, 4, 12]"), 4);

    let landmarks = |key: &str, value: serde_json::Value| Draft::of("nystromformer").with(key, value);
    assert_eq!(count(landmarks("conv_kernel_size", json!(3)), "= conv("), 2);
    assert_eq!(count(landmarks("conv_kernel_size", json!(null)), "= conv("), 0);
    for (draft, says) in [
        (
            landmarks("num_landmarks", json!(32)),
            "num_landmarks = 32, but segment_means_seq_len = 64: attention by landmarks",
        ),
        (landmarks("conv_kernel_size", json!(4)), "conv_kernel_size = 4 is even"),
        (landmarks("inv_coeff_init_option", json!(true)), "`inv_coeff_init_option` is true"),
    ] {
        let message = draft.error(LENIENT);
        assert!(message.contains(says), "{message}");
    }

    assert_eq!(count(Draft::of("roformer").with("rotary_value", json!(true)), "= rotary("), 6);
    assert_eq!(count(Draft::of("gte").with("type_vocab_size", json!(0)), "token_type"), 0);
    let esm = |value: &str| Draft::of("esm").with("position_embedding_type", json!(value));
    assert_eq!([count(esm("rotary"), "= rotary("), count(esm("absolute"), "= rotary(")], [4, 0]);
    assert_eq!(count(Draft::of("esm").with("token_dropout", json!(false)), "token_dropout"), 0);
}

/// The numbers of a tensor.
fn floats(draft: &Draft, name: &str) -> Vec<f64> {
    draft.tensors[name].bytes.as_chunks().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect()
}

/// The convolution beside the first layer of DeBERTa v2, and the groups of ConvBERT, by loops.
#[test]
fn convolutions_and_groups_compute_what_loops_do() {
    let draft = Draft::of("deberta-v2").with("conv_kernel_size", json!(3)).with("conv_act", json!("gelu"));
    let (draft, added, _) = completed(draft, Task::FeatureExtraction);
    assert_eq!(added, ["encoder.conv.conv", "encoder.conv.LayerNorm"]);
    let found = values(&draft, LENIENT, 4, &["embeddings.mul", "encoder.conv.conv"]);
    let [x, convolved] = [0, 1].map(|at| found[at].to_f64());
    let (weight, bias) = (floats(&draft, "encoder.conv.conv.weight"), floats(&draft, "encoder.conv.conv.bias"));
    for (out, token) in (0..48).flat_map(|out| (0..4).map(move |token| (out, token))) {
        let near = (0..3usize).filter(|k| (1..5).contains(&(token + k))).map(|k| (token + k - 1, k));
        let sum = near.flat_map(|(t, k)| (0..48).map(move |i| (t * 48 + i, (out * 48 + i) * 3 + k)));
        let expected = bias[out] + sum.map(|(at, of)| x[at] * weight[of]).sum::<f64>();
        assert!((convolved[out * 4 + token] - expected).abs() < 1e-4, "{out} {token}");
    }

    let mut draft = Draft::of("convbert").with("num_groups", json!(2));
    draft.tensors.retain(|name, _| !name.contains("intermediate.dense") && !name.contains(".output.dense"));
    let (draft, _, _) = completed(draft, Task::FeatureExtraction);
    let [input, output] = ["encoder.layer.0.attention.output.LayerNorm", "encoder.layer.0.intermediate.dense"];
    let found = values(&draft, LENIENT, 4, &[input, output]);
    let [x, given] = [0, 1].map(|at| found[at].to_f64());
    let (weight, bias) = (floats(&draft, &format!("{output}.weight")), floats(&draft, &format!("{output}.bias")));
    for (token, out) in (0..4).flat_map(|token| (0..80).map(move |out| (token, out))) {
        let group = out / 40;
        let product = |i: usize| x[token * 48 + group * 24 + i] * weight[(group * 24 + i) * 40 + out % 40];
        let expected = bias[out] + (0..24).map(product).sum::<f64>();
        assert!((given[token * 80 + out] - expected).abs() < 1e-4, "{token} {out}");
    }
}
