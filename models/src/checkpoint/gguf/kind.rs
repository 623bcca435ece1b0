//! What an architecture says of the GGUF files that hold its models.

use super::config::Conversion;
use super::metadata::{Metadata, Value as Stored};

/// A module of a layer: its name in the file, and in the checkpoint. With the ending `.weight` or `.bias`, both are names of tensors.
pub(crate) type Pair = (&'static str, &'static str);

/// An architecture of GGUF files.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Its name in `general.architecture`.
    pub(crate) name: &'static str,
    /// The class of the transformers library.
    pub(crate) class: &'static str,
    /// The names of its tensors.
    pub(crate) names: Names,
    /// Whether the rows of queries and keys are pairs that turn together, not halves of a head.
    pub(crate) pairs: bool,
    /// Whether normalization weights include the 1 that the transformers library adds.
    pub(crate) whole_norms: bool,
    /// Sets the keys of config.json, but those of every model.
    pub(crate) configure: fn(&mut Conversion<'_>) -> Result<(), String>,
}

/// The names of an architecture's tensors.
#[derive(Debug)]
pub(crate) struct Names {
    /// Tensors outside of layers.
    pub(crate) model: &'static [Pair],
    /// What modules of layers begin with in the checkpoint.
    pub(crate) layers: &'static str,
    /// Modules of layers.
    pub(crate) layer: &'static [Pair],
}

impl Names {
    /// The checkpoint's name of a tensor of the file, if it has one.
    pub(super) fn checkpoint(&self, stored: &str) -> Option<String> {
        let of = |pairs: &[Pair], tensor: &str| {
            let find = |wanted: &str| pairs.iter().find(|(own, _)| *own == wanted).map(|(_, name)| *name);
            let of_module = |(module, kind): (&str, &str)| {
                let name = find(module).filter(|_| matches!(kind, "weight" | "bias"))?;
                Some(format!("{name}.{kind}"))
            };
            find(tensor).map(str::to_owned).or_else(|| of_module(tensor.rsplit_once('.')?))
        };
        match stored.strip_prefix("blk.") {
            Some(rest) => {
                let (layer, tensor) = rest.split_once('.')?;
                Some(format!("{}{}.{}", self.layers, layer.parse::<u32>().ok()?, of(self.layer, tensor)?))
            }
            None => of(self.model, stored),
        }
    }
}

impl Kind {
    /// The architecture of a file, one of `kinds`.
    ///
    /// # Errors
    /// When it is missing or not read.
    pub(super) fn of(metadata: &Metadata, kinds: &[&'static Self]) -> Result<&'static Self, String> {
        let known = || kinds.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
        let kind = metadata.get("general.type");
        if let Some(Stored::Text(kind)) = kind.filter(|kind| **kind != Stored::Text("model".to_owned())) {
            return Err(format!("`general.type` is \"{kind}\": only files of whole models are read"));
        }
        match metadata.get("general.architecture") {
            Some(Stored::Text(name)) => kinds.iter().copied().find(|kind| kind.name == name).ok_or_else(|| {
                format!(
                    "`general.architecture` is \"{name}\", which is not supported in GGUF files: known are {}",
                    known()
                )
            }),
            Some(_) => Err("`general.architecture` is not a text".to_owned()),
            None => {
                Err(format!("`general.architecture` is missing: it says which architecture to build ({})", known()))
            }
        }
    }
}
