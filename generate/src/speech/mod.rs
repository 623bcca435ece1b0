//! Recordings written down: [`transcribe`] takes recordings and gives segments of text with their times.

mod ctc;
mod formats;
mod languages;
mod model;
mod plain;
mod rules;
mod segments;
mod settings;
mod source;
mod stretches;
mod told;
mod transcriber;
mod window;

use std::path::PathBuf;

use anyhow::{Result, bail};
use planish_artifact::Artifact;
use planish_artifact::backend::{RuntimeSettings, lacks};
use planish_data::tokenizer::TextTokenizer;
use planish_sounds::Recording;
use serde::Serialize;
use serde_json::{Map, Value};

use ctc::CtcTranscriber;
pub use formats::TranscriptFormat;
use model::SpeechModel;
use plain::PlainTranscriber;
use settings::Settings;
pub use settings::{SpeechTask, Thresholds};
use source::Features;
use transcriber::{Asked, Transcriber};

/// The temperatures at which a window is decoded until its text is not doubtful.
const TEMPERATURES: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];

/// A piece of what a recording says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Segment {
    /// Its place among those of the recording.
    pub id: usize,
    /// The frame that its window begins at, where windows follow from each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seek: Option<usize>,
    /// Seconds from the beginning of the recording.
    pub start: f64,
    /// Seconds from the beginning of the recording.
    pub end: f64,
    /// Without timestamps.
    pub text: String,
    /// With timestamps, where the model writes tokens one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Vec<i64>>,
    /// The temperature of its window; 0 is the likeliest tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The mean log probability of the tokens of its window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg_logprob: Option<f64>,
    /// How much longer the ids of its window are than what zlib makes of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression_ratio: Option<f64>,
    /// The probability that nobody speaks in its window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_speech_prob: Option<f64>,
    /// Words with their times, where the model tells them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<SpokenWord>,
}

/// A word and when it is said.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpokenWord {
    /// The word.
    pub word: String,
    /// Seconds from the beginning of the recording.
    pub start: f64,
    /// Seconds from the beginning of the recording.
    pub end: f64,
}

/// A recording that was written down.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Transcribed {
    /// The code of the language that was spoken, where it is known.
    pub language: Option<String>,
    /// How long the recording is.
    pub seconds: f64,
}

/// Is told what happens, by the numbers of recordings from 0 on. Recordings of a batch take turns.
pub trait TranscribeObserver {
    /// Something may be wrong.
    fn warning(&self, text: &str);

    /// A recording begins that has so many seconds by its own words.
    ///
    /// # Errors
    /// These end the transcription, as those of the others.
    fn began(&self, recording: usize, seconds: f64) -> Result<()>;

    /// A language was found, with its probability among those that the model knows.
    ///
    /// # Errors
    /// As above.
    fn detected(&self, recording: usize, language: &str, probability: f64) -> Result<()>;

    /// A segment is done.
    ///
    /// # Errors
    /// As above.
    fn segment(&self, recording: usize, segment: &Segment) -> Result<()>;

    /// So many seconds are done.
    ///
    /// # Errors
    /// As above.
    fn progress(&self, recording: usize, seconds: f64) -> Result<()>;

    /// A recording is done.
    ///
    /// # Errors
    /// As above.
    fn ended(&self, recording: usize, transcribed: Transcribed) -> Result<()>;
}

/// How recordings are transcribed.
#[derive(Clone, Debug)]
pub struct TranscribeOptions {
    /// The language that is spoken, by code or name; absent where the model finds it.
    pub language: Option<String>,
    /// What is written down; what generation_config.json says where absent.
    pub task: Option<SpeechTask>,
    /// The temperatures at which a doubtful window is decoded, one after the other; 0, 0.2, 0.4, 0.6, 0.8 and 1 where there are none.
    pub temperatures: Vec<f64>,
    /// Settings in the place of those of generation_config.json, by the same keys; of other models than Whisper `chunk_length_s` too.
    pub settings: Map<String, Value>,
    /// How many recordings run side by side; of other models than Whisper, how many windows of a recording.
    pub batch: usize,
    /// Recording number n draws with the seed plus n, where temperatures are above 0.
    pub seed: u64,
    /// The numbers that recordings draw by, where they are some of many; their places from 0 on where there are none.
    pub numbers: Vec<usize>,
    /// Threads of the runtime; 0 leaves the number to it.
    pub threads: usize,
    /// How runtimes are found.
    pub runtime: RuntimeSettings,
}

impl Default for TranscribeOptions {
    fn default() -> Self {
        Self {
            language: None,
            task: None,
            temperatures: Vec::new(),
            settings: Map::new(),
            batch: 1,
            seed: 0,
            numbers: Vec::new(),
            threads: 0,
            runtime: RuntimeSettings::default(),
        }
    }
}

/// Writes down what recordings say.
///
/// # Errors
/// When the artifact does not transcribe, a recording cannot be read, a setting cannot be honoured, the runtime is unavailable or
/// fails, and when the observer fails.
pub fn transcribe(
    artifact: &Artifact,
    recordings: &[PathBuf],
    options: &TranscribeOptions,
    observer: &dyn TranscribeObserver,
) -> Result<()> {
    let runtime = artifact.runtime(&RuntimeSettings { fast_start: true, ..options.runtime.clone() });
    if let Some(problem) = lacks(runtime.as_ref(), artifact.computes()) {
        return Err(problem.into());
    }
    // One that is not there ends the transcription before the first is written down.
    for path in recordings.iter().filter(|path| path.as_os_str() != "-") {
        Recording::open(path)?;
    }
    if let Some(part) = ctc::part(artifact) {
        let transcriber = CtcTranscriber::load(artifact, part, runtime.as_ref(), options, observer)?;
        return recordings.iter().enumerate().try_for_each(|(number, path)| transcriber.run(number, path));
    }
    if plain::is_plain(artifact) {
        let transcriber = PlainTranscriber::load(artifact, runtime.as_ref(), options, observer)?;
        return recordings.iter().enumerate().try_for_each(|(number, path)| transcriber.run(number, path));
    }
    if options.settings.contains_key(ctc::LENGTH) {
        bail!(
            "--set {} is of models of windows of any length, and the windows of Whisper have the length that its encoder takes",
            ctc::LENGTH
        );
    }
    let settings = Settings::read(artifact, &options.settings)?;
    if !settings.unknown.is_empty() {
        observer.warning(&format!("unknown keys of generation_config.json: {}", settings.unknown.join(", ")));
    }
    let tokenizer = TextTokenizer::open(&artifact.folder)?;
    let model = SpeechModel::load(artifact, runtime.as_ref(), options.threads)?;
    let features = Features::read(&artifact.folder, model.window, model.takes_samples)?;
    let mut transcriber = Transcriber { model, settings, tokenizer, observer };
    let asked = Asked {
        language: options.language.as_deref(),
        task: options.task,
        temperatures: if options.temperatures.is_empty() { &TEMPERATURES } else { &options.temperatures },
        batch: options.batch,
        cuts: transcriber.settings.cuts,
        seed: options.seed,
        numbers: &options.numbers,
    };
    transcriber.run(recordings.len(), &mut |number| features.open(&recordings[number]), &asked)
}
