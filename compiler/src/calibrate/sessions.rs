//! The parts of a model with observers, loaded.

use std::collections::{BTreeMap, HashSet};

use anyhow::Result;
use planish_artifact::backend::{RuntimeSettings, TemporaryFiles};
use planish_ir::{Graph, ValueId};
use planish_models::Loaded;
use planish_passes::observe::{
    OBSERVE, Observed, linear_inputs, map_inputs, mixtures, observe_choices, observe_tensors, observed,
};
use planish_passes::{ONNX, Options, PassError, Pipeline, Target};
use planish_runtimes::{Model, ReferenceRuntime, Runtime, Session, SessionOptions};

use super::layout::Layout;
use super::{CalibrateOn, CalibrateOptions};

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
    /// The inputs of linear layers, observed or not.
    pub(super) inputs: BTreeMap<String, Layout>,
    /// The mixtures of experts, observed or not, by their results.
    pub(super) mixtures: BTreeMap<String, MixtureLayout>,
}

/// A mixture of experts.
pub(super) struct MixtureLayout {
    /// The value that its experts take.
    pub(super) x: String,
    /// How many experts there are.
    pub(super) experts: usize,
    /// The rows of its indices.
    pub(super) indices: Layout,
}

/// What is observed.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// The range of each value.
    pub(super) ranges: bool,
    /// Inputs of linear layers, by part and value.
    pub(super) inputs: &'a dyn Fn(&str, &str) -> bool,
    /// The experts that tokens take.
    pub(super) experts: bool,
}

impl Sessions {
    /// Loads every part of a model.
    pub(super) fn open(source: &Loaded, opset: u32, options: &CalibrateOptions, wanted: Wanted<'_>) -> Result<Self> {
        let threads = SessionOptions { threads: options.threads.unwrap_or(0).into() };
        let mut sessions = Self { parts: BTreeMap::new(), _files: None };
        let CalibrateOn::Backend(backend, settings) = &options.on else {
            for part in &source.parts {
                let canonical = canonical(&part.graph, opset)?;
                let graph = observing(&canonical, part.name, opset, None, wanted)?;
                let session = ReferenceRuntime::default().load(Model::Graph(&graph), threads)?;
                sessions.add(part.name, session, &canonical);
            }
            return Ok(sessions);
        };
        let runtime = backend.runtime(&RuntimeSettings { varied_shapes: true, ..settings.clone() });
        runtime.check()?;
        let files = TemporaryFiles::create("planish-calibration")?;
        for part in &source.parts {
            let canonical = canonical(&part.graph, opset)?;
            let graph = observing(&canonical, part.name, opset, Some(backend.target), wanted)?;
            let file = files.emit(backend, &graph, part.name, opset)?;
            let model = Model::file(backend.emitter.format(), &file).with(&graph.interface);
            let session = runtime.load(model, threads)?;
            sessions.add(part.name, session, &canonical);
        }
        sessions._files = Some(files);
        Ok(sessions)
    }

    fn add(&mut self, part: &str, session: Box<dyn Session>, graph: &Graph) {
        let origins = graph.values().map(|(_, value)| (value.name.clone(), value.origin.to_string())).collect();
        let layout = |value: ValueId| (graph.value(value).name.clone(), Layout::of(graph, value));
        let rows = |value: ValueId| (graph.value(value).name.clone(), Layout::of_map(graph, value));
        let inputs = linear_inputs(graph).into_iter().map(layout);
        let inputs = inputs.chain(map_inputs(graph).into_iter().map(rows)).collect();
        let name = |value: ValueId| graph.value(value).name.clone();
        let mixtures = mixtures(graph).into_iter().map(|of| {
            let indices = Layout::of(graph, of.indices);
            (name(of.result), MixtureLayout { x: name(of.x), experts: of.experts, indices })
        });
        let mixtures = mixtures.collect();
        self.parts.insert(part.to_owned(), ObservedPart { session, origins, inputs, mixtures });
    }
}

/// A part's graph, raised.
pub(super) fn canonical(graph: &Graph, opset: u32) -> Result<Graph, PassError> {
    let mut graph = graph.clone();
    Pipeline::new(Options::new(&ONNX, opset)).raise(&mut graph, &mut Vec::new(), &mut |_, _| {})?;
    Ok(graph)
}

/// A canonical graph with observers: as it is, or lowered to what a target runs.
fn observing(
    canonical: &Graph,
    part: &str,
    opset: u32,
    target: Option<&'static Target>,
    wanted: Wanted<'_>,
) -> Result<Graph, PassError> {
    let mut graph = canonical.clone();
    let options = Options::new(target.unwrap_or(&ONNX), opset);
    if wanted.ranges {
        OBSERVE.apply(&mut graph, &options)?;
    }
    // Observers of ranges take values too, so that none is what one operator alone takes.
    let names: HashSet<&str> =
        map_inputs(canonical).into_iter().map(|map| canonical.value(map).name.as_str()).collect();
    let maps = graph.values().filter(|(_, value)| names.contains(value.name.as_str())).map(|(id, _)| id).collect();
    observe_tensors(&mut graph, maps, &|value| (wanted.inputs)(part, value))?;
    if wanted.experts {
        observe_choices(&mut graph);
    }
    if target.is_some() {
        Pipeline::new(options).lower(&mut graph, &mut Vec::new(), &mut |_, _| {})?;
    }
    Ok(graph)
}

/// The names of the values whose ranges are measured in a canonical graph.
pub(super) fn ranged_values(canonical: &Graph, opset: u32) -> Result<Vec<String>, PassError> {
    let graph = observing(canonical, "", opset, None, Wanted { ranges: true, inputs: &|_, _| false, experts: false })?;
    let named = graph.outputs().iter().filter_map(|output| observed(&output.name));
    Ok(named.filter(|(kind, _)| *kind == Observed::Min).map(|(_, value)| value.to_owned()).collect())
}
