//! Models that are cut for several GPUs: all ranks together are the whole model.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use planish_onnx::proto::ModelProto;
use prost::Message;
use serde_json::{Value, json};

use crate::support::{Draft, Stored, golden, planish, planish_compile, scratch, text, write_sparse};

fn compile(model: &Path, out: &Path, ranks: usize, more: &[&str]) -> crate::support::Done {
    let ranks = ranks.to_string();
    planish_compile(model, out, &[&["--target", "onnx", "--tensor-parallel", &ranks], more].concat())
}

fn manifest(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("planish.json")).unwrap()).unwrap()
}

/// A golden with other members of its configuration.
fn with(name: &str, members: &Value) -> Draft {
    let mut draft = Draft::of(name);
    for (key, value) in members.as_object().unwrap() {
        draft.config[key] = value.clone();
    }
    draft
}

/// Mixtral with 8 experts: each of its 4 twice, of which the second has other scores.
fn eight_experts() -> Draft {
    let mut draft =
        with("mixtral", &json!({"num_attention_heads": 8, "num_key_value_heads": 4, "num_local_experts": 8}));
    let names: Vec<String> = draft.tensors.keys().cloned().collect();
    for name in names {
        if let Some((before, after)) = name.split_once(".experts.") {
            let (expert, rest) = after.split_once('.').unwrap();
            let stored = &draft.tensors[&name];
            let copy = Stored { dtype: stored.dtype, shape: stored.shape.clone(), bytes: stored.bytes.clone() };
            draft.tensors.insert(format!("{before}.experts.{}.{rest}", expert.parse::<usize>().unwrap() + 4), copy);
        }
        if name.ends_with("block_sparse_moe.gate.weight") {
            let router = draft.tensors.get_mut(&name).unwrap();
            let numbers: Vec<f32> = router.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            router.bytes.extend(numbers.iter().flat_map(|number| (number * -0.75).to_le_bytes()));
            router.shape[0] = 8;
        }
    }
    draft
}

