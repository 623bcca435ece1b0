//! Checkpoints that other tools quantized: weights against what those tools make of them, and files that do not fit.

use std::fs;
use std::path::{Path, PathBuf};

use planish_ir::{DType, Weight};
use planish_models::{Loaded, ModelError};
use safetensors::tensor::{Dtype, SafeTensors};
use serde_json::{Value, json};

use crate::support::{Draft, LENIENT, STRICT, Stored, assert_says, load_path};

/// The folder of a fixture.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/quantized").join(name)
}

/// The checkpoint of a fixture, in memory.
fn draft(name: &str) -> Draft {
    Draft::at(&fixture(name))
}

/// Asserts that each weight of a model is what `reference.safetensors` of a folder says; returns how many there are.
#[track_caller]
pub(crate) fn assert_reference(model: &Loaded, folder: &Path) -> usize {
    let bytes = fs::read(folder.join("reference.safetensors")).unwrap();
    let reference = SafeTensors::deserialize(&bytes).unwrap();
    let mut found = 0;
    for (name, expected) in reference.tensors() {
        let own = name.strip_prefix("model.").unwrap_or(&name);
        let weights = model.parts[0].graph.weights().find(|(_, value, _)| value.name == own);
        let weight = weights.unwrap_or_else(|| panic!("there is no weight {own}")).2;
        assert_eq!((weight.dtype(), weight.shape()), (DType::F32, expected.shape()), "{name}");
        let expected: Vec<f64> =
            expected.data().as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect();
        let largest = expected.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
        let error =
            weight.read_numbers().unwrap().iter().zip(&expected).fold(0.0, |m: f64, (a, b)| m.max((a - b).abs()));
        assert!(largest > 0.01 && error <= 1e-5 * largest, "{name}: {error} of {largest}");
        found += 1;
    }
    found
}

/// Whether the weight of a layer is codes with scales.
pub(crate) fn codes<'a>(model: &'a Loaded, name: &str) -> Option<(DType, Weight, &'a Weight)> {
    let (_, _, weight) = model.parts[0].graph.weights().find(|(_, value, _)| value.name == name).unwrap();
    let found = weight.as_dequantized()?;
    Some((found.codes.dtype(), found.scales, weight))
}

const QUERY: &str = "layers.0.self_attn.q_proj.weight";

#[test]
fn weights_are_what_the_tools_say() {
    for (name, dtype, scales) in [
        ("gptq", DType::U4, &[32, 2][..]),
        ("gptq-2bits-rows", DType::U2, &[32, 1]),
        ("gptq-8bits-v2", DType::U8, &[32, 1]),
        ("awq", DType::U4, &[32, 2]),
        ("compressed-tensors", DType::I4, &[32, 2]),
        ("compressed-tensors-zero-points", DType::U4, &[32, 2]),
        ("compressed-tensors-8bits", DType::I8, &[32, 1]),
        ("compressed-tensors-int8", DType::U8, &[32, 1]),
    ] {
        let model = load_path(&fixture(name), STRICT).unwrap();
        assert_eq!(assert_reference(&model, &fixture(name)), 12, "{name}");
        let (found, of, _) = codes(&model, QUERY).unwrap_or_else(|| panic!("{name} has no codes"));
        assert_eq!((found, of.shape()), (dtype, scales), "{name}");
    }
}

#[test]
fn weights_without_codes_are_named_in_one_warning() {
    for (name, why) in [
        ("gptq-act-order", "inputs that share a scale are not neighbours (act-order)"),
        ("gptq-act-order", "planish takes the floats that they stand for"),
    ] {
        let model = load_path(&fixture(name), LENIENT).unwrap();
        assert_eq!(assert_reference(&model, &fixture(name)), 12, "{name}");
        assert!(codes(&model, QUERY).is_none());
        let [warning] = model.warnings.as_slice() else { panic!("{:?}", model.warnings) };
        let named = "model.layers.0.mlp.down_proj.weight";
        assert_says(warning, &["model.safetensors: the codes of 7 quantized weights are not kept", why, named]);
        let strict = load_path(&fixture(name), STRICT).map(|_| ()).unwrap_err();
        assert!(matches!(strict, ModelError::Strict(_)));
    }
}

