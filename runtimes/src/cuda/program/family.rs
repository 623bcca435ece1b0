//! One program for all lengths of a cache: what a step launches then never changes, and a recording of it serves them all.
//!
//! A step adds keys and values to a cache that has room for more. Programs for several lengths are compared. Their steps,
//! kernels and places have to agree; buffers are those of the largest length, and grids have as many blocks as any length
//! needs. Arguments that differ have to be linear in the length. The kernels that take such arguments read all of theirs
//! from memory, where the host writes them before each run.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use planish_ir::{Bindings, Graph, Symbol};

use super::{Argument, Base, Caches, Launch, Output, Place, Program, Step, Target};
use crate::cuda::device::Grid;
use crate::cuda::source::{ELEMENTWISE, GATHER, REDUCE, ROTARY, SCAN, Source};

/// The fewest keys in front of a step: those of fewer have programs of their own.
pub(crate) const FEWEST: usize = 2;

/// A program for all lengths of a range.
#[derive(Debug)]
pub(crate) struct Family {
    /// The program of the largest length. Where arguments depend on the length, a launch has one argument: the place of
    /// its words among [`Base::Words`].
    pub(crate) program: Program,
    pub(crate) words: Vec<Word>,
    /// The keys in front of a step.
    pub(crate) lengths: RangeInclusive<usize>,
}

/// A word of the arguments of launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// The memory whose address is added to the number.
    pub(crate) base: Option<Base>,
    /// The number at the largest length.
    pub(crate) number: u64,
    /// What it has less, modulo 2^64, for each key less.
    pub(crate) slope: u64,
}

impl Word {
    /// The number for so many keys less than the most.
    pub(crate) fn at(&self, start: u64, less: usize) -> u64 {
        start.wrapping_add(self.number).wrapping_sub(self.slope.wrapping_mul(less as u64))
    }
}

/// What a graph is planned for, but for the length of its caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The symbols of the graph, that of the length aside.
    pub(crate) bindings: Bindings,
    /// The keys in the caches.
    pub(crate) length: Symbol,
    /// How the caches lie in memory.
    pub(crate) caches: Caches,
    /// The tokens that a step adds.
    pub(crate) added: usize,
}

impl Shape {
    /// The keys that a cache has room for.
    pub(crate) fn capacity(&self) -> usize {
        self.caches.room.iter().flatten().map(|room| room.capacity).min().unwrap_or(0)
    }

    /// All symbols, for so many keys.
    pub(crate) fn bindings(&self, length: usize) -> Bindings {
        let mut bindings = self.bindings.clone();
        bindings.insert(self.length.clone(), i64::try_from(length).unwrap_or(i64::MAX));
        bindings
    }
}

/// How many keys a run adds to the caches that have `keys` of them, by the outputs that continue these.
pub(crate) fn added(graph: &Graph, bindings: &Bindings, length: &Symbol, keys: usize) -> Option<usize> {
    let with = |keys: usize| {
        let mut bindings = bindings.clone();
        bindings.insert(length.clone(), i64::try_from(keys).unwrap_or(i64::MAX));
        bindings
    };
    let [now, next] = [with(keys), with(keys + 1)];
    let of = |output: &planish_ir::Output| {
        let shape = &graph.ty(output.value).shape;
        let dim = shape.get(2).filter(|_| shape.rank() == 4)?;
        let size = dim.evaluate(&now).filter(|size| dim.evaluate(&next) == Some(size + 1))?;
        usize::try_from(size).ok()?.checked_sub(keys).filter(|added| *added > 0)
    };
    graph.outputs().iter().find_map(of)
}

impl Family {
    /// The programs that are compared.
    pub(crate) const PLANS: usize = 4;

    /// The program of a graph for all lengths from `smallest` to what the caches have room for.
    ///
    /// # Errors
    /// What depends on the length in another way, or why the graph cannot be planned.
    pub(crate) fn of(graph: &Graph, shape: &Shape, target: Target, smallest: usize) -> Result<Self, String> {
        let largest = shape.capacity().checked_sub(shape.added).filter(|largest| *largest >= smallest + 3);
        let largest = largest.ok_or("there is no room for several steps")?;
        let caches = Caches { by_capacity: true, ..shape.caches.clone() };
        let plan = |length: usize| Program::new(graph, &shape.bindings(length), target, &caches);
        // The largest first, then the smallest, from which the slopes are; the others confirm that.
        let lengths: [usize; Self::PLANS] = [largest, smallest, smallest.midpoint(largest), largest - 1];
        let plans = lengths.map(plan).into_iter().collect::<Result<Vec<_>, _>>()?;
        family(plans, &lengths)
    }

