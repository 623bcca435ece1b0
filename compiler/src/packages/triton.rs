//! `config.pbtxt`, which tells NVIDIA Triton Inference Server how to run a part of a model. The fields are those of its
//! `ModelConfig` message, in the text format of protobuf.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use planish_artifact::backend::{Backend, Device};
use planish_artifact::layout::base_name;
use planish_artifact::manifest::PartManifest;
use planish_artifact::value::ValueInfo;
use planish_artifact::{Artifact, files};
use planish_ir::{DType, Dim, Symbol};

use super::triton_text;
use crate::engine::{Profiles, usual_batch};

/// The name of the file.
pub(super) const CONFIG: &str = "config.pbtxt";

/// The backend of Triton that runs a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runner {
    OnnxRuntime,
    TensorRt,
}

impl Runner {
    pub(super) fn of(backend: &Backend) -> Self {
        if backend.engines.is_some() { Self::TensorRt } else { Self::OnnxRuntime }
    }

    /// The values of the fields `backend` and `platform`.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::OnnxRuntime => ("onnxruntime", "onnxruntime_onnx"),
            Self::TensorRt => ("tensorrt", "tensorrt_plan"),
        }
    }

    /// Triton's name of an element type, if the backend takes it.
    fn data_type(self, dtype: DType) -> Option<&'static str> {
        let is_onnx = self == Self::OnnxRuntime;
        match dtype {
            DType::Bool => Some("TYPE_BOOL"),
            DType::U8 => Some("TYPE_UINT8"),
            DType::I8 => Some("TYPE_INT8"),
            DType::I32 => Some("TYPE_INT32"),
            DType::I64 => Some("TYPE_INT64"),
            DType::F16 => Some("TYPE_FP16"),
            DType::F32 => Some("TYPE_FP32"),
            DType::Bf16 => (!is_onnx).then_some("TYPE_BF16"),
            DType::U16 => is_onnx.then_some("TYPE_UINT16"),
            DType::U32 => is_onnx.then_some("TYPE_UINT32"),
            DType::U64 => is_onnx.then_some("TYPE_UINT64"),
            DType::I16 => is_onnx.then_some("TYPE_INT16"),
            DType::F64 => is_onnx.then_some("TYPE_FP64"),
            DType::String => is_onnx.then_some("TYPE_STRING"),
            _ => None,
        }
    }
}

/// Checks that the server takes the inputs and outputs of all parts.
///
/// # Errors
/// When it does not take one of them.
pub(crate) fn check(parts: &[PartManifest], backend: &Backend) -> Result<()> {
    for part in parts {
        let is_batched = batch(part).is_some();
        for value in values(part) {
            tensor(value, Runner::of(backend), is_batched)?;
        }
    }
    Ok(())
}

/// Writes the file of each part into an artifact, and where the recipe asks for it the models that read texts; returns the names
/// of the files.
///
/// # Errors
/// When the server does not take an input or an output, a tokenizer does not give an input, or a file cannot be written.
pub(crate) fn write(artifact: &Artifact, profiles: Option<&Profiles>) -> Result<Vec<String>> {
    let Artifact { folder, manifest, backend, .. } = artifact;
    let mut names = Vec::new();
    for part in &manifest.parts {
        let layout = manifest.layout(&part.name);
        let name = layout.described(CONFIG);
        let model = match Runner::of(backend) {
            Runner::TensorRt => layout.engine(),
            Runner::OnnxRuntime => part.files.first().cloned().unwrap_or_default(),
        };
        let largest = largest_batch(part, &manifest.parts, profiles);
        let profiles = profiles.map_or(0, |profiles| profiles.part(&part.name).len());
        let text = document(part, backend, base_name(&model), largest, profiles)?;
        files::write_within(&folder.join(&name), text.as_bytes())?;
        names.push(name);
    }
    if manifest.recipe.as_ref().is_some_and(|recipe| recipe.tokenizer) {
        names.extend(triton_text::write(artifact, profiles)?);
    }
    Ok(names)
}

/// The largest batch that the server makes of requests: the largest one that every profile takes, or the usual one where
/// the model has no limit. 0 where the part has no batch.
pub(super) fn largest_batch(part: &PartManifest, parts: &[PartManifest], profiles: Option<&Profiles>) -> i64 {
    if batch(part).is_none() {
        return 0;
    }
    let batches = profiles.map_or_else(Vec::new, |profiles| batches(part, profiles));
    batches.into_iter().min().unwrap_or_else(|| usual_batch(parts))
}

