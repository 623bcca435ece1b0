//! What `planish generate` refuses.

use std::path::Path;

use serde_json::{Value, json};

use crate::generate::{artifact, generate, ids, json, list, with_tokenizer};
use crate::support::{golden, scratch, write_tokenizer};

/// What is wrong with the arguments is said although there is no runtime to load the model with.
#[test]
fn arguments_are_checked_before_anything_is_loaded() {
    let folder = scratch();
    let out = with_tokenizer(folder.path());
    let checked = |more: &[&str], parts: &[&str]| {
        generate(&out, &[more, &["--runtime-option", "ort-lib=nowhere.so"]].concat()).exits(1, parts);
    };
    checked(&["--prompt", "w7", "--chat"], &["has no chat template", "--chat"]);
    checked(&["--ids", "5,137"], &["id 137 is not in the vocabulary"]);
    checked(&["--ids", &list(&[5; 100])], &["the prompt has 100 tokens and the model takes"]);
    std::fs::write(out.join("chat_template.jinja"), "{{ raise_exception('no ' ~ messages[0].role) }}").unwrap();
    checked(&["--prompt", "w7", "--chat"], &["no user"]);
    std::fs::write(out.join("tokenizer.json"), "{}").unwrap();
    checked(&["--prompt", "w7"], &["cannot read", "tokenizer.json"]);
    std::fs::remove_file(out.join("tokenizer.json")).unwrap();
    checked(&["--prompt", "w7"], &["has no tokenizer.json"]);
    std::fs::remove_file(out.join("model.onnx")).unwrap();
    checked(&["--ids", "5"], &["cannot open", "model.onnx"]);
    let (_folder, encoder) = artifact(&golden("bert-mlm"), &[]);
    generate(&encoder, &["--ids", "5", "--runtime-option", "ort-lib=nowhere.so"])
        .exits(1, &["fill-mask", "cannot generate"]);
}

/// The tokenizer of an artifact with some of it changed.
fn change_tokenizer(out: &Path, change: impl Fn(&mut Value)) {
    write_tokenizer(out, 137);
    let path = out.join("tokenizer.json");
    let mut tokenizer = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut tokenizer);
    std::fs::write(path, tokenizer.to_string()).unwrap();
}

/// What a tokenizer's training data was padded to and cut at is not the prompt's.
#[test]
fn padding_and_truncation_of_the_tokenizer_are_left_out() {
    let folder = scratch();
    let out = with_tokenizer(folder.path());
    let more = ["--max-new-tokens", "3", "--prompt", "w7 w134 w56"];
    let plain = json(&out, &more);
    let padding = |size: u64| {
        json!({"strategy": {"Fixed": size}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
               "pad_type_id": 0, "pad_token": "w0"})
    };
    let truncation = json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    for size in [16, 10_000_000_000] {
        change_tokenizer(&out, |tokenizer| tokenizer["padding"] = padding(size));
        assert_eq!(json(&out, &more), plain);
    }
    change_tokenizer(&out, |tokenizer| tokenizer["truncation"] = truncation.clone());
    assert_eq!(json(&out, &more), plain);
}

#[test]
fn hostile_tokenizers_are_refused_on_one_line() {
    let folder = scratch();
    let out = with_tokenizer(folder.path());
    let refused = |part: &str, change: &dyn Fn(&mut Value)| {
        change_tokenizer(&out, change);
        let done = generate(&out, &["--prompt", "w7 a"]).exits(1, &[part]);
        assert_eq!(done.stderr.trim_end().lines().count(), 1, "{}", done.stderr);
    };
    // Tokens that nothing defines.
    refused("tokenizer.json", &|t| t["post_processor"]["special_tokens"] = json!({}));
    refused("tokenizer.json", &|t| t["model"]["unk_token"] = json!("nowhere"));
    refused("id 4000000000 is not in the vocabulary", &|t| t["model"]["vocab"]["w7"] = json!(4_000_000_000_u64));
    refused("tokenizer.json", &|t| t["added_tokens"][0]["id"] = json!(10_000_000_000_u64));
    // One letter becomes 10^12.
    let more = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "a".repeat(1000)});
    let repeated = json!({"type": "Sequence", "normalizers": vec![more; 4]});
    // Memory is what is exceeded first, but for machines that are very busy.
    refused("stopped a", &|t| t["normalizer"] = repeated.clone());
    refused("tokenizer.json", &|t| {
        t["pre_tokenizer"] =
            json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false});
    });
    std::fs::write(out.join("tokenizer.json"), "[".repeat(100_000)).unwrap();
    generate(&out, &["--prompt", "w7"]).exits(1, &["cannot read", "tokenizer.json"]);
}

