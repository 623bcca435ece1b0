//! The memory that the arena of ONNX Runtime has touched after the first run.
//!
//! The arena takes regions from the system, the first one of 1 MiB and each further one twice as large, and hands out pieces
//! of them in multiples of 256 bytes: the smallest free piece that is large enough, which it divides where that leaves as much
//! again. Pieces are free after the last node that reads them, and become one with free neighbours. The system counts the
//! pages that were touched.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use planish_ir::{Bindings, Graph, Op, ValueId};
use planish_runtimes::cuda::{PlannedBuffer, plan_nodes};

/// Sizes of pieces are multiples of this.
const GRAIN: usize = 256;
/// The size of the first region.
const FIRST: usize = 1 << 20;
/// Regions double up to this size.
const DOUBLED: usize = 1 << 30;
/// A piece that is larger than asked for by so much is divided, whatever is left.
const SPARE: usize = 128 << 20;

/// The bytes of the arena after a run of a graph, where the symbols of the inputs stand for the sizes in `bindings`.
///
/// # Errors
/// When a size has no value.
pub(super) fn touched(graph: &Graph, bindings: &Bindings) -> Result<u64, String> {
    let plan = plan_nodes(graph, bindings)?;
    let constants = constants(graph);
    let mut buffers = plan.buffers;
    buffers.retain(|buffer| !constants.contains(buffer.name.as_str()));
    // A reshape that gives an output copies; the others give what they were given.
    let given: HashSet<ValueId> = graph.outputs().iter().map(|output| output.value).collect();
    let copies = graph.needed_nodes().into_iter().enumerate().filter(|(_, id)| {
        let node = graph.node(*id);
        let gives_output = node.outputs.iter().any(|value| given.contains(value));
        matches!(node.op, Op::Reshape(_)) && gives_output
    });
    for (first, id) in copies {
        for &value in &graph.node(id).outputs {
            let bytes = super::cost::bytes(graph, value, bindings).and_then(|bytes| usize::try_from(bytes).ok());
            let name = graph.value(value).name.clone();
            let bytes = bytes.ok_or_else(|| format!("the size of `{name}` is not known"))?;
            buffers.push(PlannedBuffer { name, bytes, first, last: plan.steps, offset: 0 });
        }
    }
    Ok(run(&buffers, plan.steps) as u64)
}

/// The names of results that depend on no input: ONNX Runtime computes them when it loads the graph.
fn constants(graph: &Graph) -> HashSet<&str> {
    let mut known: HashSet<ValueId> = HashSet::new();
    for id in graph.needed_nodes() {
        let node = graph.node(id);
        let operands = node.op.operands();
        let is_constant = |value: &ValueId| graph.weight(*value).is_some() || known.contains(value);
        if !operands.is_empty() && operands.iter().all(is_constant) {
            known.extend(&node.outputs);
        }
    }
    known.into_iter().map(|value| graph.value(value).name.as_str()).collect()
}

fn run(buffers: &[PlannedBuffer], steps: usize) -> usize {
    let (mut arena, mut held) = (Arena::default(), HashMap::new());
    let [mut begins, mut ends] = [vec![Vec::new(); steps], vec![Vec::new(); steps]];
    for (at, buffer) in buffers.iter().enumerate() {
        if let Some(begun) = begins.get_mut(buffer.first) {
            begun.push(at);
        }
        if let Some(ended) = ends.get_mut(buffer.last) {
            ended.push(at);
        }
    }
    for (begun, ended) in begins.iter().zip(&ends) {
        for &at in begun {
            held.insert(at, arena.take(buffers[at].bytes));
        }
        for at in ended {
            if let Some(place) = held.remove(at) {
                arena.give_back(place);
            }
        }
    }
    arena.regions.iter().map(|region| region.touched).sum()
}

/// Where a piece lies: the region, and the bytes in front of it.
type Place = (usize, usize);

#[derive(Default)]
struct Arena {
    regions: Vec<Region>,
    /// The free pieces by size.
    free: BTreeSet<(usize, Place)>,
    /// The size of the next region, where it has one.
    next: Option<usize>,
}

