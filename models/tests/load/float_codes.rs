//! Checkpoints whose codes are floating-point numbers (FP8, MXFP4): weights against references, and files that do not fit.

use planish_ir::DType;
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use crate::quantized::{assert_reference, codes, fixture};
use crate::support::{Draft, LENIENT, STRICT, Stored, assert_says, load_path};

const QUERY: &str = "layers.0.self_attn.q_proj.weight";

#[test]
fn weights_of_fp8_are_codes_times_scales() {
    for (name, weights, lost) in [
        ("fp8-blocks", 12, 7),
        ("fp8-tensor", 12, 7),
        ("fp8-experts", 15, 10),
        ("compressed-tensors-fp8", 12, 7),
        ("compressed-tensors-fp8-blocks", 12, 7),
    ] {
        let model = load_path(&fixture(name), LENIENT).unwrap();
        assert_eq!(assert_reference(&model, &fixture(name)), weights, "{name}");
        assert!(codes(&model, QUERY).is_none(), "{name}");
        let warnings = model.warnings.join("\n");
        let lost = format!("the codes of {lost} quantized weights are not kept");
        assert_says(&warnings, &[&lost, "no product with FP8 weights takes floats"]);
        assert!(!warnings.contains("unused"), "{name}: {warnings}");
        let activations = "`quantization_config.activation_scheme` quantizes activations too, which is not followed";
        assert_eq!(warnings.contains(activations), name.starts_with("fp8"), "{name}: {warnings}");
    }
}

/// Numbers of MXFP4 times 2 are integers.
#[test]
fn experts_of_mxfp4_are_codes_of_8_bits() {
    let model = load_path(&fixture("mxfp4"), STRICT).unwrap();
    assert_eq!(assert_reference(&model, &fixture("mxfp4")), 15);
    for (part, blocks) in [("gate", [2, 32, 1]), ("up", [2, 32, 1]), ("down", [2, 32, 1])] {
        let (dtype, scales, weight) = codes(&model, &format!("layers.0.mlp.experts.{part}")).unwrap();
        assert_eq!((dtype, scales.shape()), (DType::I8, &blocks[..]), "{part}");
        let found = weight.as_dequantized().unwrap().codes.read_numbers().unwrap();
        assert!(found.iter().all(|code| [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0].contains(&code.abs())), "{part}");
    }
}

/// The error of a fixture whose settings are changed.
fn with_settings(name: &str, change: impl Fn(&mut Value)) -> String {
    let mut draft = Draft::at(&fixture(name));
    change(&mut draft.config["quantization_config"]);
    draft.error(LENIENT)
}

/// The error of a fixture of which one tensor is changed.
fn with_tensor(fixture_name: &str, name: &str, change: impl Fn(&mut Stored)) -> String {
    let mut draft = Draft::at(&fixture(fixture_name));
    change(draft.tensors.get_mut(name).unwrap_or_else(|| panic!("{name}")));
    let error = draft.error(LENIENT);
    assert_says(&error, &[name, "model.safetensors"]);
    error
}

#[test]
fn settings_of_fp8_that_are_not_followed_are_named() {
    let fp8 = |key: &str, value: Value| with_settings("fp8-blocks", |settings| settings[key] = value.clone());
    for value in [json!([16]), json!([0, 16]), json!(16), json!(["a", 2])] {
        assert_says(&fp8("weight_block_size", value), &["weight_block_size", "a pair of positive numbers, or null"]);
    }
    assert_says(&fp8("fmt", json!("e3m4")), &["quantization_config.fmt", "\"e3m4\"", "known are \"e4m3\""]);
    assert_says(&fp8("expert_dtype", json!("fp4")), &["quantization_config.expert_dtype", "\"fp4\""]);
    assert_says(&fp8("activation_scheme", json!("none")), &["activation_scheme", "\"none\""]);
    let weights = |key: &str, value: Value| {
        with_settings("compressed-tensors-fp8-blocks", |settings| {
            settings["config_groups"]["group_0"]["weights"][key] = value.clone();
        })
    };
    assert_says(&weights("num_bits", json!(4)), &["floating-point numbers of 4 bits", "8 are"]);
    assert_says(&weights("type", json!("int")), &["config_groups.group_0.weights", "floating-point numbers"]);
    assert_says(&weights("block_structure", json!("16x8")), &["block_structure", "a pair of positive numbers"]);
    assert_says(&weights("strategy", json!("tensor_group")), &["strategy", "\"tensor_group\"", "block"]);
    let other = with_settings("compressed-tensors-fp8-blocks", |settings| {
        settings["config_groups"]["group_1"] = settings["config_groups"]["group_0"].clone();
        settings["config_groups"]["group_1"]["weights"]["block_structure"] = json!([8, 8]);
    });
    assert_says(&other, &["block_structure", "the same for all groups"]);
}

#[test]
fn tensors_of_fp8_that_do_not_fit_are_named() {
    let module = |tensor: &str| format!("model.layers.0.self_attn.q_proj.{tensor}");
    let mut draft = Draft::at(&fixture("fp8-blocks"));
    draft.tensors.remove(&module("weight_scale_inv")).unwrap();
    assert_says(&draft.error(LENIENT), &[&module("weight_scale_inv"), "missing", "is quantized, and needs it"]);

    let cut = |stored: &mut Stored| {
        stored.bytes.truncate(stored.bytes.len() / 2);
        stored.shape[0] /= 2;
    };
    let error = with_tensor("fp8-blocks", &module("weight_scale_inv"), cut);
    assert_says(&error, &["[1, 2]", "[2, 2] for blocks of 16 outputs and 24 inputs", "the weight is [32, 32]"]);
    let error = with_tensor("fp8-blocks", &module("weight_scale_inv"), |stored| stored.dtype = Dtype::I32);
    assert_says(&error, &["elements are I32"]);
    let error = with_tensor("compressed-tensors-fp8", &module("weight_scale"), cut);
    assert_says(&error, &["[16, 1]", "[32, groups]"]);
    // A weight of floats stays what it is.
    let mut draft = Draft::at(&fixture("fp8-blocks"));
    draft.tensors.insert(module("weight"), Stored::ramp(&[32, 32]));
    let folder = draft.write();
    let warnings = load_path(folder.path(), LENIENT).unwrap().warnings.join("\n");
    assert_says(&warnings, &["the codes of 6 quantized weights", "1 unused tensors", "q_proj.weight_scale_inv"]);
}

#[test]
fn tensors_of_mxfp4_that_do_not_fit_are_named() {
    let name = |tensor: &str| format!("model.layers.0.mlp.experts.gate_up_proj{tensor}");
    let mut draft = Draft::at(&fixture("mxfp4"));
    draft.tensors.remove(&name("_scales")).unwrap();
    assert_says(&draft.error(LENIENT), &[&name("_scales"), "missing"]);
    let error = with_tensor("mxfp4", &name("_scales"), |stored| stored.shape = vec![2, 32, 2]);
    assert_says(&error, &["[2, 32, 2]", "[2, 64, 1]", "one for each block"]);
    let error = with_tensor("mxfp4", &name("_blocks"), |stored| stored.shape = vec![2, 64, 2, 8]);
    assert_says(&error, &["[2, 64, 2, 8]", "[experts, outputs, blocks, 16]"]);
    let error = with_tensor("mxfp4", &name("_blocks"), |stored| stored.dtype = Dtype::I8);
    assert_says(&error, &["elements are I8, expected U8"]);
    let mut draft = Draft::at(&fixture("mxfp4"));
    draft.config["hidden_size"] = json!(64);
    assert_says(&draft.error(LENIENT), &["model.safetensors"]);
}
