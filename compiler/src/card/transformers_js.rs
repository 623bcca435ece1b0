//! What Transformers.js loads: the pipeline for a task, and the types of models that it has a class for (version 4.3.1).

use std::path::Path;

use minijinja::context;
use planish_artifact::evaluation::Pooling;
use planish_artifact::package::RuntimePackage;
use planish_artifact::variants::VariantName;
use planish_ir::InputRole;
use planish_models::{Task, module_entries, pooling_modes};

use super::examples::Subject;
use super::values::quoted;

const ENCODERS: &str = "bert eurobert modernbert nomic_bert roformer electra esm convbert camembert deberta deberta-v2 mpnet albert \
    distilbert roberta xlm-roberta mobilebert squeezebert vit ijepa vit_msn mobilevit beit deit convnext convnextv2 dinov2 \
    dinov2_with_registers dinov3_vit resnet swin yolos";
const CLASSIFIERS: &str = "bert eurobert modernbert roformer electra esm convbert camembert deberta deberta-v2 mpnet albert distilbert \
    roberta xlm-roberta bart mobilebert squeezebert";
const TAGGERS: &str = "bert eurobert modernbert roformer electra esm convbert camembert deberta deberta-v2 mpnet distilbert roberta \
    xlm-roberta";
const MASKED: &str = "bert eurobert modernbert roformer electra esm convbert camembert deberta deberta-v2 mpnet albert distilbert roberta \
    xlm-roberta mobilebert squeezebert";
const READERS: &str = "bert roformer electra convbert camembert deberta deberta-v2 mpnet albert distilbert roberta xlm-roberta mobilebert \
    squeezebert";
const DECODERS: &str = "bloom gpt2 gpt_oss gptj gpt_bigcode gpt_neo gpt_neox codegen llama nanochat apertus arcee afmoe lfm2 lfm2_moe \
    smollm3 exaone olmo olmo2 olmo3 granite granitemoehybrid cohere cohere2 gemma gemma2 gemma3_text helium glm qwen2 qwen2_moe qwen3 \
    qwen3_moe qwen3_next phi phi3 mpt opt mistral ministral ministral3 ernie4_5 starcoder2 deepseek_v3 falcon falcon_h1 nemotron_h \
    solar_open stablelm modernbert-decoder hunyuan_v1_dense youtu";
const ENCODER_DECODERS: &str = "t5 longt5 mt5 bart mbart marian m2m_100 blenderbot blenderbot-small";
const SPEECH_DECODERS: &str = "whisper moonshine";
const SPEECH_ENCODERS: &str = "wav2vec2 wav2vec2-bert unispeech unispeech-sat wavlm hubert parakeet_ctc";
const SOUND_CLASSIFIERS: &str =
    "wav2vec2 wav2vec2-bert unispeech unispeech-sat wavlm hubert audio-spectrogram-transformer";
const PICTURE_CLASSIFIERS: &str = "vit ijepa vit_msn mobilevit beit deit convnext convnextv2 dinov2 dinov2_with_registers resnet swin \
    segformer";

/// The types of models that it has a class for.
fn types(task: Task, is_one_graph: bool) -> &'static str {
    match task {
        Task::FeatureExtraction | Task::SentenceSimilarity => ENCODERS,
        Task::TextClassification => CLASSIFIERS,
        Task::TokenClassification => TAGGERS,
        Task::FillMask => MASKED,
        Task::QuestionAnswering => READERS,
        Task::TextGeneration => DECODERS,
        Task::Text2TextGeneration => ENCODER_DECODERS,
        Task::AutomaticSpeechRecognition if is_one_graph => SPEECH_ENCODERS,
        Task::AutomaticSpeechRecognition => SPEECH_DECODERS,
        Task::AudioClassification => SOUND_CLASSIFIERS,
        Task::ImageClassification => PICTURE_CLASSIFIERS,
        Task::ObjectDetection => "detr yolos",
        Task::ImageSegmentation => "detr",
        Task::SemanticSegmentation => "segformer",
        Task::DepthEstimation => "dpt depth_anything",
        Task::ImageToText => "vision-encoder-decoder",
        _ => "",
    }
}

/// What the template shows; none where the library has no class for the model, or files that it needs are not there.
pub(super) fn context(subject: &Subject<'_>) -> Option<minijinja::Value> {
    if subject.manifest.runtime_package != RuntimePackage::TransformersJs {
        return None;
    }
    let task = subject.manifest.task?;
    let kind = subject.config.get("model_type").and_then(serde_json::Value::as_str)?;
    if !types(task, subject.part().is_some()).split_whitespace().any(|known| known == kind) {
        return None;
    }
    let (text, picture) = (subject.text().filter(|_| subject.has("tokenizer_config.json")), quoted("picture.png"));
    let sees = subject.has("preprocessor_config.json") && subject.reads(InputRole::Pixels);
    let hears = subject.has("preprocessor_config.json") && subject.hears();
    let samples = "new Float32Array(16000)";
    let (pipeline, arguments) = match task {
        Task::FeatureExtraction | Task::SentenceSimilarity => match text {
            Some(text) => ("feature-extraction", format!("{text}{}", pooled(&subject.artifact.folder))),
            None if sees => ("image-feature-extraction", picture),
            None => return None,
        },
        Task::TextGeneration | Task::Text2TextGeneration => {
            (task.name(), format!("{}, {{ max_new_tokens: 20 }}", text?))
        }
        Task::FillMask | Task::TextClassification | Task::TokenClassification | Task::QuestionAnswering => {
            (task.name(), text?)
        }
        Task::ImageClassification | Task::ObjectDetection | Task::ImageSegmentation | Task::DepthEstimation if sees => {
            (task.name(), picture)
        }
        Task::SemanticSegmentation if sees => ("image-segmentation", picture),
        Task::ImageToText if sees && subject.has("tokenizer.json") => (task.name(), picture),
        Task::AudioClassification if hears => (task.name(), samples.to_owned()),
        Task::AutomaticSpeechRecognition if hears && subject.has("tokenizer.json") => (task.name(), samples.to_owned()),
        _ => return None,
    };
    // The library's name for files without a suffix is fp32.
    let dtype = subject.manifest.variant.unwrap_or(VariantName::Fp32).name();
    Some(context! { pipeline, arguments, dtype })
}

/// The options of the pipeline for vectors of texts.
fn pooled(folder: &Path) -> &'static str {
    let is_normal =
        module_entries(folder).is_ok_and(|entries| entries.iter().any(|entry| entry.full.ends_with(".Normalize")));
    let has_modes = pooling_modes(folder).is_ok_and(|modes| modes.is_some());
    match (Pooling::read(folder, &mut |_| {}), is_normal) {
        _ if !has_modes => "",
        (Ok(Pooling::Mean), true) => ", { pooling: \"mean\", normalize: true }",
        (Ok(Pooling::Mean), false) => ", { pooling: \"mean\" }",
        (Ok(Pooling::Cls), true) => ", { pooling: \"cls\", normalize: true }",
        (Ok(Pooling::Cls), false) => ", { pooling: \"cls\" }",
        _ => "",
    }
}
