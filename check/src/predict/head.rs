//! What an artifact predicts, and how its outputs become that.

use std::num::NonZeroUsize;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use planish_artifact::Artifact;
use planish_artifact::evaluation::Pooling;
use planish_artifact::manifest::Output;
use planish_data::sentence::SentenceSettings;
use planish_data::tokenizer::{TextTokenizer, class_token, mask_token};
use planish_ir::{InputRole, OutputRole};
use planish_models::Task;

use super::config::{Activation, Config};
use super::guess::guessed_task;
use super::labels::{self, is_siglip};
use super::objects::Scoring;
use super::sink::OutputForm;
use super::speech::Frames;
use super::{PredictOptions, Unfit};

/// How many tokens are given for each masked one unless told otherwise.
const CANDIDATES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4);

/// The tokens of a vocabulary whose size is not known: those of the largest usual ones.
const MOST_VOCABULARY: usize = 1 << 18;

/// The score above which an object counts unless told otherwise, as in the transformers library.
const THRESHOLD: f32 = 0.5;

/// How many labels there are where none has a name, as in the transformers library.
const USUAL_LABELS: usize = 2;

/// What is predicted, with the outputs that say it.
pub(super) enum Head {
    /// A vector of each text: an output, or what is pooled of one; cut to so many features. The size is that of the output, where
    /// it is known.
    Embedding { output: String, pooling: Pooling, normalizes: bool, features: Option<usize>, size: usize },
    /// A score of each text or pair.
    Score { output: String, activation: Activation },
    /// A label of each text or pair.
    Class { output: String, labels: Rc<[String]>, activation: Activation, is_multi_label: bool },
    /// A label of each token.
    Tokens { output: String, labels: Rc<[String]> },
    /// The answer to a question.
    Answer { start: String, end: String },
    /// Objects in pictures with their boxes.
    Objects { logits: String, boxes: String, labels: Rc<[String]>, scoring: Scoring, threshold: f32 },
    /// The label of each pixel of pictures.
    Segments { output: String, labels: Rc<[String]> },
    /// The pixels of objects in pictures.
    Instances { logits: String, masks: String, labels: Rc<[String]>, threshold: f32 },
    /// The depth of each pixel of a picture.
    Depth { output: String },
    /// What is made of the scores of the frames of recordings, and the seconds of a frame where they are known.
    Frames { output: String, frames: Frames, seconds: Option<f64>, places: Option<usize> },
    /// The tokens in place of masks, of a vocabulary of so many; `usize::MAX` where that is not known.
    Masks { output: String, vocabulary: usize, top: NonZeroUsize },
}

