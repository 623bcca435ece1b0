//! Windows: what samples of a frame are multiplied by.

use std::f64::consts::TAU;

/// The form of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// A raised cosine, of which the first sample of the next period is left out.
    PeriodicHann,
    /// A raised cosine with zeros at both ends.
    Hann,
    /// Kaldi's: the symmetric raised cosine to the power 0.85.
    Povey,
}

impl Window {
    /// Its numbers.
    #[must_use]
    pub fn of(self, length: usize) -> Vec<f64> {
        if length == 1 {
            return vec![1.0];
        }
        let period = if self == Self::PeriodicHann { length } else { length.saturating_sub(1) } as f64;
        let power = if self == Self::Povey { 0.85 } else { 1.0 };
        (0..length).map(|at| (0.5 - 0.5 * (TAU * at as f64 / period).cos()).powf(power)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_their_ends() {
        let periodic = Window::PeriodicHann.of(4);
        assert!(periodic.iter().zip([0.0, 0.5, 1.0, 0.5]).all(|(a, b)| (a - b).abs() < 1e-12), "{periodic:?}");
        let [hann, povey] = [Window::Hann, Window::Povey].map(|window| window.of(5));
        assert!(hann[4].abs() < 1e-12 && (hann[1] - 0.5).abs() < 1e-12, "{hann:?}");
        assert!((povey[1] - 0.5_f64.powf(0.85)).abs() < 1e-12, "{povey:?}");
        assert_eq!(Window::Hann.of(1), [1.0]);
        assert!(Window::Hann.of(0).is_empty());
    }
}
