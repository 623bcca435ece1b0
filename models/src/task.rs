//! Tasks: the purpose of a model's outputs. Names are those of Optimum.

use std::fmt;
use std::str::FromStr;

use planish_ir::OutputRole;

macro_rules! tasks {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, synonyms $synonyms:expr, classes $classes:expr;)*) => {
        /// The purpose of a model's outputs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Task { $($(#[$doc])* $variant,)* }

        impl Task {
            /// Every task.
            pub const ALL: &'static [Task] = &[$(Task::$variant,)*];

            /// The name, e.g. `fill-mask`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Task::$variant => $name,)* }
            }

            /// Other names that mean the same.
            fn synonyms(self) -> &'static [&'static str] {
                match self { $(Task::$variant => &$synonyms,)* }
            }

            /// Endings of the names of the model classes that compute it.
            fn classes(self) -> &'static [&'static str] {
                match self { $(Task::$variant => &$classes,)* }
            }
        }
    };
}

tasks! {
    /// `last_hidden_state` [batch_size, sequence_length, hidden], and `pooler_output`
    /// [batch_size, hidden] where the checkpoint has a pooler. Of images and texts what `zero-shot-image-classification` has.
    /// Of images and points in them `iou_scores` [batch_size, point_batch_size, masks] and `pred_masks` [batch_size, point_batch_size,
    /// masks, height, width].
    FeatureExtraction = "feature-extraction", synonyms ["default", "mask-generation"],
        // The discriminator, whose head has no task, and what encoders of speech are trained with.
        classes [
            "Model",
            "ModelWithProjection",
            "ElectraForPreTraining",
            "ParakeetEncoder",
            "Wav2Vec2ForPreTraining",
            "Wav2Vec2ConformerForPreTraining",
            "UniSpeechForPreTraining",
            "UniSpeechSatForPreTraining",
        ];
    /// What the modules of a sentence model give: `token_embeddings` [batch_size, sequence_length, features] and
    /// `sentence_embedding` [batch_size, features], and `last_hidden_state` of the model before them. A model of late interaction
    /// has the first only; one of sparse embeddings the second, [batch_size, vocabulary].
    SentenceSimilarity = "sentence-similarity", synonyms [], classes [];
    /// `logits` [batch_size, sequence_length, vocabulary] of each token.
    FillMask = "fill-mask", synonyms ["masked-lm"], classes ["ForMaskedLM", "ForPreTraining"];
    /// `logits` [batch_size, labels] of the whole sequence.
    TextClassification = "text-classification", synonyms ["sequence-classification", "zero-shot-classification"],
        classes ["ForSequenceClassification"];
    /// `logits` [batch_size, sequence_length, labels] of each token.
    TokenClassification = "token-classification", synonyms [], classes ["ForTokenClassification"];
    /// `logits` [batch_size, num_choices] of texts that are choices: ids are [batch_size, num_choices, sequence_length].
    MultipleChoice = "multiple-choice", synonyms [], classes ["ForMultipleChoice"];
    /// `start_logits` and `end_logits`, each [batch_size, sequence_length].
    QuestionAnswering = "question-answering", synonyms [], classes ["ForQuestionAnswering"];
    /// `logits` [batch_size, sequence_length, vocabulary] of the token after each, and the cache of
    /// keys and values: `present.N.key` and `present.N.value` of each layer.
    TextGeneration = "text-generation", synonyms ["causal-lm", "text-generation-with-past", "causal-lm-with-past"],
        classes ["ForCausalLM", "LMHeadModel"];
    /// Of an encoder `last_hidden_state`, and of decoders `logits` [batch_size,
    /// decoder_sequence_length, vocabulary] of the token after each, with the cache of keys and
    /// values: `present.N.decoder.key` and `.value` of each layer, and `present.N.encoder.key` and
    /// `.value`, which the first decoder gives.
    Text2TextGeneration = "text2text-generation", synonyms [
            "seq2seq-lm", "summarization", "translation", "text2text-generation-with-past",
            "seq2seq-lm-with-past", "summarization-with-past", "translation-with-past",
        ], classes ["ForConditionalGeneration", "ForSeq2SeqLM", "MTModel"];
    /// As `text2text-generation`, of an encoder that reads a recording. Of an encoder alone `logits` [batch_size, frames, vocabulary] of
    /// each frame of a recording, of which connectionist temporal classification (CTC) makes a text.
    AutomaticSpeechRecognition = "automatic-speech-recognition", synonyms [
            "speech2seq-lm", "automatic-speech-recognition-with-past", "speech2seq-lm-with-past",
        ], classes [
            "ForCTC",
            "ForSpeechSeq2Seq",
            "WhisperForConditionalGeneration",
            "MoonshineForConditionalGeneration",
        ];
    /// `logits` [batch_size, labels] of a recording.
    AudioClassification = "audio-classification", synonyms [], classes [
        "ForAudioClassification",
        "Data2VecAudioForSequenceClassification",
        "HubertForSequenceClassification",
        "SEWForSequenceClassification",
        "UniSpeechForSequenceClassification",
        "UniSpeechSatForSequenceClassification",
        "Wav2Vec2BertForSequenceClassification",
        "Wav2Vec2ConformerForSequenceClassification",
        "Wav2Vec2ForSequenceClassification",
        "WavLMForSequenceClassification",
    ];
    /// Of a tower of images `image_features` [places, hidden], of tokens `inputs_embeds` [batch_size, sequence_length, hidden], and
    /// of a decoder of such vectors what `text-generation` has.
    ImageTextToText = "image-text-to-text", synonyms ["image-text-to-text-with-past"], classes [];
    /// As `text2text-generation`, of an encoder that reads images.
    ImageToText = "image-to-text", synonyms ["vision2seq-lm", "image-to-text-with-past", "vision2seq-lm-with-past"],
        classes ["VisionEncoderDecoderModel", "BlipForConditionalGeneration"];
    /// `logits` [batch_size, labels] of an image.
    ImageClassification = "image-classification", synonyms [], classes ["ForImageClassification", "ForImageClassificationWithTeacher"];
    /// Of images and texts `logits_per_image` [images, texts] and `logits_per_text` [texts, images], with `text_embeds` and
    /// `image_embeds` [.., features] of length 1.
    ZeroShotImageClassification = "zero-shot-image-classification", synonyms [],
        classes ["CLIPModel", "MetaClip2Model", "SiglipModel", "Siglip2Model"];
    /// The same of recordings and texts: `logits_per_audio` [recordings, texts], `logits_per_text`, `text_embeds` and `audio_embeds`.
    ZeroShotAudioClassification = "zero-shot-audio-classification", synonyms [], classes ["ClapModel"];
    /// `logits` [batch_size, labels, height, width] of the places of an image, which may be fewer than its pixels.
    SemanticSegmentation = "semantic-segmentation", synonyms [], classes ["ForSemanticSegmentation"];
    /// `logits` [batch_size, objects, labels] and `pred_boxes` [batch_size, objects, 4]: center, width and height of each object, as
    /// parts of the image. The last of the labels may be that of no object.
    ObjectDetection = "object-detection", synonyms [], classes ["ForObjectDetection"];
    /// The same, and `pred_masks` [batch_size, objects, height, width] of the places of an image, which are fewer than its pixels.
    ImageSegmentation = "image-segmentation", synonyms [], classes ["ForSegmentation"];
    /// `predicted_depth` [batch_size, height, width] of the places of an image.
    DepthEstimation = "depth-estimation", synonyms [], classes ["ForDepthEstimation"];
    /// `heatmaps` [batch_size, keypoints, height, width]: how likely each key point is at each place of an image.
    KeypointDetection = "keypoint-detection", synonyms [], classes ["ForPoseEstimation"];
    /// `logits` [batch_size, frames, labels] of each frame of a recording.
    AudioFrameClassification = "audio-frame-classification", synonyms [], classes ["ForAudioFrameClassification"];
    /// `logits` [batch_size, features], and `embeddings` [batch_size, features], the vector of the voice in a recording.
    AudioXVector = "audio-xvector", synonyms [], classes ["ForXVector"];
}

