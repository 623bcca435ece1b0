//! Compiling a model: checkpoint -> graph -> passes -> ONNX -> artifact.

pub(crate) mod links;
pub(crate) mod sentence;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_ir::{DType, Dim, Graph, Node, Op, Origin};
use planish_models::{LoadOptions, Loaded, Task};
use planish_onnx::{EXTERNAL_BYTES, ExportOptions, Exported, Placement};
use planish_passes::raise::{Explanation, explain, raised};
use planish_passes::{Half, Logits, Options, Padding, Pipeline, Precision, Stage, Target, pad, precision};

use crate::artifact::manifest::{
    AppliedPass, CalibratedOn, File, Input, Manifest, Part, Port, Size, Source, Vocabulary,
};
use crate::artifact::package::RuntimePackage;
use crate::calibrate::Calibration;
use crate::draft::Draft;
use crate::files::{digest, relative_path};
use crate::source::SourceModel;

/// How to compile.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// The head; inferred where absent.
    pub task: Option<Task>,
    /// Whether warnings are errors.
    pub strict: bool,
    /// Target, opset and fusion.
    pub passes: Options,
    /// Where weights go.
    pub placement: Placement,
    /// The library that the artifact is laid out for.
    pub package: RuntimePackage,
    /// Whether to say what raising found, and where it came near.
    pub explain_fusion: bool,
    /// Whether the graph is verified after each pass.
    pub verify_passes: bool,
    /// Whether a folder that holds what planish did not write may be replaced.
    pub force: bool,
    /// Where the model's values lie, if data was run: what half precision is chosen by.
    pub calibration: Option<Calibration>,
}

impl CompileOptions {
    /// The options of passes over a part of a model, with what was observed of its values.
    fn passes_for(&self, part: &str) -> Options {
        let table = self.calibration.as_ref().map(Calibration::table);
        let values = table.as_ref().and_then(|table| table.part(part));
        let (Some(precision), Some(values)) = (&self.passes.precision, values) else { return self.passes.clone() };
        let observed = values.iter().map(|(value, range)| (value.clone(), range.magnitude())).collect();
        let precision = Precision { observed, ..Precision::clone(precision) };
        Options { precision: Some(precision.into()), ..self.passes.clone() }
    }
}

/// What a caller sees while a model is compiled.
pub trait Observer: Sync {
    /// Something was ignored or assumed.
    fn warning(&self, text: &str);
    /// Something is right and may be taken for something else.
    fn note(&self, text: &str);
    /// The graph of a part after a pass.
    fn graph(&self, pass: &str, graph: &Graph);
    /// Weights begin to be written: `total` bytes.
    fn begin_writing(&self, total: u64);
    /// So many bytes more were written.
    fn written(&self, bytes: u64);
    /// Everything was written.
    fn end_writing(&self);
}

/// A model after passes.
pub struct Lowered {
    /// The model before any pass.
    pub source: Loaded,
    /// Its parts after the passes, in their order.
    pub parts: Vec<LoweredPart>,
}

/// A part of a model after passes.
pub struct LoweredPart {
    /// The name of its file, without `.onnx`.
    pub name: &'static str,
    /// The graph after the passes.
    pub graph: Graph,
    /// The passes that ran, in order.
    pub stages: Vec<Stage>,
    /// How many of each operator that raising finds the graph had when it was raised.
    pub raised: BTreeMap<&'static str, usize>,
    /// What raising found, where that was asked for.
    pub explanation: Option<Explanation>,
    /// What came of half precision, where that was asked for.
    pub precision: Option<precision::Report>,
    /// The vocabulary and what it was padded to, where that was asked for.
    pub vocabulary: Option<Vocabulary>,
}

