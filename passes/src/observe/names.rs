//! The names of outputs that observe a value.

/// What an output says of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// The least element, in the value's element type; `inf` where there is none. Where an element is
    /// not a number it may be anything.
    Min,
    /// The largest element; `-inf` where there is none.
    Max,
    /// f32: 1 where an element is not a number, and at most 0 otherwise.
    Nan,
}

impl Observed {
    /// All, in the order of the outputs.
    pub const ALL: [Self; 3] = [Self::Min, Self::Max, Self::Nan];

    fn prefix(self) -> &'static str {
        match self {
            Self::Min => "observed/min/",
            Self::Max => "observed/max/",
            Self::Nan => "observed/nan/",
        }
    }

    /// The output that says this of a value.
    #[must_use]
    pub fn output(self, value: &str) -> String {
        format!("{}{value}", self.prefix())
    }
}

/// What an output says, and of which value; `None` for outputs that are the model's.
#[must_use]
pub fn observed(output: &str) -> Option<(Observed, &str)> {
    Observed::ALL.into_iter().find_map(|kind| Some((kind, output.strip_prefix(kind.prefix())?)))
}

/// What the name of the scores of an attention ends with.
const SCORES: &str = "/scores";

/// The name under which the scores of an attention are observed, by the name of its result.
#[must_use]
pub fn scores_name(result: &str) -> String {
    format!("{result}{SCORES}")
}

/// The result of the attention whose scores are observed under a name.
#[must_use]
pub fn scores_of(name: &str) -> Option<&str> {
    name.strip_suffix(SCORES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_back() {
        for kind in Observed::ALL {
            assert_eq!(observed(&kind.output("encoder.layer.0/scores")), Some((kind, "encoder.layer.0/scores")));
        }
        assert_eq!(observed("logits"), None);
        assert_eq!((scores_of(&scores_name("layer.0")), scores_of("layer.0")), (Some("layer.0"), None));
    }
}
