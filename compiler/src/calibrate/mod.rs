//! Calibration: a model is run on data with observers in its graphs, and what they see of each batch is
//! folded into one table.

mod document;
mod experts;
mod layout;
mod products;
mod run;
mod sessions;
mod statistics;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail};
use planish_artifact::backend::{Backend, LOCAL, RuntimeSettings};
use planish_artifact::chain::Chain;
use planish_artifact::manifest::PartManifest;
use planish_data::{DataOptions, Dataset, Shard};
use planish_models::{ImageSize, LatentCache, LoadOptions, Loaded, Pooling, Preprocessing, Task, Towers};
use planish_passes::observe::{linear_inputs, map_inputs, mixtures};
use run::{Broken, Runner, Sink};
use serde::{Deserialize, Serialize};
use sessions::{Sessions, Wanted};
use statistics::Statistics;

use crate::compile::{first_not_finite, interface};
use crate::source::SourceModel;

pub use document::{Calibration, is_table};
pub use experts::unused_experts;
pub use products::{InputName, ProductOptions, Transform, UseOfExperts, products};

/// How to calibrate.
#[derive(Clone, Debug, Default)]
pub struct CalibrateOptions {
    /// The head; inferred where absent.
    pub task: Option<Task>,
    /// The pooling of tokens, of a checkpoint without modules of its own.
    pub pooling: Option<Pooling>,
    /// What the cache of a model with latent attention has.
    pub latent_cache: Option<LatentCache>,
    /// Height and width of images.
    pub image_size: Option<ImageSize>,
    /// The graphs of a model of images and texts.
    pub towers: Option<Towers>,
    /// Where pictures are processed.
    pub preprocessing: Option<Preprocessing>,
    /// Whether warnings are errors.
    pub strict: bool,
    /// How the data set is read.
    pub data: DataOptions,
    /// What is measured.
    pub measure: Measure,
    /// The batches that are run; all of them where absent.
    pub shard: Option<Shard>,
    /// Where the model runs.
    pub on: CalibrateOn,
    /// Threads of the runtime; one a core where absent.
    pub threads: Option<u16>,
}

impl CalibrateOptions {
    /// How the model is loaded.
    fn loading(&self) -> LoadOptions {
        let Self { task, pooling, latent_cache, image_size, towers, preprocessing, strict, .. } = *self;
        LoadOptions { task, pooling, latent_cache, image_size, towers, preprocessing, strict, ..LoadOptions::default() }
    }
}

/// What calibration measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// The ranges of all values, for half precision.
    Ranges,
    /// The statistics of the inputs of linear layers, for INT8.
    Inputs,
    /// Both.
    #[default]
    All,
}

impl Measure {
    fn ranges(self) -> bool {
        self != Self::Inputs
    }

    fn inputs(self) -> bool {
        self != Self::Ranges
    }
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
        Self::Backend(LOCAL, RuntimeSettings::default())
    }
}

/// What a caller sees while a model is calibrated.
pub trait CalibrationObserver {
    /// Something was ignored or assumed.
    fn warning(&self, text: &str);
    /// So many samples were run, of so many at most.
    fn progress(&self, done: usize, total: usize);
}

/// Runs a model on data. The same arguments give the same table on any number of threads.
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
    let prepared = Prepared::new(model, data, options, observer)?;
    let inputs = options.measure.inputs();
    let wanted = Wanted { ranges: options.measure.ranges(), inputs: &|_, _| inputs, experts: inputs };
    let mut statistics = Statistics::new(options.threads)?;
    let mut samples = 0;
    let mut runner = prepared.runner(model, options, wanted)?;
    let done = &mut |count| samples += count;
    let skipped = prepared.run_on(&mut runner, model, options, observer, &mut statistics, done)?;
    if options.shard.is_none() {
        few(samples).iter().for_each(|warning| observer.warning(warning));
    }
    statistics.add_samples(samples);
    let table = statistics.into_table()?;
    if options.shard.is_none() {
        unused_experts(&table).iter().for_each(|warning| observer.warning(warning));
    }
    Calibration::new(model, prepared.source.task, data, options, skipped, table)
}

/// What is measured of a model, for compiling it: read from a table, or measured on data.
///
/// # Errors
/// When the table is of another model or lacks what is needed, or as [`calibrate`].
pub fn ranges(
    model: &SourceModel,
    path: &Path,
    options: &CalibrateOptions,
    observer: &dyn CalibrationObserver,
) -> Result<Calibration> {
    if !is_table(path) {
        return calibrate(model, path, options, observer).with_context(|| format!("cannot calibrate {}", model.name()));
    }
    if options.data.field.is_some() {
        return Err(FieldOfTable(path.to_owned()).into());
    }
    let what = LoadOptions { strict: false, ..options.loading() };
    let table = Calibration::of(model, path, what)?;
    // Half precision takes ranges where there are any; quantization needs the statistics of inputs.
    let needed = if options.measure == Measure::All { Measure::Inputs } else { options.measure };
    table.check_measured(needed).with_context(|| format!("{} does not serve", path.display()))?;
    let warnings = few(table.samples).into_iter().chain(unused_experts(table.table()));
    warnings.for_each(|warning| observer.warning(&warning));
    Ok(table)
}

