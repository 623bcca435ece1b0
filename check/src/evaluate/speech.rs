//! Encoder-decoders that write down what recordings say: the errors of their texts. Each side chooses its own tokens, so that
//! their outputs are not compared.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_artifact::Artifact;
use planish_artifact::backend::{LOCAL, RuntimeSettings};
use planish_artifact::draft::Draft;
use planish_artifact::evaluation::{Figure, Pooling};
use planish_compiler::compile::{CompileOptions, Compiled, compile};
use planish_compiler::request::Silent;
use planish_compiler::source::SourceModel;
use planish_data::tokenizer::TOKENIZER;
use planish_data::{Dataset, Shard, described, is_tensors};
use planish_ir::PartRole;
use planish_models::{Loaded, Task};

use super::labels::Classes;
use super::report::Basis;
use super::seen::Seen;
use super::{EvaluateOptions, EvaluationObserver, Transcribe, windows};

/// Whether an artifact is evaluated by its transcripts: it is an encoder-decoder of recordings, and the data, which is no tensors, has what is
/// said in them.
pub(super) fn is_transcribed(artifact: &Artifact, loaded: &Loaded, data: &Path, options: &EvaluateOptions) -> bool {
    let mut parts = artifact.manifest.parts.iter();
    let has_encoder = parts.any(|part| part.role == PartRole::Encoder);
    let has_texts = options.data.label.is_some() && !is_tensors(data);
    loaded.task == Some(Task::AutomaticSpeechRecognition) && has_encoder && has_texts
}

/// Runs the recordings, or those of a shard, with an artifact that [is transcribed](is_transcribed); `keep` takes what was seen of each,
/// with its number from 0 on.
///
/// # Errors
/// When a file that texts need is missing, the data or a runtime is, or a run fails; also when those of a shard are to be written down
/// side by side.
pub(super) fn run(
    artifact: &Artifact,
    (model, loaded): (&SourceModel, &Loaded),
    data: &Path,
    (options, shard): (&EvaluateOptions, Option<Shard>),
    observer: &dyn EvaluationObserver,
    keep: &mut dyn FnMut(usize, Seen),
) -> Result<Basis> {
    let folder = artifact.folder.display();
    let Some(transcribe) = options.transcribe else {
        bail!("{folder} writes down what recordings say, and the evaluation has no function that transcribes with it")
    };
    windows(artifact, loaded, options)?;
    options.require.check(|figure| matches!(figure, Figure::WordErrors | Figure::CharacterErrors))?;
    for folder in [&artifact.folder, &model.companion_folder()?] {
        if !folder.join(TOKENIZER).exists() {
            bail!(
                "{} has no {TOKENIZER}, which makes texts of what the model writes; copy it there from the model's page",
                folder.display()
            );
        }
    }
    let runs_on = artifact.runtime(&options.settings);
    let found = runs_on.check()?;
    let dataset = Dataset::open(data, &options.data)?;
    let (recordings, read) = dataset.spoken(&options.data)?;
    if let Some(batch) = options.data.batch.filter(|batch| shard.is_some() && batch.get() > 1) {
        bail!(
            "--batch {batch} writes down recordings side by side, of which a shard has others; leave --batch or --shard out"
        );
    }
    let own = recordings.iter().enumerate().filter(|(number, _)| shard.is_none_or(|shard| shard.has(*number)));
    let own: Vec<(usize, PathBuf)> = own.map(|(number, recording)| (number, recording.path.clone())).collect();
    let texts = match own.is_empty() {
        true => Vec::new(),
        false => texts(artifact, (model, loaded), &own, (options, transcribe), observer)?,
    };
    for ((number, path), [expected, given]) in own.iter().zip(&texts) {
        let mut seen = Seen::default();
        let added = seen.labelled.add_texts(recordings[*number].label.as_ref(), [expected, given]);
        added.with_context(|| path.display().to_string())?;
        keep(*number, seen);
    }
    Ok(Basis {
        data: described(data)?,
        split: options.data.split,
        samples: recordings.len(),
        tokens: None,
        read: Some(read),
        runtime: runs_on.name().to_owned(),
        product: format!("{} {}", found.product, found.version),
        pooling: Pooling::default(),
        windows: None,
        classes: Classes::default(),
    })
}

/// What the reference and the artifact write of each recording.
fn texts(
    artifact: &Artifact,
    (model, loaded): (&SourceModel, &Loaded),
    recordings: &[(usize, PathBuf)],
    (options, transcribe): (&EvaluateOptions, Transcribe),
    observer: &dyn EvaluationObserver,
) -> Result<Vec<[String; 2]>> {
    let given = transcribe(artifact, recordings, options, observer)?;
    let place = Draft::temporary("planish-evaluation")?;
    let reference = reference(model, loaded, &place.folder().join("reference"))?;
    let own =
        EvaluateOptions { settings: RuntimeSettings { runtime: None, ..options.settings.clone() }, ..options.clone() };
    let expected = transcribe(&reference.artifact, recordings, &own, observer).context("the reference fails")?;
    Ok(expected.into_iter().zip(given).map(|(expected, given)| [expected, given]).collect())
}

/// The model in float32, compiled for ONNX Runtime into a folder.
fn reference(model: &SourceModel, loaded: &Loaded, folder: &Path) -> Result<Compiled> {
    let mut options = CompileOptions { task: loaded.task, ..CompileOptions::new(LOCAL, model.default_opset()) };
    options.passes.allow_non_finite = true;
    compile(model, folder, &options, &Silent).context("cannot compile the reference")
}
