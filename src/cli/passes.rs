//! `planish passes`.

use anyhow::Result;
use planish_passes::{PASSES, Pass};

use super::{Usage, print};

/// List the passes, or explain one of them
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The pass to explain, with an example
    name: Option<String>,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let Some(name) = arguments.name else {
        let width = PASSES.iter().map(|p| p.name.len()).max().unwrap_or(0);
        let line = |p: &Pass| format!("{:width$}  {}\n", p.name, p.gist());
        return print(&PASSES.iter().map(line).collect::<String>());
    };
    let Some(pass) = PASSES.iter().find(|p| p.name == name) else {
        return Err(Usage(format!("there is no pass `{name}`; `planish passes` lists them")).into());
    };
    print(&format!(
        "{}: {}\n\nnumerics: {}\n\nbefore (target {}{}):\n{}\n\nafter:\n{}\n",
        pass.name,
        pass.summary,
        pass.numerics,
        pass.example.target,
        if pass.example.fusion { "" } else { ", without fusion" },
        outdented(pass.example.before),
        outdented(pass.example.after)
    ))
}

/// The statements with the indentation of the source text taken off.
fn outdented(statements: &str) -> String {
    statements
        .lines()
        .filter(|l| !l.trim().is_empty())
        .map(|l| format!("  {}", l.trim()))
        .collect::<Vec<_>>()
        .join("\n")
}
