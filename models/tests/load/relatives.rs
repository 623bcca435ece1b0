//! Architectures without a golden of their own, against relatives that have one.

use planish_eval::Tensor;
use serde_json::json;

use crate::support::{Draft, LENIENT, STRICT, Stored, assert_meaning, golden, load_path};
use crate::values::values;

/// The largest difference of what two models give for the same ids.
fn difference(a: &Draft, b: &Draft) -> f64 {
    let [a, b]: [Tensor; 2] = [a, b].map(|draft| values(draft, LENIENT, 5, &["encoder.layer.1.add"]).remove(0));
    a.to_f64().into_iter().zip(b.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// The rows of a table from one on.
fn from(table: &Stored, row: usize) -> Stored {
    let bytes = table.bytes[row * table.shape[1] * 4..].to_vec();
    Stored { shape: vec![table.shape[0] - row, table.shape[1]], bytes, ..table.clone() }
}

#[test]
fn data2vec_text_is_roberta() {
    let draft = Draft::of("roberta-mlm").with("model_type", json!("data2vec-text"));
    let model = draft.renamed(|name| name.replace("roberta.", "data2vec_text.")).load(STRICT).unwrap();
    assert_eq!(model.architecture, "data2vec-text");
    assert_meaning(&model, &load_path(&golden("roberta-mlm"), STRICT).unwrap());
}

#[test]
fn ernie_is_bert_with_an_embedding_of_the_task() {
    let ernie = || Draft::of("bert").with("model_type", json!("ernie")).with("task_type_vocab_size", json!(3));
    assert_meaning(&ernie().load(STRICT).unwrap(), &load_path(&golden("bert"), STRICT).unwrap());
    let tasks = Stored::ramp(&[3, 48]);
    let with_tasks =
        ernie().with("use_task_id", json!(true)).tensor("embeddings.task_type_embeddings.weight", tasks.clone());
    // Every text is of task 0, so its embedding may as well be part of those of positions.
    let mut bert = Draft::of("bert");
    let positions = bert.tensors.get_mut("embeddings.position_embeddings.weight").unwrap();
    let task: Vec<f32> = tasks.bytes.as_chunks().0[..48].iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    for (number, task) in positions.bytes.as_chunks_mut().0.iter_mut().zip(task.iter().cycle()) {
        *number = (f32::from_le_bytes(*number) + task).to_le_bytes();
    }
    assert!(difference(&with_tasks, &bert) < 1e-5);
    assert!(difference(&with_tasks, &Draft::of("bert")) > 1e-2);
}

/// XLM-RoBERTa-XL has other names, positions after that of padding, and one type of tokens.
#[test]
fn megatron_bert_has_the_layers_of_xlm_roberta_xl() {
    let of_xl = Draft::of("xlm-roberta-xl");
    let positions = from(&of_xl.tensors["embeddings.position_embeddings.weight"], 2);
    let draft = Draft::of("xlm-roberta-xl")
        .with("model_type", json!("megatron-bert"))
        .with("architectures", json!(["MegatronBertModel"]))
        .with("max_position_embeddings", json!(32))
        .tensor("embeddings.position_embeddings.weight", positions)
        .renamed(|name| name.replace("self_attn_layer_norm", "ln").replace("LayerNorm", "ln"));
    let model = draft.load(STRICT).unwrap();
    assert_eq!((model.architecture, model.max_positions), ("megatron-bert", Some(32)));
    assert!(difference(&draft, &of_xl) < 1e-6);
}
