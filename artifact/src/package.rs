//! The library whose file names and configuration files an artifact has.

use clap::ValueEnum;
use planish_runtimes::Format;
use planish_runtimes::tensorrt::{ENTERPRISE, PRODUCT};
use serde::{Deserialize, Serialize};

use crate::backend::{BACKENDS, Backend};

/// The library that an artifact is laid out for. The graphs are the same for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimePackage {
    /// Optimum, and ONNX Runtime alone
    #[default]
    Optimum,
    /// onnxruntime-genai, for decoders and Whisper; not for targets trt and cuda
    ///
    /// genai_config.json is added, and weights above 1.5 GB are in model.onnx.data.
    Genai,
    /// Transformers.js; not for targets trt and cuda
    ///
    /// Graphs are in the folder onnx, and the decoders of an encoder-decoder are also in one graph, decoder_model_merged.onnx.
    #[serde(rename = "transformers-js")]
    TransformersJs,
    /// a model repository of Triton Inference Server; not for target cuda and engines of TensorRT-RTX
    ///
    /// For each part a folder with config.pbtxt and 1/model.onnx, or 1/model.plan for target trt.
    Triton,
}

impl RuntimePackage {
    /// The suffix of the name of an artifact's folder.
    pub fn folder_suffix(self) -> &'static str {
        match self {
            Self::Optimum => "",
            Self::Genai => "-genai",
            Self::TransformersJs => "-transformers-js",
            Self::Triton => "-triton",
        }
    }

    /// The suffix after `NAME.onnx` in the name of a file of weights.
    pub fn data_suffix(self) -> &'static str {
        match self {
            Self::Optimum | Self::TransformersJs | Self::Triton => "_data",
            Self::Genai => ".data",
        }
    }

    /// How `--package` names it.
    fn option(self) -> &'static str {
        match self {
            Self::Optimum => "optimum",
            Self::Genai => "genai",
            Self::TransformersJs => "transformers-js",
            Self::Triton => "triton",
        }
    }

    /// What people call it.
    fn library(self) -> &'static str {
        match self {
            Self::Optimum => "Optimum",
            Self::Genai => "onnxruntime-genai",
            Self::TransformersJs => "Transformers.js",
            Self::Triton => "Triton Inference Server",
        }
    }

    /// Why the library loads no artifact of a target.
    pub fn refuses(self, backend: &Backend) -> Option<String> {
        let format = backend.emitter.format();
        if self != Self::Optimum && format == Format::GRAPH {
            let (option, library) = (self.option(), self.library());
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
                 --no-default-features --features tensorrt",
                backend.target
            ));
        }
        if !matches!(self, Self::Genai | Self::TransformersJs) || backend.engines.is_none() {
            return None;
        }
        let onnx = |backend: &&&Backend| backend.engines.is_none() && backend.emitter.format() == Format::ONNX;
        let targets = BACKENDS.iter().filter(onnx);
        let targets: Vec<&str> = targets.map(|backend| backend.target.name).collect();
        Some(format!(
            "--package {}: {} loads ONNX files, and target {} has engines in their place; choose \
             one of the targets {}, or leave out --package",
            self.option(),
            self.library(),
            backend.target,
            targets.join(", ")
        ))
    }
}