    /// How many of all launches take arguments from memory.
    pub(crate) fn stored_launches(&self) -> (usize, usize) {
        let is_stored =
            |launch: &&Launch| matches!(launch.arguments[..], [Argument::At(place)] if place.base == Base::Words);
        let launches = || self.program.steps.iter().filter_map(Step::launch);
        (launches().filter(is_stored).count(), launches().count())
    }
}

/// The family of programs, the largest length first.
fn family(mut plans: Vec<Program>, lengths: &[usize]) -> Result<Family, String> {
    let (largest, smallest) = (lengths[0], lengths[1]);
    let first = plans.remove(0);
    agree(&first, &plans)?;
    let mut kernels = Kernels::default();
    let (mut words, mut steps) = (Vec::new(), Vec::with_capacity(first.steps.len()));
    for (at, step) in first.steps.iter().enumerate() {
        let others: Vec<&Step> = plans.iter().map(|plan| &plan.steps[at]).collect();
        let Step::Launch(launch) = step else {
            if let Some(other) = others.iter().find(|other| **other != step) {
                return Err(format!("{} in step {at} depends on the length", other.described()));
            }
            steps.push(step.clone());
            continue;
        };
        let source = &first.kernels[launch.kernel];
        let named = |reason: String| format!("{} of step {at}: {reason}", source.kernel);
        let mut same = Vec::with_capacity(others.len());
        for (other, plan) in others.iter().zip(&plans) {
            let Some(other) = other.launch() else {
                return Err(named("another length has no launch there".to_owned()));
            };
            serves(source, launch, &plan.kernels[other.kernel], other).map_err(named)?;
            same.push(other);
        }
        let grid = grid_for_all(launch.grid, same.iter().map(|other| other.grid));
        if same.iter().all(|other| other.arguments == launch.arguments) {
            steps.push(Step::Launch(Launch { kernel: kernels.place(source.clone()), grid, ..launch.clone() }));
            continue;
        }
        let offset = words.len() * size_of::<u64>();
        for (argument, own) in launch.arguments.iter().enumerate() {
            let others: Vec<&Argument> = same.iter().map(|other| &other.arguments[argument]).collect();
            let linear = linear_words(own, &others, lengths);
            words.extend(linear.map_err(|reason| named(format!("argument {argument} {reason}")))?);
        }
        steps.push(Step::Launch(Launch {
            kernel: kernels.place(source.clone().stored(launch.grid.threads)),
            grid,
            arguments: vec![Argument::At(Place { base: Base::Words, offset })],
        }));
    }
    Ok(Family { program: Program { kernels: kernels.all, steps, ..first }, words, lengths: smallest..=largest })
}

/// The kernels of a program, each once.
#[derive(Default)]
struct Kernels {
    all: Vec<Source>,
    places: HashMap<Source, usize>,
}

impl Kernels {
    fn place(&mut self, source: Source) -> usize {
        *self.places.entry(source).or_insert_with_key(|source| {
            self.all.push(source.clone());
            self.all.len() - 1
        })
    }
}

/// Whether programs have as many steps, buffers that fit those of the largest length, and the same constants and outputs.
fn agree(first: &Program, others: &[Program]) -> Result<(), String> {
    for other in others {
        if other.steps.len() != first.steps.len() {
            let (own, others) = (first.steps.len(), other.steps.len());
            return Err(format!("one length takes {own} steps, and another one {others}"));
        }
        if other.constants != first.constants {
            return Err("a constant depends on the length".to_owned());
        }
        let fits = first.intervals.len() == other.intervals.len()
            && first.intervals.iter().zip(&other.intervals).all(|(own, other)| {
                own.bytes >= other.bytes && (other.bytes == 0 || (own.first, own.last) == (other.first, other.last))
            });
        if !fits {
            return Err("a buffer of a shorter length does not fit that of the longest".to_owned());
        }
        let is_same = |(own, other): (&Output, &Output)| match (&own.cache, &other.cache) {
            (None, None) => own == other,
            (Some(own), Some(other)) => own.input.is_some() && own == other,
            _ => false,
        };
        if let Some((own, _)) = first.outputs.iter().zip(&other.outputs).find(|both| !is_same(*both)) {
            return Err(format!("the memory of the output `{}` depends on the length", own.name));
        }
    }
    Ok(())
}

/// Macros of kernels of rows that say how threads share the work, and not what it is.
const SHARING: [&str; 2] = ["WARP", "BLOCK_ROWS"];

