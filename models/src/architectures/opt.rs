//! OPT (Zhang et al. 2022, arXiv:2205.01068), as `transformers/models/opt` has it: learned positions,
//! and norms before attention and feed-forward, or after them in the model of 350M parameters.

use planish_ir::ops::{Binary, BinaryKind, LayerNorm, Real};
use planish_ir::{DType, Origin, ValueId, Weight};

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::attention::{Heads, Scores, Text};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Classifier, Decoder, Positions};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "opt",
    class_prefix: "OPT",
    base: "model",
    other_bases: &[],
    renamed: &[],
    tasks: &[Task::TextGeneration, Task::FeatureExtraction, Task::TextClassification, Task::QuestionAnswering],
    keys: &[
        decoder::KEYS,
        &[
            "_remove_final_layer_norm",
            "activation_function",
            "do_layer_norm_before",
            "enable_bias",
            "ffn_dim",
            "hidden_size",
            "layer_norm_elementwise_affine",
            "max_position_embeddings",
            "num_attention_heads",
            "num_hidden_layers",
            "vocab_size",
            "word_embed_proj_dim",
        ],
    ],
    older_keys: &[],
    only: &[Only::Off("scale_embeddings"), Only::On("learned_embeddings")],
    // Training.
    irrelevant_keys: &["activation_dropout", "init_std", "layerdrop"],
    // Heads of other tasks.
    unused_tensors: &["score.", "qa_outputs."],
    pad_token_id: Some(1),
    gguf: None,
    build,
};

/// The first rows of the table of positions, which no position has.
const OFFSET: usize = 2;

/// Added to the variance in layer normalization.
const EPS: f64 = 1e-5;

/// The configuration in `config.json`.
struct Settings {
    vocabulary: Size,
    positions: Size,
    hidden: Size,
    /// Features of the embeddings of tokens.
    embedded: Size,
    intermediate: Size,
    layers: Size,
    heads: Heads,
    activation: Activation,
    /// Whether projections have biases.
    bias: bool,
    /// Whether norms have weights and biases.
    affine: bool,
    /// Whether norms are before attention and feed-forward.
    norm_before: bool,
    /// Whether the last layer is followed by a norm.
    final_norm: bool,
}

impl Settings {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let hidden = config.size("hidden_size", 768)?;
        let queries = config.size("num_attention_heads", 12)?;
        if !hidden.value.is_multiple_of(queries.value) {
            return Err(config.error(format!("{hidden} is not divisible by {queries}")));
        }
        let size = Size::derived(hidden.value / queries.value, "hidden_size / num_attention_heads");
        let norm_before = config.boolean("do_layer_norm_before", true)?;
        let removed = config.boolean("_remove_final_layer_norm", false)?;
        Ok(Self {
            vocabulary: config.size("vocab_size", 50272)?,
            positions: config.size("max_position_embeddings", 2048)?,
            hidden,
            embedded: config.size_or("word_embed_proj_dim", hidden)?,
            intermediate: config.size("ffn_dim", 3072)?,
            layers: config.size("num_hidden_layers", 12)?,
            heads: Heads { queries, keys: queries, size },
            activation: Activation::read(config, "activation_function", "relu")?,
            bias: config.boolean("enable_bias", true)?,
            affine: config.boolean("layer_norm_elementwise_affine", true)?,
            norm_before,
            final_norm: norm_before && !removed,
        })
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    const EMBEDDINGS: &str = "decoder.embed_tokens";
    let s = Settings::read(b.config)?;
    let mut decoder = Decoder::new(b, task, s.vocabulary, Some(s.positions), Positions::GivenOrCounted)?;
    let norm = Norm::new(b, &s);
    let projected = s.embedded.value != s.hidden.value;

