//! Configurations that are wrong, ask for what is not supported, or say more than is used.

use planish_models::{ARCHITECTURES, LoadOptions, Task};
use serde_json::{Value, json};

use crate::support::{Draft, LENIENT, STRICT, assert_refused, assert_says, task};

#[test]
fn values_have_their_types() {
    for value in [json!("1e-12"), json!(0), json!(-1.0), json!([])] {
        assert_refused("bert", "layer_norm_eps", value, &["expected a positive number"]);
    }
    for value in [json!(1), json!("true")] {
        assert_refused("bert-mlm", "tie_word_embeddings", value, &["expected true or false"]);
    }
    for value in [json!(131), json!(-2), json!("0"), json!(0.5)] {
        assert_refused("bert", "pad_token_id", value, &["expected a token id below vocab_size = 131"]);
    }
    assert_refused("bert", "hidden_act", json!(3), &["expected a text"]);
    assert_refused(
        "bert",
        "hidden_act",
        json!("xielu"),
        &[
            "\"xielu\"",
            "gelu, gelu_10, gelu_accurate, gelu_fast, gelu_new, gelu_python, gelu_python_tanh, gelu_pytorch_tanh, hardswish",
        ],
    );
    for value in [Value::Null, json!(-1)] {
        assert_refused("roberta-mlm", "pad_token_id", value, &["positions of RoBERTa"]);
    }
    let long = "x".repeat(500);
    assert!(Draft::of("bert").with("num_hidden_layers", json!(long)).error(LENIENT).len() < 300);
}

/// The transformers library fails on each of these, 4.57 when it builds or runs the model, 5.23 mostly when
/// it reads the configuration.
#[test]
fn an_activation_that_is_null_is_refused() {
    for (golden, key) in [
        ("bert", "hidden_act"),
        ("roberta-mlm", "hidden_act"),
        ("distilbert-qa", "activation"),
        ("vit", "hidden_act"),
        ("gpt2", "activation_function"),
        ("gpt-neox", "hidden_act"),
        ("llama", "hidden_act"),
        ("mistral", "hidden_act"),
        ("phi3", "hidden_act"),
        ("qwen2", "hidden_act"),
        ("qwen3", "hidden_act"),
        ("gemma", "hidden_act"),
        ("gemma2", "hidden_activation"),
        ("opt", "activation_function"),
        ("bart", "activation_function"),
        ("marian", "activation_function"),
        ("t5", "feed_forward_proj"),
        ("t5", "dense_act_fn"),
    ] {
        assert_refused(golden, key, Value::Null, &[&format!("`{key}` is null"), "remove the key"]);
        assert!(Draft::of(golden).without(key).load(LENIENT).is_ok(), "{golden}");
    }
    // Only the pooler of ViT, which a classifier does without, has this one.
    let pooled = Draft::of("vit").with("pooler_act", Value::Null);
    assert_says(&pooled.error(task(Task::FeatureExtraction)), &["`pooler_act` is null"]);
    assert!(pooled.load(STRICT).is_ok());
    // The transformers library takes the function of `hidden_act` then.
    assert!(Draft::of("gemma").with("hidden_activation", Value::Null).load(STRICT).is_ok());
}

#[test]
fn what_is_not_supported_is_refused() {
    for (key, value) in [
        ("is_decoder", json!(true)),
        ("add_cross_attention", json!(true)),
        ("is_encoder_decoder", json!(true)),
        ("pruned_heads", json!({"0": [1, 2]})),
    ] {
        for golden in ["bert", "roberta-mlm", "distilbert-qa"] {
            assert_refused(golden, key, value.clone(), &["not supported"]);
        }
    }
    for (golden, kind) in [("bert", "relative_key"), ("roberta-mlm", "relative_key_query")] {
        assert_refused(golden, "position_embedding_type", json!(kind), &[kind, "only \"absolute\" is supported"]);
    }
}

#[test]
fn keys_that_nobody_knows_are_warnings() {
    let draft = Draft::of("bert")
        .with("rope_theta", json!(10000.0))
        .with("new_switch", json!(true))
        .with("off", json!(false))
        .with("nothing", Value::Null)
        .with("empty", json!([]));
    let model = draft.load(LENIENT).unwrap();
    assert_eq!(model.warnings.len(), 1);
    assert!(model.warnings[0].ends_with("config.json: ignored keys: rope_theta, new_switch"), "{}", model.warnings[0]);
    assert_says(&draft.error(STRICT), &["strict", "rope_theta, new_switch"]);
}

#[test]
fn keys_of_another_architecture_are_not_known() {
    let model = Draft::of("bert").with("qa_dropout", json!(0.1)).load(LENIENT).unwrap();
    assert_says(&model.warnings[0], &["ignored keys: qa_dropout"]);
}

