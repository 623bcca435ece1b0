//! `planish run`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use planish_eval::Tensor;
use planish_ir::DType;
use planish_runtimes::{Model, Runtime, SessionOptions, ort::OnnxRuntime};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::{RuntimeArguments, print};
use crate::artifact::model;
use crate::files;
use crate::manifest::{Manifest, Part};
use crate::verify::named;

/// Run an artifact on inputs from a safetensors file
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The artifact's folder
    artifact: PathBuf,
    /// The inputs, named as the model names them
    #[arg(long, value_name = "FILE")]
    inputs: PathBuf,
    /// The safetensors file to write outputs to [default: print what they look like]
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    /// Threads of the runtime [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    #[command(flatten)]
    runtime: RuntimeArguments,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let manifest = Manifest::read(&arguments.artifact)?;
    let (file, part) = model(&arguments.artifact, &manifest)?;
    let inputs = read(&arguments.inputs)?;
    check_inputs(&inputs, part, manifest.max_sequence_length)
        .with_context(|| format!("cannot run on {}", arguments.inputs.display()))?;
    let options = SessionOptions { threads: arguments.threads.unwrap_or(0).into(), ..SessionOptions::compiled() };
    let mut session = OnnxRuntime::new(arguments.runtime.ort_lib).load(Model::Onnx(&file), &options)?;
    let outputs = session.run(&named(&inputs))?;
    match &arguments.outputs {
        Some(path) => write(path, &outputs),
        None => print(&outputs.iter().map(|(name, tensor)| line(name, tensor)).collect::<String>()),
    }
}

/// What an output looks like.
fn line(name: &str, tensor: &Tensor) -> String {
    let mut numbers = tensor.to_f64();
    let all = numbers.len();
    numbers.retain(|number| !number.is_nan());
    let mut text = format!("{name}: {}{:?}", tensor.dtype(), tensor.shape());
    if !numbers.is_empty() {
        let (least, most) = numbers.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), v| (l.min(*v), m.max(*v)));
        let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
        text += &format!(", from {least:.6} to {most:.6}, mean {mean:.6}");
    }
    if numbers.len() < all {
        text += &format!(", {} NaN", all - numbers.len());
    }
    text + "\n"
}

/// Checks that inputs are within what the model takes: a runtime would say less, or read past the
/// end of a table.
fn check_inputs(inputs: &[(String, Tensor)], part: &Part, longest: Option<usize>) -> Result<()> {
    let known = |name: &String| part.inputs.iter().find(|input| input.port.name == *name);
    let mut sizes: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (name, tensor, input) in inputs.iter().filter_map(|(name, tensor)| Some((name, tensor, known(name)?))) {
        let longest = longest.unwrap_or(usize::MAX);
        let sequence = |(symbol, size): (&String, &usize)| symbol == "sequence_length" && *size > longest;
        if input.port.shape.iter().zip(tensor.shape()).any(sequence) {
            bail!("`{name}` has the shape {:?}: the model takes at most {longest} tokens in a row", tensor.shape());
        }
        for (symbol, &size) in input.port.shape.iter().zip(tensor.shape()).filter(|(s, _)| s.parse::<usize>().is_err())
        {
            let (first, of) = *sizes.entry(symbol).or_insert((size, name));
            if first != size {
                bail!("`{symbol}` is {first} in `{of}` and {size} in `{name}`: inputs of one run have the same");
            }
        }
        let Some(end) = input.end.filter(|_| tensor.dtype().is_integer()) else { continue };
        // Integers beyond 2^53 are rounded, and stay far out of range.
        let outside = |id: &f64| *id < 0.0 || *id >= end as f64;
        let ids = tensor.to_f64();
        if let Some(at) = ids.iter().position(outside) {
            let (position, last) = (position(at, tensor.shape()), end - 1);
            bail!("`{name}` is {} at {position:?}: the model takes 0 to {last} there", ids[at]);
        }
    }
    Ok(())
}

/// The indices of the element at `offset` in a tensor.
fn position(offset: usize, shape: &[usize]) -> Vec<usize> {
    let mut rest = offset;
    let mut indices: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&size| {
            let index = rest % size.max(1);
            rest /= size.max(1);
            index
        })
        .collect();
    indices.reverse();
    indices
}

/// The element types that both sides have.
const DTYPES: &[(Dtype, DType)] = &[
    (Dtype::BOOL, DType::Bool),
    (Dtype::I8, DType::I8),
    (Dtype::I16, DType::I16),
    (Dtype::I32, DType::I32),
    (Dtype::I64, DType::I64),
    (Dtype::U8, DType::U8),
    (Dtype::U16, DType::U16),
    (Dtype::U32, DType::U32),
    (Dtype::U64, DType::U64),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::Bf16),
    (Dtype::F32, DType::F32),
    (Dtype::F64, DType::F64),
];

/// The tensors of a safetensors file.
fn read(path: &Path) -> Result<Vec<(String, Tensor)>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|e| anyhow!("{} is no safetensors file: {e}", path.display()))?;
    let one = |(name, view): (String, TensorView<'_>)| {
        let dtype = DTYPES.iter().find(|(theirs, _)| *theirs == view.dtype()).map(|(_, ours)| *ours);
        let tensor = dtype.and_then(|dtype| Tensor::from_bytes(dtype, view.shape().to_vec(), view.data()));
        match tensor {
            Some(tensor) => Ok((name, tensor)),
            None => bail!("the tensor `{name}` of {} has the unsupported type {:?}", path.display(), view.dtype()),
        }
    };
    let mut tensors = file.tensors().into_iter().map(one).collect::<Result<Vec<_>>>()?;
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(tensors)
}

/// Writes tensors as a safetensors file.
fn write(path: &Path, tensors: &[(String, Tensor)]) -> Result<()> {
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|(_, t)| t.to_bytes()).collect();
    let mut views = BTreeMap::new();
    for ((name, tensor), bytes) in tensors.iter().zip(&bytes) {
        let dtype = DTYPES.iter().find(|(_, ours)| *ours == tensor.dtype()).map(|(theirs, _)| *theirs);
        let dtype = dtype.ok_or_else(|| anyhow!("output `{name}` has the type {}", tensor.dtype()))?;
        views.insert(name.as_str(), TensorView::new(dtype, tensor.shape().to_vec(), bytes)?);
    }
    let file = safetensors::tensor::serialize(views, None)?;
    files::write(path, &file)
}
