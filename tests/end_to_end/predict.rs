//! Predictions: against what the interpreter computes of one text at a time, or what follows from a table of vectors.

use std::fs;
use std::path::{Path, PathBuf};

use planish_onnx::proto::{DataType, GraphProto, NodeProto, TensorProto};
use planish_testing::onnx::{f32, floats, graph as onnx_graph, int, integers, model, node, typed};
use prost::Message;
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use crate::evaluate::{IDS, LINES, evaluated, graph, interpreted};
use crate::support::{
    Done, Draft, Stored, golden, planish, planish_compile, scratch, tensors, text, write_tensors, write_tokenizer,
};

/// The number of tokens of the tables and tokenizers here.
const TOKENS: i64 = 131;

/// The features of a vector of [`embedder`].
const FEATURES: usize = 3;

fn feature(id: i64, at: usize) -> f32 {
    f32::sin(id as f32 + 40.0 * at as f32)
}

/// The mean of the vectors of some tokens.
fn mean(ids: &[i64]) -> Vec<f32> {
    let of = |at: usize| ids.iter().map(|id| f64::from(feature(*id, at))).sum::<f64>() / ids.len() as f64;
    (0..FEATURES).map(|at| of(at) as f32).collect()
}

/// A compiled graph that gives the mean of the vectors of a text's tokens as its embedding, with a tokenizer. Its inputs have
/// these dimensions.
pub(crate) fn embedder(folder: &Path, dims: &str, has_mask: bool) -> PathBuf {
    let source = folder.join("embedder");
    fs::create_dir_all(&source).unwrap();
    write_tokenizer(&source, TOKENS);
    let table: Vec<f32> = (0..TOKENS).flat_map(|id| (0..FEATURES).map(move |at| feature(id, at))).collect();
    let constants: Vec<TensorProto> =
        vec![floats("table", &[TOKENS, 3], &table), integers("last", &[1], &[2]), integers("tokens", &[1], &[1])];
    let input = |name: &str| typed(name, DataType::Int64, dims);
    let (mut inputs, mask): (_, Vec<NodeProto>) = (
        vec![input("input_ids")],
        match has_mask {
            true => vec![node("real = Cast(attention_mask)", vec![int("to", 1)])],
            false => vec![
                node("zeros = Mul(vectors, zero)", vec![]),
                node("sums = ReduceSum(zeros, last)", vec![int("keepdims", 0)]),
                node("real = Exp(sums)", vec![]),
            ],
        },
    );
    if has_mask {
        inputs.push(input("attention_mask"));
    }
    let mut nodes = vec![node("vectors = Gather(table, input_ids)", vec![])];
    nodes.extend(mask);
    nodes.extend([
        node("column = Unsqueeze(real, last)", vec![]),
        node("kept = Mul(vectors, column)", vec![]),
        node("sum = ReduceSum(kept, tokens)", vec![int("keepdims", 0)]),
        node("count = ReduceSum(column, tokens)", vec![int("keepdims", 0)]),
        node("sentence_embedding = Div(sum, count)", vec![]),
    ]);
    let constants =
        constants.into_iter().chain([floats("zero", &[], &[0.0])]).filter(|of| !has_mask || of.name != "zero");
    let rows = dims.split(',').next().unwrap();
    let whole = GraphProto {
        output: vec![f32("sentence_embedding", &format!("{rows}, {FEATURES}"))],
        ..onnx_graph(inputs, constants.collect(), nodes, &[])
    };
    fs::write(source.join("model.onnx"), model(17, whole).encode_to_vec()).unwrap();
    let out = folder.join("embeds");
    planish_compile(&source.join("model.onnx"), &out, &["--target", "onnx"]).exits(0, &[]);
    out
}

/// A checkpoint with a tokenizer, compiled.
pub(crate) fn compiled(draft: &Draft, folder: &Path) -> (PathBuf, PathBuf) {
    let model = draft.write(folder.join("source"));
    write_tokenizer(&model, TOKENS);
    let out = folder.join("out");
    planish_compile(&model, &out, &[]).exits(0, &[]);
    (model, out)
}

