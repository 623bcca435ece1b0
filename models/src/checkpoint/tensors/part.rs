//! The tensors of models that are parts of models.

use std::collections::BTreeSet;

use super::Tensors;
use crate::Architecture;

impl Tensors<'_> {
    /// Those of a part of the model that is a model of an architecture of its own, whose names begin with that of a module.
    pub(crate) fn of_part(&mut self, architecture: &Architecture, module: &str) -> Self {
        let names = [architecture.base].into_iter().chain(architecture.other_bases.iter().copied());
        let bases = names.map(|base| format!("{module}.{base}.")).chain([format!("{module}.")]).collect();
        let mut part = Self::empty(self.checkpoint, self.quantization.take());
        part.set_bases(bases, architecture.renamed);
        part
    }

    /// Takes over which tensors a part has used. Those of the part that begin or end as one of `known` count as used.
    pub(crate) fn end_part(&mut self, part: Tensors<'_>, module: &str, known: &[&str]) {
        let unused: BTreeSet<&str> = part.unused(known).into_iter().collect();
        let is_of = |name: &&str| name.strip_prefix(module).is_some_and(|rest| rest.starts_with('.'));
        let ended = self.checkpoint.tensor_names().filter(is_of).filter(|name| !unused.contains(name));
        self.used.extend(ended.map(str::to_owned));
        self.used.extend(part.used);
        self.lost_codes.extend(part.lost_codes);
        self.adapted.extend(part.adapted);
        self.quantization = part.quantization;
    }
}
