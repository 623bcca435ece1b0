//! GPT-NeoX (Black et al. 2022, arXiv:2204.06745), as `transformers/models/gpt_neox` has it:
//! attention and feed-forward side by side, and a part of each head rotated.

use planish_ir::ops::Linear;
use planish_ir::{Dim, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::gguf::config::{self, Conversion, Form};
use crate::checkpoint::gguf::{Kind, Names};
use crate::layers::activation::Activation;
use crate::layers::attention::{Heads, Scores, Text};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Classifier, Decoder, Positions};
use crate::layers::dense::by_kind;
use crate::layers::heads;
use crate::layers::rope::{self, Rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "gpt_neox",
    class_prefix: "GPTNeoX",
    base: "gpt_neox",
    other_bases: &[],
    renamed: &[("embed_out.", "lm_head.")],
    tasks: decoder::TASKS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        &[
            "attention_bias",
            "hidden_act",
            "hidden_size",
            "intermediate_size",
            "layer_norm_eps",
            "max_position_embeddings",
            "num_attention_heads",
            "num_hidden_layers",
            "rotary_emb_base",
            "rotary_pct",
            "use_parallel_residual",
            "vocab_size",
        ],
    ],
    older_keys: &[],
    only: &[],
    // Training.
    irrelevant_keys: &["hidden_dropout"],
    // The causal mask and frequencies that old checkpoints store, then heads of other tasks.
    unused_tensors: &[
        ".attention.bias",
        ".attention.masked_bias",
        ".rotary_emb.inv_freq",
        "rotary_emb.inv_freq",
        "score.",
        "classifier.",
        "qa_outputs.",
    ],
    pad_token_id: None,
    gguf: Some(&Kind {
        name: "gptneox",
        class: "GPTNeoXForCausalLM",
        names: GGUF_NAMES,
        pairs: false,
        whole_norms: false,
        configure: configure_gguf,
    }),
    build,
};

/// The projection to the vocabulary.
const HEAD: &str = "embed_out";

/// The names of tensors in GGUF files.
const GGUF_NAMES: Names = Names {
    model: &[
        ("token_embd", "gpt_neox.embed_in"),
        ("output_norm", "gpt_neox.final_layer_norm"),
        ("output", "embed_out"),
    ],
    layers: "gpt_neox.layers.",
    layer: &[
        ("attn_norm", "input_layernorm"),
        ("attn_qkv", "attention.query_key_value"),
        ("attn_output", "attention.dense"),
        ("ffn_norm", "post_attention_layernorm"),
        ("ffn_up", "mlp.dense_h_to_4h"),
        ("ffn_down", "mlp.dense_4h_to_h"),
    ],
};

