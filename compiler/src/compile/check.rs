//! What a compilation is checked for, in the order in which it is known: the output, the model, what passes made of it, and
//! the artifact.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Result, bail};
use planish_artifact::draft::Draft;
use planish_artifact::recipe::Recipe;
use planish_ir::weight::{Packing, WeightExpr};
use planish_ir::{Graph, Node, Op, Type, ValueId, Weight};
use planish_models::{Loaded, Task};
use planish_onnx::Placement;
use planish_passes::{CacheForm, LAST_WITH_QUANTIZE_KERNELS, Logits};

use super::describe::products;
use super::{CompileOptions, LoweredPart, Observer, keep, links};
use crate::packages;
use crate::source::{SourceModel, pictures};

/// Why the cache of an encoder-decoder is copied.
const SEVERAL_PARTS: &str =
    "--recipe cache=in-place is for decoders, and the model has several parts; use --recipe cache=copy";

/// How many weights a warning names.
const WEIGHTS_SHOWN: usize = 8;

/// Checks that a model may be compiled into a folder, before work that would be in vain.
///
/// # Errors
/// When the folder contains the model itself, or something else that may not be replaced.
pub fn output(model: &SourceModel, folder: &Path, force: bool) -> Result<()> {
    refuse_own_source(model, folder)?;
    Draft::check(folder, force)
}

/// The output must not replace the folder that contains the source.
fn refuse_own_source(model: &SourceModel, folder: &Path) -> Result<()> {
    let Ok(folder) = folder.canonicalize() else { return Ok(()) };
    // The folder of the files and the files themselves: either may be reached by symbolic links.
    let own = model.folder();
    let mut paths = std::iter::once(own.as_path()).chain(model.weight_files());
    if paths.any(|path| path.canonicalize().is_ok_and(|p| p.starts_with(&folder))) {
        bail!("the output folder {} contains the model itself; choose another with -o", folder.display());
    }
    Ok(())
}

/// Checks a model that was loaded.
///
/// # Errors
/// When it is of another precision than the options take, of a kind that the runtime package does not load, of several
/// parts where a cache is to be appended to in place, or of another task than --recipe logits=last is for.
pub(super) fn model(source: &Loaded, options: &CompileOptions, observer: &dyn Observer) -> Result<()> {
    halves(source, options)?;
    if options.passes.cache == CacheForm::InPlace && source.parts.len() > 1 {
        bail!("{SEVERAL_PARTS}");
    }
    let generates = [
        Task::TextGeneration,
        Task::Text2TextGeneration,
        Task::AutomaticSpeechRecognition,
        Task::ImageToText,
        Task::ImageTextToText,
    ];
    // A recognizer of one part scores the tokens of frames.
    let is_ctc = source.task == Some(Task::AutomaticSpeechRecognition) && source.parts.len() == 1;
    let generates = !is_ctc && source.task.is_some_and(|task| generates.contains(&task));
    if options.passes.last_logits && !generates {
        bail!(
            "--recipe logits=last is for models that generate text, and this one is for {}; leave it out",
            source.task.map_or("no task that its graph tells (--task says one)", Task::name)
        );
    }
    packages::check(options.package, source, options.backend)?;
    let warnings = packages::warnings(options.package, source, options.passes.last_logits);
    warnings.iter().for_each(|warning| observer.warning(warning));
    Ok(())
}

/// A model whose products are computed in one half type is not brought to the other.
fn halves(source: &Loaded, options: &CompileOptions) -> Result<()> {
    let Some(precision) = options.passes.precision.as_deref() else { return Ok(()) };
    let other = precision.half.other();
    let is_product = |node: &Node| match &node.op {
        Op::Foreign(op) => op.is("Conv") || op.is("Gemm"),
        op => op.is_product(),
    };
    let in_other = |graph: &Graph, node: &Node| graph.ty(node.outputs[0]).dtype == other.dtype();
    let mut graphs = source.parts.iter().map(|part| &part.graph);
    if graphs.any(|graph| graph.nodes().any(|(_, node)| is_product(node) && in_other(graph, node))) {
        bail!("the model computes in {other} already, but --{} converts models in float32", precision.half);
    }
    Ok(())
}

