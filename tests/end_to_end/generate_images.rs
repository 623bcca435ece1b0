//! `planish generate --image`: ids as the transformers library generates them of a picture, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::generate::{artifact, generate, ids, whole_json};
use crate::support::{Draft, golden, repository, text, write_tokenizer};

/// Settings of pictures for the golden.
const SETTINGS: &str = r#"{"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}}"#;

fn picture(name: &str) -> PathBuf {
    repository().join("fixtures/pictures/files").join(name)
}

/// The golden of TrOCR with settings of pictures and a tokenizer, compiled.
fn captioner(more: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let model = Draft::of("trocr").write(folder.path().join("trocr"));
    fs::write(model.join("preprocessor_config.json"), SETTINGS).unwrap();
    write_tokenizer(&model, 127);
    artifact(&model, more)
}

/// What transformers 5.24 generates in float64 after tokens, greedy and with 4 beams.
#[test]
fn texts_of_pictures_are_those_of_transformers() {
    let cases: [(&str, &str, [&[i64]; 2]); 5] = [
        ("large.png", "2", [&[2], &[114; 6]]),
        ("large.png", "2,7,9", [&[9; 6], &[9; 6]]),
        ("large.png", "7,9", [&[9; 6], &[9; 6]]),
        ("tall.png", "2,7,9", [&[9; 6], &[9, 9, 9, 9, 114, 114]]),
        ("tall.png", "7,9", [&[9; 6], &[9, 9, 9, 9, 114, 114]]),
    ];
    for target in ["onnx", "ort"] {
        let (_folder, out) = captioner(&["--target", target]);
        for (name, begins, [greedy, beams]) in cases {
            let image = picture(name);
            let given = ["--image", text(&image), "--ids", begins, "--max-new-tokens", "6"];
            assert_eq!(ids(&out, &given), json!(greedy), "{target} {name} {begins}");
            for more in [&["--beams", "4"][..], &["--beams", "4", "--set", "use_cache=false"]] {
                assert_eq!(ids(&out, &[&given[..], more].concat()), json!(beams), "{target} {name} {begins}");
            }
        }
    }
}

#[test]
fn a_prompt_may_be_left_out_and_lines_have_pictures_of_their_own() {
    let (folder, out) = captioner(&[]);
    let image = picture("large.png");
    let document = whole_json(&out, &["--image", text(&image), "--beams", "4", "--max-new-tokens", "6"]);
    assert_eq!(document["ids"], json!(vec![114; 6]));
    assert_eq!(document["text"].as_str().map(|text| text.split(' ').count()), Some(6));

    for name in ["large.png", "tall.png"] {
        fs::copy(picture(name), folder.path().join(name)).unwrap();
    }
    let lines = folder.path().join("in.jsonl");
    let of = |ids: &[i64], name: &str| json!({"ids": ids, "images": [name]}).to_string();
    // The second has another beginning than the first, so it is a batch of its own.
    let all = [
        of(&[2], "large.png"),
        of(&[7, 9], "tall.png"),
        of(&[2, 7, 9], "large.png"),
        "{\"images\": [\"tall.png\"]}".to_owned(),
    ];
    fs::write(&lines, all.join("\n")).unwrap();
    let done =
        generate(&out, &["--prompts", text(&lines), "--beams", "4", "--max-new-tokens", "6"]).exits(0, &["4 prompts"]);
    let found: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found: Vec<&Value> = found.iter().map(|line: &Value| &line["ids"]).collect();
    assert_eq!(found, [&json!(vec![114; 6]), &json!([9, 9, 9, 9, 114, 114]), &json!(vec![9; 6]), &json!(vec![114; 6])]);
}

#[test]
fn pictures_that_a_model_does_not_read_are_refused() {
    let (folder, out) = captioner(&[]);
    let image = picture("large.png");
    let image = text(&image);
    generate(&out, &["--ids", "2"]).exits(1, &["the model reads an image", "--image FILE"]);
    generate(&out, &["--image", image, "--image", image]).exits(1, &["one image for each text, and 2 are given"]);
    generate(&out, &["--image", image, "--ids", "2,127"]).exits(1, &["id 127", "0 to 126"]);
    generate(&out, &["--image", image, "--chat"]).exits(2, &["reads no pictures"]);
    generate(&out, &["--image", text(&folder.path().join("none.png"))]).exits(1, &["none.png"]);
    let bytes = fs::read(image).unwrap();
    let cut = folder.path().join("cut.png");
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    generate(&out, &["--image", text(&cut)]).exits(1, &["cut.png"]);
    // A picture of one pixel is one.
    generate(&out, &["--image", text(&picture("pixel.png"))]).exits(0, &[]);
    let longest = vec!["7"; 40].join(",");
    generate(&out, &["--image", image, "--ids", &longest]).exits(1, &["the model takes 40"]);

    fs::remove_file(out.join("preprocessor_config.json")).unwrap();
    generate(&out, &["--image", image]).exits(1, &["preprocessor_config.json", "pixel_values"]);
    for name in ["gpt2", "t5"] {
        let (_folder, out) = artifact(Path::new(&golden(name)), &[]);
        generate(&out, &["--image", image, "--ids", "5"]).exits(1, &["reads texts and no images"]);
    }
}