/// The largest batch of each profile of a part.
fn batches(part: &PartManifest, profiles: &Profiles) -> Vec<i64> {
    let Some(symbol) = batch(part) else { return Vec::new() };
    let profiles = profiles.part(&part.name).iter();
    profiles.filter_map(|profile| Some(profile.symbols.0.get(&**symbol)?.max)).collect()
}

/// That the server's batches are smaller than those of a profile, if they are.
pub(crate) fn smaller_batch(parts: &[PartManifest], profiles: &Profiles) -> Option<String> {
    parts.iter().find_map(|part| {
        let batches = batches(part, profiles);
        let (least, most) = (batches.iter().min()?, batches.iter().max()?);
        (least < most).then(|| {
            format!(
                "max_batch_size of {} is {least}: Triton has one largest batch for all profiles, of which another one takes \
                 {most} rows; give each --shapes the same largest batch",
                part.name
            )
        })
    })
}

/// The contents of the file of a part.
fn document(part: &PartManifest, backend: &Backend, model: &str, largest: i64, profiles: usize) -> Result<String> {
    let runner = Runner::of(backend);
    let (name, platform) = runner.names();
    let mut text = format!(
        "backend: {}\nplatform: {}\ndefault_model_filename: {}\nmax_batch_size: {largest}\n",
        quoted(name),
        quoted(platform),
        quoted(model)
    );
    let list = |values: Vec<&ValueInfo>| -> Result<String> {
        let tensors = values.into_iter().map(|value| tensor(value, runner, largest > 0)).collect::<Result<Vec<_>>>()?;
        Ok(tensors.join(",\n"))
    };
    let inputs = list(part.inputs.iter().map(|input| &input.value).collect())?;
    let outputs = list(part.outputs.iter().map(|output| &output.value).collect())?;
    // A string takes what is formatted into it.
    let _ = write!(text, "input [\n{inputs}\n]\noutput [\n{outputs}\n]\n");
    if let Some(device) = backend.device {
        let kind = match device {
            Device::Cpu => "KIND_CPU",
            Device::Gpu => "KIND_GPU",
        };
        let indices: Vec<String> = (0..profiles).map(|index| quoted(&index.to_string())).collect();
        let profile = match indices.as_slice() {
            [] | [_] => String::new(),
            several => format!("    profile: [ {} ]\n", several.join(", ")),
        };
        let _ = write!(text, "instance_group [\n  {{\n    count: 1\n    kind: {kind}\n{profile}  }}\n]\n");
    }
    if largest > 1 {
        text += "dynamic_batching { }\n";
    }
    Ok(text)
}

/// An entry of the list of inputs or outputs.
pub(super) fn tensor(value: &ValueInfo, runner: Runner, is_batched: bool) -> Result<String> {
    let (backend, _) = runner.names();
    let Some(dtype) = value.dtype() else {
        bail!("Triton takes tensors of known ranks only, and `{}` is of the type {}", value.name, value.ty);
    };
    let Some(data_type) = runner.data_type(dtype) else {
        bail!(
            "Triton's backend {backend} has no tensors of {dtype}, and `{}` is one; keep inputs and outputs in float32 \
             without --recipe io=half, or choose another --package",
            value.name
        );
    };
    let size = |dim: &Dim| dim.as_constant().unwrap_or(-1).to_string();
    let dims: Vec<String> = value.dims().iter().skip(usize::from(is_batched)).map(size).collect();
    let shape = match (dims.is_empty(), is_batched) {
        (false, _) => format!("    dims: [ {} ]\n", dims.join(", ")),
        // The field takes no empty shape.
        (true, true) => "    dims: [ 1 ]\n    reshape { shape: [ ] }\n".to_owned(),
        (true, false) => {
            bail!("Triton takes no tensor without dimensions, and `{}` is one; choose another --package", value.name)
        }
    };
    Ok(format!("  {{\n    name: {}\n    data_type: {data_type}\n{shape}  }}", quoted(&value.name)))
}

/// The symbol of the batch: the first dimension of each input and of each output, and nothing else.
fn batch(part: &PartManifest) -> Option<&Symbol> {
    let symbol = part.inputs.first()?.value.dims().first()?.as_symbol()?;
    let is_batched = |value: &ValueInfo| match value.dims() {
        [first, others @ ..] => {
            first.as_symbol() == Some(symbol) && !others.iter().any(|dim| dim.symbols().any(|other| other == symbol))
        }
        [] => false,
    };
    values(part).all(is_batched).then_some(symbol)
}

fn values(part: &PartManifest) -> impl Iterator<Item = &ValueInfo> {
    part.inputs.iter().map(|input| &input.value).chain(part.outputs.iter().map(|output| &output.value))
}

