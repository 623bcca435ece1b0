//! `planish bench`.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use planish_eval::Limits;
use planish_models::Loaded;
use planish_runtimes::{
    Model, Reference, Runtime, SessionOptions, Unavailable,
    ort::{OnnxRuntime, Provider},
};

use super::verify::{input_specs, reference};
use super::{
    RuntimeArguments, Usage, VerificationFailed, check_types, note_elsewhere, print, print_json, provider, warn,
};
use crate::artifact::manifest::{Manifest, Part};
use crate::artifact::{MANIFEST, part_path};
use crate::bench::{
    BenchObserver, BenchOptions, Cell, Contestant, Document, Environment, Measured, Source, SourcePart, sweep, table,
};
use crate::files;
use crate::verify::{Tolerances, reference_limits};

/// Measure artifacts next to each other, each shape only where its outputs are right
///
/// Outputs are compared with the reference interpreter on the source checkpoint; a cell that
/// misses has no speed, and the exit code is 3. Artifacts of a model take turns, so that a drift
/// of the machine hits all alike; those of different models are measured one model after the
/// other.
///
/// Of a decoder with a cache two runs are measured at each length S of --seq: prompt, S tokens with
/// an empty cache, and step, one token with a cache of S. Of an encoder-decoder each part is:
/// encoder_model on S tokens, decoder_model on the decoder's first token, decoder_with_past_model on
/// one token with a cache of S, the last two for an encoder that had S tokens. What would take one
/// token more than the model does is left out.
///
/// In the table, ±CI is half of the median's 95% interval, percentiles stand only where
/// there are samples enough, load MB is what loading added to resident memory, cos is the cosine
/// to the reference, and vs base the speed relative to the first artifact (~ where the intervals
/// overlap). Where standard error is no terminal, it has a line for each cell that is done.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Artifact folders [default: the current folder, or those below it]
    artifacts: Vec<PathBuf>,
    /// Batch sizes
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N,..")]
    batch: Vec<u16>,
    /// Sequence lengths, in tokens, of models that take sequences [default: 128, or the most that every artifact takes]
    #[arg(long, value_delimiter = ',', value_name = "N,..")]
    seq: Vec<u32>,
    /// Where to run [default: where each artifact is compiled for]
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    runtime: Vec<RuntimeName>,
    /// Seconds that each cell is timed at least
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS")]
    time: f64,
    /// Runs of each cell at least
    #[arg(long, default_value_t = 50, value_name = "N")]
    iterations: u32,
    /// Threads of the runtime [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Have idle threads poll for work: lower latency on cores that nothing else uses
    #[arg(long)]
    spin: bool,
    /// The seed of inputs and order
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// The checkpoint the artifacts were compiled from; may be given several times for artifacts of
    /// several [default: the one in the folder of the artifact, beside it under its recorded name,
    /// or in the current folder, whichever it is]
    #[arg(long, value_name = "MODEL")]
    reference: Vec<PathBuf>,
    /// Write all figures as JSON to a file, with the time of each run, or without these in place of
    /// the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    #[command(flatten)]
    library: RuntimeArguments,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RuntimeName {
    /// ONNX Runtime's CPU provider
    Ort,
    /// ONNX Runtime's CUDA provider
    OrtCuda,
}

impl Arguments {
    /// The providers that an artifact is measured on.
    fn providers(&self, artifact: &Artifact) -> Vec<Provider> {
        let named = self.runtime.iter().map(|name| match name {
            RuntimeName::Ort => Provider::Cpu,
            RuntimeName::OrtCuda => Provider::Cuda,
        });
        let named: Vec<Provider> = named.collect();
        if named.is_empty() { vec![provider(&artifact.manifest.target)] } else { named }
    }

    /// The file that figures are written to.
    fn file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|path| *path != Path::new("-"))
    }

    fn on(&self, provider: Provider) -> OnnxRuntime {
        OnnxRuntime::with(provider, self.library.ort_lib.clone())
    }
}

