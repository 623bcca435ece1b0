//! The errors of the import.

use std::io;
use std::path::PathBuf;

/// An ONNX file cannot be read, is malformed, or contains something that a graph of planish cannot.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file breaks the format.
    #[error("{}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        message: String,
    },
    /// Nodes that cannot be imported, all of them.
    #[error("{}: {} cannot be imported:{}", path.display(), if nodes.len() == 1 { "1 node".to_owned() } else { format!("{} nodes", nodes.len()) }, nodes.iter().map(|n| format!("\n  {n}")).collect::<String>())]
    Nodes {
        /// The file.
        path: PathBuf,
        /// A line each: operator, node, reason.
        nodes: Vec<String>,
    },
}
