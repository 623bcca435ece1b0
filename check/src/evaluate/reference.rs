//! The model in float32, which artifacts are compared with.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use anyhow::Result;
use planish_data::Writing;
use planish_eval::Tensor;
use planish_models::names::DECODER_INPUT_IDS;

use super::sides::{PartOutputs, Side};

/// How many bytes of results are kept for artifacts that run on the same data.
const KEPT_BYTES: usize = 256 << 20;

/// Which run of the data: the samples, and which of the runs that these are divided into.
pub(super) type RunId = (Range<usize>, usize);

/// The model in float32. Where several artifacts are evaluated on the same data, it is loaded once, and runs the data once
/// as far as its results take 256 MiB at most.
#[derive(Default)]
pub struct Reference {
    side: Option<Side>,
    results: HashMap<RunId, Rc<Vec<PartOutputs>>>,
    /// The texts that its decoder wrote.
    texts: HashMap<RunId, Tensor>,
    /// How many bytes of results may still be kept.
    left: usize,
}

impl Reference {
    /// One that several artifacts are compared with, which have the same inputs.
    #[must_use]
    pub fn of_several() -> Self {
        Self { left: KEPT_BYTES, ..Self::default() }
    }

    /// Puts the texts that the decoder writes in place of their first ids, in the inputs of a run; `open` loads the model.
    pub(super) fn write(
        &mut self,
        id: RunId,
        inputs: &mut [(String, Tensor)],
        writing: &Writing,
        open: &dyn Fn() -> Result<Side>,
    ) -> Result<()> {
        let ids = match self.texts.get(&id) {
            Some(ids) => ids.clone(),
            None => opened(&mut self.side, open)?.write(inputs, writing)?,
        };
        for (_, first) in inputs.iter_mut().filter(|(name, _)| name == DECODER_INPUT_IDS) {
            *first = ids.clone();
        }
        self.texts.insert(id, ids);
        Ok(())
    }

    /// The results of a run; `open` loads the model.
    pub(super) fn run(
        &mut self,
        id: RunId,
        inputs: &[(String, Tensor)],
        pad: Option<i64>,
        open: &dyn Fn() -> Result<Side>,
    ) -> Result<Rc<Vec<PartOutputs>>> {
        if let Some(results) = self.results.get(&id) {
            return Ok(results.clone());
        }
        let results = Rc::new(opened(&mut self.side, open)?.run(inputs, pad)?);
        let bytes = results.iter().map(PartOutputs::bytes).sum();
        if let Some(left) = self.left.checked_sub(bytes) {
            self.left = left;
            self.results.insert(id, results.clone());
        }
        Ok(results)
    }
}

/// The model, loaded.
fn opened<'a>(side: &'a mut Option<Side>, open: &dyn Fn() -> Result<Side>) -> Result<&'a mut Side> {
    Ok(match side {
        Some(side) => side,
        none => none.insert(open()?),
    })
}
