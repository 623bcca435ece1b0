//! The reference: the interpreter of the crate `eval`. It is slow, and it defines the right results.

mod profile;
mod ranks;
mod reader;

use std::path::Path;

use planish_eval::{Interpreter, Limits, Tensor};
use planish_ir::{DType, Graph, ValueId};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::api::in_order;
use crate::graph_file;
use crate::{
    Arithmetic, Description, Format, Model, Port, ProfiledSession, Profiler, Runtime, RuntimeError, RuntimeValue,
    Session, SessionOptions, Unavailable,
};

pub use ranks::Sharded;
pub use reader::OnnxReader;

const NAME: &str = "reference";

/// The reference interpreter. An ONNX file is imported, the file of a graph is read, and the operators are computed in the
/// types that it gives.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceRuntime {
    /// Where a run ends with an error.
    pub limits: Limits,
}

impl Runtime for ReferenceRuntime {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self) -> Result<Description, Unavailable> {
        let (version, location) = (env!("CARGO_PKG_VERSION").to_owned(), "built in".to_owned());
        Ok(Description { product: "planish", version, location })
    }

    fn formats(&self) -> &'static [Format] {
        &[Format::ONNX, Format::GRAPH]
    }

    fn arithmetic(&self, _: DType) -> Arithmetic {
        Arithmetic::Rounded
    }

    fn load(&self, model: Model<'_>, options: SessionOptions) -> Result<Box<dyn Session>, RuntimeError> {
        Ok(Box::new(self.session(model, options)?))
    }

    fn is_on_gpu(&self) -> bool {
        false
    }

    fn saturates(&self) -> bool {
        false
    }

    fn profiler(&self) -> Result<&dyn Profiler, &'static str> {
        Ok(self)
    }
}

impl Profiler for ReferenceRuntime {
    fn load_profiled(
        &self,
        model: Model<'_>,
        options: SessionOptions,
        _: &Path,
    ) -> Result<Box<dyn ProfiledSession>, RuntimeError> {
        Ok(Box::new(profile::ReferenceProfile::new(self.session(model, options)?)))
    }
}

impl ReferenceRuntime {
    fn session(&self, model: Model<'_>, options: SessionOptions) -> Result<ReferenceSession, RuntimeError> {
        let failed =
            |reason: String| RuntimeError::Failed { runtime: NAME, action: "load", model: model.to_string(), reason };
        let graph = match model {
            Model::Graph(graph) => graph.clone(),
            Model::File { format: Format::ONNX, path, .. } => {
                planish_onnx::import(path).map_err(|e| failed(with_causes(&e)))?.graph
            }
            Model::File { format: Format::GRAPH, path, interface } => {
                graph_file::load_with(path, interface).map_err(|e| failed(with_causes(&e)))?
            }
            Model::File { .. } => {
                return Err(model.not_taken(NAME, "ONNX files, graphs of planish and graphs in memory"));
            }
        };
        let pool = match options.threads {
            0 => None,
            threads => Some(ThreadPoolBuilder::new().num_threads(threads).build().map_err(|e| failed(e.to_string()))?),
        };
        let inputs = graph.inputs().iter().map(|&id| port(&graph.value(id).name, graph.ty(id)));
        let outputs = graph.outputs().iter().map(|output| port(&output.name, graph.ty(output.value)));
        Ok(ReferenceSession {
            inputs: inputs.collect(),
            outputs: outputs.collect(),
            graph,
            pool,
            reader: OnnxReader::default(),
            limits: self.limits,
            bound: None,
        })
    }
}

fn port(name: &str, ty: &planish_ir::TensorType) -> Port {
    Port { name: name.to_owned(), ty: ty.clone() }
}

struct ReferenceSession {
    graph: Graph,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    /// Threads of its own, where a number was asked for.
    pool: Option<ThreadPool>,
    reader: OnnxReader,
    limits: Limits,
    /// What `run_bound` runs on, in the order of the inputs.
    bound: Option<Vec<Tensor>>,
}

impl ReferenceSession {
    fn evaluate(&self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        self.evaluate_with(inputs, &mut |_| {})
    }

    /// As `evaluate`; `watch` is told of each input and each result of a node when it is there.
    fn evaluate_with(
        &self,
        inputs: &[(&str, Tensor)],
        watch: &mut (dyn FnMut(ValueId) + Send),
    ) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        let interpreter = Interpreter { reader: Some(&self.reader), limits: self.limits, ..Interpreter::default() };
        let mut evaluate = || interpreter.run_with(&self.graph, inputs, &mut |value, _| watch(value));
        let result = match &self.pool {
            Some(pool) => pool.install(evaluate),
            None => evaluate(),
        };
        result.map_err(|error| match error.is_unsupported() {
            true => RuntimeError::Unsupported { runtime: NAME, model: self.model(), reason: error.to_string() },
            false => self.failed("run", error.to_string()),
        })
    }

    fn failed(&self, action: &'static str, reason: String) -> RuntimeError {
        RuntimeError::Failed { runtime: NAME, action, model: self.model(), reason }
    }

    fn model(&self) -> String {
        Model::Graph(&self.graph).to_string()
    }
}

impl Session for ReferenceSession {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        in_order(&self.inputs, inputs).map_err(|reason| self.failed("run", reason))?;
        self.evaluate(inputs)
    }

    fn run_values(&mut self, inputs: &[(&str, &RuntimeValue)]) -> Result<Vec<(String, RuntimeValue)>, RuntimeError> {
        let tensors: Option<Vec<_>> = inputs.iter().map(|(name, value)| Some((*name, value.to_tensor()?))).collect();
        let tensors = tensors.ok_or_else(|| self.failed("run", "an input's memory cannot be read".to_owned()))?;
        Ok(self.run(&tensors)?.into_iter().map(|(name, tensor)| (name, tensor.into())).collect())
    }

    fn bind(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError> {
        let ordered = in_order(&self.inputs, inputs).map_err(|reason| self.failed("bind inputs of", reason))?;
        self.bound = Some(ordered.into_iter().cloned().collect());
        Ok(())
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        self.run_bound_with(&mut |_| {})
    }
}

impl ReferenceSession {
    /// As `run_bound`, watched as `evaluate_with` is.
    fn run_bound_with(&mut self, watch: &mut (dyn FnMut(ValueId) + Send)) -> Result<(), RuntimeError> {
        let tensors = self.bound.take().ok_or_else(|| self.failed("run", "no inputs are bound".to_owned()))?;
        let names = self.inputs.iter().map(|port| port.name.as_str());
        let inputs: Vec<(&str, Tensor)> = names.zip(tensors).collect();
        let result = self.evaluate_with(&inputs, watch).map(drop);
        self.bound = Some(inputs.into_iter().map(|(_, tensor)| tensor).collect());
        result
    }
}

/// An error with what caused it.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
