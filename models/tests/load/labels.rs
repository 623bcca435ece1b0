//! Decoders and encoder-decoders without a cache: vectors of tokens, and labels of texts and of tokens.

use planish_eval::{Tensor, evaluate};
use planish_models::Task;
use serde_json::json;

use crate::support::{Draft, LENIENT, STRICT, Stored, assert_says, golden, load_path, task, text};
use crate::values::values;

/// The first output of a draft on rows of ids with a mask.
fn first_output(draft: &Draft, of: Task, ids: &[i64], mask: &[i64], rows: usize) -> Vec<f64> {
    let graph = draft.load(task(of)).unwrap().parts.remove(0).graph;
    let shape = || vec![rows, ids.len() / rows];
    let inputs = [
        ("input_ids", Tensor::new(shape(), ids.to_vec()).unwrap()),
        ("attention_mask", Tensor::new(shape(), mask.to_vec()).unwrap()),
    ];
    evaluate(&graph, &inputs).unwrap().remove(0).1.to_f64()
}

#[track_caller]
fn assert_close(a: &[f64], b: &[f64], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    let error = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(error < 1e-5, "{what}: the largest error is {error}");
}

/// The score of a text is that of its last token: without padding, with padding on either side, with padding of an id that the
/// configuration does not name, and where it names none.
#[test]
fn padding_does_not_change_the_score_of_a_text() {
    let draft = Draft::of("qwen2-rerank");
    let unnamed = Draft::of("qwen2-rerank").with("pad_token_id", json!(null));
    let score = |draft: &Draft, ids: &[i64], mask: &[i64], rows: usize| {
        first_output(draft, Task::TextClassification, ids, mask, rows)
    };
    let alone = score(&draft, &[5, 6, 7], &[1, 1, 1], 1);
    let other = score(&draft, &[9, 8, 7, 6, 5], &[1; 5], 1);
    let both = [other[0], alone[0]];
    for (draft, pad) in [(&draft, 0), (&draft, 3), (&unnamed, 0), (&unnamed, 3)] {
        let right = [9, 8, 7, 6, 5, 5, 6, 7, pad, pad];
        assert_close(&score(draft, &right, &[1, 1, 1, 1, 1, 1, 1, 1, 0, 0], 2), &both, "padded on the right");
        let left = [9, 8, 7, 6, 5, pad, pad, 5, 6, 7];
        assert_close(&score(draft, &left, &[1, 1, 1, 1, 1, 0, 0, 1, 1, 1], 2), &both, "padded on the left");
    }
    // The library goes by the id: what is padding for it has no score of its own.
    assert_close(&score(&draft, &[5, 6, 7, 0], &[1; 4], 1), &alone, "the id of padding at the end");
    assert!((score(&unnamed, &[5, 6, 7, 0], &[1; 4], 1)[0] - alone[0]).abs() > 1e-3);
}

/// The vectors of tokens, of which a classifier makes scores.
#[test]
fn scores_are_products_of_vectors_of_tokens() {
    let draft = Draft::of("qwen2-rerank");
    let model = draft.load(task(Task::FeatureExtraction)).unwrap();
    assert!(model.warnings.is_empty(), "{:?}", model.warnings);
    let graph = &model.parts[0].graph;
    let outputs: Vec<String> = graph.outputs().iter().map(|o| format!("{}: {}", o.name, graph.ty(o.value))).collect();
    assert_eq!(outputs, ["last_hidden_state: f32[batch_size, sequence_length, 64]"]);
    let number = |bytes: &[u8; 4]| f64::from(f32::from_le_bytes(*bytes));
    let weight: Vec<f64> = draft.tensors["score.weight"].bytes.as_chunks().0.iter().map(number).collect();
    let ids = [5, 6, 7, 8];
    let hidden = first_output(&draft, Task::FeatureExtraction, &ids, &[1; 4], 1);
    let product: f64 = hidden[3 * 64..].iter().zip(&weight).map(|(a, b)| a * b).sum();
    assert_close(&first_output(&draft, Task::TextClassification, &ids, &[1; 4], 1), &[product], "score");
}

/// What the last norm gives with a cache and without is the same for every kind of decoder.
#[test]
fn vectors_do_not_depend_on_the_cache() {
    for (name, norm) in [
        ("bloom", "ln_f"),
        ("codegen", "ln_f"),
        ("cohere2", "norm"),
        ("deepseek-v2", "norm"),
        ("deepseek-v3", "norm"),
        ("exaone4", "norm"),
        ("falcon", "ln_f"),
        ("gemma3", "norm"),
        ("gemma4", "norm"),
        ("gpt-bigcode", "ln_f"),
        ("gpt-neo", "ln_f"),
        ("gpt-neox", "final_layer_norm"),
        ("gpt-oss", "norm"),
        ("gpt2", "ln_f"),
        ("llama-dynamic", "norm"),
        ("minicpm3", "norm"),
        ("mistral", "norm"),
        ("mpt", "norm_f"),
        ("nemotron", "norm"),
        ("opt", "decoder.final_layer_norm"),
        ("phi3-longrope", "norm"),
        ("qwen3", "norm"),
    ] {
        let draft = Draft::of(name);
        let [cached, free] = [Task::TextGeneration, Task::FeatureExtraction]
            .map(|of| values(&draft, task(of), 12, &[norm]).remove(0).to_f64());
        assert_close(&free, &cached, name);
        let model = draft.load(task(Task::FeatureExtraction)).unwrap();
        let inputs: Vec<&str> = model.parts[0].id_ranges.iter().map(|range| range.input.as_str()).collect();
        assert_eq!((inputs, model.recompute_at), (vec!["input_ids", "attention_mask"], None), "{name}");
    }
}

