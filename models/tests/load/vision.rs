//! ViT: its interface, and configurations that do not fit.

use planish_models::{ImageSize, LoadOptions, Task};
use serde_json::{Value, json};

use crate::support::{Draft, LENIENT, STRICT, Stored, assert_says, golden, load_path, meaning, task};

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
    assert_eq!(interface(&draft, features.clone()), [pixels, hidden]);
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

fn sized(size: &str) -> LoadOptions {
    LoadOptions { image_size: Some(size.parse().unwrap()), ..LENIENT }
}

#[test]
fn positions_are_resampled_for_other_sizes() {
    for (name, tokens) in
        [("vit", 25), ("deit", 26), ("dinov2", 25), ("dinov2-registers", 27), ("dinov3", 27), ("beit", 25)]
    {
        let options = LoadOptions { task: Some(Task::FeatureExtraction), ..sized("24x16") };
        let found = interface(&Draft::of(name), options);
        assert_eq!(found[0], "pixel_values: f32[batch_size, 3, 24, 16]", "{name}");
        assert!(
            found[1].starts_with(&format!("last_hidden_state: f32[batch_size, {tokens}, ")),
            "{name}: {}",
            found[1]
        );
    }
    let same = Draft::of("vit").load(sized("16")).unwrap();
    assert_eq!(meaning(&same.parts[0].graph), meaning(&load_path(&golden("vit"), STRICT).unwrap().parts[0].graph));
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    assert_says(&Draft::of("vit").error(sized("18x16")), &["images of 18 x 16", "patches of 4 x 4", "take 16 x 16"]);
    assert_says(&Draft::of("vit").error(sized("2")), &["images of 2 x 2", "take 4 x 4"]);
    let wide = Draft::of("vit").with("image_size", json!([8, 32]));
    assert_says(&wide.error(sized("16")), &["those of 2 x 8 patches", "of a square only"]);
    for name in ["bert", "resnet"] {
        assert_says(&Draft::of(name).error(sized("16")), &["is to be 16 x 16", "leave `image_size` of the recipe out"]);
    }
    for text in ["0", "16x", "x16", "16x16x16", "16384x16385", "-1", "16 x 16"] {
        assert!(text.parse::<ImageSize>().is_err(), "{text}");
    }
    let square: ImageSize = "16".parse().unwrap();
    assert_eq!(square.to_string(), "16x16");
}

#[test]
fn graphs_follow_pictures_where_transformers_takes_any_size() {
    let pictures = |size: &str| LoadOptions { pictures: Some(size.parse().unwrap()), ..LENIENT };
    for (name, size, taken, said) in [
        ("dinov2", "24x16", "24, 16", "the graph takes 24 x 16, as transformers does"),
        ("swin", "19", "19, 19", "the graph takes 19 x 19, as transformers does"),
        // Patches do not divide it.
        ("dinov2", "18", "16, 16", "the graph takes 16 x 16; to have it take others"),
        ("vit", "24x16", "16, 16", "the graph takes 16 x 16; to have it take others"),
    ] {
        let draft = Draft::of(name);
        assert_eq!(
            interface(&draft, pictures(size))[0],
            format!("pixel_values: f32[batch_size, 3, {taken}]"),
            "{name}"
        );
        let warnings = draft.load(pictures(size)).unwrap().warnings;
        assert!(warnings.iter().any(|warning| warning.contains(said)), "{name}: {warnings:?}");
        assert_eq!(draft.load(pictures("16")).unwrap().warnings, [""; 0], "{name}");
    }
}

#[test]
fn projections_may_have_no_biases() {
    let mut draft = Draft::of("vit").with("qkv_bias", json!(false));
    draft.tensors.retain(|name, _| !name.contains("attention.attention") || name.ends_with("weight"));
    let (_, weights) = meaning(&draft.load(STRICT).unwrap().parts[0].graph);
    assert!(weights.keys().all(|name| !name.contains("attention.attention") || name.ends_with("weight")));
}
