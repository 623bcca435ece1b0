//! `planish bench merge`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use planish_artifact::files;
use planish_measure::bench::Document;

use super::bench_output::{Output, write};
use super::bench_report::Reports;
use super::{overwrites, warn};

/// Show and write the benchmark of the documents of all shards; nothing is run
///
/// The rows are in the order of one run, and contestants are chosen by the shapes of all shards. planish warns where the shards were
/// measured on different machines or by different versions of planish.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The documents of bench --set shard=K/N --json FILE, one for each shard
    #[arg(value_name = "A.json", required = true)]
    shards: Vec<PathBuf>,
    /// Write all figures as JSON. Without FILE, planish prints the JSON instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Show all columns of the table
    #[arg(long)]
    all_columns: bool,
    #[command(flatten)]
    reports: Reports,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let json = arguments.json.as_deref();
    let file = json.filter(|path| *path != Path::new("-"));
    let outputs = arguments.reports.outputs().into_iter().chain([("--json", file)]);
    overwrites::check(outputs, [], arguments.shards.iter().map(PathBuf::as_path))?;
    file.map_or(Ok(()), files::check_writable)?;
    arguments.reports.check()?;
    let read = |path: &PathBuf| Ok((path.display().to_string(), Document::read(path)?));
    let documents = arguments.shards.iter().map(read).collect::<Result<Vec<_>>>()?;
    let document = Document::merged(documents, std::env::args().skip(1).collect())?;
    for difference in document.unlike() {
        warn(&format!("the shards were not measured alike: {difference}"));
    }
    let output = Output { json, reports: &arguments.reports, wide: arguments.all_columns, widens: "--all-columns" };
    write(&document, &output, Vec::new())
}
