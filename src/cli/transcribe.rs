//! `planish transcribe`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use planish_artifact::Artifact;
use planish_generate::{
    Segment, SpeechTask, TranscribeObserver, TranscribeOptions, Transcribed, TranscriptFormat, transcribe,
};
use serde::Serialize;

use super::generate_numbers::{seed, temperature};
use super::heartbeat::Heartbeat;
use super::keys::KeyArguments;
use super::numbers::whole;
use super::terminal::{bars, print_made, progress};
use super::threads::ThreadArguments;
use super::transcribe_settings::TranscribeSettings;
use super::{RunOn, Usage, note, print_json, warn};

/// The most recordings that run side by side.
const MOST_BATCH: usize = 256;

/// Write down what recordings say, with the artifact of Whisper, Moonshine or a CTC model
///
/// Of Whisper, a window of the length that the model takes, 30 s for Whisper, is decoded after the other; each begins where the last timestamp of
/// the one before is, as in the transformers library. Recordings are read piece by piece, so that memory does not depend on their
/// length. Where a text repeats itself or is unlikely, the window is decoded again at the next temperature; where the model says that
/// nobody speaks, it is left out.
///
/// The settings come from the artifact's generation_config.json: tokens that are suppressed, languages and tasks, thresholds. How
/// features are made comes from preprocessor_config.json.
///
/// A CTC model, such as wav2vec2, reads windows of 30 s that overlap by 10 s, of which the frames of 5 s at their edges are left out, as
/// in the pipeline of the transformers library. So does Moonshine, whose texts are joined where they have most tokens in common. They have
/// no language, task or temperature to choose.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The artifact's folder
    artifact: PathBuf,
    /// The recordings: WAV, FLAC, MP3, Ogg, MPEG-4 or AAC files of any rate; `-` reads one from standard input
    #[arg(required = true)]
    audio: Vec<PathBuf>,
    /// The folder for what recordings say: NAME.txt for a recording NAME.wav. A file that is there is replaced [default: standard
    /// output]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The forms of what is written, with commas between them: txt (a segment a line), srt, vtt, or json (segments with times, tokens and
    /// probabilities; on standard output a segment a line)
    #[arg(long, value_name = "FORMAT,..", value_delimiter = ',', default_value = "txt")]
    format: Vec<TranscriptFormat>,
    /// The language that is spoken, as a code or a name such as de or german [default: the model finds it]
    #[arg(long, value_name = "LANGUAGE")]
    language: Option<String>,
    /// What is written down: `transcribe` in the language that is spoken, `translate` in English
    #[arg(long, value_name = "TASK", value_parser = task)]
    task: Option<SpeechTask>,
    /// The temperatures at which a window is decoded until its text is not doubtful, with commas between them; 0 takes the likeliest
    /// tokens [default: 0,0.2,0.4,0.6,0.8,1]
    #[arg(long, value_name = "T,..", value_delimiter = ',', value_parser = temperature)]
    temperature: Vec<f64>,
    /// How many recordings run side by side; of other models than Whisper, how many windows of a recording
    #[arg(long, value_name = "N", default_value = "1", value_parser = |text: &str| whole(text, 1, MOST_BATCH))]
    batch: usize,
    /// The seed of tokens that are drawn
    #[arg(long, value_name = "N", default_value = "0", value_parser = seed)]
    seed: u64,
    #[command(flatten)]
    settings: KeyArguments<TranscribeSettings>,
    #[command(flatten)]
    threads: ThreadArguments,
    /// Print JSON about the run: for each recording its segments, language and seconds, and the time it all took
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run_on: RunOn,
}

fn task(text: &str) -> Result<SpeechTask, String> {
    match text {
        "transcribe" => Ok(SpeechTask::Transcribe),
        "translate" => Ok(SpeechTask::Translate),
        _ => Err("expected transcribe or translate".to_owned()),
    }
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let Arguments { audio, output, format, json, .. } = arguments;
    if output.is_none() && format.len() > 1 {
        return Err(
            Usage("--format has several forms, and standard output takes one; name a folder with -o".into()).into()
        );
    }
    if audio.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
        return Err(
            Usage("- is given more than once, and standard input has one recording; give it once".into()).into()
        );
    }
    let subtitles = format.iter().find(|format| !format.can_be_joined());
    if let (None, false, Some(format), 2..) = (&output, json, subtitles, audio.len()) {
        return Err(Usage(format!(
            "--format {format} is for one recording on standard output, and there are {}; name a folder with -o",
            audio.len()
        ))
        .into());
    }
    let files = output.map(|folder| Files::new(&folder, &audio, &format)).transpose()?;
    let artifact = Artifact::open(&arguments.artifact)?;
    let (threads, runtime) = arguments.threads.settle(&arguments.run_on, &artifact);
    let options = TranscribeOptions {
        language: arguments.language,
        task: arguments.task,
        temperatures: arguments.temperature,
        settings: arguments.settings.members.clone(),
        batch: arguments.batch,
        seed: arguments.seed,
        numbers: Vec::new(),
        threads,
        runtime,
    };
    let shown = if json || files.is_some() { None } else { format.first().copied() };
    let console = Console::new(&audio, files, shown, json);
    transcribe(&artifact, &audio, &options, &console)
        .with_context(|| format!("cannot transcribe with {}", arguments.artifact.display()))?;
    console.finish()
}

