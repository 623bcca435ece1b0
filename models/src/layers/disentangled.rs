//! Disentangled attention (He et al. 2020, arXiv:2006.03654, section 3.1): scores have addends of the content of a query and the
//! distance to a key, and of the content of a key and that distance.

use planish_ir::ops::{BinaryKind, Gather, Iota, MatMul};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};

use crate::ModelError;
use crate::checkpoint::config::{Config, Size};
use crate::layers::attention::Heads;
use crate::layers::builder::{Builder, SEQUENCE};

/// The largest distance that has a place of its own in a table.
const MAX_DISTANCE: usize = 1 << 16;

/// Which row of the embeddings a distance has.
#[derive(Clone, Copy)]
pub(crate) struct Distances {
    /// Distances have the rows up to this from the middle one.
    pub(crate) span: usize,
    /// The largest distance that buckets are made for, where far distances share buckets.
    pub(crate) bucketed: Option<usize>,
}

impl Distances {
    /// Checks the sizes: `most` is the largest distance, `buckets` how many of one side there are.
    pub(crate) fn new(config: &Config<'_>, most: Size, buckets: Option<Size>) -> Result<Self, ModelError> {
        let Some(buckets) = buckets else {
            return match most.value <= MAX_DISTANCE {
                true => Ok(Self { span: most.value, bucketed: None }),
                false => Err(config.error(format!("{most} is more than the {MAX_DISTANCE} that are supported"))),
            };
        };
        if buckets.value < 2 || most.value > MAX_DISTANCE || most.value <= buckets.value / 2 + 1 {
            return Err(config.error(format!(
                "{buckets} and {most} make no buckets: expected at least 2 buckets, and a distance of more than half of them \
                 and up to {MAX_DISTANCE}"
            )));
        }
        Ok(Self { span: buckets.value, bucketed: Some(most.value) })
    }

    /// The rows of the embeddings.
    pub(crate) fn rows(self) -> usize {
        2 * self.span
    }

    /// The row of a key that is so many positions before its query.
    fn row(self, distance: i64) -> i64 {
        let span = i64::try_from(self.span).unwrap_or(i64::MAX);
        let bucket = self.bucketed.map_or(distance, |most| bucket(distance, self.span, most));
        (bucket + span).clamp(0, 2 * span - 1)
    }

    /// The rows of the distances from `-end` to `end`, beyond which rows are the first and the last one.
    fn table(self) -> (Vec<i64>, i64) {
        let last = i64::try_from(self.rows()).unwrap_or(i64::MAX) - 1;
        let most = i64::try_from(MAX_DISTANCE).unwrap_or(i64::MAX);
        let end = (1..most).find(|&d| self.row(d) == last && self.row(-d) == 0).unwrap_or(most);
        ((-end..=end).map(|distance| self.row(distance)).collect(), end)
    }

    /// The rows of pairs of tokens: i64[sequence_length, sequence_length], of queries and keys.
    pub(crate) fn of_pairs(self, b: &mut Builder<'_>, module: &str) -> Result<Pairs, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let length = Dim::symbol(SEQUENCE);
        let key = b.emit(Iota { dtype: DType::I64, length: length.clone() }, &at("key"))?;
        let query = b.reshape(key, [length, Dim::constant(1)], &at("query"))?;
        let distance = b.binary(BinaryKind::Sub, [query, key], &at("distance"))?;
        let (rows, end) = self.table();
        // Exact: distances are below 2^53.
        let mut scalar = |name: &str, value: i64| b.graph.add_scalar(&at(name), DType::I64, value as f64);
        let (first, origin, last) = (scalar("first", 0), scalar("origin", end), scalar("last", 2 * end));
        let size = scalar("rows", i64::try_from(self.rows()).unwrap_or(i64::MAX));
        let place = b.add(distance, origin, &at("place"))?;
        let place = b.binary(BinaryKind::Max, [place, first], &at("place.max"))?;
        let indices = b.binary(BinaryKind::Min, [place, last], &at("place.min"))?;
        let table = b.graph.add_weight(&at("by_distance"), Weight::integers(&rows), Origin::Unknown);
        let row = b.emit(Gather { x: table, indices, axis: 0 }, &at("row"))?;
        let mut flat = |token, name: &str| {
            let start = b.binary(BinaryKind::Mul, [token, size], &at(&format!("{name}.start")))?;
            b.add(start, row, &at(name))
        };
        Ok(Pairs { rows: self.rows(), of_queries: flat(query, "of_queries")?, of_keys: flat(key, "of_keys")? })
    }
}

