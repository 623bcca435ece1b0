//! Relative position buckets of T5 (Raffel et al. 2019, arXiv:1910.10683, section 2.1): near
//! distances between key and query have a bucket each, far ones share buckets whose widths grow
//! with the logarithm of the distance.

use planish_ir::ops::{Binary, BinaryKind, Gather, Iota, Reshape, Slice, Transpose};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};

use crate::ModelError;
use crate::checkpoint::config::{Config, Size};
use crate::layers::builder::Builder;

/// The largest distance that has a place of its own in a table.
const MAX_DISTANCE: usize = 1 << 16;

/// Which bucket a distance is in.
pub(crate) struct Buckets {
    /// The buckets of one side.
    count: usize,
    /// Distances below it have a bucket each.
    exact: usize,
    /// All distances from it on are in the last bucket.
    max_distance: usize,
    /// Whether keys after a query have buckets of their own; all are in the first otherwise.
    both_sides: bool,
}

impl Buckets {
    /// Checks the sizes.
    pub(crate) fn new(
        config: &Config<'_>,
        buckets: Size,
        max_distance: Size,
        both_sides: bool,
    ) -> Result<Self, ModelError> {
        let count = if both_sides { buckets.value / 2 } else { buckets.value };
        let exact = count / 2;
        if exact == 0 || max_distance.value <= exact || max_distance.value > MAX_DISTANCE {
            return Err(config.error(format!(
                "{buckets} and {max_distance} make no buckets: expected at least 4 buckets, and a distance above \
                 {exact} and up to {MAX_DISTANCE}"
            )));
        }
        Ok(Self { count, exact, max_distance: max_distance.value, both_sides })
    }

    /// The bucket of a key `distance` positions from the query on one side.
    fn one_sided(&self, distance: usize) -> usize {
        if distance < self.exact {
            return distance;
        }
        // In 32 bits step by step, as the transformers library computes: borders between buckets
        // depend on it.
        let part =
            (distance as f32 / self.exact as f32).ln() / (self.max_distance as f64 / self.exact as f64).ln() as f32;
        let far = (part * (self.count - self.exact) as f32) as usize;
        (self.exact + far).min(self.count - 1)
    }

    /// The farthest distance to keys after the query that has a place.
    fn after(&self) -> usize {
        if self.both_sides { self.max_distance } else { 0 }
    }

    /// The buckets of keys at the distances `-max_distance ..= after` from the query.
    pub(crate) fn of_distances(&self) -> Weight {
        let before = (0..=self.max_distance).rev().map(|distance| self.one_sided(distance));
        let after = (1..=self.after()).map(|distance| self.count + self.one_sided(distance));
        let buckets: Vec<i64> = before.chain(after).map(|b| i64::try_from(b).unwrap_or(i64::MAX)).collect();
        Weight::integers(&buckets)
    }
}

/// The places of distances in such a table, i64[length, past + length]: `length` queries are at
/// the positions after `past` others, keys at all.
fn relative_positions(
    b: &mut Builder<'_>,
    buckets: &Buckets,
    past: &Dim,
    length: &Dim,
    module: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let keys = past.checked_add(length).unwrap_or_default();
    let key = b.emit(Iota { dtype: DType::I64, length: keys.clone() }, &at("key"))?;
    let query = b.emit(Slice { x: key, axis: 0, start: past.clone(), end: keys }, &at("query"))?;
    let shape = Shape::new([length.clone(), Dim::constant(1)]);
    let query = b.emit(Reshape { x: query, shape }, &at("query.column"))?;
    let distance = b.emit(Binary { kind: BinaryKind::Sub, a: key, b: query }, &at("distance"))?;
    let mut scalar = |name: &str, value: usize| b.graph.add_scalar(&at(name), DType::I64, value as f64);
    let (origin, last) =
        (scalar("origin", buckets.max_distance), scalar("last", buckets.max_distance + buckets.after()));
    let first = scalar("first", 0);
    let place = b.add(distance, origin, &at("place"))?;
    let place = b.emit(Binary { kind: BinaryKind::Max, a: place, b: first }, &at("place.max"))?;
    b.emit(Binary { kind: BinaryKind::Min, a: place, b: last }, &at("place.min"))
}

/// The addend of the scaled scores: [heads, length, past + length]. A weight [buckets, heads] of the module has it for each
/// bucket. It depends on the distance between key and query only, so one table of distances, which is known at compile
/// time, has it all.
pub(crate) fn bias(
    b: &mut Builder<'_>,
    buckets: &Buckets,
    shape: [Size; 2],
    past: &Dim,
    length: &Dim,
    module: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let stored = b.weight(&[&at("weight")], &shape)?;
    let indices = b.graph.add_weight(&at("buckets"), buckets.of_distances(), Origin::Unknown);
    let table = b.emit(Gather { x: stored, indices, axis: 0 }, &at("by_distance"))?;
    let table = b.emit(Transpose { x: table, perm: vec![1, 0] }, &at("by_head"))?;
    let indices = relative_positions(b, buckets, past, length, module)?;
    b.emit(Gather { x: table, indices, axis: 1 }, module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(count: usize, max_distance: usize, both_sides: bool) -> Vec<f64> {
        let count = if both_sides { count / 2 } else { count };
        Buckets { count, exact: count / 2, max_distance, both_sides }.of_distances().read_numbers().unwrap()
    }

    #[test]
    fn near_distances_have_a_bucket_each_and_far_ones_share() {
        // 32 buckets up to a distance of 128 for both sides: 8 exact ones, then borders at 8 * 2^(k / 2).
        let table = buckets(32, 128, true);
        assert_eq!(table.len(), 257);
        let of = |distance: usize| (table[128 - distance], table[128 + distance]);
        for (distance, bucket) in [
            (1, 1.0),
            (7, 7.0),
            (8, 8.0),
            (11, 8.0),
            (12, 9.0),
            (16, 10.0),
            (31, 11.0),
            (32, 12.0),
            (64, 14.0),
            (128, 15.0),
        ] {
            assert_eq!(of(distance), (bucket, 16.0 + bucket), "{distance}");
        }
        assert_eq!(table[128], 0.0);
    }

    #[test]
    fn a_decoder_has_all_buckets_before_the_query() {
        let table = buckets(8, 20, false);
        let far =
            [7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 6.0, 6.0, 6.0, 6.0, 6.0, 5.0, 5.0, 5.0, 4.0, 4.0, 4.0, 3.0, 2.0, 1.0, 0.0];
        assert_eq!(table.len(), far.len());
        assert!(table.is_sorted_by(|a, b| a >= b));
        assert_eq!((table[0], table[16], table[17], table[20]), (7.0, 4.0, 3.0, 0.0));
    }
}
