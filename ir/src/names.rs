//! The names of a graph's values, each taken once.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use crate::graph::Value;
use crate::handle::Arena;
use crate::ValueId;

/// Which names are taken, and by which value. The names themselves stand in the values alone.
#[derive(Clone, Default)]
pub(crate) struct Names {
    taken: HashTable<ValueId>,
    hasher: RandomState,
    /// The last suffix that was tried for a name that is taken.
    suffixes: HashMap<String, usize>,
}

impl Names {
    /// With room for so many names.
    pub(crate) fn with_capacity(names: usize) -> Self {
        Self { taken: HashTable::with_capacity(names), ..Self::default() }
    }

    /// The name itself where it is free, and else with a number behind it, followed by the name itself.
    pub(crate) fn unique(&mut self, name: String, values: &Arena<ValueId, Value>) -> (String, Option<Box<str>>) {
        if self.is_free(&name, values) {
            return (name, None);
        }
        let mut suffix = self.suffixes.get(&name).copied().unwrap_or(0);
        let unique = loop {
            suffix += 1;
            let unique = format!("{name}_{suffix}");
            if self.is_free(&unique, values) {
                break unique;
            }
        };
        let given = name.as_str().into();
        self.suffixes.insert(name, suffix);
        (unique, Some(given))
    }

    fn is_free(&self, name: &str, values: &Arena<ValueId, Value>) -> bool {
        self.taken.find(self.hasher.hash_one(name), |&other| values[other].name == name).is_none()
    }

    /// Enters the name of a value, which is free.
    pub(crate) fn insert(&mut self, value: ValueId, values: &Arena<ValueId, Value>) {
        let hash = |value: &ValueId| self.hasher.hash_one(values[*value].name.as_str());
        self.taken.insert_unique(hash(&value), value, hash);
    }

    /// Frees the name of a value.
    pub(crate) fn remove(&mut self, value: ValueId, values: &Arena<ValueId, Value>) {
        let hash = self.hasher.hash_one(values[value].name.as_str());
        if let Ok(entry) = self.taken.find_entry(hash, |&other| other == value) {
            entry.remove();
        }
    }
}
