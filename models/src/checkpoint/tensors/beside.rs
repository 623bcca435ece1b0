//! What checkpoints of multimodal models have beside their text models.

use std::collections::BTreeMap;

use super::Tensors;

impl<'a> Tensors<'a> {
    /// The modules beside the text model of a multimodal model, with how many tensors they have.
    pub(crate) fn beside_text(&self) -> BTreeMap<&'a str, usize> {
        let mut found = BTreeMap::new();
        for name in self.checkpoint.tensor_names().filter(|name| !self.is_of_text(name)) {
            let module = name.strip_prefix("model.").unwrap_or(name);
            *found.entry(module.split('.').next().unwrap_or(module)).or_default() += 1;
        }
        found
    }

    /// Whether a tensor is of the model that is built, and not beside the text model of a multimodal model.
    pub(super) fn is_of_text(&self, name: &str) -> bool {
        let is_used = |prefix: &&String| self.used.iter().any(|used| used.starts_with(prefix.as_str()));
        // What is around the text model is around its towers too.
        let is_inner = |prefix: &&String| {
            let mut others = self.prefixes.iter().filter(|other| other != prefix).filter(is_used);
            !others.any(|other| other.starts_with(prefix.as_str()))
        };
        let is_known = |prefix: &&String| is_used(prefix) && is_inner(prefix);
        let has_bases =
            !self.sees && self.checkpoint.whole().is_some() && self.prefixes.iter().any(|prefix| is_known(&prefix));
        !has_bases
            || self.used.contains(name)
            || self.prefixes.iter().filter(is_known).any(|prefix| name.starts_with(prefix.as_str()))
    }
}
