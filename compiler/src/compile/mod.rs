//! Compiling a model: checkpoint -> graph -> passes -> files -> artifact.

mod check;
mod compiled;
mod coverage;
mod describe;
mod finite;
mod keep;
mod larger;
mod links;
mod lowered;
mod options;
mod ranks;
mod stages;
mod write;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use planish_artifact::backend::Backend;
use planish_artifact::coverage::Extent;
use planish_artifact::draft::Draft;
use planish_artifact::files::relative_path;
use planish_artifact::manifest::{File, Manifest, PartManifest, SourceManifest};
use planish_artifact::package::RuntimePackage;
use planish_artifact::recipe::ExpertsName;
use planish_artifact::{Artifact, CARD};
use planish_ir::{Graph, PartRole};
use planish_models::LoadOptions;
use planish_passes::quantize::{Bits, release_codes};
use planish_passes::raise::{explain, raised};
use planish_passes::{BlockInputs, CacheForm, Half, Logits, Note, Options, Pipeline, fuse, last_notes};

use crate::engine::{PROFILES, Profiles};
use crate::packages;
use crate::quantize::{Quantizations, QuantizeOptions, QuantizeProgress, WeightOptions};
use crate::source::{SourceModel, pictures};

pub use check::output as check_output;
pub use compiled::Compiled;
pub use describe::{computed_precision, interface, parameters, value_info};
pub use finite::first_not_finite;
pub use lowered::{Lowered, LoweredPart, LoweredRank};
pub use options::CompileOptions;
pub use stages::{balance, layers as stage_layers};

/// Receives events while a model is compiled.
pub trait Observer: Sync {
    /// planish ignored or assumed something.
    fn warning(&self, text: &str);
    /// Information that is not a problem.
    fn note(&self, text: &str);
    /// The graph of a part after a pass.
    fn graph(&self, pass: &str, graph: &Graph);
    /// How far the choice of the codes of weights with data is.
    fn quantizing(&self, progress: &QuantizeProgress);
    /// Weights begin to be written: `total` bytes.
    fn begin_writing(&self, total: u64);
    /// So many bytes more were written.
    fn written(&self, bytes: u64);
    /// Everything was written.
    fn end_writing(&self);
}

/// The folder that an artifact goes to unless told otherwise: `NAME-TARGET`, the precision where it is not
/// float32, and the package where it is not the usual one. `extent` says how much of the model is codes.
#[must_use]
pub fn default_folder(
    model: &SourceModel,
    backend: &Backend,
    half: Option<Half>,
    quantize: Option<&QuantizeOptions>,
    weights: Option<&WeightOptions>,
    extent: Extent,
    package: RuntimePackage,
) -> PathBuf {
    let codes = match (quantize, weights) {
        (Some(options), _) if options.settings.codes == planish_ir::DType::F8E4M3FN => Some("fp8"),
        (Some(_), _) => Some("int8"),
        (None, Some(options)) if options.settings.bits == Bits::Four => Some("int4"),
        (None, Some(_)) => Some("int8-weights"),
        (None, None) => None,
    };
    let codes = codes.map(|codes| match extent {
        Extent::Nothing => String::new(),
        Extent::Part => format!("-partly-{codes}"),
        Extent::Most => format!("-{codes}"),
    });
    let precision = half.map(|half| format!("-{half}")).unwrap_or_default() + &codes.unwrap_or_default();
    format!("{}-{}{precision}{}", model.name(), backend.target.name, package.folder_suffix()).into()
}

