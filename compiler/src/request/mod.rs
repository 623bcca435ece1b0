//! What a user asks of a compilation, and how it is carried out: refused, or a source, options and a folder.

mod folders;
mod prepare;
mod whole;

use std::path::PathBuf;

use planish_artifact::backend::{BACKENDS, Backend, LOCAL, RuntimeSettings, find};
use planish_artifact::manifest::HubSource;
use planish_artifact::package::RuntimePackage;
use planish_artifact::recipe::{CacheName, LogitsChoice, Recipe};
use planish_artifact::split::Split;
use planish_artifact::variants::VariantName;
use planish_data::DataOptions;
use planish_models::Task;
use planish_onnx::{ImportOptions, Placement};
use planish_passes::{CacheForm, Target};
use planish_runtimes::Format;

use crate::calibrate::{CalibrateOn, CalibrateOptions, CalibrationObserver, Measure};
use crate::engine::{EngineOptions, SymbolRanges};

pub use folders::Folders;
pub use prepare::{Prepared, followed, least_opset, prepare};
pub use whole::Silent;

/// What a user asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The model: a checkpoint, an ONNX graph or an artifact.
    pub model: PathBuf,
    /// The model of the hub that was downloaded to there; absent for another one.
    pub hub: Option<HubSource>,
    /// The folder to write; absent for the usual one in the current folder.
    pub output: Option<PathBuf>,
    /// What the numbers of the artifact are, and for which target.
    pub recipe: Recipe,
    /// The backend of the recipe's target.
    pub backend: &'static Backend,
    /// The head; inferred where absent.
    pub task: Option<Task>,
    /// The folders of adapters that are added to the weights of a checkpoint, and what each is multiplied by.
    pub adapters: Vec<(PathBuf, f64)>,
    /// The ONNX opset; chosen where absent.
    pub opset: Option<u32>,
    /// The number of ranks that the model is cut for; absent where it stays whole.
    pub tensor_parallel: Option<usize>,
    /// Where weights go.
    pub placement: Placement,
    /// The library that the artifact is laid out for.
    pub package: RuntimePackage,
    /// The number of stages that each part is cut into; absent where it stays whole.
    pub pipeline: Option<usize>,
    /// The variant that the artifact is of; absent where it is of no other.
    pub variant: Option<VariantName>,
    /// Whether operators are fused.
    pub fusion: bool,
    /// Whether warnings are errors.
    pub strict: bool,
    /// Whether a folder with files that planish did not write may be replaced.
    pub force: bool,
    /// Whether to explain which operators raising found, and where a rule almost matched.
    pub explain_fusion: bool,
    /// Whether the graph is verified after each pass.
    pub verify_passes: bool,
    /// Whether an artifact is written; where not, nothing is checked that only an artifact needs.
    pub writes: bool,
    /// Whether the artifact is run before it is written.
    pub runs: bool,
    /// Which part of a graph is read.
    pub import: ImportOptions,
    /// The sizes of engines: a profile each.
    pub profiles: Vec<SymbolRanges>,
    /// How engines are built.
    pub engine: EngineOptions,
    /// Data for calibration, or a table of it.
    pub calibrate: Option<PathBuf>,
    /// How the data for calibration is read.
    pub data: DataOptions,
    /// Threads; one a core where absent.
    pub threads: Option<u16>,
    /// How runtimes are found.
    pub settings: RuntimeSettings,
}

/// A request that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RequestError(pub String);

fn refuse<T>(why: impl Into<String>) -> Result<T, RequestError> {
    Err(RequestError(why.into()))
}

/// What a caller sees before a model is compiled.
pub trait RequestObserver {
    /// Something was ignored or assumed.
    fn warning(&self, text: &str);
    /// Information that is not a problem.
    fn note(&self, text: &str);
    /// Sees a calibration.
    fn calibration(&self) -> Box<dyn CalibrationObserver>;
}

/// The backend of a recipe's target.
///
/// # Errors
/// When there is no such target.
pub fn backend(recipe: &Recipe) -> Result<&'static Backend, RequestError> {
    let Some(name) = &recipe.target else { return Ok(LOCAL) };
    match find(name, BACKENDS) {
        Some(backend) => Ok(backend),
        None => refuse(Target::find(name).err().map_or_else(String::new, |unknown| unknown.to_string())),
    }
}

impl Request {
    /// Refuses stages of what is not loaded stage by stage.
    fn check_pipeline(&self) -> Result<(), RequestError> {
        let Some(count) = self.pipeline else { return Ok(()) };
        let option = format!("--pipeline {count}");
        let has_stages = |backend: &Backend| backend.emitter.format() == Format::ONNX && backend.engines.is_none();
        if !has_stages(self.backend) {
            let those = BACKENDS.iter().filter(|backend| has_stages(backend)).map(|backend| backend.target.name);
            return refuse(format!(
                "{option}: target {} has no stages; choose one of the targets {}",
                self.backend.target,
                those.collect::<Vec<_>>().join(", ")
            ));
        }
        if self.recipe.cache == Some(CacheName::InPlace) {
            return refuse(format!(
                "{option}: a stage without token ids does not know which of its keys are new; use --recipe cache=copy"
            ));
        }
        match self.package {
            RuntimePackage::Optimum => Ok(()),
            _ => refuse(format!(
                "{option}: the library of --package loads a part from one file; leave out one of the two"
            )),
        }
    }

