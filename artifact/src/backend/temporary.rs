//! Graphs in temporary files, for verification and calibration on a runtime that does not load graphs from memory.

use std::path::PathBuf;

use anyhow::{Context, Result};
use planish_ir::Graph;
use planish_onnx::{ExportError, Placement};

use super::{Backend, EmitOptions, Emitted};
use crate::draft::Draft;

/// A folder in the system's temporary one, which goes when this is dropped.
pub struct TemporaryFiles(Draft);

impl TemporaryFiles {
    /// # Errors
    /// When the folder cannot be made.
    pub fn create(name: &str) -> Result<Self> {
        Draft::temporary(name).map(Self)
    }

    /// Writes a graph; the files share the weight files of its source where the filesystem can. Returns the one to load.
    ///
    /// # Errors
    /// When the graph has what such a file cannot have, or something cannot be read or written.
    pub fn emit(&self, backend: &Backend, graph: &Graph, name: &str, opset: u32) -> Result<PathBuf> {
        let emit = |placement| {
            let how = EmitOptions { opset, placement, data_suffix: "_data", metadata: &[], progress: &|_| {} };
            backend.emitter.emit(graph, name, self.0.folder(), &how)
        };
        let linked = emit(Placement::Link);
        let is_no_link = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(ExportError::Link { .. }));
        let Emitted { files, .. } = match linked {
            Err(error) if is_no_link(&error) => emit(Placement::Copy)?,
            done => done?,
        };
        let (file, _) = files.first().context("no file was written")?;
        Ok(self.0.folder().join(file))
    }
}
