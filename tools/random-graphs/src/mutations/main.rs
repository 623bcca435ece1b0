//! Compiles and verifies random changes of small ONNX graphs: each ends with a verified artifact or an error, never
//! with a panic, a signal, a hang or more memory than is allowed.

mod mutate;
mod work;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use planish_random_graphs::{Cases, End, watch};

#[derive(Clone, Parser)]
#[command(version, about)]
pub(crate) struct Arguments {
    /// Folders of .onnx files; those of at most 300 kB are changed
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// The target to compile for
    #[arg(long, default_value = "ort")]
    target: String,
    /// Write the changed models of all cases but those that end with exit code 0 or 1 to this folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    cases: Cases,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(log) = &arguments.cases.log {
        work::run(&arguments, log)?;
        return Ok(ExitCode::SUCCESS);
    }
    let judge = |end: &str, _: &str| match end {
        "exit-0" | "exit-1" => End::Fine,
        "exit-3" => End::Noted,
        _ => End::Fault,
    };
    let words: Vec<OsString> = arguments.folders.iter().map(OsString::from).collect();
    let words = [words, vec!["--target".into(), arguments.target.clone().into()]].concat();
    let tally = watch(&arguments.cases, &words, &judge, &|case| keep(&arguments, case))?;
    print!("{tally}");
    Ok(if tally.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the model of a case, where that was asked for.
fn keep(arguments: &Arguments, case: u64) -> Result<()> {
    let Some(folder) = &arguments.keep else { return Ok(()) };
    std::fs::create_dir_all(folder)?;
    let (_, model) = work::changed(&work::models(&arguments.folders)?, case)?;
    std::fs::write(folder.join(format!("{case}.onnx")), model).context("cannot write a changed model")
}
