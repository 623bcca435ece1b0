//! What a process of its own does for `planish bench`: the messages, and the side that loads and runs.

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use planish_eval::Tensor;
use planish_runtimes::{DeviceTimes, Format, Model, Port, Runtime, RuntimeError, Session, SessionOptions};
use serde::{Deserialize, Serialize};

use super::environment::{bytes_from_storage, memory};
use crate::artifact::value::ValueInfo;
use crate::backend::{RuntimeSettings, runtime_named};
use crate::inputs::tensor_file;

/// The name of the command that is a worker.
pub const WORKER: &str = "bench-worker";

/// What a worker loads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    runtime: String,
    format: String,
    pub(super) file: PathBuf,
    threads: usize,
    sleeping: bool,
    unfused_codes: bool,
    cuda_graph: bool,
    ort_library: Option<PathBuf>,
    trt_library: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
pub(super) enum Ask {
    Bind(PathBuf),
    /// Run on the tensors of the first file, and write the outputs to the second.
    Run(PathBuf, PathBuf),
    /// Run on the tensors of a file, and drop the outputs.
    Once(PathBuf),
    RunBound,
    Time {
        transfers: bool,
    },
    Usage,
    /// Load another model, which is the one to run from now on; the others stay loaded.
    Load(Start),
}

#[derive(Serialize, Deserialize)]
pub(super) enum Answer {
    Loaded(LoadedModel),
    Done,
    Time { host: Duration, device: Option<Times> },
    Usage(Usage),
    Failed(String),
}

/// What a worker says of a model that it loaded.
#[derive(Serialize, Deserialize)]
pub(super) struct LoadedModel {
    pub(super) inputs: Vec<ValueInfo>,
    pub(super) outputs: Vec<ValueInfo>,
    pub(super) elsewhere: Vec<String>,
    pub(super) ms: f64,
    /// What loading added to the resident memory.
    pub(super) resident: Option<u64>,
}

/// What a process has used since its start, in bytes; absent where the system does not tell.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// The memory that is resident now.
    pub(crate) resident: Option<u64>,
    /// The most memory that was resident.
    pub(crate) peak: Option<u64>,
    /// What came from storage for this process.
    pub(crate) read: Option<u64>,
}

/// [`DeviceTimes`] in a message.
#[derive(Serialize, Deserialize)]
pub(super) struct Times {
    enqueue: Duration,
    compute: Duration,
    to_device: Option<Duration>,
    to_host: Option<Duration>,
    graph: bool,
}

impl Start {
    pub(crate) fn new(
        runtime: &dyn Runtime,
        format: Format,
        file: &Path,
        threads: usize,
        settings: &RuntimeSettings,
    ) -> Self {
        Self {
            runtime: runtime.name().to_owned(),
            format: format.name.to_owned(),
            file: file.to_owned(),
            threads,
            sleeping: settings.sleeping,
            unfused_codes: settings.unfused_codes,
            cuda_graph: settings.engines.cuda_graph,
            ort_library: settings.ort_library.clone(),
            trt_library: settings.trt_library.clone(),
        }
    }

    /// The session, and what is to be said of it.
    fn load(&self) -> Result<(Box<dyn Session>, LoadedModel)> {
        let mut settings = RuntimeSettings {
            sleeping: self.sleeping,
            unfused_codes: self.unfused_codes,
            ort_library: self.ort_library.clone(),
            trt_library: self.trt_library.clone(),
            ..RuntimeSettings::default()
        };
        settings.engines.cuda_graph = self.cuda_graph;
        let runtime = runtime_named(&self.runtime).map_err(|reason| anyhow!(reason))?(&settings);
        runtime.check()?;
        let format = runtime.formats().iter().find(|format| format.name == self.format);
        let format = *format.with_context(|| format!("{} takes no files of format {}", self.runtime, self.format))?;
        let (before, start) = (memory("VmRSS"), Instant::now());
        let session = runtime.load(Model::File(format, &self.file), SessionOptions { threads: self.threads })?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let resident = memory("VmRSS").zip(before).map(|(after, before)| after.saturating_sub(before));
        let values = |ports: &[Port]| {
            ports.iter().map(|port| ValueInfo { name: port.name.clone(), ty: port.ty.clone().into() }).collect()
        };
        let (inputs, outputs) = (values(session.inputs()), values(session.outputs()));
        let elsewhere = session.elsewhere().to_vec();
        Ok((session, LoadedModel { inputs, outputs, elsewhere, ms, resident }))
    }
}

impl From<Times> for DeviceTimes {
    fn from(Times { enqueue, compute, to_device, to_host, graph }: Times) -> Self {
        Self { enqueue, compute, to_device, to_host, graph }
    }
}

impl From<DeviceTimes> for Times {
    fn from(DeviceTimes { enqueue, compute, to_device, to_host, graph }: DeviceTimes) -> Self {
        Self { enqueue, compute, to_device, to_host, graph }
    }
}

/// Answers what a parent asks on standard input until that ends. The first line is what to load.
///
/// # Errors
/// When the parent is not planish.
pub fn serve() -> Result<()> {
    let mut asks = io::stdin().lock().lines();
    let say = |answer: &Answer| -> Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(&[&serde_json::to_vec(answer)?[..], b"\n"].concat())?;
        Ok(out.flush()?)
    };
    let Some(start) = asks.next() else { return Ok(()) };
    let start: Start = serde_json::from_str(&start?).context("only planish itself starts this command")?;
    let (session, model) = match start.load() {
        Ok(loaded) => loaded,
        Err(error) => return say(&Answer::Failed(format!("{error:#}"))),
    };
    say(&Answer::Loaded(model))?;
    let mut sessions = vec![session];
    for line in asks {
        let ask = serde_json::from_str(&line?)?;
        say(&answered(&mut sessions, ask).unwrap_or_else(|error| Answer::Failed(format!("{error:#}"))))?;
    }
    Ok(())
}

fn answered(sessions: &mut Vec<Box<dyn Session>>, ask: Ask) -> Result<Answer> {
    let session = sessions.last_mut().context("nothing is loaded")?;
    match ask {
        Ask::Bind(inputs) => with_tensors(&inputs, |inputs| session.bind(inputs))?,
        Ask::Run(inputs, outputs) => {
            let given = with_tensors(&inputs, |inputs| session.run(inputs))?;
            std::fs::write(&outputs, tensor_file::serialized(&given)?)?;
        }
        Ask::Once(inputs) => drop(with_tensors(&inputs, |inputs| session.run(inputs))?),
        Ask::RunBound => session.run_bound()?,
        Ask::Time { transfers } => {
            let (host, device) = session.timed(transfers)?;
            return Ok(Answer::Time { host, device: device.map(Times::from) });
        }
        Ask::Usage => {
            let (resident, peak) = (memory("VmRSS"), memory("VmHWM"));
            return Ok(Answer::Usage(Usage { resident, peak, read: bytes_from_storage() }));
        }
        Ask::Load(start) => {
            let (session, model) = start.load()?;
            sessions.push(session);
            return Ok(Answer::Loaded(model));
        }
    }
    Ok(Answer::Done)
}

/// Hands the tensors of a file to a call of a session.
fn with_tensors<T>(file: &Path, call: impl FnOnce(&[(&str, Tensor)]) -> Result<T, RuntimeError>) -> Result<T> {
    let (names, tensors): (Vec<String>, Vec<Tensor>) = tensor_file::read(file)?.into_iter().unzip();
    let inputs: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(tensors).collect();
    Ok(call(&inputs)?)
}
