//! What an architecture is: one value in a file of its own in architectures/.

use crate::checkpoint::config_keys::Only;
use crate::checkpoint::gguf::Kind;
use crate::layers::builder::Builder;
use crate::{ImagePlaces, ModelError, Task};

/// How checkpoints of one `model_type` become graphs.
pub struct Architecture {
    /// The value of `model_type` in `config.json`.
    pub model_type: &'static str,
    /// The prefix of the names of its classes in the transformers library.
    pub(crate) class_prefix: &'static str,
    /// The tasks that it has heads for; the first is taken where nothing says which.
    pub tasks: &'static [Task],
    /// The name of the base model in the checkpoint of a model with a head.
    pub(crate) base: &'static str,
    /// Other names of the base model in checkpoints, with the names of the modules around it.
    pub(crate) other_bases: &'static [&'static str],
    /// Parts of the names of tensors, and what transformers 5 calls them if it saves a model without its original names
    /// (`save_original_format=False`; its conversion_mapping.py). They are replaced in this order. `{a,b}` stands for tensors
    /// `a` and `b`, whose rows are those of the one tensor, in this order, as many of each.
    pub(crate) renamed: &'static [(&'static str, &'static str)],
    /// Configuration keys that it reads, in lists that architectures share.
    pub(crate) keys: &'static [&'static [&'static str]],
    /// Older names of configuration keys, and the names that they are read under.
    pub(crate) older_keys: &'static [(&'static str, &'static str)],
    /// Configuration keys, besides those of every model, of which one value is supported.
    pub(crate) only: &'static [Only],
    /// Configuration keys, besides those of every model, that do not change the computation.
    pub(crate) irrelevant_keys: &'static [&'static str],
    /// Beginnings of the names of tensors that may be stored without being used; with a dot before
    /// them, endings.
    pub(crate) unused_tensors: &'static [&'static str],
    /// The id of padding of a decoder's configuration that does not name one, as its class in the transformers library has it.
    pub(crate) pad_token_id: Option<i64>,
    /// What GGUF files say of it, where they are read.
    pub(crate) gguf: Option<&'static Kind>,
    /// Adds inputs, nodes and outputs to the graph; [`Builder::finish`] ends one of several.
    pub(crate) build: fn(&mut Builder<'_>, Task) -> Result<Properties, ModelError>,
}

impl Architecture {
    /// Whether it reads a configuration key, under this name or a newer one.
    pub(crate) fn reads(&self, key: &str) -> bool {
        self.keys.iter().any(|keys| keys.contains(&key)) || self.older_keys.iter().any(|(older, _)| *older == key)
    }

    /// Whether it is of models of images and texts that generate text.
    pub(crate) fn sees(&self) -> bool {
        self.tasks.contains(&Task::ImageTextToText)
    }

    /// The error for a task that it has no head for.
    pub(crate) fn without(&self, task: Task) -> ModelError {
        ModelError::Task { model_type: self.model_type, task, tasks: self.tasks }
    }
}

/// The properties of a built model that callers need besides its graph.
#[derive(Default)]
pub(crate) struct Properties {
    /// The longest sequence it takes, where it takes sequences and has a limit.
    pub(crate) max_positions: Option<usize>,
    /// The number of token ids, where it takes tokens.
    pub(crate) vocab_size: Option<usize>,
    pub(crate) pad_token_id: Option<i64>,
    /// The length at which keys and values of a text are computed anew, where there is one.
    pub(crate) recompute_at: Option<usize>,
    /// The length from which on rotary frequencies depend on the length, where there is one.
    pub(crate) frequencies_change_at: Option<usize>,
    /// How prompts write images, of a model that sees.
    pub(crate) places: Option<ImagePlaces>,
}
