//! Whisper on a runtime: the encoder of windows, and the decoder with its cache.

use anyhow::{Context, Result, anyhow, bail};
use planish_artifact::Artifact;
use planish_artifact::manifest::PartManifest;
use planish_eval::Tensor;
use planish_ir::interface::CacheKind;
use planish_ir::{DType, InputRole, OutputRole, PartRole};
use planish_runtimes::{Runtime, RuntimeValue, Session};

use super::source::window_of;
use crate::Loading;
use crate::cache::Cache;
use crate::model::{Logits, Parts, matrix, output};

/// A model of an encoder of features and a decoder.
pub(super) struct SpeechModel {
    encoder: Box<dyn Session>,
    /// The name of the features.
    features: String,
    /// Whether they are samples, of which the encoder makes features.
    pub(super) takes_samples: bool,
    /// The names of what the encoder gives to a decoder.
    given: Vec<String>,
    /// Bands and frames of a window.
    pub(super) window: [usize; 2],
    /// The type of the features.
    dtype: DType,
    /// The decoder of the first tokens; absent where the encoder gives keys and values, so that the other one reads them.
    first: Option<First>,
    next: Box<dyn Session>,
    next_ids: String,
    /// Of the text, and of the window.
    caches: [Cache; 2],
    logits: Logits,
    /// Ids are from 0 to below this.
    pub(super) vocabulary: usize,
    /// The longest text, in tokens.
    pub(super) longest: usize,
}

/// A decoder of the first tokens of texts.
struct First {
    session: Box<dyn Session>,
    /// The names of the ids and of the encoder's states.
    names: [String; 2],
}

/// What the encoder gives for windows, each with a row for a window: its states, or the keys and values that the decoder attends to.
pub(super) struct Heard(Vec<RuntimeValue>);

impl Heard {
    /// Some of the windows.
    ///
    /// # Errors
    /// When there are no such windows.
    pub(super) fn take_rows(&self, rows: &[usize]) -> Result<Self> {
        let taken: Option<Vec<RuntimeValue>> = self.0.iter().map(|value| value.take_rows(rows)).collect();
        taken.map(Self).ok_or_else(|| anyhow!("the encoder did not return the rows {rows:?}"))
    }
}

/// Scores of a run.
pub(super) struct Columns {
    values: Vec<f32>,
    columns: usize,
    vocabulary: usize,
}

impl Columns {
    /// The scores of what follows a column of a row.
    pub(super) fn at(&self, row: usize, column: usize) -> &[f32] {
        &self.values[(row * self.columns + column) * self.vocabulary..][..self.vocabulary]
    }

    /// The same of the last column.
    pub(super) fn last(&self, row: usize) -> &[f32] {
        self.at(row, self.columns - 1)
    }

    /// How many columns there are.
    pub(super) fn count(&self) -> usize {
        self.columns
    }
}

