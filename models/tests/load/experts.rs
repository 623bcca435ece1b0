//! Mixtures of experts: the forms in which checkpoints have them, the layers that have none, and what is refused.

use std::collections::BTreeMap;

use planish_ir::weight::WeightExpr;
use planish_ir::{DType, Op};
use planish_models::Loaded;
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use crate::quantized::codes;
use crate::support::{Draft, LENIENT, STRICT, Stored, assert_same, assert_says};

/// The tensors of a golden as transformers 5 has them without the original names: those of experts packed, and parts of names
/// replaced in this order.
fn packed(name: &str, projections: Option<[&str; 3]>, names: &[(&str, &str)]) -> Draft {
    let mut draft = Draft::of(name);
    if let Some([gate, up, down]) = projections {
        for (modules, packed) in [(&[gate, up][..], "gate_up_proj"), (&[down][..], "down_proj")] {
            join(&mut draft, modules, packed);
        }
    }
    draft.renamed(|name| names.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to)))
}

/// Puts the projections of all experts, side by side for each, into one tensor of each layer.
fn join(draft: &mut Draft, projections: &[&str], packed: &str) {
    let ending = format!(".experts.0.{}.weight", projections[0]);
    let layers: Vec<String> =
        draft.tensors.keys().filter_map(|name| name.strip_suffix(&ending).map(str::to_owned)).collect();
    assert!(!layers.is_empty(), "{ending}");
    for layer in layers {
        let (mut bytes, mut experts, mut shape) = (Vec::new(), 0, Vec::new());
        while draft.tensors.contains_key(&format!("{layer}.experts.{experts}.{}.weight", projections[0])) {
            for name in projections {
                let part = draft.tensors.remove(&format!("{layer}.experts.{experts}.{name}.weight")).unwrap();
                bytes.extend(part.bytes);
                shape = part.shape;
            }
            experts += 1;
        }
        let shape = vec![experts, projections.len() * shape[0], shape[1]];
        draft.tensors.insert(format!("{layer}.experts.{packed}"), Stored { dtype: Dtype::F32, shape, bytes });
    }
}

/// conversion_mapping.py of transformers 5.24.
#[test]
fn packed_experts_are_those_of_modules() {
    const LONG: Option<[&str; 3]> = Some(["gate_proj", "up_proj", "down_proj"]);
    const SHORT: Option<[&str; 3]> = Some(["w1", "w3", "w2"]);
    for (name, projections, names) in [
        ("mixtral", SHORT, &[("block_sparse_moe", "mlp")][..]),
        ("phimoe", SHORT, &[("block_sparse_moe", "mlp"), ("mlp.gate.", "mlp.router.")]),
        (
            "granitemoe",
            None,
            &[
                ("input_linear.weight", "experts.gate_up_proj"),
                ("output_linear.weight", "experts.down_proj"),
                ("router.layer.", "router."),
            ],
        ),
        ("ernie4-5-moe", LONG, &[("mlp.moe_statics", "mlp.gate.moe_statics")]),
        ("deepseek-v2", LONG, &[]),
        ("deepseek-v3", LONG, &[]),
        ("dots1", LONG, &[]),
        ("flex-olmo", LONG, &[]),
        ("glm4-moe", LONG, &[]),
        ("hunyuan-moe", LONG, &[]),
        ("olmoe", LONG, &[]),
        ("qwen2-moe", LONG, &[]),
        ("qwen3-moe", LONG, &[]),
    ] {
        let draft = packed(name, projections, names);
        assert_ne!(
            draft.tensors.keys().collect::<Vec<_>>(),
            Draft::of(name).tensors.keys().collect::<Vec<_>>(),
            "{name}"
        );
        assert_same(&draft, name);
    }
}

