//! A model that is loaded, on a thread of its own.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, Result, anyhow};
use planish_artifact::{Artifact, RunOptions, Running};
use planish_eval::Tensor;

use crate::code::caught;
use crate::port::OwnedPort;

/// Tensors by their names.
type Named = Vec<(String, Tensor)>;

/// The stack of a model's thread: what the main thread of a program has.
const STACK: usize = 8 << 20;

/// An artifact that is loaded. planish_close releases it.
pub struct Model {
    inputs: Vec<OwnedPort>,
    outputs: Vec<OwnedPort>,
    /// Absent once it is being closed.
    runs: Option<Sender<Run>>,
    thread: Option<JoinHandle<()>>,
}

/// A run that a caller waits for.
struct Run {
    inputs: Named,
    reply: Sender<Result<Named>>,
}

/// What a model takes and gives.
type Ports = (Vec<OwnedPort>, Vec<OwnedPort>);

impl Model {
    /// Loads an artifact. Sessions of runtimes stay on the thread that made them, so the model has one, and runs take turns.
    ///
    /// # Errors
    /// When it is no artifact, or its runtime is unavailable or does not load it.
    pub(crate) fn open(folder: &Path, threads: usize) -> Result<Self> {
        let artifact = Artifact::open(folder)?;
        let options = RunOptions { threads, ..RunOptions::default() };
        let (runs, waiting) = channel();
        let (told, opened) = channel();
        let serve = move || {
            let started = caught(|| {
                let running = Running::start(artifact, options, &mut |_| {})?;
                let ports = ports(&running)?;
                Ok((running, ports))
            });
            match started {
                Ok((running, ports)) => {
                    // The caller waits for it.
                    let _ = told.send(Ok(ports));
                    serve_runs(running, &waiting);
                }
                Err(error) => drop(told.send(Err(error))),
            }
        };
        let thread = Builder::new().name("planish model".to_owned()).stack_size(STACK).spawn(serve);
        let thread = thread.context("no thread could be started for the model")?;
        let (inputs, outputs) = opened.recv().context("the thread of the model ended")??;
        Ok(Self { inputs, outputs, runs: Some(runs), thread: Some(thread) })
    }

    /// What it takes.
    pub(crate) fn inputs(&self) -> &[OwnedPort] {
        &self.inputs
    }

    /// What it gives.
    pub(crate) fn outputs(&self) -> &[OwnedPort] {
        &self.outputs
    }

    /// Runs it once, after the runs that were asked for before.
    ///
    /// # Errors
    /// When an input is missing or is not what the model takes, or the run fails.
    pub(crate) fn run(&self, inputs: Named) -> Result<Named> {
        let ended = || anyhow!("the model ended in an earlier run that broke; close it and open it again");
        let (reply, done) = channel();
        let runs = self.runs.as_ref().ok_or_else(ended)?;
        runs.send(Run { inputs, reply }).map_err(|_| ended())?;
        done.recv().map_err(|_| ended())?
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        drop(self.runs.take());
        if let Some(thread) = self.thread.take() {
            // What it said was said to who waited.
            let _ = thread.join();
        }
    }
}

/// The inputs and the outputs of an artifact.
fn ports(running: &Running) -> Result<Ports> {
    let chain = running.chain()?;
    let inputs = chain.inputs().into_iter().map(|(name, input)| OwnedPort::new(&name, &input.value));
    let outputs = chain.outputs().into_iter().map(|(name, output)| OwnedPort::new(&name, &output.value));
    Ok((inputs.collect::<Result<_>>()?, outputs.collect::<Result<_>>()?))
}

/// Runs a model until nothing can ask for it. After a panic its sessions are not to be trusted, so it ends.
fn serve_runs(mut running: Running, runs: &Receiver<Run>) {
    for Run { inputs, reply } in runs {
        let mut panicked = true;
        let outputs = caught(|| {
            let outputs = running.run(inputs, &mut |_| {});
            panicked = false;
            outputs
        });
        // The caller waits for it.
        let _ = reply.send(outputs);
        if panicked {
            break;
        }
    }
}
