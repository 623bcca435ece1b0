//! MPT (MosaicML 2023), as `transformers/models/mpt` has it: linear biases of attention in place of positions, and no biases
//! of layers.

use serde_json::{Map, Value};

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config::{Config, POSITIVE, is_off, positive};
use crate::layers::activation::Activation;
use crate::layers::alibi::{self, Alibi};
use crate::layers::blocks::{self, Around, Defaults, FeedForward, Places, Projections, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Classifier, Positions};
use crate::layers::norm::Norm;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "mpt",
    class_prefix: "Mpt",
    base: "transformer",
    other_bases: &[],
    tasks: decoder::TASKS,
    keys: &[decoder::KEYS, blocks::KEYS, &[ATTENTION, "layer_norm_epsilon"]],
    older_keys: &[
        ("d_model", "hidden_size"),
        ("max_seq_len", "max_position_embeddings"),
        ("n_heads", "num_attention_heads"),
        ("n_layers", "num_hidden_layers"),
    ],
    irrelevant_keys: &[
        // Training.
        "emb_pdrop",
        "embedding_fraction",
        "init_config",
        "init_device",
        "verbose",
        // No class reads it: feed-forwards are four times as wide, and no layer has a bias.
        "expansion_ratio",
        "learned_pos_emb",
        "no_bias",
        "norm_type",
    ],
    unused_tensors: &["score.", "classifier.", "qa_outputs."],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const ATTENTION: &str = "attn_config";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 50368,
            hidden_size: 2048,
            intermediate_size: None,
            num_hidden_layers: 24,
            num_attention_heads: 16,
            fixed_activation: Some(Activation::GELU),
            eps: ("layer_norm_epsilon", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    (s.names.embeddings, s.names.layers, s.names.final_norm) = ("wte", "blocks", Some("norm_f"));
    (s.names.attention, s.names.output, s.names.feed_forward) = ("attn", "out_proj", "ffn");
    s.norm = Norm::Layer { bias: false };
    (s.attention_norms, s.feed_forward_norms) = (Around::before("norm_1"), Around::before("norm_2"));
    s.projections = Projections::Packed("Wqkv");
    s.feed_forward = FeedForward::Plain { up: "up_proj", down: "down_proj" };
    let attention = AttentionConfig::read(b.config)?;
    s.scale = attention.number("softmax_scale")?.unwrap_or(s.scale);
    // 0 is no bound.
    let clips = attention.get("clip_qkv").is_some_and(|bound| bound.as_f64() != Some(0.0));
    s.clip = if clips { attention.number("clip_qkv")?.map(|bound| (bound, ATTENTION)) } else { None };
    s.places = Places::Alibi(Alibi { places: alibi::Places::All, factor: 1.0 });
    s.position_source = Positions::Counted;
    s.tied = true;
    s.token_classifier = Classifier::Own;
    blocks::decoder(b, &s, task)
}

/// The object of the settings of attention.
struct AttentionConfig<'a> {
    config: &'a Config<'a>,
    values: Option<&'a Map<String, Value>>,
}

impl<'a> AttentionConfig<'a> {
    /// Checks the settings that no class of the transformers library follows.
    fn read(config: &'a Config<'a>) -> Result<Self, ModelError> {
        let values = match config.get(ATTENTION) {
            Some(Value::Object(values)) => Some(values),
            Some(value) => return Err(config.unexpected(ATTENTION, value, "an object")),
            None => None,
        };
        let own = Self { config, values };
        let kind = own.get("attn_type").filter(|kind| kind.as_str() != Some("multihead_attention"));
        let unknown = ["prefix_lm", "qk_ln"].into_iter().find_map(|key| Some((key, own.get(key)?)));
        if let Some((key, value)) = kind.map(|kind| ("attn_type", kind)).or(unknown) {
            return Err(config.error(format!("`{ATTENTION}.{key}` is {value}, which is not supported")));
        }
        let differs =
            |key: &str, value: Value| own.values?.get(key).filter(|other| **other != value).map(|_| key.to_owned());
        if let Some(key) = differs("alibi", Value::Bool(true)).or_else(|| differs("alibi_bias_max", Value::from(8))) {
            config.warn(format!(
                "`{ATTENTION}.{key}` asks for other biases than those that the transformers library adds in any case: slopes of \
                 ALiBi down to 2^-8; the graph has these"
            ));
        }
        Ok(own)
    }

    /// The value of a key, where it is set.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.values?.get(key).filter(|value| !is_off(value))
    }

    /// A positive number.
    fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let wrong = || self.config.unexpected(&format!("{ATTENTION}.{key}"), value, POSITIVE);
        positive(value).map(Some).ok_or_else(wrong)
    }
}