fn configure_gguf(c: &mut Conversion<'_>) -> Result<(), String> {
    let form = Form { eps: ["attention.layer_norm_epsilon", "layer_norm_eps"], part: Some("rotary_pct") };
    c.set_model("gpt_neox", "GPTNeoXForCausalLM");
    config::sizes_of_heads(c, &form)?;
    c.remove("num_key_value_heads");
    c.set("attention_bias", c.has("blk.0.attn_qkv.bias"));
    c.set("use_parallel_residual", c.flag("use_parallel_residual")?.unwrap_or(true));
    c.set("hidden_act", "gelu");
    Ok(())
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    const EMBEDDINGS: &str = "embed_in";
    let config = b.config;
    let vocabulary = config.size("vocab_size", 50432)?;
    let positions = config.size("max_position_embeddings", 2048)?;
    let hidden = config.size("hidden_size", 6144)?;
    let intermediate = config.size("intermediate_size", 24576)?;
    let layers = config.size("num_hidden_layers", 44)?;
    let queries = config.size("num_attention_heads", 64)?;
    let activation = Activation::read(config, "hidden_act", "gelu")?;
    let eps = config.positive("layer_norm_eps", 1e-5)?;
    let parallel = config.boolean("use_parallel_residual", true)?;
    let bias = config.boolean("attention_bias", true)?;
    if !hidden.value.is_multiple_of(queries.value) {
        return Err(config.error(format!("{hidden} is not divisible by {queries}")));
    }
    let size = Size::derived(hidden.value / queries.value, "hidden_size / num_attention_heads");
    let scale = 1.0 / (size.value as f64).sqrt();
    let heads = Heads { queries, keys: queries, size };

    let rope = Rope::read(config, size, positions, rotary_defaults(config)?)?;
    let mut decoder = Decoder::new(b, task, vocabulary, Some(rope.longest), Positions::Given)?;
    let angles = rope.angles(b, decoder.position_ids, rope::MODULE)?;
    let mut x = b.embedding(decoder.input_ids, EMBEDDINGS, vocabulary, hidden)?;
    for layer in 0..layers.value {
        let at = |name: &str| format!("layers.{layer}.{name}");
        let normal = b.layer_norm(x, &at("input_layernorm"), hidden, eps)?;
        let [q, k, v] = projections(b, normal, heads, hidden, bias, &at("attention"))?;
        let q = angles.rotate(b, q, queries, false, &at("attention.rotary_q"))?;
        let k = angles.rotate(b, k, queries, false, &at("attention.rotary_k"))?;
        let attended = decoder.attend(b, [q, k, v], heads, Scores::scaled(scale), &at("attention"))?;
        let projected = b.projection(attended, &at("attention.dense"), [hidden, hidden], bias)?;
        let sum = b.add(projected, x, &at("attention.add"))?;

        let input = if parallel { x } else { sum };
        let normal = b.layer_norm(input, &at("post_attention_layernorm"), hidden, eps)?;
        let up = b.linear(normal, &at("mlp.dense_h_to_4h"), intermediate, hidden)?;
        let active = activation.apply(b, up, &at("mlp.act"))?;
        let down = b.linear(active, &at("mlp.dense_4h_to_h"), hidden, intermediate)?;
        x = b.add(down, sum, &at("mlp.add"))?;
    }
    let x = b.layer_norm(x, "final_layer_norm", hidden, eps)?;

    if task != Task::TextGeneration {
        b.tensors.leave(HEAD);
    }
    let properties = decoder.finish(b, x, hidden, Classifier::Own, |_, b, x| {
        let tied = b.config.boolean("tie_word_embeddings", false)?;
        let embeddings = format!("{EMBEDDINGS}.weight");
        let weight = heads::vocabulary_weight(b, HEAD, &embeddings, tied, [vocabulary, hidden])?;
        decoder::score(b, x, weight)
    })?;
    Ok(Properties { frequencies_change_at: rope.frequencies_change_at(), ..properties })
}

/// The defaults of the rotary embedding, from keys of this architecture.
fn rotary_defaults(config: &Config<'_>) -> Result<rope::Defaults, ModelError> {
    let one = |own: &'static str, other: &'static str, default: f64| match (config.get(own), config.get(other)) {
        (Some(_), Some(_)) if config.positive(own, default)? != config.positive(other, default)? => {
            Err(config.error(format!("`{own}` and `{other}` differ: both name the same number")))
        }
        _ => config.positive(own, default),
    };
    Ok(rope::Defaults {
        theta: one("rotary_emb_base", "rope_theta", 10_000.0)?,
        part: Some(one("rotary_pct", "partial_rotary_factor", 0.25)?),
        ..rope::Defaults::default()
    })
}

/// Queries, keys and values. They come from one projection, whose rows are stored head by head: the
/// queries of a head, its keys, its values.
fn projections(
    b: &mut Builder<'_>,
    x: ValueId,
    heads: Heads,
    hidden: Size,
    bias: bool,
    module: &str,
) -> Result<[ValueId; 3], ModelError> {
    let at = |name: &str| format!("{module}.query_key_value{name}");
    let packed = Size::derived(3 * hidden.value, "3 * hidden_size");
    let rows = [heads.queries.signed(), 3, heads.size.signed()].map(Dim::constant);
    let weight = b.weight(&[&at(".weight")], &[packed, hidden])?;
    let weight = by_kind(b, weight, &rows, &[packed, hidden], &at(".weight"))?;
    let bias = match bias {
        true => {
            let stored = b.weight(&[&at(".bias")], &[packed])?;
            Some(by_kind(b, stored, &rows, &[packed], &at(".bias"))?)
        }
        false => None,
    };
    let packed = b.emit(Linear::new(x, weight, bias), &at(""))?;
    b.thirds(packed, hidden, &format!("{module}.split"))
}
