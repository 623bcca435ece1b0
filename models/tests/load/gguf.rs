//! GGUF files: what gguf-py writes, what llama.cpp makes of each architecture, and files that are damaged.

use std::fs;
use std::path::Path;

use planish_eval::{Tensor as Value, evaluate};
use planish_ir::{DType, Dim};
use planish_models::{Checkpoint, Loaded, WeightFile};
use planish_testing::scratch;
use proptest::prelude::*;
use serde_json::json;

use crate::gguf_writer::{File, Meta};
use crate::quantized::{assert_reference, codes, fixture};
use crate::support::{Draft, LENIENT, STRICT, assert_meaning, assert_says, golden, load_path};

/// Loads a file.
fn load(file: &File) -> Result<Loaded, String> {
    open(&file.bytes())
}

fn open(bytes: &[u8]) -> Result<Loaded, String> {
    let folder = scratch();
    let path = folder.path().join("tiny.gguf");
    fs::write(&path, bytes).unwrap();
    load_path(&path, LENIENT).map_err(|e| e.to_string())
}

#[test]
fn weights_are_what_gguf_says() {
    let folder = fixture("gguf-llama");
    let model = load_path(&folder.join("model.gguf"), LENIENT).unwrap();
    assert_eq!(assert_reference(&model, &folder), 12);
    assert_eq!((model.architecture, model.parts[0].graph.name.as_str()), ("llama", "gguf-llama"));
    assert_eq!((model.vocab_size, model.max_positions), (Some(340), Some(64)));
    let [warning] = model.warnings.as_slice() else { panic!("{:?}", model.warnings) };
    let named = ["blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.ffn_up.weight"];
    assert_says(
        warning,
        &[&["codes of 3 quantized weights are not kept", "Q4_1, Q5_1, Q2_K, Q4_K, Q5_K"], &named[..]].concat(),
    );

    let kept = |name: &str| codes(&model, name).map(|(dtype, scales, _)| (dtype, scales.shape().to_vec()));
    assert_eq!(kept("layers.0.self_attn.v_proj.weight"), Some((DType::I8, vec![16, 16])));
    assert_eq!(kept("layers.0.mlp.gate_proj.weight"), Some((DType::I4, vec![32, 8])));
    assert_eq!(kept("lm_head.weight"), Some((DType::I8, vec![340, 8])));
    assert_eq!(kept("embed_tokens.weight"), Some((DType::I8, vec![340, 16])));
    assert_eq!(kept("layers.0.self_attn.o_proj.weight"), None);
}

#[test]
fn weights_of_other_types_are_what_gguf_says() {
    let folder = fixture("gguf-types");
    let model = load_path(&folder.join("model.gguf"), LENIENT).unwrap();
    assert_eq!(assert_reference(&model, &folder), 7);
    let named = ["the codes of 2 quantized weights are not kept", "token_embd.weight", "blk.0.ffn_down.weight"];
    assert_says(&model.warnings.join("\n"), &named);
    let kept = |name: &str| codes(&model, name).map(|(dtype, scales, _)| (dtype, scales.shape().to_vec()));
    for (name, expected) in [
        ("lm_head.weight", (DType::I4, vec![48, 16])),
        ("layers.0.self_attn.v_proj.weight", (DType::I8, vec![16, 8])),
        ("layers.0.self_attn.o_proj.weight", (DType::I8, vec![256, 1])),
        ("layers.0.mlp.gate_proj.weight", (DType::I8, vec![32, 8])),
        ("layers.0.mlp.up_proj.weight", (DType::I8, vec![32, 8])),
    ] {
        assert_eq!(kept(name), Some(expected), "{name}");
    }
}

/// The outputs of a decoder for two rows of tokens, without a cache.
fn outputs(model: &Loaded) -> Vec<(String, Vec<f64>)> {
    let graph = &model.parts[0].graph;
    let inputs: Vec<(String, Value)> = graph
        .inputs()
        .iter()
        .map(|input| {
            let (name, ty) = (graph.value(*input).name.clone(), graph.ty(*input));
            let integers = |values: [i64; 10]| {
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                Value::from_bytes(DType::I64, vec![2, 5], &bytes).unwrap()
            };
            let value = match name.as_str() {
                "input_ids" => integers([3, 17, 99, 4, 5, 60, 7, 7, 21, 130]),
                "attention_mask" => integers([1; 10]),
                "position_ids" => integers([0, 1, 2, 3, 4, 0, 1, 2, 3, 4]),
                _ => {
                    let size =
                        |at: usize| usize::try_from(ty.shape.get(at).and_then(Dim::as_constant).unwrap()).unwrap();
                    Value::from_bytes(DType::F32, vec![2, size(1), 0, size(3)], &[]).unwrap()
                }
            };
            (name, value)
        })
        .collect();
    let inputs: Vec<(&str, Value)> = inputs.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    evaluate(graph, &inputs).unwrap().into_iter().map(|(name, value)| (name, value.to_f64())).collect()
}

