//! Weights and scales that are not finite: errors that name them, where codes are made of them or stand for them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use planish::artifact::manifest::Manifest;
use planish_onnx::proto::{DataType, TensorProto};
use planish_passes::quantize::WeightForm;
use planish_testing::onnx::{floats, graph, int, model, node, typed};
use prost::Message;
use safetensors::tensor::Dtype;

use crate::calibrate::{planish_calibrate, with_tokenizer};
use crate::support::{Draft, Stored, planish, planish_compile, repository, scratch, tensors, text, write_tensors};

const BROKEN: &str = "model.layers.1.mlp.up_proj.weight";

/// A Llama with a number in one of its weights.
fn llama(folder: &Path, number: f32) -> PathBuf {
    let mut draft = Draft::of("llama");
    let weight = draft.tensors.get_mut(BROKEN).unwrap();
    assert_eq!(weight.dtype, Dtype::F32);
    weight.bytes[4..8].copy_from_slice(&number.to_le_bytes());
    draft.write(folder.join("llama"))
}

#[test]
fn a_weight_that_is_not_finite_is_named() {
    for (number, named) in [(f32::NAN, "NaN"), (f32::INFINITY, "infinite"), (f32::NEG_INFINITY, "minus infinite")] {
        let folder = scratch();
        let model = llama(folder.path(), number);
        let out = folder.path().join("out");
        let element = format!("its element [0, 1] is {named}");
        let bits: &[&[&str]] = match named {
            "NaN" => &[
                &["--int4"],
                &["--int8-weights", "--recipe=zero-points=true"],
                &["--int8"],
                &["--int4", "--target", "onnx"],
            ],
            _ => &[&["--int4", "--recipe", "weight-method=hqq"], &["--int8"]],
        };
        for more in bits {
            planish_compile(&model, &out, more)
                .exits(1, &[BROKEN, "model.safetensors", &element, "--recipe allow-non-finite=true"]);
            assert!(!out.exists(), "{more:?}");
        }
        // Floats are what they are.
        planish_compile(&model, &out, &[]).succeeds();
    }
}

#[test]
fn such_a_weight_may_stay_a_float() {
    let folder = scratch();
    let model = llama(folder.path(), f32::NAN);
    for (more, reason) in [("--int4", "its element [0, 1] is NaN"), ("--int8", "its element [0, 1] is NaN")] {
        let out = folder.path().join("out");
        let done = planish_compile(&model, &out, &[more, "--recipe=allow-non-finite=true", "--force"]);
        done.exits(0, &["layers.1.mlp.up_proj.weight` is not quantized", reason]);
        let manifest = serde_json::to_string(&Manifest::read(&out).unwrap()).unwrap();
        assert!(manifest.contains(reason), "{more}");
        let weights = fs::read(out.join("model.onnx")).unwrap();
        let nan =
            weights.windows(4).any(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()).to_bits() == 0x7fc0_0000);
        assert!(nan, "{more}");
    }
}