#[test]
fn indices_of_a_table_are_kept() {
    for name in ["bitsandbytes-nf4", "bitsandbytes-fp4-nested"] {
        let model = load_path(&fixture(name), STRICT).unwrap();
        assert_eq!(assert_reference(&model, &fixture(name)), 12, "{name}");
        let (_, _, weight) = model.parts[0].graph.weights().find(|(_, value, _)| value.name == QUERY).unwrap();
        let book = weight.as_codebook().unwrap();
        assert_eq!((book.indices.elements() * 2, book.block), (weight.elements(), 64), "{name}");
        let again = Weight::of_codebook(&book, weight.shape()).unwrap();
        assert_eq!(again.read().unwrap(), weight.read().unwrap(), "{name}");
    }
}

/// Groups of inputs in another order, as llm-compressor stored them.
#[test]
fn compressed_tensors_may_have_an_order_of_inputs() {
    let name = |tensor: &str| format!("model.layers.0.self_attn.q_proj.{tensor}");
    let index: Vec<u8> = (0..32).flat_map(|i: i32| (i % 2).to_le_bytes()).collect();
    let ordered = draft("compressed-tensors")
        .tensor(&name("weight_g_idx"), Stored { dtype: Dtype::I32, shape: vec![32], bytes: index });
    let plain = load_path(&fixture("compressed-tensors"), STRICT).unwrap();
    let (_, scales, weight) = codes(&plain, QUERY).unwrap();
    let (scales, values) = (scales.read_numbers().unwrap(), weight.read_numbers().unwrap());
    let folder = ordered.write();
    let model = load_path(folder.path(), LENIENT).unwrap();
    let found =
        model.parts[0].graph.weights().find(|(_, value, _)| value.name == QUERY).unwrap().2.read_numbers().unwrap();
    for (i, (found, value)) in found.iter().zip(&values).enumerate() {
        let (row, column) = (i / 32, i % 32);
        let expected = (value / scales[row * 2 + column / 16]).round() * scales[row * 2 + column % 2];
        assert!((found - expected).abs() < 1e-6, "{i}: {found}, expected {expected}");
    }
    assert_says(&model.warnings.join("\n"), &["the codes of 1 quantized weights", "(act-order)"]);
}

/// A tensor of the first projection, changed.
fn changed(fixture: &str, tensor: &str, change: impl Fn(&mut Stored)) -> String {
    let mut draft = draft(fixture);
    let name = format!("model.layers.0.self_attn.q_proj.{tensor}");
    let mut stored = draft.tensors[&name].clone();
    change(&mut stored);
    draft.tensors.insert(name.clone(), stored);
    let error = draft.error(LENIENT);
    assert_says(&error, &[&name, "model.safetensors"]);
    error
}

/// Cuts or repeats rows.
fn rows(stored: &mut Stored, rows: usize) {
    let row = stored.bytes.len() / stored.shape[0];
    stored.bytes = stored.bytes.iter().copied().cycle().take(row * rows).collect();
    stored.shape[0] = rows;
}

