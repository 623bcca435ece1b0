//! The number of threads where a person waits for what a command prints.

use planish_artifact::backend::{Cores, RuntimeSettings};

use super::RunOn;
use super::runtime_options::Spin;

/// The time for which idle threads poll where all cores are free. A step of a decoder has gaps of some ten microseconds between
/// its products; polling longer gains nothing, and keeps a core busy while a person types.
const POLLING: Spin = Spin::Microseconds(100);

/// How many threads a runtime has.
#[derive(clap::Args)]
pub(super) struct ThreadArguments {
    /// The number of threads of the runtime [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

impl ThreadArguments {
    /// The number of threads, and the settings of a runtime. Unless the user says how idle threads wait, they poll where other
    /// programs leave all cores free, and sleep elsewhere.
    pub(super) fn settle(&self, run_on: &RunOn) -> (usize, RuntimeSettings) {
        let settings = run_on.settings();
        if let (Some(threads), Some(_)) = (self.threads, run_on.options.spin) {
            return (threads.into(), settings);
        }
        let cores = Cores::now();
        let threads = self.threads.map_or(cores.usable, usize::from);
        let usual = if cores.are_free() { POLLING } else { Spin::Microseconds(0) };
        (threads, run_on.options.spin.unwrap_or(usual).applied(settings))
    }
}
