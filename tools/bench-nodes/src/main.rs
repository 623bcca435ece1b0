//! Times import, passes and export of synthetic graphs of many nodes: is time linear in nodes?
//!
//! ```text
//! cargo run --release -p planish-bench-nodes -- [--kind layers] [--nodes 10000,30000,100000] [--runs 7] [--passes]
//! ```
//!
//! Sizes take turns, and a line is the median of its runs. `rel` is the time of a node, in relation to that of the
//! first size.

mod graph;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use planish_onnx::{DEFAULT_OPSET, EXTERNAL_BYTES, ExportOptions, Placement};
use planish_passes::{Options, Pipeline, Target};
use prost::Message;

use crate::graph::{Kind, model};

/// Times import, passes and export of synthetic graphs of many nodes.
#[derive(Parser)]
struct Args {
    /// What graphs are made of; both where absent.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// How many nodes they have.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "10000,30000,100000")]
    nodes: Vec<usize>,
    /// How often each is run.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The target: onnx or ort.
    #[arg(long, default_value = "ort", value_parser = Target::find)]
    target: &'static Target,
    /// Whether the time of each pass is printed too.
    #[arg(long)]
    passes: bool,
}

/// Times of the parts of one run, by name.
type Times = Vec<(String, Duration)>;

fn main() -> Result<()> {
    let args = Args::parse();
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    let kinds = args.kind.map_or_else(|| vec![Kind::Chain, Kind::Layers], |kind| vec![kind]);
    for kind in kinds {
        measure(kind, &args, folder.path())?;
    }
    Ok(())
}

/// Runs all sizes of a graph in turn, and prints their medians.
fn measure(kind: Kind, args: &Args, folder: &Path) -> Result<()> {
    let files = args.nodes.iter().map(|&nodes| write(kind, nodes, folder)).collect::<Result<Vec<_>>>()?;
    let mut runs: Vec<Vec<Times>> = vec![Vec::new(); files.len()];
    for _ in 0..args.runs {
        for ((path, _), runs) in files.iter().zip(&mut runs) {
            runs.push(run(path, args, folder)?);
        }
    }
    println!("{kind:?}\n{:>9}  {:<24}{:>10}{:>12}{:>7}", "nodes", "part", "time", "a node", "rel");
    let mut first: BTreeMap<String, f64> = BTreeMap::new();
    for ((_, nodes), runs) in files.iter().zip(&runs) {
        for (index, (part, _)) in runs[0].iter().enumerate() {
            let seconds = median(runs.iter().map(|run| run[index].1));
            let each = seconds / *nodes as f64;
            let rel = each / *first.entry(format!("{index} {part}")).or_insert(each);
            println!("{nodes:>9}  {part:<24}{:>8.1}ms{:>10.2}us{rel:>7.2}", seconds * 1e3, each * 1e6);
        }
    }
    Ok(())
}

/// Writes a graph; returns its file and how many nodes it has.
fn write(kind: Kind, nodes: usize, folder: &Path) -> Result<(PathBuf, usize)> {
    let model = model(kind, nodes);
    let path = folder.join(format!("{kind:?}-{nodes}.onnx"));
    fs::write(&path, model.encode_to_vec()).with_context(|| format!("cannot write {}", path.display()))?;
    Ok((path, model.graph.map_or(0, |graph| graph.node.len())))
}

/// Imports, rewrites and exports a graph once.
fn run(path: &Path, args: &Args, folder: &Path) -> Result<Times> {
    let start = Instant::now();
    let mut graph = planish_onnx::import(path)?.graph;
    let import = start.elapsed();

    let start = Instant::now();
    let stages = Pipeline::new(Options::new(args.target, DEFAULT_OPSET)).run(&mut graph, &mut |_, _| {})?;
    let passes = start.elapsed();

    let start = Instant::now();
    let options = ExportOptions {
        opset: DEFAULT_OPSET,
        placement: Placement::Copy,
        external_above: EXTERNAL_BYTES,
        data_suffix: "_data",
        metadata: &[],
        progress: &|_| {},
    };
    planish_onnx::export(&graph, "out", folder, &options)?;
    let export = start.elapsed();
    fs::remove_file(folder.join("out.onnx")).context("cannot remove the graph that was written")?;

    let name = |name: &str| name.to_owned();
    let mut times = vec![(name("import"), import), (name("passes"), passes), (name("export"), export)];
    times.push((name("all"), import + passes + export));
    if args.passes {
        times.extend(stages.into_iter().map(|stage| (format!("  {}", stage.pass), stage.time)));
    }
    Ok(times)
}

fn median(times: impl Iterator<Item = Duration>) -> f64 {
    let mut times: Vec<f64> = times.map(|time| time.as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
