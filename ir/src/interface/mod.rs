//! What the tensors of a model are: the role of each part, of its inputs and outputs, and of the symbols in their shapes.
//!
//! Names are what a package of files gives to tensors; roles are what code decides by. The architectures state the roles
//! where they add inputs and outputs, the import of ONNX graphs infers them from names and types, and the manifest of an
//! artifact keeps them.

mod cache;
mod feeds;
mod roles;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use cache::{CacheEntry, CacheKind, CacheTensor};
pub use roles::{InputRole, OutputRole, PartRole, SymbolRole, UnknownRole};

use crate::Symbol;

/// What the tensors of one graph are, by their names in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartInterface {
    /// What the part does in the model.
    pub role: PartRole,
    /// The roles of inputs.
    pub inputs: BTreeMap<String, InputRole>,
    /// The roles of outputs.
    pub outputs: BTreeMap<String, OutputRole>,
    /// What the symbols in the shapes of inputs count.
    pub symbols: BTreeMap<Symbol, SymbolRole>,
}

impl PartInterface {
    /// Whether nothing is stated.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The role of an input.
    #[must_use]
    pub fn input(&self, name: &str) -> InputRole {
        self.inputs.get(name).copied().unwrap_or_default()
    }

    /// The role of an output.
    #[must_use]
    pub fn output(&self, name: &str) -> OutputRole {
        self.outputs.get(name).copied().unwrap_or_default()
    }

    /// What a symbol counts.
    #[must_use]
    pub fn symbol(&self, symbol: &str) -> SymbolRole {
        self.symbols.get(symbol).copied().unwrap_or_default()
    }

    /// The name of the input of a role, where there is one.
    #[must_use]
    pub fn input_of(&self, role: InputRole) -> Option<&str> {
        self.inputs.iter().find(|(_, other)| **other == role).map(|(name, _)| name.as_str())
    }

    /// The name of the output of a role, where there is one.
    #[must_use]
    pub fn output_of(&self, role: OutputRole) -> Option<&str> {
        self.outputs.iter().find(|(_, other)| **other == role).map(|(name, _)| name.as_str())
    }

    /// Whether the part continues from a cache.
    #[must_use]
    pub fn has_cache(&self) -> bool {
        self.inputs.values().any(|role| role.cache().is_some())
    }

    /// The output that gives a cache entry back.
    #[must_use]
    pub fn present(&self, entry: CacheEntry) -> Option<&str> {
        self.output_of(OutputRole::Cache(entry))
    }
}

/// What the tensors of a model are: its parts by name, in the order in which a program runs them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Names and interfaces.
    pub parts: Vec<(String, PartInterface)>,
}

impl Interface {
    /// The part of a name.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<&PartInterface> {
        self.parts.iter().find(|(other, _)| other == name).map(|(_, part)| part)
    }
}

pub use feeds::Feed;
