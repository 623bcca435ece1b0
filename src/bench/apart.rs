//! Sessions in processes of their own: what one contestant leaves in memory, in its threads or in the allocator does not reach
//! another one, and the operating system counts the memory of each.
//!
//! The parent writes a line of JSON to the standard input of a worker for each thing that it asks, and reads one from its
//! standard output. Tensors go through files. A worker ends with its standard input.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use planish_eval::Tensor;
use planish_runtimes::{
    DeviceTimes, Format, Model, Port, Runtime, RuntimeError, RuntimeValue, Session, SessionOptions,
};
use serde::{Deserialize, Serialize};

use super::contestant::Load;
use super::environment::memory;
use crate::artifact::value::ValueInfo;
use crate::backend::{RuntimeSettings, runtime_named};
use crate::draft::Draft;
use crate::inputs::tensor_file;

/// The name of the command that is a worker.
pub const WORKER: &str = "bench-worker";

/// What a worker loads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    runtime: String,
    format: String,
    file: PathBuf,
    threads: usize,
    sleeping: bool,
    float8: bool,
    cuda_graph: bool,
    ort_library: Option<PathBuf>,
    trt_library: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
enum Ask {
    Bind(PathBuf),
    /// Run on the tensors of the first file, and write the outputs to the second.
    Run(PathBuf, PathBuf),
    RunBound,
    Time {
        transfers: bool,
    },
    Peak,
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Loaded { inputs: Vec<ValueInfo>, outputs: Vec<ValueInfo>, elsewhere: Vec<String>, ms: f64, resident: Option<u64> },
    Done,
    Time { host: Duration, device: Option<Times> },
    Bytes(Option<u64>),
    Failed(String),
}

/// [`DeviceTimes`] in a message.
#[derive(Serialize, Deserialize)]
struct Times {
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
            float8: settings.float8,
            cuda_graph: settings.engines.cuda_graph,
            ort_library: settings.ort_library.clone(),
            trt_library: settings.trt_library.clone(),
        }
    }

    /// The session, and how long it took to load.
    fn load(&self) -> Result<(Box<dyn Session>, f64)> {
        let mut settings = RuntimeSettings {
            sleeping: self.sleeping,
            float8: self.float8,
            ort_library: self.ort_library.clone(),
            trt_library: self.trt_library.clone(),
            ..RuntimeSettings::default()
        };
        settings.engines.cuda_graph = self.cuda_graph;
        let runtime = runtime_named(&self.runtime).map_err(|reason| anyhow!(reason))?(&settings);
        runtime.check()?;
        let format = runtime.formats().iter().find(|format| format.name == self.format);
        let format = *format.with_context(|| format!("{} takes no files of format {}", self.runtime, self.format))?;
        let start = Instant::now();
        let session = runtime.load(Model::File(format, &self.file), SessionOptions { threads: self.threads })?;
        Ok((session, start.elapsed().as_secs_f64() * 1e3))
    }
}

/// A session in a process of its own.
pub(crate) struct Apart {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
    files: Draft,
    start: Start,
    /// The name of its runtime.
    pub(crate) runtime: &'static str,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    elsewhere: Vec<String>,
    /// How long it took to load there.
    pub(crate) load: Load,
    /// What loading added to the memory of the process, in bytes.
    pub(crate) resident: Option<u64>,
}

impl Apart {
    /// Starts a worker and has it load a model.
    ///
    /// # Errors
    /// When that is impossible.
    pub(crate) fn start(start: Start, runtime: &'static str) -> Result<Self> {
        let mut command = Command::new(env::current_exe().context("the path of the planish binary is not known")?);
        // Signals of the terminal are for the parent, with which the worker ends.
        command.arg(WORKER).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().context("cannot start a process for a contestant")?;
        let (Some(asks), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("a worker has no pipes")
        };
        let mut apart = Self {
            child,
            asks,
            answers: BufReader::new(answers),
            files: Draft::temporary("planish-apart")?,
            start: start.clone(),
            runtime,
            inputs: Vec::new(),
            outputs: Vec::new(),
            elsewhere: Vec::new(),
            load: Load::default(),
            resident: None,
        };
        apart.say(&start)?;
        match apart.hear()? {
            Answer::Loaded { inputs, outputs, elsewhere, ms, resident } => {
                let port = |value: ValueInfo| Some(Port { ty: value.ty.as_tensor()?.clone(), name: value.name });
                apart.inputs = inputs.into_iter().filter_map(port).collect();
                apart.outputs = outputs.into_iter().filter_map(port).collect();
                (apart.elsewhere, apart.load.ms, apart.resident) = (elsewhere, ms, resident);
                Ok(apart)
            }
            Answer::Failed(reason) => bail!("{reason}"),
            _ => bail!("a worker gave another answer than was asked for"),
        }
    }

    /// The most memory that a fresh process has resident that loads the same model and runs it twice on these inputs, in bytes.
    ///
    /// # Errors
    /// When the process fails.
    pub(crate) fn peak(&self, inputs: &[(&str, Tensor)]) -> Result<Option<u64>> {
        let mut fresh = Self::start(self.start.clone(), self.runtime)?;
        fresh.bind(inputs)?;
        fresh.run_bound()?;
        fresh.run_bound()?;
        match fresh.ask(&Ask::Peak)? {
            Answer::Bytes(bytes) => Ok(bytes),
            _ => bail!("a worker gave another answer than was asked for"),
        }
    }

