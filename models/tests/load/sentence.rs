//! Sentence models: the modules after a model, by the values that they give.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use planish_eval::{Tensor, evaluate};
use planish_models::{Checkpoint, LoadOptions, Loaded, Pooling, Task, companions, load, written_modules};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Draft, LENIENT, STRICT, Stored, assert_says, load_path, task};

/// The features of a token of the golden, and of what a projection makes of them.
pub(crate) const WIDTH: usize = 48;
pub(crate) const PROJECTED: usize = 3;

/// Two rows: one padded on the right, one on the left.
pub(crate) const MASK: [[i64; 4]; 2] = [[1, 1, 1, 0], [0, 0, 1, 1]];

/// Writes the golden `bert` with modules: their classes and configurations.
pub(crate) fn model(modules: &[(&str, Value)]) -> TempDir {
    let folder = Draft::of("bert").write();
    let mut list = vec![json!({"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"})];
    for (at, (class, config)) in modules.iter().enumerate() {
        let path = format!("{}_{}", at + 1, class.rsplit('.').next().unwrap());
        fs::create_dir(folder.path().join(&path)).unwrap();
        fs::write(folder.path().join(&path).join("config.json"), config.to_string()).unwrap();
        list.push(json!({"idx": at + 1, "name": (at + 1).to_string(), "path": path, "type": class}));
    }
    fs::write(folder.path().join("modules.json"), Value::from(list).to_string()).unwrap();
    folder
}

/// Writes the weights of a module.
pub(crate) fn weights(folder: &Path, module: &str, tensors: &[(&str, &[usize])]) {
    let stored: Vec<(&str, Stored)> = tensors.iter().map(|(name, shape)| (*name, Stored::ramp(shape))).collect();
    let views = stored.iter().map(|(name, t)| (*name, TensorView::new(Dtype::F32, t.shape.clone(), &t.bytes).unwrap()));
    fs::write(folder.join(module).join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
}

/// The elements of a ramp.
pub(crate) fn ramp(count: usize) -> Vec<f32> {
    (0..count).map(|i| i as f32 / count as f32 - 0.5).collect()
}

/// The outputs of a model for the two rows.
pub(crate) fn outputs(loaded: &Loaded) -> BTreeMap<String, Vec<f32>> {
    let graph = &loaded.parts[0].graph;
    let input = |value: &planish_ir::ValueId| {
        let name = graph.value(*value).name.as_str();
        let ids = match name {
            "attention_mask" => MASK.concat(),
            "token_type_ids" => vec![0; 8],
            _ => vec![5, 6, 7, 8, 9, 10, 11, 12],
        };
        (name, Tensor::new(vec![2, 4], ids).unwrap())
    };
    let inputs: Vec<(&str, Tensor)> = graph.inputs().iter().map(input).collect();
    let given = evaluate(graph, &inputs).unwrap();
    given.into_iter().map(|(name, tensor)| (name.to_owned(), tensor.as_f32().unwrap().to_vec())).collect()
}

/// The vectors of the real tokens of each row.
fn rows(hidden: &[f32]) -> Vec<Vec<&[f32]>> {
    let tokens: Vec<&[f32]> = hidden.chunks_exact(WIDTH).collect();
    let row = |row: usize| (0..4).filter(|&at| MASK[row][at] == 1).map(|at| tokens[row * 4 + at]).collect();
    vec![row(0), row(1)]
}

pub(crate) fn close(given: &[f32], wanted: &[f32]) {
    assert_eq!(given.len(), wanted.len());
    for (at, (a, b)) in given.iter().zip(wanted).enumerate() {
        assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "element {at}: {a}, expected {b}");
    }
}

/// What each mode makes of the vectors of a row.
fn pooled(mode: &str, row: &[&[f32]]) -> Vec<f32> {
    let sum = |weight: &dyn Fn(usize) -> f32| -> Vec<f32> {
        (0..WIDTH).map(|f| row.iter().enumerate().map(|(at, v)| v[f] * weight(at)).sum()).collect()
    };
    let by = |vector: Vec<f32>, divisor: f32| vector.into_iter().map(|v| v / divisor).collect();
    let count = row.len() as f32;
    match mode {
        "cls" => row[0].to_vec(),
        "lasttoken" => row[row.len() - 1].to_vec(),
        "max" => (0..WIDTH).map(|f| row.iter().map(|v| v[f]).fold(f32::MIN, f32::max)).collect(),
        "mean" => by(sum(&|_| 1.0), count),
        "mean_sqrt_len_tokens" => by(sum(&|_| 1.0), count.sqrt()),
        "weightedmean" => by(sum(&|at| at as f32 + 1.0), count * (count + 1.0) / 2.0),
        _ => unreachable!(),
    }
}

