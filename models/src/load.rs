//! From an opened checkpoint to a verified graph.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use planish_ir::Graph;
use planish_ir::Interface;
use serde::{Deserialize, Serialize};

use crate::accept::{self, Accepted, accept};
use crate::architectures::ARCHITECTURES;
use crate::checkpoint::config::Config;
use crate::checkpoint::elsewhere::RemoteFiles;
use crate::layers::builder::Builder;
use crate::layers::patches::MAX_SIDE;
use crate::layers::pictures::PictureSteps;
use crate::layers::sounds::SoundSteps;
use crate::names::{EntryNames, name_entries};
use crate::sentence;
use crate::{Checkpoint, ImagePlaces, ModelError, Pooling, Task};

/// How to load.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// The head to build; inferred from `modules.json` or `architectures` in `config.json` where absent.
    pub task: Option<Task>,
    /// The pooling of token embeddings, of a checkpoint without modules of its own.
    pub pooling: Option<Pooling>,
    /// What the cache of a model with latent attention has; latents where absent.
    pub latent_cache: Option<LatentCache>,
    /// Height and width of images; those of the configuration, or of `pictures`, where absent.
    pub image_size: Option<ImageSize>,
    /// What pictures become before they enter the model. It counts for models that the transformers library has take images of
    /// any size.
    pub pictures: Option<ImageSize>,
    /// The graphs of a model of images and texts; one of both where absent.
    pub towers: Option<Towers>,
    /// Where pictures and recordings are processed; outside of the graph where absent.
    pub preprocessing: Option<Preprocessing>,
    /// What is done to pictures in the graph; absent where it is done outside.
    pub steps: Option<PictureSteps>,
    /// The same of recordings.
    pub sounds: Option<Arc<SoundSteps>>,
    /// Whether the encoder of a Whisper gives the keys and values that its decoder attends to, as onnxruntime-genai wants it: then
    /// one decoder, which goes on from a cache, also reads the first tokens, after an empty one. Other models have no such form.
    pub encoder_gives_keys: bool,
    /// Whether a sentence model also gives what modules of the sentence-transformers library take where the vectors of texts, or
    /// of tokens, are all that it gives otherwise: scores of tokens of SPLADE, and hidden states of late interaction.
    pub gives_inputs_of_modules: bool,
    /// The names of cache entries that are not those of Transformers.js.
    pub cache_names: &'static [EntryNames],
    /// Whether warnings are errors.
    pub strict: bool,
}

/// Where pictures and recordings are processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preprocessing {
    /// In the graph, which takes the levels of pictures of any size, and samples of recordings of any length.
    Graph,
}

/// The graphs of a model that compares images with texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Towers {
    /// One of images and one of texts, each as the checkpoint of this tower alone has it.
    Apart,
}

/// Height and width of images, written `HEIGHTxWIDTH`, or as one number for squares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    /// Rows of pixels.
    pub height: usize,
    /// Columns of pixels.
    pub width: usize,
}

impl ImageSize {
    fn sides(self) -> [usize; 2] {
        [self.height, self.width]
    }
}

impl fmt::Display for ImageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.height, self.width)
    }
}

/// A text is no size of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected HEIGHTxWIDTH in pixels, or one number, from 1 to {MAX_SIDE}")]
pub struct NotAnImageSize;

impl FromStr for ImageSize {
    type Err = NotAnImageSize;

    fn from_str(text: &str) -> Result<Self, NotAnImageSize> {
        let side = |text: &str| {
            let number = text.parse().ok().filter(|n: &u64| (1..=MAX_SIDE).contains(n));
            number.and_then(|n| usize::try_from(n).ok()).ok_or(NotAnImageSize)
        };
        let (height, width) = text.split_once('x').unwrap_or((text, text));
        Ok(Self { height: side(height)?, width: side(width)? })
    }
}

/// What the cache of a model with latent attention has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LatentCache {
    /// The latents of tokens, and the features of keys that turn with positions, as transformers 5 has them.
    Latent,
    /// Keys and values of each head.
    Expanded,
}

impl fmt::Display for LatentCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Latent => "latent",
            Self::Expanded => "expanded",
        })
    }
}

/// The ids that an input takes: from 0 up to, not including, `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The input's name.
    pub input: String,
    /// The first id that is too large.
    pub end: i64,
}

/// A graph of a loaded model.
pub struct Part {
    /// The name of its file, without the ending: `model` where there is one part.
    pub name: &'static str,
    /// Verified; ids and masks are i64, floats are f32.
    pub graph: Graph,
    /// The ids that each input of integers takes, in the order of the inputs.
    pub id_ranges: Vec<IdRange>,
}