    let mut words = b.embedding(decoder.input_ids, EMBEDDINGS, s.vocabulary, s.embedded)?;
    if projected {
        words = b.projection(words, "decoder.project_in", [s.hidden, s.embedded], false)?;
    }
    let places = positions(b, &s, decoder.position_ids)?;
    let mut x = b.add(words, places, "decoder.embeddings.add")?;
    for layer in 0..s.layers.value {
        let at = |name: &str| format!("decoder.layers.{layer}.{name}");
        x = norm.around(b, x, &at("self_attn_layer_norm"), |b, x| {
            let project = |b: &mut Builder<'_>, x, name| b.projection(x, &at(name), [s.hidden, s.hidden], s.bias);
            let q = project(b, x, "self_attn.q_proj")?;
            let k = project(b, x, "self_attn.k_proj")?;
            let v = project(b, x, "self_attn.v_proj")?;
            let scale = 1.0 / (s.heads.size.value as f64).sqrt();
            let attended = decoder.attend(b, [q, k, v], s.heads, Scores::scaled(scale), &at("self_attn"))?;
            project(b, attended, "self_attn.out_proj")
        })?;
        x = norm.around(b, x, &at("final_layer_norm"), |b, x| {
            let up = b.projection(x, &at("fc1"), [s.intermediate, s.hidden], s.bias)?;
            let active = s.activation.apply(b, up, &at("activation_fn"))?;
            b.projection(active, &at("fc2"), [s.hidden, s.intermediate], s.bias)
        })?;
    }
    if s.final_norm {
        x = norm.apply(b, x, "decoder.final_layer_norm")?;
    }
    if projected {
        x = b.projection(x, "decoder.project_out", [s.embedded, s.hidden], false)?;
    }
    decoder.finish(b, x, s.embedded, Classifier::Generic, |decoder, b, x| {
        decoder.logits(b, x, s.embedded, &format!("{EMBEDDINGS}.weight"), true, false)
    })
}

/// The vectors of positions: [batch_size, sequence_length, hidden].
fn positions(b: &mut Builder<'_>, s: &Settings, position_ids: ValueId) -> Result<ValueId, ModelError> {
    const MODULE: &str = "decoder.embed_positions";
    let rows = Size::derived(s.positions.value + OFFSET, "max_position_embeddings + 2");
    let offset = b.graph.add_scalar(&format!("{MODULE}.offset"), DType::I64, OFFSET as f64);
    let ids = b.emit(Binary { kind: BinaryKind::Add, a: position_ids, b: offset }, &format!("{MODULE}.rows"))?;
    b.embedding(ids, MODULE, rows, s.hidden)
}

/// The norms of a model.
struct Norm {
    hidden: Size,
    before: bool,
    /// The factor of normalized features, where the norms have no weights: 1.
    ones: Option<ValueId>,
}

impl Norm {
    fn new(b: &mut Builder<'_>, s: &Settings) -> Self {
        let ones = (!s.affine).then(|| {
            let size = s.hidden.value;
            let weight = Weight::numbers(DType::F32, vec![size], &vec![1.0; size]);
            let weight = weight.unwrap_or_else(|| unreachable!("a vector has as many elements as its dimension says"));
            b.graph.add_weight("layer_norm.ones", weight, Origin::Config("layer_norm_elementwise_affine".into()))
        });
        Self { hidden: s.hidden, before: s.norm_before, ones }
    }

    fn apply(&self, b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
        match self.ones {
            Some(weight) => b.emit(LayerNorm { x, weight, bias: None, eps: Real(EPS) }, module),
            None => b.layer_norm(x, module, self.hidden, EPS),
        }
    }

    /// `f(norm(x)) + x`, or `norm(f(x) + x)`.
    fn around(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        module: &str,
        f: impl FnOnce(&mut Builder<'_>, ValueId) -> Result<ValueId, ModelError>,
    ) -> Result<ValueId, ModelError> {
        let input = if self.before { self.apply(b, x, module)? } else { x };
        let result = f(b, input)?;
        let sum = b.add(result, x, &format!("{module}.add"))?;
        if self.before { Ok(sum) } else { self.apply(b, sum, module) }
    }
}
