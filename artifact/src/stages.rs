//! Stages: a part of a model in several files that run one after another, each on a device of its own where there are several.
//!
//! For whoever loads the part, its stages are one session: [`Artifact::load`](crate::Artifact::load) makes it.

use std::collections::HashMap;

use planish_eval::Tensor;
use planish_runtimes::{Port, RuntimeError, RuntimeValue, Session};
use serde::{Deserialize, Serialize};

use crate::manifest::{Input, Output, PartManifest};

/// A stage of a part. An input that the part has not is an output of the stage before, of the same name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StageManifest {
    /// The name of its file without the ending, e.g. `model_stage0`.
    pub name: String,
    /// The names of its files: the one that a runtime loads, then those that it points to.
    pub files: Vec<String>,
    /// The inputs, in order.
    pub inputs: Vec<Input>,
    /// The outputs, in order: those of the part, and what goes to the next stage.
    pub outputs: Vec<Output>,
    /// The layers that it computes, in order; one that is cut is of both stages.
    pub layers: Vec<String>,
    /// What its weights take, in bytes.
    pub weight_bytes: u64,
    /// The floating-point operations of one row: of one token where the part continues from a cache, else of 128; absent where the
    /// cost of an operator is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub flops: Option<u64>,
    /// What goes to the next stage for such a row, in bytes; absent where a size is not known, and of the last stage.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sent_bytes: Option<u64>,
}

impl PartManifest {
    /// The names of all files of the part, those of its stages included.
    pub fn all_files(&self) -> impl Iterator<Item = &String> {
        self.files.iter().chain(self.stages.iter().flat_map(|stage| &stage.files))
    }

    /// What runtimes load: its stages as parts of their own, or itself.
    #[must_use]
    pub fn pieces(&self) -> Vec<Self> {
        match self.stages.as_slice() {
            [] => vec![self.clone()],
            stages => stages.iter().map(|stage| self.of_stage(stage)).collect(),
        }
    }

    /// A stage as a part of its own.
    #[must_use]
    pub fn of_stage(&self, stage: &StageManifest) -> Self {
        Self {
            name: stage.name.clone(),
            files: stage.files.clone(),
            inputs: stage.inputs.clone(),
            outputs: stage.outputs.clone(),
            stages: Vec::new(),
            ..self.clone()
        }
    }
}

/// The sessions of the stages of a part, as one.
pub(crate) struct StagedSession {
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    stages: Vec<Box<dyn Session>>,
    elsewhere: Vec<String>,
    /// What `run_bound` runs on.
    bound: Option<Vec<(String, RuntimeValue)>>,
}

impl StagedSession {
    /// The stages of a part, in order.
    pub(crate) fn new(part: &PartManifest, stages: Vec<Box<dyn Session>>) -> Self {
        let named = |names: Vec<&String>, ports: fn(&dyn Session) -> &[Port]| -> Vec<Port> {
            let all: Vec<&Port> = stages.iter().flat_map(|stage| ports(stage.as_ref())).collect();
            names
                .into_iter()
                .filter_map(|name| all.iter().find(|port| port.name == *name))
                .map(|port| (*port).clone())
                .collect()
        };
        Self {
            inputs: named(part.inputs.iter().map(|input| &input.value.name).collect(), |stage| stage.inputs()),
            outputs: named(part.outputs.iter().map(|output| &output.value.name).collect(), |stage| stage.outputs()),
            elsewhere: stages.iter().flat_map(|stage| stage.elsewhere().iter().cloned()).collect(),
            stages,
            bound: None,
        }
    }

    /// Runs the stages in turn, each by `run` with the inputs that it takes of those that are given and of what stages before it
    /// gave. Returns the outputs of the part.
    fn run_stages<T>(
        &mut self,
        given: &[(&str, &T)],
        mut run: impl FnMut(&mut dyn Session, &[(&str, &T)]) -> Result<Vec<(String, T)>, RuntimeError>,
    ) -> Result<Vec<(String, T)>, RuntimeError> {
        let mut known: HashMap<String, T> = HashMap::new();
        for stage in &mut self.stages {
            let name = |port: &Port| port.name.clone();
            let takes: Vec<String> = stage.inputs().iter().map(name).collect();
            let value = |name: &str| {
                let given = || given.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
                known.get(name).or_else(given)
            };
            // A stage says itself which of its inputs is missing.
            let inputs: Vec<(&str, &T)> = takes.iter().filter_map(|name| Some((name.as_str(), value(name)?))).collect();
            let outputs = run(stage.as_mut(), &inputs)?;
            known.extend(outputs);
        }
        let output = |port: &Port| Some((port.name.clone(), known.remove(&port.name)?));
        Ok(self.outputs.iter().filter_map(output).collect())
    }

    /// Refuses an input that no stage takes.
    fn check<T>(&self, inputs: &[(&str, T)]) -> Result<(), RuntimeError> {
        let unknown = inputs.iter().find(|(name, _)| self.inputs.iter().all(|port| port.name != *name));
        let Some((name, _)) = unknown else { return Ok(()) };
        let names: Vec<String> = self.inputs.iter().map(ToString::to_string).collect();
        Err(self.failed(format!("there is no input `{name}`; the inputs are {}", names.join(", "))))
    }

    fn failed(&self, reason: String) -> RuntimeError {
        let model = format!("the model of {} stages", self.stages.len());
        RuntimeError::Failed { runtime: "planish", action: "run", model, reason }
    }
}

impl Session for StagedSession {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    fn elsewhere(&self) -> &[String] {
        &self.elsewhere
    }

    fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        self.check(inputs)?;
        let given: Vec<(&str, &Tensor)> = inputs.iter().map(|(name, tensor)| (*name, tensor)).collect();
        self.run_stages(&given, |stage, inputs| {
            let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (*name, (*tensor).clone())).collect();
            stage.run(&inputs)
        })
    }

    fn run_values(&mut self, inputs: &[(&str, &RuntimeValue)]) -> Result<Vec<(String, RuntimeValue)>, RuntimeError> {
        self.check(inputs)?;
        self.run_stages(inputs, |stage, inputs| stage.run_values(inputs))
    }

    /// The stages are bound as they run, for what goes on between them is not known before.
    fn bind(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError> {
        self.check(inputs)?;
        self.bound = Some(inputs.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone().into())).collect());
        Ok(())
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        let bound = self.bound.take().ok_or_else(|| self.failed("no inputs are bound".to_owned()))?;
        let inputs: Vec<(&str, &RuntimeValue)> = bound.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let ran = self.run_values(&inputs);
        self.bound = Some(bound);
        ran.map(drop)
    }
}
