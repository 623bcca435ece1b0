//! Checkpoints of kinds that no architecture here follows, refused by name: mixtures of experts,
//! quantized weights, and code that comes with the checkpoint.

use serde_json::Value;

use crate::ModelError;
use crate::checkpoint::config::{Config, brief, is_off};
use crate::registry::Architecture;

/// Keys that only mixtures of experts have.
const EXPERTS: &[&str] =
    &["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok"];

/// Keys that say how weights are quantized.
const QUANTIZATION: &[&str] = &["quantization_config", "compression_config"];

/// The key of a model whose code comes with its checkpoint.
const REMOTE_CODE: &str = "auto_map";

/// Refuses mixtures of experts and quantized weights, of whatever architecture.
pub(crate) fn check(config: &Config<'_>) -> Result<(), ModelError> {
    if let Some((key, value)) = first(config, EXPERTS) {
        let model_type = config.text("model_type", "")?;
        return Err(config.error(format!(
            "`{key}` is {}: {model_type} is a mixture of experts (MoE), which is not supported; take a dense \
             model of the family",
            brief(value)
        )));
    }
    if let Some((key, value)) = first(config, QUANTIZATION) {
        let method = value.get("quant_method").and_then(Value::as_str).unwrap_or("of no known method");
        return Err(config.error(format!(
            "`{key}` is there: the weights are quantized ({method}), which is not supported; take the checkpoint that \
             they were made from, in float32, float16 or bfloat16, or save a dequantized one"
        )));
    }
    Ok(())
}

fn first<'a>(config: &Config<'a>, keys: &[&'static str]) -> Option<(&'static str, &'a Value)> {
    keys.iter().find_map(|&key| config.get(key).filter(|value| !is_off(value)).map(|value| (key, value)))
}

/// What to add to the error about an unknown `model_type`.
pub(crate) fn unknown_type_hint(config: &Config<'_>) -> String {
    match first(config, &[REMOTE_CODE]) {
        Some(_) => format!(
            ", and Python code that a checkpoint brings (`{REMOTE_CODE}`, what `trust_remote_code` is for) is not run"
        ),
        None => String::new(),
    }
}

/// Refuses a model whose class is the checkpoint's own code; warns where that code has the name of
/// the transformers library's class, which that library takes then too.
pub(crate) fn check_code(config: &Config<'_>, architecture: &Architecture) -> Result<(), ModelError> {
    let Some((_, map)) = first(config, &[REMOTE_CODE]) else { return Ok(()) };
    let classes = map.as_object().into_iter().flatten().filter(|(key, _)| key.starts_with("AutoModel"));
    for (key, class) in classes {
        let name = class.as_str().and_then(|path| path.rsplit('.').next()).unwrap_or_default();
        let is_stock = Architecture::of_class(name).is_some_and(|a| a.model_type == architecture.model_type);
        if !is_stock {
            return Err(config.error(format!(
                "`{REMOTE_CODE}.{key}` is {1}: the model is Python code of the checkpoint's own (what \
                 `trust_remote_code` is for), which is not run, and need not compute what the stock `{0}` does; remove \
                 `{REMOTE_CODE}` where the stock `{0}` is what you want",
                architecture.model_type,
                brief(class)
            )));
        }
    }
    config.warn(format!(
        "`{REMOTE_CODE}` names Python code that the checkpoint brings, which is not run: the graph is that of the stock \
         `{}`",
        architecture.model_type
    ));
    Ok(())
}
