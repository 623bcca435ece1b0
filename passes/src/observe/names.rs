//! How outputs that observe a value are called.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_back() {
        for kind in Observed::ALL {
            assert_eq!(observed(&kind.output("encoder.layer.0/scores")), Some((kind, "encoder.layer.0/scores")));
        }
        assert_eq!(observed("logits"), None);
    }
}
