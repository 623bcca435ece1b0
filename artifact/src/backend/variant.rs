//! The forms of a model that are compared with each other.

use crate::recipe::{Precision, Recipe};

/// The operators of a form and their precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// float32, each operator by itself.
    Unfused,
    /// INT8 with scales of activations that each run computes.
    DynamicInt8,
    /// What `compile --precision` makes of it; INT8 with scales of activations from data.
    Of(Precision),
}

impl Variant {
    /// Every variant.
    pub const ALL: [Self; 8] = [
        Self::Unfused,
        Self::Of(Precision::F32),
        Self::Of(Precision::Fp16),
        Self::Of(Precision::Bf16),
        Self::DynamicInt8,
        Self::Of(Precision::Int8),
        Self::Of(Precision::Int4),
        Self::Of(Precision::Int8Weights),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unfused => "unfused",
            Self::DynamicInt8 => "int8-dynamic",
            Self::Of(precision) => precision.name(),
        }
    }

    /// What it asks for beside its operators.
    #[must_use]
    pub fn recipe(self) -> Recipe {
        match self {
            Self::Unfused => Recipe::default(),
            Self::DynamicInt8 => Recipe::of(Precision::Int8),
            Self::Of(precision) => Recipe::of(precision),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{USUAL, is_on_gpu};
    use super::*;

    #[test]
    fn usual_forms_are_of_runtimes_that_there_are() {
        for (backend, at, variants) in USUAL {
            assert!(backend.runtimes.get(*at).is_some(), "{} has no runtime {at}", backend.target);
            assert!(variants.iter().all(|variant| Variant::ALL.contains(variant)), "{}", backend.target);
        }
    }

    #[test]
    fn runtimes_say_whether_they_compute_on_a_gpu() {
        let all = ["trt", "ort-cuda", "cuda", "cuda-baseline", "cuda-emulator", "ort", "reference", "none"];
        assert_eq!(all.map(is_on_gpu), [true, true, true, true, false, false, false, false]);
    }
}
