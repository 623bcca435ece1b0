//! What an artifact has to reach unless told otherwise, and what it misses.

use planish_artifact::evaluation::{Figure, Requirements};
use planish_artifact::verification::Report;

/// An artifact does not compute what its source does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("verification failed:\n  {}", .0.join("\n  "))]
pub struct VerificationFailed(pub Vec<String>);

impl VerificationFailed {
    /// Judges a comparison with the source.
    ///
    /// # Errors
    /// What is beyond its tolerance.
    pub fn check(report: &Report) -> Result<(), Self> {
        if report.passed() { Ok(()) } else { Err(Self(report.misses())) }
    }

    /// Judges figures by what they miss.
    ///
    /// # Errors
    /// What is missed, if anything is.
    pub fn of(misses: Vec<String>) -> Result<(), Self> {
        if misses.is_empty() { Ok(()) } else { Err(Self(misses)) }
    }
}

/// The cosine that a quantized artifact has to reach. Less than planish's defaults reach, and more than harmful quantization
/// does.
const COSINE: f64 = 0.99;

/// The same for weights of 4 bits.
const COSINE_OF_4_BITS: f64 = 0.9;

/// What a quantized artifact has to reach unless told otherwise; `has_4_bits` says that weights have 4 bits.
#[must_use]
pub fn usual_limits(has_4_bits: bool) -> Requirements {
    Requirements::of(Figure::Cosine, if has_4_bits { COSINE_OF_4_BITS } else { COSINE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_4_bits_have_a_lower_limit() {
        assert_eq!([false, true].map(|bits| usual_limits(bits).to_string()), ["cos=0.99", "cos=0.9"]);
    }

    #[test]
    fn misses_are_failures() {
        assert_eq!(VerificationFailed::of(Vec::new()), Ok(()));
        let failed = VerificationFailed::of(vec!["a".to_owned(), "b".to_owned()]).unwrap_err();
        assert_eq!(failed.to_string(), "verification failed:\n  a\n  b");
    }
}
