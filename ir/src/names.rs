//! The names of a graph's values, each taken once.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use crate::ValueId;
use crate::graph::Value;
use crate::handle::Arena;

/// A name that is taken: its hash, and the value that has it. The name itself is in the value alone.
#[derive(Clone, Copy)]
struct Entry {
    hash: u64,
    value: ValueId,
}

/// Which names are taken, and by which value.
#[derive(Clone, Default)]
pub(crate) struct Names {
    taken: HashTable<Entry>,
    hasher: DefaultHashBuilder,
    /// The last suffix that was tried for a name that is taken.
    suffixes: HashMap<String, usize>,
}

impl Names {
    /// With room for so many names.
    pub(crate) fn with_capacity(names: usize) -> Self {
        Self { taken: HashTable::with_capacity(names), ..Self::default() }
    }

    /// Enters `value`, which comes next. Returns the name itself where it is free, and else the name with a number
    /// after it, followed by the name itself.
    pub(crate) fn take(
        &mut self,
        name: String,
        value: ValueId,
        values: &Arena<ValueId, Value>,
    ) -> (String, Option<Box<str>>) {
        if self.enter(&name, value, values) {
            return (name, None);
        }
        let mut suffix = self.suffixes.get(&name).copied().unwrap_or(0);
        let unique = loop {
            suffix += 1;
            let unique = format!("{name}_{suffix}");
            if self.enter(&unique, value, values) {
                break unique;
            }
        };
        let given = name.as_str().into();
        self.suffixes.insert(name, suffix);
        (unique, Some(given))
    }

    /// Enters a name where it is free; answers whether it was.
    fn enter(&mut self, name: &str, value: ValueId, values: &Arena<ValueId, Value>) -> bool {
        let hash = self.hasher.hash_one(name);
        let same = |other: &Entry| other.hash == hash && values[other.value].name == name;
        if self.taken.find(hash, same).is_some() {
            return false;
        }
        self.taken.insert_unique(hash, Entry { hash, value }, |entry| entry.hash);
        true
    }

    /// Frees the name of a value.
    pub(crate) fn free(&mut self, value: ValueId, name: &str) {
        if let Ok(entry) = self.taken.find_entry(self.hasher.hash_one(name), |other| other.value == value) {
            entry.remove();
        }
    }
}
