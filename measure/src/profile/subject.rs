//! What is profiled: an artifact or an ONNX file, its runtime, and its inputs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use planish_artifact::backend::{Backend, LOCAL};
use planish_artifact::{Artifact, MANIFEST, runtime};
use planish_check::verify::input_specs;
use planish_compiler::source::SourceModel;
use planish_data::inputs::{InputError, InputSpec, Sizes, Values, graph_bindings, inputs_after, may_not_fit, specs};
use planish_eval::Tensor;
use planish_ir::{Bindings, Graph};
use planish_models::LoadOptions;
use planish_runtimes::ort::{OnnxRuntime, OrtOptions};
use planish_runtimes::{Model, Port, ProfiledSession, Profiler, Runtime, Session, SessionOptions};

use super::ProfileOptions;
use crate::apart::Start;
use crate::inspect::Opened;

/// What a user asks for cannot be profiled: the text says why and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unprofiled(pub(crate) String);

/// What is profiled.
pub(super) struct Subject {
    source: Source,
    pub(super) runtime: Box<dyn Runtime>,
    pub(super) opened: Opened,
}

enum Source {
    Artifact(Box<Artifact>),
    /// An ONNX file, with the inputs that pick rows of tables and the numbers of these rows.
    Onnx(PathBuf, BTreeMap<String, Values>),
}

impl Subject {
    pub(super) fn open(path: &Path, options: &ProfileOptions, note: &mut dyn FnMut(&str)) -> Result<Self> {
        if options.runs == 0 {
            return Err(Unprofiled("--runs is at least 1".to_owned()).into());
        }
        let subject = if path.join(MANIFEST).is_file() {
            let artifact = Artifact::open(path)?;
            if artifact.manifest.parts.iter().any(|part| !part.stages.is_empty()) {
                let path = path.display();
                let reason =
                    format!("{path} is cut into stages, which are not profiled; compile the model without --pipeline");
                return Err(Unprofiled(reason).into());
            }
            let runtime = runtime(&artifact, &options.settings, note);
            profiler(runtime.as_ref())?;
            let opened = Opened::open(path, &Default::default())?;
            Self { source: Source::Artifact(Box::new(artifact)), runtime, opened }
        } else {
            Self::onnx(path, options)?
        };
        subject.opened.check_sizes(options.asked).map_err(Unprofiled)?;
        Ok(subject)
    }

    fn onnx(path: &Path, options: &ProfileOptions) -> Result<Self> {
        let source = SourceModel::open(path)?;
        if matches!(source, SourceModel::Checkpoint(..)) {
            let path = path.display();
            let reason =
                format!("{path} is a checkpoint, which no runtime runs; compile it first: planish compile {path}");
            return Err(Unprofiled(reason).into());
        }
        let settings = &options.settings;
        let runtime = match settings.runtime {
            Some(make) => make(settings),
            None => {
                let ort =
                    OrtOptions { spin: !settings.sleeping, spin_us: settings.polling_us, ..OrtOptions::default() };
                Box::new(OnnxRuntime::new(settings.ort_library.clone()).options(ort))
            }
        };
        profiler(runtime.as_ref())?;
        let loaded = source.load(LoadOptions::default())?;
        let ranges = loaded.parts.iter().flat_map(|part| &part.id_ranges);
        let ids = ranges.map(|range| (range.input.clone(), Values::Ids { range: 0..range.end, pad: None })).collect();
        let opened = Opened::of(loaded, &source)?;
        Ok(Self { source: Source::Onnx(path.to_owned(), ids), runtime, opened })
    }

    /// The names of the parts that are profiled.
    pub(super) fn parts(&self, asked: Option<&str>) -> Result<Vec<String>> {
        let all: Vec<String> = self.opened.graphs.iter().map(|(name, _)| name.clone()).collect();
        match asked {
            None => Ok(all),
            Some(name) if all.iter().any(|part| part == name) => Ok(vec![name.to_owned()]),
            Some(name) => Err(Unprofiled(format!("--part {name}: the model has {}", all.join(", "))).into()),
        }
    }

    pub(super) fn graph(&self, part: &str) -> Result<&Graph> {
        let found = self.opened.graphs.iter().find(|(name, _)| name == part);
        found.map(|(_, graph)| graph).ok_or_else(|| anyhow!("there is no part `{part}`"))
    }

    /// What the symbols of the inputs of a part stand for.
    pub(super) fn bindings(&self, part: &str, sizes: Sizes, past: usize) -> Result<Bindings> {
        Ok(graph_bindings(self.graph(part)?, sizes, past))
    }

