//! The interval of a share that was counted.

use serde::{Deserialize, Serialize};

/// The 97.5 % quantile of the standard normal distribution: 95 % lie within it on both sides.
pub const Z: f64 = 1.959_963_984_540_054;

/// The 95 % interval of a share, in %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// The interval by Wilson of a share in % of so many; it holds for shares of 0 and 100 % and for few samples too.
    /// Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference (1927).
    #[must_use]
    pub fn of_share(percent: f64, count: u64) -> Self {
        if count == 0 {
            return Self { low: 0.0, high: 100.0 };
        }
        let (share, count) = (percent / 100.0, count as f64);
        let spread = Z * Z / count;
        let centre = (share + spread / 2.0) / (1.0 + spread);
        let half = Z / (1.0 + spread) * (share * (1.0 - share) / count + spread / (4.0 * count)).max(0.0).sqrt();
        Self { low: 100.0 * (centre - half).max(0.0), high: 100.0 * (centre + half).min(1.0) }
    }

    /// Both ends.
    #[must_use]
    pub fn ends(self) -> [f64; 2] {
        [self.low, self.high]
    }
}

/// As a report has it after a share.
impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{:.1}, {:.1}]", self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_statsmodels() {
        // statsmodels.stats.proportion.proportion_confint(hits, count, method="wilson")
        for (hits, count, low, high) in EXPECTED {
            let Interval { low: got, high: end } = Interval::of_share(100.0 * hits / count as f64, count);
            assert!((got - low).abs() < 1e-9 && (end - high).abs() < 1e-9, "{hits} of {count}: {got}, {end}");
        }
        assert_eq!(Interval::of_share(0.0, 0), Interval { low: 0.0, high: 100.0 });
    }

    const EXPECTED: [(f64, u64, f64, f64); 5] = [
        (22.0, 22, 85.1345125391379, 100.0),
        (0.0, 10, 0.0, 27.753279986288927),
        (93.0, 100, 86.2504852609265, 96.56807389327274),
        (917.0, 1000, 89.82635048659463, 93.25449785571007),
        (1.0, 2, 9.453120573423067, 90.54687942657694),
    ];
}
