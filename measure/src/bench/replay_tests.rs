//! Cells of runtimes that replay what was recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use planish_artifact::verification::Tolerances;
use planish_data::inputs::session_specs;
use planish_eval::Tensor;
use planish_ir::{DType, text};
use planish_runtimes::{
    Arithmetic, Description, Format, Model, Port, Profiler, ReferenceRuntime, Runtime, RuntimeError, RuntimeValue,
    Session, SessionOptions, Unavailable,
};

use super::{BenchObserver, BenchOptions, Cell, Contestant, Measured, ReferenceModel, ReferencePart, sweep, table};

/// The interpreter, with runs on bound inputs that give what they gave for the first inputs if they are stale.
struct Replays {
    is_stale: bool,
}

struct Replaying {
    session: Box<dyn Session>,
    is_stale: bool,
    first: Option<Vec<(String, Tensor)>>,
}

impl Runtime for Replays {
    fn name(&self) -> &'static str {
        "replays"
    }

    fn check(&self) -> Result<Description, Unavailable> {
        ReferenceRuntime::default().check()
    }

    fn formats(&self) -> &'static [Format] {
        &[]
    }

    fn arithmetic(&self, _: DType) -> Arithmetic {
        Arithmetic::Rounded
    }

    fn is_on_gpu(&self) -> bool {
        false
    }

    fn saturates(&self) -> bool {
        false
    }

    fn profiler(&self) -> Result<&dyn Profiler, &'static str> {
        Err("nothing profiles it")
    }

    fn load(&self, model: Model<'_>, options: SessionOptions) -> Result<Box<dyn Session>, RuntimeError> {
        let session = ReferenceRuntime::default().load(model, options)?;
        Ok(Box::new(Replaying { session, is_stale: self.is_stale, first: None }))
    }
}

impl Session for Replaying {
    fn inputs(&self) -> &[Port] {
        self.session.inputs()
    }

    fn outputs(&self) -> &[Port] {
        self.session.outputs()
    }

    fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        self.session.run(inputs)
    }

    fn run_values(&mut self, inputs: &[(&str, &RuntimeValue)]) -> Result<Vec<(String, RuntimeValue)>, RuntimeError> {
        self.session.run_values(inputs)
    }

    fn bind(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError> {
        self.session.bind(inputs)
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        self.session.run_bound()
    }

    fn time_without_graph(&mut self) -> Result<Option<Duration>, RuntimeError> {
        Ok(Some(Duration::from_millis(7)))
    }

    fn run_as_bound(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        let outputs = self.session.run(inputs)?;
        match self.is_stale {
            true => Ok(self.first.get_or_insert(outputs).clone()),
            false => Ok(outputs),
        }
    }
}

struct Silent;

impl BenchObserver for Silent {
    fn progress(&mut self, _: f64) {}

    fn measured(&mut self, _: Measured<'_>) {}

    fn warning(&mut self, text: &str) {
        panic!("{text}");
    }

    fn note(&mut self, _: &str) {}
}

fn cells(is_stale: bool) -> Vec<Cell> {
    let graph = "graph \"g\" {\ninput %x: f32[b, s]\n%y = exp(%x) : f32[b, s]\noutput y = %y\n}";
    let graph = text::parse(graph, &text::no_files).unwrap();
    let (model, threads) = (Model::Graph(&graph), SessionOptions::default());
    let session = ReferenceRuntime::default().load(model, threads).unwrap();
    let specs = session_specs(session.as_ref(), &BTreeMap::new()).unwrap();
    let mut source = ReferenceModel::new(vec![ReferencePart::new("model".to_owned(), session, specs)], None);
    let replays = Replays { is_stale };
    let load = || Ok(replays.load(model, threads)?);
    let contestant = Contestant::load("a", "f32", &replays, load, 0, Tolerances::F32);
    let options = BenchOptions {
        batch: vec![1, 2],
        sequence: vec![3],
        interval: 0.0,
        time: Duration::from_millis(1),
        iterations: 3,
        warmup: Duration::ZERO,
        ..BenchOptions::default()
    };
    sweep(&mut [contestant.unwrap()], &mut source, &options, &mut Silent).unwrap()
}

#[test]
fn a_stale_replay_has_no_speed() {
    let cells = cells(true);
    // The first replay is right; the other cell replays it on other inputs.
    assert!(cells[0].failure.is_none(), "{:?}", cells[0].failure);
    assert!(cells[1].failure.as_ref().is_some_and(|failure| failure.starts_with("y: ")), "{:?}", cells[1].failure);
    assert!(cells[1].latency_ms.is_none() && cells[1].without_graph_ms.is_none());
}

#[test]
fn cells_of_replayed_graphs_have_the_time_without_one() {
    let cells = cells(false);
    assert!(cells.iter().all(|cell| cell.failure.is_none() && cell.without_graph_ms == Some(7.0)));
    assert!(table(&cells, false).text.contains("no graph ms 7.00"));
    let without: Vec<Cell> = cells.into_iter().map(|cell| Cell { without_graph_ms: None, ..cell }).collect();
    assert!(!table(&without, true).text.contains("no graph"));
    assert!(!serde_json::to_string(&without).unwrap().contains("without_graph_ms"));
}
