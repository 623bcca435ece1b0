//! `planish.json`: the source, the options and the verification of an artifact. No member depends on the time, and
//! of where only the way from the artifact to its source, so that the same input in the same places gives the same bytes.

mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::recipe::{ExpertsName, Recipe};
use anyhow::{Context, Result, bail};
use planish_files::Kind;
use planish_ir::{InputRole, OutputRole, PartRole, Symbol, SymbolRole};
use planish_models::{ImagePlaces, LengthDependence, LoadOptions, Pooling, Task};
use planish_passes::Logits;
use planish_passes::precision::PartPrecision;
use serde::{Deserialize, Serialize};

use crate::coverage::Coverage;
use crate::engine::EngineManifest;
use crate::evaluation::Evaluation;
use crate::package::RuntimePackage;
use crate::precision::PrecisionName;
use crate::ranks::{RankManifest, TensorParallel};
use crate::stages::StageManifest;
use crate::tuning::Tuning;
use crate::value::ValueInfo;
use crate::variants::{VariantManifest, VariantName};
use crate::verification::{LogitsForm, Report};
use crate::{MANIFEST, text};
use planish_passes::quantize::{Plan, WeightPlan};

pub use source::{AdapterManifest, ArtifactHistory, CalibratedOn, HubSource, SourceManifest};

/// The version of this format. docs/manifest.md describes it.
const SCHEMA: u32 = 5;

/// The oldest version that is read. In version 2 all sizes are strings; versions 2 and 3 do not say which files contain a part;
/// versions before 5 do not say what parts, inputs, outputs and symbols are.
const OLDEST: u32 = 2;

/// The input of a graph of both decoders that chooses between them: whether there is a cache.
pub const SWITCH: &str = "use_cache_branch";

/// The manifest of an artifact.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this format.
    pub schema: u32,
    /// The tool and its version.
    pub producer: String,
    /// The source of the artifact.
    pub source: SourceManifest,
    /// The architecture's `model_type`.
    pub architecture: String,
    /// The task, by Optimum's name; absent where an ONNX graph does not say.
    #[serde(default, with = "text::optional")]
    pub task: Option<Task>,
    /// The pooling of tokens that was asked for; absent where the source says it, or for other tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooling: Option<Pooling>,
    /// The name of the target that it was compiled for: a key of the registry of backends.
    pub target: String,
    /// The ONNX opset.
    pub opset: u32,
    /// The type that weights are stored in, and that the target computes in where it has kernels for it.
    pub precision: PrecisionName,
    /// The data that decided which operators stay in float32; absent without calibration.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calibration: Option<CalibratedOn>,
    /// Whether operators were kept whole where the target has fused kernels.
    pub fusion: bool,
    /// What the user asked for; absent in artifacts of versions before recipes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recipe: Option<Recipe>,
    /// What a search for the fastest form found; absent without one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tuning: Option<Tuning>,
    /// Whether queries, keys and values of attention are cast to float32.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub attention_fp32: bool,
    /// What mixtures of experts became; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub experts: Option<ExpertsName>,
    /// Whether attention writes new keys and values after the past, if both are in one buffer.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub cache_in_place: bool,
    /// Whether products with weights of codes round their input to integers of 8 bits.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub integer_inputs: bool,
    /// The library that the artifact is laid out for.
    #[serde(default)]
    pub runtime_package: RuntimePackage,
    /// The BLAKE3 digest of the model card as planish wrote it, in hexadecimal; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub card: Option<String>,
    /// The variant that `files` and `parts` are of; absent in an artifact that was not asked for variants.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub variant: Option<VariantName>,
    /// The files that make up the model, each ONNX graph before its data.
    pub files: Vec<File>,
    /// Weight files of the source that the model points into.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub linked: Vec<String>,
    /// Configuration and tokenizer files: copied from the source, or written for the library.
    pub companions: Vec<String>,
    /// The number of parameters, those that are tied or that parts share counted once.
    pub parameters: u64,
    /// The graphs, in the order in which a program runs them.
    pub parts: Vec<PartManifest>,
    /// The file with the graph of both decoders of an encoder-decoder, for libraries that run it in the place of both; absent where
    /// there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub merged: Option<String>,
    /// How it is cut for ranks that run at the same time; absent where it is whole.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tensor_parallel: Option<TensorParallel>,
    /// The id that pads short sequences, where the configuration has one.
    pub pad_token_id: Option<i64>,
    /// The longest sequence, in tokens; absent where the model takes none or has no limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_sequence_length: Option<usize>,
    /// The length in tokens at which a text is computed again as a whole, without the cache;
    /// absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recompute_at: Option<usize>,
    /// How the keys of a token depend on the length of the text; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub length_dependence: Option<LengthDependence>,
    /// How prompts write images; absent where the model takes none beside tokens.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub places: Option<ImagePlaces>,
    /// The comparison with the source; absent without `--verify`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verification: Option<Report>,
    /// How close it is to the source on data; absent where it was not evaluated when it was compiled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evaluation: Option<Evaluation>,
    /// The variants beside its own; empty where it has one form.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub variants: Vec<VariantManifest>,
}

