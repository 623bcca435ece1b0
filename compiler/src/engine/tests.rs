//! Ranges and profiles as values.

use std::path::Path;

use planish_artifact::manifest::PartManifest;
use planish_runtimes::tensorrt::{BuildOptions, ENTERPRISE, HardwareCompatibility};

use super::*;

fn part(inputs: &[(&str, &str)]) -> PartManifest {
    let input = |(name, shape): &(&str, &str)| format!(r#"{{"name": "{name}", "dtype": "i64", "shape": [{shape}]}}"#);
    let inputs: Vec<String> = inputs.iter().map(input).collect();
    let text = format!(
        r#"{{"name": "model", "inputs": [{}], "outputs": [], "passes": [], "raised": {{}}}}"#,
        inputs.join(",")
    );
    let mut part: PartManifest = serde_json::from_str(&text).unwrap();
    part.infer_roles();
    part
}

fn ranges(text: &str) -> SymbolRanges {
    text.parse().unwrap()
}

#[test]
fn ranges_are_read_as_they_are_shown() {
    for text in ["batch_size=1:8:32,sequence_length=128", "n=0", ""] {
        if !text.is_empty() {
            assert_eq!(ranges(text).to_string(), text);
        }
    }
    for text in
        ["", "n", "=1", "n=", "n=1:2", "n=1:2:3:4", "n=-1", "n=1,n=2", "n=1,", "n=2147483648", "n=1:2:4294967295"]
    {
        text.parse::<SymbolRanges>().unwrap_err();
    }
}

#[test]
fn inputs_of_known_sizes_are_in_no_profile() {
    let profiles = Profiles::of(&[part(&[("x", r#""n", 3"#), ("y", "2, 3")])], None, &[ranges("n=1:2:3")]).unwrap();
    let [profile] = profiles.part("model") else { panic!("{profiles:?}") };
    let [input] = &profile.inputs[..] else { panic!("{profile:?}") };
    assert_eq!((input.name.as_str(), &input.min[..], &input.max[..]), ("x", &[1, 3][..], &[3, 3][..]));
    let fixed = Profiles::of(&[part(&[("y", "2, 3")])], None, &[]).unwrap();
    assert_eq!(fixed.part("model"), []);
}

#[test]
fn sizes_that_no_rule_gives_are_asked_for() {
    let parts = [part(&[("image", r#""batch", 3, "height", "width""#)])];
    let missing = Profiles::of(&parts, None, &[]).unwrap_err().to_string();
    assert!(
        missing.starts_with("`height` has no range, and image of model need one: add height=MIN:OPT:MAX"),
        "{missing}"
    );
    assert!(
        missing.ends_with("the model has `batch` (of image), `height` (of image), `width` (of image)"),
        "{missing}"
    );
    Profiles::of(&parts, None, &[ranges("batch=1,height=32:64:96,width=32:64:96")]).unwrap();
}

#[test]
fn sizes_that_do_not_rise_are_refused() {
    let parts = [part(&[("x", r#""n""#), ("y", r#""-1 * n + 8""#)])];
    let error = Profiles::of(&parts, None, &[ranges("n=1:2:3")]).unwrap_err();
    assert!(matches!(&error, ProfileError::Shape { input, .. } if input == "y"), "{error}");
    Profiles::of(&parts, None, &[ranges("n=2")]).unwrap();
}

#[test]
fn words_of_a_shell() {
    let parts = [part(&[("input:0", r#""n""#)])];
    let profiles = Profiles::of(&parts, None, &[ranges("n=1:2:3"), ranges("n=4")]).unwrap();
    let hardware_compatibility = Some(HardwareCompatibility::Same);
    let options = BuildOptions { tf32: true, workspace: Some(1000), hardware_compatibility, ..BuildOptions::default() };
    let (onnx, engine) = (Path::new("it's/model.onnx"), Path::new("model.engine"));
    let line = trtexec(onnx, engine, profiles.part("model"), &options).line();
    let tool = if ENTERPRISE { "trtexec" } else { "tensorrt_rtx" };
    let quoted = |option: &str, size: u32| format!(r"'--{option}Shapes='\''input:0'\'':{size}'");
    let shapes = |sizes: [u32; 3]| {
        ["min", "opt", "max"].iter().zip(sizes).map(|(o, n)| quoted(o, n)).collect::<Vec<_>>().join(" ")
    };
    let expected = format!(
        r"{tool} '--onnx=it'\''s/model.onnx' --profile=0 {} --profile=1 {} --memPoolSize=workspace:1000B --hardwareCompatibilityLevel=sameComputeCapability --profilingVerbosity=detailed --saveEngine=model.engine --skipInference",
        shapes([1, 2, 3]),
        shapes([4, 4, 4])
    );
    assert_eq!(line, expected);
}
