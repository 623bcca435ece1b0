//! Padding: to sizes at which the target's kernels are faster. The interface of the graph does not change.

mod find;
mod linear;
mod vocabulary;

use std::fmt;
use std::str::FromStr;

use planish_ir::{Graph, Value, ValueId, Weight};

pub(crate) use find::Found;
pub use linear::PAD_LINEAR;
pub use vocabulary::{PAD_VOCAB, VocabularyPadding};

use crate::{PassError, Target};

/// What is padded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Padding {
    /// What vocabularies are padded to a multiple of; they stay as they are where absent.
    pub vocabulary: Option<usize>,
    /// What the scores of a padded vocabulary look like outside.
    pub logits: Logits,
    /// What the features of linear layers are padded to a multiple of, where it is not the target's
    /// [`alignment`](Target::alignment).
    pub features: Option<usize>,
}

impl Padding {
    /// What a target wants.
    #[must_use]
    pub fn of(target: &Target) -> Self {
        Self { vocabulary: target.vocabulary_multiple, ..Self::default() }
    }
}

/// What the scores of a padded vocabulary look like outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logits {
    /// As without padding.
    #[default]
    Sliced,
    /// As wide as the padded vocabulary. Columns of no token hold the finite minimum of the element
    /// type.
    Padded,
}

impl Logits {
    const ALL: [Self; 2] = [Self::Sliced, Self::Padded];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sliced => "sliced",
            Self::Padded => "padded",
        }
    }
}

impl fmt::Display for Logits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There are no logits of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("logits are {sliced} or {padded}, not `{0}`", sliced = Logits::Sliced, padded = Logits::Padded)]
pub struct UnknownLogits(pub String);

impl FromStr for Logits {
    type Err = UnknownLogits;
    fn from_str(text: &str) -> Result<Self, UnknownLogits> {
        let found = Self::ALL.into_iter().find(|logits| logits.name() == text);
        found.ok_or_else(|| UnknownLogits(text.to_owned()))
    }
}

/// A weight larger along one axis, filled up with `value`.
fn enlarged(graph: &Graph, weight: ValueId, axis: usize, multiple: usize, value: f64) -> Result<Weight, PassError> {
    let larger = graph.weight(weight).and_then(|weight| {
        let mut shape = weight.shape().to_vec();
        let size = shape.get_mut(axis)?;
        *size = size.checked_next_multiple_of(multiple)?;
        weight.pad(&shape, value)
    });
    let Value { name, origin, .. } = graph.value(weight);
    larger.ok_or_else(|| PassError::TooLarge { name: name.clone(), origin: origin.clone(), multiple })
}