/// The length of a vector.
pub(crate) fn norm(vector: &[f32]) -> f32 {
    vector.iter().map(|v| v * v).sum::<f32>().sqrt()
}

#[test]
fn pooling_takes_real_tokens_only() {
    let modes = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"];
    for mode in modes {
        let folder = model(&[(
            "sentence_transformers.models.Pooling",
            json!({"embedding_dimension": WIDTH, "pooling_mode": mode}),
        )]);
        let loaded = load_path(folder.path(), LENIENT).unwrap();
        assert_eq!(loaded.task, Some(Task::SentenceSimilarity));
        let given = outputs(&loaded);
        assert_eq!(given.keys().collect::<Vec<_>>(), ["last_hidden_state", "sentence_embedding", "token_embeddings"]);
        assert_eq!(given["token_embeddings"], given["last_hidden_state"]);
        let wanted: Vec<f32> = rows(&given["token_embeddings"]).iter().flat_map(|row| pooled(mode, row)).collect();
        close(&given["sentence_embedding"], &wanted);
        let asked = LoadOptions { pooling: Some(mode.parse().unwrap()), ..LoadOptions::default() };
        let bare = Draft::of("bert").load(asked).unwrap();
        assert_eq!(outputs(&bare)["sentence_embedding"], given["sentence_embedding"], "pooling={mode}");
    }
    // The order of several is that of the library, whatever the order of the keys.
    let older = json!({
        "word_embedding_dimension": WIDTH, "pooling_mode_lasttoken": true, "pooling_mode_mean_tokens": true,
        "pooling_mode_cls_token": true, "pooling_mode_max_tokens": false
    });
    let folder = model(&[("sentence_transformers.models.Pooling", older)]);
    let given = outputs(&load_path(folder.path(), LENIENT).unwrap());
    let joined = |row: &Vec<&[f32]>| ["cls", "mean", "lasttoken"].map(|mode| pooled(mode, row)).concat();
    let wanted: Vec<f32> = rows(&given["token_embeddings"]).iter().flat_map(joined).collect();
    close(&given["sentence_embedding"], &wanted);
}

