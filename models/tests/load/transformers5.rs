//! Checkpoints as transformers 5 saves them, next to those of transformers 4: both give the same graph. The goldens are
//! of transformers 5 with its original names of tensors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::support::{Draft, STRICT, Stored, assert_meaning, assert_same, assert_says, golden, goldens};

fn rope_parameters(draft: &Draft) -> Map<String, Value> {
    draft.config["rope_parameters"].as_object().unwrap().clone()
}

/// Goldens of fewer layers than the pattern of windows has that their type has by default.
const LISTED: &[&str] = &[
    "cohere2",
    "exaone4",
    "gemma3",
    "granitemoehybrid",
    "lfm2",
    "lfm2-moe",
    "olmo3",
    "qwen3-5",
    "qwen3-5-moe",
    "qwen3-next",
];

/// The goldens with a rotary embedding that all layers have.
fn rotary() -> Vec<String> {
    let has = |parameters: &Value| parameters.as_object().is_some_and(|own| !own.contains_key("full_attention"));
    let names: Vec<String> =
        goldens().into_iter().filter(|name| has(&Draft::of(name).config["rope_parameters"])).collect();
    assert!(names.len() >= 13, "{names:?}");
    names
}

/// The configuration as transformers 4 wrote it.
fn as_transformers_4(name: &str) -> Draft {
    let draft = Draft::of(name);
    let dtype = draft.config["dtype"].clone();
    let mut draft = draft.without("dtype").with("torch_dtype", dtype).with("transformers_version", json!("4.57.6"));
    if !LISTED.contains(&name) {
        draft = draft.without("layer_types");
    }
    if !draft.config["rope_parameters"].is_object() {
        return draft;
    }
    let mut scaling = rope_parameters(&draft);
    draft = draft.without("rope_parameters");
    if let [Some(full), Some(sliding)] = ["full_attention", "sliding_attention"].map(|of| scaling.get(of)) {
        let keys = match draft.config["model_type"].as_str().unwrap() {
            "modernbert" => ["global_rope_theta", "local_rope_theta"],
            _ => ["rope_theta", "rope_local_base_freq"],
        };
        draft = draft.with(keys[0], full["rope_theta"].clone());
        // OLMo 3 has one base for all layers.
        let own = sliding["rope_theta"].clone();
        return if own == full["rope_theta"] { draft } else { draft.with(keys[1], own) };
    }
    for key in ["rope_theta", "partial_rotary_factor"] {
        if let Some(value) = scaling.remove(key) {
            draft = draft.with(key, value);
        }
    }
    let plain = scaling.get("rope_type") == Some(&json!("default"));
    draft.with("rope_scaling", if plain { Value::Null } else { scaling.into() })
}

#[test]
fn configurations_of_both_versions_mean_the_same() {
    // Transformers 4 has no Gemma 4.
    for name in goldens().into_iter().filter(|name| name != "gemma4") {
        assert_same(&as_transformers_4(&name), &name);
    }
}

#[test]
fn parameters_of_rotary_embeddings_by_types_of_layers() {
    for name in &rotary() {
        let draft = Draft::of(name);
        let own = rope_parameters(&draft);
        let both = json!({"full_attention": own.clone(), "sliding_attention": own.clone()});
        assert_same(&draft.with("rope_parameters", both), name);
        let one = json!({"full_attention": own, "sliding_attention": null});
        assert_same(&Draft::of(name).with("rope_parameters", one), name);
    }
}

#[test]
fn parameters_that_differ_between_layers_are_refused() {
    let of = |theta: f64| json!({"rope_theta": theta, "rope_type": "default"});
    let with = |value: Value| Draft::of("qwen3").with("rope_parameters", value).error(STRICT);
    let message = with(json!({"full_attention": of(1e6), "sliding_attention": of(1e4)}));
    assert_says(
        &message,
        &["`rope_parameters` differs between layers of the types full_attention and sliding_attention"],
    );
    let message = with(json!({"full_attention": of(1e6), "rope_theta": {}}));
    assert_says(&message, &["`rope_parameters` is given by the types of layers and has `rope_theta`"]);
    let message = with(json!({"full_attention": 3}));
    assert_says(&message, &["`rope_parameters.full_attention` is 3, expected an object"]);
    let message = with(json!({"full_attention": {"rope_type": "linear"}}));
    assert_says(&message, &["`rope_parameters.full_attention.factor` is missing"]);
}

/// What transformers calls the tensors of models in `save_pretrained(save_original_format=False)`, by what the hub's checkpoints
/// call them. The keys are a golden and a class. Of other models both are the same.
fn renamed() -> BTreeMap<[String; 2], BTreeMap<String, String>> {
    let document: Names = serde_json::from_slice(&fs::read(golden("../transformers5/names.json")).unwrap()).unwrap();
    let key = |name: &str| name.split_once(' ').map(|(golden, class)| [golden, class].map(str::to_owned)).unwrap();
    let models = document.same.iter().chain(document.renamed.keys()).map(|name| key(name)[0].clone());
    let (models, goldens): (BTreeSet<String>, BTreeSet<String>) = (models.collect(), goldens().into_iter().collect());
    assert!(models.len() >= 25 && models.is_subset(&goldens), "{models:?}");
    document.renamed.into_iter().map(|(name, names)| (key(&name), names)).collect()
}

/// `fixtures/transformers5/names.json`.
#[derive(Deserialize)]
struct Names {
    same: Vec<String>,
    renamed: BTreeMap<String, BTreeMap<String, String>>,
}

