//! `planish completions`.

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use super::print;

/// Print a completion script for a shell
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The shell
    shell: Shell,
}

pub(super) fn run<C: CommandFactory>(arguments: Arguments) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut C::command(), "planish", &mut script);
    print(&String::from_utf8_lossy(&script))
}