/// An artifact to measure.
struct Artifact {
    folder: PathBuf,
    manifest: Manifest,
}

impl Artifact {
    fn open(folder: &Path) -> Result<Self> {
        let artifact = Self { folder: folder.to_owned(), manifest: Manifest::read(folder)? };
        Ok(artifact)
    }

    /// Artifacts of the same source files and task compute the same.
    fn same_model(&self, other: &Self) -> bool {
        let (own, other) = (&self.manifest, &other.manifest);
        let (files, others) = (&own.source.files, &other.source.files);
        let same = files.len() == others.len() && files.iter().zip(others).all(|(file, other)| file.may_be(other));
        same && own.source.name == other.source.name && own.task == other.task
    }

    fn part(&self, name: &str) -> Result<&Part> {
        let part = self.manifest.parts.iter().find(|part| part.name == name);
        part.ok_or_else(|| anyhow!("{} has no {name}: compile the model again", self.folder.join(MANIFEST).display()))
    }

    fn label(&self) -> String {
        let resolved = self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone());
        resolved.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn takes_sequences(&self) -> bool {
        let mut dims = self.manifest.parts.iter().flat_map(|part| &part.inputs).flat_map(|input| &input.port.shape);
        dims.any(|dim| dim.symbol().is_some_and(|symbol| symbol.contains("seq")))
    }