/// Sets the numbers of a tensor of 32 bit integers.
fn set(stored: &mut Stored, at: usize, value: i32) {
    stored.bytes[at * 4..][..4].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let missing = |fixture: &str, tensor: &str| {
        let mut draft = draft(fixture);
        let name = format!("model.layers.0.self_attn.q_proj.{tensor}");
        assert!(draft.tensors.remove(&name).is_some(), "{name}");
        assert_says(&draft.error(LENIENT), &[&name, "missing", "is quantized, and needs it"]);
    };
    for (fixture, tensor) in [
        ("gptq", "scales"),
        ("gptq", "qzeros"),
        ("awq", "scales"),
        ("compressed-tensors", "weight_scale"),
        ("compressed-tensors", "weight_shape"),
        ("bitsandbytes-nf4", "weight.absmax"),
        ("bitsandbytes-nf4", "weight.quant_state.bitsandbytes__nf4"),
        ("bitsandbytes-fp4-nested", "weight.nested_absmax"),
    ] {
        missing(fixture, tensor);
    }
    let says = |message: String, parts: &[&str]| assert_says(&message, parts);
    says(changed("gptq", "scales", |t| rows(t, 3)), &["[3, 32]", "[2, 32]", "groups of 16"]);
    says(changed("gptq", "qzeros", |t| rows(t, 1)), &["[1, 4]", "[2, 4]"]);
    says(changed("gptq", "qweight", |t| t.shape = vec![128]), &["expected a matrix"]);
    says(changed("gptq", "qweight", |t| t.dtype = Dtype::F32), &["elements are F32, expected I32"]);
    says(changed("gptq-act-order", "g_idx", |t| set(t, 3, 4)), &["input 3 is of group 4", "4 groups"]);
    says(changed("gptq-act-order", "g_idx", |t| set(t, 3, -1)), &["input 3 is of group -1"]);
    says(changed("gptq-act-order", "g_idx", |t| rows(t, 31)), &["[31]", "[32]"]);
    let uneven = changed("gptq-act-order", "g_idx", |t| (0..9).for_each(|i| set(t, i, 0)));
    says(uneven, &["group ", "inputs, expected 8"]);
    says(changed("compressed-tensors", "weight_scale", |t| rows(t, 31)), &["[31, 2]", "[32, groups]"]);
    says(changed("compressed-tensors-zero-points", "weight_zero_point", |t| rows(t, 3)), &["[3, 2]", "[4, 2]"]);
    let shape = |t: &mut Stored, to: i64| t.bytes[8..].copy_from_slice(&to.to_le_bytes());
    let cut = |to: i64| {
        let mut draft = draft("compressed-tensors");
        let name = "model.layers.0.self_attn.q_proj.weight_shape";
        shape(draft.tensors.get_mut(name).unwrap(), to);
        draft.error(LENIENT)
    };
    for to in [31, 0, -32, i64::MAX] {
        says(cut(to), &["weight_packed", "[32, 4]", "whose rows fill words"]);
    }
    says(changed("bitsandbytes-nf4", "weight", |t| rows(t, 100)), &["100 bytes", "[64, 64]"]);
    says(changed("bitsandbytes-nf4", "weight.absmax", |t| rows(t, 15)), &["[15]", "[64]", "each 64 of 4096"]);
    says(changed("bitsandbytes-nf4", "weight.quant_map", |t| rows(t, 17)), &["[17]", "[16]"]);
    let state = "weight.quant_state.bitsandbytes__nf4";
    let text = |text: &'static str| move |t: &mut Stored| (t.bytes, t.shape) = (text.into(), vec![text.len()]);
    says(changed("bitsandbytes-nf4", state, text("{")), &["no JSON object"]);
    says(changed("bitsandbytes-nf4", state, text("{\"shape\": [32]}")), &["`shape` is not a pair"]);
    says(changed("bitsandbytes-nf4", state, text("{\"shape\": [64, 64], \"blocksize\": 0}")), &["`blocksize` is not"]);
    let nested = "{\"shape\": [64, 64], \"blocksize\": 64, \"nested_blocksize\": 256}";
    says(changed("bitsandbytes-nf4", state, text(nested)), &["`nested_offset` is not a number"]);
    // The configuration asks for another size of layers.
    let other = draft("gptq").with("intermediate_size", json!(72)).error(LENIENT);
    assert_says(&other, &["mlp.gate_proj.weight", "[64, 32]", "[72, 32]", "intermediate_size"]);
}

