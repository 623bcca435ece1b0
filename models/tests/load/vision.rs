//! ViT: its interface, and configurations that do not fit.

use planish_models::{LoadOptions, Task};
use serde_json::{Value, json};

use crate::support::{Draft, Stored, assert_says, golden, load_path, meaning, task};

const LENIENT: LoadOptions =
    LoadOptions { task: None, strict: false, pooling: None, latent_cache: None, image_size: None, pictures: None };
const STRICT: LoadOptions =
    LoadOptions { task: None, strict: true, pooling: None, latent_cache: None, image_size: None, pictures: None };

fn interface(draft: &Draft, options: LoadOptions) -> Vec<String> {
    let model = draft.load(options).unwrap();
    assert_eq!((model.max_positions, model.vocab_size, model.parts[0].id_ranges.len()), (None, None, 0));
    let graph = &model.parts[0].graph;
    let inputs = graph.inputs().iter().map(|v| format!("{}: {}", graph.value(*v).name, graph.ty(*v)));
    inputs.chain(graph.outputs().iter().map(|o| format!("{}: {}", o.name, graph.ty(o.value)))).collect()
}

#[test]
fn inputs_and_outputs_are_those_of_optimum() {
    let draft = Draft::of("vit");
    let pixels = "pixel_values: f32[batch_size, 3, 16, 16]";
    assert_eq!(interface(&draft, STRICT), [pixels, "logits: f32[batch_size, 5]"]);
    let features = LoadOptions { strict: true, ..task(Task::FeatureExtraction) };
    let hidden = "last_hidden_state: f32[batch_size, 17, 48]";
    assert_eq!(interface(&draft, features), [pixels, hidden]);
    let draft = draft
        .tensor("vit.pooler.dense.weight", Stored::ramp(&[48, 48]))
        .tensor("vit.pooler.dense.bias", Stored::ramp(&[48]))
        .tensor("vit.embeddings.mask_token", Stored::ramp(&[1, 1, 48]));
    assert_eq!(interface(&draft, features), [pixels, hidden, "pooler_output: f32[batch_size, 48]"]);
    assert_eq!(interface(&draft, STRICT), [pixels, "logits: f32[batch_size, 5]"]);
}

#[test]
fn height_and_width_may_differ() {
    let draft = Draft::of("vit").with("image_size", json!([8, 32]));
    let original = load_path(&golden("vit"), STRICT).unwrap();
    assert_eq!(interface(&draft, STRICT)[0], "pixel_values: f32[batch_size, 3, 8, 32]");
    // As many patches, so the same weights fit.
    assert_eq!(meaning(&draft.load(STRICT).unwrap().parts[0].graph).1, meaning(&original.parts[0].graph).1);
    let same = Draft::of("vit").with("image_size", json!([16, 16])).with("patch_size", json!([4, 4]));
    assert_eq!(meaning(&same.load(STRICT).unwrap().parts[0].graph), meaning(&original.parts[0].graph));
}

#[test]
fn sizes_must_fit() {
    let refused = |key: &str, value: Value, parts: &[&str]| {
        assert_says(&Draft::of("vit").with(key, value).error(LENIENT), parts);
    };
    for value in [json!(0), json!("16"), json!([16]), json!([16, 16, 16]), json!(1 << 20), json!([16, 0])] {
        refused("image_size", value, &["`image_size` is", "or height and width"]);
    }
    refused("image_size", json!(18), &["images of 18 x 18", "patches of 4 x 4"]);
    refused("patch_size", json!(32), &["images of 16 x 16", "patches of 32 x 32"]);
    refused("image_size", json!(32), &["position_embeddings", "[1, 17, 48], expected [1, 65, 48]"]);
    refused("patch_size", json!(8), &["projection.weight", "[48, 3, 4, 4], expected [48, 3, 8, 8]"]);
    refused("num_attention_heads", json!(5), &["hidden_size = 48 is not divisible by num_attention_heads = 5"]);
    // A table of angles is not made before its sizes are known to be those of the checkpoint.
    let huge = Draft::of("dinov3").with("num_register_tokens", json!(1 << 24)).error(LENIENT);
    assert_says(&huge, &["register_tokens", "expected [1, 16777216"]);
    let fine = Draft::of("dinov3").with("image_size", json!(16384)).error(LENIENT);
    assert_says(&fine, &["more angles than", "set `image_size` and `patch_size`"]);
    assert_says(
        &Draft::of("vit").without("image_size").error(LENIENT),
        &["[1, 17, 48], expected [1, 3137, 48]", "tokens by `image_size` and `patch_size`"],
    );
}

#[test]
fn projections_may_have_no_biases() {
    let mut draft = Draft::of("vit").with("qkv_bias", json!(false));
    draft.tensors.retain(|name, _| !name.contains("attention.attention") || name.ends_with("weight"));
    let (_, weights) = meaning(&draft.load(STRICT).unwrap().parts[0].graph);
    assert!(weights.keys().all(|name| !name.contains("attention.attention") || name.ends_with("weight")));
}
