//! What came of a job: one file for each, with a digest of its own contents.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_artifact::files::{self, unfinished::PROCESS};
use planish_files::Kind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Job;

/// Whether a job is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is, and has figures.
    Done,
    /// It failed, and would fail again.
    Failed,
    /// It was ended, or something was not available: it may be done when it is run again.
    Retry,
}

impl Status {
    /// How it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Retry => "retry",
        }
    }
}

/// Where and when a job ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ran {
    /// The name of the machine.
    pub host: String,
    /// Its processor.
    pub cpu: String,
    /// The process that ran it.
    pub process: u32,
    /// When it began, in seconds since 1970, UTC.
    pub time: u64,
    /// How long it took.
    pub seconds: f64,
}

/// What came of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobResult {
    /// The job.
    pub job: Job,
    /// Whether it is done.
    pub status: Status,
    /// The exit code of the last command; absent where a signal ended it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<u8>,
    /// Why it is not done.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Where it ran.
    pub ran: Ran,
    /// The figures that do not depend on time: the same on each machine of one kind.
    pub figures: Map<String, Value>,
    /// The figures that do.
    pub times: Map<String, Value>,
}

/// The file: a result, and the digest of its JSON in one line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File<T> {
    schema: u32,
    blake3: String,
    result: T,
}

impl JobResult {
    /// Where the result of a job is in the output folder.
    #[must_use]
    pub fn path(output: &Path, id: &str) -> PathBuf {
        output.join("results").join(format!("{id}.json"))
    }

    /// Reads the result of a job; `None` where there is none.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, or is of another job.
    pub fn read(output: &Path, job: &Job) -> Result<Option<Self>> {
        let path = Self::path(output, &job.id);
        let Some(text) = planish_files::read_if_there(&path, &Kind::SWEEP)? else { return Ok(None) };
        Self::parse(&text, job).map(Some).with_context(|| format!("{} is damaged", path.display()))
    }

    fn parse(text: &str, job: &Job) -> Result<Self> {
        let file: File<Value> = serde_json::from_str(text)?;
        if digest(&file.result)? != file.blake3 {
            bail!("its digest is not that of its contents");
        }
        let result: Self = serde_json::from_value(file.result)?;
        if result.job != *job {
            bail!("it is of another job");
        }
        Ok(result)
    }

    /// Writes the file whole, or not at all.
    ///
    /// # Errors
    /// When that is impossible.
    pub fn write(&self, output: &Path) -> Result<()> {
        let result = serde_json::to_value(self)?;
        let file = File { schema: 1, blake3: digest(&result)?, result };
        files::write(&Self::path(output, &self.job.id), (serde_json::to_string_pretty(&file)? + "\n").as_bytes())?;
        PROCESS.goes_on();
        Ok(())
    }
}

fn digest(result: &Value) -> Result<String> {
    Ok(blake3::hash(&serde_json::to_vec(result)?).to_hex().to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::super::Jobs;
    use super::super::jobs::tests::planned;
    use super::*;

    pub(in super::super) fn result(job: &Job, status: Status) -> JobResult {
        let ran = Ran { host: "here".to_owned(), cpu: "A CPU".to_owned(), process: 1, time: 2, seconds: 0.5 };
        let figures = Map::from_iter([("cosine".to_owned(), 0.1.into())]);
        let times = Map::from_iter([("p50".to_owned(), 1.5.into())]);
        JobResult { job: job.clone(), status, code: Some(0), error: None, ran, figures, times }
    }

    #[test]
    fn a_damaged_result_is_none() {
        let (place, plan) = planned();
        let [first, second, ..] = &Jobs::of(&plan, None).unwrap().jobs[..] else { panic!("there are jobs") };
        assert_eq!(JobResult::read(place.path(), first).unwrap(), None);
        fs::create_dir(place.path().join("results")).unwrap();
        result(first, Status::Done).write(place.path()).unwrap();
        assert_eq!(JobResult::read(place.path(), first).unwrap(), Some(result(first, Status::Done)));
        let path = JobResult::path(place.path(), &first.id);
        let text = fs::read_to_string(&path).unwrap();
        let error = |text: &str| {
            fs::write(&path, text).unwrap();
            format!("{:#}", JobResult::read(place.path(), first).unwrap_err())
        };
        assert!(error(&text.replace("0.1", "0.2")).ends_with("is damaged: its digest is not that of its contents"));
        assert!(error(&text[..text.len() / 2]).contains("is damaged: EOF"));
        let other = serde_json::to_string(&File {
            schema: 1,
            blake3: digest(&serde_json::to_value(result(second, Status::Done)).unwrap()).unwrap(),
            result: result(second, Status::Done),
        });
        assert!(error(&other.unwrap()).ends_with("it is of another job"));
    }
}
