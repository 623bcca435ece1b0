//! Runs whose steps are timed: by events of the device, or by the host's clock where the device has none.

use std::time::{Duration, Instant};

use planish_eval::Tensor;

use super::GraphSession;
use super::bound::Bound;
use crate::cuda::device::{Device, Event};
use crate::{NodeRun, Port, ProfiledSession, RunProfile, RuntimeError, Session};

/// A session whose runs are recorded step by step.
pub(in crate::cuda) struct StepProfile {
    session: GraphSession,
    runs: Vec<RunProfile>,
}

/// A point in time between two steps.
enum Mark {
    Device(Box<dyn Event>),
    Host(Instant),
}

/// How long the device is kept busy in front of the first step, so that the host is ahead of it with the next ones.
const BUSY: Duration = Duration::from_millis(2);

impl Mark {
    /// The point in front of the first step.
    fn first(device: &dyn Device) -> Result<Self, String> {
        device.wait()?;
        match device.start(BUSY)? {
            Some(event) => Ok(Self::Device(event)),
            None => Ok(Self::Host(Instant::now())),
        }
    }

    /// The point after all work that was given.
    fn take(device: &dyn Device) -> Result<Self, String> {
        if let Some(event) = device.event()? {
            return Ok(Self::Device(event));
        }
        device.wait()?;
        Ok(Self::Host(Instant::now()))
    }

    fn since(&self, earlier: &Self) -> Result<Duration, String> {
        match (self, earlier) {
            (Self::Device(own), Self::Device(earlier)) => own.since(earlier.as_ref()),
            (Self::Host(own), Self::Host(earlier)) => Ok(own.duration_since(*earlier)),
            _ => Err("the device has a clock for some steps only".to_owned()),
        }
    }
}

impl StepProfile {
    pub(in crate::cuda) fn new(session: GraphSession) -> Self {
        Self { session, runs: Vec::new() }
    }
}

impl GraphSession {
    /// Runs what is bound once, with a mark between each step and the next.
    fn profiled(&self, bound: &Bound) -> Result<RunProfile, String> {
        let device = self.device.as_ref();
        let program = &bound.prepared.program;
        let addresses = self.addresses(bound);
        let mut marks = Vec::with_capacity(program.steps.len() + 1);
        marks.push(Mark::first(device)?);
        for step in &program.steps {
            addresses.step(step, device)?;
            marks.push(Mark::take(device)?);
        }
        let mut run = RunProfile::default();
        for (index, (step, ends)) in program.steps.iter().zip(marks.windows(2)).enumerate() {
            let node = program.origins.get(index).copied().flatten().map(|id| self.graph.node(id));
            let result = node.and_then(|node| node.outputs.first()).map(|value| self.graph.value(*value));
            let total = ends[1].since(&ends[0])?;
            run.nodes.push(NodeRun {
                name: result.map_or_else(|| "outputs".to_owned(), |value| value.name.clone()),
                index,
                operator: node.map_or("copy", |node| node.op.kind()).to_owned(),
                provider: program.kernel_of(step).to_owned(),
                start: run.total,
                total,
                own: total,
            });
            run.total += total;
        }
        Ok(run)
    }
}

impl ProfiledSession for StepProfile {
    fn inputs(&self) -> &[Port] {
        Session::inputs(&self.session)
    }

    fn bind(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError> {
        self.session.bind(inputs)
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        let bound = self.session.bound.as_ref().ok_or_else(|| self.session.failed("run", "no inputs are bound"))?;
        let run = self.session.profiled(bound).map_err(|reason| self.session.failed("run", reason))?;
        self.runs.push(run);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<RunProfile>, RuntimeError> {
        Ok(self.runs)
    }
}
