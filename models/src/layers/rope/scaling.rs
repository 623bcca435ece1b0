//! Frequencies of longer texts than a model was first trained on, by the formulas of
//! `transformers/modeling_rope_utils.py`.

use std::f64::consts::TAU;

/// The frequency that Llama 3.1 turns a pair with: waves longer than the original context are
/// stretched by `factor`, short ones stay, and between them it goes over gradually.
pub(super) fn llama3(frequency: f64, factor: f64, [low, high]: [f64; 2], length: f64) -> f64 {
    let waves = length * frequency / TAU;
    if waves > high {
        frequency
    } else if waves < low {
        frequency / factor
    } else {
        let share = (waves - low) / (high - low);
        (1.0 - share) * frequency / factor + share * frequency
    }
}

/// The power of the stretch that each pair's frequency is multiplied with where the base grows by
/// `stretch ^ (size / (size - 2))` (NTK-aware scaling): none of the first, all of the last.
pub(super) fn stretch_exponents(pairs: usize) -> Vec<f64> {
    (0..pairs).map(|i| -(i as f64) / (pairs as f64 - 1.0)).collect()
}

/// YaRN (Peng et al. 2023, arXiv:2309.00071).
pub(super) struct Yarn {
    pub(super) theta: f64,
    pub(super) factor: f64,
    /// The length of the original context.
    pub(super) original: f64,
    /// Pairs that turn more often than the first in the original context stay, ones that turn less
    /// often than the second are stretched by `factor`.
    pub(super) betas: [f64; 2],
    /// Whether the bounds between which it goes over are whole pairs.
    pub(super) truncate: bool,
}

impl Yarn {
    pub(super) fn frequencies(&self, plain: &[f64]) -> Vec<f64> {
        let size = 2.0 * plain.len() as f64;
        let bound = |turns: f64| size * (self.original / (turns * TAU)).ln() / (2.0 * self.theta.ln());
        let [mut low, mut high] = self.betas.map(bound);
        if self.truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(size - 1.0));
        if low == high {
            high += 0.001;
        }
        let stretched = |i: usize| ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
        let mix = |(i, f): (usize, &f64)| f / self.factor * stretched(i) + f * (1.0 - stretched(i));
        plain.iter().enumerate().map(mix).collect()
    }
}

/// What YaRN multiplies cosines and sines with where the configuration does not say;
/// `mscales` are its `mscale` and `mscale_all_dim`.
pub(super) fn yarn_attention_factor(factor: f64, mscales: Option<[f64; 2]>) -> f64 {
    match mscales.map(|both| both.map(|mscale| yarn_scale(factor, mscale))) {
        Some([numerator, denominator]) => numerator / denominator,
        None => yarn_scale(factor, 1.0),
    }
}

/// The factor of YaRN for one `mscale`.
pub(super) fn yarn_scale(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}

/// What LongRoPE (Ding et al. 2024, arXiv:2402.13753) multiplies cosines and sines with where the
/// configuration does not say.
pub(super) fn longrope_attention_factor(factor: f64, original: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original.ln()).sqrt() }
}
