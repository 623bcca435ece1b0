//! The options of how a runtime uses the processor.

use planish_artifact::backend::{Cores, RuntimeSettings};

/// The time for which idle threads poll where all cores are free. A step of a decoder has gaps of some ten microseconds between
/// its products; polling longer gains nothing, and keeps a core busy while a person types.
const POLLING: u32 = 100;

/// How a runtime uses the processor.
#[derive(clap::Args)]
pub(super) struct ThreadArguments {
    /// The number of threads of the runtime [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// The microseconds for which an idle thread of ONNX Runtime polls for work before it sleeps; with 0 it sleeps at once.
    /// Polling makes runs faster where cores are free, and slower where other programs need them [default: 100; 0 if other
    /// programs are busy when the command starts]
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    spin: Option<u32>,
}

impl ThreadArguments {
    /// The number of threads. Has the settings say how they wait for work.
    pub(super) fn settle(&self, settings: &mut RuntimeSettings) -> usize {
        let (threads, polling) = match (self.threads, self.spin) {
            (Some(threads), Some(spin)) => (threads.into(), spin),
            (threads, spin) => {
                let cores = Cores::now();
                let usual = if cores.are_free() { POLLING } else { 0 };
                (threads.map_or(cores.usable, usize::from), spin.unwrap_or(usual))
            }
        };
        settings.sleeping = polling == 0;
        settings.polling_us = Some(polling);
        threads
    }
}
