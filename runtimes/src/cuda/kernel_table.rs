//! The kernels that a device has prepared.

use std::collections::HashMap;

use super::device::KernelId;
use super::source::Source;

/// The kernels of a device, each once, by their sources.
pub(super) struct KernelTable<K> {
    by_source: HashMap<Source, usize>,
    all: Vec<K>,
}

impl<K> Default for KernelTable<K> {
    fn default() -> Self {
        Self { by_source: HashMap::new(), all: Vec::new() }
    }
}

impl<K> KernelTable<K> {
    /// The kernels of sources, in order. `make` makes those that are not there, each once, in its order.
    ///
    /// # Errors
    /// The first that `make` fails at.
    pub(super) fn prepare(
        &mut self,
        sources: &[Source],
        make: impl FnOnce(&[&Source]) -> Vec<Result<K, String>>,
    ) -> Result<Vec<KernelId>, String> {
        let mut new: Vec<&Source> = sources.iter().filter(|source| !self.by_source.contains_key(source)).collect();
        new.sort_by_key(|source| source.text());
        new.dedup();
        for (source, made) in new.iter().zip(make(&new)) {
            let made = made?;
            self.by_source.insert((*source).clone(), self.all.len());
            self.all.push(made);
        }
        Ok(sources.iter().filter_map(|source| self.by_source.get(source)).map(|id| KernelId(*id)).collect())
    }

    /// A kernel.
    ///
    /// # Errors
    /// When it was not prepared.
    pub(super) fn get(&mut self, id: KernelId) -> Result<&mut K, String> {
        self.all.get_mut(id.0).ok_or_else(|| "there is no such kernel".to_owned())
    }
}
