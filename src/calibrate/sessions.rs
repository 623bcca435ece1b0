//! The parts of a model with observers, loaded.

use std::collections::BTreeMap;

use anyhow::Result;
use planish_ir::Graph;
use planish_models::Loaded;
use planish_onnx::{EXTERNAL_BYTES, ExportError, ExportOptions, Placement};
use planish_passes::observe::{OBSERVE, Observed, observed};
use planish_passes::{Options, PassError, Pipeline, Target};
use planish_runtimes::{Model, Reference, Runtime, Session, SessionOptions, ort::OnnxRuntime};

use super::{CalibrateOptions, CalibrationRuntime};
use crate::draft::Draft;

/// What the name of the temporary folder has.
const FOLDER: &str = "planish-calibration";

/// The parts, by their names.
pub(super) struct Sessions {
    pub(super) parts: BTreeMap<String, ObservedPart>,
    /// The files that the sessions read, while they live.
    _files: Option<Draft>,
}

/// A part that is ready to run.
pub(super) struct ObservedPart {
    pub(super) session: Box<dyn Session>,
    /// Where the observed values came from.
    pub(super) origins: BTreeMap<String, String>,
}

impl Sessions {
    /// Loads every part of a model.
    pub(super) fn open(source: &Loaded, opset: u32, options: &CalibrateOptions) -> Result<Self> {
        let threads = options.threads.unwrap_or(0).into();
        let session_options = SessionOptions { threads, ..SessionOptions::compiled() };
        let origins = |graph: &Graph| -> BTreeMap<String, String> {
            graph.values().map(|(_, value)| (value.name.clone(), value.origin.to_string())).collect()
        };
        let mut parts = BTreeMap::new();
        let CalibrationRuntime::Ort(library) = &options.runtime else {
            for part in &source.parts {
                let graph = observing(&part.graph, opset, false)?;
                let session = Reference.load(Model::Graph(&graph), &session_options)?;
                parts.insert(part.name.to_owned(), ObservedPart { session, origins: origins(&graph) });
            }
            return Ok(Self { parts, _files: None });
        };
        let runtime = OnnxRuntime::new(library.clone());
        runtime.check()?;
        let draft = Draft::temporary(FOLDER)?;
        for part in &source.parts {
            let origins = origins(&observing(&part.graph, opset, false)?);
            let graph = observing(&part.graph, opset, true)?;
            export(&graph, part.name, &draft, opset)?;
            let file = draft.folder().join(format!("{}.onnx", part.name));
            let session = runtime.load(Model::Onnx(&file), &session_options)?;
            parts.insert(part.name.to_owned(), ObservedPart { session, origins });
        }
        Ok(Self { parts, _files: Some(draft) })
    }
}

/// Writes a graph into a temporary folder; it shares the weight files where the filesystem can.
pub(crate) fn export(graph: &Graph, name: &str, draft: &Draft, opset: u32) -> Result<(), ExportError> {
    let progress = |_| {};
    let written = |placement| {
        let options = ExportOptions {
            metadata: &[],
            opset,
            placement,
            external_above: EXTERNAL_BYTES,
            data_suffix: "_data",
            progress: &progress,
        };
        planish_onnx::export(graph, name, draft.folder(), &options).map(drop)
    };
    match written(Placement::Link) {
        Err(ExportError::Link { .. }) => written(Placement::Copy),
        done => done,
    }
}

/// A part's graph with observers: the canonical one, or lowered to what ONNX Runtime runs.
pub(super) fn observing(graph: &Graph, opset: u32, lowered: bool) -> Result<Graph, PassError> {
    let mut graph = graph.clone();
    let options = Options::new(if lowered { Target::Ort } else { Target::Onnx }, opset);
    let pipeline = Pipeline::new(options.clone());
    let (mut stages, mut after) = (Vec::new(), |_: &'static str, _: &Graph| {});
    pipeline.raise(&mut graph, &mut stages, &mut after)?;
    (OBSERVE.run)(&mut graph, &options)?;
    if lowered {
        pipeline.lower(&mut graph, &mut stages, &mut after)?;
    }
    Ok(graph)
}

/// The names of the values that a graph observes, in the order in which they are computed.
pub(super) fn values(graph: &Graph) -> Vec<&str> {
    let named = graph.outputs().iter().filter_map(|output| observed(&output.name));
    named.filter(|(kind, _)| *kind == Observed::Min).map(|(_, value)| value).collect()
}
