//! `planish sweep`.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use planish_data::Shard;
use planish_measure::sweep::{
    Counts, Handed, Job, JobResult, Jobs, Merged, Runner, Scheduler, State, Status, SweepObserver, TryAgain, states,
};
use serde_json::{Value, json};

use super::shard::shard;
use super::terminal::progress;
use super::{Cli, Command as Planish, Usage, note, print, print_json, warn};

/// The most tasks that an array has by default: Slurm's own limit.
const TASKS: usize = 1000;

/// Run a grid of models, forms, data and shapes as jobs, here or on several machines
///
/// The plan is a file of JSON (docs/scale.md, docs/sweep.schema.json). For each model and each form there is a job that compiles
/// and verifies, one for each data set that evaluates, and one for each shape that measures. A job needs nothing of another job. Its
/// inputs are known by their BLAKE3 digests, and a job whose input has changed since the sweep was planned is not run.
///
/// The output folder has jobs.json, the list of jobs, and results/ID.json for each job that ended: its command, where it ran, and its
/// figures. A result is written whole or not at all, so a sweep that was ended goes on where it was. Several processes may have one output
/// folder: a job is taken by the lock of a file, and no two run the same job at once. When all jobs have a result, the
/// tables are written: table.json and table.csv, which do not depend on who ran the jobs or when, and times.json and times.csv.
///
/// The exit code is 0 when all jobs are done, 1 when a job failed that would fail again (the others are run first), and 75 when a
/// job may be done on another try: a signal ended it, its runtime is not there, or the disk is full.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The plan
    #[arg(required = true)]
    plan: Option<PathBuf>,
    /// The folder of the results
    #[arg(short, long, value_name = "FOLDER", required = true)]
    output: Option<PathBuf>,
    /// How many jobs run at once on this machine. Jobs that measure times run after the others, one at a time
    #[arg(long, default_value = "1", value_name = "N")]
    processes: NonZeroUsize,
    /// Run shard K of N only: every Nth job, from job K on. With auto, variables of Slurm, Kubernetes, AWS Batch or MPI say which
    #[arg(long, value_name = "K/N|auto", value_parser = shard)]
    shard: Option<Shard>,
    /// Run the job of this id only, as `planish sweep list` prints it
    #[arg(long, value_name = "ID", conflicts_with = "shard")]
    job: Option<String>,
    /// Run jobs again that failed
    #[arg(long)]
    failed: bool,
    /// Write jobs.json, and print a program that hands the jobs to a scheduler
    #[arg(long = "for", id = "scheduler", value_enum, value_name = "SCHEDULER",
        conflicts_with_all = ["shard", "job", "failed", "processes"])]
    scheduler: Option<SchedulerName>,
    /// The tasks of the array of Slurm or Kubernetes, which jobs are dealt out to [default: one for each job, but at most 1000]
    #[arg(long, value_name = "N", requires = "scheduler")]
    tasks: Option<NonZeroUsize>,
}

#[derive(clap::Subcommand)]
enum Command {
    List(ListArguments),
    Merge(MergeArguments),
}

