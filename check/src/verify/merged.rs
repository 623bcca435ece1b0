//! The graph of both decoders of an encoder-decoder, which is held against the source beside each decoder.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::Result;
use planish_artifact::Artifact;
use planish_artifact::manifest::{PartManifest, SWITCH};
use planish_artifact::named;
use planish_eval::Tensor;
use planish_ir::{Bindings, Dim, PartRole};
use planish_runtimes::{Port, Runtime, RuntimeError, Session, SessionOptions};

/// The graph of both decoders.
pub(super) type Merged = Rc<RefCell<Box<dyn Session>>>;

/// Loads the graph of both decoders of an artifact; `None` where there is none.
///
/// # Errors
/// When the file is missing or changed, or the runtime does not load it.
pub(super) fn load(artifact: &Artifact, runtime: &dyn Runtime, options: SessionOptions) -> Result<Option<Merged>> {
    let Some(session) = artifact.load_merged(runtime, options)? else { return Ok(None) };
    Ok(Some(Rc::new(RefCell::new(session))))
}

/// One of both decoders, as the graph of both computes it.
pub struct Branch {
    both: Merged,
    /// Whether the decoder goes on from a cache.
    has_cache: bool,
    /// The names of the decoder's outputs.
    outputs: Vec<String>,
}

impl Branch {
    /// The branch of a part; `None` of a part that is no decoder.
    pub(super) fn of(both: &Merged, part: &PartManifest) -> Option<Self> {
        let has_cache = match part.role {
            PartRole::FirstStep => false,
            PartRole::NextStep => true,
            _ => return None,
        };
        let outputs = part.outputs.iter().map(|output| output.value.name.clone()).collect();
        Some(Self { both: both.clone(), has_cache, outputs })
    }

    /// Runs the branch on inputs of its decoder. What the other one takes alone is zeros: no elements, but for sizes that other inputs
    /// have too.
    pub(super) fn run(&self, inputs: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        let mut both = self.both.borrow_mut();
        let mut inputs = inputs.to_vec();
        let given = |port: &Port| inputs.iter().find(|(name, _)| *name == port.name).map(|(_, tensor)| tensor);
        let mut sizes = Bindings::new();
        for port in both.inputs() {
            let shape = given(port).map_or(&[][..], Tensor::shape);
            for (dim, size) in port.ty.shape.iter().zip(shape) {
                sizes.extend(dim.as_symbol().cloned().zip(i64::try_from(*size).ok()));
            }
        }
        let missing: Vec<Port> = both.inputs().iter().filter(|port| given(port).is_none()).cloned().collect();
        for Port { name, ty } in missing {
            let size = |dim: &Dim| dim.evaluate(&sizes).and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
            let tensor = match name == SWITCH {
                true => Tensor::new(vec![1], vec![self.has_cache]),
                false => Tensor::zeros(ty.dtype, ty.shape.iter().map(size).collect()),
            };
            inputs.extend(tensor.map(|tensor| (name, tensor)));
        }
        let given = named(both.as_ref(), &inputs);
        let mut outputs = both.run(&given)?;
        let place = |name: &String| self.outputs.iter().position(|own| own == name);
        outputs.retain(|(name, _)| place(name).is_some());
        outputs.sort_by_key(|(name, _)| place(name));
        Ok(outputs)
    }
}