/// A graph of the model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartManifest {
    /// Its name, e.g. `model` or `decoder_with_past_model`.
    pub name: String,
    /// Which rank it is of; absent where the model is whole.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rank: Option<RankManifest>,
    /// The names of its files: the one that a runtime loads, then those that it points to.
    #[serde(default)]
    pub files: Vec<String>,
    /// The stages that it is cut into, in the order in which they run; empty where it is one graph. They have its files then.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stages: Vec<StageManifest>,
    /// The inputs, in order.
    pub inputs: Vec<Input>,
    /// The outputs, in order.
    pub outputs: Vec<Output>,
    /// What it does in the model.
    #[serde(skip_serializing_if = "is_default", default, with = "text")]
    pub role: PartRole,
    /// What the symbols in the shapes of inputs count.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default, with = "text::map")]
    pub symbols: BTreeMap<Symbol, SymbolRole>,
    /// The passes that ran, in order.
    pub passes: Vec<AppliedPass>,
    /// The report on half precision; absent in float32.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub precision: Option<PartPrecision>,
    /// How the inputs of its linear layers are quantized; absent where none is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quantization: Option<Plan>,
    /// How much of its weights are codes; absent where nothing was to be quantized.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub coverage: Option<Coverage>,
    /// What becomes of its weights where weights alone are quantized; absent where none is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub weights: Option<WeightPlan>,
    /// How many of each operator that raising finds the graph has, before it is lowered.
    pub raised: BTreeMap<String, usize>,
    /// Its engine, where one was built.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub engine: Option<EngineManifest>,
    /// Its vocabulary, where that was to be padded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub vocabulary: Option<PaddedVocabulary>,
    /// Whether only the last token of each row has logits.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub last_logits: bool,
}

/// A vocabulary and its padded size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaddedVocabulary {
    /// The number of tokens.
    pub size: usize,
    /// The rows of the tables of tokens and of the head in the graph.
    pub padded: usize,
    /// The form of the logits; absent if the part has no logits.
    #[serde(skip_serializing_if = "Option::is_none", default, with = "text::optional")]
    pub logits: Option<Logits>,
}

impl PartManifest {
    /// The vocabulary, where scores are given for all of its rows.
    #[must_use]
    pub fn padded_logits(&self) -> Option<&PaddedVocabulary> {
        self.vocabulary.as_ref().filter(|v| v.logits == Some(Logits::Padded))
    }

    /// How its logits differ in shape from those of its source.
    #[must_use]
    pub fn logits_form(&self) -> LogitsForm {
        LogitsForm { padded: self.padded_logits().cloned(), last: self.last_logits }
    }
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its name: of a file of the artifact relative to the artifact's folder, of others without folders.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// The BLAKE3 digest of its contents, in hexadecimal. Absent for weight files of which nothing
    /// was read, being linked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub blake3: Option<String>,
}

impl File {
    /// Whether this and another record may be of the same file: they are unless digests differ,
    /// which not all records have.
    #[must_use]
    pub fn may_be(&self, other: &Self) -> bool {
        let differ = self.blake3.as_ref().zip(other.blake3.as_ref()).is_some_and(|(own, other)| own != other);
        self.name == other.name && self.bytes == other.bytes && !differ
    }
}

/// An input, and which integers it takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Input {
    /// Name and type.
    #[serde(flatten)]
    pub value: ValueInfo,
    /// The first integer from 0 on that it does not take; absent for real numbers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end: Option<i64>,
    /// What it is.
    #[serde(skip_serializing_if = "is_default", default, with = "text")]
    pub role: InputRole,
}

/// An output, and what it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Output {
    /// Name and type.
    #[serde(flatten)]
    pub value: ValueInfo,
    /// What it is.
    #[serde(skip_serializing_if = "is_default", default, with = "text")]
    pub role: OutputRole,
}

/// Whether a role is that of what is not said to be anything else.
fn is_default<T: Default + PartialEq>(role: &T) -> bool {
    *role == T::default()
}

