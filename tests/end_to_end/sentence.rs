//! Sentence models with weights of their own in several modules.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::Dtype;
use serde_json::json;

use crate::support::{Stored, golden, planish, planish_compile, scratch, text, write_tensors};

/// The features of a vector of the golden.
const WIDTH: usize = 48;

/// The golden `bert-sentence` with two projections of one size, whose files differ in their elements only.
fn with_projections(folder: &Path) -> PathBuf {
    let model = folder.join("model");
    fs::create_dir_all(model.join("1_Pooling")).unwrap();
    for name in ["config.json", "model.safetensors", "1_Pooling/config.json"] {
        fs::copy(golden("bert-sentence").join(name), model.join(name)).unwrap();
    }
    let class = |name: &str| format!("sentence_transformers.models.{name}");
    let mut modules =
        vec![json!({"path": "", "type": class("Transformer")}), json!({"path": "1_Pooling", "type": class("Pooling")})];
    for (at, factor) in [(2, 0.5f32), (3, -0.25)] {
        let name = format!("{at}_Dense");
        fs::create_dir(model.join(&name)).unwrap();
        let config = json!({
            "in_features": WIDTH, "out_features": WIDTH, "bias": false,
            "activation_function": "torch.nn.modules.linear.Identity"
        });
        fs::write(model.join(&name).join("config.json"), config.to_string()).unwrap();
        let weight = (0..WIDTH * WIDTH).flat_map(|i| ((i % 7) as f32 * factor).to_le_bytes()).collect();
        let stored = Stored { dtype: Dtype::F32, shape: vec![WIDTH, WIDTH], bytes: weight };
        let tensors = BTreeMap::from([("linear.weight".to_owned(), stored)]);
        write_tensors(&model.join(&name).join("model.safetensors"), &tensors);
        modules.push(json!({"path": name, "type": class("Dense")}));
    }
    fs::write(model.join("modules.json"), serde_json::Value::from(modules).to_string()).unwrap();
    model
}

#[test]
fn files_of_several_modules_are_told_apart() {
    let folder = scratch();
    let model = with_projections(folder.path());
    for how in ["copy", "link"] {
        let out = folder.path().join(how);
        planish_compile(&model, &out, &["--weights", how, "--verify"]).succeeds();
        // The manifest names the source, and finds it unchanged.
        planish(["verify", text(&out)]).succeeds();
    }
    // A module's configuration decides the graph.
    let pooling = model.join("1_Pooling/config.json");
    let changed =
        fs::read_to_string(&pooling).unwrap().replace("\"include_prompt\": true", "\"include_prompt\": false");
    fs::write(&pooling, changed).unwrap();
    planish(["verify", text(&folder.path().join("copy"))]).exits(1, &["1_Pooling/config.json", "has changed since"]);
}
