//! The statistics of an input of linear layers.

use super::{
    ColumnStatistics, Grid, Histogram, LARGEST, Range, RangeMethod, SampledRow, SampledRows, StatisticsError,
    TokenRows, columns,
};

/// What the tokens of the data show of a value that linear layers take as `x`. Rows of padding do not count.
#[derive(Clone, Debug, PartialEq)]
pub struct InputStatistics {
    /// How many rows counted.
    pub tokens: u64,
    /// One for each column.
    pub columns: Vec<ColumnStatistics>,
    /// The elements of all columns.
    pub histogram: Histogram,
    /// A sample of the rows.
    pub rows: SampledRows,
}

impl InputStatistics {
    /// Those of no rows.
    #[must_use]
    pub fn new(columns: usize) -> Self {
        Self {
            tokens: 0,
            columns: vec![ColumnStatistics::EMPTY; columns],
            histogram: Histogram::default(),
            rows: SampledRows::default(),
        }
    }

    /// The extremes of some rows of a sample; nothing else is known.
    #[must_use]
    pub fn of_rows(columns: usize, rows: &[SampledRow]) -> Self {
        let mut all = Self::new(columns);
        for row in rows {
            for (column, x) in all.columns.iter_mut().zip(row.values()) {
                *column = column.merge(ColumnStatistics { min: x, max: x, sum: 0 });
            }
        }
        all
    }

    /// Adds rows.
    ///
    /// # Errors
    /// When the rows have another number of columns, or an element that counts is not finite; nothing is added then.
    pub fn add(&mut self, rows: TokenRows<'_>) -> Result<(), StatisticsError> {
        if rows.columns != self.columns.len() {
            return Err(StatisticsError::Columns { expected: self.columns.len(), found: rows.columns });
        }
        let mut largest = 0f32;
        for (id, row) in rows.kept() {
            // Magnitudes are ordered as their bits are, and NaN lies above all.
            let bits = row.iter().fold(0, |bits: u32, x| bits.max(x.to_bits() & !SIGN));
            if bits > LARGEST.to_bits() {
                let unfit = |x: &f32| x.to_bits() & !SIGN > LARGEST.to_bits();
                let column = row.iter().position(unfit).unwrap_or_default();
                return Err(StatisticsError::NotFinite { value: row[column], column, at: id });
            }
            largest = largest.max(f32::from_bits(bits));
        }
        self.histogram.widen(largest);
        columns::add(&mut self.columns, &mut rows.kept().map(|(_, row)| row));
        for (id, row) in rows.kept() {
            self.tokens += 1;
            self.histogram.add(row);
            self.rows.offer(id, row);
        }
        Ok(())
    }

    /// Adds what other data showed.
    ///
    /// # Errors
    /// When the other has another number of columns; nothing is added then.
    pub fn merge(&mut self, other: &Self) -> Result<(), StatisticsError> {
        if other.columns.len() != self.columns.len() {
            return Err(StatisticsError::Columns { expected: self.columns.len(), found: other.columns.len() });
        }
        self.tokens += other.tokens;
        self.columns.iter_mut().zip(&other.columns).for_each(|(column, other)| *column = column.merge(*other));
        self.histogram.merge(&other.histogram);
        self.rows.merge(&other.rows);
        Ok(())
    }

    /// The extremes over all columns.
    #[must_use]
    pub fn extremes(&self) -> Range {
        self.columns.iter().fold(Range::EMPTY, |range, column| range.merge(column.range()))
    }

    /// The means of the columns.
    #[must_use]
    pub fn means(&self) -> Vec<f64> {
        self.columns.iter().map(|column| column.mean(self.tokens)).collect()
    }

    /// The range that is quantized, by a method: it holds 0, lies within the extremes where they hold 0 and, for a
    /// symmetric grid, has 0 in its middle. Elements beyond it are clipped. [0, 0] where there is no element.
    #[must_use]
    pub fn range(&self, method: RangeMethod, grid: Grid) -> Range {
        method.range(&self.histogram, self.extremes(), grid)
    }
}

/// The bit of the sign.
const SIGN: u32 = 1 << 31;
