//! Encoder-decoders that write down what a recording says without timestamps, such as Moonshine: windows that overlap, and their texts
//! joined where they have most tokens in common (`AutomaticSpeechRecognitionPipeline` of the transformers library with
//! `chunk_length_s`, for models of the kind `seq2seq`).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_artifact::Artifact;
use planish_artifact::manifest::PartManifest;
use planish_data::SoundInputs;
use planish_data::tokenizer::TextTokenizer;
use planish_ir::{InputRole, PartRole};
use planish_models::Task;
use planish_runtimes::Runtime;
use planish_sounds::{Prepared, Processor, Recording};
use serde_json::Value;

use super::ctc::LENGTH;
use super::ctc::windows::{Plan, Window, Windows};
use super::settings::CUTS;
use super::source::on_file;
use super::{Segment, TranscribeObserver, TranscribeOptions, Transcribed};
use crate::encoder_decoder::EncoderDecoder;
use crate::images::Beginning;
use crate::model::Parts;
use crate::{GenerationConfig, LanguageModel, Length, Loading, Request, SearchOptions, search_each};

/// How many seconds windows have unless told otherwise.
const SECONDS: f64 = 30.0;

/// The most tokens for each second of a recording: those of the texts that Moonshine was trained on are fewer.
const TOKENS_PER_SECOND: f64 = 6.5;

/// Whether an artifact has an encoder of samples and a decoder. A graph that processes recordings takes samples of any model.
pub(super) fn is_plain(artifact: &Artifact) -> bool {
    let is_of_samples =
        || Processor::open(&artifact.folder).is_ok_and(|own| own.is_some_and(|own| own.gives_waveforms()));
    let reads_samples = |part: &PartManifest| {
        part.input_of(InputRole::Waveform).is_some() || part.input_of(InputRole::Recording).is_some() && is_of_samples()
    };
    let mut parts = artifact.manifest.parts.iter();
    artifact.manifest.task == Some(Task::AutomaticSpeechRecognition)
        && parts.any(|part| part.role == PartRole::Encoder && reads_samples(part))
}

/// A model with what its texts are made by.
pub(super) struct PlainTranscriber<'a> {
    model: RefCell<EncoderDecoder>,
    inputs: SoundInputs,
    tokenizer: TextTokenizer,
    /// Ids of tokens that are no text.
    special: BTreeSet<i64>,
    search: SearchOptions,
    /// Whether the length of texts is that of the settings; else it follows from the seconds of a window.
    has_length: bool,
    plan: Plan,
    /// How many windows run side by side.
    batch: usize,
    observer: &'a dyn TranscribeObserver,
}

impl<'a> PlainTranscriber<'a> {
    /// Loads an artifact that [is one](is_plain).
    ///
    /// # Errors
    /// When an option is of other models, a file is missing, or the runtime does not load the model.
    pub(super) fn load(
        artifact: &Artifact,
        runtime: &dyn Runtime,
        options: &TranscribeOptions,
        observer: &'a dyn TranscribeObserver,
    ) -> Result<Self> {
        let folder = artifact.folder.as_path();
        refuse(options, folder)?;
        let mut settings = options.settings.clone();
        let length = settings.remove(LENGTH).as_ref().and_then(Value::as_f64).unwrap_or(SECONDS);
        let has_length = settings.contains_key("max_new_tokens");
        let config = GenerationConfig::read_with(folder, settings)?;
        if !config.unknown.is_empty() {
            observer.warning(&format!("unknown keys of generation_config.json: {}", config.unknown.join(", ")));
        }
        let search = config.options(options.seed)?;
        if search.continuations.get() > 1 {
            bail!("`num_return_sequences` is {}, and a recording has one text; set it to 1", search.continuations);
        }
        let parts = Parts { artifact, runtime, loading: Loading::new(options.threads, true) };
        let encoder = parts.part(PartRole::Encoder)?;
        let wanted: Vec<_> = encoder.inputs.iter().map(|input| (input.value.name.as_str().into(), input)).collect();
        let inputs = SoundInputs::new(&wanted, folder)?;
        let tokenizer = TextTokenizer::open(folder)?;
        Ok(Self {
            model: RefCell::new(EncoderDecoder::load_with(&parts, Beginning::Prompt)?),
            plan: Plan::new(length, inputs.rate(), 1, inputs.fewest())?,
            inputs,
            special: tokenizer.special_ids()?,
            tokenizer,
            search,
            has_length,
            batch: options.batch,
            observer,
        })
    }

