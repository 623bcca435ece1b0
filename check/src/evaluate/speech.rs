//! Encoder-decoders that write down what recordings say: the errors of their texts. Each side chooses its own tokens, so that
//! their outputs are not compared.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_artifact::Artifact;
use planish_artifact::backend::{LOCAL, RuntimeSettings};
use planish_artifact::draft::Draft;
use planish_artifact::evaluation::{Evaluation, Figure};
use planish_compiler::compile::{CompileOptions, Compiled, compile};
use planish_compiler::request::Silent;
use planish_compiler::source::SourceModel;
use planish_data::tokenizer::TOKENIZER;
use planish_data::{Dataset, described, is_tensors};
use planish_ir::PartRole;
use planish_models::{Loaded, Task};

use super::labels::Rates;
use super::{EvaluateOptions, EvaluationObserver, windows};

/// Whether an artifact is evaluated by its transcripts: it is an encoder-decoder of recordings, and the data, which is no tensors, has what is
/// said in them.
pub(super) fn is_transcribed(artifact: &Artifact, loaded: &Loaded, data: &Path, options: &EvaluateOptions) -> bool {
    let mut parts = artifact.manifest.parts.iter();
    let has_encoder = parts.any(|part| part.role == PartRole::Encoder);
    let has_texts = options.data.label.is_some() && !is_tensors(data);
    loaded.task == Some(Task::AutomaticSpeechRecognition) && has_encoder && has_texts
}

/// Evaluates an artifact that [is transcribed](is_transcribed).
///
/// # Errors
/// When a file that texts need is missing, the data or a runtime is, or a run fails.
pub(super) fn evaluate(
    artifact: &Artifact,
    (model, loaded): (&SourceModel, &Loaded),
    data: &Path,
    options: &EvaluateOptions,
    observer: &dyn EvaluationObserver,
) -> Result<Evaluation> {
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
    let dataset = Dataset::open(data, &options.data)?;
    let (recordings, read) = dataset.spoken(&options.data)?;
    let paths: Vec<PathBuf> = recordings.iter().map(|recording| recording.path.clone()).collect();
    let given = transcribe(artifact, &paths, options, observer)?;

    let place = Draft::temporary("planish-evaluation")?;
    let reference = reference(model, loaded, &place.folder().join("reference"))?;
    let own =
        EvaluateOptions { settings: RuntimeSettings { runtime: None, ..options.settings.clone() }, ..options.clone() };
    let expected = transcribe(&reference.artifact, &paths, &own, observer).context("the reference fails")?;

    let mut rates = Rates::default();
    for (recording, (expected, given)) in recordings.iter().zip(expected.iter().zip(&given)) {
        let context = || recording.path.display().to_string();
        rates.add(recording.label.as_ref(), [expected, given]).with_context(context)?;
    }
    Ok(Evaluation {
        data: described(data)?,
        split: options.data.split,
        samples: recordings.len(),
        tokens: None,
        read: Some(read),
        runtime: artifact.runtime(&options.settings).name().to_owned(),
        embeddings: None,
        predictions: None,
        perplexity: None,
        labels: rates.figures().collect(),
        scores: None,
        outputs: Vec::new(),
    })
}

/// The model in float32, compiled for ONNX Runtime into a folder.
fn reference(model: &SourceModel, loaded: &Loaded, folder: &Path) -> Result<Compiled> {
    let mut options = CompileOptions { task: loaded.task, ..CompileOptions::new(LOCAL, model.default_opset()) };
    options.passes.allow_non_finite = true;
    compile(model, folder, &options, &Silent).context("cannot compile the reference")
}
