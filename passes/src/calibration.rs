//! The ranges of values that calibration measured.

use std::collections::BTreeMap;

/// Where the elements of a tensor lie, over all runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The least element.
    pub min: f64,
    /// The largest element.
    pub max: f64,
}

impl Range {
    /// That of no elements: what [`merge`](Self::merge) leaves other ranges as they are by.
    pub const EMPTY: Self = Self { min: f64::INFINITY, max: f64::NEG_INFINITY };

    /// Whether there was no element.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.min > self.max
    }

    /// The range of the elements of both.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// The largest absolute value of an element; 0 where there is none.
    #[must_use]
    pub fn magnitude(self) -> f64 {
        if self.is_empty() { 0.0 } else { self.min.abs().max(self.max.abs()) }
    }
}

/// What data shows of a model's values: by the part of the model, and the name that a value has in
/// the canonical graph of that part. The scaled scores of an attention are under `RESULT/scores`,
/// see [`OBSERVE`](crate::observe::OBSERVE).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CalibrationTable {
    samples: usize,
    parts: BTreeMap<String, BTreeMap<String, Range>>,
}

impl CalibrationTable {
    /// Adds what so many more samples gave.
    pub fn add_samples(&mut self, count: usize) {
        self.samples += count;
    }

    /// How many samples were run.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Adds the range of a value in some of the runs. One without elements says nothing.
    pub fn record(&mut self, part: &str, value: &str, range: Range) {
        if range.is_empty() {
            return;
        }
        let values = self.parts.entry(part.to_owned()).or_default();
        let whole = values.get(value).map_or(range, |known| known.merge(range));
        values.insert(value.to_owned(), whole);
    }

    /// Adds what other samples showed.
    pub fn merge(&mut self, other: &Self) {
        self.samples += other.samples;
        for (part, values) in &other.parts {
            for (value, range) in values {
                self.record(part, value, *range);
            }
        }
    }

    /// The range of a value, if it was seen.
    #[must_use]
    pub fn range(&self, part: &str, value: &str) -> Option<Range> {
        self.part(part)?.get(value).copied()
    }

    /// The ranges of a part's values, by their names.
    #[must_use]
    pub fn part(&self, part: &str) -> Option<&BTreeMap<String, Range>> {
        self.parts.get(part)
    }

    /// The parts by their names, each with the ranges of its values.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &BTreeMap<String, Range>)> {
        self.parts.iter().map(|(name, values)| (name.as_str(), values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Range = Range { min: -3.0, max: 1.0 };
    const B: Range = Range { min: 0.5, max: 2.0 };

    #[test]
    fn ranges_hold_the_elements_of_all_runs() {
        assert_eq!(A.merge(B), Range { min: -3.0, max: 2.0 });
        assert_eq!((A.magnitude(), B.magnitude(), Range::EMPTY.magnitude()), (3.0, 2.0, 0.0));
        assert_eq!((Range::EMPTY.merge(B), B.merge(Range::EMPTY)), (B, B));
        assert!(Range::EMPTY.is_empty() && !A.is_empty());
        assert_eq!(Range { min: f64::NEG_INFINITY, max: 0.0 }.magnitude(), f64::INFINITY);
    }

    #[test]
    fn tables_are_the_same_in_whatever_steps_they_are_folded() {
        let mut whole = CalibrationTable::default();
        whole.record("model", "x", A);
        whole.record("model", "x", B);
        whole.record("model", "empty", Range::EMPTY);
        whole.add_samples(5);
        let (mut first, mut second) = (CalibrationTable::default(), CalibrationTable::default());
        first.record("model", "x", A);
        first.add_samples(3);
        second.record("model", "x", B);
        second.add_samples(2);
        first.merge(&second);
        assert_eq!(first, whole);
        assert_eq!((whole.samples(), whole.range("model", "x")), (5, Some(A.merge(B))));
        assert_eq!((whole.range("model", "empty"), whole.range("encoder_model", "x")), (None, None));
    }
}
