//! Adapters of low rank that are added to weights.

use std::fs;
use std::path::Path;

use planish_eval::{Tensor, evaluate};
use planish_ir::{DType, Origin, ValueId, Weight};
use planish_models::{Checkpoint, Loaded, ModelError, Task, load};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{STRICT, assert_says, golden};

/// Numbers of a matrix that is no other one's.
fn numbers(rows: usize, columns: usize, seed: usize) -> Vec<f64> {
    (0..rows * columns).map(|i| f64::from(((i * 7 + seed * 13) % 11) as u32) / 8.0 - 0.5).collect()
}

/// An adapter with matrices of some modules: name, rows of `lora_B`, columns of `lora_A`, rank.
fn adapter(config: Value, modules: &[(&str, usize, usize, usize)], whole: &[(&str, &[usize])]) -> TempDir {
    let folder = planish_testing::scratch();
    let mut all = json!({"peft_type": "LORA", "r": 2, "lora_alpha": 3, "base_model_name_or_path": "their/base"});
    let keys = config.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(keys);
    fs::write(folder.path().join("adapter_config.json"), all.to_string()).unwrap();
    let bytes = |numbers: &[f64]| numbers.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect::<Vec<u8>>();
    let mut tensors = Vec::new();
    for (module, rows, columns, rank) in modules {
        let name = |half: &str| format!("base_model.model.{module}.{half}.weight");
        tensors.push((name("lora_A"), vec![*rank, *columns], bytes(&numbers(*rank, *columns, 1))));
        tensors.push((name("lora_B"), vec![*rows, *rank], bytes(&numbers(*rows, *rank, 2))));
    }
    for (name, shape) in whole {
        let elements = shape.iter().product();
        tensors.push((format!("base_model.model.{name}"), shape.to_vec(), bytes(&numbers(1, elements, 3))));
    }
    let views = tensors
        .iter()
        .map(|(name, shape, data)| (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), data).unwrap()));
    fs::write(folder.path().join("adapter_model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    folder
}

fn with(name: &str, adapters: &[(&Path, f64)]) -> Result<Loaded, ModelError> {
    let mut checkpoint = Checkpoint::open(&golden(name))?;
    adapters.iter().try_for_each(|(folder, weight)| checkpoint.add_adapter(folder, *weight))?;
    load(&checkpoint, STRICT)
}

/// The numbers of a tensor in a graph, and its shape.
fn tensor(loaded: &Loaded, wanted: &str) -> (Vec<f64>, Vec<usize>) {
    let is_it = |origin: &Origin| matches!(origin, Origin::Tensor { name, .. } if &**name == wanted);
    let all = loaded.parts.iter().flat_map(|part| part.graph.weights());
    let found: Vec<Weight> = all.filter(|(_, value, _)| is_it(&value.origin)).map(|(_, _, w)| w.clone()).collect();
    (found[0].read_numbers().unwrap(), found[0].shape().to_vec())
}

/// `weight * alpha / rank * up * down` of an adapter's matrices, [rows, columns].
fn product(rows: usize, columns: usize, rank: usize, factor: f64) -> Vec<f64> {
    let (down, up) = (numbers(rank, columns, 1), numbers(rows, rank, 2));
    let one = |i: usize| (0..rank).map(|k| up[i / columns * rank + k] * down[k * columns + i % columns]).sum::<f64>();
    (0..rows * columns).map(|i| factor * one(i)).collect()
}

fn close(found: &[f64], base: &[f64], change: impl Fn(usize) -> f64) {
    assert_eq!(found.len(), base.len());
    for (at, (a, b)) in found.iter().zip(base).enumerate() {
        assert!((a - b - change(at)).abs() < 1e-5, "{at}: {a}, {b}, {}", change(at));
    }
}

#[test]
fn products_are_added_to_weights() {
    const NAME: &str = "model.layers.0.mlp.up_proj.weight";
    let base = load(&Checkpoint::open(&golden("llama")).unwrap(), STRICT).unwrap();
    let (before, shape) = tensor(&base, NAME);
    let [rows, columns] = shape[..] else { panic!("{shape:?}") };
    let module = "model.layers.0.mlp.up_proj";
    let plain = adapter(json!({}), &[(module, rows, columns, 2)], &[]);
    let root = adapter(json!({"r": 3, "use_rslora": true}), &[(module, rows, columns, 3)], &[]);
    let pattern = json!({"rank_pattern": {"up_proj": 1}, "alpha_pattern": {"mlp.up_proj": 5}});
    let pattern = adapter(pattern, &[(module, rows, columns, 1)], &[]);
    for (folder, rank, factor) in [(&plain, 2, 1.5), (&root, 3, 3f64.sqrt()), (&pattern, 1, 5.0)] {
        let (after, _) = tensor(&with("llama", &[(folder.path(), 1.0)]).unwrap(), NAME);
        let change = product(rows, columns, rank, factor);
        close(&after, &before, |at| change[at]);
    }
    // Several with weights add up.
    let (after, _) = tensor(&with("llama", &[(plain.path(), 0.5), (root.path(), -2.0)]).unwrap(), NAME);
    let (first, second) = (product(rows, columns, 2, 0.75), product(rows, columns, 3, -2.0 * 3f64.sqrt()));
    close(&after, &before, |at| first[at] + second[at]);
}

/// What peft wrote, next to what it computes.
#[test]
fn adapters_of_peft_give_its_logits() {
    ["llama", "llama-dora"].into_iter().for_each(gives_the_logits_of_peft);
}

fn gives_the_logits_of_peft(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/adapters").join(name);
    let graph = &with("llama", &[(&folder, 1.0)]).unwrap().parts.remove(0).graph;
    let io = fs::read(folder.join("io.safetensors")).unwrap();
    let io = SafeTensors::deserialize(&io).unwrap();
    let given = |name: &str| {
        let view = io.tensor(name).ok()?;
        let dtype = if view.dtype() == Dtype::I64 { DType::I64 } else { DType::F32 };
        Tensor::from_bytes(dtype, view.shape().to_vec(), view.data())
    };
    let input = |value: &ValueId| {
        let name = graph.value(*value).name.as_str();
        let dims = graph.ty(*value).shape.iter();
        // A cache without tokens.
        let empty = || {
            let shape =
                dims.enumerate().map(|(axis, dim)| if axis == 2 { 0 } else { dim.as_constant().unwrap_or(2) as usize });
            Tensor::new(shape.collect(), Vec::<f32>::new()).unwrap()
        };
        (name, given(&format!("in.{name}")).unwrap_or_else(empty))
    };
    let inputs: Vec<(&str, Tensor)> = graph.inputs().iter().map(input).collect();
    let outputs = evaluate(graph, &inputs).unwrap();
    let (_, logits) = outputs.iter().find(|(name, _)| *name == "logits").unwrap();
    let wanted = given("out.logits").unwrap();
    assert_eq!(logits.shape(), wanted.shape());
    close(&logits.to_f64(), &wanted.to_f64(), |_| 0.0);
}

/// The layers of GPT-2 are stored [in, out]; names may lack the base model's.
#[test]
fn layers_that_are_stored_the_other_way_are_found() {
    const NAME: &str = "transformer.h.0.mlp.c_fc.weight";
    let base = load(&Checkpoint::open(&golden("gpt2")).unwrap(), STRICT).unwrap();
    let (before, shape) = tensor(&base, NAME);
    let [columns, rows] = shape[..] else { panic!("{shape:?}") };
    for module in ["transformer.h.0.mlp.c_fc", "h.0.mlp.c_fc"] {
        let folder = adapter(json!({"fan_in_fan_out": true}), &[(module, rows, columns, 2)], &[]);
        let (after, _) = tensor(&with("gpt2", &[(folder.path(), 1.0)]).unwrap(), NAME);
        let change = product(rows, columns, 2, 1.5);
        close(&after, &before, |at| change[at % rows * columns + at / rows]);
    }
}

/// An adapter with magnitudes, of so many outputs, of the module of a single layer.
fn with_magnitudes(module: &str, [rows, columns]: [usize; 2], magnitudes: usize, config: &Value) -> TempDir {
    let name = format!("{module}.lora_magnitude_vector.weight");
    adapter(config.clone(), &[(module, rows, columns, 2)], &[(&name, &[magnitudes])])
}

/// DoRA of a layer that is stored [in, out]: each column of the sum has the norm that the adapter says.
#[test]
fn magnitudes_are_the_norms_of_the_sum() {
    const NAME: &str = "transformer.h.0.mlp.c_fc.weight";
    let (before, shape) = tensor(&load(&Checkpoint::open(&golden("gpt2")).unwrap(), STRICT).unwrap(), NAME);
    let [columns, rows] = shape[..] else { panic!("{shape:?}") };
    let config = json!({"use_dora": true, "fan_in_fan_out": true});
    let folder = with_magnitudes("transformer.h.0.mlp.c_fc", [rows, columns], rows, &config);
    let (after, _) = tensor(&with("gpt2", &[(folder.path(), 1.0)]).unwrap(), NAME);
    let (change, magnitudes) = (product(rows, columns, 2, 1.5), numbers(1, rows, 3));
    let sum: Vec<f64> = (0..before.len()).map(|at| before[at] + change[at % rows * columns + at / rows]).collect();
    let norm = |row: usize| sum.iter().skip(row).step_by(rows).map(|x| x * x).sum::<f64>().sqrt();
    let norms: Vec<f64> = (0..rows).map(norm).collect();
    let wanted: Vec<f64> = sum.iter().enumerate().map(|(at, x)| magnitudes[at % rows] * x / norms[at % rows]).collect();
    close(&after, &wanted, |_| 0.0);
}

#[test]
fn magnitudes_that_do_not_fit_are_refused() {
    const MODULE: &str = "model.layers.0.self_attn.q_proj";
    let config = json!({"use_dora": true});
    let error = |adapters: &[(&Path, f64)]| with("llama", adapters).err().expect("it is refused").to_string();
    let dora = with_magnitudes(MODULE, [64, 64], 64, &config);
    assert!(with("llama", &[(dora.path(), 1.0)]).is_ok());
    assert_says(&error(&[(dora.path(), 0.5)]), &["magnitudes (DoRA)", "take no factor but 1, and 0.5 is asked for"]);
    let plain = adapter(json!({}), &[(MODULE, 64, 64, 2)], &[]);
    for pair in [[dora.path(), plain.path()], [plain.path(), dora.path()]] {
        assert_says(&error(&pair.map(|path| (path, 1.0))), &[MODULE, "magnitudes (DoRA) of a layer allow one adapter"]);
    }
    let short = with_magnitudes(MODULE, [64, 64], 63, &config);
    assert_says(&error(&[(short.path(), 1.0)]), &["with magnitudes [63]", MODULE]);
    let unsaid = with_magnitudes(MODULE, [64, 64], 64, &json!({}));
    assert_says(
        &error(&[(unsaid.path(), 1.0)]),
        &["lora_magnitude_vector", "`use_dora` of adapter_config.json is not true"],
    );
    let name = format!("{MODULE}.lora_magnitude_vector");
    let alone = adapter(config, &[], &[(&name, &[64])]);
    assert_says(&error(&[(alone.path(), 1.0)]), &[&name, "no narrow matrices beside its magnitudes"]);
}

#[test]
fn whole_tensors_come_in_place_of_the_models() {
    let whole: [(&str, &[usize]); 3] =
        [("classifier.weight", &[2, 48]), ("classifier.bias", &[2]), ("bert.pooler.dense.base_layer.bias", &[48])];
    let folder = adapter(json!({"task_type": "SEQ_CLS"}), &[], &whole);
    // The golden has no classifier, and no name of the base model in front of others.
    let mut checkpoint = Checkpoint::open(&golden("bert")).unwrap();
    checkpoint.add_adapter(folder.path(), 1.0).unwrap();
    let loaded = load(&checkpoint, STRICT).unwrap();
    assert_eq!(loaded.task, Some(Task::TextClassification));
    assert_eq!(tensor(&loaded, "classifier.bias").0, numbers(1, 2, 3));
    assert_eq!(tensor(&loaded, "classifier.weight").0, numbers(1, 96, 3));
    assert_eq!(tensor(&loaded, "pooler.dense.bias").0, numbers(1, 48, 3));
    let weighted = checkpoint.add_adapter(folder.path(), 0.5).unwrap_err().to_string();
    assert_says(&weighted, &["takes no factor but 1, and 0.5 is asked for", "their/base"]);
    let twice = checkpoint.add_adapter(folder.path(), 1.0).unwrap_err().to_string();
    assert_says(&twice, &["another adapter has the tensor"]);
}

#[test]
fn adapters_of_other_models_and_kinds_are_refused() {
    let module = "model.layers.0.self_attn.q_proj";
    let error = |folder: &TempDir| with("llama", &[(folder.path(), 1.0)]).err().expect("it is refused").to_string();
    let other = adapter(json!({}), &[("model.layers.9.self_attn.q_proj", 64, 64, 2)], &[]);
    assert_says(
        &error(&other),
        &[
            "the adapter changes model.layers.9.self_attn.q_proj, but the graph has no separate weight",
            "trained for their/base",
        ],
    );
    let wide = adapter(json!({}), &[(module, 5, 7, 2)], &[]);
    assert_says(&error(&wide), &["matrices [5, 2] and [2, 7]", module, "their/base"]);
    let rank = adapter(json!({"r": 5}), &[(module, 64, 64, 2)], &[]);
    assert_says(&error(&rank), &["adapter_config.json", "have the rank 2, and this file says 5"]);
    let whole = adapter(json!({}), &[], &[("score.bias", &[3])]);
    assert_says(&error(&whole), &["`score.bias`", "the adapter replaces this tensor, but the graph does not have it"]);
    for (config, parts) in [
        (json!({"use_dora": true}), ["`use_dora` is true", "has no lora_magnitude_vector"]),
        (
            json!({"init_lora_weights": "pissa_niter_4"}),
            ["`init_lora_weights` is \"pissa_niter_4\"", "path_initial_model"],
        ),
        (json!({"peft_type": "IA3"}), ["`peft_type` is IA3", "LORA is supported"]),
        (json!({"rank_pattern": {"q.*": 2}}), ["the pattern \"q.*\"", "names of modules"]),
    ] {
        assert_says(&error(&adapter(config, &[(module, 64, 64, 2)], &[])), &parts);
    }
    let half = adapter(json!({}), &[(module, 64, 64, 2)], &[]);
    let path = half.path().join("adapter_model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(6).position(|window| window == b"lora_B").unwrap();
    bytes[at..at + 6].copy_from_slice(b"lora_C");
    fs::write(&path, bytes).unwrap();
    assert_says(&error(&half), &["lora_A.weight", "its other half, `base_model.model.", "lora_B.weight`, is missing"]);
    fs::remove_file(&path).unwrap();
    assert_says(&error(&half), &["adapter_model.safetensors", "is missing", "adapter_model.bin"]);
    fs::remove_file(half.path().join("adapter_config.json")).unwrap();
    assert_says(&error(&half), &["there is no adapter_config.json"]);
    // What is there by itself is named too.
    let bare = adapter(json!({}), &[(module, 64, 64, 2)], &[]);
    assert_says(&Checkpoint::open(bare.path()).unwrap_err().to_string(), &["adapter of the peft library", "--adapter"]);
}
