//! The factors of the products of an adapter, by the patterns of its configuration.

use serde_json::{Map, Value};

use crate::checkpoint::config::brief;

/// The factor of the product of a module whose matrices have a rank.
pub(super) fn scale(config: &Map<String, Value>, module: &str, rank: usize) -> Result<f64, String> {
    let number = |key: &str, default: f64| match config.get(key).filter(|value| !value.is_null()) {
        None => Ok(default),
        Some(value) => value.as_f64().ok_or_else(|| format!("`{key}` is {}, and no number", brief(value))),
    };
    let wanted = pattern(config, "rank_pattern", module)?.map_or_else(|| number("r", 8.0), Ok)?;
    if wanted != rank as f64 {
        return Err(format!("the matrices of `{module}` have the rank {rank}, and this file says {wanted}"));
    }
    let alpha = pattern(config, "alpha_pattern", module)?.map_or_else(|| number("lora_alpha", 8.0), Ok)?;
    let is_root = config.get("use_rslora").is_some_and(|value| value == true);
    Ok(alpha / if is_root { (rank as f64).sqrt() } else { rank as f64 })
}

/// The number that a table of patterns has for a module. The patterns are regular expressions of the end of its name, which are
/// read where they have names and dots alone.
fn pattern(config: &Map<String, Value>, key: &str, module: &str) -> Result<Option<f64>, String> {
    for (name, value) in config.get(key).and_then(Value::as_object).into_iter().flatten() {
        let own = name.strip_prefix('^').unwrap_or(name);
        if !own.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
            return Err(format!(
                "`{key}` has the pattern \"{name}\": names of modules are supported, and no other patterns"
            ));
        }
        let rest = module.strip_suffix(own);
        let is_it = if own == name {
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        } else {
            rest == Some("")
        };
        if is_it {
            let number = value.as_f64().ok_or_else(|| format!("`{key}` of \"{name}\" is {}", brief(value)))?;
            return Ok(Some(number));
        }
    }
    Ok(None)
}
