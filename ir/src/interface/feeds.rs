//! Which output of one part feeds which input of another.

use super::{InputRole, Interface, OutputRole, PartRole};

/// An output of a part that is an input of a later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed<'a> {
    /// The part and the output that give.
    pub from: (&'a str, &'a str),
    /// The part and the input that take.
    pub to: (&'a str, &'a str),
}

/// What an output feeds: the role of the inputs that take it.
fn fed(part: PartRole, output: OutputRole) -> Option<InputRole> {
    match output {
        OutputRole::Cache(entry) => Some(InputRole::Cache(entry)),
        OutputRole::Embeddings => Some(InputRole::Embeddings),
        OutputRole::HiddenStates if matches!(part, PartRole::Encoder | PartRole::AudioEncoder) => {
            Some(InputRole::EncoderStates)
        }
        OutputRole::ImageStates => Some(InputRole::ImageStates),
        OutputRole::ImagePositions => Some(InputRole::ImagePositions),
        OutputRole::HiddenStates
        | OutputRole::Logits
        | OutputRole::StartLogits
        | OutputRole::EndLogits
        | OutputRole::Pooled
        | OutputRole::TokenEmbeddings
        | OutputRole::TokenWeights
        | OutputRole::SentenceEmbedding
        | OutputRole::XVector
        | OutputRole::Scores
        | OutputRole::Boxes
        | OutputRole::Masks
        | OutputRole::MaskScores
        | OutputRole::LogitsPerImage
        | OutputRole::LogitsPerText
        | OutputRole::TextEmbedding
        | OutputRole::ImageEmbedding
        | OutputRole::Depth
        | OutputRole::Heatmaps
        | OutputRole::Other => None,
    }
}

impl Interface {
    /// Every output that feeds inputs of later parts, by the roles of both.
    #[must_use]
    pub fn feeds(&self) -> Vec<Feed<'_>> {
        let mut feeds = Vec::new();
        for (at, (to, taking)) in self.parts.iter().enumerate() {
            for input in taking.inputs.keys() {
                feeds.extend(self.feed_at(at, input).map(|from| Feed { from, to: (to, input) }));
            }
        }
        feeds
    }

    /// The part and the output that an input of a part takes what it is from: the latest before it that has such an output.
    #[must_use]
    pub fn feed(&self, part: &str, input: &str) -> Option<(&str, &str)> {
        let at = self.parts.iter().position(|(name, _)| name == part)?;
        self.feed_at(at, input)
    }

    fn feed_at(&self, at: usize, input: &str) -> Option<(&str, &str)> {
        let wanted = self.parts.get(at)?.1.inputs.get(input)?;
        self.parts[..at].iter().rev().find_map(|(name, part)| {
            let gives = |(_, role): &(&String, &OutputRole)| fed(part.role, **role).as_ref() == Some(wanted);
            part.outputs.iter().find(gives).map(|(output, _)| (name.as_str(), output.as_str()))
        })
    }

    /// The part and the input of the model that an input of a part is the same as: the mask of the encoder's tokens is the
    /// encoder's own mask, and the first decoder's tokens are those that a later one goes on with.
    #[must_use]
    pub fn shared(&self, part: &str, input: &str) -> Option<(&str, &str)> {
        let at = self.parts.iter().position(|(name, _)| name == part)?;
        let role = *self.parts.get(at)?.1.inputs.get(input)?;
        self.parts[..at].iter().find_map(|(name, earlier)| {
            let is_same = |other: InputRole| match (role, other) {
                (InputRole::EncoderMask, InputRole::Mask) => {
                    matches!(earlier.role, PartRole::Encoder | PartRole::AudioEncoder)
                }
                (InputRole::Other | InputRole::OtherMask, _) => false,
                (role, other) => role == other,
            };
            earlier.inputs.iter().find(|(_, other)| is_same(**other)).map(|(input, _)| (name.as_str(), input.as_str()))
        })
    }
}