#[test]
fn what_cannot_be_generated_is_refused() {
    let (_folder, out) = artifact(&golden("gpt2"), &[]);
    generate(&out, &["--prompt", "Hello"]).exits(1, &["has no tokenizer.json", "--ids"]);
    generate(&out, &["--ids", "5,137"]).exits(1, &["id 137 is not in the vocabulary", "0 to 136"]);
    generate(&out, &["--ids", "-1"]).exits(1, &["id -1 is not in the vocabulary"]);
    generate(&golden("gpt2"), &["--ids", "5"]).exits(1, &["is not an artifact", "planish compile"]);
    generate(&out, &["--ids", "5", "--runtime-option", "ort-lib=nowhere.so"]).exits(4, &["nowhere.so"]);
    std::fs::write(out.join("generation_config.json"), r#"{"eos_token_id": "end"}"#).unwrap();
    generate(&out, &["--ids", "5"]).exits(1, &["eos_token_id", "generation_config.json"]);

    let (_folder, encoder) = artifact(&golden("bert-mlm"), &[]);
    generate(&encoder, &["--ids", "5"]).exits(1, &["fill-mask", "cannot generate", "text-generation"]);
}

#[test]
fn arguments_that_contradict_each_other_are_usage_errors() {
    let (_folder, out) = artifact(&golden("gpt2"), &[]);
    let usage = |more: &[&str], parts: &[&str]| {
        generate(&out, more).exits(2, parts);
    };
    usage(&[], &["--prompt", "--ids"]);
    usage(&["--ids", "5", "--prompt", "text"], &["cannot be used with"]);
    usage(&["--ids", "5", "--chat"], &["cannot be used with"]);
    usage(&["--ids", ""], &["`` is not a token id"]);
    usage(&["--ids", "5,x"], &["`x` is not a token id"]);
    usage(&["--ids", "5", "--set", "length_penalty=1"], &["add --beams N"]);
    usage(&["--ids", "5", "--beams", "2000"], &["--beams 2000: expected a whole number from 1 to 1024"]);
    usage(&["--ids", "5", "--beams", "2", "--set", "num_beams=2"], &["--beams and --set num_beams say the same"]);
    usage(&["--ids", "5", "--set", "length_penalty=1,num_beams=1"], &["add --beams N"]);
    usage(&["--ids", "5", "--set", "early_stopping=true"], &["--set early_stopping has no effect", "add --beams N"]);
    usage(&["--ids", "5", "--set", "max_length=9", "--max-new-tokens", "2"], &["leave one of them out"]);
    usage(&["--ids", "5", "--set", "min_length=9,min_new_tokens=2"], &["leave one of them out"]);
    usage(&["--ids", "5", "--set", "num_beams="], &["--set num_beams has no value; write num_beams=N"]);
    usage(
        &["--ids", "5", "--set", "do_sample,prompt_lookup_num_tokens=4"],
        &["leave out do_sample, or prompt_lookup_num_tokens"],
    );
    usage(&["--ids", "5", "--set", "repetition_penalty=1e-300"], &["above 0"]);
    usage(&["--ids", "5", "--set", "repetition_penalty=1e39"], &["above 0"]);
    for number in ["0", "-1", "x"] {
        usage(&["--ids", "5", &format!("--set=num_beams={number}")], &["num_beams", number, "from 1 to 1024"]);
        usage(&["--ids", "5", "--max-new-tokens", number], &["--max-new-tokens", number, "from 1 to 1073741824"]);
    }
    usage(&["--ids", "5", "--top-k", "-1"], &["--top-k", "-1", "from 0 to 1073741824"]);
    for number in ["4294967296", "18446744073709551615", "1e30"] {
        for name in ["--set=num_beams", "--max-new-tokens", "--top-k"] {
            let name_and_number = format!("{name}={number}");
            usage(
                &["--ids", "5", &name_and_number],
                &[name.trim_start_matches("--set="), number, "expected a whole number from"],
            );
        }
    }
    usage(&["--ids", "5", "--seed", "-1"], &["--seed", "-1", "from 0 to"]);
    usage(&["--ids", "5", "--top-p", "-1"], &["from 0 to 1"]);
    usage(&["--ids", "5", "--temperature", "-1"], &["from 0 on"]);
    usage(&["--ids", "5", "--temperature", "nan"], &["from 0 on"]);
    usage(&["--ids", "5", "--set", "min_p=1.5"], &["from 0 to 1"]);
    usage(&["--ids", "5", "--top-p", "1.5"], &["from 0 to 1"]);
    usage(&["--ids", "5", "--greedy", "--set", "min_p=0.5"], &["--greedy excludes --beams and what samples"]);
    usage(&["--ids", "5", "--greedy", "--set", "do_sample"], &["--set do_sample"]);
    usage(&["--ids", "5", "--set", "early_stopping=soon"], &["`early_stopping` of --set is \"soon\"", "\"never\""]);
    usage(&["--ids", "5", "--set", "num_beam=2"], &["has no key `num_beam`", "num_beams=N"]);
    usage(&["--ids", "5", "--greedy", "--top-p", "0.5"], &["cannot be used with"]);
    usage(&["--ids", "5", "--greedy", "--set", "num_beams=2"], &["--greedy excludes --beams and what samples"]);
}

/// Scripts give a seed at all times.
#[test]
fn a_seed_without_draws_is_warned_of() {
    let (_folder, out) = artifact(&golden("gpt2"), &[]);
    let more = ["--ids", "5,6", "--max-new-tokens", "4", "--json"];
    let greedy = ids(&out, &more[..4]);
    for draws in [&["--seed", "1"][..], &["--seed", "1", "--temperature", "0", "--top-k", "9"]] {
        let done = generate(&out, &[&more[..], draws].concat()).exits(0, &["warning: --seed", "--temperature"]);
        assert_eq!(serde_json::from_str::<Value>(&done.stdout).unwrap()["ids"], greedy);
    }
}