/// Whether the kernel and the grid of the largest length do what those of another length do.
fn serves(source: &Source, launch: &Launch, other_source: &Source, other: &Launch) -> Result<(), String> {
    let shares = [SCAN, REDUCE].contains(&source.file);
    let macros = |source: &Source| {
        let mut macros = source.macros.clone();
        macros.retain(|(name, _)| !(shares && SHARING.contains(name)));
        macros
    };
    let is_same = (source.file, source.kernel) == (other_source.file, other_source.kernel);
    if !is_same || macros(source) != macros(other_source) {
        return Err(format!("another length takes {}", other_source.kernel));
    }
    if launch.arguments.len() != other.arguments.len() {
        return Err("another length has other arguments".to_owned());
    }
    if launch.grid == other.grid || loops(source) {
        return Ok(());
    }
    Err("its grid depends on the length".to_owned())
}

/// Whether the threads of a kernel take work as long as there is some, so that any grid computes all.
fn loops(source: &Source) -> bool {
    [ELEMENTWISE, GATHER, REDUCE, ROTARY, SCAN].contains(&source.file)
}

/// The grid for all lengths: for kernels that take any, as many blocks as the length with the most work for one has. Where
/// lengths have other kernels, that of the kernel.
fn grid_for_all(own: Grid, others: impl Iterator<Item = Grid>) -> Grid {
    others.filter(|other| (other.threads, other.shared) == (own.threads, own.shared)).fold(own, |grid, other| {
        let mut blocks = grid.blocks;
        blocks.iter_mut().zip(other.blocks).for_each(|(own, other)| *own = other.max(*own));
        Grid { blocks, ..grid }
    })
}

/// The words of an argument at the largest length, with their slopes.
fn linear_words(own: &Argument, others: &[&Argument], lengths: &[usize]) -> Result<Vec<Word>, String> {
    let all = std::iter::once(own).chain(others.iter().copied()).map(numbers).collect::<Vec<_>>();
    let (base, first) = &all[0];
    if all.iter().any(|(other, words)| other != base || words.len() != first.len()) {
        return Err("is in other memory at another length".to_owned());
    }
    let word = |at: usize| {
        let numbers: Vec<i128> = all.iter().map(|(_, words)| i128::from(words[at])).collect();
        let lengths: Vec<i128> = lengths.iter().map(|length| *length as i128).collect();
        let (rise, run) = (numbers[0] - numbers[1], (lengths[0] - lengths[1]).max(1));
        let slope = rise / run;
        let is_linear = numbers.iter().zip(&lengths).all(|(n, length)| numbers[0] - n == slope * (lengths[0] - length));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "modulo 2^64")]
        let slope = slope as u64;
        match is_linear {
            true => Ok(Word { base: *base, number: first[at], slope }),
            false => Err(format!("is not linear in the length: {numbers:?} for {lengths:?} keys")),
        }
    };
    (0..first.len()).map(word).collect()
}

/// The memory that an argument points to, and its words.
fn numbers(argument: &Argument) -> (Option<Base>, Vec<u64>) {
    match argument {
        Argument::At(place) => (Some(place.base), vec![place.offset as u64]),
        Argument::Null => (None, vec![0]),
        Argument::Value(words) => (None, words.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(words: &[u64]) -> Argument {
        Argument::Value(words.to_vec())
    }

    #[test]
    fn words_are_linear_in_the_length_or_refused() {
        // Two numbers of 32 bits in a word, both of which grow, and one that falls.
        let pair = |length: u64| value(&[length | (3 * length) << 32, 1000 - length]);
        let others = [pair(2), pair(51), pair(99)];
        let words = linear_words(&pair(100), &others.iter().collect::<Vec<_>>(), &[100, 2, 51, 99]).unwrap();
        for length in [2u64, 3, 50, 100] {
            let less = usize::try_from(100 - length).unwrap();
            let Argument::Value(wanted) = pair(length) else { panic!("a value") };
            assert_eq!([words[0].at(0, less), words[1].at(0, less)], wanted[..]);
        }
        let refused = |of: &dyn Fn(u64) -> u64| {
            let others = [2, 51, 99].map(|length| value(&[of(length)]));
            linear_words(&value(&[of(100)]), &others.iter().collect::<Vec<_>>(), &[100, 2, 51, 99]).is_err()
        };
        assert!(!refused(&|_| 7) && !refused(&|length| 4 * length + 1));
        assert!(refused(&|length| length * length));
        assert!(refused(&|length| length.div_ceil(64)));
        assert!(refused(&|length| length.min(60)));
        assert!(refused(&|length| length / 2));
    }

    #[test]
    fn addresses_move_within_their_memory() {
        let at = |base, offset| Argument::At(Place { base, offset });
        let (own, other) = (at(Base::Buffer(1), 800), at(Base::Buffer(1), 16));
        let words = linear_words(&own, &[&other], &[100, 2]).unwrap();
        assert_eq!(words[0].at(1 << 20, 98), (1 << 20) + 16);
        assert!(linear_words(&own, &[&at(Base::Buffer(2), 16)], &[100, 2]).is_err());
    }
}