#[derive(Default)]
struct Region {
    /// The size of each piece by the bytes in front of it, and whether it is free.
    pieces: BTreeMap<usize, (usize, bool)>,
    /// The end of what was ever handed out.
    touched: usize,
}

impl Arena {
    fn take(&mut self, bytes: usize) -> Place {
        let bytes = bytes.max(1).next_multiple_of(GRAIN);
        let found = self.free.range((bytes, (0, 0))..).next().copied();
        let (size, place) = found.unwrap_or_else(|| self.grow(bytes));
        self.free.remove(&(size, place));
        let (region, at) = place;
        let divided = size / 2 >= bytes || size - bytes >= SPARE;
        let taken = if divided { bytes } else { size };
        let of = &mut self.regions[region];
        of.pieces.insert(at, (taken, false));
        of.touched = of.touched.max(at + bytes);
        if divided {
            of.pieces.insert(at + taken, (size - taken, true));
            self.free.insert((size - taken, (region, at + taken)));
        }
        place
    }

    fn grow(&mut self, bytes: usize) -> (usize, Place) {
        let mut size = self.next.unwrap_or(FIRST);
        let doubles = bytes <= size;
        while bytes > size {
            size = size.saturating_mul(2);
        }
        self.next = Some(if doubles && size < DOUBLED { size * 2 } else { size });
        self.regions.push(Region { pieces: BTreeMap::from([(0, (size, true))]), touched: 0 });
        (size, (self.regions.len() - 1, 0))
    }

    fn give_back(&mut self, (region, mut at): Place) {
        let pieces = &mut self.regions[region].pieces;
        let Some((mut size, _)) = pieces.remove(&at) else { return };
        if let Some((next, true)) = pieces.get(&(at + size)).copied() {
            pieces.remove(&(at + size));
            self.free.remove(&(next, (region, at + size)));
            size += next;
        }
        if let Some((&before, &(own, true))) = pieces.range(..at).next_back() {
            self.free.remove(&(own, (region, before)));
            (at, size) = (before, size + own);
        }
        pieces.insert(at, (size, true));
        self.free.insert((size, (region, at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    fn buffers(all: &[(usize, usize, usize)]) -> Vec<PlannedBuffer> {
        let one = |&(bytes, first, last): &_| PlannedBuffer { name: String::new(), bytes, first, last, offset: 0 };
        all.iter().map(one).collect()
    }

    #[test]
    fn what_is_free_is_taken_again_and_small_pieces_are_rounded_up() {
        assert_eq!(run(&buffers(&[(1, 0, 0), (300, 1, 1), (256, 2, 2)]), 3), 512);
        assert_eq!(run(&buffers(&[(1, 0, 2), (300, 1, 2), (256, 2, 2)]), 3), 256 + 512 + 256);
    }

    #[test]
    fn a_region_that_is_too_small_is_followed_by_a_larger_one() {
        // 1 MiB, then 4 MiB for what needs 3, then 4 MiB again: the size doubles only where it need not grow.
        let mut arena = Arena::default();
        for bytes in [MB, 3 * MB, 4 * MB, MB] {
            arena.take(bytes);
        }
        let sizes: Vec<usize> = arena.regions.iter().map(|of| of.pieces.values().map(|piece| piece.0).sum()).collect();
        assert_eq!(sizes, [MB, 4 * MB, 4 * MB, 8 * MB]);
        assert_eq!(arena.regions.iter().map(|of| of.touched).sum::<usize>(), 9 * MB);
    }

    #[test]
    fn free_neighbours_become_one() {
        let mut arena = Arena::default();
        let places: Vec<Place> = (0..4).map(|_| arena.take(MB / 4)).collect();
        for at in [0, 2, 1] {
            arena.give_back(places[at]);
        }
        assert_eq!(arena.take(3 * MB / 4), (0, 0));
        assert_eq!(arena.regions.len(), 1);
    }
}