#[track_caller]
pub(crate) fn assert_computes(model: &Loaded, original: &Loaded) {
    for ((name, found), (other, expected)) in outputs(model).iter().zip(outputs(original)) {
        assert_eq!((name, found.len()), (&other, expected.len()));
        let error = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(error < 1e-5, "{name}: {error}");
    }
}

#[test]
fn each_architecture_is_that_of_its_checkpoint() {
    // The golden, the architecture of the file, and whether the graphs are the same to the letter.
    for (name, architecture, is_same) in [
        ("llama", "llama", true),
        ("mistral", "llama", true),
        ("qwen2", "qwen2", true),
        ("qwen3", "qwen3", true),
        ("gemma", "gemma", false),
        ("gemma2", "gemma2", false),
        ("gpt2", "gpt2", false),
    ] {
        let mut draft = Draft::of(name);
        if name == "gemma2" {
            // Files do not say it.
            draft = draft.with("query_pre_attn_scalar", json!(16));
        }
        if name == "mistral" {
            draft = draft.with("sliding_window", json!(3));
        }
        let folder = draft.write();
        let original = load_path(folder.path(), STRICT).unwrap();
        let mut file = File::of(&draft, architecture);
        for (key, model) in [("tokenizer.ggml.model", "bert"), ("general.name", "any"), ("general.type", "model")] {
            file.set(key, Meta::Text(model));
        }
        let written = scratch();
        let path = written.path().join("tiny.gguf");
        fs::write(&path, file.bytes()).unwrap();
        let model = load_path(&path, LENIENT).unwrap();
        let [warning] = model.warnings.as_slice() else { panic!("{name}: {:?}", model.warnings) };
        assert_says(warning, &["tiny.gguf: there will be no tokenizer"]);
        assert_eq!(model.architecture, name);
        if is_same {
            assert_meaning(&model, &original);
        }
        assert_computes(&model, &original);
    }
}

#[test]
fn rotary_embeddings_are_put_back() {
    let draft =
        |scaling: serde_json::Value| Draft::of("llama").without("rope_parameters").with("rope_scaling", scaling);
    let plain = File::of(&Draft::of("llama"), "llama");
    let same = |file: &File, draft: &Draft| {
        let folder = draft.write();
        let original = load_path(folder.path(), LENIENT).unwrap();
        assert_computes(&load(file).unwrap(), &original);
    };
    let mut file = plain.clone();
    file.set("llama.rope.scaling.type", Meta::Text("linear")).set("llama.rope.scaling.factor", Meta::F32(4.0));
    same(&file, &draft(json!({"rope_type": "linear", "factor": 4.0})));
    let mut file = plain.clone();
    file.set("llama.rope.scaling.type", Meta::Text("yarn"))
        .set("llama.rope.scaling.factor", Meta::F32(4.0))
        .set("llama.rope.scaling.original_context_length", Meta::U32(16));
    same(&file, &draft(json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16})));

    // Of heads of 16 features, the pairs 0 to 7 turn 8192 / (2 pi 10000^(i / 8)) times.
    let with_factors = |factors: &[f32]| {
        let mut file = plain.clone();
        let bytes = factors.iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut tensor = file.tensors[0].clone();
        (tensor.name, tensor.kind, tensor.shape, tensor.bytes) =
            ("rope_freqs.weight".to_owned(), 0, vec![factors.len()], bytes);
        file.tensors.push(tensor);
        file
    };
    let llama3 = |i: usize| {
        let turns = 8192.0 / (std::f64::consts::TAU * 10000f64.powf(i as f64 / 8.0));
        let smooth = (turns - 1.0) / 3.0;
        if turns > 4.0 {
            1.0
        } else if turns < 1.0 {
            8.0
        } else {
            1.0 / ((1.0 - smooth) / 8.0 + smooth)
        }
    };
    let factors: Vec<f32> = (0..8).map(|i| llama3(i) as f32).collect();
    let file = with_factors(&factors);
    same(
        &file,
        &draft(json!({
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192
        })),
    );
    let other: Vec<f32> = (1..9u8).map(f32::from).collect();
    same(
        &with_factors(&other),
        &draft(json!({
            "rope_type": "longrope", "short_factor": other, "long_factor": other, "attention_factor": 1.0,
            "original_max_position_embeddings": 64
        })),
    );
    let error = load(&with_factors(&[1.0, 0.0])).map(|_| ()).unwrap_err();
    assert_says(&error, &["tiny.gguf", "rope_freqs.weight", "not positive"]);
    assert_says(
        &load(&with_factors(&[1.0])).map(|_| ()).unwrap_err(),
        &["rope_freqs.weight", "has 1 numbers, expected 8"],
    );
}

