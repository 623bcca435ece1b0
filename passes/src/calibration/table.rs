//! All that calibration measured of a model.

use std::collections::BTreeMap;

use super::{InputStatistics, Range, StatisticsError};

/// By the name that a value has in the canonical graph of its part.
type ByValue<T> = BTreeMap<String, T>;

/// What data shows of a model's values: by the part of the model, and the name that a value has in
/// the canonical graph of that part. The scaled scores of an attention are under `RESULT/scores`,
/// see [`OBSERVE`](crate::observe::OBSERVE).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CalibrationTable {
    samples: usize,
    parts: BTreeMap<String, ByValue<Range>>,
    inputs: BTreeMap<String, ByValue<InputStatistics>>,
    experts: BTreeMap<String, ByValue<Vec<u64>>>,
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

    /// Adds the statistics of an input of linear layers.
    ///
    /// # Errors
    /// When the input is known with another number of columns.
    pub fn record_input(
        &mut self,
        part: &str,
        value: &str,
        statistics: InputStatistics,
    ) -> Result<(), StatisticsError> {
        let values = self.inputs.entry(part.to_owned()).or_default();
        match values.get_mut(value) {
            Some(known) => known.merge(&statistics),
            None => {
                values.insert(value.to_owned(), statistics);
                Ok(())
            }
        }
    }

    /// Adds how often tokens took each expert of a mixture, by the name of its result.
    ///
    /// # Errors
    /// When the mixture is known with another number of experts.
    pub fn record_choices(&mut self, part: &str, result: &str, counts: &[u64]) -> Result<(), StatisticsError> {
        let known = self.experts.entry(part.to_owned()).or_default().entry(result.to_owned()).or_default();
        if known.is_empty() {
            known.resize(counts.len(), 0);
        }
        if known.len() != counts.len() {
            return Err(StatisticsError::Experts { expected: known.len(), found: counts.len() });
        }
        known.iter_mut().zip(counts).for_each(|(known, count)| *known = known.saturating_add(*count));
        Ok(())
    }

    /// Adds what other samples showed.
    ///
    /// # Errors
    /// When an input has another number of columns in the other table, or a mixture another number of experts: they are of
    /// different models.
    pub fn merge(&mut self, other: &Self) -> Result<(), StatisticsError> {
        self.samples += other.samples;
        for (part, values) in &other.parts {
            for (value, range) in values {
                self.record(part, value, *range);
            }
        }
        for (part, values) in &other.inputs {
            for (value, statistics) in values {
                self.record_input(part, value, statistics.clone())?;
            }
        }
        for (part, results) in &other.experts {
            for (result, counts) in results {
                self.record_choices(part, result, counts)?;
            }
        }
        Ok(())
    }

    /// The range of a value, if it was seen.
    #[must_use]
    pub fn range(&self, part: &str, value: &str) -> Option<Range> {
        self.part(part)?.get(value).copied()
    }

    /// The ranges of a part's values, by their names.
    #[must_use]
    pub fn part(&self, part: &str) -> Option<&ByValue<Range>> {
        self.parts.get(part)
    }

    /// The parts by their names, each with the ranges of its values.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &ByValue<Range>)> {
        self.parts.iter().map(|(name, values)| (name.as_str(), values))
    }

    /// The statistics of an input of linear layers, if it was seen.
    #[must_use]
    pub fn input(&self, part: &str, value: &str) -> Option<&InputStatistics> {
        self.inputs.get(part)?.get(value)
    }

    /// The parts by their names, each with the statistics of the inputs of its linear layers.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, &ByValue<InputStatistics>)> {
        self.inputs.iter().map(|(name, values)| (name.as_str(), values))
    }

    /// The parts by their names, each with how often tokens took each expert of its mixtures, by the names of their results.
    pub fn experts(&self) -> impl Iterator<Item = (&str, &ByValue<Vec<u64>>)> {
        self.experts.iter().map(|(name, results)| (name.as_str(), results))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Range = Range { min: -3.0, max: 1.0 };
    const B: Range = Range { min: 0.5, max: 2.0 };

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
        first.merge(&second).unwrap();
        assert_eq!(first, whole);
        assert_eq!((whole.samples(), whole.range("model", "x")), (5, Some(A.merge(B))));
        assert_eq!((whole.range("model", "empty"), whole.range("encoder_model", "x")), (None, None));
    }

    #[test]
    fn inputs_of_other_widths_do_not_merge() {
        let with = |columns| {
            let mut table = CalibrationTable::default();
            table.record_input("model", "x", InputStatistics::new(columns)).unwrap();
            table
        };
        let error = with(3).merge(&with(4)).unwrap_err();
        assert_eq!(error, StatisticsError::Columns { expected: 3, found: 4 });
        assert_eq!(with(3).input("model", "x").unwrap().columns.len(), 3);
        assert_eq!((with(3).input("model", "y"), with(3).inputs().count()), (None, 1));
    }

    #[test]
    fn choices_of_experts_add_up() {
        let with = |counts: &[u64]| {
            let mut table = CalibrationTable::default();
            table.record_choices("model", "y", counts).unwrap();
            table
        };
        let mut both = with(&[1, 0, 2]);
        both.merge(&with(&[0, 0, 5])).unwrap();
        assert_eq!(both, with(&[1, 0, 7]));
        let error = both.merge(&with(&[1, 1])).unwrap_err();
        assert_eq!(error, StatisticsError::Experts { expected: 3, found: 2 });
    }
}
