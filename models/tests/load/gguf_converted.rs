//! GGUF files of goldens by the names that the package gguf has for their tensors.

use std::collections::BTreeMap;
use std::fs;

use planish_ir::DType;
use planish_testing::scratch;
use safetensors::tensor::Dtype;
use serde_json::Value as Json;
use serde_json::json;

use crate::gguf::assert_computes;
use crate::gguf_writer::{File, Meta, Tensor, halves_to_pairs};
use crate::quantized::{codes, fixture};
use crate::support::{Draft, LENIENT, Stored, assert_says, load_path};

/// A list of booleans.
fn flags(values: &[bool]) -> Meta {
    let length = (values.len() as u64).to_le_bytes();
    let values: Vec<u8> = values.iter().map(|flag| u8::from(*flag)).collect();
    Meta::Raw(9, [&7u32.to_le_bytes()[..], &length, &values].concat())
}

fn float(stored: &Stored) -> Vec<f32> {
    assert_eq!(stored.dtype, Dtype::F32);
    stored.bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn stored(shape: &[usize], values: impl IntoIterator<Item = f32>) -> Stored {
    let bytes: Vec<u8> = values.into_iter().flat_map(f32::to_le_bytes).collect();
    assert_eq!(bytes.len(), shape.iter().product::<usize>() * 4);
    Stored { dtype: Dtype::F32, shape: shape.to_vec(), bytes }
}

/// Every other column, from `first` on, of matrices [.., columns].
fn every_other(of: &Stored, first: usize) -> Stored {
    let columns = *of.shape.last().unwrap();
    let values = float(of);
    let picked = values.chunks(columns).flat_map(|row| row[first..].iter().step_by(2).copied().collect::<Vec<_>>());
    let mut shape = of.shape.clone();
    *shape.last_mut().unwrap() = columns / 2;
    stored(&shape, picked)
}

/// Matrices [experts, rows, columns] as [experts, columns, rows].
fn turned(of: &Stored) -> Stored {
    let [experts, rows, columns] = of.shape[..] else { panic!("{:?}", of.shape) };
    let values = float(of);
    let at = |e: usize, c: usize, r: usize| values[(e * rows + r) * columns + c];
    let all = (0..experts).flat_map(|e| (0..columns).flat_map(move |c| (0..rows).map(move |r| (e, c, r))));
    stored(&[experts, columns, rows], all.map(|(e, c, r)| at(e, c, r)))
}

/// Half of the rows of each of the matrices [experts, rows, columns].
fn half(of: &Stored, second: bool) -> Stored {
    let [experts, rows, columns] = of.shape[..] else { panic!("{:?}", of.shape) };
    let start = if second { rows / 2 * columns } else { 0 };
    let values = float(of);
    let picked = values.chunks(rows * columns).flat_map(|one| one[start..start + rows / 2 * columns].to_vec());
    stored(&[experts, rows / 2, columns], picked.collect::<Vec<_>>())
}

/// The rows of queries, then those of keys, then those of values, of a projection that has them side by side for each head.
fn kinds_first(of: &Stored, config: &Json) -> Stored {
    let heads = config["num_attention_heads"].as_u64().or(config["n_head"].as_u64()).unwrap();
    let part = of.bytes.len() / usize::try_from(heads).unwrap() / 3;
    let parts: Vec<&[u8]> = of.bytes.chunks(part).collect();
    let bytes = (0..3).flat_map(|kind| parts[kind..].iter().step_by(3).flat_map(|part| part.to_vec())).collect();
    Stored { bytes, ..of.clone() }
}

/// What llama.cpp's converter makes of the tensors of a checkpoint before it names them.
fn converted(draft: &Draft) -> BTreeMap<String, Stored> {
    let mut out: BTreeMap<String, Stored> = BTreeMap::new();
    for (name, tensor) in &draft.tensors {
        let put = |out: &mut BTreeMap<String, Stored>, from: &str, to: &str, tensor: Stored| {
            out.insert(name.replace(from, to), tensor);
        };
        if let Some((module, rest)) = name.split_once("experts.").filter(|(_, rest)| rest.starts_with(char::is_numeric))
        {
            let (_, projection) = rest.split_once('.').unwrap();
            // Experts are in the order of their numbers, of which the goldens have fewer than ten.
            let all = out.entry(format!("{module}experts.{projection}")).or_insert_with(|| Stored {
                shape: [&[0][..], &tensor.shape].concat(),
                bytes: Vec::new(),
                ..tensor.clone()
            });
            all.shape[0] += 1;
            all.bytes.extend(&tensor.bytes);
        } else if name.ends_with("experts.gate_up_proj") {
            put(&mut out, "gate_up_proj", "gate_proj.weight", turned(&every_other(tensor, 0)));
            put(&mut out, "gate_up_proj", "up_proj.weight", turned(&every_other(tensor, 1)));
        } else if name.ends_with("experts.gate_up_proj_bias") {
            put(&mut out, "gate_up_proj_bias", "gate_proj.bias", every_other(tensor, 0));
            put(&mut out, "gate_up_proj_bias", "up_proj.bias", every_other(tensor, 1));
        } else if name.ends_with("experts.down_proj") {
            put(&mut out, "down_proj", "down_proj.weight", turned(tensor));
        } else if name.ends_with("down_proj_bias") {
            put(&mut out, "down_proj_bias", "down_proj.bias", tensor.clone());
        } else if name.ends_with("input_linear.weight") {
            put(&mut out, "input_linear", "experts.w1", half(tensor, false));
            put(&mut out, "input_linear", "experts.w3", half(tensor, true));
        } else if name.ends_with("output_linear.weight") {
            put(&mut out, "output_linear", "experts.w2", tensor.clone());
        } else if name.ends_with("sinks") {
            put(&mut out, "sinks", "sinks.weight", tensor.clone());
        } else {
            put(&mut out, "e_score_correction_bias", "e_score_correction.bias", tensor.clone());
        }
    }
    out
}

/// The file of a checkpoint, by the names of a golden's architecture, with more metadata.
fn file(golden: &str, draft: &Draft, more: &[(&str, Meta)]) -> File {
    let table: Json = serde_json::from_slice(&fs::read(fixture("gguf-names.json")).unwrap()).unwrap();
    let table = &table[golden];
    let architecture: &'static str = table["architecture"].as_str().unwrap().to_owned().leak();
    let config = &draft.config;
    let mut file = File { version: 3, alignment: 32, meta: Vec::new(), tensors: Vec::new() };
    file.set("general.architecture", Meta::Text(architecture));
    let mut own = |key: &str, value: Meta| file.put(&format!("{architecture}.{key}"), value);
    let size = |key: &str| config[key].as_u64().and_then(|size| u32::try_from(size).ok());
    for (key, name) in [
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("block_count", "num_hidden_layers"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("attention.key_length", "head_dim"),
        ("attention.value_length", "head_dim"),
        ("attention.sliding_window", "sliding_window"),
        ("expert_count", "num_experts"),
        ("expert_count", "num_local_experts"),
        ("expert_count", "n_routed_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
    ] {
        if let Some(size) = size(name) {
            own(key, Meta::U32(size));
        }
    }
    let number = |key: &str| config[key].as_f64().map(|number| Meta::F32(number as f32));
    for (key, name) in [
        ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
        ("attention.layer_norm_epsilon", "norm_epsilon"),
        ("attention.layer_norm_epsilon", "layer_norm_eps"),
    ] {
        if let Some(number) = number(name) {
            own(key, number);
        }
    }
    let rope = &config["rope_parameters"];
    let theta = rope["rope_theta"].as_f64().or(rope["full_attention"]["rope_theta"].as_f64());
    if let Some(theta) = theta {
        own("rope.freq_base", Meta::F32(theta as f32));
    }
    more.iter().for_each(|(key, value)| own(key, value.clone()));
    let permutes = ["mixtral", "granite", "granitemoe", "smollm3"].contains(&golden);
    for (name, tensor) in converted(draft) {
        let parts: Vec<&str> = name.split('.').collect();
        let layer = if matches!(parts[1], "layers" | "h") { parts[2] } else { "" };
        let general = name.replacen(&format!(".{}.{layer}.", parts[1]), &format!(".{}.N.", parts[1]), 1);
        let general = if layer.is_empty() { &name } else { &general };
        let stored_name = table["names"][general].as_str().unwrap_or_else(|| panic!("{golden}: {general}"));
        let tensor = match name.contains("q_proj") || name.contains("k_proj") {
            true if permutes => {
                let key = if name.contains("q_proj") { "num_attention_heads" } else { "num_key_value_heads" };
                halves_to_pairs(&tensor, usize::try_from(config[key].as_u64().unwrap()).unwrap())
            }
            _ if name.contains("query_key_value") => kinds_first(&tensor, config),
            _ if golden == "gemma3" && name.ends_with("norm.weight") => {
                stored(&tensor.shape, float(&tensor).into_iter().map(|x| x + 1.0))
            }
            _ => tensor,
        };
        let name = stored_name.replacen("blk.N.", &format!("blk.{layer}."), 1);
        file.tensors.push(Tensor { name, kind: 0, shape: tensor.shape, bytes: tensor.bytes, offset: None });
    }
    file
}

#[test]
fn files_of_other_architectures_are_those_of_their_checkpoints() {
    let windows = || ("attention.sliding_window_pattern", flags(&[true, false]));
    let dense = |number| ("leading_dense_block_count", Meta::U32(number));
    let shared = || ("expert_shared_count", Meta::U32(1));
    let sigmoids = |groups, taken| {
        vec![
            ("expert_gating_func", Meta::U32(2)),
            ("expert_weights_norm", Meta::Bool(true)),
            ("expert_weights_scale", Meta::F32(2.5)),
            ("expert_group_count", Meta::U32(groups)),
            ("expert_group_used_count", Meta::U32(taken)),
            dense(1),
            shared(),
        ]
    };
    let latent = |key: u32, value: u32, queries: u32| {
        vec![
            ("attention.key_length", Meta::U32(key)),
            ("attention.value_length", Meta::U32(value)),
            ("attention.kv_lora_rank", Meta::U32(16)),
            ("attention.q_lora_rank", Meta::U32(queries)),
            ("rope.dimension_count", Meta::U32(8)),
        ]
    };
    let numbers = vec![
        ("attention.scale", Meta::F32(0.2)),
        ("embedding_scale", Meta::F32(6.0)),
        ("logit_scale", Meta::F32(2.0)),
        ("residual_scale", Meta::F32(0.5)),
    ];
    for (golden, more) in [
        (
            "bloom",
            vec![
                ("context_length", Meta::U32(64)),
                ("block_count", Meta::U32(2)),
                ("attention.head_count", Meta::U32(4)),
                ("feed_forward_length", Meta::U32(256)),
                ("attention.layer_norm_epsilon", Meta::F32(1e-5)),
            ],
        ),
        ("cohere2", vec![("logit_scale", Meta::F32(0.25)), windows()]),
        ("deepseek-v2", [latent(24, 16, 0), vec![dense(1), shared(), ("expert_gating_func", Meta::U32(1))]].concat()),
        ("deepseek-v3", [latent(24, 16, 24), sigmoids(2, 1)].concat()),
        ("dots1", [sigmoids(4, 2), vec![("attention.sliding_window_pattern", flags(&[false, true]))]].concat()),
        ("ernie4-5", vec![]),
        ("exaone4", vec![windows()]),
        ("gemma3", vec![windows()]),
        ("glm4", vec![("rope.dimension_count", Meta::U32(8))]),
        ("gpt-neox", vec![("rope.dimension_count", Meta::U32(4)), ("use_parallel_residual", Meta::Bool(true))]),
        ("gpt-oss", vec![]),
        ("granite", numbers.clone()),
        ("granitemoe", numbers),
        ("mixtral", vec![]),
        ("olmo2", vec![]),
        ("olmoe", vec![]),
        ("phi3", vec![("rope.scaling.original_context_length", Meta::U32(4096))]),
        ("qwen2-moe", vec![("expert_shared_feed_forward_length", Meta::U32(48))]),
        ("qwen3-moe", vec![]),
        ("smollm3", vec![]),
        ("stablelm", vec![("rope.dimension_count", Meta::U32(4)), ("use_parallel_residual", Meta::Bool(false))]),
        ("starcoder2", vec![]),
    ] {
        let mut draft = Draft::of(golden);
        if golden == "smollm3" {
            // Of the four layers that files are said to have, the last one has no rotary embedding; this one has two.
            draft = draft.with("no_rope_layers", json!([1, 1]));
        }
        let original = load_path(draft.write().path(), LENIENT).unwrap();
        let folder = scratch();
        let path = folder.path().join("tiny.gguf");
        fs::write(&path, file(golden, &draft, &more).bytes()).unwrap();
        let model = load_path(&path, LENIENT).unwrap_or_else(|error| panic!("{golden}: {error}"));
        assert_eq!(model.architecture, original.architecture, "{golden}");
        let [warning] = model.warnings.as_slice() else { panic!("{golden}: {:?}", model.warnings) };
        assert_says(warning, &["tiny.gguf: there will be no tokenizer"]);
        assert_computes(&model, &original);
    }
}

/// Newer files have the projections of keys and of values to latents apart.
#[test]
fn projections_of_latents_may_be_apart() {
    let draft = Draft::of("deepseek-v2");
    let original = load_path(draft.write().path(), LENIENT).unwrap();
    let mut file = file(
        "deepseek-v2",
        &draft,
        &[
            ("attention.key_length", Meta::U32(24)),
            ("attention.value_length", Meta::U32(16)),
            ("attention.key_length_mla", Meta::U32(24)),
            ("attention.value_length_mla", Meta::U32(16)),
            ("attention.kv_lora_rank", Meta::U32(16)),
            ("rope.dimension_count", Meta::U32(8)),
            ("leading_dense_block_count", Meta::U32(1)),
            ("expert_shared_count", Meta::U32(1)),
        ],
    );
    let mut apart = Vec::new();
    for tensor in &file.tensors {
        let Some(layer) = tensor.name.strip_suffix("attn_kv_b.weight") else { continue };
        let whole = Stored { dtype: Dtype::F32, shape: vec![4, 32, 16], bytes: tensor.bytes.clone() };
        let (keys, values) = (turned(&half(&whole, false)), half(&whole, true));
        for (name, part) in [("attn_k_b", keys), ("attn_v_b", values)] {
            let name = format!("{layer}{name}.weight");
            apart.push(Tensor { name, kind: 0, shape: part.shape, bytes: part.bytes, offset: None });
        }
    }
    file.tensors.retain(|tensor| !tensor.name.ends_with("attn_kv_b.weight"));
    file.tensors.extend(apart);
    let folder = scratch();
    let path = folder.path().join("tiny.gguf");
    fs::write(&path, file.bytes()).unwrap();
    for latent_cache in [None, Some(planish_models::LatentCache::Expanded)] {
        let options = planish_models::LoadOptions { latent_cache, ..LENIENT };
        let model = load_path(&path, options.clone()).unwrap();
        let original = match latent_cache {
            None => &original,
            Some(_) => &load_path(draft.write().path(), options).unwrap(),
        };
        assert_computes(&model, original);
    }
}

/// Blocks of Q8_0 with a scale of 1, whose codes are the numbers.
#[test]
fn experts_keep_their_codes() {
    let draft = Draft::of("qwen3-moe");
    let mut file = file("qwen3-moe", &draft, &[]);
    for tensor in file.tensors.iter_mut().filter(|tensor| tensor.name.ends_with("_exps.weight")) {
        let blocks = tensor.shape.iter().product::<usize>() / 32;
        let block = |at: usize| [0, 0x3c].into_iter().chain((0..32).map(move |i| (i * 7 + at * 3) as u8));
        (tensor.kind, tensor.bytes) = (8, (0..blocks).flat_map(block).collect());
    }
    let folder = scratch();
    let path = folder.path().join("tiny.gguf");
    fs::write(&path, file.bytes()).unwrap();
    let model = load_path(&path, LENIENT).unwrap();
    for (part, shape) in [("gate", [4, 32, 2]), ("up", [4, 32, 2]), ("down", [4, 64, 1])] {
        let (dtype, scales, weight) = codes(&model, &format!("layers.1.mlp.experts.{part}")).unwrap();
        assert_eq!((dtype, scales.shape()), (DType::I8, &shape[..]), "{part}");
        let numbers = weight.read_numbers().unwrap();
        let expected = |i: usize| f64::from(((i % 32 * 7 + i / 32 * 3) as u8).cast_signed());
        assert!(numbers.iter().enumerate().all(|(i, number)| *number == expected(i)), "{part}");
    }
}

#[test]
fn experts_that_are_not_followed_are_refused() {
    let says = |golden: &str, more: &[(&str, Meta)], parts: &[&str]| {
        let folder = scratch();
        let path = folder.path().join("tiny.gguf");
        fs::write(&path, file(golden, &Draft::of(golden), more).bytes()).unwrap();
        assert_says(&load_path(&path, LENIENT).map(|_| ()).unwrap_err().to_string(), parts);
    };
    says("qwen3-moe", &[("expert_gating_func", Meta::U32(2))], &["`qwen3moe.expert_gating_func` is 2, expected 1"]);
    says("mixtral", &[("expert_weights_norm", Meta::Bool(false))], &["llama.expert_weights_norm", "expected true"]);
    says("qwen3-moe", &[("expert_weights_scale", Meta::F32(2.0))], &["expert_weights_scale` is 2", "not supported"]);
    says("olmo2", &[("expert_count", Meta::U32(4))], &["`olmo2.expert_count` is there", "not one of experts"]);
    says(
        "granitemoe",
        &[("expert_shared_feed_forward_length", Meta::U32(8))],
        &["expert_shared_feed_forward_length", "8"],
    );
    says("exaone4", &[("attention.sliding_window_pattern", flags(&[true]))], &["a list of 2 booleans"]);
    says("olmo2", &[("attention.sliding_window", Meta::U32(8))], &["OLMo 3"]);
    says("qwen2-moe", &[], &["`qwen2moe.expert_shared_feed_forward_length` is missing"]);
}
