//! Where a run ends with an error.

use std::cell::Cell;

use planish_ir::TensorType;

/// Where a run ends with an error. `None` stands for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes that a run may hold at once: weights that were read, results that are still needed, and what
    /// the operator that is computed makes. Inputs do not count, nor does what an operator needs besides its
    /// result, which is a few times its operands at most.
    pub memory: Option<u64>,
    /// The most rounds of loops and scans that a run may take, those of inner loops included.
    pub rounds: Option<u64>,
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
            return Err(format!("{} takes {bytes} bytes; the run holds {} and may hold {limit}", what(), self.held));
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

/// The rounds of loops that a run takes, and how many it may.
pub(crate) struct Rounds {
    taken: Cell<u64>,
    limit: Option<u64>,
}

impl Rounds {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Self { taken: Cell::new(0), limit }
    }

    /// Takes a round.
    ///
    /// # Errors
    /// When the run may take no more.
    pub(crate) fn take(&self) -> Result<(), String> {
        match self.limit {
            Some(limit) if self.taken.get() >= limit => Err(format!("the run takes more than {limit} rounds of loops")),
            _ => {
                self.taken.set(self.taken.get().saturating_add(1));
                Ok(())
            }
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
        assert_eq!(memory.check(Some(101), what).unwrap_err(), "x takes 101 bytes; the run holds 0 and may hold 100");
        memory.hold(60);
        assert_eq!(memory.check(Some(41), what).unwrap_err(), "x takes 41 bytes; the run holds 60 and may hold 100");
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
