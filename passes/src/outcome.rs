//! What passes report.

use planish_ir::Origin;

use crate::pad::VocabularyPadding;
use crate::precision::HalfReport;
use crate::raise::Miss;

/// What one application of a pass did.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How many places of the graph the pass changed. A pass that reports 0 left the graph as it was.
    pub changed: usize,
    /// What the pass has to say beyond that.
    pub notes: Vec<Note>,
}

impl From<usize> for Outcome {
    /// The outcome of a pass that says nothing but how many places it changed.
    fn from(changed: usize) -> Self {
        Self { changed, notes: Vec::new() }
    }
}

/// Something that a pass has to say. There is one channel for all of them: [`Pass::run`](crate::Pass::run) returns
/// notes, and a [`Stage`](crate::Stage) keeps them.
#[derive(Clone, Debug)]
pub enum Note {
    /// `halve` brought the graph to half precision.
    Halved(HalfReport),
    /// A rule of raising nearly matched. Rules report this when [`Options::explain`](crate::Options::explain) is set.
    Missed(Miss),
    /// `pad-vocab` found a vocabulary.
    Vocabulary(VocabularyPadding),
    /// `pad-linear` padded the features of a linear layer.
    Features(FeaturePadding),
    /// `chunk-attention` chose the form of an attention whose sizes are fixed.
    Attention {
        /// The result of the attention.
        at: String,
        /// The form, and why.
        choice: String,
    },
}

/// Features of a linear layer that are padded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeaturePadding {
    /// The result of the layer.
    pub at: String,
    /// Where it came from.
    pub origin: Origin,
    /// How many features there were.
    pub size: usize,
    /// How many features there are with padding.
    pub padded: usize,
    /// Whether the features are those that the layer gives; else they are those that it takes.
    pub given: bool,
}

/// The notes of the last application of each pass, in the order of [`PASSES`](crate::PASSES). A pass that runs in
/// several rounds reports the current state in each of them, so its last notes replace the ones before.
pub fn last_notes(stages: &[crate::Stage]) -> impl Iterator<Item = &Note> {
    let last = |pass: &'static str| stages.iter().rev().find(move |stage| stage.pass == pass);
    crate::PASSES.iter().filter_map(move |pass| last(pass.name)).flat_map(|stage| &stage.notes)
}
