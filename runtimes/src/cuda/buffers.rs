//! The memory of the buffers of programs.

use std::env;

use super::device::{Buffer, Device};
use super::program::Program;

/// The environment variable that gives each buffer and each weight an allocation of its own: `1`. What accesses memory
/// after the end of one then shows in AddressSanitizer, with the emulator, and in compute-sanitizer's memcheck, on a GPU.
const SEPARATE: &str = "PLANISH_CUDA_SEPARATE_BUFFERS";

/// Whether buffers are apart. Sessions ask when they are loaded.
pub(super) fn are_separate() -> bool {
    env::var_os(SEPARATE).is_some_and(|value| value == "1")
}

/// The memory of a program's buffers.
#[derive(Clone)]
pub(super) enum Buffers {
    /// All in one, at the offsets of the program's plan.
    Arena(Buffer),
    /// An allocation for each.
    Separate(Vec<Buffer>),
}

impl Buffers {
    /// An allocation for each buffer of a program.
    ///
    /// # Errors
    /// When the device has not enough memory.
    pub(super) fn separate(device: &dyn Device, program: &Program) -> Result<Self, String> {
        program.intervals.iter().map(|own| device.allocate(own.bytes)).collect::<Result<_, _>>().map(Self::Separate)
    }

    /// Where a buffer of a program begins.
    pub(super) fn address(&self, program: &Program, buffer: usize) -> u64 {
        match self {
            Self::Arena(arena) => arena.address() + program.memory.offsets[buffer] as u64,
            Self::Separate(all) => all[buffer].address(),
        }
    }

    /// All allocations.
    pub(super) fn allocations(&self) -> &[Buffer] {
        match self {
            Self::Arena(arena) => std::slice::from_ref(arena),
            Self::Separate(all) => all,
        }
    }
}
