//! The limits of a run.

use std::cell::Cell;
use std::time::{Duration, Instant};

use planish_ir::TensorType;

/// The limits of a run. `None` stands for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes that a run may hold at once: weights that were read, results that are still needed, and what
    /// the operator that is computed makes. Inputs do not count, nor does what an operator needs besides its
    /// result, which is a few times its operands at most.
    pub memory: Option<u64>,
    /// The most rounds of loops and scans that a run may take, those of inner loops included.
    pub rounds: Option<u64>,
    /// How long the loops and scans of a run may take together. It is looked at between operators, so the last one may
    /// take longer.
    pub loop_time: Option<Duration>,
}

/// The bytes that a run holds, and how many it may. A value is checked against both before it is computed.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    /// The bytes of the values that are held.
    held: u64,
    /// The most bytes that may be held; `None` for what the machine gives.
    limit: Option<u64>,
}

impl Memory {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Self { held: 0, limit }
    }

    /// Notes bytes that are held from now on.
    pub(crate) fn hold(&mut self, bytes: u64) {
        self.held = self.held.saturating_add(bytes);
    }

    /// Notes bytes that are free again.
    pub(crate) fn free(&mut self, bytes: u64) {
        self.held = self.held.saturating_sub(bytes);
    }

    /// Checks that so many bytes may be held besides, and that the machine has them; `None` for a number
    /// beyond 64 bits.
    ///
    /// # Errors
    /// What takes them, how many they are, and what there is.
    pub(crate) fn check(&self, bytes: Option<u64>, what: impl FnOnce() -> String) -> Result<(), String> {
        let Some(bytes) = bytes else {
            return Err(format!("{} does not fit in memory: it takes more than 2^64 bytes", what()));
        };
        if let Some(limit) = self.limit
            && self.held.saturating_add(bytes) > limit
        {
            return Err(format!("{} takes {bytes} bytes; the run uses {} and may use {limit}", what(), self.held));
        }
        let reserve = |bytes: usize| Vec::<u8>::new().try_reserve_exact(bytes).is_ok();
        match usize::try_from(bytes).is_ok_and(reserve) {
            true => Ok(()),
            false => Err(format!("{} does not fit in memory: it takes {bytes} bytes", what())),
        }
    }

    /// Checks a value of a type without symbols.
    ///
    /// # Errors
    /// As [`Memory::check`].
    pub(crate) fn check_type(&self, ty: &TensorType) -> Result<(), String> {
        self.check(ty.bytes(), || format!("a result of {ty}"))
    }
}

/// What the loops and scans of a run took, and how much they may take.
pub(crate) struct Loops {
    limits: Limits,
    /// The rounds of all of them.
    rounds: Cell<u64>,
    /// The time of those that have ended, without those inside of others.
    spent: Cell<Duration>,
    /// When the outermost one that runs began.
    since: Cell<Option<Instant>>,
}

impl Loops {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, rounds: Cell::new(0), spent: Cell::new(Duration::ZERO), since: Cell::new(None) }
    }

    /// Begins a loop, which ends when the result is dropped.
    pub(crate) fn begin(&self) -> Running<'_> {
        let is_outermost = self.since.get().is_none();
        if is_outermost {
            self.since.set(Some(Instant::now()));
        }
        Running { loops: self, is_outermost }
    }

    /// Takes a round.
    ///
    /// # Errors
    /// When the run may take no more.
    pub(crate) fn take_round(&self) -> Result<(), String> {
        if let Some(limit) = self.limits.rounds.filter(|limit| self.rounds.get() >= *limit) {
            return Err(format!("the loops of the run take more than {limit} rounds"));
        }
        self.rounds.set(self.rounds.get().saturating_add(1));
        Ok(())
    }

    /// Checks the time, where a loop runs.
    ///
    /// # Errors
    /// When loops took longer than they may.
    pub(crate) fn check_time(&self) -> Result<(), String> {
        let (Some(limit), Some(since)) = (self.limits.loop_time, self.since.get()) else { return Ok(()) };
        if self.spent.get().saturating_add(since.elapsed()) <= limit {
            return Ok(());
        }
        let (rounds, seconds) = (self.rounds.get(), limit.as_secs_f64());
        Err(format!("the loops of the run take more than {seconds} s: they are in round {rounds}"))
    }
}

/// A loop that runs.
pub(crate) struct Running<'a> {
    loops: &'a Loops,
    is_outermost: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.is_outermost
            && let Some(since) = self.loops.since.take()
        {
            self.loops.spent.set(self.loops.spent.get().saturating_add(since.elapsed()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_counts_against_the_limit() {
        let mut memory = Memory::new(Some(100));
        let what = || "x".to_owned();
        memory.check(Some(100), what).unwrap();
        assert_eq!(memory.check(Some(101), what).unwrap_err(), "x takes 101 bytes; the run uses 0 and may use 100");
        memory.hold(60);
        assert_eq!(memory.check(Some(41), what).unwrap_err(), "x takes 41 bytes; the run uses 60 and may use 100");
        memory.free(20);
        memory.check(Some(60), what).unwrap();
    }

    #[test]
    fn without_a_limit_the_machine_decides() {
        let memory = Memory::new(None);
        let error = |bytes| memory.check(bytes, || "x".to_owned()).unwrap_err();
        memory.check(Some(1 << 20), || unreachable!()).unwrap();
        assert_eq!(error(Some(1 << 60)), "x does not fit in memory: it takes 1152921504606846976 bytes");
        assert_eq!(error(None), "x does not fit in memory: it takes more than 2^64 bytes");
    }
}
