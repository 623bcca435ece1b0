//! Evaluation: an artifact and its model in float32 run on the same data, and what differs is reported in the terms of the
//! task.
//!
//! Memory is bounded by a batch of inputs and outputs of both sides, and by the embeddings of all samples, [samples,
//! features] in float32 of each side, which nearest neighbours need.

mod labels;
mod mean;
pub(crate) mod metrics;
mod reference;
mod report;
mod seen;
mod shard;
mod sides;
mod speech;
mod tally;
mod windows;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use labels::{Classes, Labels, Transcripts, may_have_several};
use planish_artifact::backend::RuntimeSettings;
use planish_artifact::chain::Chain;
use planish_artifact::evaluation::{Evaluation, Pooling, Requirements, Unit};
use planish_artifact::{Artifact, runtime};
use planish_compiler::source::{self, Compared, SourceModel};
use planish_data::inputs::Sampling;
use planish_data::{DataOptions, Dataset, Shard, described, is_tensors};
use planish_ir::InputRole;
use planish_models::{Loaded, Task};
use planish_passes::LAST_LOGITS;
use planish_runtimes::SessionOptions;

use crate::positions::TextNames;
use report::Basis;
use seen::Seen;
use sides::Side;
use tally::{Measured, Tally};
use windows::{Run, Windows};

pub use reference::Reference;
pub use shard::{EvaluationShard, evaluate_shard};

/// The most tokens of a window unless told otherwise.
const WINDOW: usize = 512;

/// The most tokens of all texts of a language model, unless told otherwise.
pub const TOKENS: NonZeroUsize = NonZeroUsize::MIN.saturating_add((1 << 15) - 1);

/// How an artifact is evaluated.
#[derive(Clone, Debug, Default)]
pub struct EvaluateOptions {
    /// How the data set is read.
    pub data: DataOptions,
    /// The most tokens of one run of a language model; where absent as many as the model takes, 512 at most.
    pub window: Option<NonZeroUsize>,
    /// How many tokens further the next window begins; half a window where absent.
    pub stride: Option<NonZeroUsize>,
    /// The limits of figures, which an evaluation checks before the first run: there is a figure for each.
    pub require: Requirements,
    /// Threads of the runtimes; 0 leaves the number to them.
    pub threads: usize,
    /// How runtimes are found.
    pub settings: RuntimeSettings,
    /// What transcribes recordings with an encoder-decoder.
    pub transcribe: Option<Transcribe>,
}

/// Transcribes recordings, which have their numbers in the data, with an artifact, and tells the observer how many are done: a text for each recording. Of the options
/// it takes the batch size, the threads and the settings of runtimes.
pub type Transcribe =
    fn(&Artifact, &[(usize, PathBuf)], &EvaluateOptions, &dyn EvaluationObserver) -> Result<Vec<String>>;

/// What a caller sees while an artifact is evaluated.
pub trait EvaluationObserver {
    /// Something was ignored or assumed.
    fn warning(&self, text: &str);
    /// Information that is not a problem.
    fn note(&self, text: &str);
    /// So many of so many samples were run.
    fn progress(&self, done: usize, total: usize);
}

/// The result of an evaluation.
pub struct Evaluated {
    /// The model that the artifact was compared with.
    pub source: PathBuf,
    /// The figures.
    pub evaluation: Evaluation,
}

/// An artifact gives something that cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the output `{output}` of the artifact cannot be compared: {reason}")]
pub struct Broken {
    /// The output.
    pub output: String,
    /// The reason.
    pub reason: String,
}

/// Runs an artifact and its source in float32 on a data set: the model among those that are `named`, or the one that is found
/// by what `planish.json` says. Where none of those that are named is the source, the first that takes the same inputs stands
/// for it.
///
/// # Errors
/// When the artifact, its source, the data or a runtime is missing or changed, when the data is not what the model takes, or
/// a run fails; [`Broken`] when the artifact gives something that cannot be compared; [`NoFigure`](planish_artifact::evaluation::NoFigure) when there is no figure for a
/// limit.
pub fn evaluate_artifact(
    artifact: &Artifact,
    named: &[PathBuf],
    data: &Path,
    options: &EvaluateOptions,
    observer: &dyn EvaluationObserver,
) -> Result<Evaluated> {
    let Compared { path, model, loaded, .. } = compared(artifact, named, observer)?;
    let mut reference = Reference::default();
    let evaluation = evaluate_compiled(artifact, (&model, &loaded), &mut reference, data, options, observer)?;
    Ok(Evaluated { source: path, evaluation })
}