    /// Bytes of the files that hold a part.
    fn weights(&self, part: &Part) -> u64 {
        let file = format!("{}.onnx", part.name);
        let own = self.manifest.files.iter().map(|f| f.name.as_str()).filter(|name| name.starts_with(&file));
        let names = own.chain(self.manifest.linked.iter().map(String::as_str));
        names.filter_map(|name| fs::metadata(self.folder.join(name)).ok()).map(|m| m.len()).sum()
    }
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let mut options = options(&arguments)?;
    if let Some(path) = arguments.file() {
        files::check_writable(path)?;
    }
    let (artifacts, version) = runnable(find(&arguments.artifacts)?, &arguments)?;
    if options.sequence.is_empty() {
        let longest = artifacts.iter().filter_map(|a| a.manifest.max_sequence_length).min();
        options.sequence.push(longest.unwrap_or(SEQUENCE).min(SEQUENCE));
    }
    for artifact in &artifacts {
        for part in &artifact.manifest.parts {
            part_path(&artifact.folder, &artifact.manifest, part)?;
        }
        if !arguments.seq.is_empty() && !artifact.takes_sequences() {
            warn(&format!("--seq is of no use to {}: the model takes no sequences", artifact.folder.display()));
        }
        let longest = artifact.manifest.max_sequence_length.unwrap_or(usize::MAX);
        if let Some(seq) = options.sequence.iter().find(|s| **s > longest) {
            let folder = artifact.folder.display();
            return Err(Usage(format!("--seq {seq}: {folder} takes at most {longest} tokens")).into());
        }
    }
    // All of them before the first is measured, which takes minutes.
    let models = groups(artifacts).into_iter().map(|group| with_reference(group, &arguments));
    let models = models.collect::<Result<Vec<_>>>()?;
    let mut cells = Vec::new();
    for (group, loaded) in &models {
        cells.extend(measure(group, loaded, &arguments, &options)?);
    }
    let failures: Vec<String> = cells.iter().filter_map(failure).collect();
    let versions = [("onnxruntime".to_owned(), version)];
    let file = arguments.file();
    if arguments.json.is_none() || file.is_some() {
        print(&format!("{}\n", table(&cells)))?;
    }
    if arguments.json.is_some() {
        let document = Document::new(std::env::args().skip(1).collect(), Environment::read(versions), cells);
        match file {
            None => print_json(&document.without_samples())?,
            Some(path) => files::write(path, (serde_json::to_string(&document)? + "\n").as_bytes())?,
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(VerificationFailed(failures).into()) }
}

/// The artifacts that can be run here, the others being named in a warning, and the version of ONNX Runtime.
fn runnable(artifacts: Vec<Artifact>, arguments: &Arguments) -> Result<(Vec<Artifact>, String)> {
    let check = |artifact: &Artifact| {
        let mut version = String::new();
        for provider in arguments.providers(artifact) {
            check_types(provider, artifact.manifest.computes_in_bfloat16())?;
            // Providers of one library, so that all are of one version.
            version = arguments.on(provider).check()?.version;
        }
        Ok::<_, Unavailable>(version)
    };
    let (mut kept, mut version, mut left_out) = (Vec::new(), String::new(), Vec::new());
    for artifact in artifacts {
        match check(&artifact) {
            Ok(found) => {
                version = found;
                kept.push(artifact);
            }
            Err(problem) => left_out.push((artifact, problem)),
        }
    }
    if let (true, Some((_, problem))) = (kept.is_empty(), left_out.first()) {
        return Err(problem.clone().into());
    }
    for (artifact, problem) in &left_out {
        warn(&format!("{} is left out: {problem}", artifact.folder.display()));
    }
    Ok((kept, version))
}

/// The sequence length that is measured unless told otherwise.
const SEQUENCE: usize = 128;

fn failure(cell: &Cell) -> Option<String> {
    let failure = cell.failure.as_ref()?;
    Some(format!("{}, {}: {failure}", cell.model.id, cell.shape))
}

/// What the arguments say, before anything is opened; without --seq there are no sequence lengths yet.
fn options(arguments: &Arguments) -> Result<BenchOptions> {
    let time = Duration::try_from_secs_f64(arguments.time).map_err(|e| Usage(format!("--time: {e}")))?;
    let sequence = arguments.seq.iter().map(|s| usize::try_from(*s)).collect::<Result<Vec<_>, _>>()?;
    if time.is_zero() && arguments.iterations == 0 {
        return Err(Usage("--time 0 and --iterations 0 leave nothing to measure".to_owned()).into());
    }
    if arguments.batch.contains(&0) || sequence.contains(&0) {
        return Err(Usage("--batch and --seq are at least 1".to_owned()).into());
    }
    Ok(BenchOptions {
        batch: arguments.batch.iter().map(|b| usize::from(*b)).collect(),
        sequence,
        min_time: time,
        iterations: usize::try_from(arguments.iterations)?,
        threads: arguments.threads.unwrap_or(0).into(),
        spin: arguments.spin,
        seed: arguments.seed,
        ..BenchOptions::default()
    })
}

/// The artifacts of each model, in the order in which each was named first.
fn groups(artifacts: Vec<Artifact>) -> Vec<Vec<Artifact>> {
    let mut groups: Vec<Vec<Artifact>> = Vec::new();
    for artifact in artifacts {
        match groups.iter_mut().find(|group| group.iter().all(|other| other.same_model(&artifact))) {
            Some(group) => group.push(artifact),
            None => groups.push(vec![artifact]),
        }
    }
    groups
}

/// The artifacts of a model, and the model.
fn with_reference(artifacts: Vec<Artifact>, arguments: &Arguments) -> Result<(Vec<Artifact>, Loaded)> {
    let first = artifacts.first().ok_or_else(|| anyhow!("nothing to measure"))?;
    let (_, loaded) = reference(&arguments.reference, &first.folder, &first.manifest)?;
    Ok((artifacts, loaded))
}

/// Measures artifacts of one model.
fn measure(
    artifacts: &[Artifact],
    loaded: &Loaded,
    arguments: &Arguments,
    options: &BenchOptions,
) -> Result<Vec<Cell>> {
    let session = SessionOptions { threads: options.threads, spin: options.spin, ..SessionOptions::compiled() };
    let first = artifacts.first().ok_or_else(|| anyhow!("nothing to measure"))?;
    let mut source = on_reference(loaded, first, &session)?;
    let mut contestants = Vec::new();
    for artifact in artifacts {
        for (index, source) in source.parts.iter().enumerate() {
            let part = artifact.part(&source.name)?;
            let file = part_path(&artifact.folder, &artifact.manifest, part)?;
            let (label, precision) = (artifact.label(), &artifact.manifest.precision);
            let (weights, model) = (artifact.weights(part), Model::Onnx(&file));
            let tolerances = Tolerances::of(loaded, precision);
            for provider in arguments.providers(artifact) {
                let runtime = arguments.on(provider);
                let loaded = Contestant::load(&label, precision, &runtime, model, &session, weights, tolerances)?;
                note_elsewhere(loaded.session.as_ref());
                contestants.push(loaded.of_part(index, part.padded_logits().cloned()));
            }
        }
    }
    let mut console = Console::new();
    let cells = sweep(&mut contestants, &mut source, options, &mut console)?;
    console.bar.finish_and_clear();
    Ok(cells)
}

/// The parts of a model on the reference, with the inputs that the artifact of it takes.
fn on_reference(loaded: &Loaded, artifact: &Artifact, options: &SessionOptions) -> Result<Source> {
    let part = |part: &planish_models::Part| -> Result<SourcePart> {
        // Cells may be as large as the user says.
        let limits = Limits { memory: None, ..reference_limits(&part.graph) };
        let options = SessionOptions { limits, ..options.clone() };
        let session = Reference.load(Model::Graph(&part.graph), &options)?;
        let specs = input_specs(session.inputs(), artifact.part(part.name)?, artifact.manifest.pad_token_id)?;
        Ok(SourcePart { name: part.name.to_owned(), session, specs })
    };
    let parts = loaded.parts.iter().map(part).collect::<Result<_>>()?;
    Ok(Source { parts, longest: loaded.max_positions })
}

/// Progress on standard error: a bar on a terminal, elsewhere a line a cell.
struct Console {
    terminal: bool,
    bar: ProgressBar,
}

impl Console {
    fn new() -> Self {
        let terminal = io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(1000), target);
        if let Ok(style) = ProgressStyle::with_template("measuring {bar:30} {percent}%, {eta}") {
            bar.set_style(style);
        }
        Self { terminal, bar }
    }
}

