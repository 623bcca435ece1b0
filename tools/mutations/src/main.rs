//! Compiles and verifies random changes of small ONNX graphs: each ends with a verified artifact or an error, never
//! with a panic, a signal, a hang or more memory than is allowed.

mod mutate;
mod watch;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;

#[derive(Clone, Parser)]
#[command(version, about)]
pub(crate) struct Arguments {
    /// Folders of .onnx files; those of at most 300 kB are changed
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// How many cases to run
    #[arg(long, default_value_t = 1000)]
    cases: u64,
    /// The number of the first case; a case's number decides the file and the changes
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// The target to compile for
    #[arg(long, default_value = "ort")]
    target: String,
    /// Processes that work at once
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Memory that the process of a case may hold, in MB
    #[arg(long, default_value_t = 1000)]
    memory: u64,
    /// Seconds that a case may take
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Write the changed models of all cases but those that end with exit code 0 or 1 to this folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Run the cases in this process, and write how they end to this file
    #[arg(long, hide = true, value_name = "FILE")]
    log: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(log) = &arguments.log {
        work::run(&arguments, log)?;
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(arguments.jobs > 0 && arguments.cases > 0, "nothing to do: give at least one job and one case");
    let tally = watch::run(&arguments)?;
    print!("{tally}");
    Ok(if tally.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
