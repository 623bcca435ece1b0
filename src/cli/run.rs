//! `planish run`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use planish_artifact::chain::Chain;
use planish_artifact::{Artifact, RunOptions};
use planish_data::inputs::tensor_file;
use planish_data::{is_picture, is_recording, media_inputs, read_inputs};
use planish_eval::Tensor;

use super::threads::ThreadArguments;
use super::{RunOn, Usage, note, overwrites, print, terminal};

/// Run an artifact on inputs from a file of tensors, or on pictures or recordings
///
/// Pictures and recordings become the inputs that preprocessor_config.json of the artifact says. Those of a folder are the rows of one batch, in
/// the order of their names.
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
    /// The file with the inputs (.safetensors or .npz), under the names of the model's inputs; or a picture or a
    /// recording, or a folder of these
    #[arg(long, value_name = "PATH")]
    inputs: PathBuf,
    /// The safetensors file to write the outputs to [default: print the type, the shape and the range of each
    /// output]
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    /// Run one part of an encoder-decoder: encoder_model, decoder_model, decoder_with_past_model
    #[arg(long, value_name = "NAME")]
    part: Option<String>,
    #[command(flatten)]
    threads: ThreadArguments,
    #[command(flatten)]
    run_on: RunOn,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let outputs = [("--outputs", arguments.outputs.as_deref())];
    overwrites::check(outputs, [arguments.artifact.as_path()], [arguments.inputs.as_path()])?;
    if let Some(path) = arguments.outputs.as_ref().filter(|path| path.extension().is_some_and(|of| of == "npz")) {
        let path = path.display();
        return Err(Usage(format!(
            "--outputs {path}: tensors are written as safetensors; end the name in .safetensors"
        ))
        .into());
    }
    let artifact = Artifact::open(&arguments.artifact)?;
    let (threads, settings) = arguments.threads.settle(&arguments.run_on, &artifact);
    let options = RunOptions { part: arguments.part, threads, settings };
    let path = arguments.inputs.as_path();
    let inputs = match is_picture(path) || is_recording(path) || path.is_dir() {
        true => {
            let read = media_inputs(&arguments.inputs, &Chain::of(&artifact.manifest.parts), &artifact.folder);
            let (inputs, names) = read.with_context(|| format!("cannot run on {}", arguments.inputs.display()))?;
            note(&format!("rows of the batch: {}", names.join(", ")));
            inputs
        }
        false => read_inputs(&arguments.inputs)?,
    };
    let outputs = artifact.run(inputs, &options, &mut note);
    let outputs = outputs.with_context(|| format!("cannot run on {}", arguments.inputs.display()))?;
    match &arguments.outputs {
        Some(path) => tensor_file::write(path, &outputs),
        None => print(&outputs.iter().map(|(name, tensor)| line(name, tensor)).collect::<String>()),
    }
}

/// What an output looks like.
fn line(name: &str, tensor: &Tensor) -> String {
    let (mut numbers, mut nan, mut sum) = (0usize, 0usize, 0.0);
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    tensor.visit_f64(|number| {
        if number.is_nan() {
            nan += 1;
        } else {
            (numbers, sum, least, most) = (numbers + 1, sum + number, least.min(number), most.max(number));
        }
    });
    let mut text = format!("{}: {}{:?}", terminal::name(name), tensor.dtype(), tensor.shape());
    if numbers > 0 {
        text += &format!(", from {least:.6} to {most:.6}, mean {:.6}", sum / numbers as f64);
    }
    if nan > 0 {
        text += &format!(", {nan} NaN");
    }
    text + "\n"
}