#[test]
fn versions_and_alignments() {
    let original = load_path(&golden("llama"), LENIENT).unwrap();
    let mut file = File::of(&Draft::of("llama"), "llama");
    (file.version, file.alignment) = (2, 128);
    file.set("general.alignment", Meta::U32(128));
    file.set("llama.attention.head_count", Meta::Integers(vec![4, 4]))
        .set("llama.attention.head_count_kv", Meta::Integers(vec![2, 2]));
    assert_meaning(&load(&file).unwrap(), &original);
}

#[test]
fn a_file_has_its_companions() {
    let path = fixture("gguf-llama").join("model.gguf");
    let checkpoint = Checkpoint::open(&path).unwrap();
    let files = checkpoint.written_companions();
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"]);
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_str(&files.iter().find(|(own, _)| *own == name).unwrap().1).unwrap()
    };
    assert_eq!(read("generation_config.json"), json!({"bos_token_id": 1, "eos_token_id": 2}));
    assert_eq!(read("config.json")["rms_norm_eps"], json!(1e-5));
    let settings = read("tokenizer_config.json");
    assert_eq!((&settings["bos_token"], &settings["unk_token"]), (&json!("<s>"), &json!("<unk>")));
    assert!(settings["chat_template"].as_str().unwrap().starts_with("{% for m in messages"));
    assert!(checkpoint.companions().is_empty());
    assert_eq!((checkpoint.config_path(), checkpoint.sources().unwrap().len()), (path, 1));
    assert!(Checkpoint::open(&golden("llama")).unwrap().written_companions().is_empty());
}

/// The error of a file that is changed.
fn error(change: impl Fn(&mut File)) -> String {
    let mut file = File::of(&Draft::of("llama"), "llama");
    change(&mut file);
    let message = load(&file).map(|_| ()).expect_err("this should not load");
    assert_says(&message, &["tiny.gguf"]);
    message
}

