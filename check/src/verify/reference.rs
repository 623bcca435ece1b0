//! The references that artifacts are compared with.

use anyhow::{Error, Result};
use planish_artifact::backend::{LOCAL, TemporaryFiles};
use planish_artifact::verification::{ReferenceKind, Skipped};
use planish_compiler::source::OnnxFile;
use planish_eval::Tensor;
use planish_ir::Graph;
use planish_passes::{Options, Pipeline};
use planish_runtimes::ort::{OnnxRuntime, OptimizationLevel, OrtOptions};
use planish_runtimes::{Model, Runtime, RuntimeError, Session, SessionOptions};

use super::Case;

/// No case of a comparison was run: made-up inputs do not fit the model, or no reference computes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NothingRan(String);

/// A session, and what it is.
type Ready = (ReferenceKind, Box<dyn Session>);

/// A session that says what is right; where it does not compute what a model has, another may take its place.
pub struct Reference {
    kind: ReferenceKind,
    session: Box<dyn Session>,
    fallback: Fallback,
    /// The reference interpreter, until it has seen a case of a model that ONNX Runtime is to run: that one ends the
    /// process on some wrong graphs, and takes all memory for others.
    guard: Option<Box<dyn Session>>,
}

/// The reference for models that the first reference does not support.
enum Fallback {
    Nothing,
    Unloaded(Box<dyn FnOnce() -> Result<Ready>>),
    Loaded(Ready),
    Failed(Error),
}

/// The result of a case.
pub(super) enum Run {
    /// The inputs and the outputs of the last run.
    Ran([Vec<(String, Tensor)>; 2]),
    /// The reason why it cannot be run.
    Failed(String),
    /// The reference does not compute it and another one does: that is the reference from here on.
    Replaced,
}

impl Reference {
    /// The reference interpreter alone.
    #[must_use]
    pub fn interpreter(session: Box<dyn Session>) -> Self {
        Self { kind: ReferenceKind::Interpreter, session, fallback: Fallback::Nothing, guard: None }
    }

    /// The reference interpreter, and for what it does not compute the ONNX file of the graph on ONNX Runtime.
    #[must_use]
    pub fn interpreter_or(session: Box<dyn Session>, graph: &Graph, file: OnnxFile) -> Self {
        let graph = graph.clone();
        let load = Box::new(move || load(&file, &graph));
        Self { fallback: Fallback::Unloaded(load), ..Self::interpreter(session) }
    }

    /// The ONNX file of a graph on ONNX Runtime, where the reference interpreter finds nothing wrong with it.
    ///
    /// # Errors
    /// When ONNX Runtime is unavailable, or loads neither the file nor what was imported of it.
    pub fn onnx_file(interpreter: Box<dyn Session>, graph: &Graph, file: &OnnxFile) -> Result<Self> {
        let (kind, session) = load(file, graph)?;
        Ok(Self { kind, session, fallback: Fallback::Nothing, guard: Some(interpreter) })
    }

    /// The reference interpreter, and a session that is loaded already for what it does not compute.
    #[cfg(test)]
    pub(super) fn first_of(session: Box<dyn Session>, kind: ReferenceKind, other: Box<dyn Session>) -> Self {
        Self { fallback: Fallback::Loaded((kind, other)), ..Self::interpreter(session) }
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> ReferenceKind {
        self.kind
    }

    /// Its session.
    pub(super) fn session(&mut self) -> &mut dyn Session {
        self.session.as_mut()
    }

    /// Runs a case.
    pub(super) fn run(&mut self, case: &Case) -> Run {
        if let Some(interpreter) = &mut self.guard {
            match case.run(interpreter.as_mut()) {
                Ok(_) | Err(RuntimeError::Unsupported { .. }) => self.guard = None,
                Err(error) => return Run::Failed(error.to_string()),
            }
        }
        let error = match case.run(self.session.as_mut()) {
            Ok(ran) => return Run::Ran(ran),
            Err(error @ RuntimeError::Unsupported { .. }) => error.to_string(),
            Err(error) => return Run::Failed(error.to_string()),
        };
        self.fallback = match std::mem::replace(&mut self.fallback, Fallback::Nothing) {
            Fallback::Unloaded(load) => load().map_or_else(Fallback::Failed, Fallback::Loaded),
            other => other,
        };
        match std::mem::replace(&mut self.fallback, Fallback::Nothing) {
            Fallback::Loaded((kind, mut session)) => match case.run(session.as_mut()) {
                Ok(_) => {
                    (self.kind, self.session) = (kind, session);
                    Run::Replaced
                }
                Err(second) => {
                    self.fallback = Fallback::Loaded((kind, session));
                    Run::Failed(format!("{error}; {}: {second}", kind.description()))
                }
            },
            other => {
                self.fallback = other;
                Run::Failed(error)
            }
        }
    }

    /// Why no case was run; `is_open` says whether the graph leaves sizes of its inputs open.
    pub(super) fn nothing_ran(&mut self, skipped: &[Skipped], is_open: bool) -> Error {
        let reasons: String = skipped.iter().map(|skipped| format!("\n  {skipped}")).collect();
        let smaller = match is_open {
            true => "; --shapes fixes sizes that an ONNX graph leaves open, and --max-length takes shorter cases",
            false => "",
        };
        let message = NothingRan(format!(
            "nothing can be verified, for the reference can run no case{smaller}; `planish verify --data FILE`, and `planish \
             compile --evaluate FILE`, compare on data:{reasons}"
        ));
        match std::mem::replace(&mut self.fallback, Fallback::Nothing) {
            Fallback::Failed(error) => error.context(message),
            _ => message.into(),
        }
    }
}

/// A file on ONNX Runtime, or what was imported of it where it is cut, or does not load as it is.
fn load(file: &OnnxFile, graph: &Graph) -> Result<Ready> {
    let options = OrtOptions { optimization: OptimizationLevel::Disabled, ..OrtOptions::default() };
    let runtime = OnnxRuntime::new(file.library.clone()).options(options);
    if !file.is_cut {
        match runtime.load(Model::onnx(&file.path), SessionOptions { threads: file.threads }) {
            Ok(session) => return Ok((ReferenceKind::SourceOnOnnxRuntime, session)),
            Err(error @ RuntimeError::Unavailable(_)) => return Err(error.into()),
            Err(_) => {}
        }
    }
    let session = imported(file, graph, &runtime)?;
    Ok((ReferenceKind::ImportedOnOnnxRuntime, session))
}

/// The graph as it was imported, in the plainest form.
fn imported(file: &OnnxFile, graph: &Graph, runtime: &OnnxRuntime) -> Result<Box<dyn Session>> {
    let backend = LOCAL;
    let mut plain = graph.clone();
    let passes = Options { fusion: false, ..Options::new(backend.target, file.opset) };
    Pipeline::new(passes).lower(&mut plain, &mut Vec::new(), &mut |_, _| {})?;
    let files = TemporaryFiles::create("planish-verification")?;
    let written = files.emit(backend, &plain, "model", file.opset)?;
    // ONNX Runtime has the files open for as long as it needs them.
    let model = Model::file(backend.emitter.format(), &written).with(&graph.interface);
    Ok(runtime.load(model, SessionOptions { threads: file.threads })?)
}
