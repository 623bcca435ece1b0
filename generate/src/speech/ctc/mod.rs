//! Models of connectionist temporal classification on a runtime, such as wav2vec2: the likeliest tokens of the frames of windows that
//! overlap, joined, and their text (`AutomaticSpeechRecognitionPipeline` of the transformers library with `chunk_length_s`).

mod lines;
pub(super) mod windows;

use std::cell::RefCell;
use std::path::Path;

use anyhow::{Result, bail};
use planish_artifact::Artifact;
use planish_artifact::manifest::PartManifest;
use planish_data::SoundInputs;
use planish_data::tokenizer::ctc::{CtcDecoder, Timed, frame_places, frame_samples, likeliest_tokens};
use planish_models::Task;
use planish_runtimes::{Runtime, RuntimeValue, Session};
use planish_sounds::Recording;
use serde_json::Value;

use super::source::on_file;
use super::{Segment, SpokenWord, TranscribeObserver, TranscribeOptions, Transcribed};
use crate::Loading;
use crate::model::{Logits, Parts};
use lines::lines;
use windows::{Plan, Window, Windows};

/// The setting of how many seconds windows have.
pub(super) const LENGTH: &str = "chunk_length_s";

/// How many they have without it.
const SECONDS: f64 = 30.0;

/// The part of an artifact that is a CTC model; none where there is a decoder after it, as in Whisper.
pub(super) fn part(artifact: &Artifact) -> Option<&PartManifest> {
    if artifact.manifest.task != Some(Task::AutomaticSpeechRecognition) {
        return None;
    }
    match artifact.manifest.parts.as_slice() {
        [part] => Some(part),
        _ => None,
    }
}

/// A model with what its texts are made by.
pub(super) struct CtcTranscriber<'a> {
    session: RefCell<Box<dyn Session>>,
    logits: Logits,
    inputs: SoundInputs,
    decoder: CtcDecoder,
    plan: Plan,
    /// The time from one frame to the next.
    seconds: f64,
    /// How many places of features become a frame; absent of a model of samples.
    places: Option<usize>,
    /// How many windows run side by side.
    batch: usize,
    observer: &'a dyn TranscribeObserver,
}

impl<'a> CtcTranscriber<'a> {
    /// Loads an artifact whose [`part`] this is.
    ///
    /// # Errors
    /// When an option is not one of CTC, a file is missing, or the runtime does not load the model.
    pub(super) fn load(
        artifact: &Artifact,
        part: &PartManifest,
        runtime: &dyn Runtime,
        options: &TranscribeOptions,
        observer: &'a dyn TranscribeObserver,
    ) -> Result<Self> {
        let folder = artifact.folder.as_path();
        refuse(options, folder)?;
        let wanted: Vec<_> = part.inputs.iter().map(|input| (input.value.name.as_str().into(), input)).collect();
        let inputs = SoundInputs::new(&wanted, folder)?;
        let Some(frame) = frame_samples(folder)? else {
            bail!(
                "config.json and preprocessor_config.json of {} do not say how many samples a frame has (`conv_stride` of most models); copy \
                 these files from the checkpoint",
                folder.display()
            )
        };
        let length = options.settings.get(LENGTH).and_then(Value::as_f64).unwrap_or(SECONDS);
        let plan = Plan::new(length, inputs.rate(), frame as usize, inputs.fewest())?;
        let parts = Parts { artifact, runtime, loading: Loading::new(options.threads, true) };
        Ok(Self {
            session: RefCell::new(parts.session(part)?),
            logits: Logits::of(part)?,
            decoder: CtcDecoder::open(folder, None)?,
            plan,
            seconds: frame / f64::from(inputs.rate()),
            inputs,
            places: frame_places(folder)?,
            batch: options.batch,
            observer,
        })
    }

    /// Transcribes a recording. The tokens of its frames are in memory until its end; its samples are not.
    ///
    /// # Errors
    /// When it cannot be read or is too short, the model fails, or the observer does.
    pub(super) fn run(&self, number: usize, path: &Path) -> Result<()> {
        on_file(path, |path| self.recording(number, path))
    }

