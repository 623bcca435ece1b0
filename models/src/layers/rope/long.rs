//! Rotary embeddings for longer texts than a model was first trained on, as `config.json` has them: "yarn" and "longrope".

use super::parameters::{BETAS, Layers, ORIGINAL, Parameters};
use super::{AttentionFactor, Frequencies, Rope, scaling};
use crate::ModelError;
use crate::checkpoint::config::{Config, MAX_SIZE, Size};

/// What "yarn" takes the factors of cosines and sines from.
const MSCALES: [&str; 2] = ["mscale", "mscale_all_dim"];

/// What latent attention multiplies scores with besides the root of the size of heads: the square of the factor that "yarn" has
/// for `mscale_all_dim`.
pub(crate) fn latent_scale(config: &Config<'_>) -> Result<f64, ModelError> {
    let parameters = Parameters::read(config, Layers::All)?;
    let kind = parameters.get("rope_type").or_else(|| parameters.get("type"));
    let mscale = parameters.get(MSCALES[1]).filter(|value| value.as_f64() != Some(0.0));
    if mscale.is_none() || kind.is_none_or(|kind| kind.as_str() == Some("default")) {
        return Ok(1.0);
    }
    let factor = parameters.required("factor")?;
    let scale = scaling::yarn_scale(factor, parameters.required(MSCALES[1])?);
    Ok(scale * scale)
}

/// The longest text, where the original length is stretched by a factor.
pub(super) fn stretched(longest: Size, original: f64, factor: f64) -> Size {
    let reach = (original * factor).min(MAX_SIZE as f64) as usize;
    match reach > longest.value {
        true => Size::derived(reach, "the original length times the factor of the rotary embedding"),
        false => longest,
    }
}

pub(super) fn yarn(
    parameters: &Parameters<'_>,
    plain: Vec<f64>,
    theta: f64,
    original: f64,
    longest: Size,
) -> Result<Rope, ModelError> {
    let known = ["factor", "attention_factor", "beta_fast", "beta_slow", "truncate", ORIGINAL];
    parameters.only(&[&known[..], &MSCALES].concat())?;
    if theta == 1.0 {
        return Err(parameters.config.error("the rotary embedding \"yarn\" needs a `rope_theta` other than 1"));
    }
    let factor = parameters.number("factor")?.unwrap_or(longest.value as f64 / original);
    let betas =
        [parameters.number("beta_fast")?.unwrap_or(BETAS[0]), parameters.number("beta_slow")?.unwrap_or(BETAS[1])];
    let truncate = parameters.boolean("truncate", true)?;
    // Zero is as good as absent, and one counts with the other only.
    let is_set = |key: &&str| parameters.get(key).is_some_and(|value| value.as_f64() != Some(0.0));
    let mscales = match MSCALES.iter().all(is_set) {
        true => Some([parameters.required(MSCALES[0])?, parameters.required(MSCALES[1])?]),
        false => None,
    };
    let attention_factor = parameters.number("attention_factor")?;
    let attention_factor = attention_factor.unwrap_or_else(|| scaling::yarn_attention_factor(factor, mscales));
    let attention_factor = AttentionFactor::Fixed(attention_factor);
    let frequencies = scaling::Yarn { theta, factor, original, betas, truncate }.frequencies(&plain);
    let longest = stretched(longest, original, factor);
    Ok(Rope { frequencies: Frequencies::Fixed(frequencies), attention_factor, longest })
}

/// The "longrope" of Phi-3.5-MoE: frequencies of short texts at all lengths, and a factor for texts up to the original length and
/// one for longer ones.
pub(super) fn short_longrope(
    parameters: &Parameters<'_>,
    plain: Vec<f64>,
    original: f64,
    longest: Size,
) -> Result<Rope, ModelError> {
    const KEYS: [&str; 2] = ["short_mscale", "long_mscale"];
    parameters.only(&["factor", "attention_factor", "short_factor", "long_factor", KEYS[0], KEYS[1], ORIGINAL])?;
    // Its length is checked, although it does not count.
    parameters.each("long_factor", plain.len())?;
    let frequencies = plain.iter().zip(parameters.each("short_factor", plain.len())?).map(|(f, by)| f / by).collect();
    let [short, long] = KEYS.map(|key| parameters.required(key));
    let attention_factor = AttentionFactor::Chosen { short: short?, long: long?, original };
    Ok(Rope { frequencies: Frequencies::Fixed(frequencies), attention_factor, longest })
}

pub(super) fn longrope(
    parameters: &Parameters<'_>,
    plain: Vec<f64>,
    original: f64,
    longest: Size,
) -> Result<Rope, ModelError> {
    parameters.only(&["factor", "attention_factor", "short_factor", "long_factor", ORIGINAL])?;
    let factor = parameters.number("factor")?.unwrap_or(longest.value as f64 / original);
    let divided = |key| -> Result<Vec<f64>, ModelError> {
        Ok(plain.iter().zip(parameters.each(key, plain.len())?).map(|(f, factor)| f / factor).collect())
    };
    let (short, long) = (divided("short_factor")?, divided("long_factor")?);
    let attention_factor = parameters.number("attention_factor")?;
    let attention_factor = attention_factor.unwrap_or_else(|| scaling::longrope_attention_factor(factor, original));
    if !attention_factor.is_finite() {
        return Err(parameters.config.error(format!("`{ORIGINAL}` is {original}, expected more than 1")));
    }
    let attention_factor = AttentionFactor::Fixed(attention_factor);
    Ok(Rope { frequencies: Frequencies::Chosen { short, long, original }, attention_factor, longest })
}
