//! What adapters add to tensors.

use planish_ir::Weight;

use super::Tensors;
use crate::ModelError;
use crate::load::some_of;

impl Tensors<'_> {
    /// A weight with what adapters add to it, by its name as stored.
    pub(super) fn adapt(&mut self, name: &str, weight: Weight) -> Result<Weight, ModelError> {
        let Some(module) = name.strip_suffix(".weight") else { return Ok(weight) };
        let bare = |module: &str| {
            let without = self.bases.iter().find_map(|base| module.strip_prefix(base.as_str()));
            without.unwrap_or(module).to_owned()
        };
        let wanted = [bare(module), bare(&self.renamed(module))];
        let mut sum = weight;
        let mut found = Vec::new();
        for (at, adapter) in self.checkpoint.adapters().iter().enumerate() {
            for own in adapter.modules().filter(|own| wanted.contains(&bare(own))) {
                if let Some(changed) = adapter.apply(own, &sum) {
                    sum = changed?;
                    found.push((at, own.to_owned()));
                }
            }
        }
        if !found.is_empty() && (self.checkpoint.gguf().is_some() || self.quantized_module(name).is_some()) {
            self.lost_codes.push((name.to_owned(), "an adapter is added to it"));
        }
        self.adapted.extend(found);
        Ok(sum)
    }

    /// Refuses adapters with modules and tensors that are not taken.
    pub(crate) fn check_adapters(&self) -> Result<(), ModelError> {
        let is_lost = |name: &&str| self.checkpoint.is_replaced(name) && !self.used.contains(*name);
        let lost = self.checkpoint.tensor_names().find(is_lost);
        if let Some((name, (file, _))) = lost.and_then(|name| Some((name, self.checkpoint.tensor(name)?))) {
            let message = "the adapter replaces this tensor, but the graph does not have it".to_owned();
            return Err(ModelError::Tensor { name: name.to_owned(), path: file.path().to_owned(), message });
        }
        for (at, adapter) in self.checkpoint.adapters().iter().enumerate() {
            let lost: Vec<&str> =
                adapter.modules().filter(|module| !self.adapted.contains(&(at, (*module).to_owned()))).collect();
            if !lost.is_empty() {
                let message =
                    format!("the adapter changes {}, but the graph has no separate weight for it", some_of(&lost));
                return Err(adapter.error(&message));
            }
        }
        Ok(())
    }
}
