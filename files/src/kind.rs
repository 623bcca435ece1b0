//! The kinds of files that are read whole, and how large each may be.

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// What such a file is, as an error says it.
    pub what: &'static str,
    /// The most bytes that are read of one.
    pub limit: u64,
    /// What to do about one that has more.
    pub advice: &'static str,
}

impl Kind {
    /// `config.json`, `generation_config.json`, and other settings of a checkpoint or artifact. The largest published ones have
    /// some hundred kilobytes: names of labels.
    pub const SETTINGS: Self = Self {
        what: "a file of settings",
        limit: 16 * MIB,
        advice: "take the file from the original checkpoint again",
    };
    /// `model.safetensors.index.json`, an entry for each tensor.
    pub const INDEX: Self = Self {
        what: "an index of weights",
        limit: 100 * MIB,
        advice: "take the file from the original checkpoint again",
    };
    /// `planish.json`.
    pub const MANIFEST: Self =
        Self { what: "the manifest of an artifact", limit: 64 * MIB, advice: "compile the model again" };
    /// `README.md` of a model. The largest published ones have some hundred kilobytes: results of benchmarks.
    pub const CARD: Self = Self { what: "a model card", limit: 16 * MIB, advice: "shorten it, or move it elsewhere" };
    /// `tokenizer.json`. The largest published ones have 35 MB.
    pub const TOKENIZER: Self =
        Self { what: "a tokenizer", limit: 256 * MIB, advice: "take the file from the original checkpoint again" };
    /// `chat_template.jinja`.
    pub const TEMPLATE: Self = Self { what: "a chat template", limit: 4 * MIB, advice: "use a shorter template" };
    /// Schemas of functions that a model may call.
    pub const TOOLS: Self = Self { what: "a list of tools", limit: 4 * MIB, advice: "leave out tools" };
    /// Prompts, an object a line.
    pub const PROMPTS: Self = Self { what: "a file of prompts", limit: 256 * MIB, advice: "divide the file" };
    /// A table of `planish calibrate`: columns of large models have millions of numbers.
    pub const CALIBRATION: Self =
        Self { what: "a calibration table", limit: GIB, advice: "give a file that `planish calibrate` wrote" };
    /// A shard of `planish evaluate`: embeddings of all its samples.
    pub const EVALUATION: Self = Self {
        what: "a shard of an evaluation",
        limit: 4 * GIB,
        advice: "give a file that `planish evaluate --shard` wrote",
    };
    /// A recipe.
    pub const RECIPE: Self = Self {
        what: "a recipe",
        limit: 256 * MIB,
        advice: "give a file of JSON, the planish.json of an artifact, or KEY=VALUE",
    };
    /// A document of `planish bench --json`.
    pub const BENCHMARK: Self = Self {
        what: "a document of a benchmark",
        limit: 256 * MIB,
        advice: "give a file that `planish bench --json FILE` wrote",
    };
    /// A plan, a list of jobs or a result of `planish sweep`.
    pub const SWEEP: Self =
        Self { what: "a document of a sweep", limit: 256 * MIB, advice: "divide the plan into several" };
    /// Profiles and records of engines.
    pub const ENGINE_RECORD: Self =
        Self { what: "a record of an engine", limit: 64 * MIB, advice: "build the engine again" };
    /// An engine of TensorRT.
    pub const ENGINE: Self = Self { what: "an engine", limit: 256 * GIB, advice: "build the engine again" };
    /// What a runtime writes of the times of its nodes.
    pub const PROFILE: Self = Self { what: "a profile of a runtime", limit: 4 * GIB, advice: "make fewer runs" };
    /// A file of a cache, such as kernels that were compiled.
    pub const CACHED: Self = Self { what: "a file of a cache", limit: GIB, advice: "remove the file" };
    /// The text form of a graph: that of a model with thousands of layers has a few millions.
    pub const GRAPH: Self = Self { what: "the text of a graph", limit: 256 * MIB, advice: "compile the model again" };
    /// What the system tells, such as `/proc/self/maps`.
    pub const SYSTEM: Self = Self { what: "a file of the system", limit: 16 * MIB, advice: "report this" };

    /// Why a file is refused; `size` says how large it is, with a verb.
    #[must_use]
    pub fn too_large(&self, size: &str) -> String {
        let Self { what, limit, advice } = self;
        format!("{size} more than {limit}, the most that planish reads of {what}; {advice}")
    }
}
