//! `planish run`.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use planish_eval::Tensor;
use planish_runtimes::SessionOptions;

use super::{RuntimeArguments, note, print};
use crate::artifact::Artifact;
use crate::artifact::manifest::Manifest;
use crate::chain::Chain;
use crate::inputs::tensor_file;
use crate::verify::{named, note_elsewhere, runtime};

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
    runtime: RuntimeArguments,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let artifact = Artifact::open(&arguments.artifact)?;
    let manifest = &artifact.manifest;
    let chain = match &arguments.part {
        None => Chain::of(&manifest.parts),
        Some(name) => Chain::alone(&manifest.parts, name).ok_or_else(|| no_part(&arguments, manifest, name))?,
    };
    // Before the inputs are read.
    chain.parts().iter().try_for_each(|part| artifact.file(part).map(drop))?;
    let mut inputs = tensor_file::read(&arguments.inputs)?;
    let context = || format!("cannot run on {}", arguments.inputs.display());
    let added = chain.complete(&mut inputs).with_context(context)?;
    if !added.is_empty() {
        note(&format!("inputs that were not given: {}", added.join(", ")));
    }
    chain.check(&inputs, manifest.max_sequence_length).with_context(context)?;
    let options = SessionOptions { threads: arguments.threads.unwrap_or(0).into() };
    let runtime = runtime(&artifact, &arguments.runtime.settings(), &mut note);
    let outputs = chain.run(inputs, |part, inputs| {
        let mut session = artifact.load(chain.parts()[part], runtime.as_ref(), options)?;
        note_elsewhere(session.as_ref(), &mut note);
        Ok(session.run(&named(session.as_ref(), inputs))?)
    })?;
    match &arguments.outputs {
        Some(path) => tensor_file::write(path, &outputs),
        None => print(&outputs.iter().map(|(name, tensor)| line(name, tensor)).collect::<String>()),
    }
}

/// The error on a part that an artifact does not have.
fn no_part(arguments: &Arguments, manifest: &Manifest, name: &str) -> anyhow::Error {
    let artifact = arguments.artifact.display();
    match manifest.parts.as_slice() {
        [_] => anyhow!("{artifact} has no part `{name}`: it has one model only; leave out --part"),
        parts => {
            let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
            anyhow!("{artifact} has no part `{name}`; it has {}", names.join(", "))
        }
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
