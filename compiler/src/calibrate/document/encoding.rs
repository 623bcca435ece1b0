//! Statistics as texts in JSON.
//!
//! A table has hundreds of thousands of numbers, and JSON takes up to 20 bytes for each. So columns, bins and rows are
//! bytes in base64: floats in little-endian order, and integers in LEB128, signed ones zigzag-encoded.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use planish_passes::calibration::{
    BINS, ColumnStatistics, Histogram, HistogramParts, ROWS, RowId, SampledRow, SampledRows,
};
use planish_passes::{InputStatistics, Range};
use serde::{Deserialize, Serialize};

/// A range. JSON has no infinities: they are texts.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Extremes {
    #[serde(with = "number")]
    min: f64,
    #[serde(with = "number")]
    max: f64,
}

impl From<Range> for Extremes {
    fn from(Range { min, max }: Range) -> Self {
        Self { min, max }
    }
}

impl Extremes {
    /// The range, if it is one.
    pub(super) fn range(self) -> Option<Range> {
        (self.min <= self.max).then_some(Range { min: self.min, max: self.max })
    }
}

/// The statistics of an input of linear layers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Encoded {
    /// How many rows counted.
    tokens: u64,
    columns: usize,
    /// The least element of each column, float32.
    minima: String,
    /// The largest element of each column, float32.
    maxima: String,
    /// The sums of the columns in multiples of 2^-24, signed integers.
    sums: String,
    /// The histogram's limit is 2 to this power.
    exponent: i16,
    /// The counts of the bins, integers.
    histogram: String,
    /// Rows: the sample and the token, integers; the exponent, a signed integer; then a float16 for each column.
    rows: String,
}

impl Encoded {
    pub(super) fn of(statistics: &InputStatistics) -> Self {
        let columns = &statistics.columns;
        let floats = |number: fn(&ColumnStatistics) -> f32| {
            STANDARD.encode(columns.iter().flat_map(|column| number(column).to_le_bytes()).collect::<Vec<u8>>())
        };
        let mut sums = Vec::new();
        columns.iter().for_each(|column| put(&mut sums, zigzag(column.sum)));
        let HistogramParts { exponent, counts } = statistics.histogram.to_parts();
        let mut histogram = Vec::new();
        counts.iter().for_each(|count| put(&mut histogram, (*count).into()));
        let mut rows = Vec::new();
        for row in statistics.rows.rows() {
            put(&mut rows, row.id.sample.into());
            put(&mut rows, row.id.token.into());
            put(&mut rows, zigzag(row.exponent.into()));
            rows.extend(row.halves.iter().flat_map(|half| half.to_le_bytes()));
        }
        Self {
            tokens: statistics.tokens,
            columns: columns.len(),
            minima: floats(|column| column.min),
            maxima: floats(|column| column.max),
            sums: STANDARD.encode(sums),
            exponent,
            histogram: STANDARD.encode(histogram),
            rows: STANDARD.encode(rows),
        }
    }

    /// The statistics, if they are those of some data.
    pub(super) fn statistics(&self) -> Option<InputStatistics> {
        let (minima, maxima) = (self.floats(&self.minima)?, self.floats(&self.maxima)?);
        let sums = STANDARD.decode(&self.sums).ok()?;
        let mut sums = sums.as_slice();
        let mut columns = Vec::with_capacity(minima.len());
        for (min, max) in minima.into_iter().zip(maxima) {
            let valid = if self.tokens == 0 { min > max } else { min <= max };
            let sum = unzigzag(take(&mut sums)?);
            columns.push(valid.then_some(ColumnStatistics { min, max, sum })?);
        }
        let histogram = STANDARD.decode(&self.histogram).ok()?;
        let mut bins = histogram.as_slice();
        let counts = (0..BINS).map(|_| take(&mut bins)?.try_into().ok()).collect::<Option<Vec<u64>>>()?;
        let elements = counts.iter().try_fold(0u64, |sum, count| sum.checked_add(*count))?;
        let histogram = Histogram::from_parts(HistogramParts { exponent: self.exponent, counts })?;
        let rows = self.rows()?;
        let expected = self.tokens.checked_mul(u64::try_from(self.columns).ok()?)?;
        let complete = sums.is_empty() && bins.is_empty() && elements == expected;
        let sampled = rows.len() as u64 == self.tokens.min(ROWS as u64);
        (complete && sampled).then_some(InputStatistics { tokens: self.tokens, columns, histogram, rows })
    }

