//! What the runs of a cell are made of: the time of each operator, and the provider that ran each node.

use std::collections::BTreeMap;

use anyhow::Result;
use planish_artifact::draft::Draft;
use planish_eval::Tensor;
use planish_runtimes::{Model, Runtime, SessionOptions};

use super::BenchOptions;
use super::document::{Cell, Status};
use super::groups::Member;
use super::source::ReferenceModel;
use super::sweep::BenchObserver;

/// Runs that are not looked at, and runs that are.
const RUNS: [usize; 2] = [2, 7];

/// Records what the runs of the cells of a group are made of.
pub(super) fn record_group(
    group: &[Member<'_>],
    reference: &mut ReferenceModel,
    options: &BenchOptions,
    cells: &mut [Cell],
    observer: &mut dyn BenchObserver,
) -> Result<()> {
    let session = SessionOptions { threads: options.threads };
    let runs = reference.all_runs(options)?;
    for Member { entrant, places, .. } in group {
        for (runtime, _) in places {
            for (index, part) in reference.parts.iter().enumerate() {
                let own = entrant.artifact.part(&part.name)?;
                let (format, file) = entrant.artifact.file_for(own, runtime.as_ref())?;
                let interface = own.interface();
                let model = Model::file(format, &file).with(&interface);
                for run in runs.iter().filter(|run| run.part == index) {
                    let is_of_run = |cell: &&mut Cell| {
                        let own = cell.model.id == entrant.label && cell.backend == runtime.name();
                        own && cell.shape == run.shape && cell.status == Status::Measured
                    };
                    let Some(cell) = cells.iter_mut().find(is_of_run) else { continue };
                    if !record(runtime.as_ref(), model, session, &run.inputs, cell)? {
                        observer
                            .note(&format!("the runtime `{}` does not tell the times of operators", runtime.name()));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Records runs of a model on inputs for a cell. Returns whether the runtime has a profiler.
///
/// # Errors
/// When the runtime does not load or run the model, or there is no folder for what it records.
fn record(
    runtime: &dyn Runtime,
    model: Model<'_>,
    options: SessionOptions,
    inputs: &[(String, Tensor)],
    cell: &mut Cell,
) -> Result<bool> {
    let Ok(profiler) = runtime.profiler() else { return Ok(false) };
    let folder = Draft::temporary("planish-bench-operators")?;
    let mut session = profiler.load_profiled(model, options, folder.folder())?;
    let own = |name: &str| session.inputs().iter().any(|port| port.name == name);
    let fitted = inputs.iter().filter(|(name, _)| own(name)).map(|(name, tensor)| (name.as_str(), tensor.clone()));
    session.bind(&fitted.collect::<Vec<_>>())?;
    for _ in 0..RUNS.iter().sum() {
        session.run_bound()?;
    }
    let mut runs = session.finish()?.split_off(RUNS[0]);
    runs.sort_by_key(|run| run.total);
    let Some(median) = runs.get(runs.len() / 2) else { return Ok(true) };
    let mut times: BTreeMap<&str, f64> = BTreeMap::new();
    let mut providers: BTreeMap<String, usize> = BTreeMap::new();
    for node in &median.nodes {
        *times.entry(node.operator.as_str()).or_default() += node.own.as_secs_f64() * 1e3;
        *providers.entry(node.provider.clone()).or_default() += 1;
    }
    let mut operators: Vec<(String, f64)> = times.into_iter().map(|(name, ms)| (name.to_owned(), ms)).collect();
    operators.sort_by(|a, b| b.1.total_cmp(&a.1));
    (cell.operators, cell.providers) = (operators, Some(providers));
    Ok(true)
}
