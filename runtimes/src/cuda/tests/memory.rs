//! The plan of the arena, against an oracle that looks at each step.

use proptest::prelude::*;

use crate::cuda::memory::{ALIGNMENT, Interval, plan};

fn intervals() -> impl Strategy<Value = Vec<Interval>> {
    let one = (0usize..5000, 0usize..40, 0usize..12);
    let one = one.prop_map(|(bytes, first, length)| Interval { bytes, first, last: first + length });
    prop::collection::vec(one, 0..60)
}

proptest! {
    #[test]
    fn buffers_of_one_step_never_overlap(intervals in intervals()) {
        let plan = plan(&intervals);
        let rounded = |bytes: usize| bytes.div_ceil(ALIGNMENT) * ALIGNMENT;
        let mut floor = 0;
        for step in 0..60 {
            let live: Vec<usize> =
                (0..intervals.len()).filter(|&i| (intervals[i].first..=intervals[i].last).contains(&step)).collect();
            floor = floor.max(live.iter().map(|&i| rounded(intervals[i].bytes)).sum());
            for (at, &a) in live.iter().enumerate() {
                for &b in &live[at + 1..] {
                    let [a, b] = [a, b].map(|i| (plan.offsets[i], plan.offsets[i] + intervals[i].bytes));
                    prop_assert!(a.1 <= b.0 || b.1 <= a.0 || a.0 == a.1 || b.0 == b.1);
                }
            }
        }
        for (offset, interval) in plan.offsets.iter().zip(&intervals) {
            prop_assert!(offset % ALIGNMENT == 0 && offset + interval.bytes <= plan.peak || interval.bytes == 0);
        }
        prop_assert_eq!(plan.floor, floor);
        prop_assert_eq!(plan.sum, intervals.iter().map(|i| rounded(i.bytes)).sum::<usize>());
        prop_assert!(plan.floor <= plan.peak && plan.peak <= plan.sum);
    }
}

#[test]
fn layers_share_the_memory_of_their_largest_tensors() {
    // Each layer has a large tensor of its own, and a small one that the next layer takes.
    let layers = (0..12).flat_map(|layer| {
        let (first, last) = (2 * layer, 2 * layer + 1);
        [Interval { bytes: 1 << 20, first, last }, Interval { bytes: 1 << 10, first: last, last: last + 1 }]
    });
    let plan = plan(&layers.collect::<Vec<_>>());
    assert_eq!((plan.peak, plan.floor), ((1 << 20) + (1 << 10), (1 << 20) + (1 << 10)));
    assert_eq!(plan.sum, 12 * ((1 << 20) + (1 << 10)));
}
