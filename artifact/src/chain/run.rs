//! Running parts one after another.

use std::borrow::Cow;

use anyhow::{Result, anyhow, bail};
use planish_eval::Tensor;
use planish_ir::Interface;
use planish_models::names::{input_in_model, output_in_model};

use super::{Tensors, check, defaults};
use crate::interface_of;
use crate::manifest::{Input, Output, PartManifest};

/// Parts of a model that are run one after another: one alone, or those that make up the model.
pub struct Chain<'a> {
    parts: Vec<&'a PartManifest>,
    interface: Interface,
}

impl<'a> Chain<'a> {
    /// A model as a whole, without a cache.
    pub fn of(parts: &'a [PartManifest]) -> Self {
        Self::new(parts.iter().filter(|part| !part.is_next_step()).collect())
    }

    /// One part alone, if there is one of that name.
    pub(crate) fn alone(parts: &'a [PartManifest], name: &str) -> Option<Self> {
        parts.iter().find(|part| part.name == name).map(|part| Self::new(vec![part]))
    }

    fn new(parts: Vec<&'a PartManifest>) -> Self {
        Self { interface: interface_of(parts.iter().copied()), parts }
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[&'a PartManifest] {
        &self.parts
    }

    /// What has to be given, by the names that it is given under: those of the part where there is
    /// one, else those of the model.
    pub fn inputs(&self) -> Vec<(Cow<'a, str>, &'a Input)> {
        if let [part] = self.parts.as_slice() {
            return part.inputs.iter().map(|input| (input.value.name.as_str().into(), input)).collect();
        }
        let mut inputs: Vec<(Cow<'a, str>, &Input)> = Vec::new();
        let mut given: Vec<Cow<'_, str>> = Vec::new();
        for part in &self.parts {
            for input in &part.inputs {
                let name = input_in_model(&self.interface, &part.name, &input.value.name);
                if !given.contains(&name) && inputs.iter().all(|(other, _)| *other != name) {
                    inputs.push((name.into_owned().into(), input));
                }
            }
            let named = |output: &'a Output| output_in_model(&self.interface, &part.name, &output.value.name);
            given.extend(part.outputs.iter().map(named));
        }
        inputs
    }

    /// What a run gives, by the names of [`inputs`](Self::inputs).
    pub fn outputs(&self) -> Vec<(Cow<'a, str>, &'a Output)> {
        let is_alone = self.parts.len() == 1;
        let named = |part: &PartManifest, output: &'a Output| match is_alone {
            true => Cow::Borrowed(output.value.name.as_str()),
            false => output_in_model(&self.interface, &part.name, &output.value.name).into_owned().into(),
        };
        self.parts.iter().flat_map(|part| part.outputs.iter().map(|output| (named(part, output), output))).collect()
    }

    /// Adds inputs that need not be given: an empty cache, a mask of ones, positions by the mask,
    /// segments of zeros. Returns what was added, in words.
    ///
    /// # Errors
    /// When an input is unknown, or some are missing that have to be given.
    pub fn complete(&self, inputs: &mut Vec<(String, Tensor)>) -> Result<Vec<String>> {
        let wanted = self.inputs();
        let port = |(name, input): &(Cow<'_, str>, &Input)| format!("{name}: {}", input.value.ty);
        let all = || wanted.iter().map(port).collect::<Vec<_>>().join(", ");
        let advice = || match self.parts.len() {
            1 => format!("the inputs are {}", all()),
            _ => format!("the inputs of the whole model are {}; --part runs one part alone", all()),
        };
        if let Some((name, _)) = inputs.iter().find(|(name, _)| wanted.iter().all(|(other, _)| other != name)) {
            bail!("there is no input `{name}`; {}", advice());
        }
        let added = defaults::add(inputs, &wanted);
        let given = |name: &str| inputs.iter().any(|(other, _)| other == name);
        let missing: Vec<String> =
            wanted.iter().filter(|(name, _)| !given(name)).map(|(name, _)| format!("`{name}`")).collect();
        match missing.as_slice() {
            [] => Ok(added),
            [one] => bail!("the input {one} is missing; {}", advice()),
            several => bail!("the inputs {} are missing; {}", several.join(", "), advice()),
        }
    }

    /// Checks that inputs are within what the model takes, `longest` tokens in a row at most.
    ///
    /// # Errors
    /// When one is not.
    pub fn check(&self, inputs: &[(String, Tensor)], longest: Option<usize>) -> Result<()> {
        check::check(inputs, &self.inputs(), &self.parts, longest)
    }

    /// Runs the parts, each by its place with inputs as it names them; what they give, of several
    /// parts by the names that it has in the model.
    ///
    /// # Errors
    /// When a part fails.
    pub(crate) fn run(
        &self,
        inputs: Vec<(String, Tensor)>,
        mut run: impl FnMut(usize, &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>>,
    ) -> Result<Vec<(String, Tensor)>> {
        if self.parts.len() == 1 {
            return run(0, &inputs);
        }
        let mut known = Tensors::new(self.interface.clone());
        known.take_given(&inputs);
        let mut outputs = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            let input = |input: &Input| {
                let name = &input.value.name;
                let tensor = known.input(&part.name, name);
                let tensor = tensor.ok_or_else(|| anyhow!("nothing gives the input `{name}` of {}", part.name))?;
                Ok((name.clone(), tensor.clone()))
            };
            let inputs = part.inputs.iter().map(input).collect::<Result<Vec<_>>>()?;
            let given = run(index, &inputs)?;
            known.take_outputs(&part.name, &given);
            let named = |name: &str| output_in_model(&self.interface, &part.name, name).into_owned();
            outputs.extend(given.into_iter().map(|(name, tensor)| (named(&name), tensor)));
        }
        Ok(outputs)
    }
}
