//! Keys of config.json that several architectures make of metadata: experts, and types of layers.

use serde_json::{Value, json};

use super::config::Conversion;
use super::metadata::Value as Stored;

/// How a router scores, as `expert_gating_func` numbers it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gating {
    Softmax = 1,
    Sigmoid = 2,
    /// The softmax of those that are chosen.
    SoftmaxOfChosen = 3,
}

/// Sets the numbers of experts, under the names that config.json has for them: of all, of those that a token takes, and of the
/// features inside of one.
pub(crate) fn experts(c: &mut Conversion<'_>, [count, taken, inner]: [&str; 3], gating: Gating) -> Result<(), String> {
    c.set(count, c.required("expert_count")?);
    c.set(taken, c.required("expert_used_count")?);
    let features = match c.size_or_none("expert_feed_forward_length")? {
        Some(features) => features,
        None => c.required("feed_forward_length")?,
    };
    c.set(inner, features);
    match c.get("expert_gating_func") {
        None | Some(Stored::Integer(0)) => Ok(()),
        Some(Stored::Integer(number)) if *number == gating as i128 => Ok(()),
        Some(_) => Err(c.unexpected("expert_gating_func", &format!("{}, as this architecture has it", gating as u8))),
    }
}

/// Whether the factors of a token's experts are divided by their sum.
pub(crate) fn normalizes(c: &Conversion<'_>, default: bool) -> Result<bool, String> {
    Ok(c.flag("expert_weights_norm")?.unwrap_or(default))
}

/// Refuses another choice than that of the architecture.
pub(crate) fn must_normalize(c: &Conversion<'_>, expected: bool) -> Result<(), String> {
    match normalizes(c, expected)? == expected {
        true => Ok(()),
        false => Err(c.unexpected("expert_weights_norm", &format!("{expected}, as this architecture has it"))),
    }
}

/// Sets `sliding_window` and, where the file says which layers have windows, `layer_types`.
pub(crate) fn windows(c: &mut Conversion<'_>, window: Option<u64>, layers: u64) -> Result<(), String> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    const MOST: u64 = 1 << 16;
    if layers > MOST {
        return Err(c.unexpected("block_count", &format!("at most {MOST} layers")));
    }
    c.set("sliding_window", window.map_or(Value::Null, |window| json!(window)));
    let wrong =
        |c: &Conversion<'_>| c.unexpected(PATTERN, &format!("a number from 1 on, or a list of {layers} booleans"));
    let is_local: Vec<bool> = match c.get(PATTERN) {
        None => return Ok(()),
        Some(Stored::Integer(number)) => {
            let every = u64::try_from(*number).ok().filter(|every| *every > 0).ok_or_else(|| wrong(c))?;
            (1..=layers).map(|layer| !layer.is_multiple_of(every)).collect()
        }
        Some(Stored::Array(list)) => {
            c.metadata.flags(list).filter(|list| list.len() as u64 == layers).ok_or_else(|| wrong(c))?
        }
        Some(_) => return Err(wrong(c)),
    };
    let name = |local: bool| if local { "sliding_attention" } else { "full_attention" };
    c.set("layer_types", is_local.into_iter().map(name).collect::<Vec<_>>());
    Ok(())
}

/// Sets a key of config.json to a number of the metadata, where the file has it.
pub(crate) fn copy(c: &mut Conversion<'_>, from: &'static str, to: &str) -> Result<(), String> {
    if let Some(number) = c.number(from)? {
        c.set(to, number);
    }
    Ok(())
}

/// Sets whether frequencies of the rotary embedding YaRN are cut to whole dimensions.
pub(crate) fn truncates(c: &mut Conversion<'_>, truncates: bool) {
    if let Some(Value::Object(scaling)) = c.config.get_mut("rope_scaling") {
        scaling.insert("truncate".to_owned(), truncates.into());
    }
}
