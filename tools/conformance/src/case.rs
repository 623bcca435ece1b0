//! One model with its inputs and expected results.

use std::fmt;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use planish_eval::{Interpreter, Tensor};
use planish_ir::DType;
use planish_onnx::{EXTERNAL_BYTES, ExportOptions, OPSETS, Placement, oldest_opset};
use planish_passes::{LAST_WITH_KERNELS, ORT, Options, Pipeline};
use planish_runtimes::ort::{OnnxRuntime, OrtOptions};
use planish_runtimes::{Model, OnnxReader, Runtime, SessionOptions};
use safetensors::{Dtype, SafeTensors};

/// How a model is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// The file as it is, on ONNX Runtime.
    Alone,
    /// Imported, compiled and exported, on ONNX Runtime.
    Compiled,
    /// Imported, on the reference interpreter.
    Interpreted,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Alone => "ONNX Runtime by itself",
            Way::Compiled => "import, passes, export, ONNX Runtime (of what it passes by itself)",
            Way::Interpreted => "import, reference interpreter",
        })
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With the expected results.
    Passed,
    /// With others, or an error: what kind of.
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => f.write_str("passed"),
            Outcome::Failed(reason) => f.write_str(reason),
        }
    }
}

/// Operands and expected results, in the order of the model.
struct Data {
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

/// A model with its data.
pub(crate) struct Case {
    model: PathBuf,
    sets: Vec<Data>,
    /// Why the data cannot be used.
    unusable: Option<String>,
}

impl Case {
    /// Reads the data of a folder.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let mut case = Self { model: folder.join("model.onnx"), sets: Vec::new(), unusable: None };
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
        files.retain(|path| path.extension().is_some_and(|e| e == "safetensors"));
        files.sort();
        for file in files {
            match read(&file) {
                Ok(data) => case.sets.push(data),
                Err(e) => case.unusable = Some(format!("data: {e}")),
            }
        }
        Ok(case)
    }

    /// How the case ends each way.
    pub(crate) fn outcomes(&self, tolerance: f64) -> Vec<(Way, Outcome)> {
        if let Some(reason) = &self.unusable {
            return vec![(Way::Alone, Outcome::Failed(reason.clone()))];
        }
        let attempt = |way: Way, run: &dyn Fn() -> Result<Vec<Vec<Tensor>>>| {
            let outcome = match catch_unwind(AssertUnwindSafe(run)) {
                Err(_) => Outcome::Failed("PANIC".to_owned()),
                Ok(Err(e)) => Outcome::Failed(kind_of(&format!("{e:#}"))),
                Ok(Ok(results)) => match self.compare(&results, tolerance) {
                    Ok(()) => Outcome::Passed,
                    Err(reason) => Outcome::Failed(reason),
                },
            };
            (way, outcome)
        };
        vec![
            attempt(Way::Alone, &|| self.on_onnx_runtime(&self.model)),
            attempt(Way::Compiled, &|| self.compiled()),
            attempt(Way::Interpreted, &|| self.interpreted()),
        ]
    }

    fn on_onnx_runtime(&self, model: &Path) -> Result<Vec<Vec<Tensor>>> {
        let runtime = OnnxRuntime::new(None).options(OrtOptions { spin: false, ..OrtOptions::compiled() });
        let mut session = runtime.load(Model::onnx(model), SessionOptions { threads: 1 }).context("load")?;
        let names: Vec<String> = session.inputs().iter().map(|p| p.name.clone()).collect();
        let results = self.sets.iter().map(|data| {
            let given: Vec<(&str, Tensor)> =
                names.iter().map(String::as_str).zip(data.inputs.iter().cloned()).collect();
            Ok(session.run(&given).context("run")?.into_iter().map(|(_, t)| t).collect())
        });
        results.collect()
    }

    fn compiled(&self) -> Result<Vec<Vec<Tensor>>> {
        let imported = planish_onnx::import(&self.model).context("import")?;
        let mut graph = imported.graph;
        // As `planish compile` chooses it for graphs with operators that pass through.
        let written = imported.opset.clamp(*OPSETS.start(), *OPSETS.end());
        let opset = oldest_opset(&graph, written.min(LAST_WITH_KERNELS), written);
        let options = Options::new(&ORT, opset);
        Pipeline::new(options).run(&mut graph, &mut |_, _| {}).context("passes")?;
        let folder = tempfile::tempdir()?;
        let export = ExportOptions {
            opset,
            placement: Placement::Copy,
            external_above: EXTERNAL_BYTES,
            data_suffix: "_data",
            metadata: &[],
            progress: &|_| {},
        };
        planish_onnx::export(&graph, "model", folder.path(), &export).context("export")?;
        self.on_onnx_runtime(&folder.path().join("model.onnx"))
    }

