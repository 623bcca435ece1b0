//! From a legalized graph to ONNX files. Each operator becomes one node; weights are evaluated piece
//! by piece, in parallel, straight into their places in the output file.

mod dims;
mod foreign;
mod layout;
mod nodes;
mod oldest;
mod reshape;
mod states;
mod types;
mod update;
mod views;

pub use layout::INLINE_BYTES;
pub use oldest::oldest_opset;
pub use views::is_view;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use planish_ir::handle::Handle;
use planish_ir::weight::WeightError;
use planish_ir::{DType, Def, Graph, Op, Origin, ValueId};

use crate::OPSETS;
use crate::files::NamedWeight;
use crate::proto::{DataType, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto};

pub(crate) use foreign::attribute;
pub(crate) use types::value_info;
pub(crate) use update::changes;

/// Where weights that are plain ranges of weight files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Into the model file, or above [`ExportOptions::external_above`] into another beside it.
    Copy,
    /// Nowhere: the weight files are hard-linked into the folder and the model points into them.
    Link,
    /// As linked, and weights that are views of weight files ([`is_view`]) become nodes on linked ranges: nothing of them is
    /// read or copied. A runtime computes the nodes when it loads the model, or an engine when it is built.
    LinkViews,
}

/// How to write a graph.
#[derive(Clone, Copy)]
pub struct ExportOptions<'a> {
    /// The opset of the default domain.
    pub opset: u32,
    /// Where weights go.
    pub placement: Placement,
    /// If the weights have more bytes than this in all, they go into a file of their own: protobuf ends at 2 GiB. They also go
    /// there if that saves 256 KiB or more, because weights with the same bytes are written once there.
    pub external_above: u64,
    /// The end of that file's name, which is `NAME.onnx` before it: `_data` as Optimum names it.
    pub data_suffix: &'a str,
    /// What is noted in the file, as keys and values.
    pub metadata: &'a [(String, String)],
    /// Called with the number of bytes that were written since the last call; from any thread.
    pub progress: &'a (dyn Fn(u64) + Sync),
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Names of the files in the folder and their sizes in bytes, the model first.
    pub files: Vec<(String, u64)>,
    /// Names of the weight files that were linked.
    pub linked: Vec<String>,
}

/// An operator that has no form in ONNX.
#[derive(Debug, thiserror::Error)]
#[error("`{op}` at `{name}` ({origin}): {reason}")]
pub struct NoForm {
    /// The operator.
    pub op: String,
    /// Its result.
    pub name: String,
    /// Where it came from.
    pub origin: Origin,
    /// What is missing.
    pub reason: String,
}

/// A graph could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The opset is not supported.
    #[error("opset {0} is not supported: choose one from {first} to {last}", first = OPSETS.start(), last = OPSETS.end())]
    Opset(u32),
    /// Operators have no form in ONNX: the graph was not legalized for the target, or operators that pass through are
    /// of another opset.
    #[error("no form in ONNX at opset {opset} for:{}", operators.iter().map(|o| format!("\n  {o}")).collect::<String>())]
    NoForm {
        /// The opset.
        opset: u32,
        /// All of them.
        operators: Vec<NoForm>,
    },
    /// The model file would exceed what protobuf can hold.
    #[error("the model file would take {0} bytes, beyond the 2 GiB that protobuf allows")]
    TooLarge(u64),
    /// A file could not be written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A weight file is on another filesystem than the output.
    #[error("cannot link {} into {}; use --weights copy, or an output folder on the same filesystem", from.display(), to.display())]
    Link {
        /// The weight file.
        from: PathBuf,
        /// The output folder.
        to: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A weight could not be evaluated.
    #[error("weight `{name}` ({origin})")]
    Weight {
        /// The weight's name.
        name: String,
        /// Where it came from.
        origin: Origin,
        /// What went wrong.
        source: WeightError,
    },
}

/// Writes `graph` as `NAME.onnx` into a folder. The same graph gives the same bytes, on any number
/// of threads.
///
/// # Errors
/// When an operator has no form in ONNX, a weight cannot be read, or a file cannot be written.
pub fn export(graph: &Graph, name: &str, folder: &Path, options: &ExportOptions<'_>) -> Result<Exported, ExportError> {
    if !OPSETS.contains(&options.opset) {
        return Err(ExportError::Opset(options.opset));
    }
    let mut emitter = Emitter::new(graph, options.opset);
    let operators: Vec<NoForm> = graph.nodes().filter_map(|(_, node)| nodes::emit(&mut emitter, node).err()).collect();
    if !operators.is_empty() {
        return Err(ExportError::NoForm { opset: options.opset, operators });
    }
    emitter.pass_through();
    let (viewed, leaves) = match options.placement {
        Placement::LinkViews => emitter.views(graph),
        Placement::Copy | Placement::Link => Default::default(),
    };
    let value_info = |name: &str, id: ValueId| types::value_info(name, graph.type_of(id));
    let proto = GraphProto {
        name: graph.name.clone(),
        input: graph.inputs().iter().map(|v| value_info(emitter.name(*v), *v)).collect(),
        output: graph.outputs().iter().map(|o| value_info(&o.name, o.value)).collect(),
        node: emitter.nodes,
        initializer: emitter.initializers,
        ..GraphProto::default()
    };
    let model = ModelProto {
        ir_version: ir_version(options.opset),
        producer_name: "planish".to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        graph: None,
        opset_import: domains(graph, options.opset),
        metadata_props: options
            .metadata
            .iter()
            .map(|(key, value)| StringStringEntryProto { key: key.clone(), value: value.clone() })
            .collect(),
        functions: Vec::new(),
    };
    let weights: Vec<NamedWeight<'_>> = graph
        .weights()
        .map(|(id, value, weight)| NamedWeight {
            name: emitter.names[id.index()].clone(),
            weight,
            origin: &value.origin,
        })
        .filter(|weight| !viewed.contains(&weight.name))
        .chain(leaves.iter().map(|leaf| NamedWeight {
            name: leaf.name.clone(),
            weight: &leaf.weight,
            origin: &leaf.origin,
        }))
        .collect();
    layout::write(&model, proto, &weights, name, folder, options)
}

