//! The names of a part's files in an artifact.

use std::path::Path;

use crate::manifest::Manifest;
use crate::package::RuntimePackage;
use crate::variants::VariantName;

/// The names of the files of a part, relative to the artifact's folder. The separator is `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartLayout {
    /// The folder of the files; empty for the artifact's folder.
    folder: String,
    /// The name of the files without their endings.
    stem: String,
    /// The ending of the engine.
    engine: &'static str,
}

impl RuntimePackage {
    /// The layout of a part of the model `model`, which has `parts` parts.
    pub fn layout(self, model: &str, parts: usize, part: &str) -> PartLayout {
        match self {
            Self::Optimum | Self::Genai => {
                PartLayout { folder: String::new(), stem: part.to_owned(), engine: "engine" }
            }
            Self::TransformersJs | Self::SentenceTransformers | Self::TextEmbeddingsInference => {
                PartLayout { folder: "onnx".to_owned(), stem: part.to_owned(), engine: "engine" }
            }
            Self::Triton => {
                let name = if parts == 1 { model.to_owned() } else { format!("{model}-{part}") };
                PartLayout { folder: format!("{name}/1"), stem: "model".to_owned(), engine: "plan" }
            }
        }
    }
}

impl Manifest {
    /// The layout of the part of this name.
    pub fn layout(&self, part: &str) -> PartLayout {
        let layout = self.runtime_package.layout(&self.source.name, self.parts.len(), part);
        layout.of_variant(self.variant)
    }
}

impl PartLayout {
    /// The layout of the part in a variant.
    #[must_use]
    pub fn of_variant(self, variant: Option<VariantName>) -> Self {
        let suffix = variant.map_or("", VariantName::suffix);
        Self { stem: self.stem + suffix, ..self }
    }

    /// The folder of the files, relative to the artifact's.
    pub fn folder(&self) -> &Path {
        Path::new(&self.folder)
    }

    /// The name of the part's graph without its ending.
    pub fn stem(&self) -> &str {
        &self.stem
    }

    /// The name of a file of the part, relative to the artifact's folder.
    pub fn named(&self, file: &str) -> String {
        if self.folder.is_empty() { file.to_owned() } else { format!("{}/{file}", self.folder) }
    }

    /// The name of the part's graph as an ONNX file.
    pub fn graph(&self) -> String {
        self.named(&format!("{}.onnx", self.stem))
    }

    /// The name of the engine.
    pub fn engine(&self) -> String {
        self.named(&format!("{}.{}", self.stem, self.engine))
    }

    /// The name of the record of the engine's build.
    pub fn layers(&self) -> String {
        self.named(&layers_file(&self.stem))
    }

    /// The name of a file that describes the part: beside the folder of its versions for Triton, else beside its files.
    pub fn described(&self, file: &str) -> String {
        self.folder.rsplit_once('/').map_or_else(|| file.to_owned(), |(outer, _)| format!("{outer}/{file}"))
    }

    /// Whether a file of the artifact is in the part's folder.
    pub(crate) fn holds(&self, name: &str) -> bool {
        name.rsplit_once('/').map_or("", |(folder, _)| folder) == self.folder
    }
}

/// The name of the record of the build of an engine, by the name of the engine's file without its ending.
pub fn layers_file(stem: &str) -> String {
    format!("{stem}.layers.json")
}

/// The name of a file without its folders.
pub fn base_name(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, base)| base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_for_triton_have_folders_of_their_own() {
        let one = RuntimePackage::Triton.layout("bert", 1, "model");
        assert_eq!((one.engine().as_str(), one.layers().as_str()), ("bert/1/model.plan", "bert/1/model.layers.json"));
        assert_eq!(one.described("config.pbtxt"), "bert/config.pbtxt");
        assert_eq!(one.folder(), Path::new("bert/1"));
        assert!(one.holds("bert/1/model.onnx") && !one.holds("model.onnx") && !one.holds("bert/config.pbtxt"));
        let several = RuntimePackage::Triton.layout("t5", 3, "encoder_model");
        assert_eq!(several.named("model.onnx"), "t5-encoder_model/1/model.onnx");
        let js = RuntimePackage::TransformersJs.layout("bert", 1, "model");
        assert_eq!((js.named("model.onnx"), js.stem()), ("onnx/model.onnx".to_owned(), "model"));
        let sentence = RuntimePackage::SentenceTransformers.layout("bert", 1, "model");
        assert_eq!(
            (sentence.named("model.onnx"), sentence.described("x")),
            (js.named("model.onnx"), js.described("x"))
        );
        assert_eq!(js.clone().of_variant(Some(VariantName::Q8)).stem(), "model_quantized");
        assert_eq!(js.of_variant(None).stem(), "model");
        let plain = RuntimePackage::Optimum.layout("t5", 3, "encoder_model");
        assert_eq!((plain.stem(), plain.engine().as_str()), ("encoder_model", "encoder_model.engine"));
        assert!(plain.holds("encoder_model.onnx") && !plain.holds("t5/1/model.onnx"));
        assert_eq!((base_name("a/1/b.onnx"), base_name("b.onnx")), ("b.onnx", "b.onnx"));
    }
}
