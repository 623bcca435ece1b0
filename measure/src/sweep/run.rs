//! Runs jobs in processes of their own.
//!
//! A job is taken by the lock of a file in the output folder, which the system frees when the process that has it ends,
//! whatever ends it. The process of a command has the same lock, as its standard input: a command that outlives the one that
//! started it keeps the job taken to its end.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use planish_artifact::draft::Draft;

use super::figures::{Figures, figures};
use super::inputs::{Digests, InputChanged};
use super::jobs::folder;
use super::{Job, JobKind, JobResult, Ran, Status, TryAgain};
use crate::bench::Environment;

/// What the standard error of a command is kept of, in bytes.
const ERROR_BYTES: usize = 2000;

/// Errors of the system that may pass, as a message names them: no memory, input and output, no space, a quota, a stale file.
const PASSING: [i32; 5] = [12, 5, 28, 122, 116];

/// What a caller sees while jobs run.
pub trait SweepObserver: Sync {
    /// Something is wrong that does not end the sweep.
    fn warning(&self, text: &str);
    /// A job ended.
    fn ended(&self, result: &JobResult);
    /// Another process runs so many jobs, which are waited for.
    fn waits(&self, count: usize);
}

/// How many jobs came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Done before, or by another process.
    pub before: usize,
    /// Done now.
    pub done: usize,
    /// Failed for good, now or before.
    pub failed: usize,
    /// To be tried again.
    pub again: usize,
}

/// Runs jobs of one plan.
pub struct Runner<'a> {
    program: PathBuf,
    folder: PathBuf,
    output: PathBuf,
    with_failed: bool,
    observer: &'a dyn SweepObserver,
    digests: Digests,
    counts: Mutex<Counts>,
    errors: Mutex<Vec<anyhow::Error>>,
    host: String,
    cpu: String,
}

/// A job that is taken as long as this is there.
struct Claim(File);

impl<'a> Runner<'a> {
    /// A runner of the plan at a path, whose jobs run with a program of planish. `with_failed` runs jobs again that failed for
    /// good.
    ///
    /// # Errors
    /// When the output folder cannot be made.
    pub fn new(
        program: PathBuf,
        plan: &Path,
        output: &Path,
        with_failed: bool,
        observer: &'a dyn SweepObserver,
    ) -> Result<Self> {
        for name in ["results", "claims"] {
            let path = output.join(name);
            fs::create_dir_all(&path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        }
        let host = planish_files::read_system("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        Ok(Self {
            program,
            folder: folder(plan).to_owned(),
            output: output.to_owned(),
            with_failed,
            observer,
            digests: Digests::of_user(),
            counts: Mutex::default(),
            errors: Mutex::default(),
            host,
            cpu: Environment::read([]).cpu.model,
        })
    }

    /// Runs the jobs that are not done, so many at once; those that measure times run after the others, one at a time.
    ///
    /// # Errors
    /// When an input changed or nothing can be written: after all other jobs.
    pub fn run(self, jobs: &[&Job], processes: usize) -> Result<Counts> {
        let (timed, rest): (Vec<&Job>, Vec<&Job>) = jobs.iter().partition(|job| job.kind == JobKind::Bench);
        let mut taken = self.run_side_by_side(&rest, processes);
        taken.extend(self.run_side_by_side(&timed, 1));
        if !taken.is_empty() {
            self.observer.waits(taken.len());
            for job in taken {
                self.attempt(job, true);
            }
        }
        let mut errors = self.errors.into_inner().unwrap_or_else(PoisonError::into_inner);
        // What does not go away by itself comes first.
        errors.sort_by_key(|error| !error.is::<InputChanged>());
        let more = errors.len().saturating_sub(1);
        match errors.into_iter().next() {
            Some(error) if more > 0 => {
                Err(error.context(format!("{} jobs could not run, of which the first", more + 1)))
            }
            Some(error) => Err(error),
            None => Ok(self.counts.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Returns the jobs that other processes have taken.
    fn run_side_by_side<'j>(&self, jobs: &[&'j Job], processes: usize) -> Vec<&'j Job> {
        let (next, taken) = (Mutex::new(jobs.iter().copied()), Mutex::new(Vec::new()));
        let work = || {
            while let Some(job) = { next.lock().unwrap_or_else(PoisonError::into_inner).next() } {
                if !self.attempt(job, false) {
                    taken.lock().unwrap_or_else(PoisonError::into_inner).push(job);
                }
            }
        };
        std::thread::scope(|scope| (0..processes.min(jobs.len())).for_each(|_| _ = scope.spawn(work)));
        taken.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a job, unless it is done; returns false where another process has it.
    fn attempt(&self, job: &Job, waits: bool) -> bool {
        match self.take(job, waits) {
            Ok(taken) => return taken,
            Err(error) => {
                let error = error.context(format!("{} ({})", job.title(), job.id));
                self.errors.lock().unwrap_or_else(PoisonError::into_inner).push(error);
            }
        }
        true
    }

    fn take(&self, job: &Job, waits: bool) -> Result<bool> {
        let Some(claim) = self.claim(job, waits)? else { return Ok(false) };
        for input in &job.inputs {
            self.digests.check(&self.folder, (input.0, input.1))?;
        }
        if let Some(status) = self.known(job) {
            self.count(|counts| match status {
                Status::Failed => &mut counts.failed,
                Status::Done | Status::Retry => &mut counts.before,
            });
            return Ok(true);
        }
        let result = self.result(job, &claim)?;
        result.write(&self.output)?;
        self.count(|counts| match result.status {
            Status::Done => &mut counts.done,
            Status::Failed => &mut counts.failed,
            Status::Retry => &mut counts.again,
        });
        self.observer.ended(&result);
        Ok(true)
    }

    fn count(&self, which: impl FnOnce(&mut Counts) -> &mut usize) {
        *which(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner)) += 1;
    }