    /// Transcribes a recording. Its samples are read window by window.
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
        let rate = f64::from(self.inputs.rate());
        let (mut joined, mut written, mut id, mut seconds) = (Vec::new(), String::new(), 0, 0.0);
        while !windows.is_over() {
            let some = windows.next(self.batch)?;
            for (window, ids) in some.iter().zip(self.read(&some, path)?) {
                let new = join(&mut joined, ids);
                // A token may change the text of the one before it: that stays as it was written.
                let whole = self.tokenizer.decode(&joined)?;
                let text = match whole.strip_prefix(&written) {
                    Some(rest) => rest.to_owned(),
                    None => self.tokenizer.decode(joined.get(joined.len() - new..).unwrap_or_default())?,
                };
                written = whole;
                // What overlaps with the neighbours is theirs too: each has half of it.
                let (start, end) = (window.start + window.from, window.to.map_or(window.end, |to| window.start + to));
                seconds = window.end as f64 / rate;
                if !text.trim().is_empty() {
                    let [start, end] = [start, end].map(|sample| (sample as f64 / rate * 1000.0).round() / 1000.0);
                    let tokens = joined.get(joined.len() - new..).unwrap_or_default().to_vec();
                    self.observer.segment(number, &segment(id, [start, end], text.trim(), tokens))?;
                    id += 1;
                }
            }
            self.observer.progress(number, seconds)?;
        }
        self.observer.ended(number, Transcribed { language: None, seconds })
    }

    /// The tokens of windows of one length that are text.
    fn read(&self, windows: &[Window], path: &Path) -> Result<Vec<Vec<i64>>> {
        let prepared = windows.iter().map(|window| self.inputs.prepare(&window.samples, path));
        let prepared: Vec<Prepared> = prepared.collect::<Result<_>>()?;
        let samples = prepared.iter().map(Prepared::length).max().unwrap_or(0);
        let mut model = self.model.borrow_mut();
        model.show(self.inputs.inputs(&prepared)?).with_context(|| {
            format!(
                "the encoder cannot read a window of {samples} samples of {}; if that is fewer than its convolutions need, leave the recording \
                 out, or give a longer --set chunk_length_s",
                path.display()
            )
        })?;
        let length = match (self.has_length, self.search.length) {
            (false, Length::Total(most)) => Length::Total(self.most(samples).min(most)),
            (false, Length::New(most)) => Length::Total(self.most(samples).min(most.get().saturating_add(1))),
            (true, given) => given,
        };
        let requests: Vec<Request> =
            windows.iter().map(|_| Request { ids: Vec::new(), length, seed: self.search.seed }).collect();
        let found = search_each(&mut *model, &requests, &self.search, &mut |_, _| Ok(ControlFlow::Continue(())), None);
        let found =
            found.with_context(|| format!("cannot transcribe a window of {samples} samples of {}", path.display()))?;
        let text = |ids: &Vec<i64>| ids.iter().copied().filter(|id| !self.special.contains(id)).collect();
        Ok(found.continuations.iter().map(|continuation| text(&continuation.ids)).collect())
    }

    /// The most tokens of so many samples, with the one that a text begins with.
    fn most(&self, samples: usize) -> usize {
        ((samples as f64 * TOKENS_PER_SECOND / f64::from(self.inputs.rate())) as usize).max(2)
    }
}

/// Joins the tokens of a window to those before it, where the last of these have most in common with its first ones; how many tokens
/// are new. Of equal places the longest counts.
fn join(joined: &mut Vec<i64>, ids: Vec<i64>) -> usize {
    let (mut index, mut best) = (0, 0.0);
    for count in 1..=ids.len().min(joined.len()) {
        let last = &joined[joined.len() - count..];
        let matches = last.iter().zip(&ids).filter(|(one, other)| one == other).count();
        let share = matches as f64 / count as f64 + count as f64 / 10_000.0;
        if matches > 1 && share > best {
            (index, best) = (count, share);
        }
    }
    let new = ids.len() - index;
    joined.extend(ids.into_iter().skip(index));
    new
}

fn segment(id: usize, [start, end]: [f64; 2], text: &str, tokens: Vec<i64>) -> Segment {
    Segment {
        id,
        seek: None,
        start,
        end,
        text: text.to_owned(),
        tokens: Some(tokens),
        temperature: None,
        avg_logprob: None,
        compression_ratio: None,
        no_speech_prob: None,
        words: Vec::new(),
    }
}

/// The settings that say when a window of Whisper is decoded again or left out, and after what it is read.
const OF_WHISPER: [&str; 5] =
    ["compression_ratio_threshold", "condition_on_prev_tokens", CUTS, "logprob_threshold", "no_speech_threshold"];

/// Refuses what Whisper alone can be told.
fn refuse(options: &TranscribeOptions, folder: &Path) -> Result<()> {
    let asked = [
        ("--language", options.language.is_some()),
        ("--task", options.task.is_some()),
        ("--temperature", !options.temperatures.is_empty()),
    ];
    let of_windows = OF_WHISPER.iter().map(|key| (format!("--set {key}"), options.settings.contains_key(*key)));
    let asked = asked.map(|(option, is_asked)| (option.to_owned(), is_asked));
    match asked.into_iter().chain(of_windows).find(|(_, is_asked)| *is_asked) {
        Some((option, _)) => bail!(
            "{option} is of Whisper, and {} is an encoder-decoder without timestamps; leave it out",
            folder.display()
        ),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_joined_where_they_have_most_in_common() {
        let joined = |first: &[i64], second: &[i64]| {
            let mut all = first.to_vec();
            let new = join(&mut all, second.to_vec());
            (all, new)
        };
        assert_eq!(joined(&[1, 2, 3, 4], &[3, 4, 5]), (vec![1, 2, 3, 4, 5], 1));
        // One token in common is none.
        assert_eq!(joined(&[1, 2, 3], &[3, 4]), (vec![1, 2, 3, 3, 4], 2));
        // An error in the middle counts less than a longer match.
        assert_eq!(joined(&[1, 2, 9, 4, 5], &[2, 3, 4, 5, 6]), (vec![1, 2, 9, 4, 5, 6], 1));
        assert_eq!(joined(&[], &[1, 2]), (vec![1, 2], 2));
    }
}
