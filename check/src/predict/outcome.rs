//! What is predicted of a text, as a line of JSON has it.

use std::rc::Rc;

use serde::{Serialize, Serializer};

use super::depth::DepthMap;
use super::objects::Object;
use super::panoptic::Instance;
use super::segments::{ClassMap, Segment};
use super::speech::Word;
use crate::evaluate::metrics::log_probabilities;

/// What is predicted of a text. Its members are those of its line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Outcome {
    /// Of an embedding model.
    Embedding {
        /// [features]
        embedding: Vec<f32>,
    },
    /// Of a model with a single label.
    Score {
        /// The score.
        score: f32,
    },
    /// Of a classification.
    Class {
        /// The best label.
        label: String,
        /// Its score: a probability, or the logit where the model has no function for it.
        score: f32,
        /// All labels whose probability is above 0.5, where several may be true.
        #[serde(skip_serializing_if = "Option::is_none")]
        labels: Option<Vec<String>>,
        /// The scores of all labels.
        scores: Scores,
    },
    /// Of a classification of tokens.
    Tokens {
        /// The tokens, or words, with another label than `O`.
        tokens: Vec<LabelledToken>,
    },
    /// Of a question and the text that has its answer.
    Answer {
        /// The answer.
        answer: String,
        /// The product of the probabilities of its first and its last token.
        score: f32,
        /// Its first character in the text.
        start: usize,
        /// The character after its last one.
        end: usize,
    },
    /// Of masked tokens.
    Masks {
        /// Each masked token.
        masks: Vec<Mask>,
    },
    /// Of a picture of objects.
    Objects {
        /// Those that were found.
        objects: Vec<Object>,
    },
    /// Of a picture of places with labels.
    Segments {
        /// The labels that pixels have, in the order of their numbers.
        segments: Vec<Segment>,
        /// The class of each pixel.
        #[serde(skip)]
        map: Option<ClassMap>,
    },
    /// Of a picture of objects with masks.
    Instances {
        /// Those that were found and are not hidden by others.
        segments: Vec<Instance>,
        /// The number of the one that each pixel is of, or 0.
        #[serde(skip)]
        map: Option<ClassMap>,
    },
    /// Of a picture of depths.
    Depth {
        /// The smallest depth of a pixel.
        minimum: f32,
        /// The largest one.
        maximum: f32,
        /// The depth of each pixel.
        #[serde(skip)]
        map: Option<DepthMap>,
    },
    /// Of a recording of speech.
    Speech {
        /// What is said.
        text: String,
        /// Its words.
        words: Vec<Word>,
    },
    /// Of the frames of a recording.
    Frames {
        /// The labels.
        labels: Vec<String>,
        /// The time from one frame to the next, where it is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        seconds: Option<f64>,
        /// The probabilities of the labels in each frame.
        frames: Vec<Vec<f32>>,
    },
    /// Nothing, because a number that it is made of is not finite.
    NotFinite,
}

/// Labels, in the order of their classes, with their scores.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scores {
    pub(super) labels: Rc<[String]>,
    pub(super) scores: Vec<f32>,
}

impl Serialize for Scores {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.labels.iter().zip(&self.scores))
    }
}

/// A token with a label.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct LabelledToken {
    pub(super) label: String,
    /// The probability of the label.
    pub(super) score: f32,
    /// Which word of a list of words it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) word: Option<usize>,
    /// Which text of a pair it is in: 0 or 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sequence: Option<usize>,
    /// The characters of the text, or the whole word.
    pub(super) text: String,
    /// The first character in the text, or in the word.
    pub(super) start: usize,
    /// The character after the last one.
    pub(super) end: usize,
}

/// A masked token.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Mask {
    /// Which text of a pair it is in: 0 or 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sequence: Option<usize>,
    /// The first character of the mask in the text.
    pub(super) start: usize,
    /// The character after its last one.
    pub(super) end: usize,
    /// The likeliest tokens, the best first.
    pub(super) tokens: Vec<Candidate>,
}

/// A token that may take the place of a mask.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Candidate {
    pub(super) token: String,
    pub(super) id: usize,
    /// Its probability.
    pub(super) score: f32,
}

impl Outcome {
    /// Leaves out the class or depth of each pixel, which is drawn and not written.
    pub(super) fn forget_map(&mut self) {
        match self {
            Self::Segments { map, .. } | Self::Instances { map, .. } => *map = None,
            Self::Depth { map, .. } => *map = None,
            _ => {}
        }
    }

    /// Whether all of its numbers are finite.
    pub(super) fn is_finite(&self) -> bool {
        match self {
            Self::Embedding { embedding } => embedding.iter().all(|number| number.is_finite()),
            Self::Score { score } | Self::Answer { score, .. } => score.is_finite(),
            Self::Class { scores, .. } => scores.scores.iter().all(|score| score.is_finite()),
            Self::Tokens { tokens } => tokens.iter().all(|token| token.score.is_finite()),
            Self::Objects { objects } => {
                let numbers = |of: &Object| of.sides.in_order().into_iter().chain([of.score]).collect::<Vec<f32>>();
                objects.iter().flat_map(numbers).all(f32::is_finite)
            }
            // Scores that are not finite are no text, and no probabilities.
            Self::Segments { .. } | Self::Speech { .. } | Self::Frames { .. } => true,
            Self::Instances { segments, .. } => segments.iter().all(|instance| instance.score.is_finite()),
            Self::Depth { minimum, maximum, .. } => minimum.is_finite() && maximum.is_finite(),
            Self::NotFinite => false,
            Self::Masks { masks } => masks.iter().flat_map(|mask| &mask.tokens).all(|token| token.score.is_finite()),
        }
    }
}

/// The probabilities that logits stand for.
pub(super) fn softmax(logits: &[f32]) -> Vec<f64> {
    log_probabilities(logits).into_iter().map(f64::exp).collect()
}

/// The probability that a logit stands for.
pub(super) fn sigmoid(logit: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(logit)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_members_in_the_order_of_their_classes() {
        let scores = Scores { labels: ["z".to_owned(), "a".to_owned()].into(), scores: vec![0.25, 0.1] };
        let class = Outcome::Class { label: "z".to_owned(), score: 0.25, labels: None, scores };
        assert_eq!(serde_json::to_string(&class).unwrap(), r#"{"label":"z","score":0.25,"scores":{"z":0.25,"a":0.1}}"#);
        assert!(class.is_finite() && !Outcome::Score { score: f32::NAN }.is_finite());
    }

    #[test]
    fn logits_are_probabilities() {
        let found = softmax(&[0.0, f32::ln(3.0)]);
        assert!((found[0] - 0.25).abs() < 1e-7 && (found[1] - 0.75).abs() < 1e-7, "{found:?}");
        assert!((sigmoid(0.0) - 0.5).abs() < 1e-12 && sigmoid(-100.0) < 1e-40 && sigmoid(100.0) > 0.999);
    }
}