pub(crate) fn run(artifact: &Path, data: &Path, more: &[&str]) -> Done {
    planish([&["predict", text(artifact), "--data", text(data)], more].concat())
}

/// The lines of standard output.
pub(crate) fn lines(done: &Done) -> Vec<Value> {
    done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn write(folder: &Path, records: &[Value]) -> PathBuf {
    let path = folder.join("data.jsonl");
    let lines: Vec<String> = records.iter().map(|record| format!("{record}\n")).collect();
    fs::write(&path, lines.concat()).unwrap();
    path
}

fn vector(line: &Value) -> Vec<f32> {
    line["embedding"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

#[track_caller]
fn assert_vectors(found: &[Vec<f32>], expected: &[Vec<f32>]) {
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(found.len() == expected.len() && near, "text {at}: {found:?} is not {expected:?}");
    }
}

/// The rows of a .npy file of float32.
fn npy(path: &Path) -> Vec<Vec<f32>> {
    let bytes = fs::read(path).unwrap();
    let (header, numbers) = bytes.split_at(128);
    let header = String::from_utf8_lossy(header).into_owned();
    let (rows, features) =
        header.split_once("'shape': (").unwrap().1.split_once("), }").unwrap().0.split_once(", ").unwrap();
    let features: usize = features.parse().unwrap();
    let found = floats_of(numbers, features);
    assert_eq!(found.len(), rows.parse::<usize>().unwrap());
    found
}

fn floats_of(bytes: &[u8], features: usize) -> Vec<Vec<f32>> {
    let numbers: Vec<f32> = bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
    numbers.chunks(features).map(<[f32]>::to_vec).collect()
}

/// Texts of many lengths, with the ids of their tokens, after the one that a text begins with.
fn many(count: i64) -> Vec<(String, Vec<i64>)> {
    let text = |number: i64| {
        let ids: Vec<i64> = (0..number % 13).map(|at| 2 + (number * 7 + at * 5) % (TOKENS - 2)).collect();
        (ids.iter().map(|id| format!("w{id}")).collect::<Vec<_>>().join(" "), [vec![1], ids].concat())
    };
    (0..count).map(text).collect()
}

/// More texts than are read at once, blank ones among them, stay in order in each form.
#[test]
fn embeddings_are_in_the_order_of_the_texts() {
    let folder = scratch();
    let artifact = embedder(folder.path(), "batch_size, sequence_length", true);
    let texts = many(5000);
    let record = |(at, (text, _)): (usize, &(String, Vec<i64>))| json!({"id": at, "text": text, "other": 1});
    let data = write(folder.path(), &texts.iter().enumerate().map(record).collect::<Vec<_>>());
    let expected: Vec<Vec<f32>> = texts.iter().map(|(_, ids)| mean(ids)).collect();
    let file = |name: &str| folder.path().join(name);
    for (name, more) in
        [("a.npy", &["--batch-tokens", "64"][..]), ("a.safetensors", &[]), ("a.parquet", &[]), ("a.jsonl", &[])]
    {
        let done =
            planish([&["embed", text(&artifact), "--data", text(&data), "-o", text(&file(name))], more].concat());
        let done = done.exits(0, &["5000 texts, ", " texts/s"]);
        assert_eq!((done.stdout.as_str(), done.stderr.lines().count()), ("", 1), "{}", done.stderr);
    }
    assert_vectors(&npy(&file("a.npy")), &expected);
    let stored = tensors(&file("a.safetensors")).remove("embeddings").unwrap();
    assert_eq!((stored.dtype, stored.shape), (Dtype::F32, vec![5000, FEATURES]));
    assert_vectors(&floats_of(&stored.bytes, FEATURES), &expected);
    assert!(fs::read(file("a.parquet")).unwrap().starts_with(b"PAR1"));
    let found: Vec<Value> =
        fs::read_to_string(file("a.jsonl")).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_vectors(&found.iter().map(vector).collect::<Vec<_>>(), &expected);
    assert!(found.iter().enumerate().all(|(at, line)| line["id"] == at && line.as_object().unwrap().len() == 2));
    // Vectors that planish wrote are a table that planish reads.
    let vectors = run(&artifact, &file("a.parquet"), &["--field", "id", "--samples", "2"]).exits(0, &[]);
    assert_eq!(lines(&vectors).len(), 2);
}

#[test]
fn lines_of_texts_have_no_id() {
    let folder = scratch();
    let artifact = embedder(folder.path(), "batch_size, sequence_length", true);
    let data = folder.path().join("lines.txt");
    fs::write(&data, format!("{LINES}\nw3\n")).unwrap();
    let expected = [IDS.map(mean).as_slice(), &[mean(&[1]), mean(&[1, 3])]].concat();
    for more in [&[][..], &["-o", "-"], &["--batch-tokens", "1"]] {
        let done = run(&artifact, &data, more).exits(0, &["6 texts, 25 tokens in "]);
        let found = lines(&done);
        assert!(found.iter().all(|line| line.as_object().unwrap().len() == 1));
        assert_vectors(&found.iter().map(vector).collect::<Vec<_>>(), &expected);
    }
    let file = folder.path().join("out.npy");
    let more = ["-o", text(&file), "--json", "--samples", "2", "--max-length", "3"];
    let done = run(&artifact, &data, &more).exits(0, &["1 of 2 texts had more than 3 tokens, and were cut"]);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&report["texts"], &report["tokens"], &report["cut"]), (&json!(2), &json!(6), &json!(1)));
    assert_eq!((&report["prediction"], &report["output"]), (&json!("embedding"), &json!(file)));
    assert_vectors(&npy(&file), &[mean(&[1, 5, 7]), mean(&[1, 3, 8])]);
}

