//! An artifact that is loaded once and run many times.

use anyhow::Result;
use planish_eval::Tensor;
use planish_runtimes::Session;

use super::Artifact;
use crate::chain::Chain;
use crate::run::{RunOptions, runtime};

/// An artifact with all parts that its runs need in memory.
pub struct Running {
    artifact: Artifact,
    options: RunOptions,
    /// Those of the parts of the chain, in order.
    sessions: Vec<Box<dyn Session>>,
}

impl Running {
    /// Loads an artifact. `note` is told what a user has to know of the runtime.
    ///
    /// # Errors
    /// When there is no such part, a file is missing or changed, or the runtime is unavailable or does not load a part.
    pub fn start(artifact: Artifact, options: RunOptions, note: &mut dyn FnMut(&str)) -> Result<Self> {
        let chain = artifact.chain(options.part.as_deref())?;
        let runtime = runtime(&artifact, &options.settings, note);
        let load = |part: &&_| artifact.load_for_runs(part, runtime.as_ref(), &options, note);
        let sessions = chain.parts().iter().map(load).collect::<Result<_>>()?;
        Ok(Self { artifact, options, sessions })
    }

    /// The parts that run, with what they take and give.
    ///
    /// # Errors
    /// None of an artifact that was loaded.
    pub fn chain(&self) -> Result<Chain<'_>> {
        self.artifact.chain(self.options.part.as_deref())
    }

    /// Runs it as [`Artifact::run`] does.
    ///
    /// # Errors
    /// When an input is missing or is not what the model takes, or the run fails.
    pub fn run(&mut self, inputs: Vec<(String, Tensor)>, note: &mut dyn FnMut(&str)) -> Result<Vec<(String, Tensor)>> {
        let Self { artifact, options, sessions } = self;
        let chain = artifact.chain(options.part.as_deref())?;
        let inputs = artifact.completed(&chain, inputs, note)?;
        chain.run(inputs, |part, inputs| {
            artifact.run_part(chain.parts()[part], sessions[part].as_mut(), inputs, options)
        })
    }
}