/// Weights of other operators than linear layers become codes too: tables of tokens, and those of recurrent layers.
#[test]
fn so_is_a_number_of_a_table_or_a_recurrent_layer() {
    let folder = scratch();
    let weight = |name: &str, dims: &[i64], is_broken: bool| {
        let count: i64 = dims.iter().product();
        let mut numbers: Vec<f32> = (0..count).map(|at| (at % 17) as f32 / 17.0 - 0.5).collect();
        if is_broken {
            numbers[3] = f32::NAN;
        }
        floats(name, dims, &numbers)
    };
    for (operator, gates) in [("LSTM", 4), ("GRU", 3), ("RNN", 1)] {
        for broken in ["t", "w", "r"] {
            let nodes = vec![
                node("e = Gather(t, input_ids)", vec![]),
                node(&format!("y = {operator}(e, w, r)"), vec![int("hidden_size", 32)]),
            ];
            let constants = vec![
                weight("t", &[40, 48], broken == "t"),
                weight("w", &[1, gates * 32, 48], broken == "w"),
                weight("r", &[1, gates * 32, 32], broken == "r"),
            ];
            let inputs = vec![typed("input_ids", DataType::Int64, "time, batch")];
            let path = folder.path().join("model.onnx");
            fs::write(&path, model(17, graph(inputs, constants, nodes, &["y"])).encode_to_vec()).unwrap();
            let out = folder.path().join(format!("{operator}-{broken}"));
            let element = if broken == "t" { "its element [0, 3] is NaN" } else { "its element [0, 0, 3] is NaN" };
            let named = format!("`{broken}`");
            planish_compile(&path, &out, &["--int8"])
                .exits(1, &["the weight", &named, element, "--recipe allow-non-finite=true"]);
            let allowed = ["--int8", "--recipe=allow-non-finite=true", "--debug=verify"];
            planish_compile(&path, &out, &allowed).exits(0, &[&format!("{named} is not quantized"), element]);
            let manifest = Manifest::read(&out).unwrap();
            let weights = &manifest.parts[0].quantization.as_ref().unwrap().weights;
            let floats: Vec<&str> = weights
                .iter()
                .filter(|weight| matches!(weight.form, WeightForm::Float { .. }))
                .map(|weight| weight.weight.as_str())
                .collect();
            assert_eq!(floats, [broken], "{operator}: {weights:?}");
        }
    }
}

/// A scale of a row that no sample selects has no part in the figures.
#[test]
fn what_compile_takes_is_evaluated() {
    let folder = scratch();
    let nodes = vec![
        node("t = DequantizeLinear(codes, scales)", vec![int("axis", 0)]),
        node("e = Gather(t, input_ids)", vec![]),
        node("y = MatMul(e, w)", vec![]),
    ];
    let mut scales = [0.1; 40];
    scales[39] = f32::NAN;
    let codes = TensorProto {
        name: "codes".to_owned(),
        dims: vec![40, 48],
        data_type: DataType::Int8.into(),
        raw_data: (0..40 * 48).map(|at| (at % 100) as u8).collect::<Vec<u8>>().into(),
        ..TensorProto::default()
    };
    let w: Vec<f32> = (0..48 * 32).map(|at| (at % 17) as f32 / 17.0 - 0.5).collect();
    let constants = vec![codes, floats("scales", &[40], &scales), floats("w", &[48, 32], &w)];
    let inputs = vec![typed("input_ids", DataType::Int64, "batch, tokens")];
    let path = folder.path().join("model.onnx");
    fs::write(&path, model(17, graph(inputs, constants, nodes, &["y"])).encode_to_vec()).unwrap();
    let out = folder.path().join("out");
    planish_compile(&path, &out, &[])
        .exits(1, &["the weight `scales`", "its element [39] is NaN", "--recipe allow-non-finite=true"]);
    planish_compile(&path, &out, &["--recipe=allow-non-finite=true"]).exits(0, &[]);
    let data = folder.path().join("ids.safetensors");
    let evaluated = |last: i64| {
        let ids: Vec<u8> = [1, 2, 3, 4, 5, 6, 7, last].into_iter().flat_map(i64::to_le_bytes).collect();
        let ids = Stored { dtype: Dtype::I64, shape: vec![2, 4], bytes: ids };
        write_tensors(&data, &BTreeMap::from([("input_ids".to_owned(), ids)]));
        planish(["evaluate", text(&out), "--data", text(&data), "--require", "cos=0.999"])
    };
    evaluated(8).exits(0, &[]);
    evaluated(39).exits(1, &["the output `y` of the reference is not finite"]);
}

