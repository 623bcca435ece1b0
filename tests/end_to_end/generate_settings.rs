//! Settings of `planish generate`: those of generation_config.json, and those of `--set` in place of them.

use std::path::Path;

use serde_json::{Value, json};

use crate::generate::{artifact, generate, ids, list, stored};
use crate::support::golden;

/// Continues the prompt of a golden, with these settings in the artifact's generation_config.json.
#[track_caller]
pub(crate) fn with_settings(name: &str, out: &Path, settings: &Value, more: &[&str]) -> Vec<i64> {
    std::fs::write(out.join("generation_config.json"), settings.to_string()).unwrap();
    let ids = ids(out, &[&["--ids", &list(&stored(name, "in.prompt"))], more].concat());
    ids.as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
}

#[test]
fn settings_of_the_generation_config_are_honoured_unless_others_are_given() {
    let (_folder, out) = artifact(&golden("gpt2"), &[]);
    let run = |settings: Value, more: &[&str]| with_settings("gpt2", &out, &settings, more);
    let prompt = stored("gpt2", "in.prompt");
    let greedy = stored("gpt2", "out.greedy").split_off(prompt.len());
    let beam4 = stored("gpt2", "out.beam4").split_off(prompt.len());
    let count = beam4.len();
    assert_eq!(run(json!({"max_new_tokens": 5}), &[]), greedy[..5]);
    assert_eq!(run(json!({"max_new_tokens": 5}), &["--max-new-tokens", "3"]), greedy[..3]);
    assert_eq!(run(json!({"max_length": prompt.len() + 2}), &[]), greedy[..2]);
    assert_eq!(run(json!({"max_new_tokens": count, "num_beams": 4}), &[]), beam4);
    assert_eq!(run(json!({"max_new_tokens": count, "num_beams": 4}), &["--set", "length_penalty=0"]), beam4);
    let drawing = json!({"max_new_tokens": count, "do_sample": true, "temperature": 2.0});
    assert_eq!(run(drawing.clone(), &["--greedy"]), greedy);
    assert_eq!(run(drawing.clone(), &["--set", "num_beams=4"]), beam4);
    let drawn = run(drawing.clone(), &[]);
    assert_eq!(drawn, run(drawing.clone(), &["--seed", "0"]));
    assert_ne!(drawn, greedy);
    assert_ne!(drawn, run(drawing.clone(), &["--seed", "1"]));
    let plain = ["--temperature", "2", "--max-new-tokens", &count.to_string()];
    assert_eq!(run(json!({}), &plain), drawn);
    assert_eq!(run(drawing, &["--set=generation_config=false", "--max-new-tokens", "4"]), greedy[..4]);
    let suppressing = |ids: &[i64]| run(json!({"max_new_tokens": 2, "suppress_tokens": ids}), &[]);
    assert!(!suppressing(&greedy[..1]).contains(&greedy[0]));
    // A length of --set is not without effect beside another length of the file.
    for max_new_tokens in [json!(9), json!(null)] {
        let length = format!("--set=max_length={}", prompt.len() + 2);
        assert_eq!(run(json!({"max_new_tokens": max_new_tokens}), &[&length]), greedy[..2]);
    }
    // A key of --set is the setting of the file.
    let suppress = format!("--set=suppress_tokens={}", greedy[0]);
    assert_eq!(run(json!({"max_new_tokens": 2}), &[&suppress]), suppressing(&greedy[..1]));
    for sampling in ["--set=do_sample", "--set=min_p=0"] {
        assert_eq!(run(json!({"max_new_tokens": count, "temperature": 2.0}), &[sampling]), drawn, "{sampling}");
    }
    // As transformers 5.23.0: the number of new tokens counts, not that of all.
    let short = json!({"eos_token_id": 70, "min_length": 12, "min_new_tokens": 1, "max_new_tokens": 12});
    std::fs::write(out.join("generation_config.json"), short.to_string()).unwrap();
    assert_eq!(ids(&out, &["--ids", "1,2,3"]), json!([55, 55, 70]));
    let forced = json!({"max_new_tokens": 3, "forced_eos_token_id": 9});
    assert_eq!(run(forced.clone(), &[])[2], 9);
    assert_eq!(run(forced.clone(), &["--set=forced_eos_token_id=8"])[2], 8);
    assert_eq!(run(forced, &["--set=ignore_eos"]), greedy[..3]);
    assert!(!run(json!({"max_new_tokens": 9, "repetition_penalty": 1e9}), &[])[1..].windows(2).any(|w| w[0] == w[1]));

    let refused = |settings: Value, parts: &[&str]| {
        std::fs::write(out.join("generation_config.json"), settings.to_string()).unwrap();
        generate(&out, &["--ids", &list(&prompt)]).exits(1, parts);
    };
    refused(json!({"penalty_alpha": 0.6}), &["penalty_alpha", "--set generation_config=false"]);
    let all: Vec<i64> = (0..137).collect();
    for search in [json!({}), json!({"num_beams": 2}), json!({"do_sample": true})] {
        let mut settings = search;
        settings["suppress_tokens"] = json!(all);
        refused(settings, &["no token may follow"]);
    }
    refused(json!({"forced_bos_token_id": 5, "suppress_tokens": [5]}), &["forced_bos_token_id", "suppress_tokens"]);
    refused(json!({"max_length": 3}), &["max_length", "--max-new-tokens"]);
    refused(json!({"bad_words_ids": [[137]]}), &["bad_words_ids", "137", "0 to 136"]);
    std::fs::write(out.join("generation_config.json"), r#"{"chat_format": "chatml"}"#).unwrap();
    generate(&out, &["--ids", "5"]).exits(0, &["warning: ", "chat_format"]);
}