/// The model that an artifact is compared with.
fn compared(artifact: &Artifact, named: &[PathBuf], observer: &dyn EvaluationObserver) -> Result<Compared> {
    let compared = source::compared(named, artifact)?;
    if !compared.is_source {
        let (artifact, path) = (artifact.folder.display(), compared.path.display());
        observer.note(&format!(
            "{artifact} was not compiled from {path}, and is compared with it because --reference names it"
        ));
    }
    Ok(compared)
}

/// Checks that an artifact gives what an evaluation compares.
///
/// # Errors
/// When it leaves out logits that its source gives, or a language model gives those of the last token of each row only.
pub fn check(artifact: &Artifact) -> Result<()> {
    let manifest = &artifact.manifest;
    let folder = artifact.folder.display();
    let mut parts = manifest.parts.iter().filter(|part| part.last_logits).peekable();
    let is_of_source = manifest.task == Some(Task::TextGeneration) && parts.peek().is_some();
    if parts.any(|part| part.passes.iter().any(|applied| applied.name == LAST_LOGITS.name)) {
        bail!(
            "{folder} gives logits of the last token of each row only, and an evaluation compares those of all tokens; compile \
             the model without --recipe logits=last"
        );
    }
    if is_of_source {
        bail!(
            "{folder} gives logits of the last token of each row only, as its source does, and the evaluation of a language model \
             needs those of all tokens"
        );
    }
    Ok(())
}

/// The same for an artifact in the making, with the model that it is made of. Artifacts that have `reference` in common are
/// those of one model, and run on the same data.
///
/// # Errors
/// As [`evaluate_artifact`].
pub fn evaluate_compiled(
    artifact: &Artifact,
    (model, loaded): (&SourceModel, &Loaded),
    reference: &mut Reference,
    data: &Path,
    options: &EvaluateOptions,
    observer: &dyn EvaluationObserver,
) -> Result<Evaluation> {
    let mut all = Seen::default();
    let mut fold = |_, seen| all.fold(seen);
    let basis = run(artifact, (model, loaded), reference, data, (options, None), observer, &mut fold)?;
    Ok(basis.report(&all))
}

