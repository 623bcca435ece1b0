//! The same model in the forms in which hubs carry it gives the same graph.

use half::{bf16, f16};
use planish_models::{Checkpoint, ModelError, Task};
use safetensors::tensor::Dtype;
use serde_json::json;

use crate::support::{
    Draft, STRICT, Stored, assert_meaning, assert_same, assert_says, golden, load_path, meaning, task,
};

#[test]
fn the_prefix_of_the_base_model_makes_no_difference() {
    assert_same(&Draft::of("bert").renamed(|n| format!("bert.{n}")), "bert");
    let bare = |n: &str| n.trim_start_matches("bert.").to_owned();
    assert_same(&Draft::of("bert-mlm").renamed(bare), "bert-mlm");
    let bare = |n: &str| n.trim_start_matches("distilbert.").to_owned();
    assert_same(&Draft::of("distilbert-qa").renamed(bare), "distilbert-qa");
}

#[test]
fn camembert_and_xlm_roberta_are_roberta() {
    for (name, class) in [("camembert", "CamembertForMaskedLM"), ("xlm-roberta", "XLMRobertaForMaskedLM")] {
        let draft = Draft::of("roberta-mlm").with("model_type", json!(name)).with("architectures", json!([class]));
        assert_same(&draft, "roberta-mlm");
        assert_eq!(draft.load(STRICT).unwrap().architecture, name);
    }
}

#[test]
fn gamma_and_beta_are_weight_and_bias() {
    let old = |n: &str| n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
    let draft = Draft::of("bert-mlm").renamed(old);
    assert!(draft.tensors.contains_key("cls.predictions.transform.LayerNorm.gamma"));
    assert_same(&draft, "bert-mlm");
}

#[test]
fn buffers_and_heads_of_other_tasks_are_silent() {
    let ids = Stored { dtype: Dtype::I64, shape: vec![1, 2], bytes: vec![0; 16] };
    let draft = Draft::of("bert")
        .tensor("embeddings.position_ids", ids)
        .tensor("cls.seq_relationship.weight", Stored::ramp(&[2, 48]))
        .tensor("classifier.weight", Stored::ramp(&[3, 48]));
    assert_same(&draft, "bert");
}

#[test]
fn tensors_that_a_configuration_leaves_out_are_silent() {
    // The transformers library saves them all the same.
    let mobile = Draft::of("mobilebert").with("use_bottleneck_attention", json!(true));
    let values = (0..2).map(|layer| format!("encoder.layer.{layer}.attention.self.value.weight"));
    let mobile = values.fold(mobile, |draft, name| draft.tensor(&name, Stored::ramp(&[24, 24])));
    let mut deberta = Draft::of("deberta-v2").with("relative_attention", json!(false));
    deberta.tensors.remove("encoder.rel_embeddings.weight").unwrap();
    for (draft, unused) in
        [(mobile, "encoder.layer.1.bottleneck.attention.LayerNorm.bias"), (deberta, "encoder.LayerNorm.weight")]
    {
        assert!(draft.tensors.contains_key(unused));
        draft.load(STRICT).unwrap();
    }
}

#[test]
fn half_precision_is_widened() {
    let narrow = |to: Dtype, f: fn(f32) -> [u8; 2]| {
        move |t: &Stored| Stored {
            dtype: to,
            shape: t.shape.clone(),
            bytes: t.bytes.as_chunks().0.iter().flat_map(|b| f(f32::from_le_bytes(*b))).collect(),
        }
    };
    let original = load_path(&golden("bert"), STRICT).unwrap();
    let (text, weights) = meaning(&original.parts[0].graph);
    // Every stored number is a 32 bit float.
    let round: [fn(f64) -> f64; 2] = [|v| f16::from_f32(v as f32).to_f64(), |v| bf16::from_f32(v as f32).to_f64()];
    let drafts = [
        Draft::of("bert").mapped(narrow(Dtype::F16, |v| f16::from_f32(v).to_le_bytes())),
        Draft::of("bert").mapped(narrow(Dtype::BF16, |v| bf16::from_f32(v).to_le_bytes())),
    ];
    for (draft, round) in drafts.iter().zip(round) {
        let model = draft.load(STRICT).unwrap();
        let (own_text, own) = meaning(&model.parts[0].graph);
        assert_eq!(own_text, text);
        for (name, values) in &weights {
            assert!(own[name].iter().copied().eq(values.iter().map(|v| round(*v))), "{name}");
        }
    }
}