#[test]
fn metadata_that_is_not_followed_is_named() {
    let says = |change: &dyn Fn(&mut File), parts: &[&str]| assert_says(&error(change), parts);
    let architecture = "general.architecture";
    says(
        &|f| f.put(architecture, Meta::Text("mamba")),
        &[
            "\"mamba\"",
            "known are bloom, cohere2, deepseek2, dots1, ernie4_5, exaone4, gemma, gemma2, gemma3, glm4, gpt2, gptneox, gpt-oss,",
        ],
    );
    says(&|f| f.put(architecture, Meta::U32(1)), &[architecture, "not a text"]);
    says(&|f| f.remove(architecture), &[architecture, "missing"]);
    says(&|f| f.put("general.type", Meta::Text("adapter")), &["general.type", "adapter"]);
    says(&|f| f.put("split.count", Meta::U32(3)), &["one of 3 parts", "llama-gguf-split --merge"]);
    says(&|f| f.remove("llama.block_count"), &["`llama.block_count` is missing"]);
    says(
        &|f| f.put("llama.block_count", Meta::U32(1 << 30)),
        &["`llama.block_count` is 1073741824, expected a number"],
    );
    says(
        &|f| f.put("llama.block_count", Meta::U32(0)),
        &["`llama.block_count` is 0, expected a number from 1 to 16777216"],
    );
    says(
        &|f| f.put("llama.block_count", Meta::Text("2")),
        &["`llama.block_count` is \"2\", expected a number from 1 to 16777216"],
    );
    says(&|f| f.put("llama.block_count", Meta::U32(3)), &["layers.2.", "missing"]);
    says(&|f| f.put("llama.embedding_length", Meta::U32(65)), &["hidden_size", "65"]);
    says(&|f| f.put("llama.attention.head_count", Meta::Integers(vec![4, 2])), &["head_count", "is a list"]);
    says(&|f| f.put("llama.attention.head_count_kv", Meta::U32(1)), &["attn_k.weight", "[32, 64]", "[16, 64]"]);
    says(
        &|f| f.put("llama.attention.causal", Meta::Bool(false)),
        &["llama.attention.causal` is false", "not supported"],
    );
    says(&|f| f.put("llama.attention.causal", Meta::U32(1)), &["llama.attention.causal", "expected true or false"]);
    says(&|f| f.put("llama.logit_scale", Meta::F32(2.0)), &["llama.logit_scale` is 2", "not supported"]);
    says(&|f| f.put("llama.attention.value_length", Meta::U32(8)), &["attention.value_length", "features of a head"]);
    says(&|f| f.put("llama.final_logit_softcapping", Meta::F32(30.0)), &["final_logit_softcapping` is 30"]);
    says(
        &|f| f.put("llama.expert_count", Meta::U32(8)),
        &["`llama.expert_used_count` is missing", "a number from 1 to 16777216"],
    );
    says(
        &|f| f.put("llama.expert_count", Meta::Text("8")),
        &["llama.expert_count` is \"8\"", "a number from 1 to 16777216"],
    );
    says(&|f| f.put("llama.attention.sliding_window", Meta::Text("3")), &["attention.sliding_window` is \"3\""]);
    says(&|f| f.put("llama.feed_forward_length", Meta::Floats(vec![96.5, 96.5])), &["feed_forward_length` is a list"]);
    says(
        &|f| {
            f.remove("llama.attention.key_length");
            f.put("llama.embedding_length", Meta::U32(65));
        },
        &["llama.embedding_length` is 65, expected a multiple of the 4 of `attention.head_count`"],
    );
    says(&|f| f.put("llama.rope.dimension_count", Meta::U32(8)), &["rope.dimension_count", "whole heads"]);
    says(&|f| f.put("llama.rope.scaling.type", Meta::Text("su")), &["rope.scaling.type", "\"yarn\""]);
    says(&|f| f.put("llama.rope.scaling.type", Meta::Text("linear")), &["rope.scaling.factor` is missing"]);
    says(&|f| f.remove("llama.attention.layer_norm_rms_epsilon"), &["layer_norm_rms_epsilon` is missing"]);
    says(&|f| f.tensors.retain(|t| t.name != "token_embd.weight"), &["token_embd.weight", "no embeddings"]);
    says(&|f| f.tensors.retain(|t| t.name != "blk.1.ffn_up.weight"), &["layers.1.mlp.up_proj.weight", "missing"]);
    says(
        &|f| drop(std::mem::replace(&mut f.tensor("blk.1.ffn_up.weight").name, "blk.01.ffn_down.weight".into())),
        &["the same of the model"],
    );

    let mut file = File::of(&Draft::of("llama"), "llama");
    // 0 says that there is none.
    file.set("llama.expert_count", Meta::U32(0)).set("llama.attention.sliding_window", Meta::U32(0));
    file.set("llama.swin_scale", Meta::F32(2.0)).set("llama.swin_norm", Meta::Bool(false));
    file.set("llama.logit_scale", Meta::F32(1.0)).set("llama.attention.causal", Meta::Bool(true));
    file.set("quantize.imatrix.file", Meta::Text("x")).set("other.key", Meta::Text("x"));
    file.set("tokenizer.ggml.eot_token_id", Meta::U32(3)).set("tokenizer.ggml.lower_case", Meta::Bool(true));
    let mut extra = file.tensors[0].clone();
    extra.name = "blk.0.extra.weight".to_owned();
    file.tensors.push(extra);
    let warnings = load(&file).unwrap().warnings.join("\n");
    assert_says(
        &warnings,
        &[
            "ignored metadata: llama.swin_scale, other.key, tokenizer.ggml.lower_case\n",
            "1 unused tensors: blk.0.extra.weight",
        ],
    );
}

