//! How libraries load an artifact: code for each one that the files, the model and the task are for.

use anyhow::Result;
use minijinja::value::Serde;
use minijinja::{Environment, context};
use planish_artifact::Artifact;
use planish_artifact::backend::Device;
use planish_artifact::manifest::{Manifest, PartManifest};
use planish_artifact::package::RuntimePackage;
use planish_files::Kind;
use planish_ir::{DType, InputRole, OutputRole, SymbolRole};
use planish_models::{Task, module_entries};
use planish_runtimes::Format;
use serde::Serialize;
use serde_json::{Map, Value};

use super::values::{self, Library, quoted};
use super::{optimum, transformers_js};
use crate::packages;

/// The names of the templates.
pub(super) const ONNX_RUNTIME: &str = "onnxruntime.py";
pub(super) const OPTIMUM: &str = "optimum.py";
pub(super) const SENTENCE_TRANSFORMERS: &str = "sentence_transformers.py";
pub(super) const TRANSFORMERS_JS: &str = "transformers.js";
pub(super) const GENAI: &str = "genai.py";

/// Modules that the library sentence-transformers makes of their settings alone.
const MODULES_WITHOUT_WEIGHTS: [&str; 3] = ["Transformer", "Pooling", "Normalize"];

/// Modules whose weights are in folders of their own, which the library's package has.
const MODULES_WITH_WEIGHTS: [&str; 2] = ["Dense", "LayerNorm"];

/// The most tokens that an example generates.
const MOST_TOKENS: usize = 64;

/// Code that loads an artifact.
#[derive(Serialize)]
pub(super) struct Example {
    /// What it takes.
    about: &'static str,
    /// The name of the language in Markdown.
    language: &'static str,
    code: String,
}

/// What examples are made of.
pub(super) struct Subject<'a> {
    pub(super) artifact: &'a Artifact,
    pub(super) manifest: &'a Manifest,
    /// config.json; empty where there is none.
    pub(super) config: Map<String, Value>,
    /// The token of tokenizer_config.json that masks.
    mask: Option<String>,
}

impl Subject<'_> {
    pub(super) fn has(&self, name: &str) -> bool {
        self.manifest.companions.iter().any(|companion| companion == name)
    }

    /// The only part, where there is one.
    pub(super) fn part(&self) -> Option<&PartManifest> {
        match self.manifest.parts.as_slice() {
            [part] => Some(part),
            _ => None,
        }
    }

    /// The part that reads what a user gives.
    pub(super) fn reader(&self) -> Option<&PartManifest> {
        self.manifest.parts.first()
    }

    pub(super) fn reads(&self, role: InputRole) -> bool {
        self.reader().is_some_and(|part| part.inputs.iter().any(|input| input.role == role))
    }

    pub(super) fn hears(&self) -> bool {
        [InputRole::Waveform, InputRole::Features, InputRole::Recording].iter().any(|role| self.reads(*role))
    }

    /// The texts that the task takes, as arguments of a function; none where it takes no texts, or nothing makes tokens of them.
    pub(super) fn text(&self) -> Option<String> {
        if !self.has("tokenizer.json") || !self.reads(InputRole::TokenIds) {
            return None;
        }
        Some(match self.manifest.task? {
            Task::TextGeneration | Task::Text2TextGeneration => quoted("Once upon a time"),
            Task::FillMask => quoted(&format!("The capital of France is {}.", self.mask.as_ref()?)),
            Task::QuestionAnswering => format!("{}, {}", quoted("Who reads?"), quoted("Anna reads, and Ben writes.")),
            Task::FeatureExtraction
            | Task::SentenceSimilarity
            | Task::TextClassification
            | Task::TokenClassification => quoted("Anna lives in Paris and likes it."),
            _ => return None,
        })
    }
}