    /// What came of a job that is not to be run.
    fn known(&self, job: &Job) -> Option<Status> {
        match JobResult::read(&self.output, job) {
            Ok(result) => result.map(|result| result.status).filter(|status| match status {
                Status::Done => true,
                Status::Failed => !self.with_failed,
                Status::Retry => false,
            }),
            Err(error) => {
                self.observer.warning(&format!("{error:#}; the job is run again"));
                None
            }
        }
    }

    /// Takes a job; `None` where another process has it.
    fn claim(&self, job: &Job, waits: bool) -> Result<Option<Claim>> {
        let path = self.output.join("claims").join(&job.id);
        let failed =
            || format!("cannot lock {}; the output folder has to be on a filesystem with locks", path.display());
        #[allow(clippy::disallowed_methods, reason = "a lock is no file that is read")]
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        if waits {
            file.lock().with_context(failed)?;
            return Ok(Some(Claim(file)));
        }
        match file.try_lock() {
            Ok(()) => Ok(Some(Claim(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).with_context(failed),
        }
    }

    fn result(&self, job: &Job, claim: &Claim) -> Result<JobResult> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let start = Instant::now();
        let place = Draft::temporary("planish-sweep").map_err(again)?;
        let mut last = None;
        for arguments in job.arguments(&place.folder().join("artifact")) {
            let input = claim.0.try_clone().context("cannot hand on a lock")?;
            let mut command = Command::new(&self.program);
            command.args(arguments).current_dir(&self.folder).stdin(Stdio::from(input));
            let output = command
                .output()
                .map_err(|error| TryAgain(format!("cannot start {}: {error}", self.program.display())))?;
            let is_done = output.status.success();
            last = Some(output);
            if !is_done {
                break;
            }
        }
        let output = last.context("the job has no command")?;
        let (mut status, code, mut error) = outcome(&output);
        let [figures, times] =
            if status == Status::Retry { Figures::default() } else { figures(job.kind, &output.stdout) };
        if status == Status::Done && figures.is_empty() && times.is_empty() {
            (status, error) = (Status::Failed, Some("the command printed no figures as JSON".to_owned()));
        }
        let ran = Ran {
            host: self.host.clone(),
            cpu: self.cpu.clone(),
            process: std::process::id(),
            time,
            seconds: (start.elapsed().as_secs_f64() * 1e3).round() / 1e3,
        };
        Ok(JobResult { job: job.clone(), status, code, error, ran, figures, times })
    }
}

fn again(error: anyhow::Error) -> TryAgain {
    TryAgain(format!("{error:#}"))
}

/// The signals of a program that did something wrong, which it would do again: SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV.
const CRASHES: [i32; 6] = [4, 5, 6, 7, 8, 11];

/// The exit code of a Rust program that panicked.
const PANICKED: u8 = 101;

/// What the end of a command says: a signal from outside, a runtime that is not available here, and errors of the system that pass
/// are reasons to try again. A crash is not.
fn outcome(output: &Output) -> (Status, Option<u8>, Option<String>) {
    let code = output.status.code().and_then(|code| u8::try_from(code).ok());
    let text = String::from_utf8_lossy(&output.stderr);
    let passes = PASSING.iter().any(|number| text.contains(&format!("(os error {number})")));
    let status = match code {
        Some(0) => return (Status::Done, code, None),
        Some(1..=3) if !passes => Status::Failed,
        Some(PANICKED) => Status::Failed,
        None if output.status.signal().is_some_and(|signal| CRASHES.contains(&signal)) => Status::Failed,
        _ => Status::Retry,
    };
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let errors = lines.iter().position(|line| line.starts_with("error: ")).unwrap_or(0);
    let all = lines[errors..].join("\n");
    let mut error = all.strip_prefix("error: ").unwrap_or(&all).to_owned();
    error.truncate(error.floor_char_boundary(ERROR_BYTES));
    if error.is_empty() {
        error = output.status.to_string();
    }
    (status, code, Some(error))
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn the_end_of_a_command_says_whether_to_try_again() {
        let ended = |raw: i32, text: &str| {
            let status = ExitStatus::from_raw(raw);
            outcome(&Output { status, stdout: Vec::new(), stderr: text.as_bytes().to_vec() })
        };
        assert_eq!(ended(0, "note: x"), (Status::Done, Some(0), None));
        let (status, code, error) = ended(1 << 8, "note: x\nerror: the model is bad\n  of such a kind\n");
        assert_eq!((status, code), (Status::Failed, Some(1)));
        assert_eq!(error.unwrap(), "the model is bad\n  of such a kind");
        assert_eq!(ended(3 << 8, "").0, Status::Failed);
        // A panic, and SIGSEGV.
        assert_eq!([ended(101 << 8, "").0, ended(11, "").0], [Status::Failed; 2]);
        assert_eq!(ended(4 << 8, "error: no runtime").0, Status::Retry);
        assert_eq!(ended(143 << 8, "").0, Status::Retry);
        assert_eq!(ended(1 << 8, "error: cannot write x: No space left on device (os error 28)").0, Status::Retry);
        let killed = ended(9, "");
        assert_eq!((killed.0, killed.1, killed.2.unwrap().as_str()), (Status::Retry, None, "signal: 9 (SIGKILL)"));
    }
}
