//! What a process of its own does: the messages, and the side that loads and runs.

use std::io::{self, BufRead, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use planish_artifact::Artifact;
use planish_artifact::backend::{self, BACKENDS, RuntimeSettings, runtime_named};
use planish_artifact::manifest::{Manifest, PartManifest};
use planish_artifact::value::ValueInfo;
use planish_data::inputs::tensor_file;
use planish_eval::Tensor;
use planish_generate::{LanguageModel, Loading, load};
use planish_runtimes::{DeviceTimes, Format, Model, Port, Runtime, RuntimeError, Session, SessionOptions};
use serde::{Deserialize, Serialize};

use super::calls::{Calls, Inputs, continued, run_all};
use crate::bench::{bytes_from_storage, memory};

/// The name of the command that is a worker.
pub const WORKER: &str = "bench-worker";

/// What a worker loads, and how.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    what: What,
    /// What the inputs and outputs of a file are, where its artifact says it.
    #[serde(default)]
    part: Option<Box<PartManifest>>,
    runtime: String,
    threads: usize,
    sleeping: bool,
    polling_us: Option<u32>,
    unfused_codes: bool,
    cuda_graph: bool,
    /// As the command line has them.
    kernel_specialization: String,
    weight_streaming_budget: String,
    ort_library: Option<PathBuf>,
    trt_library: Option<PathBuf>,
    openvino_library: Option<PathBuf>,
    /// What OpenVINO computes products in.
    openvino_precision: Option<String>,
}

/// What a worker loads.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum What {
    /// A session of a file.
    File { format: String, file: PathBuf },
    /// A session of the stages of a part of an artifact.
    Stages { folder: PathBuf, manifest: Box<Manifest>, part: String },
    /// The parts of an artifact, to generate text.
    LanguageModel { folder: PathBuf, manifest: Box<Manifest>, caching: bool },
}

/// What a worker has loaded.
enum Loaded {
    Session(Box<dyn Session>),
    LanguageModel(Box<dyn LanguageModel>),
}

#[derive(Serialize, Deserialize)]
pub(super) enum Ask {
    Bind(PathBuf),
    /// Run on the tensors of the first file, and write the outputs to the second.
    Run(PathBuf, PathBuf),
    /// Run on the tensors of a file, and drop the outputs.
    Once(PathBuf),
    RunBound,
    /// The same as `Run`, as bound.
    RunAsBound(PathBuf, PathBuf),
    /// Run without a recorded graph, where there is one.
    WithoutGraph,
    Time {
        transfers: bool,
    },
    /// Run on the tensors of each file in turn.
    RunAll(Vec<PathBuf>),
    /// Continue prompts by so many tokens.
    Generate {
        prompts: Vec<Vec<i64>>,
        new_tokens: NonZeroUsize,
    },
    Usage,
    /// Load another model, which is the one to run from now on; the others stay loaded.
    Load(Box<Start>),
}

#[derive(Serialize, Deserialize)]
pub(super) enum Answer {
    Loaded(LoadedModel),
    Done,
    Time { host: Duration, device: Option<Times> },
    WithoutGraph(Option<Duration>),
    Calls(Calls),
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
    /// A file of a model.
    pub(crate) fn new(
        runtime: &dyn Runtime,
        format: Format,
        file: &Path,
        threads: usize,
        settings: &RuntimeSettings,
    ) -> Self {
        let what = What::File { format: format.name.to_owned(), file: file.to_owned() };
        Self::of(what, runtime, threads, settings)
    }

    /// The stages of a part of an artifact.
    pub(crate) fn stages(
        artifact: &Artifact,
        part: &PartManifest,
        runtime: &dyn Runtime,
        threads: usize,
        settings: &RuntimeSettings,
    ) -> Self {
        let Artifact { folder, manifest, .. } = artifact.clone();
        Self::of(
            What::Stages { folder, manifest: Box::new(manifest), part: part.name.clone() },
            runtime,
            threads,
            settings,
        )
    }

    /// The same of a part of an artifact, whose roles of inputs and outputs are known.
    pub(crate) fn of_part(self, part: &PartManifest) -> Self {
        let roles = PartManifest { precision: None, quantization: None, coverage: None, weights: None, ..part.clone() };
        Self { part: Some(Box::new(roles)), ..self }
    }

    /// An artifact that generates text.
    pub(crate) fn language_model(
        artifact: &Artifact,
        runtime: &dyn Runtime,
        loading: Loading,
        settings: &RuntimeSettings,
    ) -> Self {
        let Artifact { folder, manifest, .. } = artifact.clone();
        let what = What::LanguageModel { folder, manifest: Box::new(manifest), caching: loading.caching };
        Self::of(what, runtime, loading.threads, settings)
    }

