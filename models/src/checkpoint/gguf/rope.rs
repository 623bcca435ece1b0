//! The rotary embedding that a GGUF file describes, as config.json has it.

use serde_json::{Value, json};

use super::config::Conversion;

/// How the frequencies of the rotary embedding are scaled.
pub(super) fn rope_scaling(
    keys: &Conversion<'_>,
    base: f64,
    head: u64,
    positions: u64,
) -> Result<Option<Value>, String> {
    let original = keys.size("rope.scaling.original_context_length")?;
    let factor = keys.number("rope.scaling.factor")?;
    let kind = keys.text("rope.scaling.type")?;
    if let Some(factors) = &keys.tensors.rope_factors {
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