/// List the jobs of a plan or of an output folder, with their ids and what is known of them
#[derive(clap::Args)]
struct ListArguments {
    /// The plan, or the output folder of a sweep
    plan: PathBuf,
    /// The output folder
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Merge the results of all jobs into the tables, and print the table
///
/// If results are missing or damaged, nothing is written. The error names the jobs, and the --array= of a Slurm array that runs them.
#[derive(clap::Args)]
struct MergeArguments {
    /// The output folder of the sweep
    output: PathBuf,
    /// The tasks of the array that the jobs were dealt out to [default: one for each job, but at most 1000]
    #[arg(long, value_name = "N")]
    tasks: Option<NonZeroUsize>,
    /// Print table.json
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SchedulerName {
    /// A program of Python for Ray
    Ray,
    /// A batch script for Slurm
    Slurm,
    /// A Job for Kubernetes
    Kubernetes,
}

impl From<SchedulerName> for Scheduler {
    fn from(name: SchedulerName) -> Self {
        match name {
            SchedulerName::Ray => Self::Ray,
            SchedulerName::Slurm => Self::Slurm,
            SchedulerName::Kubernetes => Self::Kubernetes,
        }
    }
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    match &arguments.command {
        Some(Command::List(of)) => return list(of),
        Some(Command::Merge(of)) => return merge(&Jobs::read(&of.output)?, &of.output, of.tasks, of.json),
        None => {}
    }
    let (Some(plan), Some(output)) = (&arguments.plan, &arguments.output) else {
        return Err(Usage("a plan and --output are needed".to_owned()).into());
    };
    let jobs = Jobs::of(plan, Some(output))?;
    check(&jobs)?;
    jobs.write(output)?;
    if let Some(scheduler) = arguments.scheduler {
        if scheduler == SchedulerName::Ray && arguments.tasks.is_some() {
            return Err(Usage("--tasks is for arrays; Ray has a task for each job: leave it out".to_owned()).into());
        }
        let tasks = tasks(&jobs, arguments.tasks);
        let inputs = jobs.jobs.iter().flat_map(|job| job.inputs.values()).map(|input| input.path.as_path()).collect();
        let handed = Handed { plan, output, threads: jobs.threads, tasks, inputs };
        return print(&Scheduler::from(scheduler).program(&handed)?);
    }
    let own = chosen(&jobs, &arguments)?;
    let console = Console { total: own.len() };
    let program = std::env::current_exe().context("the program of planish cannot be found")?;
    let runner = Runner::new(program, plan, output, arguments.failed, &console)?;
    let Counts { before, done, failed, again } = runner.run(&own, arguments.processes.into())?;
    note(&format!("{done} jobs done now, {before} before, {failed} failed, {again} to be tried again"));
    if again > 0 {
        let text = format!("{again} of {} jobs are not done; run the same command again", own.len());
        return Err(TryAgain(text).into());
    }
    // Whoever runs the last of all shards merges their results.
    let is_last = || arguments.shard.is_some() && states(&jobs, output).iter().all(State::is_settled);
    if own.len() == jobs.jobs.len() || is_last() {
        return merge(&jobs, output, arguments.tasks, false);
    }
    failures(failed)
}

/// Refuses jobs whose commands planish does not take, or that measure more than one artifact.
fn check(jobs: &Jobs) -> Result<(), Usage> {
    let mut known = BTreeSet::new();
    let all = jobs.jobs.iter().flat_map(|job| job.commands.iter().map(move |words| (job, words)));
    for (job, words) in all.filter(|(_, words)| known.insert(*words)) {
        let parsed = Cli::try_parse_from(std::iter::once("planish").chain(words.iter().map(String::as_str)));
        let wrong = match parsed.map(|cli| cli.command) {
            Ok(Planish::Bench(of)) if of.contestants() > 1 => "it measures several artifacts".to_owned(),
            Ok(_) => continue,
            Err(error) if error.use_stderr() => {
                let text = error.to_string();
                text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
            }
            Err(_) => "its options ask for a help page or a version".to_owned(),
        };
        return Err(Usage(format!("{}: {wrong}; correct the options in the plan", job.title())));
    }
    Ok(())
}

/// The jobs that this process is to run.
fn chosen<'a>(jobs: &'a Jobs, arguments: &Arguments) -> Result<Vec<&'a Job>> {
    let all = jobs.jobs.iter();
    if let Some(id) = &arguments.job {
        let job = all.clone().find(|job| job.id == *id);
        let missing = || {
            let text =
                format!("the plan has no job {id}; `planish sweep list` has their ids, which change with the inputs");
            Usage(text)
        };
        return Ok(vec![job.ok_or_else(missing)?]);
    }
    let is_own = |at: usize| arguments.shard.is_none_or(|shard| shard.has(at));
    Ok(all.enumerate().filter(|(at, _)| is_own(*at)).map(|(_, job)| job).collect())
}

fn tasks(jobs: &Jobs, asked: Option<NonZeroUsize>) -> usize {
    asked.map_or(jobs.jobs.len().clamp(1, TASKS), NonZeroUsize::get)
}

fn failures(failed: usize) -> Result<()> {
    match failed {
        0 => Ok(()),
        1 => bail!("a job failed; `planish sweep PLAN -o FOLDER --failed` runs it again"),
        _ => bail!("{failed} jobs failed; `planish sweep PLAN -o FOLDER --failed` runs them again"),
    }
}

fn merge(jobs: &Jobs, output: &Path, asked: Option<NonZeroUsize>, json: bool) -> Result<()> {
    let merged = Merged::of(jobs, output, tasks(jobs, asked))?;
    merged.write(output)?;
    if json {
        print_json(&merged.exact())?
    } else {
        print(&merged.text())?
    }
    failures(merged.failed())
}

fn list(arguments: &ListArguments) -> Result<()> {
    let (jobs, output) = match arguments.plan.is_dir() {
        true => (Jobs::read(&arguments.plan)?, Some(&arguments.plan)),
        false => (Jobs::of(&arguments.plan, arguments.output.as_deref())?, arguments.output.as_ref()),
    };
    check(&jobs)?;
    let states = output.map_or_else(Vec::new, |output| states(&jobs, output));
    let state = |at: usize| states.get(at).map_or("missing", State::name);
    if arguments.json {
        let row = |(at, job): (usize, &Job)| -> Result<Value> {
            let mut row = serde_json::to_value(job)?;
            row["state"] = json!(state(at));
            Ok(row)
        };
        return print_json(&jobs.jobs.iter().enumerate().map(row).collect::<Result<Vec<Value>>>()?);
    }
    let line = |(at, job): (usize, &Job)| format!("{} {} {}\n", job.id, state(at), job.title());
    print(&jobs.jobs.iter().enumerate().map(line).collect::<String>())
}

/// Messages for a person.
struct Console {
    total: usize,
}

impl SweepObserver for Console {
    fn warning(&self, text: &str) {
        warn(text);
    }

    fn ended(&self, result: &JobResult) {
        let (title, id, seconds) = (result.job.title(), &result.job.id, result.ran.seconds);
        match (result.status, &result.error) {
            (Status::Done, _) => progress(&format!("{title} ({id}): {seconds:.2} s")),
            (status, error) => {
                let error = error.as_deref().unwrap_or_default();
                warn(&format!("{title} ({id}): {}: {error}", status.name()));
            }
        }
    }

    fn waits(&self, count: usize) {
        note(&format!("waiting for {count} of {} jobs, which other processes run", self.total));
    }
}