#[test]
fn architectures_are_known_by_model_type_or_class() {
    for (golden, class, expected) in [
        ("bert-mlm", "BertForMaskedLM", "bert"),
        ("bert", "BertModel", "bert"),
        ("roberta-mlm", "RobertaForMaskedLM", "roberta"),
        ("roberta-mlm", "XLMRobertaForMaskedLM", "xlm-roberta"),
        ("roberta-mlm", "CamembertForMaskedLM", "camembert"),
        ("distilbert-qa", "DistilBertForQuestionAnswering", "distilbert"),
    ] {
        let model =
            Draft::of(golden).without("model_type").with("architectures", json!([class])).load(LENIENT).unwrap();
        assert_eq!(model.architecture, expected);
        assert_eq!(model.warnings.len(), 1);
        assert_says(
            &model.warnings[0],
            &["`model_type` is missing", &format!("{expected}, the architecture of {class}")],
        );
    }
    let known = ARCHITECTURES.iter().map(|a| a.model_type).collect::<Vec<_>>().join(", ");
    for classes in [json!(["BertGenerationEncoder"]), json!(["FunnelForMaskedLM"]), json!([]), Value::Null] {
        let message = Draft::of("bert").without("model_type").with("architectures", classes).error(LENIENT);
        assert_says(&message, &["`model_type` is missing", &known]);
    }
    assert_refused("bert", "model_type", json!("rwkv"), &["\"rwkv\" is not supported", &known]);
    assert_refused("bert", "model_type", json!(7), &["expected a text"]);
}

#[test]
fn tasks_are_inferred_from_the_class() {
    for (class, expected) in [
        ("BertForMaskedLM", Task::FillMask),
        ("BertForPreTraining", Task::FillMask),
        ("BertModel", Task::FeatureExtraction),
    ] {
        let model = Draft::of("bert-mlm").with("architectures", json!([class])).load(STRICT).unwrap();
        assert_eq!(model.task, Some(expected), "{class}");
    }
    let class = "BertForNextSentencePrediction";
    let parts = [class, "choose one of feature-extraction, fill-mask"];
    assert_refused("bert", "architectures", json!([class]), &parts);
    let message = Draft::of("bert").with("architectures", json!(["BertLMHeadModel"])).error(LENIENT);
    assert_says(&message, &["`bert` has no task `text-generation`; it has feature-extraction, fill-mask"]);
    for value in [json!("BertModel"), json!([1])] {
        assert_refused("bert", "architectures", value, &["not a list of class names"]);
    }
    let draft = Draft::of("bert").without("architectures");
    let model = draft.load(LENIENT).unwrap();
    assert_eq!(model.task, Some(Task::FeatureExtraction));
    assert_says(&model.warnings[0], &["`architectures` is missing", "feature-extraction"]);
    assert!(draft.load(LoadOptions { strict: true, ..task(Task::FeatureExtraction) }).is_ok());
}

#[test]
fn tasks_have_names_and_synonyms() {
    for &task in Task::ALL {
        assert_eq!(task.name().parse(), Ok(task));
    }
    for (name, expected) in [
        ("default", Task::FeatureExtraction),
        ("sentence-similarity", Task::SentenceSimilarity),
        ("masked-lm", Task::FillMask),
        ("sequence-classification", Task::TextClassification),
        ("zero-shot-classification", Task::TextClassification),
        ("causal-lm", Task::TextGeneration),
        ("text-generation-with-past", Task::TextGeneration),
    ] {
        assert_eq!(name.parse(), Ok(expected));
    }
    let error = "summon".parse::<Task>().unwrap_err().to_string();
    assert_says(
        &error,
        &["`summon`", "feature-extraction, sentence-similarity, fill-mask, text-classification", "question-answering"],
    );
}

#[test]
fn labels_must_agree_with_the_classifier() {
    let two = json!({"0": "no", "1": "yes"});
    let message = Draft::of("bert-classify").with("id2label", two.clone()).error(LENIENT);
    assert_says(&message, &["`classifier.weight`", "[3, 48], expected [2, 48]", "id2label = 2"]);
    let message = Draft::of("bert-classify").without("id2label").error(LENIENT);
    assert_says(&message, &["expected [2, 48]", "num_labels = 2"]);
    for value in [json!(5), json!("3")] {
        let model = Draft::of("bert-classify").with("num_labels", value.clone()).load(LENIENT).unwrap();
        assert_eq!(model.warnings.len(), 1);
        let parts = ["config.json", &format!("`num_labels` is {value}, but `id2label`"), "names 3"];
        assert_says(&model.warnings[0], &parts);
    }
    assert!(Draft::of("bert-classify").with("_num_labels", json!(5)).load(STRICT).is_ok());
    assert_refused("bert-classify", "id2label", json!({}), &["at least one label"]);
    assert_refused("bert-classify", "id2label", json!(["a"]), &["expected an object"]);
    assert_refused("distilbert-qa", "num_labels", json!(3), &["2 labels, start and end, but num_labels = 3"]);
    let counted = Draft::of("bert-classify").without("id2label").with("_num_labels", json!(3));
    assert!(counted.load(STRICT).is_ok());
    let counted = counted.with("_num_labels", json!(5)).with("num_labels", json!(3));
    assert!(counted.load(STRICT).is_ok());
    assert!(Draft::of("distilbert-qa").with("id2label", two).load(STRICT).is_ok());
}
