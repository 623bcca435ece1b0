//! The configuration of the transformers library's model that a GGUF file's metadata describes.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::keys::{DESCRIPTIONS, IRRELEVANT, NEUTRAL, OTHER_TOKENS, TOKENIZER};
use super::kind::Kind;
use super::metadata::{Metadata, Value as Stored};
use super::rope::rope_scaling;
use crate::checkpoint::config::MAX_SIZE;

/// What tensors say besides metadata.
pub(crate) struct Tensors<'a> {
    /// The rows of the embeddings.
    pub(crate) vocabulary: usize,
    /// Whether there is a tensor of the file.
    pub(crate) has: &'a dyn Fn(&str) -> bool,
    /// The factors that divide the frequencies of the rotary embedding, where there are any.
    pub(crate) rope_factors: Option<Vec<f32>>,
}

/// A configuration that is being made of an architecture's metadata. It keeps a record of the keys that were asked for.
pub(crate) struct Conversion<'a> {
    pub(super) metadata: &'a Metadata,
    kind: &'static Kind,
    pub(super) tensors: &'a Tensors<'a>,
    asked: RefCell<BTreeSet<&'static str>>,
    pub(super) config: Map<String, Value>,
}

impl Conversion<'_> {
    /// Sets a key of config.json.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.config.insert(key.to_owned(), value.into());
    }

    /// Leaves a key of config.json out.
    pub(crate) fn remove(&mut self, key: &str) {
        self.config.remove(key);
    }

    /// Names another architecture than that of the file.
    pub(crate) fn set_model(&mut self, model_type: &str, class: &str) {
        self.set("architectures", json!([class]));
        self.set("model_type", model_type);
    }

    /// Whether there is a tensor of the file.
    pub(crate) fn has(&self, tensor: &str) -> bool {
        (self.tensors.has)(tensor)
    }

    pub(super) fn get(&self, key: &'static str) -> Option<&Stored> {
        self.asked.borrow_mut().insert(key);
        self.metadata.get(&format!("{}.{key}", self.kind.name))
    }

    pub(crate) fn unexpected(&self, key: &str, expected: &str) -> String {
        let key = format!("{}.{key}", self.kind.name);
        match self.metadata.get(&key) {
            Some(Stored::Array(_)) => format!("`{key}` is a list, expected {expected} for all layers"),
            Some(value) => format!("`{key}` is {value}, expected {expected}"),
            None => format!("the metadata `{key}` is missing: expected {expected}"),
        }
    }

    /// A size from 1 to [`MAX_SIZE`]. In a list, all are the same.
    pub(crate) fn size(&self, key: &'static str) -> Result<Option<u64>, String> {
        let wrong = || self.unexpected(key, &format!("a number from 1 to {MAX_SIZE}"));
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
        if (1..=MAX_SIZE as u64).contains(&number) { Ok(Some(number)) } else { Err(wrong()) }
    }

    /// The same, where 0 says that there is none.
    pub(crate) fn size_or_none(&self, key: &'static str) -> Result<Option<u64>, String> {
        if matches!(self.get(key), Some(Stored::Integer(0))) { Ok(None) } else { self.size(key) }
    }

    pub(crate) fn required(&self, key: &'static str) -> Result<u64, String> {
        self.size(key)?.ok_or_else(|| self.unexpected(key, &format!("a number from 1 to {MAX_SIZE}")))
    }

    /// A finite number.
    pub(crate) fn number(&self, key: &'static str) -> Result<Option<f64>, String> {
        match self.get(key) {
            None => Ok(None),
            // Numbers of 32 bits are written as decimals of few digits.
            Some(Stored::Float(number)) if number.is_finite() => Ok((*number as f32).to_string().parse().ok()),
            Some(Stored::Integer(number)) => Ok(Some(*number as f64)),
            Some(_) => Err(self.unexpected(key, "a number")),
        }
    }

    pub(crate) fn flag(&self, key: &'static str) -> Result<Option<bool>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Stored::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.unexpected(key, "true or false")),
        }
    }

    pub(crate) fn text(&self, key: &'static str) -> Result<Option<&str>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Stored::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.unexpected(key, "a text")),
        }
    }

    /// Refuses what changes the computation and is not followed.
    pub(crate) fn check(&self, head: u64) -> Result<(), String> {
        match self.get("attention.causal") {
            None | Some(Stored::Bool(true)) => {}
            Some(Stored::Bool(false)) => {
                return Err(format!(
                    "`{}.attention.causal` is false: a model whose tokens see those after them is not supported in GGUF files",
                    self.kind.name
                ));
            }
            Some(_) => return Err(self.unexpected("attention.causal", "true or false")),
        }
        if self.size("attention.value_length")?.is_some_and(|size| size != head) {
            return Err(self.unexpected("attention.value_length", &format!("{head}, the features of a head")));
        }
        Ok(())
    }

    /// Refuses numbers that change the computation and that the architecture did not ask for.
    fn check_numbers(&self) -> Result<(), String> {
        for (key, neutral) in NEUTRAL.iter().filter(|(key, _)| !self.asked.borrow().contains(key)) {
            let number = self.number(key)?.unwrap_or(0.0);
            if number != 0.0 && number != *neutral {
                return Err(format!("`{}.{key}` is {number}: that is not supported", self.kind.name));
            }
        }
        Ok(())
    }

    /// Keys that nothing asked for, and that say something.
    fn ignored(&self) -> Vec<String> {
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
        self.metadata.keys("").filter(|key| !off(key) && !known(key)).map(str::to_owned).collect()
    }
}

