//! Pictures in prompts, by the command.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::generate::{artifact, generate, json};
use crate::support::{golden, repository, write_tokenizer};

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
    let all = [more, &["--greedy", "--ignore-eos", "--max-new-tokens", "6", "--json"]].concat();
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
    assert_eq!(pixel, json!([30; 6]));
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
    let processor = json!({
        "image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 32}, "max_image_size": {"longest_edge": 16}
    });
    let (_folder, out) = seeing("smolvlm", processor);
    // 2 x 2 tiles and the whole, of 4 places each.
    let rgb = picture("rgb.png");
    let four = new_ids(&out, &["--ids", &ids(20), "--image", &rgb]);
    assert_eq!(four, json!([38, 103, 57, 38, 103, 57]));
    let three = new_ids(&out, &["--ids", &ids(12), "--image", &picture("tall.png")]);
    assert_eq!(three, json!([119, 15, 54, 41, 112, 71]));
    generate(&out, &["--ids", &ids(4), "--image", &rgb]).exits(1, &["4 tokens", "20 places"]);
}
