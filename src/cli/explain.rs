//! The output of `--explain fusion` for a part: the operators that raising found, and the places where a rule almost matched.

use std::collections::BTreeMap;
use std::fmt;

use planish_passes::raise::Explanation;
use serde::Serialize;

/// What raising found in a part. Its text form counts what was raised and has a line for each miss.
#[derive(Serialize)]
pub(super) struct Explained<'a> {
    part: &'a str,
    /// How many of each operator were found.
    raised: BTreeMap<&'a str, usize>,
    /// How often the rule of each operator almost matched.
    missed: BTreeMap<&'a str, usize>,
    matches: Vec<Matched<'a>>,
    misses: Vec<Missed<'a>>,
    /// The form of each attention whose sizes are fixed, and why it was chosen.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attentions: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
struct Matched<'a> {
    operator: &'a str,
    /// The result.
    at: &'a str,
    origin: String,
}

#[derive(Serialize)]
struct Missed<'a> {
    rule: &'a str,
    /// The result of the node that the rule looked at.
    at: &'a str,
    origin: String,
    /// The condition that is false, and the value that makes it false.
    reason: &'a str,
}

impl<'a> Explained<'a> {
    pub(super) fn new(part: &'a str, found: &'a Explanation) -> Self {
        let matched = found.matches.iter();
        let missed = found.misses.iter();
        Self {
            part,
            raised: counts(matched.clone().map(|m| m.operator)),
            missed: counts(missed.clone().map(|m| m.rule)),
            matches: matched
                .map(|m| Matched { operator: m.operator, at: &m.at, origin: m.origin.to_string() })
                .collect(),
            misses: missed
                .map(|m| Missed { rule: m.rule, at: &m.at, origin: m.origin.to_string(), reason: &m.reason })
                .collect(),
            attentions: found.attentions.iter().map(|(at, choice)| (at.as_str(), choice.as_str())).collect(),
        }
    }
}

fn counts<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}

impl fmt::Display for Explained<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = self.raised.iter().map(|(operator, count)| format!("{count} {operator}")).collect();
        let counts = if counts.is_empty() { "nothing raised".to_owned() } else { counts.join(", ") };
        writeln!(f, "{}: {counts}", self.part)?;
        for Missed { rule, at, origin, reason } in &self.misses {
            writeln!(f, "  not {rule} at `{at}` ({origin}): {reason}")?;
        }
        for (at, choice) in &self.attentions {
            writeln!(f, "  attention of fixed sizes at `{at}`: {choice}")?;
        }
        Ok(())
    }
}
