//! The command line: one file for each subcommand, with its arguments and its output.

mod bench;
mod bench_console;
mod bench_diff;
mod bench_merge;
mod bench_output;
mod bench_report;
mod bench_settings;
mod build_engine;
mod calibrate;
mod chat;
mod compile;
mod completions;
mod console;
mod debug;
mod downloads;
mod engine;
mod evaluate;
mod evaluate_speech;
mod explain;
mod gate;
mod generate;
mod generate_lines;
mod generate_numbers;
mod generate_settings;
mod heartbeat;
mod help;
mod hub;
mod import;
mod inspect;
mod inspect_cost;
mod inspect_devices;
mod inspect_engine;
mod inspect_estimate;
mod inspect_kernels;
mod keys;
mod man;
mod numbers;
mod overwrites;
mod passes;
mod precision;
mod predict;
mod profile;
mod quantization;
mod recipe;
mod refit_engine;
mod removed;
mod run;
mod runtime_options;
mod runtimes;
mod shard;
mod signals;
mod sweep;
pub(crate) mod terminal;
mod threads;
mod transcribe;
mod transcribe_settings;
mod tune;
mod typed;
mod variants;
mod verify;
mod weights;
mod written;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use planish_passes::Target;
use planish_runtimes::cuda::CompileError;
use planish_runtimes::{NoBuilder, Unavailable};

use planish_artifact::backend::{self, BACKENDS, Backend, MakeRuntime, RuntimeSettings};
use planish_artifact::evaluation::NoFigure;
use planish_artifact::files::unfinished::PROCESS;
use planish_artifact::recipe::RecipeError;
use planish_artifact::units::{bytes_text, count_text};
use planish_check::VerificationFailed;
use planish_check::evaluate::Broken;
use planish_check::gate::GateError;
use planish_check::predict::Unfit;
use planish_compiler::calibrate::FieldOfTable;
use planish_compiler::engine::{OptionError, ProfileError};
use planish_compiler::request::RequestError;
use planish_measure::profile::Unprofiled;
use planish_measure::sweep::{PlanError, TryAgain};
use runtime_options::{LibraryArguments, ProcessorArguments, RuntimeArguments};
use signals::Interrupted;
use terminal::{note, print, print_json, warn};

/// Compiles transformer checkpoints into verified ONNX graphs, without Python.
#[derive(Parser)]
#[command(name = "planish", version, propagate_version = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print no notes and no progress; warnings, errors and results stay
    #[arg(short, long, global = true)]
    quiet: bool,
}

const AFTER_HELP: &str = "Exit codes: 0 done; 1 failed; 2 wrong arguments; 3 verification failed, or \
                          bench diff found a slowdown; 4 the requested \
                          runtime is not available; 75 jobs of `sweep` are not done, try again; 129, 130, 143 ended by SIGHUP, SIGINT, SIGTERM.\n\
                          A signal leaves the old contents of the output in place. A signal after the new output is \
                          in place has no effect: the command ends with 0. A second signal ends it at once.";

