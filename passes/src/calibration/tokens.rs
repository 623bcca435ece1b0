//! The rows of an input that one run gave.

use super::RowId;

/// The rows of an input in one run, [rows, columns], and which of them count.
#[derive(Clone, Copy, Debug)]
pub struct TokenRows<'a> {
    /// The elements, row-major.
    pub elements: &'a [f32],
    /// How many columns a row has.
    pub columns: usize,
    /// For each row which one it is; `None` for padding.
    pub ids: &'a [Option<RowId>],
}

impl<'a> TokenRows<'a> {
    /// The rows that count, with what they are.
    pub fn kept(&self) -> impl Iterator<Item = (RowId, &'a [f32])> {
        let rows = self.elements.chunks_exact(self.columns.max(1));
        self.ids.iter().zip(rows).filter_map(|(id, row)| Some(((*id)?, row)))
    }
}