/// The configuration, and the metadata that was ignored.
///
/// # Errors
/// When metadata is missing or has a value that is not followed.
pub(super) fn config(
    kind: &'static Kind,
    metadata: &Metadata,
    tensors: &Tensors<'_>,
) -> Result<(Map<String, Value>, Vec<String>), String> {
    let mut c = Conversion { metadata, kind, tensors, asked: RefCell::default(), config: Map::new() };
    c.set_model(kind.name, kind.class);
    c.set("vocab_size", tensors.vocabulary);
    c.set("tie_word_embeddings", !c.has("output.weight"));
    for (key, token) in [("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding")] {
        if let Some(Stored::Integer(id)) = metadata.get(&format!("tokenizer.ggml.{token}_token_id"))
            && let Some(id) = u64::try_from(*id).ok().filter(|id| *id < tensors.vocabulary as u64)
        {
            c.set(key, id);
        }
    }
    (kind.configure)(&mut c)?;
    if !c.asked.borrow().contains("expert_count") && c.size_or_none("expert_count")?.is_some() {
        return Err(format!("`{}.expert_count` is there: this architecture is not one of experts", kind.name));
    }
    c.check_numbers()?;
    Ok((c.config.clone(), c.ignored()))
}

/// The sizes of a model that Llama and its kin have.
pub(crate) struct Sizes {
    pub(crate) hidden: u64,
    pub(crate) heads: u64,
    /// Features of a head.
    pub(crate) head: u64,
    pub(crate) layers: u64,
    /// The number of latest keys that attention takes, where it does not take all.
    pub(crate) window: Option<u64>,
}

/// What files of Llama and its kin differ in.
pub(crate) struct Form {
    /// What norms add to the mean square: the name of the metadata, and the key of config.json.
    pub(crate) eps: [&'static str; 2],
    /// The key of config.json for the part of each head that turns with positions, where heads need not turn as a whole.
    pub(crate) part: Option<&'static str>,
}

impl Form {
    pub(crate) const LLAMA: Self = Self { eps: ["attention.layer_norm_rms_epsilon", "rms_norm_eps"], part: None };
    /// The same where a part of each head turns.
    pub(crate) const IN_PART: Self = Self { part: Some("partial_rotary_factor"), ..Self::LLAMA };
}

/// Sets what configurations of Llama and its kin have in common.
pub(crate) fn llama(c: &mut Conversion<'_>) -> Result<Sizes, String> {
    decoder(c, &Form::LLAMA)
}

/// The same of files of a form.
pub(crate) fn decoder(c: &mut Conversion<'_>, form: &Form) -> Result<Sizes, String> {
    let window = c.size_or_none("attention.sliding_window")?;
    let (hidden, heads) = (c.required("embedding_length")?, c.required("attention.head_count")?);
    let positions = c.required("context_length")?;
    let eps = c.number(form.eps[0])?;
    // Where the file does not say it, heads share the features.
    let head = match c.size("attention.key_length")? {
        Some(head) => head,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let heads = format!("a multiple of the {heads} of `attention.head_count`, or `attention.key_length`");
            return Err(c.unexpected("embedding_length", &heads));
        }
    };
    let turning = c.size("rope.dimension_count")?.unwrap_or(head);
    if let Some(key) = form.part.filter(|_| turning <= head) {
        c.set(key, turning as f64 / head as f64);
    } else if turning != head {
        return Err(format!(
            "{}: only rotary embeddings of whole heads are supported",
            c.unexpected("rope.dimension_count", &format!("{head}, the features of a head"))
        ));
    }
    c.check(head)?;
    let layers = c.required("block_count")?;
    c.set("hidden_size", hidden);
    c.set("num_attention_heads", heads);
    c.set("num_key_value_heads", c.size("attention.head_count_kv")?.unwrap_or(heads));
    c.set("num_hidden_layers", layers);
    c.set("intermediate_size", c.required("feed_forward_length")?);
    c.set("max_position_embeddings", positions);
    c.set("head_dim", head);
    c.set(form.eps[1], eps.ok_or_else(|| c.unexpected(form.eps[0], "a number"))?);
    let base = c.number("rope.freq_base")?.unwrap_or(10000.0);
    c.set("rope_theta", base);
    if let Some(scaling) = rope_scaling(c, base, turning, positions)? {
        c.set("rope_scaling", scaling);
    }
    Ok(Sizes { hidden, heads, head, layers, window })
}

/// The same of a model whose configuration does not say the features of a head: the heads share those of the model.
pub(crate) fn sizes_of_heads(c: &mut Conversion<'_>, form: &Form) -> Result<(), String> {
    let Sizes { hidden, heads, head, window, .. } = decoder(c, form)?;
    if head.checked_mul(heads) != Some(hidden) {
        return Err(
            c.unexpected("attention.key_length", &format!("{}, those of {hidden} that a head has", hidden / heads))
        );
    }
    if window.is_some() {
        return Err(c.unexpected("attention.sliding_window", "0: windows of this architecture are not supported"));
    }
    c.remove("head_dim");
    Ok(())
}

/// The same of a model whose feed-forward has gates of SiLU.
pub(crate) fn llama_with_silu(c: &mut Conversion<'_>) -> Result<(), String> {
    llama(c)?;
    c.set("hidden_act", "silu");
    Ok(())
}
