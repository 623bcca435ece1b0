//! The configuration of the transformers library's model that a GGUF file's metadata describes.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::header::{Metadata, Value as Stored};
use super::keys::{DESCRIPTIONS, IRRELEVANT, NEUTRAL, OTHER_TOKENS, TOKENIZER};
use super::names::{GEMMA2, GPT2, LLAMA, Names};

/// An architecture of GGUF files that is read.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Its name in `general.architecture`.
    pub(crate) name: &'static str,
    pub(crate) names: &'static Names,
    /// Whether the rows of queries and keys are pairs that turn together, not halves of a head.
    pub(crate) pairs: bool,
    /// The class of the transformers library.
    class: &'static str,
    /// Whether normalization weights include the 1 that the transformers library adds.
    pub(crate) whole_norms: bool,
}

const KINDS: &[Kind] = &[
    Kind { name: "gemma", names: &LLAMA, pairs: false, class: "GemmaForCausalLM", whole_norms: true },
    Kind { name: "gemma2", names: &GEMMA2, pairs: false, class: "Gemma2ForCausalLM", whole_norms: true },
    Kind { name: "gpt2", names: &GPT2, pairs: false, class: "GPT2LMHeadModel", whole_norms: false },
    Kind { name: "llama", names: &LLAMA, pairs: true, class: "LlamaForCausalLM", whole_norms: false },
    Kind { name: "qwen2", names: &LLAMA, pairs: false, class: "Qwen2ForCausalLM", whole_norms: false },
    Kind { name: "qwen3", names: &LLAMA, pairs: false, class: "Qwen3ForCausalLM", whole_norms: false },
];

/// What tensors say besides metadata.
pub(crate) struct Tensors<'a> {
    /// The rows of the embeddings.
    pub(crate) vocabulary: usize,
    /// Whether there is a tensor of the file.
    pub(crate) has: &'a dyn Fn(&str) -> bool,
    /// The factors that divide the frequencies of the rotary embedding, where there are any.
    pub(crate) rope_factors: Option<Vec<f32>>,
}

impl Kind {
    /// The architecture of a file.
    ///
    /// # Errors
    /// When it is missing or not read.
    pub(crate) fn of(metadata: &Metadata) -> Result<&'static Self, String> {
        let known = || KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
        let kind = metadata.get("general.type");
        if let Some(Stored::Text(kind)) = kind.filter(|kind| **kind != Stored::Text("model".to_owned())) {
            return Err(format!("`general.type` is \"{kind}\": only files of whole models are read"));
        }
        match metadata.get("general.architecture") {
            Some(Stored::Text(name)) => KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
                format!(
                    "`general.architecture` is \"{name}\", which is not supported in GGUF files: known are {}",
                    known()
                )
            }),
            Some(_) => Err("`general.architecture` is not a text".to_owned()),
            None => {
                Err(format!("`general.architecture` is missing: it says which architecture to build ({})", known()))
            }
        }
    }
}

/// The metadata of an architecture. It keeps a record of the keys that were asked for.
struct Keys<'a> {
    metadata: &'a Metadata,
    kind: &'static Kind,
    asked: RefCell<BTreeSet<&'static str>>,
}