impl Head {
    /// What an artifact predicts.
    ///
    /// # Errors
    /// [`Unfit`] when it predicts something else; also when a setting of it cannot be honoured.
    pub(super) fn of(
        artifact: &Artifact,
        settings: &SentenceSettings,
        options: &PredictOptions,
        warn: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        let (folder, task) = (artifact.folder.display(), artifact.manifest.task);
        artifact.manifest.parts.first().map_or(Ok(()), Artifact::refuse_rank)?;
        let [part] = artifact.manifest.parts.as_slice() else {
            let verb = match task {
                Some(Task::AutomaticSpeechRecognition) => "`planish transcribe` writes down what recordings say",
                _ => "`planish generate` generates text, where they do that",
            };
            bail!(Unfit(format!("{folder} has several parts: `planish run` runs them, and {verb}")))
        };
        let of = |role: OutputRole| part.outputs.iter().find(|output| output.role == role);
        let named = |role: OutputRole| {
            let output = of(role).map(|output| output.value.name.clone());
            output.with_context(|| format!("{folder} has no output with the role {role}, which its task has"))
        };
        let most = options.top;
        if most.is_some() && task != Some(Task::FillMask) {
            bail!(Unfit(format!("--top is for masked tokens, and {folder} fills none")));
        }
        if of(OutputRole::LogitsPerImage).is_some() {
            let labels = labels::checked(options, &artifact.folder)?;
            let activation = if is_siglip(&artifact.folder)? { Activation::Sigmoid } else { Activation::Softmax };
            let output = named(OutputRole::LogitsPerImage)?;
            return Ok(Self::Class { output, labels, activation, is_multi_label: false });
        }
        if let Some((option, _)) =
            [("--labels", !options.labels.is_empty()), ("--template", options.template.is_some())]
                .iter()
                .find(|(_, is_given)| *is_given)
        {
            bail!(Unfit(format!(
                "{option} is for models that compare pictures or recordings with texts, which {folder} does not"
            )));
        }
        if of(OutputRole::SentenceEmbedding).is_some() {
            let output = named(OutputRole::SentenceEmbedding)?;
            let (features, size) = (settings.truncate_dim, last_size(of(OutputRole::SentenceEmbedding)).unwrap_or(0));
            return Ok(Self::Embedding { output, pooling: Pooling::Model, normalizes: false, features, size });
        }
        // A tower of texts or of pictures, with the projection of its vector.
        for role in [OutputRole::TextEmbedding, OutputRole::ImageEmbedding] {
            if of(role).is_some() {
                let (output, size) = (named(role)?, last_size(of(role)).unwrap_or(0));
                return Ok(Self::Embedding {
                    output,
                    pooling: Pooling::Model,
                    normalizes: false,
                    features: None,
                    size,
                });
            }
        }
        let takes_pictures = part.inputs.iter().any(|input| matches!(input.role, InputRole::Pixels | InputRole::Image));
        let config = Config::read(&artifact.folder)?;
        let task = match task {
            Some(task) => task,
            None => guessed_task(&part.outputs).ok_or_else(|| {
                let names: Vec<String> = part.outputs.iter().map(|output| format!("`{}`", output.value.name)).collect();
                Unfit(format!(
                    "{folder} has no task, and its outputs, {}, do not tell it; `planish run` gives the outputs as they are",
                    names.join(", ")
                ))
            })?,
        };
        match task {
            Task::SentenceSimilarity => bail!(Unfit(format!(
                "{folder} gives an embedding of each token and none of a text, for late interaction; `planish run` gives its \
                 outputs"
            ))),
            // The vector that a layer of the model makes of all patches.
            Task::FeatureExtraction if takes_pictures && of(OutputRole::Pooled).is_some() => {
                let (output, size) = (named(OutputRole::Pooled)?, last_size(of(OutputRole::Pooled)).unwrap_or(0));
                Ok(Self::Embedding { output, pooling: Pooling::Model, normalizes: false, features: None, size })
            }
            Task::FeatureExtraction => {
                let output = of(OutputRole::HiddenStates).map(|output| output.value.name.clone()).ok_or_else(|| {
                    Unfit(format!(
                        "{folder} has no output with vectors of texts or tokens; `planish run` gives its outputs"
                    ))
                })?;
                pooled(artifact, settings, output, warn)
            }
            Task::TextClassification | Task::ImageClassification | Task::AudioClassification => {
                let output = named(OutputRole::Logits)?;
                match classes(&config, of(OutputRole::Logits)) {
                    Some(1) => Ok(Self::Score { output, activation: config.activation(1)? }),
                    count => {
                        let count = count.with_context(|| format!("{folder} does not say how many labels it has"))?;
                        let (labels, activation) = (config.own_labels(count), config.activation(count)?);
                        Ok(Self::Class { output, labels, activation, is_multi_label: config.is_multi_label() })
                    }
                }
            }
            Task::TokenClassification => {
                let count = classes(&config, of(OutputRole::Logits));
                let count = count.with_context(|| format!("{folder} does not say how many labels it has"))?;
                Ok(Self::Tokens { output: named(OutputRole::Logits)?, labels: config.labels(count) })
            }
            Task::QuestionAnswering => {
                Ok(Self::Answer { start: named(OutputRole::StartLogits)?, end: named(OutputRole::EndLogits)? })
            }
            Task::FillMask => {
                // Rows that fill up a vocabulary are no tokens.
                let vocabulary = match part.padded_logits() {
                    Some(padded) => padded.size,
                    None => last_size(of(OutputRole::Logits)).unwrap_or(usize::MAX),
                };
                let (output, top) = (named(OutputRole::Logits)?, most.unwrap_or(CANDIDATES));
                Ok(Self::Masks { output, vocabulary, top })
            }
            Task::TextGeneration | Task::Text2TextGeneration | Task::ImageToText | Task::ImageTextToText => {
                bail!(Unfit(format!("{folder} generates text: planish generate {folder}")))
            }
            Task::AutomaticSpeechRecognition => {
                let vocabulary = part.padded_logits().map(|padded| padded.size);
                let vocabulary = vocabulary.or(last_size(of(OutputRole::Logits))).unwrap_or(usize::MAX);
                Self::of_speech(named(OutputRole::Logits)?, vocabulary, &artifact.folder)
            }
            Task::MultipleChoice => bail!(Unfit(format!(
                "{folder} chooses one of several texts, and a prediction is of one text or a pair; `planish run` takes ids as a \
                 tensor"
            ))),
            Task::ZeroShotImageClassification | Task::ZeroShotAudioClassification => {
                bail!("{folder} has no output with the role {}, which its task has", OutputRole::LogitsPerImage)
            }
            Task::ObjectDetection => {
                let (logits, boxes) = (named(OutputRole::Logits)?, named(OutputRole::Boxes)?);
                let classes = last_size(of(OutputRole::Logits));
                let classes =
                    classes.with_context(|| format!("`{logits}` of {folder} does not say how many labels it has"))?;
                let count = config.label_count().unwrap_or(USUAL_LABELS);
                let scoring = Scoring::of(classes, count, config.most_objects()).with_context(|| folder.to_string())?;
                let (labels, threshold) = (config.labels(count), options.threshold.unwrap_or(THRESHOLD));
                Ok(Self::Objects { logits, boxes, labels, scoring, threshold })
            }
            Task::SemanticSegmentation => {
                let count = of(OutputRole::Logits).and_then(|logits| logits.value.dims().get(1)?.as_constant());
                let count = count.and_then(|count| usize::try_from(count).ok()).or(config.label_count());
                let count = count.with_context(|| format!("{folder} does not say how many labels it has"))?;
                Ok(Self::Segments { output: named(OutputRole::Logits)?, labels: config.labels(count) })
            }
            Task::DepthEstimation => Ok(Self::Depth { output: named(OutputRole::Depth)? }),
            Task::KeypointDetection => bail!(Unfit(format!(
                "{folder} gives heatmaps of key points in boxes of persons, and there are no predictions of that; `planish run` takes \
                 pixels as a tensor"
            ))),
            Task::ImageSegmentation => {
                let count = last_size(of(OutputRole::Logits)).and_then(|classes| classes.checked_sub(1));
                let count = count.or(config.label_count());
                let count = count.with_context(|| format!("{folder} does not say how many labels it has"))?;
                let (logits, masks) = (named(OutputRole::Logits)?, named(OutputRole::Masks)?);
                let (labels, threshold) = (config.labels(count), options.threshold.unwrap_or(THRESHOLD));
                Ok(Self::Instances { logits, masks, labels, threshold })
            }
            Task::AudioFrameClassification => {
                let count = classes(&config, of(OutputRole::Logits));
                let count = count.with_context(|| format!("{folder} does not say how many labels it has"))?;
                Self::of_frames(named(OutputRole::Logits)?, Frames::Labels(config.labels(count)), &artifact.folder)
            }
            Task::AudioXVector => {
                let (output, size) = (named(OutputRole::XVector)?, last_size(of(OutputRole::XVector)).unwrap_or(0));
                Ok(Self::Embedding { output, pooling: Pooling::Model, normalizes: false, features: None, size })
            }
        }
    }

