//! `planish bench`.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{RuntimeArguments, Usage, VerificationFailed, note, print, print_json, warn};
use crate::backend::{self, MakeRuntime, RuntimeSettings};
use crate::bench::{BenchObserver, BenchOptions, Cell, Contest, Measured, find_artifacts, table};
use crate::files;

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
    /// Where to run: ort, ort-cuda [default: where each artifact is compiled for]
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", value_parser = runtime)]
    runtime: Vec<MakeRuntime>,
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

/// What follows `--runtime`.
fn runtime(name: &str) -> Result<MakeRuntime, String> {
    backend::runtime_named(name)
}

impl Arguments {
    /// The file that figures are written to.
    fn file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|path| *path != Path::new("-"))
    }
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let options = options(&arguments)?;
    if let Some(path) = arguments.file() {
        files::check_writable(path)?;
    }
    let contest = Contest {
        artifacts: find_artifacts(&arguments.artifacts)?,
        references: arguments.reference.clone(),
        runtimes: arguments.runtime.clone(),
        settings: RuntimeSettings { sleeping: !options.spin, ..arguments.library.settings() },
    };
    let mut console = Console::new();
    contest.check_lengths(&options, &mut console).map_err(Usage)?;
    let document = contest.bench(&options, &mut console)?;
    console.bar.finish_and_clear();
    let failures: Vec<String> = document.cells.iter().filter_map(failure).collect();
    let file = arguments.file();
    if arguments.json.is_none() || file.is_some() {
        print(&format!("{}\n", table(&document.cells)))?;
    }
    if arguments.json.is_some() {
        match file {
            None => print_json(&document.without_samples())?,
            Some(path) => files::write(path, (serde_json::to_string(&document)? + "\n").as_bytes())?,
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(VerificationFailed(failures).into()) }
}

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

    fn warning(&mut self, text: &str) {
        warn(text);
    }

    fn note(&mut self, text: &str) {
        note(text);
    }
}
