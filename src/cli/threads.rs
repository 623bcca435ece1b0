//! The number of threads where a person waits for what a command prints.

use planish_artifact::Artifact;
use planish_artifact::backend::{Cores, RuntimeSettings, Spin};
use planish_measure::tune::{POLLING, tuned_here};

use super::RunOn;

/// How many threads a runtime has.
#[derive(clap::Args)]
pub(super) struct ThreadArguments {
    /// The number of threads of the runtime [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

impl ThreadArguments {
    /// The number of threads, and the settings of a runtime: what the user says, else what tuning found on this machine. Unless one
    /// of them says how idle threads wait, they poll where other programs leave all cores free, and sleep elsewhere.
    pub(super) fn settle(&self, run_on: &RunOn, artifact: &Artifact) -> (usize, RuntimeSettings) {
        let settings = run_on.settings();
        if let (Some(threads), Some(_)) = (self.threads, run_on.options.spin) {
            return (threads.into(), settings);
        }
        let cores = Cores::now();
        let tuned = tuned_here(artifact);
        let threads = self.threads.or(tuned.threads).map_or(cores.usable, usize::from);
        let polling = tuned.spin.unwrap_or(POLLING);
        let usual = if cores.are_free() { polling } else { Spin::Microseconds(0) };
        (threads, run_on.options.spin.unwrap_or(usual).applied(settings))
    }
}