    fn say(&mut self, message: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.asks.write_all(&line).and_then(|()| self.asks.flush()).context("the process of a contestant has ended")
    }

    fn hear(&mut self) -> Result<Answer> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(bytes) if bytes > 0 => Ok(serde_json::from_str(&line)?),
            _ => {
                let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                bail!("the process of a contestant has ended: {status}")
            }
        }
    }

    /// What the worker answers; its failures as errors.
    fn ask(&mut self, ask: &Ask) -> Result<Answer, RuntimeError> {
        let answer = self.say(ask).and_then(|()| self.hear());
        match answer {
            Ok(Answer::Failed(reason)) => Err(self.failed(reason)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.failed(format!("{error:#}"))),
        }
    }

    fn failed(&self, reason: String) -> RuntimeError {
        RuntimeError::Failed {
            runtime: self.runtime,
            action: "run",
            model: self.start.file.display().to_string(),
            reason,
        }
    }

    /// A file of tensors for the worker.
    fn written(&self, inputs: &[(&str, Tensor)]) -> Result<PathBuf, RuntimeError> {
        let inputs: Vec<(String, Tensor)> = inputs.iter().map(|(name, t)| ((*name).to_owned(), t.clone())).collect();
        let path = self.files.folder().join("inputs.safetensors");
        let written = tensor_file::serialized(&inputs).and_then(|bytes| Ok(std::fs::write(&path, bytes)?));
        written.map(|()| path).map_err(|error| self.failed(format!("{error:#}")))
    }
}

impl Session for Apart {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    fn elsewhere(&self) -> &[String] {
        &self.elsewhere
    }

    fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        let (inputs, outputs) = (self.written(inputs)?, self.files.folder().join("outputs.safetensors"));
        self.ask(&Ask::Run(inputs, outputs.clone()))?;
        let read = tensor_file::read(&outputs);
        let mut tensors = read.map_err(|error| self.failed(format!("{error:#}")))?;
        tensors.sort_by_key(|(name, _)| self.outputs.iter().position(|port| port.name == *name));
        Ok(tensors)
    }

    fn run_values(&mut self, _: &[(&str, &RuntimeValue)]) -> Result<Vec<(String, RuntimeValue)>, RuntimeError> {
        Err(self.failed("values of a runtime do not leave their process".to_owned()))
    }

    fn bind(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError> {
        let path = self.written(inputs)?;
        self.ask(&Ask::Bind(path)).map(drop)
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        self.ask(&Ask::RunBound).map(drop)
    }

    fn timed(&mut self, transfers: bool) -> Result<(Duration, Option<DeviceTimes>), RuntimeError> {
        match self.ask(&Ask::Time { transfers })? {
            Answer::Time { host, device } => Ok((host, device.map(DeviceTimes::from))),
            _ => Err(self.failed("a worker gave another answer than was asked for".to_owned())),
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
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

/// Answers what a parent asks on standard input until that ends.
///
/// # Errors
/// When the parent is not `planish bench --isolate`.
pub fn serve() -> Result<()> {
    let mut asks = io::stdin().lock().lines();
    let say = |answer: &Answer| -> Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(&[&serde_json::to_vec(answer)?[..], b"\n"].concat())?;
        Ok(out.flush()?)
    };
    let Some(start) = asks.next() else { return Ok(()) };
    let start: Start = serde_json::from_str(&start?).context("this command is for planish bench --isolate alone")?;
    let before = memory("VmRSS");
    let (mut session, ms) = match start.load() {
        Ok(loaded) => loaded,
        Err(error) => return say(&Answer::Failed(format!("{error:#}"))),
    };
    let resident = memory("VmRSS").zip(before).map(|(after, before)| after.saturating_sub(before));
    let values = |ports: &[Port]| {
        ports.iter().map(|port| ValueInfo { name: port.name.clone(), ty: port.ty.clone().into() }).collect()
    };
    let (inputs, outputs) = (values(session.inputs()), values(session.outputs()));
    say(&Answer::Loaded { inputs, outputs, elsewhere: session.elsewhere().to_vec(), ms, resident })?;
    for line in asks {
        let ask = serde_json::from_str(&line?)?;
        let answer = answered(session.as_mut(), ask).unwrap_or_else(|error| Answer::Failed(format!("{error:#}")));
        say(&answer)?;
    }
    Ok(())
}

fn answered(session: &mut dyn Session, ask: Ask) -> Result<Answer> {
    Ok(match ask {
        Ask::Bind(path) => {
            let inputs = tensor_file::read(&path)?;
            session.bind(&inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect::<Vec<_>>())?;
            Answer::Done
        }
        Ask::Run(inputs, outputs) => {
            let inputs = tensor_file::read(&inputs)?;
            let given = session
                .run(&inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect::<Vec<_>>())?;
            std::fs::write(&outputs, tensor_file::serialized(&given)?)?;
            Answer::Done
        }
        Ask::RunBound => {
            session.run_bound()?;
            Answer::Done
        }
        Ask::Time { transfers } => {
            let (host, device) = session.timed(transfers)?;
            Answer::Time { host, device: device.map(Times::from) }
        }
        Ask::Peak => Answer::Bytes(memory("VmHWM")),
    })
}