#[test]
fn settings_that_are_not_followed_are_named() {
    let refused = |fixture: &str, key: &str, value: Value, parts: &[&str]| {
        let mut draft = draft(fixture);
        draft.config["quantization_config"][key] = value;
        assert_says(&draft.error(LENIENT), &[&["config.json", "quantization_config", key], parts].concat());
    };
    refused("gptq", "bits", json!(3), &["is 3, expected 2 or 4 or 8"]);
    refused("gptq", "group_size", json!(0), &["expected a positive number"]);
    refused("gptq", "group_size", json!("16"), &["expected a positive number"]);
    refused("gptq", "checkpoint_format", json!("marlin"), &["marlin", "known are \"gptq\", \"gptq_v2\""]);
    refused("awq", "version", json!("gemv"), &["gemv", "gemm"]);
    refused("awq", "bits", json!(8), &["is 8, expected 4"]);
    refused("awq", "zero_point", json!(false), &["without zero points"]);
    refused("compressed-tensors", "format", json!("nvfp4-pack-quantized"), &["nvfp4", "pack-quantized"]);
    refused("compressed-tensors", "format", Value::Null, &["is missing"]);
    refused("compressed-tensors", "config_groups", Value::Null, &["is missing"]);
    refused("compressed-tensors", "sparsity_config", json!({"format": "sparse-24-bitmask"}), &["no sparsity"]);
    let float = json!({"group_0": {"weights": {"type": "float", "num_bits": 8}}});
    refused("compressed-tensors", "config_groups", float, &["group_0.weights", "expected integers"]);
    refused("bitsandbytes-nf4", "load_in_4bit", json!(false), &["is not true", "nf4 and fp4"]);
    refused("bitsandbytes-nf4", "bnb_4bit_quant_type", json!("int4"), &["int4"]);
    // Rotations of inputs and outputs.
    let rotation =
        json!({"config_groups": {"u": {"type": "hadamard", "apply": [{"targets": ["Linear"], "location": "input"}]}}});
    refused("compressed-tensors", "transform_config", rotation, &["hadamard", "not supported"]);
    refused("gptq", "rotation", json!("hadamard"), &["hadamard", "not supported"]);
    refused("gptq", "adapter", json!({"path": "lora"}), &["not supported"]);
    refused("gptq", "pack_dtype", json!("int8"), &["int8", "int32"]);
    refused("gptq", "dynamic", json!({"+:.*q_proj": {"bits": 8}}), &["+:.*q_proj", "no other settings"]);
    refused("bitsandbytes-nf4", "load_in_8bit", json!(true), &["not supported"]);
    let weights = |key: &str, value: Value, parts: &[&str]| {
        let mut draft = draft("compressed-tensors");
        draft.config["quantization_config"]["config_groups"]["group_0"]["weights"][key] = value;
        assert_says(&draft.error(LENIENT), parts);
    };
    weights("dynamic", json!(true), &["config_groups.group_0.weights.dynamic` is true", "not supported"]);
    weights("strategy", json!("block"), &["config_groups.group_0.weights.strategy", "block", "\"group\""]);
    weights("num_bits", json!(8), &["weight_packed", "codes have 4 bits", "config.json says 8"]);
    for method in [json!("exl2"), json!(4), Value::Null] {
        let mut draft = draft("gptq");
        draft.config["quantization_config"]["quant_method"] = method;
        assert_says(&draft.error(LENIENT), &["config.json", "quant"]);
    }
    let mut size = draft("gptq");
    size.config["quantization_config"]["group_size"] = json!(24);
    assert_says(&size.error(LENIENT), &["qweight", "32 inputs", "group_size` 24 does not divide"]);
    let mut activations = draft("compressed-tensors");
    activations.config["quantization_config"]["config_groups"]["group_0"]["input_activations"] = json!({"num_bits": 8});
    let model = activations.load(LENIENT).unwrap();
    assert_says(&model.warnings.join("\n"), &["quantizes activations too, which is not followed"]);
}