/// Joined weights read stored bytes expert by expert, and no operator takes them apart.
#[test]
fn weights_of_experts_stay_lazy() {
    for draft in [Draft::of("mixtral"), packed("mixtral", Some(["w1", "w3", "w2"]), &[]), Draft::of("gpt-oss")] {
        let folder = draft.write();
        let model = crate::support::load_path(folder.path(), STRICT).unwrap();
        let graph = &model.parts[0].graph;
        let mut experts = 0;
        for op in graph.nodes().map(|(_, node)| &node.op) {
            let Op::Experts(op) = op else { continue };
            experts += 1;
            for weight in [Some(op.gate), op.up, Some(op.down)].map(|value| graph.weight(value.unwrap()).unwrap()) {
                assert!(matches!(weight.expr(), WeightExpr::Reshape(_)), "{weight:?}");
                weight.visit_leaves(&mut |leaf| {
                    assert!(leaf.as_stored().is_some() && leaf.bytes() * 4 <= weight.bytes() * 2)
                });
            }
        }
        assert_eq!(experts, 2);
    }
}

/// How many layers have experts.
fn sparse(model: &Loaded) -> usize {
    model.parts[0].graph.nodes().filter(|(_, node)| matches!(node.op, Op::Experts(_))).count()
}

#[test]
fn layers_without_experts_are_dense() {
    // The feed-forward of a layer that is dense by another setting.
    let with_dense = |name: &str, layer: usize| {
        let draft = Draft::of(name);
        let (hidden, inner) =
            (draft.config["hidden_size"].as_u64().unwrap(), draft.config["intermediate_size"].as_u64().unwrap());
        let [hidden, inner] = [hidden, inner].map(|size| usize::try_from(size).unwrap());
        let at = |name: &str| format!("model.layers.{layer}.mlp.{name}.weight");
        draft
            .tensor(&at("gate_proj"), Stored::ramp(&[inner, hidden]))
            .tensor(&at("up_proj"), Stored::ramp(&[inner, hidden]))
            .tensor(&at("down_proj"), Stored::ramp(&[hidden, inner]))
            // Of ERNIE.
            .tensor(&at("gate_proj").replace("weight", "bias"), Stored::ramp(&[inner]))
            .tensor(&at("up_proj").replace("weight", "bias"), Stored::ramp(&[inner]))
            .tensor(&at("down_proj").replace("weight", "bias"), Stored::ramp(&[hidden]))
    };
    for (name, key, value, layer, left) in [
        ("qwen2-moe", "mlp_only_layers", json!([1]), 1, 1),
        ("qwen3-moe", "mlp_only_layers", json!([0, 7]), 0, 1),
        ("qwen3-moe", "decoder_sparse_step", json!(2), 0, 1),
        ("deepseek-v3", "first_k_dense_replace", json!(2), 1, 1),
        ("glm4-moe", "first_k_dense_replace", json!(9), 1, 0),
        ("ernie4-5-moe", "moe_layer_end_index", json!(0), 1, 0),
        ("ernie4-5-moe", "moe_layer_interval", json!(3), 1, 0),
    ] {
        let model = with_dense(name, layer).with(key, value.clone()).load(LENIENT).unwrap();
        assert_eq!(sparse(&model), left, "{name} {key} {value}");
    }
    for (key, value) in
        [("mlp_only_layers", json!("none")), ("mlp_only_layers", json!([-1])), ("first_k_dense_replace", json!(-1))]
    {
        let name = if key == "mlp_only_layers" { "qwen2-moe" } else { "deepseek-v2" };
        assert_says(
            &Draft::of(name).with(key, value).error(LENIENT),
            &["config.json", &format!("`{key}` is"), "expected"],
        );
    }
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    let refused = |name: &str, key: &str, value: Value, parts: &[&str]| {
        assert_says(&Draft::of(name).with(key, value).error(LENIENT), &[&["config.json"], parts].concat());
    };
    for (name, taken, count) in [
        ("mixtral", "num_experts_per_tok", "num_local_experts = 4"),
        ("phimoe", "num_experts_per_tok", "num_local_experts = 4"),
        ("granitemoe", "num_experts_per_tok", "num_local_experts = 4"),
        ("gpt-oss", "num_experts_per_tok", "num_local_experts = 4"),
        ("qwen2-moe", "num_experts_per_tok", "num_experts = 4"),
        ("deepseek-v2", "num_experts_per_tok", "n_routed_experts = 4"),
        ("deepseek-v3", "num_experts_per_tok", "n_routed_experts = 8"),
        ("ernie4-5-moe", "moe_k", "moe_num_experts = 4"),
        ("hunyuan-moe", "moe_topk", "num_experts = 4"),
    ] {
        refused(name, taken, json!(9), &[&format!("{taken} = 9 is more than {count}")]);
    }
    refused("hunyuan-moe", "moe_topk", json!([1, 9]), &["moe_topk = 9 is more than num_experts = 4"]);
    refused(
        "hunyuan-moe",
        "moe_topk",
        json!([1]),
        &["`moe_topk` is [1], expected", "each layer (num_hidden_layers = 2)"],
    );
    refused("deepseek-v3", "n_group", json!(3), &["n_routed_experts = 8 is not divisible by n_group = 3"]);
    refused("deepseek-v3", "n_group", json!(8), &["leaves one expert in each"]);
    refused("deepseek-v3", "topk_group", json!(3), &["topk_group = 3 is more than n_group = 2"]);
    refused(
        "deepseek-v3",
        "num_experts_per_tok",
        json!(5),
        &["num_experts_per_tok = 5 is more than the experts of topk_group = 1 groups of 4"],
    );
    refused("deepseek-v2", "topk_method", json!("group_limited_greedy"), &["`n_group` is missing"]);
    assert_says(
        &Draft::of("deepseek-v2").without("num_experts_per_tok").error(LENIENT),
        &["`num_experts_per_tok` is missing"],
    );
    assert_says(&Draft::of("dots1").without("n_shared_experts").error(LENIENT), &["`n_shared_experts` is missing"]);
}

