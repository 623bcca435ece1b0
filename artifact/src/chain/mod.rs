//! How the parts of an encoder-decoder pass their outputs on. Parts are named as Optimum names
//! them, the tensors of the model as a whole as the transformers library does.

mod check;
mod columns;
mod defaults;
mod run;

use std::borrow::Cow;

pub use columns::columns;
use planish_eval::Tensor;
pub use run::Chain;

/// The part that reads the tokens to encode.
pub const ENCODER: &str = "encoder_model";
/// The part that continues from a cache of keys and values.
pub const DECODER_WITH_PAST: &str = "decoder_with_past_model";

/// What the names of inputs begin with that are keys and values of earlier positions.
pub const CACHE: &str = "past_key_values.";
/// What the names of outputs begin with that are keys and values of all positions.
pub const PRESENT: &str = "present.";

/// What an input of a part is to the model: an input of it, or what an earlier part gives.
pub fn input_of_model<'a>(part: &str, input: &'a str) -> Cow<'a, str> {
    match (input, input.strip_prefix(CACHE)) {
        _ if part == ENCODER => input.into(),
        ("input_ids", _) => "decoder_input_ids".into(),
        ("encoder_attention_mask", _) => "attention_mask".into(),
        ("encoder_hidden_states", _) => "encoder_last_hidden_state".into(),
        (_, Some(rest)) => format!("{PRESENT}{rest}").into(),
        _ => input.into(),
    }
}

/// What an output of a part is to the model.
pub fn output_of_model<'a>(part: &str, output: &'a str) -> &'a str {
    match (part, output) {
        (ENCODER, "last_hidden_state") => "encoder_last_hidden_state",
        _ => output,
    }
}

/// The tensors by their names in the model.
#[derive(Default)]
pub struct Tensors(Vec<(String, Tensor)>);

impl Tensors {
    /// Adds inputs of a part, in place of those of the same names.
    pub fn take_inputs(&mut self, part: &str, inputs: &[(String, Tensor)]) {
        self.take(inputs.iter().map(|(name, tensor)| (input_of_model(part, name).into_owned(), tensor.clone())));
    }

    /// Adds what a part gave, in place of what has the same names.
    pub fn take_outputs(&mut self, part: &str, outputs: &[(String, Tensor)]) {
        self.take(outputs.iter().map(|(name, tensor)| (output_of_model(part, name).to_owned(), tensor.clone())));
    }

    fn take(&mut self, tensors: impl Iterator<Item = (String, Tensor)>) {
        for (name, tensor) in tensors {
            self.0.retain(|(other, _)| *other != name);
            self.0.push((name, tensor));
        }
    }

    /// What an input of a part is, if it is known.
    pub fn input(&self, part: &str, input: &str) -> Option<&Tensor> {
        let name = input_of_model(part, input);
        self.0.iter().find(|(other, _)| *other == name).map(|(_, tensor)| tensor)
    }
}
