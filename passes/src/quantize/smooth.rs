//! The factors of SmoothQuant.

/// The factors of columns by the magnitudes of the input's columns and of the weights' (Xiao et al. 2022,
/// arXiv:2211.10438, equation 4). A column of zeros has the factor 1.
#[must_use]
pub fn smooth_factors(inputs: &[f32], weights: &[f32], alpha: f32) -> Vec<f32> {
    let factor = |(x, w): (&f32, &f32)| match *x > 0.0 && *w > 0.0 {
        true => (x.powf(alpha) / w.powf(1.0 - alpha)).clamp(LEAST, LARGEST),
        false => 1.0,
    };
    inputs.iter().zip(weights).map(factor).collect()
}

/// Factors stay within these, so that neither the input nor the weights leave the range of float16.
const LEAST: f32 = 1e-4;
const LARGEST: f32 = 1e4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpha_moves_range_from_the_input_to_the_weights() {
        let (x, w) = ([16.0, 1.0, 0.0, 4.0], [1.0, 1.0, 2.0, 4.0]);
        assert_eq!(smooth_factors(&x, &w, 1.0), [16.0, 1.0, 1.0, 4.0]);
        assert_eq!(smooth_factors(&x, &w, 0.0), [1.0, 1.0, 1.0, 0.25]);
        assert_eq!(smooth_factors(&x, &w, 0.5), [4.0, 1.0, 1.0, 1.0]);
        assert_eq!(smooth_factors(&[1e12], &[1e-3], 0.5), [LARGEST]);
    }
}
