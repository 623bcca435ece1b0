//! Where the time of a run goes: by node, by operator and by the modules of the model.

mod flame;
mod process;
mod subject;
mod times;
mod trace;
mod tree;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use planish_artifact::backend::RuntimeSettings;
use planish_artifact::draft::Draft;
use planish_artifact::named;
use planish_compiler::source::modules::Modules;
use planish_data::inputs::Sizes;
use planish_eval::Tensor;
use planish_ir::cost::{Costs, costs};
use planish_runtimes::{ProfiledSession, RunProfile, Session, SessionOptions};
use serde::Serialize;

use crate::bench::wait_until_idle;
use crate::inspect::Asked;
use subject::Subject;
use times::{Located, NodeTimes};

pub use flame::flame;
pub use process::Process;
pub use process::{loaded_apart, run_apart};
pub use subject::Unprofiled;
pub use trace::trace;
pub use tree::ModuleTime;

/// The version of the JSON form of [`Profile`].
pub const SCHEMA: u32 = 1;

/// What is profiled, and how.
#[derive(Clone, Debug, Default)]
pub struct ProfileOptions {
    /// The sizes of inputs.
    pub asked: Asked,
    /// The part of several that is profiled alone; all of them where it is absent.
    pub part: Option<String>,
    /// The number of recorded runs.
    pub runs: usize,
    /// Threads of the runtime; 0 leaves the number to it.
    pub threads: usize,
    /// How runtimes are found, with the one that the user chose.
    pub settings: RuntimeSettings,
    /// Inputs that are given; the others are made from the seed.
    pub inputs: Vec<(String, Tensor)>,
    /// What inputs follow from.
    pub seed: u64,
}

/// Where the time of runs of a model goes.
#[derive(Debug, Serialize)]
pub struct Profile {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The model.
    pub model: String,
    /// The runtime.
    pub runtime: String,
    /// Its threads; 0 where their number was left to it.
    pub threads: usize,
    /// Rows; absent where the graph fixes their number.
    pub batch: Option<usize>,
    /// Tokens of a row; absent where the graph fixes their number or takes none.
    pub sequence: Option<usize>,
    /// Cached tokens in front of them; absent without a cache.
    pub past: Option<usize>,
    /// The parts.
    pub parts: Vec<PartProfile>,
}

/// Where the time of runs of a part goes. Times are in milliseconds, and means over the middle half of the runs by their
/// times.
#[derive(Debug, Serialize)]
pub struct PartProfile {
    /// The name of the part.
    pub name: String,
    /// The number of recorded runs.
    pub runs: usize,
    /// The time of runs that were not recorded, each next to a recorded one.
    pub latency_ms: f64,
    /// The time of recorded runs.
    pub recorded_ms: f64,
    /// The sum of the times of all nodes.
    pub nodes_ms: f64,
    /// How many nodes each provider ran.
    pub providers: BTreeMap<String, usize>,
    /// The time of each layer, in the order in which they start.
    pub layers: Vec<TimeShare>,
    /// The time of each operator, the longest first.
    pub operators: Vec<TimeShare>,
    /// The time of each module.
    pub modules: ModuleTime,
    /// The nodes, in the order in which they start.
    pub nodes: Vec<NodeTime>,
    /// The recorded run of the median time.
    #[serde(skip)]
    pub run: RunProfile,
}

impl PartProfile {
    /// The share of the latency that nodes account for: 1 where they take all of it, more where recording makes nodes
    /// slower.
    #[must_use]
    pub fn accounted(&self) -> f64 {
        self.nodes_ms / self.latency_ms.max(f64::MIN_POSITIVE)
    }
}

