//! Running an artifact on inputs.

use anyhow::{Context, Result, anyhow};
use planish_eval::Tensor;
use planish_runtimes::SessionOptions;

use super::Artifact;
use crate::backend::RuntimeSettings;
use crate::chain::Chain;
use crate::verify::{named, note_elsewhere, runtime};

/// How an artifact is run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The part of several that runs alone; where it is absent, all of them run as one model.
    pub part: Option<String>,
    /// Threads of the runtime; 0 leaves the number to it.
    pub threads: usize,
    /// How runtimes are found.
    pub settings: RuntimeSettings,
}

impl Artifact {
    /// Runs the artifact on tensors by the names of its inputs, and returns its outputs. Inputs that are not given are those of
    /// a prompt of full rows where that decides them: an empty cache, a mask of ones, counted positions, segments of zeros.
    /// `note` is told which, and what a user has to know of the runtime.
    ///
    /// # Errors
    /// When there is no such part, a file is missing or changed, an input is missing or is not what the model takes, the
    /// runtime is unavailable, or the run fails.
    pub fn run(
        &self,
        mut inputs: Vec<(String, Tensor)>,
        options: &RunOptions,
        note: &mut dyn FnMut(&str),
    ) -> Result<Vec<(String, Tensor)>> {
        let chain = self.chain(options.part.as_deref())?;
        let runtime = runtime(self, &options.settings, note);
        chain.parts().iter().try_for_each(|part| self.file_for(part, runtime.as_ref()).map(drop))?;
        let added = chain.complete(&mut inputs)?;
        if !added.is_empty() {
            note(&format!("inputs that were not given: {}", added.join(", ")));
        }
        chain.check(&inputs, self.manifest.max_sequence_length)?;
        chain.run(inputs, |part, inputs| {
            let session = SessionOptions { threads: options.threads };
            let mut session = self.load(chain.parts()[part], runtime.as_ref(), session)?;
            note_elsewhere(session.as_ref(), note);
            Ok(session.run(&named(session.as_ref(), inputs))?)
        })
    }

    /// All parts, or one of them alone.
    fn chain(&self, part: Option<&str>) -> Result<Chain<'_>> {
        let parts = &self.manifest.parts;
        let Some(name) = part else { return Ok(Chain::of(parts)) };
        Chain::alone(parts, name).with_context(|| {
            let folder = self.folder.display();
            match parts.as_slice() {
                [_] => anyhow!("{folder} has no part `{name}`: it has one model only; leave out --part"),
                parts => {
                    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
                    anyhow!("{folder} has no part `{name}`; it has {}", names.join(", "))
                }
            }
        })
    }
}
