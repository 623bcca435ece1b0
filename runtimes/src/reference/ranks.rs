//! Several ranks of a model as one session: the interpreter runs all of them, and they exchange tensors in memory.

use std::collections::BTreeMap;

use planish_eval::{Interpreter, Tensor};
use planish_ir::{Dim, Graph};

use super::{NAME, ReferenceRuntime, ReferenceSession};
use crate::api::in_order;
use crate::{Model, Port, RuntimeError, RuntimeValue, Session, SessionOptions};

/// How ranks share a tensor: each has a part of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharded {
    /// The axis.
    pub axis: usize,
    /// How many neighbouring ranks have each part: 1 unless there are fewer parts than ranks.
    pub replicas: usize,
}

/// Names and tensors.
type Named = Vec<(String, Tensor)>;

impl ReferenceRuntime {
    /// Loads the graphs of ranks, in order, as one session. It takes and gives whole tensors: of those that are `sharded` each
    /// rank gets its part, and gives it.
    ///
    /// # Errors
    /// When a graph cannot be read.
    pub fn load_ranks<'a>(
        &self,
        models: impl Iterator<Item = Model<'a>>,
        sharded: BTreeMap<String, Sharded>,
        options: SessionOptions,
    ) -> Result<Box<dyn Session>, RuntimeError> {
        let ranks = models.map(|model| self.session(model, options)).collect::<Result<Vec<_>, _>>()?;
        let failed = |reason: &str| RuntimeError::Failed {
            runtime: NAME,
            action: "load",
            model: "the ranks of a model".to_owned(),
            reason: reason.to_owned(),
        };
        let Some(first) = ranks.first() else { return Err(failed("there is no rank")) };
        if sharded.values().any(|sharded| sharded.replicas == 0 || !ranks.len().is_multiple_of(sharded.replicas)) {
            return Err(failed("the replicas of a part do not divide the number of ranks"));
        }
        let whole = |ports: &[Port]| -> Option<Vec<Port>> {
            let port = |port: &Port| {
                let Some(sharded) = sharded.get(&port.name) else { return Some(port.clone()) };
                let parts = i64::try_from(ranks.len() / sharded.replicas).ok()?;
                let size = port.ty.shape.get(sharded.axis)?.checked_mul(&Dim::constant(parts))?;
                let mut port = port.clone();
                port.ty.shape = port.ty.shape.with_dim(sharded.axis, size);
                Some(port)
            };
            ports.iter().map(port).collect()
        };
        let ports = whole(&first.inputs).zip(whole(&first.outputs));
        let (inputs, outputs) = ports.ok_or_else(|| failed("a tensor that ranks share does not have the axis"))?;
        Ok(Box::new(RankSession { inputs, outputs, ranks, sharded, bound: None }))
    }
}

struct RankSession {
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    ranks: Vec<ReferenceSession>,
    sharded: BTreeMap<String, Sharded>,
    /// What `run_bound` runs on, in the order of the inputs.
    bound: Option<Vec<Tensor>>,
}

impl RankSession {
    fn evaluate(&self, inputs: &[(&str, Tensor)]) -> Result<Named, RuntimeError> {
        let failed = |reason: String| self.failed("run", reason);
        let own = |rank: usize| -> Result<Vec<(&str, Tensor)>, RuntimeError> {
            let part = |(name, tensor): &(&'_ str, Tensor)| match self.sharded.get(*name) {
                Some(sharded) => sharded.part(tensor, rank, self.ranks.len()),
                None => Some(tensor.clone()),
            };
            let given = inputs.iter().map(|input| Some((input.0, part(input)?)));
            given.collect::<Option<Vec<_>>>().ok_or_else(|| failed("an input does not divide by ranks".to_owned()))
        };
        let mut runs: Vec<(&Graph, Vec<(&str, Tensor)>)> = Vec::new();
        for (rank, session) in self.ranks.iter().enumerate() {
            runs.push((&session.graph, own(rank)?));
        }
        let Some(first) = self.ranks.first() else { return Ok(Vec::new()) };
        let interpreter = Interpreter { reader: Some(&first.reader), limits: first.limits, ..Interpreter::default() };
        let results = interpreter.run_ranks(&runs).map_err(|error| failed(error.to_string()))?;
        (0..self.outputs.len()).map(|at| self.output(&results, at).map_err(failed)).collect()
    }

    /// An output of all ranks.
    fn output(&self, results: &[Named], at: usize) -> Result<(String, Tensor), String> {
        let name = &self.outputs[at].name;
        let parts: Vec<&Tensor> = results.iter().filter_map(|rank| Some(&rank.get(at)?.1)).collect();
        let (Some(first), true) = (parts.first(), parts.len() == self.ranks.len()) else {
            return Err(format!("a rank has no output `{name}`"));
        };
        let whole = match self.sharded.get(name) {
            Some(sharded) => {
                sharded.joined(&parts).ok_or_else(|| format!("the parts of `{name}` do not fit together"))?
            }
            None if parts.iter().any(|part| part.to_bytes() != first.to_bytes()) => {
                return Err(format!("ranks give different `{name}`, which all have whole"));
            }
            None => (*first).clone(),
        };
        Ok((name.clone(), whole))
    }

    fn failed(&self, action: &'static str, reason: String) -> RuntimeError {
        RuntimeError::Failed { runtime: NAME, action, model: format!("{} ranks", self.ranks.len()), reason }
    }
}

impl Sharded {
    /// The part of a rank.
    fn part(self, tensor: &Tensor, rank: usize, ranks: usize) -> Option<Tensor> {
        let parts = ranks / self.replicas;
        let mut shape = tensor.shape().to_vec();
        let size = shape.get_mut(self.axis).filter(|size| size.is_multiple_of(parts))?;
        *size /= parts;
        let (bytes, run) = (tensor.to_bytes(), self.run(&shape) * tensor.dtype().size());
        if run == 0 {
            return Tensor::from_bytes(tensor.dtype(), shape, &[]);
        }
        let own = bytes.chunks(run).skip(rank / self.replicas).step_by(parts);
        Tensor::from_bytes(tensor.dtype(), shape, &own.flatten().copied().collect::<Vec<u8>>())
    }

    /// The parts of all ranks put together.
    fn joined(self, ranks: &[&Tensor]) -> Option<Tensor> {
        let parts: Vec<&Tensor> = ranks.iter().copied().step_by(self.replicas).collect();
        let first = parts.first().filter(|first| parts.iter().all(|part| part.shape() == first.shape()))?;
        let mut shape = first.shape().to_vec();
        let run = self.run(&shape) * first.dtype().size();
        *shape.get_mut(self.axis)? *= parts.len();
        let bytes: Vec<Vec<u8>> = parts.iter().map(|part| part.to_bytes()).collect();
        let rows = bytes[0].len().checked_div(run).unwrap_or(0);
        let row = |row: usize| bytes.iter().flat_map(move |part| &part[row * run..(row + 1) * run]).copied();
        Tensor::from_bytes(first.dtype(), shape, &(0..rows).flat_map(row).collect::<Vec<u8>>())
    }

    /// The elements of a part that are neighbours.
    fn run(self, shape: &[usize]) -> usize {
        shape[self.axis..].iter().product()
    }
}

impl Session for RankSession {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Named, RuntimeError> {
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
        let tensors = self.bound.clone().ok_or_else(|| self.failed("run", "no inputs are bound".to_owned()))?;
        let names = self.inputs.iter().map(|port| port.name.as_str());
        self.evaluate(&names.zip(tensors).collect::<Vec<_>>()).map(drop)
    }
}