/// Rows that fill up a batch are run and left out; texts without a mask are not padded.
#[test]
fn a_model_may_fix_its_batch_or_have_no_mask() {
    for (dims, has_mask) in [("2, 8", true), ("batch_size, sequence_length", false)] {
        let folder = scratch();
        let artifact = embedder(folder.path(), dims, has_mask);
        let records: Vec<Value> = LINES.lines().chain(["w3 w8"]).map(|line| json!({"text": line})).collect();
        let done = run(&artifact, &write(folder.path(), &records), &[]).exits(0, &[]);
        let expected = [IDS.map(mean).as_slice(), &[mean(&[1, 3, 8])]].concat();
        assert_vectors(&lines(&done).iter().map(vector).collect::<Vec<_>>(), &expected);
        if dims == "2, 8" {
            let (data, file) = (folder.path().join("data.jsonl"), folder.path().join("out.jsonl"));
            let report = run(&artifact, &data, &["-o", text(&file), "--json"]).exits(0, &[]);
            let report: Value = serde_json::from_str(&report.stdout).unwrap();
            assert_eq!(report["padded_tokens"], 6 * 8, "rows that fill up a batch are run too: {report}");
        }
    }
    let folder = scratch();
    let artifact = embedder(folder.path(), "batch_size, 3", false);
    let of = |texts: [&str; 2]| write(folder.path(), &texts.map(|text| json!({"text": text})));
    run(&artifact, &of(["w3 w8", "w5 w7 w9"]), &[]).exits(0, &[]);
    run(&artifact, &of(["w3 w8", "w5"]), &[]).exits(1, &["sample 2 has 2 tokens; the model takes 3", "no mask"]);
}

