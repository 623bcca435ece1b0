//! A model loaded by OpenVINO.

use std::path::Path;

use openvino::{CompiledModel, Core, DeviceType, InferRequest, RwPropertyKey, Tensor as Inner};
use planish_eval::Tensor;

use super::tensor::{from_openvino, port, to_openvino};
use super::{InferencePrecision, RUNTIME};
use crate::api::{Typed, in_order, rename_dimensions};
use crate::{Port, RuntimeError, RuntimeValue, Session};

pub(super) struct OpenVinoSession {
    request: InferRequest,
    /// What the request runs, which has to outlive it.
    _compiled: CompiledModel,
    _core: Core,
    /// The file, for errors.
    model: String,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    /// Whether the request has the inputs of `bind`.
    is_bound: bool,
}

/// What OpenVINO says of an error.
fn said(error: impl ToString) -> String {
    error.to_string().trim().to_owned()
}

impl OpenVinoSession {
    /// Loads a file.
    pub(super) fn load(path: &Path, threads: usize, precision: InferencePrecision) -> Result<Self, RuntimeError> {
        let model = path.display().to_string();
        Self::loaded(path, threads, precision, model.clone()).map_err(|reason| RuntimeError::Failed {
            runtime: RUNTIME,
            action: "load",
            model,
            reason,
        })
    }

    fn loaded(path: &Path, threads: usize, precision: InferencePrecision, model: String) -> Result<Self, String> {
        let text = path.to_str().ok_or("OpenVINO takes paths of Unicode only")?;
        let mut core = Core::new().map_err(said)?;
        let graph = core.read_model_from_file(text, "").map_err(said)?;
        // Names of a compiled model are less exact: it joins values that are equal.
        let count = graph.get_inputs_len().map_err(said)?;
        let inputs =
            (0..count).map(|at| port(&graph.get_input_by_index(at).map_err(said)?)).collect::<Result<_, _>>()?;
        let count = graph.get_outputs_len().map_err(said)?;
        let outputs =
            (0..count).map(|at| port(&graph.get_output_by_index(at).map_err(said)?)).collect::<Result<_, _>>()?;
        for (key, value) in properties(threads, precision) {
            core.set_property(&DeviceType::CPU, &key, &value).map_err(said)?;
        }
        let mut compiled = core.compile_model(&graph, DeviceType::CPU).map_err(said)?;
        let request = compiled.create_infer_request().map_err(said)?;
        Ok(Self { request, _compiled: compiled, _core: core, model, inputs, outputs, is_bound: false })
    }

    fn failed(&self, action: &'static str, reason: impl ToString) -> RuntimeError {
        RuntimeError::Failed { runtime: RUNTIME, action, model: self.model.clone(), reason: said(reason) }
    }

    /// Sets the inputs of the request, in order.
    fn set(&mut self, inputs: &[Inner]) -> Result<(), RuntimeError> {
        let set = |(at, tensor)| self.request.set_input_tensor_by_index(at, tensor);
        inputs.iter().enumerate().try_for_each(set).map_err(|e| self.failed("bind inputs of", e))
    }

    /// Copies of values for the request, in order.
    fn copies<T: Typed>(
        &self,
        inputs: &[(&str, T)],
        copy: impl Fn(&T) -> Result<Inner, String>,
    ) -> Result<Vec<Inner>, RuntimeError> {
        let ordered = in_order(&self.inputs, inputs);
        let copies = ordered.and_then(|ordered| ordered.into_iter().map(copy).collect());
        copies.map_err(|reason| self.failed("bind inputs of", reason))
    }

    fn infer(&mut self) -> Result<(), RuntimeError> {
        self.request.infer().map_err(|e| self.failed("run", e))
    }

    /// Runs the model on inputs in order, and copies its outputs.
    fn outputs_of(&mut self, inputs: &[Inner]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        self.is_bound = false;
        self.set(inputs)?;
        self.infer()?;
        let output = |(at, port): (usize, &Port)| {
            let tensor = self.request.get_output_tensor_by_index(at).map_err(said).and_then(|t| from_openvino(&t));
            let tensor =
                tensor.map_err(|reason| self.failed("run", format!("the output `{}`: {reason}", port.name)))?;
            Ok((port.name.clone(), tensor))
        };
        self.outputs.iter().enumerate().map(output).collect()
    }
}

/// What the plugin is told: one request at a time, with a number of threads, or with as many as there are cores for 0.
fn properties(threads: usize, precision: InferencePrecision) -> Vec<(RwPropertyKey, String)> {
    let mut properties = vec![
        (RwPropertyKey::HintPerformanceMode, "LATENCY".to_owned()),
        (RwPropertyKey::NumStreams, "1".to_owned()),
        (RwPropertyKey::HintInferencePrecision, precision.to_string()),
    ];
    if threads > 0 {
        properties.push((RwPropertyKey::InferenceNumThreads, threads.to_string()));
    }
    properties
}

impl Session for OpenVinoSession {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    fn name_dimensions(&mut self, ports: &[Port]) {
        rename_dimensions(self.inputs.iter_mut().chain(&mut self.outputs), ports);
    }

    fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        let copies = self.copies(inputs, to_openvino)?;
        self.outputs_of(&copies)
    }

    fn run_values(&mut self, inputs: &[(&str, &RuntimeValue)]) -> Result<Vec<(String, RuntimeValue)>, RuntimeError> {
        let copy = |value: &&RuntimeValue| match value.as_tensor() {
            Some(tensor) => to_openvino(tensor),
            None => Err("a value of another runtime was given".to_owned()),
        };
        let copies = self.copies(inputs, copy)?;
        Ok(self.outputs_of(&copies)?.into_iter().map(|(name, tensor)| (name, tensor.into())).collect())
    }

    fn bind(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError> {
        self.is_bound = false;
        let copies = self.copies(inputs, to_openvino)?;
        self.set(&copies)?;
        self.is_bound = true;
        Ok(())
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        match self.is_bound {
            true => self.infer(),
            false => Err(self.failed("run", "no inputs are bound")),
        }
    }
}
