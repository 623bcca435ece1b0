//! The library whose file names and configuration files an artifact has.

use clap::ValueEnum;
use planish_ir::interface::CacheKind;
use planish_models::LoadOptions;
use planish_models::names::EntryNames;
use planish_runtimes::Format;
use planish_runtimes::tensorrt::{ENTERPRISE, PRODUCT};
use serde::{Deserialize, Serialize};

use crate::backend::{BACKENDS, Backend, Device};

/// The newest opset of graphs for browsers.
const WEB_OPSET: u32 = 23;

/// The library that an artifact is laid out for. The graphs are the same for all, but for names that a library has of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimePackage {
    /// Optimum, and ONNX Runtime alone
    #[default]
    Optimum,
    /// onnxruntime-genai, for decoders and Whisper
    ///
    /// genai_config.json is added, and weights above 1.5 GB are in model.onnx.data. Not for targets trt and cuda.
    Genai,
    /// Transformers.js
    ///
    /// Graphs are in the folder onnx, and the decoders of an encoder-decoder are also in one graph, decoder_model_merged.onnx.
    /// Not for targets trt and cuda.
    #[serde(rename = "transformers-js")]
    TransformersJs,
    /// the library, for sentence models and rerankers
    ///
    /// The graph is in the folder onnx, beside modules.json and the folders of modules, and gives what the library's modules take.
    /// Not for targets trt and cuda.
    #[serde(rename = "sentence-transformers")]
    SentenceTransformers,
    /// the server, for the same models
    ///
    /// The graph is in the folder onnx and gives the vectors of texts, and configurations have what the server reads. For targets
    /// onnx and ort.
    #[serde(rename = "text-embeddings-inference")]
    TextEmbeddingsInference,
    /// a model repository of Triton Inference Server
    ///
    /// For each part a folder with config.pbtxt and 1/model.onnx, or 1/model.plan for target trt. Not for target cuda and engines
    /// of TensorRT-RTX.
    Triton,
}

/// States of a fixed size as onnxruntime-genai's own builder names them. Models are built with the names of Transformers.js, and
/// keys and values have one name in all libraries.
const GENAI_STATES: &[EntryNames] = &[
    EntryNames { kind: CacheKind::Convolution, past: "past.%d.conv", present: "present.%d.conv" },
    EntryNames { kind: CacheKind::Recurrent, past: "past.%d.recurrent", present: "present.%d.recurrent" },
];

/// What an artifact for a library has of its own.
struct Facts {
    /// How `--package` names the library.
    option: &'static str,
    /// What people call it.
    library: &'static str,
    /// The suffix after `NAME.onnx` in the name of a file of weights.
    data_suffix: &'static str,
}

impl RuntimePackage {
    fn facts(self) -> Facts {
        let facts = |option, library, data_suffix| Facts { option, library, data_suffix };
        match self {
            Self::Optimum => facts("optimum", "Optimum", "_data"),
            Self::Genai => facts("genai", "onnxruntime-genai", ".data"),
            Self::TransformersJs => facts("transformers-js", "Transformers.js", "_data"),
            Self::SentenceTransformers => facts("sentence-transformers", "sentence-transformers", "_data"),
            Self::TextEmbeddingsInference => facts("text-embeddings-inference", "Text Embeddings Inference", "_data"),
            Self::Triton => facts("triton", "Triton Inference Server", "_data"),
        }
    }

    /// The suffix of the name of an artifact's folder.
    pub fn folder_suffix(self) -> String {
        if self == Self::Optimum { String::new() } else { format!("-{}", self.option()) }
    }

    /// The suffix after `NAME.onnx` in the name of a file of weights.
    pub fn data_suffix(self) -> &'static str {
        self.facts().data_suffix
    }

    /// How `--package` names it.
    pub fn option(self) -> &'static str {
        self.facts().option
    }

    /// What people call it.
    pub fn library(self) -> &'static str {
        self.facts().library
    }

    /// How a model is loaded for the library.
    pub fn load_options(self, options: LoadOptions) -> LoadOptions {
        let cache_names = match self {
            Self::Genai => GENAI_STATES,
            Self::Optimum
            | Self::TransformersJs
            | Self::SentenceTransformers
            | Self::TextEmbeddingsInference
            | Self::Triton => &[],
        };
        LoadOptions {
            encoder_gives_keys: self == Self::Genai,
            gives_inputs_of_modules: self == Self::SentenceTransformers,
            cache_names,
            ..options
        }
    }

    /// Whether the library loads the ONNX files of a target.
    fn loads(self, backend: &Backend) -> bool {
        match self {
            Self::Optimum | Self::Triton => true,
            Self::Genai | Self::TransformersJs | Self::SentenceTransformers => backend.engines.is_none(),
            // Its backend of ONNX Runtime computes on processors only.
            Self::TextEmbeddingsInference => backend.engines.is_none() && backend.device != Some(Device::Gpu),
        }
    }

    /// Whether it looks up rows of a table whose blocks have a scale each (`GatherBlockQuantized`): onnxruntime-web has no kernel for
    /// that on processors.
    pub fn looks_up_blocks(self) -> bool {
        self != Self::TransformersJs
    }

    /// Why the package has no graph of an opset.
    pub fn refuses_opset(self, opset: u32) -> Option<String> {
        (self == Self::TransformersJs && opset > WEB_OPSET).then(|| {
            format!(
                "--package {} writes opset {WEB_OPSET} or older, which pages with older versions of onnxruntime-web run too, and not \
                 opset {opset}; give --opset {WEB_OPSET}",
                self.option()
            )
        })
    }

    /// Why the library loads no artifact of a target.
    pub fn refuses(self, backend: &Backend) -> Option<String> {
        let format = backend.emitter.format();
        let Facts { option, library, .. } = self.facts();
        if self != Self::Optimum && format == Format::GRAPH {
            return Some(format!(
                "--package {option}: {library} does not load a file of format {}, which target {} has; choose \
                 another target, or leave out --package",
                format.name, backend.target
            ));
        }
        if self == Self::Triton && backend.engines.is_some() && cfg!(feature = "tensorrt-rtx") && !ENTERPRISE {
            return Some(format!(
                "--package triton: Triton's backend tensorrt loads engines of TensorRT, and this planish builds engines \
                 of {PRODUCT} for target {}; choose --target ort-cuda, or a planish that was built with \
                 --features tensorrt",
                backend.target
            ));
        }
        if self.loads(backend) {
            return None;
        }
        let what = match backend.engines {
            Some(_) => format!("loads ONNX files, and target {} has engines in their place", backend.target),
            None => format!("computes ONNX graphs on processors, and target {} is for GPUs", backend.target),
        };
        let onnx = |backend: &&&Backend| backend.emitter.format() == Format::ONNX && self.loads(backend);
        let targets: Vec<&str> = BACKENDS.iter().filter(onnx).map(|backend| backend.target.name).collect();
        Some(format!(
            "--package {option}: {library} {what}; choose one of the targets {}, or leave out --package",
            targets.join(", ")
        ))
    }
}