    pub(super) fn load(&self, part: &str, options: SessionOptions) -> Result<Box<dyn Session>> {
        match &self.source {
            Source::Artifact(artifact) => artifact.load(artifact.part(part)?, self.runtime.as_ref(), options),
            Source::Onnx(path, _) => Ok(self.runtime.load(Model::onnx(path), options)?),
        }
    }

    /// What a process of its own loads for a part.
    pub(super) fn start(&self, part: &str, options: &ProfileOptions) -> Result<Start> {
        match &self.source {
            Source::Artifact(artifact) => {
                let part = artifact.part(part)?;
                let (format, file) = artifact.file_for(part, self.runtime.as_ref())?;
                let settings = artifact.settings(&options.settings);
                Ok(Start::new(self.runtime.as_ref(), format, &file, options.threads, &settings).of_part(part))
            }
            Source::Onnx(path, _) => Ok(self.start_of(path, options)),
        }
    }

    /// What a process of its own loads for another file, of the kind that the subject has.
    pub(super) fn start_of(&self, file: &Path, options: &ProfileOptions) -> Start {
        let format = self.backend().emitter.format();
        Start::new(self.runtime.as_ref(), format, file, options.threads, &options.settings)
    }

    /// What writes files of the kind that the subject has.
    pub(super) fn backend(&self) -> &'static Backend {
        match &self.source {
            Source::Artifact(artifact) => artifact.backend,
            Source::Onnx(..) => LOCAL,
        }
    }

    pub(super) fn load_profiled(
        &self,
        part: &str,
        options: SessionOptions,
        folder: &Path,
    ) -> Result<Box<dyn ProfiledSession>> {
        let profiler = profiler(self.runtime.as_ref())?;
        match &self.source {
            Source::Artifact(artifact) => {
                let part = artifact.part(part)?;
                let (format, file) = artifact.file_for(part, self.runtime.as_ref())?;
                let interface = part.interface();
                Ok(profiler.load_profiled(Model::file(format, &file).with(&interface), options, folder)?)
            }
            Source::Onnx(path, _) => Ok(profiler.load_profiled(Model::onnx(path), options, folder)?),
        }
    }

    /// The inputs of a part: those that were given, and others made from the seed.
    pub(super) fn inputs(
        &self,
        part: &str,
        session: &dyn Session,
        options: &ProfileOptions,
        sizes: Sizes,
        past: usize,
    ) -> Result<Vec<(String, Tensor)>> {
        let made = || -> Result<Vec<(String, Tensor)>> {
            Ok(inputs_after(&self.open_specs(part, session, options)?, sizes, past, options.seed)?)
        };
        let mut inputs = made().map_err(|error| match error.downcast_ref() {
            Some(InputError::TooLarge { .. }) | None => error,
            Some(_) => error.context("planish cannot make up an input: give it with --inputs FILE.safetensors"),
        })?;
        let tensor = |port: &Port| options.inputs.iter().find(|(name, _)| *name == port.name).cloned();
        inputs.extend(session.inputs().iter().filter_map(tensor));
        Ok(inputs)
    }

    /// Whether inputs of a part are made up that may not fit.
    pub(super) fn made_up(&self, part: &str, session: &dyn Session, options: &ProfileOptions) -> Result<bool> {
        Ok(may_not_fit(&self.open_specs(part, session, options)?))
    }

    /// The inputs of a part that were not given.
    fn open_specs(&self, part: &str, session: &dyn Session, options: &ProfileOptions) -> Result<Vec<InputSpec>> {
        let is_open = |port: &&Port| options.inputs.iter().all(|(name, _)| *name != port.name);
        let open: Vec<Port> = session.inputs().iter().filter(is_open).cloned().collect();
        match &self.source {
            Source::Artifact(artifact) => input_specs(&open, artifact.part(part)?, artifact.manifest.pad_token_id),
            Source::Onnx(_, ids) => Ok(specs(&open, ids, self.graph(part)?.interface.clone())?),
        }
    }
}

/// What records the runs of a runtime.
fn profiler(runtime: &dyn Runtime) -> Result<&dyn Profiler, Unprofiled> {
    let name = runtime.name();
    runtime.profiler().map_err(|other| {
        Unprofiled(format!(
            "the runtime `{name}` does not tell the times of nodes: --runtime ort and --runtime reference do, for artifacts \
             with ONNX files, and --runtime cuda does, for artifacts for target cuda; {other}"
        ))
    })
}
