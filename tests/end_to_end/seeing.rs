//! Pictures in prompts, by the command.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::chat::typed;
use crate::generate::{artifact, generate, json};
use crate::support::{golden, planish_compile, repository, text, write_tokenizer};

/// The id that stands for a place of an image in the goldens of models that see.
const PLACE: i64 = 137;

/// An artifact of a golden of models that see, with a tokenizer and a processor of pictures.
fn seeing(name: &str, processor: Value) -> (TempDir, PathBuf) {
    let (folder, out) = artifact(&repository().join("fixtures/seeing").join(name), &[]);
    write_tokenizer(&out, 139);
    // A place is a token of its own, whatever is beside it.
    let path = out.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    tokenizer["added_tokens"].as_array_mut().unwrap().push(json!({
        "id": PLACE, "content": format!("w{PLACE}"), "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": true,
    }));
    std::fs::write(path, tokenizer.to_string()).unwrap();
    std::fs::write(out.join("preprocessor_config.json"), processor.to_string()).unwrap();
    (folder, out)
}

fn picture(name: &str) -> String {
    repository().join("fixtures/pictures/files").join(name).to_string_lossy().into_owned()
}

fn clip() -> Value {
    json!({
        "image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16}
    })
}

/// Ids of a text with so many places of images in it.
fn ids(places: usize) -> String {
    let all = [vec![1, 5], vec![PLACE; places], vec![6, 7]].concat();
    all.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}

fn new_ids(out: &Path, more: &[&str]) -> Value {
    let all = [more, &["--greedy", "--ignore-eos", "--max-new-tokens", "6"]].concat();
    json(out, &all)["ids"].clone()
}

/// Ids that transformers 5.24 generates in float64, of pictures as its processors make them with Pillow.
#[test]
fn a_place_of_an_image_becomes_as_many_tokens_as_it_has_places() {
    let (_folder, out) = seeing("llava", clip());
    let rgb = picture("rgb.png");
    let by_text = new_ids(&out, &["--prompt", "w5 w137 w6 w7", "--image", &rgb]);
    assert_eq!(by_text, json!([98, 64, 99, 30, 100, 64]));
    assert_eq!(by_text, new_ids(&out, &["--ids", &ids(16), "--image", &rgb]));
    let tall = picture("tall.png");
    let other = new_ids(&out, &["--ids", &ids(16), "--image", &tall]);
    assert_eq!(other, json!([72, 123, 72, 123, 72, 123]));
    // Two places in one prompt are those of two pictures, in their order.
    let two =
        |first: &str, second: &str| new_ids(&out, &["--prompt", "w137 w5 w137", "--image", first, "--image", second]);
    assert_eq!(two(&rgb, &tall), json!([102, 126, 126, 126, 126, 126]));
    assert_eq!(two(&tall, &rgb), json!([72, 63, 72, 63, 72, 63]));
    // A picture of one pixel is one, and a text needs none.
    let pixel = new_ids(&out, &["--prompt", "w137 w5", "--image", &picture("pixel.png")]);
    assert_eq!(pixel, json!(vec![30; 6]));
    assert_eq!(new_ids(&out, &["--prompt", "w5 w6"]), json!([103, 103, 94, 69, 69, 69]));
}

#[test]
fn other_places_than_images_are_one_error() {
    let (_folder, out) = seeing("llava", clip());
    let rgb = picture("rgb.png");
    let refused = |more: &[&str], parts: &[&str]| drop(generate(&out, more).exits(1, parts));
    refused(&["--prompt", "w5", "--image", &rgb], &["0 places of images (`w137`)", "1 images are given", "--chat"]);
    refused(&["--prompt", "w137 w137", "--image", &rgb], &["2 places", "1 images are given"]);
    refused(&["--prompt", "w137"], &["1 places", "0 images are given"]);
    refused(&["--ids", &ids(15), "--image", &rgb], &["15 tokens", "id 137", "16 places"]);
    refused(&["--prompt", "w137", "--image", "missing.png"], &["missing.png"]);
    let (_text, blind) = artifact(&golden("llama"), &[]);
    generate(&blind, &["--ids", "5", "--image", &rgb]).exits(1, &["reads texts and no images"]);
}