    /// What a prediction is.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Embedding { .. } => "embedding",
            Self::Score { .. } => "score",
            Self::Class { .. } => "label",
            Self::Tokens { .. } => "tokens",
            Self::Answer { .. } => "answer",
            Self::Masks { .. } => "masks",
            Self::Objects { .. } => "objects",
            Self::Segments { .. } | Self::Instances { .. } => "segments",
            Self::Depth { .. } => "depth",
            Self::Frames { frames: Frames::Text { .. }, .. } => "text",
            Self::Frames { frames: Frames::Labels(_), .. } => "frames",
        }
    }

    /// The id of the token that predictions look for among those of a text: that of masks, or the one that a question without
    /// an answer has.
    ///
    /// # Errors
    /// When the tokenizer has none for masks, or its settings cannot be read.
    pub(super) fn marked_token(&self, tokenizer: &TextTokenizer, folder: &Path) -> Result<Option<i64>> {
        match self {
            Self::Masks { .. } => mask_token(tokenizer, folder).map(Some),
            Self::Answer { .. } => class_token(tokenizer, folder),
            _ => Ok(None),
        }
    }

    /// Whether vectors are predicted.
    pub(super) fn embeds(&self) -> bool {
        matches!(self, Self::Embedding { .. })
    }

    /// Whether predictions can be drawn on pictures.
    pub(super) fn draws(&self) -> bool {
        matches!(self, Self::Objects { .. }) || self.has_maps()
    }

    /// Whether something is predicted of each pixel.
    pub(super) fn has_maps(&self) -> bool {
        matches!(self, Self::Segments { .. } | Self::Instances { .. } | Self::Depth { .. })
    }

    /// Whether vectors of tokens are pooled here.
    pub(super) fn pools(&self) -> bool {
        matches!(self, Self::Embedding { pooling, .. } if *pooling != Pooling::Model)
    }

    /// Whether a prompt may be put in front of texts: the classes of the sentence-transformers library that do this give
    /// embeddings, and scores and labels of texts and pairs.
    pub(super) fn takes_prompt(&self) -> bool {
        matches!(self, Self::Embedding { .. } | Self::Score { .. } | Self::Class { .. })
    }

    /// Whether predictions need the texts and the places of their tokens.
    pub(super) fn needs_texts(&self) -> bool {
        matches!(self, Self::Tokens { .. } | Self::Answer { .. } | Self::Masks { .. })
    }

    /// The names of the outputs that predictions are made of.
    pub(super) fn outputs(&self) -> Vec<&String> {
        match self {
            Self::Embedding { output, .. }
            | Self::Score { output, .. }
            | Self::Class { output, .. }
            | Self::Tokens { output, .. }
            | Self::Segments { output, .. }
            | Self::Depth { output }
            | Self::Frames { output, .. }
            | Self::Masks { output, .. } => vec![output],
            Self::Objects { logits, boxes, .. } => vec![logits, boxes],
            Self::Instances { logits, masks, .. } => vec![logits, masks],
            Self::Answer { start, end } => vec![start, end],
        }
    }

    /// Checks that a file can have the predictions.
    ///
    /// # Errors
    /// [`Unfit`] when it is one of vectors, and there are none.
    pub(super) fn check_output(&self, form: OutputForm, path: &Path) -> Result<()> {
        if form == OutputForm::Lines || self.embeds() {
            return Ok(());
        }
        let (path, name) = (path.display(), self.name());
        bail!(Unfit(format!("-o {path} is a file of vectors, and the artifact predicts {name}; name a .jsonl file")))
    }

    /// A number of tokens or texts, or fewer, so that their scores or vectors have so many bytes at most. A model of sparse
    /// embeddings has a score of each token for each feature.
    pub(super) fn bounded(&self, count: NonZeroUsize, bytes: usize) -> NonZeroUsize {
        let size = match self {
            Self::Masks { vocabulary, .. } => (*vocabulary).min(MOST_VOCABULARY),
            Self::Embedding { size, .. } => *size,
            Self::Score { .. }
            | Self::Class { .. }
            | Self::Tokens { .. }
            | Self::Answer { .. }
            | Self::Objects { .. }
            | Self::Segments { .. }
            | Self::Instances { .. }
            | Self::Depth { .. }
            | Self::Frames { .. } => return count,
        };
        let most = bytes / size.saturating_mul(size_of::<f32>()).max(1);
        count.min(NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN))
    }
}