/// Runs the batches of a data set, or those of a shard; `keep` takes what was seen of each, with its number from 0 on.
fn run(
    artifact: &Artifact,
    (model, loaded): (&SourceModel, &Loaded),
    reference: &mut Reference,
    data: &Path,
    (options, shard): (&EvaluateOptions, Option<Shard>),
    observer: &dyn EvaluationObserver,
    keep: &mut dyn FnMut(usize, Seen),
) -> Result<Basis> {
    if speech::is_transcribed(artifact, loaded, data, options) {
        return speech::run(artifact, (model, loaded), data, (options, shard), observer, keep);
    }
    check(artifact)?;
    let folder = model.companion_folder()?;
    let chain = Chain::of(&artifact.manifest.parts);
    let mut data_options = DataOptions { own_text: true, ..options.data.clone() };
    if loaded.task == Some(Task::ImageTextToText) {
        bail!(
            "{} reads images with texts, which is not evaluated; compile its text model with --task {}, and evaluate that",
            artifact.folder.display(),
            Task::TextGeneration
        );
    }
    let windows = windows(artifact, loaded, options)?;
    if let Some(windows) = windows {
        read_in_windows(&mut data_options, windows, &chain, loaded, data);
    }
    let dataset = Dataset::open(data, &data_options)?;
    let mut batches = dataset.batches(&chain, loaded, &folder, &data_options)?;
    let writing = batches.writing().cloned();
    let classes = Classes::read(&folder)?;
    let has_folders = matches!(loaded.task, Some(Task::ImageClassification | Task::AudioClassification));
    let of_folders = has_folders && by_folders(&dataset, &classes, observer);
    let has_labels = options.data.label.is_some() || of_folders;
    let measured = Measured {
        task: loaded.task,
        pooling: match loaded.task {
            task if task.is_none_or(Task::embeds) => Pooling::read(&folder, &mut |text| observer.warning(text))?,
            _ => Pooling::default(),
        },
        windows,
        has_labels,
        several: loaded.task == Some(Task::TextClassification)
            && may_have_several(&folder, options.data.label.is_some())?,
    };
    if measured.has_labels {
        Labels::check(loaded.task, artifact.manifest.parts.len() == 1)?;
    }
    let classes = if has_labels { classes } else { Classes::default() };
    let mut labels = Labels::new(classes.clone(), has_labels);
    if has_labels && loaded.task == Some(Task::AutomaticSpeechRecognition) {
        labels.transcripts = Some(Transcripts::open(&folder)?);
    }

    let names = TextNames::of(&chain);
    let outputs = artifact.manifest.parts.iter().flat_map(|part| part.outputs.iter().map(|output| output.role));
    let mut tally = Tally::new(measured, labels, names.clone(), &outputs.collect::<Vec<_>>());
    options.require.check(|figure| tally.may_have(figure))?;

    let session = SessionOptions { threads: options.threads };
    let runs_on = runtime(artifact, &options.settings, &mut |text| observer.note(text));
    let found = runs_on.check()?;
    let mut given = Side::artifact(artifact, runs_on.as_ref(), session, &mut |text| observer.note(text))?;
    let open = || Side::reference(loaded, model.default_opset(), &options.settings, session);
    let (mut tokens, pad) = (None, artifact.manifest.pad_token_id);
    let rows = windows.map_or(NonZeroUsize::MIN, |windows| windows.rows(vocabulary(loaded)));
    let complete = |inputs: &mut Vec<_>| {
        chain.complete(inputs)?;
        chain.check(inputs, loaded.max_positions)
    };
    let most = batches.most();
    observer.progress(0, most);
    let mut samples = 0;
    // Every shard reads all of the data, since what a batch has depends on the tokens before it.
    for number in 0.. {
        let Some(batch) = batches.next().transpose()? else { break };
        if let Some(count) = count_tokens(&batch.inputs, &names) {
            *tokens.get_or_insert(0) += count;
        }
        samples = batch.samples.end;
        if shard.is_some_and(|shard| !shard.has(number)) {
            continue;
        }
        let mut runs = match windows {
            Some(windows) => windows.runs(batch.inputs, rows, &names, &complete)?,
            None => vec![Run { first: Vec::new(), inputs: batch.inputs, rows: batch.rows }],
        };
        let (range, context) = (&batch.samples, || batch.place.clone());
        for (index, run) in runs.iter_mut().enumerate() {
            if let Some(writing) = &writing {
                let written = reference.write((range.clone(), index), &mut run.inputs, writing, &open);
                written.with_context(|| format!("the reference fails on {}", context()))?;
            }
            let expected = reference.run((range.clone(), index), &run.inputs, pad, &open);
            let expected = expected.with_context(|| format!("the reference fails on {}", context()))?;
            let actual = given.run(&run.inputs, pad).with_context(context)?;
            tally.add(run, &expected, &actual).with_context(context)?;
        }
        keep(number, tally.take());
        observer.progress(samples.min(most), most);
    }
    observer.progress(samples, samples);
    let read = batches.coverage();
    // A pair of texts to embed is a sample of two rows.
    let samples = match &read {
        Some(read) if !batches.divides() => usize::try_from(read.texts)?,
        _ => samples,
    };
    Ok(Basis {
        data: described(data)?,
        split: options.data.split,
        samples,
        tokens,
        read,
        runtime: runs_on.name().to_owned(),
        product: format!("{} {}", found.product, found.version),
        pooling: tally.pooling(),
        windows,
        classes,
    })
}

