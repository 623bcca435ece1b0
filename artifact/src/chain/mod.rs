//! How the parts of a model pass their outputs on, as its interface says.

mod check;
mod columns;
mod defaults;
mod run;

pub use columns::{columns, columns_of_coordinates};
use planish_eval::Tensor;
use planish_ir::Interface;
use planish_models::names::{input_in_model, output_in_model};
pub use run::Chain;

/// The tensors by their names in the model.
pub struct Tensors {
    interface: Interface,
    known: Vec<(String, Tensor)>,
}

impl Tensors {
    /// None yet, of a model of this interface.
    pub fn new(interface: Interface) -> Self {
        Self { interface, known: Vec::new() }
    }

    /// Adds inputs by the names that they have in the model, in place of those of the same names.
    pub fn take_given(&mut self, inputs: &[(String, Tensor)]) {
        self.take(inputs.to_vec());
    }

    /// Adds inputs of a part, in place of those of the same names.
    pub fn take_inputs(&mut self, part: &str, inputs: &[(String, Tensor)]) {
        let name = |input: &str| input_in_model(&self.interface, part, input).into_owned();
        self.take(inputs.iter().map(|(input, tensor)| (name(input), tensor.clone())).collect());
    }

    /// Adds what a part gave, in place of what has the same names.
    pub fn take_outputs(&mut self, part: &str, outputs: &[(String, Tensor)]) {
        let name = |output: &str| output_in_model(&self.interface, part, output).into_owned();
        self.take(outputs.iter().map(|(output, tensor)| (name(output), tensor.clone())).collect());
    }

    fn take(&mut self, tensors: Vec<(String, Tensor)>) {
        for (name, tensor) in tensors {
            self.known.retain(|(other, _)| *other != name);
            self.known.push((name, tensor));
        }
    }

    /// What an input of a part is, if it is known.
    pub fn input(&self, part: &str, input: &str) -> Option<&Tensor> {
        let name = input_in_model(&self.interface, part, input);
        self.known.iter().find(|(other, _)| *other == name).map(|(_, tensor)| tensor)
    }
}