/// The bucket of a distance, in 32 bits step by step, as the transformers library computes: borders depend on it.
fn bucket(distance: i64, buckets: usize, most: usize) -> i64 {
    let middle = i64::try_from(buckets / 2).unwrap_or(i64::MAX);
    let size = distance.abs();
    if size <= middle {
        return distance;
    }
    let part = (size as f32 / middle as f32).ln() / (((most - 1) as f64 / middle as f64) as f32).ln();
    let far = (part * (middle - 1) as f32).ceil() + middle as f32;
    far as i64 * distance.signum()
}

/// Where the scores of pairs of tokens are, in scores of tokens and rows: i64[sequence_length, sequence_length] each.
#[derive(Clone, Copy)]
pub(crate) struct Pairs {
    rows: usize,
    of_queries: ValueId,
    of_keys: ValueId,
}

impl Pairs {
    /// The products of queries, [batch_size, sequence_length, hidden], and what embeddings of distances are as keys, [rows,
    /// hidden], for each pair of tokens: [batch_size, heads, sequence_length, sequence_length].
    pub(crate) fn of_queries(
        self,
        b: &mut Builder<'_>,
        operands: [ValueId; 2],
        heads: Heads,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        self.scores(b, operands, self.of_queries, heads, module)
    }

    /// The same of keys, and of what embeddings are as queries.
    pub(crate) fn of_keys(
        self,
        b: &mut Builder<'_>,
        operands: [ValueId; 2],
        heads: Heads,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        self.scores(b, operands, self.of_keys, heads, module)
    }

    fn scores(
        self,
        b: &mut Builder<'_>,
        [tokens, distances]: [ValueId; 2],
        indices: ValueId,
        heads: Heads,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let (count, size) = (Dim::from(heads.queries.signed()), Dim::from(heads.size.signed()));
        let rows = Dim::from(i64::try_from(self.rows).unwrap_or(i64::MAX));
        let (batch, length) = (b.texts(), Dim::symbol(SEQUENCE));
        let apart = [batch.clone(), length.clone(), count.clone(), size.clone()];
        let tokens = b.reshape(tokens, apart, &at("tokens"))?;
        let tokens = b.transpose(tokens, &[0, 2, 1, 3], &at("tokens.by_head"))?;
        let distances = b.reshape(distances, [rows.clone(), count.clone(), size], &at("distances"))?;
        let distances = b.transpose(distances, &[1, 2, 0], &at("distances.by_head"))?;
        let scores = b.emit(MatMul { a: tokens, b: distances }, &at("scores"))?;
        let flat = length.checked_mul(&rows).unwrap_or_default();
        let scores = b.reshape(scores, [batch, count, flat], &at("flat"))?;
        b.emit(Gather { x: scores, indices, axis: 2 }, module)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_distances_have_a_row_each_and_far_ones_share() {
        let distances = Distances { span: 8, bucketed: Some(32) };
        let row = |distance| distances.row(distance);
        assert_eq!([-4, -1, 0, 1, 4].map(row), [4, 7, 8, 9, 12]);
        // Borders at 4 * (31 / 4)^(k / 3).
        assert_eq!([5, 7, 8, 15, 16, 31, 99].map(row), [13, 13, 14, 14, 15, 15, 15]);
        assert_eq!([-7, -8, -31, -32, -99].map(row), [3, 2, 1, 0, 0]);
        let (table, end) = distances.table();
        assert_eq!((table.len(), end, table[0], table[64]), (65, 32, 0, 15));
    }

    #[test]
    fn without_buckets_all_beyond_the_span_share_a_row() {
        let (table, end) = Distances { span: 3, bucketed: None }.table();
        assert_eq!((table, end), (vec![0, 1, 2, 3, 4, 5, 5], 3));
    }
}
