//! The plan of one arena: where each buffer of a run lies, so that buffers that are never needed at the same time share
//! memory.
//!
//! Addresses are fixed before the run, so a recorded CUDA graph can be replayed. LightSeq plans its memory likewise (Wang
//! et al. 2021, arXiv:2010.13887): layers share the memory of their largest tensors.

/// The multiple that offsets and sizes are rounded up to: what `cudaMalloc` aligns to.
pub const ALIGNMENT: usize = 256;

/// A buffer and when it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// How many bytes it has.
    pub bytes: usize,
    /// The first step that needs it.
    pub first: usize,
    /// The last step that needs it, `first` or a later one.
    pub last: usize,
}

impl Interval {
    /// Whether there is a step that needs both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Where buffers lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The offset of each buffer in the arena, in bytes: multiples of [`ALIGNMENT`].
    pub offsets: Vec<usize>,
    /// The bytes of the arena.
    pub peak: usize,
    /// The bytes of all buffers, if each had memory of its own.
    pub sum: usize,
    /// The most bytes that buffers need in one step: no plan has a smaller arena.
    pub floor: usize,
}

/// Rounds up to [`ALIGNMENT`].
fn aligned(bytes: usize) -> usize {
    bytes.saturating_add(ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT
}

/// Plans an arena. The largest buffers are placed first, each at the smallest gap between the buffers that are needed at
/// the same time and that fits it (greedy by size, best fit; Pisarchyk and Lee 2020, arXiv:2001.03288). Buffers of 0 bytes
/// lie at 0.
#[must_use]
pub fn plan(intervals: &[Interval]) -> MemoryPlan {
    let mut order: Vec<usize> = (0..intervals.len()).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(intervals[at].bytes), intervals[at].first, at));
    let mut offsets = vec![0; intervals.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut peak = 0;
    for at in order {
        let bytes = aligned(intervals[at].bytes);
        if bytes == 0 {
            continue;
        }
        let mut taken: Vec<(usize, usize)> = placed
            .iter()
            .filter(|&&other| intervals[other].overlaps(&intervals[at]))
            .map(|&other| (offsets[other], offsets[other] + aligned(intervals[other].bytes)))
            .collect();
        taken.sort_unstable();
        offsets[at] = best_gap(&taken, bytes);
        peak = peak.max(offsets[at] + bytes);
        placed.push(at);
    }
    let sum = intervals.iter().map(|interval| aligned(interval.bytes)).sum();
    MemoryPlan { offsets, peak, sum, floor: floor(intervals) }
}

/// The start of the smallest gap between ranges, in ascending order, that has room for `bytes`; the end of the ranges
/// where none has.
fn best_gap(taken: &[(usize, usize)], bytes: usize) -> usize {
    let (mut end, mut best) = (0, None);
    for &(start, stop) in taken {
        let gap = start.saturating_sub(end);
        if gap >= bytes && best.is_none_or(|(size, _)| gap < size) {
            best = Some((gap, end));
        }
        end = end.max(stop);
    }
    best.map_or(end, |(_, start)| start)
}

/// The most bytes that are needed in one step. It rises only where an interval begins.
fn floor(intervals: &[Interval]) -> usize {
    let mut changes: Vec<(usize, bool, usize)> = Vec::with_capacity(2 * intervals.len());
    for interval in intervals {
        changes.push((interval.first, true, aligned(interval.bytes)));
        changes.push((interval.last + 1, false, aligned(interval.bytes)));
    }
    // Ends come before begins of the same step.
    changes.sort_unstable();
    let (mut held, mut most) = (0, 0);
    for (_, begins, bytes) in changes {
        held = if begins { held + bytes } else { held - bytes };
        most = most.max(held);
    }
    most
}
