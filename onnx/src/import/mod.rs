//! From an ONNX graph to the IR.
//!
//! Weights stay where they are. What computes shapes is followed symbolically and leaves no node
//! after; operators that the IR has become those; others pass through as `foreign`, with types of their results that
//! the operator's schema gives or the graph declares, as far as these go.

pub(crate) mod bodies;
mod cut;
mod error;
mod foreign;
mod functions;
mod infer;
mod known;
mod legacy;
mod names;
mod nodes;
mod order;
mod part;
mod places;
mod scope;
mod shapes;
mod skeleton;
mod symbols;
mod tensors;
mod types;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use planish_ir::Graph;

pub use error::ImportError;
pub use part::{KnownOperand, PartError, read_body, read_operator};
pub use places::{PlaceError, Places};
use serde::{Deserialize, Serialize};
pub use skeleton::{WeightFile, weights_outside};
pub(crate) use tensors::dtype;

use crate::proto::{GraphProto, ModelProto, OperatorSetIdProto};

/// The opsets of the default domain whose operators are known. What is written in a newer one is read as of the last.
pub const OPSETS: std::ops::RangeInclusive<i64> = 1..=NEWEST;

const NEWEST: i64 = 28;

/// The newest version of the format that is known.
const IR_VERSION: i64 = 14;

/// The first version of the format in which a constant need not be an input: one that is can be given another value.
const OVERRIDABLE: i64 = 4;

/// An imported graph.
pub struct Imported {
    /// Verified.
    pub graph: Graph,
    /// The opset of the default domain that it is written in, or the newest known where that is newer.
    pub opset: u32,
    /// What its makers noted in the file, as keys and values.
    pub metadata: Vec<(String, String)>,
    /// What was ignored or assumed, a line each.
    pub warnings: Vec<String>,
}

/// What is taken from a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImportOptions {
    /// The shapes that inputs get, by name; a size of -1 keeps what is there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub shapes: BTreeMap<String, Vec<i64>>,
    /// The values that become the inputs, in order, by their names in the file; empty for the graph's own, without
    /// those that the file has a value for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    /// The values that become the outputs, in order; empty for the graph's own. What these do not need is
    /// not looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
}

impl ImportOptions {
    /// Whether a file is taken as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Reads a graph from a file as it is. See [`import_with`].
///
/// # Errors
/// Those of [`import_with`].
pub fn import(path: &Path) -> Result<Imported, ImportError> {
    import_with(path, &ImportOptions::default())
}

/// Reads a graph, or a part of it, from a file. Weights are not read but by what they are ranges of. External data is
/// looked for in the folder of the file, and where the file is a link also in the folder of what it leads to; links in
/// there are followed into these folders, and in a cache of the Hugging Face hub into the rest of the repository.
///
/// # Errors
/// When the file cannot be read, breaks the format, or has nodes that no graph here can have: these
/// are all named. When the options name what the graph does not have.
pub fn import_with(path: &Path, options: &ImportOptions) -> Result<Imported, ImportError> {
    let file =
        skeleton::WeightFile::open(path).map_err(|source| ImportError::Read { path: path.to_owned(), source })?;
    let model = skeleton::read(&file)?;
    let malformed = |message: String| ImportError::File { path: path.to_owned(), message };
    let Versions { opsets, opset, warnings: newer } = versions(&model).map_err(malformed)?;
    let mut graph =
        model.graph.ok_or_else(|| malformed("it contains no graph; it may not be an ONNX model".to_owned()))?;
    functions::check(&model.functions, &model.opset_import).map_err(malformed)?;
    functions::inline(&mut graph, &model.functions).map_err(malformed)?;
    order::check(&mut graph, &|_| false).map_err(malformed)?;
    cut::keep(&mut graph, &options.inputs);
    shapes::fix(&mut graph, &options.shapes).map_err(malformed)?;
    cut::outputs(&mut graph, &options.outputs).map_err(malformed)?;
    let mut scope = scope::Scope::new(&graph, opsets, path, Arc::new(file));
    scope.warnings.extend(newer);
    scope.interface(&graph).map_err(malformed)?;
    if model.ir_version >= OVERRIDABLE {
        scope.warnings.extend(cut::defaults(&graph));
    }
    for node in &graph.node {
        nodes::import(&mut scope, node);
    }
    if !scope.problems.is_empty() {
        return Err(ImportError::Nodes { path: path.to_owned(), nodes: scope.problems });
    }
    let given = cut::find(&mut scope, &graph, &options.inputs).map_err(malformed)?;
    let (mut graph, warnings) = scope.finish(&graph, &given).map_err(malformed)?;
    crate::interface::state(&mut graph);
    planish_ir::verify(&graph).map_err(|e| malformed(e.to_string()))?;
    let metadata = model.metadata_props.into_iter().map(|entry| (entry.key, entry.value)).collect();
    Ok(Imported { graph, opset, metadata, warnings })
}

/// The first results of the nodes of a file's own graph, by the names of the nodes, which runtimes report. The names of
/// imported values are those of results. No weight is read.
///
/// # Errors
/// When the file cannot be read.
pub fn node_results(path: &Path) -> Result<BTreeMap<String, String>, ImportError> {
    let file =
        skeleton::WeightFile::open(path).map_err(|source| ImportError::Read { path: path.to_owned(), source })?;
    let nodes = skeleton::read(&file)?.graph.map(|graph| graph.node).unwrap_or_default();
    let named = nodes.into_iter().filter(|node| !node.name.is_empty());
    Ok(named.filter_map(|node| Some((node.name, node.output.into_iter().next()?))).collect())
}

/// What a file says of versions.
struct Versions {
    /// Those of all domains that its nodes are read by.
    opsets: Vec<OperatorSetIdProto>,
    /// That of the default domain.
    opset: u32,
    /// What is newer than known.
    warnings: Vec<String>,
}

fn versions(model: &ModelProto) -> Result<Versions, String> {
    if model.opset_import.is_empty() {
        return Err("it does not say which operator sets it uses; it may be truncated".to_owned());
    }
    let mut warnings = Vec::new();
    if model.ir_version > IR_VERSION {
        warnings.push(format!(
            "version {} of the format is newer than {IR_VERSION}, the newest known: what it adds to the format is not \
             read",
            model.ir_version
        ));
    }
    let mut opsets = model.opset_import.clone();
    // A graph of other domains alone has none.
    let mut opset = i64::from(crate::DEFAULT_OPSET);
    if let Some(default) = opsets.iter_mut().find(|o| is_default(&o.domain)) {
        if default.version < 1 {
            return Err(format!("it is written in opset {}, and the first one is 1", default.version));
        }
        if default.version > NEWEST {
            warnings.push(format!(
                "it is written in opset {}, which is newer than {NEWEST}, the newest known: its operators are read as \
                 opset {NEWEST} has them",
                default.version
            ));
            default.version = NEWEST;
        }
        opset = default.version;
    }
    // It is in a range of small numbers.
    Ok(Versions { opsets, opset: u32::try_from(opset).unwrap_or_default(), warnings })
}

/// Whether a domain is that of ONNX's own operators.
pub(crate) fn is_default(domain: &str) -> bool {
    domain.is_empty() || domain == "ai.onnx"
}

/// The domain of ONNX Runtime's own operators.
pub(crate) const CONTRIB: &str = "com.microsoft";

/// The name of a graph, where it has one.
fn name_of(graph: &GraphProto, path: &Path) -> String {
    if graph.name.is_empty() {
        return path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    }
    graph.name.clone()
}
