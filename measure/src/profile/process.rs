//! The memory of a process of its own that loads a model and runs it, as the system counts it.

use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_artifact::backend::{TemporaryFiles, available_memory};
use planish_artifact::named;
use planish_ir::text;
use planish_onnx::DEFAULT_OPSET;
use serde::Serialize;

use super::ProfileOptions;
use super::subject::Subject;
use crate::apart::Apart;

/// What a process has resident that loads a model, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// The runtime.
    pub runtime: String,
    /// With the runtime and a graph of one node, which takes next to nothing.
    pub base: u64,
    /// With the model.
    pub loaded: u64,
    /// The most while the model is loaded.
    pub peak: u64,
}

/// A graph of one node.
const SMALLEST: &str = "graph \"smallest\" {\n  input %x: f32[1]\n  %y = neg(%x) : f32[1]\n  output y = %y\n}";

/// Loads all parts of a model in a process of its own, and a graph of one node in another one. `needs` is the least that the
/// model takes.
///
/// # Errors
/// When no runtime of the processor takes it, this machine has not enough memory free, or a process fails.
pub fn loaded_apart(path: &Path, needs: u64, options: &ProfileOptions) -> Result<Process> {
    let subject = Subject::open(path, options, &mut |_| {})?;
    check_free(needs)?;
    let files = TemporaryFiles::create("planish-memory")?;
    let graph = text::parse(SMALLEST, &text::no_files).context("the graph of one node")?;
    let smallest = files.emit(subject.backend(), &graph, "smallest", DEFAULT_OPSET)?;
    let runtime = subject.runtime.name();
    let unknown = "the system does not tell the memory of a process";
    let base = Apart::start(subject.start_of(&smallest, options), runtime)?.usage()?.resident.context(unknown)?;
    let mut process = None;
    for part in subject.parts(None)? {
        load(&mut process, &subject, &part, options)?;
    }
    let usage = process.context("the model has no parts")?.usage()?;
    let [loaded, peak] = [usage.resident.context(unknown)?, usage.peak.context(unknown)?];
    Ok(Process { runtime: runtime.to_owned(), base, loaded, peak })
}

/// Loads and runs each part of a model once in a process of its own, in which all of them stay loaded: the most bytes that
/// this process has resident, where the system tells. `needs` is the least that it takes.
///
/// # Errors
/// As [`loaded_apart`], and when inputs cannot be made or a run fails.
pub fn run_apart(path: &Path, needs: u64, options: &ProfileOptions) -> Result<Option<u64>> {
    let subject = Subject::open(path, options, &mut |_| {})?;
    check_free(needs)?;
    let (sizes, past) = (subject.opened.sizes(options.asked), options.asked.past.unwrap_or(0));
    let mut process = None;
    for part in subject.parts(None)? {
        let process = load(&mut process, &subject, &part, options)?;
        let inputs = subject.inputs(&part, process, options, sizes, past)?;
        process.run_once(&named(process, &inputs))?;
    }
    Ok(process.context("the model has no parts")?.usage()?.peak)
}

/// Has the process load a part more, and starts it for the first one.
fn load<'a>(
    process: &'a mut Option<Apart>,
    subject: &Subject,
    part: &str,
    options: &ProfileOptions,
) -> Result<&'a mut Apart> {
    let start = subject.start(part, options)?;
    match process {
        Some(process) => process.load_another(start)?,
        None => *process = Some(Apart::start(start, subject.runtime.name())?),
    }
    process.as_mut().context("a process was started")
}

/// Refuses what this machine has no memory for.
fn check_free(needs: u64) -> Result<()> {
    match available_memory().filter(|free| *free < needs) {
        Some(free) => bail!("it needs {needs} bytes, and {free} are free"),
        None => Ok(()),
    }
}
