//! Compiles the CUDA kernels for several architectures, without a GPU, and prints their registers, shared memory and spills.
//! Fails if a kernel in which models spend their time spills registers.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use comfy_table::{Table, presets};
use planish_runtimes::cuda::{KernelReport, compile_kernels};

#[derive(Parser)]
struct Arguments {
    /// The architectures, e.g. sm_90
    #[arg(long, value_delimiter = ',', default_value = "sm_80,sm_86,sm_89,sm_90,sm_100,sm_120")]
    arch: Vec<String>,
    /// Print every kernel, not only those in which models spend their time
    #[arg(long)]
    all: bool,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let architectures: Vec<&str> = arguments.arch.iter().map(String::as_str).collect();
    let reports = compile_kernels(&architectures)?;
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["kernel", "macros", "architecture", "registers", "shared", "spills", "stack"]);
    for report in reports.iter().filter(|report| report.hot || arguments.all) {
        let KernelReport { registers, shared, spills, stack, .. } = report;
        let numbers = [registers, shared, spills, stack].map(|n| n.to_string());
        let names = [report.kernel.to_owned(), report.macros.clone(), report.architecture.clone()];
        table.add_row(names.into_iter().chain(numbers));
    }
    println!("{table}");
    println!("{} kernels compiled for {}", reports.len() / architectures.len().max(1), arguments.arch.join(", "));
    let spilling: Vec<&KernelReport> = reports.iter().filter(|report| report.hot && report.spills > 0).collect();
    for report in &spilling {
        eprintln!("error: {report} spills {} bytes", report.spills);
    }
    Ok(if spilling.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
