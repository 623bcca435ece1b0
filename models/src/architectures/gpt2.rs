//! GPT-2 (Radford et al. 2019), as `transformers/models/gpt2` has it.

use planish_ir::ValueId;

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::gguf::config::Conversion;
use crate::checkpoint::gguf::{Kind, Names};
use crate::layers::activation::Activation;
use crate::layers::attention::{Heads, Scores, Text};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Classifier, Decoder, Positions};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "gpt2",
    class_prefix: "GPT2",
    base: "transformer",
    other_bases: &[],
    renamed: &[],
    tasks: decoder::TASKS,
    keys: &[decoder::KEYS, KEYS],
    older_keys: &[],
    only: &[],
    irrelevant_keys: &[
        // The length of the mask that old checkpoints store.
        "n_ctx",
        // The order of operations in half precision: the same result.
        "reorder_and_upcast_attn",
        // A head of another task.
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
    ],
    // The causal mask, then heads of other tasks.
    unused_tensors: &[
        ".attn.bias",
        ".attn.masked_bias",
        "multiple_choice_head.",
        "score.",
        "classifier.",
        "qa_outputs.",
    ],
    pad_token_id: None,
    gguf: Some(&Kind {
        name: "gpt2",
        class: "GPT2LMHeadModel",
        names: Names {
            model: &[
                ("token_embd", "transformer.wte"),
                ("position_embd", "transformer.wpe"),
                ("output_norm", "transformer.ln_f"),
                ("output", "lm_head"),
            ],
            layers: "transformer.h.",
            layer: &[
                ("attn_norm", "ln_1"),
                ("attn_qkv", "attn.c_attn"),
                ("attn_output", "attn.c_proj"),
                ("ffn_norm", "ln_2"),
                ("ffn_up", "mlp.c_fc"),
                ("ffn_down", "mlp.c_proj"),
            ],
        },
        pairs: false,
        whole_norms: false,
        configure: configure_gguf,
    }),
    build,
};

fn configure_gguf(c: &mut Conversion<'_>) -> Result<(), String> {
    let (hidden, heads) = (c.required("embedding_length")?, c.required("attention.head_count")?);
    c.set("n_embd", hidden);
    c.set("n_head", heads);
    c.set("n_layer", c.required("block_count")?);
    c.set("n_positions", c.required("context_length")?);
    c.set("n_inner", c.required("feed_forward_length")?);
    let eps = c.number("attention.layer_norm_epsilon")?;
    c.set("layer_norm_epsilon", eps.ok_or_else(|| c.unexpected("attention.layer_norm_epsilon", "a number"))?);
    c.set("activation_function", "gelu_new");
    if c.size("attention.head_count_kv")?.is_some_and(|own| own != heads) {
        return Err(c.unexpected("attention.head_count_kv", &format!("{heads}, the number of heads")));
    }
    c.check(hidden / heads)
}

/// The configuration keys of the layers.
pub(crate) const KEYS: &[&str] = &[
    "activation_function",
    "hidden_size",
    "layer_norm_epsilon",
    "max_position_embeddings",
    "n_embd",
    "n_head",
    "n_inner",
    "n_layer",
    "n_positions",
    "num_attention_heads",
    "num_hidden_layers",
    "scale_attn_by_inverse_layer_idx",
    "scale_attn_weights",
    "vocab_size",
];

/// The configuration in `config.json`.
pub(crate) struct Settings {
    pub(crate) vocabulary: Size,
    pub(crate) positions: Size,
    pub(crate) hidden: Size,
    pub(crate) layers: Size,
    pub(crate) heads: Heads,
    intermediate: Size,
    activation: Activation,
    pub(crate) eps: f64,
    scaled: bool,
    scaled_by_layer: bool,
}