/// The domains that a graph has operators of, with their versions.
fn domains(graph: &Graph, opset: u32) -> Vec<OperatorSetIdProto> {
    let mut domains = vec![OperatorSetIdProto { domain: String::new(), version: opset.into() }];
    for (_, node) in graph.nodes() {
        let Op::Foreign(foreign) = &node.op else { continue };
        let own = (!foreign.is_standard()).then_some((&foreign.domain.0, foreign.version));
        let inner = foreign.inner.0.iter().map(|inner| (&inner.domain, inner.version));
        for (domain, version) in own.into_iter().chain(inner) {
            // A graph comes with one version of a domain.
            if !domains.iter().any(|d| d.domain == *domain) {
                let version = i64::try_from(version).unwrap_or(i64::MAX);
                domains.push(OperatorSetIdProto { domain: domain.clone(), version });
            }
        }
    }
    domains
}

/// The version of the format that introduced an opset (onnx's `versions.md`).
fn ir_version(opset: u32) -> i64 {
    match opset {
        ..=18 => 8,
        19..=20 => 9,
        21..=22 => 10,
        23 => 11,
        24 => 12,
        25..=27 => 13,
        _ => 14,
    }
}

/// The format's number of an element type.
pub(crate) fn data_type(dtype: DType) -> i32 {
    let data_type = match dtype {
        DType::Bool => DataType::Bool,
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U8 => DataType::Uint8,
        DType::U16 => DataType::Uint16,
        DType::U32 => DataType::Uint32,
        DType::U64 => DataType::Uint64,
        DType::F16 => DataType::Float16,
        DType::Bf16 => DataType::Bfloat16,
        DType::F32 => DataType::Float,
        DType::F64 => DataType::Double,
        DType::I2 => DataType::Int2,
        DType::U2 => DataType::Uint2,
        DType::I4 => DataType::Int4,
        DType::U4 => DataType::Uint4,
        DType::F4E2M1 => DataType::Float4e2m1,
        DType::F6E2M3 => DataType::Float6e2m3,
        DType::F6E3M2 => DataType::Float6e3m2,
        DType::F8E4M3FN => DataType::Float8e4m3fn,
        DType::F8E4M3FNUZ => DataType::Float8e4m3fnuz,
        DType::F8E5M2 => DataType::Float8e5m2,
        DType::F8E5M2FNUZ => DataType::Float8e5m2fnuz,
        DType::F8E8M0 => DataType::Float8e8m0,
        DType::String => DataType::String,
    };
    data_type.into()
}

/// Collects nodes and small constants, and knows what each value is called.
struct Emitter<'g> {
    graph: &'g Graph,
    opset: u32,
    /// By index of the values.
    names: Vec<String>,
    taken: HashSet<String>,
    nodes: Vec<NodeProto>,
    initializers: Vec<crate::proto::TensorProto>,
    dims: dims::Cache,
    states: states::Cache,
    /// What [`reshape::strided`] says.
    strided: HashSet<ValueId>,
}

impl<'g> Emitter<'g> {
    /// Names every value: inputs and outputs by the names they have outside, others by their own
    /// unless one of these has it.
    fn new(graph: &'g Graph, opset: u32) -> Self {
        let mut emitter = Self {
            graph,
            opset,
            names: vec![String::new(); graph.value_count()],
            taken: graph.outputs().iter().map(|o| o.name.clone()).collect(),
            nodes: Vec::new(),
            initializers: Vec::new(),
            dims: dims::Cache::default(),
            states: states::Cache::default(),
            strided: reshape::strided(graph),
        };
        for (_, node) in graph.nodes() {
            if let Op::Foreign(op) = &node.op {
                emitter.taken.extend(foreign::inner_names(op));
            }
        }
        // By invariant V04 the two do not collide, unless an output is an input as it came.
        for &input in graph.inputs() {
            emitter.taken.insert(graph.value(input).name.clone());
            emitter.names[input.index()].clone_from(&graph.value(input).name);
        }
        for output in graph.outputs() {
            let name = &mut emitter.names[output.value.index()];
            if name.is_empty() && matches!(graph.value(output.value).def, Def::Node { .. }) {
                name.clone_from(&output.name);
            }
        }
        for (id, value) in graph.values() {
            if emitter.names[id.index()].is_empty() {
                emitter.names[id.index()] = emitter.fresh(&value.name);
            }
        }
        emitter
    }

    /// A name that nothing has yet.
    fn fresh(&mut self, hint: &str) -> String {
        let mut name = hint.to_owned();
        let mut suffix = 0;
        while !self.taken.insert(name.clone()) {
            suffix += 1;
            name = format!("{hint}_{suffix}");
        }
        name
    }

    fn name(&self, value: ValueId) -> &str {
        &self.names[value.index()]
    }

    /// Gives outputs that are not the result of a node, or the second name of one, a node of their own.
    fn pass_through(&mut self) {
        for output in self.graph.outputs() {
            let source = self.names[output.value.index()].clone();
            if source != output.name {
                self.nodes.push(NodeProto {
                    input: vec![source],
                    output: vec![output.name.clone()],
                    name: output.name.clone(),
                    op_type: "Identity".to_owned(),
                    ..NodeProto::default()
                });
            }
        }
    }
}