/// Loads a model and runs passes on it: the first `stop_after` of them, or all.
///
/// # Errors
/// When the model cannot be loaded or a pass fails.
pub fn lower(
    model: &SourceModel,
    options: &CompileOptions,
    stop_after: Option<usize>,
    observer: &dyn Observer,
) -> Result<Lowered> {
    let source = model.load(options.package.load_options(LoadOptions {
        task: options.task,
        pooling: options.recipe.as_ref().and_then(|recipe| recipe.pooling),
        latent_cache: options.recipe.as_ref().and_then(|recipe| recipe.latent_cache),
        image_size: options.recipe.as_ref().and_then(|recipe| recipe.image_size),
        towers: options.recipe.as_ref().and_then(|recipe| recipe.towers),
        preprocessing: options.recipe.as_ref().and_then(|recipe| recipe.preprocessing),
        strict: options.strict,
        ..LoadOptions::default()
    }))?;
    source.warnings.iter().for_each(|w| observer.warning(w));
    check::model(&source, options, observer)?;
    let block_inputs = options.block_inputs.unwrap_or_else(|| match options.quantize_weights {
        Some(_) => BlockInputs::Integers,
        None => describe::block_inputs(source.parts.iter().map(|part| &part.graph)),
    });
    // A decoder reads vectors of tokens and of images.
    let sees = source.parts.iter().any(|part| part.graph.interface.role == PartRole::Embedder);
    let one = |(of, rank): (usize, Option<usize>)| {
        let part = &source.parts[of];
        let pipeline = |passes: Options| {
            let mut pipeline = Pipeline::new(passes);
            pipeline.stop_after = stop_after;
            pipeline.verify = options.verify_passes;
            pipeline
        };
        let mut passes = options.passes_for(part.name);
        // Only a decoder without other parts appends to its cache in place.
        if source.parts.len() > 1 && passes.cache == CacheForm::InPlaceIfPossible {
            passes.cache = CacheForm::Copy;
        }
        let mut graph = part.graph.clone();
        let mut stages = Vec::new();
        let mut after = |pass: &'static str, graph: &Graph| observer.graph(pass, graph);
        pipeline(passes.clone()).raise(&mut graph, &mut stages, &mut after)?;
        let rank = match options.tensor_parallel.zip(rank) {
            Some(cut) => Some(ranks::shard(&mut graph, part.name, cut, &passes)?),
            None => None,
        };
        let not_finite = finite::kept(&graph, options, observer)?;
        let released = if options.requantize { release_codes(&mut graph)? } else { 0 };
        let quantization = match &options.quantize {
            Some(quantize) => {
                let quantize = quantize.without(&not_finite);
                Some(quantize.quantization(model, part.name, &graph, options.calibration.as_ref(), observer)?)
            }
            None => None,
        };
        let weight_quantization = match &options.quantize_weights {
            Some(quantize) => {
                let mut quantize = quantize.without(&not_finite);
                // Places of images are few, and each counts for all tokens after it.
                if sees && part.graph.interface.role == PartRole::VisionEncoder {
                    quantize.settings.bits = Bits::Eight;
                }
                Some(quantize.quantization(model, part.name, &graph, passes.target, observer)?)
            }
            None => None,
        };
        let codes = coverage::codes_of(&graph);
        let matched = [
            options.quantize.as_ref().map(|quantize| quantize.settings.matched(&graph)),
            options.quantize_weights.as_ref().map(|quantize| quantize.settings.matched(&graph)),
        ];
        let matched = matched.into_iter().flatten().next().unwrap_or_default();
        let pipeline = pipeline(Options {
            quantization: quantization.clone(),
            weight_quantization: weight_quantization.clone(),
            block_inputs,
            ..passes
        });
        let mut explanation = options.explain_fusion.then(|| explain(&graph, &stages));
        let raised = raised(&graph);
        pipeline.prepare(&mut graph, &mut stages, &mut after)?;
        let weights = weight_quantization.as_deref().map(|quantization| &quantization.plan);
        let is_quantized = options.quantize.is_some() || options.quantize_weights.is_some();
        let coverage = is_quantized.then(|| coverage::coverage(&graph, &codes, quantization.as_deref(), weights));
        pipeline.lower(&mut graph, &mut stages, &mut after)?;
        if let Some(explanation) = &mut explanation {
            fuse::explain(&graph, &stages, explanation);
        }
        let (mut precision, mut vocabulary) = (None, None);
        for note in last_notes(&stages) {
            match note {
                Note::Halved(report) => precision = Some(report.clone()),
                Note::Vocabulary(padding) => vocabulary = Some(describe::vocabulary(*padding)),
                Note::Attention { at, choice } => {
                    explanation.iter_mut().for_each(|found| found.attentions.push((at.clone(), choice.clone())));
                }
                Note::Missed(_) | Note::Features(_) => {}
            }
        }
        Ok(LoweredPart {
            name: rank.as_ref().map_or_else(|| part.name.to_owned(), |rank| rank.described.name(rank.plan.ranks)),
            of,
            rank,
            graph,
            stages,
            raised,
            explanation,
            precision,
            quantization,
            weight_quantization,
            coverage,
            released,
            matched,
            vocabulary,
        })
    };
    let parts = ranks::places(source.parts.len(), options.tensor_parallel).map(one).collect::<Result<Vec<_>>>();
    let parts = parts.map_err(|error| finite::named(error, &source))?;
    ranks::check(&parts)?;
    check::lowered(options, &source, &parts, observer)?;
    Ok(Lowered { source, parts })
}

