//! Runs models with stored inputs and results through import, passes, export and ONNX Runtime, and through the
//! reference interpreter, and says how each case ended.

mod case;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;

use case::{Case, Outcome, Way};

/// How far a result may be off, relative to the largest expected one where that is above 1.
const TOLERANCE: f64 = 1e-3;

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// The folder of cases: NAME/model.onnx with NAME/K.safetensors (tools/node_tests.py writes them)
    cases: PathBuf,
    /// Only cases whose name contains this
    #[arg(long, default_value = "")]
    filter: String,
    /// Exit with 1 unless at least this share of what ONNX Runtime passes by itself passes through us, in percent
    #[arg(long, default_value_t = 95.0)]
    least: f64,
    /// Name every case that fails
    #[arg(long)]
    verbose: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let folders = folders(&arguments.cases, &arguments.filter)?;
    let mut table: BTreeMap<Way, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    let (mut alone, mut both) = (0usize, 0usize);
    for folder in &folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let case = Case::open(folder)?;
        let outcomes = case.outcomes(TOLERANCE);
        let passed = |way: Way| outcomes.iter().any(|(w, o)| *w == way && *o == Outcome::Passed);
        alone += usize::from(passed(Way::Alone));
        both += usize::from(passed(Way::Alone) && passed(Way::Compiled));
        for (way, outcome) in &outcomes {
            // What ONNX Runtime refuses by itself says nothing about the way through us.
            if *way == Way::Compiled && !passed(Way::Alone) && *outcome != Outcome::Passed {
                continue;
            }
            table.entry(*way).or_default().entry(outcome.to_string()).or_default().push(name.clone());
        }
    }
    for (way, outcomes) in &table {
        println!("{way}");
        let mut lines: Vec<_> = outcomes.iter().collect();
        lines.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
        for (outcome, names) in lines {
            println!("  {:5}  {outcome}", names.len());
            if arguments.verbose && outcome != "passed" {
                names.iter().for_each(|name| println!("           {name}"));
            }
        }
    }
    let share = 100.0 * both as f64 / alone.max(1) as f64;
    println!(
        "{} cases; ONNX Runtime passes {alone} by itself, {both} of these through us: {share:.1} %",
        folders.len()
    );
    if share < arguments.least {
        std::process::exit(1);
    }
    Ok(())
}

/// The folders of cases, by name.
fn folders(root: &Path, filter: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(root).with_context(|| format!("cannot read {}", root.display()))?;
    let mut folders: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    folders.retain(|path| {
        path.join("model.onnx").is_file() && path.file_name().is_some_and(|n| n.to_string_lossy().contains(filter))
    });
    folders.sort();
    Ok(folders)
}
