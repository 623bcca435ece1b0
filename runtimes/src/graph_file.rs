//! Reading graphs from files: the text form, with weights in files beside it.
//!
//! A graph file may come from anyone. It names files by the rules for external data of ONNX models ([`Places`]), the
//! ranges of weights must lie inside of these files, and the graph is verified before anything is run. Nothing of the
//! weights is read but by what runs or writes the graph.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use planish_files::{FileError, Kind};
use planish_ir::text::{NoFile, ParseError, parse};
use planish_ir::{Graph, PartInterface, VerifyError, Weight, WeightSource, verify};
use planish_onnx::{Places, WeightFile};

/// A file is not a graph.
#[derive(Debug, thiserror::Error)]
pub enum GraphFileError {
    /// The file cannot be read, or is too large for a text.
    #[error(transparent)]
    File(#[from] FileError),
    /// The text is not a graph, or it refers to a file that cannot be opened.
    #[error("{} is not a graph of planish", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The line and what is wrong with it.
        source: ParseError,
    },
    /// A weight is not in its file.
    #[error(
        "{}: the weight `{weight}` takes bytes {offset} to {end} of {file}, which has {bytes}: it was changed or cut off",
        path.display()
    )]
    Range {
        /// The graph's file.
        path: PathBuf,
        /// The name of the weight.
        weight: String,
        /// The file of weights.
        file: String,
        /// The first byte.
        offset: u64,
        /// The one after the last.
        end: u64,
        /// The size of the file.
        bytes: u64,
    },
    /// The graph breaks an invariant.
    #[error("{} is not a valid graph", path.display())]
    Invariant {
        /// The file.
        path: PathBuf,
        /// The invariant.
        source: VerifyError,
    },
}

/// The graph in a file, whose names say what its inputs and outputs are.
///
/// # Errors
/// When the file cannot be read, is not a graph, or does not fit the files of weights beside it.
pub fn load(path: &Path) -> Result<Graph, GraphFileError> {
    load_with(path, None)
}

/// The same with what its inputs and outputs are, where that is known.
///
/// # Errors
/// As [`load`].
pub fn load_with(path: &Path, interface: Option<&PartInterface>) -> Result<Graph, GraphFileError> {
    let text = planish_files::read_text(path, &Kind::GRAPH)?;
    let places = Places::of(path);
    let opened: RefCell<HashMap<String, Arc<WeightFile>>> = RefCell::default();
    let open = |name: &str| -> Result<Arc<dyn WeightSource>, NoFile> {
        if let Some(file) = opened.borrow().get(name) {
            return Ok(Arc::clone(file) as Arc<dyn WeightSource>);
        }
        let found = places.find(name).map_err(|error| NoFile(error.to_string()))?;
        let unread = |e| NoFile(format!("its external data `{name}` cannot be read: {e}"));
        let file = WeightFile::open(&found).map_err(unread)?;
        let file = Arc::new(file);
        opened.borrow_mut().insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    };
    let mut graph = parse(&text, &open).map_err(|source| GraphFileError::Text { path: path.to_owned(), source })?;
    drop(text);
    match interface {
        Some(interface) => graph.interface = interface.clone(),
        None => planish_onnx::interface::state(&mut graph),
    }
    verify(&graph).map_err(|source| GraphFileError::Invariant { path: path.to_owned(), source })?;
    let sizes: HashMap<*const (), u64> =
        opened.borrow().values().map(|file| (Arc::as_ptr(file).cast(), file.bytes)).collect();
    for (_, value, weight) in graph.weights() {
        let mut beyond = None;
        weight.visit_leaves(&mut |leaf| beyond = beyond.take().or_else(|| outside(leaf, &sizes)));
        if let Some((file, [offset, end, bytes])) = beyond {
            let (path, weight) = (path.to_owned(), value.name.clone());
            return Err(GraphFileError::Range { path, weight, file, offset, end, bytes });
        }
    }
    Ok(graph)
}

/// The file of a range that is not inside of it, with first byte, end, and size of the file.
fn outside(leaf: &Weight, sizes: &HashMap<*const (), u64>) -> Option<(String, [u64; 3])> {
    let range = leaf.as_stored()?;
    let bytes = sizes.get(&Arc::as_ptr(&range.source).cast()).copied().unwrap_or(0);
    // The end fits: it was checked when the weight was made.
    let end = range.offset.saturating_add(leaf.bytes());
    (end > bytes).then(|| (range.source.name().to_owned(), [range.offset, end, bytes]))
}