#[test]
fn settings_that_are_not_followed_are_refused() {
    let refused = |name: &str, key: &str, value: Value, parts: &[&str]| {
        let message = Draft::of(name).with(key, value).error(LENIENT);
        assert_says(&message, &[&["config.json", &format!("`{key}` "), "supported"], parts].concat());
    };
    refused("deepseek-v2", "topk_method", json!("noaux_tc"), &["greedy, group_limited_greedy"]);
    refused("deepseek-v2", "scoring_func", json!("sigmoid"), &["softmax"]);
    refused("deepseek-v3", "scoring_func", json!("softmax"), &["sigmoid"]);
    refused("deepseek-v3", "topk_method", json!("greedy"), &["noaux_tc"]);
    refused("glm4-moe", "scoring_func", json!("softmax"), &["sigmoid"]);
    refused("mixtral", "hidden_act", json!("mish"), &["mixtures of experts", "silu"]);
    for name in ["qwen2-moe", "dots1"] {
        let layers = json!(["full_attention", "chunked_attention"]);
        let message = Draft::of(name).with("layer_types", layers).error(LENIENT);
        assert_says(&message, &["`layer_types` has \"chunked_attention\"", "full_attention"]);
    }
    let message = Draft::of("deepseek-v3").with("num_key_value_heads", json!(2)).error(LENIENT);
    assert_says(&message, &["num_key_value_heads = 2, but num_attention_heads = 4", "latents"]);
}

#[test]
fn settings_that_the_library_ignores_are_named() {
    let warned = |name: &str, key: &str, value: Value| {
        Draft::of(name).with(key, value).load(LENIENT).unwrap().warnings.join("\n")
    };
    let says = |text: &str, part: &str| assert!(text.contains(part), "{text}");
    says(&warned("phimoe", "num_experts_per_tok", json!(3)), "`num_experts_per_tok` is not 2");
    says(&warned("deepseek-v2", "norm_topk_prob", json!(true)), "`norm_topk_prob` is true");
}

