//! `planish run`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use planish_eval::Tensor;

use super::{RunOn, RuntimeArguments, note, print};
use crate::artifact::{Artifact, RunOptions};
use crate::inputs::tensor_file;

/// Run an artifact on inputs from a safetensors file
///
/// If the file lacks an input, planish fills it in as for a prompt without padding, where that is possible: the
/// cache is empty, attention_mask is all ones, position_ids counts the tokens, and token_type_ids is all zeros. A
/// note on standard error names the inputs that were filled in.
///
/// An encoder-decoder takes input_ids, attention_mask and decoder_input_ids. planish runs encoder_model and then
/// decoder_model, without a cache. The outputs are encoder_last_hidden_state, logits and present.*. With --part,
/// planish runs one part alone, on the inputs of that part.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The artifact's folder
    artifact: PathBuf,
    /// The safetensors file with the inputs, under the names of the model's inputs
    #[arg(long, value_name = "FILE")]
    inputs: PathBuf,
    /// The safetensors file to write the outputs to [default: print the type, the shape and the range of each
    /// output]
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    /// Run one part of an encoder-decoder: encoder_model, decoder_model, decoder_with_past_model
    #[arg(long, value_name = "NAME")]
    part: Option<String>,
    /// The number of threads of the runtime [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    #[command(flatten)]
    run_on: RunOn,
    #[command(flatten)]
    runtime: RuntimeArguments,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let artifact = Artifact::open(&arguments.artifact)?;
    let options = RunOptions {
        part: arguments.part,
        threads: arguments.threads.unwrap_or(0).into(),
        settings: arguments.run_on.settings(&arguments.runtime),
    };
    let inputs = tensor_file::read(&arguments.inputs)?;
    let outputs = artifact.run(inputs, &options, &mut note);
    let outputs = outputs.with_context(|| format!("cannot run on {}", arguments.inputs.display()))?;
    match &arguments.outputs {
        Some(path) => tensor_file::write(path, &outputs),
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