    fn of(what: What, runtime: &dyn Runtime, threads: usize, settings: &RuntimeSettings) -> Self {
        Self {
            what,
            part: None,
            runtime: runtime.name().to_owned(),
            threads,
            sleeping: settings.sleeping,
            polling_us: settings.polling_us,
            unfused_codes: settings.unfused_codes,
            cuda_graph: settings.engines.cuda_graph,
            kernel_specialization: settings.engines.kernel_specialization.to_string(),
            weight_streaming_budget: settings.engines.weight_streaming_budget.to_string(),
            ort_library: settings.ort_library.clone(),
            trt_library: settings.trt_library.clone(),
            openvino_library: settings.openvino_library.clone(),
            openvino_precision: settings.openvino_precision.map(|precision| precision.to_string()),
        }
    }

    /// Where the model is.
    pub(super) fn path(&self) -> &Path {
        match &self.what {
            What::File { file, .. } => file,
            What::Stages { folder, .. } | What::LanguageModel { folder, .. } => folder,
        }
    }

    /// The model, and what is to be said of it.
    fn load(&self, warn: fn(&str)) -> Result<(Loaded, LoadedModel)> {
        let mut settings = RuntimeSettings {
            sleeping: self.sleeping,
            polling_us: self.polling_us,
            unfused_codes: self.unfused_codes,
            ort_library: self.ort_library.clone(),
            trt_library: self.trt_library.clone(),
            openvino_library: self.openvino_library.clone(),
            ..RuntimeSettings::default()
        };
        let unread = |reason: String| anyhow!(reason);
        let precision = self.openvino_precision.as_deref();
        settings.openvino_precision = precision.map(str::parse).transpose().map_err(unread)?;
        settings.engines.warn = warn;
        settings.engines.cuda_graph = self.cuda_graph;
        settings.engines.kernel_specialization = self.kernel_specialization.parse().map_err(unread)?;
        settings.engines.weight_streaming_budget = self.weight_streaming_budget.parse().map_err(unread)?;
        let runtime = runtime_named(&self.runtime)?(&settings);
        runtime.check()?;
        let (before, start) = (memory("VmRSS"), Instant::now());
        let loaded = match &self.what {
            What::File { format, file } => {
                let known = runtime.formats().iter().find(|known| known.name == *format);
                let known = *known.with_context(|| format!("{} takes no files of format {format}", self.runtime))?;
                let options = SessionOptions { threads: self.threads };
                let interface = self.part.as_ref().map(|part| part.interface());
                let model = Model::file(known, file);
                let model = interface.as_ref().map_or(model, |interface| model.with(interface));
                Loaded::Session(runtime.load(model, options)?)
            }
            What::Stages { folder, manifest, part } => {
                let artifact = artifact(folder, manifest)?;
                let options = SessionOptions { threads: self.threads };
                Loaded::Session(artifact.load(artifact.part(part)?, runtime.as_ref(), options)?)
            }
            What::LanguageModel { folder, manifest, caching } => {
                let artifact = artifact(folder, manifest)?;
                Loaded::LanguageModel(load(&artifact, runtime.as_ref(), Loading::new(self.threads, *caching))?)
            }
        };
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let resident = memory("VmRSS").zip(before).map(|(after, before)| after.saturating_sub(before));
        let values = |ports: &[Port]| {
            ports.iter().map(|port| ValueInfo { name: port.name.clone(), ty: port.ty.clone().into() }).collect()
        };
        let (inputs, outputs, elsewhere) = match &loaded {
            Loaded::Session(of) => (values(of.inputs()), values(of.outputs()), of.elsewhere().to_vec()),
            Loaded::LanguageModel(_) => Default::default(),
        };
        Ok((loaded, LoadedModel { inputs, outputs, elsewhere, ms, resident }))
    }
}

