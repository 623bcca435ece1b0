//! Running an artifact on inputs.

use anyhow::{Context, Result, anyhow};
use planish_eval::Tensor;
use planish_ir::PartInterface;
use planish_passes::{Target, TokenOrder};
use planish_runtimes::{Runtime, RuntimeError, Session, SessionOptions};

use super::Artifact;
use super::manifest::PartManifest;
use crate::backend::{RuntimeSettings, lacks, spelled};
use crate::chain::Chain;

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
        inputs: Vec<(String, Tensor)>,
        options: &RunOptions,
        note: &mut dyn FnMut(&str),
    ) -> Result<Vec<(String, Tensor)>> {
        let chain = self.chain(options.part.as_deref())?;
        let runtime = runtime(self, &options.settings, note);
        for part in chain.parts().iter().filter(|part| part.stages.is_empty()) {
            self.file_for(part, runtime.as_ref())?;
        }
        let inputs = self.completed(&chain, inputs, note)?;
        chain.run(inputs, |part, inputs| {
            let part = chain.parts()[part];
            let mut session = self.load_for_runs(part, runtime.as_ref(), options, note)?;
            self.run_part(part, session.as_mut(), inputs, options)
        })
    }

    /// Checked inputs, with those that need not be given.
    pub(crate) fn completed(
        &self,
        chain: &Chain<'_>,
        mut inputs: Vec<(String, Tensor)>,
        note: &mut dyn FnMut(&str),
    ) -> Result<Vec<(String, Tensor)>> {
        let added = chain.complete(&mut inputs)?;
        if !added.is_empty() {
            note(&format!("inputs that were not given: {}", added.join(", ")));
        }
        chain.check(&inputs, self.manifest.max_sequence_length)?;
        Ok(inputs)
    }

    /// Loads a part; `note` is told what runs on another device.
    pub(crate) fn load_for_runs(
        &self,
        part: &PartManifest,
        runtime: &dyn Runtime,
        options: &RunOptions,
        note: &mut dyn FnMut(&str),
    ) -> Result<Box<dyn Session>> {
        let session = self.load(part, runtime, SessionOptions { threads: options.threads })?;
        note_elsewhere(session.as_ref(), note);
        Ok(session)
    }

    /// Runs a part on inputs by its names for them.
    pub(crate) fn run_part(
        &self,
        part: &PartManifest,
        session: &mut dyn Session,
        inputs: &[(String, Tensor)],
        options: &RunOptions,
    ) -> Result<Vec<(String, Tensor)>> {
        let ran = session.run(&named(session, inputs));
        // Another runtime than its own has limits of its own.
        let target = Some(self.backend.target).filter(|_| options.settings.runtime.is_none());
        Ok(ran.map_err(|error| explained(error, target, inputs, &part.interface()))?)
    }

    /// All parts, or one of them alone.
    pub(crate) fn chain(&self, part: Option<&str>) -> Result<Chain<'_>> {
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

/// The runtime that runs an artifact. `note` is told where that is not the one that the user would expect.
pub fn runtime(artifact: &Artifact, settings: &RuntimeSettings, note: &mut dyn FnMut(&str)) -> Box<dyn Runtime> {
    let (first, computes) = (artifact.runtime(settings), artifact.computes());
    if settings.runtime.is_some() || lacks(first.as_ref(), computes).is_none() {
        return first;
    }
    let taken = artifact.backend.runtime_for(computes, &artifact.settings(settings));
    if taken.name() != first.name() {
        let (first, taken, ty) = (first.name(), taken.name(), spelled(computes));
        note(&format!("`{first}` has no kernels for {ty}: `{taken}` runs the artifact, which may be slow"));
    }
    taken
}

/// Says what a session leaves to another device.
pub fn note_elsewhere(session: &dyn Session, note: &mut dyn FnMut(&str)) {
    let elsewhere = session.elsewhere();
    if !elsewhere.is_empty() {
        note(&format!("not on the GPU: {}", elsewhere.join(", ")));
    }
}