    fn interpreted(&self) -> Result<Vec<Vec<Tensor>>> {
        let graph = planish_onnx::import(&self.model).context("import")?.graph;
        let names: Vec<&str> = graph.inputs().iter().map(|v| graph.value(*v).name.as_str()).collect();
        let reader = OnnxReader::default();
        let interpreter = Interpreter { reader: Some(&reader), ..Interpreter::default() };
        let results = self.sets.iter().map(|data| {
            let given: Vec<(&str, Tensor)> = names.iter().copied().zip(data.inputs.iter().cloned()).collect();
            let results = interpreter.run(&graph, &given).context("evaluate")?;
            Ok(results.into_iter().map(|(_, t)| t).collect())
        });
        results.collect()
    }

    fn compare(&self, results: &[Vec<Tensor>], tolerance: f64) -> Result<(), String> {
        for (data, results) in self.sets.iter().zip(results) {
            if data.outputs.len() != results.len() {
                return Err("there are more or fewer results".to_owned());
            }
            for (expected, result) in data.outputs.iter().zip(results) {
                if expected.dtype() != result.dtype() || expected.shape() != result.shape() {
                    return Err("a result has another type or shape".to_owned());
                }
                // Two neighbours of bfloat16 are 1/128 apart.
                let tolerance = if expected.dtype() == DType::Bf16 { tolerance.max(1.0 / 128.0) } else { tolerance };
                let (expected, result) = (expected.to_f64(), result.to_f64());
                let largest = expected.iter().filter(|v| v.is_finite()).fold(1.0f64, |m, v| m.max(v.abs()));
                let same =
                    |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance * largest;
                if !expected.iter().zip(&result).all(same) {
                    return Err("a result differs".to_owned());
                }
            }
        }
        Ok(())
    }
}

/// An error without what is particular to the case: names but of operators, numbers, places in ONNX Runtime's
/// sources.
fn kind_of(message: &str) -> String {
    const LONGEST: usize = 120;
    let mut out = String::new();
    let mut quoted = false;
    for word in message.split_whitespace() {
        let ends = word.trim_end_matches([',', ':', ';', ')', '.']).ends_with('`');
        // Operators are named like this.
        let inside = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let name = inside.len() > 1 && inside.chars().all(|c| c.is_ascii_alphanumeric());
        let operator = ends && word.starts_with('`') && name && inside.starts_with(char::is_uppercase);
        let particular = !operator
            && (quoted || word.contains(['`', '/', '<', '\'']) || word.contains(|c: char| c.is_ascii_digit()));
        quoted = if quoted { !ends } else { word.trim_start_matches('(').starts_with('`') && !ends };
        match particular {
            true if out.ends_with('…') => {}
            true => out.push_str(" …"),
            false => {
                out.push(' ');
                out.push_str(word);
            }
        }
        if out.len() > LONGEST {
            break;
        }
    }
    out.trim_start().to_owned()
}

fn read(path: &Path) -> Result<Data> {
    let bytes = fs::read(path)?;
    let file = SafeTensors::deserialize(&bytes)?;
    let side = |side: &str| -> Result<Vec<Tensor>> {
        let mut tensors = Vec::new();
        while let Ok(view) = file.tensor(&format!("{side}.{}", tensors.len())) {
            let dtype = dtype(view.dtype()).ok_or_else(|| anyhow!("elements of {:?}", view.dtype()))?;
            let tensor = Tensor::from_bytes(dtype, view.shape().to_vec(), view.data());
            tensors.push(tensor.ok_or_else(|| anyhow!("a malformed tensor"))?);
        }
        Ok(tensors)
    };
    Ok(Data { inputs: side("in")?, outputs: side("out")? })
}

fn dtype(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::U8 => DType::U8,
        Dtype::U16 => DType::U16,
        Dtype::U32 => DType::U32,
        Dtype::U64 => DType::U64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        _ => return None,
    })
}
