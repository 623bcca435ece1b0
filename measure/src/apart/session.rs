//! Sessions in processes of their own: what one contestant leaves in memory, in its threads or in the allocator does not reach
//! another one, and the operating system counts the memory of each.
//!
//! The parent writes a line of JSON to the standard input of a worker for each thing that it asks, and reads one from its
//! standard output. Tensors go through files. A worker ends with its standard input.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use planish_artifact::draft::Draft;
use planish_artifact::value::ValueInfo;
use planish_data::inputs::tensor_file;
use planish_eval::Tensor;
use planish_runtimes::{DeviceTimes, Port, RuntimeError, RuntimeValue, Session};
use serde::Serialize;

use super::calls::Calls;
use super::worker::{Answer, Ask, LoadedModel, Start, Usage, WORKER};
use crate::bench::Load;

/// The runs after the first one for the memory of a process that goes on: ONNX Runtime plans its memory in the first run, and
/// takes it as one piece from the second one on.
const REPEATED: usize = 3;

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
    /// The time from the start of the process until the model was loaded.
    pub(crate) ready: Duration,
}

/// What a worker says that was asked for something else.
const OTHER_ANSWER: &str = "a worker gave another answer than was asked for";

impl Apart {
    /// Starts a worker and has it load a model.
    ///
    /// # Errors
    /// When that is impossible.
    pub(crate) fn start(start: Start, runtime: &'static str) -> Result<Self> {
        let files = Draft::temporary("planish-apart")?;
        let mut command = Command::new(env::current_exe().context("the path of the planish binary is not known")?);
        // Signals of the terminal are for the parent, with which the worker ends.
        command.arg(WORKER).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let began = Instant::now();
        let mut child = command.spawn().context("cannot start a process for a contestant")?;
        let (Some(asks), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("a worker has no pipes")
        };
        let mut apart = Self {
            child,
            asks,
            answers: BufReader::new(answers),
            files,
            start: start.clone(),
            runtime,
            inputs: Vec::new(),
            outputs: Vec::new(),
            elsewhere: Vec::new(),
            load: Load::default(),
            resident: None,
            ready: Duration::ZERO,
        };
        apart.say(&start)?;
        let answer = apart.hear()?;
        apart.ready = began.elapsed();
        match answer {
            Answer::Loaded(model) => apart.has_loaded(model),
            Answer::Failed(reason) => bail!("{reason}"),
            _ => bail!(OTHER_ANSWER),
        }
        Ok(apart)
    }

    /// Has the worker load another model, which is the one to run from now on. The first one stays loaded.
    ///
    /// # Errors
    /// When that is impossible.
    pub(crate) fn load_another(&mut self, start: Start) -> Result<()> {
        match self.ask(&Ask::Load(Box::new(start)))? {
            Answer::Loaded(model) => self.has_loaded(model),
            _ => bail!(OTHER_ANSWER),
        }
        Ok(())
    }

    fn has_loaded(&mut self, LoadedModel { inputs, outputs, elsewhere, ms, resident }: LoadedModel) {
        let port = |value: ValueInfo| Some(Port { ty: value.ty.as_tensor()?.clone(), name: value.name });
        self.inputs = inputs.into_iter().filter_map(port).collect();
        self.outputs = outputs.into_iter().filter_map(port).collect();
        (self.elsewhere, self.load.ms, self.resident) = (elsewhere, ms, resident);
    }

    /// The most memory that a fresh process has resident that loads the same model, in bytes: after one run, whose outputs it
    /// reads, and after [`REPEATED`] more.
    ///
    /// # Errors
    /// When the process fails.
    pub(crate) fn peaks(&self, mut run: impl FnMut(&mut Self) -> Result<(), RuntimeError>) -> Result<[Option<u64>; 2]> {
        let mut fresh = Self::start(self.start.clone(), self.runtime)?;
        run(&mut fresh)?;
        let once = fresh.usage()?.peak;
        for _ in 0..REPEATED {
            run(&mut fresh)?;
        }
        Ok([once, fresh.usage()?.peak])
    }

    /// Runs on these inputs, and leaves the outputs there.
    ///
    /// # Errors
    /// As [`run`](Session::run).
    pub(crate) fn run_once(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError> {
        let path = self.written(inputs)?;
        self.ask(&Ask::Once(path)).map(drop)
    }

    /// Runs on the tensors of each file in turn.
    ///
    /// # Errors
    /// As [`run`](Session::run).
    pub(crate) fn run_all(&mut self, files: &[PathBuf]) -> Result<Calls, RuntimeError> {
        self.calls(&Ask::RunAll(files.to_vec()))
    }

    /// Has what generates text continue prompts by so many tokens.
    ///
    /// # Errors
    /// When it does not take them, or fails.
    pub(crate) fn generate(&mut self, prompts: &[Vec<i64>], new_tokens: NonZeroUsize) -> Result<Calls, RuntimeError> {
        self.calls(&Ask::Generate { prompts: prompts.to_vec(), new_tokens })
    }

    fn calls(&mut self, ask: &Ask) -> Result<Calls, RuntimeError> {
        match self.ask(ask)? {
            Answer::Calls(calls) => Ok(calls),
            _ => Err(self.failed(OTHER_ANSWER.to_owned())),
        }
    }

    /// What the process has used since its start.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn usage(&mut self) -> Result<Usage> {
        match self.ask(&Ask::Usage)? {
            Answer::Usage(usage) => Ok(usage),
            _ => bail!(OTHER_ANSWER),
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
            model: self.start.path().display().to_string(),
            reason,
        }
    }

    /// What a run on inputs gives, which the worker writes to a file.
    fn outputs_of(
        &mut self,
        inputs: &[(&str, Tensor)],
        ask: impl FnOnce(PathBuf, PathBuf) -> Ask,
    ) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        let (inputs, outputs) = (self.written(inputs)?, self.files.folder().join("outputs.safetensors"));
        self.ask(&ask(inputs, outputs.clone()))?;
        let read = tensor_file::read(&outputs);
        let mut tensors = read.map_err(|error| self.failed(format!("{error:#}")))?;
        tensors.sort_by_key(|(name, _)| self.outputs.iter().position(|port| port.name == *name));
        Ok(tensors)
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
        self.outputs_of(inputs, Ask::Run)
    }

    fn run_as_bound(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        self.outputs_of(inputs, Ask::RunAsBound)
    }

    fn time_without_graph(&mut self) -> Result<Option<Duration>, RuntimeError> {
        match self.ask(&Ask::WithoutGraph)? {
            Answer::WithoutGraph(time) => Ok(time),
            _ => Err(self.failed(OTHER_ANSWER.to_owned())),
        }
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
            _ => Err(self.failed(OTHER_ANSWER.to_owned())),
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
