//! Work that is recorded and replayed, as CUDA graphs are. What a capture of CUDA refuses is refused here too.

use std::cell::RefCell;

use super::{Kernel, at, product};
use crate::cuda::device::{Grid, Product, Recording};

/// What the device does.
pub(super) enum Work {
    /// The words of the arguments are those at the time of the launch.
    Launch {
        kernel: Kernel,
        grid: Grid,
        arguments: Vec<Vec<u64>>,
    },
    Multiply(Product),
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
    },
}

thread_local! {
    /// What this thread has recorded so far, while it records.
    static RECORDED: RefCell<Option<Vec<Work>>> = const { RefCell::new(None) };
}

impl Work {
    fn run(&self) -> Result<(), String> {
        match self {
            Self::Launch { kernel, grid, arguments } => kernel.run(*grid, arguments),
            Self::Multiply(product) => product::multiply(product),
            Self::Copy { to, from, bytes } => {
                // SAFETY: callers name memory of the device, or pinned memory of the host, with these bytes.
                unsafe { at::<u8>(*to).copy_from(at::<u8>(*from), *bytes) };
                Ok(())
            }
        }
    }
}

/// Does work, or records it.
pub(super) fn recorded(work: Work) -> Result<(), String> {
    let own = RECORDED.with_borrow_mut(|recorded| match recorded {
        Some(all) => {
            all.push(work);
            None
        }
        None => Some(work),
    });
    own.map_or(Ok(()), |work| work.run())
}

/// Refuses what cannot be recorded, while this thread records.
pub(super) fn refuse(what: &str) -> Result<(), String> {
    match RECORDED.with_borrow(Option::is_some) {
        true => Err(format!("the device cannot {what} while work is recorded")),
        false => Ok(()),
    }
}

/// Records what `give` gives.
pub(super) fn record(give: &mut dyn FnMut() -> Result<(), String>) -> Result<Box<dyn Recording>, String> {
    refuse("record")?;
    RECORDED.set(Some(Vec::new()));
    let given = give();
    let work = RECORDED.take().unwrap_or_default();
    given.map(|()| Box::new(Recorded(work)) as Box<dyn Recording>)
}

/// Work in its order.
struct Recorded(Vec<Work>);

impl Recording for Recorded {
    fn replay(&self) -> Result<(), String> {
        refuse("replay")?;
        self.0.iter().try_for_each(Work::run)
    }
}
