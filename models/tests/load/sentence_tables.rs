//! The heads of BGE-M3, and static embeddings.

use std::fs;
use std::io::Write;
use std::path::Path;

use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::sentence::{MASK, PROJECTED, WIDTH, close, model, norm, outputs, ramp, weights};
use crate::support::{LENIENT, assert_says, load_path};

/// Writes a linear layer as torch.save does, of which the pickle names the element type and nothing else.
fn write_torch(path: &Path, weight: &[f32], bias: &[f32], compression: CompressionMethod) {
    let mut zip = ZipWriter::new(fs::File::create(path).unwrap());
    let stored = SimpleFileOptions::default().compression_method(compression);
    let bytes = |floats: &[f32]| floats.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    for (name, bytes) in [
        ("x/data.pkl", b"ctorch\nFloatStorage\n".to_vec()),
        ("x/byteorder", b"little".to_vec()),
        ("x/data/0", bytes(weight)),
        ("x/data/1", bytes(bias)),
    ] {
        zip.start_file(name, stored).unwrap();
        zip.write_all(&bytes).unwrap();
    }
    zip.finish().unwrap();
}

#[test]
fn the_three_heads_of_bge_m3_are_one_graph() {
    let folder = model(&[(
        "sentence_transformers.models.Pooling",
        json!({"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": true}),
    )]);
    let at = |name: &str| folder.path().join(name);
    let matrix = |rows: usize| ramp(rows * WIDTH);
    write_torch(&at("sparse_linear.pt"), &matrix(1), &[0.25], CompressionMethod::Stored);
    write_torch(&at("colbert_linear.pt"), &matrix(PROJECTED), &[0.5, -0.5, 0.0], CompressionMethod::Stored);
    let given = outputs(&load_path(folder.path(), LENIENT).unwrap());
    let names: Vec<&String> = given.keys().collect();
    assert_eq!(names, ["colbert_vecs", "last_hidden_state", "sentence_embedding", "sparse_vecs"]);
    let tokens: Vec<&[f32]> = given["last_hidden_state"].chunks_exact(WIDTH).collect();
    let dot = |row: &[f32], x: &[f32]| row.iter().zip(x).map(|(a, b)| a * b).sum::<f32>();
    let sparse: Vec<f32> = tokens.iter().map(|x| (dot(&matrix(1), x) + 0.25).max(0.0)).collect();
    close(&given["sparse_vecs"], &sparse);
    let vector = |(at, x): (usize, &&[f32])| {
        let (row, column) = (at / 4, at % 4);
        let bias = [0.5, -0.5, 0.0];
        let projected = matrix(PROJECTED).chunks_exact(WIDTH).zip(bias).map(|(w, b)| dot(w, x) + b).collect::<Vec<_>>();
        let kept = MASK[row][column] as f32;
        let length = norm(&projected);
        (column > 0).then(|| projected.into_iter().map(|v| v * kept / length).collect::<Vec<f32>>())
    };
    let wanted: Vec<f32> = tokens.iter().enumerate().filter_map(vector).flatten().collect();
    close(&given["colbert_vecs"], &wanted);

    write_torch(&at("sparse_linear.pt"), &matrix(1), &[0.25], CompressionMethod::Deflated);
    let error = load_path(folder.path(), LENIENT).err().unwrap().to_string();
    assert_says(
        &error,
        &["sparse_linear.pt", "is compressed", "save_file(torch.load(\"sparse_linear.pt\", weights_only=True)"],
    );
    for bytes in [&b"PK"[..], b"", &[0x80; 64]] {
        fs::write(at("sparse_linear.pt"), bytes).unwrap();
        assert_says(&load_path(folder.path(), LENIENT).err().unwrap().to_string(), &["sparse_linear.pt", "not a zip"]);
    }
}

#[test]
fn static_embeddings_are_a_lookup_and_a_mean() {
    let folder = planish_testing::scratch();
    let at = |name: &str| folder.path().join(name);
    let table = ramp(16 * 4);
    fs::create_dir(at("0_StaticEmbedding")).unwrap();
    weights(folder.path(), "0_StaticEmbedding", &[("embedding.weight", &[16, 4])]);
    let list = json!([
        {"idx": 0, "path": "0_StaticEmbedding", "type": "sentence_transformers.models.StaticEmbedding"},
        {"idx": 1, "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"}
    ]);
    fs::write(at("modules.json"), list.to_string()).unwrap();
    let error = load_path(folder.path(), LENIENT).err().unwrap().to_string();
    assert_says(&error, &["tokenizer.json is missing"]);
    fs::write(at("0_StaticEmbedding/tokenizer.json"), "{}").unwrap();
    let given = outputs(&load_path(folder.path(), LENIENT).unwrap());
    let mean = |ids: &[usize], row: &dyn Fn(usize) -> Vec<f32>| -> Vec<f32> {
        let sum = |f: usize| ids.iter().map(|id| row(*id)[f]).sum::<f32>() / ids.len() as f32;
        let vector: Vec<f32> = (0..4).map(sum).collect();
        vector.iter().map(|v| v / norm(&vector)).collect()
    };
    let row = |id: usize| table[id * 4..id * 4 + 4].to_vec();
    close(&given["sentence_embedding"], &[mean(&[5, 6, 7], &row), mean(&[11, 12], &row)].concat());

    // Model2Vec: a row for several tokens, and a weight of each.
    let folder = planish_testing::scratch();
    let at = |name: &str| folder.path().join(name);
    let floats = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let mapping: Vec<u8> = (0..16i64).flat_map(|id| (id % 3).to_le_bytes()).collect();
    let of_token: Vec<f32> = (0..16u8).map(|id| 1.0 + f32::from(id) / 4.0).collect();
    let (rows, of_tokens) = (floats(&ramp(12)), floats(&of_token));
    let views = [
        ("embeddings", TensorView::new(Dtype::F32, vec![3, 4], &rows).unwrap()),
        ("mapping", TensorView::new(Dtype::I64, vec![16], &mapping).unwrap()),
        ("weights", TensorView::new(Dtype::F32, vec![16], &of_tokens).unwrap()),
    ];
    fs::write(at("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    fs::write(at("tokenizer.json"), "{}").unwrap();
    let config =
        json!({"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": true, "hidden_dim": 4});
    fs::write(at("config.json"), config.to_string()).unwrap();
    let given = outputs(&load_path(folder.path(), LENIENT).unwrap());
    let row = |id: usize| ramp(12)[id % 3 * 4..id % 3 * 4 + 4].iter().map(|v| v * of_token[id]).collect::<Vec<f32>>();
    close(&given["sentence_embedding"], &[mean(&[5, 6, 7], &row), mean(&[11, 12], &row)].concat());
}