impl BenchObserver for Console {
    fn progress(&mut self, share: f64) {
        self.bar.set_position((share * 1000.0) as u64);
    }

    fn measured(&mut self, cell: Measured<'_>) {
        if !self.terminal {
            // Standard error may be closed; the figures are what counts.
            let _ = writeln!(io::stderr(), "{cell}");
        }
    }
}

/// The artifacts that were named, or the one in the current folder, or those below it by the names
/// of their models.
fn find(named: &[PathBuf]) -> Result<Vec<Artifact>> {
    let mut folders = named.to_vec();
    if folders.is_empty() {
        below(Path::new("."), DEPTH, &mut folders);
    }
    if folders.is_empty() {
        bail!("there is no artifact in the current folder or below it; make one with `planish compile`, or name one");
    }
    let mut artifacts = folders.iter().map(|folder| Artifact::open(folder)).collect::<Result<Vec<_>>>()?;
    if named.is_empty() {
        artifacts.sort_by_key(|a| (a.manifest.source.name.clone(), a.manifest.task.clone(), a.folder.clone()));
    }
    Ok(artifacts)
}

/// How deep artifacts are looked for.
const DEPTH: usize = 3;

fn below(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if folder.join(MANIFEST).is_file() {
        found.push(folder.to_owned());
        return;
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|e| depth > 0 && e.file_type().is_ok_and(|t| t.is_dir())) {
        if !entry.file_name().to_string_lossy().starts_with('.') {
            below(&entry.path(), depth - 1, found);
        }
    }
}