impl Keys<'_> {
    fn get(&self, key: &'static str) -> Option<&Stored> {
        self.asked.borrow_mut().insert(key);
        self.metadata.get(&format!("{}.{key}", self.kind.name))
    }

    fn unexpected(&self, key: &str, expected: &str) -> String {
        let key = format!("{}.{key}", self.kind.name);
        match self.metadata.get(&key) {
            Some(Stored::Array(_)) => format!("`{key}` is a list, expected {expected} for all layers"),
            Some(value) => format!("`{key}` is {value}, expected {expected}"),
            None => format!("the metadata `{key}` is missing: expected {expected}"),
        }
    }

    /// A size that is at least 1. In a list, all are the same.
    fn size(&self, key: &'static str) -> Result<Option<u64>, String> {
        let wrong = || self.unexpected(key, "a number from 1 on");
        let number = match self.get(key) {
            None => return Ok(None),
            Some(Stored::Integer(number)) => u64::try_from(*number).map_err(|_| wrong())?,
            Some(Stored::Array(list)) => {
                let numbers = self.metadata.numbers(list).unwrap_or_default();
                let first = numbers.first().copied().unwrap_or(0.0);
                let is_size = (1.0..=1e15).contains(&first) && first.fract() == 0.0;
                if numbers.iter().any(|number| *number != first) || !is_size {
                    return Err(wrong());
                }
                first as u64
            }
            Some(_) => return Err(wrong()),
        };
        if number == 0 { Err(wrong()) } else { Ok(Some(number)) }
    }

    /// The same, where 0 says that there is none.
    fn size_or_none(&self, key: &'static str) -> Result<Option<u64>, String> {
        if matches!(self.get(key), Some(Stored::Integer(0))) { Ok(None) } else { self.size(key) }
    }

    fn required(&self, key: &'static str) -> Result<u64, String> {
        self.size(key)?.ok_or_else(|| self.unexpected(key, "a number from 1 on"))
    }

    /// A finite number.
    fn number(&self, key: &'static str) -> Result<Option<f64>, String> {
        match self.get(key) {
            None => Ok(None),
            // Numbers of 32 bits are written as decimals of few digits.
            Some(Stored::Float(number)) if number.is_finite() => Ok((*number as f32).to_string().parse().ok()),
            Some(Stored::Integer(number)) => Ok(Some(*number as f64)),
            Some(_) => Err(self.unexpected(key, "a number")),
        }
    }

    fn text(&self, key: &'static str) -> Result<Option<&str>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Stored::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.unexpected(key, "a text")),
        }
    }

    /// Refuses what changes the computation and is not followed.
    fn check(&self, head: u64) -> Result<(), String> {
        match self.get("attention.causal") {
            None | Some(Stored::Bool(true)) => {}
            Some(Stored::Bool(false)) => {
                return Err(format!(
                    "`{}.attention.causal` is false: a model whose tokens see those behind them is not supported in GGUF files",
                    self.kind.name
                ));
            }
            Some(_) => return Err(self.unexpected("attention.causal", "true or false")),
        }
        if self.size("attention.value_length")?.is_some_and(|size| size != head) {
            return Err(self.unexpected("attention.value_length", &format!("{head}, the features of a head")));
        }
        let capped: &[(&str, f64)] = match self.kind.name {
            "gemma2" => &[],
            _ => &[("attn_logit_softcapping", 0.0), ("final_logit_softcapping", 0.0)],
        };
        for (key, neutral) in NEUTRAL.iter().chain(capped) {
            let number = self.number(key)?.unwrap_or(0.0);
            if number != 0.0 && number != *neutral {
                return Err(format!("`{}.{key}` is {number}: that is not supported", self.kind.name));
            }
        }
        Ok(())
    }

    /// Keys that nothing asked for, and that say something.
    fn ignored(&self) -> Vec<&str> {
        let asked = self.asked.borrow();
        let beginning = format!("{}.", self.kind.name);
        let off = |key: &&str| matches!(self.metadata.get(key), Some(Stored::Integer(0) | Stored::Bool(false)) | None);
        let known = |key: &&str| match (key.strip_prefix(&beginning), key.strip_prefix("tokenizer.ggml.")) {
            (Some(own), _) => asked.contains(own) || IRRELEVANT.contains(&own),
            (_, Some(own)) => TOKENIZER.contains(&own) || OTHER_TOKENS.contains(&own),
            _ => {
                DESCRIPTIONS.iter().any(|beginning| key.starts_with(beginning)) || *key == "tokenizer.huggingface.json"
            }
        };
        self.metadata.keys("").filter(|key| !off(key) && !known(key)).collect()
    }
}

