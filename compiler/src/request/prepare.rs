//! From a request to a source and the options of a compilation.

use anyhow::{Context, Result, bail};
use planish_artifact::backend::{Backend, lacks, spelled};
use planish_artifact::recipe::{BiasesName, ExpertsName, ProjectionsName, Recipe, TokenOrderName};
use planish_ir::DType;
use planish_models::{PICTURES_OPSET, Preprocessing};
use planish_onnx::Placement;
use planish_passes::{CacheForm, ExpertsForm, Options};

use super::{Folders, Request, RequestObserver, refuse};
use crate::calibrate::{CalibrateOptions, Calibration, ranges};
use crate::compile::CompileOptions;
use crate::engine::{check_replaced, products_of};
use crate::recipe::{CalibrationData, Resolved, resolve};
use crate::source::SourceModel;

/// A request that can be carried out.
pub struct Prepared {
    /// The model.
    pub source: SourceModel,
    /// How to compile it.
    pub options: CompileOptions,
    /// Where the artifact goes.
    pub folders: Folders,
}

/// Prepares a compilation: refuses what cannot be done before work that would be in vain, and calibrates the model where that
/// is asked for.
///
/// # Errors
/// A [`RequestError`](super::RequestError) or a [`RecipeError`](planish_artifact::recipe::RecipeError) when what is asked for does
/// not fit together; other errors when a file cannot be read, a runtime is missing, the output may not be written or a run fails.
pub fn prepare(request: &Request, observer: &dyn RequestObserver) -> Result<Prepared> {
    let Request { backend, recipe, .. } = request;
    let run = request.calibrate_options();
    let data = request.calibrate.as_deref().map(|path| CalibrationData { path, run: &run });
    let resolved = resolved(request, recipe, data)?;
    find_runtime(request, &resolved, observer)?;
    request.check()?;
    let source = SourceModel::open_with(&request.model, &request.import)?.with_adapters(&request.adapters)?;
    if request.variant.is_some() && source.is_quantized_artifact() {
        refuse::<()>(format!(
            "{} is quantized already; compile the checkpoint that it was made from, of which --variants makes each form",
            request.model.display()
        ))?;
    }
    let half = resolved.half.as_ref().map(|precision| precision.half);
    request.engine.check(&products_of(resolved.quantize.as_ref(), half, &source))?;
    let folders = Folders::of(request, &resolved, &source);
    if request.writes {
        let context = || format!("cannot compile {}", request.model.display());
        folders.check(&source, request.force).with_context(context)?;
        if backend.engines.is_some() {
            let warning = check_replaced(&request.engine, folders.first(), request.force)?;
            warning.iter().for_each(|warning| observer.warning(warning));
        }
    }
    let cache = request.cache(recipe)?;
    let of_pictures = recipe.preprocessing.filter(|_| source.sees());
    if let (Some(Preprocessing::Graph), Some(opset @ ..PICTURES_OPSET)) = (of_pictures, request.opset) {
        bail!(
            "preprocessing=graph needs opset {PICTURES_OPSET} or newer, whose Resize has `antialias`, and --opset is {opset}; give \
             --opset {PICTURES_OPSET}"
        );
    }
    let opset = opset(request, recipe, cache, &source);
    if let Some(reason) = request.package.refuses_opset(opset) {
        bail!("the model needs opset {opset}: {reason}");
    }
    let calibration = calibration(request, &source, &run, observer)?;
    let options = CompileOptions {
        task: request.task,
        card: recipe.card.unwrap_or(true),
        strict: request.strict,
        passes: Options { fusion: request.fusion, cache, ..Options::new(backend.target, opset) },
        placement: match (request.placement, request.tensor_parallel) {
            (Placement::Link, Some(_)) => Placement::LinkViews,
            (placement, _) => placement,
        },
        package: request.package,
        variant: request.variant,
        pipeline: request.pipeline,
        explain_fusion: request.explain_fusion,
        verify_passes: request.verify_passes,
        force: request.force,
        hub: request.hub.clone(),
        profiles: request.profiles.clone(),
        tensor_parallel: request.tensor_parallel,
        calibration,
        recipe: Some(recipe.clone()),
        ..CompileOptions::new(backend, opset)
    };
    Ok(Prepared { source, options: followed(options, recipe, resolved), folders })
}

impl Prepared {
    /// How the model is compiled by another recipe, on the same data. Its target may be another one.
    ///
    /// # Errors
    /// When the recipe does not fit the rest of the request.
    pub fn with_recipe(&self, request: &Request, recipe: &Recipe) -> Result<CompileOptions> {
        let request = &Request { backend: super::backend(recipe)?, ..request.clone() };
        let run = request.calibrate_options();
        let data = request.calibrate.as_deref().map(|path| CalibrationData { path, run: &run });
        let resolved = resolved(request, recipe, data)?;
        let cache = request.cache(recipe)?;
        let opset = opset(request, recipe, cache, &self.source);
        let options = CompileOptions {
            backend: request.backend,
            passes: Options { fusion: request.fusion, cache, ..Options::new(request.backend.target, opset) },
            recipe: Some(recipe.clone()),
            ..self.options.clone()
        };
        Ok(followed(options, recipe, resolved))
    }
}