/// What is written for recordings.
struct Files {
    /// The paths without endings, by recordings.
    stems: Vec<PathBuf>,
    formats: Vec<TranscriptFormat>,
}

impl Files {
    fn new(folder: &Path, audio: &[PathBuf], formats: &[TranscriptFormat]) -> Result<Self> {
        let stem = |path: &PathBuf| match path.as_os_str() == "-" {
            true => folder.join("stdin"),
            false => folder.join(path.file_stem().unwrap_or(path.as_os_str())),
        };
        let stems: Vec<PathBuf> = audio.iter().map(stem).collect();
        let mut known = BTreeMap::new();
        for (stem, path) in stems.iter().zip(audio) {
            if let Some(other) = known.insert(stem.clone(), path) {
                let (a, b, stem) = (other.display(), path.display(), stem.display());
                return Err(Usage(format!(
                    "{a} and {b} would both be written to {stem}; transcribe them into two folders"
                ))
                .into());
            }
        }
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        Ok(Self { stems, formats: formats.to_vec() })
    }

    /// The file of a recording in a form, while it is not complete.
    fn draft(&self, recording: usize, format: TranscriptFormat) -> PathBuf {
        self.path(recording, &format!("{format}.part"))
    }

    fn path(&self, recording: usize, ending: &str) -> PathBuf {
        let mut name = self.stems[recording].clone().into_os_string();
        name.push(format!(".{ending}"));
        name.into()
    }
}

/// A recording while it is transcribed.
#[derive(Default)]
struct Made {
    /// Seconds: of the recording, and done.
    seconds: f64,
    done: f64,
    /// Files that are not complete, but those of JSON.
    open: Vec<(TranscriptFormat, fs::File)>,
    /// Parts that are written, by forms.
    parts: BTreeMap<&'static str, usize>,
    /// What is to be printed once the recordings before are.
    waiting: String,
    /// Only where they are asked for as a document.
    segments: Vec<Segment>,
    transcribed: Option<Transcribed>,
}

/// A document about a recording.
#[derive(Serialize)]
struct Document<'a> {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    language: Option<&'a str>,
    seconds: f64,
    text: String,
    segments: &'a [Segment],
}

impl Made {
    fn document<'a>(&'a self, path: &Path) -> Document<'a> {
        let texts: Vec<&str> = self.segments.iter().map(|segment| segment.text.as_str()).collect();
        let language = self.transcribed.as_ref().and_then(|done| done.language.as_deref());
        let (file, seconds) = (path.display().to_string(), self.seconds);
        Document { file, language, seconds, text: texts.join(" ").trim().to_owned(), segments: &self.segments }
    }
}

/// What is written, printed, and shown to a person.
struct Console<'a> {
    audio: &'a [PathBuf],
    files: Option<Files>,
    /// The form on standard output.
    shown: Option<TranscriptFormat>,
    json: bool,
    made: RefCell<Vec<Made>>,
    /// The recording whose segments are printed.
    printing: Cell<usize>,
    bar: ProgressBar,
    heartbeat: Heartbeat,
    begun: Instant,
}