/// Ids of transformers, likewise.
#[test]
fn tiles_are_those_of_the_processor() {
    let (_folder, out) = seeing("smolvlm", tiles(16));
    // 2 x 2 tiles and the whole, of 4 places each.
    let rgb = picture("rgb.png");
    let four = new_ids(&out, &["--ids", &ids(20), "--image", &rgb]);
    assert_eq!(four, json!([38, 103, 57, 38, 103, 57]));
    let three = new_ids(&out, &["--ids", &ids(12), "--image", &picture("tall.png")]);
    assert_eq!(three, json!([119, 15, 54, 41, 112, 71]));
    generate(&out, &["--ids", &ids(4), "--image", &rgb]).exits(1, &["4 tokens", "20 places"]);
}

/// Ids of transformers, likewise: of two prompts with pictures, and of one without between them.
#[test]
fn lines_with_and_without_pictures_follow_each_other() {
    let (folder, out) = seeing("llava", clip());
    let file = folder.path().join("in.jsonl");
    let lines = [
        json!({"prompt": "w5 w137 w6", "images": [picture("rgb.png")]}),
        json!({"prompt": "w5 w6"}),
        json!({"prompt": "w5 w137 w6", "images": [picture("tall.png")]}),
    ];
    std::fs::write(&file, lines.each_ref().map(Value::to_string).join("\n")).unwrap();
    for batch in ["batch=1", "batch=2", "batch=3"] {
        let given = ["--prompts", text(&file), "--set", batch, "--greedy", "--ignore-eos", "--max-new-tokens", "6"];
        let done = generate(&out, &given).exits(0, &[]);
        let found: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let found: Vec<&Value> = found.iter().map(|line| &line["ids"]).collect();
        let expected = [[53, 126, 83, 50, 64, 64], [103, 103, 94, 69, 69, 69], [72, 100, 72, 123, 72, 123]];
        assert_eq!(found, expected.map(|ids| json!(ids)).each_ref(), "{batch}");
    }
}

/// Ids of transformers, likewise: of images of any shape, one and two, and of none; and all of these in a batch.
#[test]
fn positions_of_images_of_any_shape_are_those_of_rows_and_columns() {
    let processor = json!({
        "image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4, "merge_size": 2, "temporal_patch_size": 2,
        "size": {"shortest_edge": 256, "longest_edge": 1024},
    });
    let (rgb, tall) = (picture("rgb.png"), picture("tall.png"));
    for (name, [one, other, two, none]) in [
        (
            "qwen2-vl",
            [[30, 77, 75, 1, 95, 32], [112, 95, 95, 95, 19, 21], [95, 95, 89, 75, 101, 1], [32, 75, 57, 89, 4, 31]],
        ),
        (
            "qwen2-5-vl",
            [
                [45, 45, 78, 126, 27, 87],
                [44, 136, 45, 86, 136, 64],
                [87, 68, 45, 24, 126, 45],
                [136, 0, 124, 134, 84, 70],
            ],
        ),
        ("qwen3-vl", [[97, 71, 97, 40, 97, 128], [97, 39, 39, 106, 118, 40], [106, 118, 40, 46, 118, 40], [106; 6]]),
    ] {
        let (folder, out) = seeing(name, processor.clone());
        assert_eq!(new_ids(&out, &["--ids", &ids(4), "--image", &rgb]), json!(one), "{name}");
        let given = ["--prompt", "w137 w5 w137 w6", "--image", &rgb, "--image", &tall];
        assert_eq!(new_ids(&out, &given), json!(two), "{name}");
        generate(&out, &["--ids", &ids(5), "--image", &rgb]).exits(1, &["5 tokens", "4 places"]);
        let lines = [
            json!({"prompt": "w5 w137 w6 w7", "images": [rgb]}),
            json!({"prompt": "w137 w5 w137 w6", "images": [rgb, tall]}),
            json!({"prompt": "w5 w6"}),
            json!({"prompt": "w5 w137 w6 w7", "images": [tall]}),
        ];
        let file = folder.path().join("in.jsonl");
        std::fs::write(&file, lines.each_ref().map(Value::to_string).join("\n")).unwrap();
        for batch in ["batch=1", "batch=4"] {
            let given = ["--prompts", text(&file), "--set", batch, "--greedy", "--ignore-eos", "--max-new-tokens", "6"];
            let done = generate(&out, &given).exits(0, &[]);
            let found: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let found: Vec<&Value> = found.iter().map(|line| &line["ids"]).collect();
            assert_eq!(found, [one, two, none, other].map(|ids| json!(ids)).each_ref(), "{name}, {batch}");
        }
    }
}