/// The mean of no vectors is zeros, as that of the library.
#[test]
fn a_blank_text_of_a_static_model_is_zeros() {
    let folder = scratch();
    let model = folder.path().join("model");
    fs::create_dir_all(model.join("0_StaticEmbedding")).unwrap();
    let table: Vec<u8> = (0..TOKENS).flat_map(|id| (0..2).flat_map(move |at| feature(id, at).to_le_bytes())).collect();
    let table = Stored { dtype: Dtype::F32, shape: vec![usize::try_from(TOKENS).unwrap(), 2], bytes: table };
    let tables = [("embedding.weight".to_owned(), table)].into();
    write_tensors(&model.join("0_StaticEmbedding/model.safetensors"), &tables);
    write_tokenizer(&model.join("0_StaticEmbedding"), TOKENS);
    let class = "sentence_transformers.models.StaticEmbedding";
    let list = json!([{"idx": 0, "name": "0", "path": "0_StaticEmbedding", "type": class}]);
    fs::write(model.join("modules.json"), list.to_string()).unwrap();
    let out = folder.path().join("out");
    planish_compile(&model, &out, &[]).exits(0, &[]);
    let data = write(folder.path(), &["w3 w8", "", " ", "w3 w8 w9 w9"].map(|text| json!({"text": text})));
    let found: Vec<Vec<f32>> = lines(&run(&out, &data, &[]).exits(0, &[])).iter().map(vector).collect();
    let mean = |ids: &[i64]| mean(ids)[..2].to_vec();
    assert_vectors(&found, &[mean(&[3, 8]), vec![0.0; 2], vec![0.0; 2], mean(&[3, 8, 9, 9])]);
}

#[test]
fn settings_of_sentence_transformers_are_followed() {
    let folder = scratch();
    let artifact = embedder(folder.path(), "batch_size, sequence_length", true);
    let write_settings = |name: &str, settings: Value| {
        let path = artifact.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, settings.to_string()).unwrap();
    };
    let data = write(folder.path(), &[json!({"text": "W5 w7 w9"})]);
    let found = |more: &[&str]| vector(&lines(&run(&artifact, &data, more).exits(0, &[]))[0]);
    assert_vectors(&[found(&[])], &[mean(&[1, 0, 7, 9])]);
    write_settings("tokenizer_config.json", json!({"model_max_length": 3}));
    assert_vectors(&[found(&[])], &[mean(&[1, 0, 7])]);
    write_settings("tokenizer_config.json", json!({"model_max_length": 3, "truncation_side": "left"}));
    assert_vectors(&[found(&[])], &[mean(&[1, 7, 9])]);
    fs::remove_file(artifact.join("tokenizer_config.json")).unwrap();
    write_settings("sentence_bert_config.json", json!({"max_seq_length": 3, "do_lower_case": true}));
    assert_vectors(&[found(&[])], &[mean(&[1, 5, 7])]);
    assert_vectors(&[found(&["--max-length", "4"])], &[mean(&[1, 5, 7, 9])]);
    let prompts = json!({"query": "w20 ", "passage": ""});
    write_settings("config_sentence_transformers.json", json!({"prompts": prompts, "truncate_dim": 2}));
    assert_vectors(&[found(&["--prompt-name", "query"])], &[mean(&[1, 20, 5])[..2].to_vec()]);
    write_settings("config_sentence_transformers.json", json!({"prompts": prompts, "default_prompt_name": "query"}));
    assert_vectors(&[found(&[]), found(&["--prompt-name", "passage"])], &[mean(&[1, 20, 5]), mean(&[1, 5, 7])]);
    run(&artifact, &data, &["--prompt-name", "doc"]).exits(2, &["there is no prompt `doc`", "has `query`, `passage`"]);
    write_settings("1_Pooling/config.json", json!({"include_prompt": false}));
    run(&artifact, &data, &[]).exits(2, &["`include_prompt` of the pooling is false", "the graph pools all tokens"]);
    assert_vectors(&[found(&["--prompt-name", "passage"])], &[mean(&[1, 5, 7])]);
}