/// `is_causal` of transformers 5: windows on both sides have a key more than those before a token.
#[test]
fn tokens_may_see_those_after_them() {
    let attentions = |draft: &Draft| {
        let graph = text(&draft.load(task(Task::FeatureExtraction)).unwrap(), "model");
        graph.lines().filter(|line| line.contains("= attention(")).map(str::to_owned).collect::<Vec<_>>()
    };
    let both = |name: &str| Draft::of(name).with("is_causal", json!(false));
    assert!(attentions(&both("llama")).iter().all(|line| !line.contains("causal = true")));
    assert!(attentions(&Draft::of("llama")).iter().all(|line| line.contains("causal = true")));
    let windows = both("mistral").with("sliding_window", json!(4));
    assert!(attentions(&windows).iter().all(|line| line.contains("window = 5")));
    let message = both("llama").error(LENIENT);
    assert_says(&message, &["config.json", "`is_causal` is false", "choose another task, such as feature-extraction"]);
    assert_says(&both("gpt-oss").error(task(Task::FeatureExtraction)), &["`is_causal` is false", "sinks"]);
}

/// The classifier of tokens is `score`, with or without a bias, or `classifier`.
#[test]
fn classifiers_of_tokens() {
    let of = || task(Task::TokenClassification);
    let draft = Draft::of("qwen2-rerank");
    assert_says(&draft.error(of()), &["`score.bias` is missing"]);
    assert!(draft.with("token_classification_bias", json!(false)).load(of()).is_ok());
    assert_says(&Draft::of("gpt2").error(of()), &["`classifier.weight` is missing"]);
    // The head has as many rows as there are labels.
    let two = Draft::of("qwen2-rerank").with("id2label", json!({"0": "A", "1": "B"}));
    assert_says(&two.error(LENIENT), &["`score.weight`", "the shape is [1, 64], expected [2, 64] (id2label = 2"]);
}

/// Checkpoints for question answering have another name of the base model.
#[test]
fn answers_of_decoders() {
    let draft = Draft::of("llama").renamed(|name| name.replacen("model.", "transformer.", 1));
    let draft = draft.with("architectures", json!(["LlamaForQuestionAnswering"]));
    let hidden = usize::try_from(draft.config["hidden_size"].as_u64().unwrap()).unwrap();
    let draft = draft.tensor("qa_outputs.weight", Stored::ramp(&[2, hidden]));
    let mut draft = draft.tensor("qa_outputs.bias", Stored::ramp(&[2]));
    draft.tensors.remove("lm_head.weight");
    let model = draft.load(STRICT).unwrap();
    let names: Vec<&str> = model.parts[0].graph.outputs().iter().map(|output| output.name.as_str()).collect();
    assert_eq!((model.task, names), (Some(Task::QuestionAnswering), vec!["start_logits", "end_logits"]));
}

/// Encoder and decoder of BART are one graph, and no cache is computed.
#[test]
fn bart_classifies_in_one_graph() {
    let model = load_path(&golden("bart-classify"), STRICT).unwrap();
    let [part] = model.parts.as_slice() else { panic!("{} parts", model.parts.len()) };
    assert_eq!((model.task, part.name), (Some(Task::TextClassification), "model"));
    assert!(!part.graph.to_string().contains("present = true"));
    for key in ["eos_token_id", "decoder_start_token_id"] {
        let message = Draft::of("bart-classify").with(key, json!(null)).error(LENIENT);
        assert_says(&message, &["config.json", &format!("`{key}` is no token id"), "text-classification"]);
    }
    // Without a number of labels there are three, as in `BartConfig`.
    let message = Draft::of("bart-classify").without("id2label").error(LENIENT);
    assert_says(&message, &["`classification_head.out_proj.weight`", "[4, 24], expected [3, 24] (num_labels = 3"]);
    let message = Draft::of("bart").with("id2label", json!({"0": "A", "1": "B"})).error(task(Task::QuestionAnswering));
    assert_says(&message, &["`qa_outputs.weight` is missing", "may have no head for question-answering"]);
}

#[test]
fn a_configuration_without_an_id_of_padding_means_that_of_its_class() {
    for (name, id) in [("gemma", Some(0)), ("cohere2", Some(0)), ("olmo2", Some(1)), ("opt", Some(1)), ("llama", None)]
    {
        let padding = |draft: Draft| draft.load(LENIENT).unwrap().pad_token_id;
        assert_eq!(padding(Draft::of(name).without("pad_token_id")), id, "{name}");
        assert_eq!(
            padding(Draft::of(name).with("pad_token_id", json!(null))),
            None,
            "{name}: null says that there is none"
        );
    }
}