/// Compiles a model into a draft of an artifact at `folder`.
///
/// # Errors
/// When the model cannot be loaded, a pass fails, or something cannot be written.
pub fn compile(
    model: &SourceModel,
    folder: &Path,
    options: &CompileOptions,
    observer: &dyn Observer,
) -> Result<Compiled> {
    check::output(model, folder, options.force)?;
    let Lowered { source, parts: lowered } = lower(model, options, None, observer)?;
    let has_experts = lowered.iter().any(LoweredPart::has_experts);
    let asked = options.recipe.as_ref().and_then(|recipe| recipe.experts);
    ensure!(
        has_experts || asked.is_none(),
        "--recipe experts={}: the model has no mixtures of experts; leave it out",
        asked.map_or("", ExpertsName::name)
    );
    check::artifact(model, &source, &lowered, options, observer)?;
    let interface = |lowered: &LoweredPart| describe::rank_interface(&source.parts[lowered.of], lowered);
    let interfaces: Vec<PartManifest> = lowered.iter().map(interface).collect();
    packages::check_parts(options.package, &interfaces, options.backend)?;
    let profiles = match options.backend.engines {
        Some(_) => Some(Profiles::of(&interfaces, source.max_positions, &options.profiles)?),
        None => None,
    };
    let widened = lowered.iter().filter_map(|part| part.vocabulary.clone()).find(|v| v.logits.is_some());
    let stages = match options.pipeline {
        Some(count) => stages::stages(&lowered, count, observer)?,
        None => vec![Vec::new(); lowered.len()],
    };
    let draft = Draft::create(folder, options.force)?;
    let graphs = write::Graphs { parts: &lowered, stages: &stages };
    let written = graphs.write(model, source.task, draft.folder(), options, observer);
    let (emitted, files) = written.map_err(|error| finite::named(error, &source))?;
    match larger::larger(model, &lowered, emitted.iter().flatten()) {
        Some(larger) if options.is_to_be_small() => observer.warning(&larger.text),
        Some(larger) if larger.has_halves => observer.note(&larger.text),
        _ => {}
    }
    let pooling = options.recipe.as_ref().and_then(|recipe| recipe.pooling);
    let mut companions = write::companions(model, pooling.zip(describe::features(&source)), draft.folder())?;
    companions.extend(options.card.then(|| CARD.to_owned()));
    if let Some(size) = options.recipe.as_ref().and_then(|recipe| recipe.image_size) {
        pictures::fit(draft.folder(), size, observer)?;
    }
    let file = |(name, bytes): &(String, u64)| File { name: name.clone(), bytes: *bytes, blake3: None };
    let parts = lowered.iter().zip(stages.iter().zip(&emitted)).map(|(lowered, (stages, emitted))| {
        let part = &source.parts[lowered.of];
        let described = describe::part(part, lowered, stages, emitted);
        let vocabulary = described.vocabulary.clone().or_else(|| model.padded_vocabulary(part.name));
        PartManifest { vocabulary, ..described }
    });
    let manifest = Manifest {
        schema: Manifest::schema(),
        producer: Manifest::producer(),
        source: SourceManifest {
            name: model.name(),
            path: relative_path(draft.resolved_target(), &model.path()),
            hub: options.hub.clone(),
            files,
            import: model.import_options(),
            adapters: describe::adapters(draft.resolved_target(), model),
            artifact: model.history().map(Box::new),
            card: describe::card(model, options.task, observer),
        },
        architecture: source.architecture.to_owned(),
        task: source.task,
        pooling,
        target: options.backend.target.name.to_owned(),
        opset: options.passes.opset,
        precision: describe::precision(options, &lowered),
        calibration: options.calibration.as_ref().map(describe::calibration),
        fusion: options.passes.fusion,
        recipe: options.recipe.clone(),
        tuning: None,
        attention_fp32: options.passes.attention_fp32,
        experts: has_experts.then(|| ExpertsName::of(options.passes.experts)),
        cache_in_place: lowered.iter().any(LoweredPart::appends_in_place),
        integer_inputs: describe::products(lowered.iter().map(|part| &part.graph))
            .any(|inputs| inputs == BlockInputs::Integers),
        runtime_package: options.package,
        card: None,
        variant: options.variant,
        files: emitted.iter().flatten().flat_map(|graph| &graph.files).map(file).collect(),
        linked: write::linked(emitted.iter().flatten()),
        companions,
        parameters: describe::parameters(&source),
        parts: parts.collect(),
        merged: None,
        tensor_parallel: ranks::described(&source, &lowered),
        pad_token_id: source.pad_token_id,
        max_sequence_length: source.max_positions,
        recompute_at: source.recompute_at,
        places: source.places,
        length_dependence: source.length_dependence,
        verification: None,
        evaluation: None,
        variants: Vec::new(),
    };
    let mut artifact = Artifact { folder: draft.folder().to_owned(), manifest, backend: options.backend, stamp: None };
    let scored = widened.filter(|_| options.passes.padding.logits == Logits::Padded).map(|v| v.padded);
    let warning = packages::configure(options.package, &source, scored, &mut artifact, profiles.as_ref())?;
    warning.iter().for_each(|warning| observer.warning(warning));
    if let Some(profiles) = &profiles {
        profiles.write(draft.folder())?;
        artifact.manifest.companions.push(PROFILES.to_owned());
    }
    let layers = |part: &LoweredPart| Some((part.name.clone(), part.quantization.clone()?));
    let weights = |part: &LoweredPart| Some((part.name.clone(), part.weight_quantization.clone()?));
    let quantizations = Quantizations {
        layers: lowered.iter().filter_map(layers).collect(),
        weights: lowered.iter().filter_map(weights).collect(),
        weight_bits: options.quantize_weights.as_ref().map(|weights| weights.settings.bits),
    };
    // Those of all ranks are alike.
    let explained = lowered.into_iter().filter(|part| part.rank.as_ref().is_none_or(|rank| rank.described.rank == 0));
    let explanations = explained.filter_map(|part| Some((source.parts[part.of].name, part.explanation?))).collect();
    Ok(Compiled { draft, artifact, source, profiles, quantizations, explanations })
}
