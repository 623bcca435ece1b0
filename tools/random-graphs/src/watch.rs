//! The process that watches the others: starts them, ends what hangs, and counts how cases end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use tempfile::TempDir;

/// Which cases are run, and within which limits.
#[derive(Args, Clone)]
pub struct Cases {
    /// How many cases to run
    #[arg(long, default_value_t = 1000)]
    pub cases: u64,
    /// The number of the first case; a case's number decides everything about it
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// Processes that work at once
    #[arg(long, default_value_t = 2)]
    pub jobs: u64,
    /// Memory that the process of a case may hold, in MB
    #[arg(long, default_value_t = 1000)]
    pub memory: u64,
    /// Seconds that a case may take
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Run the cases in this process, and write how they end to this file
    #[arg(long, hide = true, value_name = "FILE")]
    pub log: Option<PathBuf>,
}

impl Cases {
    /// The numbers of the cases that one process runs.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        (self.first..self.first.saturating_add(self.cases)).step_by(usize::try_from(self.jobs).unwrap_or(1))
    }
}

/// What is made of how a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Fine,
    /// As it may; the case is kept and named.
    Noted,
    /// As it must not.
    Fault,
}

/// How the name of a kind of operators begins where these are counted: how many kinds there are is told.
const KIND: &str = "operator ";

/// How cases ended, with the numbers of those that should not have.
#[derive(Default)]
pub struct Tally {
    ends: BTreeMap<String, u64>,
    counts: BTreeMap<String, u64>,
    noted: BTreeMap<String, Vec<u64>>,
    faults: Vec<String>,
    peak: u64,
}

impl Tally {
    /// Whether every case ended as it may.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ends.iter().try_for_each(|(end, cases)| writeln!(f, "{cases:8}  {end}"))?;
        if !self.counts.is_empty() {
            writeln!(f)?;
        }
        let (kinds, others): (Vec<_>, Vec<_>) = self.counts.iter().partition(|(what, _)| what.starts_with(KIND));
        others.iter().try_for_each(|(what, count)| writeln!(f, "{count:8}  {what}"))?;
        if let Some((rarest, count)) = kinds.iter().min_by_key(|(_, count)| **count) {
            writeln!(f, "{:8}  kinds of operators, {count} of {}", kinds.len(), &rarest[KIND.len()..])?;
        }
        self.noted.iter().try_for_each(|(end, cases)| writeln!(f, "cases with {end}: {cases:?}"))?;
        self.faults.iter().try_for_each(|fault| writeln!(f, "FAULT {fault}"))?;
        let cases: u64 = self.ends.values().sum();
        writeln!(f, "{cases} cases, {} faults, at most {} MB", self.faults.len(), self.peak / 1000)
    }
}

/// One process, and how far its log was read.
struct Worker {
    child: Child,
    log: PathBuf,
    read: usize,
    running: Option<(u64, String)>,
    since: Instant,
    next: u64,
}

struct Watching<'a> {
    cases: &'a Cases,
    arguments: &'a [OsString],
    judge: &'a dyn Fn(&str, &str) -> End,
    keep: &'a dyn Fn(u64) -> Result<()>,
    folder: TempDir,
    tally: Tally,
}