#[test]
fn squares_of_a_processor_are_those_of_the_model() {
    let processor = json!({
        "image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4, "merge_size": 1, "temporal_patch_size": 2,
        "size": {"shortest_edge": 256, "longest_edge": 1024},
    });
    let (_folder, out) = seeing("qwen2-vl", processor);
    let given = ["--prompt", "w137", "--image", &picture("rgb.png")];
    generate(&out, &given).exits(1, &["`merge_size`", "2 x 2 patches"]);
}

#[test]
fn every_message_of_a_conversation_is_checked_for_places() {
    let (_folder, out) = seeing("llava", clip());
    let template = "{% for m in messages %}{% for part in m.content %}{{ part.text }} {% endfor %}{% endfor %}";
    std::fs::write(out.join("chat_template.jinja"), template).unwrap();
    let given = ["--chat", "--greedy", "--ignore-eos", "--max-new-tokens", "2"];
    let places = ["1 tokens that stand for places of images", "id 137", "0 places"];
    for (messages, answers) in [(&b"w137 w5\n"[..], 0), (&b"w5 w6\nw137 w5\n"[..], 1)] {
        assert_eq!(typed(&out, &given, messages).exits(1, &places).stdout.lines().count(), answers);
    }
}

/// A copy of a golden of models that see, with a processor of pictures, and with more keys in its configuration.
fn model(folder: &Path, name: &str, processor: &Value, change: impl FnOnce(&mut Value)) -> PathBuf {
    let (from, to) = (repository().join("fixtures/seeing").join(name), folder.join("model"));
    std::fs::create_dir(&to).unwrap();
    let mut config: Value = serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(to.join("config.json"), config.to_string()).unwrap();
    std::fs::copy(from.join("model.safetensors"), to.join("model.safetensors")).unwrap();
    std::fs::write(to.join("preprocessor_config.json"), processor.to_string()).unwrap();
    to
}

/// Idefics3's processor with tiles of a side, of which pictures have two on their longest edge.
fn tiles(side: usize) -> Value {
    json!({
        "image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 2 * side}, "max_image_size": {"longest_edge": side}
    })
}

/// Ids of transformers, likewise.
#[test]
fn the_side_of_tiles_is_what_the_model_takes() {
    let rgb = picture("rgb.png");
    // 2 x 2 tiles and the whole, of 9 places each.
    let given = ["--ids", &ids(45), "--image", &rgb];
    for (side, recipe) in [(24, &[][..]), (16, &["--recipe", "image-size=24x24"][..])] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let model = model(folder.path(), "smolvlm", &tiles(side), |_| ());
        let says: &[&str] = if side == 24 { &["the graph takes 24 x 24"] } else { &[] };
        planish_compile(&model, &out, recipe).exits(0, says);
        assert_eq!(new_ids(&out, &given), json!([3, 118, 49, 41, 16, 37]), "{side}");
    }
    let (_folder, out) = seeing("smolvlm", tiles(24));
    generate(&out, &["--ids", &ids(20), "--image", &rgb])
        .exits(1, &["a tile of a picture becomes", "`max_image_size`"]);
}

#[test]
fn keys_of_published_configurations_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), "smolvlm", &tiles(16), |config| {
        config["transformers.js_config"] = json!({"dtype": {"decoder_model_merged": "q4"}});
        let text = &mut config["text_config"];
        text["_flash_attn_2_enabled"] = true.into();
        text["is_llama_config"] = true.into();
        text["neftune_noise_alpha"] = json!(0.5);
        text["perceiver_config"] = json!({"model_type": "smolvlm", "resampler_depth": 6});
        text["pixel_shuffle_factor"] = 4.into();
    });
    planish_compile(&model, &folder.path().join("out"), &["--debug", "strict"]).succeeds();
}

#[test]
fn settings_that_generate_refuses_are_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let processor = json!({
        "image_processor_type": "Gemma3ImageProcessor", "size": {"height": 16, "width": 16}, "do_pan_and_scan": true
    });
    let model = model(folder.path(), "gemma3-vision", &processor, |_| ());
    let out = folder.path().join("out");
    let parts = ["preprocessor_config.json: `do_pan_and_scan` is true, which is not supported"];
    planish_compile(&model, &out, &["--debug", "strict"]).exits(1, &parts);
    planish_compile(&model, &out, &[]).exits(0, &parts);
}