#[test]
fn vectors_are_projected_normalized_and_cut() {
    let dense = json!({
        "in_features": WIDTH, "out_features": PROJECTED, "bias": true,
        "activation_function": "torch.nn.modules.activation.Tanh"
    });
    let new = "sentence_transformers.base.modules";
    let folder = model(&[
        (
            "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
            json!({"embedding_dimension": WIDTH, "pooling_mode": "mean"}),
        ),
        (&format!("{new}.dense.Dense"), dense.clone()),
        (&format!("{new}.normalize.Normalize"), json!({})),
    ]);
    let tensors: [(&str, &[usize]); 2] = [("linear.weight", &[PROJECTED, WIDTH]), ("linear.bias", &[PROJECTED])];
    weights(folder.path(), "2_Dense", &tensors);
    let settings = folder.path().join("config_sentence_transformers.json");
    fs::write(&settings, json!({"truncate_dim": 2}).to_string()).unwrap();
    let given = outputs(&load_path(folder.path(), LENIENT).unwrap());
    let project = |x: &[f32]| -> Vec<f32> {
        let (weight, bias) = (ramp(PROJECTED * WIDTH), ramp(PROJECTED));
        let dot = |row: &[f32]| row.iter().zip(x).map(|(a, b)| a * b).sum::<f32>();
        weight.chunks_exact(WIDTH).zip(bias).map(|(row, bias)| (dot(row) + bias).tanh()).collect()
    };
    let one = |row: &Vec<&[f32]>| {
        let vector = project(&pooled("mean", row));
        vector.iter().map(|v| v / norm(&vector)).take(2).collect::<Vec<f32>>()
    };
    let wanted: Vec<f32> = rows(&given["token_embeddings"]).iter().flat_map(one).collect();
    close(&given["sentence_embedding"], &wanted);
    let names = companions(folder.path());
    for name in ["modules.json", "1_Pooling/config.json", "2_Dense/model.safetensors"] {
        assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
    }

    // So do those of ColBERT's authors, whose projection lies among the weights of the model.
    let late = Draft::of("bert").with("architectures", json!(["HF_ColBERT"]));
    assert_says(&late.error(LENIENT), &["no matrix `linear.weight`"]);
    let late = outputs(&late.tensor("linear.weight", Stored::ramp(&[PROJECTED, WIDTH])).load(LENIENT).unwrap());

    // PyLate's models project tokens, and divide them by their lengths without a module.
    let folder = model(&[(
        "pylate.models.Dense.Dense",
        json!({"in_features": WIDTH, "out_features": PROJECTED, "bias": false, "activation_function": "torch.nn.Identity"}),
    )]);
    weights(folder.path(), "1_Dense", &tensors[..1]);
    fs::write(folder.path().join("config_sentence_transformers.json"), r#"{"model_type": "ColBERT"}"#).unwrap();
    let given = outputs(&load_path(folder.path(), LENIENT).unwrap());
    assert_eq!(given.keys().collect::<Vec<_>>(), ["token_embeddings"]);
    let hidden = outputs(&load_path(folder.path(), task(Task::FeatureExtraction)).unwrap());
    let hidden = &hidden["last_hidden_state"];
    // The library projects by itself what a graph for it gives besides.
    let for_modules = outputs(&load_path(folder.path(), FOR_MODULES).unwrap());
    assert_eq!((&for_modules["last_hidden_state"], for_modules.len()), (hidden, 2));
    let wanted = hidden.chunks_exact(WIDTH).flat_map(|token| {
        let weight = ramp(PROJECTED * WIDTH);
        let vector: Vec<f32> =
            weight.chunks_exact(WIDTH).map(|row| row.iter().zip(token).map(|(a, b)| a * b).sum::<f32>()).collect();
        vector.iter().map(|v| v / norm(&vector)).collect::<Vec<f32>>()
    });
    close(&given["token_embeddings"], &wanted.collect::<Vec<f32>>());
    assert_eq!(late, given);
}

/// For the sentence-transformers library, whose modules take what the model gives.
const FOR_MODULES: LoadOptions = LoadOptions { gives_inputs_of_modules: true, ..LENIENT };

/// What the library saves of a reranker lists a model alone, and says that it gives logits.
#[test]
fn a_reranker_is_a_model_without_modules() {
    let folder = Draft::of("bert-classify").write();
    let list = json!([{"idx": 0, "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}]);
    fs::write(folder.path().join("modules.json"), list.to_string()).unwrap();
    let output = json!({"modality_config": {"text": {"method": "forward", "method_output_name": "logits"}}});
    fs::write(folder.path().join("sentence_bert_config.json"), output.to_string()).unwrap();
    let loaded = load_path(folder.path(), STRICT).unwrap();
    assert_eq!(loaded.task, Some(Task::TextClassification));
    assert_eq!(outputs(&loaded).keys().collect::<Vec<_>>(), ["logits"]);
}

#[test]
fn splade_gives_a_score_for_each_word() {
    let logits = outputs(&Draft::of("bert-mlm").load(LENIENT).unwrap());
    let words = logits["logits"].len() / 8;
    for (strategy, activation) in [("max", "relu"), ("sum", "relu"), ("max", "log1p_relu"), ("sum", "log1p_relu")] {
        let folder = Draft::of("bert-mlm").write();
        let module = json!({"pooling_strategy": strategy, "activation_function": activation});
        fs::create_dir(folder.path().join("1_SpladePooling")).unwrap();
        fs::write(folder.path().join("1_SpladePooling/config.json"), module.to_string()).unwrap();
        let list = json!([
            {"idx": 0, "path": "", "type": "sentence_transformers.sparse_encoder.models.MLMTransformer"},
            {"idx": 1, "path": "1_SpladePooling", "type": "sentence_transformers.sparse_encoder.models.SpladePooling"}
        ]);
        fs::write(folder.path().join("modules.json"), list.to_string()).unwrap();
        let given = outputs(&load_path(folder.path(), LENIENT).unwrap());
        assert_eq!(given.keys().collect::<Vec<_>>(), ["sentence_embedding"]);
        let for_modules = outputs(&load_path(folder.path(), FOR_MODULES).unwrap());
        assert_eq!((&for_modules["logits"], for_modules.len()), (&logits["logits"], 2));
        let log = |x: f32| if activation == "relu" { x.max(0.0).ln_1p() } else { x.max(0.0).ln_1p().ln_1p() };
        let one = |(row, word): (usize, usize)| {
            let real = (0..4).filter(|&at| MASK[row][at] == 1);
            let scores = real.map(|at| log(logits["logits"][(row * 4 + at) * words + word]));
            if strategy == "max" { scores.fold(0.0, f32::max) } else { scores.sum() }
        };
        let wanted: Vec<f32> = (0..2).flat_map(|row| (0..words).map(move |word| (row, word))).map(one).collect();
        close(&given["sentence_embedding"], &wanted);
    }
}

#[test]
fn what_no_graph_can_follow_is_refused_or_named() {
    let error = |folder: &TempDir| load_path(folder.path(), LENIENT).err().unwrap().to_string();
    let (pooling, width) = ("sentence_transformers.models.Pooling", json!({"embedding_dimension": WIDTH}));
    let empty = model(&[(pooling, json!({}))]);
    assert_says(
        &error(&empty),
        &["1_Pooling/config.json", "`embedding_dimension` or `word_embedding_dimension` is missing"],
    );
    let own = model(&[("custom_st.Pooling", width.clone())]);
    assert_says(&error(&own), &["`custom_st.Pooling` is not supported"]);
    let unknown = model(&[(pooling, width.clone()), ("my.code.Whitening", json!({}))]);
    assert_says(
        &error(&unknown),
        &["modules.json", "`my.code.Whitening` is not supported", "--task feature-extraction"],
    );
    assert_eq!(load_path(unknown.path(), task(Task::FeatureExtraction)).unwrap().task, Some(Task::FeatureExtraction));
    let routes = model(&[(pooling, width.clone())]);
    fs::rename(routes.path().join("config.json"), routes.path().join("other.json")).unwrap();
    let list = json!([{"path": "", "type": "sentence_transformers.base.modules.router.Router"}]);
    fs::write(routes.path().join("modules.json"), list.to_string()).unwrap();
    let structure =
        json!({"structure": {"query": ["query_0_StaticEmbedding"], "document": ["document_0_T", "document_1_P"]}});
    fs::write(routes.path().join("router_config.json"), structure.to_string()).unwrap();
    assert_says(
        &error(&routes),
        &[
            "router_config.json",
            "--recipe pooling=MODE",
            "query_0_StaticEmbedding for the route \"query\"",
            "document_0_T for the route",
        ],
    );
    let wide = model(&[(pooling, json!({"embedding_dimension": 64}))]);
    assert_says(&error(&wide), &["1_Pooling/config.json", "embedding_dimension = 64", "48 features"]);
    let mode = model(&[(pooling, json!({"embedding_dimension": WIDTH, "pooling_mode": "median"}))]);
    assert_says(&error(&mode), &["\"median\"", "weightedmean"]);
    let dense = json!({"in_features": 32, "out_features": 3});
    let narrow = model(&[(pooling, width.clone()), ("sentence_transformers.models.Dense", dense)]);
    weights(narrow.path(), "2_Dense", &[("linear.weight", &[3, 32]), ("linear.bias", &[3])]);
    assert_says(&error(&narrow), &["2_Dense/config.json", "in_features = 32", "48 features"]);
    let dense = json!({"in_features": 48, "out_features": 3});
    let without = model(&[(pooling, width.clone()), ("sentence_transformers.models.Dense", dense.clone())]);
    assert_says(&error(&without), &["2_Dense/model.safetensors", "is missing", "torch.load(\"pytorch_model.bin\""]);
    let early = model(&[("sentence_transformers.models.Normalize", json!({}))]);
    assert_says(&error(&early), &["`sentence_embedding`, which no module before it gives"]);
    let other = json!({"in_features": 48, "out_features": 3, "activation_function": "my.code.Swoosh"});
    let other = model(&[(pooling, width.clone()), ("sentence_transformers.models.Dense", other)]);
    weights(other.path(), "2_Dense", &[("linear.weight", &[3, WIDTH]), ("linear.bias", &[3])]);
    assert_says(&error(&other), &["`activation_function` is \"my.code.Swoosh\""]);
    let prompt = model(&[(pooling, json!({"embedding_dimension": WIDTH, "include_prompt": false, "novelty": 3}))]);
    let warnings = load_path(prompt.path(), LENIENT).unwrap().warnings.join("\n");
    assert!(warnings.contains("`include_prompt` is false") && warnings.contains("ignored keys: novelty"), "{warnings}");

    let output = json!({"modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}}});
    fs::write(prompt.path().join("sentence_bert_config.json"), output.to_string()).unwrap();
    assert_says(
        &error(&prompt),
        &["sentence_bert_config.json", "\"pooler_output\"", "read \"last_hidden_state\" only"],
    );

    for (text, says) in [("{", "not JSON"), ("{}", "not a list"), ("[{\"path\": 3}]", "entry 0 has no texts")] {
        fs::write(prompt.path().join("modules.json"), text).unwrap();
        assert_says(&error(&prompt), &["modules.json", says]);
    }
    let outside = json!([{"type": "sentence_transformers.models.Transformer", "path": "."}, {"type": "sentence_transformers.models.Pooling", "path": "../1_Pooling"}]);
    fs::write(prompt.path().join("modules.json"), outside.to_string()).unwrap();
    assert_says(&error(&prompt), &["\"../1_Pooling\", which is not a folder"]);

    let bare = Draft::of("bert").write();
    let asked = load_path(bare.path(), task(Task::SentenceSimilarity)).err().unwrap().to_string();
    assert_says(&asked, &["modules.json is not there", "pooling=mean"]);
    let pooling: Option<Pooling> = Some("mean,normalize".parse().unwrap());
    let both = LoadOptions { pooling, ..task(Task::FillMask) };
    assert_says(
        &load_path(bare.path(), both).err().unwrap().to_string(),
        &["pooling (mean,normalize)", "not for fill-mask"],
    );
    let given = outputs(&load_path(bare.path(), LoadOptions { pooling, ..LENIENT }).unwrap());
    for vector in given["sentence_embedding"].chunks_exact(WIDTH) {
        assert!((norm(vector) - 1.0).abs() < 1e-6, "{}", norm(vector));
    }
}

#[test]
fn a_model_in_a_folder_of_its_own_is_found() {
    let folder = model(&[("sentence_transformers.models.Pooling", json!({"embedding_dimension": WIDTH}))]);
    let whole = outputs(&load_path(folder.path(), LENIENT).unwrap());
    fs::create_dir(folder.path().join("0_Transformer")).unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::rename(folder.path().join(name), folder.path().join("0_Transformer").join(name)).unwrap();
    }
    let text = fs::read_to_string(folder.path().join("modules.json")).unwrap();
    fs::write(folder.path().join("modules.json"), text.replacen("\"path\":\"\"", "\"path\":\"0_Transformer\"", 1))
        .unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(checkpoint.name(), folder.path().file_name().unwrap().to_str().unwrap());
    let loaded = load(&checkpoint, LENIENT).unwrap();
    assert_eq!((outputs(&loaded), loaded.warnings), (whole, Vec::<String>::new()));
    // In an artifact the model's files are in the root.
    let written = written_modules(folder.path(), None).unwrap();
    assert_eq!(written.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["modules.json"]);
    let same = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(same(&written[0].1), same(&text));
}

#[test]
fn modules_that_are_written_for_a_pooling_give_its_outputs() {
    let folder = model(&[("sentence_transformers.models.Pooling", json!({"embedding_dimension": WIDTH}))]);
    assert_eq!(written_modules(folder.path(), None).unwrap(), []);
    for asked in ["cls", "weightedmean,normalize"] {
        let pooling: Pooling = asked.parse().unwrap();
        let wanted = load_path(folder.path(), LoadOptions { pooling: Some(pooling), ..LENIENT }).unwrap();
        for (name, text) in written_modules(folder.path(), Some((pooling, WIDTH))).unwrap() {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let read = load_path(folder.path(), LENIENT).unwrap();
        assert_eq!(outputs(&read), outputs(&wanted), "{asked}");
        assert_eq!(read.warnings, Vec::<String>::new(), "{asked}");
    }
}