#[test]
fn damaged_files_are_refused() {
    let says = |change: &dyn Fn(&mut File), parts: &[&str]| assert_says(&error(change), parts);
    let (q, gate) = ("blk.0.attn_q.weight", "blk.0.ffn_gate.weight");
    says(&|f| f.version = 1, &["version of the format is 1"]);
    says(&|f| f.version = 3u32.swap_bytes(), &["big-endian"]);
    says(&|f| f.version = 0, &["version of the format is 0"]);
    says(&|f| f.tensor(q).kind = 16, &[q, "of type IQ2_XXS", "known are F32, F16, Q4_0"]);
    says(&|f| f.tensor(q).kind = 99, &[q, "of type number 99"]);
    says(&|f| f.tensor(gate).kind = 12, &[gate, "rows of 64 elements are not whole blocks of 256"]);
    says(&|f| f.tensor(q).shape = vec![64, 0], &[q, "dimension that is 0"]);
    says(&|f| f.tensor(q).shape = vec![1; 5], &[q, "5 dimensions"]);
    says(&|f| f.tensor(q).shape = vec![], &[q, "0 dimensions"]);
    says(&|f| f.tensor(q).shape = vec![usize::MAX, usize::MAX], &[q, "does not fit 64 bits"]);
    says(&|f| f.tensor(q).shape = vec![1 << 40, 64], &[q, "cut short"]);
    says(&|f| f.tensor(q).shape = vec![32, 128], &["attn_q.weight", "[32, 128]", "[64, 64]"]);
    says(&|f| f.tensor(q).offset = Some(0), &["overlap at byte 0"]);
    says(&|f| f.tensor(q).offset = Some(33), &[q, "byte 33", "no multiple of 32"]);
    says(&|f| f.tensor(q).offset = Some(u64::MAX - 31), &[q, "cut short"]);
    says(&|f| f.tensor(q).name = gate.to_owned(), &[gate, "twice"]);
    says(&|f| f.put("general.alignment", Meta::U32(24)), &["general.alignment", "power of two"]);
    says(&|f| f.meta.push(f.meta[1].clone()), &["is there twice"]);
    says(&|f| f.put("x", Meta::Raw(13, vec![])), &["`x` is of type 13"]);
    says(&|f| f.put("x", Meta::Raw(8, u64::MAX.to_le_bytes().to_vec())), &["`x`", "cut short, or is damaged"]);
    says(&|f| f.put("x", Meta::Raw(8, [&2u64.to_le_bytes()[..], &[0xff, 0xff]].concat())), &["`x` is not UTF-8"]);
    let list = |kind: u32, length: u64| [&kind.to_le_bytes()[..], &length.to_le_bytes()].concat();
    says(&|f| f.put("x", Meta::Raw(9, list(4, u64::MAX))), &["`x`"]);
    says(&|f| f.put("x", Meta::Raw(9, list(8, u64::MAX))), &["damaged"]);
    says(&|f| f.put("x", Meta::Raw(9, list(77, 1))), &["`x` has elements of type 77"]);
    says(&|f| f.put("x", Meta::Raw(9, list(9, 1).repeat(9))), &["`x` is a list in lists"]);

    let whole = File::of(&Draft::of("llama"), "llama").bytes();
    let refused = |bytes: &[u8], parts: &[&str]| {
        let message = open(bytes).map(|_| ()).expect_err("this should not load");
        assert_says(&message, &[&["tiny.gguf"], parts].concat());
    };
    refused(b"", &["too few"]);
    refused(b"GGUX\x03\0\0\0aaaaaaaabbbbbbbb", &["does not begin with `GGUF`"]);
    refused(b"version https://git-lfs.github.com/spec/v1", &["Git LFS"]);
    for (at, what) in [(8, "tensors"), (16, "entries of metadata")] {
        let mut bytes = whole.clone();
        bytes[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        refused(&bytes, &[what, "damaged"]);
    }
    // Every length of the header, and some of the data.
    for length in (0..2200).chain([whole.len() / 2, whole.len() - 1]) {
        refused(&whole[..length], &[]);
    }
}

#[test]
fn tokenizers_that_are_not_known_are_named() {
    let mut file = File::of(&Draft::of("llama"), "llama");
    let tokens = |count: usize| Meta::Texts((0..count).map(|i| format!("t{i}")).collect());
    let mut says = |key: &str, value: Meta, expected: &str| {
        file.set(key, value);
        let warnings = load(&file).unwrap().warnings.join("\n");
        assert_says(&warnings, &["there will be no tokenizer", expected, "tokenizer.json"]);
    };
    says("general.name", Meta::Text("x"), "`tokenizer.ggml.tokens` is no list");
    says("tokenizer.ggml.tokens", tokens(140), "140 tokens, the embeddings have 139");
    says("tokenizer.ggml.tokens", tokens(139), "`tokenizer.ggml.model` is missing");
    says("tokenizer.ggml.model", Meta::Text("rwkv"), "\"rwkv\": known are gpt2 and llama");
    says("tokenizer.ggml.model", Meta::Text("llama"), "`tokenizer.ggml.scores` has 0 numbers");
    says("tokenizer.ggml.scores", Meta::Floats(vec![0.0; 3]), "`tokenizer.ggml.scores` has 3 numbers");
    says("tokenizer.ggml.model", Meta::Text("gpt2"), "`tokenizer.ggml.merges` is no list");
    says("tokenizer.ggml.merges", Meta::Texts(vec!["t1t2".to_owned()]), "an element that is no pair");
    says("tokenizer.ggml.merges", Meta::Floats(vec![1.0]), "`tokenizer.ggml.merges` is no list");
    file.set("tokenizer.ggml.merges", Meta::Texts(vec!["t 1".to_owned()]));
    assert_says(&load(&file).unwrap().warnings.join("\n"), &["does not say how texts are split"]);
    file.set("tokenizer.ggml.pre", Meta::Text("gpt-2"));
    assert!(load(&file).unwrap().warnings.is_empty());
    file.set("tokenizer.ggml.pre", Meta::Text("new-bpe"));
    assert_says(&load(&file).unwrap().warnings.join("\n"), &["\"new-bpe\": known are gpt-2"]);
    file.set("tokenizer.ggml.pre", Meta::Text("gpt-2")).set("tokenizer.ggml.token_type", Meta::Integers(vec![1; 4]));
    assert_says(&load(&file).unwrap().warnings.join("\n"), &["`tokenizer.ggml.token_type` has 4 elements"]);
}

#[test]
fn a_vocabulary_that_cannot_be_right_is_doubted() {
    let mut file = File::of(&Draft::of("llama"), "llama");
    let tokens: Vec<String> = (0..139).map(|i| if i % 50 == 3 { "same".to_owned() } else { format!("t{i}") }).collect();
    file.set("tokenizer.ggml.tokens", Meta::Texts(tokens));
    file.set("tokenizer.ggml.model", Meta::Text("gpt2")).set("tokenizer.ggml.merges", Meta::Texts(Vec::new()));
    file.set("tokenizer.ggml.pre", Meta::Text("gpt-2"));
    let doubts = |file: &File| load(file).unwrap().warnings.join("\n");
    assert_says(&doubts(&file), &["`tokenizer.ggml.tokens` has 2 tokens", "such as 3 and 53"]);
    file.set("llama.vocab_size", Meta::U32(5)).set("tokenizer.ggml.bos_token_id", Meta::U32(139));
    file.set("tokenizer.ggml.tokens", Meta::Texts((0..139).map(|i| "t".repeat(i)).collect()));
    assert_says(
        &doubts(&file),
        &[
            "`llama.vocab_size` is 5, and the embeddings have 139 rows",
            "`tokenizer.ggml.bos_token_id` is 139, which is none of the 139 tokens",
            "token 0 of `tokenizer.ggml.tokens` is empty",
        ],
    );
}

fn open_file(path: &Path) {
    if let Ok(file) = WeightFile::open_gguf(path) {
        for tensor in file.tensors().values() {
            assert!(tensor.offset + tensor.bytes <= file.bytes());
        }
    }
    if let Err(error) = load_path(path, LENIENT) {
        assert!(!error.to_string().is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_file_with_bytes_changed_is_a_model_or_an_error(changes in prop::collection::vec((0usize..2600, any::<u8>()), 1..4)) {
        let mut bytes = fs::read(fixture("gguf-vocabularies").join("gpt-2.gguf")).unwrap();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        let folder = scratch();
        let path = folder.path().join("tiny.gguf");
        fs::write(&path, bytes).unwrap();
        open_file(&path);
    }

    #[test]
    fn random_bytes_after_a_header_are_a_model_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), counts in any::<[u8; 2]>()) {
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        counts.iter().for_each(|count| file.extend(u64::from(count % 4).to_le_bytes()));
        file.extend(bytes);
        let folder = scratch();
        let path = folder.path().join("tiny.gguf");
        fs::write(&path, file).unwrap();
        open_file(&path);
    }
}
