//! The origin of a value or a weight, which diagnostics print.

use std::fmt;
use std::sync::Arc;

/// Where a value or weight came from. Cheap to clone; passes hand it on to what they make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Nothing is known, e.g. a graph parsed from text.
    #[default]
    Unknown,
    /// A tensor of a weight file.
    Tensor {
        /// File name, e.g. `model.safetensors`.
        file: Arc<str>,
        /// Tensor name as stored.
        name: Arc<str>,
    },
    /// A module of the checkpoint's architecture, e.g. `encoder.layer.3.attention`.
    Module(Arc<str>),
    /// A key of `config.json`.
    Config(Arc<str>),
    /// A node of an ONNX graph.
    Node {
        /// File name, e.g. `model.onnx`.
        file: Arc<str>,
        /// Node name as stored.
        name: Arc<str>,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Unknown => f.write_str("unknown origin"),
            Origin::Tensor { file, name } => write!(f, "tensor `{name}` of {file}"),
            Origin::Module(path) => write!(f, "module `{path}`"),
            Origin::Config(key) => write!(f, "config key `{key}`"),
            Origin::Node { file, name } => write!(f, "node `{name}` of {file}"),
        }
    }
}