impl Settings {
    pub(crate) fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let hidden = config.size_alias(&["n_embd", "hidden_size"], 768)?;
        let queries = config.size_alias(&["n_head", "num_attention_heads"], 12)?;
        let size = Size::derived(hidden.value / queries.value, "n_embd / n_head");
        let s = Self {
            vocabulary: config.size("vocab_size", 50257)?,
            positions: config.size_alias(&["n_positions", "max_position_embeddings"], 1024)?,
            hidden,
            layers: config.size_alias(&["n_layer", "num_hidden_layers"], 12)?,
            heads: Heads { queries, keys: queries, size },
            intermediate: config.size_or("n_inner", Size::derived(4 * hidden.value, "4 * n_embd"))?,
            activation: Activation::read(config, "activation_function", "gelu_new")?,
            eps: config.positive("layer_norm_epsilon", 1e-5)?,
            scaled: config.boolean("scale_attn_weights", true)?,
            scaled_by_layer: config.boolean("scale_attn_by_inverse_layer_idx", false)?,
        };
        match hidden.value.is_multiple_of(queries.value) {
            true => Ok(s),
            false => Err(config.error(format!("{hidden} is not divisible by {queries}"))),
        }
    }

    /// The factor of the scores of a layer.
    pub(crate) fn scale(&self, layer: usize) -> f64 {
        let scale = if self.scaled { 1.0 / (self.heads.size.value as f64).sqrt() } else { 1.0 };
        if self.scaled_by_layer { scale / (layer + 1) as f64 } else { scale }
    }

    /// Queries, keys and values of a layer, of what its first norm gives.
    pub(crate) fn qkv(&self, b: &mut Builder<'_>, x: ValueId, layer: usize) -> Result<[ValueId; 3], ModelError> {
        let at = |name: &str| format!("h.{layer}.{name}");
        let packed = Size::derived(3 * self.hidden.value, "3 * n_embd");
        let normal = b.layer_norm(x, &at("ln_1"), self.hidden, self.eps)?;
        let packed = b.conv1d(normal, &at("attn.c_attn"), packed, self.hidden)?;
        b.thirds(packed, self.hidden, &at("attn.split"))
    }

    /// What attention of a module gives, projected and added to what the layer takes.
    pub(crate) fn project(
        &self,
        b: &mut Builder<'_>,
        [attended, x]: [ValueId; 2],
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let projected = b.conv1d(attended, &format!("{module}.c_proj"), self.hidden, self.hidden)?;
        b.add(projected, x, &format!("{module}.add"))
    }

    /// The feed-forward of a layer.
    pub(crate) fn feed_forward(&self, b: &mut Builder<'_>, x: ValueId, layer: usize) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("h.{layer}.{name}");
        let normal = b.layer_norm(x, &at("ln_2"), self.hidden, self.eps)?;
        let up = b.conv1d(normal, &at("mlp.c_fc"), self.intermediate, self.hidden)?;
        let active = self.activation.apply(b, up, &at("mlp.act"))?;
        let down = b.conv1d(active, &at("mlp.c_proj"), self.hidden, self.intermediate)?;
        b.add(down, x, &at("mlp.add"))
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config)?;
    let hidden = s.hidden;
    let mut decoder = Decoder::new(b, task, s.vocabulary, Some(s.positions), Positions::Given)?;
    let words = b.embedding(decoder.input_ids, "wte", s.vocabulary, hidden)?;
    let places = b.embedding(decoder.position_ids, "wpe", s.positions, hidden)?;
    let mut x = b.add(words, places, "embeddings.add")?;
    for layer in 0..s.layers.value {
        let attention = format!("h.{layer}.attn");
        let qkv = s.qkv(b, x, layer)?;
        let attended = decoder.attend(b, qkv, s.heads, Scores::scaled(s.scale(layer)), &attention)?;
        x = s.project(b, [attended, x], &attention)?;
        x = s.feed_forward(b, x, layer)?;
    }
    let x = b.layer_norm(x, "ln_f", hidden, s.eps)?;
    decoder
        .finish(b, x, hidden, Classifier::Own, |decoder, b, x| decoder.logits(b, x, hidden, "wte.weight", true, false))
}