    fn recording(&self, number: usize, path: &Path) -> Result<()> {
        let recording = Recording::open(path)?;
        self.observer.began(number, recording.seconds().unwrap_or(0.0))?;
        let mut windows = Windows::new(self.plan, recording.samples(self.inputs.rate())?);
        let (mut ids, mut seconds) = (Vec::new(), 0.0);
        while !windows.is_over() {
            let some = windows.next(self.batch)?;
            self.read(&some, path, &mut ids)?;
            seconds = some.last().map_or(seconds, |window| window.end as f64 / f64::from(self.inputs.rate()));
            self.observer.progress(number, seconds)?;
        }
        for segment in self.segments(&ids)? {
            self.observer.segment(number, &segment)?;
        }
        self.observer.ended(number, Transcribed { language: None, seconds })
    }

    /// The likeliest tokens of the frames of windows that are kept.
    fn read(&self, windows: &[Window], path: &Path, ids: &mut Vec<i64>) -> Result<()> {
        let prepared = windows.iter().map(|window| self.inputs.prepare(&window.samples, path));
        let prepared = prepared.collect::<Result<Vec<_>>>()?;
        let inputs = self.inputs.inputs(&prepared)?;
        let inputs: Vec<(String, RuntimeValue)> =
            inputs.into_iter().map(|(name, tensor)| (name, tensor.into())).collect();
        let named: Vec<(&str, &RuntimeValue)> = inputs.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let mut outputs = self.session.borrow_mut().run_values(&named)?;
        let (scores, frames) = self.logits.all_columns(&mut outputs)?;
        let tokens = scores.len() / (windows.len() * frames).max(1);
        for ((window, prepared), scores) in
            windows.iter().zip(&prepared).zip(scores.chunks_exact((frames * tokens).max(1)))
        {
            let all = likeliest_tokens(scores, tokens, tokens);
            // Frames of places that are masked are of nothing.
            let there = self.places.map_or(all.len(), |places| prepared.length().div_ceil(places).min(all.len()));
            let to = window.to.unwrap_or(there).min(there);
            ids.extend(all.get(window.from..to).unwrap_or_default());
        }
        Ok(())
    }

    /// The lines of the tokens of frames.
    fn segments(&self, ids: &[i64]) -> Result<Vec<Segment>> {
        let mut segments: Vec<Segment> = Vec::new();
        for line in lines(self.decoder.decode(ids)?, self.seconds) {
            let (Some(first), Some(last)) = (line.first(), line.last()) else { continue };
            let (from, to) = (first.frames.start, last.frames.end);
            // The decoder writes words together as the tokenizer does.
            let text = self.decoder.decode(ids.get(from..to).unwrap_or_default())?.text;
            segments.push(Segment {
                id: segments.len(),
                seek: None,
                start: self.time(from),
                end: self.time(to),
                text,
                tokens: None,
                temperature: None,
                avg_logprob: None,
                compression_ratio: None,
                no_speech_prob: None,
                words: line.into_iter().map(|word| self.word(word)).collect(),
            });
        }
        Ok(segments)
    }

    fn word(&self, word: Timed) -> SpokenWord {
        let (start, end) = (self.time(word.frames.start), self.time(word.frames.end));
        SpokenWord { word: word.text, start, end }
    }

    /// When a frame begins, to thousandths of a second.
    fn time(&self, frame: usize) -> f64 {
        (frame as f64 * self.seconds * 1000.0).round() / 1000.0
    }
}

/// Refuses what Whisper alone can be told.
fn refuse(options: &TranscribeOptions, folder: &Path) -> Result<()> {
    let asked = [
        ("--language".to_owned(), options.language.is_some()),
        ("--task".to_owned(), options.task.is_some()),
        ("--temperature".to_owned(), !options.temperatures.is_empty()),
    ];
    let keys = options.settings.keys().map(|key| (format!("--set {key}"), key != LENGTH));
    match asked.into_iter().chain(keys).find(|(_, is_asked)| *is_asked) {
        Some((option, _)) => bail!(
            "{option} is of Whisper, and {} is a CTC model, which writes down the likeliest token of each frame; leave it out",
            folder.display()
        ),
        None => Ok(()),
    }
}