/// An artifact of which a message has the manifest.
fn artifact(folder: &Path, manifest: &Manifest) -> Result<Artifact> {
    let backend = backend::find(&manifest.target, BACKENDS).context("the target is not known")?;
    Ok(Artifact { folder: folder.to_owned(), manifest: manifest.clone(), backend, stamp: None })
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

/// Answers what a parent asks on standard input until that ends. The first line is what to load. `warn` is told of what hurts
/// nothing but speed.
///
/// # Errors
/// When the parent is not planish.
pub fn serve(warn: fn(&str)) -> Result<()> {
    let mut asks = io::stdin().lock().lines();
    let say = |answer: &Answer| -> Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(&[&serde_json::to_vec(answer)?[..], b"\n"].concat())?;
        Ok(out.flush()?)
    };
    let Some(start) = asks.next() else { return Ok(()) };
    let start: Start = serde_json::from_str(&start?).context("only planish itself starts this command")?;
    let (first, model) = match start.load(warn) {
        Ok(loaded) => loaded,
        Err(error) => return say(&Answer::Failed(format!("{error:#}"))),
    };
    say(&Answer::Loaded(model))?;
    let mut loaded = vec![first];
    for line in asks {
        let ask = serde_json::from_str(&line?)?;
        say(&answered(&mut loaded, ask, warn).unwrap_or_else(|error| Answer::Failed(format!("{error:#}"))))?;
    }
    Ok(())
}

fn answered(loaded: &mut Vec<Loaded>, ask: Ask, warn: fn(&str)) -> Result<Answer> {
    match (ask, loaded.last_mut().context("nothing is loaded")?) {
        (Ask::Usage, _) => {
            let (resident, peak) = (memory("VmRSS"), memory("VmHWM"));
            Ok(Answer::Usage(Usage { resident, peak, read: bytes_from_storage() }))
        }
        (Ask::Load(start), _) => {
            let (another, model) = start.load(warn)?;
            loaded.push(another);
            Ok(Answer::Loaded(model))
        }
        (Ask::Generate { prompts, new_tokens }, Loaded::LanguageModel(model)) => {
            Ok(Answer::Calls(continued(model.as_mut(), &prompts, new_tokens)?))
        }
        (ask, Loaded::Session(session)) => run(session.as_mut(), ask),
        (_, Loaded::LanguageModel(_)) => bail!("what is loaded generates text, and does nothing else"),
    }
}

/// Does what is asked of a session.
fn run(session: &mut dyn Session, ask: Ask) -> Result<Answer> {
    match ask {
        Ask::Bind(inputs) => with_tensors(&inputs, |inputs| session.bind(inputs))?,
        Ask::Run(inputs, outputs) => {
            let given = with_tensors(&inputs, |inputs| session.run(inputs))?;
            std::fs::write(&outputs, tensor_file::serialized(&given)?)?;
        }
        Ask::RunAsBound(inputs, outputs) => {
            let given = with_tensors(&inputs, |inputs| session.run_as_bound(inputs))?;
            std::fs::write(&outputs, tensor_file::serialized(&given)?)?;
        }
        Ask::WithoutGraph => return Ok(Answer::WithoutGraph(session.time_without_graph()?)),
        Ask::Once(inputs) => drop(with_tensors(&inputs, |inputs| session.run(inputs))?),
        Ask::RunBound => session.run_bound()?,
        Ask::Time { transfers } => {
            let (host, device) = session.timed(transfers)?;
            return Ok(Answer::Time { host, device: device.map(Times::from) });
        }
        Ask::RunAll(files) => {
            let mut all: Option<Calls> = None;
            for file in files {
                // One batch at a time is in memory.
                let inputs: Inputs = tensor_file::read(&file)?;
                let one = run_all(session, &[inputs])?;
                let total = one.total + all.map_or(Duration::ZERO, |all| all.total);
                all = Some(Calls { first: all.map_or(one.first, |all| all.first), total });
            }
            return Ok(Answer::Calls(all.context("there are no batches")?));
        }
        Ask::Generate { .. } | Ask::Usage | Ask::Load(_) => bail!("a session does not do that"),
    }
    Ok(Answer::Done)
}

/// Hands the tensors of a file to a call of a session.
fn with_tensors<T>(file: &Path, call: impl FnOnce(&[(&str, Tensor)]) -> Result<T, RuntimeError>) -> Result<T> {
    let (names, tensors): (Vec<String>, Vec<Tensor>) = tensor_file::read(file)?.into_iter().unzip();
    let inputs: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(tensors).collect();
    Ok(call(&inputs)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tools/bench_check.py starts a worker with this line; a change here has to be made there too.
    #[test]
    fn the_script_that_compares_with_python_starts_a_worker() {
        let line = r#"{"what": {"File": {"format": "ONNX", "file": "model.onnx"}}, "runtime": "ort", "threads": 2, "sleeping": true,
            "unfused_codes": false, "cuda_graph": true, "kernel_specialization": "eager", "weight_streaming_budget": "-2",
            "ort_library": null, "trt_library": null, "openvino_library": null, "openvino_precision": null}"#;
        let start: Start = serde_json::from_str(line).unwrap();
        assert_eq!(start.path(), Path::new("model.onnx"));
    }
}