/// Each key is used, changes nothing, is refused, or is named.
#[test]
fn keys_of_quantization_that_are_not_known_are_named() {
    let warned = |fixture: &str, key: &str, value: Value| {
        let mut draft = draft(fixture);
        draft.config["quantization_config"][key] = value;
        draft.load(LENIENT).unwrap().warnings.join("\n")
    };
    for fixture in ["gptq", "awq", "compressed-tensors", "bitsandbytes-nf4"] {
        let warning = warned(fixture, "hot_new_key", json!({"on": 1}));
        assert_says(&warning, &["config.json", "ignored keys: quantization_config.hot_new_key"]);
        assert_eq!(warned(fixture, "hot_new_key", json!(false)), "");
    }
    for (fixture, key, value) in [
        ("gptq", "damp_percent", json!(0.1)),
        ("gptq", "dynamic", json!({"-:.*lm_head": {}})),
        ("gptq", "rotation", Value::Null),
        ("gptq", "meta", json!({"quantizer": ["gptqmodel:4.0"]})),
        ("awq", "modules_to_not_convert", json!(["lm_head"])),
        ("compressed-tensors", "transform_config", json!({})),
        ("compressed-tensors", "transform_config", json!({"config_groups": {}})),
        ("compressed-tensors", "version", json!("0.12.2")),
        ("bitsandbytes-nf4", "llm_int8_threshold", json!(6.0)),
    ] {
        assert_eq!(warned(fixture, key, value), "", "{fixture} {key}");
    }
    assert_says(
        &warned("compressed-tensors", "kv_cache_scheme", json!({"num_bits": 8})),
        &["kv_cache_scheme", "stay floats"],
    );
    let mut group = draft("compressed-tensors");
    group.config["quantization_config"]["config_groups"]["group_0"]["weights"]["new"] = json!(1);
    let warning = group.load(LENIENT).unwrap().warnings.join("\n");
    assert_says(&warning, &["ignored keys: quantization_config.config_groups.group_0.weights.new"]);
}

/// A layer of Conv1D is stored as [out, in] once it is quantized.
#[test]
fn quantized_layers_of_gpt2_are_turned() {
    let plain = Draft::of("gpt2");
    let name = "transformer.h.0.mlp.c_fc";
    let stored = plain.tensors[&format!("{name}.weight")].clone();
    let [inputs, outputs] = stored.shape[..] else { panic!("a matrix") };
    let mut quantized = plain.with(
        "quantization_config",
        json!({"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {}}),
    );
    let codes: Vec<u8> = (0..inputs * outputs).map(|i| (i * 7 % 251) as u8).collect();
    let scales: Vec<u8> = (0..outputs).flat_map(|_| 0.5f32.to_le_bytes()).collect();
    quantized = quantized
        .tensor(
            &format!("{name}.weight"),
            Stored { dtype: Dtype::I8, shape: vec![outputs, inputs], bytes: codes.clone() },
        )
        .tensor(&format!("{name}.weight_scale"), Stored { dtype: Dtype::F32, shape: vec![outputs, 1], bytes: scales });
    let folder = quantized.write();
    let model = load_path(folder.path(), STRICT).unwrap();
    let (_, _, weight) =
        model.parts[0].graph.weights().find(|(_, value, _)| value.name == "h.0.mlp.c_fc.weight").unwrap();
    let expected: Vec<f64> = codes.iter().map(|code| f64::from(code.cast_signed()) * 0.5).collect();
    assert_eq!((weight.shape(), weight.read_numbers().unwrap()), (&[outputs, inputs][..], expected));
    let text = model.parts[0].graph.to_string();
    let line = text.lines().find(|line| line.contains("linear(") && line.contains("@h.0.mlp.c_fc.weight")).unwrap();
    assert!(!line.contains("transposed"), "{line}");
}