/// The time of some nodes.
#[derive(Debug, Default, Serialize)]
pub struct TimeShare {
    /// The layer or the operator.
    pub name: String,
    /// How many nodes.
    pub nodes: usize,
    /// Of a layer, the time of nodes that are in none of its modules; of an operator, the time without nodes inside.
    pub self_ms: f64,
    /// The time of all nodes of a layer; of an operator, the time with the nodes inside.
    pub total_ms: f64,
    /// The share of the layer's total, or of the operator's own time, in the time of all nodes, from 0 to 1.
    pub share: f64,
    /// Floating-point operations in a run, by the graph; absent where that counts none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops: Option<u64>,
    /// Bytes that the nodes of an operator read and write in a run, by the graph; absent where that does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// The time of a node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeTime {
    /// Its name.
    pub name: String,
    /// The operator.
    pub operator: String,
    /// What ran it.
    pub provider: String,
    /// The module that it belongs to; empty outside of modules.
    pub module: String,
    /// Its time without nodes inside.
    pub self_ms: f64,
    /// Its time.
    pub total_ms: f64,
    /// Its floating-point operations, by the graph. Where a runtime computes a node of the graph in several steps, the first
    /// of them has all. Absent for nodes that the runtime made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops: Option<u64>,
    /// The bytes that it reads and writes, as for `flops`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Profiles an artifact or an ONNX file. `note` is told what a user has to know of the runtime.
///
/// # Errors
/// When it cannot be opened or run, the runtime is unavailable, inputs cannot be made, or ([`Unprofiled`]) what is asked
/// for cannot be profiled.
pub fn profile(path: &Path, options: &ProfileOptions, note: &mut dyn FnMut(&str)) -> Result<Profile> {
    let subject = Subject::open(path, options, note)?;
    let sizes = subject.opened.sizes(options.asked);
    let past = options.asked.past.unwrap_or(0);
    let mut parts = Vec::new();
    for name in subject.parts(options.part.as_deref())? {
        parts.push(part(&subject, &name, options, sizes, past)?);
    }
    let open = subject.opened.open_sizes();
    Ok(Profile {
        schema: SCHEMA,
        model: path.display().to_string(),
        runtime: subject.runtime.name().to_owned(),
        threads: options.threads,
        batch: open.rows.then_some(sizes.batch),
        sequence: open.tokens.then_some(sizes.sequence),
        past: open.past.then_some(past),
        parts,
    })
}

fn part(subject: &Subject, name: &str, options: &ProfileOptions, sizes: Sizes, past: usize) -> Result<PartProfile> {
    let session = SessionOptions { threads: options.threads };
    let mut plain = subject.load(name, session)?;
    let inputs = subject.inputs(name, plain.as_ref(), options, sizes, past)?;
    let inputs = named(plain.as_ref(), &inputs);
    plain.bind(&inputs)?;
    let folder = Draft::temporary("planish-profile")?;
    let mut recorded = subject.load_profiled(name, session, folder.folder())?;
    recorded.bind(&inputs)?;
    let latency = run(plain.as_mut(), recorded.as_mut(), options.runs);
    let latency = match subject.made_up(name, plain.as_ref(), options)? {
        true => latency.context(
            "the inputs are made from a seed, and need not fit this model: --inputs FILE gives the tensors of a run",
        ),
        false => latency,
    }?;
    drop(plain);
    let mut runs = recorded.finish()?;
    runs.drain(..WARM_UP.min(runs.len()));
    let count = runs.len();
    let runs = middle(runs, |run| run.total);
    let graph = subject.graph(name)?;
    let names = subject.opened.names(name);
    let modules = Modules::of(graph, &names);
    let costs = costs(graph, &subject.bindings(name, sizes, past)?);
    let times = NodeTimes::of(&runs, &Located::new(graph, &modules, &names, &costs));
    let run = runs.get(runs.len() / 2).context("the runtime recorded no run; try fewer --runs")?;
    let flops = flops(&modules, &costs);
    let nodes = times.nodes();
    let providers = nodes.iter().fold(BTreeMap::new(), |mut counts, node| {
        *counts.entry(node.provider.clone()).or_insert(0) += 1;
        counts
    });
    Ok(PartProfile {
        name: name.to_owned(),
        runs: count,
        latency_ms: mean(&middle(latency, |time| *time)),
        recorded_ms: mean(&runs.iter().map(|run| run.total).collect::<Vec<_>>()),
        nodes_ms: times::sum(nodes.iter().map(|node| node.self_ms)),
        providers,
        layers: times.layers(&flops),
        operators: times.operators(),
        modules: ModuleTime::of(nodes),
        nodes: nodes.to_vec(),
        run: run.clone(),
    })
}

/// Runs of each session before those that count.
const WARM_UP: usize = 3;

/// Runs two sessions in turns, so that a change in the speed of the machine affects both; returns the times of the first.
fn run(plain: &mut dyn Session, recorded: &mut dyn ProfiledSession, runs: usize) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    let mut timed = || {
        wait_until_idle();
        let start = Instant::now();
        plain.run_bound().map(|()| times.push(start.elapsed()))
    };
    for round in 0..WARM_UP.saturating_add(runs) {
        // Each comes first in every other round: what runs after the other one may find caches or clocks different.
        let first = round % 2 == 0;
        if first {
            timed()?;
        }
        wait_until_idle();
        recorded.run_bound()?;
        if !first {
            timed()?;
        }
    }
    Ok(times.split_off(WARM_UP))
}

/// The floating-point operations of each layer.
fn flops(modules: &Modules, costs: &Costs) -> BTreeMap<String, u64> {
    let mut flops = BTreeMap::new();
    for (node, cost) in &costs.nodes {
        let sum: &mut u64 = flops.entry(modules.layer(*node).to_owned()).or_insert(0);
        *sum = sum.saturating_add(cost.flops);
    }
    flops
}

/// The middle half of runs by their times: the mean over these is as robust as a median, and the means of the nodes add up
/// to the mean of their runs.
fn middle<T>(mut runs: Vec<T>, time: impl Fn(&T) -> Duration) -> Vec<T> {
    runs.sort_by_key(|run| time(run));
    let cut = runs.len() / 4;
    runs.truncate(runs.len() - cut);
    runs.split_off(cut)
}

/// The mean in milliseconds.
fn mean(times: &[Duration]) -> f64 {
    milliseconds(times.iter().sum()) / times.len().max(1) as f64
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_half_leaves_out_what_is_slow_and_what_is_fast() {
        let of = |times: &[u64]| middle(times.to_vec(), |t| Duration::from_millis(*t));
        assert_eq!(of(&[9, 1, 4, 5]), [4, 5]);
        assert_eq!(of(&[9, 1, 4, 5, 6, 7, 8, 2]), [4, 5, 6, 7]);
        assert_eq!([of(&[]), of(&[3]), of(&[3, 1])], [vec![], vec![3], vec![1, 3]]);
        assert_eq!(mean(&[Duration::from_millis(4), Duration::from_millis(5)]), 4.5);
        assert_eq!(mean(&[]), 0.0);
    }
}