#[test]
fn shards_are_one_model() {
    let folder = Draft::of("bert").write_sharded();
    let original = load_path(&golden("bert"), STRICT).unwrap();
    for path in [folder.path().to_owned(), folder.path().join("model.safetensors.index.json")] {
        let checkpoint = Checkpoint::open(&path).unwrap();
        assert_eq!(checkpoint.weight_files().len(), 3);
        let sources: Vec<String> = checkpoint
            .sources()
            .unwrap()
            .iter()
            .map(|s| s.path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(sources[..2], ["config.json", "model.safetensors.index.json"]);
        assert_eq!(sources.len(), 5);
        let model = planish_models::load(&checkpoint, STRICT).unwrap();
        assert_meaning(&model, &original);
    }
}

#[test]
fn configurations_of_transformers_4_say_the_same() {
    let draft = Draft::of("bert-classify")
        .without("dtype")
        .without("is_decoder")
        .without("add_cross_attention")
        .without("tie_word_embeddings")
        .with("torch_dtype", json!("float32"))
        .with("transformers_version", json!("4.30.2"))
        .with("position_embedding_type", json!("absolute"))
        .with("gradient_checkpointing", json!(false))
        .with("pruned_heads", json!({}))
        .with("problem_type", json!("single_label_classification"))
        .with("output_hidden_states", json!(true))
        .with("_name_or_path", json!("bert-base-uncased"));
    assert_same(&draft, "bert-classify");
    let draft = Draft::of("distilbert-qa")
        .with("tie_weights_", json!(true))
        .with("sinusoidal_pos_embds", json!(true))
        .with("hidden_size", json!(48));
    assert_same(&draft, "distilbert-qa");
}

#[test]
fn settings_that_are_left_out_have_the_defaults_of_transformers() {
    for name in ["bert-mlm", "roberta-mlm"] {
        let draft = ["hidden_act", "layer_norm_eps", "pad_token_id", "tie_word_embeddings", "is_decoder"];
        assert_same(&draft.into_iter().fold(Draft::of(name), Draft::without), name);
    }
    let draft = Draft::of("distilbert-qa").without("activation").without("pad_token_id");
    assert_same(&draft, "distilbert-qa");
    for none in [json!(null), json!(-1)] {
        assert_eq!(draft.load(STRICT).unwrap().pad_token_id, Some(0));
        let draft = Draft::of("distilbert-qa").with("pad_token_id", none.clone());
        assert_eq!(draft.load(STRICT).unwrap().pad_token_id, None);
        assert_same(&draft, "distilbert-qa");
        assert_eq!(Draft::of("bert").with("pad_token_id", none).load(STRICT).unwrap().pad_token_id, None);
    }
}

#[test]
fn positions_of_roberta_begin_after_the_padding_id() {
    let table = "roberta.embeddings.position_embeddings.weight";
    for model_type in ["roberta", "xlm-roberta", "camembert"] {
        let draft = Draft::of("roberta-mlm")
            .with("model_type", json!(model_type))
            .with("max_position_embeddings", json!(514))
            .tensor(table, Stored::ramp(&[514, 48]));
        let model = draft.without("pad_token_id").load(STRICT).unwrap();
        assert_eq!((model.pad_token_id, model.max_positions), (Some(1), Some(512)), "{model_type}");
        let (_, weights) = meaning(&model.parts[0].graph);
        assert_eq!(weights["embeddings.position_ids.padding_idx"], [1.0]);
    }
}

#[test]
fn a_model_with_a_head_has_features_too() {
    let model = load_path(&golden("bert-classify"), task(Task::FeatureExtraction)).unwrap();
    let names: Vec<&str> = model.parts[0].graph.outputs().iter().map(|o| o.name.as_str()).collect();
    assert_eq!(names, ["last_hidden_state", "pooler_output"]);
    assert_eq!(model.warnings, [""; 0]);
    let model = load_path(&golden("bert-mlm"), task(Task::FeatureExtraction)).unwrap();
    let names: Vec<&str> = model.parts[0].graph.outputs().iter().map(|o| o.name.as_str()).collect();
    assert_eq!(names, ["last_hidden_state"]);
}

#[test]
fn a_head_that_is_not_there_is_an_error() {
    let error = load_path(&golden("bert"), task(Task::TextClassification)).map(|_| ()).unwrap_err();
    assert!(matches!(error, ModelError::MissingTensor { .. }));
    assert_says(&error.to_string(), &["`classifier.weight` is missing", "BertModel", "text-classification"]);
}