/// The examples of an artifact.
///
/// # Errors
/// When a template cannot be rendered, which no artifact is a reason for.
pub(super) fn of(artifact: &Artifact, environment: &Environment<'_>) -> Result<Vec<Example>> {
    let manifest = &artifact.manifest;
    // No library that an example is for runs stages in turn, or ranks at once.
    if manifest.tensor_parallel.is_some() || manifest.parts.iter().any(|part| !part.stages.is_empty()) {
        return Ok(Vec::new());
    }
    let read = |name: &str| -> Map<String, Value> {
        let text = planish_files::read_if_there(&artifact.folder.join(name), &Kind::SETTINGS);
        text.ok().flatten().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    };
    let mask = match read("tokenizer_config.json").get("mask_token") {
        Some(Value::String(token)) => Some(token.clone()),
        Some(Value::Object(token)) => token.get("content").and_then(Value::as_str).map(str::to_owned),
        _ => None,
    };
    // It is in a command of a shell too.
    let is_plain = |token: &String| token.chars().all(|c| c.is_ascii_alphanumeric() || "[]<>_|".contains(c));
    let subject = Subject { artifact, manifest, config: read("config.json"), mask: mask.filter(is_plain) };
    let mut examples = Vec::new();
    let mut add = |about, language, template: &str, context: Option<minijinja::Value>| -> Result<()> {
        if let Some(context) = context {
            let code = environment.get_template(template)?.render(context)?.trim().to_owned();
            examples.push(Example { about, language, code });
        }
        Ok(())
    };
    let is_onnx = artifact.backend.emitter.format() == Format::ONNX && !manifest.has_engines();
    if is_onnx {
        let about = "By [sentence-transformers](https://sbert.net) in Python (`pip install sentence-transformers optimum-onnx onnxruntime`):";
        add(about, "python", SENTENCE_TRANSFORMERS, sentence_transformers(&subject))?;
        let about = "By [Optimum](https://huggingface.co/docs/optimum-onnx) in Python (`pip install optimum-onnx[onnxruntime]`):";
        add(about, "python", OPTIMUM, optimum::context(&subject))?;
        let about = "By [Transformers.js](https://huggingface.co/docs/transformers.js) in JavaScript (`npm install @huggingface/transformers`):";
        add(about, "js", TRANSFORMERS_JS, transformers_js::context(&subject))?;
        let about =
            "By [onnxruntime-genai](https://onnxruntime.ai/docs/genai) in Python (`pip install onnxruntime-genai`):";
        add(about, "python", GENAI, genai(&subject))?;
        let about = "By [ONNX Runtime](https://onnxruntime.ai) alone in Python (`pip install onnxruntime tokenizers`):";
        add(about, "python", ONNX_RUNTIME, onnx_runtime(&subject))?;
    }
    examples.push(Example { about: "By planish:", language: "sh", code: planish(&subject) });
    Ok(examples)
}

/// What has to be said and is no code.
///
/// # Errors
/// When the pooling of the artifact cannot be read.
pub(super) fn notes(artifact: &Artifact) -> Result<Vec<String>> {
    if let Some(cut) = &artifact.manifest.tensor_parallel {
        let how = format!(
            "The model is cut for {} GPUs, which run their graphs at the same time and exchange sums by NCCL. TensorRT runs an \
             engine of each graph; ONNX Runtime loads none of the graphs. `planish verify` runs all of them together on the processor.",
            cut.ranks
        );
        return Ok(vec![how]);
    }
    let stages = artifact.manifest.parts.iter().map(|part| part.stages.len()).max().unwrap_or(0);
    if stages > 0 {
        let how = format!(
            "The model is cut into {stages} stages. Each takes inputs of the model and what the stage before it gave, by the same names, \
             and `planish run`, `generate`, `evaluate` and `predict` run them in turn. No library does."
        );
        return Ok(vec![how]);
    }
    Ok(match artifact.manifest.runtime_package {
        RuntimePackage::Triton => vec![
            "For Triton Inference Server this folder is a model repository: its option `--model-repository` takes it."
                .to_owned(),
        ],
        RuntimePackage::TextEmbeddingsInference => {
            let pooling = if packages::lacks_pooling(artifact)? { " --pooling mean" } else { "" };
            vec![format!(
                "For Text Embeddings Inference: `text-embeddings-router --model-id FOLDER --dtype float32{pooling}`, in an image \
                 with its backend of ONNX Runtime."
            )]
        }
        RuntimePackage::Optimum
        | RuntimePackage::Genai
        | RuntimePackage::SentenceTransformers
        | RuntimePackage::TransformersJs => Vec::new(),
    })
}

/// Files of the library's own layout, and modules that it makes without weights.
fn sentence_transformers(subject: &Subject<'_>) -> Option<minijinja::Value> {
    let manifest = subject.manifest;
    let is_own = manifest.runtime_package == RuntimePackage::SentenceTransformers;
    let fits = (is_own || manifest.runtime_package == RuntimePackage::Optimum)
        && manifest.task == Some(Task::SentenceSimilarity)
        && subject.has("tokenizer.json")
        && optimum::knows(subject)
        && subject.part()?.outputs.iter().any(|output| output.role == OutputRole::HiddenStates);
    let entries = module_entries(&subject.artifact.folder).ok()?;
    let with_weights: &[&str] = if is_own { &MODULES_WITH_WEIGHTS } else { &[] };
    let known = |class: &str| {
        MODULES_WITHOUT_WEIGHTS.iter().chain(with_weights).any(|name| class.rsplit('.').next() == Some(name))
    };
    let has_modules = !entries.is_empty() && entries.iter().all(|entry| known(&entry.full));
    (fits && has_modules).then(|| context! {})
}

