//! Calibration: a model is run on data with observers in its graphs, and what they see of each batch is
//! folded into one table.

mod document;
mod run;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use planish_models::{LoadOptions, Task};
use planish_passes::CalibrationTable;

use crate::backend::{Backend, ONNX_RUNTIME, RuntimeSettings};
use crate::chain::{Chain, DECODER_WITH_PAST};
use crate::compile::interface;
use crate::data::{DataOptions, Dataset};
use crate::source::SourceModel;

pub use document::{Calibration, is_table};
use run::Runner;
use sessions::Sessions;

/// How to calibrate.
#[derive(Clone, Debug, Default)]
pub struct CalibrateOptions {
    /// The head; inferred where absent.
    pub task: Option<Task>,
    /// Whether warnings are errors.
    pub strict: bool,
    /// How the data set is read.
    pub data: DataOptions,
    /// Where the model runs.
    pub on: CalibrateOn,
    /// Threads of the runtime; one a core where absent.
    pub threads: Option<u16>,
}

/// Where a model is run on data.
#[derive(Clone, Debug)]
pub enum CalibrateOn {
    /// The runtime of a backend, on graphs that are compiled for it.
    Backend(&'static Backend, RuntimeSettings),
    /// The reference interpreter, on the canonical graphs: slow.
    Interpreter,
}

impl Default for CalibrateOn {
    /// ONNX Runtime on CPUs.
    fn default() -> Self {
        Self::Backend(&ONNX_RUNTIME, RuntimeSettings::default())
    }
}

/// What a caller sees while a model is calibrated.
pub trait CalibrationObserver {
    /// Something was ignored or assumed.
    fn warning(&self, text: &str);
    /// So many of so many samples were run.
    fn progress(&self, done: usize, total: usize);
}

/// Runs a model on data. The same arguments give the same table.
///
/// # Errors
/// When the model cannot be loaded, the data cannot be read or is not what the model takes, the runtime
/// is unavailable, a run fails, or a value is not a number.
pub fn calibrate(
    model: &SourceModel,
    data: &Path,
    options: &CalibrateOptions,
    observer: &dyn CalibrationObserver,
) -> Result<Calibration> {
    let dataset = Dataset::open(data, &options.data)?;
    let source = model.load(LoadOptions { task: options.task, strict: options.strict })?;
    source.warnings.iter().for_each(|warning| observer.warning(warning));
    let parts: Vec<_> = source.parts.iter().map(|part| interface(part, &part.graph)).collect();
    let chain = Chain::of(&parts);
    let batches = dataset.batches(&chain, &source, &model.folder(), &options.data)?;
    let sessions = Sessions::open(&source, model.default_opset(), options)?;
    let continued = parts.iter().find(|part| part.name == DECODER_WITH_PAST);
    let mut runner = Runner::new(chain.parts().iter().copied().chain(continued).collect(), sessions);
    let mut table = CalibrationTable::default();
    observer.progress(0, dataset.samples());
    for batch in batches {
        let batch = batch?;
        let context = || format!("{}, samples {} to {}", data.display(), batch.samples.start + 1, batch.samples.end);
        runner.run(batch.inputs, &mut table).with_context(context)?;
        table.add_samples(batch.samples.len());
        observer.progress(batch.samples.end, dataset.samples());
    }
    runner.check_seen(&table)?;
    Calibration::new(model, source.task, data, &table)
}

/// The names of a model's values that a calibration has ranges of, by part.
fn observed_values(model: &SourceModel, task: Option<Task>) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let source = model.load(LoadOptions { task, strict: false })?;
    let one = |part: &planish_models::Part| {
        let graph = sessions::observing(&part.graph, model.default_opset(), None)?;
        Ok((part.name.to_owned(), sessions::values(&graph).into_iter().map(str::to_owned).collect()))
    };
    source.parts.iter().map(one).collect()
}