/// A loaded model.
pub struct Loaded {
    /// One graph; of an encoder-decoder the encoder, the decoder of the first tokens, and the decoder
    /// that continues from a cache. Each takes what those before it give.
    pub parts: Vec<Part>,
    /// The task; absent for an ONNX graph whose outputs do not tell it.
    pub task: Option<Task>,
    /// The architecture's `model_type`.
    pub architecture: &'static str,
    /// What planish ignored or assumed, one line each.
    pub warnings: Vec<String>,
    /// The longest sequence it takes, in tokens; absent where it takes none or has no limit.
    pub max_positions: Option<usize>,
    /// The number of token ids; absent where it takes none.
    pub vocab_size: Option<usize>,
    /// The id that pads short sequences, where the configuration has one.
    pub pad_token_id: Option<i64>,
    /// The length in tokens at which a text is read anew as a whole, as keys and values in the cache
    /// are those of shorter texts; absent where they hold at all lengths.
    pub recompute_at: Option<usize>,
    /// How prompts write images; absent where the model takes none beside tokens.
    pub places: Option<ImagePlaces>,
    /// How the keys of a token depend on the length of the text; absent where that is not known.
    pub length_dependence: Option<LengthDependence>,
}

impl Loaded {
    /// What the tensors of the model are.
    #[must_use]
    pub fn interface(&self) -> Interface {
        Interface {
            parts: self.parts.iter().map(|part| (part.name.to_owned(), part.graph.interface.clone())).collect(),
        }
    }
}

/// How the keys of a token depend on how long the text is when the token is read: rotary frequencies may follow that length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LengthDependence {
    /// They do not.
    Never,
    /// They do in texts of at least so many tokens.
    From(usize),
}

impl Checkpoint {
    /// Opens a checkpoint: a folder, a `.safetensors` file with `config.json` beside it, an index of shards, or a `.gguf`
    /// file.
    ///
    /// # Errors
    /// When a file is missing, unreadable or malformed, or shards and index disagree.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let kinds: Vec<_> = ARCHITECTURES.iter().filter_map(|architecture| architecture.gguf).collect();
        Self::open_one_of(path, &kinds, RemoteFiles::new())
    }

    /// The same with weight files that are not here: only their headers are read, and later what of them is asked for.
    ///
    /// # Errors
    /// As of [`Checkpoint::open`], and when the headers do not come.
    pub fn open_remote(path: &Path, files: RemoteFiles) -> Result<Self, ModelError> {
        Self::open_one_of(path, &[], files)
    }
}

/// Builds the graphs of a checkpoint. No tensor is read, unless a copy of a shared one is stored:
/// then the two are compared.
///
/// # Errors
/// When the architecture or task is unknown, a setting cannot be honoured, a tensor is missing,
/// does not fit or contradicts its copy, or, with `strict`, there is a warning.
pub fn load(checkpoint: &Checkpoint, options: LoadOptions) -> Result<Loaded, ModelError> {
    let listed = sentence::chosen(checkpoint, &options)?;
    let head = listed.as_ref().map(|listed| listed.modules.head());
    // Towers that are apart compare nothing.
    let of_towers = options.towers.map(|Towers::Apart| Task::FeatureExtraction);
    let asked = head.or(options.task).or(of_towers).or(checkpoint.task_of_adapters());
    let Accepted { mut config, architecture, task, class, quantization, text } = accept(checkpoint, asked)?;
    config.set_sizes_of_images(options.image_size.map(ImageSize::sides), options.pictures.map(ImageSize::sides));
    let mut builder = Builder::new(checkpoint, &config, architecture, quantization);
    builder.text = text.as_ref().map(|(config, architecture)| (config, *architecture));
    builder.is_bare = listed.is_some();
    builder.chooses = task == Task::MultipleChoice;
    builder.latent_cache = options.latent_cache;
    builder.towers = options.towers;
    builder.pictures = options.steps;
    builder.sounds = options.sounds.clone();
    builder.encoder_gives_keys = options.encoder_gives_keys;
    let interface = (architecture.build)(&mut builder, task).map_err(|e| explain(e, task, class))?;
    if let Some(asked) = options.latent_cache.filter(|_| !builder.has_latents) {
        return Err(config.error(format!(
            "`latent_cache` is {asked}, but {} for {task} has no cache of latents; leave it out",
            architecture.model_type
        )));
    }
    if options.towers.is_some() && builder.is_whole() {
        return Err(config.error(format!(
            "`towers` is apart, but {} for {task} has no towers of images and of texts, or compares the two; leave `towers` or the \
             task out",
            architecture.model_type
        )));
    }
    let processes = builder.has_pictures || builder.has_sounds;
    if (builder.pictures.is_some() || builder.sounds.is_some()) && !processes {
        let what = if builder.sounds.is_some() { "recordings that a graph processes" } else { "images" };
        return Err(config.error(format!(
            "`preprocessing` is graph, but {} for {task} takes no {what}; leave it out",
            architecture.model_type
        )));
    }
    if let Some([height, width]) = config.unused_size_of_images() {
        return Err(config.error(format!(
            "the size of images is to be {height} x {width}, but {} for {task} takes no images, images of any size, or only those \
             of its configuration; leave `image_size` of the recipe out",
            architecture.model_type
        )));
    }
    let task = match &listed {
        Some(listed) => {
            listed.modules.build(&mut builder, options.gives_inputs_of_modules)?;
            Task::SentenceSimilarity
        }
        None => task,
    };
    debug_assert_eq!(
        accept::undeclared(&config, architecture),
        [""; 0],
        "{} reads these keys",
        architecture.model_type
    );
    if let Some((config, architecture)) = &text {
        debug_assert_eq!(accept::undeclared(config, architecture), [""; 0], "{} reads these", architecture.model_type);
    }
    builder.tensors.check_adapters()?;
    let unused = builder.tensors.unused(architecture.unused_tensors);
    let mut warnings = checkpoint.gguf().map(|gguf| gguf.warnings.clone()).unwrap_or_default();
    let whole = checkpoint.whole().filter(|_| text.is_none());
    warnings.extend(whole.map(|whole| text_of(&whole.kind, &config, &builder)));
    warnings.extend(config.take_warnings());
    warnings.extend(text.iter().flat_map(|(config, _)| config.take_warnings()));
    warnings.extend(listed.map(|listed| listed.warnings).unwrap_or_default());
    if !unused.is_empty() {
        warnings.push(unused_tensors(checkpoint, &unused));
    }
    warnings.extend(builder.tensors.lost_codes().map(|lost| lost_codes(checkpoint, lost)));
    warnings.append(&mut builder.warnings);
    let mut parts = builder.into_parts();
    parts.iter_mut().for_each(|part| name_entries(&mut part.graph, options.cache_names));
    if options.strict && !warnings.is_empty() {
        return Err(ModelError::Strict(warnings));
    }
    parts.iter().try_for_each(|part| planish_ir::verify(&part.graph))?;
    Ok(Loaded {
        parts,
        task: Some(task),
        architecture: architecture.model_type,
        warnings,
        max_positions: interface.max_positions,
        vocab_size: interface.vocab_size,
        pad_token_id: interface.pad_token_id,
        recompute_at: interface.recompute_at,
        places: interface.places,
        length_dependence: Some(
            interface.frequencies_change_at.map_or(LengthDependence::Never, LengthDependence::From),
        ),
    })
}