/// Checks what passes made of a model.
///
/// # Errors
/// When nothing is named as an exception says, or a cache cannot be appended to in place.
pub(super) fn lowered(
    options: &CompileOptions,
    source: &Loaded,
    parts: &[LoweredPart],
    observer: &dyn Observer,
) -> Result<()> {
    keep::check(options, source, parts, observer)?;
    in_place(options, parts)?;
    let kept = parts.iter().filter_map(|part| part.precision.as_ref()).find_map(|report| report.part.kept.first());
    let mut reports = parts.iter().filter_map(|part| part.precision.as_ref()).peekable();
    if let Some(first) = reports.peek().map(|report| report.half)
        && !(options.backend.target.computes_in_float32 && reports.clone().any(|report| report.part.bytes > 0.0))
        && reports.all(|report| report.changed == 0)
    {
        let why = match kept {
            Some(kept) => {
                format!(
                    "all that it could convert stays in float32, such as {} `{}`: {}",
                    kept.operator, kept.name, kept.reason
                )
            }
            None => "the model has no float32 weights or operators to convert".to_owned(),
        };
        observer.warning(&format!("--{first} changed nothing, because {why}"));
    }
    if let Some(warning) = lost_indices(options, parts) {
        if options.strict {
            bail!("{warning}; leave out --debug strict");
        }
        observer.warning(&warning);
    }
    if options.block_inputs.is_some() && products(parts.iter().map(|part| &part.graph)).next().is_none() {
        observer.warning(
            "--recipe accuracy-level changed nothing: no weight has codes with a scale for each block; --int4 and --int8-weights make \
             such weights",
        );
    }
    if options.requantize && parts.iter().all(|part| part.released == 0) {
        observer
            .warning("--recipe requantize changed nothing: no quantized weight belongs to a layer with float inputs");
    }
    let missing = [missing_kernels(options, parts), missing_lookup(options, parts)];
    missing.iter().flatten().for_each(|warning| observer.warning(warning));
    Ok(())
}

/// The warning about operators that are in the graph of a target which takes all of ONNX, and that ONNX Runtime has no kernels
/// for. Engines are built of theirs.
fn missing_kernels(options: &CompileOptions, parts: &[LoweredPart]) -> Option<String> {
    let opset = options.passes.opset;
    if opset <= LAST_WITH_QUANTIZE_KERNELS || options.backend.engines.is_some() {
        return None;
    }
    let quantizes = |op: &Op| matches!(op, Op::Foreign(op) if ["QuantizeLinear", "DequantizeLinear"].iter().any(|name| op.is(name)));
    let any = parts.iter().any(|part| part.graph.nodes().any(|(_, node)| quantizes(&node.op)));
    any.then(|| {
        format!(
            "ONNX Runtime has no kernels for the QuantizeLinear and DequantizeLinear of opset {opset}; it runs those of opset \
             {LAST_WITH_QUANTIZE_KERNELS} and older (--opset)"
        )
    })
}

/// The warning about tables of blocks that the source has, where a library of the package looks up none.
fn missing_lookup(options: &CompileOptions, parts: &[LoweredPart]) -> Option<String> {
    let looks_up = |op: &Op| matches!(op, Op::Foreign(op) if op.op.0 == "GatherBlockQuantized");
    let any = || parts.iter().any(|part| part.graph.nodes().any(|(_, node)| looks_up(&node.op)));
    (!options.package.looks_up_blocks() && any()).then(|| {
        "onnxruntime-web has no GatherBlockQuantized on processors, by which rows of the source's table of tokens are looked up: pages do not \
         load the graph; --int4 with --recipe requantize=true gives each row one scale"
            .to_owned()
    })
}

/// The warning about weights whose codes are indices of a table, and that are stored in another form.
fn lost_indices(options: &CompileOptions, parts: &[LoweredPart]) -> Option<String> {
    let weights = parts.iter().flat_map(|part| part.graph.weights());
    let mut weights: Vec<(&str, &Weight)> = weights.map(|(_, value, weight)| (value.name.as_str(), weight)).collect();
    // Codes and scales that are computed from the same indices are one weight.
    weights.sort_by_key(|(name, _)| *name);
    let (mut seen, mut names) = (HashSet::new(), Vec::new());
    for (name, weight) in weights {
        let before = seen.len();
        indices(weight, &mut seen);
        names.extend((seen.len() > before).then_some(name));
    }
    let target = options.backend.target;
    let reason = match (options.quantize_weights.is_some(), target.has_block_operators()) {
        (true, _) => "--int4 and --int8-weights quantize weights anew; leave them out to keep codes".to_owned(),
        (false, true) => "MatMulBnb4 of ONNX Runtime does not take the table or the block size".to_owned(),
        (false, false) => {
            format!("target {target} has no product with indices of a table (nf4, fp4); target ort has one")
        }
    };
    let shown: Vec<&str> = names.iter().copied().take(WEIGHTS_SHOWN).collect();
    let more = names.len().saturating_sub(WEIGHTS_SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let lost =
        if seen.len() == 1 { "1 quantized weight".to_owned() } else { format!("{} quantized weights", seen.len()) };
    (!names.is_empty()).then(|| format!("the codes of {lost} are not kept: {}{more}; {reason}", shown.join(", ")))
}

/// Adds the numbers that a weight is computed from and that are those of indices of 4 bits of a table.
fn indices<'w>(weight: &'w Weight, found: &mut HashSet<&'w Weight>) {
    match weight.expr() {
        WeightExpr::Unpack(_, Packing::Codebook { bits: 4, .. }) => {
            found.insert(weight);
        }
        expr => expr.children().iter().for_each(|child| indices(child, found)),
    }
}

/// Whether an operator appends to a cache in place; to this one, if it is given.
pub(super) fn is_appended(op: &Op, past: Option<ValueId>) -> bool {
    match op {
        Op::Foreign(op) => op.op.0 == "GroupQueryAttention" && past.is_none_or(|past| op.inputs.contains(&Some(past))),
        _ => false,
    }
}