impl SpeechModel {
    /// Loads an artifact.
    ///
    /// # Errors
    /// When it is no such model, or the runtime does not load it.
    pub(super) fn load(artifact: &Artifact, runtime: &dyn Runtime, threads: usize) -> Result<Self> {
        let parts = Parts { artifact, runtime, loading: Loading::new(threads, true) };
        let [encoder, next] = [parts.part(PartRole::Encoder)?, parts.part(PartRole::NextStep)?];
        let gives_keys = encoder.outputs.iter().any(|output| output.role.cache().is_some());
        let first = if gives_keys { None } else { Some(parts.part(PartRole::FirstStep)?) };
        let session = parts.session(encoder)?;
        let takes_samples = encoder.input_of(InputRole::Recording).is_some();
        let features = encoder.named(if takes_samples { InputRole::Recording } else { InputRole::Features })?;
        let port = session.inputs().iter().find(|port| port.name == features);
        let port = port.ok_or_else(|| anyhow!("the encoder has no input `{features}`; compile the model again"))?;
        let size = |axis: usize| {
            let size = port.ty.shape.get(axis).and_then(|dim| dim.as_constant());
            size.and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0)
        };
        let sizes = if takes_samples { window_of(&artifact.folder)? } else { [size(1), size(2)] };
        let [Some(bands), Some(frames)] = sizes else {
            bail!("`{features}` is {}, and bands and frames of known numbers are expected", port.ty)
        };
        let dtype = port.ty.dtype;
        let next_session = parts.session(next)?;
        let cache = |cross: bool| {
            let wanted = move |kind: CacheKind| (kind == CacheKind::Encoder) == cross;
            Cache::new(next_session.inputs(), next, first.unwrap_or(encoder), wanted)
        };
        let caches = [cache(false), cache(true)];
        let given = match first {
            Some(_) => vec![encoder.given(OutputRole::HiddenStates)?],
            None => caches[1].outputs().map(str::to_owned).collect(),
        };
        let of_first = |first: &PartManifest| -> Result<First> {
            let names = [first.named(InputRole::DecoderTokenIds)?, first.named(InputRole::EncoderStates)?];
            Ok(First { session: parts.session(first)?, names })
        };
        Ok(Self {
            encoder: session,
            features,
            takes_samples,
            given,
            window: [bands, frames],
            dtype,
            first: first.map(of_first).transpose()?,
            next: next_session,
            next_ids: next.named(InputRole::DecoderTokenIds)?,
            caches,
            logits: Logits::of(next)?,
            vocabulary: usize::try_from(parts.vocabulary(next)?)?,
            longest: parts.longest(),
        })
    }

    /// What the encoder makes of windows, each the features [bands, frames], or the samples of as many frames.
    ///
    /// # Errors
    /// When the runtime fails.
    pub(super) fn encode(&mut self, windows: &[Vec<f32>]) -> Result<Heard> {
        let [bands, frames] = self.window;
        let shape = match self.takes_samples {
            true => vec![windows.len(), windows.first().map_or(0, Vec::len)],
            false => vec![windows.len(), bands, frames],
        };
        let features = match self.dtype {
            DType::F32 => Tensor::new(shape, windows.concat()),
            dtype => {
                let numbers: Vec<f64> = windows.iter().flatten().map(|number| f64::from(*number)).collect();
                Tensor::from_f64(dtype, shape, &numbers)
            }
        };
        let features = features.context("windows differ in their sizes")?.into();
        let mut outputs = self.encoder.run_values(&[(&self.features, &features)])?;
        self.given.iter().map(|name| output(&mut outputs, name)).collect::<Result<_>>().map(Heard)
    }

    /// Reads what texts begin with, a row each and all of one length, in the place of what was read before.
    ///
    /// # Errors
    /// When the runtime fails.
    pub(super) fn start(&mut self, heard: &Heard, texts: &[Vec<i64>]) -> Result<Columns> {
        let ids = matrix(texts.len(), texts.concat())?;
        if let (Some(first), [states]) = (&mut self.first, heard.0.as_slice()) {
            let [ids_name, states_name] = &first.names;
            let mut outputs = first.session.run_values(&[(ids_name, &ids), (states_name, states)])?;
            self.caches.iter_mut().try_for_each(|cache| cache.update(&mut outputs))?;
            return self.columns(&mut outputs);
        }
        let all: Vec<usize> = (0..texts.len()).collect();
        let [own, cross] = &mut self.caches;
        own.clear(texts.len())?;
        // The same windows are read again at other temperatures.
        cross.put(heard.take_rows(&all)?.0);
        self.read(&ids)
    }

    /// Goes on with some of the rows, in this order, and reads a token in each.
    ///
    /// # Errors
    /// When the runtime fails.
    pub(super) fn step(&mut self, rows: Option<&[usize]>, ids: &[i64]) -> Result<Columns> {
        if let Some(rows) = rows {
            self.caches.iter_mut().try_for_each(|cache| cache.take_rows(rows))?;
        }
        let ids = matrix(ids.len(), ids.to_vec())?;
        self.read(&ids)
    }

    /// Reads tokens after what the cache has.
    fn read(&mut self, ids: &RuntimeValue) -> Result<Columns> {
        let [own, cross] = &mut self.caches;
        let cached = own.inputs().chain(cross.inputs());
        let inputs: Vec<(&str, &RuntimeValue)> = std::iter::once((self.next_ids.as_str(), ids)).chain(cached).collect();
        let mut outputs = self.next.run_values(&inputs)?;
        own.update(&mut outputs)?;
        self.columns(&mut outputs)
    }

    fn columns(&self, outputs: &mut Vec<(String, RuntimeValue)>) -> Result<Columns> {
        let (values, columns) = self.logits.all_columns(outputs)?;
        Ok(Columns { values, columns, vocabulary: self.vocabulary })
    }
}