fn genai(subject: &Subject<'_>) -> Option<minijinja::Value> {
    if subject.manifest.runtime_package != RuntimePackage::Genai {
        return None;
    }
    let max_length = subject.manifest.max_sequence_length.map_or(MOST_TOKENS, |most| most.min(MOST_TOKENS));
    let speech = subject.manifest.task == Some(Task::AutomaticSpeechRecognition);
    Some(context! { speech, max_length, text => subject.text().filter(|_| subject.has("tokenizer_config.json")) })
}

/// A graph that ONNX Runtime loads.
#[derive(Serialize)]
struct GraphFile {
    file: String,
}

fn onnx_runtime(subject: &Subject<'_>) -> Option<minijinja::Value> {
    let manifest = subject.manifest;
    // ONNX Runtime has no kernels for bfloat16 on processors, and makes float8 slow or wrong without a setting.
    if manifest.precision.dtype() == DType::Bf16 && !subject.artifact.backend.target.computes_in_float32
        || manifest.is_quantized_to(DType::F8E4M3FN)
    {
        return None;
    }
    let parts: Vec<GraphFile> = manifest
        .parts
        .iter()
        .map(|part| Some(GraphFile { file: quoted(part.files.first()?) }))
        .collect::<Option<_>>()?;
    let providers = if subject.artifact.backend.device == Some(Device::Gpu) {
        ", providers=[\"CUDAExecutionProvider\"]"
    } else {
        ""
    };
    let text = subject.text();
    let values = subject.part().and_then(|part| {
        let of_text = text.as_ref().and_then(|_| values::of_text(part));
        let has_text = of_text.is_some();
        let values = of_text.or_else(|| values::of_sizes(part, values::plain_inputs(part), Library::Numpy))?;
        Some((values, has_text, cache(part)?))
    });
    let rows = subject.part().and_then(|part| {
        part.symbols.iter().find(|(_, role)| **role == SymbolRole::Rows).map(|(symbol, _)| quoted(&symbol.to_string()))
    });
    let (values, has_text, cache) = match values {
        Some((values, has_text, cache)) => (Some(values), has_text, cache),
        None => (None, false, None),
    };
    let text = text.filter(|_| has_text);
    Some(context! { parts => Serde(parts), providers, text, values, cache, rows })
}

/// The type of the cache entries that a part takes, if it takes some; none where they are of several types or numpy has no such type.
fn cache(part: &PartManifest) -> Option<Option<String>> {
    let entries = part.inputs.iter().filter(|input| input.role.cache().is_some());
    let mut types: Vec<DType> = entries.map(|input| input.value.dtype()).collect::<Option<_>>()?;
    types.dedup();
    match types.as_slice() {
        [] => Some(None),
        [one] => values::dtype(*one, Library::Numpy).map(Some),
        _ => None,
    }
}

/// The command of planish that the task is for.
fn planish(subject: &Subject<'_>) -> String {
    let decodes = |task: Task| matches!(task, Task::TextGeneration | Task::Text2TextGeneration);
    let sees = subject.has("preprocessor_config.json")
        && (subject.reads(InputRole::Pixels) || subject.reads(InputRole::Image));
    let hears = subject.has("preprocessor_config.json") && subject.hears();
    match (subject.manifest.task, subject.text()) {
        (Some(task), Some(text)) if decodes(task) => format!("planish generate . --prompt {text}"),
        (Some(task), None) if decodes(task) => "planish generate . --ids 1,2,3".to_owned(),
        (Some(Task::ImageTextToText), _) if sees && subject.has("tokenizer.json") => {
            "planish generate . --chat --image picture.png --prompt \"What is this?\"".to_owned()
        }
        (Some(Task::ImageToText), _) if sees && subject.has("tokenizer.json") => "planish generate . --image picture.png".to_owned(),
        (Some(Task::AutomaticSpeechRecognition), _) if hears => "planish transcribe . recording.wav".to_owned(),
        (Some(Task::QuestionAnswering), Some(_)) => {
            "echo '{\"question\": \"Who reads?\", \"context\": \"Anna reads, and Ben writes.\"}' > texts.jsonl\nplanish predict . --data texts.jsonl".to_owned()
        }
        (Some(task), Some(text)) => {
            let command = if task.embeds() { "embed" } else { "predict" };
            format!("echo {text} > texts.txt\nplanish {command} . --data texts.txt")
        }
        (Some(Task::ZeroShotImageClassification), None) if sees && subject.has("tokenizer.json") => {
            "planish predict . --data picture.png --labels \"cat,dog\"".to_owned()
        }
        (
            Some(
                Task::FeatureExtraction
                | Task::ImageClassification
                | Task::ObjectDetection
                | Task::ImageSegmentation
                | Task::SemanticSegmentation
                | Task::DepthEstimation,
            ),
            None,
        ) if sees => "planish predict . --data picture.png".to_owned(),
        (Some(Task::AudioClassification | Task::FeatureExtraction), None) if hears => {
            "planish predict . --data recording.wav".to_owned()
        }
        _ => "planish inspect .".to_owned(),
    }
}