/// A graph that gives vectors of tokens is pooled here, with a warning.
#[test]
fn vectors_of_tokens_are_pooled() {
    let folder = scratch();
    let (model, artifact) = compiled(&Draft::of("bert"), folder.path());
    let exact = graph(&model);
    let data = folder.path().join("lines.txt");
    fs::write(&data, LINES).unwrap();
    let mean: Vec<Vec<f32>> = IDS
        .iter()
        .map(|ids| {
            let rows = interpreted(&exact, ids, "last_hidden_state");
            let of = |at: usize| rows.iter().map(|row| row[at]).sum::<f64>() / rows.len() as f64;
            (0..rows[0].len()).map(|at| of(at) as f32).collect()
        })
        .collect();
    let found = |parts: &[&str]| {
        let done = run(&artifact, &data, &[]).exits(0, parts);
        lines(&done).iter().map(vector).collect::<Vec<_>>()
    };
    assert_vectors(&found(&["warning: ", "gives vectors of tokens", "the mean over its tokens"]), &mean);
    let modules = |classes: &[&str]| {
        let module = |class: &&str| json!({"type": format!("sentence_transformers.models.{class}"), "path": ""});
        let list: Vec<Value> = classes.iter().map(module).collect();
        fs::write(artifact.join("modules.json"), json!(list).to_string()).unwrap();
    };
    modules(&["Transformer", "Normalize"]);
    let scaled = mean.iter().map(|row| {
        let norm = row.iter().map(|number| number * number).sum::<f32>().sqrt();
        row.iter().map(|number| number / norm).collect::<Vec<f32>>()
    });
    assert_vectors(&found(&["scaled to length 1"]), &scaled.collect::<Vec<_>>());
    modules(&["Transformer", "Dense"]);
    run(&artifact, &data, &[]).exits(1, &["has the module Dense, which its graph does not have"]);
    fs::remove_file(artifact.join("modules.json")).unwrap();
    fs::create_dir(artifact.join("1_Pooling")).unwrap();
    fs::write(artifact.join("1_Pooling/config.json"), r#"{"pooling_mode_lasttoken": true}"#).unwrap();
    run(&artifact, &data, &[]).exits(1, &["names the pooling lasttoken", "which would be other embeddings"]);
}

/// A sentence model has its embeddings in its graph. The length of its texts is the usual one of other commands too.
#[test]
fn sentence_models_embed_by_their_graphs() {
    let folder = scratch();
    let model = folder.path().join("model");
    for name in ["config.json", "model.safetensors", "modules.json", "1_Pooling/config.json"] {
        let path = model.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(golden("bert-sentence").join(name), path).unwrap();
    }
    write_tokenizer(&model, TOKENS);
    fs::write(model.join("sentence_bert_config.json"), r#"{"max_seq_length": 3}"#).unwrap();
    let out = folder.path().join("out");
    planish_compile(&model, &out, &[]).exits(0, &[]);
    let exact = graph(&model);
    let data = folder.path().join("lines.txt");
    fs::write(&data, LINES).unwrap();
    let embedding = |ids: &&[i64]| -> Vec<f32> {
        interpreted(&exact, &ids[..ids.len().min(3)], "sentence_embedding")[0]
            .iter()
            .map(|number| *number as f32)
            .collect()
    };
    let done = run(&out, &data, &[]).exits(0, &["3 of 4 texts had more than 3 tokens, and were cut"]);
    assert!(!done.stderr.contains("warning"), "{}", done.stderr);
    let found: Vec<Vec<f32>> = lines(&done).iter().map(vector).collect();
    assert_vectors(&found, &IDS.iter().map(embedding).collect::<Vec<_>>());
    assert!(found.iter().all(|row| (row.iter().map(|number| number * number).sum::<f32>() - 1.0).abs() < 1e-4));
    assert_eq!(evaluated(&out, &data, &[]).tokens, Some(12));
    assert_eq!(evaluated(&out, &data, &["--max-length", "4"]).tokens, Some(15));
    let json = folder.path().join("bench.json");
    let set = "peaks=false,warmup=0,time=0,iterations=1";
    planish(["bench", text(&out), "--set", set, "--threads", "1", "--json", text(&json)]).exits(0, &[]);
    let document: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert!(document["cells"].as_array().unwrap().iter().all(|cell| cell["shape"]["seq"] == 3), "{document}");
}
