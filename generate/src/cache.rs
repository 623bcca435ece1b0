//! Keys and values of what a decoder has read, where the runtime keeps them.

use anyhow::{Context, Result, anyhow, ensure};
use planish_artifact::manifest::PartManifest;
use planish_eval::Tensor;
use planish_ir::Dim;
use planish_ir::interface::CacheKind;
use planish_runtimes::{Port, RuntimeValue};

use super::model::output;

/// Keys and values of layers, each [rows, heads, columns, size]: what one step gives and the next
/// takes.
pub(super) struct Cache {
    entries: Vec<Entry>,
    values: Vec<RuntimeValue>,
}

/// A key or a value of a layer.
struct Entry {
    /// The input.
    past: Port,
    /// The name of the output that gives the next one.
    present: String,
}

impl Cache {
    /// The cache among the inputs of a part, of those kinds that are wanted; empty. `giver` is the part whose outputs the first
    /// of them are.
    pub(super) fn new(
        inputs: &[Port],
        part: &PartManifest,
        giver: &PartManifest,
        wanted: impl Fn(CacheKind) -> bool,
    ) -> Self {
        let (interface, giver) = (part.interface(), giver.interface());
        let entry = |port: &Port| {
            let cached = interface.input(&port.name).cache().filter(|cached| wanted(cached.kind))?;
            let present = giver.present(cached).or_else(|| interface.present(cached))?;
            Some(Entry { past: port.clone(), present: present.to_owned() })
        };
        Self { entries: inputs.iter().filter_map(entry).collect(), values: Vec::new() }
    }

    /// Forgets everything; then it has rows of no columns.
    pub(super) fn clear(&mut self, rows: usize) -> Result<()> {
        let empty = |entry: &Entry| {
            // Open dimensions are rows, then columns.
            let open = |axis: usize| [rows, 0][usize::from(axis != 0)];
            let known = |dim: &Dim| dim.as_constant().and_then(|size| usize::try_from(size).ok());
            let sizes = entry.past.ty.shape.iter().enumerate();
            let shape = sizes.map(|(axis, dim)| known(dim).unwrap_or_else(|| open(axis))).collect();
            let tensor = Tensor::zeros(entry.past.ty.dtype, shape);
            Ok(tensor.ok_or_else(|| anyhow!("the input `{}` is too large", entry.past))?.into())
        };
        self.values = self.entries.iter().map(empty).collect::<Result<_>>()?;
        Ok(())
    }

    /// Whether it has states that no shorter text has: of convolutions and recurrences, which keep sums of what was read.
    pub(super) fn has_states(part: &PartManifest) -> bool {
        part.inputs.iter().filter_map(|input| input.role.cache()).any(|entry| entry.kind.is_state())
    }

    /// The names of the outputs that give what a step takes.
    pub(super) fn outputs(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.present.as_str())
    }

    /// Takes values in the order of the outputs.
    pub(super) fn put(&mut self, values: Vec<RuntimeValue>) {
        self.values = values;
    }

    /// What a step takes.
    pub(super) fn inputs(&self) -> impl Iterator<Item = (&str, &RuntimeValue)> {
        self.entries.iter().map(|entry| entry.past.name.as_str()).zip(&self.values)
    }

    /// Takes what a step gave.
    pub(super) fn update(&mut self, outputs: &mut Vec<(String, RuntimeValue)>) -> Result<()> {
        self.values = self.entries.iter().map(|entry| output(outputs, &entry.present)).collect::<Result<_>>()?;
        Ok(())
    }

    /// Forgets all but the first columns.
    pub(super) fn keep_columns(&mut self, columns: usize) -> Result<()> {
        for (value, entry) in self.values.iter().zip(&self.entries) {
            let shape = value.shape();
            ensure!(
                shape.get(2).is_some_and(|keys| *keys >= columns),
                "`{}` is {shape:?}, and {columns} keys are expected along its third dimension; compile the model again",
                entry.present
            );
        }
        let kept: Option<Vec<RuntimeValue>> = self.values.drain(..).map(|value| value.first_keys(columns)).collect();
        self.values = kept.context(
            "the runtime keeps keys and values in memory that cannot be shortened; generate without --set prompt_lookup_num_tokens",
        )?;
        Ok(())
    }

    /// Keeps some of the rows, in this order and each as often as it is named.
    pub(super) fn take_rows(&mut self, rows: &[usize]) -> Result<()> {
        for (value, entry) in self.values.iter_mut().zip(&self.entries) {
            *value =
                value.take_rows(rows).ok_or_else(|| anyhow!("`{}` does not have the rows {rows:?}", entry.present))?;
        }
        Ok(())
    }
}
