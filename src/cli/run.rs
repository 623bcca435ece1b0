//! `planish run`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use planish_eval::Tensor;

use super::{RunOn, RuntimeArguments, note, print};
use crate::artifact::{Artifact, RunOptions};
use crate::inputs::tensor_file;

/// Run an artifact on inputs from a safetensors file
///
/// What is not in the file is taken for a prompt of full rows where it can be: the cache is empty,
/// attention_mask all ones, position_ids count its tokens, token_type_ids are zeros. A note on
/// standard error says so.
///
/// An encoder-decoder is run as a whole on input_ids, attention_mask and decoder_input_ids: its
/// encoder_model, then its decoder_model without a cache; it gives encoder_last_hidden_state,
/// logits and present.*. With --part one of its models is run alone, on inputs as that names them.
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
    /// Run one model of several alone: encoder_model, decoder_model, decoder_with_past_model
    #[arg(long, value_name = "NAME")]
    part: Option<String>,
    /// Threads of the runtime [default: one a core]
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