    /// Refuses what is not for the target.
    fn check(&self) -> Result<(), RequestError> {
        let Self { backend, .. } = self;
        if backend.engines.is_none() && !self.recipe.engine.is_empty() {
            return refuse(format!(
                "`engine` of the recipe is for engines of TensorRT, and target {} has none; add --target trt",
                backend.target.name
            ));
        }
        self.check_ranks()?;
        if self.opset.is_some() && backend.emitter.format() == Format::GRAPH {
            return refuse(format!("--opset is for ONNX files, and target {} has none", backend.target));
        }
        if self.recipe.tokenizer && self.package != RuntimePackage::Triton {
            return refuse(
                "`tokenizer` of the recipe is for model repositories of Triton; add --package triton, or leave it out",
            );
        }
        if let Some(reason) = self.package.refuses(backend) {
            return refuse(reason);
        }
        self.check_pipeline()?;
        match self.opset.and_then(|opset| self.package.refuses_opset(opset)) {
            Some(reason) => refuse(reason),
            None => Ok(()),
        }
    }

    /// Refuses what does not go with a model that is cut for ranks.
    fn check_ranks(&self) -> Result<(), RequestError> {
        if self.tensor_parallel.is_none() {
            return Ok(());
        }
        let target = self.backend.target;
        if !target.collectives {
            return refuse(format!(
                "--tensor-parallel is for targets {}: target {target} has no collectives between GPUs",
                Target::names(|target| target.collectives)
            ));
        }
        let recipe = &self.recipe;
        let beside = [
            (self.package != RuntimePackage::Optimum, "--package"),
            (recipe.codes().is_some(), "--int8 and --fp8"),
            (self.calibrate.is_some(), "--calibrate"),
            (self.pipeline.is_some(), "--pipeline"),
            (recipe.pad_vocab.is_some(), "pad-vocab of the recipe"),
            (recipe.logits.contains(&LogitsChoice::Padded), "logits=padded of the recipe"),
        ];
        match beside.into_iter().find(|(given, _)| *given) {
            Some((_, option)) => refuse(format!("--tensor-parallel does not go with {option}; leave one out")),
            None => Ok(()),
        }
    }

    /// How attention appends to the cache.
    fn cache(&self, recipe: &Recipe) -> Result<CacheForm, RequestError> {
        let target = self.backend.target;
        match recipe.cache {
            Some(CacheName::InPlace) if !self.fusion => {
                refuse("--recipe cache=in-place needs an operator for the whole attention; leave out --no-fusion")
            }
            Some(name) => Ok(name.form()),
            None if target.appends_in_place && self.fusion && self.package == RuntimePackage::Genai => {
                Ok(CacheForm::InPlaceIfPossible)
            }
            None => Ok(CacheForm::Copy),
        }
    }

    /// How the data for calibration is run.
    fn calibrate_options(&self) -> CalibrateOptions {
        let halves = self.recipe.half().is_some() && !self.backend.target.computes_in_float32;
        let measure = match (halves, self.recipe.codes().is_some()) {
            (true, true) => Measure::All,
            (_, true) => Measure::Inputs,
            (_, false) => Measure::Ranges,
        };
        let on = CalibrateOn::Backend(LOCAL, self.settings.clone());
        let (task, data, threads) = (self.task, self.data.clone(), self.threads);
        let Recipe { pooling, latent_cache, image_size, towers, preprocessing, .. } = self.recipe;
        let usual = CalibrateOptions::default();
        CalibrateOptions {
            task,
            pooling,
            latent_cache,
            image_size,
            towers,
            preprocessing,
            data,
            measure,
            on,
            threads,
            ..usual
        }
    }

    /// Whether ranges are measured: not for methods of weights, which run the data themselves.
    ///
    /// # Errors
    /// When nothing takes the data.
    fn measures_ranges(&self) -> Result<bool, RequestError> {
        let (target, half) = (self.backend.target, self.recipe.half());
        if self.recipe.codes().is_some() || half.is_some() && !target.computes_in_float32 {
            return Ok(true);
        }
        if self.recipe.weights_take_data() || self.recipe.blocks().is_some() && self.data.split == Split::Rest {
            return Ok(false);
        }
        match half {
            None => refuse(
                "--calibrate gives data to --int8, --fp8, --recipe weight-method=gptq and awq, --fp16 and --bf16; add one of them",
            ),
            Some(half) => refuse(format!(
                "--calibrate does nothing with --{half} for target {target}, which only stores weights in half precision; choose \
                 --target onnx, or leave it out"
            )),
        }
    }
}

#[cfg(test)]
mod tests;
