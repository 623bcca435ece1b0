//! Sentence models: the modules that the sentence-transformers library puts after a model of the transformers library, as
//! `modules.json` of a checkpoint lists them. The graph that has them gives the embedding of each text, in place of what the
//! model gives for each token only.

pub(crate) mod build;
mod checks;
mod configuration;
mod entries;
mod m3;
mod pooling;
mod read;
mod splade;
mod write;

use planish_ir::ValueId;

use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::names;
use crate::{ModelError, Task};

pub(crate) use entries::MODULES;
pub use entries::{ModuleEntry, module_entries, pooling_config, pooling_modes};
pub(crate) use pooling::Mode;
pub use pooling::{Pooling, UnknownPooling};
pub(crate) use read::{
    chosen, files, files_of_modules, folder_of_model, head_files, heads_among, is_listed, is_static, sources,
};
pub use write::written_modules;

/// What a module reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// A vector of each token: [batch_size, sequence_length, features].
    Tokens,
    /// A vector of each text: [batch_size, features].
    Sentence,
}

/// A module after the model.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    /// Its folder in the checkpoint, such as `2_Dense`; empty where an option asks for the module.
    pub(crate) path: String,
    pub(crate) kind: Kind,
}

/// What a module computes; the names are those of the library's classes.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// One vector of those of all tokens, or several joined, of so many features each where the configuration says it.
    Pooling { modes: Vec<Mode>, features: Option<Size> },
    /// A projection with an activation after it.
    Dense(Dense),
    /// Vectors divided by their Euclidean lengths.
    Normalize([Feature; 2]),
    /// Layer normalization of the vector of a text.
    LayerNorm(Size),
    /// `SpladePooling`: of the scores of the vocabulary for each token, one score for each word.
    Splade(splade::Splade),
    /// The heads of BGE-M3 for words and for tokens, besides the vector of a text.
    M3,
    /// The first so many features of the vector of a text: `truncate_dim`.
    Truncate(Size),
}

/// `torch.nn.Linear` with an activation, and with `residual` its input, projected where the sizes differ, added to it.
#[derive(Clone, Debug)]
pub(crate) struct Dense {
    pub(crate) inner: Size,
    pub(crate) out: Size,
    pub(crate) bias: bool,
    pub(crate) activation: Activation,
    /// What it reads and what it writes.
    pub(crate) features: [Feature; 2],
    pub(crate) residual: bool,
}

/// The modules after a model.
#[derive(Clone, Debug)]
pub(crate) struct Modules {
    pub(crate) list: Vec<Module>,
}

impl Modules {
    /// Those that an option asks for.
    pub(crate) fn of(pooling: Pooling) -> Self {
        let pool = Module::bare(Kind::Pooling { modes: vec![pooling.mode], features: None });
        let normalize = pooling.normalize.then(|| Module::bare(Kind::Normalize([Feature::Sentence; 2])));
        Self { list: std::iter::once(pool).chain(normalize).collect() }
    }

    /// The task of the model that they come after.
    pub(crate) fn head(&self) -> Task {
        match self.list.first().map(|module| &module.kind) {
            Some(Kind::Splade(_)) => Task::FillMask,
            _ => Task::FeatureExtraction,
        }
    }

    /// Adds them to a graph, whose outputs become those of the modules, always with what the model gives where `gives_inputs`.
    pub(crate) fn build(&self, b: &mut Builder<'_>, gives_inputs: bool) -> Result<(), ModelError> {
        build::build(b, &self.list, gives_inputs)
    }
}

impl Module {
    /// A module without a folder of its own.
    fn bare(kind: Kind) -> Self {
        Self { path: String::new(), kind }
    }

    /// The name of one of its modules or tensors.
    fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) }
    }

    /// What its operators are named after: its folder, or what it does.
    fn name(&self) -> String {
        let kind = match self.kind {
            Kind::Pooling { .. } | Kind::Splade(_) => "pooling",
            Kind::Dense(_) => "dense",
            Kind::Normalize(_) => "normalize",
            Kind::LayerNorm(_) => "norm",
            Kind::M3 => "m3",
            Kind::Truncate(_) => "truncate",
        };
        if self.path.is_empty() { kind.to_owned() } else { self.path.clone() }
    }
}

/// What the modules so far gave.
struct Features {
    tokens: ValueId,
    sentence: Option<ValueId>,
    /// Which tokens are real: bool[batch_size, sequence_length].
    mask: ValueId,
}

impl Features {
    /// The value of a feature, for a module.
    fn get(&self, feature: Feature, b: &Builder<'_>, module: &Module) -> Result<ValueId, ModelError> {
        match feature {
            Feature::Tokens => Ok(self.tokens),
            Feature::Sentence => self.sentence.ok_or_else(|| {
                let message = format!("it reads `{}`, which no module before it gives", names::SENTENCE.0);
                b.tensors.of_module(&module.path, message)
            }),
        }
    }

    fn set(&mut self, feature: Feature, value: ValueId) {
        match feature {
            Feature::Tokens => self.tokens = value,
            Feature::Sentence => self.sentence = Some(value),
        }
    }
}
