//! Grows random ONNX graphs, compiles them, and compares the artifacts with the graphs on ONNX Runtime without optimization:
//! no other value beyond rounding, no other shape, no artifact that does not load or run, no panic.
//!
//! What is told apart: outputs that change where inputs change by less than rounding ("unstable"), and those that differ
//! where ONNX Runtime's own optimizer makes something else of the source as well ("runtime").

mod attention;
mod attributes;
mod compare;
mod control;
mod elementwise;
mod families;
mod grow;
mod indexing;
mod movement;
mod network;
mod patterns;
mod quantized;
mod runner;
mod shrink;
mod work;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use planish_random_graphs::{Cases, End, watch};
use planish_runtimes::Runtime;
use planish_runtimes::ort::OnnxRuntime;

#[derive(Clone, Parser)]
#[command(version, about)]
pub(crate) struct Arguments {
    /// The targets to compile for
    #[arg(long, value_delimiter = ',', default_value = "onnx,ort")]
    targets: Vec<String>,
    /// Mostly patterns that are raised and fused, and what nearly is one
    #[arg(long)]
    patterns: bool,
    /// Write models with their inputs to this folder: of cases that planish refuses, and of faults, with a smaller model
    /// that shows the fault where there is one
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
    // Without it no graph would grow, and none would be found wrong.
    OnnxRuntime::new(None).check()?;
    let mut words: Vec<OsString> = vec!["--targets".into(), arguments.targets.join(",").into()];
    if arguments.patterns {
        words.push("--patterns".into());
    }
    if let Some(folder) = &arguments.keep {
        words.extend(["--keep".into(), folder.into()]);
    }
    let tally = watch(&arguments.cases, &words, &judge, &|_| Ok(()))?;
    print!("{tally}");
    Ok(if tally.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is made of an end: a process that ONNX Runtime ends on the source, before planish sees it, is no fault.
fn judge(end: &str, what: &str) -> End {
    match end {
        "same" | "unstable" | "runtime" | "empty" | "nothing" => End::Fine,
        "refused" => End::Noted,
        _ if what.starts_with("the source") && end.starts_with("signal") => End::Noted,
        _ => End::Fault,
    }
}