/// A cache that is appended to in place is that of a decoder. All of it is an operand of the operator that does so, and the
/// mask says how long the past is: the buffers of the cache have room for more.
fn in_place(options: &CompileOptions, parts: &[LoweredPart]) -> Result<()> {
    let appends = parts.iter().any(|part| part.appends_in_place());
    if options.passes.cache == CacheForm::Copy || !appends && options.passes.cache != CacheForm::InPlace {
        return Ok(());
    }
    let [part] = parts else { bail!("{SEVERAL_PARTS}") };
    let graph = &part.graph;
    let inputs =
        || graph.inputs().iter().map(|input| (*input, graph.value(*input).name.as_str(), graph.type_of(*input)));
    let role = |name: &str| graph.interface.input(name);
    let dims = |ty: &Type| ty.as_tensor().map_or_else(Vec::new, |ty| ty.shape.to_vec());
    let new = inputs().find(|(_, name, _)| role(name).is_token_ids()).and_then(|(_, _, ty)| dims(ty).get(1).cloned());
    let mut pasts =
        inputs().filter(|(_, name, _)| role(name).cache().is_some_and(|entry| !entry.kind.is_state())).peekable();
    let (Some(_), Some(new)) = (pasts.peek(), new) else {
        bail!(
            "--recipe cache=in-place is for decoders with inputs of keys and values, and the model has none; use --recipe cache=copy"
        );
    };
    for (past, name, ty) in pasts {
        if !graph.nodes().any(|(_, node)| is_appended(&node.op, Some(past))) {
            bail!(
                "--recipe cache=in-place: planish found no attention that takes `{name}`; --explain fusion says why; use --recipe cache=copy"
            );
        }
        let length =
            dims(ty).get(2).filter(|past| past.as_constant().is_none()).and_then(|past| past.checked_add(&new));
        if !length.is_some_and(|length| inputs().any(|(_, _, ty)| dims(ty).contains(&length))) {
            bail!(
                "--recipe cache=in-place needs an input as long as the past and the new tokens, such as an attention mask, and the \
                 model has none for `{name}`, {ty}; use --recipe cache=copy"
            );
        }
    }
    Ok(())
}

/// Checks what an artifact of a model can be.
///
/// # Errors
/// When there are no logits to pad or to leave out, or with `strict` where weights cannot be linked.
pub(super) fn artifact(
    model: &SourceModel,
    source: &Loaded,
    parts: &[LoweredPart],
    options: &CompileOptions,
    observer: &dyn Observer,
) -> Result<()> {
    let scores = parts.iter().filter_map(|part| part.vocabulary.as_ref()).any(|v| v.logits.is_some());
    if options.passes.padding.logits == Logits::Padded && !scores {
        bail!("{} has no logits that could be padded; leave out --recipe logits", model.name());
    }
    let is_padded =
        |part: &LoweredPart| part.vocabulary.is_some() || model.padded_vocabulary(source.parts[part.of].name).is_some();
    if options.recipe.as_ref().is_some_and(Recipe::pads) && !parts.iter().any(is_padded) {
        observer.warning("nothing was padded, because planish found no input of token ids and no LM head");
    }
    if let Some(note) = sentence_note(model, source) {
        observer.note(&note);
    }
    let is_fitted = options.recipe.as_ref().is_some_and(|recipe| recipe.image_size.is_some());
    if source.task == Some(Task::ImageTextToText)
        && !is_fitted
        && let Some(warning) = pictures::refused(&model.folder())
    {
        if options.strict {
            bail!("{warning}; leave out --debug strict");
        }
        observer.warning(&warning);
    }
    if options.passes.last_logits && !parts.iter().any(LoweredPart::has_last_logits) {
        bail!("{} gives no `logits` [batch, tokens, vocabulary]; leave out --recipe logits", model.name());
    }
    let weights = || parts.iter().flat_map(|part| part.graph.weights()).map(|(_, _, weight)| weight);
    let is_view = |weight: &Weight| options.placement == Placement::LinkViews && planish_onnx::is_view(weight);
    let is_copied = |weight: &Weight| options.backend.emitter.copies(weight) && !is_view(weight);
    if options.placement != Placement::Copy
        && let Some(warning) = links::warning(weights(), is_copied)
    {
        if options.strict {
            bail!("{warning}; leave out --weights link, or --debug strict");
        }
        observer.warning(&warning);
    }
    Ok(())
}

/// What has to be said of the vectors of tokens of a sentence model.
fn sentence_note(model: &SourceModel, source: &Loaded) -> Option<String> {
    let SourceModel::Checkpoint(checkpoint, _) = model else { return None };
    let is_left_out = source.task == Some(Task::FeatureExtraction) && checkpoint.has_modules();
    is_left_out.then(|| {
        format!(
            "the modules of modules.json are not in the graph: the task {} gives vectors of tokens, and {} that of a text",
            Task::FeatureExtraction,
            Task::SentenceSimilarity
        )
    })
}
