//! The parts of a model with observers, loaded.

use std::collections::BTreeMap;

use anyhow::Result;
use planish_ir::Graph;
use planish_models::Loaded;
use planish_passes::observe::{OBSERVE, Observed, observed};
use planish_passes::{ONNX, Options, PassError, Pipeline, Target};
use planish_runtimes::{Model, ReferenceRuntime, Runtime, Session, SessionOptions};

use super::{CalibrateOn, CalibrateOptions};
use crate::backend::TemporaryFiles;

/// The parts, by their names.
pub(super) struct Sessions {
    pub(super) parts: BTreeMap<String, ObservedPart>,
    /// The files that the sessions read, while they live.
    _files: Option<TemporaryFiles>,
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
        let threads = SessionOptions { threads: options.threads.unwrap_or(0).into() };
        let origins = |graph: &Graph| -> BTreeMap<String, String> {
            graph.values().map(|(_, value)| (value.name.clone(), value.origin.to_string())).collect()
        };
        let mut parts = BTreeMap::new();
        let CalibrateOn::Backend(backend, settings) = &options.on else {
            for part in &source.parts {
                let graph = observing(&part.graph, opset, None)?;
                let session = ReferenceRuntime::default().load(Model::Graph(&graph), threads)?;
                parts.insert(part.name.to_owned(), ObservedPart { session, origins: origins(&graph) });
            }
            return Ok(Self { parts, _files: None });
        };
        let runtime = backend.runtime(settings);
        runtime.check()?;
        let files = TemporaryFiles::create("planish-calibration")?;
        for part in &source.parts {
            let origins = origins(&observing(&part.graph, opset, None)?);
            let graph = observing(&part.graph, opset, Some(backend.target))?;
            let file = files.emit(backend, &graph, part.name, opset)?;
            let session = runtime.load(Model::File(backend.emitter.format(), &file), threads)?;
            parts.insert(part.name.to_owned(), ObservedPart { session, origins });
        }
        Ok(Self { parts, _files: Some(files) })
    }
}

/// A part's graph with observers: the canonical one, or lowered to what a target runs.
pub(super) fn observing(graph: &Graph, opset: u32, target: Option<&'static Target>) -> Result<Graph, PassError> {
    let mut graph = graph.clone();
    let options = Options::new(target.unwrap_or(&ONNX), opset);
    let pipeline = Pipeline::new(options.clone());
    let (mut stages, mut after) = (Vec::new(), |_: &'static str, _: &Graph| {});
    pipeline.raise(&mut graph, &mut stages, &mut after)?;
    (OBSERVE.run)(&mut graph, &options)?;
    if target.is_some() {
        pipeline.lower(&mut graph, &mut stages, &mut after)?;
    }
    Ok(graph)
}

/// The names of the values that a graph observes, in the order in which they are computed.
pub(super) fn values(graph: &Graph) -> Vec<&str> {
    let named = graph.outputs().iter().filter_map(|output| observed(&output.name));
    named.filter(|(kind, _)| *kind == Observed::Min).map(|(_, value)| value).collect()
}
