//! NomicBERT (Nussbaum et al. 2024, arXiv:2402.01613), as `transformers/models/nomic_bert` has it: BERT with rotary embedding, a
//! gated feed-forward and no biases.

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert;
use crate::checkpoint::config::Config;
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::blocks::{self, Around, Defaults, Encoded, FeedForward, Projections, Settings};
use crate::layers::builder::Builder;
use crate::layers::heads::{DecoderBias, MaskedLm, Pooling, SecondBias, TextHeads};
use crate::layers::norm::Norm;
use crate::layers::rope;
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "nomic_bert",
    class_prefix: "NomicBert",
    base: "nomic_bert",
    // In the checkpoints of its authors.
    other_bases: &["bert"],
    tasks: &[Task::FeatureExtraction, Task::FillMask, Task::TextClassification, Task::TokenClassification],
    keys: &[rope::KEYS, blocks::KEYS, KEYS, &[GATED]],
    older_keys: &[
        ("layer_norm_epsilon", "layer_norm_eps"),
        ("n_embd", "hidden_size"),
        ("n_head", "num_attention_heads"),
        ("n_inner", "intermediate_size"),
        ("n_layer", "num_hidden_layers"),
        ("n_positions", "max_position_embeddings"),
        ("rotary_emb_base", "rope_theta"),
    ],
    // What configurations of the authors' code may say.
    only: &[
        Only::False("causal"),
        Only::False("mlp_fc1_bias"),
        Only::False("mlp_fc2_bias"),
        Only::False("parallel_block"),
        Only::False("prenorm"),
        Only::False("qkv_proj_bias"),
        Only::One("rotary_emb_fraction"),
        Only::False("rotary_emb_interleaved"),
        Only::Off("rotary_emb_scale_base"),
        Only::Off("rotary_scaling_factor"),
        Only::False("scale_attn_by_inverse_layer_idx"),
        Only::On("scale_attn_weights"),
        Only::False("use_rms_norm"),
    ],
    irrelevant_keys: &[
        // How the authors' code computes the same.
        "dense_seq_output",
        "fused_bias_fc",
        "fused_dropout_add_ln",
        "reorder_and_upcast_attn",
        "use_flash_attn",
        "use_xentropy",
        // What `vocab_size` was rounded up to.
        "pad_vocab_size_multiple",
        // Of settings that are refused.
        "max_trained_positions",
        "parallel_block_tied_norm",
        // Heads of other tasks.
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
    ],
    // Heads of other tasks.
    unused_tensors: &["pooler.", "cls.", "classifier."],
    renamed: &[
        ("encoder.layers", "layers"),
        ("emb_ln", "embeddings.LayerNorm"),
        ("attn.Wqkv", QUERIES_KEYS_VALUES),
        ("attn.out_proj", "self_attn.o_proj"),
        ("fc11", "up_proj"),
        ("fc12", "gate_proj"),
        ("fc2", "down_proj"),
        ("norm1", "post_attention_layernorm"),
        ("norm2", "post_mlp_layernorm"),
    ],
    pad_token_id: None,
    gguf: None,
    build,
};

/// What transformers 5 calls the projections to queries, keys and values, of its relatives too.
pub(crate) const QUERIES_KEYS_VALUES: &str = "self_attn.{q_proj,k_proj,v_proj}";

/// The configuration keys of its relatives too.
pub(crate) const KEYS: &[&str] = &["hidden_act", "layer_norm_eps", "pad_token_id", "type_vocab_size"];

/// The defaults of a configuration, of its relatives for the most part too.
pub(crate) const DEFAULTS: Defaults = Defaults {
    vocab_size: 30528,
    hidden_size: 768,
    intermediate_size: Some(3072),
    num_hidden_layers: 12,
    num_attention_heads: 12,
    eps: ("layer_norm_eps", 1e-12),
    ..Defaults::LLAMA
};

/// Reads what its relatives have too: norms of sums, and none of what the last layer gives.
pub(crate) fn read(b: &Builder<'_>, defaults: &Defaults, norms: [&'static str; 2]) -> Result<Settings, ModelError> {
    let mut s = Settings::read(b, defaults)?;
    s.norm = Norm::Layer { bias: true };
    let [attention, feed_forward] = norms;
    (s.attention_norms, s.feed_forward_norms) = (Around::sum(attention), Around::sum(feed_forward));
    s.names.final_norm = None;
    Ok(s)
}

/// The key of the feed-forward in configurations of the authors' code.
const GATED: &str = "activation_function";

/// The activation that the authors' code has in a feed-forward of a name, where the configuration has one.
fn gated(config: &Config<'_>) -> Result<Option<Activation>, ModelError> {
    const ACTIVATION: &str = "hidden_act";
    let Some(value) = config.get(GATED) else { return Ok(None) };
    let name = match value.as_str() {
        Some("swiglu") => "silu",
        Some("geglu") => "gelu",
        _ => {
            let expected = "\"swiglu\" or \"geglu\": the feed-forward of the graph has a gate";
            return Err(config.unexpected(GATED, value, expected));
        }
    };
    let other = config.text(ACTIVATION, name)?;
    match other == name {
        true => Activation::named(config, GATED, name).map(Some),
        false => Err(config
            .error(format!("`{GATED}` is {value}, whose activation is {name}, but `{ACTIVATION}` is \"{other}\""))),
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = read(b, &DEFAULTS, ["norm1", "norm2"])?;
    s.activation = gated(b.config)?.unwrap_or(s.activation);
    (s.names.layers, s.names.attention, s.names.output) = ("encoder.layers", "attn", "out_proj");
    s.projections = Projections::Packed("Wqkv");
    s.feed_forward = FeedForward::Gated { gate: "fc12", up: "fc11", down: "fc2" };
    s.rope = rope::Defaults { theta: 1000.0, ..rope::Defaults::default() };
    let types = bert::token_types(b)?;
    let Encoded { hidden, properties, .. } = blocks::encoder(b, &s, |b, ids| {
        let words = b.embedding(ids, "embeddings.word_embeddings", s.vocabulary, s.hidden)?;
        let token_type_ids = b.input(names::TOKEN_TYPES, types.signed())?;
        let types = b.embedding(token_type_ids, "embeddings.token_type_embeddings", types, s.hidden)?;
        let sum = b.add(words, types, "embeddings.add")?;
        b.layer_norm(sum, "emb_ln", s.hidden, s.eps)
    })?;
    let masked = MaskedLm {
        norm: "cls.predictions.transform.layer_norm",
        // The authors' code has none where `mlp_fc1_bias` is false; the library takes zeros.
        bias: DecoderBias::SecondOrNone(SecondBias { name: "cls.predictions.bias", applied_by: None }),
        ..TextHeads::bert(s.activation).masked
    };
    let sequence = (Pooling::Dense("pooler.dense", Activation::TANH), "classifier");
    TextHeads { pooler: None, masked, sequence, choice: None }.finish(b, &s.head_sizes(), hidden, task)?;
    Ok(properties)
}