/// A field is named of a table, which has none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--field is for data; {} is a table", .0.display())]
pub struct FieldOfTable(pub PathBuf);

/// The fewest samples for which there is no warning. The ranges of activations, and the products that GPTQ and AWQ sum, change a
/// lot from sample to sample below it.
const FEW: usize = 16;

/// That a calibration has few samples, if it does.
pub fn few(samples: usize) -> Option<String> {
    (samples < FEW).then(|| {
        let plural = if samples == 1 { "" } else { "s" };
        format!(
            "the calibration has {samples} sample{plural}, and what it measures on so few may not hold for others; give at least \
             {FEW} samples, and better 100 or more, of the kind that the model will see"
        )
    })
}

/// A model and data that were opened.
struct Prepared {
    dataset: Dataset,
    source: Loaded,
    parts: Vec<PartManifest>,
}

impl Prepared {
    fn new(
        model: &SourceModel,
        data: &Path,
        options: &CalibrateOptions,
        observer: &dyn CalibrationObserver,
    ) -> Result<Self> {
        let dataset = Dataset::open(data, &options.data)?;
        let source = model.load(options.loading())?;
        if source.task == Some(Task::ImageTextToText) {
            bail!(
                "calibration reads texts, and {} reads images with them; choose its text model with --task {}, or leave --calibrate out: \
                 then each run computes scales",
                model.name(),
                Task::TextGeneration
            );
        }
        source.warnings.iter().for_each(|warning| observer.warning(warning));
        let parts = source.parts.iter().map(|part| interface(part, &part.graph)).collect();
        Ok(Self { dataset, source, parts })
    }

    /// The error on a value that is not finite, with the weight that may be why.
    fn explained(&self, error: Error) -> Error {
        match error.downcast_ref::<Broken>().and_then(|_| first_not_finite(&self.source)) {
            Some(weight) => error.context(format!("the weight {weight}")),
            None => error,
        }
    }

    /// The parts with observers, loaded.
    fn runner(&self, model: &SourceModel, options: &CalibrateOptions, wanted: Wanted<'_>) -> Result<Runner<'_>> {
        let sessions = Sessions::open(&self.source, model.default_opset(), options, wanted)?;
        let continued = self.parts.iter().find(|part| part.is_next_step());
        let parts = Chain::of(&self.parts).parts().iter().copied().chain(continued).collect();
        Ok(Runner::new(parts, sessions))
    }

    /// Runs the batches; `done` sees how many samples each had. Returns how many records of the data
    /// were left out.
    fn run_on(
        &self,
        runner: &mut Runner<'_>,
        model: &SourceModel,
        options: &CalibrateOptions,
        observer: &dyn CalibrationObserver,
        sink: &mut dyn Sink,
        done: &mut dyn FnMut(usize),
    ) -> Result<usize> {
        let chain = Chain::of(&self.parts);
        let folder = model.companion_folder()?;
        let data = DataOptions { own_text: true, ..options.data.clone() };
        let mut batches = self.dataset.batches(&chain, &self.source, &folder, &data)?.of(options.shard);
        runner.write_texts(batches.writing().cloned());
        let most = batches.most();
        observer.progress(0, most);
        let mut last = 0;
        while let Some(batch) = batches.next().transpose()? {
            let (samples, place) = (batch.samples.clone(), batch.place.clone());
            runner.run(batch, sink).map_err(|error| self.explained(error)).context(place)?;
            done(samples.len());
            last = samples.end;
            observer.progress(last, most);
        }
        observer.progress(last, last);
        if options.shard.is_none() {
            runner.check_all_ran()?;
        }
        Ok(batches.skipped())
    }
}

/// The names of what a calibration has of a part.
#[derive(Default)]
struct Known {
    /// The values with ranges.
    ranges: BTreeSet<String>,
    /// The inputs of linear layers.
    inputs: BTreeSet<String>,
    /// The results of mixtures of experts, with the numbers of experts.
    experts: BTreeMap<String, usize>,
}

/// The names of what a calibration has of a model, by part.
fn known(model: &SourceModel, what: LoadOptions) -> Result<BTreeMap<String, Known>> {
    let source = model.load(what)?;
    let opset = model.default_opset();
    let one = |part: &planish_models::Part| {
        let graph = sessions::canonical(&part.graph, opset)?;
        let inputs = linear_inputs(&graph).into_iter().chain(map_inputs(&graph));
        let inputs = inputs.map(|value| graph.value(value).name.clone()).collect();
        let ranges = sessions::ranged_values(&graph, opset)?.into_iter().collect();
        let experts = mixtures(&graph).iter().map(|of| (graph.value(of.result).name.clone(), of.experts)).collect();
        Ok((part.name.to_owned(), Known { ranges, inputs, experts }))
    };
    source.parts.iter().map(one).collect()
}