/// A compiled model that is not in its place yet.
pub struct Compiled {
    /// The artifact in the making.
    pub draft: Draft,
    /// Its manifest, not written yet.
    pub manifest: Manifest,
    /// The model before any pass: the reference of verification.
    pub source: Loaded,
    /// What raising found, by part, where that was asked for.
    pub explanations: Vec<(&'static str, Explanation)>,
}

impl Compiled {
    /// Writes the manifest and puts the artifact in its place.
    ///
    /// # Errors
    /// When that is impossible.
    pub fn publish(self) -> Result<PathBuf> {
        self.manifest.write(self.draft.folder())?;
        self.draft.publish()
    }
}

/// The folder that an artifact goes to unless told otherwise: `NAME-TARGET`, the precision where it is not
/// float32, and the package where it is not the usual one.
#[must_use]
pub fn default_folder(model: &SourceModel, target: Target, half: Option<Half>, package: RuntimePackage) -> PathBuf {
    let precision = half.map(|half| format!("-{half}")).unwrap_or_default();
    format!("{}-{target}{precision}{}", model.name(), package.folder_suffix()).into()
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
    let source = model.load(LoadOptions { task: options.task, strict: options.strict })?;
    source.warnings.iter().for_each(|w| observer.warning(w));
    check_halves(&source, options)?;
    let one = |part: &planish_models::Part| {
        let mut pipeline = Pipeline::new(options.passes_for(part.name));
        pipeline.stop_after = stop_after;
        pipeline.verify = options.verify_passes;
        let mut graph = part.graph.clone();
        let mut stages = Vec::new();
        let mut after = |pass: &'static str, graph: &Graph| observer.graph(pass, graph);
        pipeline.raise(&mut graph, &mut stages, &mut after)?;
        let explanation = options.explain_fusion.then(|| explain(&graph));
        let raised = raised(&graph);
        let vocabulary = vocabulary(&graph, options.passes.padding);
        let precision = pipeline.prepare(&mut graph, &mut stages, &mut after)?;
        pipeline.lower(&mut graph, &mut stages, &mut after)?;
        Ok(LoweredPart { name: part.name, graph, stages, raised, explanation, precision, vocabulary })
    };
    let parts = source.parts.iter().map(one).collect::<Result<Vec<_>>>()?;
    check_patterns(options, &parts)?;
    let mut reports = parts.iter().filter_map(|part| part.precision.as_ref()).peekable();
    if let Some(first) = reports.peek().map(|report| report.half)
        && !(options.passes.target.computes_in_float32() && reports.clone().any(|report| report.bytes > 0.0))
        && reports.all(|report| report.changed == 0)
    {
        observer.warning(&format!("--{first} changed nothing: the model has no float32 that it applies to"));
    }
    Ok(Lowered { source, parts })
}

/// A model whose products are computed in one half type is not brought to the other.
fn check_halves(source: &Loaded, options: &CompileOptions) -> Result<()> {
    let Some(precision) = &options.passes.precision else { return Ok(()) };
    let other = precision.half.other();
    let is_product = |node: &Node| match &node.op {
        Op::Linear(_) | Op::MatMul(_) | Op::Attention(_) => true,
        Op::Foreign(op) => op.is("Conv") || op.is("Gemm"),
        _ => false,
    };
    let in_other = |graph: &Graph, node: &Node| graph.ty(node.outputs[0]).dtype == other.dtype();
    let mut graphs = source.parts.iter().map(|part| &part.graph);
    if graphs.any(|graph| graph.nodes().any(|(_, node)| is_product(node) && in_other(graph, node))) {
        bail!("the model computes in {other} already; --{} is for models in float32", precision.half);
    }
    Ok(())
}

/// Each pattern of what is to be kept in float32 has to match something.
fn check_patterns(options: &CompileOptions, parts: &[LoweredPart]) -> Result<()> {
    let patterns = options.passes.precision.iter().flat_map(|precision| &precision.keep);
    for (at, pattern) in patterns.enumerate() {
        let mut reports = parts.iter().filter_map(|part| part.precision.as_ref()).peekable();
        if reports.peek().is_some() && !reports.any(|report| report.matched[at]) {
            bail!(
                "nothing is named as --keep-fp32 `{pattern}` says; `planish compile --stop-after 0` prints the graph \
                 with the names of its nodes and weights"
            );
        }
    }
    Ok(())
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
    check_output(model, folder, options.force)?;
    let Lowered { source, parts: lowered } = lower(model, options, None, observer)?;
    options.package.check(&source)?;
    options.package.warnings(&source).iter().for_each(|warning| observer.warning(warning));
    let widened = lowered.iter().filter_map(|part| part.vocabulary.as_ref()).find(|v| v.logits.is_some());
    if options.passes.padding.logits == Logits::Padded && widened.is_none() {
        bail!("{} scores no tokens whose logits could be padded; leave out --logits padded", model.name());
    }
    if let Some(note) = sentence_note(model, &source) {
        observer.note(&note);
    }
    if options.placement == Placement::Link
        && let Some(warning) = links::warning(lowered.iter().flat_map(|part| part.graph.weights()).map(|(_, _, w)| w))
    {
        if options.strict {
            bail!("{warning}; leave out --weights link, or --strict");
        }
        observer.warning(&warning);
    }
    let draft = Draft::create(folder, options.force)?;
    let (exported, files) = write(model, &lowered, &draft, options, observer)?;
    let mut companions = copy_companions(model, draft.folder())?;
    let scored = widened.filter(|_| options.passes.padding.logits == Logits::Padded).map(|v| v.padded);
    let (configuration, warning) = options.package.configure(&source, scored, draft.folder())?;
    companions.extend(configuration);
    warning.iter().for_each(|warning| observer.warning(warning));
    let file = |(name, bytes): &(String, u64)| File { name: name.clone(), bytes: *bytes, blake3: None };
    let manifest = Manifest {
        schema: Manifest::schema(),
        producer: Manifest::producer(),
        source: Source {
            name: model.name(),
            path: relative_path(draft.resolved_target(), &model.path()),
            files,
            import: model.import_options(),
        },
        architecture: source.architecture.to_owned(),
        task: source.task.map(|task| task.to_string()),
        target: options.passes.target.to_string(),
        opset: options.passes.opset,
        precision: precision_of(options, &lowered),
        calibration: options.calibration.as_ref().map(|c| CalibratedOn { data: c.data.clone(), samples: c.samples }),
        fusion: options.passes.fusion,
        runtime_package: options.package,
        files: exported.files.iter().map(file).collect(),
        linked: exported.linked,
        companions,
        parameters: parameters(&source),
        parts: source.parts.iter().zip(&lowered).map(|(part, lowered)| described(part, lowered)).collect(),
        pad_token_id: source.pad_token_id,
        max_sequence_length: source.max_positions,
        recompute_at: source.recompute_at,
        verification: None,
    };
    let explanations = lowered.into_iter().filter_map(|part| Some((part.name, part.explanation?))).collect();
    Ok(Compiled { draft, manifest, source, explanations })
}

/// The precision by its name in the manifest: what was asked for, or what an ONNX graph has.
fn precision_of(options: &CompileOptions, parts: &[LoweredPart]) -> String {
    if let Some(precision) = &options.passes.precision {
        return precision.half.to_string();
    }
    let computes = |dtype: DType| {
        let mut nodes = parts.iter().flat_map(|part| part.graph.nodes().map(|(_, node)| (&part.graph, node)));
        nodes.any(|(graph, node)| graph.ty(node.outputs[0]).dtype == dtype && !matches!(node.op, Op::Cast(_)))
    };
    let halves = [Half::Bf16, Half::F16].into_iter().find(|half| computes(half.dtype()));
    halves.map_or_else(|| "f32".to_owned(), |half| half.to_string())
}

/// What has to be said of embeddings of a checkpoint that pools them.
fn sentence_note(model: &SourceModel, source: &Loaded) -> Option<String> {
    let outputs = source.parts.iter().flat_map(|part| part.graph.outputs()).map(|output| output.name.as_str());
    let embeds = source.task == Some(Task::FeatureExtraction);
    sentence::note(&model.folder(), &outputs.collect::<Vec<_>>()).filter(|_| embeds)
}

/// Writes the graphs under their names, and digests the source meanwhile.
fn write(
    model: &SourceModel,
    parts: &[LoweredPart],
    draft: &Draft,
    options: &CompileOptions,
    observer: &dyn Observer,
) -> Result<(Exported, Vec<File>)> {
    let sources = model.files()?;
    let weights = model.weight_files();
    let linked = options.placement == Placement::Link;
    let (exported, files) = std::thread::scope(|scope| {
        let files = scope.spawn(|| -> Result<Vec<File>> {
            let one = |source: &planish_models::SourceFile| {
                let skipped = linked && weights.contains(&source.path.as_path());
                let blake3 = if skipped { None } else { Some(digest(&source.path)?) };
                Ok(File { name: file_name(&source.path), bytes: source.bytes, blake3 })
            };
            sources.iter().map(one).collect()
        });
        observer.begin_writing(parts.iter().flat_map(|part| part.graph.weights()).map(|(_, _, w)| w.bytes()).sum());
        let progress = |bytes| observer.written(bytes);
        let export = ExportOptions {
            opset: options.passes.opset,
            placement: options.placement,
            external_above: EXTERNAL_BYTES,
            data_suffix: options.package.data_suffix(),
            metadata: model.metadata(),
            progress: &progress,
        };
        let one = |part: &LoweredPart| planish_onnx::export(&part.graph, part.name, draft.folder(), &export);
        let exported: Result<Vec<Exported>, _> = parts.iter().map(one).collect();
        observer.end_writing();
        // The thread does not panic: it returns what goes wrong.
        (exported, files.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    Ok((joined(exported?), files?))
}

/// Copies configuration and tokenizer files; returns their names.
fn copy_companions(model: &SourceModel, folder: &Path) -> Result<Vec<String>> {
    let copy = |from: PathBuf| {
        let name = file_name(&from);
        let to = folder.join(&name);
        fs::copy(&from, &to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
        Ok(name)
    };
    model.companions().into_iter().map(copy).collect()
}

/// What several exports wrote; they link the same files.
fn joined(exports: Vec<Exported>) -> Exported {
    let mut all = Exported { files: Vec::new(), linked: Vec::new() };
    for export in exports {
        all.files.extend(export.files);
        all.linked.extend(export.linked);
    }
    all.linked.sort();
    all.linked.dedup();
    all
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Checks that a model may be compiled into a folder, before work that would be in vain.
///
/// # Errors
/// When the folder holds the model itself, or something else that may not be replaced.
pub fn check_output(model: &SourceModel, folder: &Path, force: bool) -> Result<()> {
    refuse_own_source(model, folder)?;
    Draft::check(folder, force)
}

/// The output must not replace the folder that holds the source.
fn refuse_own_source(model: &SourceModel, folder: &Path) -> Result<()> {
    let Ok(folder) = folder.canonicalize() else { return Ok(()) };
    // The folder of the files and the files themselves: either may be reached by symbolic links.
    let own = model.folder();
    let mut paths = std::iter::once(own.as_path()).chain(model.weight_files());
    if paths.any(|path| path.canonicalize().is_ok_and(|p| p.starts_with(&folder))) {
        bail!("the output folder {} holds the model itself; choose another with -o", folder.display());
    }
    Ok(())
}

/// The elements of the stored tensors that the parts use, each tensor counted once.
fn parameters(source: &Loaded) -> u64 {
    let mut seen = HashSet::new();
    let weights = source.parts.iter().flat_map(|part| part.graph.weights());
    let stored = weights.filter(|(_, value, _)| match &value.origin {
        Origin::Tensor { file, name } => seen.insert((file.clone(), name.clone())),
        _ => false,
    });
    stored.map(|(_, _, weight)| weight.elements() as u64).sum()
}

/// What the manifest says of a part.
fn described(part: &planish_models::Part, lowered: &LoweredPart) -> Part {
    Part {
        raised: lowered.raised.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        precision: lowered.precision.as_ref().map(Into::into),
        passes: lowered.stages.iter().map(|s| AppliedPass { name: s.pass.to_owned(), changed: s.changed }).collect(),
        vocabulary: lowered.vocabulary.clone(),
        ..interface(part, &lowered.graph)
    }
}

/// What a part takes and gives by a graph of it.
pub(crate) fn interface(part: &planish_models::Part, graph: &Graph) -> Part {
    let input = |&value| {
        let name = &graph.value(value).name;
        let end = part.id_ranges.iter().find(|r| r.input == *name).map(|r| r.end);
        Input { port: port(graph, name, value), end }
    };
    Part {
        name: part.name.to_owned(),
        inputs: graph.inputs().iter().map(input).collect(),
        outputs: graph.outputs().iter().map(|o| port(graph, &o.name, o.value)).collect(),
        raised: BTreeMap::new(),
        precision: None,
        passes: Vec::new(),
        vocabulary: None,
    }
}

/// The vocabulary of a graph before it is padded, and what becomes of it.
fn vocabulary(canonical: &Graph, padding: Padding) -> Option<Vocabulary> {
    let multiple = padding.vocabulary?;
    let pad::Vocabulary { size, scored } = pad::vocabulary(canonical)?;
    let padded = size.checked_next_multiple_of(multiple)?;
    Some(Vocabulary { size, padded, logits: scored.then(|| padding.logits.to_string()) })
}

/// Name and type of a value.
pub(crate) fn port(graph: &Graph, name: &str, value: planish_ir::ValueId) -> Port {
    let ty = graph.type_of(value);
    let dtype = ty.as_tensor().map_or_else(|| ty.to_string(), |ty| ty.dtype.to_string());
    Port { name: name.to_owned(), dtype, shape: ty.dims().map(size).collect() }
}

fn size(dim: &Dim) -> Size {
    let known = dim.as_constant().and_then(|size| u64::try_from(size).ok());
    known.map_or_else(|| Size::Open(dim.to_string()), Size::Known)
}