/// Adds to an error about a missing tensor that the checkpoint was saved for another task.
fn explain(error: ModelError, task: Task, class: Option<&str>) -> ModelError {
    match (error, class) {
        (ModelError::MissingTensor { name, path, mut hint }, Some(class)) if Task::of_class(class) != Some(task) => {
            hint.push_str(&format!("; the checkpoint was saved from {class}, and may have no head for {task}"));
            ModelError::MissingTensor { name, path, hint }
        }
        (error, _) => error,
    }
}

/// How many tensors a warning names.
const TENSORS_SHOWN: usize = 8;

/// The first of some names, and how many more there are.
pub(crate) fn some_of(names: &[&str]) -> String {
    let shown = names[..names.len().min(TENSORS_SHOWN)].join(", ");
    match names.len().saturating_sub(TENSORS_SHOWN) {
        0 => shown,
        n => format!("{shown} and {n} more"),
    }
}

/// The warning about a multimodal model of which the text model is compiled.
fn text_of(whole: &str, config: &Config<'_>, builder: &Builder<'_>) -> String {
    let beside = builder.tensors.beside_text();
    let beside: Vec<String> = beside.iter().map(|(module, count)| format!("{module} ({count} tensors)")).collect();
    let beside = match beside.is_empty() {
        true => "nothing".to_owned(),
        false => beside.join(", "),
    };
    config.note(format!("this is the text model of {whole}; left out: {beside}"))
}

fn unused_tensors(checkpoint: &Checkpoint, names: &[&str]) -> String {
    format!("{}: {} unused tensors: {}", checkpoint.weights_path().display(), names.len(), some_of(names))
}

/// The warning about quantized weights that become float32, by reason.
fn lost_codes(checkpoint: &Checkpoint, lost: &[(String, &'static str)]) -> String {
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, reason) in lost {
        match by_reason.iter_mut().find(|(known, _)| known == reason) {
            Some((_, names)) => names.push(name),
            None => by_reason.push((reason, vec![name])),
        }
    }
    let one = |(reason, names): &(&str, Vec<&str>)| format!("{} because {reason}: {}", names.len(), some_of(names));
    let reasons: Vec<String> = by_reason.iter().map(one).collect();
    let file = checkpoint.weights_path().display();
    format!(
        "{file}: the codes of {} quantized weights are not kept, planish takes the floats that they stand for: {}",
        lost.len(),
        reasons.join("; ")
    )
}
