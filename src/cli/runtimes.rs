//! `planish runtimes`.

use anyhow::Result;
use serde::Serialize;

use super::{RuntimeArguments, print, print_json};

/// List the runtimes: the path of each, or why it is not available
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    runtime: RuntimeArguments,
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    available: bool,
    version: Option<String>,
    location: Option<String>,
    problem: Option<String>,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let entries: Vec<Entry> = planish_runtimes::runtimes(arguments.runtime.ort_lib, arguments.runtime.trt_lib)
        .iter()
        .map(|runtime| {
            let name = runtime.name();
            match runtime.check() {
                Ok(found) => Entry {
                    name,
                    available: true,
                    version: Some(found.version),
                    location: Some(found.location),
                    problem: None,
                },
                Err(problem) => {
                    Entry { name, available: false, version: None, location: None, problem: Some(problem.to_string()) }
                }
            }
        })
        .collect();
    if arguments.json {
        return print_json(&entries);
    }
    let line = |e: &Entry| match (&e.version, &e.location, &e.problem) {
        (Some(version), Some(location), _) => format!("{:10} {version:8} {location}\n", e.name),
        (_, _, problem) => format!("{:10} {}\n", e.name, problem.as_deref().unwrap_or_default()),
    };
    print(&entries.iter().map(line).collect::<String>())
}