/// The configuration, and the metadata that was ignored.
///
/// # Errors
/// When metadata is missing or has a value that is not followed.
pub(crate) fn config(
    kind: &'static Kind,
    metadata: &Metadata,
    tensors: &Tensors<'_>,
) -> Result<(Map<String, Value>, Vec<String>), String> {
    let keys = Keys { metadata, kind, asked: RefCell::default() };
    if keys.size_or_none("expert_count")?.is_some() {
        return Err(format!("`{}.expert_count` is there: mixtures of experts (MoE) are not supported", kind.name));
    }
    let window = keys.size_or_none("attention.sliding_window")?;
    let model_type = if kind.name == "llama" && window.is_some() { "mistral" } else { kind.name };
    let class = if model_type == "mistral" { "MistralForCausalLM" } else { kind.class };
    let mut config = Map::new();
    let mut set = |key: &str, value: Value| drop(config.insert(key.to_owned(), value));
    set("architectures", json!([class]));
    set("model_type", json!(model_type));
    set("vocab_size", json!(tensors.vocabulary));
    set("tie_word_embeddings", json!(!(tensors.has)("output.weight")));
    for (key, token) in [("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding")] {
        if let Some(Stored::Integer(id)) = metadata.get(&format!("tokenizer.ggml.{token}_token_id"))
            && let Some(id) = u64::try_from(*id).ok().filter(|id| *id < tensors.vocabulary as u64)
        {
            set(key, json!(id));
        }
    }
    let (hidden, heads) = (keys.required("embedding_length")?, keys.required("attention.head_count")?);
    if kind.name == "gpt2" {
        set("n_embd", json!(hidden));
        set("n_head", json!(heads));
        set("n_layer", json!(keys.required("block_count")?));
        set("n_positions", json!(keys.required("context_length")?));
        set("n_inner", json!(keys.required("feed_forward_length")?));
        let eps = keys.number("attention.layer_norm_epsilon")?;
        set(
            "layer_norm_epsilon",
            json!(eps.ok_or_else(|| keys.unexpected("attention.layer_norm_epsilon", "a number"))?),
        );
        set("activation_function", json!("gelu_new"));
        if keys.size("attention.head_count_kv")?.is_some_and(|own| own != heads) {
            return Err(keys.unexpected("attention.head_count_kv", &format!("{heads}, the number of heads")));
        }
        keys.check(hidden / heads)?;
        return Ok((config, ignored(&keys)));
    }
    let positions = keys.required("context_length")?;
    let eps = keys.number("attention.layer_norm_rms_epsilon")?;
    let head = keys.size("attention.key_length")?;
    // Where the file does not say it, heads share the features.
    let head = match head {
        Some(head) => head,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let heads = format!("a multiple of the {heads} of `attention.head_count`, or `attention.key_length`");
            return Err(keys.unexpected("embedding_length", &heads));
        }
    };
    if keys.size("rope.dimension_count")?.is_some_and(|turning| turning != head) {
        return Err(format!(
            "{}: only rotary embeddings of whole heads are supported",
            keys.unexpected("rope.dimension_count", &format!("{head}, the features of a head"))
        ));
    }
    keys.check(head)?;
    let layers = keys.required("block_count")?;
    set("hidden_size", json!(hidden));
    set("num_attention_heads", json!(heads));
    set("num_key_value_heads", json!(keys.size("attention.head_count_kv")?.unwrap_or(heads)));
    set("num_hidden_layers", json!(layers));
    set("intermediate_size", json!(keys.required("feed_forward_length")?));
    set("max_position_embeddings", json!(positions));
    set("head_dim", json!(head));
    set("rms_norm_eps", json!(eps.ok_or_else(|| keys.unexpected("attention.layer_norm_rms_epsilon", "a number"))?));
    let base = keys.number("rope.freq_base")?.unwrap_or(10000.0);
    set("rope_theta", json!(base));
    if let Some(scaling) = rope_scaling(&keys, tensors, base, head, positions)? {
        set("rope_scaling", scaling);
    }
    match kind.name {
        "llama" => {
            set("hidden_act", json!("silu"));
            if let Some(window) = window {
                set("sliding_window", json!(window));
            } else {
                set("attention_bias", json!((tensors.has)("blk.0.attn_q.bias")));
                set("mlp_bias", json!((tensors.has)("blk.0.ffn_up.bias")));
            }
        }
        "qwen2" => set("hidden_act", json!("silu")),
        "qwen3" => {
            set("hidden_act", json!("silu"));
            set("attention_bias", json!((tensors.has)("blk.0.attn_q.bias")));
        }
        "gemma" => {
            set("hidden_act", json!("gelu_pytorch_tanh"));
            set("hidden_activation", json!("gelu_pytorch_tanh"));
        }
        _ => {
            set("hidden_activation", json!("gelu_pytorch_tanh"));
            set("sliding_window", json!(window.unwrap_or(4096)));
            // The file does not say it: of the published models, only that with 46 layers scales by features of the model.
            set("query_pre_attn_scalar", json!(if layers == 46 { hidden / heads } else { head }));
            set("attn_logit_softcapping", json!(keys.number("attn_logit_softcapping")?.unwrap_or(50.0)));
            set("final_logit_softcapping", json!(keys.number("final_logit_softcapping")?.unwrap_or(30.0)));
        }
    }
    Ok((config, ignored(&keys)))
}