/// Whether the names of the folders that pictures or recordings are in are labels: one of them is a class.
fn by_folders(dataset: &Dataset, classes: &Classes, observer: &dyn EvaluationObserver) -> bool {
    let folders = dataset.folders();
    let Some(first) = folders.first() else { return false };
    let are_labels = folders.iter().any(|folder| classes.has(folder));
    if !are_labels {
        observer.note(&format!(
            "the folders of the data, such as `{first}`, are not named after classes in id2label of config.json; there are no \
             figures of labels"
        ));
    }
    are_labels
}

/// The windows of a language model.
fn windows(artifact: &Artifact, loaded: &Loaded, options: &EvaluateOptions) -> Result<Option<Windows>> {
    let is_one = artifact.manifest.parts.len() == 1;
    if !is_one || loaded.task != Some(Task::TextGeneration) {
        if options.window.or(options.stride).is_some() {
            bail!("--window and --stride are for language models of one part");
        }
        return Ok(None);
    }
    let fixed = fixed_width(&Chain::of(&artifact.manifest.parts));
    let most = loaded.max_positions.unwrap_or(usize::MAX);
    let length = match options.window.map(NonZeroUsize::get) {
        Some(window) if fixed.is_some_and(|fixed| fixed != window) => {
            bail!("--window {window} is not the number of tokens that the model takes, which is {}", fixed.unwrap_or(0))
        }
        Some(window) if window > most => bail!("--window {window} is more than the {most} tokens of the model"),
        Some(1) => bail!("--window 1 predicts nothing: a window has at least 2 tokens"),
        Some(window) => window,
        None => fixed.unwrap_or(most.min(WINDOW)),
    };
    let stride = options.stride.map_or(length.div_ceil(2), NonZeroUsize::get);
    if stride > length {
        bail!("--stride {stride} is more than the window of {length} tokens: tokens between windows would be left out");
    }
    Ok(Some(Windows { length, stride }))
}

/// How many tokens a row has, where the model fixes it.
fn fixed_width(chain: &Chain<'_>) -> Option<usize> {
    let inputs = chain.inputs();
    let (_, ids) = inputs.iter().find(|(_, input)| input.role == InputRole::TokenIds)?;
    usize::try_from(ids.value.dims().get(1)?.as_constant()?).ok()
}

/// How a language model reads data. Windows run through whole texts, of so many tokens together; a `.txt` file is one text, but
/// where a part of its lines is held out. Batches are small enough for their logits.
fn read_in_windows(options: &mut DataOptions, windows: Windows, chain: &Chain<'_>, loaded: &Loaded, data: &Path) {
    // Rows of tensors have one length already.
    if !is_tensors(data) {
        let usual = if options.split.is_all() { Unit::Documents } else { Unit::Lines };
        // Rows of a fixed number of tokens are filled up, and windows of other lengths cannot be run.
        options.is_windowed = fixed_width(chain).is_none();
        options.unit = options.unit.or(Some(usual));
        options.tokens = options.tokens.or(Some(TOKENS));
        if options.is_windowed {
            options.max_length = options.max_length.or(options.tokens);
        }
    }
    let inputs = chain.inputs();
    let mut batches = inputs.iter().filter_map(|(_, input)| input.value.dims().first());
    let is_fixed = batches.any(|batch| batch.as_constant().is_some());
    if !is_fixed && Sampling::of(&inputs) == Sampling::FirstAxis {
        options.batch = options.batch.or(Some(windows.rows(vocabulary(loaded))));
    }
}

/// The number of tokens of the vocabulary; a large one where it is not known.
fn vocabulary(loaded: &Loaded) -> usize {
    loaded.vocab_size.unwrap_or(1 << 17)
}

/// The real tokens of a batch, if the model takes tokens.
fn count_tokens(inputs: &[(String, planish_eval::Tensor)], names: &TextNames) -> Option<u64> {
    let ids = names.ids_of(inputs)?;
    let elements = ids.shape().iter().product::<usize>() as u64;
    Some(names.positions(inputs).map_or(elements, |positions| positions.count()))
}