impl<'a> Console<'a> {
    fn new(audio: &'a [PathBuf], files: Option<Files>, shown: Option<TranscriptFormat>, json: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), bars());
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {msg}, {eta}") {
            bar.set_style(style);
        }
        let heartbeat = Heartbeat::of_pipe();
        heartbeat.step("loading");
        let made = RefCell::new(audio.iter().map(|_| Made::default()).collect());
        Self { audio, files, shown, json, made, printing: Cell::new(0), bar, heartbeat, begun: Instant::now() }
    }

    /// The seconds done of all recordings, and how many times faster that was than they are.
    fn pace(&self) -> (f64, f64, f64) {
        let made = self.made.borrow();
        let (done, all) = (made.iter().map(|made| made.done).sum::<f64>(), made.iter().map(|made| made.seconds).sum());
        (done, all, done / self.begun.elapsed().as_secs_f64().max(1e-9))
    }

    /// Prints what may be printed.
    fn print(&self) -> Result<()> {
        let mut made = self.made.borrow_mut();
        while let Some(open) = made.get_mut(self.printing.get()) {
            let text = std::mem::take(&mut open.waiting);
            if !text.is_empty() {
                self.bar.suspend(|| print_made(&text))?;
            }
            if open.transcribed.is_none() {
                break;
            }
            self.printing.set(self.printing.get() + 1);
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        self.bar.finish_and_clear();
        let (done, _, pace) = self.pace();
        let seconds = self.begun.elapsed().as_secs_f64();
        if self.json {
            let made = self.made.borrow();
            let recordings: Vec<Document<'_>> =
                made.iter().zip(self.audio).map(|(made, path)| made.document(path)).collect();
            let mut run = serde_json::json!({"recordings": recordings, "audio_seconds": done, "seconds": seconds});
            if done > 0.0 {
                run["real_time_factor"] = (seconds / done).into();
            }
            return print_json(&run);
        }
        progress(&format!("{done:.1} s of sound in {seconds:.1} s: {pace:.1} times real time"));
        Ok(())
    }
}

impl TranscribeObserver for Console<'_> {
    fn warning(&self, text: &str) {
        self.bar.suspend(|| warn(text));
    }

    fn began(&self, recording: usize, seconds: f64) -> Result<()> {
        self.made.borrow_mut()[recording].seconds = seconds;
        self.bar.set_length(self.pace().1.ceil() as u64);
        let Some(files) = &self.files else { return Ok(()) };
        let made = &mut self.made.borrow_mut()[recording];
        for format in files.formats.iter().filter(|format| **format != TranscriptFormat::Json) {
            let path = files.draft(recording, *format);
            let written = fs::File::create(&path).and_then(|mut file| {
                file.write_all(format.beginning().as_bytes())?;
                Ok(file)
            });
            made.open.push((*format, written.with_context(|| format!("cannot write {}", path.display()))?));
        }
        Ok(())
    }

    fn detected(&self, recording: usize, language: &str, probability: f64) -> Result<()> {
        let name = self.audio[recording].display();
        self.bar.suspend(|| note(&format!("{name}: the language is {language}, with probability {probability:.2}")));
        Ok(())
    }

    fn segment(&self, recording: usize, segment: &Segment) -> Result<()> {
        {
            let mut all = self.made.borrow_mut();
            let made = &mut all[recording];
            for (format, file) in &mut made.open {
                let count = made.parts.entry(format.ending()).or_default();
                let Some(part) = format.part(*count, &self.audio[recording], segment) else { continue };
                *count += 1;
                file.write_all(part.as_bytes()).with_context(|| format!("cannot write the {format} of a recording"))?;
            }
            if let Some(format) = self.shown {
                let count = made.parts.entry("shown").or_default();
                if *count == 0 {
                    made.waiting += format.beginning();
                }
                if let Some(part) = format.part(*count, &self.audio[recording], segment) {
                    *count += 1;
                    made.waiting += &part;
                }
            }
            let keeps = |files: &Files| files.formats.contains(&TranscriptFormat::Json);
            if self.json || self.files.as_ref().is_some_and(keeps) {
                made.segments.push(segment.clone());
            }
        }
        self.print()
    }

    fn progress(&self, recording: usize, seconds: f64) -> Result<()> {
        self.made.borrow_mut()[recording].done = seconds;
        let (done, all, pace) = self.pace();
        self.bar.set_position(done as u64);
        self.bar.set_message(format!("{done:.0} of {all:.0} s, {pace:.1} times real time"));
        self.heartbeat.done("transcribing", &format!("{done:.0} of {all:.0} s, {pace:.1} times real time"));
        Ok(())
    }

    fn ended(&self, recording: usize, transcribed: Transcribed) -> Result<()> {
        {
            let mut all = self.made.borrow_mut();
            let made = &mut all[recording];
            made.seconds = transcribed.seconds;
            made.done = made.seconds;
            made.transcribed = Some(transcribed);
            made.open = Vec::new();
            for format in self.files.iter().flat_map(|files| &files.formats) {
                let Some(files) = &self.files else { continue };
                let (draft, path) = (files.draft(recording, *format), files.path(recording, format.ending()));
                if *format == TranscriptFormat::Json {
                    let text = serde_json::to_string_pretty(&made.document(&self.audio[recording]))? + "\n";
                    fs::write(&draft, text).with_context(|| format!("cannot write {}", draft.display()))?;
                }
                fs::rename(&draft, &path).with_context(|| format!("cannot write {}", path.display()))?;
            }
            if !self.json {
                made.segments = Vec::new();
            }
        }
        self.print()
    }
}