/// A pass that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedPass {
    /// Its name.
    pub name: String,
    /// How many places it changed.
    pub changed: usize,
}

impl Manifest {
    /// How the source is loaded again.
    #[must_use]
    pub fn load_options(&self) -> LoadOptions {
        let latent_cache = self.recipe.as_ref().and_then(|recipe| recipe.latent_cache);
        let image_size = self.recipe.as_ref().and_then(|recipe| recipe.image_size);
        let towers = self.recipe.as_ref().and_then(|recipe| recipe.towers);
        let preprocessing = self.recipe.as_ref().and_then(|recipe| recipe.preprocessing);
        self.runtime_package.load_options(LoadOptions {
            task: self.task,
            pooling: self.pooling,
            latent_cache,
            image_size,
            towers,
            preprocessing,
            ..LoadOptions::default()
        })
    }

    /// The version of this format.
    #[must_use]
    pub fn schema() -> u32 {
        SCHEMA
    }

    /// The tool and its version.
    #[must_use]
    pub fn producer() -> String {
        concat!("planish ", env!("CARGO_PKG_VERSION")).to_owned()
    }

    /// Reads the manifest of an artifact.
    ///
    /// # Errors
    /// When the folder has none, or one of another version.
    pub fn read(folder: &Path) -> Result<Self> {
        if !folder.exists() {
            bail!("there is no folder {}; `planish compile` makes artifacts", folder.display());
        }
        if folder.is_file() {
            bail!("{} is a file; pass the folder of the artifact", folder.display());
        }
        let path = folder.join(MANIFEST);
        let text = planish_files::read_text(&path, &Kind::MANIFEST).with_context(|| {
            let folder = folder.display();
            format!("{folder} is not an artifact, make one with `planish compile`")
        })?;
        let unread =
            || format!("{} is not a manifest that this version reads; compile the model again", path.display());
        let Version { schema } = serde_json::from_str(&text).with_context(unread)?;
        if !(OLDEST..=SCHEMA).contains(&schema) {
            bail!(
                "{} is of schema {schema}, this version reads {OLDEST} to {SCHEMA}; compile the model again",
                path.display()
            );
        }
        let mut manifest: Self = serde_json::from_str(&text).with_context(unread)?;
        manifest.name_files();
        manifest.infer_roles();
        Ok(manifest)
    }

    /// Says which files contain each part, for versions that did not: their names begin with that of the part and an ending.
    fn name_files(&mut self) {
        for part in self.parts.iter_mut().filter(|part| part.files.is_empty() && part.stages.is_empty()) {
            let beginning = format!("{}.", part.name);
            let of_part = self.files.iter().filter(|file| file.name.starts_with(&beginning));
            part.files = of_part.map(|file| file.name.clone()).collect();
        }
    }

    /// Writes the manifest into an artifact.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(MANIFEST);
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// The version of a manifest, which says how the rest is read.
#[derive(Deserialize)]
struct Version {
    schema: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_older_manifests_have_the_files_that_begin_with_their_names() {
        let manifest = |schema: u32| {
            format!(
                r#"{{"schema": {schema}, "producer": "planish", "source": {{"name": "m", "files": []}}, "architecture": "t5",
                     "task": "text2text-generation", "target": "ort", "opset": 20, "precision": "f32", "fusion": true,
                     "files": [{{"name": "decoder_model.onnx", "bytes": 1}}, {{"name": "decoder_model.onnx_data", "bytes": 2}},
                               {{"name": "decoder.onnx", "bytes": 3}}],
                     "companions": [], "parameters": 1, "pad_token_id": null,
                     "parts": [{{"name": "decoder_model", "inputs": [], "outputs": [], "passes": [], "raised": {{}}}}]}}"#
            )
        };
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(MANIFEST), manifest(3)).unwrap();
        let read = Manifest::read(folder.path()).unwrap();
        assert_eq!(read.parts[0].files, ["decoder_model.onnx", "decoder_model.onnx_data"]);
        assert_eq!(read.task, Some(Task::Text2TextGeneration));
        for schema in [1, 6] {
            fs::write(folder.path().join(MANIFEST), manifest(schema)).unwrap();
            let error = Manifest::read(folder.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("is of schema {schema}, this version reads 2 to 5")), "{error}");
        }
        fs::write(folder.path().join(MANIFEST), manifest(4).replace("text2text", "telepathy")).unwrap();
        let error = format!("{:#}", Manifest::read(folder.path()).unwrap_err());
        assert!(error.contains("unknown task `telepathy-generation`"), "{error}");
    }
}