#[derive(Subcommand)]
enum Command {
    Compile(Box<compile::Arguments>),
    BuildEngine(build_engine::Arguments),
    RefitEngine(refit_engine::Arguments),
    Calibrate(calibrate::Arguments),
    Inspect(inspect::Arguments),
    Verify(verify::Arguments),
    Evaluate(evaluate::Arguments),
    #[command(visible_alias = "embed")]
    Predict(predict::Arguments),
    Run(run::Arguments),
    Generate(generate::Arguments),
    Transcribe(Box<transcribe::Arguments>),
    Bench(Box<bench::Arguments>),
    /// A process of `planish bench --set isolate`
    #[command(name = planish_measure::apart::WORKER, hide = true)]
    BenchWorker,
    Sweep(sweep::Arguments),
    Profile(profile::Arguments),
    Runtimes(runtimes::Arguments),
    Passes(passes::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

/// Which runtime an artifact runs on, and how.
#[derive(clap::Args)]
struct RunOn {
    /// The runtime that runs the artifact: ort, openvino, ort-cuda, trt, cuda, cuda-baseline,
    /// cuda-emulator, reference [default: the one that it was compiled for]. An
    /// artifact of target trt runs on ort if it was compiled with --recipe engine.keep-onnx=true
    #[arg(long = "runtime", value_name = "NAME", value_parser = backend::runtime_named)]
    name: Option<MakeRuntime>,
    #[command(flatten)]
    options: RuntimeArguments,
}

impl RunOn {
    /// How runtimes are found, with the choice of the user.
    fn settings(&self) -> RuntimeSettings {
        RuntimeSettings { runtime: self.name, ..self.options.settings() }
    }
}

/// The value of `--target`.
fn backend(name: &str) -> Result<&'static Backend, String> {
    let Some(backend) = backend::find(name, BACKENDS) else {
        return Err(Target::find(name).err().map_or_else(String::new, |unknown| unknown.to_string()));
    };
    Ok(backend)
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    signals::handle();
    ExitCode::from(run(std::env::args_os()))
}

/// Runs a command line, the name of the program first; returns its exit code.
pub fn run(words: impl IntoIterator<Item = OsString>) -> u8 {
    let words: Vec<OsString> = words.into_iter().collect();
    let asks_for_summary = words.iter().any(|word| word == "-h");
    let mut command = if asks_for_summary { help::shortened(Cli::command()) } else { help::whole(Cli::command()) };
    let parsed = command.try_get_matches_from_mut(&words);
    if let Some(replaced) = parsed.as_ref().err().and_then(|error| removed::replaced(&words, error)) {
        terminal::error(&replaced);
        return 2;
    }
    let matches = parsed.map_err(|error| error.format(&mut command));
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            // Standard error may be closed too; the exit code still tells.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(1);
        }
    };
    terminal::set_quiet(cli.quiet);
    let done = match cli.command {
        Command::Compile(arguments) => compile::run(*arguments),
        Command::BuildEngine(arguments) => build_engine::run(arguments),
        Command::RefitEngine(arguments) => refit_engine::run(arguments),
        Command::Calibrate(arguments) => calibrate::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Verify(arguments) => verify::run(arguments),
        Command::Evaluate(arguments) => evaluate::run(arguments),
        Command::Predict(arguments) => predict::run(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Generate(arguments) => generate::run(arguments),
        Command::Transcribe(arguments) => transcribe::run(*arguments),
        Command::Bench(arguments) => bench::run(*arguments),
        Command::BenchWorker => planish_measure::apart::serve(warn),
        Command::Sweep(arguments) => sweep::run(arguments),
        Command::Profile(arguments) => profile::run(arguments),
        Command::Runtimes(arguments) => runtimes::run(arguments),
        Command::Passes(arguments) => passes::run(arguments),
        Command::Completions(arguments) => completions::run::<Cli>(arguments),
        Command::Man(arguments) => man::run(help::whole(Cli::command()), &arguments),
    };
    PROCESS.settle();
    let Err(error) = done else { return 0 };
    // A reader that has seen enough, such as `head`, is not a failure.
    let closed = |e: &(dyn std::error::Error + 'static)| {
        e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(closed) {
        return 0;
    }
    terminal::error(&format!("{error:#}"));
    exit_code(&error)
}

/// The exit code of an error: 1 failed, 2 a wrong request, 3 verification failed, 4 a runtime is not available, 75 try
/// again, and that of a signal.
#[must_use]
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let any = |test: fn(&(dyn std::error::Error + 'static)) -> bool| error.chain().any(test);
    if any(|e| e.is::<Interrupted>()) {
        Interrupted::CODE
    } else if any(|e| e.is::<VerificationFailed>() || e.is::<Broken>() || e.is::<Slower>()) {
        3
    } else if any(|e| e.is::<Unavailable>() || e.is::<NoBuilder>() || is_unavailable(e)) {
        4
    } else if any(|e| e.is::<TryAgain>()) {
        TryAgain::CODE
    } else if any(|e| {
        let asked = e.is::<Usage>() || e.is::<RecipeError>() || e.is::<RequestError>() || e.is::<GateError>();
        let fits = e.is::<NoFigure>() || e.is::<ProfileError>() || e.is::<OptionError>() || e.is::<FieldOfTable>();
        asked || fits || e.is::<Unprofiled>() || e.is::<Unfit>() || e.is::<PlanError>()
    }) {
        2
    } else {
        1
    }
}

fn is_unavailable(error: &(dyn std::error::Error + 'static)) -> bool {
    use planish_runtimes::RuntimeError;
    matches!(error.downcast_ref::<RuntimeError>(), Some(RuntimeError::Unavailable(_)))
        || matches!(error.downcast_ref::<CompileError>(), Some(CompileError::Unavailable(_)))
}

/// The arguments are wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// Cells of a benchmark became slower, or failed and did not before.
#[derive(Debug, thiserror::Error)]
#[error("slower or failed:\n  {}", .0.join("\n  "))]
struct Slower(Vec<String>);

/// A path relative to the current folder, where it is below it.
fn short(path: &Path) -> PathBuf {
    let below = std::env::current_dir().ok().and_then(|cwd| path.strip_prefix(cwd).ok().map(Path::to_owned));
    below.filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| path.to_owned())
}
