//! How much of a data set of texts was run, and what was left out for which reason.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What one text of a data set is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A line of a `.txt` file, or a record of another one. What is longer than the model takes is cut, unless it is read in
    /// windows.
    Lines,
    /// A whole `.txt` file, or a record of another one, in windows from its beginning to its end.
    Documents,
    /// A picture, which has no characters.
    Pictures,
    /// A recording, which has none either.
    Recordings,
}

/// How much of a data set of texts was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// What one text is.
    pub unit: Unit,
    /// How many texts were run, in whole or in part.
    pub texts: u64,
    /// The characters of them that were run.
    pub characters: u64,
    /// Texts that were run in part, and their characters that were not: they are longer than a run or `--max-length`.
    #[serde(default)]
    pub cut: Left,
    /// Texts that were not run in whole because `--tokens` were reached, and their characters.
    #[serde(default)]
    pub behind_tokens: Left,
    /// Texts after the last one of `--samples`.
    #[serde(default)]
    pub behind_samples: Left,
    /// Texts that are for calibration, or that are held out from it.
    #[serde(default)]
    pub of_split: Left,
    /// Records that cannot be read.
    #[serde(default)]
    pub bad: u64,
    /// Whether there is more data, which was not counted: it is large, or cannot be read.
    #[serde(default)]
    pub has_more: bool,
}

/// Texts that were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// How many.
    pub texts: u64,
    /// Their characters.
    pub characters: u64,
}

impl Left {
    /// Adds a text of so many characters.
    pub fn add(&mut self, characters: u64) {
        self.texts += 1;
        self.characters += characters;
    }
}

impl Coverage {
    /// For nothing that was run yet.
    #[must_use]
    pub fn new(unit: Unit) -> Self {
        let none = Left::default();
        Self {
            unit,
            texts: 0,
            characters: 0,
            cut: none,
            behind_tokens: none,
            behind_samples: none,
            of_split: none,
            bad: 0,
            has_more: false,
        }
    }

    /// The characters of all texts.
    #[must_use]
    pub fn all_characters(&self) -> u64 {
        let left = [self.cut, self.behind_tokens, self.behind_samples, self.of_split];
        self.characters + left.iter().map(|left| left.characters).sum::<u64>()
    }
}

/// Two lines at most: what was read, and what was left out.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Unit::Lines => "text",
            Unit::Documents => "document",
            Unit::Pictures => "picture",
            Unit::Recordings => "recording",
        };
        let more = if self.has_more { "more than " } else { "" };
        let (read, all) = (counted(self.texts, unit), self.all_characters());
        write!(f, "read: {read}")?;
        if matches!(self.unit, Unit::Lines | Unit::Documents) {
            write!(f, ", {} of {more}{all} characters", self.characters)?;
        }
        let left = |left: Left, why: &str| {
            let count = left.texts;
            (count > 0).then(|| match self.unit {
                Unit::Pictures | Unit::Recordings => format!("{} {why}", counted(count, unit)),
                Unit::Lines | Unit::Documents => {
                    format!("{} characters of {} {why}", left.characters, counted(count, "text"))
                }
            })
        };
        let reasons = [
            left(self.cut, "longer than a run (--max-length)"),
            left(self.behind_tokens, "after the last token (--tokens)"),
            left(self.behind_samples, "after the last sample (--samples)"),
            left(self.of_split, "of the other part of the data"),
            (self.bad > 0).then(|| counted(self.bad, "bad record")),
        ];
        let left: Vec<String> = reasons.into_iter().flatten().collect();
        if left.is_empty() {
            return Ok(());
        }
        write!(f, "\nleft out: {}", left.join("; "))
    }
}

/// A number of things.
fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