/// A string of the text format.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted += "\\n",
            // Three octal digits.
            control if control.is_ascii_control() => quoted += &format!("\\{:03o}", u32::from(control)),
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use planish_artifact::backend::{ANY_ONNX, TENSORRT};
    use serde_json::json;

    use super::*;

    /// A part with an input `x` and an output `y` of these types.
    fn part(input: (&str, &[&str]), output: (&str, &[&str])) -> PartManifest {
        let value = |name: &str, (dtype, shape): (&str, &[&str])| json!({"name": name, "dtype": dtype, "shape": shape});
        serde_json::from_value(json!({"name": "model", "inputs": [value("x", input)], "outputs": [value("y", output)],
                                      "passes": [], "raised": {}}))
        .unwrap()
    }

    #[test]
    fn the_batch_is_the_first_dimension_of_everything_and_nothing_else() {
        let symbol = |input: &[&str], output: &[&str]| {
            batch(&part(("f32", input), ("f32", output))).map(|symbol| symbol.to_string())
        };
        assert_eq!(symbol(&["n", "4"], &["n"]).as_deref(), Some("n"));
        for (input, output) in [
            (&["n", "4"][..], &["4"][..]),
            (&["n"], &["m"]),
            (&["n"], &[]),
            (&["8"], &["8"]),
            (&["n", "n + 1"], &["n"]),
            (&["2*n"], &["2*n"]),
        ] {
            assert_eq!(symbol(input, output), None, "{input:?} {output:?}");
        }
    }

    #[test]
    fn an_output_with_nothing_but_the_batch_is_reshaped() {
        let text = document(&part(("i64", &["n", "m"]), ("f32", &["n"])), &ANY_ONNX, "model.onnx", 8, 0).unwrap();
        let expected = "backend: \"onnxruntime\"\nplatform: \"onnxruntime_onnx\"\n\
                        default_model_filename: \"model.onnx\"\nmax_batch_size: 8\n\
                        input [\n  {\n    name: \"x\"\n    data_type: TYPE_INT64\n    dims: [ -1 ]\n  }\n]\n\
                        output [\n  {\n    name: \"y\"\n    data_type: TYPE_FP32\n    dims: [ 1 ]\n    \
                        reshape { shape: [ ] }\n  }\n]\ndynamic_batching { }\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_the_server_does_not_take_is_named() {
        let refused = |output: (&str, &[&str]), backend: &Backend| {
            check(&[part(("f32", &["n"]), output)], backend).unwrap_err().to_string()
        };
        let half = refused(("bf16", &["n"]), &ANY_ONNX);
        assert!(half.contains("backend onnxruntime has no tensors of bf16, and `y` is one"), "{half}");
        assert!(refused(("f64", &["n"]), &TENSORRT).contains("backend tensorrt"));
        assert!(refused(("f32", &[]), &ANY_ONNX).contains("no tensor without dimensions"));
        assert!(refused(("seq(f32[2])", &[]), &ANY_ONNX).contains("seq(f32[2])"));
        check(&[part(("f32", &["n"]), ("bf16", &["n"]))], &TENSORRT).unwrap();
    }

    #[test]
    fn an_engine_takes_the_batch_of_all_profiles() {
        let part = part(("i64", &["n", "m"]), ("f32", &["n", "4"]));
        let profile = |most: i64| json!({"symbols": {"n": [1, 1, most], "m": [8, 8, 8]}, "inputs": []});
        let profiles = |most: &[i64]| -> Profiles {
            let all: Vec<_> = most.iter().map(|most| profile(*most)).collect();
            serde_json::from_value(json!({"parts": [{"name": "model", "profiles": all}]})).unwrap()
        };
        let parts = [part];
        assert_eq!(largest_batch(&parts[0], &parts, Some(&profiles(&[16, 2]))), 2);
        let warning = smaller_batch(&parts, &profiles(&[16, 2])).unwrap();
        assert!(warning.contains("max_batch_size of model is 2") && warning.contains("another one takes 16 rows"));
        assert_eq!(smaller_batch(&parts, &profiles(&[16, 16])), None);
        let text = document(&parts[0], &TENSORRT, "model.plan", 2, 2).unwrap();
        let begin = "backend: \"tensorrt\"\nplatform: \"tensorrt_plan\"\ndefault_model_filename: \"model.plan\"\n\
                     max_batch_size: 2\n";
        assert!(text.starts_with(begin), "{text}");
        let instances =
            "instance_group [\n  {\n    count: 1\n    kind: KIND_GPU\n    profile: [ \"0\", \"1\" ]\n  }\n]\n";
        assert!(text.contains(instances), "{text}");
    }

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("a \"b\" \\ \n\t\u{e9}"), "\"a \\\"b\\\" \\\\ \\n\\011\u{e9}\"");
    }
}
