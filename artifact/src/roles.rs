//! What the tensors of an artifact are: the interface of a model, in the form of `planish.json`.

use anyhow::{Context, Result};
use planish_ir::{InputRole, Interface, OutputRole, PartInterface, PartRole};
use planish_onnx::interface;

use super::manifest::{Input, Manifest, PartManifest};

/// The first version of the manifest that says what tensors are.
const FIRST: u32 = 5;

impl Manifest {
    /// What the tensors of the model are.
    #[must_use]
    pub fn interface(&self) -> Interface {
        interface_of(&self.parts)
    }

    /// Infers what the tensors are from their names, for versions that did not say it.
    pub(super) fn infer_roles(&mut self) {
        if self.schema < FIRST {
            self.parts.iter_mut().for_each(PartManifest::infer_roles);
        }
    }
}

/// What the tensors of some parts are.
#[must_use]
pub fn interface_of<'a>(parts: impl IntoIterator<Item = &'a PartManifest>) -> Interface {
    Interface { parts: parts.into_iter().map(|part| (part.name.clone(), part.interface())).collect() }
}

impl PartManifest {
    /// The name of the input of a role, which must be there.
    ///
    /// # Errors
    /// When it is not.
    pub fn named(&self, role: InputRole) -> Result<String> {
        let missing = || format!("{} has no input that is the {role}; compile the model again", self.name);
        Ok(self.input_of(role).with_context(missing)?.value.name.clone())
    }

    /// The name of the output of a role, which must be there.
    ///
    /// # Errors
    /// When it is not.
    pub fn given(&self, role: OutputRole) -> Result<String> {
        let found = self.outputs.iter().find(|output| output.role == role);
        let missing = || format!("{} has no output that is the {role}; compile the model again", self.name);
        Ok(found.with_context(missing)?.value.name.clone())
    }

    /// What its tensors are.
    #[must_use]
    pub fn interface(&self) -> PartInterface {
        PartInterface {
            role: self.role,
            inputs: self.inputs.iter().map(|input| (input.value.name.clone(), input.role)).collect(),
            outputs: self.outputs.iter().map(|output| (output.value.name.clone(), output.role)).collect(),
            symbols: self.symbols.clone(),
        }
    }

    /// The input of a role, where there is one.
    #[must_use]
    pub fn input_of(&self, role: InputRole) -> Option<&Input> {
        self.inputs.iter().find(|input| input.role == role)
    }

    /// Whether it continues from a cache after an encoder.
    #[must_use]
    pub fn is_next_step(&self) -> bool {
        self.role == PartRole::NextStep
    }

    /// Infers what its tensors are from their names and types.
    pub fn infer_roles(&mut self) {
        let inputs: Vec<_> = self.inputs.iter().map(|input| input.value.named()).collect();
        let outputs: Vec<_> = self.outputs.iter().map(|output| output.value.named()).collect();
        let inferred = interface::infer(interface::part_role(&self.name), &inputs, &outputs);
        self.inputs.iter_mut().for_each(|input| input.role = inferred.input(&input.value.name));
        self.outputs.iter_mut().for_each(|output| output.role = inferred.output(&output.value.name));
        (self.role, self.symbols) = (inferred.role, inferred.symbols);
    }
}