#[test]
fn experts_of_other_shapes_are_refused() {
    for (name, tensor, module) in [
        ("mixtral", "model.layers.1.block_sparse_moe.experts.2.w3.weight", "intermediate_size = 96"),
        ("qwen3-moe", "model.layers.0.mlp.experts.3.up_proj.weight", "moe_intermediate_size = 32"),
    ] {
        let other = Draft::of(name).tensor(tensor, Stored::ramp(&[8, 64]));
        assert_says(&other.error(LENIENT), &[tensor, "the shape is [8, 64]", module]);
        let mut without = Draft::of(name);
        without.tensors.remove(tensor);
        assert_says(&without.error(LENIENT), &[tensor, "is missing"]);
    }
    let mut none = Draft::of("mixtral");
    none.tensors.retain(|name, _| !name.contains("experts"));
    assert_says(&none.error(LENIENT), &["block_sparse_moe.experts.0.w1.weight", "is missing"]);
    let few = packed("mixtral", Some(["w1", "w3", "w2"]), &[])
        .tensor("model.layers.0.block_sparse_moe.experts.gate_up_proj", Stored::ramp(&[3, 192, 64]));
    assert_says(&few.error(LENIENT), &["gate_up_proj", "[3, 192, 64]", "num_local_experts = 4"]);
}

/// The quantized fixture `gptq` as a mixture of two experts, each its feed-forward.
fn quantized() -> Draft {
    let dense = Draft::at(&crate::quantized::fixture("gptq"));
    let hidden = usize::try_from(dense.config["hidden_size"].as_u64().unwrap()).unwrap();
    let mut draft = Draft { config: dense.config, tensors: BTreeMap::new() };
    draft = draft.with("model_type", json!("mixtral")).with("architectures", json!(["MixtralForCausalLM"]));
    draft = draft.with("num_local_experts", json!(2)).with("num_experts_per_tok", json!(1));
    for (name, tensor) in dense.tensors {
        let names = [("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2")];
        let Some((module, own)) = name.split_once(".mlp.") else {
            draft.tensors.insert(name, tensor);
            continue;
        };
        let own = names.iter().fold(own.to_owned(), |own, (from, to)| own.replace(from, to));
        for expert in 0..2 {
            draft.tensors.insert(format!("{module}.block_sparse_moe.experts.{expert}.{own}"), tensor.clone());
        }
        draft.tensors.insert(format!("{module}.block_sparse_moe.gate.weight"), Stored::ramp(&[2, hidden]));
    }
    draft
}

#[test]
fn codes_of_experts_are_joined() {
    let draft = quantized();
    let (folder, original) = (draft.write(), Draft::at(&crate::quantized::fixture("gptq")).load(STRICT).unwrap());
    let model = crate::support::load_path(folder.path(), STRICT).unwrap();
    for (joined, one) in [("gate", "gate_proj"), ("up", "up_proj"), ("down", "down_proj")] {
        let joined = format!("layers.0.block_sparse_moe.experts.{joined}");
        let (dtype, scales, weight) = codes(&model, &joined).unwrap();
        let (_, own, one) = codes(&original, &format!("layers.0.mlp.{one}.weight")).unwrap();
        assert_eq!((dtype, scales.shape()), (DType::U4, &[&[2], own.shape()].concat()[..]), "{joined}");
        let numbers = one.read_numbers().unwrap();
        assert_eq!(weight.read_numbers().unwrap(), [&numbers[..], &numbers].concat(), "{joined}");
    }
    // One of the experts is no quantized layer.
    const EXPERT: &str = "model.layers.0.block_sparse_moe.experts.1.w3.";
    let (_, _, up) = codes(&original, "layers.0.mlp.up_proj.weight").unwrap();
    let mut mixed = quantized();
    mixed.tensors.retain(|name, _| !name.starts_with(EXPERT));
    let model = mixed.tensor(&format!("{EXPERT}weight"), Stored::ramp(up.shape())).load(LENIENT).unwrap();
    let warnings = model.warnings.join("\n");
    assert_says(&warnings, &["the codes of 1 quantized weights are not kept", "1 because some experts have none"]);
    assert!(codes(&model, "layers.0.block_sparse_moe.experts.up").is_none());
}