/// The number of classes: the last size of the logits, or the number of labels with names.
fn classes(config: &Config, logits: Option<&Output>) -> Option<usize> {
    last_size(logits).or(config.label_count())
}

/// The last size of an output, where the model fixes it.
fn last_size(output: Option<&Output>) -> Option<usize> {
    usize::try_from(output?.value.dims().last()?.as_constant()?).ok()
}

/// The embeddings of a model that gives vectors of tokens only: pooled here as the files of the sentence-transformers library
/// say.
fn pooled(
    artifact: &Artifact,
    settings: &SentenceSettings,
    output: String,
    warn: &mut dyn FnMut(&str),
) -> Result<Head> {
    let folder = artifact.folder.display();
    if let [module, ..] = settings.other_modules.as_slice() {
        bail!(
            "modules.json of {folder} has the module {module}, which its graph does not have; compile the sentence-transformers \
             model again, so that the graph gives embeddings of texts"
        );
    }
    let mut unknown = None;
    let pooling = Pooling::read(&artifact.folder, &mut |text| unknown = Some(text.to_owned()))?;
    if let Some(unknown) = unknown {
        bail!(
            "{unknown}, which would be other embeddings; compile the sentence-transformers model again, so that the graph gives \
             embeddings of texts"
        );
    }
    let how = match pooling {
        Pooling::Mean | Pooling::Model => "the mean over its tokens",
        Pooling::Cls => "the vector of its first token",
        Pooling::Max => "the largest of each feature over its tokens",
    };
    let of = |role: InputRole| artifact.manifest.parts.iter().any(|part| part.input_of(role).is_some());
    let whole = match () {
        () if of(InputRole::Pixels) || of(InputRole::Image) => "picture",
        () if [InputRole::Recording, InputRole::Waveform, InputRole::Features].into_iter().any(of) => "recording",
        () => "text",
    };
    let scaled = if settings.normalizes { ", scaled to length 1" } else { "" };
    warn(&format!(
        "{folder} gives vectors of tokens, and no embedding of a {whole}: it is {how} here{scaled}, computed outside of the graph"
    ));
    let (normalizes, features) = (settings.normalizes, settings.truncate_dim);
    Ok(Head::Embedding { output, pooling, normalizes, features, size: 0 })
}