fn ignored(keys: &Keys<'_>) -> Vec<String> {
    keys.ignored().into_iter().map(str::to_owned).collect()
}

/// How the frequencies of the rotary embedding are scaled.
fn rope_scaling(
    keys: &Keys<'_>,
    tensors: &Tensors<'_>,
    base: f64,
    head: u64,
    positions: u64,
) -> Result<Option<Value>, String> {
    let original = keys.size("rope.scaling.original_context_length")?;
    let factor = keys.number("rope.scaling.factor")?;
    let kind = keys.text("rope.scaling.type")?;
    if let Some(factors) = &tensors.rope_factors {
        if let Some(other) = kind.filter(|kind| *kind != "none" && *kind != "llama3") {
            return Err(format!(
                "there are frequencies in `rope_freqs.weight`, and `rope.scaling.type` is \"{other}\""
            ));
        }
        if factors.len() as u64 != head / 2 {
            return Err(format!(
                "`rope_freqs.weight` has {} numbers, expected {}, one for each pair",
                factors.len(),
                head / 2
            ));
        }
        return Ok(Some(frequencies(factors, base, head, positions)));
    }
    match kind {
        None | Some("none") => Ok(None),
        Some(kind @ ("linear" | "yarn")) => {
            let factor = factor.ok_or_else(|| keys.unexpected("rope.scaling.factor", "a number"))?;
            let mut scaling = json!({"type": kind, "factor": factor});
            if kind == "yarn" {
                scaling["original_max_position_embeddings"] = json!(original.unwrap_or(positions));
                for (key, own) in
                    [("rope.scaling.yarn_beta_fast", "beta_fast"), ("rope.scaling.yarn_beta_slow", "beta_slow")]
                {
                    if let Some(number) = keys.number(key)? {
                        scaling[own] = json!(number);
                    }
                }
            }
            Ok(Some(scaling))
        }
        Some(_) => Err(keys.unexpected("rope.scaling.type", "\"none\", \"linear\" or \"yarn\"")),
    }
}

/// Frequencies that are divided by a factor each: those of Llama 3 by its parameters, others one by one.
fn frequencies(factors: &[f32], base: f64, head: u64, positions: u64) -> Value {
    let (low, high, original) = (1.0, 4.0, 8192.0);
    let factor = f64::from(factors.iter().copied().fold(1.0, f32::max));
    let of_llama3 = |i: usize| {
        let length = std::f64::consts::TAU * base.powf(2.0 * i as f64 / head as f64);
        match original / length {
            turns if turns > high => 1.0,
            turns if turns < low => factor,
            turns => {
                let smooth = (turns - low) / (high - low);
                1.0 / ((1.0 - smooth) / factor + smooth)
            }
        }
    };
    let same = |(i, own): (usize, &f32)| (f64::from(*own) - of_llama3(i)).abs() <= 1e-4 * f64::from(*own);
    if factors.iter().enumerate().all(same) {
        return json!({
            "rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
            "original_max_position_embeddings": 8192
        });
    }
    json!({
        "rope_type": "longrope", "short_factor": factors, "long_factor": factors, "attention_factor": 1.0,
        "original_max_position_embeddings": positions
    })
}