/// GPTQ chooses codes before anything is written.
#[test]
fn data_does_not_hide_it() {
    let folder = scratch();
    let model = with_tokenizer("llama", 131, folder.path());
    let path = model.join("model.safetensors");
    let mut all = tensors(&path);
    // The last layer: what runs on the data before it is finite, and this weight is NaN for no token but one.
    all.get_mut("lm_head.weight").unwrap().bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    write_tensors(&path, &all);
    let data = folder.path().join("texts.txt");
    fs::write(&data, "w5 w7 w9\nw3 w11\nw100 w2 w4\nw8 w9\n").unwrap();
    let out = folder.path().join("out");
    let more = ["--int4", "--recipe", "weight-method=gptq", "--calibrate", text(&data)];
    planish_compile(&model, &out, &more).exits(1, &["lm_head.weight", "its element [0, 0] is NaN"]);

    // What runs on the data is not finite, because of a weight.
    let mut all = tensors(&path);
    all.get_mut("lm_head.weight").unwrap().bytes[..4].fill(0);
    all.get_mut(BROKEN).unwrap().bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    write_tensors(&path, &all);
    let named = ["texts.txt, samples 1 to 4", "the weight `", BROKEN, "its element [0, 0] is NaN"];
    planish_compile(&model, &out, &more).exits(1, &named);
    planish_calibrate(&model, &data, &["--measure", "inputs"]).0.exits(1, &named);
    planish_calibrate(&model, &data, &["--measure", "ranges"]).0.exits(1, &named);
}

/// The scales of codes that a checkpoint comes with.
#[test]
fn a_scale_that_is_not_finite_is_named() {
    let q_proj = "model.layers.0.self_attn.q_proj";
    for (fixture, tensor, width) in [
        ("gptq", "scales", 2),
        ("awq", "scales", 2),
        ("compressed-tensors", "weight_scale", 4),
        ("bitsandbytes-nf4", "weight.absmax", 4),
        ("bitsandbytes-fp4-nested", "weight.nested_absmax", 4),
    ] {
        let folder = scratch();
        let model = folder.path().join("model");
        fs::create_dir(&model).unwrap();
        let source = repository().join("fixtures/quantized").join(fixture);
        fs::copy(source.join("config.json"), model.join("config.json")).unwrap();
        let mut all = tensors(&source.join("model.safetensors"));
        let scales = all.get_mut(&format!("{q_proj}.{tensor}")).unwrap();
        let width = if matches!(scales.dtype, Dtype::F16) { 2 } else { width.max(4) };
        let nan = if width == 2 { vec![0x00, 0x7e] } else { f32::NAN.to_le_bytes().to_vec() };
        scales.bytes[..width].copy_from_slice(&nan);
        write_tensors(&model.join("model.safetensors"), &all);
        let out = folder.path().join("out");
        for target in ["ort", "onnx"] {
            let named = format!("{q_proj}.weight");
            let parts = [named.as_str(), "its scale", "is NaN", "--recipe allow-non-finite=true"];
            planish_compile(&model, &out, &["--target", target]).exits(1, &parts);
            assert!(!out.exists(), "{fixture}");
        }
        planish_compile(&model, &out, &["--recipe=allow-non-finite=true"]).exits(0, &[]);
    }
}

#[test]
fn so_is_the_scale_of_a_block_of_gguf() {
    let source = fs::read(repository().join("fixtures/quantized/gguf-llama/model.gguf")).unwrap();
    let folder = scratch();
    let (model, out) = (folder.path().join("model.gguf"), folder.path().join("out"));
    // Tensors are in the second half; most of this file are quantized, and every block of them has its scale in some of its bytes.
    let mut bytes = source.clone();
    let half = bytes.len() / 2;
    bytes[half..].fill(0xff);
    fs::write(&model, bytes).unwrap();
    planish_compile(&model, &out, &[]).exits(1, &["its scale", "is NaN", "--recipe allow-non-finite=true"]);
    planish_compile(&model, &out, &["--recipe=allow-non-finite=true"]).exits(0, &[]);
}

/// Large numbers are numbers.
#[test]
fn large_weights_have_finite_codes() {
    let folder = scratch();
    let model = llama(folder.path(), 3e38);
    for more in [
        &["--int4"][..],
        &["--int4", "--recipe", "weight-method=hqq", "--recipe=zero-points=true"],
        &["--int8-weights"],
    ] {
        let out = folder.path().join("out");
        planish_compile(&model, &out, &[more, &["--force", "--target", "onnx"]].concat()).exits(0, &[]);
        planish(["inspect", text(&out)]).exits(0, &[]);
    }
}