    fn floats(&self, text: &str) -> Option<Vec<f32>> {
        let bytes = STANDARD.decode(text).ok()?;
        let (floats, rest) = bytes.as_chunks::<4>();
        let fits = rest.is_empty() && floats.len() == self.columns;
        fits.then(|| floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    fn rows(&self) -> Option<SampledRows> {
        let bytes = STANDARD.decode(&self.rows).ok()?;
        let (mut bytes, mut rows) = (bytes.as_slice(), Vec::new());
        while !bytes.is_empty() {
            let (sample, token) = (take(&mut bytes)?.try_into().ok()?, take(&mut bytes)?.try_into().ok()?);
            let exponent = unzigzag(take(&mut bytes)?).try_into().ok()?;
            let (halves, rest) = bytes.split_at_checked(self.columns.checked_mul(2)?)?;
            bytes = rest;
            let halves = halves.as_chunks::<2>().0.iter().map(|half| u16::from_le_bytes(*half)).collect();
            rows.push(SampledRow { id: RowId { sample, token }, exponent, halves });
        }
        Some(SampledRows::new(rows))
    }
}

/// A signed integer as one that is small where its magnitude is.
fn zigzag(x: i128) -> u128 {
    ((x << 1) ^ (x >> 127)).cast_unsigned()
}

fn unzigzag(x: u128) -> i128 {
    (x >> 1).cast_signed() ^ -(x & 1).cast_signed()
}

/// Appends an integer in LEB128: seven bits a byte, the lowest first; the highest bit says that more follow.
fn put(bytes: &mut Vec<u8>, mut x: u128) {
    while x >= 0x80 {
        bytes.push(x as u8 | 0x80);
        x >>= 7;
    }
    bytes.push(x as u8);
}

/// Takes an integer off the beginning.
fn take(bytes: &mut &[u8]) -> Option<u128> {
    let mut x = 0u128;
    for shift in (0..128).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        x |= u128::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(x);
        }
    }
    None
}

/// Numbers that may be infinite.
mod number {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Finite(f64),
        Text(String),
    }

    pub(super) fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        match number.is_finite() {
            true => serializer.serialize_f64(*number),
            false => serializer.serialize_str(&number.to_string()),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match Number::deserialize(deserializer)? {
            Number::Finite(number) => Ok(number),
            Number::Text(text) if text == "inf" => Ok(f64::INFINITY),
            Number::Text(text) if text == "-inf" => Ok(f64::NEG_INFINITY),
            Number::Text(text) => Err(D::Error::custom(format!("`{text}` is not a number"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use planish_passes::calibration::TokenRows;

    use super::*;

    #[test]
    fn infinities_are_texts() {
        let range = Extremes { min: f64::NEG_INFINITY, max: 0.5 };
        let text = serde_json::to_string(&range).unwrap();
        assert_eq!(text, r#"{"min":"-inf","max":0.5}"#);
        let read: Extremes = serde_json::from_str(&text).unwrap();
        assert_eq!((read.min, read.max), (range.min, range.max));
        assert!(serde_json::from_str::<Extremes>(r#"{"min":"nan","max":0}"#).is_err());
    }

    #[test]
    fn numbers_are_what_they_were() {
        for max in [1.8740946054458618, 10.630678176879883, 30.293800354003906, 2.9351413249969482, 1e-45, 3e38] {
            let text = serde_json::to_string(&Extremes { min: -max, max }).unwrap();
            let read: Extremes = serde_json::from_str(&text).unwrap();
            assert_eq!((read.min, read.max), (-max, max), "{text}");
        }
    }

    #[test]
    fn integers_are_what_they_were() {
        for x in [0, 1, -1, 63, -64, 64, 1 << 40, -(1 << 70), i128::MAX, i128::MIN] {
            let mut bytes = Vec::new();
            put(&mut bytes, zigzag(x));
            let mut rest = bytes.as_slice();
            assert_eq!((take(&mut rest).map(unzigzag), rest.len()), (Some(x), 0));
        }
        assert_eq!(take(&mut &[0x80u8, 0x80][..]), None);
    }

    fn some() -> InputStatistics {
        let mut statistics = InputStatistics::new(3);
        let elements: Vec<f32> = (0..600).map(|i| (i as f32 - 300.0) * 1e3 * 0.37f32.powi(i % 9)).collect();
        let ids: Vec<_> = (0..200).map(|i| (i % 7 != 0).then_some(RowId { sample: i / 9, token: i % 9 })).collect();
        statistics.add(TokenRows { elements: &elements, columns: 3, ids: &ids }).unwrap();
        statistics
    }

    #[test]
    fn statistics_are_what_they_were() {
        for statistics in [some(), InputStatistics::new(4)] {
            let text = serde_json::to_string(&Encoded::of(&statistics)).unwrap();
            let read: Encoded = serde_json::from_str(&text).unwrap();
            assert_eq!(read.statistics(), Some(statistics));
        }
    }

    #[test]
    fn what_no_data_gives_is_refused() {
        let refused = |change: fn(&mut Encoded)| {
            let mut encoded = Encoded::of(&some());
            change(&mut encoded);
            encoded.statistics().is_none()
        };
        assert!(refused(|e| e.tokens += 1));
        assert!(refused(|e| e.columns += 1));
        assert!(refused(|e| e.columns = usize::MAX));
        assert!(refused(|e| e.exponent = 200));
        assert!(refused(|e| e.minima = "?".to_owned()));
        assert!(refused(|e| std::mem::swap(&mut e.minima, &mut e.maxima)));
        assert!(refused(|e| e.sums.truncate(8)));
        assert!(refused(|e| e.histogram.truncate(400)));
        assert!(refused(|e| e.rows.truncate(400)));
    }
}