/// Runs cases in processes of this program: with `arguments`, and the options of [`Cases`] after them. `judge` says what is
/// made of a kind of end, and of what the case was at, and `keep` keeps a case that did not end as it should.
///
/// # Errors
/// When a process cannot be started, or what it writes is no log.
pub fn watch(
    cases: &Cases,
    arguments: &[OsString],
    judge: &dyn Fn(&str, &str) -> End,
    keep: &dyn Fn(u64) -> Result<()>,
) -> Result<Tally> {
    ensure!(cases.jobs > 0 && cases.cases > 0, "nothing to do: give at least one job and one case");
    let folder = tempfile::tempdir()?;
    let mut watching = Watching { cases, arguments, judge, keep, folder, tally: Tally::default() };
    let end = cases.first.saturating_add(cases.cases);
    let starts = cases.first..end.min(cases.first + cases.jobs);
    let mut workers = starts.map(|first| watching.start(first)).collect::<Result<Vec<_>>>()?;
    while !workers.is_empty() {
        std::thread::sleep(Duration::from_millis(50));
        let mut going = Vec::new();
        for mut worker in workers {
            let exited = worker.child.try_wait()?;
            watching.read(&mut worker)?;
            let hangs = worker.since.elapsed() > Duration::from_secs(cases.seconds);
            let cause = match (exited, hangs) {
                (None, false) => {
                    going.push(worker);
                    continue;
                }
                (Some(status), _) => status.to_string(),
                (None, true) => {
                    worker.child.kill()?;
                    worker.child.wait()?;
                    format!("no end after {} s", cases.seconds)
                }
            };
            if let Some((case, what)) = worker.running.take() {
                watching.ended(case, &what, &cause, "")?;
            } else if exited.is_some_and(|status| !status.success()) {
                anyhow::bail!("a process for cases ended before it began one: {cause}");
            }
            if worker.next < end {
                going.push(watching.start(worker.next)?);
            }
        }
        workers = going;
    }
    Ok(watching.tally)
}

impl Watching<'_> {
    fn start(&self, first: u64) -> Result<Worker> {
        let log = self.folder.path().join(format!("{first}.log"));
        let left = self.cases.first.saturating_add(self.cases.cases) - first;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(self.arguments).arg("--log").arg(&log);
        command.args(["--first", &first.to_string(), "--cases", &left.to_string()]);
        command.args(["--jobs", &self.cases.jobs.to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Worker { child, log, read: 0, running: None, since: Instant::now(), next: first })
    }

    /// Reads what a process has written since.
    fn read(&mut self, worker: &mut Worker) -> Result<()> {
        let Ok(text) = fs::read_to_string(&worker.log) else { return Ok(()) };
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        let lines = text[worker.read..whole].to_owned();
        worker.read = whole;
        for line in lines.lines() {
            worker.since = Instant::now();
            let mut words = line.splitn(3, ' ');
            let (kind, case) = (words.next(), words.next().and_then(|word| word.parse::<u64>().ok()));
            let case = case.with_context(|| format!("`{line}` names no case"))?;
            let text = words.next().unwrap_or_default();
            match kind {
                Some("begin") => {
                    worker.running = Some((case, text.to_owned()));
                    worker.next = case + self.cases.jobs;
                }
                Some("step") => worker.running = Some((case, text.to_owned())),
                Some("count") => *self.tally.counts.entry(text.to_owned()).or_default() += 1,
                _ => {
                    let what = worker.running.take().map(|(_, what)| what).unwrap_or_default();
                    let mut words = text.splitn(3, ' ');
                    let end = words.next().unwrap_or_default();
                    let peak: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
                    self.tally.peak = self.tally.peak.max(peak);
                    if peak > self.cases.memory * 1000 {
                        self.fault(case, &format!("{} MB, of {what}", peak / 1000))?;
                    }
                    self.ended(case, &what, end, words.next().unwrap_or_default())?;
                }
            }
        }
        Ok(())
    }

    /// Counts a case that ended.
    fn ended(&mut self, case: u64, what: &str, end: &str, message: &str) -> Result<()> {
        *self.tally.ends.entry(end.to_owned()).or_default() += 1;
        match (self.judge)(end, what) {
            End::Fine => Ok(()),
            End::Noted => {
                self.tally.noted.entry(end.to_owned()).or_default().push(case);
                (self.keep)(case)
            }
            End::Fault => {
                let of = if what.is_empty() { String::new() } else { format!(", of {what}") };
                let message = if message.is_empty() { String::new() } else { format!(": {message}") };
                self.fault(case, &format!("{end}{of}{message}"))
            }
        }
    }

    fn fault(&mut self, case: u64, text: &str) -> Result<()> {
        let line = format!("case {case}: {text}");
        eprintln!("{line}");
        self.tally.faults.push(line);
        (self.keep)(case)
    }
}
