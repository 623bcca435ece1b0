//! What of a graph keeps another type than the rest.

use planish_ir::{Graph, Origin, Value};
use regex::Regex;

/// What keeps another type than the rest. Of the entries that name something the last one counts.
#[derive(Clone, Debug, Default)]
pub struct Exceptions(pub Vec<Exception>);

/// An entry of [`Exceptions`].
#[derive(Clone, Debug)]
pub struct Exception {
    /// What it is of.
    pub of: Named,
    /// The type that this keeps.
    pub ty: KeptType,
    /// The reason that a plan gives for it.
    pub reason: String,
}

/// What an exception is of.
#[derive(Clone, Debug)]
pub enum Named {
    /// The layer that scores tokens, and the table of tokens where both are one weight.
    Head,
    /// The table of tokens.
    Table,
    /// What has a name or an origin that matches: operators and weights.
    Names(Regex),
}

/// The type that something keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptType {
    /// float32, also where the rest is in half precision.
    Single,
    /// The floating-point type of the rest.
    Float,
    /// Codes of 8 bits.
    Eight,
    /// Codes of 4 bits.
    Four,
}

impl KeptType {
    /// Whether it is a floating-point type.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, Self::Single | Self::Float)
    }
}

impl Exceptions {
    /// The entry that counts for something: the last one that names it.
    pub(crate) fn last(&self, names: impl Fn(&Named) -> bool) -> Option<&Exception> {
        self.0.iter().rev().find(|exception| names(&exception.of))
    }

    /// The same, if it keeps a float.
    pub(crate) fn float(&self, names: impl Fn(&Named) -> bool) -> Option<&Exception> {
        self.last(names).filter(|exception| exception.ty.is_float())
    }

    /// For each entry, whether it names one of these.
    pub(crate) fn matched<T>(&self, all: &[T], names: impl Fn(&Named, &T) -> bool) -> Vec<bool> {
        self.0.iter().map(|exception| all.iter().any(|one| names(&exception.of, one))).collect()
    }
}

impl Named {
    /// Whether it is the table of tokens.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self, Self::Table)
    }

    /// Whether it is of names, and one of these values has such a name or origin.
    pub(crate) fn any<'g>(&self, mut values: impl Iterator<Item = &'g Value>) -> bool {
        match self {
            Self::Names(pattern) => values.any(|value| is_named(value, pattern)),
            Self::Head | Self::Table => false,
        }
    }
}

/// Whether the name of a value matches, or that of the tensor, the node or the module that it came from.
fn is_named(value: &Value, pattern: &Regex) -> bool {
    let origin = match &value.origin {
        Origin::Tensor { name, .. } | Origin::Node { name, .. } => Some(name),
        Origin::Module(path) => Some(path),
        Origin::Config(_) | Origin::Unknown => None,
    };
    pattern.is_match(&value.name) || origin.is_some_and(|name| pattern.is_match(name))
}

/// The names of the operators and weights of a graph, by their results.
pub fn names(graph: &Graph) -> impl Iterator<Item = &str> {
    let results = graph.nodes().flat_map(|(_, node)| &node.outputs).map(|output| graph.value(*output));
    results.chain(graph.weights().map(|(_, value, _)| value)).map(|value| value.name.as_str())
}

#[cfg(test)]
mod tests {
    use planish_ir::text::{no_files, parse};
    use planish_ir::{DType, Weight};

    use super::*;

    fn names(pattern: &str, ty: KeptType) -> Exception {
        Exception { of: Named::Names(Regex::new(pattern).unwrap()), ty, reason: pattern.to_owned() }
    }

    #[test]
    fn the_file_of_a_tensor_is_no_name() {
        let matches = |origin: &Origin, pattern: &str| {
            let mut graph = Graph::new("g");
            let weight = graph.add_weight("w", Weight::scalar(DType::F32, 1.0), origin.clone());
            names(pattern, KeptType::Float).of.any([graph.value(weight)].into_iter())
        };
        let tensor = Origin::Tensor { file: "model.safetensors".into(), name: "layer.weight".into() };
        assert!(matches(&tensor, "^layer") && matches(&tensor, "^w$"));
        assert!(matches(&Origin::Module("layer.0".into()), "^layer"));
        assert!(!matches(&tensor, "safetensors") && !matches(&tensor, "^tensor"));
        assert!(!matches(&Origin::Unknown, "unknown"));
    }

    #[test]
    fn the_last_entry_that_names_something_counts() {
        let graph =
            parse("graph \"g\" {\n  input %x: f32[n]\n  %ab = neg(%x) : f32[n]\n  output y = %ab\n}", &no_files);
        let graph = graph.unwrap();
        let of_graph = |named: &Named| named.any(graph.nodes().map(|(_, node)| graph.value(node.outputs[0])));
        let head = Exception { of: Named::Head, ty: KeptType::Four, reason: "head".to_owned() };
        let of = |entries: Vec<Exception>| Exceptions(entries);
        let last = |exceptions: &Exceptions| exceptions.last(of_graph).map(|exception| exception.ty);
        let both = of(vec![names("a", KeptType::Float), names("b", KeptType::Eight), head.clone()]);
        assert_eq!(last(&both), Some(KeptType::Eight));
        assert!(both.float(of_graph).is_none(), "codes take it out of the floats");
        let reversed = of(vec![names("b", KeptType::Eight), names("a", KeptType::Float), names("c", KeptType::Four)]);
        assert_eq!(last(&reversed), Some(KeptType::Float));
        assert_eq!(reversed.matched(&[()], |named, ()| of_graph(named)), [true, true, false]);
        assert_eq!(last(&of(vec![head])), None);
    }
}