/// A golden as a checkpoint of one of its classes, with the tensors under these names.
fn as_class(golden: &str, class: &str, names: &BTreeMap<String, String>) -> Draft {
    let mut draft = Draft::of(golden).with("architectures", json!([class]));
    let base = draft.config["model_type"].as_str().unwrap().to_owned() + ".";
    let whole = names.keys().any(|name| name.starts_with(&base));
    let own = |name: &str| if whole { Some(name.to_owned()) } else { name.strip_prefix(&base).map(str::to_owned) };
    let stored = std::mem::take(&mut draft.tensors).into_iter();
    let stored = stored.filter_map(|(name, tensor)| Some((own(&name)?, tensor)));
    draft.tensors = stored.map(|(name, tensor)| (names[&name].clone(), tensor)).collect();
    // A classifier has no pooler.
    let is_there = |name: &String| draft.tensors.contains_key(name) || name.starts_with("pooler.");
    assert!(names.values().all(is_there), "{golden} {class}");
    draft
}

#[test]
fn names_of_tensors_of_both_forms() {
    let renamed = renamed();
    let classes: Vec<&str> = renamed.keys().map(|[_, class]| class.as_str()).collect();
    assert_eq!(classes, ["GPTNeoXForCausalLM", "ViTForImageClassification", "ViTModel"]);
    for ([golden, class], names) in &renamed {
        let same = names.keys().map(|name| (name.clone(), name.clone())).collect();
        let original = as_class(golden, class, &same).load(STRICT).unwrap();
        let model = as_class(golden, class, names).load(STRICT).unwrap();
        assert_meaning(&model, &original);
    }
}

/// What is missing is called by the name that the hub's checkpoints have.
#[test]
fn missing_tensors_are_called_by_their_original_names() {
    for ([golden, class], names) in renamed() {
        let complete = as_class(&golden, &class, &names);
        for (original, name) in names.iter().filter(|(original, name)| original != name) {
            let mut draft = Draft { config: complete.config.clone(), tensors: complete.tensors.clone() };
            draft.tensors.remove(name);
            let original = original.strip_prefix("vit.").unwrap_or(original);
            assert_says(&draft.error(STRICT), &[&format!("tensor `{original}` is missing")]);
        }
    }
}

/// A golden with the tensors that `save_original_format=False` saves: names replaced in this order, and the rows of some
/// tensors in several.
fn in_parts(name: &str, names: &[(&str, &str)]) -> Draft {
    let mut draft = Draft::of(name);
    for (stored, tensor) in std::mem::take(&mut draft.tensors) {
        let new = names.iter().fold(stored, |name, (from, to)| name.replace(from, to));
        let Some((before, (parts, after))) = new.split_once('{').and_then(|(b, rest)| Some((b, rest.split_once('}')?)))
        else {
            draft.tensors.insert(new, tensor);
            continue;
        };
        let parts: Vec<&str> = parts.split(',').collect();
        let bytes = tensor.bytes.len() / parts.len();
        let shape: Vec<usize> =
            tensor.shape.iter().enumerate().map(|(axis, &d)| if axis == 0 { d / parts.len() } else { d }).collect();
        for (part, bytes) in parts.into_iter().zip(tensor.bytes.chunks(bytes)) {
            let tensor = Stored { shape: shape.clone(), bytes: bytes.to_vec(), ..tensor.clone() };
            draft.tensors.insert(format!("{before}{part}{after}"), tensor);
        }
    }
    draft
}

#[test]
fn tensors_in_parts_are_joined() {
    // conversion_mapping.py of transformers 5.24.
    const QKV: &str = "self_attn.{q_proj,k_proj,v_proj}";
    const NORMS: [(&str, &str); 2] = [("norm1", "post_attention_layernorm"), ("norm2", "post_mlp_layernorm")];
    let nomic = [
        ("encoder.layers", "layers"),
        ("emb_ln", "embeddings.LayerNorm"),
        ("attn.out_proj", "self_attn.o_proj"),
        ("attn.Wqkv", QKV),
        ("fc11", "up_proj"),
        ("fc12", "gate_proj"),
        ("fc2", "down_proj"),
    ];
    let gte = [
        ("encoder.layer", "layers"),
        ("attention.o_proj", "self_attn.o_proj"),
        ("attention.qkv_proj", QKV),
        ("mlp.up_gate_proj", "mlp.{up_proj,gate_proj}"),
        ("attn_ln", "post_attention_layernorm"),
        ("mlp_ln", "post_mlp_layernorm"),
        ("lm_head.norm", "lm_head.layer_norm"),
    ];
    let jina = [
        ("encoder.layers", "layers"),
        ("emb_ln", "embeddings.LayerNorm"),
        ("mixer.out_proj", "self_attn.o_proj"),
        ("mixer.Wqkv", QKV),
    ];
    for (name, names) in [
        ("nomic-bert", &[&nomic[..], &NORMS].concat()),
        ("gte", &gte.to_vec()),
        ("jina-v3", &[&jina[..], &NORMS].concat()),
    ] {
        let draft = in_parts(name, names);
        assert!(draft.tensors.keys().any(|stored| stored.contains("layers.0.self_attn.k_proj.weight")), "{name}");
        assert_same(&draft, name);
        // One of the parts is missing, or has other rows than the others.
        let key = draft.tensors.keys().find(|stored| stored.contains("k_proj.weight")).unwrap().clone();
        let mut without = in_parts(name, names);
        without.tensors.remove(&key);
        assert_says(&without.error(STRICT), &[key.split_once("layers").unwrap().1, "is missing"]);
        let other = in_parts(name, names).tensor(&key, Stored::ramp(&[3, 5]));
        assert_says(&other.error(STRICT), &[&key, "[3, 5]"]);
    }
}
