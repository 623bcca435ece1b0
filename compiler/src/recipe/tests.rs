use planish_artifact::recipe::read;
use planish_passes::{CUDA, Exceptions, ONNX, ORT, ORT_CUDA, TRT, Target};
use serde_json::json;

use super::*;
use crate::calibrate::CalibrateOptions;

fn of(texts: &[&str]) -> anyhow::Result<Recipe> {
    read(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
}

fn refused(texts: &[&str], target: &Target, has_data: bool) -> String {
    let run = CalibrateOptions::default();
    let data = has_data.then_some(CalibrationData { path: "data.jsonl".as_ref(), run: &run });
    match of(texts).and_then(|recipe| resolve(&recipe, target, data)) {
        Ok(_) => String::new(),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn a_recipe_is_what_it_was_written_as() {
    let words = [
        "precision=fp16,int4",
        "keep=lm_head=fp32",
        "keep=@table=int8",
        "block-size=64",
        "weight-method=gptq",
        "zero_points=true",
        "logits=last,padded",
        "pad-vocab=64",
        "engine.workspace=4GiB",
        "engine.tf32=true",
        "engine.gpu=sm89",
    ];
    let recipe = of(&words).unwrap();
    let expected = json!({
        "precision": ["fp16", "int4"], "keep": ["lm_head=fp32", "@table=int8"], "weight_method": "gptq", "block_size": "64",
        "zero_points": true, "pad_vocab": "64", "logits": "last,padded",
        "engine": {"gpu": "sm89", "tf32": true, "workspace": "4GiB"},
    });
    assert_eq!(serde_json::to_value(&recipe).unwrap(), expected);
    assert_eq!(serde_json::from_value::<Recipe>(expected).unwrap(), recipe);
}

#[test]
fn files_and_manifests_are_read_and_words_after_them_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recipe.json");
    let text = path.to_str().unwrap();
    let write = |value: serde_json::Value| std::fs::write(&path, value.to_string()).unwrap();
    write(json!({"precision": ["int8"], "smooth": 0.5, "split_columns": 8, "keep": ["a"]}));
    let recipe = of(&[text, "split-columns=4", "keep=b"]).unwrap();
    assert_eq!((recipe.split_columns, recipe.keep.len()), (Some(4), 2));
    assert_eq!(recipe.smooth.unwrap().to_string(), "0.5");
    write(json!({"producer": "planish 0.1.0", "schema": 4, "recipe": {"precision": ["bf16"]}}));
    assert_eq!(of(&[text]).unwrap(), Recipe::of(Precision::Bf16));
    write(json!({"producer": "planish 0.1.0", "schema": 4}));
    assert!(of(&[text]).unwrap_err().to_string().contains("records no recipe"));
    write(json!({"precision": ["int8"], "smoothe": 1}));
    assert!(format!("{:#}", of(&[text]).unwrap_err()).contains("`smoothe` of the recipe: unknown field"));
    write(json!([1]));
    assert!(format!("{:#}", of(&[text]).unwrap_err()).contains("is no recipe"));
}

#[test]
fn wrong_values_are_refused_with_the_member() {
    for (word, why) in [
        ("smooth=2", "`smooth` of the recipe: expected off, auto, or a number from 0 to 1"),
        ("keep=a=int9", "`keep` of the recipe: `int9` is none of the types fp32, float, int8, int4"),
        ("keep=@tail", "`@tail` is none of @head and @table"),
        ("precision=fp61", "`precision` of the recipe"),
        ("colour=red", "unknown field `colour`"),
        ("range=mean", "`mean` is not a method"),
    ] {
        let error = format!("{:#}", of(&[word]).unwrap_err());
        assert!(error.contains(why), "{word}: {error}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    for (words, target, has_data, why) in [
        (&["precision=fp16,bf16"][..], &ONNX, false, "--precision takes one of fp16 and bf16"),
        (&["precision=int8,int4"], &ORT, true, "--precision takes one of int8 and int4"),
        (&["precision=fp8"], &TRT, false, "--fp8 needs data"),
        (&["precision=fp8"], &ORT, true, "--fp8 is not for target ort"),
        (&["precision=fp8"], &CUDA, true, "--fp8 is not for target cuda"),
        (&["precision=int8"], &TRT, false, "--int8 for target trt needs data"),
        (&["precision=int8", "dynamic=true"], &TRT, true, "--recipe dynamic is for target ort"),
        (&["precision=int8", "smooth=0.5"], &ORT, false, "--recipe smooth with a number needs data"),
        (&["precision=int4", "smooth=0.5"], &ORT, true, "--recipe smooth is for --precision int8"),
        (&["precision=int8", "range=mse"], &ORT, false, "--recipe range needs data"),
        (
            &["precision=int8", "block-size=32"],
            &ORT,
            false,
            "--recipe block-size is for --precision int4, int8-weights",
        ),
        (&["precision=int8", "weight-method=hqq"], &ORT, true, "--int8 has nearest and gptq"),
        (&["precision=int4", "weight-method=gptq"], &ORT, false, "--recipe weight-method=gptq needs data"),
        (&["precision=fp16", "max-abs=9"], &ORT, true, "leave out --recipe max-abs"),
        (&["precision=fp16", "max-abs=1e9"], &ONNX, true, "exceeds 65504"),
        (&["precision=fp16", "keep=a=int8"], &ONNX, false, "are for --int4 and --int8-weights"),
        (&["precision=int8", "keep=a=int4"], &ORT, false, "are for --int4 and --int8-weights"),
        (&["precision=fp16", "keep=a=float"], &ONNX, false, "write =fp32"),
        (&["precision=int8", "keep=@head"], &ORT, false, "write a pattern of its name"),
        (&["precision=int4", "keep=@table=int4"], &ONNX, false, "looks up rows of codes"),
        (&["precision=fp16,int4", "keep=@head=fp32"], &ORT_CUDA, false, "beside --fp16 give a pattern"),
        (&["keep=a"], &ORT, false, "add --precision"),
        (&["attention-fp32=true"], &ORT, false, "target ort computes attention in float32 anyway"),
        (&["experts=grouped"], &TRT, false, "--recipe experts=grouped is not for target trt; there are gathered, all"),
        (&["experts=all"], &CUDA, false, "target cuda, which has no mixtures of experts"),
        (&["pad-vocab=1000000"], &ORT, false, "--recipe pad-vocab is at most 65536, and 1000000 was given"),
        (&["precision=int8", "split-columns=99999999"], &ORT, true, "--recipe split-columns is at most 65536"),
        (&["precision=int8", "max-layer-loss=-1"], &ORT, true, "--recipe max-layer-loss is a number from 0 on"),
        (&["logits=all,last"], &ORT, false, "takes one of all and last"),
        (&["logits=padded"], &ORT, false, "needs a padded vocabulary"),
        (&["precision=int8", "plan=a.json", "smooth=off"], &ORT, true, "leave --recipe smooth out"),
    ] {
        let error = refused(words, target, has_data);
        assert!(error.contains(why), "{words:?}: {error}");
    }
}

#[test]
fn what_is_kept_is_what_its_type_says() {
    let resolved =
        of(&["precision=fp16,int4", "keep=a", "keep=b=fp32", "keep=c=int8", "keep=@head=float", "keep=@table=int4"]);
    let resolved = resolve(&resolved.unwrap(), &ORT, None).unwrap();
    use planish_passes::KeptType::{Eight, Float, Four, Single};
    let types = |keep: &Exceptions| keep.0.iter().map(|exception| exception.ty).collect::<Vec<_>>();
    let all = [Float, Single, Eight, Float, Four];
    assert_eq!(types(&resolved.half.unwrap().keep), all);
    let weights = resolved.quantize_weights.unwrap().settings;
    assert_eq!((types(&weights.keep), weights.bits), (all.to_vec(), Bits::Four));
    let reasons: Vec<&str> = weights.keep.0.iter().map(|exception| exception.reason.as_str()).collect();
    assert_eq!([reasons[0], reasons[3]], ["`a` of keep matches", "keep @head says so"]);
    let alone = resolve(&of(&["precision=fp16", "keep=.*", "keep=a=float"]).unwrap(), &ONNX, None).unwrap();
    assert_eq!(types(&alone.half.unwrap().keep), [Single, Float]);
    let int8 = of(&["precision=int8", "keep=a", "keep=@table=float", "keep=ab=int8"]).unwrap();
    assert_eq!(types(&resolve(&int8, &ORT, None).unwrap().quantize.unwrap().settings.keep), [Float, Float, Eight]);
}

#[test]
fn what_followed_from_data_is_not_repeated_without_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("planish.json");
    let of = |calibration: &str| {
        let manifest = format!(r#"{{"producer": "planish", "recipe": {{"precision": ["int8"]}}{calibration}}}"#);
        std::fs::write(&path, manifest).unwrap();
        read(&[path.to_str().unwrap().to_owned()]).unwrap()
    };
    let error = resolve(&of(r#", "calibration": {}"#), &ORT, None).unwrap_err().to_string();
    assert!(error.contains("followed from data: add --calibrate FILE"), "{error}");
    assert!(resolve(&of(""), &ORT, None).unwrap().quantize.is_some());
}
