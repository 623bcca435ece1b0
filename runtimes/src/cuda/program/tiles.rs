//! The tiles of attention that never stores its scores.

use super::Target;

/// The tile of the kernels that never store scores: the queries of a block, and the keys that it takes at once.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) rows: usize,
    pub(super) keys: usize,
}

impl Tile {
    /// The tiles for heads of a size: for many queries, for few, and for little shared memory. Their kernels spill no
    /// registers on devices where they are taken (`make cuda-compile`).
    pub(super) fn all(is_float32: bool, head: usize) -> [Self; 3] {
        let tiles = match (is_float32, head) {
            (true, ..=128) => [(64, 32), (32, 32), (32, 32)],
            (true, _) => [(32, 32); 3],
            (false, ..=64) => [(128, 64), (64, 64), (64, 32)],
            (false, ..=128) => [(128, 32), (64, 64), (64, 32)],
            (false, _) => [(64, 32); 3],
        };
        tiles.map(|(rows, keys)| Self { rows, keys })
    }

    /// The tile for many queries or for few; a smaller one where a multiprocessor holds two blocks of that alone.
    pub(super) fn held(is_float32: bool, size: usize, value_size: usize, is_large: bool, target: &Target) -> Self {
        let all = Self::all(is_float32, size.max(value_size));
        let wanted = &all[usize::from(!is_large)..];
        let [head, value_head] = [size, value_size].map(|size| size.next_multiple_of(16));
        let two = wanted.iter().find(|tile| target.holds_two(tile.shared(is_float32, head, value_head)));
        *two.unwrap_or(&wanted[0])
    }

    /// The bytes of dynamic shared memory: the formulas are in the files of the kernels.
    pub(super) fn shared(self, is_float32: bool, head: usize, value_head: usize) -> usize {
        let Self { rows, keys } = self;
        match is_float32 {
            true => 4 * ((rows + keys) * (head + 4) + keys * value_head.next_multiple_of(32) + rows * (keys + 8)),
            false => {
                let (stage, queries) = (2 * keys * (head + value_head), 2 * rows * head);
                let tiles = match rows / 64 * head <= 128 {
                    true => stage + stage.max(queries),
                    false => 2 * stage + queries,
                };
                tiles.max(2 * rows * value_head).max(4 * value_head)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::program::Style;

    fn tiles(architecture: &str, size: usize) -> [(usize, usize, usize); 2] {
        let target = Target::of_architecture(Style::Fused, architecture);
        [true, false].map(|is_large| {
            let tile = Tile::held(false, size, size, is_large, &target);
            (tile.rows, tile.keys, target.multiprocessor_shared_memory / (tile.shared(false, size, size) + 1024))
        })
    }

    #[test]
    fn two_blocks_of_attention_fit_a_multiprocessor() {
        for architecture in ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"] {
            for size in [64, 128] {
                for (rows, keys, blocks) in tiles(architecture, size) {
                    assert!(blocks >= 2, "{architecture}, {size} features: {blocks} blocks of {rows} x {keys}");
                }
            }
        }
        assert_eq!(tiles("sm_80", 128), [(128, 32, 2), (64, 64, 2)]);
        assert_eq!(tiles("sm_89", 128), [(64, 32, 3), (64, 32, 3)]);
        assert_eq!(tiles("sm_120", 64), [(128, 64, 3), (64, 64, 3)]);
        // No tile of such heads leaves room for a second block.
        assert_eq!(tiles("sm_86", 256), [(64, 32, 1); 2]);
    }
}