/// What a recipe comes to in a request.
fn resolved(request: &Request, recipe: &Recipe, data: Option<CalibrationData<'_>>) -> Result<Resolved> {
    let mut resolved = resolve(recipe, request.backend.target, data)?;
    if let Some(weights) = &mut resolved.quantize_weights {
        weights.settings.table_blocks = request.package.looks_up_blocks();
    }
    Ok(resolved)
}

/// The opset that a request says, else the oldest one that has what the recipe makes of the model.
fn opset(request: &Request, recipe: &Recipe, cache: CacheForm, source: &SourceModel) -> u32 {
    let target = request.backend.target;
    let least = least_opset(request.backend, recipe, source).max(target.cache_opset(cache));
    request.opset.unwrap_or_else(|| source.default_opset_from(least))
}

/// The options of a compilation that follows a recipe, which came to this for the target.
#[must_use]
pub fn followed(options: CompileOptions, recipe: &Recipe, resolved: Resolved) -> CompileOptions {
    let target = options.backend.target;
    CompileOptions {
        passes: Options {
            attention_fp32: recipe.attention_fp32,
            precision: resolved.half.map(Into::into),
            padding: resolved.padding,
            last_logits: recipe.last_logits(),
            experts: resolved.experts.unwrap_or(options.passes.experts),
            order: recipe.token_order.map_or(options.passes.order, TokenOrderName::order),
            attention: recipe.attention.map_or(options.passes.attention, |name| name.form(target)),
            packing: recipe.projections.map_or(options.passes.packing, ProjectionsName::packing),
            absorbs_biases: recipe
                .biases
                .map_or(options.passes.absorbs_biases, |biases| biases == BiasesName::Absorbed),
            cache: resolved.cache.unwrap_or(options.passes.cache),
            allow_non_finite: recipe.allow_non_finite,
            ..options.passes
        },
        quantize: resolved.quantize,
        quantize_weights: resolved.quantize_weights,
        requantize: recipe.requantize,
        block_inputs: resolved.block_inputs,
        ..options
    }
}

/// The oldest opset that has what a recipe makes of a model for a backend.
#[must_use]
pub fn least_opset(backend: &Backend, recipe: &Recipe, source: &SourceModel) -> u32 {
    let attention = if recipe.attention_fp32 { backend.target.attention_between_casts.opset() } else { 0 };
    let usual = backend.target.experts.first().copied().unwrap_or(ExpertsForm::All);
    let form = recipe.experts.map_or(usual, ExpertsName::form);
    let codes = [recipe.blocks().map(|_| DType::I4), source.block_codes()];
    let codes = codes.into_iter().flatten().map(|codes| backend.target.blocks_opset(codes));
    // Layers of an expert are those of any model.
    let stacked = form != ExpertsForm::Grouped || !backend.target.has_block_operators();
    let pictures = if recipe.preprocessing.is_some() && source.sees() { PICTURES_OPSET } else { 0 };
    let cache = recipe.cache.map_or(0, |cache| backend.target.cache_opset(cache.form()));
    codes
        .chain([cache, source.opset_of_experts(stacked && recipe.blocks().is_some()), attention, pictures])
        .max()
        .unwrap_or(0)
}

/// Looks for the runtime of an artifact that is run before it is written; of another one it only says what it lacks.
fn find_runtime(request: &Request, resolved: &Resolved, observer: &dyn RequestObserver) -> Result<()> {
    let Request { backend, settings, .. } = request;
    let computes = match &resolved.half {
        Some(precision) if !backend.target.computes_in_float32 => precision.half.dtype(),
        _ => DType::F32,
    };
    if request.tensor_parallel.is_some() {
        return Ok(());
    }
    if request.runs {
        backend.runtime_for(computes, settings).check()?;
    } else if backend.engines.is_none() && lacks(backend.runtime(settings).as_ref(), computes).is_some() {
        let name = backend.runtime(settings).name();
        observer.note(&format!("`{name}` cannot load the artifact: it has no kernels for {}", spelled(computes)));
    }
    Ok(())
}

/// What was measured of the activations, if there is data for that.
fn calibration(
    request: &Request,
    source: &SourceModel,
    run: &CalibrateOptions,
    observer: &dyn RequestObserver,
) -> Result<Option<Calibration>> {
    let Some(path) = &request.calibrate else { return Ok(None) };
    if !request.measures_ranges()? {
        return Ok(None);
    }
    ranges(source, path, run, &*observer.calibration()).map(Some)
}