/// Inputs in the form in which a session takes them: floating-point numbers in the type of its input.
pub fn named<'a>(session: &dyn Session, inputs: &'a [(String, Tensor)]) -> Vec<(&'a str, Tensor)> {
    let fitted = |name: &str, tensor: &Tensor| {
        let port = session.inputs().iter().find(|port| port.name == name);
        let other = port
            .filter(|port| port.ty.dtype != tensor.dtype() && port.ty.dtype.is_float() && tensor.dtype().is_float());
        let cast = other.and_then(|port| Tensor::from_f64(port.ty.dtype, tensor.shape().to_vec(), &tensor.to_f64()));
        cast.unwrap_or_else(|| tensor.clone())
    };
    inputs.iter().map(|(name, tensor)| (name.as_str(), fitted(name, tensor))).collect()
}

/// The error of a run. Of a target that keeps tokens sequence-major, it says which input is a sequence of 0: attention then
/// fails, and the runtime names a node that the source does not have.
fn explained(
    error: RuntimeError,
    target: Option<&Target>,
    inputs: &[(String, Tensor)],
    of: &PartInterface,
) -> RuntimeError {
    let target = target.filter(|target| target.order == TokenOrder::SequenceMajor);
    let is_empty =
        |(name, tensor): &&(String, Tensor)| of.input(name).cache().is_none() && tensor.shape().get(1) == Some(&0);
    match (error, target, inputs.iter().find(is_empty)) {
        (RuntimeError::Failed { runtime, action, model, reason }, Some(target), Some((name, _))) => {
            let reason = reason.trim_end();
            let reason = format!(
                "{reason}; `{name}` has no tokens: target {target} computes attention for one token or more; target onnx also \
                 takes a sequence of 0"
            );
            RuntimeError::Failed { runtime, action, model, reason }
        }
        (error, ..) => error,
    }
}

#[cfg(test)]
mod tests {
    use planish_ir::DType;
    use planish_passes::{ONNX, ORT};

    use super::*;

    /// What an error of a run with inputs of these shapes says after the error of the runtime.
    fn hint(target: Option<&Target>, inputs: &[(&str, &[usize])]) -> String {
        let tensor = |shape: &[usize]| {
            Tensor::from_bytes(DType::F32, shape.to_vec(), &vec![0; 4 * shape.iter().product::<usize>()])
        };
        let inputs: Vec<(String, Tensor)> =
            inputs.iter().map(|(name, shape)| ((*name).to_owned(), tensor(shape).unwrap())).collect();
        let (model, reason) = ("m".to_owned(), "R".to_owned());
        let named: Vec<_> = inputs.iter().map(|(name, _)| (name.as_str(), None)).collect();
        let of = planish_onnx::interface::infer(planish_ir::PartRole::Model, &named, &[]);
        let error = RuntimeError::Failed { runtime: "ort", action: "run", model, reason };
        let error = explained(error, target, &inputs, &of);
        error.to_string().split_once('R').unwrap().1.to_owned()
    }

    #[test]
    fn a_sequence_of_0_is_named() {
        let words = "; `x` has no tokens: target ort computes attention for one token or more; target onnx also takes a \
                     sequence of 0";
        assert_eq!(hint(Some(&ORT), &[("m", &[2, 3]), ("x", &[2, 0, 4])]), words);
        assert_eq!(hint(Some(&ORT), &[("x", &[2, 0])]), words);
        for target in [Some(&ONNX), None] {
            assert_eq!(hint(target, &[("x", &[2, 0, 4])]), "");
        }
    }

    /// The first run of a decoder has a cache of no keys, and a batch may have no rows.
    #[test]
    fn other_inputs_without_elements_say_nothing() {
        for (name, shape) in [("past_key_values.0.key", &[2, 0, 4, 8][..]), ("past", &[1, 4, 0, 8]), ("x", &[0, 3])] {
            assert_eq!(hint(Some(&ORT), &[("input_ids", &[1, 3]), (name, shape)]), "");
        }
    }
}
