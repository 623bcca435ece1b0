//! From graphs and weights to the files of an artifact.

use std::path::Path;

use anyhow::Result;
use planish_ir::{Graph, Weight};
use planish_onnx::{EXTERNAL_BYTES, ExportOptions, ImportOptions, Placement};
use planish_runtimes::Format;

/// Writes graphs as files that runtimes load.
pub trait Emitter: Sync {
    /// The kind of file that it writes for a runtime to load.
    fn format(&self) -> Format;

    /// Writes a part of a model into a folder.
    ///
    /// # Errors
    /// When the graph has what such a file cannot have, or something cannot be read or written.
    fn emit(&self, graph: &Graph, part: &str, folder: &Path, options: &EmitOptions<'_>) -> Result<Emitted>;

    /// The graph of a file that it wrote, with shapes fixed or a part cut out.
    ///
    /// # Errors
    /// When the file cannot be read, or does not have what the options name.
    fn read(&self, file: &Path, options: &ImportOptions) -> Result<Graph>;

    /// Whether a weight is copied, because of the form that the graph needs it in, where weights are linked.
    fn copies(&self, weight: &Weight) -> bool;
}

/// How a part of a model is written.
pub struct EmitOptions<'a> {
    /// The ONNX opset that the graph was lowered for.
    pub opset: u32,
    /// Where weights go.
    pub placement: Placement,
    /// What follows the name of a graph's file in the name of the file of its weights, where these have one of their own.
    pub data_suffix: &'a str,
    /// What the makers of the model noted in its file: keys and values.
    pub metadata: &'a [(String, String)],
    /// Sees the bytes of weights that were written, as they are.
    pub progress: &'a (dyn Fn(u64) + Sync),
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emitted {
    /// The files with their bytes: the one that a runtime loads, then those that it points to.
    pub files: Vec<(String, u64)>,
    /// The files of weights of the source that they point into.
    pub linked: Vec<String>,
}

/// Writes ONNX files.
pub struct OnnxEmitter {
    /// Weights of more bytes than this in all go into a file of their own.
    pub external_above: u64,
}

impl OnnxEmitter {
    /// Weights are in the ONNX file, as far as its format allows.
    pub const WHOLE: Self = Self { external_above: EXTERNAL_BYTES };
    /// Weights are beside the ONNX file. TensorRT's parser maps them into memory, where it copies those in the file twice.
    pub const MAPPED: Self = Self { external_above: 1 << 20 };
}

impl Emitter for OnnxEmitter {
    fn format(&self) -> Format {
        Format::ONNX
    }

    fn emit(&self, graph: &Graph, part: &str, folder: &Path, options: &EmitOptions<'_>) -> Result<Emitted> {
        let options = ExportOptions {
            opset: options.opset,
            placement: options.placement,
            external_above: self.external_above,
            data_suffix: options.data_suffix,
            metadata: options.metadata,
            progress: options.progress,
        };
        let written = planish_onnx::export(graph, part, folder, &options)?;
        Ok(Emitted { files: written.files, linked: written.linked })
    }

    fn read(&self, file: &Path, options: &ImportOptions) -> Result<Graph> {
        Ok(planish_onnx::import_with(file, options)?.graph)
    }

    fn copies(&self, weight: &Weight) -> bool {
        weight.as_stored().is_none()
    }
}
