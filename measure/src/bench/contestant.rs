//! What is measured: an artifact, or a part of one, on a runtime.

use std::time::Instant;

use anyhow::Result;
use planish_artifact::named;
use planish_artifact::verification::{LogitsForm, Tolerances};
use planish_eval::Tensor;
use planish_ir::Graph;
use planish_runtimes::{Runtime, Session};
use serde::{Deserialize, Serialize};

use super::environment::memory;
use crate::apart::Apart;

/// A loaded artifact, or a part of one.
pub struct Contestant {
    /// How the artifact is called.
    pub label: String,
    /// The place of the part among those of the model.
    pub part: usize,
    /// The runtime it is loaded in.
    pub runtime: &'static str,
    /// Its precision, as tables name it.
    pub precision: String,
    /// The size of the files that the runtime reads, in bytes.
    pub file_bytes: u64,
    /// How far its outputs may be from the reference's.
    pub tolerances: Tolerances,
    /// Whether it comes from another exporter, which may leave out some outputs of the model.
    pub is_foreign: bool,
    /// How its logits differ in shape from those of the model.
    pub logits: LogitsForm,
    /// Its graph, to count its weights and what a run reads; absent where it cannot be read.
    pub(crate) graph: Option<Graph>,
    /// The session of the contestant, in a process of its own or in this one.
    pub(crate) session: Place,
    pub(crate) load: Load,
    pub(crate) resident: Option<u64>,
}

/// Where a session is.
pub(crate) enum Place {
    /// In this process.
    Here(Box<dyn Session>),
    /// In a process of its own.
    Apart(Box<Apart>),
}

impl Place {
    pub(crate) fn session(&self) -> &dyn Session {
        match self {
            Self::Here(session) => session.as_ref(),
            Self::Apart(session) => session.as_ref(),
        }
    }

    pub(crate) fn session_mut(&mut self) -> &mut dyn Session {
        match self {
            Self::Here(session) => session.as_mut(),
            Self::Apart(session) => session.as_mut(),
        }
    }
}

/// The inputs that a session has, in the form in which it takes them: a graph of another exporter may compute positions itself.
pub(super) fn fitted<'a>(session: &dyn Session, inputs: &'a [(String, Tensor)]) -> Vec<(&'a str, Tensor)> {
    let has = |name: &str| session.inputs().iter().any(|port| port.name == name);
    named(session, inputs).into_iter().filter(|(name, _)| has(name)).collect()
}

/// How long an artifact took until it had run once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Loading, in milliseconds. Files that were read before come from the system's cache.
    pub ms: f64,
    /// The first run after it, in milliseconds; absent where it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_ms: Option<f64>,
    /// The bytes that came from storage for the process that loaded it; of the workload `load`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read_bytes: Option<u64>,
}

impl Contestant {
    /// Loads an artifact of one part, or the first part of one, and takes the time and the memory that takes.
    ///
    /// # Errors
    /// When the runtime does not load it.
    pub fn load(
        label: &str,
        precision: &str,
        runtime: &dyn Runtime,
        load: impl FnOnce() -> Result<Box<dyn Session>>,
        file_bytes: u64,
        tolerances: Tolerances,
    ) -> Result<Self> {
        // What is resident is read before and after, so what the first use of the runtime itself
        // takes must not fall between.
        runtime.check()?;
        let (before, start) = (memory("VmRSS"), Instant::now());
        let session = load()?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let resident = memory("VmRSS").zip(before).map(|(after, before)| after.saturating_sub(before));
        let load = Load { ms, ..Load::default() };
        Ok(Self::new(label, precision, runtime.name(), Place::Here(session), (load, resident), file_bytes, tolerances))
    }

    /// A session that was loaded in a process of its own.
    pub(crate) fn apart(label: &str, precision: &str, apart: Apart, file_bytes: u64, tolerances: Tolerances) -> Self {
        let (runtime, known) = (apart.runtime, (apart.load, apart.resident));
        Self::new(label, precision, runtime, Place::Apart(Box::new(apart)), known, file_bytes, tolerances)
    }

    fn new(
        label: &str,
        precision: &str,
        runtime: &'static str,
        session: Place,
        (load, resident): (Load, Option<u64>),
        file_bytes: u64,
        tolerances: Tolerances,
    ) -> Self {
        Self {
            label: label.to_owned(),
            part: 0,
            runtime,
            precision: precision.to_owned(),
            file_bytes,
            tolerances,
            is_foreign: false,
            logits: LogitsForm::default(),
            graph: None,
            session,
            load,
            resident,
        }
    }

    /// The same, for the part at another place, with the form of its logits.
    #[must_use]
    pub fn of_part(self, part: usize, logits: LogitsForm) -> Self {
        Self { part, logits, ..self }
    }
}