/// The models that are cut for 8 ranks, by folder.
fn with_eight_heads(folder: &Path) -> Vec<PathBuf> {
    let llama = with("llama", &json!({"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 8}));
    let gpt2 = with("gpt2", &json!({"n_head": 8}));
    vec![
        llama.write(folder.join("llama8")),
        gpt2.write(folder.join("gpt28")),
        eight_experts().write(folder.join("mixtral8")),
    ]
}

#[test]
fn ranks_together_are_the_whole_model() {
    let folder = scratch();
    let goldens = ["llama", "gpt2", "mixtral", "bert", "t5"].map(golden);
    let small = goldens.iter().flat_map(|model| [2, 4].map(|ranks| (model.clone(), ranks)));
    let large =
        with_eight_heads(folder.path()).into_iter().flat_map(|model| [2, 8].map(|ranks| (model.clone(), ranks)));
    for (at, (model, ranks)) in small.chain(large).enumerate() {
        let out = folder.path().join(format!("out{at}"));
        let done = compile(&model, &out, ranks, &["--verify"]).exits(0, &[]);
        assert!(done.stdout.contains("of 1e-5 allowed"), "{}: {}", model.display(), done.stdout);
        let manifest = manifest(&out);
        assert_eq!(manifest["tensor_parallel"]["ranks"], json!(ranks));
        let part = &manifest["tensor_parallel"]["parts"][0];
        let [whole, rank] = ["weight_bytes", "rank_weight_bytes"].map(|member| part[member].as_u64().unwrap());
        assert!(rank * (ranks as u64) < whole * 2 && rank * (ranks as u64) >= whole, "{}: {part}", model.display());
    }
}

#[test]
fn a_rank_that_is_wrong_is_a_miss() {
    let folder = scratch();
    let (out, other) = (folder.path().join("out"), folder.path().join("other"));
    compile(&golden("llama"), &out, 2, &[]).exits(0, &[]);
    planish(["verify", text(&out)]).exits(0, &[]);
    planish(["verify", text(&out), "--runtime", "reference"]).exits(0, &[]);
    planish(["verify", text(&out), "--runtime", "ort"])
        .exits(2, &["--runtime ort: ranks exchange tensors on reference"]);
    let lines = folder.path().join("lines.txt");
    fs::write(&lines, "a b").unwrap();
    let refused = planish(["predict", text(&out), "--data", text(&lines)]);
    refused.exits(1, &["is rank 0 of model", "`planish verify` runs all ranks here"]);
    // Both ranks have the part of the first.
    fs::copy(out.join("model_tp2_rank0.onnx"), out.join("model_tp2_rank1.onnx")).unwrap();
    let mut changed = manifest(&out);
    changed["files"][1]["bytes"] = changed["files"][0]["bytes"].clone();
    fs::write(out.join("planish.json"), changed.to_string()).unwrap();
    planish(["verify", text(&out)]).exits(3, &[]);
    // Ranks of other models meet nowhere.
    compile(&golden("gpt2"), &other, 2, &[]).exits(0, &[]);
    fs::copy(other.join("model_tp2_rank1.onnx"), out.join("model_tp2_rank1.onnx")).unwrap();
    changed["files"][1]["bytes"] = manifest(&other)["files"][1]["bytes"].clone();
    fs::write(out.join("planish.json"), changed.to_string()).unwrap();
    let done = planish(["verify", text(&out)]);
    assert!([Some(1), Some(3)].contains(&done.code), "{}", done.stderr);
}

#[test]
fn linked_weights_are_not_copied() {
    let folder = scratch();
    let model = Draft::of("llama").write(folder.path().join("llama"));
    let out = folder.path().join("out");
    compile(&model, &out, 2, &["--weights", "link", "--verify"]).exits(0, &[]);
    assert_eq!(fs::metadata(out.join("model.safetensors")).unwrap().nlink(), 2);
    let graph = |rank: usize| {
        let bytes = fs::read(out.join(format!("model_tp2_rank{rank}.onnx"))).unwrap();
        ModelProto::decode(bytes.as_slice()).unwrap().graph.unwrap()
    };
    let places = |rank: usize| -> Vec<String> {
        let external = graph(rank).initializer.into_iter().filter(|tensor| tensor.data_location == 1);
        let place = |entries: &[planish_onnx::proto::StringStringEntryProto]| {
            let of = |key: &str| entries.iter().find(|entry| entry.key == key).map(|entry| entry.value.clone());
            format!("{} {}", of("location").unwrap(), of("offset").unwrap())
        };
        external.map(|tensor| place(&tensor.external_data)).collect()
    };
    let (first, second) = (places(0), places(1));
    assert!(first.len() > 12 && first.iter().all(|place| place.starts_with("model.safetensors ")), "{first:?}");
    // Rows are other ranges; columns are cut by a node on all of the weight.
    assert!(first.iter().any(|place| !second.contains(place)));
    let slices = graph(1).node.iter().filter(|node| node.op_type == "Slice").count();
    assert!(slices >= 4, "{slices}");
    assert!(graph(0).node.iter().any(|node| node.op_type == "DistCollective" && node.domain.is_empty()));
}

/// A checkpoint of the size of Llama 3 70B, of which only the headers are there: 141 GB in a file without blocks.
#[test]
fn a_model_of_70e9_parameters_is_linked_in_8_ranks() {
    let folder = scratch();
    let (layers, hidden, inner, heads, kv_heads, vocabulary) = (80, 8192, 28672, 64, 8, 128_256);
    let model = folder.path().join("llama-70b");
    fs::create_dir(&model).unwrap();
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocabulary,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "hidden_act": "silu",
        "tie_word_embeddings": false, "dtype": "bfloat16",
    });
    fs::write(model.join("config.json"), config.to_string()).unwrap();
    let mut tensors: Vec<(String, Vec<u64>)> = vec![
        ("lm_head.weight".to_owned(), vec![vocabulary, hidden]),
        ("model.embed_tokens.weight".to_owned(), vec![vocabulary, hidden]),
        ("model.norm.weight".to_owned(), vec![hidden]),
    ];
    let keys = hidden / heads * kv_heads;
    for layer in 0..layers {
        for (name, shape) in [
            ("input_layernorm", vec![hidden]),
            ("post_attention_layernorm", vec![hidden]),
            ("self_attn.q_proj", vec![hidden, hidden]),
            ("self_attn.k_proj", vec![keys, hidden]),
            ("self_attn.v_proj", vec![keys, hidden]),
            ("self_attn.o_proj", vec![hidden, hidden]),
            ("mlp.gate_proj", vec![inner, hidden]),
            ("mlp.up_proj", vec![inner, hidden]),
            ("mlp.down_proj", vec![hidden, inner]),
        ] {
            tensors.push((format!("model.layers.{layer}.{name}.weight"), shape));
        }
    }
    let bytes = write_sparse(&model, tensors);
    assert!(bytes > 141_000_000_000, "{bytes}");
    let out = folder.path().join("out");
    compile(&model, &out, 8, &["--bf16", "--weights", "link"]).exits(0, &[]);
    let files = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    let (linked, own): (Vec<fs::Metadata>, Vec<fs::Metadata>) = files.partition(|file| file.nlink() == 2);
    assert_eq!(linked.len(), 1);
    let written: u64 = own.iter().map(fs::Metadata::len).sum();
    assert!(linked[0].len() > bytes && written < 20_000_000, "{written}");
    let part = &manifest(&out)["tensor_parallel"]["parts"][0];
    let [whole, rank] = ["weight_bytes", "rank_weight_bytes"].map(|name| part[name].as_u64().unwrap());
    // Norms are whole on each rank.
    assert!(8 * rank - whole < whole / 1000, "{part}");
}

#[test]
fn refusals_name_what_is_wrong() {
    let folder = scratch();
    let out = folder.path().join("out");
    let refused = |model: &str, ranks: usize, code: i32, parts: &[&str]| {
        compile(&golden(model), &out, ranks, &[]).exits(code, parts);
        assert!(!out.exists());
    };
    refused("llama", 0, 2, &["0 is not in 2..=1024"]);
    refused("llama", 1, 2, &["1 is not in 2..=1024"]);
    refused("llama", 3, 1, &["`attention` at", "has 4 heads, which 3 ranks cannot share; take 2, 4"]);
    refused("resnet", 2, 1, &["no linear layers or attention that 2 ranks can share"]);
    let llama = golden("llama");
    planish_compile(&llama, &out, &["--tensor-parallel", "2"])
        .exits(2, &["--tensor-parallel is for targets onnx, trt: target ort has no collectives"]);
    compile(&llama, &out, 2, &["--package", "triton"]).exits(2, &["does not go with --package"]);
    compile(&llama, &out, 2, &["--verify", "--evaluate", "data.txt"]).exits(2, &["does not go with --evaluate"]);
    compile(&llama, &out, 2, &[]).exits(0, &[]);
    for command in [&["generate", text(&out), "--ids", "1,2"][..], &["bench", text(&out)]] {
        planish(command).exits(1, &["is rank 0 of model", "`planish verify` runs all ranks here"]);
    }
}

#[test]
fn an_imported_rank_is_cut_no_further() {
    let folder = scratch();
    let (out, again) = (folder.path().join("out"), folder.path().join("again"));
    compile(&golden("bert"), &out, 2, &[]).exits(0, &[]);
    let rank = out.join("model_tp2_rank0.onnx");
    compile(&rank, &again, 2, &[]).exits(1, &["exchanges tensors between ranks already"]);
    planish_compile(&rank, &again, &["--target", "onnx", "--verify"]).exits(1, &["DistCollective"]);
}

#[cfg(all(feature = "tensorrt-rtx", not(feature = "tensorrt")))]
#[test]
fn each_rank_has_an_engine() {
    let folder = scratch();
    let out = folder.path().join("out");
    let more = ["--target", "trt", "--tensor-parallel", "2", "--recipe=engine.gpu=sm89", "--verify"];
    let done = planish_compile(&golden("gpt2"), &out, &more).exits(0, &[]);
    assert!(done.stdout.contains("verified"), "{}", done.stdout);
    for rank in 0..2 {
        assert!(out.join(format!("model_tp2_rank{rank}.engine")).exists());
    }
    assert_eq!(manifest(&out)["parts"][1]["rank"], json!({"part": "model", "rank": 1}));
    planish(["verify", text(&out)]).exits(1, &["no ONNX file", "keep-onnx"]);
}