impl Task {
    /// The task of a class of the transformers library such as `BertForMaskedLM`, or `None` for a
    /// class that computes something else.
    #[must_use]
    pub fn of_class(class: &str) -> Option<Self> {
        // `LMHeadModel` ends in `Model` too: the longest ending counts.
        let ending = |t: &Task| t.classes().iter().filter(|c| class.ends_with(**c)).map(|c| c.len()).max();
        Task::ALL.iter().copied().filter(|t| ending(t).is_some()).max_by_key(ending)
    }

    /// Whether its outputs are embeddings of texts or tokens.
    #[must_use]
    pub fn embeds(self) -> bool {
        matches!(self, Task::FeatureExtraction | Task::SentenceSimilarity)
    }

    /// The outputs that a graph for it has at least; none where it may have one of several.
    #[must_use]
    pub fn outputs(self) -> &'static [OutputRole] {
        match self {
            Task::FeatureExtraction | Task::SentenceSimilarity => &[],
            Task::QuestionAnswering => &[OutputRole::StartLogits, OutputRole::EndLogits],
            Task::DepthEstimation => &[OutputRole::Depth],
            Task::KeypointDetection => &[OutputRole::Heatmaps],
            Task::FillMask
            | Task::TextClassification
            | Task::TokenClassification
            | Task::MultipleChoice
            | Task::TextGeneration
            | Task::Text2TextGeneration
            | Task::AutomaticSpeechRecognition
            | Task::AudioClassification
            | Task::ImageTextToText
            | Task::ImageToText
            | Task::ImageClassification
            | Task::SemanticSegmentation
            | Task::AudioFrameClassification => &[OutputRole::Logits],
            Task::AudioXVector => &[OutputRole::Logits, OutputRole::XVector],
            Task::ObjectDetection => &[OutputRole::Logits, OutputRole::Boxes],
            Task::ImageSegmentation => &[OutputRole::Logits, OutputRole::Boxes, OutputRole::Masks],
            Task::ZeroShotImageClassification | Task::ZeroShotAudioClassification => &[
                OutputRole::LogitsPerImage,
                OutputRole::LogitsPerText,
                OutputRole::TextEmbedding,
                OutputRole::ImageEmbedding,
            ],
        }
    }

    /// Names in a row, for messages.
    pub(crate) fn list(tasks: &[Task]) -> String {
        tasks.iter().map(|t| t.name()).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no task of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown task `{0}`: the tasks are {all}", all = Task::list(Task::ALL))]
pub struct UnknownTask(pub String);

impl FromStr for Task {
    type Err = UnknownTask;
    fn from_str(text: &str) -> Result<Self, UnknownTask> {
        let found = Task::ALL.iter().copied().find(|t| t.name() == text || t.synonyms().contains(&text));
        found.ok_or_else(|| UnknownTask(text.to_owned()))
    }
}
