//! The process that watches the others: starts them, ends what hangs, and counts how cases end.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::Arguments;
use crate::work::{changed, models};

/// How cases ended, with the numbers of those that should not have.
#[derive(Default)]
pub(crate) struct Tally {
    ends: BTreeMap<String, Vec<u64>>,
    faults: Vec<String>,
    peak: u64,
}

impl Tally {
    /// Whether every case ended with an artifact, or an error of one of the kinds that are planned.
    pub(crate) fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (end, cases) in &self.ends {
            writeln!(f, "{:8}  {end}", cases.len())?;
        }
        let missed = self.ends.get("exit 3").map_or(&[][..], Vec::as_slice);
        if !missed.is_empty() {
            writeln!(f, "cases with exit 3: {missed:?}")?;
        }
        self.faults.iter().try_for_each(|fault| writeln!(f, "FAULT {fault}"))?;
        let cases: usize = self.ends.values().map(Vec::len).sum();
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

pub(crate) fn run(arguments: &Arguments) -> Result<Tally> {
    let folder = tempfile::tempdir()?;
    let mut tally = Tally::default();
    let end = arguments.first + arguments.cases;
    let starts = arguments.first..end.min(arguments.first + arguments.jobs);
    let mut workers = starts.map(|first| start(arguments, &folder, first)).collect::<Result<Vec<_>>>()?;
    while !workers.is_empty() {
        std::thread::sleep(Duration::from_millis(50));
        let mut going = Vec::new();
        for mut worker in workers {
            let exited = worker.child.try_wait()?;
            read(&mut worker, arguments, &mut tally)?;
            let hangs = worker.since.elapsed() > Duration::from_secs(arguments.seconds);
            let cause = match (exited, hangs) {
                (None, false) => {
                    going.push(worker);
                    continue;
                }
                (Some(status), _) => status.to_string(),
                (None, true) => {
                    worker.child.kill()?;
                    worker.child.wait()?;
                    format!("no end after {} s", arguments.seconds)
                }
            };
            if let Some((case, path)) = worker.running.take() {
                tally.ends.entry(cause.clone()).or_default().push(case);
                fault(arguments, &mut tally, case, &format!("{cause}, of {path}"))?;
            }
            if worker.next < end {
                going.push(start(arguments, &folder, worker.next)?);
            }
        }
        workers = going;
    }
    Ok(tally)
}

fn start(arguments: &Arguments, folder: &TempDir, first: u64) -> Result<Worker> {
    let log = folder.path().join(format!("{first}.log"));
    let mut command = Command::new(std::env::current_exe()?);
    let left = arguments.first + arguments.cases - first;
    command.args(&arguments.folders).arg("--log").arg(&log).args(["--target", &arguments.target]);
    command.args(["--first", &first.to_string(), "--cases", &left.to_string(), "--jobs", &arguments.jobs.to_string()]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(Worker { child, log, read: 0, running: None, since: Instant::now(), next: first })
}

/// Reads what a process has written since.
fn read(worker: &mut Worker, arguments: &Arguments, tally: &mut Tally) -> Result<()> {
    let Ok(text) = fs::read_to_string(&worker.log) else { return Ok(()) };
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    let lines = text[worker.read..whole].to_owned();
    worker.read = whole;
    for line in lines.lines() {
        worker.since = Instant::now();
        let mut words = line.splitn(5, ' ');
        let (kind, case) = (words.next(), words.next().and_then(|word| word.parse::<u64>().ok()));
        let case = case.with_context(|| format!("`{line}` names no case"))?;
        if kind == Some("begin") {
            worker.running = Some((case, words.collect::<Vec<_>>().join(" ")));
            worker.next = case + arguments.jobs;
            continue;
        }
        let path = worker.running.take().map(|(_, path)| path).unwrap_or_default();
        let code = words.next().unwrap_or_default();
        let peak: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let message = words.next().unwrap_or_default();
        tally.peak = tally.peak.max(peak);
        tally.ends.entry(format!("exit {code}")).or_default().push(case);
        if peak > arguments.memory * 1000 {
            fault(arguments, tally, case, &format!("{} MB, of {path}", peak / 1000))?;
        }
        match code {
            "0" | "1" => {}
            "3" => keep(arguments, case)?,
            _ => fault(arguments, tally, case, &format!("exit {code}, of {path}: {message}"))?,
        }
    }
    Ok(())
}

fn fault(arguments: &Arguments, tally: &mut Tally, case: u64, text: &str) -> Result<()> {
    let line = format!("case {case}: {text}");
    eprintln!("{line}");
    tally.faults.push(line);
    keep(arguments, case)
}

/// Writes the model of a case, where that was asked for.
fn keep(arguments: &Arguments, case: u64) -> Result<()> {
    let Some(folder) = &arguments.keep else { return Ok(()) };
    fs::create_dir_all(folder)?;
    let (_, model) = changed(&models(&arguments.folders)?, case)?;
    fs::write(folder.join(format!("{case}.onnx")), model).context("cannot write a changed model")
}
